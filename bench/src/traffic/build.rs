//! What all models do alike: frames cut into packets, ADUs brought into sending order
//! and numbered.

use std::{collections::BTreeSet, fmt, ops::RangeInclusive};

use anyhow::{Result, ensure};
pub(super) use rand_chacha::rand_core::RngCore;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng as _};

use super::{Class, MAX_WIRE, MIN_WIRE, Packet, Schedule};
use crate::sys::{MILLI, SECOND};

/// A model with its parameters.
pub(super) trait Traffic {
    /// Whether the parameters are within their ranges, without making any traffic.
    fn check(&self) -> Result<()>;

    /// `seconds` of it; the same for the same seed. Parameters out of their range are an
    /// error that names the parameter and the range.
    fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule>;

    /// What its packets may be; `None` where only a capture's content tells.
    fn classes(&self) -> Option<BTreeSet<Class>> {
        Some([Class::Audio, Class::Video].into())
    }

    /// Whether its streams are clients with addresses of their own behind one socket.
    fn is_relay(&self) -> bool {
        false
    }

    /// Does beforehand what a run should not.
    fn prepare(&self, _seconds: u64, _seed: u64) -> Result<()> {
        Ok(())
    }
}

/// What is drawn by `seed`; the same on every machine.
pub(super) fn random(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// One ADU before it has a number.
pub(super) struct Adu {
    pub(super) class: Class,
    pub(super) stream: u16,
    /// Of every packet of it, ns since the start of the run.
    pub(super) deadline: u64,
    /// When each packet is created (ns since the start) and its bytes on the wire.
    pub(super) parts: Vec<(u64, u32)>,
}

impl Adu {
    /// Of packets of so many bytes that leave together.
    pub(super) fn bunch(
        class: Class,
        at: u64,
        lifetime_ms: u64,
        parts: impl IntoIterator<Item = u32>,
    ) -> Self {
        Self {
            class,
            stream: 0,
            deadline: at + lifetime_ms * MILLI,
            parts: parts.into_iter().map(|bytes| (at, bytes)).collect(),
        }
    }
}

/// All of `adus` that fit into `seconds` as a whole; ADUs of one time stay in their order.
pub(super) fn schedule(mut adus: Vec<Adu>, seconds: u64) -> Schedule {
    let duration = seconds * SECOND;
    adus.retain(|adu| adu.parts.iter().all(|&(at, _)| at < duration));
    let mut packets = Vec::new();
    for (adu, number) in adus.iter().zip(0..) {
        let count = adu.parts.len();
        packets.extend(
            (1..)
                .zip(&adu.parts)
                .map(|(place, &(at, wire_bytes))| Packet {
                    at,
                    lifetime: adu.deadline.saturating_sub(at),
                    class: adu.class,
                    priority: adu.class.priority(),
                    stream: adu.stream,
                    adu: number,
                    last: place == count,
                    wire_bytes,
                    recorded: None,
                }),
        );
    }
    packets.sort_by_key(|p| p.at);
    number(&mut packets);
    Schedule { packets, duration }
}

/// Numbers ADUs by the order of their first packets.
pub(super) fn number(packets: &mut [Packet]) {
    let mut numbers = std::collections::HashMap::new();
    for packet in packets {
        let next = numbers.len() as u32;
        packet.adu = *numbers.entry(packet.adu).or_insert(next);
    }
}

/// Cuts a frame of `size` bytes into packets of `max` and a rest. A rest too small for
/// the lab's record takes what it lacks from the packet before it; a frame too small
/// becomes the smallest packet. `max` is at least twice [`MIN_WIRE`].
pub(super) fn cut(size: u32, max: u32) -> Vec<u32> {
    let mut parts = vec![max; (size / max) as usize];
    let rest = size % max;
    if rest == 0 && !parts.is_empty() {
        return parts;
    }
    let lacking = MIN_WIRE.saturating_sub(rest);
    if let Some(previous) = parts.last_mut() {
        *previous -= lacking;
    }
    parts.push(rest + lacking);
    parts
}

/// Refuses a parameter that is out of its range.
pub(super) fn within<T: PartialOrd + fmt::Display>(
    name: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<()> {
    let (least, most) = (range.start(), range.end());
    // A NaN is in no range.
    ensure!(
        range.contains(&value),
        "{name} = {value} is not within {least}..={most}"
    );
    Ok(())
}

/// Refuses packets that cannot be cut or do not fit on an Ethernet.
pub(super) fn check_packet_bytes(bytes: u32) -> Result<()> {
    within("packet_bytes", bytes, 2 * MIN_WIRE..=MAX_WIRE)
}

/// Refuses a rate that is none, and more `streams` of it than the fastest link carries: their
/// packets alone would not fit into memory.
pub(super) fn check_rate(kbit: f64, streams: u16) -> Result<()> {
    within("rate_kbit", kbit, 1.0..=1e7)?;
    let all = f64::from(streams) * kbit;
    ensure!(
        all <= 1e7,
        "{streams} clients or streams of rate_kbit = {kbit} are {all} kbit/s together, more than the \
         10000000 of the fastest link: lower one of the two"
    );
    Ok(())
}

/// Refuses a lifetime that is 0 or beyond what bestby's mark can say (±65 s).
pub(super) fn check_lifetime(name: &str, ms: u64) -> Result<()> {
    within(name, ms, 1..=60_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_keeps_every_byte_in_packets_within_the_sizes() {
        for max in [2 * MIN_WIRE, 1026, MAX_WIRE] {
            for size in MIN_WIRE..8000 {
                let parts = cut(size, max);
                assert_eq!(parts.iter().sum::<u32>(), size);
                assert!(
                    parts.iter().all(|p| (MIN_WIRE..=max).contains(p)),
                    "{size}: {parts:?}"
                );
            }
        }
        assert_eq!(cut(0, 1026), [MIN_WIRE]);
    }

    #[test]
    fn schedule_numbers_adus_in_sending_order_and_none_outlasts_the_run() {
        let adu = |class, times: &[u64]| Adu {
            class,
            stream: 0,
            deadline: 5 * SECOND,
            parts: times.iter().map(|&at| (at, 100)).collect(),
        };
        let adus = vec![
            adu(Class::Video, &[10, 30]),
            adu(Class::Audio, &[20]),
            adu(Class::Data, &[5]),
            adu(Class::Video, &[SECOND - 1, SECOND]),
        ];
        let packets = schedule(adus, 1).packets;
        let seen = packets.iter().map(|p| (p.at, p.adu, p.class, p.last));
        let expected = [
            (5, 0, Class::Data, true),
            (10, 1, Class::Video, false),
            (20, 2, Class::Audio, true),
            (30, 1, Class::Video, true),
        ];
        assert!(seen.eq(expected), "{packets:?}");
        assert!(packets.iter().all(|p| p.at + p.lifetime == 5 * SECOND));
    }
}
