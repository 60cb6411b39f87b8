//! Whose options of LPD count: the kernel side's table follows from what is attached.

use std::collections::HashSet;

use std::net::{IpAddr, UdpSocket};
use std::time::SystemTime;

use bestby_api::{DevName, LpdExpiry, PacketDescription, Prefix, StaleTreatment};
use bestby_bpf::abi;
use zerocopy::IntoBytes as _;

use crate::datapath::Datapath;
use crate::error::Result;
use crate::kernel::address::address_bytes;

/// More than that away, a time that comes round every day is not believed.
const FAR_MS: i32 = 131_000;

/// What LPD's option of one packet says, if it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Milliseconds left.
    pub left_ms: i32,
    pub treatment: &'static str,
}

/// Whether a packet from here would be one that this host forwards.
fn is_forwarded(src: Option<IpAddr>) -> bool {
    src.is_some_and(|src| UdpSocket::bind((src, 0)).is_err())
}

fn key(ifindex: u32, prefix: Prefix) -> abi::bb_trust_key {
    let bits = u32::from(prefix.bits());
    abi::bb_trust_key {
        prefix: 32 + if prefix.addr().is_ipv4() { 96 } else { 0 } + bits,
        ifindex,
        addr: address_bytes(prefix.addr()),
    }
}

impl Datapath {
    /// What the option of a packet says for the classifier, and in words.
    pub(crate) fn option_of(
        &self,
        dev: &DevName,
        packet: &PacketDescription,
    ) -> (Option<Counts>, String) {
        let Some(option) = packet.option else {
            return (None, "the packet has no IP option of LPD".into());
        };
        let whose = match packet.src {
            Some(src) if is_forwarded(Some(src)) => {
                let trusted = self.by_name(dev).and_then(|(_, a)| a.request.trust.of(src));
                let Some(prefix) = trusted else {
                    return (
                        None,
                        format!(
                            "{src} is not trusted on {dev}, so its IP option does not count: bestby iface attach {dev} --trust {src}"
                        ),
                    );
                };
                format!("{prefix} is trusted on {dev}")
            }
            _ => "of this host".into(),
        };
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let left_ms = option.expiry.remaining_ms(now);
        if let (LpdExpiry::Deadline(_), Some(why)) = (option.expiry, self.clock.trouble()) {
            return (None, format!("its deadline does not count: {why}"));
        }
        if left_ms.abs() > FAR_MS {
            let far = f64::from(left_ms) / 1e3;
            return (
                None,
                format!("its deadline is {far:.0} s away, so it does not count"),
            );
        }
        let treatment = match option.treatment {
            StaleTreatment::Forward => "forward",
            StaleTreatment::Discard => "discard",
            StaleTreatment::Truncate => "truncate",
        };
        let form = match option.expiry {
            LpdExpiry::Lifetime(_) => "lifetime",
            LpdExpiry::Deadline(_) => "deadline in",
        };
        (
            Some(Counts { left_ms, treatment }),
            format!("{form} {left_ms} ms, treatment {treatment} ({whose})"),
        )
    }

    /// Makes the table what the attached interfaces trust; nobody is distrusted meanwhile who stays trusted.
    ///
    /// # Errors
    /// The map cannot be written, or has no room.
    pub(crate) fn trust(&self) -> Result<()> {
        let wanted: Vec<abi::bb_trust_key> = self
            .attached
            .values()
            .flat_map(|a| a.request.trust.iter().map(|p| key(a.ifindex, p)))
            .collect();
        let bytes: HashSet<&[u8]> = wanted.iter().map(|k| k.as_bytes()).collect();
        for (there, _) in self.shared.trust.entries()? {
            if !bytes.contains(there.as_bytes()) {
                self.shared.trust.remove(&there)?;
            }
        }
        for key in &wanted {
            self.shared.trust.set(key, &1)?;
        }
        Ok(())
    }
}
