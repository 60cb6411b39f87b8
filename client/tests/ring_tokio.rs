//! `bestby::tokio::Ring` over loopback, against a receiver that checks every byte.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used)]

use std::{os::unix::net::UnixStream, sync::Arc, time::Duration};

use bestby::{
    Error, Lifetime, Metadata, Priority,
    tcp::{Fate, Options, Reason, State, Ticket},
    tokio::Ring,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(100);

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await;
    (near.unwrap(), listener.accept().await.unwrap().0)
}

fn said(lifetime: Duration, priority: u8) -> Metadata {
    Metadata::new()
        .lifetime(Lifetime::new(lifetime).unwrap())
        .priority(Priority::new(priority).unwrap())
}

/// Length behind it, number, and bytes that follow from the number.
fn frame(number: u32, bytes: usize) -> Vec<u8> {
    let mut frame = (bytes as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(&number.to_be_bytes());
    frame.extend((0..bytes).map(|n| (n as u32 ^ number) as u8));
    frame
}

/// Numbers of the frames until the stream ends.
async fn frames(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u32> {
    let mut numbers = Vec::new();
    while let Ok(len) = stream.read_u32().await {
        let number = stream.read_u32().await.unwrap();
        let mut rest = vec![0; len as usize];
        stream.read_exact(&mut rest).await.unwrap();
        assert_eq!(rest, frame(number, len as usize)[8..], "torn");
        numbers.push(number);
    }
    numbers
}

#[tokio::test]
async fn handles_of_many_tasks_push_and_the_driver_ends_when_all_is_sent() {
    let (near, mut far) = pair().await;
    let (ring, driver) = Ring::new(near, Options::new()).unwrap();
    let driver = tokio::spawn(driver);
    let tasks = (0..8u32).map(|task| {
        let ring = ring.clone();
        tokio::spawn(async move {
            for n in 0..50 {
                let ticket = ring.push(frame(task * 50 + n, 5_000), said(LONG, 3));
                let state = ring.outcome(ticket).await;
                assert!(
                    matches!(state, State::Sent | State::Acknowledged),
                    "{state:?}"
                );
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    drop(ring);
    let mut numbers = timeout(LONG, frames(&mut far)).await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    driver.await.unwrap().unwrap();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..400).collect::<Vec<_>>());
}

#[tokio::test]
async fn receiver_that_stops_reading_wakes_the_driver_rarely_and_reads_whole_frames_later() {
    let (near, mut far) = pair().await;
    let (ring, driver) = Ring::new(near, Options::new().limits(5000, 64 << 20)).unwrap();
    let driver = tokio::spawn(driver);
    for number in 0..1_500 {
        ring.push(frame(number, 20_000), said(LONG, 3));
    }
    let short = ring.push(frame(9_999, 10), said(Duration::from_millis(300), 7));
    assert_eq!(ring.outcome(short).await, State::GivenUp(Reason::Stale));
    let mut before = 0;
    while ring.stats().bytes != before {
        before = ring.stats().bytes;
        sleep(Duration::from_millis(300)).await;
    }
    let drives = ring.stats().drives;
    sleep(Duration::from_secs(1)).await;
    let drives = ring.stats().drives - drives;
    assert!(drives < 100, "{drives} in a second");

    let last = ring.push(frame(1_500, 10), said(LONG, 7));
    drop(ring.clone());
    let waiting = ring.stats().waiting;
    assert!(waiting > 100, "{waiting}");
    drop(ring);
    let numbers = timeout(LONG, frames(&mut far)).await.unwrap();
    driver.await.unwrap().unwrap();
    assert_eq!(numbers, (0..=1_500).collect::<Vec<_>>());
    assert_eq!(last.number(), 1_501);
}

#[tokio::test]
async fn peer_that_is_gone_ends_the_driver_and_every_wait() {
    let (near, far) = pair().await;
    let (ring, driver) = Ring::new(near, Options::new().limits(5000, 64 << 20)).unwrap();
    let driver = tokio::spawn(driver);
    let tickets: Vec<Ticket> = (0..1_500)
        .map(|number| ring.push(frame(number, 20_000), said(LONG, 3)))
        .collect();
    drop(far);
    let state = timeout(LONG, ring.outcome(tickets[1_499])).await.unwrap();
    assert_eq!(state, State::GivenUp(Reason::Closed));
    let error = driver.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    let after = ring.push(frame(0, 0), Metadata::new());
    assert_eq!(ring.outcome(after).await, State::GivenUp(Reason::Closed));
    let outcomes = ring.outcomes().await;
    assert_eq!(outcomes.len(), 1_501);
    assert!(ring.outcomes().await.is_empty(), "nothing more will come");
}

#[tokio::test]
async fn idle_ring_learns_that_its_peer_is_gone() {
    let (near, mut far) = pair().await;
    let (ring, driver) = Ring::new(near, Options::new()).unwrap();
    let driver = tokio::spawn(driver);
    let ticket = ring.push(frame(1, 10), Metadata::new());
    ring.outcome(ticket).await;
    // Data that the near end never reads makes its kernel reset the connection.
    far.set_zero_linger().unwrap();
    far.write_all(b"x").await.unwrap();
    drop(far);
    let ended = timeout(LONG, driver).await.unwrap().unwrap();
    assert!(ended.is_err());
    drop(ring);
}

#[tokio::test]
async fn dropped_driver_gives_up_what_waits() {
    let (near, _far) = pair().await;
    let (ring, driver) = Ring::new(near, Options::new()).unwrap();
    let ticket = ring.push(frame(1, 10), Metadata::new());
    drop(driver);
    assert_eq!(ring.outcome(ticket).await, State::GivenUp(Reason::Closed));
    let outcomes = ring.outcomes().await;
    assert_eq!(outcomes[0].fate, Fate::GivenUp(Reason::Closed));
}

#[tokio::test]
async fn hold_keeps_the_driver_from_beginning() {
    let (near, mut far) = pair().await;
    let (ring, driver) = Ring::new(near, Options::new()).unwrap();
    let driver = tokio::spawn(driver);
    let (hold, second) = (ring.hold(), ring.hold());
    let ticket = ring.push(frame(1, 10), Metadata::new());
    let other = ring.push(frame(2, 10), Metadata::new());
    drop(second);
    sleep(Duration::from_millis(50)).await;
    assert_eq!(ring.state(ticket), State::Waiting);
    ring.replace(ticket, frame(3, 20)).unwrap();
    ring.cancel(other).unwrap();
    drop(hold);
    ring.outcome(ticket).await;
    assert!(ring.replace(ticket, frame(4, 20)).is_err());
    drop(ring);
    assert_eq!(timeout(LONG, frames(&mut far)).await.unwrap(), [3]);
    driver.await.unwrap().unwrap();
}

#[tokio::test]
async fn socket_of_the_standard_library_and_shared_buffers_do_as_well() {
    let (near, far) = UnixStream::pair().unwrap();
    let (ring, driver) = Ring::new(near, Options::new()).unwrap();
    let driver = tokio::spawn(driver);
    let one: Arc<[u8]> = frame(7, 300_000).into();
    for _ in 0..10 {
        ring.push(Arc::clone(&one), said(LONG, 3));
    }
    sleep(Duration::from_millis(300)).await;
    let drives = ring.stats().drives;
    assert!(drives < 100, "{drives} while nobody reads");
    drop(ring);
    far.set_nonblocking(true).unwrap();
    let mut far = tokio::net::UnixStream::from_std(far).unwrap();
    assert_eq!(timeout(LONG, frames(&mut far)).await.unwrap(), [7; 10]);
    driver.await.unwrap().unwrap();
}
