//! The kernel's packet generator: the shortest path into a queue, so that what a queue costs
//! is not lost in what a socket costs. Its control files are those of the calling thread's
//! namespace.

use std::{fs, thread, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};

use super::DEVICE;
use crate::run;

const DIR: &str = "/proc/thread-self/net/pktgen";
/// The generating thread of CPU 0.
const THREAD: &str = "kpktgend_0";

/// One generator bound to [`DEVICE`]; released when dropped.
pub(super) struct Pktgen(());

fn write(file: &str, words: &str) -> Result<()> {
    fs::write(format!("{DIR}/{file}"), words)
        .with_context(|| format!("pktgen: `{words}` > {DIR}/{file}"))
}

fn status() -> Result<String> {
    let file = format!("{DIR}/{DEVICE}");
    fs::read_to_string(&file).with_context(|| format!("reading {file}"))
}

impl Pktgen {
    /// Binds a generator. Packets pass `dev_queue_xmit`, so tcx and the qdisc.
    pub(super) fn new() -> Result<Self> {
        run::sh("modprobe pktgen").context(
            "no pktgen in this kernel: costs are measured in the VM (tests/vm/run --icount)",
        )?;
        write(THREAD, &format!("add_device {DEVICE}"))?;
        let generator = Self(());
        generator.set("xmit_mode queue_xmit")?;
        generator.set("clone_skb 0")?;
        generator.set("dst_mac 02:00:00:00:00:99")?;
        Ok(generator)
    }

    /// Sets one parameter, e.g. `pkt_size 214`.
    pub(super) fn set(&self, words: &str) -> Result<()> {
        write(DEVICE, words)
    }

    /// Sends what was set; returns when all is sent.
    pub(super) fn start(&self) -> Result<()> {
        write("pgctrl", "start")
    }

    /// Packets sent by the run under way.
    pub(super) fn sofar(&self) -> Result<u64> {
        let text = status()?;
        let sofar = text
            .split("pkts-sofar:")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        sofar.with_context(|| format!("no pkts-sofar of {DEVICE}:\n{text}"))
    }

    /// Sends `count` packets and returns the time the generator was not sleeping, ns.
    pub(super) fn run(&self, count: u64) -> Result<u64> {
        self.set(&format!("count {count}"))?;
        self.start()?;
        // The generator's thread may still be writing its result.
        for _ in 0..100 {
            if let Some((sent, busy_us)) = result(&status()?) {
                ensure!(sent == count, "pktgen sent {sent} of {count} packets");
                return Ok(busy_us * 1000);
            }
            thread::sleep(Duration::from_millis(1));
        }
        bail!("pktgen has no result:\n{}", status()?)
    }
}

impl Drop for Pktgen {
    fn drop(&mut self) {
        // The namespace's end would release it as well.
        let _ = write(THREAD, "rem_device_all");
        // The thread removes devices when it next runs.
        thread::sleep(Duration::from_millis(20));
    }
}

/// Packets sent and busy µs of "Result: OK: 1200(c1180+d20) usec, 1000 (214byte,0frags)".
fn result(text: &str) -> Option<(u64, u64)> {
    let (_, line) = text.split_once("Result: OK")?;
    let number = |before: &str| {
        let (_, rest) = line.split_once(before)?;
        rest.split(['+', ' ']).next()?.parse().ok()
    };
    Some((number("usec, ")?, number("(c")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_of_a_run_is_read() {
        let text = "Current:\n     flows: 0\nResult: OK: 81224(c81220+d4) usec, 20000 (214byte,0frags)\n  246232pps";
        assert_eq!(result(text), Some((20000, 81220)));
        assert_eq!(result("Result: Idle"), None);
    }
}
