//! What a sender and a receiver promise on a path without faults.

use std::{collections::BTreeMap, time::Duration};

use bestby::{
    Deadline, Metadata, Treatment, ValueError,
    quic::{
        Fate, Options, Order, Reason, Receiver, ReceiverOptions, RenewError, Renewed, Sender, State,
    },
};
use tokio::time::{sleep, timeout};

use crate::{
    ends::{LONG, said},
    plain,
};

fn payload(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n as u64 ^ number) as u8).collect()
}

#[tokio::test]
async fn each_adu_arrives_whole_and_once_and_has_one_outcome() {
    let pair = plain().await;
    let sender = Sender::new(pair.near.clone(), Options::new().limits(100, 64 << 20));
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    let sizes = [0, 1, 100, 1_200, 5_000, 100_000, 1 << 20];
    let tickets: Vec<_> = (0..)
        .zip(sizes.iter().cycle().take(70))
        .map(|(number, &bytes)| sender.send(payload(number, bytes), said(LONG, 3)).unwrap())
        .collect();
    let mut got = BTreeMap::new();
    while got.len() < 70 {
        let adu = timeout(LONG, receiver.recv()).await.unwrap().unwrap();
        let expected = payload(adu.id, sizes[adu.id as usize % sizes.len()]);
        assert!(adu.payload == expected, "{} torn", adu.id);
        assert!(adu.left.unwrap() <= LONG && adu.version == 0);
        assert!(got.insert(adu.id, ()).is_none(), "twice");
    }
    for ticket in tickets {
        let outcome = timeout(LONG, sender.outcome(ticket))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(outcome.fate, Fate::Sent { late: false });
        let on_wire = outcome.more;
        assert!(on_wire.begun > 0 && on_wire.begun <= on_wire.last);
        assert!(on_wire.last <= on_wire.ended);
    }
    timeout(LONG, sender.finish()).await.unwrap();
    let outcomes = sender.outcomes().await;
    assert_eq!(outcomes.len(), 70);
    let stats = sender.stats();
    assert_eq!(
        (stats.taken, stats.acknowledged, stats.streams),
        (70, 70, 70)
    );
    assert_eq!(
        (stats.resets, stats.waiting, stats.unacknowledged),
        (0, 0, 0)
    );
    assert_eq!(receiver.stats().delivered, 70);
    let path = sender.path();
    assert!(path.min_rtt > Duration::ZERO && path.min_rtt <= path.rtt);
}

#[tokio::test]
async fn deadline_in_the_past_and_too_large_an_adu_are_said_at_once() {
    let pair = plain().await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let past = Metadata::new().deadline(Deadline::from_monotonic_ns(1));
    let ticket = sender.send("late", past).unwrap();
    let outcome = timeout(LONG, sender.outcome(ticket))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(outcome.fate, Fate::GivenUp(Reason::Stale));
    assert_eq!((outcome.sent, outcome.more.begun), (0, 0));
    let error = sender
        .send(vec![0; (1 << 20) + 1], Metadata::new())
        .unwrap_err();
    let (bytes, limit) = ((1 << 20) + 1, 1 << 20);
    assert_eq!(error, ValueError::AduTooLarge { bytes, limit });
    let kept = past.treatment(Treatment::Forward);
    let ticket = sender.send("late, but kept", kept).unwrap();
    let outcome = timeout(LONG, sender.outcome(ticket))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(outcome.fate, Fate::Sent { late: true });
    let stats = sender.stats();
    assert_eq!((stats.taken, stats.given_up.stale), (2, 1));
    assert_eq!((stats.acknowledged, stats.late), (1, 1));
}

/// Keeps every stream from opening, so that what is sent waits.
async fn without_streams() -> (crate::ends::Pair, Sender) {
    let mut none = bestby::quic::transport_config();
    none.max_concurrent_uni_streams(0_u32.into());
    let pair = crate::ends::pair(bestby::quic::transport_config(), none).await;
    let sender = Sender::new(pair.near.clone(), Options::new().limits(8, 10_000));
    (pair, sender)
}

#[tokio::test]
async fn what_waits_is_renewed_amended_cancelled_and_evicted() {
    let (pair, sender) = without_streams().await;
    let kept = sender.send("old", said(LONG, 3)).unwrap();
    let cancelled = sender.send("gone", said(LONG, 3)).unwrap();
    let amended = sender.send("soon", said(LONG, 3)).unwrap();
    assert_eq!(sender.renew(kept, "new"), Ok(Renewed::Replaced));
    sender.cancel(cancelled).unwrap();
    assert_eq!(sender.state(cancelled), State::GivenUp(Reason::Cancelled));
    let error = sender.renew(cancelled, "again").unwrap_err();
    let RenewError::TooLate(too_late) = error else {
        panic!("{error}");
    };
    assert_eq!(too_late.state, State::GivenUp(Reason::Cancelled));
    assert_eq!(sender.cancel(cancelled), Err(too_late));
    let past = Metadata::new().deadline(Deadline::from_monotonic_ns(1));
    sender.amend(amended, past).unwrap();
    let outcome = timeout(LONG, sender.outcome(amended))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(outcome.fate, Fate::GivenUp(Reason::Stale));
    let least = sender.send(vec![0; 6_000], said(LONG, 6)).unwrap();
    let more = sender.send(vec![0; 6_000], said(LONG, 5)).unwrap();
    assert_eq!(sender.state(least), State::GivenUp(Reason::Evicted));
    assert_eq!(sender.state(more), State::Waiting);
    assert_eq!(sender.state(kept), State::Waiting);
    // The peer changes its mind.
    pair.far.set_max_concurrent_uni_streams(10_u32.into());
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    let mut got = Vec::new();
    for _ in 0..2 {
        got.push(timeout(LONG, receiver.recv()).await.unwrap().unwrap());
    }
    got.sort_by_key(|adu| adu.id);
    assert_eq!(&got[0].payload[..], b"new");
    assert_eq!((got[0].version, got[1].id), (0, more.number()));
    timeout(LONG, sender.finish()).await.unwrap();
    assert_eq!(sender.state(kept), State::Acknowledged);
    let error = sender.renew(kept, "later").unwrap_err();
    assert!(matches!(error, RenewError::TooLate(_)), "{error}");
    let stats = sender.stats();
    assert_eq!(stats.taken, stats.acknowledged + stats.given_up.total());
    assert!(stats.stream_limit > 0);
}

/// A receiver that reads nothing leaves most of a large ADU unacknowledged.
async fn with_a_small_window() -> (crate::ends::Pair, Sender) {
    let mut small = bestby::quic::transport_config();
    small.receive_window(20_000_u32.into());
    let pair = crate::ends::pair(bestby::quic::transport_config(), small).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    (pair, sender)
}

async fn until(sender: &Sender, what: impl Fn(&Sender) -> bool) {
    let waiting = async {
        while !what(sender) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LONG, waiting).await.unwrap();
}

#[tokio::test]
async fn what_is_on_its_way_is_renewed_with_a_new_version_and_cancelled_with_a_reset() {
    let (pair, sender) = with_a_small_window().await;
    let first = sender.send(vec![1; 100_000], said(LONG, 3)).unwrap();
    let second = sender.send("second", said(LONG, 4)).unwrap();
    until(&sender, |sender| sender.stats().flow_control > 0).await;
    let State::Begun { sent, of } = sender.state(first) else {
        panic!("{:?}", sender.state(first));
    };
    assert!(sent > 0 && sent < of && of > 100_000);
    assert_eq!(sender.renew(first, vec![2; 50_000]), Ok(Renewed::Again(1)));
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    let mut got = Vec::new();
    for _ in 0..2 {
        got.push(timeout(LONG, receiver.recv()).await.unwrap().unwrap());
    }
    got.sort_by_key(|adu| adu.id);
    assert_eq!((got[0].id, got[0].version), (first.number(), 1));
    assert!(got[0].payload == vec![2; 50_000]);
    assert_eq!(got[1].id, second.number());
    timeout(LONG, sender.finish()).await.unwrap();

    let third = sender.send(vec![3; 100_000], said(LONG, 3)).unwrap();
    let blocked = sender.stats().flow_control;
    until(&sender, |sender| sender.stats().flow_control > blocked).await;
    sender.cancel(third).unwrap();
    let fourth = sender.send(vec![4; 15_000], said(LONG, 3)).unwrap();
    let adu = timeout(LONG, receiver.recv()).await.unwrap().unwrap();
    assert_eq!((adu.id, adu.version), (fourth.number(), 0));
    let stats = sender.stats();
    assert_eq!(
        (stats.resets, stats.renewed, stats.given_up.cancelled),
        (2, 1, 1)
    );
}

#[tokio::test]
async fn what_is_on_its_way_is_amended_and_what_is_acknowledged_is_not() {
    let (pair, sender) = with_a_small_window().await;
    let past = Metadata::new().deadline(Deadline::from_monotonic_ns(1));
    let begun = sender.send(vec![1; 100_000], said(LONG, 3)).unwrap();
    until(&sender, |sender| sender.stats().flow_control > 0).await;
    // The new content is too large, so the old one goes on.
    let error = sender.renew(begun, vec![2; 2 << 20]).unwrap_err();
    assert!(matches!(error, RenewError::Value(_)), "{error}");
    assert!(matches!(sender.state(begun), State::Begun { .. }));
    // Kept, it is sent whenever; not kept, its time is over.
    let kept = past.treatment(Treatment::Forward);
    sender.amend(begun, kept).unwrap();
    sleep(Duration::from_millis(20)).await;
    assert!(matches!(sender.state(begun), State::Begun { .. }));
    sender
        .amend(begun, past.treatment(Treatment::Discard))
        .unwrap();
    let outcome = timeout(LONG, sender.outcome(begun)).await.unwrap().unwrap();
    assert_eq!(outcome.fate, Fate::GivenUp(Reason::Stale));
    assert!(outcome.sent > 0 && sender.stats().resets > 0);

    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    let after = sender.send("after", said(LONG, 3)).unwrap();
    let adu = timeout(LONG, receiver.recv()).await.unwrap().unwrap();
    assert_eq!(adu.id, after.number());
    timeout(LONG, sender.finish()).await.unwrap();
    let error = sender.amend(after, past).unwrap_err();
    assert_eq!(error.state, State::Acknowledged);
    assert_eq!(sender.cancel(after), Err(error));
}

/// Whoever takes the wall clock's time for a deadline says "in some fifty years".
#[tokio::test]
async fn deadline_of_the_wall_clock_is_far_away_and_never_stale() {
    let pair = plain().await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    let wall = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    for deadline in [wall, u64::MAX] {
        let metadata = Metadata::new().deadline(Deadline::from_monotonic_ns(deadline));
        let ticket = sender.send("x", metadata).unwrap();
        let adu = timeout(LONG, receiver.recv()).await.unwrap().unwrap();
        let year = Duration::from_secs(365 * 24 * 3600);
        assert!(adu.left.is_none_or(|left| left > 10 * year));
        let outcome = timeout(LONG, sender.outcome(ticket))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(outcome.fate, Fate::Sent { late: false });
    }
}

#[tokio::test]
async fn by_id_never_waits_for_what_was_given_up() {
    let (pair, sender) = without_streams().await;
    let tickets: Vec<_> = (0..6)
        .map(|number| sender.send(payload(number, 10), said(LONG, 3)).unwrap())
        .collect();
    sender.cancel(tickets[0]).unwrap();
    sender.cancel(tickets[3]).unwrap();
    pair.far.set_max_concurrent_uni_streams(10_u32.into());
    let options = ReceiverOptions::new().order(Order::ById);
    let mut receiver = Receiver::new(pair.far.clone(), options);
    for id in [1, 2, 4, 5] {
        let adu = timeout(LONG, receiver.recv()).await.unwrap().unwrap();
        assert_eq!(adu.id, id);
    }
    assert_eq!(receiver.stats().skipped, 2);
    timeout(LONG, sender.finish()).await.unwrap();
}

#[tokio::test]
async fn adu_that_the_receiver_refuses_has_an_outcome_and_nobody_waits_for_it() {
    let pair = plain().await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let options = ReceiverOptions::new().order(Order::ById).adu_limit(1_000);
    let mut receiver = Receiver::new(pair.far.clone(), options);
    let large = sender.send(vec![0; 1 << 20], said(LONG, 3)).unwrap();
    sender.send("small", said(LONG, 3)).unwrap();
    let adu = timeout(LONG, receiver.recv()).await.unwrap().unwrap();
    assert_eq!(adu.id, 1);
    let outcome = timeout(LONG, sender.outcome(large)).await.unwrap().unwrap();
    assert_eq!(outcome.fate, Fate::GivenUp(Reason::Cancelled));
    assert_eq!(outcome.more.refused, Some(0x0b2));
    assert_eq!((sender.stats().refused, receiver.stats().refused), (1, 1));
}
