//! Connections of TCP-Real, as the kernel's iterator over the sockets of all processes gives them.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;

use bestby_api::{RealConnection, RealState};
use bestby_bpf::{abi, real_rate};
use zerocopy::FromBytes as _;

use crate::error::{Error, Result, Tried as _};

/// As many are listed at most: 3 MB of memory, 6 MB as JSON.
const MOST: usize = 16_384;

/// Connections of all namespaces, from the pinned iterator, and how many there are beyond [`MOST`].
///
/// # Errors
/// The pin is gone, or of another version.
pub(crate) fn connections(pin: &Path) -> Result<(Vec<RealConnection>, u64)> {
    let size = size_of::<abi::bb_real_record>();
    let reading = || format!("reading {}", pin.display());
    let vanished = |e: Error| e.hint("if its pins vanished: bestby tcp-real on");
    let file = File::open(pin).tried(reading).map_err(vanished)?;
    let mut list = std::io::BufReader::new(file);
    let (mut bytes, mut seen) = (Vec::with_capacity(size), HashSet::new());
    let (mut all, mut more) = (Vec::new(), 0);
    loop {
        bytes.clear();
        list.by_ref()
            .take(size as u64)
            .read_to_end(&mut bytes)
            .tried(reading)?;
        if bytes.is_empty() {
            break;
        }
        let Ok(record) = abi::bb_real_record::read_from_bytes(&bytes) else {
            return Err(Error::failed(format!(
                "{} is of another layout",
                pin.display()
            )));
        };
        // Once, however many processes hold the socket.
        if !seen.insert(record.cookie) {
            continue;
        }
        if all.len() < MOST {
            all.push(connection(&record));
        } else {
            more += 1;
        }
    }
    all.sort_by_key(|c| (c.local, c.remote));
    Ok((all, more))
}

fn address(bytes: [u8; 16], port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical(), port)
}

/// State of a connection, and why it is plain.
fn state(record: &abi::bb_real_record) -> (RealState, &'static str) {
    let c = &record.conn;
    let plain = |why| (RealState::Plain, why);
    match u32::from(c.why) {
        abi::BB_REAL_SPEAKS => {}
        abi::BB_REAL_NO_ANSWER => return plain("the other end does not speak it"),
        abi::BB_REAL_RETRIED => return plain("the SYN was sent again, without the option"),
        abi::BB_REAL_SILENT => return plain("the other end stopped speaking it"),
        _ => return plain("no option was offered when it was opened"),
    }
    if c.cc == 0 {
        return (RealState::Receives, "");
    }
    if c.told_level == 0 {
        return (RealState::Waiting, "");
    }
    // As bb_real_live has it.
    if u64::from(c.acks) > 2 * u64::from(record.cwnd) + 8 {
        return plain("the other end has told nothing lately");
    }
    (RealState::Real, "")
}

fn connection(record: &abi::bb_real_record) -> RealConnection {
    let c = &record.conn;
    let (state, why) = state(record);
    let known = |level: u8| Some(level).filter(|level| *level > 0);
    let receiving = (c.rx.level.saturating_add(32768) / 65536).min(abi::BB_REAL_MAX_LEVEL);
    RealConnection {
        local: address(record.local, record.local_port),
        remote: address(record.remote, record.remote_port),
        state,
        why: why.into(),
        level: known(c.told_level),
        rate_bytes_s: Some(real_rate(c.told_rate)).filter(|rate| *rate > 0),
        receiving_level: u8::try_from(receiving).ok().and_then(known),
        receiving_rate_bytes_s: Some(u64::from(c.rx.rate)).filter(|rate| *rate > 0),
        cwnd: record.cwnd,
        mss: record.mss,
        srtt_ns: u64::from(record.srtt_us) * 1000,
        min_rtt_ns: match record.min_rtt_us {
            // What the kernel writes where none was measured.
            u32::MAX => 0,
            us => u64::from(us) * 1000,
        },
        cancelled: c.cancelled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> abi::bb_real_record {
        abi::bb_real_record {
            cwnd: 10,
            conn: abi::bb_real_conn {
                cc: 1,
                told_level: 5,
                acks: 28,
                ..Default::default()
            },
            ..Default::default()
        }
    }

    #[test]
    fn connection_that_hears_nothing_is_plain_and_says_why() {
        assert_eq!(state(&record()).0, RealState::Real);
        let mut silent = record();
        silent.conn.acks = 29;
        assert_eq!(state(&silent).0, RealState::Plain);
        let mut waiting = record();
        waiting.conn.told_level = 0;
        assert_eq!(state(&waiting).0, RealState::Waiting);
        let mut receives = record();
        receives.conn.cc = 0;
        assert_eq!(state(&receives).0, RealState::Receives);
        for why in abi::BB_REAL_NO_ANSWER..=abi::BB_REAL_LATE {
            let mut plain = record();
            plain.conn.why = u8::try_from(why).unwrap();
            let (state, why) = state(&plain);
            assert!(state == RealState::Plain && !why.is_empty());
        }
    }
}
