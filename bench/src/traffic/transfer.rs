//! Bulk data over TCP (tcp-real.txt, section 3): one flow under test, and others beside it. No packet of it is
//! known before: TCP makes them.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
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
    /// From the start of one flow to that of the next, ms.
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
        let last = self.starts(self.beside.len());
        ensure!(
            last < seconds * SECOND,
            "the last flow would start {} s after the first, when the run is over",
            last / SECOND
        );
        Ok(())
    }

    /// When flow `number`, from 0, starts, ns.
    pub fn starts(&self, number: usize) -> u64 {
        self.stagger_ms * MILLI * number as u64
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
