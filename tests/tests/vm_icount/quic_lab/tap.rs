//! What leaves, and when: a tap between quinn and its cryptography, which sees each packet in clear at the
//! moment in which it is encrypted to be sent.

use std::{
    any::Any,
    sync::{Arc, Mutex},
};

use bestby::Deadline;
use quinn::{
    ConnectError, ConnectionId, Side,
    crypto::{
        ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
        Session,
    },
};
use quinn_proto::{TransportError, transport_parameters::TransportParameters};

/// Bytes of a stream in one packet.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// ns of `CLOCK_MONOTONIC`.
    pub(crate) at: u64,
    pub(crate) stream: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Frame>>>);

impl Log {
    pub(crate) fn frames(&self) -> Vec<Frame> {
        self.0.lock().unwrap().clone()
    }
}

pub(crate) fn now() -> u64 {
    Deadline::after(std::time::Duration::ZERO).as_monotonic_ns()
}

/// A variable-length integer.
pub(crate) fn take(bytes: &mut &[u8]) -> u64 {
    let len = 1 << (bytes[0] >> 6);
    let (number, rest) = bytes.split_at(len);
    *bytes = rest;
    let start = u64::from(number[0] & 0x3f);
    number[1..]
        .iter()
        .fold(start, |n, &byte| n << 8 | u64::from(byte))
}

/// STREAM frames of a 1-RTT packet (RFC 9000, section 19).
fn frames(mut rest: &[u8]) -> Vec<Frame> {
    let (at, mut frames) = (now(), Vec::new());
    while !rest.is_empty() {
        let kind = take(&mut rest);
        let numbers = match kind {
            0x00 | 0x01 | 0x1e | 0x1f => 0,
            0x02 | 0x03 => {
                take(&mut rest);
                take(&mut rest);
                let ranges = take(&mut rest);
                1 + 2 * ranges + if kind == 0x03 { 3 } else { 0 }
            }
            0x04 => 3,
            0x05 | 0x11 | 0x15 => 2,
            0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => 1,
            0x06 | 0x31 => {
                if kind == 0x06 {
                    take(&mut rest);
                }
                let len = take(&mut rest) as usize;
                rest = &rest[len..];
                0
            }
            0x08..=0x0f => {
                let stream = take(&mut rest);
                let offset = if kind & 4 != 0 { take(&mut rest) } else { 0 };
                let len = match kind & 2 {
                    0 => rest.len(),
                    _ => take(&mut rest) as usize,
                };
                let (bytes, after) = rest.split_at(len);
                rest = after;
                frames.push(Frame {
                    at,
                    stream,
                    offset,
                    bytes: bytes.to_vec(),
                });
                0
            }
            0x18 => {
                take(&mut rest);
                take(&mut rest);
                let len = usize::from(rest[0]);
                rest = &rest[1 + len + 16..];
                0
            }
            0x1a | 0x1b => {
                rest = &rest[8..];
                0
            }
            0xaf => 4,
            // A connection's end, and nothing that matters behind it.
            0x1c | 0x1d => return frames,
            _ => panic!("frame {kind:#x}"),
        };
        for _ in 0..numbers {
            take(&mut rest);
        }
    }
    frames
}

/// Cryptography with a tap.
pub(crate) struct Tapped<C> {
    pub(crate) inner: Arc<C>,
    pub(crate) log: Log,
}

impl<C: ClientConfig + 'static> ClientConfig for Tapped<C> {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = Arc::clone(&self.inner).start_session(version, server_name, params)?;
        let log = self.log.clone();
        Ok(Box::new(TappedSession {
            inner,
            log,
            levels: 0,
        }))
    }
}

struct TappedSession {
    inner: Box<dyn Session>,
    log: Log,
    /// Handshake, then 1-RTT.
    levels: u8,
}

impl TappedSession {
    fn tap(&self, keys: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        let log = self.log.clone();
        let inner = keys.local;
        KeyPair {
            local: Box::new(TappedKey { inner, log }),
            remote: keys.remote,
        }
    }
}

struct TappedKey {
    inner: Box<dyn PacketKey>,
    log: Log,
}

impl PacketKey for TappedKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let payload = &buf[header_len..buf.len() - self.inner.tag_len()];
        let frames = frames(payload);
        self.log.0.lock().unwrap().extend(frames);
        self.inner.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut bytes::BytesMut,
    ) -> Result<(), CryptoError> {
        self.inner.decrypt(packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}

impl Session for TappedSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let mut keys = self.inner.write_handshake(buf)?;
        self.levels += 1;
        if self.levels == 2 {
            keys.packet = self.tap(keys.packet);
        }
        Some(keys)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.inner.next_1rtt_keys()?;
        Some(self.tap(keys))
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}
