//! The client crate on a host where bestby is active: its socket options and each of its forms,
//! through the real programs, in mode tc on loopback. What the classifier judges stale does not
//! arrive, and the socket's counters say why.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::client_lab::{Receiver, drop_capabilities};
use bestby::{
    AduIds, Deadline, Error, Form, Lifetime, Metadata, Packet, Peer, Priority, Sender,
    SocketOptions, SocketStats, Treatment,
};
use bestby_bpf::abi;
use bestby_tests::{
    agent::Agent,
    bpf::{LO, Lab, iface, mapped},
    netns::{cgroup_root, in_namespace, in_thread, linked_lab, shell},
    require,
};
use serde_json::json;

/// Half of what separates the deadlines that must be met from those that cannot be.
const OWD: Duration = Duration::from_secs(20);
const HOPELESS: Duration = Duration::from_secs(10);
const EASY: Duration = Duration::from_secs(30);

const ME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// This process in a cgroup, left and removed on drop. Sockets belong to the cgroup
/// they were made in, so the whole test is inside.
struct Cgroup {
    path: PathBuf,
    parent: PathBuf,
}

impl Cgroup {
    /// A new one.
    fn enter() -> Self {
        let path = cgroup_root().join(format!("bbclient.{}", std::process::id()));
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let cgroup = Self::join(path);
        assert!(
            !bestby::is_active(),
            "another bestby serves the cgroups of this machine (bpftool cgroup tree): detach it first"
        );
        cgroup
    }

    /// One that is there.
    fn join(path: PathBuf) -> Self {
        let root = cgroup_root();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own
            .lines()
            .find_map(|line| line.strip_prefix("0::"))
            .unwrap();
        let parent = root.join(own.trim_start_matches('/'));
        let cgroup = Self { path, parent };
        fs::write(
            cgroup.path.join("cgroup.procs"),
            std::process::id().to_string(),
        )
        .unwrap();
        cgroup
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::write(
            self.parent.join("cgroup.procs"),
            std::process::id().to_string(),
        );
        let _ = fs::remove_dir(&self.path);
    }
}

/// The cgroup is the process's: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Runs `test` on a host with bestby: options served, loopback in mode tc without a rate
/// (only what is stale is refused), and nothing else.
fn with_bestby(test: impl FnOnce(&Lab) + Send) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cgroup = Cgroup::enter();
    in_namespace(|| {
        let mut lab = Lab::bare();
        lab.iface(0, &iface(LO, abi::BB_MODE_TC));
        // Where there is no tcx (before 6.6), the classifier is a filter.
        shell("tc qdisc add dev lo clsact");
        lab.attach("lo");
        lab.attach_sockopt(&cgroup.path);
        test(&lab);
    });
}

fn udp() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// Says how far away loopback is, for this user's sockets.
fn far_away(socket: &UdpSocket) {
    SocketOptions::of(socket)
        .set_peer(
            ME,
            &Peer {
                owd: Some(OWD),
                rate: None,
            },
        )
        .unwrap();
}

/// Counting starts with an option.
fn counted(socket: UdpSocket) -> UdpSocket {
    SocketOptions::of(&socket)
        .set_treatment(Treatment::Discard)
        .unwrap();
    socket
}

fn metadata(ahead: Duration) -> Metadata {
    Metadata::new()
        .deadline(Deadline::after(ahead))
        .adu(AduIds::default().take_id())
}

/// What one form makes of deadlines and lifetimes, of batches and super-packets.
fn judge(lab: &Lab, sender: &Sender<UdpSocket>, receiver: &Receiver) {
    far_away(sender.get_ref());
    sender.get_ref().connect(receiver.address).unwrap();
    let lifetime = |length| Metadata::new().lifetime(Lifetime::new(length).unwrap());
    let early = [metadata(EASY), lifetime(EASY), Metadata::new()];
    let late = [metadata(HOPELESS), lifetime(HOPELESS)];
    for metadata in late.iter().chain(&early) {
        let fresh = early.contains(metadata);
        sender
            .send(if fresh { b"F" } else { b"L" }, metadata)
            .unwrap();
    }
    let mut batch = Vec::new();
    for (n, metadata) in late.iter().chain(&early).enumerate().take(4) {
        let payload: &[u8] = if n < 2 { b"LL" } else { b"FF" };
        batch.push(Packet::new(payload).metadata(*metadata));
        batch.push(Packet::new(payload).metadata(*metadata).segment_size(1));
    }
    let mut sent = 0;
    while sent < batch.len() {
        sent += sender.send_batch(&batch[sent..]).unwrap();
    }
    // 3 single ones; 2 and 2 of the batch, the latter in two segments each.
    for _ in 0..3 + 2 + 2 * 2 {
        let got = receiver.receive();
        assert!(
            got.payload.iter().all(|byte| *byte == b'F'),
            "stale: {:?}",
            got.payload
        );
    }
    receiver.assert_empty();
    let stats = sender.options().stats().unwrap();
    // 2 single late ones, 2 and 2 of the batch; a super-packet is one packet.
    assert_eq!(stats.dropped.stale + stats.dropped.adu, 6, "{stats:?}");
    assert_eq!(stats.dropped.total(), 6, "{stats:?}");
    assert_eq!(
        (stats.packets_in, stats.packets_sent, stats.queued),
        (13, 7, 0),
        "{stats:?}"
    );
    assert_eq!(lab.global(abi::BB_G_PAST_DEADLINE), 6);
}

#[test]
fn mark_form_deadlines_reach_the_classifier() {
    with_bestby(|lab| {
        let receiver = Receiver::new("127.0.0.1:0");
        let sender = Sender::auto(counted(udp()));
        assert_eq!(sender.form(), Form::Mark);
        judge(lab, &sender, &receiver);
    });
}

#[test]
fn tx_time_form_deadlines_reach_the_classifier_unprivileged() {
    with_bestby(|lab| {
        let receiver = Receiver::new("127.0.0.1:0");
        drop_capabilities();
        assert!(bestby::is_active());
        let sender = Sender::auto(counted(udp()));
        assert_eq!(sender.form(), Form::TxTime);
        judge(lab, &sender, &receiver);
    });
}

#[test]
fn socket_options_apply_to_packets_without_metadata() {
    with_bestby(|_| {
        let receiver = Receiver::new("127.0.0.1:0");
        let socket = udp();
        socket.connect(receiver.address).unwrap();
        let options = SocketOptions::of(&socket);
        assert!(options.is_active());
        assert_eq!(options.stats().unwrap(), SocketStats::default());
        far_away(&socket);

        let deliver = |text: &[u8]| {
            socket.send(text).unwrap();
            assert_eq!(receiver.receive().payload, text);
        };
        deliver(b"no lifetime: never stale");
        options
            .set_lifetime(Some(Lifetime::new(HOPELESS).unwrap()))
            .unwrap();
        options.set_priority(Priority::LOWEST).unwrap();
        socket.send(b"late").unwrap();
        receiver.assert_empty();
        options.set_treatment(Treatment::Forward).unwrap();
        deliver(b"late, and sent all the same");
        options.set_treatment(Treatment::Discard).unwrap();
        socket.send(b"late again").unwrap();
        receiver.assert_empty();
        options
            .set_lifetime(Some(Lifetime::new(EASY).unwrap()))
            .unwrap();
        deliver(b"in time");
        options.set_lifetime(None).unwrap();
        deliver(b"no lifetime any more");

        let stats = options.stats().unwrap();
        // Counting began with the lifetime.
        assert_eq!((stats.packets_in, stats.packets_sent), (5, 3), "{stats:?}");
        assert_eq!(
            (stats.dropped.stale, stats.dropped.total()),
            (2, 2),
            "{stats:?}"
        );
        assert_eq!(stats.sent_stale, 1, "{stats:?}");
        assert!(
            stats.bytes_in > stats.bytes_sent && stats.bytes_sent > 0,
            "{stats:?}"
        );
        // A packet's own metadata comes before the socket's.
        options
            .set_lifetime(Some(Lifetime::new(EASY).unwrap()))
            .unwrap();
        let sender = Sender::mark(socket).unwrap();
        sender.send(b"late", &metadata(HOPELESS)).unwrap();
        receiver.assert_empty();
    });
}

#[test]
fn tcp_socket_accepts_the_options() {
    with_bestby(|_| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let options = SocketOptions::of(&tcp);
        options
            .set_lifetime(Some(Lifetime::from_millis(200).unwrap()))
            .unwrap();
        options.set_priority(Priority::HIGHEST).unwrap();
        options.set_treatment(Treatment::Discard).unwrap();
        assert_eq!(options.stats().unwrap().dropped.total(), 0);
    });
}

#[test]
fn peer_option_is_refused_with_eperm_or_einval() {
    with_bestby(|lab| {
        let socket = udp();
        let options = SocketOptions::of(&socket);
        let peer = Peer {
            owd: Some(Duration::from_millis(40)),
            rate: None,
        };
        let known = abi::bb_peer {
            owd_ns: 1_000_000,
            flags: abi::BB_PEER_OWD | abi::BB_PEER_OPERATOR,
            ..Default::default()
        };
        let address = abi::bb_addr {
            addr: mapped([192, 0, 2, 1]),
        };
        lab.tell("bb_peers", &address, &known);
        let error = options
            .set_peer("192.0.2.1".parse().unwrap(), &peer)
            .unwrap_err();
        assert!(
            matches!(&error, Error::Option { option: "BB_SO_PEER", source }
            if source.raw_os_error() == Some(libc::EPERM)),
            "{error}"
        );
        options
            .set_peer("192.0.2.2".parse().unwrap(), &peer)
            .unwrap();
        options
            .set_peer("2001:db8::1".parse().unwrap(), &peer)
            .unwrap();
        options
            .set_peer("192.0.2.2".parse().unwrap(), &Peer::default())
            .unwrap();

        let endless = Peer {
            owd: Some(Duration::from_secs(1_000)),
            rate: None,
        };
        let error = options
            .set_peer("192.0.2.3".parse().unwrap(), &endless)
            .unwrap_err();
        assert!(
            matches!(&error, Error::Option { source, .. }
            if source.raw_os_error() == Some(libc::EINVAL)),
            "{error}"
        );
    });
}

/// Two agents, one at a cgroup above the other, do not make each other refuse.
#[test]
fn options_work_below_two_agents_in_nested_cgroups() {
    with_bestby(|_| {
        let mut above = Lab::bare();
        let cgroup = fs::read_to_string("/proc/self/cgroup").unwrap();
        assert!(cgroup.contains("bbclient"), "{cgroup}");
        above.attach_sockopt(&cgroup_root());
        let socket = udp();
        let options = SocketOptions::of(&socket);
        options.set_lifetime(Some(Lifetime::MAX)).unwrap();
        options.set_priority(Priority::LOWEST).unwrap();
        options.set_treatment(Treatment::Forward).unwrap();
        far_away(&socket);
        assert_eq!(options.stats().unwrap(), SocketStats::default());
    });
}

/// A firewall that refuses everything the cgroup sends, as `iptables -j REJECT` would: EPERM.
struct Firewall {
    _program: OwnedFd,
}

impl Firewall {
    fn refusing(cgroup: &Path) -> Self {
        // r0 = 0 (drop); exit
        let program = [0xb7u64, 0x95];
        // SAFETY: two instructions and two strings, all valid for the call.
        let fd = unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_CGROUP_SKB,
                c"refuse".as_ptr(),
                c"GPL".as_ptr(),
                program.as_ptr().cast(),
                2,
                std::ptr::null_mut(),
            )
        };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: just opened, nobody else's.
        let program = unsafe { OwnedFd::from_raw_fd(fd) };
        let cgroup = fs::File::open(cgroup).unwrap();
        // SAFETY: both descriptors are open. The attachment ends with the cgroup.
        let result = unsafe {
            libbpf_sys::bpf_prog_attach(
                program.as_raw_fd(),
                cgroup.as_raw_fd(),
                libbpf_sys::BPF_CGROUP_INET_EGRESS,
                0,
            )
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        Self { _program: program }
    }
}

/// EPERM has two causes; only one of them is the mark's.
#[test]
fn eperm_of_a_firewall_keeps_the_mark_form() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cgroup = Cgroup::enter();
    in_namespace(|| {
        let receiver = Receiver::new("127.0.0.1:0");
        let _firewall = Firewall::refusing(&cgroup.path);
        for sender in [Sender::auto(udp()), Sender::mark(udp()).unwrap()] {
            let error = sender
                .send_to(b"", receiver.address, &metadata(EASY))
                .unwrap_err();
            assert!(
                matches!(&error, Error::Io { source, .. }
                if source.raw_os_error() == Some(libc::EPERM)),
                "{error}"
            );
            assert_eq!(sender.form(), Form::Mark, "the mark is still permitted");
        }
        receiver.assert_empty();
    });
}

/// An application that was started before the agent notices it, and goes on after it.
#[test]
fn redetect_finds_an_agent_that_starts_and_ends() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cgroup = Cgroup::enter();
    in_namespace(|| {
        let unprivileged = |form: &(dyn Fn() -> Form + Sync)| {
            in_thread(|| {
                drop_capabilities();
                form()
            })
        };
        let sender = in_thread(|| {
            drop_capabilities();
            Sender::auto(udp())
        });
        assert_eq!(
            sender.form(),
            Form::Plain,
            "this test needs a host without bestby"
        );
        let mut lab = Lab::bare();
        lab.attach_sockopt(&cgroup.path);
        assert_eq!(
            sender.form(),
            Form::Plain,
            "the form changes on redetect only"
        );
        assert_eq!(unprivileged(&|| sender.redetect()), Form::TxTime);
        drop(lab);
        assert_eq!(unprivileged(&|| sender.redetect()), Form::Plain);
    });
}

#[test]
fn peer_set_by_a_socket_is_listed_by_the_agent() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        let cgroup = Cgroup::join(lab.cgroup.clone());
        lab.netns.enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let options = SocketOptions::of(&socket);
            options.set_priority(Priority::HIGHEST).unwrap();
            let peer = Peer {
                owd: Some(Duration::from_millis(40)),
                rate: std::num::NonZeroU64::new(125_000),
            };
            options
                .set_peer("10.9.0.2".parse().unwrap(), &peer)
                .unwrap();
            socket.send_to(b"x", "10.9.0.2:5004").unwrap();
        });
        drop(cgroup);
        let list = agent.ok("GET", "/v1/sessions", None);
        let sessions = list["sessions"].as_array().unwrap();
        let one = sessions
            .iter()
            .find(|s| s["name"] == "v0/10.9.0.2/uid-0")
            .unwrap_or_else(|| panic!("{list}"));
        assert_eq!(
            [&one["owd_ns"], &one["owd_source"], &one["rate_bytes_s"]],
            [&json!(40_000_000), &json!("socket"), &json!(125_000)]
        );
    });
}
