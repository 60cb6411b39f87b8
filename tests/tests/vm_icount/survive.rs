//! A day of an agent, and a million flows: nothing grows, no counter goes back, and what came in was sent, dropped, or
//! is queued. Virtual time skips what is idle, so that a day takes an hour or two.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use bestby_tests::agent::{Agent, drops};
use bestby_tests::clock::{SECOND, now_ns};
use bestby_tests::frame::rtp;
use bestby_tests::netns::{Lab, Netns, linked_lab};
use bestby_tests::{long, require};
use serde_json::{Value, json};

/// Receivers; a session each.
const RECEIVERS: u64 = 200;
/// Sockets of the sender, so that a million flows differ in their ports.
const SOCKETS: u64 = 32;
/// Bytes of a frame on the link: RTP of 172 bytes.
const FRAME: u64 = 214;
/// How often all of it is looked at.
const LOOKS: u64 = 10;

/// Receivers that the peer takes packets for, and drops them.
fn receivers(lab: &Lab, peer: &Netns) {
    let link = peer.run("ip -o link show v1");
    let mut words = link.split_whitespace();
    let address = words
        .find(|w| *w == "link/ether")
        .and(words.next())
        .unwrap();
    for n in 0..RECEIVERS {
        lab.netns.run(&format!(
            "ip neigh replace 10.9.0.{} lladdr {address} dev v0 nud permanent",
            n + 10
        ));
    }
}

/// What may not grow: memory of the agent (KiB), its descriptors, memory of the maps that it has open (bytes).
fn sizes(agent: &Agent) -> [u64; 3] {
    let of = |what: &str| format!("/proc/{}/{what}", agent.pid());
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let number = |text: &str, name: &str| -> Option<u64> {
        let line = text.lines().find(|l| l.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let open: Vec<String> = std::fs::read_dir(of("fdinfo"))
        .unwrap()
        .map(|fd| read(fd.unwrap().path().to_str().unwrap()))
        .collect();
    let maps = open.iter().filter(|fd| fd.contains("map_id:"));
    [
        number(&read(&of("status")), "VmRSS:").unwrap(),
        open.len() as u64,
        maps.filter_map(|fd| number(fd, "memlock:")).sum(),
    ]
}

/// All counters of the interface and of each rule, and their sums that only grow.
fn conserved(stats: &Value) -> Vec<u64> {
    let rules = stats["flows"].as_object().unwrap().iter();
    let v0 = [("v0", &stats["interfaces"]["v0"])];
    let all = rules.map(|(name, c)| (name.as_str(), c)).chain(v0);
    all.flat_map(|(name, counters)| {
        let count = |which: &str| counters[which].as_u64().unwrap();
        let dropped = drops(counters, "dropped");
        assert_eq!(
            count("packets_in"),
            count("packets_sent") + dropped + count("queued"),
            "{name}: {counters}"
        );
        [count("packets_in"), count("packets_sent"), dropped]
    })
    .collect()
}

#[test]
fn day_of_a_million_flows_grows_nothing() {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let (seconds, flows) = long::run((120, 12_000), (86_400, 1_000_000));
        receivers(lab, peer);
        let agent = Agent::start(lab, &[]);
        // What comes in a second takes 400 ms to leave: some of it is late.
        let rate = flows / seconds * FRAME * 8 * 5 / 2;
        agent.attach(json!({"dev": "v0", "rate": format!("{rate}bit")}));
        agent.add(json!({"name": "video", "dport": "1-40000", "lifetime": "200ms"}));
        let sockets: Vec<UdpSocket> = lab.netns.enter(|| {
            (0..SOCKETS)
                .map(|_| UdpSocket::bind("10.9.0.1:0").unwrap())
                .collect()
        });
        let start = now_ns();
        let (mut sent, mut seen, mut first) = (0_u64, Vec::new(), None);
        for second in 0..seconds {
            // All of a second at once.
            while sent < flows * (second + 1) / seconds {
                let port = u16::try_from(1 + sent / SOCKETS % 60_000).unwrap();
                let receiver = 10 + u8::try_from(sent % RECEIVERS).unwrap();
                let to = SocketAddr::from(([10, 9, 0, receiver], port));
                let packet = rtp(sent as u32, sent as u32 * 90, true);
                let socket = &sockets[(sent % SOCKETS) as usize];
                // A full queue is what drops are for.
                let _ = socket.send_to(&packet, to);
                sent += 1;
            }
            let due = start + (second + 1) * SECOND;
            std::thread::sleep(Duration::from_nanos(due.saturating_sub(now_ns())));
            if (second + 1) % (seconds / LOOKS) != 0 {
                continue;
            }
            let stats = agent.stats();
            let now = conserved(&stats);
            let more = now.iter().zip(&seen).all(|(now, seen)| now >= seen);
            assert!(more, "{seen:?}, then {now:?}");
            seen = now;
            let size = sizes(&agent);
            println!(
                "{} s, {sent} flows: {} KiB, {} descriptors, {} bytes of maps; {}",
                second + 1,
                size[0],
                size[1],
                size[2],
                stats["interfaces"]["v0"]
            );
            let Some(first) = first else {
                first = Some(size);
                continue;
            };
            // What an allocator keeps back and how many workers wait differ by a little.
            let [memory, descriptors, maps] = first;
            assert!(
                size[0] < memory + memory / 8,
                "KiB: {memory}, then {}",
                size[0]
            );
            assert!(
                size[1] <= descriptors + 2,
                "descriptors: {descriptors}, then {}",
                size[1]
            );
            assert_eq!(size[2], maps, "bytes of maps");
        }
        let v0 = &agent.stats()["interfaces"]["v0"];
        let came = v0["packets_in"].as_u64().unwrap();
        assert!(came >= sent, "{came} of {sent}");
        assert!(drops(v0, "dropped") > 0, "nothing was late: {v0}");
        assert!(agent.complaints("interface").is_empty());
    });
}
