//! The last hop: a line between two SLIP devices that carries packets when a trace says so, and
//! pushes back all the other time.
//!
//! A [`Trace`] is a file as mahimahi has them: each line is a time in ms at which the line carries
//! [`OPPORTUNITY`] bytes towards the receiver, or nothing if nothing waits; the last one is where it
//! begins anew. Between two opportunities the device's queue holds the packets, but for at most two
//! that left it before: one that is on the line in part, and one behind it. On the way back, which is no
//! bottleneck, whatever waits goes at the same times.

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, fs, os::fd::AsRawFd as _};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::{
    netns::Netns,
    slip::Slip,
    sys::{self, MILLI, SECOND},
};

/// Bytes that one opportunity carries: mahimahi's packet.
pub const OPPORTUNITY: usize = 1504;
/// Between two frames of SLIP; no part of any.
const END: u8 = 0xc0;

/// When a line carries packets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Trace {
    file: String,
    /// ms, in order.
    opportunities: Arc<[u64]>,
}

impl TryFrom<String> for Trace {
    type Error = String;

    fn try_from(file: String) -> Result<Self, String> {
        let text = fs::read_to_string(&file).map_err(|error| format!("reading {file}: {error}"))?;
        Self::parse(file, &text)
    }
}

impl Trace {
    fn parse(file: String, text: &str) -> Result<Self, String> {
        let mut all: Vec<u64> = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let time = line.trim().parse().ok();
            let time = time.filter(|time| all.last().is_none_or(|last| last <= time));
            all.push(time.ok_or_else(|| {
                format!("{file}:{number}: a time in ms, not before the last one, is not `{line}`")
            })?);
        }
        if all.last().is_none_or(|last| *last == 0) {
            return Err(format!("{file}: a trace needs a time after 0 ms"));
        }
        let opportunities = all.into();
        Ok(Self {
            file,
            opportunities,
        })
    }

    /// How long it takes until it begins anew, ns.
    fn period(&self) -> u64 {
        self.opportunities.last().map_or(1, |last| last * MILLI)
    }

    /// What the line carries all in all, bit/s.
    pub fn rate(&self) -> u64 {
        let bits = (self.opportunities.len() * OPPORTUNITY * 8) as u64;
        bits * SECOND / self.period()
    }

    /// The longest time without an opportunity, ns.
    pub fn longest_gap(&self) -> u64 {
        let (all, mut last) = (self.opportunities.iter(), 0);
        let gaps = all.map(|&at| at - std::mem::replace(&mut last, at));
        gaps.max().unwrap_or_default() * MILLI
    }

    /// The opportunities of a line that begins at `start`, ns; endless.
    fn from(&self, start: u64) -> impl Iterator<Item = u64> + '_ {
        let laps = (0..).map(move |lap| start + lap * self.period());
        laps.flat_map(|lap| self.opportunities.iter().map(move |at| lap + at * MILLI))
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)
    }
}

/// Two SLIP devices whose far ends the lab connects.
#[derive(Debug)]
pub struct Line {
    /// The last hop's.
    pub near: Slip,
    /// The receiver's.
    pub far: Slip,
    /// When it carries packets.
    pub trace: Trace,
}

impl Line {
    /// From `near`, a namespace and its address, to `far`.
    pub fn new(near: (&Netns, &str), far: (&Netns, &str), trace: Trace) -> Result<Self> {
        Ok(Self {
            trace,
            near: Slip::new(near.0, near.1, far.1)?,
            far: Slip::new(far.0, far.1, near.1)?,
        })
    }

    /// Carries packets until `stop`, its trace beginning at `start`.
    pub fn carry(&self, start: u64, stop: &AtomicBool) -> Result<()> {
        for slip in [&self.near, &self.far] {
            // What a run before this one left there.
            take(slip, usize::MAX, |_| Ok(()))?;
        }
        for at in self.trace.from(start) {
            while sys::now() < at {
                if stop.load(Ordering::Acquire) {
                    return Ok(());
                }
                sys::sleep_until(at.min(sys::now() + 50 * MILLI));
            }
            for (from, to, bytes) in [
                (&self.near, &self.far, OPPORTUNITY),
                (&self.far, &self.near, usize::MAX),
            ] {
                take(from, bytes, |frames| Ok((&to.line).write_all(frames)?))?;
            }
        }
        Ok(())
    }
}

/// Takes so many bytes of frames from the line of `slip`, or all there are. Whenever the line is
/// all but empty, the device puts its next packet there.
fn take(slip: &Slip, mut left: usize, mut give: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut buffer = [0; OPPORTUNITY];
    while left > 0 {
        sys::wait_readable(&[slip.line.as_raw_fd()], 1)?;
        let room = left.min(buffer.len());
        match (&slip.line).read(&mut buffer[..room]) {
            Ok(length) => {
                let bytes = &buffer[..length];
                left -= bytes.iter().filter(|&&byte| byte != END).count();
                give(bytes)?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error).context("reading the far end of the line"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_goes_round_and_bad_one_is_refused_with_its_line() {
        let trace = |text| Trace::parse("t".into(), text);
        let two = trace("100\n100\n500\n").expect("a trace");
        assert_eq!(two.rate(), 3 * 1504 * 8 * 2);
        assert_eq!(two.longest_gap(), 400 * MILLI);
        let times: Vec<u64> = two.from(7).take(5).collect();
        assert_eq!(times, [100, 100, 500, 600, 600].map(|ms| 7 + ms * MILLI));
        for (text, at) in [("", ""), ("0\n", ""), ("5\n4\n", "2:"), ("x\n", "1:")] {
            let error = trace(text).expect_err(text);
            assert!(error.starts_with(&format!("t:{at} ")), "{error}");
        }
    }

    #[test]
    fn trace_of_spikes_is_what_its_rule_makes() {
        // From 10 s of each 30 s on nothing, for 7, 8, 9 and 10 s in turn.
        let carries = |&at: &u64| {
            let (spike, since) = ((at - 1) / 30_000, (at - 1) % 30_000 + 1);
            since <= 10_000 || since > 17_000 + 1000 * spike
        };
        for (kbit, every) in [(30, 400), (120, 100)] {
            let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/traces");
            let spikes = Trace::try_from(format!("{traces}/spikes-{kbit}")).expect("a trace");
            let all = (every..=120_000).step_by(every as usize).filter(carries);
            assert_eq!(*spikes.opportunities, *all.collect::<Vec<u64>>());
            assert_eq!(spikes.longest_gap(), (10_000 + every) * MILLI);
        }
    }
}
