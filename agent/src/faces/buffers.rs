//! Applications that their own send buffer holds back, for doctor.

use std::collections::BTreeMap;
use std::time::Duration;

use bestby_api::SendBuffers;
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::error::Result;
use crate::kernel::sys::monotonic_ns;
use crate::observed::buffers::wmem_max;

/// For how long one that was held back is spoken of.
const LATELY: Duration = Duration::from_secs(60);

/// What doctor says of a rule's application, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeldBack {
    pub(crate) what: String,
    pub(crate) todo: String,
}

/// Of one socket.
fn held_back(
    flow: &str,
    buffer: &abi::bb_buffer,
    switch: SendBuffers,
    cgroup: bool,
    wmem_max: u32,
) -> HeldBack {
    let (size, need) = (u64::from(buffer.size), buffer.need.max(1));
    // Half of it; rate x lifetime is a third of what is needed (bb_buffer_need).
    let held = u128::from(buffer.lifetime_ns) * u128::from(size) * 3 / u128::from(need) / 2_000_000;
    // The kernel doubles what SO_SNDBUF asks for.
    let asks = need.div_ceil(2);
    let most = u64::from(wmem_max)
        .saturating_mul(2)
        .min(abi::BB_BUFFER_MOST.into());
    let mut todo = format!("let the application set SO_SNDBUF to at least {asks}");
    if asks > wmem_max.into() {
        todo += &format!(", and allow it: sysctl net.core.wmem_max={asks}");
    }
    let why = if switch != SendBuffers::Auto {
        todo += ", or set send_buffers = \"auto\" in [agent]";
        ""
    } else if !cgroup {
        "; no cgroup2 tree: bestby cannot raise it"
    } else if buffer.connected != 0 {
        "; its socket is connected: bestby cannot raise it"
    } else if buffer.observed != 0 {
        "; its interface only observes: bestby raises nothing"
    } else if size >= most {
        "; bestby has raised it as far as it may"
    } else {
        "; bestby could not raise it: is it in the cgroup of bestbyd?"
    };
    HeldBack {
        what: format!(
            "{flow}: the application is held back: a sender that polls uses half of its send buffer, which holds \
             {held} ms, and the lifetime is {} ms{why}",
            buffer.lifetime_ns / 1_000_000
        ),
        todo,
    }
}

impl Datapath {
    /// The worst socket of each rule.
    pub(crate) fn held_back(&self) -> Result<Vec<HeldBack>> {
        let now = monotonic_ns();
        let lately = u64::try_from(LATELY.as_nanos()).unwrap_or(u64::MAX);
        let mut worst: BTreeMap<u16, abi::bb_buffer> = BTreeMap::new();
        for (_, buffer) in self.shared.buffers.entries()? {
            let held =
                buffer.held_ns > buffer.raised_ns && now.saturating_sub(buffer.held_ns) < lately;
            if !held {
                continue;
            }
            let of = worst.entry(buffer.rule).or_insert(buffer);
            let times = |need: u64, size: u32| u128::from(need) * u128::from(size);
            if times(buffer.need, of.size) > times(of.need, buffer.size) {
                *of = buffer;
            }
        }
        let name = |id: u16| {
            let entry = self.book.entries.iter().find(|e| e.id == id)?;
            Some(entry.rule.name.as_str())
        };
        let (switch, most) = (self.config.agent.send_buffers, wmem_max());
        Ok(worst
            .iter()
            .filter_map(|(rule, b)| {
                Some(held_back(
                    name(*rule)?,
                    b,
                    switch,
                    self.cgroup.is_some(),
                    most,
                ))
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ffmpeg's: 32 KiB asked for, 1,316 bytes a packet at 700 kbit/s, 400 ms.
    fn buffer() -> abi::bb_buffer {
        abi::bb_buffer {
            need: 178_500,
            lifetime_ns: 400_000_000,
            size: 65_536,
            rule: 1,
            ..Default::default()
        }
    }

    #[test]
    fn held_back_application_is_told_what_helps() {
        let said = |b: abi::bb_buffer, switch, most| {
            let said = held_back("tv", &b, switch, true, most);
            format!("{} ({})", said.what, said.todo)
        };
        let text = said(buffer(), SendBuffers::Warn, 212_992);
        for part in [
            "tv: ",
            "holds 220 ms",
            "is 400 ms",
            "at least 89250",
            "\"auto\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("wmem_max"), "{text}");
        let text = said(buffer(), SendBuffers::Warn, 80_000);
        assert!(text.contains("sysctl net.core.wmem_max=89250"), "{text}");
        let connected = abi::bb_buffer {
            connected: 1,
            ..buffer()
        };
        let text = said(connected, SendBuffers::Auto, 212_992);
        assert!(
            text.contains("connected") && !text.contains("\"auto\""),
            "{text}"
        );
        let observed = abi::bb_buffer {
            observed: 1,
            ..buffer()
        };
        assert!(said(observed, SendBuffers::Auto, 212_992).contains("only observes"));
        assert!(said(buffer(), SendBuffers::Auto, 212_992).contains("could not"));
        assert!(said(buffer(), SendBuffers::Auto, 30_000).contains("as far as it may"));
        let none = held_back("tv", &buffer(), SendBuffers::Auto, false, 212_992);
        assert!(none.what.contains("no cgroup2"), "{}", none.what);
    }

    #[test]
    fn extreme_figures_do_not_overflow() {
        let b = abi::bb_buffer {
            need: u64::MAX,
            lifetime_ns: u64::MAX,
            size: u32::MAX,
            ..Default::default()
        };
        let _ = held_back("x", &b, SendBuffers::Auto, true, u32::MAX);
        let none = abi::bb_buffer::default();
        let _ = held_back("x", &none, SendBuffers::Auto, true, 0);
    }
}
