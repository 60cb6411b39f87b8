//! What the command says of the host is so: who runs before the classifier, which qdisc is there, what is counted.

use std::net::UdpSocket;
use std::os::fd::{FromRawFd as _, OwnedFd};

use bestby_bpf::abi;
use bestby_tests::netns::{ifindex, shell};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use zerocopy::IntoBytes as _;

use crate::cli_lab::{lab, text};

/// A tcx program that ends the chain at a device's egress, for as long as this is held.
fn ender(device: &str) -> OwnedFd {
    let instructions = [
        // r0 = TCX_PASS; exit
        libbpf_sys::bpf_insn {
            code: 0xb7,
            imm: 0,
            ..Default::default()
        },
        libbpf_sys::bpf_insn {
            code: 0x95,
            ..Default::default()
        },
    ];
    // SAFETY: strings and instructions outlive the call, no options are passed (null is allowed).
    let program = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            c"ender".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as u64,
            std::ptr::null_mut(),
        )
    };
    assert!(program >= 0, "{program}");
    // SAFETY: the call made this descriptor for us, and nobody else owns it.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let target = i32::try_from(ifindex(device)).unwrap();
    // SAFETY: no options are passed (null is allowed), the descriptor is open.
    let link = unsafe {
        libbpf_sys::bpf_link_create(
            std::os::fd::AsRawFd::as_raw_fd(&program),
            target,
            libbpf_sys::BPF_TCX_EGRESS,
            std::ptr::null(),
        )
    };
    assert!(link >= 0, "{link}");
    // SAFETY: as above.
    unsafe { OwnedFd::from_raw_fd(link) }
}

fn send() {
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    for _ in 0..3 {
        socket.send_to(&[0; 100], ("10.9.0.2", 9)).unwrap();
    }
}

#[test]
fn program_before_the_classifier_is_named_while_attached() {
    lab("", |lab| {
        let before = ender("v0");
        lab.ok("iface attach v0 --enforce --mode tc");
        send();
        assert_eq!(lab.json("stats")["flows"]["-"]["packets_in"], 0);
        let shown = lab.ok("iface ls");
        assert!(shown.contains("ender"), "{shown}");
        let doctor = text(&lab.bestby(&["doctor"]).stdout);
        assert!(doctor.contains("ender"), "{doctor}");

        drop(before);
        send();
        assert_eq!(lab.json("stats")["flows"]["-"]["packets_in"], 3);
        assert!(!lab.ok("iface ls").contains("ender"));
        assert!(!text(&lab.bestby(&["doctor"]).stdout).contains("ender"));
        // Behind the classifier it does no harm.
        let _behind = ender("v0");
        assert!(!lab.ok("iface ls").contains("ender"));
        lab.ok("iface detach v0");
    });
}

#[test]
fn detach_names_the_root_qdisc_that_remains() {
    lab("", |lab| {
        lab.ok("iface attach v0 --enforce --mode tc --rate 1mbit");
        let said = lab.ok("iface detach v0");
        assert!(said.contains("noqueue"), "{said}");
        // Somebody else's took the place of ours.
        lab.ok("iface attach v0 --enforce --mode tc --rate 1mbit");
        shell("tc qdisc replace dev v0 root handle 7: pfifo limit 10");
        let said = lab.ok("iface detach v0");
        assert!(said.contains("pfifo"), "{said}");
    });
}

#[test]
fn payload_types_and_host_counters_are_shown_once_not_0() {
    lab("", |lab| {
        lab.ok("iface attach v0 --enforce --mode tc");
        let doctor = text(&lab.bestby(&["doctor"]).stdout);
        for name in ["no cb", "refused", "streams full", "users full"] {
            assert!(!doctor.contains(name), "{doctor}");
        }
        let shown = lab.ok("stats");
        assert!(
            !shown.contains("PAYLOAD TYPE") && !shown.contains("no cb"),
            "{shown}"
        );
        let open = |name: &str| MapHandle::from_pinned_path(lab.path("bpf").join(name)).unwrap();
        let counters = abi::bb_counters {
            packets_in: 3,
            packets_sent: 3,
            ..Default::default()
        };
        let key = (abi::BB_RTP | 111).to_ne_bytes();
        open("bb_rtp_stats")
            .update(&key, counters.as_bytes(), MapFlags::ANY)
            .unwrap();
        for (counter, count) in [
            (abi::BB_G_NO_CB, 5_u64),
            (abi::BB_G_STREAMS_FULL, 6),
            (abi::BB_G_USERS_FULL, 7),
            (abi::BB_G_REFUSED, 8),
        ] {
            open("bb_global")
                .update(&counter.to_ne_bytes(), &count.to_ne_bytes(), MapFlags::ANY)
                .unwrap();
        }

        let stats = lab.json("stats");
        assert_eq!(stats["payload_types"]["111"]["packets_in"], 3, "{stats}");
        assert_eq!(
            stats["payload_types"].as_object().unwrap().len(),
            1,
            "{stats}"
        );
        for (counter, count) in [
            ("no_cb", 5),
            ("streams_full", 6),
            ("users_full", 7),
            ("refused", 8),
        ] {
            assert_eq!(stats["global"][counter], count, "{stats}");
        }
        let shown = lab.ok("stats");
        for part in [
            "RTP PAYLOAD TYPE",
            "no cb",
            "streams full",
            "users full",
            "refused",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let doctor = text(&lab.bestby(&["doctor"]).stdout);
        for name in ["no cb", "streams full", "users full", "refused"] {
            assert!(doctor.contains(name), "{name}: {doctor}");
        }
        lab.ok("iface detach v0");
    });
}
