//! The ring against a receiver that checks every byte: framing is never torn, each ADU has one outcome.

use std::{
    collections::BTreeMap,
    io::{IoSlice, Read as _},
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::Arc,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::{
    core::{Core, PIECES},
    *,
};
use crate::{Deadline, Lifetime, Metadata, Priority, Treatment, path::View, sys::monotonic_ns};

const MS: u64 = 1_000_000;
const END: u32 = u32::MAX;

/// One frame of the test's protocol: length behind it, ADU, part, parts, and bytes that follow from these.
fn frame(adu: u32, part: u32, parts: u32, version: u8, bytes: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(17 + bytes);
    for field in [bytes as u32, adu, part, parts] {
        frame.extend_from_slice(&field.to_be_bytes());
    }
    frame.push(version);
    frame.extend((0..bytes).map(|n| (n as u32 ^ adu ^ part) as u8));
    frame
}

/// Reads frames off a stream as they come.
#[derive(Debug, Default)]
struct Receiver {
    bytes: Vec<u8>,
    /// (ADU, part, parts, version).
    frames: Vec<(u32, u32, u32, u8)>,
}

impl Receiver {
    fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(rest) = self.bytes.get(at..).filter(|rest| rest.len() >= 17) {
            let field = |n: usize| u32::from_be_bytes(*rest[4 * n..].first_chunk().unwrap());
            let len = field(0) as usize;
            if rest.len() < 17 + len {
                break;
            }
            let (adu, part, parts, version) = (field(1), field(2), field(3), rest[16]);
            assert_eq!(
                rest[..17 + len],
                frame(adu, part, parts, version, len),
                "torn"
            );
            self.frames.push((adu, part, parts, version));
            at += 17 + len;
        }
        self.bytes.drain(..at);
    }

    /// By ADU: its parts as they came.
    fn adus(&self) -> BTreeMap<u32, Vec<(u32, u32, u8)>> {
        let mut adus = BTreeMap::new();
        for &(adu, part, parts, version) in &self.frames {
            let of: &mut Vec<_> = adus.entry(adu).or_default();
            of.push((part, parts, version));
        }
        adus
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push {
        parts: u32,
        bytes: usize,
        lifetime: u64,
        priority: u8,
        forward: bool,
    },
    Replace(prop::sample::Index, usize),
    Cancel(prop::sample::Index),
    Amend(prop::sample::Index, u64, u8),
    Hold(bool),
    /// Room, how much of it the socket takes, and time afterwards.
    Write {
        room: usize,
        taken: usize,
        ms: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push = (1u32..5, 0usize..4000, 1u64..300, 0u8..8, 0u8..10).prop_map(
        |(parts, bytes, lifetime, priority, forward)| Step::Push {
            parts,
            bytes,
            lifetime,
            priority,
            forward: forward == 0,
        },
    );
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        6 => push,
        1 => (index(), 0usize..4000).prop_map(|(index, bytes)| Step::Replace(index, bytes)),
        1 => index().prop_map(Step::Cancel),
        1 => (index(), 1u64..300, 0u8..8).prop_map(|(i, ms, priority)| Step::Amend(i, ms, priority)),
        1 => any::<bool>().prop_map(Step::Hold),
        9 => (0usize..20_000, 0usize..20_000, 0u64..30)
            .prop_map(|(room, taken, ms)| Step::Write { room, taken, ms }),
    ];
    prop::collection::vec(step, 1..150)
}

fn said(lifetime: u64, priority: u8) -> Metadata {
    Metadata::new()
        .lifetime(Lifetime::from_millis(lifetime).unwrap())
        .priority(Priority::new(priority).unwrap())
}

fn options() -> impl Strategy<Value = Options> {
    let method = prop::sample::select(vec![Method::Triage, Method::Priority, Method::Fifo]);
    (
        method,
        any::<bool>(),
        any::<bool>(),
        1usize..40,
        0usize..60_000,
    )
        .prop_map(|(method, interleave, at_part, adus, bytes)| {
            let stop = if at_part { Stop::AtPart } else { Stop::Finish };
            Options::new()
                .method(method)
                .interleave(interleave)
                .stop(stop)
                .limits(adus, bytes)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever is pushed, replaced, taken back, held, and however little room there is: the receiver
    /// reads whole frames, and what it read is what the outcomes say.
    #[test]
    fn framing_is_never_torn_and_outcomes_tell_what_arrived(
        steps in steps(),
        options in options(),
        (owd, margin, rate) in (0u64..40, 0u64..80, 0u64..500_000),
    ) {
        let view = View { owd: owd * MS, margin: margin * MS, rate, acknowledged: false };
        let mut core: Core<Vec<u8>> = Core::new(options);
        let mut receiver = Receiver::default();
        let mut versions: Vec<u8> = Vec::new();
        let mut now = 1000 * MS;
        let mut outcomes: BTreeMap<u64, Fate> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Push { parts, bytes, lifetime, priority, forward } => {
                    let adu = versions.len() as u32;
                    versions.push(0);
                    let parts_of = (0..parts).map(|part| frame(adu, part, parts, 0, bytes));
                    let end = Some(frame(adu, END, parts, 0, 3));
                    let content = Content { parts: parts_of.collect(), end };
                    let mut metadata = said(lifetime, priority);
                    if forward {
                        metadata = metadata.treatment(Treatment::Forward);
                    }
                    let ticket = core.push(content, &metadata, now);
                    prop_assert_eq!(ticket.number(), u64::from(adu));
                }
                Step::Replace(index, bytes) if !versions.is_empty() => {
                    let adu = index.index(versions.len());
                    let version = versions[adu] + 1;
                    let parts = vec![frame(adu as u32, 0, 1, version, bytes)];
                    let ticket = Ticket(adu as u64);
                    let before = core.state(ticket);
                    let replaced = core.replace(ticket, Content { parts, end: None });
                    prop_assert_eq!(replaced.is_ok(), before == State::Waiting);
                    versions[adu] += u8::from(replaced.is_ok());
                }
                Step::Cancel(index) if !versions.is_empty() => {
                    let ticket = Ticket(index.index(versions.len()) as u64);
                    let before = core.state(ticket);
                    prop_assert_eq!(core.cancel(ticket).is_ok(), before == State::Waiting);
                }
                Step::Amend(index, lifetime, priority) if !versions.is_empty() => {
                    let ticket = Ticket(index.index(versions.len()) as u64);
                    let before = core.state(ticket);
                    let amended = core.amend(ticket, &said(lifetime, priority), now);
                    prop_assert_eq!(amended.is_ok(), before == State::Waiting);
                }
                Step::Hold(on) => core.held = on,
                Step::Write { room, taken, ms } => {
                    core.expire(now, &view);
                    let len = core.fill(now, &view, room, 1448);
                    prop_assert!(len <= room);
                    let mut slices = [IoSlice::new(&[]); PIECES];
                    let count = core.slices(&mut slices);
                    let bytes: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).collect();
                    prop_assert_eq!(bytes.len(), len);
                    let taken = taken.min(len);
                    receiver.take(&bytes[..taken]);
                    core.wrote(taken, now, &view);
                    now += ms * MS;
                }
                _ => {}
            }
            for outcome in core.history.outcomes() {
                let id = outcome.ticket.number();
                prop_assert!(outcomes.insert(id, outcome.fate).is_none(), "{id} twice");
            }
            let stats = core.stats();
            let known = stats.sent + stats.given_up.total() + stats.waiting + stats.begun;
            prop_assert_eq!(stats.pushed, known);
        }
        // The rest of what has begun, so that the last frame ends; then all else is given up.
        core.held = true;
        for _ in 0..200 {
            let len = core.fill(now, &view, 1 << 20, 1);
            let mut slices = [IoSlice::new(&[]); PIECES];
            let count = core.slices(&mut slices);
            slices[..count].iter().for_each(|slice| receiver.take(slice));
            core.wrote(len, now, &view);
        }
        prop_assert!(receiver.bytes.is_empty(), "a frame without its end");
        let rest = core.close();
        for outcome in core.history.outcomes() {
            let id = outcome.ticket.number();
            prop_assert!(outcomes.insert(id, outcome.fate).is_none(), "{id} twice");
        }
        prop_assert_eq!(outcomes.len(), versions.len());

        let arrived = receiver.adus();
        for (id, fate) in outcomes {
            let frames = arrived.get(&(id as u32)).cloned().unwrap_or_default();
            let begun = rest.iter().any(|rest| rest.ticket.number() == id);
            match fate {
                Fate::Sent { .. } => {
                    let parts = frames[0].1;
                    let expected: Vec<_> = (0..parts).map(|p| (p, parts, versions[id as usize])).collect();
                    prop_assert_eq!(frames, expected, "{}", id);
                }
                Fate::GivenUp(_) if frames.is_empty() => prop_assert!(!begun),
                Fate::GivenUp(reason) => {
                    // In the middle, by the rules only, and then with its end.
                    let ended = frames.last().unwrap().0 == END;
                    prop_assert!(begun != ended, "{id} {reason:?} {frames:?}");
                    let whole = &frames[..frames.len() - usize::from(ended)];
                    prop_assert!(whole.iter().zip(0..).all(|(f, part)| f.0 == part));
                }
            }
        }
    }
}

/// A message of distinct bytes, cut at any places: parts may be empty, first, last and beside each other.
fn split(first: u8, cuts: &[prop::sample::Index], bytes: usize) -> Vec<Vec<u8>> {
    let message: Vec<u8> = (0..bytes).map(|n| first ^ n as u8).collect();
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes + 1)).collect();
    at.extend([0, bytes]);
    at.sort_unstable();
    at.windows(2)
        .map(|w| message[w[0]..w[1]].to_vec())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// However a message is cut into parts, empty ones included, and whether or not its `end` is: each byte is sent once
    /// and each ADU comes to an end.
    #[test]
    fn adu_with_empty_parts_is_sent_once_and_ends(
        adus in prop::collection::vec(
            (0usize..40, prop::collection::vec(any::<prop::sample::Index>(), 0..5), any::<bool>(), 1u64..60),
            1..6,
        ),
        replaced in any::<Option<prop::sample::Index>>(),
        writes in prop::collection::vec((0usize..30, 0usize..30, 0u64..20), 0..40),
        options in options(),
    ) {
        let view = View { owd: 0, margin: 0, rate: 0, acknowledged: false };
        let options = options.limits(100, 100_000);
        let mut core: Core<Vec<u8>> = Core::new(options);
        let mut now = 1000 * MS;
        let mut messages = Vec::new();
        for (n, (bytes, cuts, empty_end, lifetime)) in adus.iter().enumerate() {
            let parts = split(n as u8 * 41, cuts, *bytes);
            messages.push(parts.concat());
            let end = Some(if *empty_end { Vec::new() } else { b"end".to_vec() });
            core.push(Content { parts, end }, &said(*lifetime, n as u8 % 8), now);
        }
        let mut sent: BTreeMap<u64, usize> = BTreeMap::new();
        let mut total = 0;
        let mut write = |core: &mut Core<Vec<u8>>, room: usize, taken: usize, now: u64| {
            core.expire(now, &view);
            let len = core.fill(now, &view, room, 1);
            assert!(len <= room);
            let mut slices = [IoSlice::new(&[]); PIECES];
            let count = core.slices(&mut slices);
            assert_eq!(slices[..count].iter().map(|s| s.len()).sum::<usize>(), len);
            core.wrote(taken.min(len), now, &view);
            total += taken.min(len);
            for outcome in core.history.outcomes() {
                let id = outcome.ticket.number();
                let bytes = if matches!(outcome.fate, Fate::Sent { .. }) { messages[id as usize].len() } else { 0 };
                assert!(sent.insert(id, bytes).is_none(), "{id} twice");
            }
        };
        for (i, (room, taken, ms)) in writes.into_iter().enumerate() {
            write(&mut core, room, taken, now);
            now += ms * MS;
            // An ADU that waits again after its empty parts were passed over.
            if let Some(index) = replaced.filter(|_| i == 2) {
                let ticket = Ticket(index.index(adus.len()) as u64);
                let _ = core.replace(ticket, Content { parts: vec![messages[ticket.0 as usize].clone()], end: None });
            }
        }
        for _ in 0..400 {
            write(&mut core, 1000, 1000, now);
        }
        prop_assert!(core.is_idle(), "{:?}", core.stats());
        prop_assert_eq!(sent.len(), adus.len());
        prop_assert_eq!(core.stats().waiting_bytes, 0);
        // What was given up in its middle has sent a part of itself, and its end.
        let whole: usize = sent.values().sum();
        let most: usize = messages.iter().map(|m| m.len() + 3).sum();
        prop_assert!((whole..=most).contains(&total), "{total} of {whole} to {most}");
    }
}

#[test]
fn empty_first_part_and_empty_end_come_to_an_end() {
    let view = View::default();
    let options = Options::new().stop(Stop::AtPart);
    let mut core: Core<&[u8]> = Core::new(options);
    let write = |core: &mut Core<&[u8]>, room: usize, now: u64| {
        core.expire(now, &view);
        let len = core.fill(now, &view, room, 1);
        let mut slices = [IoSlice::new(&[]); PIECES];
        let count = core.slices(&mut slices);
        let bytes: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).collect();
        core.wrote(len, now, &view);
        String::from_utf8(bytes).unwrap()
    };
    let parts = vec![&b""[..], b"hello ", b"", b"world\n", b""];
    core.push(Content { parts, end: None }, &said(100, 0), MS);
    assert_eq!(write(&mut core, 100, MS), "hello world\n");
    assert_eq!(write(&mut core, 100, MS), "");
    assert!(core.is_idle());

    let parts = vec![&b""[..], b"first", b"second"];
    let end = Some(&b""[..]);
    let ticket = core.push(Content { parts, end }, &said(100, 0), MS);
    assert_eq!(write(&mut core, 5, MS), "first");
    // Stale between its parts: it has no end to send.
    assert_eq!(write(&mut core, 100, 500 * MS), "");
    assert!(core.is_idle(), "{:?}", core.state(ticket));
}

// ---- the ring on a socket of this host ----

fn pair() -> (Ring<UnixStream>, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    (Ring::new(near).unwrap(), far)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

#[test]
fn unix_socket_has_no_rate_and_sends_all_the_same() {
    let (mut ring, mut far) = pair();
    let form = ring.form();
    assert!(!form.window && !form.rate && !form.acknowledged && !form.events);
    assert_eq!(ring.path(), None);
    let tickets: Vec<Ticket> = (0..5)
        .map(|n| ring.push(frame(n, 0, 1, 0, 1000), said(60_000, 3)))
        .collect();
    assert!(ring.finish(soon()).unwrap());
    let mut bytes = vec![0; 5 * 1017];
    far.read_exact(&mut bytes).unwrap();
    let mut receiver = Receiver::default();
    receiver.take(&bytes);
    assert_eq!(receiver.frames.len(), 5);
    for (outcome, ticket) in ring.outcomes().zip(tickets) {
        assert_eq!(outcome.ticket, ticket);
        assert_eq!(outcome.fate, Fate::Sent { late: false });
        assert_eq!(outcome.sent, 1017);
    }
}

#[test]
fn deadline_in_the_past_is_an_outcome_and_nothing_is_sent() {
    let (mut ring, mut far) = pair();
    let past = Metadata::new().deadline(Deadline::after(Duration::ZERO));
    let ticket = ring.push(b"old".to_vec(), past);
    std::thread::sleep(Duration::from_millis(1));
    assert!(ring.drive().unwrap().idle);
    assert_eq!(ring.state(ticket), State::GivenUp(Reason::Stale));
    let outcomes: Vec<Outcome> = ring.outcomes().collect();
    assert_eq!(outcomes.len(), 1);
    assert_eq!(
        (outcomes[0].fate, outcomes[0].sent),
        (Fate::GivenUp(Reason::Stale), 0)
    );
    far.set_nonblocking(true).unwrap();
    assert!(far.read(&mut [0; 8]).is_err(), "nothing arrived");
}

#[test]
fn adu_larger_than_the_limit_is_evicted_and_the_others_stay() {
    let (near, _far) = UnixStream::pair().unwrap();
    let mut ring = Ring::with(near, Options::new().limits(4, 1000)).unwrap();
    let small = ring.push(vec![0; 400], said(1000, 7));
    let large = ring.push(vec![0; 1001], said(1000, 0));
    assert_eq!(ring.state(large), State::GivenUp(Reason::Evicted));
    assert_eq!(ring.state(small), State::Waiting);
}

#[test]
fn replace_cancel_and_amend_are_too_late_once_an_adu_has_begun() {
    let (mut ring, far) = pair();
    let big = ring.push(vec![7; 4 << 20], said(60_000, 3));
    let next = ring.push(vec![8; 10], said(60_000, 3));
    let waiting = ring.drive().unwrap();
    assert!(!waiting.idle);
    assert!(matches!(ring.state(big), State::Begun { sent: 1.., .. }));
    let state = ring.state(big);
    assert_eq!(ring.replace(big, vec![]), Err(TooLate { state }));
    assert_eq!(ring.cancel(big), Err(TooLate { state }));
    assert_eq!(ring.amend(big, Metadata::new()), Err(TooLate { state }));
    // The one behind it is still the application's.
    assert_eq!(
        ring.replace(next, vec![9; 20]).unwrap().parts,
        [vec![8; 10]]
    );
    assert_eq!(ring.cancel(next).unwrap().parts, [vec![9; 20]]);
    assert!(
        ring.cancel(next)
            .unwrap_err()
            .to_string()
            .contains("Cancelled")
    );
    let stranger = Ticket(99);
    assert_eq!(ring.state(stranger), State::Unknown);
    drop(far);
}

#[test]
fn hold_keeps_everything_back_that_has_not_begun() {
    let (mut ring, mut far) = pair();
    let first = ring.push(b"1".to_vec(), said(1, 3));
    {
        let mut held = ring.hold();
        std::thread::sleep(Duration::from_millis(3));
        assert!(!held.drive().unwrap().idle);
        assert_eq!(held.state(first), State::Waiting, "not even stale");
        held.amend(first, said(60_000, 3)).unwrap();
        held.replace(first, b"2".to_vec()).unwrap();
    }
    assert!(ring.drive().unwrap().idle);
    let mut byte = [0];
    far.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"2");
}

#[test]
fn peer_that_is_gone_ends_the_ring_and_every_adu() {
    let (mut ring, far) = pair();
    drop(far);
    let before = ring.push(b"lost".to_vec(), Metadata::new());
    let error = ring.drive().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe, "{error}");
    let after = ring.push(b"lost, too".to_vec(), Metadata::new());
    for ticket in [before, after] {
        assert_eq!(ring.state(ticket), State::GivenUp(Reason::Closed));
    }
    assert_eq!(ring.outcomes().count(), 2);
    assert!(ring.drive().is_err() && ring.run_until(soon()).is_err());
    assert_eq!(ring.stats().given_up.closed, 2);
}

#[test]
fn close_gives_back_what_has_begun() {
    let (mut ring, far) = pair();
    let begun = ring.push(vec![7; 4 << 20], Metadata::new());
    let waiting = ring.push(vec![8; 10], Metadata::new());
    ring.drive().unwrap();
    let closed = ring.close();
    assert_eq!(closed.rest.len(), 1);
    let rest = &closed.rest[0];
    assert_eq!((rest.ticket, rest.content.parts[0].len()), (begun, 4 << 20));
    assert_eq!(closed.stats.bytes, rest.sent as u64);
    let fates: Vec<_> = closed.outcomes.iter().map(|o| (o.ticket, o.fate)).collect();
    let given_up = Fate::GivenUp(Reason::Closed);
    assert_eq!(fates, [(begun, given_up), (waiting, given_up)]);
    assert!(closed.wire.as_fd().try_clone_to_owned().is_ok());
    drop(far);
}

#[test]
fn many_viewers_share_one_buffer() {
    let frame: Arc<[u8]> = vec![1; 100_000].into();
    let mut rings: Vec<Ring<UnixStream, Arc<[u8]>>> = Vec::new();
    let mut far = Vec::new();
    for _ in 0..5 {
        let (near, end) = UnixStream::pair().unwrap();
        rings.push(Ring::new(near).unwrap());
        far.push(end);
    }
    for ring in &mut rings {
        ring.push(Arc::clone(&frame), Metadata::new());
    }
    assert_eq!(Arc::strong_count(&frame), 6);
}

#[test]
fn receiver_that_does_not_read_is_not_asked_in_a_loop() {
    let (mut ring, _far) = pair();
    ring.push(vec![7; 4 << 20], Metadata::new());
    ring.run_until(Instant::now() + Duration::from_millis(500))
        .unwrap();
    let drives = ring.stats().drives;
    assert!(drives < 10, "{drives} in half a second");
}

#[test]
fn outcomes_that_nobody_takes_are_forgotten_and_counted() {
    let (near, _far) = UnixStream::pair().unwrap();
    let mut ring: Ring<_, Vec<u8>> = Ring::with(near, Options::new().limits(1, 0)).unwrap();
    for _ in 0..5000 {
        ring.push(vec![1], Metadata::new());
    }
    let lost = ring.stats().outcomes_lost;
    assert_eq!(ring.outcomes().count() as u64 + lost, 5000);
    assert!(lost > 0);
}

#[test]
fn a_clock_that_jumped_gives_up_what_is_stale_and_nothing_else() {
    let mut core: Core<Vec<u8>> = Core::new(Options::new());
    let now = monotonic_ns();
    let view = View::default();
    core.push(
        Content {
            parts: vec![vec![1]],
            end: None,
        },
        &said(100, 3),
        now,
    );
    let lasting = core.push(
        Content {
            parts: vec![vec![2]],
            end: None,
        },
        &Metadata::new(),
        now,
    );
    for jumped in [0, now + 3_600_000 * MS, u64::MAX, now] {
        core.expire(jumped, &view);
    }
    assert_eq!(core.stats().given_up.stale, 1);
    assert_eq!(core.state(lasting), State::Waiting);
}
