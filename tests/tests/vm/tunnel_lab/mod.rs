//! A sender, a router that is the last hop, and a receiver. The kernel's tunnel goes from the first to the third, so
//! that the router sees outer headers only. bestby is where the sender's packets leave, below the tunnel, and where
//! the router's do.
//!
//! An emulated kernel verifies the classifier for seconds, so the path stays for the next test if none failed.

mod kind;

use std::{
    cell::Cell,
    io::IoSlice,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bestby_bpf::abi::*;
use bestby_tests::{
    agent::wait_for,
    bpf::{Lab, Rule, iface, mapped},
    clock::{SECOND, now_ns},
    netns::{Netns, ifindex, shell},
    socket::set,
    stream,
    truncated::Raw,
};
pub(crate) use kind::Kind;
use libbpf_rs::MapCore as _;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tempfile::TempDir;

use crate::stamp_lab::{PORT, Seen, TYPE4, TYPE6, bytes};

/// What the last hop thinks that its packets need to the receiver. Less is short, more is long.
const OWD: u64 = 2 * SECOND;
pub(crate) const SHORT: u64 = SECOND;
pub(crate) const LONG: u64 = 10 * SECOND;
/// Neither of the two, so that an option says by whom it was given.
pub(crate) const LONGER: u64 = 20 * SECOND;

/// The last hop's rule comes first; the sender may have none.
const HOP: u32 = 1;

struct Path {
    lab: Lab,
    _router: Netns, // goes with its last descriptor
    far: Netns,
    /// The devices with a classifier.
    near_index: u32,
    hop_index: u32,
    /// WireGuard's, files `0` and `1`.
    keys: TempDir,
}

static IDLE: Mutex<Option<(Netns, Path)>> = Mutex::new(None);

/// Outer addresses of sender and receiver.
fn ends(six: bool) -> [&'static str; 2] {
    if six {
        ["fd01::1", "fd02::2"]
    } else {
        ["10.1.0.1", "10.2.0.2"]
    }
}

impl Path {
    fn new(near: &Netns) -> Self {
        let (router, far) = (Netns::new(), Netns::new());
        near.link("v0", "10.1.0.1/24", &router, "r0", "10.1.0.2/24");
        router.link("r1", "10.2.0.1/24", &far, "v1", "10.2.0.2/24");
        // No IPv6 of its own on a tunnel: it would talk, and be counted.
        let silent = "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6";
        shell(&format!(
            "ip addr add fd01::1/64 dev v0 nodad; ip route add default via 10.1.0.2
             ip -6 route add default via fd01::2; tc qdisc add dev v0 clsact; {silent}"
        ));
        let hop_index = router.enter(|| {
            shell(
                "ip addr add fd01::2/64 dev r0 nodad; ip addr add fd02::1/64 dev r1 nodad
                 echo 1 >/proc/sys/net/ipv4/ip_forward
                 echo 1 >/proc/sys/net/ipv6/conf/all/forwarding; tc qdisc add dev r1 clsact",
            );
            ifindex("r1")
        });
        far.enter(|| {
            shell(&format!(
                "ip addr add fd02::2/64 dev v1 nodad; ip route add default via 10.2.0.1
                 ip -6 route add default via fd02::1; {silent}"
            ))
        });
        let near_index = ifindex("v0");
        assert_ne!(near_index, hop_index, "one set of maps for both");
        let mut lab = Lab::bare();
        lab.iface(0, &iface(near_index, BB_MODE_TC));
        lab.iface(1, &iface(hop_index, BB_MODE_TC));
        lab.attach("v0");
        router.enter(|| lab.attach("r1"));
        Self {
            lab,
            _router: router,
            far,
            near_index,
            hop_index,
            keys: tempfile::tempdir().unwrap(),
        }
    }

    /// Makes a tunnel, over IPv6 or IPv4, runs a test with it, and takes it away.
    fn with(&self, kind: Kind, six: bool, test: fn(&Tunnel<'_>)) {
        println!("{kind:?} over IPv{}", if six { 6 } else { 4 });
        let trust = self.lab.map("bb_trust");
        for key in trust.keys().collect::<Vec<_>>() {
            trust.delete(&key).unwrap();
        }
        let dir = self.keys.path();
        shell(&kind.script(ends(six), true, dir));
        self.far
            .enter(|| shell(&kind.script(ends(six), false, dir)));
        let to = SocketAddr::new(kind.inner(six)[1].parse().unwrap(), PORT);
        let receiver = self.far.enter(|| UdpSocket::bind(to).unwrap());
        receiver
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        test(&Tunnel {
            path: self,
            kind,
            six,
            to,
            receiver,
            sent: Cell::new(0),
        });
        shell(kind.removed());
        self.far.enter(|| shell(kind.removed()));
    }
}

/// Runs a test with tunnels of a kind, over IPv6 and not, in the sender's namespace.
///
/// # Panics
/// As the test does.
pub(crate) fn through(kind: Kind, over_six: &[bool], test: fn(&Tunnel<'_>)) {
    let idle = || IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = idle().take();
    let (near, mut path) = kept.unwrap_or_else(|| {
        let near = Netns::new();
        let path = near.enter(|| Path::new(&near));
        (near, path)
    });
    near.enter(|| {
        let path = &mut path; // alone: no two threads may use it
        for six in over_six {
            path.with(kind, *six, test);
        }
    });
    *idle() = Some((near, path));
}

pub(crate) struct Tunnel<'a> {
    path: &'a Path,
    pub(crate) kind: Kind,
    /// Of the outer header.
    pub(crate) six: bool,
    to: SocketAddr,
    receiver: UdpSocket,
    sent: Cell<u64>,
}

/// As maps hold it.
fn address(text: &str) -> [u8; 16] {
    match text.parse().unwrap() {
        IpAddr::V4(addr) => mapped(addr.octets()),
        IpAddr::V6(addr) => addr.octets(),
    }
}

fn on(device: u32, mut rule: Rule) -> Rule {
    rule.mask.ifindex = u32::MAX;
    rule.key.ifindex = device;
    rule
}

impl Tunnel<'_> {
    /// The sender has no rule: what the tunnel makes is plain to it.
    pub(crate) fn plain(&self) {
        let hop = on(self.path.hop_index, Rule::new().owd(OWD));
        self.path.lab.rules(&[hop]);
    }

    /// The sender stamps what the tunnel makes, by its destination.
    pub(crate) fn stamps(&self, lifetime: u64, treatment: u32) {
        let hop = on(self.path.hop_index, Rule::new().owd(OWD));
        let mut rule = Rule::new().lifetime(lifetime).treatment(treatment);
        rule.says.flags |= BB_RULE_STAMP as u8;
        rule.mask.dst = [u8::MAX; 16];
        rule.key.dst = address(ends(self.six)[1]);
        self.path.lab.rules(&[hop, on(self.path.near_index, rule)]);
    }

    /// The last hop believes what the sender says.
    pub(crate) fn trust(&self) {
        let key = bb_trust_key {
            prefix: 32 + 128,
            ifindex: self.path.hop_index,
            addr: address(ends(self.six)[0]),
        };
        self.path.lab.put("bb_trust", &key, &1u32);
    }

    pub(crate) fn global(&self, which: u32) -> u64 {
        self.path.lab.global(which)
    }

    pub(crate) fn hop(&self) -> bb_counters {
        self.path.lab.rule_stats(HOP)
    }

    pub(crate) fn stale(&self) -> u64 {
        self.hop().dropped[BB_DROP_STALE as usize]
    }

    /// A socket of the sender's, to the tunnel's other end.
    pub(crate) fn sender(&self) -> UdpSocket {
        let any = if self.to.is_ipv6() {
            "[::]:0"
        } else {
            "0.0.0.0:0"
        };
        let socket = UdpSocket::bind(any).unwrap();
        socket.connect(self.to).unwrap();
        socket
    }

    /// One whose packets carry LPD's option, within what the tunnel makes of them.
    pub(crate) fn sender_with_option(&self, treatment: u8, lifetime_ms: u16) -> UdpSocket {
        let socket = self.sender();
        let time = lifetime_ms.to_be_bytes();
        if self.to.is_ipv6() {
            let mut option = [0, 1, 1, 0, TYPE6, 6, 0, treatment, 0, 0, 0, 0, 1, 2, 0, 0];
            option[10..12].copy_from_slice(&time);
            set(&socket, libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS, &option).unwrap();
        } else {
            let option = [TYPE4, 8, 0, treatment, 0, 0, time[0], time[1]];
            set(&socket, libc::IPPROTO_IP, libc::IP_OPTIONS, &option).unwrap();
        }
        socket
    }

    /// A payload like no other, that looks like neither RTP, STUN nor DTLS.
    fn payload(&self, length: usize) -> Vec<u8> {
        self.sent.set(self.sent.get() + 1);
        let mut payload = bytes(length);
        payload[..8].fill(0xff);
        payload[8..16].copy_from_slice(&self.sent.get().to_be_bytes());
        payload
    }

    /// What comes to the receiver from the sender, with at least so many bytes of IP.
    fn captured(&self, tap: &Raw, least: usize) -> Option<Seen> {
        let source = address(ends(self.six)[0]);
        let (from, source) = if self.six {
            (14 + 8, &source[..])
        } else {
            (14 + 12, &source[12..])
        };
        let version = if self.six { 6 } else { 4 };
        let frame = tap.matching(|frame| {
            frame.len() >= 14 + least
                && frame[14] >> 4 == version
                && frame[from..].starts_with(source)
        })?;
        Some(Seen {
            ip: frame[14..].to_vec(),
        })
    }

    fn tap(&self) -> Raw {
        self.path.far.enter(|| Raw::open("v1"))
    }

    /// Sends a datagram, which must arrive whole, and as the next one. What brought it, from the outer header on.
    #[track_caller]
    pub(crate) fn delivered_by(&self, length: usize, send: impl FnOnce(&[u8])) -> Seen {
        let (tap, payload) = (self.tap(), self.payload(length));
        send(&payload);
        let mut got = vec![0; 2000];
        let size = self.receiver.recv(&mut got).expect("not delivered");
        assert!(got[..size] == payload, "another payload");
        let seen = self.captured(&tap, length).expect("not captured");
        assert_eq!(seen.transport().0, self.kind.next(self.six), "{seen:?}");
        seen
    }

    #[track_caller]
    pub(crate) fn delivered(&self, from: &UdpSocket, length: usize) -> Seen {
        self.delivered_by(length, |payload| {
            assert_eq!(from.send(payload).unwrap(), length)
        })
    }

    /// Sends a datagram with a deadline that its socket says (SO_TXTIME).
    #[track_caller]
    pub(crate) fn delivered_until(&self, after: u64, length: usize) -> Seen {
        let socket = self.sender();
        // struct sock_txtime: clock, flags (SOF_TXTIME_DEADLINE_MODE).
        let option = [libc::CLOCK_MONOTONIC, 1];
        set(&socket, libc::SOL_SOCKET, libc::SO_TXTIME, &option).unwrap();
        self.delivered_by(length, |payload| {
            let until = now_ns() + after;
            let said = [ControlMessage::TxTime(&until)];
            let data = [IoSlice::new(payload)];
            let sent = sendmsg::<()>(socket.as_raw_fd(), &data, &said, MsgFlags::empty(), None);
            assert_eq!(sent, Ok(length));
        })
    }

    /// Sends a datagram that the last hop drops. That it did not arrive shows with the next one that does.
    #[track_caller]
    pub(crate) fn dropped(&self, from: &UdpSocket, length: usize) {
        let before = self.stale();
        assert_eq!(from.send(&self.payload(length)).unwrap(), length);
        wait_for("a drop at the last hop", || self.stale() > before);
    }

    /// Sends a datagram of which the last hop leaves the headers: what they are.
    #[track_caller]
    pub(crate) fn truncated(&self, from: &UdpSocket, length: usize) -> Seen {
        let (tap, before) = (self.tap(), self.hop().truncated);
        assert_eq!(from.send(&self.payload(length)).unwrap(), length);
        wait_for("a truncation", || self.hop().truncated > before);
        self.captured(&tap, 0).expect("not captured")
    }

    /// A connection through the tunnel, and so many bytes over it.
    #[track_caller]
    pub(crate) fn stream(&self, length: usize) {
        stream::carry(&self.path.far, self.to, &bytes(length), |_| {});
    }
}
