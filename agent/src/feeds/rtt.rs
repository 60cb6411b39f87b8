//! RTT of TCP connections that existed before the `sock_ops` program did: TCP_INFO through sock_diag.
//!
//! The kernel's minimum of a connection (of five minutes) stands for the path, never its smoothed RTT, which
//! contains our own queue. It says less than samples do, so an address with samples is left to `rtt.bpf.c`.

use std::time::Duration;

use bestby_bpf::abi;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::nlas::{Nla, TcpInfo};
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};

use crate::error::{Error, Result};
use crate::kernel::address::address_bytes;
use crate::kernel::maps::ByAddress;
use crate::kernel::sys::monotonic_ns;

/// How often the sockets are looked at.
pub const PERIOD: Duration = Duration::from_secs(1);

/// What the kernel writes where a minimum was never measured.
const UNMEASURED_US: u32 = u32::MAX;

/// Longer ago, an estimate says nothing of the path of today.
const FORGET_NS: u64 = 60_000_000_000;

/// Takes one socket's measurement; `None` if it says nothing (no RTT yet, loopback).
pub(crate) fn measured(
    response: &InetResponse,
    now_ns: u64,
) -> Option<(abi::bb_addr, abi::bb_rtt)> {
    let peer = response.header.socket_id.destination_address.to_canonical();
    if peer.is_loopback()
        || peer.is_unspecified()
        || response.header.socket_id.source_address == peer
    {
        return None;
    }
    let info: &TcpInfo = response.nlas.iter().find_map(|nla| match nla {
        Nla::TcpInfo(info) => Some(info),
        _ => None,
    })?;
    // Without an acknowledged segment `rtt` is only the initial guess of 0.
    if info.rtt == 0 || info.min_rtt == UNMEASURED_US || info.min_rtt == 0 {
        return None;
    }
    let ns = |us: u32| u64::from(us) * 1000;
    Some((
        abi::bb_addr {
            addr: address_bytes(peer),
        },
        abi::bb_rtt {
            min_rtt_ns: ns(info.min_rtt),
            least_ns: [u64::MAX; 2],
            window: 0, // none: no sample
            srtt_ns: ns(info.rtt),
            rto_ns: ns(info.rto),
            updated_ns: now_ns - ns(info.last_ack_recv.saturating_mul(1000)).min(now_ns),
            // The kernel's is of five minutes, too.
            base_ns: [ns(info.min_rtt), u64::MAX],
            base_window: u32::try_from(now_ns >> abi::BB_RTT_BASE_SHIFT).unwrap_or(u32::MAX),
            source: abi::BB_RTT_TCP,
        },
    ))
}

/// Reads TCP_INFO of all established sockets of this network namespace.
fn dump(family: u8) -> std::io::Result<Vec<InetResponse>> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let request = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO,
        states: StateFlags::ESTABLISHED | StateFlags::CLOSE_WAIT,
        socket_id: if family == AF_INET {
            SocketId::new_v4()
        } else {
            SocketId::new_v6()
        },
    };
    let mut packet = NetlinkMessage::new(
        header,
        NetlinkPayload::from(SockDiagMessage::InetRequest(request)),
    );
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut all = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        if understood(&datagram, &mut all)? {
            return Ok(all);
        }
    }
}

/// Takes the sockets of one datagram; returns whether it ends the dump.
pub(crate) fn understood(datagram: &[u8], all: &mut Vec<InetResponse>) -> std::io::Result<bool> {
    let refused = |code: i32| match code {
        0 => Ok(true),
        code => Err(std::io::Error::from_raw_os_error(code.saturating_neg())),
    };
    let mut rest = datagram;
    while rest.len() >= 16 {
        let length = u32::from_ne_bytes(*rest.first_chunk().unwrap_or(&[0; 4])) as usize;
        // A single socket that cannot be understood does not spoil the others.
        if let Ok(message) = NetlinkMessage::<SockDiagMessage>::deserialize(rest) {
            match message.payload {
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                    all.push(*response)
                }
                NetlinkPayload::Done(done) => return refused(done.code),
                NetlinkPayload::Error(error) => return refused(error.raw_code()),
                _ => {}
            }
        }
        match rest.get(length.next_multiple_of(4).max(16)..) {
            Some(next) => rest = next,
            None => break,
        }
    }
    Ok(false)
}

/// What an address is known for after one socket's measurement; `None` if nothing changes.
fn merged(old: Option<abi::bb_rtt>, new: abi::bb_rtt, now_ns: u64) -> Option<abi::bb_rtt> {
    let Some(old) = old.filter(|old| now_ns.saturating_sub(old.updated_ns) < FORGET_NS) else {
        return Some(new);
    };
    if old.source != abi::BB_RTT_TCP {
        // As bb_rtt_takes has it: TCP is believed before others, while it speaks.
        let speaks = now_ns.saturating_sub(new.updated_ns) < 1 << abi::BB_RTT_SELDOM_SHIFT;
        return speaks.then_some(new);
    }
    let window = now_ns >> abi::BB_RTT_WINDOW_SHIFT;
    if old.window > 0 && old.window.saturating_add(1) >= window {
        return None;
    }
    let newest = if new.updated_ns > old.updated_ns {
        new
    } else {
        old
    };
    let min_rtt_ns = match old.min_rtt_ns {
        0 => new.min_rtt_ns,
        known => known.min(new.min_rtt_ns),
    };
    let merged = abi::bb_rtt {
        min_rtt_ns,
        ..newest
    };
    ((merged.min_rtt_ns, merged.updated_ns) != (old.min_rtt_ns, old.updated_ns)).then_some(merged)
}

/// One round: what every connection measured into the map. Returns how many were written.
///
/// # Errors
/// sock_diag does not answer, or the map refuses.
pub fn feed(rtts: &ByAddress<abi::bb_rtt>) -> Result<usize> {
    let mut written = 0;
    for family in [AF_INET, AF_INET6] {
        let sockets = dump(family)
            .map_err(|e| Error::failed(format!("reading TCP_INFO by sock_diag: {e}")))?;
        let now = monotonic_ns();
        for (peer, rtt) in sockets.iter().filter_map(|s| measured(s, now)) {
            if let Some(rtt) = merged(rtts.get(&peer)?, rtt, now) {
                rtts.set(&peer, &rtt)?;
                written += 1;
            }
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 1000 * SECOND;

    fn rtt(min_ms: u64, age_s: u64) -> abi::bb_rtt {
        abi::bb_rtt {
            min_rtt_ns: min_ms * 1_000_000,
            least_ns: [u64::MAX; 2],
            window: 0,
            srtt_ns: 900_000_000,
            rto_ns: SECOND,
            updated_ns: NOW - age_s * SECOND,
            base_ns: [min_ms * 1_000_000, u64::MAX],
            base_window: 3,
            source: abi::BB_RTT_TCP,
        }
    }

    #[test]
    fn merged_rtt_is_the_least_and_as_old_as_the_newest() {
        let one = merged(None, rtt(40, 3), NOW).expect("new");
        let two = merged(Some(one), rtt(20, 5), NOW).expect("smaller");
        assert_eq!(
            (two.min_rtt_ns, two.updated_ns),
            (20_000_000, one.updated_ns)
        );
        let three = merged(Some(two), rtt(700, 1), NOW).expect("newer");
        assert_eq!(
            (three.min_rtt_ns, three.updated_ns),
            (20_000_000, NOW - SECOND)
        );
        assert_eq!(merged(Some(three), rtt(700, 1), NOW), None);
        // What was measured a minute ago is no longer the path.
        let later = merged(Some(rtt(20, 61)), rtt(50, 1), NOW).expect("forgotten");
        assert_eq!(later.min_rtt_ns, 50_000_000);
    }

    #[test]
    fn recent_sample_outranks_sock_diag() {
        let sampled = |windows_ago| abi::bb_rtt {
            window: (NOW >> abi::BB_RTT_WINDOW_SHIFT) - windows_ago,
            ..rtt(80, 9)
        };
        for windows_ago in [0, 1] {
            assert_eq!(merged(Some(sampled(windows_ago)), rtt(20, 1), NOW), None);
        }
        let merged = merged(Some(sampled(2)), rtt(20, 1), NOW).expect("no samples lately");
        assert_eq!(merged.min_rtt_ns, 20_000_000);
    }

    #[test]
    fn connection_that_speaks_outranks_stun_and_rtcp() {
        for source in [abi::BB_RTT_STUN, abi::BB_RTT_RTCP] {
            let other = abi::bb_rtt {
                source,
                window: NOW >> abi::BB_RTT_SELDOM_SHIFT,
                ..rtt(20, 2)
            };
            assert_eq!(merged(Some(other), rtt(80, 16), NOW), Some(rtt(80, 16)));
            // One that has been silent for longer does not.
            assert_eq!(merged(Some(other), rtt(80, 18), NOW), None);
        }
    }

    #[test]
    fn dump_that_ends_in_an_error_is_an_error() {
        let message = |kind: u16, code: i32| {
            let mut bytes = 36_u32.to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 10]); // flags, sequence, port
            bytes.extend(code.to_ne_bytes());
            bytes.extend([0; 16]); // the request's header
            bytes
        };
        let mut all = Vec::new();
        let errno = |e: std::io::Error| e.raw_os_error();
        let mut read = |bytes: Vec<u8>| understood(&bytes, &mut all).map_err(errno);
        let (error, done) = (2, 3); // NLMSG_ERROR, NLMSG_DONE
        assert_eq!(read(message(error, -libc::ENOENT)), Err(Some(libc::ENOENT)));
        assert_eq!(
            read(message(done, -libc::ENOBUFS)),
            Err(Some(libc::ENOBUFS))
        );
        assert_eq!(read(message(done, 0)), Ok(true));
        assert_eq!(read(Vec::new()), Ok(false));
    }
}
