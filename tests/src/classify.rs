//! What the tests of the classifier share: one rule, and what a verdict looks like.
#![allow(clippy::unwrap_used)]

use bestby_bpf::abi::*;

use crate::{
    bpf::{Lab, Outcome, PASS, Rule},
    clock::MS,
};

/// The port of [`lab`]'s rule.
pub const PORT: u16 = 5004;

/// A lab with one rule: UDP and the like to [`PORT`] lives 200 ms at priority 1.
#[must_use]
pub fn lab() -> Lab {
    let lab = Lab::new();
    lab.rules(&[Rule::new().dport(PORT).lifetime(200 * MS).priority(1)]);
    lab
}

/// The rule of [`lab`] matched.
#[track_caller]
pub fn assert_matched(what: &str, out: &Outcome) {
    assert_eq!(out.verdict, PASS, "{what}");
    assert!(bestby_bpf::sealed(&out.cb), "{what}: no control block");
    assert_eq!(out.cb.rule, 1, "{what}: not matched");
    assert_eq!(out.priority(), 1, "{what}");
    assert!(out.has(BB_CB_DEADLINE), "{what}: no deadline");
}

/// Best effort: no rule, no metadata.
#[track_caller]
pub fn assert_plain(lab: &Lab, what: &str, out: &Outcome) {
    assert_eq!(out.verdict, PASS, "{what}");
    assert!(bestby_bpf::sealed(&out.cb), "{what}: no control block");
    assert_eq!(
        (out.cb.rule, out.cb.flags, out.cb.adu, out.deadline()),
        (0, 0, 0, 0),
        "{what}"
    );
    assert_eq!(
        u32::from(lab.session(out.cb.session).key.kind),
        BB_SESSION_PLAIN,
        "{what}"
    );
}

/// Control traffic: never expires, never waits.
#[track_caller]
pub fn assert_control(lab: &Lab, what: &str, out: &Outcome) {
    assert_eq!(out.verdict, PASS, "{what}");
    assert_eq!(
        (out.priority(), out.deadline(), out.cb.rule),
        (0, 0, 0),
        "{what}"
    );
    assert_eq!(
        u32::from(lab.session(out.cb.session).key.kind),
        BB_SESSION_CONTROL,
        "{what}"
    );
}

/// A mark with the default magic and these fields. By hand: the client crate's encoding is under test elsewhere.
#[must_use]
pub fn mark(fields: u32) -> u32 {
    BB_MARK_MAGIC << BB_MARK_MAGIC_SHIFT | fields
}

/// A mark with a lifetime, ns; at most 131 s.
///
/// # Panics
/// When it does not fit.
#[must_use]
pub fn relative(ns: u64) -> u32 {
    mark(BB_MARK_RELATIVE | u32::try_from(ns / u64::from(BB_MARK_UNIT_NS)).unwrap())
}

/// A mark with a deadline on CLOCK_MONOTONIC, ns.
#[must_use]
pub fn absolute(deadline_ns: u64) -> u32 {
    let units = deadline_ns / u64::from(BB_MARK_UNIT_NS);
    mark((units & u64::from(BB_MARK_TIME_MASK)) as u32)
}

/// A mark's priority field, 0..=7.
#[must_use]
pub fn prio(priority: u32) -> u32 {
    priority << BB_MARK_PRIORITY_SHIFT
}
