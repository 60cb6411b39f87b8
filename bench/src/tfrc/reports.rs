//! What the receiving host tells the sending one: which packets arrived, and when.
//!
//! The sender-based variant of TFRC (RFC 5348 §1, as RFC 4342 allows it for CCID 3): the
//! receiver reports, the sender finds the losses. Here that is the only sound place. The queue is
//! in the kernel, behind the application, so no number that the application writes
//! into a packet is free of gaps where the queue dropped; and only the sending host
//! sees what left. Every report carries the last [`ENTRIES`] arrivals, so that a lost
//! report loses nothing.
//!
//! | bytes | content (network order) |
//! |---|---|
//! | 0..4 | magic |
//! | 4.. | per arrival, oldest first: position in the schedule (4), whole or a header alone (1), time of arrival, ns of CLOCK_MONOTONIC (8) |

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    sync::atomic::AtomicU64,
};

use anyhow::{Context as _, Result};

use crate::{
    netns::Netns,
    traffic::receiver::{Arrival, Receiver},
};

/// Arrivals in each report: 16 reports in a row may be lost.
pub const ENTRIES: usize = 16;
const ENTRY: usize = 13;
const MAGIC: [u8; 4] = *b"bbt2";
/// The receiver's port for greetings and reports.
pub const PORT: u16 = 5010;

/// One line of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position in the schedule.
    pub sequence: u32,
    /// Not its header alone.
    pub whole: bool,
    /// ns of CLOCK_MONOTONIC.
    pub at: u64,
}

/// The bytes of a report.
pub fn encode(entries: impl Iterator<Item = Entry>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for entry in entries {
        bytes.extend(entry.sequence.to_be_bytes());
        bytes.push(entry.whole.into());
        bytes.extend(entry.at.to_be_bytes());
    }
    bytes
}

/// Reads a report; `None` for anything else. A greeting is a report without entries.
pub fn decode(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (magic, rest) = bytes.split_first_chunk()?;
    let (entries, tail) = rest.as_chunks::<ENTRY>();
    if *magic != MAGIC || !tail.is_empty() {
        return None;
    }
    entries
        .iter()
        .map(|entry| {
            Some(Entry {
                sequence: u32::from_be_bytes(*entry.first_chunk()?),
                whole: entry[4] != 0,
                at: u64::from_be_bytes(*entry.last_chunk()?),
            })
        })
        .collect()
}

/// The receiving host: data on three ports (audio, video, data), reports from a fourth.
#[derive(Debug)]
pub struct Reporter {
    data: Receiver,
    control: UdpSocket,
}

impl Reporter {
    /// Opens the sockets inside `ns`, data on `port` and the two after it, on a path that may carry
    /// nothing for `gap` ns.
    pub fn new(ns: &Netns, port: u16, gap: u64) -> Result<Self> {
        let control = ns.enter(|| {
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("binding the control port")
        })?;
        control.set_nonblocking(true)?;
        Ok(Self {
            data: Receiver::new(ns, port, gap)?,
            control,
        })
    }

    /// Receives and reports until the sender has stored the time of its end in `ended`
    /// (ns of CLOCK_MONOTONIC; 0 = still sending) and nothing came for as long as a [`Receiver`] waits.
    pub fn run(&self, ended: &AtomicU64) -> Result<Vec<Arrival>> {
        let mut sender: Option<SocketAddr> = None;
        let mut buffer = [0u8; 2048];
        let other = Some(self.control.as_raw_fd());
        self.data.run_with(ended, other, |arrivals, old| {
            for end in old + 1..=arrivals.len() {
                let recent = &arrivals[end.saturating_sub(ENTRIES)..end];
                if let Some(sender) = sender {
                    let entries = recent.iter().map(|arrival| Entry {
                        sequence: arrival.record.sequence,
                        whole: arrival.whole,
                        at: arrival.at,
                    });
                    // A report that cannot be sent is one that was lost: the next has it all.
                    let _ = self.control.send_to(&encode(entries), sender);
                }
            }
            while let Ok((length, from)) = self.control.recv_from(&mut buffer) {
                if decode(&buffer[..length]).is_some() {
                    sender = Some(from);
                    self.control
                        .send_to(&buffer[..length], from)
                        .context("answering a greeting")?;
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_read_as_it_was_written_and_nothing_else_is() {
        let entries = [(1, true, 5_000_000_000), (u32::MAX, false, u64::MAX)];
        let entries = entries.map(|(sequence, whole, at)| Entry {
            sequence,
            whole,
            at,
        });
        let bytes = encode(entries.into_iter());
        assert_eq!(decode(&bytes), Some(entries.to_vec()));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode(b"bbt1"), None);
        assert_eq!(decode(&encode([].into_iter())), Some(Vec::new()));
    }
}
