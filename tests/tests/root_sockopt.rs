//! What sockets say: bestby's socket options (by an unprivileged user), SO_TXTIME, SO_MARK
//! per packet, pacing rates; real sockets, a real veth, mode tc without a rate.

#![allow(clippy::unwrap_used)]

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{
        Lab, MS, Rule, SECOND, cgroup_root, clock_ns, iface, ifindex, in_namespace, mapped, now_ns,
        shell, veth,
    },
    frame::rtp,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const LEVEL: i32 = SOL_BESTBY as i32;
const NOBODY: libc::uid_t = 65534;

/// The options are attached to the root of the cgroup tree: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn lab() -> Lab {
    veth();
    let mut lab = Lab::bare();
    lab.iface(0, &iface(ifindex("bb0"), BB_MODE_TC));
    lab.configure(|c| {
        c.events_per_s = 1000;
        c.prio_table[6] = 0;
        c.dscp_table[46] = 2;
    });
    lab.attach_sockopt(&cgroup_root());
    lab.attach("bb0");
    lab
}

fn set<T: IntoBytes + Immutable>(
    socket: &impl std::os::fd::AsRawFd,
    level: i32,
    name: u32,
    value: &T,
) -> io::Result<()> {
    let bytes = value.as_bytes();
    // SAFETY: the value is valid for its size.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name as i32,
            bytes.as_ptr().cast(),
            bytes.len() as u32,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn get<T: FromBytes + IntoBytes>(
    socket: &impl std::os::fd::AsRawFd,
    level: i32,
    name: u32,
) -> io::Result<T> {
    let mut value = T::new_zeroed();
    let mut size = size_of::<T>() as u32;
    // SAFETY: the value is valid for its size.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name as i32,
            value.as_mut_bytes().as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    assert_eq!(size as usize, size_of::<T>());
    Ok(value)
}

#[track_caller]
fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

/// This thread becomes nobody, without any capability; the others stay root.
fn become_nobody() {
    // SAFETY: raw calls change the credentials of the calling thread alone.
    unsafe {
        assert_eq!(
            libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()),
            0
        );
        assert_eq!(
            libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY),
            0
        );
        assert_eq!(
            libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY),
            0
        );
    }
}

/// Runs as nobody in a thread of its own, in the caller's namespace.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_nobody();
            work()
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn udp() -> UdpSocket {
    UdpSocket::bind("10.9.0.1:0").unwrap()
}

const TO: &str = "10.9.0.2:5004";

fn stats(socket: &UdpSocket) -> bb_counters {
    get(socket, LEVEL, BB_SO_STATS).unwrap()
}

/// Packets that arrived at the far end of the veth.
fn arrived() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text
        .lines()
        .find(|l| l.trim_start().starts_with("bb1:"))
        .unwrap();
    line.split_whitespace().nth(2).unwrap().parse().unwrap()
}

fn peer(owd_ns: u64, rate: u64) -> bb_so_peer {
    bb_so_peer {
        addr: mapped([10, 9, 0, 2]),
        owd_ns,
        rate,
    }
}

/// Sends; a packet refused at egress is ENOBUFS at most, never an error of another kind.
fn send(socket: &UdpSocket, count: usize) {
    for _ in 0..count {
        if let Err(error) = socket.send_to(&[0x33; 100], TO) {
            assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS), "{error}");
        }
    }
}

/// The drop notices so far.
fn notices(lab: &Lab) -> Vec<bb_event> {
    let mut events = Vec::new();
    {
        let map = lab.map("bb_events");
        let mut builder = libbpf_rs::RingBufferBuilder::new();
        builder
            .add(&map, |bytes| {
                events.push(bb_event::read_from_bytes(bytes).unwrap());
                0
            })
            .unwrap();
        builder.build().unwrap().consume().unwrap();
    }
    events
}

/// Sends one datagram with one control message.
fn send_cmsg(socket: &UdpSocket, level: i32, kind: i32, value: &[u8]) -> io::Result<usize> {
    let to: SocketAddr = TO.parse().unwrap();
    let SocketAddr::V4(to) = to else {
        unreachable!()
    };
    // SAFETY: all zeroes is a valid address.
    let mut name: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    name.sin_family = libc::AF_INET as u16;
    name.sin_port = to.port().to_be();
    name.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
    let mut payload = [0x33u8; 100];
    let mut part = libc::iovec {
        iov_base: payload.as_mut_ptr().cast(),
        iov_len: payload.len(),
    };
    let mut control = [0u64; 8];
    // SAFETY: the message points to values that outlive the call; the control buffer is
    // aligned and has room for one header and at most 8 bytes of data.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(value.len() as u32) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        (*header).cmsg_len = libc::CMSG_LEN(value.len() as u32) as usize;
        std::ptr::copy_nonoverlapping(value.as_ptr(), libc::CMSG_DATA(header), value.len());
        libc::sendmsg(socket.as_raw_fd(), &raw const message, 0)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

#[test]
fn options_are_kept_and_bad_ones_refused() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        as_nobody(|| {
            let s = udp();
            assert_eq!(get::<u64>(&s, LEVEL, BB_SO_LIFETIME).unwrap(), 0);
            assert_eq!(
                get::<u32>(&s, LEVEL, BB_SO_PRIORITY).unwrap(),
                BB_PRIORITY_DEFAULT
            );
            set(&s, LEVEL, BB_SO_LIFETIME, &(200 * MS)).unwrap();
            set(&s, LEVEL, BB_SO_LIFETIME, &BB_LIFETIME_MAX_NS).unwrap();
            set(&s, LEVEL, BB_SO_PRIORITY, &0u32).unwrap();
            set(&s, LEVEL, BB_SO_PRIORITY, &7u32).unwrap();
            set(&s, LEVEL, BB_SO_TREATMENT, &BB_TREAT_FORWARD).unwrap();
            let refused: [(i32, io::Result<()>); 14] = [
                (
                    libc::EINVAL,
                    set(&s, LEVEL, BB_SO_LIFETIME, &(BB_LIFETIME_MAX_NS + 1)),
                ),
                (libc::EINVAL, set(&s, LEVEL, BB_SO_LIFETIME, &u64::MAX)),
                (libc::EINVAL, set(&s, LEVEL, BB_SO_LIFETIME, &1u32)),
                (libc::EINVAL, set(&s, LEVEL, BB_SO_LIFETIME, &[1u64, 1])),
                (libc::EINVAL, set(&s, LEVEL, BB_SO_PRIORITY, &8u32)),
                (libc::EINVAL, set(&s, LEVEL, BB_SO_PRIORITY, &u32::MAX)),
                (libc::EINVAL, set(&s, LEVEL, BB_SO_PRIORITY, &1u64)),
                (libc::EINVAL, set(&s, LEVEL, BB_SO_PRIORITY, &1u8)),
                (
                    libc::EINVAL,
                    set(&s, LEVEL, BB_SO_TREATMENT, &BB_TREAT_TRUNCATE),
                ),
                (libc::EINVAL, set(&s, LEVEL, BB_SO_PEER, &1u64)),
                (
                    libc::EINVAL,
                    set(&s, LEVEL, BB_SO_PEER, &peer(BB_LIFETIME_MAX_NS + 1, 0)),
                ),
                (
                    libc::ENOPROTOOPT,
                    set(&s, LEVEL, BB_SO_STATS, &bb_counters::default()),
                ),
                (libc::ENOPROTOOPT, set(&s, LEVEL, 99, &1u32)),
                (libc::ENOPROTOOPT, get::<u32>(&s, LEVEL, 99).map(|_| ())),
            ];
            for (i, (expected, result)) in refused.into_iter().enumerate() {
                assert_eq!(errno(result), expected, "refusal {i}");
            }
            assert_eq!(errno(get::<u32>(&s, LEVEL, BB_SO_STATS)), libc::EINVAL);
            assert_eq!(errno(get::<u32>(&s, LEVEL, BB_SO_LIFETIME)), libc::EINVAL);
            // The refused changed nothing; another socket has its own.
            assert_eq!(
                get::<u64>(&s, LEVEL, BB_SO_LIFETIME).unwrap(),
                BB_LIFETIME_MAX_NS
            );
            assert_eq!(get::<u32>(&s, LEVEL, BB_SO_PRIORITY).unwrap(), 7);
            assert_eq!(
                get::<u32>(&s, LEVEL, BB_SO_TREATMENT).unwrap(),
                BB_TREAT_FORWARD
            );
            assert_eq!(get::<u64>(&udp(), LEVEL, BB_SO_LIFETIME).unwrap(), 0);
            // 0 clears.
            set(&s, LEVEL, BB_SO_LIFETIME, &0u64).unwrap();
            assert_eq!(get::<u64>(&s, LEVEL, BB_SO_LIFETIME).unwrap(), 0);
        });
        drop(lab);
    });
}

#[test]
fn other_levels_are_as_before() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        let s = udp();
        let seven = 7u32;
        set(&s, libc::SOL_SOCKET, libc::SO_PRIORITY as u32, &seven).unwrap();
        assert_eq!(
            get::<u32>(&s, libc::SOL_SOCKET, libc::SO_PRIORITY as u32).unwrap(),
            seven
        );
        assert_eq!(
            errno(set(&s, LEVEL + 1, BB_SO_PRIORITY, &1u32)),
            libc::ENOPROTOOPT
        );
        assert_eq!(
            errno(set(&s, libc::SOL_SOCKET, libc::SO_PRIORITY as u32, &1u8)),
            libc::EINVAL
        );
        // Longer than the page that the program is shown: the kernel gets all of it.
        let mut long = [0u8; 5000];
        long[..3].copy_from_slice(b"bb0");
        set(&s, libc::SOL_SOCKET, libc::SO_BINDTODEVICE as u32, &long).unwrap();
        let mut name = [0u8; 16];
        let mut size = 16u32;
        // SAFETY: the buffer is valid for its size.
        let status = unsafe {
            libc::getsockopt(
                s.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_BINDTODEVICE,
                name.as_mut_ptr().cast(),
                &raw mut size,
            )
        };
        assert_eq!((status, &name[..4]), (0, &b"bb0\0"[..]));
        drop(lab);
    });
}

#[test]
fn a_nobody_sets_lifetimes_and_reads_its_counters() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        as_nobody(|| {
            let s = udp();
            set(&s, LEVEL, BB_SO_LIFETIME, &(100 * MS)).unwrap();
            set(&s, LEVEL, BB_SO_PRIORITY, &5u32).unwrap();
            assert_eq!(stats(&s), bb_counters::default());
            send(&s, 10);
            let c = stats(&s);
            assert_eq!((c.packets_in, c.packets_sent, c.queued), (10, 10, 0));
            assert_eq!(c.bytes_in, 10 * (100 + 8 + 20 + 14));

            // The way there takes a second: nothing arrives in time, so nothing leaves.
            set(&s, LEVEL, BB_SO_PEER, &peer(SECOND, 77_000)).unwrap();
            std::thread::sleep(Duration::from_millis(11));
            let before = arrived();
            send(&s, 10);
            let c = stats(&s);
            assert_eq!((c.packets_in, c.packets_sent), (20, 10));
            assert_eq!(c.dropped[BB_DROP_STALE as usize], 10);
            assert_eq!(arrived(), before);

            // Whoever prefers late to never says so.
            set(&s, LEVEL, BB_SO_TREATMENT, &BB_TREAT_FORWARD).unwrap();
            send(&s, 10);
            let c = stats(&s);
            assert_eq!((c.packets_sent, c.sent_stale), (20, 10));
            assert_eq!(arrived(), before + 10);
            set(&s, LEVEL, BB_SO_TREATMENT, &BB_TREAT_DEFAULT).unwrap();

            // Options of one socket are not another's.
            let plain = udp();
            send(&plain, 5);
            assert_eq!(arrived(), before + 15);
            assert_eq!(stats(&plain), bb_counters::default());
        });
        let all = lab.rule_stats(0);
        assert_eq!(
            all.packets_in,
            all.packets_sent + all.dropped.iter().sum::<u64>()
        );
        let events = notices(&lab);
        assert_eq!(events.len(), 10);
        assert!(events.iter().all(|e| e.priority == 5
            && u32::from(e.reason) == BB_DROP_STALE
            && e.late_ns > 800 * MS as i64
            && e.ifindex == ifindex("bb0")));

        // What nobody said of the peer is nobody's: root's packets are judged without it.
        std::thread::sleep(Duration::from_millis(11));
        let s = udp();
        set(&s, LEVEL, BB_SO_LIFETIME, &(100 * MS)).unwrap();
        send(&s, 3);
        assert_eq!(stats(&s).packets_sent, 3);
        // What the operator said cannot be contradicted, and counts for all.
        let operator = bb_peer {
            owd_ns: 5 * MS,
            rate: 0,
            flags: BB_PEER_OWD | BB_PEER_OPERATOR,
            pad: 0,
        };
        lab.put(
            "bb_peers",
            &bb_addr {
                addr: mapped([10, 9, 0, 2]),
            },
            &operator,
        );
        as_nobody(|| {
            let s = udp();
            assert_eq!(
                errno(set(&s, LEVEL, BB_SO_PEER, &peer(SECOND, 0))),
                libc::EPERM
            );
            std::thread::sleep(Duration::from_millis(11));
            set(&s, LEVEL, BB_SO_LIFETIME, &(100 * MS)).unwrap();
            send(&s, 3);
            assert_eq!(stats(&s).packets_sent, 3);
        });
    });
}

#[test]
fn naming_many_peers_harms_nobody() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        let s = udp();
        set(&s, LEVEL, BB_SO_LIFETIME, &(100 * MS)).unwrap();
        set(&s, LEVEL, BB_SO_PEER, &peer(SECOND, 0)).unwrap();
        for round in 0..4u32 {
            send(&s, 1);
            as_nobody(|| {
                let flood = udp();
                for i in 0..BB_MAX_SOCK_PEERS / 2 {
                    let [_, b, c, d] = (round * 100_000 + i).to_be_bytes();
                    let said = bb_so_peer {
                        addr: mapped([11, b, c, d]),
                        owd_ns: 1,
                        rate: 1,
                    };
                    set(&flood, LEVEL, BB_SO_PEER, &said).unwrap();
                }
            });
        }
        std::thread::sleep(Duration::from_millis(11));
        send(&s, 1);
        let c = stats(&s);
        assert_eq!(
            c.dropped[BB_DROP_STALE as usize], 5,
            "the peer in use was forgotten: {c:?}"
        );
        // The operator's table is another one.
        assert_eq!(libbpf_rs::MapCore::keys(&lab.map("bb_peers")).count(), 0);
    });
}

#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct TxTime {
    clock: i32,
    flags: u32,
}

const DEADLINE_MODE: u32 = 1;

fn txtime_socket(clock: i32, flags: u32) -> UdpSocket {
    let s = udp();
    set(
        &s,
        libc::SOL_SOCKET,
        libc::SO_TXTIME as u32,
        &TxTime { clock, flags },
    )
    .unwrap();
    s
}

fn send_txtime(s: &UdpSocket, deadline: u64) {
    if let Err(error) = send_cmsg(
        s,
        libc::SOL_SOCKET,
        libc::SCM_TXTIME,
        &deadline.to_ne_bytes(),
    ) {
        assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS), "{error}");
    }
}

#[test]
fn txtime_deadlines_are_read_and_taken_off() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        as_nobody(|| {
            let s = txtime_socket(libc::CLOCK_MONOTONIC, DEADLINE_MODE);
            set(&s, libc::SOL_SOCKET, libc::SO_PRIORITY as u32, &6u32).unwrap();
            let before = arrived();
            send_txtime(&s, now_ns() + SECOND);
            assert_eq!(arrived(), before + 1, "held back instead of sent");
            send_txtime(&s, now_ns() - MS);
            assert_eq!(arrived(), before + 1);
            // Without the cmsg there is no deadline and no metadata.
            send(&s, 1);
            assert_eq!(arrived(), before + 2);
            // Launch times are another mode: not deadlines, even if past.
            send_txtime(&txtime_socket(libc::CLOCK_MONOTONIC, 0), now_ns() - MS);
            assert_eq!(arrived(), before + 3);
        });
        let events = notices(&lab);
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].priority, 0, "from SO_PRIORITY 6 by the table");
        assert!((MS as i64..SECOND as i64).contains(&events[0].late_ns));

        // TAI counts from another epoch (and needs a capability, so: root).
        let s = txtime_socket(libc::CLOCK_TAI, DEADLINE_MODE);
        let before = arrived();
        send_txtime(&s, clock_ns(libc::CLOCK_TAI) + 100 * MS);
        assert_eq!(arrived(), before + 1);
        send_txtime(&s, clock_ns(libc::CLOCK_TAI) - 100 * MS);
        assert_eq!(arrived(), before + 1);
        let late = notices(&lab)[0].late_ns;
        assert!((100 * MS as i64..150 * MS as i64).contains(&late), "{late}");

        // Metadata beats a rule's: this lifetime would have saved the late one.
        lab.rules(&[Rule::new().dport(5004).lifetime(SECOND).priority(4)]);
        send_txtime(&s, clock_ns(libc::CLOCK_TAI) - 100 * MS);
        assert_eq!(arrived(), before + 1);
        assert_eq!(lab.rule_stats(1).dropped[BB_DROP_STALE as usize], 1);
    });
}

#[test]
fn marks_per_packet_reach_the_classifier() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        let s = udp();
        let before = arrived();
        let magic = BB_MARK_MAGIC << BB_MARK_MAGIC_SHIFT;
        let past = (now_ns() - 10 * MS) / u64::from(BB_MARK_UNIT_NS);
        let time = past as u32 & BB_MARK_TIME_MASK;
        for (mark, passes) in [
            (magic | BB_MARK_RELATIVE | 400, 1),
            (magic | time, 0),
            (time, 1), // a mark of someone else's
        ] {
            let seen = arrived();
            let _ = send_cmsg(&s, libc::SOL_SOCKET, libc::SO_MARK, &mark.to_ne_bytes());
            assert_eq!(arrived() - seen, passes, "mark {mark:x}");
        }
        assert_eq!(arrived() - before, 2);
        assert_eq!(lab.global(BB_G_FOREIGN_MARK), 1);
        // Without the capability the kernel refuses the cmsg; nothing reaches us.
        as_nobody(|| {
            let s = udp();
            let mark = magic | BB_MARK_RELATIVE | 400;
            let refused = send_cmsg(&s, libc::SOL_SOCKET, libc::SO_MARK, &mark.to_ne_bytes());
            assert_eq!(errno(refused), libc::EPERM);
        });
    });
}

#[test]
fn a_socket_states_its_rate() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        lab.rules(&[Rule::new().dport(5004).lifetime(SECOND)]);
        let rate = |s: &UdpSocket| {
            std::thread::sleep(Duration::from_millis(11));
            send(s, 1);
            let found: Vec<u64> = (0..BB_MAX_SESSIONS)
                .map(|i| lab.get::<u32, bb_session>("bb_sessions", &i).unwrap())
                .filter(|x| u32::from(x.key.kind) == BB_SESSION_DST && x.tag != 0)
                .map(|x| x.rate)
                .collect();
            assert_eq!(found.len(), 1);
            found[0]
        };
        let s = udp();
        assert_eq!(rate(&s), 0, "not known");
        set(
            &s,
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE as u32,
            &31_625u32,
        )
        .unwrap();
        assert_eq!(rate(&s), 31_625);
        // What was said of the peer is better.
        set(&s, LEVEL, BB_SO_PEER, &peer(0, 9_000)).unwrap();
        assert_eq!(rate(&s), 9_000);
        set(&s, LEVEL, BB_SO_PEER, &peer(0, 0)).unwrap();
        assert_eq!(rate(&s), 31_625, "0 and 0 take it back");
    });
}

#[test]
fn tcp_of_this_host_is_never_dropped() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        // A real connection, over bb0: its far end in a namespace of its own.
        let server = far_end();
        lab.rules(&[Rule::new().proto(6).lifetime(MS).owd(SECOND)]);
        let mut stream = TcpStream::connect("10.9.0.3:7000").unwrap();
        io::Write::write_all(&mut stream, &[7; 100_000]).unwrap();
        drop(stream);
        assert_eq!(server.join().unwrap(), 100_000);
        let c = lab.rule_stats(1);
        assert!(c.packets_in > 0 && c.sent_stale == c.packets_in, "{c:?}");
        assert_eq!(c.dropped, [0; BB_REASONS as usize]);
    });
}

/// A listener at 10.9.0.3 behind `bb1`, in a namespace of its own; returns the bytes it read.
fn far_end() -> std::thread::JoinHandle<usize> {
    let (ready, wait) = std::sync::mpsc::channel();
    let (moved, go) = std::sync::mpsc::channel::<()>();
    let server = std::thread::spawn(move || {
        // SAFETY: affects only this thread.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        // SAFETY: gettid cannot fail.
        ready
            .send(unsafe { libc::syscall(libc::SYS_gettid) })
            .unwrap();
        go.recv().unwrap();
        shell("ip link set lo up; ip link set bb1 up; ip addr add 10.9.0.3/24 dev bb1");
        let listener = TcpListener::bind("10.9.0.3:7000").unwrap();
        ready.send(0).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        io::Read::read_to_end(&mut stream, &mut all).unwrap()
    });
    let tid = wait.recv().unwrap();
    shell(&format!(
        "ip link set bb1 netns /proc/{}/task/{tid}/ns/net",
        std::process::id()
    ));
    moved.send(()).unwrap();
    wait.recv().unwrap();
    server
}

/// RTP whose payload lies in page fragments of the skb: spliced from a pipe.
#[test]
fn payload_outside_the_linear_part_is_read() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        lab.rules(&[Rule::new().dport(5004).lifetime(SECOND)]);
        let s = udp();
        s.connect(TO).unwrap();
        let packet = rtp(0xfeed_beef, 1234, false);
        let mut ends = [0i32; 2];
        // SAFETY: pipe fills both descriptors, which OwnedFd then owns; the slice outlives the
        // calls that read it.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            let (read, write) = (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]));
            let part = libc::iovec {
                iov_base: packet.as_ptr().cast_mut().cast(),
                iov_len: packet.len(),
            };
            let put = libc::vmsplice(write.as_raw_fd(), &raw const part, 1, 0);
            assert_eq!(put, packet.len() as isize);
            let sent = libc::splice(
                read.as_raw_fd(),
                std::ptr::null_mut(),
                s.as_raw_fd(),
                std::ptr::null_mut(),
                packet.len(),
                0,
            );
            assert_eq!(sent, packet.len() as isize);
        }
        let flows = lab.map("bb_flows");
        let followed = libbpf_rs::MapCore::keys(&flows).any(|key| {
            let value = libbpf_rs::MapCore::lookup(&flows, &key, libbpf_rs::MapFlags::ANY);
            let flow = bb_flow::read_from_bytes(&value.unwrap().unwrap()).unwrap();
            flow.adu
                .iter()
                .any(|a| a.stream == 0xfeed_beef && a.source == 1234)
        });
        assert!(followed, "the RTP header was not seen");
        assert_eq!(lab.global(BB_G_MALFORMED), 0);
    });
}
