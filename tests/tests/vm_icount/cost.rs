//! What a packet costs, in instructions, beside what it cost when the numbers in `cost.txt` were written. In virtual
//! time, where one takes 2 ns, so the machine does not matter, and neither does whether the programs that are not in the
//! kernel are optimised.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::Command,
    thread,
};

use bestby_tests::{
    bpf::{Lab, runs},
    frame::{rtp_with, udp4},
    netns::{cgroup_root, in_namespace},
    program::{self, succeed},
    require,
};

/// `name: number`, a line each.
const KEPT: &str = include_str!("cost.txt");
/// A cost may rise by so much, in percent; one that fell by as much has its number lowered.
const PERCENT: f64 = 3.0;
const NS_PER_INSTRUCTION: u64 = 2;

type Costs = BTreeMap<String, f64>;

fn costs(text: &str) -> Costs {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let (name, number) = line.rsplit_once(": ")?;
            Some((name.to_owned(), number.trim().parse().ok()?))
        })
        .collect()
}

/// What is wrong with these costs.
fn judge(kept: &Costs, measured: &Costs) -> String {
    let mut wrong = String::new();
    for (name, &was) in kept {
        let Some(&is) = measured.get(name) else {
            writeln!(wrong, "{name}: not measured").unwrap();
            continue;
        };
        let percent = (is - was) / was * 100.0;
        println!("{name}: {is}, was {was} ({percent:+.1} %)");
        if percent > PERCENT {
            writeln!(
                wrong,
                "{name}: {is} instructions, {was} before ({percent:+.1} %)"
            )
            .unwrap();
        } else if percent < -PERCENT {
            println!("  FELL: write {is} into tests/tests/vm_icount/cost.txt");
        }
    }
    for name in measured.keys().filter(|name| !kept.contains_key(*name)) {
        writeln!(wrong, "{name}: no number in cost.txt").unwrap();
    }
    wrong
}

fn per_run((runs, ns): (u64, u64), before: (u64, u64)) -> f64 {
    ((ns - before.1) / (runs - before.0) / NS_PER_INSTRUCTION) as f64
}

/// The answer program for a datagram that is no answer; the RTT program for an acknowledgement.
fn of_received() -> Costs {
    fs::write("/proc/sys/kernel/bpf_stats_enabled", "1").unwrap();
    let costs = in_namespace(|| {
        let mut lab = Lab::new();
        let answers = lab.answers();
        let frame = udp4(5004, &rtp_with(96, 7, 9, 11));
        let _ = answers.instructions(&frame, 10);
        let received = answers.instructions(&frame, 1000) as f64;

        lab.attach_rtt(&cgroup_root());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut turns = |n| {
            for _ in 0..n {
                stream.write_all(b"x").unwrap();
                far.read_exact(&mut [0]).unwrap();
                far.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
            }
        };
        turns(20);
        let before = runs(lab.rtt_program());
        turns(500);
        let acknowledged = per_run(runs(lab.rtt_program()), before);
        Costs::from([
            ("received datagram, no answer".into(), received),
            ("acknowledgement".into(), acknowledged),
        ])
    });
    fs::write("/proc/sys/kernel/bpf_stats_enabled", "0").unwrap();
    costs
}

#[test]
fn no_packet_costs_3_percent_more_than_before() {
    if !require::can(require::bpf_qdisc()) {
        return;
    }
    let mut lab = Command::new(program::binary("bestby-lab"));
    let said = succeed(lab.args(["core", "--only", "few"]));
    let lines = said.lines().filter_map(|line| line.strip_prefix("cost: "));
    let mut measured = costs(&lines.collect::<Vec<_>>().join("\n"));
    measured.append(&mut thread::spawn(of_received).join().unwrap());
    let wrong = judge(&costs(KEPT), &measured);
    assert!(
        wrong.is_empty(),
        "costs have risen. Lower them, or write the new numbers into tests/tests/vm_icount/cost.txt, \
         and say why:\n{wrong}"
    );
}

/// Beside it: what is judged as risen, and what is not.
#[test]
fn cost_that_rose_or_has_no_number_is_found() {
    let kept = costs("# of a day\na, b: 1000\nc: 100\n");
    let now = |text: &str| judge(&kept, &costs(text));
    assert_eq!(now("a, b: 1030\nc: 90"), "");
    assert!(now("a, b: 1031\nc: 100").starts_with("a, b: 1031 instructions, 1000 before (+3.1 %)"));
    assert_eq!(now("c: 100"), "a, b: not measured\n");
    assert_eq!(now("a, b: 1\nc: 1\nd: 1"), "d: no number in cost.txt\n");
}
