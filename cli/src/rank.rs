//! Which rows come first, in `stats` and in `top`.

use bestby_api::Counters;
use clap::ValueEnum;

/// By what rows are sorted: names ascending, numbers descending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Name
    Name,
    /// Packets that came in
    In,
    /// Bytes sent
    Sent,
    /// Packets queued now
    Queued,
    /// Packets dropped, for any reason
    Dropped,
    /// Packets that an observed interface would have dropped
    WouldDrop,
    /// Packets sent although stale
    Late,
}

impl Sort {
    /// The one behind it; the last is followed by the first.
    pub(crate) fn next(self) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|s| *s == self).unwrap_or(0);
        all[(at + 1) % all.len()]
    }

    /// As it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::In => "in",
            Self::Sent => "sent",
            Self::Queued => "queued",
            Self::Dropped => "dropped",
            Self::WouldDrop => "would-drop",
            Self::Late => "late",
        }
    }

    fn number(self, c: &Counters) -> u64 {
        match self {
            Self::Name => 0,
            Self::In => c.packets_in,
            Self::Sent => c.bytes_sent,
            Self::Queued => c.queued,
            Self::Dropped => c.dropped.total(),
            Self::WouldDrop => c.would_drop.total(),
            Self::Late => c.sent_stale,
        }
    }

    /// Sorts rows; equal ones are sorted by bytes sent, then stay in the order of their names.
    pub(crate) fn sort<R>(self, rows: &mut [R], counters: impl Fn(&R) -> &Counters) {
        if self != Self::Name {
            rows.sort_by_key(|row| {
                let c = counters(row);
                std::cmp::Reverse((self.number(c), c.bytes_sent))
            });
        }
    }
}

/// The name that was perhaps meant.
pub(crate) fn nearest<'n>(
    word: &str,
    names: impl IntoIterator<Item = &'n String>,
) -> Option<&'n str> {
    let near = |name: &&String| strsim::jaro_winkler(word, name);
    let best = names
        .into_iter()
        .max_by(|a, b| near(a).total_cmp(&near(b)))?;
    (near(&best) > 0.8).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_name_is_found_and_no_other() {
        let names = ["audio".to_string(), "video".to_string()];
        assert_eq!(nearest("audoi", &names), Some("audio"));
        assert_eq!(nearest("vide", &names), Some("video"));
        assert_eq!(nearest("screen", &names), None);
    }

    #[test]
    fn name_of_each_sort_is_the_one_that_is_typed() {
        let mut sort = Sort::Name;
        for _ in Sort::value_variants() {
            let value = sort.to_possible_value().unwrap();
            assert_eq!(value.get_name(), sort.name());
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Name);
    }

    #[test]
    fn rows_are_sorted_largest_first_and_by_name_not_at_all() {
        let of = |packets_in, bytes_sent| Counters {
            packets_in,
            bytes_sent,
            ..Counters::default()
        };
        let mut rows = [("a", of(1, 0)), ("b", of(2, 1)), ("c", of(2, 2))];
        Sort::Name.sort(&mut rows, |r| &r.1);
        assert_eq!(rows.map(|r| r.0), ["a", "b", "c"]);
        Sort::In.sort(&mut rows, |r| &r.1);
        assert_eq!(rows.map(|r| r.0), ["c", "b", "a"]);
    }
}
