//! Super-packets (UDP GSO, TSO) on a slow link: the device that cuts them, from attach to detach, and without it. Needs
//! netkit, or macvlan before 6.7: run in the VM (`just test-vm`).

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use bestby_bpf::abi;
use bestby_tests::agent::*;
use bestby_tests::in_turn;
use bestby_tests::load::{Counter, PEER, SuperPackets, assert_nothing_else_lost, dropped_plain};
use bestby_tests::netns::{Lab, Netns, lab, linked_lab, tun};
use bestby_tests::require;
use serde_json::{Value, json};

const PORT: u16 = 4433;
/// Datagrams of a super-packet, and bytes of each: 36 KiB.
const DATAGRAMS: usize = 30;
const SIZE: usize = 1200;
/// What an interface has that nobody changed.
const ALL: u64 = 65535;

/// Where the kernel has BPF qdiscs, the queue behind the device that cuts: where they meet. One agent and one queue,
/// each of which costs an emulated kernel seconds.
#[test]
fn segment_queue_behind_the_device_gets_segments() {
    let mode = require::bpf_qdisc().map_or("tc", |()| "qdisc");
    linked_lab(require::segmenter(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": mode, "rate": "2mbit"}));
        in_turn!(lab, peer, agent;
            long_packets_are_cut_and_short_ones_stay_whole,
            killed_agent_changes_nothing_and_the_next_adopts,
            device_comes_and_goes_with_the_rate,
            tagged_packets_are_cut,
            detach_restores_what_the_operator_set,
        );
    });
}

/// What looks at the device that cuts alone, in mode tc, which a kernel verifies sooner.
#[test]
fn segment_device_in_mode_tc_cuts_and_is_mended() {
    linked_lab(require::segmenter(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "8mbit"}));
        in_turn!(lab, peer, agent;
            tcp_makes_no_packets_that_must_be_cut,
            lost_filter_below_a_macvlan_is_recreated,
            device_that_does_not_cut_sends_packets_back_whole,
            lost_device_costs_a_packet_per_cpu_and_is_recreated,
            rule_counts_each_segment,
        );
    });
}

fn link(lab: &Lab, dev: &str) -> Value {
    let all = lab.netns.run("ip -json -details link show");
    let all: Value = serde_json::from_str(&all).unwrap();
    let all = all.as_array().unwrap();
    let found = all.iter().find(|l| l["ifname"] == dev);
    found.cloned().unwrap_or(Value::Null)
}

fn gso_max_segs(lab: &Lab, dev: &str) -> u64 {
    link(lab, dev)["gso_max_segs"].as_u64().unwrap()
}

/// The device that cuts what leaves `dev`.
fn device(lab: &Lab, dev: &str) -> String {
    format!("bbs{}", link(lab, dev)["ifindex"])
}

fn cuts(agent: &Agent) -> bool {
    agent.ok("GET", "/v1/interfaces", None)[0]["cuts"] == true
}

/// Packets that the classifier or the queue of `dev` counted while `f` ran.
fn counted(agent: &Agent, dev: &str, f: impl FnOnce()) -> u64 {
    let count = || {
        agent.stats()["interfaces"][dev]["packets_in"]
            .as_u64()
            .unwrap()
    };
    let before = count();
    f();
    count() - before
}

fn lost(lab: &Lab) -> u64 {
    let map = libbpf_rs::MapHandle::from_pinned_path(lab.bpffs.join("bb_global")).unwrap();
    let key = abi::BB_G_SEGMENTER_LOST.to_ne_bytes();
    let value = libbpf_rs::MapCore::lookup(&map, &key, libbpf_rs::MapFlags::ANY).unwrap();
    u64::from_ne_bytes(value.unwrap().try_into().unwrap())
}

fn wait_until_sent(agent: &Agent) {
    wait_for("an empty queue", || {
        agent.stats()["interfaces"]["v0"]["queued"] == 0
    });
}

fn device_comes_and_goes_with_the_rate(lab: &Lab, _: &Netns, agent: Agent) -> Agent {
    let name = device(lab, "v0");
    let mode = agent.ok("GET", "/v1/interfaces", None)[0]["mode"].clone();
    let attach = |rate: &str| {
        agent.attach(json!({"dev": "v0", "mode": mode, "rate": rate}));
    };
    let check = |cut: bool, segs: u64| {
        assert_eq!(link(lab, &name) != Value::Null, cut);
        assert_eq!(cuts(&agent), cut);
        assert_eq!(gso_max_segs(lab, "v0"), segs);
    };
    check(true, 1);
    assert_eq!(gso_max_segs(lab, &name), 1);
    // A millisecond of 100 Mbit/s has 8 packets of 1500 bytes; of 1 Gbit/s, all there may be.
    attach("100mbit");
    check(true, 8);
    attach("1gbit");
    check(false, ALL);
    attach("2mbit");
    check(true, 1);
    agent
}

fn detach_restores_what_the_operator_set(lab: &Lab, _: &Netns, agent: Agent) -> Agent {
    let name = device(lab, "v0");
    agent.detach("v0");
    assert_eq!(link(lab, &name), Value::Null);
    assert_eq!(gso_max_segs(lab, "v0"), ALL);
    let links = lab.netns.run("ip -o link show");
    assert!(!links.contains("bbs"), "{links}");
    // What the operator set is restored, not the kernel's default.
    lab.netns.run("ip link set v0 gso_max_segs 7");
    agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "100mbit"}));
    assert_eq!(gso_max_segs(lab, "v0"), 7);
    assert!(cuts(&agent));
    // And what he sets afterwards is his.
    lab.netns.run("ip link set v0 gso_max_segs 3");
    agent.detach("v0");
    assert_eq!(gso_max_segs(lab, "v0"), 3);
    agent
}

fn long_packets_are_cut_and_short_ones_stay_whole(lab: &Lab, peer: &Netns, agent: Agent) -> Agent {
    let before = dropped_plain(&lab.netns, &agent, "v0");
    let counter = Counter::new(peer, PEER, PORT);
    let mut long = SuperPackets::new(&lab.netns, PORT, SIZE);
    let packets = counted(&agent, "v0", || {
        for _ in 0..3 {
            long.send(DATAGRAMS);
        }
    });
    let all = 3 * DATAGRAMS as u64;
    // Neighbour discovery and the like may come in between.
    assert!((all..all + 5).contains(&packets), "{packets} packets");
    wait_until_sent(&agent);
    let dropped = dropped_plain(&lab.netns, &agent, "v0") - before;
    assert_nothing_else_lost(&counter.finish(), all, dropped);
    // 250 bytes take a millisecond.
    let counter = Counter::new(peer, PEER, PORT);
    let mut short = SuperPackets::new(&lab.netns, PORT, 50);
    let packets = counted(&agent, "v0", || {
        for _ in 0..20 {
            short.send(4);
        }
    });
    assert!((20..25).contains(&packets), "{packets} packets");
    wait_until_sent(&agent);
    assert_eq!(counter.finish(), (0..80).collect::<Vec<_>>());
    assert_eq!(lost(lab), 0);
    agent
}

fn killed_agent_changes_nothing_and_the_next_adopts(
    lab: &Lab,
    peer: &Netns,
    agent: Agent,
) -> Agent {
    let name = device(lab, "v0");
    let ifindex = link(lab, &name)["ifindex"].clone();
    let before = dropped_plain(&lab.netns, &agent, "v0");
    let counter = Counter::new(peer, PEER, PORT);
    let mut bulk = SuperPackets::new(&lab.netns, PORT, SIZE);
    bulk.send(DATAGRAMS);
    agent.kill();
    bulk.send(DATAGRAMS);
    let agent = Agent::start(lab, &[]);
    assert!(cuts(&agent));
    assert_eq!(link(lab, &name)["ifindex"], ifindex, "another device");
    let packets = counted(&agent, "v0", || bulk.send(DATAGRAMS));
    assert!(packets >= DATAGRAMS as u64, "{packets} packets");
    wait_until_sent(&agent);
    let dropped = dropped_plain(&lab.netns, &agent, "v0") - before;
    assert_nothing_else_lost(&counter.finish(), bulk.sent(), dropped);
    let total = agent.stats()["interfaces"]["v0"]["packets_in"].clone();
    assert!(total.as_u64().unwrap() >= bulk.sent(), "{total} packets");
    assert_eq!(lost(lab), 0);
    agent
}

fn lost_device_costs_a_packet_per_cpu_and_is_recreated(
    lab: &Lab,
    peer: &Netns,
    agent: Agent,
) -> Agent {
    let name = device(lab, "v0");
    let counter = Counter::new(peer, PEER, PORT);
    let mut bulk = SuperPackets::new(&lab.netns, PORT, SIZE);
    bulk.send(DATAGRAMS);
    // Nobody repairs it meanwhile.
    agent.signal(libc::SIGSTOP);
    lab.netns.run(&format!("ip link del {name}"));
    for _ in 0..10 {
        bulk.send(DATAGRAMS);
        std::thread::sleep(Duration::from_millis(20));
    }
    agent.signal(libc::SIGCONT);
    wait_for("a new device", || link(lab, &name) != Value::Null);
    wait_for("cutting", || cuts(&agent));
    std::thread::sleep(Duration::from_millis(1100)); // until it is tried again
    let before = bulk.sent();
    let packets = counted(&agent, "v0", || bulk.send(DATAGRAMS));
    assert!(packets >= DATAGRAMS as u64, "{packets} packets");
    wait_until_sent(&agent);
    let seen = counter.finish();
    assert!(seen.is_sorted(), "in the order sent");
    let missing = bulk.sent() - seen.len() as u64;
    assert_eq!(missing % DATAGRAMS as u64, 0, "{missing}");
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    // Once per second and CPU; a busy host may take more than one.
    let packets = missing / DATAGRAMS as u64;
    assert!((1..=2 * cpus).contains(&packets), "{packets} super-packets");
    assert!(seen.contains(&before), "the new device works");
    assert!((1..=packets).contains(&lost(lab)), "{}", lost(lab));
    agent
}

fn device_that_does_not_cut_sends_packets_back_whole(
    lab: &Lab,
    peer: &Netns,
    agent: Agent,
) -> Agent {
    let name = device(lab, "v0");
    agent.signal(libc::SIGSTOP);
    lab.netns
        .run(&format!("ip link set {name} gso_max_segs 65535"));
    let counter = Counter::new(peer, PEER, PORT);
    let mut bulk = SuperPackets::new(&lab.netns, PORT, SIZE);
    for _ in 0..5 {
        bulk.send(DATAGRAMS);
    }
    agent.signal(libc::SIGCONT);
    wait_until_sent(&agent);
    let seen = counter.finish();
    assert_eq!(seen, (0..bulk.sent()).collect::<Vec<_>>());
    assert_eq!(lost(lab), 0);
    // The device is made anew: for a moment there is none.
    wait_for("a device that cuts", || {
        link(lab, &name)["gso_max_segs"] == 1
    });
    wait_for("cutting", || cuts(&agent));
    agent
}

fn lost_filter_below_a_macvlan_is_recreated(lab: &Lab, peer: &Netns, agent: Agent) -> Agent {
    let name = device(lab, "v0");
    if link(lab, &name)["linkinfo"]["info_kind"] != "macvlan" {
        return agent; // a netkit's program has no filter: 6.1 has this case
    }
    lab.netns.run(&format!("tc filter del dev {name}p egress"));
    let filter = || {
        let filters = format!("tc filter show dev {name}p egress");
        lab.netns.run(&filters).contains("bestby")
    };
    wait_for("a new filter", filter);
    let before = dropped_plain(&lab.netns, &agent, "v0");
    let counter = Counter::new(peer, PEER, PORT);
    let mut bulk = SuperPackets::new(&lab.netns, PORT, SIZE);
    let packets = counted(&agent, "v0", || bulk.send(DATAGRAMS));
    assert!(packets >= DATAGRAMS as u64, "{packets} packets");
    wait_until_sent(&agent);
    let dropped = dropped_plain(&lab.netns, &agent, "v0") - before;
    assert_nothing_else_lost(&counter.finish(), bulk.sent(), dropped);
    assert_eq!(lost(lab), 0);
    agent
}

fn tcp_makes_no_packets_that_must_be_cut(lab: &Lab, peer: &Netns, agent: Agent) -> Agent {
    let listener = peer.enter(|| TcpListener::bind((PEER, PORT)).unwrap());
    let receiver = std::thread::spawn(move || {
        let mut all = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
        all
    });
    let data: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let packets = counted(&agent, "v0", || {
        let mut stream = lab
            .netns
            .enter(|| TcpStream::connect((PEER, PORT)).unwrap());
        stream.write_all(&data).unwrap();
        drop(stream);
        assert!(receiver.join().unwrap() == data);
    });
    assert!(packets >= 300_000 / 1448, "{packets} packets");
    agent
}

#[test]
fn segment_packets_of_a_device_without_ethernet_are_cut() {
    if !require::can(require::segmenter()) {
        return;
    }
    lab(|lab| {
        let mut device = lab.netns.enter(|| tun("t0"));
        lab.netns.run("ip addr add 10.9.0.1/24 dev t0");
        lab.netns.run("ip link set t0 up");
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "t0", "mode": "tc", "rate": "8mbit"}));
        assert!(cuts(&agent));
        let mut bulk = SuperPackets::new(&lab.netns, PORT, SIZE);
        let packets = counted(&agent, "t0", || bulk.send(DATAGRAMS));
        assert!(packets >= DATAGRAMS as u64, "{packets} packets");
        let (mut packet, mut next) = (vec![0; 65536], 0_u64);
        while next < bulk.sent() {
            let length = device.read(&mut packet).unwrap();
            // IPv4 and UDP headers; 8 bytes before the number.
            if packet[0] == 0x45 && packet[9] == 17 && length == 28 + SIZE {
                assert_eq!(packet[36..44], next.to_ne_bytes());
                next += 1;
            }
        }
        assert_eq!(lost(lab), 0);
    });
}

fn rule_counts_each_segment(lab: &Lab, peer: &Netns, agent: Agent) -> Agent {
    let _receiver = peer.enter(|| UdpSocket::bind((PEER, PORT)).unwrap());
    // After one was lost, by the case before, all go whole for a second.
    wait_for("packets to be cut again", || {
        let mut bulk = SuperPackets::new(&lab.netns, PORT, SIZE);
        counted(&agent, "v0", || bulk.send(DATAGRAMS)) >= DATAGRAMS as u64
    });
    agent.add(json!({"name": "bulk", "proto": "udp", "dport": PORT, "lifetime": "100s"}));
    SuperPackets::new(&lab.netns, PORT, SIZE).send(DATAGRAMS);
    assert_eq!(agent.flow("bulk", "packets_in"), DATAGRAMS as u64);
    agent
}

fn tagged_packets_are_cut(lab: &Lab, peer: &Netns, agent: Agent) -> Agent {
    let mode = agent.ok("GET", "/v1/interfaces", None)[0]["mode"].clone();
    agent.attach(json!({"dev": "v0", "mode": mode, "rate": "8mbit"}));
    agent.add(json!({"name": "bulk", "proto": "udp", "dport": PORT, "lifetime": "100s"}));
    // The address moves to a VLAN, so that the same packets take it.
    for (netns, dev, address) in [(&lab.netns, "v0", "10.9.0.1"), (peer, "v1", "10.9.0.2")] {
        for line in [
            format!("ip addr flush dev {dev}"),
            format!("ip link add link {dev} name {dev}.5 type vlan id 5"),
            format!("ip addr add {address}/24 dev {dev}.5"),
            format!("ip link set {dev}.5 up"),
        ] {
            netns.run(&line);
        }
    }
    let counter = Counter::new(peer, PEER, PORT);
    let mut bulk = SuperPackets::new(&lab.netns, PORT, SIZE);
    // The first ones wait for the neighbour's answer.
    bulk.send(DATAGRAMS);
    wait_for("an answer", || agent.flow("bulk", "packets_in") > 0);
    bulk.send(DATAGRAMS);
    wait_until_sent(&agent);
    assert_eq!(counter.finish(), (0..bulk.sent()).collect::<Vec<_>>());
    assert_eq!(agent.flow("bulk", "packets_in"), bulk.sent());
    assert_eq!(lost(lab), 0);
    agent
}
