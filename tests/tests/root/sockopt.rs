//! What sockets say of themselves: bestby's socket options, by an unprivileged user; real sockets, a real veth,
//! mode tc without a rate.

use std::{io, os::fd::AsRawFd as _, time::Duration};

use crate::sockopt_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{Rule, mapped},
    clock::{MS, SECOND},
    frame::stun,
    netns::{ifindex, in_namespace},
    socket::{get, set},
    user::{NOBODY, as_nobody},
};
use libbpf_rs::MapCore as _;
use zerocopy::IntoBytes as _;

#[test]
fn socket_options_are_kept_and_bad_ones_refused() {
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
                    set(&s, LEVEL, BB_SO_TREATMENT, &(BB_TREAT_TRUNCATE + 1)),
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

/// Programs that were built with an earlier, shorter `struct bestby_counters`, and with a later one.
#[test]
fn counters_are_copied_as_far_as_the_caller_has_room() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        let s = udp();
        set(&s, LEVEL, BB_SO_LIFETIME, &SECOND).unwrap();
        send(&s, 3);
        let whole = stats(&s);
        assert_eq!((whole.packets_in, whole.packets_sent), (3, 3));
        let all = size_of::<bb_counters>();
        let read = |room: usize| {
            let mut buffer = [0xAAu8; 5000];
            let mut size = room as u32;
            // SAFETY: the buffer has room for more than `size` bytes.
            let status = unsafe {
                libc::getsockopt(
                    s.as_raw_fd(),
                    LEVEL,
                    BB_SO_STATS as i32,
                    buffer.as_mut_ptr().cast(),
                    &raw mut size,
                )
            };
            if status != 0 {
                return Err(io::Error::last_os_error());
            }
            assert!(buffer[size as usize..].iter().all(|b| *b == 0xAA), "{room}");
            Ok(buffer[..size as usize].to_vec())
        };
        for (room, expected) in [
            (0, 0),
            (8, 8),
            (12, 8),
            (136, 136),
            (all, all),
            (all + 8, all),
            (4096, all),
            (5000, all),
        ] {
            let read = read(room).unwrap();
            assert_eq!(read, whole.as_bytes()[..expected], "room for {room}");
        }
        for room in [1, 4, 7] {
            assert_eq!(errno(read(room)), libc::EINVAL, "room for {room}");
        }
        drop(lab);
    });
}

#[test]
fn options_of_other_levels_are_unchanged() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        let s = udp();
        let seven = 7u32;
        set(&s, libc::SOL_SOCKET, libc::SO_PRIORITY, &seven).unwrap();
        assert_eq!(
            get::<u32>(&s, libc::SOL_SOCKET, libc::SO_PRIORITY).unwrap(),
            seven
        );
        assert_eq!(
            errno(set(&s, LEVEL + 1, BB_SO_PRIORITY, &1u32)),
            libc::ENOPROTOOPT
        );
        assert_eq!(
            errno(set(&s, libc::SOL_SOCKET, libc::SO_PRIORITY, &1u8)),
            libc::EINVAL
        );
        // Longer than the page that the program is shown: the kernel gets all of it.
        let mut long = [0u8; 5000];
        long[..3].copy_from_slice(b"bb0");
        set(&s, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &long).unwrap();
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
fn unprivileged_socket_sets_a_lifetime_and_reads_its_counters() {
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
            said_ns: 0,
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

/// Sessions of this kind in `bb_sessions` that are somebody's.
fn sessions_of(lab: &bestby_tests::bpf::Lab, kind: bb_session_kind) -> Vec<bb_session> {
    (0..BB_MAX_SESSIONS)
        .map(|index| lab.session(index as u16))
        .filter(|s| s.way.tag != 0 && u32::from(s.key.kind) == kind)
        .collect()
}

/// Those of one destination.
fn sessions(lab: &bestby_tests::bpf::Lab) -> Vec<bb_session> {
    sessions_of(lab, BB_SESSION_DST)
}

/// 20 packets of each with a lifetime of 100 ms, over several times of BB_REFRESH_NS.
fn take_turns(theirs: &std::net::UdpSocket, ours: &std::net::UdpSocket) {
    for s in [theirs, ours] {
        set(s, LEVEL, BB_SO_LIFETIME, &(100 * MS)).unwrap();
    }
    for _ in 0..20 {
        send(theirs, 1);
        send(ours, 1);
        std::thread::sleep(Duration::from_millis(3));
    }
}

#[test]
fn peer_set_by_a_user_applies_to_its_own_sockets_only() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        // A socket is its maker's, whoever sends through it.
        let theirs = as_nobody(|| {
            let s = udp();
            set(&s, LEVEL, BB_SO_PEER, &peer(SECOND, 77_000)).unwrap();
            s
        });
        let ours = udp();
        take_turns(&theirs, &ours);
        assert_eq!(stats(&theirs).dropped[BB_DROP_STALE as usize], 20);
        assert_eq!(stats(&ours).packets_sent, 20);
        let mut all: Vec<_> = sessions(&lab)
            .iter()
            .map(|s| (s.key.user, s.owd_ns, s.rate))
            .collect();
        all.sort_unstable();
        assert_eq!(all, [(1, 0, 0), (NOBODY + 1, SECOND, 77_000)]);

        // Taken back, their own packets leave again.
        as_nobody(|| set(&udp(), LEVEL, BB_SO_PEER, &peer(0, 0)).unwrap());
        std::thread::sleep(Duration::from_millis(11));
        send(&theirs, 1);
        assert_eq!(stats(&theirs).packets_sent, 1);
        // With a rule both are media: one session, until a socket says something again.
        lab.rules(&[Rule::new().dport(5004).priority(1)]);
        send(&theirs, 2);
        send(&ours, 3);
        let media = |user: u32| -> Vec<u64> {
            let all = sessions(&lab);
            let all = all.iter().filter(|s| s.key.media == 1 && s.user == 0);
            let of_user = all.filter(|s| s.key.user == user);
            of_user.map(|s| s.counters.packets_sent).collect()
        };
        assert_eq!((media(0), media(NOBODY + 1)), (vec![5], vec![]));
        as_nobody(|| set(&udp(), LEVEL, BB_SO_PEER, &peer(0, 77_000)).unwrap());
        std::thread::sleep(Duration::from_millis(11));
        send(&theirs, 1);
        send(&ours, 1);
        assert_eq!((media(0), media(NOBODY + 1)), (vec![6], vec![1]));
    });
}

#[test]
fn peer_set_through_a_socket_of_root_applies_to_root_only() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        // A daemon that opens its socket, then gives up root.
        let daemons = udp();
        as_nobody(|| {
            set(&daemons, LEVEL, BB_SO_PEER, &peer(SECOND, 0)).unwrap();
            set(&daemons, LEVEL, BB_SO_LIFETIME, &(100 * MS)).unwrap();
        });
        send(&daemons, 3);
        let c = stats(&daemons);
        assert_eq!((c.packets_in, c.dropped[BB_DROP_STALE as usize]), (3, 3));
        // The user that it became has said nothing for its own sockets.
        as_nobody(|| {
            let own = udp();
            set(&own, LEVEL, BB_SO_LIFETIME, &(100 * MS)).unwrap();
            send(&own, 3);
            assert_eq!(stats(&own).packets_sent, 3);
        });
        drop(lab);
    });
}

#[test]
fn stats_of_a_recreated_entry_do_not_go_backwards() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        let s = udp();
        set(&s, LEVEL, BB_SO_LIFETIME, &(100 * MS)).unwrap();
        send(&s, 10);
        assert_eq!(stats(&s).packets_in, 10);
        // As when thousands of other sockets push it out.
        let map = lab.map("bb_sock_stats");
        let forget = || {
            let keys: Vec<_> = map.keys().collect();
            assert_eq!(keys.len(), 1);
            map.delete(&keys[0]).unwrap();
        };
        forget();
        assert_eq!(stats(&s).packets_in, 10);
        send(&s, 5);
        assert_eq!((stats(&s).packets_in, stats(&s).packets_sent), (15, 15));
        forget();
        send(&s, 1);
        assert_eq!((stats(&s).packets_in, stats(&s).queued), (16, 0));
        // Another socket's are its own.
        let other = udp();
        set(&other, LEVEL, BB_SO_LIFETIME, &(100 * MS)).unwrap();
        assert_eq!(stats(&other).packets_in, 0);
    });
}

#[test]
fn packet_without_a_rule_belongs_to_its_user() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        lab.rules(&[Rule::new().dport(5006).priority(1)]);
        let theirs = as_nobody(udp);
        let ours = udp();
        let first = as_nobody(|| {
            let s = udp();
            set(&s, LEVEL, BB_SO_PRIORITY, &0u32).unwrap();
            s
        });
        for to in [5004, 5005, 5006] {
            for s in [&theirs, &ours, &first] {
                s.send_to(b"x", ("10.9.0.2", to)).unwrap();
            }
        }
        let find = |kind, user: u32, media| {
            let all = sessions_of(&lab, kind);
            let mut all = all
                .into_iter()
                .filter(|s| s.key.user == user && s.key.media == media);
            let one = all.next().unwrap();
            assert!(all.next().is_none());
            one
        };
        let plain = [1, NOBODY + 1].map(|user| find(BB_SESSION_PLAIN, user, 0));
        assert_ne!(plain[0].user, plain[1].user);
        for (session, uid) in plain.iter().zip([0, NOBODY]) {
            let user: bb_user = lab.get("bb_users", &u32::from(session.user)).unwrap();
            assert_eq!((user.key.user, user.key.addr), (uid + 1, [0; 16]));
            assert_ne!(u32::from(session.user), BB_USER_NONE);
        }
        // Priority 0 by a socket option is its user's affair ...
        let said = find(BB_SESSION_DST, NOBODY + 1, 0);
        assert_eq!(said.user, plain[1].user);
        assert_eq!(said.counters.packets_sent, 2);
        // ... but where a rule covers the packet, everybody's is media.
        let media = find(BB_SESSION_DST, 0, 1);
        assert_eq!((media.user, media.counters.packets_sent), (0, 3));
    });
}

#[test]
fn pacing_rate_of_a_socket_limits_no_other_user() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        let theirs = as_nobody(|| {
            let s = udp();
            set(
                &s,
                libc::SOL_SOCKET,
                libc::SO_MAX_PACING_RATE as u32,
                &50_000u32,
            )
            .unwrap();
            s
        });
        let ours = udp();
        take_turns(&theirs, &ours);
        let mut all: Vec<_> = sessions(&lab)
            .iter()
            .map(|s| (s.key.user, s.rate, s.counters.packets_sent))
            .collect();
        all.sort_unstable();
        assert_eq!(all, [(1, 0, 20), (NOBODY + 1, 50_000, 20)]);
    });
}

#[test]
fn each_user_has_a_signalling_session_of_its_own() {
    let _one = alone();
    in_namespace(|| {
        let lab = lab();
        let theirs = as_nobody(udp);
        let ours = udp();
        for (socket, count) in [(&theirs, 50), (&ours, 3)] {
            for _ in 0..count {
                socket.send_to(&stun(100), TO).unwrap();
            }
        }
        let mut all: Vec<_> = sessions_of(&lab, BB_SESSION_CONTROL)
            .iter()
            .filter(|s| s.key.user != 0)
            .map(|s| (s.key.user, s.key.addr, s.counters.packets_sent))
            .collect();
        all.sort_unstable();
        assert_eq!((all[0].0, all[0].1), (1, [0; 16]));
        assert!(all[0].2 >= 3, "{all:?}");
        assert_eq!(all[1..], [(NOBODY + 1, [0; 16], 50)]);
    });
}

#[test]
fn flood_of_peers_evicts_no_peer_of_another_user() {
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
