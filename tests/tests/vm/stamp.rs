//! LPD's option, where it takes a kernel that not every host has: run in the VM (`just test-vm`).

use std::net::UdpSocket;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::time::Duration;

use bestby_bpf::abi::*;
use bestby_tests::{
    agent::{Agent, wait_for},
    bpf::{Lab, Rule, iface},
    clock::{MS, SECOND, now_ns},
    netns::{Netns, ifindex, linked_lab, shell, try_shell},
    require,
    socket::set,
};
use serde_json::json;

const PORT: u16 = 5004;

fn pktgen() -> Result<(), String> {
    require::root()?;
    try_shell("modprobe pktgen").map(drop)
}

/// The kernel panics where a packet grows that somebody else holds, too.
#[test]
fn stamp_of_a_packet_that_pktgen_holds_is_left_out() {
    if !require::can(pktgen()) {
        return;
    }
    linked_lab(require::root(), |_, peer| {
        let mut lab = Lab::bare();
        lab.iface(0, &iface(ifindex("v0"), BB_MODE_TC));
        let mut rule = Rule::new().dport(PORT).lifetime(SECOND);
        rule.says.flags |= BB_RULE_STAMP as u8;
        lab.rules(&[rule]);
        shell("tc qdisc add dev v0 clsact");
        lab.attach("v0");
        let far = peer.run("ip -o link show v1");
        let far = far.split("ether ").nth(1).unwrap()[..17].to_owned();
        shell(&format!(
            "g=/proc/net/pktgen
             echo rem_device_all >$g/kpktgend_0; echo add_device v0 >$g/kpktgend_0
             for line in 'count 10' 'pkt_size 200' 'xmit_mode queue_xmit' 'dst 10.9.0.2' \\
                 'src_min 10.9.0.1' 'src_max 10.9.0.1' 'udp_dst_min {PORT}' 'udp_dst_max {PORT}' \\
                 'dst_mac {far}'; do
                 echo \"$line\" >$g/v0
             done
             echo start >$g/pgctrl; echo rem_device_all >$g/kpktgend_0"
        ));
        wait_for("pktgen's packets", || lab.global(BB_G_STAMP_SHARED) == 10);
        assert_eq!(lab.global(BB_G_STAMPED), 0);
        // One of a socket is held by nobody else.
        let sender = UdpSocket::bind("10.9.0.1:0").unwrap();
        sender.send_to(&[0; 100], ("10.9.0.2", PORT)).unwrap();
        assert_eq!(lab.global(BB_G_STAMPED), 1);
    });
}

/// At 40 kbit/s a packet of 1,000 bytes takes 200 ms. The first leaves at once, the others wait in the queue.
#[test]
fn lifetime_of_a_forwarded_packet_is_less_by_what_waits_in_its_session() {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let source = Netns::new();
        source.link("s0", "10.7.0.1/24", &lab.netns, "r0", "10.7.0.2/24");
        source.run("ip route add default via 10.7.0.2");
        peer.run("ip route add default via 10.9.0.1");
        shell("echo 1 >/proc/sys/net/ipv4/ip_forward");
        let receiver = peer.enter(|| {
            // SAFETY: a plain system call.
            let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_UDP) };
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
            // SAFETY: the descriptor is new, and nobody else's.
            UdpSocket::from(unsafe { OwnedFd::from_raw_fd(fd) })
        });
        // Nobody says that the port is closed.
        let _open = peer.enter(|| UdpSocket::bind(("10.9.0.2", PORT)).unwrap());
        receiver
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let sender = source.enter(|| UdpSocket::bind("10.7.0.1:0").unwrap());
        let option = [0x9e_u8, 8, 0, 0x10, 0, 0, 0xc3, 0x50]; // discard, 50 s
        set(&sender, libc::IPPROTO_IP, libc::IP_OPTIONS, &option[..]).unwrap();
        sender.connect(("10.9.0.2", PORT)).unwrap();
        let agent = Agent::start(lab, &[]);
        for (decrement, trust) in [("off", true), ("predict", false), ("predict", true)] {
            let mut request = json!({"dev": "v0", "mode": "qdisc", "rate": "40kbit"});
            request["decrement"] = decrement.into();
            // What is not said stays.
            request["trust"] = if trust { "10.7.0.0/24" } else { "" }.into();
            agent.attach(request);
            let first = now_ns();
            for _ in 0..5 {
                sender.send(&[0; 1000 - 14 - 28 - 8]).unwrap();
            }
            let sent = ((now_ns() - first) / MS) as u32;
            for n in 0..5_u32 {
                let mut bytes = [0; 2000];
                receiver.recv(&mut bytes).unwrap();
                assert_eq!(bytes[0], 0x47);
                let value = u32::from_be_bytes(*bytes[24..].first_chunk().unwrap());
                let waits = if decrement == "predict" && trust {
                    // Those before it, without what has left meanwhile.
                    50_000 - 200 * n..=50_000 - 200 * n.saturating_sub(1) + sent + 1
                } else {
                    50_000..=50_000
                };
                assert!(waits.contains(&value), "{decrement} {n}: {value} {waits:?}");
            }
        }
        let decremented = agent.stats()["global"]["decremented"].as_u64().unwrap();
        assert!((2..=4).contains(&decremented), "{decremented}");
    });
}
