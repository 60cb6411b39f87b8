//! `docs/applications.md` shows the examples `small` and `quic` as they are. What else it shows is compiled and run as
//! the documentation of the crate.
#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Without the comment in front.
fn program(text: &str) -> &str {
    &text[text.find("\nuse ").unwrap() + 1..]
}

#[test]
fn page_shows_the_examples_as_they_are() {
    let page = read("../docs/applications.md");
    for example in ["small", "quic"] {
        let source = read(&format!("examples/{example}.rs"));
        let block = format!("```rust,no_run\n{}```\n", program(&source));
        assert!(
            page.contains(&block),
            "copy examples/{example}.rs to docs/applications.md"
        );
    }
}

#[test]
fn page_names_every_example_of_tcp() {
    let page = read("../docs/applications.md");
    for example in ["small", "relay", "flv", "rtsp", "game", "layers"] {
        assert!(page.contains(&format!("`{example}`")), "{example}");
    }
}

#[test]
fn relay_of_twenty_lines_has_twenty_lines() {
    let source = read("examples/small.rs");
    let (_, main) = source.split_once("async fn main()").unwrap();
    let body = main.lines().skip(1).take_while(|line| *line != "}");
    assert!(body.count() <= 20);
}
