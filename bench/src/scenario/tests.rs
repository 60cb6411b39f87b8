use std::fs;

use etherparse::PacketBuilder;

use super::{cell::LinkRate, value::Load, *};
use crate::{line::Device, topology::RouterQueue};

/// Line 3 has the queues, 5 the load, 6 the delay, 8 the model.
const BASE: &str = r#"
title = "t"
queues = ["bestby qdisc triage", "pfifo 32"]
[topology]
load = 1
owd = 40
[traffic]
model = "gop"
"#;

/// A sender under TFRC behind a router.
const TFRC: &str = r#"
title = "t"
control = "tfrc"
queues = ["pfifo 5", "bestby qdisc triage"]
[topology]
bottleneck = "router"
rate = "1mbit"
owd = 40
[traffic]
model = "conference"
"#;

/// A last hop.
const LINE: &str = r#"
title = "t"
queues = ["pfifo 5", "bestby qdisc triage limit 5"]
[topology]
bottleneck = "line"
trace = "traces/spikes-30"
owd = 50
[traffic]
model = "cbr"
"#;

fn changed(base: &str, from: &str, to: &str) -> String {
    assert!(base.contains(from), "{from}");
    base.replacen(from, to, 1)
}

fn parse(text: &str) -> Scenario {
    Scenario::of_text("t.toml".as_ref(), text).unwrap_or_else(|error| panic!("{error:#}\n{text}"))
}

/// `text` is refused at `line`, by an error with this word.
fn refused(text: &str, line: usize, says: &str) {
    let error = Scenario::of_text("t.toml".as_ref(), text).expect_err(text);
    let (error, place) = (format!("{error:#}"), format!("t.toml:{line}: "));
    let found = error.contains(&place) && error.contains(says);
    assert!(found, "{line} {says}: {error}\n{text}");
}

fn ids(scenario: &Scenario) -> Vec<&str> {
    scenario.cells.iter().map(|cell| cell.id.as_str()).collect()
}

#[test]
fn scenario_small_file_has_defaults() {
    let s = parse(&BASE.replace("load = 1", "load = [1, 1.5]"));
    assert_eq!((s.seed, s.repetitions, s.seconds), (1, 1, 20));
    assert_eq!(s.discard_first, 0.0);
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
}

#[test]
fn scenario_axes_multiply_and_ids_stay_when_values_are_added() {
    let lifetime = "lifetime = [50, { audio = 150, video = 1000 }]\ntitle";
    let base = changed(BASE, "title", lifetime);
    let base = changed(&base, "load = 1", "rate = [\"253kbit\", 190000]");
    let of = |owd: &str| parse(&changed(&base, "40", owd));
    let (few, many) = (of("[5, 40]"), of("[5, 40, 75]"));
    assert_eq!((few.cells.len(), many.cells.len()), (16, 24));
    assert!(ids(&few).iter().all(|id| ids(&many).contains(id)));
    let id = "owd=5_rate=253kbit_lifetime=audio-150-video-1000_bestby-qdisc-triage";
    assert_eq!(ids(&few)[2], id);
}

#[test]
fn scenario_queue_that_is_told_nothing_runs_once_for_all_errors() {
    let base = changed(BASE, "\"pfifo 32\"", "\"etf\", \"fq_codel\"");
    let counts = |text: &str| {
        let s = parse(text);
        let count = |name| ids(&s).iter().filter(|id| id.ends_with(name)).count();
        ["triage", "etf", "fq-codel"].map(count)
    };
    let rtt = format!("{base}[told]\nrtt_error = [-0.5, 0.5]\n");
    assert_eq!(counts(&rtt), [2, 2, 1]);
    // The one cell stands at 0, in or out of the list.
    assert!(ids(&parse(&rtt)).contains(&"rtt_error=0_fq-codel"));
    let rate = format!("{base}[told]\nrate_error = [-0.2, 0, 0.2]\n");
    assert_eq!(counts(&rate), [3, 1, 1]);
    let router = rate.replace("owd = 40", "owd = 40\nbottleneck = \"router\"");
    assert_eq!(counts(&router), [3, 3, 3]);
    assert_eq!(
        parse(&router).cells[0].point.router_queue,
        Some(RouterQueue::Fifo(50))
    );

    // None of the queues is told: the error changes nothing.
    for (queue, line, heard) in [
        ("fq", "rtt_error = [0, 0.5]", false),
        ("etf", "rate_error = 0.5", false),
        ("etf", "rtt_error = [0, 0.5]", true),
        ("bestby tc", "rate_error = 0.5", true),
        ("fq", "rtt_error = 0", true),
    ] {
        let queues = "\"bestby qdisc triage\", \"pfifo 32\"";
        let text = changed(BASE, queues, &format!("\"{queue}\""));
        let text = format!("{text}[told]\n{line}\n");
        match heard {
            true => drop(parse(&text)),
            false => refused(&text, 10, "changes nothing"),
        }
    }
}

/// Line of the error | what is changed in [`BASE`] | to what (`;` is a new line) | the error.
const WRONG: &str = r#"
5 | load = 1 | load = [1, 0] | 0.01 to 100, not 0
5 | load = 1 | load = [1, 1] | `1` stands in the list twice
5 | load = 1 | load = [] | empty list
5 | load = 1 | load = "much" | a load (offered rate / link rate) must be
5 | load = 1 | rate = "253" | 253kbit
5 | load = 1 | rate = 10 | 8000
5 | load = 1 | rate = ["1mbit", 1000000] | `1mbit` stands in the list twice
5 | load = 1 | speed = 10 | unknown field `speed`
4 | load = 1 || either `rate`
4 | load = 1 | load = 1;rate = 9000 | either `rate`
6 | owd = 40 | owd = -1 | 0 to 1000, not -1
6 | owd = 40 | owd = [40, 1001] | 0 to 1000, not 1001
7 | owd = 40 | owd = 40;loss = 101 | 0 to 100, not 101
7 | owd = 40 | owd = 40;loss = [0, -0.0] | `0` stands in the list twice
4 | owd = 40 | owd = 40;router_queue = 5 | bottleneck
7 | owd = 40 | owd = 40;router_queue = [5, "red"] | "fq_codel" or "bestby", not "red"
7 | owd = 40 | owd = 40;router_queue = 0 | 1 to 100000 (packets of a FIFO)
4 | owd = 40 | owd = 40;tcp = 1 | bottleneck
7 | owd = 40 | owd = 40;bottleneck = "sky" | `router`
3 | pfifo 32 | pfifo | pfifo PACKETS
3 | pfifo 32 | bestby qdisc best | triage
3 | pfifo 32 | bestby  qdisc triage | twice
3 | pfifo 32 | simulated | priority
3 | pfifo 32"] | simulated edf"];stall = { at = 1, length = 1 } | simulated is a bottleneck
3 | "bestby qdisc triage", "pfifo 32" || at least one
1 | title = "t" || missing field `title`
2 | title = "t" | title = "two\nlines" | one line
2 | title = "t" | title = " " | one line
2 | title | repetitions = 0;title | repetitions must be a whole number, 1 to 1000
2 | title | repetitions = 1e9;title | not 1000000000.0
2 | title | seconds = "long";title | seconds must be a whole number
2 | title | seconds = 9999999;title | 1 to 3600, not 9999999
2 | title | seed = -1;title | 0 to 9007199254740991, not -1
2 | title | discard_first = "3";title | discard_first (s) must be
2 | title | discard_first = 20;title | below `seconds`
2 | title | lifetime = [200, 0];title | 1 to 60000, not 0
2 | title | lifetime = { sound = 5 };title | `sound`, expected one of
2 | title | lifetime = { audio = 0 };title | 1 to 60000, not 0
2 | title | lifetime = {};title | at least one
2 | title | lifetime = { data = 100 };title | audio and video only
7 | model = "gop" || missing field `model`
8 | "gop" | 3 | `model` = 3
8 | "gop" | ["gop", "gop"] | `model`: `gop` stands in the list twice
8 | "gop" | "opera" | conference
9 | "gop" | "gop";loud = 3 | unknown field `loud`
9 | "gop" | "gop";fps = [30, 30] | `fps`: `30` stands in the list twice
9 | "gop" | "gop";fps = 500 | fps = 500 is not within 1..=240
9 | "gop" | "gop";fps = -3 | `fps` = -3: invalid value
9 | "gop" | "gop";sigma = "wide" | expected f64
9 | "gop" | "gop";sigma = [0.1, inf] | `sigma` =
9 | "gop" | "gop";fps = 2026-01-01 | `fps` =
10 | "gop" | "sfu";clients = 2;media = { fps = 500 } | fps = 500 is not
10 | "gop" | "sfu";;[traffic.media];fps = -3 | expected u32
9 | "gop" | "mix";parts = [{ model = "gop", fps = -3 }] | expected u32
8 | "gop" | "pcap" | missing field `file`
9 | "gop" | "pcap";file = 3 | `file` = 3
9 | "gop" | "cbr";class = 3 | `class` = 3
9 | "gop" | "gop";[stall];at = 10000;length = 10000 | before the traffic
3 | pfifo 32"] | srt"];stall = { at = 1, length = 1 } | the way back
3 | pfifo 32"] | bestby tc rules"];stall = { at = 1, length = 1 } | by marks
2 | title | congestion = "bbr";title | control = "program" only
3 | pfifo 32 | tcp ring | need control
5 | "t" | "t";control = "program" | bottleneck
4 | "t" | "t";control = "program";congestion = "vegas" | `bbr`
4 | pfifo 32"];[topology] | fq"];stall = { at = 1, length = 1 };[topology];bottleneck = "router" | sender
7 | "gop" | "sfu";[stall];at = 1;length = 1 | a line has one end
"#;

#[test]
fn scenario_wrong_value_is_refused_with_its_line_and_what_is_allowed() {
    for case in WRONG.trim().lines() {
        let [line, from, to, says] = case.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{case}");
        };
        let [from, to] = [from, to].map(|text| text.replace(';', "\n"));
        let text = changed(BASE, &from, &to);
        refused(&text, line.parse().expect("a line"), says);
    }
    let long = changed(TFRC, "owd = 40", "owd = [40, 451]");
    refused(&long, 8, "at most 450");
    parse(&long.replace("451", "450"));
    parse(&changed(BASE, "40", "1000"));
}

#[test]
fn scenario_lifetime_of_what_one_of_the_models_sends_is_accepted() {
    let of = |table: &str, model: &str| {
        let text = changed(BASE, "\"gop\"", model);
        changed(&text, "title", &format!("lifetime = {table}\ntitle"))
    };
    parse(&of("[200, { audio = 100 }, { video = 1 }]", "\"gop\""));
    parse(&of("{ data = 100 }", "[\"gop\", \"cbr\"]"));
    let silent = of("{ audio = 100 }", "\"gop\"\naudio_bytes = 0");
    refused(&silent, 2, "this traffic has video only");
}

#[test]
fn scenario_stall_and_relay_that_fit_are_accepted() {
    let s = parse(&format!("{BASE}[stall]\nat = 10000\nlength = 5000\n"));
    let stall = s.cells[0].point.stall.expect("a stall");
    assert_eq!((stall.at.ns(), stall.length.0), (10_000_000_000, 5000.0));
    // A relay needs a path to each of its receivers.
    let relay = changed(BASE, "\"gop\"", "\"sfu\"");
    assert!(!parse(&relay).cells.is_empty());
    refused(&relay.replace("pfifo 32", "srt"), 7, "SRT");
    refused(&TFRC.replace("conference", "sfu"), 9, "`control`");
}

#[test]
fn scenario_control_needs_a_router_and_a_queue_that_it_can_drive() {
    let s = parse(&TFRC.replace("owd = 40", "owd = 40\ntcp = 2"));
    let point = &s.cells[0].point;
    assert_eq!((point.control, point.tcp), (cell::Control::Tfrc, 2));
    refused(&TFRC.replace("bottleneck = \"router\"", ""), 5, "router");
    refused(&TFRC.replace("pfifo 5", "fq"), 4, "`fq`");
    let told = format!("{TFRC}[told]\nrtt_error = 0.2\n");
    refused(&told, 12, "by itself");
    // DCCP's queue is the kernel's.
    let dccp = TFRC.replace("\"tfrc\"", "\"dccp\"");
    refused(&dccp, 4, "`bestby qdisc triage`");
    let dccp = dccp.replace(", \"bestby qdisc triage\"", "");
    assert_eq!(parse(&dccp).cells[0].point.control, cell::Control::Dccp);

    let restart = "restart = [\"rfc5348\", \"faster\"]\ntitle";
    let text = changed(TFRC, "title", restart);
    assert_eq!(ids(&parse(&text))[2], "restart=faster_pfifo-5");
    refused(&text.replace("\"faster\"", "\"fast\""), 2, "`faster`");
    refused(&changed(&dccp, "title", restart), 2, "\"tfrc\" only");
}

#[test]
fn scenario_too_many_cells_are_refused_with_their_axes() {
    let wide = |count: u32| {
        let values = |first: u32| (first..first + count).collect::<Vec<_>>();
        let text = changed(BASE, "load = 1", &format!("load = {:?}", values(1)));
        let path = format!("owd = {:?}\nloss = {:?}", values(1), values(0));
        let fps = format!("\"gop\"\nfps = {:?}", values(10));
        changed(&changed(&text, "owd = 40", &path), "\"gop\"", &fps)
    };
    // Quick enough only if no cell is compared with each other one.
    assert_eq!(parse(&wide(14)).cells.len(), 2 * 14usize.pow(4));
    let error = Scenario::of_text("t.toml".as_ref(), &wide(60)).expect_err("25920000 cells");
    let error = format!("{error:#}");
    let says = "owd (60) × loss (60) × load (60) × fps (60) × queues (2) make 25920000 cells";
    assert!(error.contains(says), "{error}");
}

#[test]
fn scenario_name_that_is_no_new_directory_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for (file, good) in [
        ("..toml", "scenario.toml"),
        (".toml", "toml.toml"),
        (".hidden.toml", "hidden.toml"),
        ("-.toml", "scenario.toml"),
        ("A b.toml", "a-b.toml"),
    ] {
        let path = directory.path().join(file);
        fs::write(&path, BASE).expect("written");
        let error = Scenario::load(&path).expect_err(file).to_string();
        assert!(error.contains(good), "{file}: {error}");
    }
}

/// A capture of two RTP packets of PCMU, 20 ms apart, in µs.
fn capture() -> Vec<u8> {
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for number in 0..2u8 {
        let mut rtp = vec![0x80, 0, 0, number, 0, 0, 0, number, 0, 0, 0, 9];
        rtp.resize(172, 7);
        let packet =
            PacketBuilder::ethernet2([0; 6], [0; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        file.extend(words(&[
            1_700_000_000,
            20_000 * u32::from(number),
            214,
            214,
        ]));
        packet
            .udp(5000, 5004)
            .write(&mut file, &rtp)
            .expect("a packet");
    }
    file
}

#[test]
fn scenario_list_that_is_a_parameter_sweeps_as_a_list_of_lists() {
    let directory = tempfile::tempdir().expect("a directory");
    let captured = directory.path().join("call.pcapng");
    fs::write(&captured, capture()).expect("written");
    let base = BASE.replace(
        "model = \"gop\"",
        &format!("model = \"pcap\"\nfile = {captured:?}"),
    );
    for (line, value) in [
        ("ports = [5004]", "[5004]"),
        ("ports = []", "[]"),
        ("ports = [[5004]]", "[5004]"),
    ] {
        let s = parse(&format!("{base}{line}\n"));
        assert_eq!((s.cells.len(), s.axes.len()), (2, 0));
        assert_eq!(s.cells[0].point.traffic["ports"].to_string(), value);
    }
    let swept = parse(&format!("{base}ports = [[], [5004, 5006]]\n"));
    assert_eq!(swept.axes[0].values, ["[]", "[5004,5006]"]);
    assert!(ids(&swept).contains(&"ports=5004-5006_pfifo-32"));
    for (line, says) in [
        ("ports = [5004, [5006]]", "`ports` = [5004,[5006]]"),
        ("ports = 5004", "expected a sequence"),
        ("ports = [70000]", "`ports` = [70000]: invalid value"),
        ("audio_lifetime_ms = []", "empty list"),
    ] {
        refused(&format!("{base}{line}\n"), 10, says);
    }

    // What the pages show is what the lab takes.
    let pages = [
        include_str!("../../../docs/traffic.md"),
        include_str!("../../../docs/lab.md"),
    ];
    let blocks = pages
        .iter()
        .flat_map(|page| page.split("```toml\n").skip(1));
    for block in blocks.filter_map(|rest| rest.split("```").next()) {
        let block = block.replace("call.pcapng", &captured.to_string_lossy());
        match block.contains("[topology]") {
            true => parse(&block),
            false if block.contains("\"transfer\"") => {
                parse(&TRANSFER.replace("model = \"transfer\"", &block))
            }
            false => parse(&BASE.replace("model = \"gop\"", &block)),
        };
    }
}

#[test]
fn scenario_line_has_the_rate_of_its_trace_and_refuses_what_it_cannot_do() {
    let both = "[\"traces/spikes-30\", \"traces/spikes-120\"]";
    let s = parse(&changed(LINE, "\"traces/spikes-30\"", both));
    assert_eq!(s.cells[0].id, "trace=traces-spikes-30_pfifo-5");
    let links = s.cells.iter().map(|cell| cell.point.link);
    let rates: Vec<_> = links.map(|link| link.of(0.0).0).collect();
    // 215 and 860 opportunities of 1504 bytes in 120 s.
    assert_eq!(rates, [21_657, 21_657, 86_229, 86_229]);
    let dccp = "control = \"dccp\"\n[topology]";
    for (from, to, line, says) in [
        ("owd", "load = 1\nowd", 4, "`trace`"),
        ("\"line\"", "\"sender\"", 4, "`trace`"),
        ("traces/spikes-30", "traces/none", 6, "traces/none"),
        ("owd", "loss = 1\nowd", 4, "`loss`"),
        ("pfifo 5", "etf", 3, "in front of a line"),
        ("[topology]", "control = \"tcp\"\n[topology]", 9, "download"),
        ("\"cbr\"", "\"cbr\"\nstreams = 2", 8, "one end"),
        ("[topology]", dccp, 5, "`control`"),
        ("[topology]", "undo = true\n[topology]", 4, "`undo`"),
        ("limit 5", "limit 5 truncate", 3, "device = \"tun\""),
        ("owd", "device = \"tap\"\nowd", 7, "`tun`"),
    ] {
        refused(&changed(LINE, from, to), line, says);
    }
    let option = changed(BASE, "[topology]", "option = true\n[topology]");
    refused(&option, 2, "`option`");

    let tun = changed(LINE, "owd", "device = \"tun\"\nowd");
    let truncates = changed(&tun, "limit 5", "limit 5 truncate");
    let s = parse(&truncates);
    assert_eq!(s.cells[1].id, "bestby-qdisc-triage-limit-5-truncate");
    assert_eq!(s.cells[1].point.device, Device::Tun);
    let tcp = changed(&truncates, "[topology]", "control = \"tcp\"\n[topology]");
    refused(&tcp, 3, "a header alone");
    refused(
        &BASE.replace("qdisc triage", "qdisc triage truncate"),
        3,
        "`truncate`",
    );
    refused(
        &changed(BASE, "owd", "device = \"tun\"\nowd"),
        4,
        "`device`",
    );
}

/// Bulk TCP.
const TRANSFER: &str = r#"
title = "t"
control = "program"
queues = ["tcp transfer"]
[topology]
bottleneck = "router"
rate = "1mbit"
owd = 40
[traffic]
model = "transfer"
"#;

#[test]
fn scenario_transfer_has_losses_that_come_and_go_and_flows_beside_it() {
    let s = parse(TRANSFER);
    assert_eq!(
        (s.cells[0].point.fading, s.cells[0].point.burst),
        (None, 1600)
    );
    let fading = "[topology.fading]\nloss = [0, 20]\non = 500\nacks = [false, true]\n[traffic]";
    let text = changed(TRANSFER, "[traffic]", fading);
    let text = changed(
        &text,
        "title",
        "congestion = [\"reno\", \"real paper\"]\ntitle",
    );
    let text = format!("{text}beside = [[], [\"reno\", \"cubic\"]]\n");
    let s = parse(&text);
    assert_eq!(s.cells.len(), 16);
    let last = s.cells.last().expect("a cell");
    let id = "fading=20_acks=true_congestion=real-paper_beside=reno-cubic_tcp-transfer";
    assert_eq!(last.id, id);
    let fading = last.point.fading.expect("losses");
    assert_eq!((fading.loss, fading.acks), (20.0, true));
    assert_eq!((fading.on, fading.off), (500_000_000, 1_000_000_000));
}

#[test]
fn scenario_transfer_that_cannot_be_is_refused() {
    let real = "congestion = \"real\"\ntitle";
    for (from, to, line, says) in [
        ("[\"tcp transfer\"]", "[\"tcp plain\"]", 9, "needs queues"),
        (
            "[\"tcp transfer\"]",
            "[\"tcp transfer\", \"tcp plain\"]",
            9,
            "needs queues",
        ),
        ("\"transfer\"", "\"layers\"", 9, "needs model"),
        ("owd", "burst = 1000\nowd", 8, "1600"),
        (
            "[traffic]",
            "[topology.fading]\nloss = 101\n[traffic]",
            10,
            "percent",
        ),
        (
            "[traffic]",
            "[topology.fading]\nloss = 1\non = 0\n[traffic]",
            9,
            "mean",
        ),
        (
            "owd",
            "loss = 1\nfading = { loss = 1 }\nowd",
            9,
            "without `loss`",
        ),
        (
            "\"transfer\"",
            "\"transfer\"\nbeside = [\"tahoe\"]",
            11,
            "tahoe",
        ),
        (
            "\"transfer\"",
            "\"transfer\"\nbeside = [\"reno\"]\nstagger_ms = 20000",
            9,
            "30 s",
        ),
    ] {
        refused(&changed(TRANSFER, from, to), line, says);
    }
    let two = "\"transfer\"\nbeside = [\"real paper\"]";
    let text = changed(&changed(TRANSFER, "title", real), "\"transfer\"", two);
    refused(&text, 10, "one mode");
    // Of other programs.
    let quic =
        changed(TRANSFER, "tcp transfer", "quic reset").replace("\"transfer\"", "\"layers\"");
    parse(&quic);
    refused(&changed(&quic, "title", real), 2, "are TCP's");
    let fading = changed(&quic, "owd", "fading = { loss = 1 }\nowd");
    refused(&fading, 8, "tcp transfer");
    refused(&changed(BASE, "owd", "burst = 2000\nowd"), 6, "`burst`");
}
