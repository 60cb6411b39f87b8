//! A clock that is set under an agent. It is the whole kernel's: run in the VM (`just test-vm`).

use std::time::Duration;

use bestby_bpf::abi::bb_config;
use bestby_tests::agent::*;
use bestby_tests::clock::{SECOND, clock_ns};
use bestby_tests::load::Load;
use bestby_tests::netns::{Lab, linked_lab};
use bestby_tests::require;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use serde_json::json;
use zerocopy::FromBytes as _;

const PORT: u16 = 5004;

/// Sets the time of day, s since 1970.
fn set_clock(seconds: u64) {
    let time = libc::timespec {
        tv_sec: i64::try_from(seconds).unwrap(),
        tv_nsec: 0,
    };
    // SAFETY: a valid pointer to a time.
    let set = unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const time) };
    assert_eq!(set, 0);
}

/// As an NTP client that found its server, exact to 1 ms.
fn discipline() {
    // SAFETY: plain numbers, and a valid pointer to them.
    let state = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        timex.modes = libc::ADJ_STATUS | libc::ADJ_MAXERROR | libc::ADJ_ESTERROR;
        (timex.maxerror, timex.esterror) = (1_000, 1_000);
        libc::adjtimex(&raw mut timex)
    };
    assert!(state >= 0);
}

/// Whether the kernel side believes deadlines in UTC.
fn believed(lab: &Lab) -> bool {
    let map = MapHandle::from_pinned_path(lab.bpffs.join("bb_config")).unwrap();
    let config = map.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
    bb_config::read_from_bytes(&config).unwrap().clock_until_ns != 0
}

/// Time that a process had on a CPU, ticks of 10 ms.
fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11..13]
        .iter()
        .map(|n| n.parse::<u64>().unwrap())
        .sum()
}

#[test]
fn clock_set_far_forth_and_back_loses_no_packet() {
    linked_lab(require::root(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "50mbit"}));
        agent.add(json!({"name": "audio", "dport": PORT, "lifetime": "5s"}));
        let now = clock_ns(libc::CLOCK_REALTIME) / SECOND;
        let load = Load {
            port: PORT,
            size: 200,
            pace: Duration::from_millis(5),
            least: 50,
            around: Duration::from_millis(100),
        };
        let day = 86_400;
        let (sent, counter) = load.during(&lab.netns, peer, || {
            // The year 2200 is later than 32 bits of seconds.
            for to in [now + day, now - 365 * day, now + 1, now + 174 * 365 * day] {
                discipline();
                wait_for("the clock to be believed", || believed(lab));
                // The kernel forgets that it was disciplined, and so must we.
                set_clock(to);
                wait_for("the clock to be believed no more", || !believed(lab));
                assert!(!agent.complaints("clock").is_empty());
            }
        });
        assert_eq!(counter.finish(), (0..sent).collect::<Vec<_>>());
        for counted in ["packets_in", "packets_sent"] {
            assert_eq!(agent.flow("audio", counted), sent, "{counted}");
        }
        // Nothing spins because it is late.
        let before = ticks(agent.pid());
        std::thread::sleep(Duration::from_secs(4));
        let used = ticks(agent.pid()) - before;
        assert!(used < 300, "{used} ticks in four seconds");
        set_clock(now + 60);
        agent.detach("v0");
    });
}
