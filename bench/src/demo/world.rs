//! The network of one run: `server` ── link of 40 ms ── `client`, three
//! namespaces. The bottleneck is the queue on the server's device.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

use super::{account::Delay, delay::DelayLine};
use crate::{netns::Netns, run};

/// The server's device: where the queue under test is.
pub(super) const DEVICE: &str = "bbd0";
const CLIENT_DEVICE: &str = "bbd3";
/// Both ends of the link.
const LINK: [&str; 2] = ["bbd1", "bbd2"];

pub(super) const SERVER: &str = "10.66.0.1";
pub(super) const CLIENT: &str = "10.66.0.2";

/// Namespaces, devices and the link; all gone when dropped.
#[derive(Debug)]
pub(super) struct World {
    /// `None` where the kernel delays (netem).
    line: Option<DelayLine>,
    pub(super) server: Netns,
    pub(super) client: Netns,
    _link: Netns,
}

impl World {
    pub(super) fn new(delay: Duration) -> Result<Self> {
        let server = Netns::new("server")?;
        let link = Netns::new("link")?;
        let client = Netns::new("client")?;
        // The link has no address and no opinion: nothing of its own may travel.
        link.enter(|| {
            fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").or_else(|error| {
                // A kernel without IPv6 has nothing to switch off.
                if error.kind() == std::io::ErrorKind::NotFound {
                    Ok(())
                } else {
                    Err(error)
                }
            })?;
            Ok(())
        })?;
        for (near, near_device, mac, far_device) in [
            (&server, DEVICE, "02:bb:00:00:00:01", LINK[0]),
            (&client, CLIENT_DEVICE, "02:bb:00:00:00:02", LINK[1]),
        ] {
            // One transmit queue, as a narrow link has; some kernels give a veth one per CPU.
            run::sh(&format!(
                "ip link add {near_device} address {mac} netns {} numtxqueues 1 numrxqueues 1 type veth \
                 peer name {far_device} netns {} numtxqueues 1 numrxqueues 1",
                near.name(),
                link.name()
            ))?;
            link.sh("ip", &format!("link set {far_device} up"))?;
        }
        for (namespace, device, address, peer, peer_mac) in [
            (&server, DEVICE, SERVER, CLIENT, "02:bb:00:00:00:02"),
            (&client, CLIENT_DEVICE, CLIENT, SERVER, "02:bb:00:00:00:01"),
        ] {
            namespace.sh("ip", &format!("addr add {address}/24 dev {device}"))?;
            namespace.sh("ip", &format!("link set {device} up"))?;
            // Fixed neighbours: a run does not begin with ARP in the queue.
            namespace.sh(
                "ip",
                &format!("neigh replace {peer} lladdr {peer_mac} dev {device} nud permanent"),
            )?;
        }
        let line = match netem(&link, delay) {
            Ok(()) => None,
            Err(_) => Some(DelayLine::start(&link, LINK[0], LINK[1], delay)?),
        };
        Ok(Self {
            line,
            server,
            client,
            _link: link,
        })
    }

    /// The queue to compare with: one FIFO of `packets` packets, emptied at
    /// `rate_bit` bit/s.
    pub(super) fn attach_fifo(&self, rate_bit: u64, packets: u32) -> Result<()> {
        let tc = |words: String| {
            self.server
                .sh("tc", &words)
                .context("building the plain FIFO")
        };
        tc(format!(
            "qdisc add dev {DEVICE} root handle 1: htb default 1"
        ))?;
        tc(format!(
            "class add dev {DEVICE} parent 1: classid 1:1 htb rate {rate_bit}bit ceil {rate_bit}bit \
             burst 1600 cburst 1600 quantum 1514"
        ))?;
        tc(format!(
            "qdisc add dev {DEVICE} parent 1:1 handle 10: pfifo limit {packets}"
        ))?;
        Ok(())
    }

    /// Ends the link; how much later than due its frames left, ms.
    pub(super) fn finish(self) -> Result<Option<Delay>> {
        self.line.map_or(Ok(None), DelayLine::finish)
    }

    /// Who delays: `netem`, or the demo itself.
    pub(super) fn delayed_by(&self) -> &'static str {
        if self.line.is_some() {
            "user space"
        } else {
            "netem"
        }
    }
}

/// The link by the kernel's own means; where modules are missing, nothing of it stays.
fn netem(link: &Netns, delay: Duration) -> Result<()> {
    let built = LINK
        .iter()
        .zip(LINK.iter().rev())
        .try_for_each(|(from, to)| {
            let ms = delay.as_millis();
            for words in [
                format!("qdisc add dev {to} root netem delay {ms}ms limit 100000"),
                format!("qdisc add dev {from} clsact"),
                format!(
                    "filter add dev {from} ingress matchall action mirred egress redirect dev {to}"
                ),
            ] {
                link.sh("tc", &words)?;
            }
            Ok(())
        });
    if built.is_err() {
        for device in LINK {
            // What was not built cannot be removed; that is no second error.
            let _ = link.sh("tc", &format!("qdisc del dev {device} root"));
            let _ = link.sh("tc", &format!("qdisc del dev {device} clsact"));
        }
    }
    built
}
