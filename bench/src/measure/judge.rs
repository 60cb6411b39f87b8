//! From a schedule, what the sender did and what arrived to a run's [`Measures`].

use std::collections::BTreeMap;

use super::{Delay, Measures, percent};
use crate::traffic::{Class, Schedule, receiver::Arrival, sender::Sent};

/// One ADU as it is put together from its packets.
#[derive(Clone, Copy, Debug)]
struct Adu {
    class: Class,
    stream: u16,
    bytes: u64,
    /// Began before the time that is judged.
    discarded: bool,
    /// Every packet so far arrived by its deadline.
    on_time: bool,
}

/// What one stream offered and got through.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    offered: u64,
    useful: u64,
    adus: [u64; 2],
}

/// Judges a run. `extra_delay` ns is added to every arrival: 0 unless the path has no delay of
/// its own (see `topology`). ADUs that begin in the first `discard_first` ns were sent and filled
/// the queue, but nothing that became of them counts.
pub fn judge(
    schedule: &Schedule,
    sent: &Sent,
    arrivals: &[Arrival],
    extra_delay: u64,
    discard_first: u64,
) -> Measures {
    let packets = &schedule.packets;
    let (arrived, duplicates) = Arrival::firsts(arrivals, packets.len(), extra_delay);
    let mut m = Measures {
        duplicates,
        would_block: sent.would_block,
        refused: sent.refused,
        sender_late_ms: ms(sent.latest),
        ..Measures::default()
    };
    let (mut of_class, mut adus_of_class) = ([[0; 2]; 3], [[0; 2]; 3]);
    let mut delays: [Vec<u64>; 3] = Default::default();
    let mut adus: BTreeMap<u32, Adu> = BTreeMap::new();
    for ((packet, &created), at) in packets.iter().zip(&sent.created).zip(arrived) {
        let adu = adus.entry(packet.adu).or_insert(Adu {
            class: packet.class,
            stream: packet.stream,
            bytes: 0,
            discarded: packet.at < discard_first,
            on_time: true,
        });
        if adu.discarded {
            continue;
        }
        let bytes = u64::from(packet.wire_bytes);
        let deadline = created + packet.lifetime;
        let on_time = at.is_some_and(|at| at <= deadline);
        adu.bytes += bytes;
        adu.on_time &= on_time;

        m.sent += 1;
        m.offered_bytes += bytes;
        count(&mut of_class[packet.class as usize], on_time);
        let Some(at) = at else {
            m.dropped += 1;
            continue;
        };
        m.received_bytes += bytes;
        delays[packet.class as usize].push(at.saturating_sub(created));
        if !on_time {
            m.stale_arrivals += 1;
            m.stale_bytes += bytes;
            m.latest_ms = m.latest_ms.max(ms(at - deadline));
        }
    }

    let mut streams: BTreeMap<u16, Stream> = BTreeMap::new();
    for adu in adus.values().filter(|adu| !adu.discarded) {
        let stream = streams.entry(adu.stream).or_default();
        stream.offered += adu.bytes;
        if adu.on_time {
            stream.useful += adu.bytes;
            m.useful_bytes += adu.bytes;
        }
        for counted in [
            &mut m.adus,
            &mut stream.adus,
            &mut adus_of_class[adu.class as usize],
        ] {
            count(counted, adu.on_time);
        }
    }
    if streams.len() > 1 {
        let part = |stream: &Stream| stream.useful as f64 / stream.offered as f64;
        let parts: Vec<f64> = streams.values().map(part).collect();
        m.fairness = Some(jain(&parts));
        let on_time = streams.values().map(|stream| percent(stream.adus));
        m.worst_stream = on_time.min_by(f64::total_cmp);
    }
    let seconds = schedule.duration.saturating_sub(discard_first) as f64 / 1e9;
    if seconds > 0.0 {
        m.goodput_kbit = m.useful_bytes as f64 * 8.0 / seconds / 1000.0;
    }
    [m.audio, m.video, m.data] = of_class;
    [_, m.frames, m.objects] = adus_of_class;
    [m.audio_received, m.video_received, _] = delays.each_ref().map(|all| all.len() as u64);
    [m.audio_delay, m.video_delay, m.data_delay] = delays.map(delay);
    m
}

fn count([all, part]: &mut [u64; 2], on_time: bool) {
    *all += 1;
    *part += u64::from(on_time);
}

/// Jain's index (Jain, Chiu, Hawe 1984, DEC-TR-301) of what each of n got: (Σx)² / (n Σx²).
/// 1: all got the same, or nothing; 1/n: one got all.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    match squares {
        0.0 => 1.0,
        _ => sum * sum / (shares.len() as f64 * squares),
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn delay(mut all: Vec<u64>) -> Delay {
    all.sort_unstable();
    let at = |part: f64| {
        // Nearest rank: the smallest value that at least `part` of all do not exceed.
        let rank = (part * all.len() as f64).ceil() as usize;
        all.get(rank.saturating_sub(1)).map_or(0.0, |&ns| ms(ns))
    };
    Delay {
        p50: at(0.50),
        p95: at(0.95),
        p99: at(0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sys::{MILLI, SECOND},
        traffic::{Packet, wire::Record},
    };

    /// Judges packets of 1000 bit that live 200 ms, in 2 s: of each its class, stream, ADU, when
    /// it was created and when it arrived, ms. `extra` and `discard` are ms, too.
    fn of(packets: &[(Class, u16, u32, u64, &[u64])], extra: u64, discard: u64) -> Measures {
        let start = 7 * SECOND;
        let packet = |&(class, stream, adu, at, _): &(Class, u16, u32, u64, _)| Packet {
            at: at * MILLI,
            stream,
            ..Packet::of(class, adu)
        };
        let schedule = Schedule {
            packets: packets.iter().map(packet).collect(),
            duration: 2 * SECOND,
        };
        let sent = Sent {
            created: schedule.packets.iter().map(|p| start + p.at).collect(),
            ..Sent::default()
        };
        let mut arrivals = Vec::new();
        for ((.., arrived), (sequence, &created)) in packets.iter().zip((0..).zip(&sent.created)) {
            arrivals.extend(arrived.iter().map(|ms| Arrival {
                record: Record { sequence, created },
                whole: true,
                at: start + ms * MILLI,
            }));
        }
        judge(&schedule, &sent, &arrivals, extra * MILLI, discard * MILLI)
    }

    /// An audio packet, a frame of two packets and one of one, and when each arrived.
    fn call(arrived: [&[u64]; 4], extra: u64) -> Measures {
        let [audio, first, second, other] = arrived;
        let packets = [
            (Class::Audio, 0, 0, 0, audio),
            (Class::Video, 0, 1, 0, first),
            (Class::Video, 0, 1, 0, second),
            (Class::Video, 0, 2, 0, other),
        ];
        of(&packets, extra, 0)
    }

    #[test]
    fn judge_packets_in_time_late_lost_and_doubled_are_told_apart() {
        let in_time = call([&[50], &[100], &[150], &[200]], 0);
        let late = call([&[50], &[100], &[201], &[200]], 0);
        let lost = call([&[], &[100], &[120], &[]], 0);
        let doubled = call([&[50, 60], &[], &[], &[170]], 40);
        for (m, audio, video, frames, stale, dropped, again) in [
            (&in_time, [1, 1], [3, 3], [2, 2], 0, 0, 0),
            (&late, [1, 1], [3, 2], [2, 1], 1, 0, 0),
            (&lost, [1, 0], [3, 2], [2, 1], 0, 2, 0),
            (&doubled, [1, 1], [3, 0], [2, 0], 1, 2, 1),
        ] {
            assert_eq!((m.audio, m.video, m.frames), (audio, video, frames));
            let counts = (m.stale_arrivals, m.dropped, m.duplicates);
            assert_eq!(counts, (stale, dropped, again));
        }
        assert_eq!((in_time.goodput_kbit, late.goodput_kbit), (2.0, 1.0));
        assert_eq!((late.audio_received, late.video_received), (1, 3));
        assert_eq!((late.latest_ms, doubled.audio_delay.p50), (1.0, 90.0));
        let Delay { p50, p95, p99 } = in_time.video_delay;
        assert_eq!([p50, p95, p99], [150.0, 200.0, 200.0]);
    }

    #[test]
    fn judge_interleaved_adus_are_judged_each_by_itself() {
        let data = Class::Data;
        let packets: [(_, _, _, _, &[u64]); 4] = [
            (data, 0, 0, 0, &[10]),
            (data, 0, 1, 1, &[11]),
            (data, 0, 0, 2, &[203]),
            (data, 0, 1, 3, &[13]),
        ];
        let m = of(&packets, 0, 0);
        assert_eq!((m.data, m.objects, m.adus), ([4, 3], [2, 1], [2, 1]));
        assert_eq!((m.audio, m.video, m.frames), ([0, 0], [0, 0], [0, 0]));
        assert_eq!((m.offered_bytes, m.received_bytes), (500, 500));
        assert_eq!((m.stale_bytes, m.useful_bytes), (125, 250));
        assert_eq!((m.fairness, m.worst_stream), (None, None));
    }

    #[test]
    fn judge_adu_that_begins_in_the_discarded_time_does_not_count() {
        let data = Class::Data;
        let packets: [(_, _, _, _, &[u64]); 4] = [
            (data, 0, 0, 900, &[950]),
            (data, 0, 0, 1000, &[]),
            (data, 0, 1, 1000, &[1100]),
            (data, 0, 2, 1500, &[]),
        ];
        let m = of(&packets, 0, 1000);
        assert_eq!((m.sent, m.dropped, m.objects), (2, 1, [2, 1]));
        // 125 bytes in the second that is judged.
        assert_eq!((m.data_delay.p50, m.goodput_kbit), (100.0, 1.0));
    }

    #[test]
    fn judge_streams_are_compared_by_the_useful_part_of_their_own() {
        let data = Class::Data;
        let packets: [(_, _, _, _, &[u64]); 4] = [
            (data, 0, 0, 0, &[1]),
            (data, 0, 1, 1, &[2]),
            (data, 3, 2, 2, &[3]),
            (data, 3, 3, 3, &[]),
        ];
        let m = of(&packets, 0, 0);
        // Parts 1 and 1/2: (3/2)² / (2 × 5/4).
        assert!(m.fairness.is_some_and(|f| (f - 0.9).abs() < 1e-12));
        assert_eq!(m.worst_stream, Some(50.0));
    }

    #[test]
    fn jain_of_textbook_cases() {
        for (shares, index) in [
            (&[2.0; 7][..], 1.0),
            (&[1.0, 0.0, 0.0, 0.0], 0.25),
            (&[1.0, 2.0, 3.0], 36.0 / 42.0),
            (&[0.0, 0.0], 1.0),
        ] {
            assert!((jain(shares) - index).abs() < 1e-12, "{shares:?}");
        }
    }
}
