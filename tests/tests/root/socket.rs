//! What sockets say by the kernel's own means: SO_TXTIME deadlines, SO_MARK per packet, pacing rates, and TCP;
//! real sockets, a real veth, mode tc without a rate.

use std::{
    io,
    net::{TcpListener, TcpStream, UdpSocket},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

use crate::sockopt_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::Rule,
    clock::{MS, SECOND, clock_ns, now_ns},
    frame::rtp,
    netns::{Netns, in_namespace, shell},
    socket::set,
    user::as_nobody,
};
use zerocopy::{FromBytes as _, Immutable, IntoBytes};

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
        libc::SO_TXTIME,
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

/// The kernel makes an `SO_PRIORITY` of a TOS, so that without a look at it no DSCP would ever count.
#[test]
fn priority_is_by_the_dscp_that_a_socket_sets() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        lab.configure(|c| (c.prio_table[4], c.dscp_table[46]) = (5, 1));
        let s = txtime_socket(libc::CLOCK_MONOTONIC, DEADLINE_MODE);
        set(&s, libc::IPPROTO_IP, libc::IP_TOS, &(46u32 << 2)).unwrap();
        send_txtime(&s, now_ns() - MS);
        assert_eq!(notices(&lab)[0].priority, 1, "ef");
        // One that was set later, and says something else, is the application's own.
        lab.configure(|c| c.prio_table[6] = 2);
        set(&s, libc::SOL_SOCKET, libc::SO_PRIORITY, &6u32).unwrap();
        send_txtime(&s, now_ns() - MS);
        assert_eq!(notices(&lab)[0].priority, 2, "SO_PRIORITY 6");
    });
}

#[test]
fn txtime_deadline_is_read_and_removed() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        as_nobody(|| {
            let s = txtime_socket(libc::CLOCK_MONOTONIC, DEADLINE_MODE);
            set(&s, libc::SOL_SOCKET, libc::SO_PRIORITY, &6u32).unwrap();
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
        let deadline = clock_ns(libc::CLOCK_TAI) - 100 * MS;
        send_txtime(&s, deadline);
        let longest = (clock_ns(libc::CLOCK_TAI) - deadline) as i64;
        assert_eq!(arrived(), before + 1);
        let late = notices(&lab)[0].late_ns;
        assert!((100 * MS as i64..=longest).contains(&late), "{late}");

        // Metadata beats a rule's: this lifetime would have saved the late one.
        lab.rules(&[Rule::new().dport(5004).lifetime(SECOND).priority(4)]);
        send_txtime(&s, clock_ns(libc::CLOCK_TAI) - 100 * MS);
        assert_eq!(arrived(), before + 1);
        assert_eq!(lab.rule_stats(1).dropped[BB_DROP_STALE as usize], 1);
    });
}

/// An application in a time namespace: its CLOCK_MONOTONIC is not ours.
#[test]
fn deadlines_of_another_clock_cost_no_packet() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        // Its reports are packets, too, and this takes seconds.
        shell("for dev in bb0 bb1; do echo 1 >/proc/sys/net/ipv6/conf/$dev/disable_ipv6; done");
        let untimely = || lab.global(BB_G_UNTIMELY);
        let lifetime = 200 * MS;
        // An hour ahead or behind is no lifetime's end.
        for clock in [3_600 * SECOND as i64, -3_600 * SECOND as i64] {
            let s = txtime_socket(libc::CLOCK_MONOTONIC, DEADLINE_MODE);
            let (before, counted) = (arrived(), untimely());
            send_txtime(&s, now_ns().saturating_add_signed(clock).max(1) + lifetime);
            assert_eq!(
                (arrived(), untimely()),
                (before + 1, counted + 1),
                "{clock}"
            );
        }
        // 3 s behind may be an application that hung: until all its packets come like that for a second.
        let s = txtime_socket(libc::CLOCK_MONOTONIC, DEADLINE_MODE);
        let behind = || now_ns() - 3 * SECOND + lifetime;
        let (before, counted) = (arrived(), untimely());
        send_txtime(&s, behind());
        assert_eq!(arrived(), before, "stale");
        std::thread::sleep(Duration::from_millis(1_500));
        send_txtime(&s, behind());
        send_txtime(&s, behind());
        assert_eq!((arrived(), untimely()), (before + 2, counted + 2));
        // Another flow has a second of its own, and one packet in time ends it.
        send_txtime(
            &txtime_socket(libc::CLOCK_MONOTONIC, DEADLINE_MODE),
            behind(),
        );
        assert_eq!(arrived(), before + 2);
        send_txtime(&s, now_ns() + lifetime);
        send_txtime(&s, behind());
        assert_eq!((arrived(), untimely()), (before + 3, counted + 2));
        // By mark, the same; the lifetime of a rule counts in its place.
        lab.rules(&[Rule::new().dport(5004).lifetime(SECOND).priority(4)]);
        let s = udp();
        let mark = || {
            let units = behind() / u64::from(BB_MARK_UNIT_NS);
            BB_MARK_MAGIC << BB_MARK_MAGIC_SHIFT | units as u32 & BB_MARK_TIME_MASK
        };
        let send = || {
            let _ = send_cmsg(&s, libc::SOL_SOCKET, libc::SO_MARK, &mark().to_ne_bytes());
        };
        send();
        std::thread::sleep(Duration::from_millis(1_500));
        let before = arrived();
        send();
        assert_eq!((arrived(), untimely()), (before + 1, counted + 3));
        let c = lab.rule_stats(1);
        assert_eq!((c.packets_in, c.dropped[BB_DROP_STALE as usize]), (2, 1));
    });
}

#[test]
fn mark_per_packet_reaches_the_classifier() {
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
fn pacing_rate_of_a_socket_is_its_session_rate() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        lab.rules(&[Rule::new().dport(5004).lifetime(SECOND)]);
        // Whose the session is that a packet goes to, and its rate.
        let session = |s: &UdpSocket| {
            std::thread::sleep(Duration::from_millis(11));
            send(s, 1);
            (0..BB_MAX_SESSIONS)
                .map(|i| lab.get::<u32, bb_session>("bb_sessions", &i).unwrap())
                .filter(|x| u32::from(x.key.kind) == BB_SESSION_DST && x.way.tag != 0)
                .max_by_key(|x| x.way.used_ns)
                .map(|x| (x.key.user, x.rate))
                .unwrap()
        };
        let s = udp();
        let (everybody, root) = (0, 1);
        assert_eq!(session(&s), (everybody, 0), "not known");
        set(&s, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &31_625u32).unwrap();
        assert_eq!(session(&s), (root, 31_625));
        // What was said of the peer is better.
        set(&s, LEVEL, BB_SO_PEER, &peer(0, 9_000)).unwrap();
        assert_eq!(session(&s), (root, 9_000));
        set(&s, LEVEL, BB_SO_PEER, &peer(0, 0)).unwrap();
        assert_eq!(session(&s), (root, 31_625), "0 and 0 take it back");
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
    let far = Netns::new();
    shell(&format!("ip link set bb1 netns {}", far.name()));
    far.run("ip link set bb1 up");
    far.run("ip addr add 10.9.0.3/24 dev bb1");
    let listener = far.enter(|| TcpListener::bind("10.9.0.3:7000").unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        io::Read::read_to_end(&mut stream, &mut all).unwrap()
    })
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
        let streams = lab.map("bb_streams");
        let followed = libbpf_rs::MapCore::keys(&streams).any(|key| {
            let value = libbpf_rs::MapCore::lookup(&streams, &key, libbpf_rs::MapFlags::ANY);
            let stream = bb_stream::read_from_bytes(&value.unwrap().unwrap()).unwrap();
            stream.key.ssrc == 0xfeed_beef && stream.adu.iter().any(|a| a.source == 1234)
        });
        assert!(followed, "the RTP header was not seen");
        assert_eq!(lab.global(BB_G_MALFORMED), 0);
    });
}
