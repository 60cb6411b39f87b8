//! One synchronization source of RTP: is it one, and what does it carry? Pure.
//!
//! 1. Random bytes look like RTP one time in four, so a source counts only once its sequence numbers have counted up
//!    several times in a row.
//! 2. Payload types are agreed upon by signalling that nobody sees here, and SRTP encrypts the payload. The shape
//!    remains: audio has one packet for each timestamp, and small ones; a picture takes several packets, and its last
//!    one has the marker.
//! 3. A retransmission (RFC 4588) has a source of its own, and timestamps that another source has sent before.

use std::collections::VecDeque;

use bestby_api::{Carried, PayloadTypes, RtpKind, RtpProfile};

use crate::discover::observe::Rtp;

/// Sequence numbers in a row, behind the first, that make a source one.
const SURE: u32 = 4;
/// Payload types of one source that are told apart.
const TYPES: usize = 8;
/// Timestamps of a source that are remembered: two seconds of pictures.
const RECENT: usize = 64;
/// Larger packets are super-packets, which the device cuts later, bytes.
const SUPER_BYTES: u32 = 2000;
/// Most packets in one of these.
const SUPER_PACKETS: u16 = 64;
/// Audio packets are smaller, unless their clock says what they are, bytes.
const SMALL: u64 = 400;
/// A clock is estimated from no less time, ns.
const CLOCK_NS: u64 = 300_000_000;
/// Usual clocks, Hz.
const CLOCKS: [u32; 6] = [8_000, 16_000, 32_000, 44_100, 48_000, 90_000];

/// Packets and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) packets: u64,
    /// Of IP.
    pub(crate) bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// A source.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) ssrc: u32,
    pub(crate) all: Tally,
    /// Of each payload type.
    types: Vec<(u8, Tally)>,
    first_ns: u64,
    /// When the current timestamp began.
    frame_ns: u64,
    timestamp: u32,
    /// From the first timestamp to the current one.
    ticks: i64,
    seq: u16,
    /// The last packet was a super-packet.
    large: bool,
    /// Sequence numbers in a row, now and at best.
    run: u32,
    best_run: u32,
    forward: u64,
    wild: u64,
    /// Timestamps that are over, and those with several packets.
    frames: u64,
    of_several: u64,
    /// Packets of the current one.
    in_frame: u64,
    markers: u64,
    payload_bytes: u64,
    ts: u64,
    recent: VecDeque<u32>,
    /// Packets with a timestamp that another source of the flow has sent, by that source.
    repeats: Vec<(u32, u64)>,
}

impl Source {
    pub(crate) fn new(rtp: &Rtp, now_ns: u64) -> Self {
        Self {
            ssrc: rtp.ssrc,
            all: Tally::default(),
            types: Vec::new(),
            first_ns: now_ns,
            frame_ns: now_ns,
            timestamp: rtp.timestamp,
            ticks: 0,
            // So that the first packet goes on with it, and does not count.
            seq: rtp.seq,
            large: false,
            run: 0,
            best_run: 0,
            forward: 0,
            wild: 0,
            frames: 0,
            of_several: 0,
            in_frame: 0,
            markers: 0,
            payload_bytes: 0,
            ts: 0,
            recent: VecDeque::new(),
            repeats: Vec::new(),
        }
    }

    /// Takes a packet of `bytes` bytes of IP.
    pub(crate) fn take(&mut self, rtp: &Rtp, bytes: u32, now_ns: u64) {
        if self.all.packets > 0 {
            self.count_up(rtp.seq.wrapping_sub(self.seq));
        }
        self.seq = rtp.seq;
        self.large = bytes > SUPER_BYTES;
        self.all.add(bytes);
        let known = self.types.iter().any(|(t, _)| *t == rtp.payload_type);
        if !known && self.types.len() < TYPES {
            self.types.push((rtp.payload_type, Tally::default()));
        }
        let mut types = self.types.iter_mut();
        if let Some((_, tally)) = types.find(|(t, _)| *t == rtp.payload_type) {
            tally.add(bytes);
        }
        if rtp.timestamp != self.timestamp {
            // Backwards, too: pictures are sent in the order in which they are decoded.
            let step = rtp.timestamp.wrapping_sub(self.timestamp).cast_signed();
            self.ticks = self.ticks.saturating_add(i64::from(step));
            self.timestamp = rtp.timestamp;
            self.frame_ns = now_ns;
            self.frames += 1;
            self.of_several += u64::from(self.in_frame > 1);
            self.in_frame = 0;
        }
        self.in_frame += if self.large { 2 } else { 1 };
        self.markers += u64::from(rtp.marker);
        self.payload_bytes += u64::from(rtp.bytes);
        self.ts += u64::from(rtp.ts);
        // Most sources that are none end here, and need no memory.
        if self.all.packets > 2 && self.recent.back() != Some(&rtp.timestamp) {
            self.recent.push_back(rtp.timestamp);
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
    }

    fn count_up(&mut self, step: u16) {
        let next = step == 1 || self.large && (1..=SUPER_PACKETS).contains(&step);
        self.run = if next { self.run + 1 } else { 0 };
        self.best_run = self.best_run.max(self.run);
        match step {
            // Gaps and packets that overtake each other.
            1..=100 | 0xff9c.. => self.forward += 1,
            0 => {}
            _ => self.wild += 1,
        }
    }

    /// Whether this timestamp was sent by this source lately.
    pub(crate) fn sent(&self, timestamp: u32) -> bool {
        self.recent.contains(&timestamp)
    }

    /// One of its packets has a timestamp that `of` has sent.
    pub(crate) fn note_repeat(&mut self, of: u32) {
        let known = self.repeats.iter().any(|(ssrc, _)| *ssrc == of);
        if !known && self.repeats.len() < TYPES {
            self.repeats.push((of, 0));
        }
        if let Some((_, count)) = self.repeats.iter_mut().find(|(ssrc, _)| *ssrc == of) {
            *count += 1;
        }
    }

    fn repeats_of(&self, of: u32) -> u64 {
        let found = self.repeats.iter().find(|(ssrc, _)| *ssrc == of);
        found.map_or(0, |(_, count)| *count)
    }

    /// Whether its sequence numbers show that it is RTP.
    pub(crate) fn is_sure(&self) -> bool {
        self.best_run >= SURE && self.forward >= 4 * self.wild
    }

    /// The source of `all` that this one repeats. Most timestamps come from there. Two layers of one picture have
    /// timestamps in common both ways, so they are no repeats. Few packets suffice.
    pub(crate) fn repeated<'a>(&self, all: &'a [Self]) -> Option<&'a Self> {
        let (of, count) = *self.repeats.iter().max_by_key(|(_, count)| *count)?;
        let original = all.iter().find(|s| s.ssrc == of && s.is_sure())?;
        let mostly = count * 5 >= self.all.packets * 4;
        let one_way = original.repeats_of(self.ssrc) * 5 <= original.all.packets;
        let in_order = self.forward > 0 && self.wild == 0;
        (mostly && one_way && in_order && self.all.packets < original.all.packets)
            .then_some(original)
    }

    /// The payload type of most packets.
    pub(crate) fn payload_type(&self) -> u8 {
        let most = self.types.iter().max_by_key(|(_, tally)| tally.packets);
        most.map_or(0, |(payload_type, _)| *payload_type)
    }

    /// All payload types with more than one packet, and the main one.
    pub(crate) fn payload_types(&self) -> Option<PayloadTypes> {
        let several = self.types.iter().filter(|(_, tally)| tally.packets > 1);
        let all = several.filter_map(|(t, _)| PayloadTypes::one(*t));
        all.fold(PayloadTypes::one(self.payload_type()), |all, one| {
            Some(all?.with(one))
        })
    }

    /// The clock of its timestamps, rounded to a usual one; `None`: none is near, or it was seen too shortly.
    pub(crate) fn clock_hz(&self) -> Option<u32> {
        let time_ns = self.frame_ns.saturating_sub(self.first_ns);
        if time_ns < CLOCK_NS || self.ticks <= 0 {
            return None;
        }
        let hz = self.ticks as f64 * 1e9 / time_ns as f64;
        let away = |clock: u32| (hz / f64::from(clock)).ln().abs();
        let nearest = CLOCKS
            .into_iter()
            .min_by(|a, b| away(*a).total_cmp(&away(*b)))?;
        (away(nearest) < 0.12).then_some(nearest)
    }

    /// The kind of its media by their shape; `Rtx` is not among the answers.
    pub(crate) fn carried(&self, profile: RtpProfile) -> Carried {
        if self.ts * 10 >= self.all.packets * 9 {
            return Carried::RtpTs;
        }
        let main = self.payload_type();
        if main == 33 {
            return Carried::RtpTs;
        }
        for (kind, carried) in [
            (RtpKind::Audio, Carried::Audio),
            (RtpKind::Video, Carried::Video),
        ] {
            if profile.of(kind).contains(main) {
                return carried;
            }
        }
        let packets = self.all.packets.max(1);
        let mean = self.payload_bytes / packets;
        let frames = self.frames.max(1);
        let several = self.of_several * 10 >= frames;
        match self.clock_hz() {
            // Tones have one timestamp for several packets, too (RFC 4733).
            Some(clock) if clock < 90_000 && (!several || mean < SMALL) => Carried::Audio,
            Some(_) if several => Carried::Video,
            // Pictures of one packet each: all but those of several have the marker.
            Some(_) if self.markers * 2 >= packets || mean >= SMALL => Carried::Video,
            // MPEG audio counts with 90 kHz.
            Some(_) if mean < SMALL => Carried::Audio,
            _ if several && mean >= SMALL => Carried::Video,
            _ if !several && mean < SMALL && self.markers * 4 <= packets && self.frames > 4 => {
                Carried::Audio
            }
            _ => Carried::Rtp,
        }
    }
}
