//! A device that pushes back, in the kernel: what the agent shows of its rate.
//!
//! In virtual time, so that the line below keeps its rate.

use std::{
    io::Read as _,
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use bestby_tests::{
    agent::Agent,
    clock::{MS, SECOND, now_ns},
    netns::lab,
};
use serde_json::{Value, json};

use crate::qdisc_lab::sleep_until;

/// bytes/s.
const RATE: u64 = 31_625;
const DATAGRAM: usize = 972;
/// IPv4 and UDP.
const HEADERS: usize = 28;

#[test]
fn rate_of_a_device_that_pushes_back_is_seen_and_shown() {
    lab(|lab| {
        let file = lab
            .netns
            .enter(|| bestby_netns::tun::open("tn0", true).unwrap());
        lab.netns.run("ip addr add 10.9.0.1 peer 10.9.0.2 dev tn0");
        lab.netns.run("ip link set tn0 txqueuelen 1 up");
        let agent = Agent::start(lab, &[]);
        let done = agent.attach(json!({ "dev": "tn0", "mode": "qdisc" }));
        assert!(
            done["warnings"].to_string().contains("holds no queue"),
            "{done}"
        );
        let device = || agent.ok("GET", "/v1/interfaces", None)[0]["device"].clone();
        assert_eq!(device(), Value::Null);
        let socket = lab.netns.enter(|| UdpSocket::bind("10.9.0.1:0").unwrap());
        socket.connect("10.9.0.2:5004").unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut file, mut buffer, mut free) = (&file, [0; 2_048], 0);
                while !stop.load(Ordering::Acquire) {
                    let bytes = file.read(&mut buffer).unwrap() as u64;
                    free = now_ns().max(free) + bytes * SECOND / RATE;
                    sleep_until(free);
                }
            });
            // Half as much again as the line takes.
            let start = now_ns();
            for n in 0..150 {
                sleep_until(start + n * 20 * MS);
                let _ = socket.send(&[0; DATAGRAM]);
            }
            stop.store(true, Ordering::Release);
            // The line waits for a packet.
            let _ = socket.send(&[0; DATAGRAM]);
        });
        let shown = device();
        let rate: bestby_api::Rate = shown["rate"].as_str().unwrap().parse().unwrap();
        let seen = rate.bytes_per_s() as f64;
        println!(
            "{shown}: {seen} bytes/s of {RATE}, packets of {} bytes",
            DATAGRAM + HEADERS
        );
        assert!((seen / RATE as f64 - 1.0).abs() < 0.05, "{shown}");
        assert_eq!(agent.complaints("holds no queue"), Vec::<String>::new());
    });
}
