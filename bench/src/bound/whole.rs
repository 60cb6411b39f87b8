//! How many frames can be complete beside all audio if packets are sent whole, as real ones are.
//!
//! [`super::dp`] may interrupt a packet. Where one holds the link longer than audio can wait, that
//! is out of reach for every queue. Here nothing is interrupted, nothing else is relaxed, and the
//! answer is exact. The states are *so many audio packets sent, so many packets of each frame*; of
//! all ways to a state those count that have more complete frames or free the link earlier, and
//! audio goes in the order of its creation (of equal packets any other order is no better).
//!
//! A frame is started or not as the search likes, and its packets may be mixed with others', so
//! states multiply with the frames that wait at one time. Some wait for 1000 ms at 10 frames/s:
//! then it gives up ([`STEPS`], [`WAITING`]), and the bound with interruptions has to do.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, DefaultHasher},
};

use super::{Departure, Link, dp};
use crate::traffic::{Class, Packet, Schedule};

/// Frames that may wait at one time; with more the search does not begin. (A relay's clients have
/// one each.)
const WAITING: usize = 16;

/// States that are looked at before it gives up: a fraction of a second. The conference with lifetimes
/// of 200 ms takes 60,000 at most.
const STEPS: u64 = 300_000;

/// The same for one question of [`all_fit`], of which there may be many.
const FEW_STEPS: u64 = 20_000;

/// One packet on the link. Times in ns since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// When it exists.
    release: i64,
    /// When the link must be free for it at the latest.
    begin: i64,
    /// When it must exist at the latest: a bucket may have begun to pay for it before.
    exist: i64,
    /// How long it occupies the link.
    work: i64,
}

impl Piece {
    pub(super) fn new(packet: &Packet, link: &Link) -> Self {
        let work = link.transmission(u64::from(packet.wire_bytes)) as i64;
        let departs = (packet.at + packet.lifetime) as i64 - link.owd as i64;
        let begin = match link.departure {
            Departure::FirstBit => departs,
            Departure::Bucket => departs - work,
        };
        Self {
            release: packet.at as i64,
            begin,
            exist: departs,
            work,
        }
    }
}

/// The packets of each ADU of a class, in the order of the schedule.
pub(super) fn pieces(schedule: &Schedule, class: Class, link: &Link) -> Vec<(u32, Vec<Piece>)> {
    let mut adus: Vec<(u32, Vec<Piece>)> = Vec::new();
    let mut place = HashMap::new();
    for packet in schedule.packets.iter().filter(|p| p.class == class) {
        let at = *place.entry(packet.adu).or_insert_with(|| {
            adus.push((packet.adu, Vec::new()));
            adus.len() - 1
        });
        adus[at].1.push(Piece::new(packet, link));
    }
    adus
}

/// The largest number of complete video frames beside all audio; `None` where not all audio can be
/// on time, its packets are not alike, or the search would take too long.
pub(super) fn most(schedule: &Schedule, link: &Link) -> Option<usize> {
    let audio = pieces(schedule, Class::Audio, link);
    let frames = pieces(schedule, Class::Video, link);
    let bodies = |adus: Vec<(u32, Vec<Piece>)>| adus.into_iter().map(|adu| adu.1);
    let audio = bodies(audio).flatten().collect();
    Search::new(audio, bodies(frames).collect(), link)?.run()?
}

/// Can all of these be on time? `None` as for [`most`].
pub(super) fn all_fit(audio: Vec<Piece>, frames: Vec<Vec<Piece>>, link: &Link) -> Option<bool> {
    let all = frames.len();
    let search = Search {
        all: true,
        steps: FEW_STEPS,
        ..Search::new(audio, frames, link)?
    };
    // The usual case, and much cheaper.
    if search.fits_in_order_of_ends() {
        return Some(true);
    }
    Some(search.run()? == Some(all))
}

/// The first frame that is neither complete nor given up, and how many packets are sent of each
/// from there on; none behind the last that is begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Sent {
    first: usize,
    packets: Vec<u16>,
}

/// How a state may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    complete: usize,
    /// When the link is free.
    clock: i64,
}

/// The ways to a state of which none is better than another in both.
type Ways = Vec<Way>;

/// Hashed without a random key: the search counts its steps, and the same bound comes out each time.
type States = HashMap<Sent, Ways, BuildHasherDefault<DefaultHasher>>;

fn keep(ways: &mut Ways, new: Way) -> bool {
    let beats = |a: &Way, b: &Way| a.complete >= b.complete && a.clock <= b.clock;
    dp::keep(ways, new, beats)
}

struct Search {
    audio: Vec<Piece>,
    frames: Vec<Vec<Piece>>,
    burst: i64,
    /// When the link must be free before each audio packet for it and all that follow; no limit
    /// behind the last.
    free: Vec<i64>,
    /// A frame that cannot be complete ends a way.
    all: bool,
    /// States that may be looked at.
    steps: u64,
}

impl Search {
    /// `None` where audio may have to change its order, or too many frames wait at one time.
    fn new(audio: Vec<Piece>, frames: Vec<Vec<Piece>>, link: &Link) -> Option<Self> {
        let in_order = |pair: &[Piece]| {
            pair[0].work == pair[1].work
                && pair[0].release <= pair[1].release
                && pair[0].begin <= pair[1].begin
        };
        // The first of them still waits when the last comes.
        let together = |frames: &[Vec<Piece>]| {
            let waits = frames[0].last().map(|piece| piece.begin);
            waits >= frames[WAITING].first().map(|piece| piece.release)
        };
        if !audio.windows(2).all(in_order) || frames.windows(WAITING + 1).any(together) {
            return None;
        }
        let mut free = vec![i64::MAX; audio.len() + 1];
        for (place, piece) in audio.iter().enumerate().rev() {
            free[place] = piece.begin.min(free[place + 1].saturating_sub(piece.work));
        }
        Some(Self {
            audio,
            frames,
            burst: link.burst as i64,
            free,
            all: false,
            steps: STEPS,
        })
    }

    /// When the link is free again if it sends `piece` as soon as it is free at `clock`; `None` if
    /// that is too late.
    fn send(&self, clock: i64, piece: &Piece) -> Option<i64> {
        (clock <= piece.begin && piece.release <= piece.exist)
            .then(|| clock.max(piece.release - self.burst) + piece.work)
    }

    /// Is everything on time if of what is there that goes first which must end first?
    fn fits_in_order_of_ends(&self) -> bool {
        // What is left of all audio, and of each frame.
        let all = [&self.audio].into_iter().chain(&self.frames);
        let mut left: Vec<&[Piece]> = all.map(Vec::as_slice).collect();
        let mut clock = i64::MIN / 4;
        loop {
            left.retain(|pieces| !pieces.is_empty());
            let Some(soonest) = left.iter().map(|pieces| pieces[0].release).min() else {
                return true;
            };
            let there = left
                .iter_mut()
                .filter(|p| p[0].release <= clock.max(soonest));
            let next = there.min_by_key(|pieces| pieces[0].begin + pieces[0].work);
            let Some([piece, rest @ ..]) = next.as_deref().copied() else {
                return false;
            };
            let Some(free) = self.send(clock, piece) else {
                return false;
            };
            clock = free;
            if let Some(next) = next {
                *next = rest;
            }
        }
    }

    /// The most frames, if all audio can be on time; `None` if it gave up.
    fn run(&self) -> Option<Option<usize>> {
        let start = Way {
            complete: 0,
            clock: i64::MIN / 4,
        };
        let mut states = States::from_iter([(Sent::default(), vec![start])]);
        let mut steps = self.steps;
        for (audio, &free) in self.audio.iter().zip(&self.free) {
            self.send_frames(&mut states, free, &mut steps)?;
            let mut after = States::default();
            for (sent, ways) in states {
                for way in ways {
                    if let Some(clock) = self.send(way.clock, audio)
                        && let Some(sent) = self.tidy(sent.clone(), clock)
                    {
                        keep(after.entry(sent).or_default(), Way { clock, ..way });
                    }
                }
            }
            states = after;
        }
        self.send_frames(&mut states, i64::MAX, &mut steps)?;
        Some(states.values().flatten().map(|way| way.complete).max())
    }

    /// Adds all states that sending packets of frames leads to, up to the next audio packet, for
    /// which the link must be free at `free`.
    fn send_frames(&self, states: &mut States, free: i64, steps: &mut u64) -> Option<()> {
        let known = states
            .iter()
            .flat_map(|(sent, ways)| ways.iter().map(|&way| (sent.clone(), way)));
        let mut todo: Vec<(Sent, Way)> = known.collect();
        while let Some((sent, way)) = todo.pop() {
            let still = |ways: &Ways| ways.contains(&way);
            if !states.get(&sent).is_some_and(still) {
                continue;
            }
            *steps = steps.checked_sub(1)?;
            for (offset, frame) in self.frames[sent.first..].iter().enumerate() {
                // The later ones come too late to go before the audio.
                if offset >= sent.packets.len() && frame[0].release - self.burst > free {
                    break;
                }
                let gone = sent.packets.get(offset).copied().unwrap_or(0);
                let Some(piece) = frame.get(usize::from(gone)) else {
                    continue;
                };
                let Some(clock) = self.send(way.clock, piece).filter(|&clock| clock <= free) else {
                    continue;
                };
                let mut next = sent.clone();
                if next.packets.len() <= offset {
                    next.packets.resize(offset + 1, 0);
                }
                next.packets[offset] += 1;
                let whole = usize::from(next.packets[offset]) == frame.len();
                let way = Way {
                    complete: way.complete + usize::from(whole),
                    clock,
                };
                if let Some(next) = self.tidy(next, clock)
                    && keep(states.entry(next.clone()).or_default(), way)
                {
                    todo.push((next, way));
                }
            }
        }
        Some(())
    }

    /// One form for what is the same from `clock` on; `None` if a frame that was begun cannot be
    /// completed any more, which is never better than not to have begun it.
    fn tidy(&self, mut sent: Sent, clock: i64) -> Option<Sent> {
        let mut over = 0;
        for (offset, &gone) in sent.packets.iter().enumerate() {
            let next = self.frames[sent.first + offset].get(usize::from(gone));
            let late = next.is_some_and(|piece| clock > piece.begin);
            if late && (gone > 0 || self.all) {
                return None;
            }
            if over == offset && (late || next.is_none()) {
                over += 1;
            }
        }
        sent.first += over;
        sent.packets.drain(..over);
        while sent.packets.is_empty()
            && let Some(frame) = self.frames.get(sent.first)
            && clock > frame[0].begin
        {
            if self.all {
                return None;
            }
            sent.first += 1;
        }
        Some(sent)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        bound::{
            bound, on,
            tests::{LINK, packet, schedule},
        },
        sys::MILLI,
        traffic::conference,
    };

    /// The optimum by trying every order.
    fn brute(audio: &[Piece], frames: &[Vec<Piece>], link: &Link) -> Option<usize> {
        fn go(search: &Search, audio: usize, sent: &mut [usize], clock: i64) -> Option<usize> {
            let complete = || {
                let whole = search.frames.iter().zip(sent.iter());
                whole.filter(|(frame, sent)| frame.len() == **sent).count()
            };
            let mut best = (audio == search.audio.len()).then(complete);
            if let Some(piece) = search.audio.get(audio)
                && let Some(clock) = search.send(clock, piece)
            {
                best = best.max(go(search, audio + 1, sent, clock));
            }
            for frame in 0..sent.len() {
                if let Some(piece) = search.frames[frame].get(sent[frame])
                    && let Some(clock) = search.send(clock, piece)
                {
                    sent[frame] += 1;
                    best = best.max(go(search, audio, sent, clock));
                    sent[frame] -= 1;
                }
            }
            best
        }
        let search = Search::new(audio.to_vec(), frames.to_vec(), link)?;
        let mut sent = vec![0; frames.len()];
        go(&search, 0, &mut sent, i64::MIN / 4)
    }

    prop_compose! {
        /// Up to 4 audio packets and 4 frames of one or two packets, each class of one lifetime.
        fn few()(
            lifetimes in prop::array::uniform2(11u64..40),
            audio in prop::collection::vec(0u64..40, 0..5),
            bytes in 500u32..4_000,
            frames in prop::collection::vec((0u64..40, prop::collection::vec(500u32..12_000, 1..3)), 1..5),
        ) -> Schedule {
            let mut packets = Vec::new();
            let [of_audio, of_video] = lifetimes;
            for (adu, at) in (100..).zip(audio) {
                packets.push(packet(Class::Audio, adu, at, of_audio, bytes));
            }
            for (adu, (at, parts)) in (0..).zip(frames) {
                for bytes in parts {
                    packets.push(packet(Class::Video, adu, at, of_video, bytes));
                }
            }
            schedule(packets)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn most_no_order_has_more_and_one_has_as_many(
            schedule in few(),
            first_bit in any::<bool>(),
            burst in 0u64..3,
        ) {
            let departure = if first_bit { Departure::FirstBit } else { Departure::Bucket };
            let link = Link { departure, burst: burst * MILLI, ..LINK };
            let of = |class| pieces(&schedule, class, &link).into_iter().map(|adu| adu.1);
            let audio: Vec<Piece> = of(Class::Audio).flatten().collect();
            let frames: Vec<Vec<Piece>> = of(Class::Video).collect();
            let best = brute(&audio, &frames, &link);
            prop_assert_eq!(most(&schedule, &link), best);
            prop_assert_eq!(
                all_fit(audio, frames.clone(), &link).unwrap_or(false),
                best == Some(frames.len())
            );
        }
    }

    #[test]
    fn bound_gap_that_holds_one_packet_and_a_half_holds_one() {
        // A byte takes 1 µs. Between two audio packets, which may wait for 2 ms, are 19 ms: three
        // packets of 12 ms need three gaps.
        let with = |lifetime| {
            let audio = (0..4u32).map(|n| packet(Class::Audio, n, u64::from(n) * 20, 12, 1_000));
            let frame = (0..3).map(|_| packet(Class::Video, 9, 0, lifetime, 12_000));
            let schedule = schedule(audio.chain(frame).collect());
            let bounds = [on(&schedule, LINK), bound(&schedule, LINK, false)];
            bounds.map(|bound| (bound.video.adus, bound.video.whole_packets))
        };
        assert_eq!(with(62), [(0, true), (1, false)]);
        assert_eq!(with(63), [(1, true), (1, false)]);
    }

    #[test]
    fn most_of_audio_that_is_not_alike_or_late_is_left_open() {
        let two = |bytes| {
            schedule(vec![
                packet(Class::Audio, 0, 0, 20, 1_000),
                packet(Class::Audio, 1, 0, 20, bytes),
                packet(Class::Video, 2, 0, 40, 1_000),
            ])
        };
        assert_eq!(most(&two(1_000), &LINK), Some(1));
        assert_eq!(most(&two(1_001), &LINK), None);
        let late = schedule(vec![packet(Class::Audio, 0, 0, 5, 1_000)]);
        assert_eq!(most(&late, &LINK), None);
    }

    #[test]
    fn most_of_many_frames_at_one_time_is_left_open() {
        let together = |frames: u32| {
            let packets = (0..frames).map(|adu| packet(Class::Video, adu, 0, 40, 1_000));
            most(&schedule(packets.collect()), &LINK)
        };
        assert_eq!(together(16), Some(16));
        assert_eq!(together(17), None);
        let lives = conference::Parameters {
            audio_lifetime_ms: 1000,
            video_lifetime_ms: 1000,
        };
        let schedule = conference::schedule_with(&lives, 20, 1);
        let bound = on(&schedule, Link::of_path(187_000, 40 * MILLI));
        assert!(!bound.video.whole_packets);
        assert!(bound.video.adus > 100);
    }
}
