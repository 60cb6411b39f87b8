//! Losses that come and go: the two-state Markov chain of TCP-Real (tcp-real.txt, section 3).
//!
//! 1. The path is ON or OFF, each for an exponentially distributed time with a mean of its own.
//! 2. While it is ON, each packet of one direction is lost with a probability; while it is OFF none is.
//! 3. The seed draws when it is ON, so every congestion control of a run meets the same phases. Which of the
//!    packets are lost then, netem draws, without a seed.
//! 4. Losses are behind the bottleneck and behind the delay: a packet that is lost has used the link.

use std::{
    io::Write as _,
    process::Stdio,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng as _};
use rand_distr::{Distribution as _, Exp1};

use crate::{netns::Netns, sys, topology};

/// When packets of one direction are lost, and how many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fading {
    /// Packets lost while it is ON, %.
    pub loss: f64,
    /// Mean length of a phase that is ON, ns.
    pub on: u64,
    /// Mean length of one that is OFF, ns.
    pub off: u64,
    /// Whether acknowledgements are lost, and no data.
    pub acks: bool,
}

impl Fading {
    /// Begin and end of each phase that is ON, ns since the start; endless. A run begins with a phase that is
    /// OFF, so that connections stand before anything is lost.
    pub fn phases(&self, seed: u64) -> impl Iterator<Item = [u64; 2]> + use<> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut at, [on, off]) = (0, [self.on, self.off]);
        let mut after = move |mean: u64| {
            let drawn: f64 = Exp1.sample(&mut rng);
            at += (drawn * mean as f64) as u64;
            at
        };
        std::iter::repeat_with(move || [after(off), after(on)])
    }
}

/// What switches netem until it is dropped.
#[derive(Debug)]
pub struct Switching {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<Result<()>>>,
}

impl Switching {
    /// Lets packets be lost in `middle`, whose netem delays by `delay` ns, the phases beginning at `start`.
    pub fn start(
        middle: &Netns,
        fading: &Fading,
        delay: u64,
        seed: u64,
        start: u64,
    ) -> Result<Self> {
        let device = if fading.acks { "m0" } else { "m1" };
        let (loss, phases) = (fading.loss, fading.phases(seed));
        let calm = topology::netem("change", device, delay);
        let lossy = format!("{calm} loss {loss}%");
        // One program for all: starting one takes a while, and the packets' processor.
        let mut tc = middle.command("tc")?;
        tc.args(["-batch", "-"]).stdin(Stdio::piped());
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let mut child = tc.spawn().context("starting `tc -batch`")?;
            let mut lines = child.stdin.take().context("`tc -batch` has no input")?;
            let switches = phases.flat_map(|[on, off]| [(on, &lossy), (off, &calm)]);
            for (at, words) in switches {
                let left = (start + at).saturating_sub(sys::now());
                match stopped.recv_timeout(Duration::from_nanos(left)) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => break,
                }
                writeln!(lines, "{words}").context("`tc -batch` ended")?;
            }
            writeln!(lines, "{calm}").context("`tc -batch` ended")?;
            drop(lines);
            let status = child.wait()?;
            ensure!(status.success(), "`tc -batch` of `{lossy}`: {status}");
            Ok(())
        });
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Ends the losses.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.stop = None;
        let joined = self.thread.take().map(thread::JoinHandle::join);
        joined.map_or(Ok(()), |joined| {
            joined.map_err(|_| anyhow!("the thread that switches netem panicked"))?
        })
    }
}

impl Drop for Switching {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            note!("{error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{MILLI, SECOND};

    const FADING: Fading = Fading {
        loss: 20.0,
        on: 500 * MILLI,
        off: 5 * SECOND,
        acks: false,
    };

    #[test]
    fn phases_have_their_means_and_are_exponential() {
        let phases: Vec<[u64; 2]> = FADING.phases(3).take(20_000).collect();
        let on: Vec<u64> = phases.iter().map(|[begin, end]| end - begin).collect();
        let begins = phases.iter().map(|phase| phase[0]);
        let ends = [0].into_iter().chain(phases.iter().map(|phase| phase[1]));
        let off: Vec<u64> = begins.zip(ends).map(|(begin, end)| begin - end).collect();
        for (lengths, mean) in [(on, FADING.on), (off, FADING.off)] {
            let found = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
            assert!((found / mean as f64 - 1.0).abs() < 0.03, "{found} {mean}");
            // e^-1 of exponential times are longer than their mean.
            let longer = lengths.iter().filter(|&&length| length > mean).count();
            let part = longer as f64 / lengths.len() as f64;
            assert!((part - (-1f64).exp()).abs() < 0.01, "{part}");
        }
    }

    #[test]
    fn phases_repeat_with_the_seed_and_not_with_another() {
        let of = |seed| FADING.phases(seed).take(10).collect::<Vec<_>>();
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        // The loss does not move them: every rate meets the same phases.
        let worse = Fading {
            loss: 50.0,
            ..FADING
        };
        assert_eq!(worse.phases(7).take(10).collect::<Vec<_>>(), of(7));
    }
}
