//! What the pages show is what the lab takes.

use std::fs;

use super::*;

/// A capture of two RTP packets of PCMU, 20 ms apart, in µs.
fn capture() -> Vec<u8> {
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for number in 0..2u8 {
        let mut packet = vec![0; 12];
        packet.extend([8, 0, 0x45, 0, 0, 200, 0, 0, 0, 0, 64, 17, 0, 0]);
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend([0x13, 0x88, 0x13, 0x8c, 0, 180, 0, 0]);
        packet.extend([0x80, 0, 0, number, 0, 0, 0, number, 0, 0, 0, 9]);
        packet.resize(214, 7);
        file.extend(words(&[
            1_700_000_000,
            20_000 * u32::from(number),
            214,
            214,
        ]));
        file.extend(packet);
    }
    file
}

const REST: &str = r#"
title = "t"
queues = ["bestby qdisc triage", "pfifo 32"]
[topology]
load = 1
owd = 40
[traffic]
"#;

/// Loads `text` as `run` does.
fn load(text: &str) -> Result<Scenario> {
    let directory = tempfile::tempdir().expect("a directory");
    let captured = directory.path().join("call.pcapng");
    fs::write(&captured, capture()).expect("written");
    let file = directory.path().join("t.toml");
    let text = text.replace("call.pcapng", &captured.to_string_lossy());
    fs::write(&file, text).expect("written");
    Scenario::load(&file)
}

fn blocks(page: &str) -> impl Iterator<Item = &str> {
    let after = page.split("```toml\n").skip(1);
    after.filter_map(|rest| rest.split("```").next())
}

#[test]
fn every_example_of_the_pages_is_accepted() {
    let pages = [
        include_str!("../../../docs/traffic.md"),
        include_str!("../../../docs/lab.md"),
    ];
    let mut examples = 0;
    for block in pages.into_iter().flat_map(blocks) {
        let text = if block.contains("[topology]") {
            block.to_owned()
        } else {
            format!("{REST}{block}")
        };
        let scenario = load(&text).unwrap_or_else(|error| panic!("{error:#}\n{text}"));
        assert!(!scenario.cells.is_empty());
        examples += 1;
    }
    assert_eq!(examples, 9);
}

#[test]
fn a_list_that_is_a_parameter_sweeps_as_a_list_of_lists_only() {
    let base = format!("{REST}model = \"pcap\"\nfile = \"call.pcapng\"\n");
    let value = |line: &str, key: &str| {
        let scenario = load(&format!("{base}{line}\n"));
        let scenario = scenario.unwrap_or_else(|error| panic!("{line}: {error:#}"));
        assert_eq!((scenario.cells.len(), scenario.axes.len()), (2, 0));
        scenario.cells[0].point.traffic[key].to_string()
    };
    assert_eq!(value("ports = [5004]", "ports"), "[5004]");
    assert_eq!(value("ports = []", "ports"), "[]");
    assert_eq!(value("ports = [[5004]]", "ports"), "[5004]");
    assert_eq!(value("audio_types = [0, 8]", "audio_types"), "[0,8]");
    assert_eq!(value("data_types = []", "data_types"), "[]");

    let swept = load(&format!("{base}ports = [[], [5004, 5006]]\n")).expect("two lists");
    assert_eq!(swept.axes[0].values, ["[]", "[5004,5006]"]);
    let ids: Vec<&str> = swept.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert!(ids.contains(&"ports=5004-5006_pfifo-32"), "{ids:?}");

    for (line, says) in [
        ("ports = [5004, [5006]]", "`ports` is a list itself"),
        ("ports = 5004", "`ports` = 5004: it must be a list"),
        (
            "ports = [70000]",
            "`ports[0]` = 70000: it must be a whole number, 0 to 65535",
        ),
        ("audio_lifetime_ms = []", "an empty list"),
        ("ports = [[5004], [5004]]", "stands in the list twice"),
    ] {
        let error = load(&format!("{base}{line}\n")).expect_err(line);
        let error = format!("{error:#}");
        assert!(
            error.contains(says) && error.contains("t.toml:10: "),
            "{line}: {error}"
        );
    }
}

#[test]
fn parts_of_a_mix_are_one_value_too() {
    let one = r#"[{ model = "conference" }, { model = "onoff" }]"#;
    let text = |parts: &str| format!("{REST}model = \"mix\"\nparts = {parts}\n");
    assert_eq!(load(&text(one)).expect("one list").cells.len(), 2);
    let two = format!("[{one}, [{{ model = \"gop\" }}]]");
    assert_eq!(load(&text(&two)).expect("two lists").cells.len(), 4);
}
