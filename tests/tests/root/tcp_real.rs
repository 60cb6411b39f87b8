//! TCP-Real on this kernel: negotiation, waves and levels, fallback to Reno, on and off, adoption and upgrade.
//!
//! The peer's namespace sends over 20 Mbit/s, the agent's receives: there each packet is measured at ingress.

use std::fs;
use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

use bestby_netns::wait::Wait;
use bestby_tests::agent::Agent;
use bestby_tests::netns::{Lab, Netns};
use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle};
use nix::sys::socket::AddressFamily;
use serde_json::{Value, json};

use crate::tcp_real_lab::*;

/// Patience with an emulated machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn rate_and_level_are_measured_and_told_in_both_families() {
    with_agent(|lab, peer, agent| {
        // Off: nobody speaks it, and the name does not exist.
        let refused = peer.enter(|| sender(AddressFamily::Inet, REAL).unwrap_err());
        assert_eq!(refused.raw_os_error(), Some(libc::ENOENT));
        assert_eq!(agent.ok("GET", API, None)["on"], Value::Null);

        switch_on(&agent);
        for (number, address) in HERE.into_iter().enumerate() {
            let listener = listen(lab, address);
            let mut pair = connect(lab, peer, &listener, REAL);
            assert_eq!(pair.sends(&agent)["state"], "waiting");
            assert_eq!(count(&agent, "negotiated"), 2 * (number as u64 + 1));
            let mut level = 0;
            pair.transfer(2_000_000, || {
                level = level.max(pair_level(&agent));
            });
            let sends = pair.sends(&agent);
            println!("{address}: greatest level {level}, {sends}");
            assert_eq!(sends["state"], "real", "{sends}");
            assert!(sends["rate_bytes_s"].as_u64() > Some(0), "{sends}");
            let receives = pair.receives(&agent);
            assert_eq!(receives["state"], "receives", "{receives}");
            assert!(receives["receiving_level"].as_u64() >= Some(1));
            // The initial window is five levels.
            assert!(level > 5, "{level}");
        }
        assert!(count(&agent, "measured") > 20);
        assert_eq!(count(&agent, "malformed"), 0);
        let text = agent.request("GET", "/metrics", "").1;
        assert!(
            text.contains("bestby_tcp_real_negotiated_connections_total 4"),
            "{text}"
        );
    });
}

/// The greatest level that anybody was told.
fn pair_level(agent: &Agent) -> u64 {
    let real = agent.ok("GET", API, None);
    let levels = real["connections"].as_array().unwrap().iter();
    levels
        .filter_map(|c| c["level"].as_u64())
        .max()
        .unwrap_or(0)
}

#[test]
fn peer_that_does_not_speak_leaves_plain_reno() {
    with_agent(|lab, peer, agent| {
        // It listened before: its SYN-ACK has no answer.
        let old = listen(lab, HERE[0]);
        let said = switch_on(&agent);
        assert!(said["warnings"][0].as_str().unwrap().contains("listen"));
        let mut pair = connect(lab, peer, &old, REAL);
        let sends = pair.sends(&agent);
        assert_eq!(
            (&sends["state"], &sends["why"]),
            (&json!("plain"), &json!("the other end does not speak it"))
        );
        assert_eq!(pair.receives(&agent), Value::Null);
        pair.transfer(500_000, || ());
        assert_eq!(count(&agent, "measured") + count(&agent, "negotiated"), 0);

        // A socket outside the cgroup offers nothing, and may still choose the congestion control.
        let new = listen(lab, HERE[0]);
        let to = new.local_addr().unwrap();
        let outside = peer.enter(|| connected(to, REAL));
        let (receiver, _) = new.accept().unwrap();
        let mut pair = Pair {
            sender: outside,
            receiver,
        };
        assert_eq!(
            pair.sends(&agent)["why"],
            "no option was offered when it was opened"
        );
        pair.transfer(500_000, || ());
        // Beside it, one that does speak it, by a congestion control of its own.
        let mut pair = connect(lab, peer, &new, "reno");
        pair.transfer(500_000, || ());
        assert_eq!(pair.sends(&agent)["state"], "receives");
    });
}

/// Sends until the sender finds that nothing is told any more: after two windows and 64 segments, and where a slow
/// machine loses nothing, a window has thousands of segments.
fn until_silent(pair: &mut Pair, agent: &Agent) {
    for _ in 0..20 {
        pair.transfer(1_000_000, || ());
        let sends = pair.sends(agent);
        if sends["state"] == "plain" {
            assert_eq!(sends["why"], "the other end stopped speaking it");
            return;
        }
    }
    panic!("20 MB without an option: {}", pair.sends(agent));
}

#[test]
fn connection_whose_options_are_stripped_is_plain_reno() {
    with_agent(|lab, peer, agent| {
        switch_on(&agent);
        let listener = listen(lab, HERE[0]);
        let why = |pair: &Pair| pair.sends(&agent)["why"].as_str().unwrap().to_string();

        // The SYN-ACK's, on its way to the peer: what completes the handshake says so to the agent's end.
        let stripped = middlebox(peer, "v1", &["strip_syn"]);
        let mut pair = connect(lab, peer, &listener, REAL);
        assert_eq!(why(&pair), "the other end does not speak it");
        pair.transfer(500_000, || ());
        assert_eq!(pair.receives(&agent), Value::Null);
        drop(stripped);

        // All that the peer hears after the handshake: it sends, and is told nothing.
        let stripped = middlebox(peer, "v1", &["strip_rest"]);
        let mut pair = connect(lab, peer, &listener, REAL);
        assert_eq!(pair.sends(&agent)["state"], "waiting");
        until_silent(&mut pair, &agent);
        assert_eq!(pair.sends(&agent)["level"], Value::Null);
        drop(stripped);

        // From some time on: it was told, and goes on without.
        let mut pair = connect(lab, peer, &listener, REAL);
        pair.transfer(500_000, || ());
        assert_eq!(pair.sends(&agent)["state"], "real");
        let stripped = middlebox(peer, "v1", &["strip_rest"]);
        until_silent(&mut pair, &agent);
        drop(stripped);

        // A middlebox that drops such SYNs, or such SYN-ACKs: the second one goes without.
        for (netns, dev) in [(&lab.netns, "v0"), (peer, "v1")] {
            let dropped = middlebox(netns, dev, &["strip_syn", "drop"]);
            let mut pair = connect_by_any_syn(lab, peer, &listener, REAL);
            assert_eq!(why(&pair), "the SYN was sent again, without the option");
            pair.transfer(500_000, || ());
            drop(dropped);
        }

        // And with nobody in between it is spoken again.
        let mut pair = connect(lab, peer, &listener, REAL);
        pair.transfer(500_000, || ());
        assert_eq!(pair.sends(&agent)["state"], "real");
    });
}

#[test]
fn switching_off_leaves_reno_and_nothing_registered() {
    with_agent(|lab, peer, agent| {
        let available = || {
            let names = "/proc/sys/net/ipv4/tcp_available_congestion_control";
            let names = lab.netns.run(&format!("cat {names}"));
            names.split_whitespace().any(|name| name == REAL)
        };
        let pins = lab.bpffs.join("real");
        switch_on(&agent);
        assert!(available() && pins.join("ops").exists());
        assert_eq!(agent.complaints("TCP-Real"), [""; 0]);
        let listener = listen(lab, HERE[0]);
        let mut pair = connect(lab, peer, &listener, REAL);
        pair.transfer(500_000, || ());
        assert_eq!(pair.sends(&agent)["state"], "real");

        let mut switched = false;
        pair.transfer(1_000_000, || {
            if !switched {
                agent.ok("DELETE", API, None);
                switched = true;
            }
        });
        assert!(!available() && !pins.exists());
        assert_eq!(agent.ok("GET", API, None)["connections"], json!([]));
        let refused = peer.enter(|| sender(AddressFamily::Inet, REAL).unwrap_err());
        assert_eq!(refused.raw_os_error(), Some(libc::ENOENT));
        // Off twice is off.
        agent.ok("DELETE", API, None);
        // The connection that is left has its programs, which are Reno's now.
        assert_eq!(congestion_control(&pair.sender), REAL);
        pair.transfer(1_000_000, || ());
        let mut plain = connect(lab, peer, &listener, "reno");
        plain.transfer(500_000, || ());

        // On again beside it.
        switch_on(&agent);
        let listener = listen(lab, HERE[0]);
        let mut again = connect(lab, peer, &listener, REAL);
        again.transfer(500_000, || ());
        assert_eq!(again.sends(&agent)["state"], "real");
        assert_eq!(pair.sends(&agent), Value::Null);
        pair.transfer(500_000, || ());
    });
}

/// Number of the link of the congestion control: another one was registered anew.
fn ops(lab: &Lab) -> u32 {
    let link = Link::open(lab.bpffs.join("real/ops")).unwrap();
    link.info().unwrap().id
}

#[test]
fn killed_agent_leaves_it_on_and_the_next_one_adopts_or_upgrades_it() {
    with_agent(|lab, peer, agent| {
        switch_on(&agent);
        let listener = listen(lab, HERE[0]);
        let mut pair = connect(lab, peer, &listener, REAL);
        pair.transfer(500_000, || ());
        let registered = ops(lab);
        agent.kill();
        pair.transfer(500_000, || ());

        let agent = Agent::start(lab, &[]);
        assert_eq!(ops(lab), registered);
        assert_eq!(pair.sends(&agent)["state"], "real");
        let measured = count(&agent, "measured");
        pair.transfer(500_000, || ());
        assert!(count(&agent, "measured") > measured);
        agent.kill();

        // As if another version had loaded it: its programs are replaced, its connections stay.
        let kept = MapHandle::from_pinned_path(lab.bpffs.join("real/bba_real")).unwrap();
        let key = kept.keys().next().unwrap();
        let mut value = kept.lookup(&key, MapFlags::ANY).unwrap().unwrap();
        let text = String::from_utf8_lossy(&value).into_owned();
        let at = text.find("\"object\":\"").unwrap() + "\"object\":\"".len();
        value[at] = if value[at] == b'0' { b'1' } else { b'0' };
        kept.update(&key, &value, MapFlags::ANY).unwrap();
        let agent = Agent::start(lab, &[]);
        assert_eq!(ops(lab), registered);
        assert_eq!(pair.sends(&agent)["state"], "real");
        let measured = count(&agent, "measured");
        pair.transfer(500_000, || ());
        assert!(count(&agent, "measured") > measured);
        assert_eq!(agent.complaints("TCP-Real"), [""; 0]);

        // Mode and levels change without a new load.
        let paper = json!({"mode": "paper", "max_level": 6});
        agent.ok("PUT", API, Some(paper));
        assert_eq!(ops(lab), registered);
        pair.transfer(2_000_000, || ());
        let sends = pair.sends(&agent);
        assert!(sends["cwnd"].as_u64() <= Some(12), "{sends}");
    });
}

#[test]
fn pins_that_vanished_are_made_again_by_on() {
    with_agent(|lab, _, agent| {
        switch_on(&agent);
        // As if somebody had unmounted bpffs: with the pins go links and name, as soon as the kernel gets round to it.
        let slow = Link::open(lab.bpffs.join("real/ops")).unwrap();
        // Again if the agent, which follows interfaces, has made their pins anew meanwhile.
        let real = lab.bpffs.join("real");
        let mut wait = Wait::new(Duration::from_secs(10));
        while let Err(e) = fs::remove_dir_all(&real) {
            assert!(
                e.kind() == ErrorKind::DirectoryNotEmpty && wait.pause(),
                "{e}"
            );
        }
        let (status, body) = agent.request("GET", API, "");
        assert!(status >= 400 && body.contains("tcp-real on"), "{body}");
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(300));
                drop(slow);
            });
            switch_on(&agent);
        });
        assert_eq!(agent.ok("GET", API, None)["on"]["mode"], "guarded");
        let registered = ops(lab);
        // The agent loads nothing again that is whole.
        switch_on(&agent);
        assert_eq!(ops(lab), registered);
    });
}

#[test]
fn wrong_requests_and_a_second_agent_are_refused() {
    with_agent(|lab, _, agent| {
        for (body, status, says) in [
            (json!({"mode": "fast"}), 400, "guarded or paper"),
            (json!({"max_level": 0}), 400, "1 to 127"),
            (json!({"max_level": 128}), 400, "1 to 127"),
            (json!({"levels": 3}), 400, "levels"),
            (json!({"cgroup": "/no-such-cgroup"}), 404, "no-such-cgroup"),
        ] {
            let (is, said) = agent.refused("PUT", API, Some(body.clone()));
            assert!(is == status && said.contains(says), "{body}: {is} {said}");
        }
        assert_eq!(agent.ok("GET", API, None)["on"], Value::Null);
        assert!(!lab.bpffs.join("real").exists());

        switch_on(&agent);
        // What is refused changes nothing.
        agent.refused("PUT", API, Some(json!({"cgroup": "/no-such-cgroup"})));
        assert_eq!(agent.ok("GET", API, None)["on"]["mode"], "guarded");
        let other = Lab {
            dir: lab.dir.join("other"),
            bpffs: lab.bpffs.with_file_name("other"),
            cgroup: lab.cgroup.clone(),
            netns: Netns::current(),
        };
        fs::create_dir(&other.dir).unwrap();
        let second = Agent::start(&other, &[]);
        let (status, said) = second.refused("PUT", API, Some(json!({})));
        assert!(status == 409 && said.contains("another bestbyd"), "{said}");
        assert!(!other.bpffs.join("real").exists());
        assert_eq!(agent.complaints("TCP-Real"), [""; 0]);
    });
}

#[test]
fn interface_that_comes_is_measured_at() {
    with_agent(|lab, _, agent| {
        switch_on(&agent);
        let interfaces = || agent.ok("GET", API, None)["interfaces"].as_u64().unwrap();
        let before = interfaces();
        lab.netns.run("ip link add late0 type veth peer name late1");
        let until = |wanted: u64| {
            let mut wait = Wait::new(PATIENCE);
            while interfaces() != wanted {
                assert!(wait.pause(), "{} of {wanted}", interfaces());
            }
        };
        until(before + 2);
        lab.netns.run("ip link del late0");
        until(before);
    });
}
