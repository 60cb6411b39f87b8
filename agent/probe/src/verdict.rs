//! What the answers to a probe's trains say of the path.
//!
//! 1. Packets get lost on any path. So a train is compared with one that differs in one thing only.
//! 2. Both trains lose packets by chance. A train that has less than half of the other's answers counts as dropped
//!    only if chance alone makes such a difference in one probe of a hundred (Fisher's exact test, one-sided).
//! 3. A train that has at least half of the other's answers came through, if those are more than a stray one or two.
//! 4. In between the probe is unsure, and says so.

use serde::Serialize;

/// Chance makes a difference that counts at most so often.
const CHANCE: f64 = 0.01;
/// Answers without which nothing came through.
const ENOUGH: u32 = 3;

/// What the packets of a train say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// They have no option.
    Plain,
    /// A lifetime that lasts.
    Valid,
    /// A lifetime that has run out.
    Lifetime,
    /// A deadline that has passed.
    Deadline,
}

/// Packets of one kind, and their answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Train {
    /// What they say.
    pub packets: Kind,
    /// Those that left this host.
    pub sent: u32,
    /// Those of them that were answered.
    pub answered: u32,
    /// Not sent, because this host refused them.
    pub refused: u32,
}

impl Train {
    /// One of which nothing was sent yet.
    pub const fn new(packets: Kind) -> Self {
        Self {
            packets,
            sent: 0,
            answered: 0,
            refused: 0,
        }
    }
}

/// What the path does with the option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// Packets with the option arrive as those without.
    Tolerates,
    /// Packets with the option get lost, those without arrive.
    Drops,
    /// Nothing was answered.
    Silent,
    /// Too few answers to tell.
    Unsure,
}

/// What a hop does with stale packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hop {
    /// It discards them.
    Acts,
    /// Every hop forwards them.
    Ignores,
    /// Too few answers to tell.
    Unsure,
}

/// What the trains say, or nothing of the hops where the path does not carry the option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// What the path does.
    pub path: Path,
    /// Of lifetimes that have run out, and of deadlines that have passed.
    pub hops: Option<[Hop; 2]>,
}

/// What trains of [`Kind::Plain`] and [`Kind::Valid`] say.
pub fn judge_path([plain, valid]: [&Train; 2]) -> Path {
    if plain.answered == 0 && valid.answered == 0 {
        return Path::Silent;
    }
    match compare(plain, valid) {
        Compared::Alike => Path::Tolerates,
        Compared::Fewer => Path::Drops,
        Compared::Unsure => Path::Unsure,
    }
}

/// Judges trains of all four kinds, in their order.
pub fn judge([plain, valid, lifetime, deadline]: &[Train; 4]) -> Verdict {
    let path = judge_path([plain, valid]);
    let hop = |stale| match compare(valid, stale) {
        Compared::Alike => Hop::Ignores,
        Compared::Fewer => Hop::Acts,
        Compared::Unsure => Hop::Unsure,
    };
    Verdict {
        path,
        hops: (path == Path::Tolerates).then(|| [hop(lifetime), hop(deadline)]),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compared {
    Alike,
    Fewer,
    Unsure,
}

fn compare(reference: &Train, other: &Train) -> Compared {
    let share = |train: &Train| f64::from(train.answered) / f64::from(train.sent.max(1));
    if 2.0 * share(other) >= share(reference) {
        if other.answered >= ENOUGH {
            Compared::Alike
        } else {
            Compared::Unsure
        }
    } else if chance(reference, other) < CHANCE {
        Compared::Fewer
    } else {
        Compared::Unsure
    }
}

/// The probability that `other` has so few of all answers, if packets of both are answered equally often.
fn chance(reference: &Train, other: &Train) -> f64 {
    let answered = reference.answered + other.answered;
    let all = ln_choose(reference.sent + other.sent, answered);
    // More than `reference` sent cannot be its answers.
    (answered.saturating_sub(reference.sent)..=other.answered)
        .map(|n| (ln_choose(other.sent, n) + ln_choose(reference.sent, answered - n) - all).exp())
        .sum()
}

/// Logarithm of the number of ways to choose `k` of `n`.
fn ln_choose(n: u32, k: u32) -> f64 {
    (1..=k)
        .map(|i| (f64::from(n - k + i) / f64::from(i)).ln())
        .sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn train(packets: Kind, sent: u32, answered: u32) -> Train {
        Train {
            sent,
            answered,
            ..Train::new(packets)
        }
    }

    fn verdict(sent: u32, answered: [u32; 4]) -> Verdict {
        let [plain, valid, lifetime, deadline] = answered;
        judge(&[
            train(Kind::Plain, sent, plain),
            train(Kind::Valid, sent, valid),
            train(Kind::Lifetime, sent, lifetime),
            train(Kind::Deadline, sent, deadline),
        ])
    }

    fn path(sent: u32, plain: u32, valid: u32) -> Path {
        verdict(sent, [plain, valid, 0, 0]).path
    }

    #[test]
    fn answers_of_a_train_decide_the_verdict() {
        use Hop::{Acts, Ignores};
        for (answered, path, hops) in [
            ([10, 10, 10, 10], Path::Tolerates, Some([Ignores, Ignores])),
            ([10, 10, 0, 0], Path::Tolerates, Some([Acts, Acts])),
            ([10, 10, 0, 10], Path::Tolerates, Some([Acts, Ignores])),
            ([8, 8, 3, 7], Path::Tolerates, Some([Hop::Unsure, Ignores])),
            ([10, 0, 0, 0], Path::Drops, None),
            ([10, 2, 2, 2], Path::Drops, None),
            ([0, 0, 0, 0], Path::Silent, None),
            ([4, 0, 0, 0], Path::Unsure, None),
            ([2, 2, 2, 2], Path::Unsure, None),
            // A port that refuses at most so often: a rate limit of ICMP errors.
            ([3, 3, 3, 3], Path::Tolerates, Some([Ignores, Ignores])),
            ([0, 9, 9, 9], Path::Tolerates, Some([Ignores, Ignores])),
        ] {
            assert_eq!(
                verdict(10, answered),
                Verdict { path, hops },
                "{answered:?}"
            );
        }
    }

    #[test]
    fn train_that_this_host_refused_says_nothing() {
        let trains = [
            train(Kind::Plain, 10, 10),
            train(Kind::Valid, 10, 10),
            train(Kind::Lifetime, 0, 0),
            train(Kind::Deadline, 10, 0),
        ];
        assert_eq!(judge(&trains).hops, Some([Hop::Unsure, Hop::Acts]));
    }

    #[test]
    fn smallest_probe_tells_all_from_none() {
        assert_eq!(path(5, 5, 0), Path::Drops);
        assert_eq!(path(4, 4, 0), Path::Unsure);
    }

    /// Of all ways in which a path can lose packets of both trains alike.
    #[test]
    fn lossy_path_is_taken_for_a_dropping_one_once_in_a_hundred() {
        for sent in [5, 10, 20, 40] {
            for loss in [0.05, 0.2, 0.4, 0.5, 0.6, 0.8, 0.95] {
                let answers = |n: u32| {
                    let (arrive, lost) = (1.0f64 - loss, loss);
                    ln_choose(sent, n).exp() * arrive.powi(n as i32) * lost.powi((sent - n) as i32)
                };
                let mut wrong = 0.0;
                for plain in 0..=sent {
                    for valid in 0..=sent {
                        if path(sent, plain, valid) == Path::Drops {
                            wrong += answers(plain) * answers(valid);
                        }
                    }
                }
                assert!(wrong <= CHANCE, "{sent} {loss} {wrong}");
            }
        }
    }

    proptest! {
        #[test]
        fn chance_is_a_probability_and_grows_with_the_answers(sent in 1u32..=100, a in 0u32..=100, b in 0u32..100) {
            let reference = train(Kind::Plain, sent, a.min(sent));
            let (other, more) = (train(Kind::Valid, sent, b.min(sent - 1)), train(Kind::Valid, sent, b.min(sent - 1) + 1));
            let (p, q) = (chance(&reference, &other), chance(&reference, &more));
            prop_assert!((0.0..1.000_001).contains(&p), "{p}");
            prop_assert!(q + 1e-9 >= p, "{p} {q}");
        }

        #[test]
        fn train_with_half_of_the_answers_is_not_dropped(sent in 5u32..=100, a in 0u32..=100, b in 0u32..=100) {
            let (a, b) = (a.min(sent), b.min(sent));
            if 2 * b >= a {
                prop_assert_ne!(path(sent, a, b), Path::Drops);
            }
        }
    }
}
