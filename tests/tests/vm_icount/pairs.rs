//! What treatment truncate costs in mode qdisc: a clone of each packet, and its way through the queue.
//!
//! In virtual time: an instruction takes 2 ns.

use std::{fs, net::UdpSocket, os::fd::AsRawFd as _};

use bestby_tests::{
    agent::Agent,
    clock::now_ns,
    netns::{Lab, Netns, linked_lab},
    require,
};
use libbpf_rs::libbpf_sys;
use serde_json::json;

const PORT: u16 = 5004;
const NS_PER_INSTRUCTION: u64 = 2;
/// Instructions that one operation of the queue may take.
const MOST: u64 = 5_000;

fn site(request: serde_json::Value, test: impl FnOnce(&Lab, &Netns, &Agent) + Send) {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(request);
        test(lab, peer, &agent);
    });
}

/// Runs of the loaded program of this name, and how long they took, ns.
fn runs(name: &str) -> (u64, u64) {
    let mut id = 0;
    let mut sum = (0, 0);
    // SAFETY: the structures are plain data, valid for the lengths said, and outlive the calls; the
    // descriptor is ours.
    unsafe {
        while libbpf_sys::bpf_prog_get_next_id(id, &raw mut id) == 0 {
            let fd = libbpf_sys::bpf_prog_get_fd_by_id(id);
            if fd < 0 {
                continue;
            }
            let mut info: libbpf_sys::bpf_prog_info = std::mem::zeroed();
            let mut len = size_of_val(&info) as u32;
            let got = libbpf_sys::bpf_obj_get_info_by_fd(fd, (&raw mut info).cast(), &raw mut len);
            libc::close(fd);
            let is = info.name.map(|c| c as u8);
            if got == 0 && is.starts_with(name.as_bytes()) {
                sum = (sum.0 + info.run_cnt, sum.1 + info.run_time_ns);
            }
        }
    }
    sum
}

#[test]
fn pair_costs_a_bounded_number_of_instructions() {
    site(json!({"dev": "v0", "mode": "qdisc"}), |_, peer, agent| {
        let _receiver = peer.enter(|| UdpSocket::bind(("10.9.0.2", PORT)).unwrap());
        let cost = |treatment: &str| {
            let rule = json!({"name": treatment, "dport": PORT, "lifetime": "10s", "treatment": treatment});
            agent.add(rule);
            let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
            sender.connect(("10.9.0.2", PORT)).unwrap();
            let send = |count: u64| {
                for _ in 0..count {
                    sender.send(&[0; 958]).unwrap();
                }
            };
            send(50); // neighbour, flow and session are found
            let before = now_ns();
            send(500);
            let cost = (now_ns() - before) / 500 / NS_PER_INSTRUCTION;
            agent.ok("DELETE", &format!("/v1/flows/{treatment}"), None);
            cost
        };
        let (alone, pair) = (cost("discard"), cost("truncate"));
        println!("1,000 bytes: {alone} instructions, with its headers {pair}");
        assert!(pair > alone && pair - alone < 8_000, "{alone} {pair}");
    });
}

#[test]
fn stale_pairs_are_swapped_by_several_operations() {
    let request = json!({"dev": "v0", "mode": "qdisc", "rate": "400kbit"});
    site(request, |_, peer, agent| {
        agent
            .add(json!({"name": "a", "dport": PORT, "lifetime": "300ms", "treatment": "truncate"}));
        let receiver = peer.enter(|| UdpSocket::bind(("10.9.0.2", PORT)).unwrap());
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        let big = 16i32 << 20;
        // SAFETY: the option's value is an int of this length.
        let set = unsafe {
            let value = (&raw const big).cast();
            libc::setsockopt(
                sender.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_SNDBUFFORCE,
                value,
                4,
            )
        };
        assert_eq!(set, 0);
        fs::write("/proc/sys/kernel/bpf_stats_enabled", "1").unwrap();
        for _ in 0..200 {
            sender.send_to(&[0; 958], ("10.9.0.2", PORT)).unwrap();
        }
        let mut costs = Vec::new();
        let mut before = runs("bestby_dequeue");
        let count = |of: &str| agent.stats()["flows"]["a"][of].as_u64().unwrap();
        for n in 0.. {
            let after = runs("bestby_dequeue");
            if after.0 > before.0 {
                costs.push((after.1 - before.1) / (after.0 - before.0) / NS_PER_INSTRUCTION);
            }
            before = after;
            if n % 500 == 0 && count("packets_sent") == 200 {
                break;
            }
        }
        drop(receiver);
        let truncated = count("truncated");
        // But for one in 50: interrupts count where they come.
        costs.sort_unstable();
        let most = costs[costs.len() - 1 - costs.len() / 50];
        println!(
            "{truncated} of 200 swapped: dequeue {most}, {} samples",
            costs.len()
        );
        assert!(truncated > 100, "{truncated}");
        assert!(most < MOST, "{costs:?}");
    });
}
