//! VLAN tags as the kernel carries them: out of band beside the packet, in band within it, and both at once. Needs
//! 8021q, which not every kernel has: run in the VM (`just test-vm`).

use std::{
    io::ErrorKind,
    net::UdpSocket,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

use bestby_bpf::abi::*;
use bestby_tests::{
    agent::Agent,
    bpf::{Lab, Rule, iface},
    clock::{MS, SECOND},
    load::PEER,
    netns::{Netns, ifindex, linked_lab, shell, try_shell},
    require,
    socket::set,
};
use serde_json::json;

const PORT: u16 = 5004;
const LATE: u16 = 5005;

fn vlans() -> Result<(), String> {
    require::root()?;
    try_shell("modprobe 8021q").map(drop)
}

/// Sees the frames that leave a device, as they were handed to it.
struct Tap(OwnedFd);

impl Tap {
    fn new(device: &str) -> Self {
        // SAFETY: plain system calls; the address is a zeroed sockaddr_ll, filled here, and outlives the call.
        unsafe {
            let all = libc::ETH_P_ALL as u16;
            let fd = libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                i32::from(all.to_be()),
            );
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
            let fd = OwnedFd::from_raw_fd(fd);
            let mut at: libc::sockaddr_ll = std::mem::zeroed();
            at.sll_family = libc::AF_PACKET as u16;
            at.sll_protocol = all.to_be();
            at.sll_ifindex = ifindex(device) as i32;
            let size = size_of::<libc::sockaddr_ll>() as u32;
            assert_eq!(libc::bind(fd.as_raw_fd(), (&raw const at).cast(), size), 0);
            set(&fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &[5i64, 0]).unwrap();
            Self(fd)
        }
    }

    /// The types that precede the IP header of the next frame with this payload at its end.
    fn types(&self, payload: &[u8]) -> Vec<u16> {
        let mut frame = [0u8; 2000];
        loop {
            // SAFETY: the buffer is valid for its length.
            let length = unsafe {
                libc::recv(
                    self.0.as_raw_fd(),
                    frame.as_mut_ptr().cast(),
                    frame.len(),
                    0,
                )
            };
            let length = usize::try_from(length).expect("the frame was not seen");
            if !frame[..length].ends_with(payload) {
                continue;
            }
            let mut types = Vec::new();
            for at in [12, 16, 20] {
                types.push(u16::from_be_bytes([frame[at], frame[at + 1]]));
                if !matches!(types.last(), Some(0x8100 | 0x88a8)) {
                    break;
                }
            }
            return types;
        }
    }
}

/// A VLAN on `v0` and its other end on `v1`, with addresses 10.`net`.0.1 and .2.
fn vlan(peer: &Netns, name: &str, below: &str, kind: &str, net: u8) {
    shell(&format!(
        "ip link add link v0{below} name v0{name} type vlan {kind}
         ip addr add 10.{net}.0.1/24 dev v0{name}; ip link set v0{name} up"
    ));
    peer.run(&format!(
        "ip link add link v1{below} name v1{name} type vlan {kind}"
    ));
    peer.run(&format!("ip addr add 10.{net}.0.2/24 dev v1{name}"));
    peer.run(&format!("ip link set v1{name} up"));
}

/// The rule's packets carry LPD's option.
fn stamped(mut rule: Rule) -> Rule {
    rule.says.flags |= BB_RULE_STAMP as u8;
    rule
}

#[test]
fn tagged_packets_match_rules_wherever_the_tag_is() {
    if !require::can(vlans()) {
        return;
    }
    linked_lab(require::root(), |_, peer| {
        vlan(peer, ".5", "", "id 5", 15);
        vlan(peer, ".6", "", "id 6 reorder_hdr off", 16);
        vlan(peer, ".7", "", "id 7 protocol 802.1ad", 17);
        vlan(peer, ".7.8", ".7", "id 8", 18);
        // Slots of the lab: the classifier is on the device below all of them.
        let mut lab = Lab::bare();
        lab.iface(0, &iface(ifindex("v0"), BB_MODE_TC));
        lab.rules(&[
            // The delay is the destination's, whatever the rule.
            stamped(Rule::new().dport(PORT).lifetime(60 * SECOND).owd(SECOND)),
            Rule::new().dport(LATE).lifetime(MS).owd(SECOND),
        ]);
        shell("tc qdisc add dev v0 clsact");
        lab.attach("v0");
        let tap = Tap::new("v0");
        // Which way a device without reorder_hdr tags is the kernel's affair: in band up to
        // Linux 7.2, not in 7.3. The last case has a tag in band on both.
        let cases: [(&str, &str, &[&[u16]]); 5] = [
            ("untagged", "10.9.0.2", &[&[0x0800]]),
            ("tag out of band", "10.15.0.2", &[&[0x0800]]),
            (
                "reorder_hdr off",
                "10.16.0.2",
                &[&[0x8100, 0x0800], &[0x0800]],
            ),
            ("802.1ad out of band", "10.17.0.2", &[&[0x0800]]),
            (
                "802.1ad out of band, 802.1Q in band",
                "10.18.0.2",
                &[&[0x8100, 0x0800]],
            ),
        ];
        assert_eq!(PEER.to_string(), cases[0].1);
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        for (n, (what, to, types)) in (1u64..).zip(cases) {
            let receivers = [PORT, LATE].map(|port| {
                let receiver = peer.enter(|| UdpSocket::bind((to, port)).unwrap());
                receiver
                    .set_read_timeout(Some(Duration::from_secs(5)))
                    .unwrap();
                receiver
            });
            let payload = format!("{what}: of use for long");
            sender.send_to(payload.as_bytes(), (to, PORT)).unwrap();
            let mut got = [0; 100];
            let length = receivers[0].recv(&mut got).unwrap();
            assert_eq!(&got[..length], payload.as_bytes(), "{what}");
            let seen = tap.types(payload.as_bytes());
            assert!(
                types.contains(&seen.as_slice()),
                "{what}: the test shows another case: {seen:x?}"
            );
            let counters = lab.rule_stats(1);
            assert_eq!(
                (counters.packets_in, counters.packets_sent),
                (n, n),
                "{what}"
            );
            // The option lies behind all tags.
            assert_eq!(lab.global(BB_G_STAMPED), n, "{what}");
            // A second away, of use for a millisecond: refused, tagged or not.
            let refused = sender.send_to(b"late", (to, LATE));
            if let Err(error) = refused {
                assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS), "{what}");
            }
            receivers[1].set_nonblocking(true).unwrap();
            let nothing = receivers[1].recv(&mut got).unwrap_err();
            assert_eq!(nothing.kind(), ErrorKind::WouldBlock, "{what}");
            assert_eq!(
                lab.rule_stats(2).dropped[BB_DROP_STALE as usize],
                n,
                "{what}"
            );
        }
        assert_eq!(lab.global(BB_G_MALFORMED), 0);
    });
}

#[test]
fn priorities_of_tags_that_mode_tc_takes_are_warned_of() {
    linked_lab(vlans(), |lab, _| {
        shell(
            "ip link add link v0 name v0.5 type vlan id 5 egress-qos-map 6:6
             ip link add link v0 name v0.6 type vlan id 6
             ip link set v0.5 up
             ip link set v0.6 up",
        );
        let agent = Agent::start(lab, &[]);
        let complaints = || agent.complaints("vlan priority");
        agent.attach(json!({"dev": "v0.6", "mode": "tc", "rate": "10mbit"}));
        assert_eq!(complaints(), [""; 0]);
        agent.attach(json!({"dev": "v0.5", "mode": "tc", "rate": "10mbit"}));
        let told = complaints();
        assert!(told.len() == 1 && told[0].contains("v0.5"), "{told:?}");
        agent.detach("v0.5");
        agent.attach(json!({"dev": "v0.5", "mode": "tc"}));
        assert_eq!(complaints(), [""; 0]);
    });
}
