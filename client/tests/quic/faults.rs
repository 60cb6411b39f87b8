//! Wrong use and faults: each has an error or an outcome, nothing is lost uncounted, and nothing spins.

use std::{sync::Arc, time::Duration};

use bestby::quic::{
    BadHeader, Ended, Fate, Options, Reason, Receiver, ReceiverOptions, Sender, State,
    transport_config,
};
use quinn::{ConnectionError, TransportConfig};
use tokio::time::{sleep, timeout};

use crate::{
    ends::{LONG, Pair, client, crypto, join, pair, plain, said, server},
    relay::{Relay, Shape},
};

const SHORT: Duration = Duration::from_millis(300);

/// Every ADU has an outcome, all of them these.
async fn outcomes(sender: &Sender, count: usize) -> Vec<Fate> {
    timeout(LONG, sender.finish()).await.unwrap();
    let fates: Vec<_> = sender
        .outcomes()
        .await
        .iter()
        .map(|outcome| outcome.fate)
        .collect();
    let stats = sender.stats();
    assert_eq!(fates.len(), count);
    assert_eq!(
        stats.taken,
        stats.acknowledged + stats.given_up(),
        "{stats:?}"
    );
    assert_eq!(
        (stats.waiting, stats.unacknowledged, stats.waiting_bytes),
        (0, 0, 0)
    );
    fates
}

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

fn quick() -> TransportConfig {
    let mut transport = transport_config();
    let idle = Duration::from_secs(3);
    transport.max_idle_timeout(Some(idle.try_into().unwrap()));
    transport
}

async fn relayed() -> (Pair, Relay) {
    let far_end = server(quick());
    let shape = Shape {
        rate: 10_000_000,
        fifo: 100,
        delay: Duration::from_millis(1),
        loses: |_, _| false,
    };
    let relay = Relay::new(far_end.local_addr().unwrap(), shape);
    let near_end = client(Arc::new(crypto()), quick());
    (join(near_end, far_end, relay.address).await, relay)
}

#[tokio::test]
async fn peer_that_vanishes_leaves_stale_and_closed_adus_and_one_that_comes_back_starts_anew() {
    let (pair, relay) = relayed().await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    sender.send("before", said(LONG, 3)).unwrap();
    timeout(LONG, receiver.recv()).await.unwrap().unwrap();
    timeout(LONG, sender.finish()).await.unwrap();
    drop(relay);
    sender.send("after", said(LONG, 3)).unwrap();
    let short = said(Duration::from_millis(150), 3);
    sender.send("after", short).unwrap();
    let fates = outcomes(&sender, 3).await;
    let given_up = Fate::GivenUp;
    assert_eq!(
        fates[1..],
        [given_up(Reason::Stale), given_up(Reason::Closed)]
    );
    let error = timeout(LONG, receiver.recv()).await.unwrap().unwrap_err();
    assert!(matches!(error, Ended::Closed(_)), "{error}");

    let (pair, _relay) = relayed().await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    sender.send("again", said(LONG, 3)).unwrap();
    let adu = timeout(LONG, receiver.recv()).await.unwrap().unwrap();
    assert_eq!((adu.id, adu.version), (0, 0));
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
    assert!(fates.iter().all(|fate| *fate == Fate::Sent { late: false }));
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
    let acknowledged = fates
        .iter()
        .filter(|fate| **fate == Fate::Sent { late: false })
        .count();
    assert!(acknowledged <= 4);
    assert_eq!(sender.stats().stale as usize, 100 - acknowledged);
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    let last = sender.send("y", said(LONG, 3)).unwrap();
    while timeout(LONG, receiver.recv()).await.unwrap().unwrap().id != last.number() {}
}

#[tokio::test]
async fn receiver_that_stops_reading_wakes_the_driver_rarely() {
    let mut small = transport_config();
    small.receive_window(20_000_u32.into());
    let pair = pair(transport_config(), small).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    for _ in 0..50 {
        sender.send(vec![0; 5_000], said(LONG, 3)).unwrap();
    }
    let short = sender.send("x", said(SHORT, 7)).unwrap();
    let outcome = timeout(LONG, sender.outcome(short)).await.unwrap().unwrap();
    assert_eq!(outcome.fate, Fate::GivenUp(Reason::Stale));
    let drives = sender.stats().drives;
    sleep(Duration::from_secs(1)).await;
    let drives = sender.stats().drives - drives;
    assert!(drives < 100, "{drives} in a second");
    let stats = sender.stats();
    assert!(stats.flow_control > 0 && stats.waiting > 40, "{stats:?}");
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    for _ in 0..50 {
        timeout(LONG, receiver.recv()).await.unwrap().unwrap();
    }
    outcomes(&sender, 51).await;
    let drives = sender.stats().drives;
    sleep(Duration::from_secs(1)).await;
    let drives = sender.stats().drives - drives;
    assert!(drives < 20, "{drives} in an idle second");
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
    assert!(fates.iter().all(|fate| *fate == Fate::Sent { late: false }));
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
