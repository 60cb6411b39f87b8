//! What the lab's runs must not take over from the run before. In virtual time.

use std::fs;

use bestby_tests::{
    program::{self, succeed},
    require,
};

const SENT_OVER: &str = r#"
seconds = 1
queues = ["bestby qdisc triage"]
[topology]
load = 0.5
owd = 5
[traffic]
model = "conference"
"#;

#[test]
fn stalled_line_has_an_agent_of_its_own() {
    if !require::can(require::bpf_qdisc()) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let stall = "title = \"Line\"\nstall = { at = 300, length = 200 }";
    for (name, head) in [("path", "title = \"Path\""), ("stall", stall)] {
        fs::write(
            directory.join(name).with_extension("toml"),
            format!("{head}{SENT_OVER}"),
        )
        .unwrap();
    }
    // The agent of the first is kept for what comes over its path next.
    let out = directory.join("out");
    let mut lab = program::lab(&directory.join("path.toml"), &out);
    succeed(lab.arg(directory.join("stall.toml")));

    for scenario in ["path", "stall"] {
        let run = program::run(&out, scenario, "bestby-qdisc-triage");
        let [sent, on_time] = [0, 1].map(|at| run["audio"][at].as_u64().unwrap());
        // What the line held while it stood is late.
        assert!(on_time > 0 && on_time <= sent, "{run}");
        assert_eq!(on_time == sent, scenario == "path", "{run}");
    }
}

const LAST_HOP: &str = r#"
title = "Last hop"
seconds = 30
lifetime = 3000
queues = ["pfifo 50", "bestby qdisc triage limit 50"]
[topology]
bottleneck = "line"
trace = "bench"
owd = 50
[traffic]
model = "cbr"
"#;

/// What a run over [`LAST_HOP`], changed, says below `key` of two queues.
fn last_hop(
    change: impl FnOnce(String) -> String,
    queues: [&str; 2],
    key: &str,
) -> [serde_json::Value; 2] {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let scenario = directory.join("hop.toml");
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/traces/spikes-30");
    fs::write(&scenario, change(LAST_HOP.replace("bench", traces))).unwrap();
    let out = directory.join("out");
    succeed(&mut program::lab(&scenario, &out));
    queues.map(|queue| program::run(&out, "hop", queue)[key].clone())
}

#[test]
fn last_hop_drops_what_a_spike_made_stale_and_a_fifo_does_not() {
    if !require::can(require::bpf_qdisc()) {
        return;
    }
    let [fifo, ours] = last_hop(
        |text| text,
        ["pfifo-50", "bestby-qdisc-triage-limit-50"],
        "last_hop",
    );
    assert!(fifo["left_stale"].as_u64() > Some(20), "{fifo}");
    assert_eq!(ours["left_stale"], 0, "{ours}");
    // One spike.
    assert!(ours["on_line"].as_u64() <= Some(2), "{ours}");
}

#[test]
fn last_hop_that_truncates_spares_tfrc_the_losses_of_a_spike() {
    if !require::can(require::bpf_qdisc()) {
        return;
    }
    let ours = "bestby qdisc triage limit 1000";
    let tun = |text: String| {
        text.replace("pfifo 50", &format!("{ours} truncate"))
            .replace("bestby qdisc triage limit 50", ours)
            .replace("owd", "device = \"tun\"\nowd")
            .replace("[topology]", "control = \"tfrc\"\n[topology]")
            .replace("\"cbr\"", "\"cbr\"\nrate_kbit = 60\npacket_bytes = 514")
    };
    let queues = [
        "bestby-qdisc-triage-limit-1000-truncate",
        "bestby-qdisc-triage-limit-1000",
    ];
    let [truncates, discards] = last_hop(tun, queues, "tfrc");
    let of = |tfrc: &serde_json::Value, what: &str| tfrc[what].as_u64().unwrap();
    assert!(of(&truncates, "headers") > 10, "{truncates}");
    assert_eq!(of(&truncates, "counted"), 0, "{truncates}");
    assert_eq!(of(&discards, "headers"), 0, "{discards}");
    assert!(of(&discards, "counted") > 10, "{discards}");
}

const PROGRAMS: &str = r#"
title = "Programs"
seconds = 6
control = "program"
queues = ["tcp plain", "tcp ring", "quic reset", "quic bestby"]
[topology]
bottleneck = "router"
rate = "512kbit"
owd = 10
[traffic]
model = "layers"
"#;

#[test]
fn programs_of_bestby_have_the_base_layer_on_time_and_the_others_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let scenario = directory.join("programs.toml");
    fs::write(&scenario, PROGRAMS).unwrap();
    let out = directory.join("out");
    succeed(&mut program::lab(&scenario, &out));
    for (queue, ours) in [
        ("tcp-plain", false),
        ("tcp-ring", true),
        ("quic-reset", false),
        ("quic-bestby", true),
    ] {
        let run = program::run(&out, "programs", queue);
        let base = run["carried"]["layers"]["1"]["on_time"].as_u64().unwrap();
        assert_eq!(base == 6, ours, "{queue}: {run}");
        // Twice as much is offered as the link carries, and what ours begin is in time.
        let [offered, on_time] = [0, 1].map(|at| run["adus"][at].as_u64().unwrap());
        assert!(offered == 48 && on_time <= 24, "{queue}: {run}");
        assert!(
            on_time >= base && (on_time >= 12 || !ours),
            "{queue}: {run}"
        );
    }
}

/// The demonstration of TCP-Real, as it is kept.
const DEMO: &str = include_str!("../../../bench/scenarios/tcp-real-demo.toml");

#[test]
fn tcp_real_demo_shows_more_goodput_than_reno_over_the_same_phases_of_loss() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let scenario = directory.join("demo.toml");
    fs::write(&scenario, DEMO).unwrap();
    let out = directory.join("out");
    succeed(program::lab(&scenario, &out).args(["--runs", "2"]));
    // Goodput of both runs together, and reductions cancelled.
    let both = |kind: &str| {
        let cell = out.join(format!("demo/congestion={kind}_tcp-transfer"));
        let runs = [0, 1].map(|number| {
            let text = fs::read(cell.join(format!("run-{number}.json"))).unwrap();
            let run: serde_json::Value = serde_json::from_slice(&text).unwrap();
            let flow = &run["transfer"]["flows"]["1"];
            assert_eq!(flow["kind"], kind, "{run}");
            assert_eq!(flow["finished"], true, "{run}");
            assert!(flow["retransmitted"].as_u64() > Some(0), "{run}");
            let cancelled = run["transfer"]["real"]["cancelled"].as_u64();
            (flow["goodput_kb"].as_f64().unwrap(), cancelled)
        });
        (runs[0].0 + runs[1].0, runs.map(|run| run.1))
    };
    let ((reno, off), (real, cancelled)) = (both("reno"), both("real"));
    assert!(
        off == [None; 2] && cancelled.iter().all(|n| *n > Some(0)),
        "{cancelled:?}"
    );
    assert!(real > reno, "{real} {reno}");
}
