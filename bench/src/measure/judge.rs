//! From a schedule, what the sender did and what arrived to a run's [`Measures`].

use super::{Delay, Measures, fairness, percent};
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

/// Judges a whole run. `extra_delay` ns is added to every arrival: 0 unless the path
/// has no delay of its own (see `topology`).
pub fn judge(schedule: &Schedule, sent: &Sent, arrivals: &[Arrival], extra_delay: u64) -> Measures {
    judge_after(schedule, sent, arrivals, extra_delay, 0)
}

/// The same without the ADUs that begin in the first `discard_first` ns: they were sent
/// and filled the queue, but nothing that became of them counts.
pub fn judge_after(
    schedule: &Schedule,
    sent: &Sent,
    arrivals: &[Arrival],
    extra_delay: u64,
    discard_first: u64,
) -> Measures {
    let packets = &schedule.packets;
    let mut arrived: Vec<Option<u64>> = vec![None; packets.len()];
    let mut m = Measures {
        would_block: sent.would_block.iter().chain(&sent.no_buffers).sum(),
        refused: sent.refused,
        sender_late_ms: ms(sent.latest),
        ..Measures::default()
    };
    for arrival in arrivals {
        let Some(slot) = arrived.get_mut(arrival.record.sequence as usize) else {
            continue;
        };
        if slot.is_some() {
            m.duplicates += 1;
            continue;
        }
        *slot = Some(arrival.at + extra_delay);
    }

    let mut delays: [Vec<u64>; 3] = Default::default();
    let mut adus: Vec<Option<Adu>> = Vec::new();
    for ((packet, &created), at) in packets.iter().zip(&sent.created).zip(&arrived) {
        let index = packet.adu as usize;
        if index >= adus.len() {
            adus.resize(index + 1, None);
        }
        let adu = adus[index].get_or_insert(Adu {
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
        match *at {
            None => m.dropped += 1,
            Some(at) => {
                m.received_bytes += bytes;
                m.audio_received += u64::from(packet.class == Class::Audio);
                m.video_received += u64::from(packet.class == Class::Video);
                delays[packet.class as usize].push(at.saturating_sub(created));
                if at > deadline {
                    m.stale_arrivals += 1;
                    m.stale_bytes += bytes;
                    m.latest_ms = m.latest_ms.max(ms(at - deadline));
                }
            }
        }
        let count = match packet.class {
            Class::Audio => &mut m.audio,
            Class::Video => &mut m.video,
            Class::Data => &mut m.data,
        };
        count[0] += 1;
        count[1] += u64::from(on_time);
    }

    let mut streams: Vec<Stream> = Vec::new();
    for adu in adus.iter().flatten().filter(|adu| !adu.discarded) {
        let index = usize::from(adu.stream);
        if index >= streams.len() {
            streams.resize(index + 1, Stream::default());
        }
        let stream = &mut streams[index];
        let useful = if adu.on_time { adu.bytes } else { 0 };
        stream.offered += adu.bytes;
        stream.useful += useful;
        m.useful_bytes += useful;
        let of_class = match adu.class {
            Class::Audio => None,
            Class::Video => Some(&mut m.frames),
            Class::Data => Some(&mut m.objects),
        };
        for count in [Some(&mut m.adus), Some(&mut stream.adus), of_class]
            .into_iter()
            .flatten()
        {
            count[0] += 1;
            count[1] += u64::from(adu.on_time);
        }
    }
    streams.retain(|stream| stream.offered > 0);
    if streams.len() > 1 {
        let parts: Vec<f64> = streams
            .iter()
            .map(|stream| stream.useful as f64 / stream.offered as f64)
            .collect();
        m.fairness = fairness::jain(&parts);
        m.worst_stream = streams
            .iter()
            .map(|stream| percent(stream.adus))
            .min_by(f64::total_cmp);
    }
    let seconds = schedule.duration.saturating_sub(discard_first) as f64 / 1e9;
    if seconds > 0.0 {
        m.goodput_kbit = m.useful_bytes as f64 * 8.0 / seconds / 1000.0;
    }
    let [audio, video, data] = delays;
    m.audio_delay = delay(audio);
    m.video_delay = delay(video);
    m.data_delay = delay(data);
    m
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
        max: at(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sys::MILLI,
        traffic::{Packet, wire::Record},
    };

    fn packet(class: Class, adu: u32, last: bool) -> Packet {
        Packet {
            at: 0,
            lifetime: 200 * MILLI,
            class,
            priority: class.priority(),
            stream: 0,
            adu,
            last,
            wire_bytes: 125,
        }
    }

    /// One audio packet, a frame of two packets and one of one; 1 s.
    fn schedule() -> Schedule {
        Schedule {
            packets: vec![
                packet(Class::Audio, 0, true),
                packet(Class::Video, 1, false),
                packet(Class::Video, 1, true),
                packet(Class::Video, 2, true),
            ],
            duration: 1_000 * MILLI,
        }
    }

    fn run(times: &[(u32, u64)], extra: u64) -> Measures {
        let schedule = schedule();
        let start = 5 * crate::sys::SECOND;
        let sent = Sent {
            created: vec![start; 4],
            ..Sent::default()
        };
        let arrivals: Vec<Arrival> = times
            .iter()
            .map(|&(sequence, ms)| Arrival {
                record: Record {
                    class: Class::Audio,
                    stream: 0,
                    last: true,
                    sequence,
                    adu: 0,
                    created: start,
                    deadline: 0,
                },
                at: start + ms * MILLI,
            })
            .collect();
        judge(&schedule, &sent, &arrivals, extra)
    }

    #[test]
    fn all_in_time() {
        let m = run(&[(0, 50), (1, 100), (2, 150), (3, 200)], 0);
        assert_eq!((m.audio, m.video, m.frames), ([1, 1], [3, 3], [2, 2]));
        assert_eq!((m.stale_arrivals, m.dropped), (0, 0));
        assert!((m.goodput_kbit - 4.0).abs() < 1e-9);
        assert_eq!(
            m.video_delay,
            Delay {
                p50: 150.0,
                p95: 200.0,
                p99: 200.0,
                max: 200.0
            }
        );
    }

    #[test]
    fn a_late_packet_spoils_its_frame_only() {
        let m = run(&[(0, 50), (1, 100), (2, 201), (3, 200)], 0);
        assert_eq!((m.video, m.frames, m.stale_arrivals), ([3, 2], [2, 1], 1));
        assert_eq!(
            (m.audio_received, m.video_received),
            (1, 3),
            "late ones, too"
        );
        assert!((m.latest_ms - 1.0).abs() < 1e-9);
        assert!((m.goodput_kbit - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_lost_packet_is_dropped_not_stale() {
        let m = run(&[(1, 100), (2, 120)], 0);
        assert_eq!(
            (m.audio, m.frames, m.stale_arrivals, m.dropped),
            ([1, 0], [2, 1], 0, 2)
        );
        assert!((m.audio_on_time() - 0.0).abs() < 1e-9);
        assert!((m.frames_on_time() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn duplicates_count_once_and_extra_delay_counts() {
        let m = run(&[(0, 50), (0, 60), (3, 170)], 40 * MILLI);
        assert_eq!((m.audio, m.duplicates, m.stale_arrivals), ([1, 1], 1, 1));
        assert!((m.audio_delay.p50 - 90.0).abs() < 1e-9);
    }

    /// Judges packets of which each has (stream, ADU, created at ms, arrived at ms or not).
    fn of(packets: &[(u16, u32, u64, Option<u64>)], discard_first: u64) -> Measures {
        let start = 7 * crate::sys::SECOND;
        let schedule = Schedule {
            packets: packets
                .iter()
                .map(|&(stream, adu, at, _)| Packet {
                    at: at * MILLI,
                    stream,
                    ..packet(Class::Data, adu, false)
                })
                .collect(),
            duration: 2_000 * MILLI,
        };
        let sent = Sent {
            created: schedule.packets.iter().map(|p| start + p.at).collect(),
            would_block: [1, 2, 3],
            no_buffers: [0, 1, 0],
            ..Sent::default()
        };
        let arrivals: Vec<Arrival> = (0..)
            .zip(packets)
            .filter_map(|(sequence, &(stream, adu, at, arrived))| {
                let created = start + at * MILLI;
                Some(Arrival {
                    record: Record {
                        class: Class::Data,
                        stream,
                        last: false,
                        sequence,
                        adu,
                        created,
                        deadline: created + 200 * MILLI,
                    },
                    at: start + arrived? * MILLI,
                })
            })
            .collect();
        judge_after(&schedule, &sent, &arrivals, 0, discard_first)
    }

    #[test]
    fn interleaved_adus_are_judged_each_by_itself() {
        let m = of(
            &[
                (0, 0, 0, Some(10)),
                (0, 1, 1, Some(11)),
                (0, 0, 2, Some(203)),
                (0, 1, 3, Some(13)),
            ],
            0,
        );
        assert_eq!((m.data, m.objects, m.adus), ([4, 3], [2, 1], [2, 1]));
        assert_eq!((m.audio, m.video, m.frames), ([0, 0], [0, 0], [0, 0]));
        assert_eq!((m.offered_bytes, m.received_bytes), (500, 500));
        assert_eq!((m.stale_bytes, m.useful_bytes), (125, 250));
        assert_eq!((m.would_block, m.data_delay.max), (7, 201.0));
        assert_eq!((m.fairness, m.worst_stream), (None, None));
    }

    #[test]
    fn what_begins_in_the_first_seconds_does_not_count() {
        // ADU 0 begins before the second second and ends in it: not judged.
        let m = of(
            &[
                (0, 0, 900, Some(950)),
                (0, 0, 1000, None),
                (0, 1, 1000, Some(1100)),
                (0, 2, 1500, None),
            ],
            1_000 * MILLI,
        );
        assert_eq!((m.sent, m.dropped, m.objects), (2, 1, [2, 1]));
        assert_eq!(m.data_delay.p50, 100.0);
        // 125 bytes in the second that is judged.
        assert!((m.goodput_kbit - 1.0).abs() < 1e-9);
    }

    #[test]
    fn streams_are_compared_by_the_part_of_their_own_that_was_useful() {
        let m = of(
            &[
                (0, 0, 0, Some(1)),
                (0, 1, 1, Some(2)),
                (3, 2, 2, Some(3)),
                (3, 3, 3, None),
            ],
            0,
        );
        // Parts 1 and 1/2: (3/2)² / (2 × 5/4).
        assert!(m.fairness.is_some_and(|f| (f - 0.9).abs() < 1e-12));
        assert_eq!(m.worst_stream, Some(50.0));
    }
}
