//! A router behind us whose rate nobody tells: what the law of `bb_auto.h` makes of its queue.

use std::collections::BTreeMap;

use bestby_bpf::abi::*;
use proptest::prelude::*;

use super::media::*;
use super::*;

/// Bytes of a large packet: half of one is the mean wait for what leaves.
const PACKET: f64 = 1_228.0;
/// An echo request with all its headers.
const PROBE: u32 = 62;
/// `enum bb_auto_state`.
const FOLLOWS: u32 = 1;
const OTHERS: u32 = 2;
const SILENT: u32 = 3;
/// Before the media, so that the least round trip is known.
const BEFORE: u64 = 2 * SECOND;

/// What the queue is told.
#[derive(Clone, Debug)]
enum Told {
    Nothing,
    /// Bytes/s.
    Rate(f64),
    /// The router's rate, whenever it changes.
    Truth,
    /// Nothing, but the law follows a probe each so many ns.
    Auto(u64),
}

/// A download of another host, from when to when, ns.
type Download = Option<(u64, u64)>;

#[derive(Clone, Debug)]
struct Trial {
    rates: Rates,
    /// The longest queue of the router, ns.
    holds: u64,
    told: Told,
    packets: Vec<Packet>,
    /// Round trip without a queue, ns.
    round_trip: u64,
    /// By how much answers are later: ns of a draw from 0 to 1.
    jitter: fn(&mut Drawn) -> u64,
    /// The way gets longer by so many ns, at so many.
    longer: (u64, u64),
    download: Download,
    /// From when on no answer comes.
    silent: u64,
    /// Another receiver is asked, too: its way is longer by this, and after 5 s its answers come so much later.
    another: Option<(u64, u64)>,
    /// When the first one is asked.
    asked_from: u64,
}

#[derive(Debug, Default)]
struct Got {
    audio: f64,
    /// Without the first five seconds.
    audio_later: f64,
    frames_later: f64,
    /// While the download ran.
    audio_during: f64,
    rate: u64,
    state: u32,
    dropped: usize,
    /// The longest wait in the router, ns.
    longest: u64,
}

/// Sends in order of arrival.
struct Router<'a> {
    trial: &'a Trial,
    /// When it has sent all that it holds.
    free: u64,
    longest: u64,
}

impl Router<'_> {
    /// When a packet that comes at `now` is on its way; `None`: there is no room for it.
    fn takes(&mut self, now: u64, bytes: u32) -> Option<u64> {
        let wait = self.free.saturating_sub(now);
        if wait > self.trial.holds {
            return None;
        }
        self.longest = self.longest.max(wait);
        self.free = through(&self.trial.rates, self.free.max(now), bytes);
        let (from, longer) = self.trial.longer;
        Some(self.free + if now >= from { longer } else { 0 })
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Media(usize),
    Wake,
    Probe,
    Answer(u32),
    /// A download's acknowledgement, or that a packet of it was lost.
    Acknowledged(bool),
}

impl Trial {
    fn of(told: Told, rate: f64, video: Video, seed: u64) -> Self {
        let mut packets = conference(video, 30, seed);
        for packet in &mut packets {
            packet.at += BEFORE;
        }
        Self {
            rates: vec![(0, rate)],
            holds: SECOND,
            told,
            packets,
            round_trip: 80 * MS,
            jitter: |_| 0,
            longer: (u64::MAX, 0),
            download: None,
            silent: u64::MAX,
            another: None,
            asked_from: 0,
        }
    }

    fn rate_at(&self, at: u64) -> f64 {
        self.rates[self.rates.partition_point(|(from, _)| *from <= at).max(1) - 1].1
    }

    fn run(&self) -> Got {
        let _one = ONE.lock();
        super::start(super::Link {
            rate: 0,
            overhead: 0,
            method: BB_TRIAGE,
            limit: 250,
            limit_bytes: 1 << 20,
        });
        // SAFETY: only one thread is here at a time.
        let begin = unsafe {
            bbn_auto_start(8_000, 0);
            bbn_queue_now()
        };
        let mut probes = 0_u32;
        let mut drawn = Drawn(7);
        let mut events: BTreeMap<(u64, u64), Event> = BTreeMap::new();
        let mut number = 0;
        let mut at = |events: &mut BTreeMap<_, _>, when: u64, event: Event| {
            number += 1;
            events.insert((when, number), event);
        };
        for n in 0..self.packets.len() {
            at(&mut events, self.packets[n].at, Event::Media(n));
        }
        at(&mut events, 37 * MS + self.asked_from, Event::Probe);
        if let Some((from, _)) = self.download {
            at(&mut events, from, Event::Acknowledged(true));
        }
        let end = self.packets.last().map_or(0, |packet| packet.at) + 2 * SECOND;
        let mut out = vec![None; self.packets.len()];
        let mut got = Got::default();
        // The download's window.
        let (mut window, mut flying, mut slow, mut lost_ns) = (10.0, 0_u32, 1e9, 0);
        let mut router = Router {
            trial: self,
            free: 0,
            longest: 0,
        };
        while let Some(((now, _), event)) = events.pop_first() {
            if now > end {
                break;
            }
            // SAFETY: as above.
            unsafe { bbn_queue_wait((begin + now).saturating_sub(bbn_queue_now())) };
            match event {
                Event::Media(n) => {
                    send(&self.packets[n].sent(n));
                    // Packets of one moment are looked at together.
                    if events.first_key_value().is_some_and(|((at, _), event)| {
                        *at == now && matches!(event, Event::Media(_))
                    }) {
                        continue;
                    }
                }
                Event::Probe => {
                    let Told::Auto(spacing) = self.told else {
                        continue;
                    };
                    probes += 1;
                    let end = u32::from(self.another.is_some() && probes.is_multiple_of(2));
                    // SAFETY: as above.
                    let (marker, wanted) = unsafe {
                        bbn_auto_sent(PROBE);
                        (bbn_auto_leaves(end), bbn_auto_wanted())
                    };
                    if let Some(there) = router.takes(now, PROBE).filter(|_| now < self.silent) {
                        let mut back = there + self.round_trip + (self.jitter)(&mut drawn);
                        if end == 1 {
                            let (longer, late) = self.another.unwrap_or_default();
                            back += longer + if now > 5 * SECOND { late } else { 0 };
                        }
                        at(&mut events, back, Event::Answer(marker));
                    }
                    let busy = wanted > 0 && begin + now - wanted < 10 * SECOND;
                    // The agent's are a part of what is sent.
                    let busy = busy || self.asked_from > 0;
                    let next = if busy { spacing } else { spacing.max(SECOND) };
                    at(&mut events, now + next, Event::Probe);
                }
                // SAFETY: as above.
                Event::Answer(marker) => unsafe { bbn_auto_hears(marker) },
                Event::Wake => (),
                Event::Acknowledged(came) => {
                    flying = flying.saturating_sub(1);
                    if came {
                        window += if window < slow { 1.0 } else { 1.0 / window };
                    } else if now > lost_ns {
                        lost_ns = now + 300 * MS + router.free.saturating_sub(now);
                        window = f64::max(2.0, window / 2.0);
                        slow = window;
                    }
                    let (from, to) = self.download.unwrap_or_default();
                    while f64::from(flying) < window.floor() && (from..to).contains(&now) {
                        flying += 1;
                        let there = router.takes(now, 1290);
                        let back = there.unwrap_or(now + self.holds) + self.round_trip;
                        at(&mut events, back, Event::Acknowledged(there.is_some()));
                    }
                }
            }
            // SAFETY: as above.
            unsafe {
                match self.told {
                    Told::Nothing => bbn_queue_owd(OWD),
                    Told::Rate(rate) => {
                        bbn_queue_rate(rate as u64);
                        bbn_queue_owd(OWD + (PACKET / rate * SECOND as f64) as u64 / 2);
                    }
                    Told::Truth => {
                        let rate = self.rate_at(now);
                        bbn_queue_rate(rate as u64);
                        bbn_queue_owd(OWD + (PACKET / rate * SECOND as f64) as u64 / 2);
                    }
                    Told::Auto(_) => {
                        bbn_auto_look();
                        bbn_queue_owd(OWD + bbn_auto_behind());
                    }
                }
                loop {
                    let (bytes, tag) = (bbn_queue_take(), bbn_queue_taken());
                    if bytes == 0 {
                        break;
                    }
                    bbn_auto_sent(bytes);
                    out[tag as usize] = router.takes(now, bytes);
                }
                let wakes = bbn_queue_wakes();
                if wakes > 0 {
                    at(
                        &mut events,
                        (wakes.saturating_sub(begin)).max(now + 1),
                        Event::Wake,
                    );
                }
            }
        }
        let (audio, _) = in_time(&self.packets, &out, 0);
        let (later, frames_later) = in_time(&self.packets, &out, BEFORE + 5 * SECOND);
        got.audio = percent(&audio);
        got.audio_later = percent(&later);
        got.frames_later = percent(&frames_later);
        if let Some((from, to)) = self.download {
            let during: Vec<usize> = (0..out.len())
                .filter(|n| (from + SECOND..to).contains(&self.packets[*n].at))
                .collect();
            let packets: Vec<Packet> = during.iter().map(|n| self.packets[*n]).collect();
            let out: Vec<Option<u64>> = during.iter().map(|n| out[*n]).collect();
            got.audio_during = percent(&in_time(&packets, &out, 0).0);
        }
        got.longest = router.longest;
        got.dropped = out.iter().filter(|out| out.is_none()).count();
        // SAFETY: as above.
        unsafe {
            got.rate = bbn_auto_rate();
            got.state = bbn_auto_state();
        }
        got
    }
}

fn mean(trials: impl IntoIterator<Item = Trial>) -> Got {
    let all: Vec<Got> = trials.into_iter().map(|trial| trial.run()).collect();
    let part = |of: fn(&Got) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    Got {
        audio: part(|got| got.audio),
        audio_later: part(|got| got.audio_later),
        frames_later: part(|got| got.frames_later),
        audio_during: part(|got| got.audio_during),
        ..Got::default()
    }
}

/// The same conferences, once by the law, once with a queue that is told something.
fn compare(name: &str, told: &Told, trial: impl Fn(Told, u64) -> Trial, spacing: u64) -> [Got; 2] {
    let of = |told: &Told| mean((11..=12).map(|seed| trial(told.clone(), seed)));
    let [law, other] = [of(&Told::Auto(spacing)), of(told)];
    println!(
        "{name}: audio {:.1} %, frames {:.1} %; {told:?}: {:.1} %, {:.1} %",
        law.audio_later, law.frames_later, other.audio_later, other.frames_later
    );
    [law, other]
}

/// Bytes/s, and at which of them a packet takes a third of a frame's time.
const RATE: f64 = 2_300_000.0 / 8.0;
const SLOW: f64 = 253_000.0 / 8.0;

fn large(told: Told, seed: u64) -> Trial {
    Trial::of(told, RATE, LARGE, seed)
}

fn small(told: Told, seed: u64) -> Trial {
    Trial::of(told, SLOW, SMALL, seed)
}

/// Half of the rate, from 10 to 20 s.
fn half(trial: Trial) -> Trial {
    let rate = trial.rates[0].1;
    Trial {
        rates: vec![
            (0, rate),
            (BEFORE + 10 * SECOND, rate / 2.0),
            (BEFORE + 20 * SECOND, rate),
        ],
        ..trial
    }
}

fn wanders(trial: Trial, seed: u64) -> Trial {
    Trial {
        rates: wandering(trial.rates[0].1, 34, seed),
        ..trial
    }
}

#[test]
fn a_constant_rate_is_found() {
    let [law, told] = compare("2.3 Mbit/s", &Told::Rate(RATE), large, 50 * MS);
    assert!(law.audio_later >= 99.0 && law.frames_later >= 0.95 * told.frames_later);
    let [law, told] = compare("253 kbit/s", &Told::Rate(SLOW), small, 100 * MS);
    assert!(law.audio_later >= 98.0 && law.frames_later >= 0.8 * told.frames_later);
}

#[test]
fn a_rate_that_is_halved_and_back_is_followed() {
    let trial = |told, seed| half(large(told, seed));
    let [law, truth] = compare("2.3 Mbit/s", &Told::Truth, trial, 50 * MS);
    assert!(law.audio_later >= 98.0 && law.frames_later >= 0.85 * truth.frames_later);
    // The frame that shows a slower link takes a third of a second of it.
    let trial = |told, seed| half(small(told, seed));
    let [law, told] = compare("253 kbit/s", &Told::Rate(SLOW), trial, 100 * MS);
    assert!(law.audio_later >= 95.0 && law.frames_later > told.frames_later);
}

#[test]
fn a_rate_that_wanders_is_followed() {
    let trial = |told, seed| wanders(large(told, seed), seed);
    let [law, told] = compare("2.3 Mbit/s", &Told::Rate(RATE), trial, 50 * MS);
    assert!(law.audio_later >= 92.0 && law.frames_later > 1.25 * told.frames_later);
    let trial = |told, seed| wanders(small(told, seed), seed);
    let [law, told] = compare("253 kbit/s", &Told::Rate(SLOW), trial, 100 * MS);
    assert!(law.audio_later >= 75.0 && law.frames_later > 1.1 * told.frames_later);
}

#[test]
fn a_path_that_is_wide_enough_loses_nothing() {
    for seed in 11..=12 {
        let got = Trial {
            rates: vec![(0, 3.0 * RATE)],
            ..large(Told::Auto(50 * MS), seed)
        }
        .run();
        assert_eq!(got.dropped, 0, "{got:?}");
        assert!(got.audio == 100.0 && got.longest < 30 * MS, "{got:?}");
    }
}

#[test]
fn a_queue_that_was_full_before_anybody_asked_is_emptied() {
    for holds in [SECOND, 300 * MS] {
        let trial = |told, seed| Trial {
            asked_from: 6 * SECOND,
            holds,
            ..large(told, seed)
        };
        let [law, told] = compare("full", &Told::Rate(RATE), trial, 50 * MS);
        // Nobody was asked for the first of the seconds that count, and emptying it takes some.
        assert!(law.audio_later >= 80.0 && law.frames_later >= 0.75 * told.frames_later);
    }
    let got = Trial {
        asked_from: 6 * SECOND,
        rates: vec![(0, 3.0 * RATE)],
        ..large(Told::Auto(50 * MS), 11)
    }
    .run();
    assert!(got.dropped == 0 && got.audio == 100.0, "{got:?}");
}

#[test]
fn one_receiver_that_answers_late_slows_nobody_down() {
    for (longer, late) in [(0, 30), (100, 400)] {
        let another = Some((longer * MS, late * MS));
        let got = Trial {
            rates: vec![(0, 3.0 * RATE)],
            another,
            ..large(Told::Auto(50 * MS), 11)
        }
        .run();
        assert!(got.dropped == 0 && got.audio == 100.0, "{late}: {got:?}");
        let trial = |told, seed| Trial {
            another,
            ..large(told, seed)
        };
        let [law, told] = compare("another", &Told::Rate(RATE), trial, 50 * MS);
        assert!(law.audio_later >= 99.0 && law.frames_later >= 0.9 * told.frames_later);
        let [law, truth] = compare(
            "... halved",
            &Told::Truth,
            |t, s| half(trial(t, s)),
            50 * MS,
        );
        assert!(law.audio_later >= 97.0 && law.frames_later >= 0.8 * truth.frames_later);
    }
}

#[test]
fn answers_that_are_late_without_a_queue_cost_little() {
    // As in a wireless network: 8 ms, and one of twenty 30 to 60 ms.
    let jitter: fn(&mut Drawn) -> u64 = |drawn| match drawn.part() {
        rare if rare < 0.05 => 30 * MS + (drawn.part() * 30e6) as u64,
        _ => (drawn.part() * 8e6) as u64,
    };
    let trial = |told, seed| Trial {
        jitter,
        ..large(told, seed)
    };
    let [law, told] = compare("jitter", &Told::Rate(RATE), trial, 50 * MS);
    assert!(law.audio_later >= 98.0 && law.frames_later >= 0.8 * told.frames_later);
}

#[test]
fn a_path_that_gets_longer_is_no_queue() {
    let trial = |told, seed| Trial {
        longer: (12 * SECOND, 30 * MS),
        ..large(told, seed)
    };
    let [law, told] = compare("longer", &Told::Rate(RATE), trial, 50 * MS);
    assert!(law.audio_later >= 99.0 && law.frames_later >= 0.85 * told.frames_later);
}

#[test]
fn a_download_of_another_host_does_not_get_all() {
    let trial = |holds| {
        move |told, seed| Trial {
            holds,
            download: Some((10 * SECOND, 25 * SECOND)),
            ..large(told, seed)
        }
    };
    let [law, nothing] = compare("120 ms", &Told::Nothing, trial(120 * MS), 50 * MS);
    assert!(law.audio_during >= nothing.audio_during - 2.0);
    assert!(law.frames_later >= nothing.frames_later);
    // A second of it: while others fill it nothing is in time. Before and after, all is.
    let [law, nothing] = compare("1 s", &Told::Nothing, trial(SECOND), 50 * MS);
    assert!(law.audio >= nothing.audio + 10.0);
    let one = trial(SECOND)(Told::Auto(50 * MS), 11);
    let until = 20 * SECOND;
    let got = Trial {
        packets: one
            .packets
            .iter()
            .copied()
            .filter(|packet| packet.at < until)
            .collect(),
        ..one
    }
    .run();
    assert!(got.state == OTHERS && got.rate == 0, "{got:?}");
}

#[test]
fn a_rate_is_forgotten_when_no_answer_comes() {
    for (silent, state) in [(12 * SECOND, SILENT), (u64::MAX, FOLLOWS)] {
        let got = Trial {
            silent,
            ..large(Told::Auto(50 * MS), 11)
        }
        .run();
        assert_eq!(got.state, state, "{got:?}");
        assert_eq!(got.rate == 0, state == SILENT, "{got:?}");
    }
}

proptest! {
    /// A peer may answer what it likes, when it likes.
    #[test]
    fn a_rate_keeps_to_its_bounds(
        least in 1_000_u64..1_000_000,
        above in 0_u64..100_000_000,
        steps in prop::collection::vec((0_u8..5, 0_u64..4_000_000_000, 0_u32..40), 1..400),
    ) {
        let _one = ONE.lock();
        let most = least + above;
        // SAFETY: only one thread is here at a time.
        unsafe { bbn_auto_start(least, most) };
        let mut next = 0_u32;
        for (what, ns, number) in steps {
            // SAFETY: as above.
            let rate = unsafe {
                match what {
                    0 => bbn_queue_wait(ns >> (number % 16)),
                    1 => bbn_auto_sent(number * 64_000),
                    2 => next = bbn_auto_leaves(number & 3) + 1,
                    // Also numbers that never left, and those of before.
                    3 => bbn_auto_hears(next.wrapping_sub(number)),
                    _ => bbn_auto_look(),
                }
                bbn_auto_rate()
            };
            prop_assert!(rate == 0 || (least..=most).contains(&rate), "{rate}");
        }
    }
}
