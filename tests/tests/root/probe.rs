//! `bestby probe` from a host over a router to a receiver: each verdict, and what it must not be taken for.

use std::net::{Ipv6Addr, UdpSocket};
use std::process::{Command, Output};
use std::time::Duration;

use aya::EbpfLoader;
use aya::programs::tc::qdisc_add_clsact;
use aya::programs::{SchedClassifier, TcAttachType};
use bestby_bpf::abi::{BB_MODE_TC, bb_trust_key};
use bestby_tests::bpf::{Lab, iface, mapped};
use bestby_tests::clock::{SECOND, now_ns};
use bestby_tests::netns::{Netns, ifindex};
use bestby_tests::program::{binary, said};
use bestby_tests::user::as_nobody;
use serde_json::{Value, json};

const RECEIVERS: [&str; 2] = ["10.8.0.2", "fd08::2"];

/// What a device does with packets on their way to the receiver.
#[derive(Default, Clone, Copy)]
pub(crate) struct Hop {
    pub(crate) drop_options: u8,
    pub(crate) drop_lifetimes: u8,
    pub(crate) drop_deadlines: u8,
    pub(crate) loss_percent: u32,
}

/// The device does this from now on.
pub(crate) fn behave(netns: &Netns, device: &str, place: TcAttachType, hop: Hop) {
    netns.enter(|| {
        let mut programs = EbpfLoader::new()
            .override_global("drop_options", &hop.drop_options, true)
            .override_global("drop_lifetimes", &hop.drop_lifetimes, true)
            .override_global("drop_deadlines", &hop.drop_deadlines, true)
            .override_global("loss_percent", &hop.loss_percent, true)
            .load(include_bytes!(concat!(env!("OUT_DIR"), "/hop.bpf.o")))
            .unwrap();
        let program: &mut SchedClassifier =
            programs.program_mut("hop").unwrap().try_into().unwrap();
        program.load().unwrap();
        // Kernels without tcx need it; the others say that it is there, or do not care.
        let _ = qdisc_add_clsact(device);
        program.attach(device, place).unwrap();
        // It goes with the namespace.
        std::mem::forget(programs);
    });
}

struct Path {
    host: Netns,
    router: Netns,
    receiver: Netns,
}

fn write(netns: &Netns, file: &str, value: &str) {
    netns.enter(|| std::fs::write(format!("/proc/sys/net/{file}"), value).unwrap());
}

impl Path {
    fn new() -> Self {
        let [host, router, receiver] = [(); 3].map(|()| Netns::new());
        host.link("h0", "10.7.0.1/24", &router, "r0", "10.7.0.2/24");
        router.link("r1", "10.8.0.1/24", &receiver, "e0", "10.8.0.2/24");
        for (netns, dev, address) in [
            (&host, "h0", "fd07::1/64"),
            (&router, "r0", "fd07::2/64"),
            (&router, "r1", "fd08::1/64"),
            (&receiver, "e0", "fd08::2/64"),
        ] {
            netns.run(&format!("ip addr add {address} dev {dev} nodad"));
        }
        for (netns, family, gateway) in [
            (&host, 4, "10.7.0.2"),
            (&host, 6, "fd07::2"),
            (&receiver, 4, "10.8.0.1"),
            (&receiver, 6, "fd08::1"),
        ] {
            netns.run(&format!("ip -{family} route add default via {gateway}"));
        }
        write(&router, "ipv4/ip_forward", "1");
        write(&router, "ipv6/conf/all/forwarding", "1");
        Self {
            host,
            router,
            receiver,
        }
    }

    /// The router's last device does this from now on.
    fn behaves(&self, hop: Hop) {
        behave(&self.router, "r1", TcAttachType::Egress, hop);
    }

    fn probe(&self, arguments: &str) -> Output {
        let mut command = self.host.command(binary("bestby"));
        command.args(["--json", "probe"]);
        command.args(arguments.split(' ')).output().unwrap()
    }

    /// Exit code, verdicts and answers of a probe.
    #[track_caller]
    fn found(&self, arguments: &str) -> (i32, [Value; 3], Vec<u64>) {
        let output = self.probe(arguments);
        let answer: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", said(&output)));
        println!("{arguments}: {answer}");
        let trains = answer["trains"].as_array().unwrap();
        (
            output.status.code().unwrap(),
            ["path", "lifetime", "deadline"].map(|field| answer[field].clone()),
            trains
                .iter()
                .map(|train| train["answered"].as_u64().unwrap())
                .collect(),
        )
    }

    /// [`Path::found`] of several probes at once: each takes seconds.
    fn all_found<const N: usize>(&self, arguments: [&str; N]) -> [(i32, [Value; 3], Vec<u64>); N] {
        std::thread::scope(|scope| {
            arguments
                .map(|arguments| scope.spawn(|| self.found(arguments)))
                .map(|probe| probe.join().unwrap())
        })
    }

    /// Checks the exit code and the verdicts of several probes.
    #[track_caller]
    fn check<const N: usize>(&self, arguments: [&str; N], code: i32, verdicts: [&str; 3]) {
        let verdicts = verdicts.map(|word| match word {
            "" => Value::Null,
            word => json!(word),
        });
        for (found, arguments) in self.all_found(arguments).into_iter().zip(arguments) {
            assert_eq!((found.0, &found.1), (code, &verdicts), "{arguments}");
        }
    }
}

const IGNORES: [&str; 3] = ["tolerates", "ignores", "ignores"];
const DROPS: [&str; 3] = ["drops", "", ""];
const SILENT: [&str; 3] = ["silent", "", ""];

#[test]
fn probe_of_a_plain_path_finds_it_tolerates_the_option() {
    let path = Path::new();
    for found in path.all_found(RECEIVERS) {
        assert_eq!(found, (0, IGNORES.map(Value::from), vec![10; 4]));
    }
}

#[test]
fn probe_of_a_firewall_finds_it_drops_the_option() {
    let path = Path::new();
    path.behaves(Hop {
        drop_options: 1,
        ..Hop::default()
    });
    for (code, verdicts, answered) in path.all_found(RECEIVERS) {
        assert_eq!((code, answered), (3, vec![10, 0, 0, 0]));
        assert_eq!(verdicts[0], "drops");
    }
}

#[test]
fn probe_of_a_receiver_without_hop_by_hop_options_finds_ipv6_alone_drops_them() {
    let path = Path::new();
    write(&path.receiver, "ipv6/max_hbh_opts_number", "0");
    path.check(["fd08::2 --count 5"], 3, DROPS);
    path.check(["10.8.0.2 --count 5"], 0, IGNORES);
}

#[test]
fn probe_finds_which_stale_packets_the_last_hop_discards() {
    for (drop_deadlines, deadline) in [(0, "ignores"), (1, "acts")] {
        let path = Path::new();
        path.behaves(Hop {
            drop_lifetimes: 1,
            drop_deadlines,
            ..Hop::default()
        });
        let verdicts = ["tolerates", "acts", deadline];
        path.check(["10.8.0.2 --count 5", "fd08::2 --count 5"], 0, verdicts);
    }
}

/// 40 of 100 packets get lost, the same ones each time.
#[test]
fn probe_finds_bestby_at_the_last_hop_if_it_trusts_the_source() {
    let path = Path::new();
    let lab = path.router.enter(|| {
        let mut lab = Lab::bare();
        lab.iface(3, &iface(ifindex("r1"), BB_MODE_TC));
        lab.attach("r1");
        lab
    });
    path.check(RECEIVERS, 0, IGNORES);
    for addr in [
        mapped([10, 7, 0, 1]),
        "fd07::1".parse::<Ipv6Addr>().unwrap().octets(),
    ] {
        let key = bb_trust_key {
            prefix: 32 + 128,
            ifindex: path.router.enter(|| ifindex("r1")),
            addr,
        };
        lab.put("bb_trust", &key, &1u32);
    }
    path.check(RECEIVERS, 0, ["tolerates", "acts", "ignores"]);
    // With a clock, deadlines as well.
    lab.configure(|c| c.clock_until_ns = now_ns() + 60 * SECOND);
    path.check(RECEIVERS, 0, ["tolerates", "acts", "acts"]);
}

#[test]
fn probe_of_a_lossy_path_does_not_find_it_drops_the_option() {
    let path = Path::new();
    path.behaves(Hop {
        loss_percent: 40,
        ..Hop::default()
    });
    for receiver in RECEIVERS {
        let found = path.found(receiver);
        assert_ne!(found.1[0], "drops", "{found:?}");
        assert!(found.2[0] < 10, "{found:?}");
    }
}

#[test]
fn probe_of_a_lossy_path_with_a_firewall_finds_it_drops_the_option() {
    let path = Path::new();
    path.behaves(Hop {
        drop_options: 1,
        loss_percent: 40,
        ..Hop::default()
    });
    path.check(["10.8.0.2 --count 20"], 3, DROPS);
}

#[test]
fn probe_without_an_answer_finds_nothing() {
    let path = Path::new();
    // A router that refuses is no receiver.
    path.router.run("ip route add prohibit 10.9.0.0/24");
    let silent = ["10.8.0.77", "10.9.0.2", "10.9.0.2 --port 9"];
    path.check(silent, 4, SILENT);
}

#[test]
fn probe_of_a_port_counts_its_answers() {
    let path = Path::new();
    let served = path
        .receiver
        .enter(|| UdpSocket::bind("[::]:5004").unwrap());
    served
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 100];
            for _ in 0..40 {
                let (length, from) = served.recv_from(&mut bytes).unwrap();
                served.send_to(&bytes[..length], from).unwrap();
            }
        });
        let probes = ["10.8.0.2", "fd08::2"].map(|to| format!("{to} --port 5004 --count 5"));
        let probes = path.all_found([&probes[0], &probes[1]]);
        for found in probes {
            assert_eq!(found, (0, IGNORES.map(Value::from), vec![5; 4]));
        }
    });
}

/// A receiver's kernel refuses six times at once, then once a second.
#[test]
fn probe_of_a_closed_port_counts_the_refusals_of_the_receiver() {
    let path = Path::new();
    let closed = ["10.8.0.2 --port 9", "fd08::2 --port 9"];
    for (_, verdicts, answered) in path.all_found(closed) {
        assert!(answered.iter().sum::<u64>() >= 6, "{answered:?}");
        assert_ne!(verdicts[0], "drops", "{answered:?}");
        assert!(!verdicts.contains(&json!("acts")), "{answered:?}");
    }
    // Another receiver, whose limit is not used up.
    let path = Path::new();
    path.behaves(Hop {
        drop_options: 1,
        ..Hop::default()
    });
    path.check(["10.8.0.2 --port 9"], 3, DROPS);
}

#[test]
fn probe_that_cannot_be_sent_is_refused() {
    let path = Path::new();
    let refused = |arguments: &str, code: i32, word: &str| {
        let output = path.probe(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments}");
        let text = said(&output);
        assert!(text.contains(word), "{text}");
    };
    refused("224.0.0.1", 2, "one host");
    refused("10.8.0.2 --family 6", 1, "family");
    path.host.run("ip route del default");
    refused("10.8.0.2", 1, "ip route get");
}

#[test]
fn probe_without_the_capability_is_refused() {
    let path = Path::new();
    for arguments in [
        "10.8.0.2",
        "fd08::2",
        "10.8.0.2 --port 9",
        "fd08::2 --port 9",
    ] {
        let output = path.host.enter(|| {
            as_nobody(|| {
                let mut command = Command::new(binary("bestby"));
                command.arg("probe").args(arguments.split(' '));
                command.output().unwrap()
            })
        });
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        let text = said(&output);
        assert!(text.contains("CAP_NET_RAW"), "{text}");
    }
}
