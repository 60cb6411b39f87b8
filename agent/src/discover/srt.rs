//! Whether a flow is SRT's, as `bpf/include/bb_srt.h` decides it. Pure.
//!
//! A handshake is sure. A connection that is older than the watch shows none. Then many packets in a row must have
//! one socket id, numbers that count up, and times that pass as time does.

use crate::discover::observe::SrtHandshake;

const CONTROL: u32 = 1 << 31;
/// Of a data packet's second word.
const RESENT: u32 = 1 << 26;
const KEY: u32 = 3 << 27;
const SEQ: u32 = 0x7fff_ffff;
/// Packets in a row, and for so long, us.
const RUN: u32 = 16;
const RUN_US: u32 = 100_000;
const JITTER_US: u32 = 20_000;

/// State of a flow that may be SRT's.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Srt {
    run: u32,
    id: u32,
    /// `None`: no data packet came since the run began.
    seq: Option<u32>,
    /// When its timestamp was 0, modulo 2^32 us.
    base_us: u32,
    began_us: u32,
    /// It is SRT's.
    pub(crate) sure: bool,
    /// The longest latency of its handshakes, ms.
    pub(crate) latency_ms: Option<u16>,
    /// This host is the listener; `None`: no handshake says.
    pub(crate) listener: Option<bool>,
}

impl Srt {
    pub(crate) fn handshake(&mut self, of: SrtHandshake) {
        self.sure = true;
        self.latency_ms = self.latency_ms.max(of.latency_ms);
        self.listener = of.listener.or(self.listener);
    }

    /// Takes the header of a packet.
    pub(crate) fn take(&mut self, words: [u32; 4], now_ns: u64) {
        if self.sure {
            return;
        }
        // Modulo 2^32, as the header's time is.
        let now = (now_ns / 1000) as u32;
        let [first, second, time, id] = words;
        let data = first & CONTROL == 0;
        let kind = first >> 16 & 0x7fff;
        let known = kind <= 8 || kind == 0x7fff;
        if id == 0 || data && second & KEY == KEY || !data && (!known || first & 0xffff != 0) {
            self.run = 0;
            return;
        }
        let again = data && second & RESENT != 0;
        if again {
            return;
        }
        let since = now.wrapping_sub(self.began_us);
        let age = now
            .wrapping_sub(self.base_us)
            .wrapping_sub(time)
            .cast_signed();
        let near = i64::from(age).abs() <= i64::from(since / 2 + JITTER_US);
        let next = !data || self.seq.is_none_or(|seq| first == (seq + 1) & SEQ);
        if self.run > 0 && self.id == id && near && next {
            self.run += 1;
            self.sure = self.run >= RUN && since >= RUN_US;
        } else {
            self.run = 1;
            self.id = id;
            self.base_us = now.wrapping_sub(time);
            self.began_us = now;
            self.seq = None;
        }
        if data {
            self.seq = Some(first);
        }
    }
}
