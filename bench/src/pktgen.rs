//! The kernel's packet generator: the shortest way into a queue, so that what a
//! queue costs is not lost in what a socket costs.

use std::{fs, thread, time::Duration};

use anyhow::{Context as _, Result, bail};

use crate::{netns::Netns, run};

/// The generator's control files as seen from a thread inside a namespace; the
/// kernel has one set per namespace.
const DIR: &str = "/proc/thread-self/net/pktgen";
/// The generating thread of CPU 0.
const THREAD: &str = "kpktgend_0";

/// One generator bound to one device; released when dropped.
#[derive(Debug)]
pub struct Pktgen<'a> {
    ns: &'a Netns,
    device: &'static str,
}

fn write(file: &str, words: &str) -> Result<()> {
    fs::write(format!("{DIR}/{file}"), words)
        .with_context(|| format!("pktgen: `{words}` > {DIR}/{file}"))
}

impl<'a> Pktgen<'a> {
    /// Binds a generator to `device`. Packets pass `dev_queue_xmit`, so tcx and the qdisc.
    pub fn new(ns: &'a Netns, device: &'static str) -> Result<Self> {
        run::sh("modprobe pktgen").context(
            "no pktgen in this kernel: costs are measured in the VM (tests/vm/run --icount)",
        )?;
        ns.enter(|| write(THREAD, &format!("add_device {device}")))?;
        let generator = Self { ns, device };
        for words in [
            "xmit_mode queue_xmit",
            "clone_skb 0",
            "dst_mac 02:00:00:00:00:99",
        ] {
            generator.set(words)?;
        }
        Ok(generator)
    }

    /// Sets one parameter, e.g. `pkt_size 214`.
    pub fn set(&self, words: &str) -> Result<()> {
        self.ns.enter(|| write(self.device, words))
    }

    /// The namespace of the device.
    pub fn ns(&self) -> &'a Netns {
        self.ns
    }

    /// [`Self::set`] for a thread that is in the namespace already.
    pub fn set_here(&self, words: &str) -> Result<()> {
        write(self.device, words)
    }

    /// Sends what was set, from a thread that is in the namespace already; returns
    /// when all is sent.
    pub fn start_here(&self) -> Result<()> {
        write("pgctrl", "start")
    }

    /// Packets sent by the run under way, from a thread in the namespace.
    pub fn sofar(&self) -> Result<u64> {
        let file = format!("{DIR}/{}", self.device);
        let text = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
        let sofar = text
            .split("pkts-sofar:")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        sofar.with_context(|| format!("no pkts-sofar in {file}:\n{text}"))
    }

    /// Sends `count` packets and returns the time the generator was not sleeping, ns.
    pub fn run(&self, count: u64) -> Result<u64> {
        self.set(&format!("count {count}"))?;
        self.ns.enter(|| {
            write("pgctrl", "start")?;
            let file = format!("{DIR}/{}", self.device);
            // The generator's thread may still be writing its result.
            let mut tries = 0;
            let (sent, busy_us) = loop {
                let text = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
                match result(&text) {
                    Some(found) => break found,
                    None if tries < 100 => thread::sleep(Duration::from_millis(1)),
                    None => bail!("no result in {file}:\n{text}"),
                }
                tries += 1;
            };
            if sent != count {
                bail!("pktgen sent {sent} of {count} packets on {}", self.device);
            }
            Ok(busy_us * 1000)
        })
    }
}

impl Drop for Pktgen<'_> {
    fn drop(&mut self) {
        // The namespace's end would release it as well.
        let _ = self.ns.enter(|| write(THREAD, "rem_device_all"));
        // The thread removes devices when it next runs.
        thread::sleep(Duration::from_millis(20));
    }
}

/// Packets sent and busy µs of "Result: OK: 1200(c1180+d20) usec, 1000 (214byte,0frags)".
fn result(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find(|line| line.contains("Result: OK"))?;
    let busy = line.split("(c").nth(1)?.split('+').next()?.parse().ok()?;
    let sent = line
        .split("usec, ")
        .nth(1)?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    Some((sent, busy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_line_is_read() {
        let text = "Current:\n     flows: 0\nResult: OK: 81224(c81220+d4) usec, 20000 (214byte,0frags)\n  246232pps";
        assert_eq!(result(text), Some((20000, 81220)));
        assert_eq!(result("Result: Idle"), None);
    }
}
