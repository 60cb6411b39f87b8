//! What became of a run's packets, judged from what was sent and what arrived.

use serde::{Deserialize, Serialize};

use crate::traffic::{Class, Schedule, receiver::Arrival, sender::Sent};

/// Delay from creation to arrival, ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// Half of the packets were faster.
    pub p50: f64,
    /// 95 % were.
    pub p95: f64,
    /// 99 % were.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

/// The measures of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// Packets offered.
    pub sent: u64,
    /// Audio packets offered / arrived by their deadline.
    pub audio: [u64; 2],
    /// Video packets offered / arrived by their deadline.
    pub video: [u64; 2],
    /// Video frames offered / complete, every packet by its deadline.
    pub frames: [u64; 2],
    /// Data packets offered / arrived by their deadline.
    pub data: [u64; 2],
    /// Data objects offered / complete, every packet by its deadline.
    pub objects: [u64; 2],
    /// Packets that arrived after their deadline.
    pub stale_arrivals: u64,
    /// Packets that never arrived.
    pub dropped: u64,
    /// Packets that arrived more than once: 0 unless something is broken.
    pub duplicates: u64,
    /// Longest time in ms by which a stale packet missed its deadline.
    pub latest_ms: f64,
    /// Useful bytes (audio on time, complete frames) in kbit/s of the run's length.
    pub goodput_kbit: f64,
    /// Delay of the audio packets that arrived.
    pub audio_delay: Delay,
    /// Delay of the video packets that arrived.
    pub video_delay: Delay,
    /// Delay of the data packets that arrived.
    pub data_delay: Delay,
    /// Packets that the sender's own socket refused (never offered to the queue).
    pub would_block: u64,
    /// Packets that the kernel refused otherwise.
    pub refused: u64,
    /// Longest time in ms by which the sender itself was late.
    pub sender_late_ms: f64,
}

impl Measures {
    /// Audio packets on time, in percent.
    pub fn audio_on_time(&self) -> f64 {
        percent(self.audio)
    }

    /// Video packets on time, in percent.
    pub fn video_on_time(&self) -> f64 {
        percent(self.video)
    }

    /// Complete video frames on time, in percent.
    pub fn frames_on_time(&self) -> f64 {
        percent(self.frames)
    }

    /// Stale arrivals in percent of the packets offered.
    pub fn stale_percent(&self) -> f64 {
        percent([self.sent, self.stale_arrivals])
    }

    /// Several runs as one: counts are added, delays and rates averaged, maxima kept.
    pub fn merge(runs: &[Self]) -> Self {
        let mut all = Self::default();
        let count = runs.len().max(1) as f64;
        for run in runs {
            all.sent += run.sent;
            for (sum, part) in [
                (&mut all.audio, run.audio),
                (&mut all.video, run.video),
                (&mut all.frames, run.frames),
                (&mut all.data, run.data),
                (&mut all.objects, run.objects),
            ] {
                sum[0] += part[0];
                sum[1] += part[1];
            }
            all.stale_arrivals += run.stale_arrivals;
            all.dropped += run.dropped;
            all.duplicates += run.duplicates;
            all.latest_ms = all.latest_ms.max(run.latest_ms);
            all.goodput_kbit += run.goodput_kbit / count;
            for (sum, part) in [
                (&mut all.audio_delay, run.audio_delay),
                (&mut all.video_delay, run.video_delay),
                (&mut all.data_delay, run.data_delay),
            ] {
                sum.p50 += part.p50 / count;
                sum.p95 += part.p95 / count;
                sum.p99 += part.p99 / count;
                sum.max = sum.max.max(part.max);
            }
            all.would_block += run.would_block;
            all.refused += run.refused;
            all.sender_late_ms = all.sender_late_ms.max(run.sender_late_ms);
        }
        all
    }
}

fn percent([of, part]: [u64; 2]) -> f64 {
    if of == 0 {
        0.0
    } else {
        part as f64 * 100.0 / of as f64
    }
}

/// Judges a run. `extra_delay` ns is added to every arrival: 0 unless the path
/// has no delay of its own (see `topology`).
pub fn judge(schedule: &Schedule, sent: &Sent, arrivals: &[Arrival], extra_delay: u64) -> Measures {
    let packets = &schedule.packets;
    let mut arrived: Vec<Option<u64>> = vec![None; packets.len()];
    let mut m = Measures {
        sent: packets.len() as u64,
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
    let mut useful = 0;
    // ADU under way: its number, bytes, and whether every packet so far was on time.
    let mut frame = (0, 0, true);
    for ((packet, &created), at) in packets.iter().zip(&sent.created).zip(&arrived) {
        let deadline = created + packet.lifetime;
        let on_time = at.is_some_and(|at| at <= deadline);
        match *at {
            None => m.dropped += 1,
            Some(at) => {
                delays[packet.class as usize].push(at.saturating_sub(created));
                if at > deadline {
                    m.stale_arrivals += 1;
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
        match packet.class {
            Class::Audio if on_time => useful += u64::from(packet.wire_bytes),
            Class::Audio => {}
            Class::Video | Class::Data => {
                if frame.0 != packet.adu {
                    frame = (packet.adu, 0, true);
                }
                frame.1 += u64::from(packet.wire_bytes);
                frame.2 &= on_time;
                if packet.last {
                    let count = match packet.class {
                        Class::Data => &mut m.objects,
                        _ => &mut m.frames,
                    };
                    count[0] += 1;
                    count[1] += u64::from(frame.2);
                    useful += if frame.2 { frame.1 } else { 0 };
                    frame = (0, 0, true);
                }
            }
        }
    }
    m.goodput_kbit = useful as f64 * 8.0 / (schedule.duration as f64 / 1e9) / 1000.0;
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

    #[test]
    fn runs_add_up() {
        let a = run(&[(0, 50), (1, 100), (2, 150), (3, 200)], 0);
        let b = run(&[(1, 100), (2, 120)], 0);
        let m = Measures::merge(&[a, b]);
        assert_eq!((m.audio, m.frames, m.dropped), ([2, 1], [4, 3], 2));
        assert!((m.goodput_kbit - 3.0).abs() < 1e-9);
    }
}
