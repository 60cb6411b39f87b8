//! `bestby::quic` on a path that is too narrow, and where time passes, in virtual time.

#[path = "../../../client/tests/quic/ends.rs"]
mod ends;
#[path = "quic_lab/relay.rs"]
mod relay;
#[path = "quic_lab/tap.rs"]
mod tap;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bestby::{
    Deadline, Metadata, Treatment,
    quic::{
        Ended, Fate, Metered, Options, Order, Reason, Receiver, ReceiverOptions, Sender, State,
        transport_config,
    },
};
use quinn::{TransportConfig, congestion::BbrConfig};
use tokio::time::{sleep, timeout};

use ends::{LONG, Pair, client, crypto, join, outcomes, pair, said, server};
use relay::{Relay, Shape};
use tap::{Log, Tapped, now, take};

const MS: u64 = 1_000_000;
const LIFETIME: Duration = Duration::from_millis(300);

/// (ns, how late a sleep of 1 ms ended, owd of the sender), every ms or so.
type Looks = Arc<Mutex<Vec<(u64, u64, u64)>>>;

async fn look(sender: Sender, looks: Looks) {
    loop {
        let before = now();
        sleep(Duration::from_millis(1)).await;
        let late = (now() - before).saturating_sub(2 * MS);
        let owd = sender.path().owd.as_nanos() as u64;
        looks.lock().unwrap().push((now(), late, owd));
    }
}

async fn narrow(transport: TransportConfig, shape: Shape, log: &Log) -> (Pair, Relay) {
    let far_end = server(transport_config());
    let relay = Relay::new(far_end.local_addr().unwrap(), shape);
    let (inner, log) = (Arc::new(crypto()), log.clone());
    let tapped = Tapped { inner, log };
    let near_end = client(Arc::new(tapped), transport);
    (join(near_end, far_end, relay.address).await, relay)
}

/// The rate of DSR's load (`dsr.txt`, section 5) in half as many ADUs: 7 of 1000 bytes every 20 ms, 2.8 Mbit/s for
/// 2 Mbit/s.
async fn offer(sender: &Sender, time: Duration) -> HashMap<u64, u64> {
    let mut deadlines = HashMap::new();
    let start = tokio::time::Instant::now();
    for round in 0..time.as_millis() as u32 / 20 {
        tokio::time::sleep_until(start + round * Duration::from_millis(20)).await;
        for _ in 0..7 {
            let deadline = Deadline::after(LIFETIME);
            let mut payload = deadline.as_monotonic_ns().to_be_bytes().to_vec();
            payload.resize(1_000, 7);
            let ticket = sender.send(payload, Metadata::new().deadline(deadline));
            deadlines.insert(ticket.unwrap().number(), deadline.as_monotonic_ns());
        }
    }
    deadlines
}

/// By how much the latest byte left after its deadline − owd + 1 ms, ns, less what the host stood still around it;
/// how many frames were looked at, and how many of them left in the 20 ms before.
#[derive(Debug)]
struct Checked {
    excess: i64,
    frames: u64,
    near: u64,
    /// The runtime stood still around so many others.
    unseen: u64,
}

fn check_wire(log: &Log, deadlines: &HashMap<u64, u64>, looks: &[(u64, u64, u64)]) -> Checked {
    let frames = log.frames();
    let mut ids = HashMap::new();
    for frame in frames
        .iter()
        .filter(|frame| frame.offset == 0 && !frame.bytes.is_empty())
    {
        let mut bytes = &frame.bytes[..];
        let [kind, _, id, _, _, flags] = std::array::from_fn(|_| take(&mut bytes));
        assert_eq!(kind, 0x0b);
        let is_notice = flags & 16 != 0;
        ids.insert(frame.stream, (!is_notice).then_some(id));
    }
    let mut checked = Checked {
        excess: i64::MIN,
        frames: 0,
        near: 0,
        unseen: 0,
    };
    for frame in &frames {
        let Some(deadline) = ids[&frame.stream].map(|id| deadlines[&id]) else {
            continue;
        };
        // What the sender knew then, and how long the runtime stood still around it.
        let first = looks.partition_point(|look| look.0 + 30 * MS < frame.at);
        let around = looks[first..].iter();
        let (mut owd, mut late) = (u64::MAX, 0);
        for look in around.take_while(|look| look.0 < frame.at + 30 * MS) {
            (owd, late) = (owd.min(look.2), late.max(look.1));
        }
        if owd == u64::MAX {
            checked.unseen += 1;
            continue;
        }
        let excess = frame.at as i64 - (deadline - owd + MS + late) as i64;
        checked.excess = checked.excess.max(excess);
        checked.frames += 1;
        checked.near += u64::from(excess > -20 * MS as i64);
    }
    checked
}

async fn overload(transport: TransportConfig, loses: fn(u64, usize) -> bool) {
    let log = Log::default();
    let shape = Shape {
        rate: 250_000,
        fifo: 60,
        delay: Duration::from_millis(20),
        loses,
    };
    let (pair, relay) = narrow(transport, shape, &log).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let looks = Looks::default();
    let looking = tokio::spawn(look(sender.clone(), Arc::clone(&looks)));
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    let receiving = tokio::spawn(async move {
        let mut arrivals = Vec::new();
        while let Ok(adu) = receiver.recv().await {
            let deadline = u64::from_be_bytes(adu.payload[..8].try_into().unwrap());
            arrivals.push((deadline, now()));
        }
        arrivals
    });
    let deadlines = offer(&sender, Duration::from_secs(1)).await;
    timeout(LONG, sender.finish()).await.unwrap();
    let stats = sender.stats();
    let path = sender.path();
    let outcomes = sender.outcomes().await;
    pair.near.close(0_u32.into(), b"");
    let arrivals = timeout(LONG, receiving).await.unwrap().unwrap();
    looking.abort();

    assert_eq!(outcomes.len(), deadlines.len());
    assert_eq!(stats.taken, stats.acknowledged + stats.given_up.total());
    let looks = looks.lock().unwrap().clone();
    let checked = check_wire(&log, &deadlines, &looks);
    let host = looks.iter().map(|look| look.1).max().unwrap() + relay.late().as_nanos() as u64;
    let late: Vec<_> = arrivals.iter().filter(|(due, at)| at > due).collect();
    let most = arrivals
        .iter()
        .map(|(due, at)| at.saturating_sub(*due))
        .max()
        .unwrap_or(0);
    eprintln!(
        "{} of {} arrived, {} late (most {} us); {} resets, {checked:?}, host {host} ns\n{stats:?}\n{path:?}",
        arrivals.len(),
        deadlines.len(),
        late.len(),
        most / 1000,
        stats.resets,
    );
    // A host that stands still for so long delays what is on its way by as much, here and in the relay.
    assert!(most <= 4 * host + LIFETIME.as_nanos() as u64 / 2);
    assert!(checked.excess <= 0, "{checked:?}");
    assert!(
        checked.frames + checked.unseen >= stats.acknowledged,
        "{checked:?}"
    );
    assert!(
        stats.resets * 4 <= stats.streams || host > 20 * MS,
        "{stats:?}"
    );
    for outcome in outcomes {
        let deadline = deadlines[&outcome.ticket.number()];
        assert!(outcome.more.last < deadline);
        if let Fate::GivenUp(reason) = outcome.fate {
            assert!(
                matches!(reason, Reason::Stale | Reason::Predicted),
                "{reason:?}"
            );
        }
    }
}

#[tokio::test]
async fn overload_without_loss_delivers_in_time_and_writes_nothing_that_would_be_late() {
    overload(transport_config(), |_, _| false).await;
}

#[tokio::test]
async fn overload_with_loss_delivers_in_time_and_writes_nothing_that_would_be_late() {
    let mut transport = transport_config();
    let bbr = Metered::new(BbrConfig::default());
    transport.congestion_controller_factory(Arc::new(bbr));
    overload(transport, |n, _| {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57 == 0
    })
    .await;
}

/// The tap would see a byte that leaves too late.
#[tokio::test]
async fn what_must_be_kept_is_written_late_and_the_tap_sees_that() {
    let log = Log::default();
    let shape = Shape {
        rate: 250_000,
        fifo: 60,
        delay: Duration::from_millis(20),
        loses: |_, _| false,
    };
    let (pair, _relay) = narrow(transport_config(), shape, &log).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let looks = Looks::default();
    let looking = tokio::spawn(look(sender.clone(), Arc::clone(&looks)));
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    let kept = said(Duration::from_millis(100), 3).treatment(Treatment::Forward);
    let deadline = now() + 100 * MS;
    let mut deadlines = HashMap::new();
    for _ in 0..10 {
        let ticket = sender.send(vec![0; 20_000], kept).unwrap();
        deadlines.insert(ticket.number(), deadline);
    }
    for _ in 0..10 {
        timeout(LONG, receiver.recv()).await.unwrap().unwrap();
    }
    looking.abort();
    let looks = looks.lock().unwrap().clone();
    let checked = check_wire(&log, &deadlines, &looks);
    assert!(checked.excess > 100 * MS as i64, "{checked:?}");
}

#[tokio::test]
async fn by_id_learns_from_a_notice_that_what_it_waits_for_was_given_up() {
    let log = Log::default();
    // Nothing large arrives.
    let shape = Shape {
        rate: 10_000_000,
        fifo: 100,
        delay: Duration::from_millis(1),
        loses: |n, len| n > 10 && len > 1_000,
    };
    let (pair, _relay) = narrow(transport_config(), shape, &log).await;
    for _ in 0..20 {
        // Past the handshake.
        pair.near.send_datagram(vec![0; 10].into()).unwrap();
        sleep(Duration::from_millis(2)).await;
    }
    let sender = Sender::new(pair.near.clone(), Options::new());
    let options = ReceiverOptions::new().order(Order::ById);
    let mut receiver = Receiver::new(pair.far.clone(), options);
    let large = sender
        .send(vec![0; 1_100], said(Duration::from_millis(500), 3))
        .unwrap();
    while sender.stats().streams == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    sleep(Duration::from_millis(5)).await;
    let small = sender.send("small", said(LONG, 3)).unwrap();
    let adu = timeout(LONG, receiver.recv()).await.unwrap().unwrap();
    assert_eq!(adu.id, small.number());
    let outcome = timeout(LONG, sender.outcome(large)).await.unwrap().unwrap();
    assert_eq!(outcome.fate, Fate::GivenUp(Reason::Stale));
    assert_eq!((sender.stats().resets, receiver.stats().skipped), (1, 1));
}

/// What little audio needs is no measure of what the path carries.
#[tokio::test]
async fn large_adu_after_a_trickle_is_not_given_up_for_the_rate_of_the_trickle() {
    let log = Log::default();
    let shape = Shape {
        rate: 10_000_000,
        fifo: 1_000,
        delay: Duration::from_millis(20),
        loses: |_, _| false,
    };
    let (pair, _relay) = narrow(transport_config(), shape, &log).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    let mut receiver = Receiver::new(pair.far.clone(), ReceiverOptions::new());
    let trickle = 50;
    for _ in 0..trickle {
        sender.send(vec![0; 160], said(LONG, 0)).unwrap();
        sleep(Duration::from_millis(10)).await;
    }
    let large = sender
        .send(vec![0; 300_000], said(Duration::from_secs(2), 3))
        .unwrap();
    for _ in 0..=trickle {
        timeout(LONG, receiver.recv()).await.unwrap().unwrap();
    }
    let outcome = timeout(LONG, sender.outcome(large)).await.unwrap().unwrap();
    assert_eq!(outcome.fate, Fate::Sent { late: false });
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
async fn receiver_that_stops_reading_wakes_the_driver_rarely() {
    let mut small = transport_config();
    small.receive_window(20_000_u32.into());
    let pair = pair(transport_config(), small).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    for _ in 0..50 {
        sender.send(vec![0; 5_000], said(LONG, 3)).unwrap();
    }
    let short = sender.send("x", said(LIFETIME, 7)).unwrap();
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

/// Sets the wall clock forward or back; not any machine's: a guest's. In this process, because virtual time passes
/// while another program is read from the host.
fn move_wall_clock(hours: i64) {
    assert!(std::env::var_os("BESTBY_VM").is_some(), "only in a guest");
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the first call fills the timespec that it points to, and the second reads it.
    let set = unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time);
        time.tv_sec += hours * 3600;
        libc::clock_settime(libc::CLOCK_REALTIME, &raw const time)
    };
    assert_eq!(set, 0);
}

#[tokio::test]
async fn wall_clock_that_jumps_changes_no_deadline_and_wakes_nobody() {
    let mut none = transport_config();
    none.max_concurrent_uni_streams(0_u32.into());
    let pair = pair(transport_config(), none).await;
    let sender = Sender::new(pair.near.clone(), Options::new());
    for hours in [1, -2, 1] {
        let lasting = sender.send("x", said(LONG, 3)).unwrap();
        let deadline = now() + LIFETIME.as_nanos() as u64;
        let metadata = Metadata::new().deadline(Deadline::from_monotonic_ns(deadline));
        let ticket = sender.send("x", metadata).unwrap();
        move_wall_clock(hours);
        let outcome = timeout(LONG, sender.outcome(ticket))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(outcome.fate, Fate::GivenUp(Reason::Stale));
        // No earlier than deadline - owd, and no later than deadline.
        let ended = outcome.more.ended;
        let left = deadline as i64 - ended as i64;
        let most = sender.path().owd.as_nanos() as i64 + 10 * MS as i64;
        assert!((0..most).contains(&left), "{hours} h: {left} of {most} ns");
        assert_eq!(sender.state(lasting), State::Waiting);
    }
    let drives = sender.stats().drives;
    assert!(drives < 50, "{drives}");
    pair.far.set_max_concurrent_uni_streams(10_u32.into());
    let fates = outcomes(&sender, 6).await;
    let sent = fates
        .iter()
        .filter(|fate| **fate == Fate::Sent { late: false });
    assert_eq!(sent.count(), 3);
}
