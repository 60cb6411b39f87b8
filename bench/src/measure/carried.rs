//! What a program's own connection carried.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Of all values of a run: the mean, and what 5 % are below and above.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    /// 5th percentile, by nearest rank.
    pub low: f64,
    /// 95th percentile.
    pub high: f64,
    /// The largest.
    pub most: f64,
}

impl Spread {
    /// Of these; `None` of nothing.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut all: Vec<f64> = values.collect();
        all.sort_by(f64::total_cmp);
        let most = *all.last()?;
        let at = |part: f64| {
            let rank = (part * all.len() as f64).ceil() as usize;
            all.get(rank.saturating_sub(1)).copied().unwrap_or(most)
        };
        Some(Self {
            mean: all.iter().sum::<f64>() / all.len() as f64,
            low: at(0.05),
            high: at(0.95),
            most,
        })
    }
}

/// What came of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// Payload of the ADUs that were complete when the last one was made, in 1000 bytes.
    pub received_kb: f64,
    /// ADUs that were complete by their deadline.
    pub on_time: u64,
}

/// What a program's own connection carried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// Payload that reached the receiving program, of incomplete ADUs, too, while ADUs were made; kbit/s.
    pub received_kbit: f64,
    /// By the stream's number, from 1.
    pub layers: BTreeMap<String, Layer>,
    /// What TCP held unsent, each 10 ms, in 1000 bytes; of TCP only.
    pub unsent_kb: Option<Spread>,
    /// From an ADU's creation to the acknowledgement of all of it, of those that were; of QUIC with a stream
    /// for each ADU only.
    pub latency_ms: Option<Spread>,
    /// Smoothed round trip: of TCP each 10 ms, of QUIC whenever an ADU is made.
    pub rtt_ms: Option<Spread>,
    /// From one arrival of a stream to the next one.
    pub dispersion_ms: Option<Spread>,
    /// ADUs that the sender gave up.
    pub given_up: u64,
    /// QUIC streams that it reset.
    pub resets: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_has_nine_tenths_of_the_values_and_of_none_there_is_none() {
        let found = Spread::of((1..=100).rev().map(f64::from)).expect("values");
        let Spread {
            mean,
            low,
            high,
            most,
        } = found;
        assert_eq!((mean, low, high, most), (50.5, 5.0, 95.0, 100.0));
        assert_eq!(Spread::of(std::iter::empty()), None);
    }
}
