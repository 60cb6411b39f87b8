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
            set(&fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1u32).unwrap();
            Self(fd)
        }
    }

    /// The next frame with this payload at its end, and the tag beside it.
    fn frame(&self, payload: &[u8]) -> (Vec<u8>, Option<u16>) {
        let mut frame = [0u8; 2000];
        let mut control = [0u64; 16];
        loop {
            // SAFETY: the buffers are valid for their lengths and outlive the call; the message that is read is whole.
            let (length, tag) = unsafe {
                let mut part = libc::iovec {
                    iov_base: frame.as_mut_ptr().cast(),
                    iov_len: frame.len(),
                };
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = &raw mut part;
                message.msg_iovlen = 1;
                message.msg_control = control.as_mut_ptr().cast();
                message.msg_controllen = size_of_val(&control);
                let length = libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0);
                let said = libc::CMSG_FIRSTHDR(&raw const message);
                let aux = (!said.is_null()).then(|| {
                    libc::CMSG_DATA(said)
                        .cast::<libc::tpacket_auxdata>()
                        .read_unaligned()
                });
                let tagged = aux.filter(|aux| aux.tp_status & libc::TP_STATUS_VLAN_VALID != 0);
                (length, tagged.map(|aux| aux.tp_vlan_tci))
            };
            let length = usize::try_from(length).expect("the frame was not seen");
            if frame[..length].ends_with(payload) {
                return (frame[..length].to_vec(), tag);
            }
        }
    }

    /// The types that precede the IP header of the next frame with this payload at its end.
    fn types(&self, payload: &[u8]) -> Vec<u16> {
        let (frame, _) = self.frame(payload);
        let mut types = Vec::new();
        for at in [12, 16, 20] {
            types.push(u16::from_be_bytes([frame[at], frame[at + 1]]));
            if !matches!(types.last(), Some(0x8100 | 0x88a8)) {
                break;
            }
        }
        types
    }

    /// The tag of the next frame with this payload at its end, wherever it is: priority and VLAN.
    fn tag(&self, payload: &[u8]) -> u16 {
        let (frame, tag) = self.frame(payload);
        tag.unwrap_or_else(|| u16::from_be_bytes([frame[14], frame[15]]))
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

/// How many packets each leaf of an interface's tree has sent: control, media by lifetime, plain.
fn leaves(agent: &Agent, dev: &str) -> Vec<u64> {
    let leaves = &agent.stats()["leaves"][dev];
    let sent = leaves.as_array().unwrap().iter();
    sent.map(|leaf| leaf["packets_sent"].as_u64().unwrap())
        .collect()
}

/// By its leaf: the place of the packet in the tree. By `SO_PRIORITY`: the tag.
#[test]
fn mode_tc_keeps_the_priority_of_an_application() {
    linked_lab(vlans(), |lab, peer| {
        vlan(peer, ".5", "", "id 5 egress-qos-map 6:6 5:3", 15);
        let agent = Agent::start(lab, &[]);
        agent.add(json!({"name": "media", "dport": PORT, "lifetime": "60s", "priority": 4}));
        let tap = Tap::new("v0");
        let send = |so_priority: u32, port: u16, payload: &str| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            set(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &so_priority).unwrap();
            socket
                .send_to(payload.as_bytes(), ("10.15.0.2", port))
                .unwrap();
            tap.tag(payload.as_bytes()) >> 13
        };
        let settings = json!({"dev": "v0.5", "mode": "tc", "rate": "10mbit"});
        // Above the tag, and below it, where the tag is made first.
        for dev in ["v0.5", "v0"] {
            let mut settings = settings.clone();
            settings["dev"] = dev.into();
            agent.attach(settings);
            let before = leaves(&agent, dev);
            let tags = [(6, PORT), (5, PORT), (0, PORT), (6, LATE)]
                .map(|(priority, port)| send(priority, port, &format!("{dev} {priority} {port}")));
            assert_eq!(tags, [6, 3, 0, 6], "{dev}");
            let after = leaves(&agent, dev);
            let sent: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
            // ARP and the like of this kernel are in the first leaf.
            assert_eq!(sent[1..], [0, 0, 0, 0, 0, 0, 3, 1], "{dev}: {sent:?}");

            // A class as SO_PRIORITY takes no leaf of another: it would be control.
            let control = 0xbb << 16 | BB_TC_LEAF_MINOR;
            let _ = send(control, LATE, &format!("{dev} sneaks"));
            let sneaked = leaves(&agent, dev);
            assert_eq!(sneaked[8], after[8] + 1, "{dev}: {sneaked:?}");
            assert_eq!(agent.complaints("vlan priority"), [""; 0]);
            assert_eq!(agent.complaints("interface"), [""; 0]);
            agent.detach(dev);
        }

        // Its filter goes with the tree, and who takes it away is seen.
        agent.attach(settings.clone());
        shell("tc filter del dev v0.5 parent bb:");
        let told = agent.complaints("interface");
        assert!(told.len() == 1 && told[0].contains("filter"), "{told:?}");
        assert_eq!(send(6, PORT, "all in one leaf"), 6);
        agent.terminate();
        let agent = Agent::start(lab, &[]);
        assert_eq!(agent.complaints("interface"), [""; 0]);
        agent.detach("v0.5");
        assert_eq!(shell("tc filter show dev v0.5"), "");
    });
}
