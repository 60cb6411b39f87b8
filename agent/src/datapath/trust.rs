//! Whose options of LPD count: the kernel side's table follows from what is attached.

use std::collections::HashSet;

use bestby_api::Prefix;
use bestby_bpf::abi;
use zerocopy::IntoBytes as _;

use crate::datapath::Datapath;
use crate::error::Result;
use crate::kernel::address::address_bytes;

fn key(ifindex: u32, prefix: Prefix) -> abi::bb_trust_key {
    let bits = u32::from(prefix.bits());
    abi::bb_trust_key {
        prefix: 32 + if prefix.addr().is_ipv4() { 96 } else { 0 } + bits,
        ifindex,
        addr: address_bytes(prefix.addr()),
    }
}

impl Datapath {
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
