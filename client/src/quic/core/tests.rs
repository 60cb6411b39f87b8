//! What must hold of a sender, whatever the application, the peer and the path do.

mod pictures;

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use proptest::prelude::*;

use super::*;
use crate::time::{Deadline, Lifetime};

/// 10 ms away, 1 MB/s.
const VIEW: View = View {
    owd: 10 * MS,
    margin: 0,
    acknowledged: false,
    rate: 1_000_000,
};
const SEGMENT: u64 = 1_200;

#[derive(Debug, Default)]
struct Sent {
    bytes: Vec<u8>,
    finished: bool,
    reset: bool,
    priority: i32,
    last: u64,
}

/// All streams there ever were.
type Log = Rc<RefCell<Vec<Sent>>>;

#[derive(Debug)]
struct Fake(Log, usize);

impl Fake {
    fn with<T>(&self, work: impl FnOnce(&mut Sent) -> T) -> T {
        work(&mut self.0.borrow_mut()[self.1])
    }
}

impl Stream for Fake {
    fn reset(&mut self) {
        self.with(|sent| sent.reset = true);
    }

    fn set_priority(&mut self, priority: i32) {
        self.with(|sent| sent.priority = priority);
    }
}

struct Wire {
    log: Log,
    now: u64,
    /// Streams and bytes that the peer still allows.
    streams: usize,
    window: usize,
    /// Bytes of one stream that the peer allows.
    stream_window: usize,
    /// Bytes that one write takes, at most.
    bite: usize,
}

impl Wire {
    fn new() -> Self {
        Self {
            log: Log::default(),
            now: 0,
            streams: usize::MAX,
            window: usize::MAX,
            stream_window: usize::MAX,
            bite: usize::MAX,
        }
    }
}

impl Transport for Wire {
    type Stream = Fake;

    fn open(&mut self, _: Option<(u64, u16)>) -> Poll<Option<Fake>> {
        if self.streams == 0 {
            return Poll::Pending;
        }
        self.streams -= 1;
        self.log.borrow_mut().push(Sent::default());
        let number = self.log.borrow().len() - 1;
        Poll::Ready(Some(Fake(Rc::clone(&self.log), number)))
    }

    fn write(&mut self, stream: &mut Fake, bytes: &mut [Bytes; 2]) -> Poll<Option<usize>> {
        let all = bytes.concat();
        let left = self.stream_window - stream.with(|sent| sent.bytes.len());
        let len = all.len().min(self.window).min(left).min(self.bite);
        if len == 0 && !all.is_empty() {
            return Poll::Pending;
        }
        self.window -= len;
        stream.with(|sent| {
            assert!(!sent.finished && !sent.reset);
            sent.bytes.extend_from_slice(&all[..len]);
            sent.last = self.now;
        });
        Poll::Ready(Some(len))
    }

    fn finish(&mut self, stream: &mut Fake) {
        stream.with(|sent| sent.finished = true);
    }
}

fn core() -> Core<Fake> {
    Core::new(Options::new().limits(10, 50_000).adu_limit(20_000), 0)
}

fn said(lifetime_ms: u64, priority: u8) -> Metadata {
    Metadata::new()
        .lifetime(Lifetime::from_millis(lifetime_ms).unwrap())
        .priority(Priority::new(priority).unwrap())
}

fn header(sent: &Sent) -> (crate::quic::frame::Header, usize) {
    crate::quic::frame::Header::parse(&sent.bytes)
        .unwrap()
        .unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Send(u64, u8, usize),
    Keep(usize),
    Renew(usize, usize),
    Cancel(usize),
    Amend(usize, u64, u8),
    Pass(u64),
    Room(u64),
    Ack(usize),
    Refuse(usize),
    Peer(usize, usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let some = 0..40usize;
    prop_oneof![
        4 => (1..300u64, 0..8u8, 0..25_000usize).prop_map(|(a, b, c)| Step::Send(a, b, c)),
        1 => (0..3_000usize).prop_map(Step::Keep),
        1 => (some.clone(), 0..25_000usize).prop_map(|(a, b)| Step::Renew(a, b)),
        1 => some.clone().prop_map(Step::Cancel),
        1 => (some.clone(), 1..300u64, 0..8u8).prop_map(|(a, b, c)| Step::Amend(a, b, c)),
        3 => (0..60u64).prop_map(Step::Pass),
        4 => (0..30_000u64).prop_map(Step::Room),
        4 => some.clone().prop_map(Step::Ack),
        1 => some.prop_map(Step::Refuse),
        2 => (0..5usize, 0..20_000usize, 1..3_000usize).prop_map(|(a, b, c)| Step::Peer(a, b, c)),
    ]
}

/// Takes one step; what the application gave is in `contents`, by id and version.
fn take(
    step: Step,
    core: &mut Core<Fake>,
    wire: &mut Wire,
    contents: &mut BTreeMap<(u64, u16), Vec<u8>>,
) {
    let now = wire.now;
    let bytes = |seed: u64, len: usize| -> Vec<u8> {
        (0..len).map(|n| ((n as u64 * 7) ^ seed) as u8).collect()
    };
    let taken = core.history.stats.taken;
    let ticket = |n: usize| Ticket((n as u64).min(taken));
    match step {
        Step::Send(lifetime, priority, len) => {
            let content = bytes(taken, len);
            let result = core.send(content.clone().into(), &said(lifetime, priority), now);
            assert_eq!(result.is_ok(), len <= 20_000);
            if let Ok(ticket) = result {
                contents.insert((ticket.0, 0), content);
            }
        }
        Step::Keep(len) => {
            let content = bytes(taken, len);
            let ticket = core.send(content.clone().into(), &Metadata::new(), now);
            contents.insert((ticket.unwrap().0, 0), content);
        }
        Step::Renew(n, len) => {
            let content = bytes(n as u64 + 100, len);
            let before = core.get(ticket(n).0).map(|adu| adu.content.version);
            match core.renew(ticket(n), content.clone().into(), now) {
                Ok(Renewed::Replaced) => {
                    contents.insert((ticket(n).0, before.unwrap()), content);
                }
                Ok(Renewed::Again(version)) => {
                    assert_eq!(version, before.unwrap() + 1);
                    contents.insert((ticket(n).0, version), content);
                }
                Err(RenewError::Value(_)) => assert!(len > 20_000),
                Err(RenewError::TooLate(late)) => {
                    assert!(before.is_none() && late.state != State::Waiting)
                }
                Err(error) => panic!("{error}"),
            }
        }
        Step::Cancel(n) => {
            let alive = core.alive.contains(&ticket(n).0);
            assert_eq!(core.cancel(ticket(n), now).is_ok(), alive);
        }
        Step::Amend(n, lifetime, priority) => {
            let alive = core.alive.contains(&ticket(n).0);
            let result = core.amend(ticket(n), &said(lifetime, priority), now);
            assert_eq!(result.is_ok(), alive);
        }
        Step::Pass(ms) => wire.now += ms * MS,
        Step::Room(room) => {
            core.expire(now, &VIEW);
            let wrote = core.write(now, &VIEW, room, SEGMENT, wire);
            // A header may go beyond the room.
            assert!(wrote.bytes <= room + 40, "{wrote:?}");
            if let Some(next) = core.next_event(&VIEW) {
                assert!(next > now, "it would spin");
            }
        }
        Step::Ack(n) => {
            let version = core.open.get(&ticket(n).0).map(|adu| adu.content.version);
            core.acknowledged(ticket(n).0, version.unwrap_or(0), now);
        }
        Step::Refuse(n) => {
            if let Some(adu) = core.get(ticket(n).0) {
                let version = adu.content.version;
                core.refused(ticket(n).0, version, 7, now);
            }
        }
        Step::Peer(streams, window, bite) => {
            (wire.streams, wire.window, wire.bite) = (streams, window, bite);
        }
    }
}

/// Every stream is a header and the start of the content it names; it is finished only with all of it.
fn check_streams(log: &[Sent], contents: &BTreeMap<(u64, u16), Vec<u8>>) {
    for sent in log.iter().filter(|sent| !sent.bytes.is_empty()) {
        let Ok(Some((header, len))) = crate::quic::frame::Header::parse(&sent.bytes) else {
            assert!(!sent.finished);
            continue;
        };
        assert!(header.alive_from <= header.id);
        if header.notice {
            assert_eq!(len, sent.bytes.len());
            continue;
        }
        let content = &contents[&(header.id, header.version)];
        let payload = &sent.bytes[len..];
        assert!(content.starts_with(payload), "torn");
        assert!(!sent.finished || payload.len() == content.len());
    }
}

fn acknowledge_all(core: &mut Core<Fake>, now: u64) {
    let open: Vec<_> = core
        .open
        .iter()
        .map(|(id, adu)| (*id, adu.content.version))
        .collect();
    for (id, version) in open {
        core.acknowledged(id, version, now);
    }
}

/// Drives it until each ADU has its outcome and everything is told, with a peer that allows and acknowledges all.
fn drive_to_the_end(core: &mut Core<Fake>, wire: &mut Wire) {
    (wire.streams, wire.window, wire.bite) = (usize::MAX, usize::MAX, usize::MAX);
    for _ in 0..200 {
        wire.now += 20 * MS;
        core.expire(wire.now, &VIEW);
        core.write(wire.now, &VIEW, 10_000, SEGMENT, wire);
        acknowledge_all(core, wire.now);
        if core.is_idle() {
            return;
        }
    }
    panic!("never idle: {core:?}");
}

/// What a receiver delivers by id that gets every stream that was not reset.
fn delivered(log: &[Sent]) -> (Vec<u64>, usize) {
    let options = crate::quic::ReceiverOptions::new().order(crate::quic::Order::ById);
    let mut inbox = crate::quic::inbox::Inbox::new(options);
    for sent in log.iter().filter(|sent| sent.finished && !sent.reset) {
        let (header, len) = header(sent);
        inbox.header(&header);
        if !header.notice {
            inbox.complete(crate::quic::Adu {
                id: header.id,
                version: header.version,
                priority: header.priority,
                left: None,
                payload: sent.bytes[len..].to_vec().into(),
                at: std::time::Instant::now(),
            });
        }
    }
    inbox.settle();
    let ids = std::iter::from_fn(|| inbox.take().map(|adu| adu.id)).collect();
    (ids, inbox.held_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_adu_has_exactly_one_outcome_and_nothing_stale_is_written(
        steps in proptest::collection::vec(step(), 1..120),
        ends_in_order in any::<bool>(),
    ) {
        let (mut core, mut wire) = (core(), Wire::new());
        let mut contents = BTreeMap::new();
        let mut outcomes = Vec::new();
        for step in steps {
            take(step, &mut core, &mut wire, &mut contents);
            let stats = core.stats();
            prop_assert_eq!(
                stats.taken,
                stats.acknowledged + stats.given_up.total() + stats.waiting + stats.unacknowledged
            );
            prop_assert_eq!(core.alive.len() as u64, stats.waiting + stats.unacknowledged);
            outcomes.extend(core.history.past.take());
        }
        if ends_in_order {
            drive_to_the_end(&mut core, &mut wire);
        } else {
            core.close(wire.now);
        }
        prop_assert!(core.is_idle());
        outcomes.extend(core.history.past.take());
        let stats = core.stats();
        prop_assert_eq!(stats.taken, stats.acknowledged + stats.given_up.total());
        let mut ids: Vec<_> = outcomes.iter().map(|outcome| outcome.ticket.0).collect();
        ids.sort_unstable();
        prop_assert_eq!(ids, (0..stats.taken).collect::<Vec<_>>());
        let log = wire.log.borrow();
        check_streams(&log, &contents);
        let resets = log.iter().filter(|sent| sent.reset).count() as u64;
        prop_assert_eq!(stats.streams, log.len() as u64);
        // A stream that its receiver refused, or that is acknowledged, is not reset again.
        prop_assert_eq!(resets, stats.resets);
        if ends_in_order {
            let (ids, held) = delivered(&log);
            prop_assert_eq!((ids.len() as u64, held), (stats.acknowledged, 0), "it waits for ever");
        }
        for outcome in outcomes {
            if let Fate::Sent { late } = outcome.fate {
                let len = contents[&(outcome.ticket.0, outcome.more.version)].len();
                prop_assert!(outcome.sent > len && !late);
            }
            prop_assert!(outcome.more.begun <= outcome.more.last || outcome.sent == 0);
            prop_assert!(outcome.more.last <= outcome.more.ended);
        }
    }
}

#[test]
fn nothing_is_written_later_than_deadline_minus_owd() {
    for late in [89, 90, 91] {
        let (mut core, mut wire) = (core(), Wire::new());
        let ticket = core.send("x".into(), &said(100, 3), 0).unwrap();
        wire.now = late * MS;
        let view = View { rate: 0, ..VIEW };
        core.expire(wire.now, &view);
        core.write(wire.now, &view, 10_000, SEGMENT, &mut wire);
        let sent = !wire.log.borrow().is_empty();
        assert_eq!(sent, late <= 90);
        assert_eq!(core.state(ticket) == State::GivenUp(Reason::Stale), !sent);
    }
}

#[test]
fn stream_is_reset_when_its_adu_becomes_stale_and_not_before() {
    let (mut core, mut wire) = (core(), Wire::new());
    core.send(vec![0; 5_000].into(), &said(100, 3), 0).unwrap();
    core.write(0, &VIEW, 10_000, SEGMENT, &mut wire);
    let due = core.next_event(&VIEW).unwrap();
    assert_eq!(due, 90 * MS + 1);
    core.expire(due - 1, &VIEW);
    assert!(!wire.log.borrow()[0].reset);
    core.expire(due, &VIEW);
    assert!(wire.log.borrow()[0].reset);
    assert_eq!(core.stats().given_up.stale, 1);
}

#[test]
fn streams_have_the_order_of_class_and_deadline() {
    let (mut core, mut wire) = (core(), Wire::new());
    let said = [said(100, 3), said(50, 3), said(200, 0), Metadata::new()];
    for metadata in said {
        core.send("x".into(), &metadata, 0).unwrap();
    }
    core.write(0, &VIEW, 10_000, SEGMENT, &mut wire);
    let log = wire.log.borrow();
    let mut order: Vec<_> = log.iter().map(|s| (s.priority, header(s).0.id)).collect();
    order.sort_unstable_by(|a, b| b.cmp(a));
    let ids: Vec<_> = order.into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, [2, 1, 0, 3]);
}

#[test]
fn header_says_from_where_ids_are_alive_and_a_notice_does_if_nothing_follows() {
    let (mut core, mut wire) = (core(), Wire::new());
    for _ in 0..3 {
        core.send("x".into(), &said(100, 3), 0).unwrap();
    }
    core.write(0, &VIEW, 10_000, SEGMENT, &mut wire);
    core.acknowledged(1, 0, MS);
    assert!(!core.is_untold());
    core.cancel(Ticket(0), 2 * MS).unwrap();
    core.cancel(Ticket(2), 2 * MS).unwrap();
    for due in [MS, 12 * MS] {
        assert!(!core.is_idle());
        let due = core.next_event(&VIEW).unwrap().max(due);
        core.write(due, &VIEW, 10_000, SEGMENT, &mut wire);
    }
    assert!(core.is_idle());
    core.send("x".into(), &said(100, 3), due()).unwrap();
    core.write(due(), &VIEW, 10_000, SEGMENT, &mut wire);
    let log = wire.log.borrow();
    let said: Vec<_> = log.iter().map(|s| header(s).0).collect();
    let said: Vec<_> = said
        .iter()
        .map(|h| (h.alive_from, h.notice, h.gone))
        .collect();
    let begins = (0, false, None);
    let notices = [(3, true, Some((0, 0))), (3, true, Some((2, 2)))];
    assert_eq!(said[..3], [begins; 3]);
    assert_eq!(said[3..5], notices);
    assert_eq!(said[5], (3, false, None));
}

#[test]
fn what_a_header_told_is_told_again_if_its_stream_is_reset() {
    let (mut core, mut wire) = (core(), Wire::new());
    for _ in 0..4 {
        core.send("x".into(), &said(100, 3), 0).unwrap();
    }
    core.cancel(Ticket(1), 0).unwrap();
    core.cancel(Ticket(2), 0).unwrap();
    core.write(0, &VIEW, 10_000, SEGMENT, &mut wire);
    assert!(core.untold.is_empty());
    core.renew(Ticket(3), "y".into(), 0).unwrap();
    core.write(0, &VIEW, 10_000, SEGMENT, &mut wire);
    let log = wire.log.borrow();
    let gone: Vec<_> = log
        .iter()
        .map(|s| (header(s).0.id, header(s).0.gone))
        .collect();
    let told = Some((1, 2));
    assert_eq!(gone, [(0, None), (3, told), (3, told)]);
}

/// After everything else in a test.
fn due() -> u64 {
    50 * MS
}

#[test]
fn what_was_never_written_needs_no_notice() {
    let (mut core, mut wire) = (core(), Wire::new());
    let deadline = Metadata::new().deadline(Deadline::from_monotonic_ns(1));
    core.send("x".into(), &deadline, MS).unwrap();
    core.expire(MS, &VIEW);
    core.write(MS, &VIEW, 10_000, SEGMENT, &mut wire);
    assert!(core.is_idle() && wire.log.borrow().is_empty());
}

#[test]
fn version_65535_is_the_last() {
    let (mut core, mut wire) = (core(), Wire::new());
    core.send("x".into(), &Metadata::new(), 0).unwrap();
    for version in 1..=u16::MAX {
        core.write(0, &VIEW, 10_000, SEGMENT, &mut wire);
        assert_eq!(
            core.renew(Ticket(0), "y".into(), 0),
            Ok(Renewed::Again(version))
        );
        wire.log.borrow_mut().clear();
    }
    assert_eq!(core.renew(Ticket(0), "z".into(), 0), Ok(Renewed::Replaced));
    core.write(0, &VIEW, 10_000, SEGMENT, &mut wire);
    let error = core.renew(Ticket(0), "y".into(), 0).unwrap_err();
    assert_eq!(error, RenewError::Versions);
    assert_eq!(core.state(Ticket(0)), State::Sent);
}

#[test]
fn what_is_sent_after_the_end_is_given_up_as_closed() {
    let mut core = core();
    core.close(0);
    let ticket = core.send("x".into(), &Metadata::new(), 0).unwrap();
    assert_eq!(core.state(ticket), State::GivenUp(Reason::Closed));
}

/// Payload bytes of each stream, in order.
fn lengths(wire: &Wire) -> Vec<usize> {
    let log = wire.log.borrow();
    log.iter().map(|sent| sent.bytes.len()).collect()
}

#[test]
fn stream_whose_own_window_is_full_stops_no_other() {
    let (mut core, mut wire) = (core(), Wire::new());
    wire.stream_window = 5_000;
    for _ in 0..2 {
        core.send(vec![0; 20_000].into(), &said(200, 0), 0).unwrap();
    }
    for _ in 0..3 {
        core.send(vec![0; 1_000].into(), &said(200, 5), 0).unwrap();
    }
    let wrote = core.write(0, &VIEW, 50_000, SEGMENT, &mut wire);
    assert!(wrote.no_leave && !wrote.no_room, "{wrote:?}");
    assert_eq!(core.stats().flow_control, 2);
    assert_eq!(lengths(&wire)[..2], [5_000, 5_000]);
    let log = wire.log.borrow();
    assert!(log.len() == 5 && log[2..].iter().all(|sent| sent.finished));
    drop(log);
    // Each goes on with its own window.
    wire.stream_window = 25_000;
    core.write(0, &VIEW, 50_000, SEGMENT, &mut wire);
    assert!(wire.log.borrow().iter().all(|sent| sent.finished));
    assert!(!core.is_waiting());
}

#[test]
fn connection_whose_window_is_full_has_one_stream_opened_in_vain_and_no_more() {
    let (mut core, mut wire) = (core(), Wire::new());
    wire.window = 5_000;
    core.send(vec![0; 20_000].into(), &said(200, 0), 0).unwrap();
    for _ in 0..5 {
        core.send(vec![0; 1_000].into(), &said(200, 5), 0).unwrap();
    }
    for _ in 0..3 {
        let wrote = core.write(0, &VIEW, 50_000, SEGMENT, &mut wire);
        assert!(wrote.no_leave, "{wrote:?}");
        assert_eq!(lengths(&wire), [5_000, 0]);
    }
    // The first is given up, and its place goes to the others.
    core.cancel(Ticket(0), 0).unwrap();
    wire.window = 10_000;
    core.write(0, &VIEW, 50_000, SEGMENT, &mut wire);
    assert_eq!((core.is_waiting(), wire.log.borrow().len()), (false, 6));
}

#[test]
fn what_has_begun_goes_on_while_no_stream_can_be_opened() {
    let (mut core, mut wire) = (core(), Wire::new());
    wire.streams = 1;
    core.send(vec![0; 3_000].into(), &said(200, 5), 0).unwrap();
    core.write(0, &VIEW, 1_500, SEGMENT, &mut wire);
    let more_important = core.send(vec![0; 1_000].into(), &said(200, 0), 0).unwrap();
    let wrote = core.write(0, &VIEW, 50_000, SEGMENT, &mut wire);
    assert!(wrote.no_leave && wrote.bytes > 1_500, "{wrote:?}");
    assert_eq!(core.state(Ticket(0)), State::Sent);
    assert_eq!(core.state(more_important), State::Waiting);
    assert_eq!(core.stats().stream_limit, 1);
}

#[test]
fn receiver_that_reads_one_stream_no_further_is_told_what_was_given_up() {
    let (mut core, mut wire) = (core(), Wire::new());
    wire.stream_window = 5_000;
    core.send(vec![0; 20_000].into(), &said(200, 0), 0).unwrap();
    let cancelled = core.send("x".into(), &said(200, 5), 0).unwrap();
    let sent = core.send("y".into(), &said(200, 5), 0).unwrap();
    core.cancel(cancelled, 0).unwrap();
    core.write(0, &VIEW, 50_000, SEGMENT, &mut wire);
    // The header of the last one told it; its stream is reset, so it is told again.
    core.cancel(sent, 0).unwrap();
    let due = core.next_event(&VIEW).unwrap();
    core.write(due, &VIEW, 0, SEGMENT, &mut wire);
    let log = wire.log.borrow();
    let (notice, _) = header(&log[2]);
    assert!(notice.notice && log[2].finished);
    assert_eq!(notice.gone, Some((1, 2)));
    assert!(core.next_event(&VIEW).unwrap() > due);
}
