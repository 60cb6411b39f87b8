//! A device that pushes back: what the queue sees of its rate, and what it makes of that.

use std::collections::VecDeque;

use bestby_bpf::abi::*;

use super::media::*;
use super::*;

/// What the receiver of a conference gets in time, of a hundred, and what the queue saw.
#[derive(Debug, Default)]
struct Got {
    audio: f64,
    frames: f64,
    /// The same of the frames that begin in the last second.
    at_last: f64,
    /// Bytes/s; 0: the device was never in the way.
    seen: u64,
    /// Packets that never left.
    dropped: usize,
}

/// The device that is tried.
#[derive(Clone, Copy, Debug)]
struct Device {
    /// Packets that it holds.
    holds: usize,
    /// Whether its driver counts bytes (BQL), and from where.
    counts: Option<u32>,
    /// It says at multiples of this that packets have left it, ns: as a modem on USB does.
    ticks: u64,
}

/// Two that count their bytes, one of them over the end of their numbers, one in steps; serial lines and tun, which do
/// not.
const DEVICES: [Device; 5] = [
    Device {
        holds: 2,
        counts: Some(u32::MAX - 20_000),
        ticks: 1,
    },
    Device {
        holds: 3,
        counts: Some(7),
        ticks: 10 * MS,
    },
    Device {
        holds: 1,
        counts: None,
        ticks: 1,
    },
    Device {
        holds: 2,
        counts: None,
        ticks: 1,
    },
    Device {
        holds: 3,
        counts: None,
        ticks: 1,
    },
];

/// A conference over a device.
#[derive(Clone, Debug)]
struct Trial {
    rates: Rates,
    device: Device,
    /// The rate that the operator told, bytes/s.
    told: Option<u64>,
    /// The delay that is known of the way behind the device; [`OWD`] is true.
    owd: u64,
    method: u32,
    packets: Vec<Packet>,
}

impl Trial {
    /// Nothing is told of a device with this rate, bytes/s.
    fn of(device: Device, rate: f64, seed: u64) -> Self {
        Self {
            rates: vec![(0, rate)],
            device,
            told: None,
            owd: OWD,
            method: BB_TRIAGE,
            packets: conference(SMALL, 20, seed),
        }
    }

    fn run(&self) -> Got {
        self.follow().0
    }

    /// What is got, and when each packet was out of the device.
    fn follow(&self) -> (Got, Vec<Option<u64>>) {
        let _one = ONE.lock();
        start(super::Link {
            rate: self.told.unwrap_or(0),
            overhead: 0,
            method: self.method,
            limit: 60,
            limit_bytes: 1 << 20,
        });
        // SAFETY: only one thread is here at a time.
        let begin = unsafe {
            bbn_queue_owd(self.owd);
            bbn_queue_now()
        };
        // Packets, and when they are out.
        let mut held: VecDeque<(usize, u64)> = VecDeque::new();
        let said = |at: u64| at.div_ceil(self.device.ticks) * self.device.ticks;
        let mut count = [self.device.counts.unwrap_or(0); 2];
        let mut out = vec![None; self.packets.len()];
        let mut coming = self.packets.iter().enumerate().peekable();
        let mut wakes: Option<u64> = None;
        loop {
            let next = [
                coming.peek().map(|(_, packet)| packet.at),
                held.front().map(|(_, at)| said(*at)),
                wakes,
            ];
            let Some(now) = next.into_iter().flatten().min() else {
                break;
            };
            // SAFETY: as above.
            unsafe { bbn_queue_wait((begin + now).saturating_sub(bbn_queue_now())) };
            wakes = wakes.filter(|at| *at > now);
            while let Some((n, at)) = held.pop_front_if(|(_, at)| said(*at) <= now) {
                out[n] = Some(at);
                count[1] = count[1].wrapping_add(self.packets[n].bytes);
            }
            if let Some((n, packet)) = coming.next_if(|(_, packet)| packet.at <= now) {
                // SAFETY: as above.
                unsafe { bbn_queue_stop((held.len() == self.device.holds).into()) };
                send(&packet.sent(n));
            }
            while held.len() < self.device.holds {
                if self.device.counts.is_some() {
                    // SAFETY: as above.
                    unsafe { bbn_queue_bql(count[0], count[1]) };
                }
                // SAFETY: as above.
                let (bytes, tag) = unsafe { (bbn_queue_take(), bbn_queue_taken()) };
                if bytes == 0 {
                    // SAFETY: as above.
                    let at = unsafe { bbn_queue_wakes() };
                    wakes = (at > 0).then(|| at.saturating_sub(begin));
                    break;
                }
                count[0] = count[0].wrapping_add(bytes);
                let from = held.back().map_or(now, |(_, at)| *at).max(now);
                held.push_back((tag as usize, through(&self.rates, from, bytes)));
            }
        }
        (self.judge(&out), out)
    }

    fn judge(&self, out: &[Option<u64>]) -> Got {
        let (audio, frames) = in_time(&self.packets, out, 0);
        Got {
            audio: percent(&audio),
            frames: percent(&frames),
            at_last: percent(&frames[frames.len() - 10..]),
            // SAFETY: only one thread is here at a time.
            seen: unsafe { bbn_queue_seen() },
            dropped: out.iter().filter(|out| out.is_none()).count(),
        }
    }
}

/// Sums over seeds: audio and frames, %.
fn mean(trials: impl IntoIterator<Item = Trial>) -> (f64, f64) {
    let all: Vec<Got> = trials.into_iter().map(|trial| trial.run()).collect();
    let part = |of: fn(&Got) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    (part(|got| got.audio), part(|got| got.frames))
}

/// What `bbn_queue_owd` should be, were the rate told: a packet of 1,008 bytes is out of the device
/// so much later than it begins to leave.
fn told(trial: Trial, rate: f64) -> Trial {
    Trial {
        told: Some(rate as u64),
        owd: OWD + (1_008.0 / rate * SECOND as f64) as u64,
        ..trial
    }
}

#[test]
fn a_device_that_pushes_back_needs_no_rate() {
    for (device, rate) in DEVICES
        .iter()
        .flat_map(|d| [31_625.0, 23_750.0].map(|r| (*d, r)))
    {
        // Three packets of 24 kB/s take most of the lifetime.
        if device.holds == 3 && rate < 30_000.0 {
            continue;
        }
        let trial = |seed| Trial::of(device, rate, seed);
        let (audio, frames) = mean((1..=4).map(trial));
        let (_, with_rate) = mean((1..=4).map(|seed| told(trial(seed), rate)));
        let (_, by_priority) = mean((1..=4).map(|seed| Trial {
            method: BB_RING_SFDPS2,
            ..trial(seed)
        }));
        println!(
            "{device:?} at {rate}: audio {audio:.1} %, frames {frames:.1} % \
             ({with_rate:.1} % told, {by_priority:.1} % by priority)"
        );
        assert!(audio > 99.5 && frames >= 0.95 * with_rate && frames > 1.1 * by_priority);
        let seen = trial(1).run().seen as f64;
        // Steps of 10 ms are much of the time that is measured.
        let exact = if device.ticks > 1 { 0.12 } else { 0.05 };
        assert!((seen / rate - 1.0).abs() < exact, "{seen} of {rate}");
    }
}

#[test]
fn of_a_rate_that_was_told_and_what_the_device_takes_the_lower_one_counts() {
    let rate = 31_625.0;
    // Of one that holds more, and does not say so, nobody learns that while packets are paced.
    for device in DEVICES.into_iter().filter(|device| device.holds < 3) {
        let trial = |seed| Trial::of(device, rate, seed);
        let (_, with_rate) = mean((1..=4).map(|seed| told(trial(seed), rate)));
        let (audio, frames) = mean((1..=4).map(|seed| Trial {
            told: Some(2 * rate as u64),
            ..trial(seed)
        }));
        println!("{device:?}: audio {audio:.1} %, frames {frames:.1} % ({with_rate:.1} % told)");
        assert!(audio > 99.5 && frames >= 0.9 * with_rate);
    }
}

#[test]
fn a_device_that_takes_everything_is_never_in_the_way() {
    for told in [None, Some(31_625)] {
        let got = Trial {
            told,
            ..Trial::of(
                Device {
                    holds: 1_000,
                    counts: None,
                    ticks: 1,
                },
                1e9,
                1,
            )
        }
        .run();
        assert_eq!(got.seen, 0, "{told:?}: {got:?}");
        // What is told is paced, and given up by that; nothing else is.
        assert_eq!(got.dropped == 0, told.is_none(), "{told:?}: {got:?}");
    }
}

#[test]
fn a_rate_that_fell_is_tried_out_until_it_has_risen() {
    for device in DEVICES {
        let rates = vec![(0, 60_000.0), (6 * SECOND, 6_000.0), (9 * SECOND, 60_000.0)];
        let got = Trial {
            rates,
            packets: conference(SMALL, 14, 3),
            ..Trial::of(device, 0.0, 3)
        }
        .run();
        println!("{device:?}: {got:?}");
        assert!(got.at_last >= 90.0, "{device:?}: {got:?}");
    }
}

#[test]
fn a_rate_at_which_no_packet_is_in_time_keeps_none_from_an_idle_device() {
    for device in DEVICES {
        // At first a packet alone takes longer than it may. Then the device is always idle when one comes.
        let packets = (0..400).map(|n| Packet {
            at: u64::from(n) * 20 * MS,
            frame: Some(n),
            bytes: 500,
        });
        let trial = Trial {
            rates: vec![(0, 3_000.0), (2 * SECOND, 600_000.0)],
            packets: packets.collect(),
            ..Trial::of(device, 0.0, 1)
        };
        let (_, out) = trial.follow();
        let came = out[250..].iter().flatten().count();
        println!("{device:?}: {came} of the last 150");
        assert!(came >= 148, "{device:?}: {came} of 150");
    }
}

#[test]
fn a_rate_of_long_ago_is_forgotten() {
    for device in DEVICES {
        // Slow and full for two seconds, then idle for twelve, and a hundred times as fast. Each frame is one packet,
        // which a device that is not idle would not bring in time at the rate of before.
        let slow = (0..100).map(|n| (n * 20 * MS, 500));
        let fast = (0..200).map(|n| (14 * SECOND + n * 10 * MS, 1_000));
        let packets = slow.chain(fast).zip(0..).map(|((at, bytes), n)| Packet {
            at,
            frame: Some(n),
            bytes,
        });
        let trial = Trial {
            rates: vec![(0, 6_000.0), (10 * SECOND, 600_000.0)],
            packets: packets.collect(),
            ..Trial::of(device, 0.0, 1)
        };
        let (_, out) = trial.follow();
        assert_eq!(out[100..].iter().flatten().count(), 200, "{device:?}");
    }
}

#[test]
fn a_rate_that_wanders_is_followed() {
    let rate = 31_625.0;
    for device in DEVICES {
        let trial = |seed| Trial {
            rates: wandering(rate, 30, seed),
            packets: conference(SMALL, 30, seed),
            ..Trial::of(device, rate, seed)
        };
        let (audio, frames) = mean((1..=8).map(trial));
        let (told_audio, told_frames) = mean((1..=8).map(|seed| told(trial(seed), rate)));
        println!(
            "{device:?}: audio {audio:.1} %, frames {frames:.1} %; the mean told {told_audio:.1} %, {told_frames:.1} %"
        );
        assert!(frames >= 1.15 * told_frames && audio >= told_audio - 2.0);
    }
}
