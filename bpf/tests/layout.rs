//! The types in `src/abi.rs` lie in memory as those in the compiled objects do.
//!
//! bindgen writes every size and offset into `abi.rs` as an assertion that the
//! compiler checks against the Rust types; here the same numbers are compared
//! with the BTF of each object. So a struct cannot differ between the header,
//! the kernel side and the agent without a build or this test failing.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::collections::{BTreeMap, BTreeSet};

use libbpf_rs::btf::{
    Btf, HasSize as _,
    types::{MemberAttr, Struct},
};

const ABI: &str = include_str!("../src/abi.rs");

/// Size and fields (name → offset in bytes) by struct.
type Layout = BTreeMap<String, (usize, BTreeMap<String, usize>)>;

/// `text` between `before` and `after`.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?])
}

/// A field's name; bindgen appends `_` to what Rust keeps for itself (`gen`).
fn plain(field: &str) -> String {
    field.trim_end_matches('_').to_owned()
}

/// The number at the end of an assertion (`... - 20usize];`).
fn number(line: &str) -> usize {
    between(line, " - ", "usize")
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_else(|| panic!("no number: {line}"))
}

fn rust_layout() -> Layout {
    // Long assertions take two lines.
    let text = ABI.replace("\n        [", "[");
    let mut layout = Layout::new();
    for line in text.lines() {
        if let Some(name) = between(line, "\"Size of ", "\"") {
            layout.entry(name.to_owned()).or_default().0 = number(line);
        } else if let Some(field) = between(line, "\"Offset of field: ", "\"") {
            let (name, field) = field.split_once("::").expect("struct::field");
            let fields = &mut layout.entry(name.to_owned()).or_default().1;
            fields.insert(plain(field), number(line));
        }
    }
    layout
}

fn btf_layout(object: &[u8]) -> Layout {
    let btf = Btf::from_raw("object", object)
        .unwrap()
        .expect("compiled with -g");
    let mut layout = Layout::new();
    for ty in btf.type_by_kind::<Struct<'_>>() {
        let name = ty.name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.starts_with("bb_") {
            continue;
        }
        let fields = ty
            .iter()
            .map(|member| {
                let MemberAttr::Normal { offset } = member.attr else {
                    panic!("{name} has a bit field");
                };
                let field = member.name.unwrap().to_str().unwrap();
                (plain(field), usize::try_from(offset / 8).unwrap())
            })
            .collect();
        layout.insert(name.to_owned(), (ty.size(), fields));
    }
    layout
}

#[test]
fn rust_types_match_the_btf_of_every_object() {
    let rust = rust_layout();
    assert!(
        rust.len() > 15,
        "only {} structs found in abi.rs",
        rust.len()
    );
    let mut seen = BTreeSet::new();
    for (object, bytes) in [
        ("maps", bestby_bpf::MAPS),
        ("qdisc", bestby_bpf::QDISC),
        ("classify", bestby_bpf::CLASSIFY),
        ("sockopt", bestby_bpf::SOCKOPT),
        ("rtt", bestby_bpf::RTT),
        ("real", bestby_bpf::REAL),
        ("real_hooks", bestby_bpf::REAL_HOOKS),
    ] {
        for (name, layout) in btf_layout(bytes) {
            if let Some(ours) = rust.get(&name) {
                assert_eq!(ours, &layout, "{name} in {object}.bpf.o");
                seen.insert(name);
            }
        }
    }
    // A struct that no object describes would be checked by nothing.
    let unseen: Vec<_> = rust.keys().filter(|name| !seen.contains(*name)).collect();
    assert!(unseen.is_empty(), "in abi.rs, but in no object: {unseen:?}");
}
