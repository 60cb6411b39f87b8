//! Addresses as the kernel side's tables have them.

use std::net::IpAddr;

/// Address of the kernel's form: IPv4 as `::ffff:a.b.c.d`.
pub fn address_bytes(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

/// Back from the kernel's form.
pub fn address(bytes: [u8; 16]) -> IpAddr {
    std::net::Ipv6Addr::from(bytes).to_canonical()
}
