//! What is refused, and whether its error says what to do.

use std::time::{Duration, Instant};

use super::*;

const BASE: &str = r#"
title = "t"
queues = ["bestby qdisc triage", "pfifo 32"]
[topology]
load = 1
owd = 40
[traffic]
model = "gop"
"#;

fn refused(text: &str) -> String {
    let error = Scenario::of_text("t", text).expect_err(text);
    format!("{error:#}")
}

/// `BASE` with `from` made `to`: an error of line `at` that says `says`.
fn refuses(cases: &[(&str, &str, usize, &str)]) {
    for &(from, to, at, says) in cases {
        let text = BASE.replacen(from, to, 1);
        assert_ne!(text, BASE, "{from}");
        let error = refused(&text);
        assert!(error.contains(says), "{to}: {error}");
        assert!(error.contains(&format!("t.toml:{at}: ")), "{to}: {error}");
    }
}

const GOP: &str = "model = \"gop\"";

#[test]
fn what_would_have_no_effect_is_refused() {
    let title = "title = \"t\"";
    refuses(&[
        (
            title,
            "title = \"t\"\nlifetime = 0",
            3,
            "must be 1 to 10000, not 0",
        ),
        (
            title,
            "title = \"t\"\nlifetime = [200, 0]",
            3,
            "1 to 10000, not 0",
        ),
        (
            title,
            "title = \"t\"\nlifetime = { audio = 0 }",
            3,
            "1 to 10000, not 0",
        ),
        (
            title,
            "title = \"t\"\nlifetime = {}",
            3,
            "at least one of audio, video, data",
        ),
        (
            title,
            "title = \"t\"\nlifetime = { data = 100 }",
            3,
            "`data 100` names data, but this traffic has audio and video only: leave data out",
        ),
        (
            title,
            "title = \"two\\nlines\"",
            2,
            "`title` must be one line",
        ),
        (title, "title = \" \"", 2, "`title` must be one line"),
        (
            GOP,
            "model = \"gop\"\nfps = [30, 30]",
            9,
            "`30` stands in the list twice",
        ),
        (
            GOP,
            "model = \"gop\"\nrate_kbit = [9, 9.0]",
            9,
            "`9.0` stands in the list twice",
        ),
        (
            GOP,
            "model = [\"gop\", \"gop\"]",
            8,
            "`gop` stands in the list twice",
        ),
        (
            "owd = 40",
            "owd = 40\nloss = [0, -0.0]",
            7,
            "`0` stands in the list twice",
        ),
    ]);
    let mixed = "title = \"t\"\nlifetime = [200, { audio = 100 }, { video = 1 }]";
    assert!(Scenario::of_text("t", &BASE.replace(title, mixed)).is_ok());
    // One of the swept models sends it.
    let swept = BASE
        .replace(title, "title = \"t\"\nlifetime = { data = 100 }")
        .replace(GOP, "model = [\"gop\", \"cbr\"]");
    assert!(Scenario::of_text("t", &swept).is_ok());
    let alone = BASE
        .replace(title, "title = \"t\"\nlifetime = { audio = 100 }")
        .replace(GOP, "model = \"gop\"\naudio_bytes = 0");
    assert!(refused(&alone).contains("this traffic has video only"));
}

#[test]
fn errors_that_no_queue_is_told_are_refused() {
    let told = |queue: &str, line: &str| {
        let text = BASE.replace("\"bestby qdisc triage\", \"pfifo 32\"", queue);
        format!("{text}[told]\n{line}\n")
    };
    for (queue, line) in [
        ("\"fq\"", "rtt_error = [0, 0.5]"),
        ("\"fq\", \"pfifo 5\"", "rtt_error = 0.5"),
        ("\"etf\"", "rate_error = [0, 0.5]"),
    ] {
        let error = refused(&told(queue, line));
        let (axis, _) = line.split_once(' ').expect("an axis");
        assert!(
            error.contains(&format!("`{axis}` changes nothing")),
            "{error}"
        );
        assert!(error.contains("t.toml:10: "), "{error}");
    }
    for (queue, line) in [
        ("\"etf\"", "rtt_error = [0, 0.5]"),
        ("\"fq\", \"bestby tc\"", "rate_error = 0.5"),
        ("\"fq\"", "rtt_error = 0"),
    ] {
        assert!(Scenario::of_text("t", &told(queue, line)).is_ok(), "{line}");
    }
    let router = told("\"fq\"", "rate_error = 0.5");
    let router = router.replace("owd = 40", "owd = 40\nbottleneck = \"router\"");
    assert!(Scenario::of_text("t", &router).is_ok());
}

#[test]
fn a_wrong_value_is_named_with_its_parameter_and_what_is_allowed() {
    refuses(&[
        (
            GOP,
            "model = \"gop\"\nrate_kbit = nan",
            9,
            "`rate_kbit` = NaN: it must be a finite",
        ),
        (
            GOP,
            "model = \"gop\"\nsigma = [0.1, inf]",
            9,
            "`sigma` = inf: it must be a finite",
        ),
        (
            GOP,
            "model = \"gop\"\nfps = -3",
            9,
            "`fps` = -3: it must be within 1..=240",
        ),
        (
            GOP,
            "model = \"gop\"\nfps = 30.5",
            9,
            "`fps` = 30.5: it must be within 1..=240",
        ),
        (
            GOP,
            "model = \"gop\"\nfps = 500",
            9,
            "fps = 500 is not within 1..=240",
        ),
        (
            GOP,
            "model = \"gop\"\naudio_bytes = -1",
            9,
            "`audio_bytes` = -1: it must be a whole number, 0 to 4294967295",
        ),
        (
            GOP,
            "model = \"gop\"\nsigma = \"wide\"",
            9,
            "`sigma` = \"wide\": it must be a number",
        ),
        (
            GOP,
            "model = \"gop\"\nloud = 3",
            9,
            "`loud` = 3: unknown field `loud`",
        ),
        (
            GOP,
            "model = \"sfu\"\nclients = 2\nmedia = { sigma = 0.1, fps = -3 }",
            10,
            "`media.fps` = -3: it must be within 1..=240",
        ),
        (
            GOP,
            "model = \"sfu\"\nmedia = { rate_kbit = nan }",
            9,
            "`media.rate_kbit` = NaN",
        ),
        (
            GOP,
            "model = \"sfu\"\nmedia = { fps = 500 }",
            9,
            "fps = 500 is not within 1..=240",
        ),
        (
            GOP,
            "model = \"mix\"\nparts = [{ model = \"gop\" }, { model = \"gop\", fps = -3 }]",
            9,
            "`parts[1].fps` = -3: it must be within 1..=240",
        ),
        (
            "title = \"t\"",
            "title = \"t\"\nrepetitions = 1e9",
            3,
            "whole number, 1 to 1000, without point or exponent, not 1000000000.0",
        ),
        (
            "title = \"t\"",
            "title = \"t\"\nseconds = \"long\"",
            3,
            "seconds, a whole number, 1 to 3600",
        ),
        (
            "title = \"t\"",
            "title = \"t\"\nseconds = 9999999",
            3,
            "1 to 3600, not 9999999",
        ),
        (
            "title = \"t\"",
            "title = \"t\"\ndiscard_first = \"3\"",
            3,
            "discard_first (s), a number",
        ),
        (
            "load = 1",
            "rate = [\"1mbit\", 1000000]",
            5,
            "`1mbit` stands in the list twice",
        ),
    ]);
}

#[test]
fn a_table_or_a_list_in_the_wrong_place_is_named_itself() {
    let model = |text: &'static str, at, says| (GOP, text, at, says);
    refuses(&[
        model("", 7, "missing field `model`: docs/traffic.md"),
        model(
            "model = 3",
            8,
            "`model` = 3: it must be the name of a model in quotes",
        ),
        model(
            "model = \"pcap\"",
            8,
            "missing field `file`: docs/traffic.md",
        ),
        model(
            "model = \"pcap\"\nfile = 3",
            9,
            "`file` = 3: it must be text in quotes",
        ),
        model(
            "model = \"gop\"\nfps = [30, [60]]",
            9,
            "`fps` = [60]: it must be within 1..=240",
        ),
        model(
            "model = \"gop\"\nfps = 2026-01-01",
            9,
            "`fps` = 2026-01-01: a date",
        ),
        model(
            "model = \"sfu\"\nmedia = [{ fps = 10 }, { fps = 20 }]",
            9,
            "`media`: a list of 2 tables does not sweep",
        ),
        model(
            "model = \"sfu\"\nmedia = { fps = { a = 1 } }",
            9,
            "`media.fps` = {\"a\":1}: it must",
        ),
        model(
            "model = \"sfu\"\n\n[traffic.media]\nfps = -3",
            10,
            "`media.fps` = -3: it must",
        ),
        model(
            "model = \"mix\"\nparts = [3]",
            9,
            "`parts[0]` = 3: it must be a table, { model",
        ),
        model(
            "model = \"mix\"\nparts = [{ model = \"gop\" }, { fps = 3 }]",
            9,
            "`parts[1]` = {\"fps\":3}: missing field `model`",
        ),
        model(
            "model = \"cbr\"\nclass = 3",
            9,
            "`class` = 3: it must be text in quotes",
        ),
    ]);
}

#[test]
fn a_delay_that_a_run_does_not_wait_for_is_refused() {
    refuses(&[
        (
            "owd = 40",
            "owd = 1001",
            6,
            "must be 0 to 1000, not 1001: a run ends when nothing",
        ),
        (
            "owd = 40",
            "owd = [40, 10000]",
            6,
            "must be 0 to 1000, not 10000",
        ),
    ]);
    assert!(Scenario::of_text("t", &BASE.replace("owd = 40", "owd = 1000")).is_ok());
    let tfrc = BASE
        .replace("title", "control = \"tfrc\"\ntitle")
        .replace("owd = 40", "owd = [40, 451]\nbottleneck = \"router\"");
    let error = refused(&tfrc);
    assert!(
        error.contains("t.toml:7: ") && error.contains("at most 450 ms"),
        "{error}"
    );
    assert!(Scenario::of_text("t", &tfrc.replace("451", "450")).is_ok());
}

#[test]
fn a_name_that_is_no_new_directory_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for (file, good) in [
        ("..toml", "scenario.toml"),
        ("...toml", "scenario.toml"),
        (".toml", "toml.toml"),
        (".hidden.toml", "hidden.toml"),
        ("-.toml", "scenario.toml"),
        ("A b.toml", "a-b.toml"),
    ] {
        let path = directory.path().join(file);
        fs::write(&path, BASE).expect("written");
        let error = Scenario::load(&path).expect_err(file).to_string();
        assert!(error.ends_with(&format!("e.g. {good}")), "{file}: {error}");
    }
}

/// `n` values of each of five axes, with two queues.
fn wide(n: usize) -> String {
    let values = |first: usize| -> Vec<usize> { (first..first + n).collect() };
    BASE.replace("title", &format!("lifetime = {:?}\ntitle", values(100)))
        .replace("load = 1", &format!("load = {:?}", values(1)))
        .replace(
            "owd = 40",
            &format!("owd = {:?}\nloss = {:?}", values(1), values(0)),
        )
        .replace(GOP, &format!("{GOP}\nfps = {:?}", values(10)))
}

#[test]
fn many_cells_are_expanded_soon_and_too_many_refused_with_their_axes() {
    let began = Instant::now();
    let many = Scenario::of_text("t", &wide(8)).expect("65536 cells");
    assert_eq!(many.cells.len(), 2 * 8usize.pow(5));
    // Half a second here; what compares each with each takes minutes.
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    let error = refused(&wide(9));
    for says in [
        "118098 cells",
        "owd (9) × loss (9) × load (9)",
        "fps (9) × queues (2)",
    ] {
        assert!(error.contains(says), "{error}");
    }
    assert!(refused(&wide(60)).contains("1555200000 cells"));
    // An axis that a queue is told nothing of multiplies it by one.
    let told = |values: usize| {
        let errors: Vec<f64> = (0..values).map(|error| error as f64 / 1e5).collect();
        format!("{BASE}[told]\nrtt_error = {errors:?}\n")
    };
    let once = Scenario::of_text("t", &told(99_999)).expect("100000 cells");
    assert_eq!(once.cells.len(), 100_000);
    assert!(refused(&told(100_000)).contains("100001 cells"));
}
