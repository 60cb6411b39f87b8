//! Wrong use and faults: each has an error or an outcome, nothing is lost uncounted, and nothing spins.

use std::time::Duration;

use bestby::quic::{
    BadHeader, Ended, Fate, Options, Reason, Receiver, ReceiverOptions, Sender, State,
    transport_config,
};
use quinn::{ConnectionError, TransportConfig};
use tokio::time::{sleep, timeout};

use crate::{
    ends::{LONG, outcomes, pair, said},
    plain,
};

const SENT: Fate = Fate::Sent { late: false };
const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn peer_that_closes_ends_every_wait_and_each_adu_is_counted() {
    let mut few = transport_config();
    few.max_concurrent_uni_streams(2_u32.into());
    let pair = pair(transport_config(), few).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let tickets: Vec<_> = (0..50)
        .map(|_| sender.send("x", said(LONG, 3)).unwrap())
        .collect();
    let waiting = {
        let sender = sender.clone();
        tokio::spawn(async move { sender.outcome(tickets[49]).await })
    };
    while sender.stats().stream_limit == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    pair.far.close(7_u32.into(), b"bye");
    let outcome = timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(outcome.fate, Fate::GivenUp(Reason::Closed));
    let fates = outcomes(&sender, 50).await;
    let closed = fates
        .iter()
        .filter(|fate| **fate == Fate::GivenUp(Reason::Closed));
    assert!(closed.count() >= 48);
    let after = sender.send("y", said(LONG, 3)).unwrap();
    assert_eq!(sender.state(after), State::GivenUp(Reason::Closed));
    assert_eq!(sender.outcomes().await.len(), 1);
    assert!(sender.outcomes().await.is_empty(), "nothing more will come");
}

#[tokio::test]
async fn four_streams_at_once_carry_any_number_of_adus() {
    let mut four = transport_config();
    four.max_concurrent_uni_streams(4_u32.into());
    let pair = pair(transport_config(), four).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    for number in 0..200_u8 {
        sender
            .send(vec![number; 100], said(LONG, number % 8))
            .unwrap();
    }
    let mut ids = Vec::new();
    for _ in 0..200 {
        ids.push(timeout(LONG, receiver.recv()).await.unwrap().unwrap().id);
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..200).collect::<Vec<_>>());
    let fates = outcomes(&sender, 200).await;
    assert!(fates.iter().all(|fate| *fate == SENT));
    assert!(sender.stats().stream_limit > 0);
}

#[tokio::test]
async fn adus_that_wait_for_a_stream_become_stale_and_the_receiver_goes_on_afterwards() {
    let mut four = transport_config();
    four.max_concurrent_uni_streams(4_u32.into());
    let pair = pair(transport_config(), four).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    // Nobody reads, so that no stream comes back.
    for _ in 0..100 {
        sender.send("x", said(SHORT, 3)).unwrap();
    }
    let fates = outcomes(&sender, 100).await;
    let acknowledged = fates.iter().filter(|fate| **fate == SENT).count();
    assert!(acknowledged <= 4);
    assert_eq!(sender.stats().given_up.stale as usize, 100 - acknowledged);
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    let last = sender.send("y", said(LONG, 3)).unwrap();
    while timeout(LONG, receiver.recv()).await.unwrap().unwrap().id != last.number() {}
}

#[tokio::test]
async fn stream_that_the_receiver_does_not_read_stops_no_other() {
    let mut small = transport_config();
    small.stream_receive_window(20_000_u32.into());
    let pair = pair(transport_config(), small).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let large = sender.send(vec![0; 100_000], said(LONG, 0)).unwrap();
    let mut unread = timeout(LONG, pair.far.accept_uni()).await.unwrap().unwrap();
    for _ in 0..20 {
        sender.send(vec![0; 5_000], said(LONG, 5)).unwrap();
    }
    for _ in 0..20 {
        let mut stream = timeout(LONG, pair.far.accept_uni()).await.unwrap().unwrap();
        let read = timeout(LONG, stream.read_to_end(10_000)).await.unwrap();
        assert!(read.unwrap().len() > 5_000);
    }
    let State::Begun { sent, .. } = sender.state(large) else {
        panic!("{:?}", sender.state(large));
    };
    assert!(sent <= 20_000);
    let read = timeout(LONG, unread.read_to_end(200_000)).await.unwrap();
    assert!(read.unwrap().len() > 100_000);
    let fates = outcomes(&sender, 21).await;
    assert!(fates.iter().all(|fate| *fate == SENT));
}

#[tokio::test]
async fn stream_without_a_header_closes_the_connection_with_0x0b1() {
    let cases: [(&[u8], BadHeader); 3] = [
        (b"GET / HTTP/1.1\r\n", BadHeader::Type(0x0745)),
        (&[0x0b, 4, 0], BadHeader::Truncated),
        (&[0x0b, 4, 0, 0, 0, 0x10, 1], BadHeader::NoticeWithPayload),
    ];
    for (bytes, bad) in cases {
        let pair = plain().await;
        let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
        let mut stream = pair.near.open_uni().await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.finish().unwrap();
        let ended = timeout(LONG, receiver.recv()).await.unwrap().unwrap_err();
        match (&ended, bad) {
            (Ended::Protocol(BadHeader::Type(_)), BadHeader::Type(_)) => {}
            _ => assert_eq!(ended, Ended::Protocol(bad)),
        }
        assert_eq!(receiver.recv().await, Err(ended));
        let error = timeout(LONG, pair.near.closed()).await.unwrap();
        let ConnectionError::ApplicationClosed(close) = error else {
            panic!("{error}");
        };
        assert_eq!(close.error_code, 0x0b1_u32.into());
    }
}

#[tokio::test]
async fn transport_without_counters_and_with_its_defaults_does_as_well() {
    let pair = pair(TransportConfig::default(), TransportConfig::default()).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    for number in 0..200 {
        let bytes = if number == 7 { 1 << 20 } else { 1_000 };
        sender.send(vec![0; bytes], said(LONG, 3)).unwrap();
    }
    // What is sent goes on when nobody has a handle any more.
    let path = sender.path();
    drop(sender);
    for _ in 0..200 {
        timeout(LONG, receiver.recv()).await.unwrap().unwrap();
    }
    assert_eq!((path.rate, path.cap), (None, None));
}

#[tokio::test]
async fn path_of_1200_bytes_is_enough() {
    let mut least = transport_config();
    least.mtu_discovery_config(None);
    let pair = pair(least, transport_config()).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    for bytes in 1_100..1_300 {
        sender.send(vec![0; bytes], said(LONG, 3)).unwrap();
    }
    for _ in 0..200 {
        timeout(LONG, receiver.recv()).await.unwrap().unwrap();
    }
    let fates = outcomes(&sender, 200).await;
    assert!(fates.iter().all(|fate| *fate == SENT));
}

#[tokio::test]
async fn receiver_that_holds_little_reads_the_oldest_stream_and_gets_all_of_it() {
    let pair = plain().await;
    let sender = Sender::new(pair.near.clone(), Options::new().limits(100, 64 << 20));
    let options = ReceiverOptions::new().held(10_000);
    let mut receiver = Receiver::new(pair.far.clone(), options);
    for number in 0..30 {
        sender.send(vec![number; 100_000], said(LONG, 3)).unwrap();
    }
    for _ in 0..30 {
        let adu = timeout(LONG, receiver.recv()).await.unwrap().unwrap();
        assert!(adu.payload == vec![adu.id as u8; 100_000], "torn");
    }
    outcomes(&sender, 30).await;
}

#[tokio::test]
async fn own_end_that_closes_gives_up_what_waits_and_what_is_on_its_way() {
    let mut small = transport_config();
    small.receive_window(20_000_u32.into());
    let pair = pair(transport_config(), small).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let tickets: Vec<_> = (0..5)
        .map(|_| sender.send(vec![0; 15_000], said(LONG, 3)).unwrap())
        .collect();
    while !matches!(sender.state(tickets[1]), State::Begun { .. }) {
        sleep(Duration::from_millis(1)).await;
    }
    pair.near.close(0_u32.into(), b"");
    let fates = outcomes(&sender, 5).await;
    let closed = Fate::GivenUp(Reason::Closed);
    assert!(fates.iter().filter(|fate| **fate == closed).count() >= 4);
    // A reset would tell nobody anything.
    assert_eq!(sender.stats().resets, 0);
}
