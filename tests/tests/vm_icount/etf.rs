//! What ETF in deadline mode does where lifetimes differ, and the same packets through bestby: one socket with
//! SO_TXTIME, deadlines on CLOCK_TAI, a slow link. In virtual time, so that a schedule of milliseconds is kept.
//!
//! Both findings follow from `net/sched/sch_etf.c` (09fd4860ea25). `is_packet_valid` refuses a deadline before that of
//! the packet sent last, which is right for departure times and wrong for deadlines. `etf_dequeue_timesortedlist`
//! drops at most one expired packet, returns none, and sets its timer to the *deadline* of the next one.
//!
//! Beside each the case in which ETF does well. `--show-output` prints what became of every packet, and when.

use std::{
    io::{IoSlice, IoSliceMut},
    net::{SocketAddrV4, UdpSocket},
    os::fd::AsRawFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use bestby_tests::{
    agent::Agent,
    clock::{MS, clock_ns, now_ns},
    netns::{Lab, Netns, linked_lab, shell},
    require,
};
use nix::{
    errno::Errno,
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt,
        sockopt,
    },
};
use serde_json::json;

/// The kernel's qdiscs under test: ETF alone on a link that is never busy, and below two shapers that have nothing in
/// common but the rate.
const ETF: &str = "etf clockid CLOCK_TAI delta 0 deadline_mode";
/// bit/s: a frame of [`FRAME`] bytes takes 200 ms.
const RATE: &str = "40kbit";
/// bytes, MAC header included.
const FRAME: usize = 1000;
/// bytes of a shaper's bucket: one frame and no second.
const BURST: usize = 1074;
const HEADERS: usize = 14 + 20 + 8;
const PORT: u16 = 5004;
/// `linux/net_tstamp.h`: SCM_TXTIME is a deadline, and what a queue drops for it is told in the error queue.
const DEADLINE_MODE: u32 = 1;
const REPORT_ERRORS: u32 = 2;
/// `linux/errqueue.h`
const SO_EE_ORIGIN_TXTIME: u8 = 6;
const SO_EE_CODE_TXTIME_INVALID_PARAM: u8 = 1;
const SO_EE_CODE_TXTIME_MISSED: u8 = 2;

/// What stands on the sender's device.
#[derive(Clone, Copy, Debug)]
enum Queue {
    EtfAlone,
    EtfBelowTbf,
    EtfBelowHtb,
    Bestby,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// ms after the first packet was sent.
    Arrived(u64),
    /// ETF: EINVAL, SO_EE_CODE_TXTIME_INVALID_PARAM.
    Refused,
    /// ETF: ECANCELED, SO_EE_CODE_TXTIME_MISSED.
    Missed,
    /// Nobody said anything; bestby tells the operator, not the socket.
    Gone,
}

use Fate::{Gone, Missed, Refused};

impl Fate {
    fn arrived(self) -> bool {
        matches!(self, Self::Arrived(_))
    }
}

/// When a packet is sent and how long it is of use, ms.
type Plan = (u64, u64);

fn install(lab: &Lab, queue: Queue) -> Option<Agent> {
    let below = |shaper: &str, parent: &str| {
        shell(&format!(
            "{shaper}; tc qdisc add dev v0 parent {parent} {ETF}"
        ));
    };
    match queue {
        Queue::EtfAlone => drop(shell(&format!("tc qdisc add dev v0 root {ETF}"))),
        Queue::EtfBelowTbf => below(
            &format!("tc qdisc add dev v0 root handle 1: tbf rate {RATE} burst {BURST} limit 100000"),
            "1:1",
        ),
        Queue::EtfBelowHtb => below(
            &format!(
                "tc qdisc add dev v0 root handle 1: htb default 1
                 tc class add dev v0 parent 1: classid 1:1 htb rate {RATE} burst {BURST} cburst {BURST}"
            ),
            "1:1",
        ),
        Queue::Bestby => {
            let agent = Agent::start(lab, &[]);
            agent.attach(json!({"dev": "v0", "mode": "qdisc", "rate": RATE}));
            return Some(agent);
        }
    }
    None
}

/// No packet but the test's: ETF drops what no SO_TXTIME socket sent, ARP too, but even a packet that is refused makes
/// the queue run, and so hides that nothing else would.
fn quiet(peer: &Netns) {
    let link = peer.run("ip -o link show v1");
    let mut words = link
        .split_whitespace()
        .skip_while(|&word| word != "link/ether");
    let mac = words.nth(1).unwrap();
    shell(&format!(
        "echo 1 >/proc/sys/net/ipv6/conf/v0/disable_ipv6
         ip neigh replace 10.9.0.2 lladdr {mac} dev v0 nud permanent"
    ));
}

/// Sends the packets through the queue; what became of each.
fn play(queue: Queue, plan: &[Plan]) -> Vec<Fate> {
    let mut fates = Vec::new();
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        quiet(peer);
        let agent = install(lab, queue);
        fates = exchange(peer, plan);
        println!("{queue:?} {plan:?}: {fates:?}");
        println!("{}", shell("tc -s qdisc show dev v0"));
        drop(agent);
    });
    fates
}

fn exchange(peer: &Netns, plan: &[Plan]) -> Vec<Fate> {
    let receiver = peer.enter(|| UdpSocket::bind(("10.9.0.2", PORT)).unwrap());
    receiver
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let receiving = {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            let (mut buffer, mut seen) = ([0; 2048], Vec::new());
            while !stop.load(Ordering::Acquire) {
                if receiver.recv(&mut buffer).is_ok() {
                    seen.push((usize::from(buffer[0]), now_ns()));
                }
            }
            seen
        })
    };

    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let txtime = libc::sock_txtime {
        clockid: libc::CLOCK_TAI,
        flags: DEADLINE_MODE | REPORT_ERRORS,
    };
    setsockopt(&socket, sockopt::TxTime, &txtime).unwrap();
    let to = SockaddrIn::from(SocketAddrV4::new([10, 9, 0, 2].into(), PORT));
    let start = now_ns() + 10 * MS;
    let tai = clock_ns(libc::CLOCK_TAI).wrapping_sub(now_ns());
    let deadline = |(at, lifetime): Plan| start + (at + lifetime) * MS + tai;
    for (number, &packet) in plan.iter().enumerate() {
        thread::sleep(Duration::from_nanos(
            (start + packet.0 * MS).saturating_sub(now_ns()),
        ));
        let mut payload = [0u8; FRAME - HEADERS];
        payload[0] = number as u8;
        let sent = sendmsg(
            socket.as_raw_fd(),
            &[IoSlice::new(&payload)],
            &[ControlMessage::TxTime(&deadline(packet))],
            MsgFlags::empty(),
            Some(&to),
        );
        assert!(matches!(sent, Ok(_) | Err(Errno::ENOBUFS)), "{sent:?}");
    }
    let last = plan
        .iter()
        .map(|&packet| deadline(packet) - tai)
        .max()
        .unwrap();
    thread::sleep(Duration::from_nanos(
        (last + 500 * MS).saturating_sub(now_ns()),
    ));
    stop.store(true, Ordering::Release);

    let mut fates = vec![Gone; plan.len()];
    for (number, at) in receiving.join().unwrap() {
        fates[number] = Fate::Arrived((at - start) / MS);
    }
    for (txtime, code) in reports(&socket) {
        let number = plan.iter().position(|&p| deadline(p) == txtime).unwrap();
        assert_eq!(fates[number], Gone, "dropped, and reported as well");
        fates[number] = match code {
            SO_EE_CODE_TXTIME_INVALID_PARAM => Refused,
            SO_EE_CODE_TXTIME_MISSED => Missed,
            other => panic!("an unknown report: {other}"),
        };
    }
    fates
}

/// The error queue: the deadline (CLOCK_TAI, ns) of each packet that a queue dropped for it, and the reason.
fn reports(socket: &UdpSocket) -> Vec<(u64, u8)> {
    let mut all = Vec::new();
    loop {
        let mut data = [0u8; 2048];
        let mut parts = [IoSliceMut::new(&mut data)];
        let mut control = nix::cmsg_space!(libc::sock_extended_err, libc::sockaddr_in);
        let message = match recvmsg::<SockaddrIn>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::MSG_ERRQUEUE,
        ) {
            Err(Errno::EAGAIN) => return all,
            other => other.unwrap(),
        };
        for message in message.cmsgs().unwrap() {
            let ControlMessageOwned::Ipv4RecvErr(error, _) = message else {
                continue;
            };
            assert_eq!(error.ee_origin, SO_EE_ORIGIN_TXTIME);
            all.push((
                u64::from(error.ee_data) << 32 | u64::from(error.ee_info),
                error.ee_code,
            ));
        }
    }
}

fn skipped() -> bool {
    !require::can(require::bpf_qdisc())
}

/// A packet of long use was sent; until its deadline, nothing of shorter use gets in, busy link or not.
#[test]
fn etf_refuses_a_deadline_before_that_of_the_packet_sent_last() {
    if skipped() {
        return;
    }
    let short_after_long = [(0, 1000), (300, 500), (600, 500)];
    for queue in [Queue::EtfAlone, Queue::EtfBelowTbf, Queue::EtfBelowHtb] {
        // The second would be there at once: nothing is queued. The third's deadline is after the first's again.
        let fates = play(queue, &short_after_long);
        assert!(fates[0].arrived(), "{queue:?}: {fates:?}");
        assert_eq!(fates[1], Refused, "{queue:?}");
        assert!(fates[2].arrived(), "{queue:?}: {fates:?}");
    }
    // Where every packet is of use equally long, and where deadlines grow, ETF refuses nothing.
    for plan in [
        [(0, 500), (300, 500), (600, 500)],
        [(0, 500), (300, 1000), (600, 1000)],
    ] {
        let fates = play(Queue::EtfBelowTbf, &plan);
        assert!(
            fates.iter().all(|fate| fate.arrived()),
            "{plan:?}: {fates:?}"
        );
    }
    let fates = play(Queue::Bestby, &short_after_long);
    assert!(fates.iter().all(|fate| fate.arrived()), "{fates:?}");
}

/// A packet expired in the queue. The one behind it could go at once, waits for its own deadline, and is dropped.
#[test]
fn etf_holds_a_live_packet_behind_an_expired_one_too_long() {
    if skipped() {
        return;
    }
    // The first has the link for 200 ms (HTB, which may owe a packet, sends two at once), and what is of use for 100 ms
    // or less expires. The last is of use far longer.
    let live_behind_expired = [(0, 50), (0, 60), (0, 100), (0, 1000)];
    let woken = [(0, 50), (0, 60), (0, 100), (0, 1000), (600, 1000)];
    for queue in [Queue::EtfBelowTbf, Queue::EtfBelowHtb] {
        let fates = play(queue, &live_behind_expired);
        assert!(fates[0].arrived(), "{queue:?}: {fates:?}");
        assert_eq!(fates[2..], [Missed, Missed], "{queue:?}");
        // Another packet's arrival wakes it in time.
        let fates = play(queue, &woken);
        assert_eq!(fates[2], Missed, "{queue:?}");
        let Fate::Arrived(at) = fates[3] else {
            panic!("{queue:?}: {fates:?}");
        };
        assert!(
            at >= 600,
            "{queue:?}: it left before it was woken: {fates:?}"
        );
    }
    // Nothing expires: all arrive, one behind the other.
    let fates = play(Queue::EtfBelowTbf, &[(0, 50), (0, 500), (0, 1000)]);
    assert!(fates.iter().all(|fate| fate.arrived()), "{fates:?}");

    let fates = play(Queue::Bestby, &live_behind_expired);
    assert!(fates[0].arrived() && fates[3].arrived(), "{fates:?}");
    assert_eq!(fates[1..3], [Gone, Gone], "expired packets are dropped");
}
