//! The last hop: a line that carries packets when a trace says so, and pushes back all the other time.
//!
//! A [`Trace`] is a file as mahimahi has them: each line is a time in ms at which the line carries
//! [`OPPORTUNITY`] bytes towards the receiver, or nothing if nothing waits; the last one is where it
//! begins anew. Between two opportunities the device's queue holds the packets, but for at most two
//! that left it before: one that is on the line in part, and one behind it. On the way back, which is no
//! bottleneck, whatever waits goes at the same times.

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, fs, fs::File, os::fd::AsRawFd as _};

use anyhow::{Context as _, Result};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde::Deserialize;

use crate::{
    netns::Netns,
    slip::Slip,
    sys::{self, MILLI, SECOND},
    tun,
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

/// What a line is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// SLIP over a pseudo-terminal; on every kernel.
    #[default]
    Slip,
    /// tun that pushes back (Linux 7.2). bestby can truncate on it.
    Tun,
}

/// A device, and where the lab takes what it sends and gives it what it receives.
#[derive(Debug)]
pub enum End {
    /// SLIP.
    Slip(Slip),
    /// tun: its name and its file.
    Tun(String, File),
}

impl End {
    fn new(device: Device, ns: &Netns, local: &str, peer: &str) -> Result<Self> {
        if device == Device::Slip {
            return Slip::new(ns, local, peer).map(Self::Slip);
        }
        let name = "tn0";
        let file = ns.enter(|| tun::open(name, true))?;
        fcntl(&file, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // One packet is on the line, as on that of SLIP.
        for words in [
            format!("addr add {local} peer {peer} dev {name}"),
            format!("link set {name} txqueuelen 1 up"),
        ] {
            ns.sh("ip", &words)?;
        }
        Ok(Self::Tun(name.into(), file))
    }

    /// The device's name inside its namespace.
    pub fn name(&self) -> &str {
        match self {
            Self::Slip(slip) => slip.name(),
            Self::Tun(name, _) => name,
        }
    }

    fn file(&self) -> &File {
        match self {
            Self::Slip(slip) => &slip.line,
            Self::Tun(_, file) => file,
        }
    }

    /// Takes so many bytes of packets from it, or all there are, and gives what is whole. Whenever the
    /// line is all but empty, the device puts its next packet there.
    fn take(
        &self,
        mut left: usize,
        begun: &mut Begun,
        mut give: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let (mut buffer, mut file) = ([0; OPPORTUNITY], self.file());
        while left > 0 {
            if begun.rest == 0 {
                sys::wait_readable(&[file.as_raw_fd()], 1)?;
                let room = match self {
                    Self::Slip(_) => left.min(OPPORTUNITY),
                    Self::Tun(..) => OPPORTUNITY,
                };
                let bytes = match file.read(&mut buffer[..room]) {
                    Ok(length) => buffer[..length].to_vec(),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error).context("reading the far end of the line"),
                };
                begun.rest = match self {
                    Self::Slip(_) => bytes.iter().filter(|&&byte| byte != END).count(),
                    Self::Tun(..) => bytes.len(),
                };
                begun.bytes = bytes;
            }
            let carried = left.min(begun.rest);
            left -= carried;
            begun.rest -= carried;
            if begun.rest == 0 {
                give(&begun.bytes)?;
            }
        }
        Ok(())
    }
}

/// What is on the line: a packet of tun, of which one opportunity may carry a part only.
#[derive(Default)]
struct Begun {
    bytes: Vec<u8>,
    /// Bytes that are yet to be carried.
    rest: usize,
}

/// Two devices that the lab connects.
#[derive(Debug)]
pub struct Line {
    /// The last hop's.
    pub near: End,
    /// The receiver's.
    pub far: End,
    /// When it carries packets.
    pub trace: Trace,
}

impl Line {
    /// From `near`, a namespace and its address, to `far`.
    pub fn new(
        device: Device,
        near: (&Netns, &str),
        far: (&Netns, &str),
        trace: Trace,
    ) -> Result<Self> {
        Ok(Self {
            trace,
            near: End::new(device, near.0, near.1, far.1)?,
            far: End::new(device, far.0, far.1, near.1)?,
        })
    }

    /// Carries packets until `stop`, its trace beginning at `start`.
    pub fn carry(&self, start: u64, stop: &AtomicBool) -> Result<()> {
        for end in [&self.near, &self.far] {
            // What a run before this one left there.
            end.take(usize::MAX, &mut Begun::default(), |_| Ok(()))?;
        }
        let (near, far) = ((&self.near, OPPORTUNITY), (&self.far, usize::MAX));
        let mut ways = [(near, far.0), (far, near.0)].map(|way| (way, Begun::default()));
        for at in self.trace.from(start) {
            while sys::now() < at {
                if stop.load(Ordering::Acquire) {
                    return Ok(());
                }
                sys::sleep_until(at.min(sys::now() + 50 * MILLI));
            }
            for (((from, bytes), to), begun) in &mut ways {
                from.take(*bytes, begun, |packet| Ok(to.file().write_all(packet)?))?;
            }
        }
        Ok(())
    }
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
