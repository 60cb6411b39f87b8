//! What the tests of TCP-Real share: an agent whose end receives, a peer that sends, and what is in between.

#![allow(dead_code, clippy::unwrap_used)] // each test program uses a part

pub(crate) mod peer;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use aya::programs::{SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader};
use bestby_tests::agent::Agent;
use bestby_tests::netns::{Lab, Netns, cgroup_root, linked_lab};
use bestby_tests::{require, socket};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage};
use serde_json::{Value, json};

pub(crate) const API: &str = "/v1/tcp-real";
pub(crate) const REAL: &str = "bestby_real";
/// The agent's end, in both families.
pub(crate) const HERE: [&str; 2] = ["10.9.0.1", "fd09::1"];

/// Runs `f` with this process in a cgroup: sockets belong to the cgroup that makes them.
pub(crate) fn in_cgroup<R>(cgroup: &Path, f: impl FnOnce() -> R) -> R {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::"));
    let own: PathBuf = cgroup_root().join(own.unwrap().trim_start_matches('/'));
    let enter = |cgroup: &Path| fs::write(cgroup.join("cgroup.procs"), "0").unwrap();
    enter(cgroup);
    let result = f();
    enter(&own);
    result
}

pub(crate) fn congestion_control(socket: &TcpStream) -> String {
    let name: [u8; 16] = socket::get(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION).unwrap();
    let end = name.iter().position(|b| *b == 0).unwrap();
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// A socket with this congestion control, not yet connected.
pub(crate) fn sender(family: AddressFamily, control: &str) -> io::Result<std::os::fd::OwnedFd> {
    let fd = nix::sys::socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    socket::set(
        &fd,
        libc::IPPROTO_TCP,
        libc::TCP_CONGESTION,
        control.as_bytes(),
    )?;
    Ok(fd)
}

/// A connection and its ends.
pub(crate) struct Pair {
    pub(crate) sender: TcpStream,
    pub(crate) receiver: TcpStream,
}

pub(crate) fn listen(lab: &Lab, address: &str) -> TcpListener {
    let address: IpAddr = address.parse().unwrap();
    in_cgroup(&lab.cgroup, || TcpListener::bind((address, 0)).unwrap())
}

/// A connection of the calling thread's namespace with this congestion control.
pub(crate) fn connected(to: SocketAddr, control: &str) -> TcpStream {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let fd = sender(family, control).unwrap();
    nix::sys::socket::connect(fd.as_raw_fd(), &SockaddrStorage::from(to)).unwrap();
    TcpStream::from(fd)
}

/// Connects the peer's namespace to the listener by its first SYN: a machine that stands still for a second
/// makes TCP send another, which offers no option.
pub(crate) fn connect(lab: &Lab, peer: &Netns, listener: &TcpListener, control: &str) -> Pair {
    for _ in 0..5 {
        let pair = connect_by_any_syn(lab, peer, listener, control);
        if total_retransmissions(&pair.sender) == 0 {
            return pair;
        }
    }
    panic!("five connections whose first SYN had no answer within a second");
}

pub(crate) fn connect_by_any_syn(
    lab: &Lab,
    peer: &Netns,
    listener: &TcpListener,
    control: &str,
) -> Pair {
    let to = listener.local_addr().unwrap();
    let sender = in_cgroup(&lab.cgroup, || peer.enter(|| connected(to, control)));
    let (receiver, _) = listener.accept().unwrap();
    Pair { sender, receiver }
}

fn total_retransmissions(socket: &TcpStream) -> u32 {
    let info: [u8; 104] = socket::get(socket, libc::IPPROTO_TCP, libc::TCP_INFO).unwrap();
    u32::from_ne_bytes(info[100..].try_into().unwrap()) // tcpi_total_retrans
}

/// The byte at this place of every transfer.
fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

impl Pair {
    /// Sends so many bytes; all of them must arrive. Meanwhile `watch` runs again and again.
    pub(crate) fn transfer(&mut self, bytes: usize, mut watch: impl FnMut()) {
        let data: Vec<u8> = (0..bytes).map(byte).collect();
        let (sender, receiver) = (&mut self.sender, &mut self.receiver);
        thread::scope(|scope| {
            let sent = scope.spawn(move || sender.write_all(&data).unwrap());
            let received = scope.spawn(move || {
                let mut buffer = vec![0; bytes];
                receiver.read_exact(&mut buffer).unwrap();
                assert!(buffer.iter().enumerate().all(|(at, b)| *b == byte(at)));
            });
            while !received.is_finished() {
                watch();
                thread::sleep(Duration::from_millis(20));
            }
            sent.join().unwrap();
            received.join().unwrap();
        });
    }

    /// What the agent says of the sending end; null: nothing.
    pub(crate) fn sends(&self, agent: &Agent) -> Value {
        connection(agent, &self.sender)
    }

    pub(crate) fn receives(&self, agent: &Agent) -> Value {
        connection(agent, &self.receiver)
    }
}

pub(crate) fn connection(agent: &Agent, end: &TcpStream) -> Value {
    let (local, remote) = (end.local_addr().unwrap(), end.peer_addr().unwrap());
    let real = agent.ok("GET", API, None);
    let all = real["connections"].as_array().unwrap();
    all.iter()
        .find(|c| c["local"] == local.to_string() && c["remote"] == remote.to_string())
        .cloned()
        .unwrap_or(Value::Null)
}

pub(crate) fn count(agent: &Agent, counter: &str) -> u64 {
    agent.ok("GET", API, None)["counters"][counter]
        .as_u64()
        .unwrap()
}

pub(crate) fn switch_on(agent: &Agent) -> Value {
    agent.ok("PUT", API, Some(json!({})))
}

/// Runs a test with an agent; what the peer sends is spread out by a link of 20 Mbit/s.
pub(crate) fn with_agent(test: impl FnOnce(&Lab, &Netns, Agent) + Send) {
    linked_lab(require::root(), |lab, peer| {
        lab.netns.run("ip addr add fd09::1/64 dev v0 nodad");
        peer.run("ip addr add fd09::2/64 dev v1 nodad");
        peer.run("ip link set dev v1 gso_max_segs 1");
        peer.run("tc qdisc add dev v1 root tbf rate 20mbit burst 3000 latency 100ms");
        test(lab, peer, Agent::start(lab, &[]));
    });
}

/// A middlebox at ingress of a device: `strip_syn`, `strip_rest`, `drop`.
pub(crate) fn middlebox(netns: &Netns, dev: &str, does: &[&str]) -> Ebpf {
    netns.enter(|| {
        let mut loader = EbpfLoader::new();
        for what in does {
            loader.override_global(what, &1_u8, true);
        }
        let mut object = loader
            .load(include_bytes!(concat!(env!("OUT_DIR"), "/strip.bpf.o")))
            .unwrap();
        let program: &mut SchedClassifier =
            object.program_mut("strip").unwrap().try_into().unwrap();
        program.load().unwrap();
        program.attach(dev, TcAttachType::Ingress).unwrap();
        object
    })
}

/// Loses so many per cent of what arrives at a device, the same in each run.
pub(crate) fn lossy(netns: &Netns, dev: &str, percent: u32) {
    netns.enter(|| {
        let mut object = EbpfLoader::new()
            .override_global("loss_percent", &percent, true)
            .load(include_bytes!(concat!(env!("OUT_DIR"), "/hop.bpf.o")))
            .unwrap();
        let program: &mut SchedClassifier = object.program_mut("hop").unwrap().try_into().unwrap();
        program.load().unwrap();
        program.attach(dev, TcAttachType::Ingress).unwrap();
        // It goes with the namespace.
        std::mem::forget(object);
    });
}
