//! The paths whose rate is found, as the API and doctor show them.

use bestby_api::{Check, CheckStatus, PathInfo, PathState};
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::datapath::auto::Asker;
use crate::error::Result;
use crate::kernel::sys::monotonic_ns;
use crate::observed::attached::Attached;

const fn state_of(state: &abi::bb_auto) -> PathState {
    match state.state {
        abi::BB_AUTO_FOLLOWS => PathState::Follows,
        abi::BB_AUTO_OTHERS => PathState::Others,
        abi::BB_AUTO_SILENT => PathState::Silent,
        _ => PathState::Unseen,
    }
}

/// A state as the API shows it, and who asks.
fn path(state: &abi::bb_auto, asker: Option<&Asker>, now: u64) -> PathInfo {
    let heard = state.heard_ns > 0;
    let known = |value: u64| (value > 0).then_some(value);
    let interval_ns = asker.and_then(|a| a.interval_ns);
    PathInfo {
        state: state_of(state),
        rate_bytes_s: known(state.rate),
        carries_bytes_s: known(state.carries),
        queue_ns: heard.then_some(state.heard_queue_ns),
        behind_ns: state.behind_ns,
        least_rtt_ns: known(state.base_ns),
        answers: state.answers,
        rebased: state.rebased,
        age_ns: heard.then(|| now.saturating_sub(state.heard_ns)),
        asked: asker.map_or_else(Vec::new, |a| a.asked().into_iter().flatten().collect()),
        interval_ns,
        unanswered_ns: interval_ns.and(asker).and_then(|a| {
            let each = a.choices.iter();
            each.filter_map(|c| c.unanswered(state.heard_ns, now)).min()
        }),
        problem: asker.and_then(|a| a.problem.clone()),
    }
}

/// The trouble with a path, and the cure.
fn complaint(dev: &str, path: &PathInfo) -> Option<(String, String)> {
    let tell = format!("bestby iface set {dev} --probe gateway|ADDR, or --rate RATE");
    if let Some(problem) = &path.problem {
        return Some((format!("{dev}: no rate is found: {problem}"), tell));
    }
    if let (Some(ns), Some(asked)) = (path.silent_ns(), path.asked_by_name()) {
        let what = format!(
            "{dev}: no rate is found: {asked} has answered no echo request for {} s",
            ns / 1_000_000_000
        );
        return Some((what, tell));
    }
    (path.state == PathState::Others).then(|| {
        let queue = path.queue_ns.unwrap_or(0) / 1_000_000;
        (
            format!(
                "{dev}: others fill the path, whose queue is {queue} ms: no rate is in force, because yielding would \
                 leave them all of it"
            ),
            format!("limit them at that link, or set the part that is ours: bestby iface set {dev} --rate RATE"),
        )
    })
}

impl Datapath {
    /// The path behind an interface whose rate is found; `None`: none is.
    ///
    /// # Errors
    /// The map cannot be read.
    pub(super) fn path(&self, slot: u32, attached: &Attached) -> Result<Option<PathInfo>> {
        if attached.auto().is_none() {
            return Ok(None);
        }
        let state = self.shared.autos.get(&slot)?.unwrap_or_default();
        let asker = self.autos.askers.get(&slot);
        Ok(Some(path(&state, asker, monotonic_ns())))
    }

    /// Paths whose rate cannot be found.
    pub(super) fn path_checks(&self) -> Vec<Check> {
        let complaint = |(slot, attached): (&u32, &Attached)| {
            let path = self.path(*slot, attached).ok()??;
            let (what, todo) = complaint(attached.dev.as_str(), &path)?;
            Some(Check::new("rate auto", CheckStatus::Warn, what, todo))
        };
        self.attached.iter().filter_map(complaint).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn path_without_an_answer_has_no_queue_and_one_with_answers_has() {
        let mut state = abi::bb_auto::default();
        let none = path(&state, None, 9);
        assert_eq!(
            (none.queue_ns, none.age_ns, none.least_rtt_ns),
            (None, None, None)
        );
        assert_eq!((none.rate_bytes_s, none.asked_by_name()), (None, None));
        state = abi::bb_auto {
            heard_ns: 5 * MS,
            heard_queue_ns: 12 * MS,
            base_ns: 80 * MS,
            rate: 31_000,
            state: abi::BB_AUTO_FOLLOWS,
            ..state
        };
        let known = path(&state, None, 7 * MS);
        assert_eq!(known.state, PathState::Follows);
        assert_eq!(known.queue_ns, Some(12 * MS));
        assert_eq!(
            (known.age_ns, known.least_rtt_ns),
            (Some(2 * MS), Some(80 * MS))
        );
        assert_eq!(known.rate_bytes_s, Some(31_000));
    }

    #[test]
    fn path_that_is_silent_or_full_of_others_is_complained_of() {
        let mut info = path(&abi::bb_auto::default(), None, 0);
        assert_eq!(complaint("eth0", &info), None);
        info.asked = vec!["192.0.2.1".parse().unwrap()];
        info.unanswered_ns = Some(9_999 * MS);
        assert_eq!(complaint("eth0", &info), None);
        info.unanswered_ns = Some(12_000 * MS);
        let (what, todo) = complaint("eth0", &info).unwrap();
        assert!(
            what.contains("192.0.2.1") && what.contains("12 s"),
            "{what}"
        );
        assert!(
            todo.contains("--probe") && todo.contains("--rate"),
            "{todo}"
        );
        info.unanswered_ns = None;
        info.state = PathState::Others;
        assert!(complaint("eth0", &info).unwrap().0.contains("others fill"));
        info.problem = Some("it cannot".into());
        assert!(complaint("eth0", &info).unwrap().0.contains("it cannot"));
    }
}
