//! The grammar of the issue, and what every answer looks like.

use bestby_api::{
    Check, CheckStatus, Counters, Delay, Doctor, Drops, Event, Explanation, FlowInfo, FlowPatch,
    InterfaceInfo, Leaf, SessionList, Stats, Status,
};
use clap::FromArgMatches as _;
use insta::assert_snapshot;

use crate::args::{Args, Command};
use crate::rank::Sort;
use crate::stats::Shown;
use crate::{config, doctor, events, explain, flow, help, iface, probe, session, stats, tcp_real};

fn parse(line: &str) -> Result<Args, clap::Error> {
    // Words in quotes do not occur in these tests.
    let matches = help::command().try_get_matches_from(line.split_whitespace())?;
    Args::from_arg_matches(&matches)
}

#[test]
fn clap_definition_is_consistent() {
    help::command().debug_assert();
}

#[test]
fn command_of_each_form_is_parsed() {
    for line in [
        "bestby iface attach eth0",
        "bestby iface attach eth0 --mode auto --rate 10mbit --method triage --session dst --limit 1000 --observe",
        "bestby iface attach eth0 --mode qdisc --method ring-sfdps2 --session prefix/24 --overhead 24 --replace",
        "bestby iface attach eth0 --mode tc --session flow",
        "bestby iface attach eth0 --session interface",
        "bestby tcp-real on",
        "bestby tcp-real on --cgroup /media.slice --mode paper --max-level 127",
        "bestby tcp-real off",
        "bestby tcp-real ls",
        "bestby --socket /tmp/s --json iface detach eth0",
        "bestby iface ls --json",
        "bestby flow add audio --proto udp --src 10.0.0.0/8 --dst 2001:db8::1 --sport 5004 --dport 5004-5010 --dscp ef \
         --mark 0x10/0xff --cgroup /system.slice --dev eth0 --lifetime 200ms --priority 0 --treatment discard --save",
        "bestby flow add v --lifetime 1.5s --treatment forward --owd 20ms --before audio",
        "bestby flow add p --lifetime none --priority 1",
        "bestby flow set audio --lifetime 150ms --dport none --save",
        "bestby flow add t --proto tcp --lifetime rto --stamp yes",
        "bestby flow add v --lifetime 1s --rtp-pt 96,98 --rtx 97:96 --rtx 99:98 --frames none",
        "bestby flow add v --lifetime 1s --rtp-kind video --ssrc 0x12345678 --frames auto",
        "bestby flow set v --rtp-pt none --rtx none --ssrc none",
        "bestby flow add v --lifetime 1s --media auto --chain skip --roles 3,4,5,6,7",
        "bestby flow set v --media off --roles none",
        "bestby explain eth0 udp 10.0.0.1:5004 to 10.0.0.2:6000 rtp 111 ssrc 0x12345678",
        "bestby flow rm audio",
        "bestby flow rm audio --save",
        "bestby flow ls",
        "bestby flow show audio",
        "bestby session ls",
        "bestby session set 10.0.0.2 --rate 253kbit --owd 40ms",
        "bestby session set 2001:db8::1 --rate none",
        "bestby stats",
        "bestby --json stats",
        "bestby status",
        "bestby events",
        "bestby events --flow - --session eth0/* --reason stale --priority 3 -n 5",
        "bestby stats - --sort would-drop --top 5",
        "bestby top -i 5 -n 2 --sort late",
        "bestby report --hide-addresses -",
        "bestby completions fish",
        "bestby doctor",
        "bestby explain eth0 udp 10.0.0.1:5004 > 10.0.0.2:6000 dscp ef mark 0xb0000000",
        "bestby explain eth0 udp 10.0.0.1:5004 -> 10.0.0.2:6000",
        "bestby probe 10.0.0.2",
        "bestby probe receiver.example --family 6 --port 5004 --count 20 --json",
        "bestby config check /etc/bestby/bestby.toml",
    ] {
        if let Err(e) = parse(line) {
            panic!("{line}: {e}");
        }
    }
}

#[test]
fn command_in_the_docs_is_parsed() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut seen = 0;
    for guide in [
        "operating.md",
        "sfu.md",
        "commands.md",
        "metadata.md",
        "../README.md",
    ] {
        let text = std::fs::read_to_string(docs.join(guide)).unwrap();
        let text = text.replace("\\\n", " "); // in a shell, a command goes on behind it
        // Every second part between fences is code.
        for line in text.split("```").skip(1).step_by(2).flat_map(str::lines) {
            if let Some(command) = line
                .strip_prefix("$ ")
                .or_else(|| line.starts_with("bestby ").then_some(line))
            {
                let command = command.split(" #").next().unwrap().trim_end();
                if !command.starts_with("bestby ") {
                    continue; // another program, e.g. systemctl
                }
                if let Err(e) = parse(command) {
                    panic!("{guide}: {command}: {e}");
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "only {seen} commands found");
}

#[test]
fn wrong_usage_exits_with_2_and_names_what_is_allowed() {
    for (line, says) in [
        ("bestby", "Usage"),
        ("bestby iface attach", "<DEV>"),
        ("bestby iface attach a/b", "interface"),
        ("bestby iface attach eth0 --rate 10", "unit"),
        ("bestby iface attach eth0 --rate -1mbit", "negative"),
        ("bestby iface attach eth0 --rate=-1mbit", "negative"),
        ("bestby iface attach eth0 --rate NaN", "10mbit"),
        ("bestby iface attach eth0 --rate 0kbit", "small"),
        ("bestby iface attach eth0 --method codel", "triage"),
        ("bestby iface attach eth0 --session prefix/0", "prefix/24"),
        ("bestby iface attach eth0 --limit 0", "65535"),
        ("bestby iface attach eth0 --mode xdp", "qdisc"),
        ("bestby probe", "<DST>"),
        ("bestby probe a --family 5", "6"),
        ("bestby probe a --port 0", "1"),
        ("bestby probe a --count 4", "5..=100"),
        ("bestby flow add audio", "--lifetime"),
        ("bestby flow add - --lifetime 1s", "rule"),
        ("bestby flow add a --lifetime 0ms", "short"),
        ("bestby flow add a --lifetime 999999s", "long"),
        ("bestby flow add a --lifetime 200", "unit"),
        ("bestby flow add a --lifetime 1s --priority 8", "7"),
        ("bestby flow add a --lifetime 1s --priority=-1", "whole"),
        (
            "bestby flow add a --lifetime 1s --treatment cut",
            "truncate",
        ),
        ("bestby flow add a --lifetime 1s --dport 9-8", "behind"),
        (
            "bestby flow add a --lifetime 1s --dst 10.0.0.1/8",
            "10.0.0.0/8",
        ),
        ("bestby flow add a --lifetime 1s --rtp-pt 200", "0..127"),
        ("bestby flow add a --lifetime 1s --rtp-pt -1", "payload"),
        ("bestby flow add a --lifetime 1s --rtp-kind text", "audio"),
        (
            "bestby flow add a --lifetime 1s --ssrc 0x123456789",
            "32-bit",
        ),
        (
            "bestby flow add a --lifetime 1s --rtx 1,2,3,4,5,6,7,8,9",
            "8",
        ),
        ("bestby flow add a --lifetime 1s --frames some", "auto"),
        ("bestby flow add a --lifetime 1s --media a/b", "auto, off"),
        (
            "bestby flow add a --lifetime 1s --chain demote",
            "auto, skip or off",
        ),
        ("bestby flow add a --lifetime 1s --roles 3,4,5", "not 5"),
        (
            "bestby flow add a --lifetime 1s --roles 3,4,5,6,8",
            "out of range",
        ),
        ("bestby session set host --rate 1mbit", "IP"),
        ("bestby explain eth0", "PACKET-DESCRIPTION"),
        ("bestby flow ls extra", "extra"),
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
        assert!(error.to_string().contains(says), "{line}: {error}");
    }
}

#[test]
fn flow_set_sends_the_given_fields_only() {
    let args = parse("bestby flow set a --lifetime 150ms --dport none --priority 0").unwrap();
    let Command::Flow(verb) = args.command else {
        panic!("not a flow")
    };
    let flow::Verb::Set { fields, save, .. } = *verb else {
        panic!("not a set")
    };
    assert!(!save);
    let json = serde_json::to_string(&FlowPatch::try_from(fields).unwrap()).unwrap();
    assert_eq!(json, r#"{"dport":null,"lifetime":"150ms","priority":0}"#);
}

#[test]
fn flow_set_joins_rtx_and_refuses_bad_ones() {
    let patch = |line: &str| {
        let Command::Flow(verb) = parse(line).unwrap().command else {
            panic!("not a flow")
        };
        let flow::Verb::Set { fields, .. } = *verb else {
            panic!("not a set")
        };
        FlowPatch::try_from(fields)
    };
    for (line, json) in [
        (
            "--frames none --rtx 97:96 --rtx 99:98",
            r#"{"frames":"none","rtx":"97:96,99:98"}"#,
        ),
        ("--frames auto --rtx none", r#"{"frames":null,"rtx":null}"#),
        (
            "--media off --chain skip --roles 3,4,5,6,7",
            r#"{"media":"off","chain":"skip","roles":"3,4,5,6,7"}"#,
        ),
        (
            "--media auto --chain auto --roles none",
            r#"{"media":null,"chain":null,"roles":null}"#,
        ),
    ] {
        let patch = patch(&format!("bestby flow set a {line}")).unwrap();
        assert_eq!(serde_json::to_string(&patch).unwrap(), json);
    }
    for (line, why) in [
        ("--rtx 97:96 --rtx 97:98", "twice"),
        ("--rtx none --rtx 97", "both"),
        ("--rtx 1,2,3,4,5 --rtx 6,7,8,9", "8"),
    ] {
        let failure = patch(&format!("bestby flow set a {line}")).unwrap_err();
        assert!(format!("{failure:?}").contains(why), "{line}: {failure:?}");
    }
}

/// The text without colours, as it is seen through a pipe.
fn plain(text: &str) -> String {
    let text = anstream::adapter::strip_str(text).to_string();
    for line in text.lines() {
        assert_eq!(line, line.trim_end(), "no spaces at the end of a line");
    }
    text
}

fn counters(scale: u64) -> Counters {
    Counters {
        packets_in: 1_000 * scale,
        bytes_in: 1_200_000 * scale,
        packets_sent: 900 * scale,
        bytes_sent: 1_080_000 * scale,
        queued: 3,
        dropped: Drops {
            stale: 80 * scale,
            adu: 17 * scale,
            ..Drops::default()
        },
        sent_stale: 2,
        truncated: 0,
        would_drop: Drops::default(),
    }
}

fn interfaces() -> Vec<InterfaceInfo> {
    let one = |dev: &str, mode: &str, more: serde_json::Value| {
        let mut json = serde_json::json!({
            "dev": dev, "ifindex": 2, "mode": mode, "predicts_delay": mode == "tc", "method": "triage",
            "session": "dst", "limit": 1000, "observe": false, "instances": 1, "counters": counters(1),
        });
        for (k, v) in more.as_object().unwrap() {
            json[k] = v.clone();
        }
        serde_json::from_value(json).unwrap()
    };
    vec![
        one(
            "eth0",
            "qdisc",
            serde_json::json!({"rate": "10mbit", "memory_bytes": 12_582_912, "instances": 4, "cuts": true,
                "times": {"sojourn": {"sum_ns": 9, "counts": [0, 0, 5, 3, 0, 1, 0]}, "slack": {"sum_ns": 0, "counts": []},
                    "lateness": {"sum_ns": 0, "counts": []}}}),
        ),
        one(
            "wlp0s20f3",
            "tc",
            serde_json::json!({"session": "prefix/24", "observe": true, "overhead": 24,
                "notes": ["this kernel has no BPF qdisc (CONFIG_NET_SCH_BPF)"]}),
        ),
    ]
}

#[test]
fn iface_ls_prints_a_table() {
    assert_snapshot!(plain(&iface::render(&interfaces())));
}

fn flows() -> Vec<FlowInfo> {
    serde_json::from_value(serde_json::json!([
        {"position": 1, "saved": true, "counters": counters(1), "flow":
            {"name": "audio", "proto": "udp", "dport": 5004, "lifetime": "200ms", "priority": 0}},
        {"position": 2, "saved": false, "counters": counters(20), "flow":
            {"name": "video", "proto": "udp", "dst": "10.0.0.0/8", "dport": "5006-5010", "dscp": "af41",
             "mark": "0x10/0xff", "lifetime": "1.5s", "treatment": "forward"}},
        {"position": 3, "saved": true, "counters": Counters::default(), "flow": {"name": "rest", "priority": 6}},
    ]))
    .unwrap()
}

#[test]
fn flow_ls_and_show_print_tables() {
    assert_snapshot!(plain(&flow::render(&flows())));
    assert_snapshot!(plain(&flow::render_one(&flows()[1])));
}

#[test]
fn session_ls_prints_a_table() {
    let list: SessionList = serde_json::from_value(serde_json::json!({
        "sessions": [
            {"name": "eth0/10.0.0.2", "kind": "dst", "dev": "eth0", "addr": "10.0.0.2", "rate_bytes_s": 31_625,
             "owd_ns": 40_000_000, "owd_source": "set", "owd_age_ns": 7_200_000_000u64, "idle_ns": 12_345_678, "counters": counters(1)},
            {"name": "eth0/control", "kind": "control", "dev": "eth0", "idle_ns": 3_000_000_000u64,
             "counters": Counters::default()},
        ],
        "peers": [
            {"addr": "10.0.0.2", "rate": "253kbit", "owd": "40ms", "set_by": "operator"},
            {"addr": "2001:db8::7", "rtt": {"srtt_ns": 81_234_567, "min_rtt_ns": 79_000_000, "rto_ns": 280_000_000,
             "age_ns": 1_200_000_000, "source": "tcp"}},
            {"addr": "2001:db8::8", "rtt": {"srtt_ns": 41_234_567, "min_rtt_ns": 40_000_000, "rto_ns": 0,
             "age_ns": 4_200_000_000u64, "source": "stun"}},
        ],
    }))
    .unwrap();
    assert_snapshot!(plain(&session::render(&list)));
}

#[test]
fn empty_list_is_said_to_be_empty() {
    for (text, says) in [
        (iface::render(&[]), "bestby iface attach"),
        (flow::render(&[]), "bestby flow add"),
        (session::render(&SessionList::default()), "no session"),
        (stats::render(&Shown::default(), Sort::Name), "nothing"),
    ] {
        assert!(plain(&text).contains(says), "{text}");
    }
}

#[test]
fn stats_are_printed_as_tables_and_as_json() {
    let mut s = Stats::default();
    s.flows.insert("audio".into(), counters(1));
    s.flows.insert(
        "-".into(),
        Counters {
            packets_in: 7,
            packets_sent: 7,
            ..Counters::default()
        },
    );
    s.sessions.insert("eth0/10.0.0.2".into(), counters(1));
    s.interfaces.insert("eth0".into(), counters(1));
    s.delays = [("eth0", Some(2_097_152)), ("slow0", None)]
        .map(|(dev, p99_ns)| {
            let delay = Delay {
                packets: 900,
                p50_ns: Some(65_536),
                p99_ns,
            };
            (dev.into(), delay)
        })
        .into();
    s.leaves.insert(
        "tc0".into(),
        vec![Leaf {
            holds: "plain".into(),
            queued: 2,
            queued_bytes: 1_600,
            packets_sent: 5,
            bytes_sent: 7_500,
            dropped: 0,
            delay_ns: 12_800_000,
        }],
    );
    s.global.no_rtt = 12;
    let flows = s.flows.clone();
    let shown = stats::first(s.clone(), Sort::Name, None);
    assert_eq!(
        serde_json::to_value(&shown).unwrap(),
        serde_json::to_value(&s).unwrap()
    );
    assert_snapshot!(plain(&stats::render(&shown, Sort::Name)));
    assert_snapshot!(serde_json::to_string_pretty(&flows).unwrap());
}

#[test]
fn event_is_printed_as_one_line() {
    let event: Event = serde_json::from_value(serde_json::json!({
        "time_ns": 1, "unix_ns": 1_795_230_000_123_456_789u64, "dev": "eth0", "flow": "video",
        "session": "eth0/10.0.0.2", "reason": "stale", "priority": 3, "age_ns": 180_000_000,
        "late_ns": 12_300_000, "adu": 195_951_310, "len": 1228, "observe": false, "suppressed": 0,
    }))
    .unwrap();
    let truncated = Event {
        truncated: true,
        ..event.clone()
    };
    let observed = Event {
        observe: true,
        late_ns: -5_000_000,
        reason: bestby_api::Reason::Evicted,
        age_ns: 0,
        adu: 0,
        suppressed: 9,
        ..event.clone()
    };
    assert_snapshot!(format!(
        "{}\n{}\n{}",
        plain(&events::render(&event)),
        plain(&events::render(&truncated)),
        plain(&events::render(&observed))
    ));
}

#[test]
fn doctor_and_status_print_tables() {
    let check = Check::new;
    let d = Doctor {
        checks: vec![
            check("kernel", CheckStatus::Ok, "6.18.5", ""),
            check(
                "BPF qdisc",
                CheckStatus::Warn,
                "CONFIG_NET_SCH_BPF is not set",
                "mode tc is used",
            ),
            check(
                "bpffs",
                CheckStatus::Fail,
                "/sys/fs/bpf is not mounted",
                "mount -t bpf bpf /sys/fs/bpf",
            ),
        ],
    };
    assert_snapshot!(plain(&doctor::render(&d)));
    let status = Status {
        version: "0.1.0".into(),
        abi_version: 1,
        pid: 4711,
        uptime_s: 7_261,
        kernel: "7.2.1-amd64".into(),
        bpffs: "/sys/fs/bpf/bestby".into(),
        config: None,
        config_read_s: 1_795_817_610,
        config_taken_s: Some(1_795_817_600),
        config_error: Some("bestby.toml:3: \"100 parsecs\" is no time".into()),
        adopted: true,
        flows: 3,
        interfaces: 1,
    };
    assert_snapshot!(plain(&doctor::render_status(&status)));
}

#[test]
fn explain_prints_sources_rules_and_result() {
    let e: Explanation = serde_json::from_value(serde_json::json!({
        "packet": "udp 10.0.0.1:5004 > 10.0.0.2:6000 dscp ef", "dev": "eth0", "mode": "qdisc",
        "rules": [
            {"flow": "video", "wins": false, "because": "dport is 6000, not 5006-5010"},
            {"flow": "audio", "wins": true},
        ],
        "rules_left_out": 0,
        "sources": [
            {"source": "mark", "decides": [], "says": "mark 0x0 is not bestby's"},
            {"source": "rule", "decides": ["deadline", "priority"], "says": "flow \"audio\": lifetime 200ms, priority 0"},
        ],
        "flow": "audio", "session": "eth0/10.0.0.2", "priority": 0, "treatment": "discard",
        "lifetime_ns": 200_000_000, "owd_ns": 40_000_000, "owd_source": "stun", "owd_age_ns": 3_100_000_000u64,
        "verdict": "it is queued; it is dropped when it could not leave within 160ms",
        "notes": ["STUN is signalling", "DTLS application data is what the rule says"],
    }))
    .unwrap();
    assert_snapshot!(plain(&explain::render(&e)));
}

#[test]
fn config_check_prints_errors_and_warnings() {
    let report = |text| {
        plain(&config::render(&config::examine(
            text,
            "bestby.toml".into(),
        )))
    };
    let text = report("[[flow]]\nname = \"a\"\nlifetme = \"1s\"\npriority = 9\n");
    for (line, says) in [(0, "toml:3:"), (1, "toml:4:"), (2, "2 errors")] {
        assert!(text.lines().nth(line).unwrap().contains(says), "{text}");
    }
    let text = report(
        "[[flow]]\nname = \"a\"\nlifetime = \"1s\"\n[[flow]]\nname = \"b\"\nlifetime = \"1s\"\n",
    );
    for (line, says) in [(0, "every packet"), (1, "never"), (2, "2 flows")] {
        assert!(text.lines().nth(line).unwrap().contains(says), "{text}");
    }
}

#[test]
fn rows_that_top_leaves_out_are_counted() {
    let mut s = Stats::default();
    for n in 1..=3 {
        s.flows.insert(format!("f{n}"), counters(n));
        s.payload_types.insert(96, counters(n));
    }
    s.sessions.insert("eth0/10.0.0.2".into(), counters(1));
    let shown = stats::first(s.clone(), Sort::Name, Some(1));
    let text = plain(&stats::render(&shown, Sort::Name));
    assert_eq!(text.matches("--top leaves out").count(), 1, "{text}");
    assert!(text.contains("\nand 2 flows that"), "{text}");
    let json = serde_json::to_value(&shown).unwrap();
    assert_eq!(json["left_out"], serde_json::json!({ "flows": 2 }));
    assert_eq!(
        json["payload_types"]["96"]["packets_in"],
        counters(3).packets_in
    );
    // Nothing is left out of a table that is short enough.
    let all = stats::first(s, Sort::Name, Some(3));
    assert!(!plain(&stats::render(&all, Sort::Name)).contains("--top"));
    assert_eq!(serde_json::to_value(&all).unwrap().get("left_out"), None);
}

fn probed(destination: &str, answered: [u32; 4]) -> probe::Probe {
    use probe::Kind;
    let kinds = [Kind::Plain, Kind::Valid, Kind::Lifetime, Kind::Deadline];
    let trains = std::array::from_fn(|i| probe::Train {
        sent: 10,
        answered: answered[i],
        ..probe::Train::new(kinds[i])
    });
    probe::Probe::of(destination.parse().unwrap(), None, trains)
}

#[test]
fn probe_prints_its_trains_and_what_to_do() {
    assert_snapshot!(plain(&probe::render(&probed("10.0.0.2", [10, 9, 0, 10]))));
    assert_snapshot!(serde_json::to_string_pretty(&probed("10.0.0.2", [8, 8, 0, 3])).unwrap());
    for (destination, answered, says) in [
        ("10.0.0.2", [10, 10, 0, 0], "discards"),
        ("10.0.0.2", [10, 10, 10, 10], "trusts"),
        ("10.0.0.2", [8, 8, 3, 3], "--count"),
        ("10.0.0.2", [10, 0, 0, 0], "drops"),
        ("2001:db8::7", [10, 0, 0, 0], "max_hbh_opts_number"),
        ("10.0.0.2", [3, 0, 0, 0], "too few"),
        ("10.0.0.2", [0, 0, 0, 0], "--port"),
    ] {
        let text = plain(&probe::render(&probed(destination, answered)));
        assert!(text.contains(says), "{answered:?}: {text}");
    }
}

#[test]
fn tcp_real_ls_prints_connections_and_why_they_are_plain() {
    use bestby_api::{RealConnection, RealCounters, RealRequest, RealState, TcpReal};

    assert_eq!(
        plain(&tcp_real::render(&TcpReal::default())),
        "TCP-Real is off\n"
    );
    let real = RealConnection {
        local: "10.0.0.1:80".parse().unwrap(),
        remote: "10.0.0.2:40000".parse().unwrap(),
        state: RealState::Real,
        why: String::new(),
        level: Some(20),
        rate_bytes_s: Some(1_250_000),
        receiving_level: None,
        receiving_rate_bytes_s: None,
        cwnd: 48,
        mss: 1440,
        srtt_ns: 51_000_000,
        min_rtt_ns: 50_000_000,
        cancelled: 7,
    };
    let refused = RealConnection {
        remote: "[2001:db8::7]:40001".parse().unwrap(),
        state: RealState::Plain,
        why: "the other end does not speak it".into(),
        level: None,
        rate_bytes_s: None,
        cancelled: 0,
        ..real.clone()
    };
    let list = TcpReal {
        on: Some(RealRequest::default()),
        cgroup: "/sys/fs/cgroup/media.slice".into(),
        interfaces: 2,
        counters: RealCounters {
            negotiated: 1,
            no_answer: 1,
            ..Default::default()
        },
        connections: vec![real, refused],
        more: 0,
    };
    assert_snapshot!(plain(&tcp_real::render(&list)));
}
