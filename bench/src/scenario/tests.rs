use super::{cell::LinkRate, *};

const SMALL: &str = r#"
title = "t"
queues = ["bestby qdisc triage", "pfifo 32"]
[topology]
load = [1, 1.5]
owd = 40
[traffic]
model = "conference"
"#;

fn parse(text: &str) -> Scenario {
    Scenario::parse("t", text).unwrap_or_else(|fault| panic!("{}: {text}", fault.message))
}

fn refused(text: &str) -> (Option<usize>, String) {
    match Scenario::parse("t", text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(fault) => (fault.at.map(|at| line(text, at)), fault.message),
    }
}

fn ids(scenario: &Scenario) -> Vec<&str> {
    scenario.cells.iter().map(|cell| cell.id.as_str()).collect()
}

#[test]
fn a_small_file_has_sane_defaults() {
    let s = parse(SMALL);
    assert_eq!((s.seed, s.repetitions, s.seconds), (1, 1, 20));
    assert!(s.discard_first.abs() < f64::EPSILON);
    assert_eq!(
        ids(&s),
        [
            "load=1_bestby-qdisc-triage",
            "load=1_pfifo-32",
            "load=1.5_bestby-qdisc-triage",
            "load=1.5_pfifo-32",
        ]
    );
    assert_eq!(s.axes.len(), 1);
    assert_eq!(s.axes[0].values, ["1", "1.5"]);
    let point = &s.cells[3].point;
    assert_eq!(point.link, LinkRate::Load(Load(1.5)));
    assert_eq!(point.owd_ms.ns(), 40_000_000);
    assert!(point.lifetime.is_none() && point.stall.is_none());
    assert_eq!(s.runs(), 4);
}

#[test]
fn all_axes_multiply_and_ids_stay_when_values_are_added() {
    let text = |owd: &str| {
        format!(
            r#"
title = "t"
repetitions = 3
lifetime = [50, {{ audio = 150, video = 1000 }}]
queues = ["bestby qdisc triage"]
[topology]
rate = ["253kbit", 190000]
owd = {owd}
[traffic]
model = "conference"
"#
        )
    };
    let (few, many) = (parse(&text("[5, 40]")), parse(&text("[5, 40, 75]")));
    assert_eq!((few.cells.len(), many.cells.len()), (8, 12));
    assert_eq!(few.runs(), 24);
    for id in ids(&few) {
        assert!(ids(&many).contains(&id), "{id}");
    }
    assert_eq!(
        ids(&few)[1],
        "owd=5_rate=253kbit_lifetime=audio-150-video-1000_bestby-qdisc-triage"
    );
    let mixed = few.cells[1].point.lifetime.expect("a lifetime");
    assert!(!mixed.is_equal() && mixed.data.is_none());
}

#[test]
fn who_is_told_nothing_runs_once_for_all_errors() {
    let base = r#"
title = "t"
queues = ["bestby qdisc triage", "etf", "fq_codel"]
[topology]
rate = "253kbit"
owd = 40
BOTTLENECK
[traffic]
model = "conference"
[told]
"#;
    let sender = base.replace("BOTTLENECK", "");
    let rtt = parse(&format!("{sender}rtt_error = [-0.5, 0, 0.5]"));
    let count = |s: &Scenario, name: &str| ids(s).iter().filter(|id| id.ends_with(name)).count();
    assert_eq!(count(&rtt, "triage"), 3);
    assert_eq!(count(&rtt, "etf"), 3);
    assert_eq!(count(&rtt, "fq-codel"), 1);
    // The one cell stands at 0, in or out of the list.
    let rtt = parse(&format!("{sender}rtt_error = [-0.5, 0.5]"));
    assert!(
        ids(&rtt).contains(&"rtt_error=0_fq-codel"),
        "{:?}",
        ids(&rtt)
    );
    let rate = parse(&format!("{sender}rate_error = [-0.2, 0, 0.2]"));
    assert_eq!((count(&rate, "triage"), count(&rate, "etf")), (3, 1));
    let behind = base.replace("BOTTLENECK", "bottleneck = \"router\"");
    let rate = parse(&format!("{behind}rate_error = [-0.2, 0, 0.2]"));
    assert_eq!((count(&rate, "triage"), count(&rate, "fq-codel")), (3, 3));
    assert_eq!(rate.cells[0].point.router_queue, Some(50));
}

#[test]
fn errors_name_the_line_and_what_is_allowed() {
    for (from, to, at, says) in [
        ("load = [1, 1.5]", "load = [1, 0]", 5, "0.01 to 100"),
        ("load = [1, 1.5]", "load = [1, 1]", 5, "twice"),
        ("load = [1, 1.5]", "load = []", 5, "empty list"),
        ("load = [1, 1.5]", "load = \"much\"", 5, "invalid type"),
        ("load = [1, 1.5]", "rate = \"253\"", 5, "253kbit"),
        ("load = [1, 1.5]", "rate = 10", 5, "8000"),
        ("load = [1, 1.5]", "speed = 10", 5, "unknown field `speed`"),
        ("load = [1, 1.5]", "", 4, "`rate`"),
        ("owd = 40", "owd = 40\nrate = 9000", 4, "not both"),
        ("owd = 40", "owd = -1", 6, "0 to 1000, not -1"),
        ("owd = 40", "owd = 40\nloss = 101", 7, "0 to 100"),
        ("owd = 40", "owd = 40\nrouter_queue = 5", 4, "bottleneck"),
        ("owd = 40", "owd = 40\nbottleneck = \"sky\"", 7, "`router`"),
        ("\"pfifo 32\"", "\"pfifo\"", 3, "pfifo PACKETS"),
        ("\"pfifo 32\"", "\"bestby qdisc best\"", 3, "triage"),
        (
            "\"bestby qdisc triage\", \"pfifo 32\"",
            "",
            3,
            "at least one",
        ),
        ("\"conference\"", "\"opera\"", 8, "conference"),
        ("\"conference\"", "\"conference\"\nloud = 3", 9, "loud"),
        ("title = \"t\"", "", 1, "missing field `title`"),
        (
            "title = \"t\"",
            "title = \"t\"\nrepetitions = 0",
            3,
            "1 to 1000",
        ),
        (
            "title = \"t\"",
            "title = \"t\"\ndiscard_first = 20",
            3,
            "below `seconds`",
        ),
        (
            "title = \"t\"",
            "title = \"t\"\nlifetime = {sound=5}",
            3,
            "unknown field `sound`",
        ),
        (
            "title = \"t\"",
            "title = \"t\"\nlifetime = [200, -1]",
            3,
            "1 to 10000",
        ),
    ] {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL, "{from}");
        let (line, message) = refused(&text);
        assert!(message.contains(says), "{to}: {message}");
        assert_eq!(line, Some(at), "{to}: {message}");
    }
}

#[test]
fn a_stall_must_fit_into_the_run() {
    let stall = |length: u32| format!("{SMALL}[stall]\nat = 10000\nlength = {length}\n");
    let s = parse(&stall(5000));
    assert_eq!(s.cells[0].point.stall.map(|s| s.length.0), Some(5000.0));
    let (line, message) = refused(&stall(10_000));
    assert!(
        message.contains("before the traffic") && line.is_some(),
        "{message}"
    );
    let (_, message) = refused(&stall(5000).replace("pfifo 32", "srt"));
    assert!(message.contains("the way back"), "{message}");
    let router = stall(5000).replace("owd = 40", "owd = 40\nbottleneck = \"router\"");
    assert!(refused(&router).1.contains("sender"));
}

#[test]
fn a_relay_needs_a_way_to_each_of_its_receivers() {
    let relay = SMALL.replace("conference", "sfu");
    assert!(!parse(&relay).cells.is_empty());
    let stall = format!("{relay}[stall]\nat = 10000\nlength = 5000\n");
    let control = relay
        .replace("owd = 40", "owd = 40\nbottleneck = \"router\"")
        .replacen("title", "control = \"tfrc\"\ntitle", 1);
    let srt = relay.replace("pfifo 32", "srt");
    for (text, says) in [(stall, "stall"), (control, "control"), (srt, "SRT")] {
        let (line, message) = refused(&text);
        assert!(
            message.contains("many receivers") && message.contains(says) && line.is_some(),
            "{message}"
        );
    }
}

#[test]
fn queues_given_twice_are_refused() {
    let text = SMALL.replace("pfifo 32", "bestby  qdisc triage");
    let (line, message) = refused(&text);
    assert!(message.contains("twice") && line == Some(3), "{message}");
}

#[test]
fn tfrc_and_tcp_need_a_router() {
    let text = SMALL.replace(
        "load = [1, 1.5]",
        "bottleneck = \"router\"\nrate = \"1mbit\"\ntcp = 2",
    );
    let text = format!("control = \"tfrc\"{text}");
    let s = parse(&text);
    let point = &s.cells[0].point;
    assert_eq!((point.control, point.tcp), (Control::Tfrc, 2));

    let (line, message) = refused(&format!("control = \"tfrc\"{SMALL}"));
    assert_eq!(line, Some(4));
    assert!(message.contains("router"), "{message}");
    let (_, message) = refused(&SMALL.replace("owd = 40", "owd = 40\ntcp = 1"));
    assert!(message.contains("`tcp`"), "{message}");
    let (line, message) = refused(&text.replace("pfifo 32", "fq"));
    assert_eq!(line, Some(3));
    assert!(message.contains("`fq`"), "{message}");
    // DCCP's queue is the kernel's; and what is told by the operator is not asked for.
    let dccp = text.replace("\"tfrc\"", "\"dccp\"");
    assert!(refused(&dccp).1.contains("`bestby qdisc triage`"));
    let dccp = dccp.replace("\"bestby qdisc triage\", ", "");
    assert_eq!(parse(&dccp).cells[0].point.control, Control::Dccp);
    let told = format!("{text}[told]\nrtt_error = 0.2\n");
    assert!(refused(&told).1.contains("by itself"));
}

/// A sender with TFRC behind a router; `key` is line 4.
fn tfrc(key: &str, queues: &str) -> String {
    format!(
        r#"
title = "t"
control = "tfrc"
{key}
queues = [{queues}]
[topology]
bottleneck = "router"
rate = "1mbit"
owd = 40
[traffic]
model = "conference"
"#
    )
}

#[test]
fn the_restart_is_an_axis_of_tfrc_alone() {
    let text = &tfrc(r#"restart = ["rfc5348", "faster"]"#, r#""pfifo 5""#);
    let s = parse(text);
    assert_eq!(
        ids(&s),
        ["restart=rfc5348_pfifo-5", "restart=faster_pfifo-5"]
    );
    let restarts: Vec<_> = s.cells.iter().map(|c| c.point.restart).collect();
    assert_eq!(restarts, [Restart::Rfc5348, Restart::Faster]);
    for (from, to, says) in [
        (
            "\"tfrc\"",
            "\"dccp\"",
            "`restart` goes with control = \"tfrc\" only",
        ),
        ("\"faster\"", "\"fast\"", "`faster`"),
    ] {
        let (at, message) = refused(&text.replace(from, to));
        assert_eq!(at, Some(4), "{message}");
        assert!(message.contains(says), "{message}");
    }
}
