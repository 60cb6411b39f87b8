//! The agent's life in mode qdisc. Needs CONFIG_NET_SCH_BPF: run in the VM (`just test-vm`).

use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use bestby_tests::agent::*;
use bestby_tests::bpf::swap_fields;
use bestby_tests::cpu;
use bestby_tests::frame::stun;
use bestby_tests::in_turn;
use bestby_tests::load::{Counter, Load, PEER, send_numbered, send_on_both};
use bestby_tests::netns::{Lab, Netns, lab, linked_lab, try_shell};
use bestby_tests::require;
use bestby_tests::user::as_nobody;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, ObjectBuilder};
use serde_json::json;

const PORT: u16 = 5004;

fn start(lab: &Lab, attach: serde_json::Value) -> Agent {
    let agent = Agent::start(lab, &[]);
    agent.attach(attach);
    count_anew(&agent);
    agent
}

/// A rule for [`PORT`], whose counters have nothing of an earlier case.
fn count_anew(agent: &Agent) {
    agent.call("DELETE", "/v1/flows/audio", None);
    agent.add(
        json!({"name": "audio", "proto": "udp", "dport": PORT, "lifetime": "100s", "priority": 0}),
    );
}

/// Another rate keeps the queue, and so the programs, which an emulated kernel verifies for seconds.
fn at_rate(agent: &Agent, rate: &str) {
    agent.attach(json!({"dev": "v0", "rate": rate}));
    count_anew(agent);
}

/// Sends faster than the interface may, so that packets are always queued while `disturb` runs. Returns what was
/// sent and what arrived.
fn under_load(lab: &Lab, peer: &Netns, disturb: impl FnOnce()) -> (u64, Vec<u64>) {
    let load = Load {
        port: PORT,
        size: 500,
        pace: Duration::from_millis(2),
        least: 300,
        around: Duration::from_millis(300),
    };
    let (sent, counter) = load.during(&lab.netns, peer, disturb);
    // What is queued still leaves, at the interface's rate.
    let mut before = lab.netns.run("cat /proc/net/dev");
    loop {
        std::thread::sleep(Duration::from_millis(700));
        let now = lab.netns.run("cat /proc/net/dev");
        if now == before {
            break;
        }
        before = now;
    }
    (sent, counter.finish())
}

/// What the device dropped until now.
fn dropped_by_device(lab: &Lab) -> u64 {
    let link = lab.netns.run("ip -json -s link show dev v0");
    let link: serde_json::Value = serde_json::from_str(&link).unwrap();
    link[0]["stats64"]["tx"]["dropped"].as_u64().unwrap()
}

/// While the kernel changes a root qdisc (any root qdisc), the device has none (dev_deactivate), and drops what is sent
/// to it then. Its counter has those; one more per change may have found the old qdisc already deactivated, which no
/// counter has.
fn lost_in_changes(lab: &Lab, before: u64, changes: u64) -> std::ops::RangeInclusive<u64> {
    let dropped = dropped_by_device(lab) - before;
    dropped..=dropped + changes
}

/// One queue from attach to detach: each load of its programs, and each start of an agent, costs an emulated kernel
/// seconds.
#[test]
fn queue_keeps_packets_counts_and_the_former_qdisc() {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let before = root_qdisc(&lab.netns, "v0");
        let agent = start(lab, json!({"dev": "v0", "rate": "10mbit"}));
        in_turn!(lab, peer, agent;
            attached_queue_is_reported,
            queue_of_another_layout_is_refused_and_left_running,
            doctor_on_a_kernel_with_bpf_qdiscs_has_no_failed_check,
            socket_on_two_cpus_loses_no_packet_and_no_count,
            killed_agent_loses_no_packet_and_no_count,
            upgrade_keeps_queued_packets_in_order,
            detach_under_load_accounts_for_every_packet,
        );
        assert_eq!(root_qdisc(&lab.netns, "v0"), before);
    });
}

/// As [`queue_keeps_packets_counts_and_the_former_qdisc`].
#[test]
fn queue_in_the_place_of_another_qdisc_changes_and_goes() {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        lab.netns
            .run("tc qdisc add dev v0 root handle 7: fq_codel limit 777");
        let before = root_qdisc(&lab.netns, "v0");
        let agent = Agent::start(lab, &[]);
        let agent = in_turn!(lab, peer, agent;
            other_qdisc_is_replaced_only_if_told_so,
            queue_that_only_observes_is_none,
            flood_of_signalling_drops_none_of_another_user,
            failed_change_of_mode_keeps_the_former_queue,
        );
        agent.detach("v0");
        assert_eq!(root_qdisc(&lab.netns, "v0"), before);
    });
}

fn attached_queue_is_reported(lab: &Lab, _: &Netns, agent: Agent) -> Agent {
    let qdisc = root_qdisc(&lab.netns, "v0");
    assert!(qdisc.contains("bestby0a"), "{qdisc}");
    let info = agent.ok("GET", "/v1/interfaces", None)[0].clone();
    assert_eq!(
        (&info["mode"], &info["predicts_delay"]),
        (&json!("qdisc"), &json!(false))
    );
    let memory = info["memory_bytes"].as_u64().unwrap();
    assert!((1..32 << 20).contains(&memory), "{memory} bytes");
    // What the agent itself sends is no packet that somebody kept from the classifier.
    assert_eq!(agent.stats()["global"]["no_cb"], 0);
    agent
}

fn other_qdisc_is_replaced_only_if_told_so(lab: &Lab, _: &Netns, agent: Agent) -> Agent {
    let mut attach = json!({"dev": "v0", "rate": "1500kbit", "limit": 60, "observe": false});
    let (status, message) = agent.refused("POST", "/v1/interfaces", Some(attach.clone()));
    assert!(status == 409 && message.contains("fq_codel"), "{message}");
    assert!(root_qdisc(&lab.netns, "v0").contains("fq_codel"));
    attach["replace"] = json!(true);
    agent.attach(attach);
    assert!(root_qdisc(&lab.netns, "v0").contains("bestby0"));
    agent
}

fn queue_that_only_observes_is_none(lab: &Lab, _: &Netns, agent: Agent) -> Agent {
    let is = |agent: &Agent| agent.ok("GET", "/v1/interfaces", None)[0].clone();
    agent.attach(json!({"dev": "v0", "observe": true}));
    let qdisc = root_qdisc(&lab.netns, "v0");
    assert!(qdisc.contains("fq_codel"), "{qdisc}");
    assert_eq!(
        (&is(&agent)["mode"], &is(&agent)["rate"]),
        (&json!("tc"), &json!("1500kbit"))
    );
    // The leave to replace that qdisc was given.
    agent.attach(json!({"dev": "v0", "observe": false}));
    assert!(root_qdisc(&lab.netns, "v0").contains("bestby0"));
    assert_eq!(is(&agent)["mode"], "qdisc");
    agent
}

fn failed_change_of_mode_keeps_the_former_queue(lab: &Lab, _: &Netns, agent: Agent) -> Agent {
    // A change of rate keeps the queue, a change of size makes a new one.
    for limit in [60, 500] {
        agent.attach(json!({"dev": "v0", "rate": "20mbit", "limit": limit}));
    }
    assert_eq!(agent.ok("GET", "/v1/interfaces", None)[0]["limit"], 500);
    let to_tc = json!({"dev": "v0", "rate": "20mbit", "mode": "tc"});
    // A kernel without HTB, for a moment.
    let autoload = "/proc/sys/kernel/modprobe";
    let modprobe = std::fs::read(autoload).unwrap();
    std::fs::write(autoload, "\n").unwrap();
    let _ = try_shell("rmmod sch_htb");
    let (status, message) = agent.refused("POST", "/v1/interfaces", Some(to_tc.clone()));
    std::fs::write(autoload, modprobe).unwrap();
    assert_eq!(status, 500, "{message}");
    assert!(message.contains("htb"), "{message}");
    let qdisc = root_qdisc(&lab.netns, "v0");
    assert!(qdisc.contains("bestby0"), "{qdisc}");
    let info = agent.ok("GET", "/v1/interfaces", None)[0].clone();
    assert_eq!(
        (&info["mode"], &info["limit"]),
        (&json!("qdisc"), &json!(500))
    );
    agent.attach(to_tc);
    assert!(root_qdisc(&lab.netns, "v0").contains("htb"));
    agent
}

fn killed_agent_loses_no_packet_and_no_count(lab: &Lab, peer: &Netns, agent: Agent) -> Agent {
    at_rate(&agent, "1500kbit");
    let mut next = None;
    let (sent, seen) = under_load(lab, peer, || {
        agent.kill();
        std::thread::sleep(Duration::from_millis(300));
        next = Some(Agent::start(lab, &[]));
    });
    assert_eq!(
        seen,
        (0..sent).collect::<Vec<_>>(),
        "of {sent} packets {} arrived",
        seen.len()
    );
    let agent = next.unwrap();
    assert_eq!(agent.flow("audio", "packets_in"), sent);
    assert_eq!(agent.flow("audio", "packets_sent"), sent);
    assert_eq!(agent.flow("audio", "queued"), 0);
    let waited = &agent.stats()["delays"]["v0"];
    let ns = |what: &str| waited[what].as_u64().unwrap();
    assert!(ns("packets") >= sent, "{waited}");
    assert!(ns("p50_ns") > 0 && ns("p50_ns") <= ns("p99_ns"), "{waited}");
    agent
}

fn upgrade_keeps_queued_packets_in_order(lab: &Lab, peer: &Netns, agent: Agent) -> Agent {
    at_rate(&agent, "1500kbit");
    let before = dropped_by_device(lab);
    let (sent, seen) = under_load(lab, peer, || {
        let queued = agent.flow("audio", "queued");
        assert!(
            queued > 0,
            "nothing is queued: the test would prove nothing"
        );
        for kind in ["bestby0b", "bestby0a"] {
            agent.ok("POST", "/v1/interfaces/v0/upgrade", None);
            assert!(
                root_qdisc(&lab.netns, "v0").contains(kind),
                "{}",
                root_qdisc(&lab.netns, "v0")
            );
        }
    });
    let (entered, left) = (
        agent.flow("audio", "packets_in"),
        agent.flow("audio", "packets_sent"),
    );
    assert_eq!(entered, left, "what was queued has left");
    assert_eq!(seen.len() as u64, left, "and has arrived");
    assert!(seen.is_sorted(), "in the order sent");
    let lost = lost_in_changes(lab, before, 2);
    assert!(
        lost.contains(&(sent - entered)),
        "{} packets never entered, the device dropped {lost:?}",
        sent - entered
    );
    assert_eq!(agent.flow("audio", "queued"), 0);
    agent
}

/// Puts the packets of a build in which two fields of them, of one size, are swapped in the place of ours.
fn replace_packets(pins: &Path) {
    let packets = pins.join("bbq_packets");
    let entries = MapHandle::from_pinned_path(&packets).unwrap().max_entries();
    std::fs::rename(&packets, pins.join("ours")).unwrap();
    let build = swap_fields(bestby_bpf::QDISC, ["deadline", "arrived_ns"]);
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(&build).unwrap();
    for mut program in open.progs_mut() {
        program.set_autoload(false);
    }
    for mut map in open.maps_mut() {
        let wanted = map.name() == "bbq_packets";
        map.set_autocreate(wanted).unwrap();
        if wanted {
            map.set_max_entries(entries).unwrap();
        }
    }
    let mut object = open.load().unwrap();
    let mut made = object
        .maps_mut()
        .find(|m| m.name() == "bbq_packets")
        .unwrap();
    made.pin(&packets).unwrap();
}

/// As if another build's agent had attached the interfaces.
fn attached_by_another_build(bpffs: &Path) {
    let kept = MapHandle::from_pinned_path(bpffs.join("bba_ifaces")).unwrap();
    for key in kept.keys() {
        let mut value = kept.lookup(&key, MapFlags::ANY).unwrap().unwrap();
        let name = b"\"object\":\"";
        let at = value.windows(name.len()).position(|w| w == name).unwrap() + name.len();
        value[at] = if value[at] == b'0' { b'1' } else { b'0' };
        kept.update(&key, &value, MapFlags::ANY).unwrap();
    }
}

fn queue_of_another_layout_is_refused_and_left_running(
    lab: &Lab,
    peer: &Netns,
    agent: Agent,
) -> Agent {
    let passes = || {
        let counter = Counter::new(peer, PEER, PORT);
        let pace = Duration::from_millis(1);
        let sent = send_numbered(&lab.netns, (PEER, PORT), 100, pace, |n| n < 20);
        std::thread::sleep(Duration::from_millis(100));
        counter.expect_all(&(0..sent).collect::<Vec<_>>());
    };
    let explained = |said: &str| {
        for part in [
            "bbq_packets",
            "value.arrived_ns",
            "value.deadline",
            "bestby iface detach v0",
            "bestby iface attach v0",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    };
    let attach = json!({"dev": "v0", "rate": "10mbit"});
    let pins = std::fs::read_dir(lab.bpffs.join("iface"));
    let pins = pins.unwrap().next().unwrap().unwrap().path();
    replace_packets(&pins);

    let (status, said) = agent.refused("POST", "/v1/interfaces/v0/upgrade", None);
    assert_eq!(status, 409, "{said}");
    explained(&said);
    assert!(root_qdisc(&lab.netns, "v0").contains("bestby0a"));
    passes();

    // The next agent leaves it alone, too, and says so.
    agent.terminate();
    let agent = Agent::start(lab, &[]);
    explained(&agent.ok("GET", "/v1/doctor", None).to_string());
    assert!(root_qdisc(&lab.netns, "v0").contains("bestby0a"));
    passes();

    // So does one of another build.
    agent.terminate();
    attached_by_another_build(&lab.bpffs);
    let agent = Agent::start(lab, &[]);
    explained(&agent.ok("GET", "/v1/doctor", None).to_string());
    assert!(root_qdisc(&lab.netns, "v0").contains("bestby0a"));
    passes();
    assert_eq!(agent.flow("audio", "packets_sent"), 60);

    // The steps that were named.
    agent.detach("v0");
    agent.attach(attach);
    assert!(root_qdisc(&lab.netns, "v0").contains("bestby0"));
    passes();
    agent
}

fn detach_under_load_accounts_for_every_packet(lab: &Lab, peer: &Netns, agent: Agent) -> Agent {
    at_rate(&agent, "1500kbit");
    let before = dropped_by_device(lab);
    let (sent, seen) = under_load(lab, peer, || {
        assert!(
            agent.flow("audio", "queued") > 0,
            "nothing is queued: the test would prove nothing"
        );
        agent.detach("v0");
    });
    let audio = agent.stats()["flows"]["audio"].clone();
    let count = |name: &str| audio[name].as_u64().unwrap();
    let dropped = drops(&audio, "dropped");
    assert_eq!(count("queued"), 0, "{audio}");
    assert_eq!(
        count("packets_in"),
        count("packets_sent") + dropped,
        "{audio}"
    );
    // Those sent after the detach went untouched and uncounted.
    let missing = sent - dropped - seen.len() as u64;
    let lost = lost_in_changes(lab, before, 1);
    assert!(
        lost.contains(&missing),
        "{missing} packets are missing, the device dropped {lost:?}: {audio}"
    );
    agent
}

fn socket_on_two_cpus_loses_no_packet_and_no_count(lab: &Lab, peer: &Netns, agent: Agent) -> Agent {
    if !require::can(cpu::two()) {
        return agent;
    }
    at_rate(&agent, "20mbit");
    let counter = Counter::new(peer, PEER, PORT);
    let sent = send_on_both(&lab.netns, PORT, 500);
    wait_for("the queue to be empty", || {
        agent.flow("audio", "queued") == 0
    });
    counter.expect_all(&sent);
    for counted in ["packets_in", "packets_sent"] {
        assert_eq!(agent.flow("audio", counted), sent.len() as u64, "{counted}");
    }
    agent
}

fn flood_of_signalling_drops_none_of_another_user(lab: &Lab, peer: &Netns, agent: Agent) -> Agent {
    let counter = Counter::new(peer, PEER, PORT);
    let _flooded = peer.enter(|| UdpSocket::bind((PEER, PORT + 1)).unwrap());
    let ours = lab.netns.enter(|| UdpSocket::bind("10.9.0.1:0").unwrap());
    // More than the queue of 60 holds.
    let flood = || {
        as_nobody(|| {
            for _ in 0..2 {
                let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
                socket.set_nonblocking(true).unwrap();
                for _ in 0..60 {
                    let _ = socket.send_to(&stun(1000), (PEER, PORT + 1));
                }
            }
        });
    };
    for number in 0..5u64 {
        lab.netns.enter(flood);
        let mut packet = stun(100);
        packet[8..16].copy_from_slice(&number.to_ne_bytes());
        ours.send_to(&packet, (PEER, PORT)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_for("an empty queue", || {
        agent.stats()["interfaces"]["v0"]["queued"] == 0
    });
    counter.expect_all(&(0..5).collect::<Vec<_>>());
    let sessions = &agent.stats()["sessions"];
    assert_eq!(drops(&sessions["v0/control/uid-0"], "dropped"), 0);
    let theirs = &sessions["v0/control/uid-65534"];
    assert!(drops(theirs, "dropped") > 0, "no flood: {theirs}");
    agent
}

fn doctor_on_a_kernel_with_bpf_qdiscs_has_no_failed_check(
    _: &Lab,
    _: &Netns,
    agent: Agent,
) -> Agent {
    let doctor = agent.ok("GET", "/v1/doctor", None);
    let checks = doctor["checks"].as_array().unwrap();
    assert!(checks.iter().all(|c| c["status"] != "fail"), "{doctor}");
    assert!(
        checks
            .iter()
            .any(|c| c["name"].as_str().unwrap().starts_with("mode qdisc") && c["status"] == "ok")
    );
    agent
}

/// Qdiscs that somebody chose for the queues below `mq` do not come back: said at attach and at detach.
#[test]
fn chosen_qdiscs_below_mq_are_named_at_attach_and_detach() {
    if !require::can(require::bpf_qdisc()) {
        return;
    }
    lab(|lab| {
        lab.netns.run("ip link add m0 numtxqueues 4 numrxqueues 4 type veth peer name m1 numtxqueues 4 numrxqueues 4");
        lab.netns.run("ip link set m0 up");
        lab.netns.run("ip link set m1 up");
        lab.netns.run("tc qdisc replace dev m0 root handle 7: mq");
        let agent = start(lab, json!({"dev": "m0", "replace": true}));
        let warned = |answer: &serde_json::Value| answer["warnings"].to_string();
        // The kernel's own come back with it.
        assert!(!warned(&agent.detach("m0")).contains("below"));
        assert!(root_qdisc(&lab.netns, "m0").starts_with("qdisc mq 7:"));
        lab.netns
            .run("tc qdisc replace dev m0 parent 7:1 fq limit 777");
        lab.netns
            .run("tc qdisc replace dev m0 parent 7:2 fq limit 778");
        for settings in [
            json!({"dev": "m0", "replace": true}),
            json!({"dev": "m0", "replace": true, "mode": "tc", "rate": "100mbit"}),
        ] {
            lab.netns
                .run("tc qdisc replace dev m0 parent 7:1 fq limit 777");
            lab.netns
                .run("tc qdisc replace dev m0 parent 7:2 fq limit 778");
            let attached = warned(&agent.attach(settings));
            assert!(attached.contains("fq at 7:1, fq at 7:2"), "{attached}");
            let detached = warned(&agent.detach("m0"));
            assert!(detached.contains("fq at 7:1, fq at 7:2"), "{detached}");
        }
    });
}

#[test]
fn each_transmit_queue_of_mq_has_an_instance() {
    if !require::can(require::bpf_qdisc()) {
        return;
    }
    lab(|lab| {
        lab.netns.run("ip link add m0 numtxqueues 4 numrxqueues 4 type veth peer name m1 numtxqueues 4 numrxqueues 4");
        lab.netns.run("ip link set m0 up");
        lab.netns.run("ip link set m1 up");
        let before = root_qdisc(&lab.netns, "m0");
        let agent = start(lab, json!({"dev": "m0"}));
        let qdiscs = lab.netns.run("tc qdisc show dev m0");
        assert_eq!(qdiscs.matches("bestby0a").count(), 4, "{qdiscs}");
        assert!(
            root_qdisc(&lab.netns, "m0").starts_with("qdisc mq bb:"),
            "{qdiscs}"
        );
        agent.ok("POST", "/v1/interfaces/m0/upgrade", None);
        let qdiscs = lab.netns.run("tc qdisc show dev m0");
        assert_eq!(qdiscs.matches("bestby0b").count(), 4, "{qdiscs}");
        assert_eq!(agent.ok("GET", "/v1/interfaces", None)[0]["instances"], 4);
        // With a rate below a CPU's, one queue keeps the order for the whole link.
        agent.attach(json!({"dev": "m0", "rate": "10mbit"}));
        assert_eq!(agent.ok("GET", "/v1/interfaces", None)[0]["instances"], 1);
        assert!(
            root_qdisc(&lab.netns, "m0").contains("bestby"),
            "{}",
            root_qdisc(&lab.netns, "m0")
        );
        agent.detach("m0");
        assert_eq!(root_qdisc(&lab.netns, "m0"), before);
    });
}
