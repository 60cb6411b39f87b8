//! What `bestby::tcp::Ring` needs of a kernel, on the oldest and the newest: what it says, and when it wakes. The
//! rest is in root's `ring`, on the kernel of this machine.

use std::{
    net::TcpStream,
    time::{Duration, Instant},
};

use bestby::{
    Lifetime, Metadata,
    tcp::{Options, Ring, State, Ticket},
};

use crate::ring_lab::{Line, Receiver, congestion_controls, frame};

/// Longer than a test takes.
const LONG: Duration = Duration::from_secs(100);
const FRAMES: u32 = 20;

fn push(ring: &mut Ring<TcpStream>) -> Vec<Ticket> {
    let metadata = Metadata::new().lifetime(Lifetime::new(LONG).unwrap());
    (0..FRAMES)
        .map(|number| ring.push(frame(number, 3_000), metadata))
        .collect()
}

#[test]
fn kernel_says_all_a_ring_asks_and_tells_of_each_acknowledgement() {
    let line = Line::new(2_000);
    let (near, far) = line.connect(congestion_controls()[0]);
    let receiver = Receiver::new(far);
    let mut ring = Ring::new(near).unwrap();
    let form = ring.form();
    assert!(
        form.window && form.rate && form.unsent && form.acknowledged && form.events,
        "{form:?}"
    );
    let tickets = push(&mut ring);
    let until = Instant::now() + LONG;
    let last = tickets[tickets.len() - 1];
    while ring.state(last) != State::Acknowledged && Instant::now() < until {
        ring.run_until(Instant::now() + Duration::from_millis(10))
            .unwrap();
    }
    let stats = ring.stats();
    println!("{stats:?} {:?}", ring.path());
    assert_eq!(stats.acknowledgements, stats.writes, "{stats:?}");
    assert!(stats.unsent_p99 <= 3072, "{stats:?}");
    assert!(
        ring.path()
            .is_some_and(|path| path.min_rtt > Duration::ZERO)
    );
    drop(ring.close());
    assert_eq!(receiver.end().len(), FRAMES as usize);
}

#[test]
fn ring_that_is_told_nothing_sends_all_the_same_and_wakes_by_a_timer() {
    let line = Line::new(2_000);
    let (near, far) = line.connect(congestion_controls()[0]);
    let receiver = Receiver::new(far);
    let options = Options::new().info_bytes(0).acknowledgements(false);
    let mut ring = Ring::with(near, options).unwrap();
    let form = ring.form();
    assert!(!form.window && !form.rate && !form.events, "{form:?}");
    push(&mut ring);
    assert!(ring.finish(Instant::now() + LONG).unwrap());
    let stats = ring.stats();
    assert_eq!((stats.sent, stats.acknowledgements), (FRAMES.into(), 0));
    assert!(ring.path().is_none());
    drop(ring.close());
    assert_eq!(receiver.end().len(), FRAMES as usize);
}
