//! How many queues an interface gets in mode qdisc, and what memory they may take.
//!
//! Needs CONFIG_NET_SCH_BPF: run in the VM (`just test-vm`).

use std::{fs::File, os::fd::AsRawFd as _};

use bestby_tests::{
    agent::{Agent, command},
    netns::{Lab, linked_lab, shell},
    require,
};
use serde_json::{Value, json};

/// An agent that sees the devices of its network namespace in /sys, as a service of a host does.
fn agent(lab: &Lab) -> Agent {
    const SCRIPT: &str = "dir=$(mktemp -d); mount -t sysfs sysfs $dir
        mount --bind $dir/devices /sys/devices; mount --bind $dir/class /sys/class; exec \"$@\"";
    let inner = command(lab, &[]);
    let mut outer = lab.netns.command("unshare");
    outer
        .args(["--mount", "sh", "-euc", SCRIPT, "sh"])
        .arg(inner.get_program())
        .args(inner.get_args());
    Agent::spawn(outer, lab.dir.join("s"), lab.dir.join("log"))
}

/// One more queue of the multi-queue device `name`, which is there as long as it has one. Such a device has 256
/// transmit queues allocated, and sends by as many as are open.
fn tun_queue(name: &str) -> File {
    let file = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .unwrap();
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_MULTI_QUEUE) as i16;
    // SAFETY: TUNSETIFF reads and writes an ifreq; `request` outlives the call.
    let set = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    file
}

/// Queues of an attached interface, and the memory they take, MiB.
fn queues(agent: &Agent, dev: &str) -> (u64, u64) {
    let all = agent.ok("GET", "/v1/interfaces", None);
    let is_it = |i: &&Value| i["dev"] == dev;
    let it = all.as_array().unwrap().iter().find(is_it);
    let of = |name: &str| it.unwrap()[name].as_u64().unwrap();
    (of("instances"), of("memory_bytes") >> 20)
}

#[test]
fn interface_has_a_queue_for_each_transmit_queue_in_use_not_for_each_allocated_one() {
    linked_lab(require::bpf_qdisc(), |lab, _| {
        shell("modprobe tun");
        let first = tun_queue("t0");
        shell("ip addr add 10.8.0.1 peer 10.8.0.2 dev t0; ip link set t0 up");
        let agent = agent(lab);
        agent.attach(json!({"dev": "t0", "mode": "qdisc"}));
        let (one, mib) = queues(&agent, "t0");
        assert!(one == 1 && mib < 16, "{one} {mib}");
        assert!(shell("tc qdisc show dev t0 root").contains("bestby"));
        // What comes later the root has, too.
        let second = tun_queue("t0");
        assert_eq!(agent.complaints("transmit queues"), Vec::<String>::new());
        agent.detach("t0");
        agent.attach(json!({"dev": "t0", "mode": "qdisc"}));
        assert_eq!(queues(&agent, "t0").0, 2);
        assert!(shell("tc qdisc show dev t0 root").contains("mq"));
        let third = tun_queue("t0");
        let said = agent.complaints("transmit queues");
        assert!(said.len() == 1 && said[0].contains("by 3 "), "{said:?}");
        drop((first, second, third));
    });
}

#[test]
fn queues_of_more_than_a_quarter_of_the_memory_are_refused_and_one_for_all_is_not() {
    linked_lab(require::bpf_qdisc(), |lab, _| {
        shell(
            "ip link add m0 numtxqueues 128 numrxqueues 128 type veth \
                 peer name m1 numtxqueues 128 numrxqueues 128
             ip link set m0 up; ip link set m1 up",
        );
        let agent = agent(lab);
        let request = |rate: Value| {
            Some(json!({"dev": "m0", "mode": "qdisc", "observe": false, "rate": rate}))
        };
        let (status, said) = agent.refused("POST", "/v1/interfaces", request(Value::Null));
        assert_eq!(status, 409, "{said}");
        for part in ["m0", "MiB for 128 transmit queues", "--rate below 1gbit"] {
            assert!(said.contains(part), "{said}");
        }
        // Nothing is left of it.
        assert!(!shell("tc qdisc show dev m0").contains("bestby"));
        agent.ok("POST", "/v1/interfaces", request(json!("100mbit")));
        assert_eq!(queues(&agent, "m0").0, 1);
    });
}
