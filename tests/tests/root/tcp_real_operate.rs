//! TCP-Real as an operator changes it while it runs, through NAT and with many connections.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bestby_netns::wait::Wait;
use bestby_tests::agent::{Agent, command, file, path_str, start_refused, wait_for};
use bestby_tests::netns::{Netns, cgroup_root, linked_lab};
use bestby_tests::program::binary;
use bestby_tests::require;
use libbpf_rs::{MapCore as _, MapHandle};
use serde_json::{Value, json};

use crate::tcp_real_lab::*;

/// Patience with an emulated machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn reload_follows_the_file_and_refuses_a_bad_one_whole() {
    linked_lab(require::root(), |lab, _| {
        let path = file(lab, "bestby.toml", "[tcp_real]\nmode = \"fast\"\n");
        let said = start_refused(command(lab, &["--config", path_str(&path)]));
        assert!(said.contains("guarded or paper"), "{said}");
        assert!(!lab.bpffs.join("real").exists());

        std::fs::write(&path, "[tcp_real]\n").unwrap();
        let agent = Agent::start(lab, &["--config", path_str(&path)]);
        let on = || agent.ok("GET", API, None)["on"].clone();
        assert_eq!(
            (&on()["mode"], &on()["max_level"]),
            (&json!("guarded"), &json!(24))
        );
        let reload = |text: &str| {
            std::fs::write(&path, text).unwrap();
            agent.signal(libc::SIGHUP);
        };
        reload("[tcp_real]\nmode = \"paper\"\nmax_level = 6\n");
        wait_for("the other mode", || {
            on()["mode"] == "paper" && on()["max_level"] == 6
        });

        // Of a bad file nothing is in force, wherever it is bad.
        for (bad, says) in [
            ("[tcp_real]\nmax_level = 128\n", "1 to 127"),
            ("[tcp_real]\nlevels = 3\n", "levels"),
            (
                "[tcp_real]\nmax_level = 7\n\n[[flow]]\nname = \"a\"\nlifetime = \"100 parsecs\"\n",
                "parsecs",
            ),
        ] {
            reload(bad);
            wait_for("a complaint", || agent.log().contains(says));
            assert_eq!(
                (&on()["mode"], &on()["max_level"]),
                (&json!("paper"), &json!(6))
            );
        }

        reload("");
        wait_for("off", || on().is_null());
        assert!(!lab.bpffs.join("real").exists());
        // What the operator switched on stays, whatever the file does not say.
        switch_on(&agent);
        reload("# nothing\n[[flow]]\nname = \"b\"\nlifetime = \"1ms\"\n");
        wait_for("the rule", || {
            agent.call("GET", "/v1/flows/b", None).0 == 200
        });
        assert_eq!(on()["mode"], "guarded");
    });
}

#[test]
fn another_cgroup_takes_over_and_connections_of_the_first_one_go_on() {
    with_agent(|lab, peer, agent| {
        let other = cgroup_root().join(format!(
            "{}-other",
            lab.cgroup.file_name().unwrap().to_str().unwrap()
        ));
        std::fs::create_dir(&other).unwrap();
        let name = format!("/{}", other.strip_prefix(cgroup_root()).unwrap().display());
        switch_on(&agent);
        let listener = listen(lab, HERE[0]);
        let mut pair = connect(lab, peer, &listener, REAL);
        pair.transfer(500_000, || ());
        assert_eq!(pair.sends(&agent)["state"], "real");
        agent.ok("PUT", API, Some(json!({ "cgroup": name })));
        let text = agent.ok("GET", API, None)["cgroup"].to_string();
        assert!(text.contains("-other"), "{text}");

        // No program writes its options any more: it is Reno, and all of it arrives.
        pair.transfer(2_000_000, || ());
        let sends = pair.sends(&agent);
        assert_eq!(sends["state"], "plain", "{sends}");
        // New ones of the first cgroup offer nothing, those of the other one do.
        let new = listen(lab, HERE[0]);
        let mut old = connect(lab, peer, &new, REAL);
        old.transfer(100_000, || ());
        assert_eq!(
            old.sends(&agent)["why"],
            "no option was offered when it was opened"
        );
        let listener = in_cgroup(&other, || TcpListener::bind((HERE[0], 0)).unwrap());
        let to = listener.local_addr().unwrap();
        let sender = in_cgroup(&other, || peer.enter(|| connected(to, REAL)));
        let (receiver, _) = listener.accept().unwrap();
        let mut pair = Pair { sender, receiver };
        pair.transfer(500_000, || ());
        assert_eq!(pair.sends(&agent)["state"], "real");
        drop(agent);
        let _ = std::fs::remove_dir(&other);
    });
}

/// A namespace behind the peer's, which hides it behind an address of its own and lets in only what it tracks.
fn behind_nat(peer: &Netns) -> Netns {
    let far = Netns::new();
    far.link("f0", "10.9.8.2/24", peer, "p0", "10.9.8.1/24");
    far.run("ip link set dev f0 gso_max_segs 1");
    far.run("ip route add default via 10.9.8.1");
    peer.enter(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    for rule in [
        "add table ip n",
        "add chain ip n post { type nat hook postrouting priority 100 ; }",
        "add rule ip n post oifname v1 masquerade",
        "add chain ip n forward { type filter hook forward priority 0 ; policy drop ; }",
        "add rule ip n forward ct state established,related accept",
        "add rule ip n forward iifname p0 oifname v1 ct state new accept",
    ] {
        peer.run(&format!("nft {rule}"));
    }
    far
}

#[test]
fn connection_through_nat_and_tracking_is_real_whatever_becomes_of_its_segments_size() {
    with_agent(|lab, peer, agent| {
        let far = behind_nat(peer);
        switch_on(&agent);
        let listener = listen(lab, HERE[0]);
        let mut pair = connect(lab, &far, &listener, REAL);
        // Its address is another one at this end.
        assert_eq!(
            pair.receiver.peer_addr().unwrap().ip().to_string(),
            "10.9.0.2"
        );
        assert_eq!(
            pair.sender.local_addr().unwrap().ip().to_string(),
            "10.9.8.2"
        );
        pair.transfer(500_000, || ());
        let sends = pair.sends(&agent);
        // Ethernet's 1500 less headers and timestamps.
        assert_eq!(
            (&sends["state"], &sends["mss"]),
            (&json!("real"), &json!(1500 - 40 - 12))
        );
        let tracked = peer.run("nft list table ip n");
        assert!(tracked.contains("masquerade"), "{tracked}");

        // The path's MTU shrinks under it: the router says so, and tracking lets that through.
        lab.netns.run("ip link set dev v0 mtu 1200");
        peer.run("ip link set dev v1 mtu 1200");
        pair.transfer(500_000, || ());
        let sends = pair.sends(&agent);
        assert_eq!(
            (&sends["state"], &sends["mss"]),
            (&json!("real"), &json!(1200 - 40 - 12))
        );

        // The router clamps what new connections ask for.
        peer.run("nft flush chain ip n forward");
        peer.run("nft add rule ip n forward tcp flags syn tcp option maxseg size set 900");
        peer.run("nft add rule ip n forward accept");
        let mut pair = connect(lab, &far, &listener, REAL);
        pair.transfer(500_000, || ());
        let sends = pair.sends(&agent);
        assert_eq!(
            (&sends["state"], &sends["mss"]),
            (&json!("real"), &json!(900 - 12))
        );

        // A router that takes away what it does not know leaves plain TCP.
        peer.run("nft insert rule ip n forward tcp flags syn reset tcp option 253");
        let mut pair = connect(lab, &far, &listener, REAL);
        pair.transfer(500_000, || ());
        assert_eq!(pair.sends(&agent)["why"], "the other end does not speak it");
    });
}

#[test]
fn ten_thousand_connections_are_listed_up_to_a_bound_and_all_freed() {
    // Both ends are files of this process, which often may have 20,000.
    const CONNECTIONS: usize = 9_900;
    let mut most = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls are given a structure that is valid while they run.
    let set = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut most);
        most.rlim_cur = most.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const most)
    };
    assert_eq!(set, 0);
    with_agent(|lab, peer, agent| {
        switch_on(&agent);
        let listener = listen(lab, HERE[0]);
        let to: SocketAddr = listener.local_addr().unwrap();
        let began = Instant::now();
        let ends: Vec<[TcpStream; 2]> = in_cgroup(&lab.cgroup, || {
            peer.enter(|| {
                (0..CONNECTIONS)
                    .map(|_| [connected(to, "reno"), listener.accept().unwrap().0])
                    .collect()
            })
        });
        println!("connected in {:?}", began.elapsed());
        let list = || {
            let began = Instant::now();
            let real = agent.ok("GET", API, None);
            let listed = real["connections"].as_array().unwrap().len();
            let more = real["more"].as_u64().unwrap();
            println!("{listed} listed, {more} more, {:?}", began.elapsed());
            (listed, more)
        };
        // Both ends are this kernel's.
        assert_eq!(count(&agent, "negotiated"), 2 * CONNECTIONS as u64);
        assert_eq!(list(), (16_384, 2 * CONNECTIONS as u64 - 16_384));
        let ls = lab
            .netns
            .command(binary("bestby"))
            .arg("--socket")
            .arg(&agent.socket)
            .args(["tcp-real", "ls"])
            .output()
            .unwrap();
        let ls = String::from_utf8(ls.stdout).unwrap();
        assert!(ls.lines().count() > 16_384);
        assert!(
            ls.contains("3416 more connections are not listed"),
            "{}",
            ls.len()
        );
        let id = MapHandle::from_pinned_path(lab.bpffs.join("real/bb_real_conns"))
            .unwrap()
            .info()
            .unwrap()
            .info
            .id;

        drop(ends);
        drop(listener);
        let mut wait = Wait::new(PATIENCE);
        while list() != (0, 0) {
            assert!(wait.pause(), "connections are left");
        }
        // The map is gone with the last user.
        assert!(MapHandle::from_map_id(id).is_ok());
        agent.ok("DELETE", API, None);
        let mut wait = Wait::new(PATIENCE);
        while MapHandle::from_map_id(id).is_ok() {
            assert!(wait.pause(), "the map is left");
        }
        assert_eq!(agent.ok("GET", API, None)["on"], Value::Null);
    });
}
