//! Treatment `truncate` in mode qdisc: each packet has its headers beside it, and one of the two leaves. In mode tc:
//! tests/tests/root/truncate.rs.
//!
//! Needs CONFIG_NET_SCH_BPF: run in the VM (`just test-vm`).

use std::{
    ffi::CStr,
    fs::{self, File},
    io::Read as _,
    net::UdpSocket,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    path::Path,
    ptr, thread,
    time::Duration,
};

use bestby_bpf::abi::*;
use bestby_netns::tun;
use bestby_tests::{
    agent::{Agent, drops, wait_for},
    clock::MS,
    frame::rtp_with,
    netns::{Lab, Netns, cgroup_root, ifindex, linked_lab, shell},
    require,
    socket::{force_buffer, set},
    truncated::{self, Raw},
};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use serde_json::{Value, json};

const PORT: u16 = 5004;
/// A packet of 1,000 bytes takes 20 ms.
const RATE: &str = "400kbit";

/// Bytes of kernel memory that what this socket sent still holds.
fn held(socket: &UdpSocket) -> i32 {
    let mut bytes = 0i32;
    // SAFETY: TIOCOUTQ (a datagram socket's SIOCOUTQ) writes one int.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(asked, 0);
    bytes
}

/// An agent that controls `v0`, and a rule for [`PORT`] that truncates.
fn site(change: Value, lifetime: &str, test: impl FnOnce(&Lab, &Netns, &Agent) + Send) {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        shell("ip addr add fd09::1/64 dev v0 nodad");
        peer.run("ip addr add fd09::2/64 dev v1 nodad");
        let agent = Agent::start(lab, &[]);
        agent.add(
            json!({"name": "media", "dport": PORT, "lifetime": lifetime, "treatment": "truncate"}),
        );
        let mut request = json!({"dev": "v0", "mode": "qdisc"});
        for (key, value) in change.as_object().unwrap() {
            request[key] = value.clone();
        }
        agent.attach(request);
        test(lab, peer, &agent);
    });
}

/// Packet `n` of a stream, a frame of its own or of `frame`; 1,000 bytes with IPv4 below.
fn media(n: u16, frame: Option<u32>) -> Vec<u8> {
    let mut packet = rtp_with(96, n, 7, frame.unwrap_or(u32::from(n) * 3000));
    packet.resize(1000 - 42, 0x33);
    packet
}

/// Numbers and lengths of so many packets of [`media`].
fn receive(socket: &UdpSocket, count: usize) -> Vec<(u16, usize)> {
    let mut buffer = [0; 2000];
    (0..count)
        .map(|_| {
            let length = socket.recv(&mut buffer).unwrap();
            (u16::from_be_bytes([buffer[2], buffer[3]]), length)
        })
        .collect()
}

/// `counter`s of the rule: in, sent, truncated, queued, dropped.
fn counted(agent: &Agent) -> [u64; 5] {
    let media = &agent.stats()["flows"]["media"];
    let of = |counter: &str| media[counter].as_u64().unwrap();
    [
        of("packets_in"),
        of("packets_sent"),
        of("truncated"),
        of("queued"),
        drops(media, "dropped"),
    ]
}

#[test]
fn packets_that_wait_too_long_arrive_as_headers_in_order() {
    site(json!({"rate": RATE}), "300ms", |_, peer, agent| {
        let mut before = [0; 5];
        for (to, offload) in [
            ("10.9.0.2", true),
            ("10.9.0.2", false),
            ("fd09::2", true),
            ("fd09::2", false),
        ] {
            truncated::checksum_offload("v0", offload);
            let receiver = truncated::receiver(peer, to, PORT);
            let sender = UdpSocket::bind(if to.contains(':') {
                "[::]:0"
            } else {
                "0.0.0.0:0"
            })
            .unwrap();
            sender.connect((to, PORT)).unwrap();
            // What waits for the peer's address is overtaken.
            sender.send(&media(0, None)).unwrap();
            receive(&receiver, 1);
            wait_for("the first one to be counted", || {
                counted(agent)[1] > before[1]
            });
            before = counted(agent);
            for n in 0..40 {
                sender.send(&media(n, None)).unwrap();
            }
            let got = receive(&receiver, 40);
            let numbers: Vec<u16> = got.iter().map(|(n, _)| *n).collect();
            assert_eq!(numbers, (0..40).collect::<Vec<_>>(), "{to} {offload}");
            let headers = got.iter().filter(|(_, length)| *length == 12).count() as u64;
            let whole = got.iter().filter(|(_, length)| *length == 958).count() as u64;
            assert!(headers > 0 && whole > 0 && headers + whole == 40, "{got:?}");
            let now = counted(agent);
            let more: Vec<u64> = now.iter().zip(before).map(|(n, b)| n - b).collect();
            assert_eq!(more, [40, 40, headers, 0, 0], "{to} {offload}");
            before = now;
            assert_eq!(held(&sender), 0);
        }
    });
}

/// Packets and bytes that the queue of `v0` reckons it holds.
fn reckoned(lab: &Lab) -> (u32, u64) {
    let pins = lab.bpffs.join("iface").join(ifindex("v0").to_string());
    let map = MapHandle::from_pinned_path(pins.join("bbq_instances")).unwrap();
    let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap();
    let held = bestby_bpf::instance(&value.unwrap()).unwrap();
    (held.packets, held.bytes)
}

/// The stamp makes a packet longer after the kernel reckoned its length: its headers alone may be longer than that.
#[test]
fn tiny_datagrams_under_a_rule_that_stamps_and_truncates_leave_no_bytes_behind() {
    site(json!({"rate": "100kbit"}), "50ms", |lab, peer, agent| {
        agent.add(json!({"name": "audio", "dport": 6000, "lifetime": "500ms"}));
        let audio = peer.enter(|| UdpSocket::bind("10.9.0.2:6000").unwrap());
        audio
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let mut port = 7000;
        for (stamp, to, payload) in ["yes", "no"]
            .into_iter()
            .flat_map(|stamp| ["10.9.0.2", "fd09::2"].map(|to| (stamp, to)))
            .flat_map(|(stamp, to)| [1, 7, 8, 15].map(|payload| (stamp, to, payload)))
        {
            let case = format!("stamp {stamp}, to {to}, {payload} bytes");
            port += 1;
            let name = format!("tiny-{port}");
            agent.add(json!({
                "name": name, "dport": port, "lifetime": "50ms", "treatment": "truncate", "stamp": stamp,
            }));
            let _receiver = truncated::receiver(peer, to, port);
            let sender = UdpSocket::bind((if to.contains(':') { "::" } else { "0.0.0.0" }, 0));
            let sender = sender.unwrap();
            sender.connect((to, port)).unwrap();
            for _ in 0..60 {
                sender.send(&vec![0xff; payload]).unwrap();
            }
            wait_for("all to have left", || {
                agent.flow(&name, "packets_sent") == 60
            });
            assert!(agent.flow(&name, "truncated") > 20, "{case}");
            assert_eq!(reckoned(lab), (0, 0), "{case}");
            let shown = shell("tc -s qdisc show dev v0 root");
            assert!(shown.contains("backlog 0b 0p"), "{case}: {shown}");
            // Nobody else's packet is refused for it.
            let other = UdpSocket::bind("0.0.0.0:0").unwrap();
            for n in 0..5 {
                other.send_to(&[n; 160], "10.9.0.2:6000").unwrap();
                assert_eq!(audio.recv(&mut [0; 200]).unwrap(), 160, "{case}");
            }
        }
    });
}

#[test]
fn upgrade_keeps_pairs_and_sends_one_of_each_in_order() {
    for (lifetime, all_whole) in [("10s", true), ("300ms", false)] {
        site(json!({"rate": RATE}), lifetime, |_, peer, agent| {
            let receiver = truncated::receiver(peer, "10.9.0.2", PORT);
            let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
            sender.connect(("10.9.0.2", PORT)).unwrap();
            sender.send(&media(0, None)).unwrap();
            receive(&receiver, 1);
            for n in 0..40 {
                sender.send(&media(n, None)).unwrap();
            }
            // Not asked of the agent: an emulated one takes longer than they wait.
            let queued = held(&sender);
            agent.ok("POST", "/v1/interfaces/v0/upgrade", None);
            for n in 40..50 {
                sender.send(&media(n, None)).unwrap();
            }
            assert!(queued > 20_000, "{queued} bytes waited for the upgrade");
            let got = receive(&receiver, 50);
            let numbers: Vec<u16> = got.iter().map(|(n, _)| *n).collect();
            assert_eq!(numbers, (0..50).collect::<Vec<_>>());
            let headers = got.iter().filter(|(_, length)| *length == 12).count() as u64;
            assert_eq!(headers == 0, all_whole, "{got:?}");
            wait_for("all to be counted", || counted(agent)[1] == 51);
            assert_eq!(counted(agent), [51, 51, headers, 0, 0]);
            assert_eq!(held(&sender), 0);
        });
    }
}

#[test]
fn datagrams_that_wait_too_long_arrive_empty() {
    site(
        json!({"rate": RATE, "method": "sfdps1"}),
        "100ms",
        |_, peer, agent| {
            let receiver = truncated::receiver(peer, "10.9.0.2", PORT);
            let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
            for n in 0..30 {
                sender.send_to(&[n; 900], ("10.9.0.2", PORT)).unwrap();
            }
            let mut buffer = [0; 2000];
            let got: Vec<_> = (0..30)
                .map(|_| (receiver.recv(&mut buffer).unwrap(), buffer[0]))
                .collect();
            let whole: Vec<u8> = got
                .iter()
                .filter(|(length, _)| *length == 900)
                .map(|(_, n)| *n)
                .collect();
            let empty = got.iter().filter(|(length, _)| *length == 0).count();
            assert!(!whole.is_empty() && empty > 0 && whole.len() + empty == 30);
            assert!(whole.is_sorted());
            assert_eq!(counted(agent), [30, 30, empty as u64, 0, 0]);
        },
    );
}

#[test]
fn frame_given_up_arrives_as_headers_in_order() {
    // 60 packets of 20 ms each are more than 200 ms hold.
    site(json!({"rate": RATE}), "200ms", |_, peer, agent| {
        let receiver = truncated::receiver(peer, "10.9.0.2", PORT);
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        sender.connect(("10.9.0.2", PORT)).unwrap();
        for n in 0..60 {
            sender.send(&media(n, Some(1))).unwrap();
        }
        let got = receive(&receiver, 60);
        let numbers: Vec<u16> = got.iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, (0..60).collect::<Vec<_>>());
        let headers = got.iter().filter(|(_, length)| *length == 12).count() as u64;
        assert!(headers >= 40, "{headers}");
        assert_eq!(counted(agent), [60, 60, headers, 0, 0]);
    });
}

#[test]
fn full_queue_drops_packets_with_their_headers_and_detaching_frees_all() {
    site(
        json!({"rate": "8kbit", "limit": 300}),
        "100s",
        |_, _, agent| {
            let before = buffers();
            let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
            force_buffer(&sender, libc::SO_SNDBUFFORCE, 8 << 20);
            for n in 0..400 {
                // What is refused the sender is told.
                let _ = sender.send_to(&media(n, None), ("10.9.0.2", PORT));
            }
            let [came, sent, truncated, queued, dropped] = counted(agent);
            assert_eq!((came, truncated), (400, 0));
            assert_eq!(came, sent + queued + dropped);
            assert!(
                (290..=300).contains(&queued) && held(&sender) > 0,
                "{queued}"
            );
            assert!(buffers() > before + 550);
            agent.detach("v0");
            assert_eq!(held(&sender), 0);
            let [came, sent, _, queued, dropped] = counted(agent);
            assert_eq!((came, queued), (sent + dropped, 0));
            assert!(buffers() < before + 150, "{before} {}", buffers());
        },
    );
}

/// Packets that the kernel holds, exact to some that each CPU keeps.
fn buffers() -> u64 {
    let cache = "/sys/kernel/slab/skbuff_head_cache";
    fs::write(format!("{cache}/shrink"), "1").unwrap();
    let objects = fs::read_to_string(format!("{cache}/objects")).unwrap();
    objects.split(' ').next().unwrap().trim().parse().unwrap()
}

#[test]
fn program_behind_the_classifier_that_drops_one_of_a_pair_leaves_nothing_behind() {
    site(json!({"rate": RATE}), "100ms", |_, peer, agent| {
        let receiver = truncated::receiver(peer, "10.9.0.2", PORT);
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        sender.connect(("10.9.0.2", PORT)).unwrap();
        shell("tc qdisc add dev v0 clsact");
        let filter = |selector: &str| {
            shell(&format!(
                "tc filter replace dev v0 egress prio 5 handle 800::1 protocol ip u32 match {selector} action drop"
            ));
        };
        // The headers, of 40 bytes: what is stale is discarded.
        filter("u16 40 0xffff at 2");
        for n in 0..30 {
            sender.send(&media(n, None)).unwrap();
        }
        wait_for("the queue to run empty", || counted(agent)[3] == 0);
        let [came, sent, truncated, _, dropped] = counted(agent);
        assert_eq!((came, truncated), (30, 0));
        assert!(dropped > 0 && sent + dropped == 30);
        for (n, _) in receive(&receiver, sent as usize).iter().zip(0..) {
            assert_eq!(n.1, 958);
        }
        // The packets, of 986 bytes, whose headers then wait for them for some milliseconds only.
        shell("tc filter del dev v0 egress");
        filter("u16 986 0xffff at 2");
        let before = buffers();
        for _ in 0..20 {
            for n in 0..30 {
                let _ = sender.send(&media(n, None));
            }
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(counted(agent), [30, sent, 0, 0, dropped]);
        wait_for("what is parked to be freed", || {
            shell("tc -s qdisc show dev v0 root").contains("backlog 0b 0p")
        });
        assert!(buffers() < before + 50, "{before} {}", buffers());
        // Nothing of it is in the way of what comes next.
        shell("tc filter del dev v0 egress");
        sender.send(&media(77, None)).unwrap();
        assert_eq!(receive(&receiver, 1), [(77, 958)]);
    });
}

#[test]
fn other_queue_in_place_of_ours_sends_each_packet_once() {
    site(json!({"rate": RATE}), "100s", |_, peer, _| {
        let receiver = truncated::receiver(peer, "10.9.0.2", PORT);
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        shell("tc qdisc replace dev v0 root pfifo");
        for n in 0..10 {
            sender.send_to(&media(n, None), ("10.9.0.2", PORT)).unwrap();
        }
        let sent: Vec<_> = (0..10).map(|n| (n, 958)).collect();
        assert_eq!(receive(&receiver, 10), sent);
    });
}

#[test]
fn pairs_meet_in_each_transmit_queue() {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        shell(&format!(
            "ip link add m0 numtxqueues 4 numrxqueues 4 type veth peer name m1 netns {} numtxqueues 4 numrxqueues 4
             ip addr add 10.8.0.1/24 dev m0; ip link set m0 up",
            peer.name()
        ));
        peer.run("ip addr add 10.8.0.2/24 dev m1");
        peer.run("ip link set m1 up");
        let agent = Agent::start(lab, &[]);
        // Stale when it comes, on a free link.
        agent.add(json!({"name": "media", "dport": PORT, "lifetime": "1ms", "owd": "1s", "treatment": "truncate"}));
        agent.attach(json!({"dev": "m0", "mode": "qdisc", "method": "sfdps1"}));
        assert!(shell("tc qdisc show dev m0").contains("qdisc mq "));
        let receiver = truncated::receiver(peer, "10.8.0.2", PORT);
        let senders: Vec<_> = (0..20)
            .map(|_| UdpSocket::bind("0.0.0.0:0").unwrap())
            .collect();
        // Headers are charged as what they were.
        force_buffer(&receiver, libc::SO_RCVBUFFORCE, 8 << 20);
        // What waits for the peer's address may be lost.
        senders[0]
            .send_to(&media(0, None), ("10.8.0.2", PORT))
            .unwrap();
        receive(&receiver, 1);
        for n in 0..10 {
            for (i, sender) in senders.iter().enumerate() {
                if i % 2 == 0 {
                    sender.connect(("10.8.0.2", PORT)).unwrap();
                    sender.send(&media(n, None)).unwrap();
                } else {
                    sender.send_to(&media(n, None), ("10.8.0.2", PORT)).unwrap();
                }
            }
        }
        wait_for("all to be sent", || {
            counted(&agent)[0] == 201 && counted(&agent)[3] == 0
        });
        assert_eq!(counted(&agent), [201, 201, 201, 0, 0]);
        for (_, length) in receive(&receiver, 200) {
            assert_eq!(length, 12);
        }
    });
}

#[test]
fn socket_says_truncate_and_its_counters_tell() {
    site(json!({"rate": RATE}), "100s", |lab, peer, _| {
        let receiver = truncated::receiver(peer, "10.9.0.2", 6000);
        // The options are those of a cgroup.
        let join = |cgroup: &Path| fs::write(cgroup.join("cgroup.procs"), "0").unwrap();
        join(&lab.cgroup);
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        let level = SOL_BESTBY as i32;
        set(&sender, level, BB_SO_LIFETIME as i32, &(100 * MS)).unwrap();
        set(&sender, level, BB_SO_TREATMENT as i32, &BB_TREAT_TRUNCATE).unwrap();
        for n in 0..30 {
            sender.send_to(&media(n, None), ("10.9.0.2", 6000)).unwrap();
        }
        let headers = receive(&receiver, 30)
            .iter()
            .filter(|(_, length)| *length == 12)
            .count() as u64;
        assert!(headers > 0);
        let c: bb_counters = bestby_tests::socket::get(&sender, level, BB_SO_STATS as i32).unwrap();
        join(&cgroup_root());
        assert_eq!(
            (c.packets_in, c.packets_sent, c.truncated, c.queued),
            (30, 30, headers, 0)
        );
        assert_eq!(c.bytes_in - c.bytes_sent, headers * (958 - 12));
    });
}

#[test]
fn packets_that_cannot_be_truncated_are_discarded_whole() {
    linked_lab(require::bpf_qdisc(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.add(json!({"name": "media", "dport": PORT, "lifetime": "1ms", "owd": "1s", "treatment": "truncate"}));
        agent.attach(json!({"dev": "v0", "mode": "qdisc", "method": "sfdps1"}));
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        // Two fragments.
        let _ = sender.send_to(&[1; 2000], ("10.9.0.2", PORT));
        // A super-packet of four.
        const UDP_SEGMENT: i32 = 103;
        set(&sender, libc::SOL_UDP, UDP_SEGMENT, &500i32).unwrap();
        let _ = sender.send_to(&[1; 2000], ("10.9.0.2", PORT));
        wait_for("all to be dropped", || counted(&agent)[4] >= 3);
        let [came, sent, truncated, queued, dropped] = counted(&agent);
        assert_eq!((came, sent, truncated, queued, dropped), (3, 0, 0, 0, 3));
    });
}

/// A SLIP device: its packets begin with the IP header, and Linux takes it for one with a MAC header. It is there as
/// long as the near end of its line; what comes out of the far one is thrown away.
fn slip(netns: &Netns) -> (String, OwnedFd) {
    const SIOCGIFNAME: libc::Ioctl = 0x8910;
    shell("modprobe slip");
    let (mut far, mut near, mut name, n_slip) = (-1, -1, [0u8; libc::IFNAMSIZ], 1i32);
    let no = (ptr::null_mut(), ptr::null(), ptr::null());
    // SAFETY: openpty writes two descriptors, which are nobody else's; TIOCSETD reads one int and SLIP's SIOCGIFNAME
    // writes at most IFNAMSIZ bytes with a final zero; all of it outlives the calls.
    unsafe {
        let made = libc::openpty(&raw mut far, &raw mut near, no.0, no.1, no.2);
        assert_eq!(made, 0);
        assert_eq!(libc::ioctl(near, libc::TIOCSETD, &raw const n_slip), 0);
        assert_eq!(libc::ioctl(near, SIOCGIFNAME, name.as_mut_ptr()), 0);
        let name = CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap();
        // It is made where the first process is.
        let to = netns.name();
        shell(&format!(
            "nsenter --target 1 --net ip link set {name} netns {to}"
        ));
        let mut line = File::from_raw_fd(far);
        thread::spawn(move || while line.read(&mut [0; 2000]).is_ok() {});
        (name.to_owned(), OwnedFd::from_raw_fd(near))
    }
}

#[test]
fn stale_packets_cross_a_tun_that_pushes_back_as_headers_and_slip_not_at_all() {
    linked_lab(require::bpf_qdisc(), |lab, _| {
        let (slip, _near) = slip(&lab.netns);
        let mut tun = tun::open("t0", true).unwrap();
        shell(&format!(
            "ip addr add 10.8.0.1 peer 10.8.0.2 dev t0; ip link set t0 txqueuelen 1
             ip addr add 10.7.0.1 peer 10.7.0.2 dev {slip}; ip link set {slip} mtu 1500
             for dev in t0 {slip}; do
                echo 1 > /proc/sys/net/ipv6/conf/$dev/disable_ipv6; ip link set $dev up
             done"
        ));
        let agent = Agent::start(lab, &[]);
        agent.add(json!({"name": "media", "dport": PORT, "lifetime": "1ms", "owd": "1s", "treatment": "truncate"}));
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        // HTB charges a packet for what it was, so its header is sent anew.
        for way in [
            json!({"mode": "qdisc", "method": "sfdps1"}),
            json!({"mode": "tc", "rate": "1mbit"}),
        ] {
            for (dev, to, crosses) in [("t0", "10.8.0.2", true), (&slip, "10.7.0.2", false)] {
                let mut request = way.clone();
                request["dev"] = dev.into();
                agent.attach(request);
                let before = counted(&agent);
                for n in 0..10 {
                    sender.send_to(&media(n, None), (to, PORT)).unwrap();
                }
                let mut packet = [0; 2000];
                let mut next = || loop {
                    let length = tun.read(&mut packet).unwrap();
                    // The agent asks a new queue with a frame of its own.
                    if packet[0] == 0x45 {
                        return (length, u16::from_be_bytes([packet[30], packet[31]]));
                    }
                };
                for n in (0..10).filter(|_| crosses) {
                    assert_eq!(next(), (20 + 8 + 12, n), "{way}");
                }
                let more = || {
                    let now = counted(&agent).into_iter().zip(before);
                    now.map(|(now, before)| now - before).collect::<Vec<_>>()
                };
                wait_for("all to be counted", || {
                    let more = more();
                    more[1] + more[4] == 10
                });
                let headers = if crosses { 10 } else { 0 };
                let all = [10, headers, headers, 0, 10 - headers];
                assert_eq!(more(), all, "{way} {dev}");
                agent.detach(dev);
            }
        }
    });
}

#[test]
fn shared_packets_of_pktgen_have_no_twins_and_do_no_harm() {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        shell("modprobe pktgen");
        let agent = Agent::start(lab, &[]);
        agent.add(json!({"name": "media", "dport": 9, "lifetime": "1ms", "owd": "1s", "treatment": "truncate"}));
        let from = peer.enter(|| Raw::open("v1"));
        agent.attach(json!({"dev": "v0", "mode": "qdisc", "method": "sfdps1"}));
        shell(
            "cd /proc/thread-self/net/pktgen
             echo rem_device_all > kpktgend_0; echo add_device v0 > kpktgend_0
             for words in 'xmit_mode queue_xmit' 'clone_skb 0' 'dst_mac 02:00:00:00:00:99' 'dst 10.9.0.2' \
                 'pkt_size 500' 'count 100'; do echo \"$words\" > v0; done
             echo start > pgctrl; echo rem_device_all > kpktgend_0",
        );
        assert_eq!(counted(&agent), [100, 0, 0, 0, 100]);
        assert_eq!(from.receive(17), None);
    });
}

#[test]
fn question_of_explain_sends_no_twin() {
    site(json!({"rate": RATE}), "1s", |_, peer, agent| {
        let wire = peer.enter(|| Raw::open("v1"));
        let packet = format!("udp 10.9.0.1:7 to 10.9.0.2:{PORT} rtp 96");
        let said = agent.ok(
            "POST",
            "/v1/explain",
            Some(json!({"dev": "v0", "packet": packet})),
        );
        assert_eq!(
            (&said["flow"], &said["treatment"]),
            (&json!("media"), &json!("truncate"))
        );
        assert!(
            said["verdict"].as_str().unwrap().contains("must leave"),
            "{said}"
        );
        assert_eq!(wire.receive(17), None);
        assert_eq!(counted(agent), [0; 5]);
    });
}
