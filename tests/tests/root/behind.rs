//! Where nothing can wait in this host, and where packets wait instead, an operator is told.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use bestby_tests::{
    agent::{Agent, wait_for},
    netns::{Netns, lab},
};
use serde_json::{Value, json};

/// A router with 1 Mbit/s and a FIFO of a third of a second between v0 of `here` and the receiver.
fn behind_a_fifo(here: &Netns) -> [Netns; 2] {
    let [router, far] = [Netns::new(), Netns::new()];
    here.link("v0", "10.9.0.1/24", &router, "r0", "10.9.0.254/24");
    router.link("r1", "10.9.1.254/24", &far, "c0", "10.9.1.2/24");
    router.enter(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    here.run("ip route add default via 10.9.0.254");
    far.run("ip route add default via 10.9.1.254");
    router.run("tc qdisc add dev r1 root tbf rate 1mbit burst 1600 limit 40000");
    [router, far]
}

fn interface(agent: &Agent) -> Value {
    agent.ok("GET", "/v1/interfaces", None)[0].clone()
}

#[test]
fn queue_that_stands_elsewhere_is_told_and_so_is_that_none_is_held_here() {
    lab(|lab| {
        let [_router, far] = behind_a_fifo(&lab.netns);
        let agent = Agent::start(lab, &[]);
        let no_queue = "v0 holds no queue: no rate is known, and the device has not pushed back";
        let done = agent.attach(json!({ "dev": "v0", "mode": "tc" }));
        assert!(done["warnings"].to_string().contains(no_queue), "{done}");
        assert!(agent.complaints("holds no queue")[0].contains(no_queue));
        assert_eq!(interface(&agent)["device"], Value::Null);

        let listener = far.enter(|| TcpListener::bind("10.9.1.2:7000").unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 65_536];
            while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
        });
        let mut stream = lab
            .netns
            .enter(|| TcpStream::connect("10.9.1.2:7000").unwrap());
        // The path is empty, and its round trip known.
        for _ in 0..30 {
            stream.write_all(b"x").unwrap();
            thread::sleep(Duration::from_millis(50));
        }
        let waits = || agent.complaints("queue elsewhere");
        assert_eq!(waits(), Vec::<String>::new());
        stream.set_nonblocking(true).unwrap();
        wait_for("a queue behind this host", || {
            // Keeps the FIFO full.
            while (&stream).write(&[0; 16_384]).is_ok() {}
            waits().iter().any(|detail| detail.contains("10.9.1.2"))
        });
        let sessions = agent.ok("GET", "/v1/sessions", None);
        let behind = sessions["sessions"].as_array().unwrap().iter();
        let longest = behind.filter_map(|s| s["queue_behind_ns"].as_u64()).max();
        assert!(
            longest.is_some_and(|ns| ns > 50_000_000),
            "{longest:?}: {sessions}"
        );

        // With a rate a queue is held here.
        agent.ok(
            "PUT",
            "/v1/interfaces/v0",
            Some(json!({ "dev": "v0", "rate": "900kbit" })),
        );
        assert_eq!(agent.complaints("holds no queue"), Vec::<String>::new());
        drop(stream);
        server.join().unwrap();
    });
}
