//! LPD's option in what leaves: what a capture at the other end of the link sees, and what the receiver's kernel
//! delivers. Beside each way to stamp is what is left as it is, with its counter.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use crate::stamp_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{LO, Lab, Rule, SHOT, iface},
    clock::{MS, SECOND, now_ns},
    frame::{DST4, ethernet, ip4, ip4_with, ip6, udp},
    netns::{Netns, ifindex, in_namespace, shell, tun},
    socket::set,
};

#[test]
fn stamp_of_a_datagram_is_on_the_wire_and_the_datagram_is_delivered() {
    for offloads in OFFLOADS {
        Bench::on(&[rule()], offloads, |bench| {
            let mut stamped = 0;
            for (to, header) in ADDRESSES {
                let receiver = bench.receiver(to);
                let need = if header == 20 { 8 } else { 16 };
                for length in [0, 1, 100, 1000, 1500 - need - header - 8] {
                    let payload = bytes(length);
                    sender(to).send(&payload).unwrap();
                    let seen = bench.delivered(&receiver, &[&payload]);
                    assert_eq!(seen.len(), 1);
                    let option = seen[0].option().expect("no option");
                    let kind = if header == 20 { [TYPE4, 8] } else { [TYPE6, 6] };
                    assert_eq!(
                        (&option[..2], &option[2..4]),
                        (&kind[..], &[0, DISCARD][..])
                    );
                    assert!((9_000..=10_000).contains(&seen[0].lifetime_ms()));
                    assert_eq!(seen[0].payload(), payload);
                    if offloads == Offload::None {
                        assert!(seen[0].checksum_is_right());
                    }
                    stamped += 1;
                }
            }
            bench.counted(BB_G_STAMPED, stamped);
            let bytes = bench.lab.rule_stats(1).bytes_sent;
            let captured =
                2 * (1 + 100 + 1000) + (1464 + 1436) + 5 * (14 + 28 + 8) + 5 * (14 + 48 + 16);
            assert_eq!(bytes, captured);
        });
    }
}

#[test]
fn stamp_of_a_datagram_without_room_is_left_out() {
    Bench::on(&[rule()], Offload::All, |bench| {
        for (n, (to, header)) in (1..).zip(ADDRESSES) {
            let receiver = bench.receiver(to);
            let payload = bytes(1500 - header - 8);
            sender(to).send(&payload).unwrap();
            let seen = bench.delivered(&receiver, &[&payload]);
            assert_eq!(seen[0].option(), None);
            bench.counted(BB_G_STAMP_MTU, n);
        }
    });
}

#[test]
fn stamp_minds_the_mtu_of_a_route() {
    Bench::on(&[rule()], Offload::All, |bench| {
        shell(
            "ip route replace 10.9.0.2/32 dev v0 mtu 1400
             ip -6 route replace fd09::2/128 dev v0 mtu 1400",
        );
        for (n, (to, header)) in (1..).zip(ADDRESSES) {
            let receiver = bench.receiver(to);
            let payload = bytes(1400 - header - 8 - 4);
            sender(to).send(&payload).unwrap();
            let seen = bench.delivered(&receiver, &[&payload]);
            assert_eq!(seen[0].option(), None);
            assert_eq!(bench.lab.global(BB_G_STAMP_PATH_MTU), n);
            let payload = bytes(1400 - header - 8 - 16);
            sender(to).send(&payload).unwrap();
            let seen = bench.delivered(&receiver, &[&payload]);
            assert!(seen[0].option().is_some());
            assert_eq!(bench.lab.global(BB_G_STAMPED), n);
        }
    });
}

/// "Fragmentation needed", from the far end, about a datagram of this socket.
fn too_big(peer: &Netns, sender: &UdpSocket, mtu: u16) {
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    let mut inner = ip4_with(17, &udp(PORT, &[]), 0x4000, &[], [10, 9, 0, 2]);
    inner[12..16].copy_from_slice(&[10, 9, 0, 1]);
    inner[20..22].copy_from_slice(&sender.local_addr().unwrap().port().to_be_bytes());
    icmp.extend(inner);
    let sum = !sum16(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    peer.enter(|| {
        // SAFETY: plain system calls; buffer and address are valid for their sizes.
        unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP);
            assert!(fd >= 0);
            let fd = OwnedFd::from_raw_fd(fd);
            let mut to: libc::sockaddr_in = std::mem::zeroed();
            to.sin_family = libc::AF_INET as u16;
            to.sin_addr.s_addr = u32::from_ne_bytes([10, 9, 0, 1]);
            let size = size_of::<libc::sockaddr_in>() as u32;
            let sent = libc::sendto(
                fd.as_raw_fd(),
                icmp.as_ptr().cast(),
                icmp.len(),
                0,
                (&raw const to).cast(),
                size,
            );
            assert_eq!(sent, icmp.len() as isize);
        }
    });
}

#[test]
fn stamp_minds_a_path_mtu_that_was_learnt() {
    Bench::on(&[rule()], Offload::All, |bench| {
        let receiver = bench.receiver("10.9.0.2");
        let sender = sender("10.9.0.2");
        let payload = bytes(1400 - 28 - 4);
        sender.send(&payload).unwrap();
        assert!(
            bench.delivered(&receiver, &[&payload])[0]
                .option()
                .is_some()
        );
        too_big(bench.peer, &sender, 1400);
        bestby_tests::agent::wait_for("an exception", || {
            shell("ip route get 10.9.0.2").contains("mtu 1400")
        });
        // A message that was queued at the socket is read first.
        let _ = sender.send(&payload);
        let _ = sender.send(&payload);
        bestby_tests::agent::wait_for("a datagram", || bench.lab.global(BB_G_STAMP_PATH_MTU) > 0);
        assert_eq!(bench.lab.global(BB_G_STAMPED), 1);
    });
}

fn super_packet(to: &str, size: usize, count: usize) -> Vec<u8> {
    let socket = sender(to);
    set(&socket, libc::IPPROTO_UDP, UDP_SEGMENT, &(size as i32)).unwrap();
    let payload = bytes(size * count);
    socket.send(&payload).unwrap();
    payload
}

#[test]
fn stamp_of_a_udp_super_packet_is_in_each_segment() {
    for offloads in [Offload::All, Offload::Checksum] {
        Bench::on(&[rule()], offloads, |bench| {
            for (n, (to, _)) in (1..).zip(ADDRESSES) {
                let receiver = bench.receiver(to);
                let payload = super_packet(to, 1000, 5);
                let parts: Vec<&[u8]> = payload.chunks(1000).collect();
                let seen = bench.delivered(&receiver, &parts);
                assert!(!seen.is_empty());
                assert!(seen.iter().all(|packet| packet.option().is_some()));
                bench.counted(BB_G_STAMPED, n);
            }
        });
    }
}

#[test]
fn stamp_of_a_udp_super_packet_that_is_full_or_has_its_checksums_is_left_out() {
    for (offloads, reason, size) in [
        (Offload::All, BB_G_STAMP_GSO, [1472, 1452]),
        (Offload::Checksum, BB_G_STAMP_GSO, [1472, 1452]),
        (Offload::None, BB_G_STAMP_CHECKSUM, [1000, 1000]),
    ] {
        Bench::on(&[rule()], offloads, |bench| {
            for (n, ((to, _), size)) in (1..).zip(ADDRESSES.into_iter().zip(size)) {
                let receiver = bench.receiver(to);
                let payload = super_packet(to, size, 5);
                let parts: Vec<&[u8]> = payload.chunks(size).collect();
                let seen = bench.delivered(&receiver, &parts);
                assert!(seen.iter().all(|packet| packet.option().is_none()));
                bench.counted(reason, n);
            }
        });
    }
}

#[test]
fn stamp_of_tcp_is_in_its_data_and_the_stream_is_the_same() {
    for offloads in OFFLOADS {
        Bench::on(&[rule()], offloads, |bench| {
            for (to, _) in ADDRESSES {
                let before = bench.lab.global(BB_G_STAMPED);
                let seen = transfer(bench, to, 400_000, |_| {});
                let (data, others): (Vec<_>, Vec<_>) =
                    seen.iter().partition(|packet| !packet.payload().is_empty());
                let stamped = data.iter().filter(|packet| packet.option().is_some());
                assert!(stamped.clone().count() > 0 || offloads == Offload::None);
                for packet in stamped {
                    let option = packet.option().unwrap();
                    assert_eq!(option[2..4], [3, DISCARD]);
                }
                assert!(others.iter().all(|packet| packet.option().is_none()));
                assert_eq!(
                    seen.iter().any(|p| p.option().is_some()),
                    bench.lab.global(BB_G_STAMPED) > before
                );
            }
        });
    }
}

#[test]
fn stamp_of_tcp_says_the_retransmission_timeout() {
    let by_rto = flags(stamps(Rule::new().dport(PORT).priority(3)), BB_RULE_RTO);
    let shorter = flags(rule(), BB_RULE_RTO);
    let mut longer = by_rto;
    longer.says.lifetime_ns = 50 * MS;
    // The first data, of which nothing is acknowledged: 3 s at least.
    for (rule, least, most) in [(by_rto, 3000, 3400), (shorter, 3000, 3400), (longer, 1, 50)] {
        Bench::on(&[rule], Offload::All, |bench| {
            for (to, _) in ADDRESSES {
                let seen = transfer(bench, to, 1000, |_| {});
                let data: Vec<_> = seen.iter().filter(|p| !p.payload().is_empty()).collect();
                assert!(!data.is_empty());
                for packet in data {
                    assert_eq!(packet.option().unwrap()[3], DISCARD);
                    let ms = packet.lifetime_ms();
                    assert!((least..=most).contains(&ms), "{ms}");
                }
            }
        });
    }
    // UDP has none.
    Bench::on(&[by_rto], Offload::All, |bench| {
        let receiver = bench.receiver("10.9.0.2");
        sender("10.9.0.2").send(b"x").unwrap();
        assert_eq!(bench.delivered(&receiver, &[b"x"])[0].option(), None);
    });
}

#[test]
fn stamp_of_a_tail_loss_probe_is_left_out_and_that_of_a_retransmission_waits_for_the_next() {
    let by_rto = flags(stamps(Rule::new().dport(PORT)), BB_RULE_RTO);
    Bench::on(&[by_rto], Offload::All, |bench| {
        for (to, _) in ADDRESSES {
            let listener = bench.peer.enter(|| TcpListener::bind((to, PORT)).unwrap());
            let mut near = TcpStream::connect((to, PORT)).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            near.write_all(b"x").unwrap();
            far.read_exact(&mut [0]).unwrap();
            far.write_all(b"y").unwrap();
            near.read_exact(&mut [0]).unwrap();
            bench.tap.seen();
            // From now on nothing is acknowledged. The first after a pause is no probe.
            bench.peer.run("tc qdisc add dev v1 root blackhole");
            std::thread::sleep(std::time::Duration::from_millis(300));
            near.write_all(b"x").unwrap();
            let mut seen = Vec::new();
            while seen.len() < 4 {
                std::thread::sleep(std::time::Duration::from_millis(10));
                seen.extend(bench.tap.seen());
                seen.retain(|packet: &Seen| !packet.payload().is_empty());
            }
            bench.peer.run("tc qdisc del dev v1 root");
            assert_eq!(seen[1].option(), None);
            let [first, again, once_more] = [0, 2, 3].map(|n| seen[n].lifetime_ms());
            // The first may wait for the probe and the timeout, the others for a doubled timeout.
            assert!(first >= 200 && again >= 400 && once_more >= 2 * again - 1);
        }
    });
}

#[test]
fn stamp_of_fragments_is_left_out() {
    Bench::on(&[rule()], Offload::All, |bench| {
        let mut fragments = 0;
        for (to, _) in ADDRESSES {
            let receiver = bench.receiver(to);
            let payload = bytes(4000);
            sender(to).send(&payload).unwrap();
            bench.delivered(&receiver, &[&payload]);
            fragments += 3;
            bench.counted(BB_G_STAMP_FRAGMENT, fragments);
        }
    });
}

#[test]
fn stamp_of_a_long_lifetime_is_a_deadline_if_there_is_a_clock() {
    let long = stamps(Rule::new().dport(PORT).lifetime(100 * SECOND));
    Bench::on(&[long], Offload::All, |bench| {
        for (n, (to, header)) in (1..).zip(ADDRESSES) {
            let receiver = bench.receiver(to);
            bench.lab.configure(|config| config.clock_until_ns = 0);
            sender(to).send(b"x").unwrap();
            assert_eq!(bench.delivered(&receiver, &[b"x"])[0].option(), None);
            assert_eq!(bench.lab.global(BB_G_STAMP_CLOCK), n);
            bench
                .lab
                .configure(|config| config.clock_until_ns = now_ns() + 100 * SECOND);
            sender(to).send(b"x").unwrap();
            let seen = bench.delivered(&receiver, &[b"x"]);
            let kind = if header == 20 { TYPE4 } else { TYPE6_DEADLINE };
            assert_eq!(seen[0].option().unwrap()[0], kind);
            // CLOCK_TAI is UTC here: the offset that the test told is 0, as is the kernel's at boot.
            let tai = tai_ms();
            let left = i64::from(seen[0].lifetime_ms()) - 65_535 - tai % 86_400_000;
            let left = left.rem_euclid(86_400_000);
            assert!((95_000..=100_000).contains(&left), "{left}");
        }
    });
}

/// CLOCK_TAI, ms.
fn tai_ms() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the argument is valid.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_TAI, &raw mut time) };
    assert_eq!(status, 0);
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

#[test]
fn stamp_of_what_has_options_or_is_protected_is_left_out() {
    let lab = Lab::new();
    let ah = |payload: &[u8]| [&[17, 4, 0, 0], [0; 20].as_slice(), payload].concat();
    let datagram = udp(PORT, &[0; 20]);
    lab.rules(&[stamps(Rule::new().lifetime(SECOND))]);
    let hop_by_hop = [&[17, 0, 5, 2, 0, 0, 1, 0], datagram.as_slice()].concat();
    // The limit that a tunnel sets to tunnels within it, in front of this protocol.
    let limit = |next: u8, payload: &[u8]| {
        let header = [next, 0, 4, 1, 4, 1, 1, 0];
        ethernet(0x86dd, &ip6(60, &[&header, payload].concat()))
    };
    let inner = ip4(17, &datagram);
    let protected = [&[4, 4, 0, 0], [0; 20].as_slice(), &inner].concat();
    for (what, frame, which) in [
        ("plain", ethernet(0x0800, &ip4(17, &datagram)), BB_G_STAMPED),
        (
            "plain 6",
            ethernet(0x86dd, &ip6(17, &datagram)),
            BB_G_STAMPED,
        ),
        (
            "AH",
            ethernet(0x0800, &ip4(51, &ah(&datagram))),
            BB_G_STAMP_AH,
        ),
        (
            "AH 6",
            ethernet(0x86dd, &ip6(51, &ah(&datagram))),
            BB_G_STAMP_AH,
        ),
        ("tunnel's limit", limit(4, &inner), BB_G_STAMPED),
        (
            "AH behind a tunnel's limit",
            limit(51, &protected),
            BB_G_STAMP_OPTIONS,
        ),
        (
            "destination options",
            limit(17, &datagram),
            BB_G_STAMP_OPTIONS,
        ),
        (
            "router alert",
            ethernet(0x0800, &ip4_with(17, &datagram, 0, &[0x94, 4, 0, 0], DST4)),
            BB_G_STAMP_OPTIONS,
        ),
        (
            "router alert 6",
            ethernet(0x86dd, &ip6(0, &hop_by_hop)),
            BB_G_STAMP_OPTIONS,
        ),
        (
            "atomic fragment",
            ethernet(
                0x86dd,
                &ip6(
                    44,
                    &[&[17, 0, 0, 0, 0, 0, 0, 1], datagram.as_slice()].concat(),
                ),
            ),
            BB_G_STAMP_OPTIONS,
        ),
        (
            "another's option",
            ethernet(
                0x0800,
                &ip4_with(17, &datagram, 0, &[0x9e, 8, 0, 0, 0, 0, 0, 9], DST4),
            ),
            BB_G_STAMP_OPTIONS,
        ),
    ] {
        let before = lab.global(which);
        let _ = lab.run(&frame);
        assert_eq!(lab.global(which), before + 1, "{what}");
    }
}

#[test]
fn stamp_of_a_packet_that_is_refused_or_observed_is_left_out() {
    let lab = Lab::bare();
    let mut slot = iface(LO, BB_MODE_TC);
    lab.iface(0, &slot);
    let late = Rule::new().dport(PORT).lifetime(MS).owd(SECOND);
    lab.rules(&[stamps(late)]);
    let frame = ethernet(0x0800, &ip4(17, &udp(PORT, &[0; 20])));
    assert_eq!(lab.run(&frame).verdict, SHOT);
    assert_eq!(lab.global(BB_G_STAMPED), 0);
    // One that is in time.
    let rule = Rule::new().dport(PORT).lifetime(SECOND);
    lab.rules(&[stamps(rule)]);
    let _ = lab.run(&frame);
    assert_eq!(lab.global(BB_G_STAMPED), 1);
    // Who only observes changes no packet.
    slot.flags = BB_IFACE_OBSERVE as u8;
    lab.iface(0, &slot);
    let _ = lab.run(&frame);
    assert_eq!(lab.global(BB_G_STAMPED), 1);
    // A rule without it.
    slot.flags = 0;
    lab.iface(0, &slot);
    lab.rules(&[rule]);
    let _ = lab.run(&frame);
    assert_eq!(lab.global(BB_G_STAMPED), 1);
}

#[test]
fn stamp_of_a_device_without_ethernet_is_behind_the_ip_header() {
    in_namespace(|| {
        let mut device = tun("bbt0");
        shell(
            "ip addr add 8.0.0.1/24 dev bbt0; ip link set bbt0 up; tc qdisc add dev bbt0 clsact
             ip -6 addr add fd09::1/64 dev bbt0 nodad",
        );
        let mut lab = Lab::bare();
        lab.iface(0, &iface(ifindex("bbt0"), BB_MODE_TC));
        lab.rules(&[rule()]);
        lab.attach("bbt0");
        for (from, to) in [
            ("8.0.0.1:0", "8.0.0.2:5004"),
            ("[fd09::1]:0", "[fd09::2]:5004"),
        ] {
            let socket = UdpSocket::bind(from).unwrap();
            socket.send_to(b"without a frame", to).unwrap();
            let mut packet = [0; 2000];
            let seen = loop {
                let size = device.read(&mut packet).unwrap();
                let seen = Seen {
                    ip: packet[..size].to_vec(),
                };
                if seen.is_ours() {
                    break seen;
                }
            };
            assert!(seen.option().is_some(), "{to}");
            assert_eq!(seen.payload(), b"without a frame");
        }
        assert_eq!(lab.global(BB_G_STAMPED), 2);
    });
}
