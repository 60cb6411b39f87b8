//! What bulk TCP flows got.

use std::collections::BTreeMap;

use bestby_api::RealCounters;
use serde::{Deserialize, Serialize};

use super::Spread;

/// One flow of bulk data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Its congestion control, as in scenario files.
    pub kind: String,
    /// Whether all its bytes arrived before the run's end.
    pub finished: bool,
    /// From its SYN until all its bytes had arrived, or the run's end; s.
    pub took_s: f64,
    /// Payload that arrived, in 1000 byte/s of that time (without what is discarded).
    pub goodput_kb: f64,
    /// Attempts of the application that reads at an interval, and those that found enough.
    pub reads: [u64; 2],
    /// Segments that were sent again.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Payload that was sent, also again, in 1000 byte/s of the whole time.
    pub sent_kb: f64,
    /// Congestion window each 10 ms, segments; twice the level of TCP-Real in mode paper.
    pub cwnd: Option<Spread>,
    /// Smoothed round trip each 10 ms.
    pub rtt_ms: Option<Spread>,
    /// From the end of a phase of loss until a segment arrives, ms.
    pub silent_ms: Option<Spread>,
    /// From then until the rate is what it was before the phase, in round trips.
    pub back_rtts: Option<Spread>,
    /// Phases of loss after which it did not get there before its end.
    pub lost_again: u64,
}

/// What bulk TCP flows got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// By number, from 1: the flow under test; then those beside it.
    pub flows: BTreeMap<String, Flow>,
    /// Jain's index of their goodputs; absent of one flow.
    pub jain: Option<f64>,
    /// Goodput of the flow under test, of the mean of all: 1 is a fair share. Absent of one flow.
    pub share: Option<f64>,
    /// What TCP-Real counted in the run; absent where it was off.
    pub real: Option<Real>,
}

/// What TCP-Real counted in a run, of all its flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Real {
    /// Segments without room for the option.
    pub no_room: u64,
    /// Waves that gave a rate.
    pub measured: u64,
    /// Waves that gave none.
    pub unmeasured: u64,
    /// Reductions of a window that were cancelled.
    pub cancelled: u64,
    /// Reductions that the guards left to Reno.
    pub reduced: u64,
    /// Timeouts after which the window was kept.
    pub restored: u64,
    /// Timeouts after which it was not.
    pub collapsed: u64,
}

impl Real {
    /// What was counted between two readings.
    pub fn between(before: &RealCounters, after: &RealCounters) -> Self {
        Self {
            no_room: after.no_room - before.no_room,
            measured: after.measured - before.measured,
            unmeasured: after.unmeasured - before.unmeasured,
            cancelled: after.cancelled - before.cancelled,
            reduced: after.reduced - before.reduced,
            restored: after.restored - before.restored,
            collapsed: after.collapsed - before.collapsed,
        }
    }
}

/// Jain's index: 1 of equal shares, 1 / n if one has all; 1 of nothing.
pub fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares
        .iter()
        .fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    match squares > 0.0 {
        true => sum * sum / (shares.len() as f64 * squares),
        false => 1.0,
    }
}

/// The first one's part of the mean of all; of nothing 1.
pub fn share(goodputs: &[f64]) -> f64 {
    let sum: f64 = goodputs.iter().sum();
    match sum > 0.0 {
        true => goodputs[0] * goodputs.len() as f64 / sum,
        false => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_an_even_flow_is_1_and_of_one_taker_n() {
        assert_eq!(share(&[3.0, 4.0, 2.0]), 1.0);
        assert_eq!(share(&[3.0, 0.0, 0.0]), 3.0);
        assert_eq!(share(&[0.0, 0.0]), 1.0);
    }

    #[test]
    fn jain_of_equal_shares_is_1_and_of_one_taker_1_in_n() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[3.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0, 0.0]), 1.0);
    }
}
