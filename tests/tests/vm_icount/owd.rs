//! The one-way delay is the path's: bulk TCP to the same receiver that waits in our own queue does not make audio stale,
//! and a path that got longer is followed.
//!
//! In virtual time, on one CPU, over a path of 20 ms each way, which netem makes at the far end.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bestby_tests::agent::{Agent, drops};
use bestby_tests::clock::{MS, now_ns};
use bestby_tests::load::PEER;
use bestby_tests::netns::{Lab, Netns, cgroup_root, linked_lab};
use bestby_tests::program::binary;
use bestby_tests::{require, socket};
use serde_json::json;

const AUDIO: u16 = 5004;
const BULK: u16 = 8000;
const LIFETIME_MS: u64 = 200;
const RTT_MS: u64 = 40;
const PACE: Duration = Duration::from_millis(20);
/// Packets of audio beside bulk connections, and when they have ended.
const DURING: u64 = 200;
const AFTER: u64 = 100;

/// An agent that measures the TCP of this test, whose process is in the root cgroup.
fn start(lab: &Lab, mode: &str) -> Agent {
    let socket = lab.dir.join("s");
    let mut command = lab.netns.command(binary("bestbyd"));
    command.arg("--socket").arg(&socket);
    command.arg("--bpffs").arg(&lab.bpffs);
    command.arg("--cgroup").arg(cgroup_root());
    let agent = Agent::spawn(command, socket, lab.dir.join("log"));
    agent.attach(json!({"dev": "v0", "mode": mode, "rate": "2mbit"}));
    agent.add(
        json!({"name": "audio", "proto": "udp", "dport": AUDIO, "lifetime": format!("{LIFETIME_MS}ms"), "priority": 0}),
    );
    agent
}

fn netem(peer: &Netns, verb: &str, rtt_ms: u64) {
    peer.run(&format!(
        "tc qdisc {verb} dev v1 root netem delay {rtt_ms}ms limit 10000"
    ));
}

/// What TCP measured of the path to the receiver, its minimum, ns.
fn min_rtt(agent: &Agent) -> Option<u64> {
    let known = agent.ok("GET", "/v1/sessions", None);
    let peers = known["peers"].as_array().unwrap();
    let peer = peers.iter().find(|p| p["addr"] == PEER.to_string())?;
    peer["rtt"]["min_rtt_ns"].as_u64()
}

/// The owd that the audio's session uses, ns; TCP measured it.
fn owd(agent: &Agent) -> u64 {
    known_owd(agent, "tcp")
}

/// The same, from this source.
fn known_owd(agent: &Agent, source: &str) -> u64 {
    let known = agent.ok("GET", "/v1/sessions", None);
    let sessions = known["sessions"].as_array().unwrap();
    let audio = sessions
        .iter()
        .find(|s| s["kind"] == "dst" && s["addr"] == PEER.to_string())
        .unwrap_or_else(|| panic!("no session: {known}"));
    assert_eq!(audio["owd_source"], source, "{audio}");
    audio["owd_ns"].as_u64().unwrap()
}

/// The far end of any number of connections: reads until they end.
fn sink(peer: &Netns) {
    let listener = peer.enter(|| TcpListener::bind((PEER, BULK)).unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let (mut stream, mut buffer) = (stream.unwrap(), vec![0; 65536]);
                while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
            });
        }
    });
}

/// Sends that many audio packets; counts those that arrive within their lifetime. Calls `look` twice a second.
fn audio(lab: &Lab, peer: &Netns, packets: u64, mut look: impl FnMut()) -> u64 {
    let receiver = peer.enter(|| UdpSocket::bind((PEER, AUDIO)).unwrap());
    receiver
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let counter = thread::spawn(move || {
        let (mut packet, mut on_time) = ([0; 256], 0);
        while receiver.recv(&mut packet).is_ok() {
            let sent = u64::from_ne_bytes(packet[8..16].try_into().unwrap());
            on_time += u64::from(now_ns() - sent <= LIFETIME_MS * MS);
        }
        on_time
    });
    let any = IpAddr::from([0; 4]);
    let socket = lab.netns.enter(|| UdpSocket::bind((any, 0)).unwrap());
    let sender = thread::spawn(move || {
        let (mut packet, start) = ([0xff; 160], now_ns());
        for number in 1..=packets {
            packet[8..16].copy_from_slice(&now_ns().to_ne_bytes());
            socket.send_to(&packet, (PEER, AUDIO)).unwrap();
            let due = start + number * u64::try_from(PACE.as_nanos()).unwrap();
            thread::sleep(Duration::from_nanos(due.saturating_sub(now_ns())));
        }
    });
    while !sender.is_finished() {
        thread::sleep(Duration::from_millis(500));
        look();
    }
    sender.join().unwrap();
    counter.join().unwrap()
}

/// Bulk connections to the audio's receiver while it gets four seconds of it, and two seconds after they ended. Super-packets
/// are another cause of late audio, with tests of their own: where they are not `cut`, only the owd is looked at.
fn beside_bulk(mode: &str, connections: usize, cut: bool) {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        if cut {
            lab.netns.run("ip link set dev v0 gso_max_segs 1");
        }
        netem(peer, "add", RTT_MS);
        let agent = start(lab, mode);
        sink(peer);
        let stop = AtomicBool::new(false);
        let (mut owds, mut during, mut waited) = (Vec::new(), 0, 0);
        let streams: Vec<TcpStream> = (0..connections)
            .map(|_| {
                lab.netns
                    .enter(|| TcpStream::connect((PEER, BULK)).unwrap())
            })
            .collect();
        thread::scope(|scope| {
            for mut stream in streams {
                let stop = &stop;
                scope.spawn(move || {
                    let data = vec![0x55; 16384];
                    stream
                        .set_write_timeout(Some(Duration::from_secs(1)))
                        .unwrap();
                    let end = now_ns() + 60_000 * MS; // if the test fails meanwhile
                    while !stop.load(Ordering::Relaxed) && now_ns() < end {
                        let _ = stream.write(&data);
                    }
                    // What waits unsent is of no use to this test.
                    socket::set(&stream, libc::SOL_SOCKET, libc::SO_LINGER, &[1_i32, 0]).unwrap();
                });
            }
            thread::sleep(Duration::from_secs(3));
            during = audio(lab, peer, DURING, || {
                owds.push(owd(&agent));
                let known = agent.ok("GET", "/v1/sessions", None);
                for p in known["peers"].as_array().unwrap() {
                    waited = waited.max(p["rtt"]["srtt_ns"].as_u64().unwrap_or(0));
                }
            });
            stop.store(true, Ordering::Relaxed);
        });
        let after = audio(lab, peer, AFTER, || owds.push(owd(&agent)));
        println!(
            "{mode}, {connections} connections: audio on time {during} of {DURING}, {after} of {AFTER}; SRTT up to {} ms; owd {owds:?}",
            waited / MS
        );
        assert!(
            waited > (RTT_MS + 10) * MS,
            "nothing waited: the test would prove nothing"
        );
        let path = RTT_MS * MS / 2;
        for owd in owds {
            assert!(
                owd.abs_diff(path) <= path / 5 + 2 * MS,
                "owd {owd} of {path}"
            );
        }
        assert!(
            !cut || during >= DURING - 2,
            "{during} of {DURING} beside bulk"
        );
        assert!(!cut || after >= AFTER - 1, "{after} of {AFTER} after it");
    });
}

#[test]
fn qdisc_one_bulk_connection_costs_no_audio() {
    beside_bulk("qdisc", 1, true);
}

#[test]
fn qdisc_many_bulk_connections_cost_no_audio() {
    beside_bulk("qdisc", 24, true);
}

#[test]
fn tc_one_bulk_connection_costs_no_audio() {
    beside_bulk("tc", 1, true);
}

#[test]
fn tc_many_bulk_connections_cost_no_audio() {
    beside_bulk("tc", 24, true);
}

#[test]
fn qdisc_super_packets_do_not_raise_the_owd() {
    beside_bulk("qdisc", 1, false);
}

#[test]
fn tc_super_packets_do_not_raise_the_owd() {
    beside_bulk("tc", 1, false);
}

/// Answers each STUN request that comes, at once, until nothing comes for a second; how many.
fn answer(far: &UdpSocket) -> u64 {
    far.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let (mut message, mut count) = ([0; 1500], 0);
    while let Ok((length, from)) = far.recv_from(&mut message) {
        if length == 20 {
            message[0] = 1; // a success response
            far.send_to(&message[..20], from).unwrap();
            count += 1;
        }
    }
    count
}

/// The receiver has no TCP. STUN asks before the first packet, as ICE does; then media fill the link and wait, and the
/// next requests come among them.
fn stun_beside_media(mode: &str) {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        netem(peer, "add", RTT_MS);
        let agent = start(lab, mode);
        let far = peer.enter(|| UdpSocket::bind((PEER, AUDIO)).unwrap());
        let responder = thread::spawn(move || answer(&far));
        let any = IpAddr::from([0; 4]);
        let own = lab.netns.enter(|| UdpSocket::bind((any, 0)).unwrap());
        let (mut owds, start) = (Vec::new(), now_ns());
        // 3 Mbit/s of media on 2 Mbit/s.
        for number in 0..1000_u64 {
            if number % 100 == 0 {
                let id: [u8; 8] = number.to_be_bytes();
                let request = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 0, 0, 0, 0][..], &id].concat();
                own.send_to(&request, (PEER, AUDIO)).unwrap();
            }
            own.send_to(&[0xff; 1200], (PEER, AUDIO)).unwrap();
            if number % 100 == 99 {
                owds.push(known_owd(&agent, "stun"));
            }
            let due = start + (number + 1) * 3_200_000;
            thread::sleep(Duration::from_nanos(due.saturating_sub(now_ns())));
        }
        println!("{mode}: owd by STUN {owds:?}");
        assert_eq!(responder.join().unwrap(), 10);
        let path = RTT_MS * MS / 2;
        for owd in owds {
            assert!((path..path + 2 * MS).contains(&owd), "owd {owd} of {path}");
        }
        assert!(drops(&agent.stats()["flows"]["audio"], "dropped") > 0);
    });
}

#[test]
fn qdisc_stun_measures_the_path_beside_media() {
    stun_beside_media("qdisc");
}

#[test]
fn tc_stun_measures_the_path_beside_media() {
    stun_beside_media("tc");
}

#[test]
fn rtt_of_a_changed_path_is_followed() {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        netem(peer, "add", RTT_MS);
        let agent = start(lab, "qdisc");
        let listener = peer.enter(|| TcpListener::bind((PEER, BULK)).unwrap());
        let mut near = lab
            .netns
            .enter(|| TcpStream::connect((PEER, BULK)).unwrap());
        let (mut far, _) = listener.accept().unwrap();
        let mut talk = |ms: u64| {
            let end = now_ns() + ms * MS;
            while now_ns() < end {
                near.write_all(b"x").unwrap();
                far.read_exact(&mut [0]).unwrap();
                far.write_all(b"x").unwrap();
                near.read_exact(&mut [0]).unwrap();
                thread::sleep(Duration::from_millis(100));
            }
        };
        let is = |what: &str, ms: u64| {
            let measured = min_rtt(&agent).unwrap();
            assert!(
                measured.abs_diff(ms * MS) <= 2 * MS,
                "{what}: {measured} ns, not {ms} ms"
            );
        };
        talk(3000);
        is("at first", RTT_MS);
        netem(peer, "change", 3 * RTT_MS);
        talk(9500);
        is("longer", 3 * RTT_MS);
        netem(peer, "change", RTT_MS);
        talk(500);
        is("shorter", RTT_MS);
        // Nothing raises it meanwhile.
        talk(9500);
        is("ten seconds later", RTT_MS);
    });
}
