//! The gateway of an interface's default route.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::Result;
use crate::kernel::netlink::{Raw, attributes, find};
use crate::kernel::tc::{Tc, refused};

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_VIA: u16 = 18;

/// Addresses to which only a default route leads: one reserved for future use (RFC 1112), one that is never assigned
/// (RFC 4291). One look-up costs the same in a table of a million routes.
const FAR: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(240, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 1)),
];

fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(*bytes.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*bytes.first_chunk::<16>()?)),
        _ => None,
    }
}

/// The question for the route to an address through an interface.
fn question(to: IpAddr, ifindex: u32) -> Raw {
    let (family, bits) = match to {
        IpAddr::V4(_) => (libc::AF_INET, 32),
        IpAddr::V6(_) => (libc::AF_INET6, 128),
    };
    // struct rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags u32.
    let mut body = vec![0; 12];
    body[0] = u8::try_from(family).unwrap_or(0);
    body[1] = bits;
    body.extend(super::netlink::encode(&[
        (RTA_DST, octets(to)),
        (RTA_OIF, ifindex.to_ne_bytes().to_vec()),
    ]));
    Raw {
        kind: libc::RTM_GETROUTE,
        body,
    }
}

/// The gateway in the kernel's answer; `None`: the route has none.
fn gateway_in(answer: &Raw) -> Option<IpAddr> {
    if answer.kind != libc::RTM_NEWROUTE {
        return None;
    }
    let all = attributes(answer.body.get(12..)?);
    // struct rtvia: family u16, address. An IPv4 route by an IPv6 gateway has it.
    let via = || find(&all, RTA_VIA)?.get(2..);
    find(&all, RTA_GATEWAY).or_else(via).and_then(address)
}

/// The gateway of the default route through an interface, IPv4's if there is one; `None`: there is none.
///
/// # Errors
/// The kernel does not answer such questions.
pub fn gateway(tc: &mut Tc, ifindex: u32) -> Result<Option<IpAddr>> {
    for to in FAR {
        let answers = match tc.netlink.get(question(to, ifindex)) {
            Ok(answers) => answers,
            // No route, or no such protocol on this interface.
            Err(e) if e.errno().is_some() => match e.errno() {
                Some(libc::EPERM | libc::EACCES) => {
                    return Err(refused("asking for the default route".into(), &e));
                }
                _ => continue,
            },
            Err(e) => return Err(refused("asking for the default route".into(), &e)),
        };
        if let Some(gateway) = answers.iter().find_map(gateway_in) {
            return Ok(Some(gateway));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::netlink::encode;

    #[test]
    fn gateway_is_read_of_either_family() {
        let answer = |attributes: &[(u16, Vec<u8>)]| Raw {
            kind: libc::RTM_NEWROUTE,
            body: [vec![0; 12], encode(attributes)].concat(),
        };
        let [v4, v6]: [IpAddr; 2] = ["192.0.2.1", "fe80::1"].map(|a| a.parse().unwrap());
        let said = |attributes: &[(u16, Vec<u8>)]| gateway_in(&answer(attributes));
        assert_eq!(said(&[(RTA_GATEWAY, octets(v4))]), Some(v4));
        assert_eq!(said(&[(RTA_GATEWAY, octets(v6))]), Some(v6));
        let via = [vec![10, 0], octets(v6)].concat();
        assert_eq!(said(&[(RTA_VIA, via)]), Some(v6));
        assert_eq!(said(&[(RTA_DST, octets(v4))]), None);
        assert_eq!(said(&[(RTA_GATEWAY, vec![1, 2])]), None);
        let short = Raw {
            kind: libc::RTM_NEWROUTE,
            body: vec![0; 3],
        };
        assert_eq!(gateway_in(&short), None);
    }
}
