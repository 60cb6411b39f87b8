//! What must hold of every backlog, whatever is pushed and whenever it is driven.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const LIMITS: Limits = Limits {
    adus: 1024,
    bytes: 8 << 20,
};
/// 1 Mbit/s, 10 ms away.
const VIEW: View = View {
    owd: 10 * MS,
    margin: 0,
    acknowledged: false,
    rate: 125_000,
};

fn adu(arrived: u64, lifetime: u64, priority: u8, bytes: usize) -> Adu<()> {
    Adu {
        deadline: arrived.saturating_add(lifetime),
        priority: Priority::new(priority).unwrap(),
        arrived,
        bytes,
        solid: bytes,
        keep: false,
        begun: false,
        content: (),
    }
}

/// A backlog with these: lifetime in ms, priority, bytes; ids from 0.
fn backlog(method: Method, adus: &[(u64, u8, usize)]) -> Backlog<()> {
    let mut backlog = Backlog::new(method, LIMITS);
    let mut out = Vec::new();
    for (id, &(lifetime, priority, bytes)) in (0..).zip(adus) {
        backlog.push(id, adu(0, lifetime * MS, priority, bytes), &mut out);
    }
    assert!(out.is_empty());
    backlog
}

/// The order in which everything is sent if the path is exactly as the view says.
fn sent(backlog: &mut Backlog<()>, view: &View) -> (Vec<u64>, Vec<(u64, Reason)>) {
    let (mut order, mut given_up, mut now) = (Vec::new(), Vec::new(), 0);
    loop {
        backlog.expire(now, view, &mut given_up);
        let Some(id) = backlog.choose(now, view) else {
            break;
        };
        let adu = backlog.take(id).unwrap();
        now += transmission(adu.bytes, view.rate);
        order.push(id);
    }
    backlog.clear(Reason::Closed, &mut given_up);
    let given_up = given_up.into_iter().map(|(id, _, reason)| (id, reason));
    (order, given_up.collect())
}

// ---- methods ----

#[test]
fn triage_sends_by_deadline_among_equals() {
    let mut backlog = backlog(
        Method::Triage,
        &[(300, 3, 1000), (100, 3, 1000), (200, 3, 1000)],
    );
    assert_eq!(sent(&mut backlog, &VIEW).0, [1, 2, 0]);
}

#[test]
fn triage_lets_the_important_go_first_where_nobody_is_late_by_that() {
    let mut backlog = backlog(Method::Triage, &[(100, 4, 1000), (200, 0, 1000)]);
    assert_eq!(sent(&mut backlog, &VIEW).0, [1, 0]);
    // 1000 bytes take 8 ms: the less important one has 5 ms to spare.
    let mut backlog = self::backlog(Method::Triage, &[(23, 4, 1000), (200, 0, 1000)]);
    assert_eq!(sent(&mut backlog, &VIEW), (vec![0, 1], vec![]));
}

#[test]
fn triage_gives_up_the_least_important_that_is_in_the_way() {
    // Room for 11,250 bytes until 100 ms − owd.
    let mut backlog = backlog(
        Method::Triage,
        &[(100, 5, 5000), (100, 4, 5000), (100, 0, 5000)],
    );
    let (order, given_up) = sent(&mut backlog, &VIEW);
    assert_eq!(order, [2, 1]);
    assert_eq!(given_up, [(0, Reason::Predicted)]);
}

#[test]
fn triage_gives_up_the_largest_among_equals() {
    let mut backlog = backlog(
        Method::Triage,
        &[(100, 3, 5000), (100, 3, 10_000), (100, 3, 5000)],
    );
    let (order, given_up) = sent(&mut backlog, &VIEW);
    assert_eq!(order, [0, 2]);
    assert_eq!(given_up, [(1, Reason::Predicted)]);
}

#[test]
fn who_cannot_be_saved_makes_nobody_give_way() {
    // The last one is due after the others and could not be in time beside the important one.
    let mut backlog = backlog(
        Method::Triage,
        &[(100, 0, 10_000), (150, 6, 1000), (160, 5, 9000)],
    );
    let (order, given_up) = sent(&mut backlog, &VIEW);
    assert_eq!(order, [0, 1]);
    assert_eq!(given_up, [(2, Reason::Predicted)]);
}

#[test]
fn priority_sends_the_base_layer_first_and_fifo_what_came_first() {
    let adus = [
        (500, 2, 1000),
        (500, 1, 1000),
        (400, 2, 1000),
        (500, 0, 1000),
    ];
    let mut by_priority = backlog(Method::Priority, &adus);
    assert_eq!(sent(&mut by_priority, &VIEW).0, [3, 1, 2, 0]);
    let mut fifo = backlog(Method::Fifo, &adus);
    assert_eq!(sent(&mut fifo, &VIEW).0, [0, 1, 2, 3]);
}

#[test]
fn what_is_stale_is_never_sent_but_what_must_be_kept_is() {
    for method in [Method::Triage, Method::Priority, Method::Fifo] {
        let mut backlog = backlog(method, &[(9, 0, 100), (10, 0, 0), (2000, 1, 100)]);
        let mut out = Vec::new();
        let mut kept = adu(0, 0, 7, 100);
        kept.keep = true;
        backlog.push(3, kept, &mut out);
        backlog.expire(0, &VIEW, &mut out);
        assert_eq!(out.len(), 1, "{method:?}");
        assert_eq!((out[0].0, out[0].2), (0, Reason::Stale));
        assert_eq!(backlog.next_expiry(&VIEW), Some(1));
        backlog.expire(1, &VIEW, &mut out);
        assert_eq!((out[1].0, out[1].2), (1, Reason::Stale));
        let (order, given_up) = sent(&mut backlog, &VIEW);
        assert_eq!((order.len(), given_up.len()), (2, 0), "{method:?}");
    }
}

#[test]
fn a_margin_is_at_most_half_of_what_an_adu_could_wait() {
    let view = View {
        margin: 500 * MS,
        ..VIEW
    };
    let mut backlog = backlog(Method::Triage, &[(200, 3, 1000)]);
    assert_eq!(backlog.get(0).unwrap().margin(&view), 95 * MS);
    let acknowledged = View {
        acknowledged: true,
        ..view
    };
    let margin = backlog.get(0).unwrap().margin(&acknowledged);
    assert_eq!(margin, 142_500_000);
    let mut out = Vec::new();
    let later = |at: u64, lifetime: u64, priority| adu(at * MS, lifetime * MS, priority, 1000);
    backlog.push(1, later(80, 300, 3), &mut out);
    backlog.expire(80 * MS, &view, &mut out);
    assert_eq!(backlog.choose(80 * MS, &view), Some(0));
    // 8 ms of its own and 95 of margin: after a loss it would be late, so the other one goes first.
    assert_eq!(backlog.choose(90 * MS, &view), Some(1));
    // But not one that is less important.
    backlog.take(1);
    backlog.push(2, later(90, 300, 4), &mut out);
    backlog.expire(90 * MS, &view, &mut out);
    assert_eq!(backlog.choose(90 * MS, &view), Some(0));
    backlog.expire(183 * MS, &view, &mut out);
    assert_eq!((out.len(), out[0].2), (1, Reason::Predicted));
}

#[test]
fn a_large_adu_waits_while_a_more_important_one_is_expected() {
    // Audio with 60 ms; a frame that takes 160 ms.
    let mut backlog = backlog(Method::Triage, &[(60, 0, 100), (3000, 4, 20_000)]);
    assert_eq!(backlog.choose(0, &VIEW), Some(0));
    backlog.take(0);
    assert_eq!(backlog.choose(0, &VIEW), None, "not while audio may come");
    assert_eq!(backlog.choose(2000 * MS, &VIEW), Some(1), "none came");
    // In parts, between which audio may go, it need not wait.
    let mut out = Vec::new();
    let mut parts = adu(0, 1000 * MS, 4, 20_000);
    parts.solid = 1400;
    backlog.push(2, parts, &mut out);
    assert_eq!(backlog.choose(0, &VIEW), Some(2));
}

#[test]
fn a_rare_adu_keeps_the_path_free_for_nobody_but_a_frequent_one_does() {
    // A key frame takes 240 of its 300 ms, a frame 80: one that begins just before it makes it late.
    let allowed = |period: u64| {
        let mut backlog = Backlog::new(Method::Triage, LIMITS);
        let mut out = Vec::new();
        let keys = (0..1500 / period).map(|n| adu(n * period * MS, 300 * MS, 1, 30_000));
        for (id, key) in (0..).zip(keys) {
            backlog.push(id, key, &mut out);
            backlog.take(id);
        }
        let now = 1600 * MS;
        backlog.push(1000, adu(now, 400 * MS, 4, 10_000), &mut out);
        backlog.choose(now, &VIEW).is_some()
    };
    assert!(!allowed(250));
    assert!(allowed(1500));
}

#[test]
fn an_adu_that_may_not_begin_keeps_the_path_free_for_itself_neither() {
    // Audio with 60 ms every 20 ms, and frames of importance 1 that take 160 ms: they may not begin.
    let mut backlog = Backlog::new(Method::Triage, LIMITS);
    let mut out = Vec::new();
    for id in 0..50 {
        backlog.push(2 * id, adu(id * 20 * MS, 60 * MS, 0, 100), &mut out);
        backlog.push(2 * id + 1, adu(id * 20 * MS, 190 * MS, 1, 20_000), &mut out);
        backlog.take(2 * id);
        if id < 49 {
            backlog.take(2 * id + 1);
        }
    }
    let now = 990 * MS;
    assert_eq!(backlog.choose(now, &VIEW), None);
    // A frame of 40 ms may, though one that is more important waits, and more such are expected.
    backlog.push(1000, adu(now, 190 * MS, 4, 5_000), &mut out);
    assert_eq!(backlog.choose(now, &VIEW), Some(1000));
}

#[test]
fn an_unknown_rate_predicts_nothing() {
    let view = View { rate: 0, ..VIEW };
    let mut backlog = backlog(Method::Triage, &[(100, 3, 5 << 20), (100, 2, 1 << 20)]);
    let (order, given_up) = sent(&mut backlog, &view);
    assert_eq!((order, given_up), (vec![1, 0], vec![]));
}

// ---- limits ----

#[test]
fn plan_of_a_long_backlog_that_is_in_time_looks_at_few_adus() {
    let adus: Vec<(u64, Adu<()>)> = (0..1000)
        .map(|id| (id, adu(0, 100_000 * MS + id, 3, 1_000)))
        .collect();
    let mut seen = 0;
    let iter = adus
        .iter()
        .map(|(id, adu)| (*id, adu))
        .inspect(|_| seen += 1);
    let whole = Whole {
        bytes: [0, 0, 0, 1_000_000, 0, 0, 0, 0],
        best: Priority::new(3).unwrap(),
        oldest: 0,
    };
    let expected = Expected::default();
    let next_due = |_, deadline| Some(deadline);
    let chosen = Plan::default().choose(0, &VIEW, iter, whole, &expected, next_due);
    assert_eq!((chosen, seen), (Some(0), 1));
}

#[test]
fn key_frame_behind_a_long_backlog_begins_when_it_must() {
    // It takes 120 ms, and must have left in 161: a quarter of that early. Behind 300 others it is not even looked at.
    let mut adus = vec![(150, 6, 10); 300];
    adus.push((171, 1, 15_000));
    let mut triage = backlog(Method::Triage, &adus);
    assert_eq!(triage.choose(0, &VIEW), Some(300));
    // With more time the others go first.
    adus[300].0 = 1000;
    let mut triage = backlog(Method::Triage, &adus);
    assert_eq!(triage.choose(0, &VIEW), Some(0));
}

#[test]
fn a_full_backlog_evicts_the_least_important_and_never_for_less() {
    let mut backlog = Backlog::new(
        Method::Triage,
        Limits {
            adus: 2,
            bytes: 1000,
        },
    );
    let mut out = Vec::new();
    backlog.push(0, adu(0, 100 * MS, 5, 400), &mut out);
    backlog.push(1, adu(0, 200 * MS, 3, 400), &mut out);
    backlog.push(2, adu(0, 300 * MS, 6, 100), &mut out);
    assert_eq!((out[0].0, out[0].2), (2, Reason::Evicted), "less important");
    backlog.push(3, adu(0, 300 * MS, 4, 100), &mut out);
    assert_eq!((out[1].0, out[1].2), (0, Reason::Evicted));
    backlog.push(4, adu(0, 90 * MS, 4, 100), &mut out);
    assert_eq!(out[2].0, 4, "as important, but due before");
    backlog.push(5, adu(0, 400 * MS, 4, 100), &mut out);
    assert_eq!(out[3].0, 3, "the other way round");
    backlog.push(6, adu(0, 400 * MS, 0, 1001), &mut out);
    assert_eq!(out[4].0, 6, "more than the limit alone");
    assert_eq!((backlog.len(), out.len(), backlog.bytes()), (2, 5, 500));
}

#[test]
fn nobody_is_evicted_for_one_that_does_not_fit_after_all() {
    let mut backlog = Backlog::new(
        Method::Triage,
        Limits {
            adus: 9,
            bytes: 1000,
        },
    );
    let mut out = Vec::new();
    backlog.push(0, adu(0, 100 * MS, 5, 500), &mut out);
    backlog.push(1, adu(0, 100 * MS, 1, 500), &mut out);
    backlog.push(2, adu(0, 100 * MS, 3, 600), &mut out);
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].0, 2);
}

#[test]
fn what_has_begun_is_not_evicted() {
    let mut backlog = Backlog::new(
        Method::Triage,
        Limits {
            adus: 1,
            bytes: 1000,
        },
    );
    let mut out = Vec::new();
    let mut begun = adu(0, 100 * MS, 7, 500);
    begun.begun = true;
    backlog.push(0, begun, &mut out);
    backlog.push(1, adu(0, 100 * MS, 0, 5), &mut out);
    assert_eq!((out[0].0, backlog.len()), (1, 1));
}

// ---- properties ----

#[derive(Clone, Copy, Debug)]
enum Step {
    Push {
        lifetime: u64,
        priority: u8,
        bytes: usize,
        keep: bool,
    },
    Take(prop::sample::Index),
    Send {
        bytes: usize,
    },
    Wait(u64),
    Back(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push = (0u64..400, 0u8..8, 0usize..30_000, 0u8..12).prop_map(|(ms, priority, bytes, n)| {
        let lifetime = if n == 1 { NEVER } else { ms * MS };
        Step::Push {
            lifetime,
            priority,
            bytes,
            keep: n == 0,
        }
    });
    let step = prop_oneof![
        6 => push,
        1 => any::<prop::sample::Index>().prop_map(Step::Take),
        6 => (1usize..40_000).prop_map(|bytes| Step::Send { bytes }),
        4 => (0u64..60).prop_map(|ms| Step::Wait(ms * MS)),
        1 => (0u64..200).prop_map(|ms| Step::Back(ms * MS)),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Each ADU leaves exactly once; nothing stale is chosen; what is evicted is never more important
    /// than what stayed or came; whom a plan leaves out for another is no more important than that.
    #[test]
    fn each_adu_has_one_outcome_and_a_fair_one(
        steps in steps(),
        method in prop::sample::select(vec![Method::Triage, Method::Priority, Method::Fifo]),
        (owd, margin, rate) in (0u64..50, 0u64..200, 0u64..1_000_000),
        (adus, bytes) in (1usize..30, 0usize..200_000),
    ) {
        let view = View { owd: owd * MS, margin: margin * MS, rate, acknowledged: false };
        let limits = Limits { adus, bytes };
        let mut backlog = Backlog::new(method, limits);
        let mut pushed = BTreeMap::new();
        let mut gone = BTreeSet::new();
        let mut now = 1000 * MS;
        let mut check = |id: u64| {
            prop_assert!(gone.insert(id), "{id} left twice");
            Ok(())
        };
        for (id, step) in (0..).zip(steps) {
            let mut out = Vec::new();
            match step {
                Step::Push { lifetime, priority, bytes, keep } => {
                    let mut new = adu(now, lifetime, priority, bytes);
                    new.keep = keep;
                    pushed.insert(id, new.clone());
                    backlog.push(id, new.clone(), &mut out);
                    for (victim, old, reason) in &out {
                        prop_assert_eq!(*reason, Reason::Evicted);
                        prop_assert!(*victim == id || old.priority >= new.priority);
                        let least = backlog.iter().map(|(_, adu)| adu.priority).max();
                        let is_least = least.is_none_or(|least| old.priority >= least);
                        prop_assert!(is_least || *victim == id);
                    }
                }
                Step::Take(index) => {
                    let ids: Vec<u64> = backlog.iter().map(|(id, _)| id).collect();
                    if !ids.is_empty() {
                        let id = *index.get(&ids);
                        prop_assert!(backlog.take(id).is_some());
                        prop_assert!(backlog.take(id).is_none());
                        check(id)?;
                    }
                }
                Step::Send { bytes } => {
                    backlog.expire(now, &view, &mut out);
                    for (_, adu, reason) in &out {
                        prop_assert!(!adu.keep);
                        match reason {
                            Reason::Stale => prop_assert!(adu.is_stale(now, &view)),
                            _ => prop_assert!(adu.is_hopeless(now, &view)),
                        }
                    }
                    let mut left = bytes;
                    while let Some(id) = backlog.choose(now, &view) {
                        let adu = backlog.take(id).unwrap();
                        prop_assert!(adu.keep || !adu.is_stale(now, &view));
                        let fits = adu.bytes <= left;
                        if !fits {
                            backlog.put_back(id, adu);
                            break;
                        }
                        left -= adu.bytes;
                        check(id)?;
                    }
                }
                Step::Wait(ns) => now += ns,
                Step::Back(ns) => now = now.saturating_sub(ns),
            }
            for (id, _, _) in out {
                check(id)?;
            }
            let waiting: usize = backlog.iter().map(|(_, adu)| adu.bytes).sum();
            prop_assert_eq!(waiting, backlog.bytes());
            prop_assert!(backlog.len() <= limits.adus && waiting <= limits.bytes);
        }
        let mut out = Vec::new();
        backlog.clear(Reason::Closed, &mut out);
        for (id, _, _) in out {
            check(id)?;
        }
        prop_assert_eq!(gone.len(), pushed.len());
        prop_assert_eq!((backlog.len(), backlog.bytes()), (0, 0));
        prop_assert_eq!(backlog.choose(now, &view), None);
    }

    /// A walk that ends early chooses what a whole walk chooses.
    #[test]
    fn plan_that_ends_early_chooses_the_same(
        adus in prop::collection::vec((0u64..3_000, 0u64..50, 1u8..4, 0usize..8_000, 0u8..10), 1..60),
        (owd, margin, rate) in (0u64..50, 0u64..200, 0u64..2_000_000),
    ) {
        let view = View { owd: owd * MS, margin: margin * MS, rate, acknowledged: false };
        let now = 1_000 * MS;
        let mut expected = Expected::default();
        let mut ordered: Vec<(u64, Adu<()>)> = (0..)
            .zip(adus)
            .map(|(id, (lifetime, age, priority, bytes, n))| {
                let lifetime = if n == 1 { NEVER } else { lifetime * MS };
                let mut new = adu(now - age * MS, lifetime, priority, bytes);
                new.keep = n == 0;
                expected.note(&new);
                (id, new)
            })
            .collect();
        ordered.sort_by_key(|(id, adu)| (adu.deadline, adu.priority, *id));
        let choose = |best: Priority| {
            let mut bytes = [0; 8];
            for (_, adu) in &ordered {
                bytes[usize::from(adu.priority.get())] += adu.bytes;
            }
            let iter = ordered.iter().map(|(id, adu)| (*id, adu));
            let next_due = |_, deadline| Some(deadline);
            Plan::default().choose(now, &view, iter, Whole { bytes, best, oldest: now - 50 * MS }, &expected, next_due)
        };
        let best = ordered.iter().map(|(_, adu)| adu.priority).min().unwrap();
        // While something more important could still come, the walk does not end.
        let whole = choose(Priority::new(0).unwrap());
        prop_assert_eq!(choose(best), whole);
    }

    /// On a path that is as the view says a plan keeps its word: what begins, ends in time.
    #[test]
    fn triage_on_an_exact_path_sends_in_time_what_it_sends(
        adus in prop::collection::vec((20u64..400, 0u8..4, 500usize..8_000), 1..25),
    ) {
        let mut backlog = backlog(Method::Triage, &adus);
        let mut now = 0;
        let mut out = Vec::new();
        loop {
            backlog.expire(now, &VIEW, &mut out);
            let Some(id) = backlog.choose(now, &VIEW) else { break };
            let adu = backlog.take(id).unwrap();
            now += transmission(adu.bytes, VIEW.rate);
            prop_assert!(now + VIEW.owd <= adu.deadline);
        }
    }
}
