//! `bestby::tcp::Ring` on this kernel: what stays unsent, what arrives, and what happens when the peer does
//! not play along.

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    os::fd::AsRawFd as _,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bestby::{
    Lifetime, Metadata, Priority,
    tcp::{Fate, Method, Options, Outcome, Reason, Ring, State, Stop, Ticket},
};

use bestby_tests::{netns::Netns, require};

use crate::ring_lab::{Line, Receiver, Unsent, congestion_controls, frame};

/// Bytes of a segment's payload on these links.
const SEGMENT: i32 = 1448;
/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(100);

fn said(lifetime: Duration, priority: u8) -> Metadata {
    Metadata::new()
        .lifetime(Lifetime::new(lifetime).unwrap())
        .priority(Priority::new(priority).unwrap())
}

/// The paper's sender (`tcp-ldc.txt`, section 6): eight layers, of each an ADU of 16 kB a second. Returns outcomes by
/// number, which is 8 × second + layer.
fn layers(ring: &mut Ring<TcpStream>, seconds: u32) -> BTreeMap<u32, Outcome> {
    let start = Instant::now();
    let mut numbers = BTreeMap::new();
    for second in 0..seconds {
        for layer in 0..8 {
            let number = 8 * second + layer;
            let lifetime = Duration::from_millis(1050);
            let ticket = ring.push(frame(number, 16_000), said(lifetime, layer as u8));
            numbers.insert(ticket, number);
        }
        let next = start + Duration::from_secs(1) * (second + 1);
        ring.run_until(next).unwrap();
    }
    assert!(ring.finish(Instant::now() + LONG).unwrap());
    let outcomes = ring.outcomes().map(|o| (numbers[&o.ticket], o));
    let mut by_number = BTreeMap::new();
    for (number, outcome) in outcomes {
        assert!(
            by_number.insert(number, outcome).is_none(),
            "{number} twice"
        );
    }
    assert_eq!(by_number.len(), numbers.len(), "each ADU once");
    by_number
}

#[test]
fn ring_keeps_two_segments_unsent_and_the_base_layer_arrives() {
    for (rate, congestion_control) in [1024, 512, 256].into_iter().zip(congestion_controls()) {
        let line = Line::new(rate);
        let (near, far) = line.connect(congestion_control);
        let receiver = Receiver::new(far);
        let unsent = Unsent::of(&near);
        let mut ring = Ring::new(near).unwrap();
        let form = ring.form();
        assert!(form.window && form.rate && form.unsent && form.acknowledged && form.events);
        let seconds = 6;
        let outcomes = layers(&mut ring, seconds);
        let (stats, path) = (ring.stats(), ring.path());
        let p99 = unsent.p99();
        println!("{rate} kbit/s, {congestion_control}: p99 {p99}, {stats:?} {path:?}");
        drop(ring.close());
        assert!(p99 <= 2 * SEGMENT, "{p99}");
        assert!(stats.unsent_p99 <= 3072, "{stats:?}");

        let arrived: Vec<u32> = receiver.end().into_iter().map(|(n, _)| n).collect();
        let sent = outcomes
            .iter()
            .filter(|(_, o)| matches!(o.fate, Fate::Sent { .. }));
        let mut sent: Vec<u32> = sent.map(|(number, _)| *number).collect();
        let mut all = arrived.clone();
        all.sort_unstable();
        sent.sort_unstable();
        assert_eq!(all, sent, "what is sent arrives, and nothing else");
        let layer = |layer| arrived.iter().filter(|n| *n % 8 == layer).count() as u32;
        let counts: Vec<u32> = (0..8).map(layer).collect();
        let base = outcomes.iter().filter(|(number, _)| *number % 8 == 0);
        println!(
            "{counts:?} {:?}",
            base.map(|(_, o)| o.fate).collect::<Vec<_>>()
        );
        // The first second has no rate yet, and its last ADU may be in the way of the next second's.
        assert!(counts[0] >= seconds - 2, "{counts:?}");
        assert_eq!(counts[0], *counts.iter().max().unwrap(), "{counts:?}");
        assert!(counts[7] < seconds, "{counts:?}");
        assert_eq!(
            stats.pushed,
            stats.sent + stats.given_up.total(),
            "{stats:?}"
        );
    }
}

#[test]
fn plain_tcp_on_the_same_line_keeps_far_more_unsent() {
    let line = Line::new(512);
    let (mut near, far) = line.connect(congestion_controls()[0]);
    let receiver = Receiver::new(far);
    let unsent = Unsent::of(&near);
    let writer = near.try_clone().unwrap();
    let writing = thread::spawn(move || {
        for number in 0..16 {
            // Ends with an error when the socket is shut down.
            if near.write_all(&frame(number, 16_000)).is_err() {
                return;
            }
        }
    });
    thread::sleep(Duration::from_secs(2));
    let p99 = unsent.p99();
    assert!(p99 > 10 * SEGMENT, "{p99}");
    writing.join().unwrap();
    writer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(receiver.end().len(), 16, "all of it, however late");
}

#[test]
fn acknowledgements_wake_and_mark_each_adu() {
    let line = Line::new(2_000);
    let (near, far) = line.connect(congestion_controls()[0]);
    let receiver = Receiver::new(far);
    let mut ring = Ring::with(near, Options::new().method(Method::Fifo)).unwrap();
    let tickets: Vec<Ticket> = (0..40)
        .map(|number| ring.push(frame(number, 3_000), said(LONG, 3)))
        .collect();
    assert_eq!(ring.state(tickets[0]), State::Waiting);
    let until = Instant::now() + LONG;
    let all = |ring: &Ring<TcpStream>| {
        let states = tickets.iter().map(|ticket| ring.state(*ticket));
        states.filter(|state| *state == State::Acknowledged).count()
    };
    while all(&ring) < tickets.len() && Instant::now() < until {
        ring.run_until(Instant::now() + Duration::from_millis(10))
            .unwrap();
    }
    assert_eq!(all(&ring), tickets.len());
    let stats = ring.stats();
    assert_eq!(
        stats.acknowledgements, stats.writes,
        "one for each: {stats:?}"
    );
    assert_eq!((stats.bytes, stats.sent, stats.late), (120_000, 40, 0));
    drop(ring.close());
    let order: Vec<u32> = receiver.end().into_iter().map(|(n, _)| n).collect();
    assert!(order.is_sorted() && order.len() == 40, "{order:?}");
}

#[test]
fn kernels_that_say_less_are_served_with_less() {
    // 5.3, 4.8, 4.5, 3.x, and one that knows no TCP_INFO at all.
    for (bytes, acknowledgements) in [
        (228, true),
        (160, true),
        (144, false),
        (104, false),
        (0, true),
    ] {
        let line = Line::new(2_000);
        let (near, far) = line.connect(congestion_controls()[0]);
        let receiver = Receiver::new(far);
        let unsent = Unsent::of(&near);
        let options = Options::new()
            .info_bytes(bytes)
            .acknowledgements(acknowledgements);
        let mut ring = Ring::with(near, options).unwrap();
        let form = ring.form();
        assert_eq!(form.window, bytes >= 84, "{form:?}");
        assert_eq!(
            (form.rate, ring.path().is_some()),
            (bytes >= 168, bytes >= 168)
        );
        assert_eq!(form.events, acknowledgements && bytes > 0);
        assert!(form.unsent, "{bytes}: the ioctl says so");
        for number in 0..40 {
            ring.push(frame(number, 6_000), said(LONG, 3));
        }
        assert!(ring.finish(Instant::now() + LONG).unwrap(), "{form:?}");
        let stats = ring.stats();
        assert_eq!((stats.sent, stats.bytes), (40, 240_000), "{form:?}");
        // A loop would come to hundreds of thousands.
        assert!(stats.drives < 5_000, "{form:?}: {stats:?}");
        let p99 = unsent.p99();
        println!("{bytes}: p99 {p99}, {} drives", stats.drives);
        assert!(p99 <= 16 << 10, "{form:?}: {p99}");
        drop(ring.close());
        assert_eq!(receiver.end().len(), 40);
    }
}

/// CPU time of this thread.
fn cpu() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn receiver_that_stops_reading_costs_no_loop_and_gets_the_rest_later() {
    let line = Line::new(100_000);
    for acknowledgements in [true, false] {
        let (near, mut far) = line.connect(congestion_controls()[0]);
        let options = Options::new().acknowledgements(acknowledgements);
        let mut ring = Ring::with(near, options.limits(5000, 64 << 20)).unwrap();
        for number in 0..2_000 {
            ring.push(frame(number, 10_000), said(LONG, 3));
        }
        let short = ring.push(frame(9_999, 1_000), said(Duration::from_millis(700), 7));
        // The receive buffer fills up.
        let mut before = 0;
        while ring.stats().bytes != before || before == 0 {
            before = ring.stats().bytes;
            ring.run_until(Instant::now() + Duration::from_millis(500))
                .unwrap();
        }
        let (drives, used) = (ring.stats().drives, cpu());
        ring.run_until(Instant::now() + Duration::from_secs(2))
            .unwrap();
        let (drives, used) = (ring.stats().drives - drives, cpu() - used);
        println!("acknowledgements {acknowledgements}: {drives} drives, {used:?} in 2 s");
        assert!(drives < 60, "{drives}");
        assert_eq!(ring.state(short), State::GivenUp(Reason::Stale));

        let reading = thread::spawn(move || {
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).unwrap();
            bytes.len()
        });
        assert!(ring.finish(Instant::now() + LONG).unwrap());
        let stats = ring.stats();
        assert_eq!(
            (stats.sent, stats.given_up.total()),
            (2_000, 1),
            "{stats:?}"
        );
        drop(ring.close());
        assert_eq!(reading.join().unwrap(), 2_000 * 10_000);
    }
}

#[test]
fn full_congestion_window_is_no_loop() {
    let line = Line::new(256);
    let (near, mut far) = line.connect(congestion_controls()[0]);
    let reading = thread::spawn(move || std::io::copy(&mut far, &mut std::io::sink()).unwrap());
    let mut ring = Ring::with(near, Options::new().queue(None)).unwrap();
    for number in 0..1_000 {
        ring.push(frame(number, 1_000), said(LONG, 3));
    }
    let used = cpu();
    ring.run_until(Instant::now() + Duration::from_secs(3))
        .unwrap();
    let (used, stats) = (cpu() - used, ring.stats());
    println!(
        "{used:?} for {} writes, {} drives in 3 s",
        stats.writes, stats.drives
    );
    assert!(stats.waiting > 0, "the line was never the limit: {stats:?}");
    // Each acknowledgement, and a timer of 5 ms at the most.
    assert!(stats.drives < 2 * stats.writes + 700, "{stats:?}");
    drop(ring.close());
    assert_eq!(reading.join().unwrap(), stats.bytes);
}

#[test]
fn peer_that_is_killed_ends_the_ring_with_an_error_and_every_adu_with_an_outcome() {
    let line = Line::new(256);
    let (near, far) = line.connect(congestion_controls()[0]);
    let mut ring = Ring::new(near).unwrap();
    for number in 0..100 {
        ring.push(frame(number, 16_000), said(LONG, 3));
    }
    ring.run_until(Instant::now() + Duration::from_millis(300))
        .unwrap();
    // A process that dies with unread data: its kernel resets the connection.
    drop(far);
    let error = ring.run_until(Instant::now() + LONG).unwrap_err();
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(kinds.contains(&error.kind()), "{error}");
    let outcomes: Vec<Outcome> = ring.outcomes().collect();
    assert_eq!(outcomes.len(), 100);
    let stats = ring.stats();
    assert_eq!(stats.sent + stats.given_up.closed, 100, "{stats:?}");
    assert!(stats.given_up.closed > 90, "{stats:?}");
    assert_eq!(ring.drive().unwrap_err().kind(), ErrorKind::NotConnected);
}

#[test]
fn network_that_is_silent_for_a_while_costs_what_becomes_stale_and_no_loop() {
    let line = Line::new(2_000);
    let (near, far) = line.connect(congestion_controls()[0]);
    let receiver = Receiver::new(far);
    let mut ring = Ring::new(near).unwrap();
    for number in 0..10 {
        ring.push(frame(number, 3_000), said(LONG, 3));
    }
    assert!(ring.finish(Instant::now() + LONG).unwrap());
    let before = ring.stats();
    line.router.run("ip route add blackhole 10.9.1.2/32");
    for number in 10..60 {
        ring.push(frame(number, 1_000), said(Duration::from_millis(200), 3));
        ring.run_until(Instant::now() + Duration::from_millis(20))
            .unwrap();
    }
    ring.run_until(Instant::now() + Duration::from_secs(1))
        .unwrap();
    let silent = ring.stats();
    println!("{silent:?}");
    assert!(silent.given_up.total() >= 30, "{silent:?}");
    assert_eq!(silent.waiting + silent.begun, 0, "{silent:?}");
    assert!(silent.drives - before.drives < 1_000, "{silent:?}");

    line.router.run("ip route del blackhole 10.9.1.2/32");
    let last = ring.push(frame(100, 1_000), said(LONG, 3));
    let until = Instant::now() + LONG;
    while ring.state(last) != State::Acknowledged && Instant::now() < until {
        ring.run_until(Instant::now() + Duration::from_millis(10))
            .unwrap();
    }
    assert_eq!(ring.state(last), State::Acknowledged);
    let outcomes: Vec<Outcome> = ring.outcomes().collect();
    assert_eq!(outcomes.len(), 61, "each ADU once");
    let sent = ring.stats().sent;
    drop(ring.close());
    assert_eq!(receiver.end().len() as u64, sent);
}

#[test]
fn peer_that_only_reads_is_still_sent_to() {
    let line = Line::new(10_000);
    let (near, far) = line.connect(congestion_controls()[0]);
    far.shutdown(Shutdown::Write).unwrap();
    let receiver = Receiver::new(far);
    let mut ring = Ring::new(near).unwrap();
    ring.run_until(Instant::now() + Duration::from_millis(200))
        .unwrap();
    ring.push(frame(1, 50_000), said(LONG, 3));
    assert!(ring.finish(Instant::now() + LONG).unwrap());
    let drives = ring.stats().drives;
    assert!(drives < 200, "{drives}");
    drop(ring.close());
    assert_eq!(receiver.end().len(), 1);
}

#[test]
fn connection_that_has_ended_is_refused() {
    let line = Line::new(10_000);
    let (near, far) = line.connect(congestion_controls()[0]);
    near.shutdown(Shutdown::Both).unwrap();
    drop(far);
    let error = Ring::<_, Vec<u8>>::new(near).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
}

#[test]
fn parts_end_early_with_their_end_and_the_receiver_goes_on() {
    // Three seconds of the line; each part is a frame.
    let line = Line::new(256);
    let (near, far) = line.connect(congestion_controls()[0]);
    let receiver = Receiver::new(far);
    let options = Options::new().stop(Stop::AtPart).method(Method::Fifo);
    let mut ring = Ring::with(near, options).unwrap();
    let parts = (0..96).map(|number| frame(number, 1_000)).collect();
    let lifetime = Duration::from_secs(1);
    let long = ring.push_parts(parts, Some(frame(1_000, 20)), said(lifetime, 3));
    let next = ring.push(frame(2_000, 2_000), said(LONG, 3));
    assert!(ring.finish(Instant::now() + LONG).unwrap());
    let outcomes: BTreeMap<Ticket, Outcome> = ring.outcomes().map(|o| (o.ticket, o)).collect();
    let Fate::GivenUp(reason) = outcomes[&long].fate else {
        panic!("{outcomes:?}");
    };
    assert!(
        matches!(reason, Reason::Stale | Reason::Predicted),
        "{reason:?}"
    );
    assert_eq!(outcomes[&next].fate, Fate::Sent { late: false });
    drop(ring.close());
    let arrived: Vec<u32> = receiver.end().into_iter().map(|(n, _)| n).collect();
    let parts = outcomes[&long].sent / 1_000;
    let expected: Vec<u32> = (0..parts as u32).chain([1_000, 2_000]).collect();
    assert_eq!(arrived, expected);
    assert!((1..96).contains(&parts), "{parts}");
}

#[test]
fn socket_can_be_read_while_the_ring_writes() {
    let line = Line::new(10_000);
    let (near, mut far) = line.connect(congestion_controls()[0]);
    let near = Arc::new(near);
    let mut ring: Ring<Arc<TcpStream>, Arc<[u8]>> = Ring::new(Arc::clone(&near)).unwrap();
    far.write_all(b"request").unwrap();
    let mut request = [0; 7];
    (&*near).read_exact(&mut request).unwrap();
    ring.push(Arc::from(&b"answer"[..]), Metadata::new());
    assert!(ring.finish(Instant::now() + LONG).unwrap());
    let mut answer = [0; 6];
    far.read_exact(&mut answer).unwrap();
    assert_eq!((&request, &answer), (b"request", b"answer"));
    assert!(ring.wire().as_raw_fd() == near.as_raw_fd());
}

/// A SYN cookie remembers no time, and this peer sends no timestamps: nothing measured the RTT when the ring is made.
#[test]
fn cap_is_on_as_soon_as_an_rtt_is_known() {
    if !require::can(require::root()) {
        return;
    }
    let netns = Netns::new();
    netns.run("sysctl -qw net.ipv4.tcp_syncookies=2 net.ipv4.tcp_timestamps=0");
    let listener = netns.enter(|| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    let mut peer = netns.enter(|| TcpStream::connect(address).unwrap());
    let (socket, _) = listener.accept().unwrap();
    let mut ring = Ring::new(socket).unwrap();
    assert!(ring.form().window && !ring.form().rate, "{:?}", ring.form());
    assert!(ring.path().is_none());
    ring.push(vec![1; 1000], said(LONG, 0));
    ring.drive().unwrap();
    peer.read_exact(&mut [0; 1000]).unwrap();
    // The acknowledgement may be on its way for a moment.
    let end = Instant::now() + LONG;
    while !ring.form().rate && Instant::now() < end {
        ring.drive().unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    assert!(ring.form().rate);
    let path = ring.path().expect("an RTT, and so a path");
    assert!(!path.rtt.is_zero(), "{path:?}");
}
