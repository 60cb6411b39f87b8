//! Bulk data over TCP (tcp-real.txt, section 3): one flow under test, and others beside it. No packet of it is
//! known before: TCP makes them.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng as _};
use rand_distr::{Distribution as _, StandardUniform};
use serde::{Deserialize, Serialize};

use super::{
    Class, Schedule,
    build::{Traffic, within},
};
use crate::{
    program::Congestion,
    sys::{MILLI, SECOND},
};

/// What is transferred.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Bytes of each flow; 0: as many as go until the run ends.
    pub bytes: u64,
    /// Payload of a segment, bytes (8 less with TCP-Real's option).
    pub segment: u32,
    /// What the receiver lets be under way, in 1024 bytes; 0: as Linux tunes it.
    pub window_kb: u32,
    /// 0: the receiver reads at once. Otherwise it takes 125 bytes for each ms of such an interval (1 Mbit/s) at
    /// its end, if they are all there.
    pub read_every_ms: u64,
    /// Congestion controls of the flows beside it.
    pub beside: Vec<Congestion>,
    /// From the start of one flow to that of the next, ms: the mean. The run's seed draws it, from half to three
    /// halves of that, because the shares of a short queue depend on the start.
    pub stagger_ms: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            bytes: 5_000_000,
            segment: 1024,
            window_kb: 48,
            read_every_ms: 0,
            beside: Vec::new(),
            stagger_ms: 0,
        }
    }
}

impl Parameters {
    /// Bytes that the application takes at the end of an interval.
    pub fn read_bytes(&self) -> usize {
        125 * self.read_every_ms as usize
    }

    /// Whether the last flow starts within `seconds`.
    pub fn check_starts(&self, seconds: u64) -> Result<()> {
        let last = self.stagger_ms * 3 / 2 * MILLI * self.beside.len() as u64;
        ensure!(
            last < seconds * SECOND,
            "the last flow might start {} s after the first, when the run is over",
            last / SECOND
        );
        Ok(())
    }

    /// When each flow starts, ns.
    pub fn starts(&self, seed: u64) -> Vec<u64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let stagger = (self.stagger_ms * MILLI) as f64;
        let gaps = self.beside.iter().map(|_| {
            let drawn: f64 = StandardUniform.sample(&mut rng);
            (stagger * (0.5 + drawn)) as u64
        });
        let mut at = 0;
        let rest = gaps.map(|gap| {
            at += gap;
            at
        });
        [0].into_iter().chain(rest).collect()
    }
}

impl Traffic for Parameters {
    fn check(&self) -> Result<()> {
        within("bytes", self.bytes, 0..=1 << 40)?;
        within("segment", self.segment, 100..=1448)?;
        within("window_kb", self.window_kb, 0..=65_536)?;
        within("read_every_ms", self.read_every_ms, 0..=1000)?;
        within("stagger_ms", self.stagger_ms, 0..=60_000)?;
        within("flows in `beside`", self.beside.len(), 0..=63)?;
        let window = self.window_kb as usize * 1024;
        ensure!(
            window == 0 || self.read_bytes() <= window,
            "read_every_ms = {}: {} bytes do not fit into a window of window_kb = {}",
            self.read_every_ms,
            self.read_bytes(),
            self.window_kb
        );
        Ok(())
    }

    fn schedule(&self, seconds: u64, _: u64) -> Result<Schedule> {
        self.check()?;
        self.check_starts(seconds)?;
        Ok(Schedule {
            packets: Vec::new(),
            duration: seconds * SECOND,
        })
    }

    fn classes(&self) -> Option<BTreeSet<Class>> {
        Some(BTreeSet::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_drawn_by_the_seed_and_without_a_stagger_at_once() {
        let of = |stagger_ms, seed| {
            let beside = vec![Congestion::default(); 200];
            let parameters = Parameters {
                stagger_ms,
                beside,
                ..Parameters::default()
            };
            parameters.starts(seed)
        };
        let starts = of(500, 7);
        assert_eq!((starts[0], &starts), (0, &of(500, 7)));
        assert_ne!(starts, of(500, 8));
        let gaps: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(
            gaps.iter()
                .all(|gap| (250 * MILLI..750 * MILLI).contains(gap))
        );
        let mean = gaps.iter().sum::<u64>() / 200;
        assert!((450 * MILLI..550 * MILLI).contains(&mean), "{mean}");
        assert!(of(0, 7).iter().all(|start| *start == 0));
    }
}
