//! The classifier on real devices: one without Ethernet headers, and frames that
//! `BPF_PROG_TEST_RUN` does not take because they are too short.

use std::{
    io::{self, Read as _, Write as _},
    net::UdpSocket,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use bestby_bpf::abi::*;
use bestby_tests::{
    agent::wait_for,
    bpf::{Lab, Rule, iface, mapped},
    clock::{SECOND, now_ns},
    frame::{DST4, ethernet, ip4, ip4_with, ip6, stun, udp, udp4, udp6, with_checksum},
    netns::{ifindex, in_namespace, shell, tun, veth},
    socket::set,
};

const PORT: u16 = 5004;

fn lab(device: &str) -> Lab {
    let mut lab = Lab::bare();
    lab.iface(0, &iface(ifindex(device), BB_MODE_TC));
    lab.rules(&[Rule::new().dport(PORT).lifetime(SECOND)]);
    lab.attach(device);
    lab
}

#[test]
fn packet_of_a_device_without_ethernet_matches_its_rule() {
    in_namespace(|| {
        let mut device = tun("bbt0");
        // 8.0.0.1: where an Ethernet header has its type, this source address reads 0x0800.
        shell(
            "ip addr add 8.0.0.1/24 dev bbt0; ip link set bbt0 up
             ip -6 addr add fd09::1/64 dev bbt0 nodad",
        );
        let lab = lab("bbt0");
        for (from, to) in [
            ("8.0.0.1:0", "8.0.0.2:5004"),
            ("[fd09::1]:0", "[fd09::2]:5004"),
        ] {
            let before = lab.rule_stats(1).packets_sent;
            let socket = UdpSocket::bind(from).unwrap();
            socket.send_to(b"without a frame", to).unwrap();
            assert_eq!(lab.rule_stats(1).packets_sent, before + 1, "{to}");
        }
        assert_eq!(lab.global(BB_G_MALFORMED), 0);
        // It went out as it was.
        let mut packet = [0; 2000];
        let size = loop {
            let size = device.read(&mut packet).unwrap();
            if packet[0] >> 4 == 4 {
                break size;
            }
        };
        assert_eq!(&packet[28..size], b"without a frame");
    });
}

/// Sends a frame as it is through `bb0`.
fn send_raw(frame: &[u8]) -> io::Result<()> {
    send_marked("bb0", frame, 0)
}

fn send_marked(device: &str, frame: &[u8], mark: u32) -> io::Result<()> {
    // SAFETY: plain system calls; the address is a zeroed sockaddr_ll, filled here, and
    // outlives the call that reads it; the frame is valid for its length.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        let fd = OwnedFd::from_raw_fd(fd);
        set(&fd, libc::SOL_SOCKET, libc::SO_MARK as u32, &mark)?;
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_protocol = u16::from_be_bytes([frame[12], frame[13]]).to_be();
        to.sll_ifindex = ifindex(device) as i32;
        let sent = libc::sendto(
            fd.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const to).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        );
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[test]
fn frames_cut_within_their_ip_header_are_sent() {
    in_namespace(|| {
        veth();
        let lab = lab("bb0");
        // What the namespace itself says (neighbour discovery) is not counted as malformed.
        let (v4, v6) = (udp4(PORT, b"x"), udp6(PORT, b"x"));
        let cases = [
            v4[..15].to_vec(),
            v4[..24].to_vec(),
            v4[..33].to_vec(),
            v6[..15].to_vec(),
            v6[..44].to_vec(),
            v6[..53].to_vec(),
            ethernet(0x0800, &ip4(17, &udp(PORT, b"x"))[..27]),
            ethernet(0x86dd, &ip6(17, &udp(PORT, b"x"))[..43]),
        ];
        for (i, frame) in cases.iter().enumerate() {
            let sent = lab.rule_stats(0).packets_sent;
            send_raw(frame).unwrap();
            assert_eq!(
                lab.global(BB_G_MALFORMED),
                i as u64 + 1,
                "{} bytes",
                frame.len()
            );
            assert!(
                lab.rule_stats(0).packets_sent > sent,
                "{} bytes",
                frame.len()
            );
        }
        // Whole ones are not.
        send_raw(&v4).unwrap();
        send_raw(&v6).unwrap();
        assert_eq!(lab.global(BB_G_MALFORMED), cases.len() as u64);
        assert_eq!(lab.rule_stats(1).packets_sent, 2);
        assert_eq!(lab.rule_stats(0).dropped, [0; BB_REASONS as usize]);
    });
}

/// Frames that are sent through bbm1 are forwarded from bbm0 to bb0, mark and all.
fn forwarder() {
    shell(
        "ip link add bbm0 address 02:00:00:00:00:b0 type veth peer name bbm1
         ip link set bbm1 up; ip addr add 192.0.2.254/24 dev bbm0; ip link set bbm0 up
         echo 1 >/proc/sys/net/ipv4/conf/bbm0/forwarding
         ip route add 198.51.100.0/24 via 10.9.0.2 dev bb0",
    );
}

/// A frame for bbm0, whose packet is forwarded.
fn routed(packet: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(0x0800, packet);
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0xb0]);
    frame
}

#[test]
fn mark_of_a_forwarded_packet_counts_only_if_configured() {
    in_namespace(|| {
        veth();
        forwarder();
        let lab = lab("bb0");
        let frame =
            |port: u16| routed(&with_checksum(ip4_with(17, &udp(port, b"x"), 0, &[], DST4)));
        // Stale since a second: who believes it, drops the packet. Another's identity may read so.
        let unit = u64::from(BB_MARK_UNIT_NS);
        let time = (now_ns() - SECOND) / unit % (1 << BB_MARK_TIME_BITS);
        let mark = u32::try_from(time).unwrap() | BB_MARK_MAGIC << BB_MARK_MAGIC_SHIFT;
        let dropped = || lab.rule_stats(0).dropped.iter().sum::<u64>();
        let not_believed = || lab.global(BB_G_FORWARDED_MARK);
        // A softirq forwards it, and its next hop may have to be asked for: not before the
        // sender goes on, but soon.
        let forward = |mark| send_marked("bbm1", &frame(9), mark).unwrap();
        forward(mark);
        wait_for("a mark that is not believed", || not_believed() == 1);
        assert_eq!(dropped(), 0);
        // Not even counted where it is no mark of ours.
        forward(5);
        wait_for("a foreign mark", || lab.global(BB_G_FOREIGN_MARK) == 1);
        assert_eq!(not_believed(), 1);
        // Whoever may send by a packet socket here may set marks here, too.
        let refused = send_marked("bb0", &frame(9), mark).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOBUFS));
        assert_eq!((dropped(), not_believed()), (1, 1));
        lab.configure(|c| c.flags |= BB_CONFIG_FORWARDED_MARKS);
        forward(mark);
        wait_for("a mark that is believed", || dropped() == 2);
        assert_eq!(not_believed(), 1);
    });
}

#[test]
fn cni_identity_is_not_taken_for_a_mark() {
    in_namespace(|| {
        veth();
        forwarder();
        let lab = lab("bb0");
        let dropped = || lab.rule_stats(0).dropped.iter().sum::<u64>();
        let mut sent = 0;
        for identity in (0xb000..0xc000_u32).step_by(0x111) {
            for proto in [6, 17] {
                let packet = with_checksum(ip4_with(proto, &udp(9, &[0; 20]), 0, &[], DST4));
                send_marked("bbm1", &routed(&packet), identity << 16 | 0x0f00).unwrap();
                sent += 1;
            }
        }
        let not_believed = || lab.global(BB_G_FORWARDED_MARK);
        wait_for("marks that are not believed", || not_believed() == sent);
        assert_eq!(dropped(), 0);
        assert!(lab.rule_stats(0).packets_sent >= sent);
        // Plain traffic: a mark of ours makes media of it.
        assert!(
            (0..BB_MAX_SESSIONS)
                .map(|index| lab.session(index as u16))
                .all(|s| s.way.tag == 0
                    || s.key.media == 0
                    || s.key.kind == BB_SESSION_CONTROL as u8)
        );
        // Who believes them loses packets by them.
        lab.configure(|c| c.flags |= BB_CONFIG_FORWARDED_MARKS);
        for identity in (0xb000..0xc000_u32).step_by(0x111) {
            let packet = with_checksum(ip4_with(17, &udp(9, &[0; 20]), 0, &[], DST4));
            send_marked("bbm1", &routed(&packet), identity << 16 | 0x0f00).unwrap();
        }
        wait_for("a drop by another's identity", || dropped() > 0);
        assert_eq!(not_believed(), sent);
    });
}

#[test]
fn forwarded_signalling_has_a_session_per_destination() {
    in_namespace(|| {
        veth();
        let mut device = tun("bbt0");
        shell(
            "ip addr add 192.0.2.254/24 dev bbt0; ip link set bbt0 up
             echo 1 >/proc/sys/net/ipv4/conf/bbt0/forwarding
             ip route add 198.51.100.0/24 via 10.9.0.2 dev bb0",
        );
        let lab = lab("bb0");
        lab.rules(&[]); // what a rule covers is media
        let other = [198, 51, 100, 8];
        for (to, count) in [(DST4, 40), (other, 2)] {
            let packet = with_checksum(ip4_with(17, &udp(PORT, &stun(100)), 0, &[], to));
            for _ in 0..count {
                device.write_all(&packet).unwrap();
            }
        }
        // This host's own to the same place are its user's.
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        socket.send_to(&stun(100), ("198.51.100.7", PORT)).unwrap();
        let sent = |addr: [u8; 16], user: u32| {
            (0..BB_MAX_SESSIONS)
                .map(|index| lab.session(index as u16))
                .filter(|s| s.way.tag != 0 && u32::from(s.key.kind) == BB_SESSION_CONTROL)
                .filter(|s| s.key.addr == addr && s.key.user == user)
                .map(|s| s.counters.packets_sent)
                .sum::<u64>()
        };
        wait_for("signalling of both", || {
            (sent(mapped(DST4), 0), sent(mapped(other), 0)) == (40, 2)
        });
        assert!(sent([0; 16], 1) >= 1);
    });
}
