//! An agent that finds maps of another layout refuses them, says what to do, and leaves what runs alone.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};

use bestby_tests::{bpf::swap_fields, program::binary};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType, ObjectBuilder};

use crate::cli_lab::{Lab, lab};

/// What an agent says that does not start.
#[track_caller]
fn refusal(lab: &Lab) -> String {
    refusal_of(lab, Command::new(binary("bestbyd")))
}

#[track_caller]
fn refusal_of(lab: &Lab, mut command: Command) -> String {
    command
        .arg("--config")
        .arg(lab.path("bestby.toml"))
        .arg("--socket")
        .arg(lab.path("sock"))
        .arg("--bpffs")
        .arg(lab.path("bpf"))
        .stdin(Stdio::null());
    bestby_tests::agent::start_refused(command)
}

/// Ids of all pinned maps: whoever replaces one changes its id.
fn ids(dir: &Path) -> Vec<(String, u32)> {
    let mut ids: Vec<(String, u32)> = fs::read_dir(dir)
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let map = MapHandle::from_pinned_path(entry.path()).ok()?;
            Some((name, map.info().ok()?.info.id))
        })
        .collect();
    ids.sort();
    ids
}

/// Sends packets and says how many more the interface's counters have then.
fn counted(pins: &Path) -> u64 {
    let map = MapHandle::from_pinned_path(pins.join("bb_rule_stats")).unwrap();
    let count = || {
        let value = map
            .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .unwrap()
            .unwrap();
        u64::from_ne_bytes(*value.first_chunk().unwrap())
    };
    let before = count();
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    for _ in 0..5 {
        socket.send_to(&[0; 100], ("10.9.0.2", 9)).unwrap();
    }
    count() - before
}

#[test]
fn maps_with_swapped_fields_are_refused_and_left_running() {
    lab("", |lab| {
        let pins = lab.path("bpf");
        lab.ok("iface attach v0 --enforce --mode tc --rate 20mbit");
        lab.stop();
        assert_eq!(counted(&pins), 5);

        // In the place of our map, one of the other build.
        let other = pins.join("other");
        fs::create_dir(&other).unwrap();
        let mut builder = ObjectBuilder::default();
        builder.pin_root_path(&other).unwrap();
        // Two fields of a session, of one size.
        let build = swap_fields(bestby_bpf::MAPS, ["user", "turn"]);
        let object = builder.open_memory(&build).unwrap().load().unwrap();
        fs::rename(pins.join("bb_sessions"), other.join("ours")).unwrap();
        fs::rename(other.join("bb_sessions"), pins.join("bb_sessions")).unwrap();
        drop(object);

        let before = ids(&pins);
        let said = refusal(lab);
        for part in [
            "bb_sessions",
            "value.key.turn",
            "value.key.user",
            "iface detach",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(ids(&pins), before);
        assert_eq!(counted(&pins), 5);

        // With ours back, the agent takes over what runs.
        fs::rename(other.join("ours"), pins.join("bb_sessions")).unwrap();
        fs::remove_dir_all(&other).unwrap();
        lab.start();
        assert_eq!(lab.json("status")["adopted"], true);
        assert_eq!(lab.json("iface ls")[0]["dev"], "v0");
        lab.ok("iface detach v0");
    });
}

#[test]
fn maps_of_an_older_abi_are_refused_with_steps_that_work() {
    lab("", |lab| {
        let pins = lab.path("bpf");
        lab.ok("iface attach v0 --enforce --mode tc");
        lab.stop();
        // Version 3 had no seed and no flags.
        let size = u32::try_from(size_of::<bestby_bpf::abi::bb_config>()).unwrap() - 16;
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
            ..Default::default()
        };
        let mut old =
            MapHandle::create(MapType::Array, Some("bb_config"), 4, size, 1, &options).unwrap();
        let mut value = vec![0; size as usize];
        value[..4].copy_from_slice(&3_u32.to_ne_bytes());
        old.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY)
            .unwrap();
        fs::remove_file(pins.join("bb_config")).unwrap();
        old.pin(pins.join("bb_config")).unwrap();

        let before = ids(&pins);
        let said = refusal(lab);
        for part in ["version 3", "iface detach", "rm -r"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(ids(&pins), before);
        assert_eq!(counted(&pins), 5);

        // The steps that were named, with no bestbyd of that version at hand.
        for entry in fs::read_dir(&pins).unwrap().flatten() {
            let path = entry.path();
            // The kernel's own: a bpffs is mounted right here.
            if path.extension().is_some_and(|e| e == "debug") {
                continue;
            }
            if path.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            }
            .unwrap();
        }
        lab.start();
        lab.ok("iface attach v0 --enforce --mode tc");
        assert_eq!(counted(&pins), 5);
        lab.ok("iface detach v0");
    });
}

#[test]
fn agent_that_may_not_read_btf_compares_kept_layouts() {
    lab("", |lab| {
        let pins = lab.path("bpf");
        lab.stop();
        let kept = MapHandle::from_pinned_path(pins.join("bba_layouts")).unwrap();
        let (key, value) = kept
            .keys()
            .filter_map(|key| Some((key.clone(), kept.lookup(&key, MapFlags::ANY).ok()??)))
            .find(|(_, value)| String::from_utf8_lossy(value).contains("\"bb_sessions\""))
            .unwrap();
        let mut other = value.clone();
        let digit = other.iter().rposition(u8::is_ascii_hexdigit).unwrap();
        other[digit] = if other[digit] == b'0' { b'1' } else { b'0' };
        kept.update(&key, &other, MapFlags::ANY).unwrap();

        // As under the unit, without CAP_SYS_ADMIN.
        let mut command = Command::new("setpriv");
        command
            .args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"])
            .arg(binary("bestbyd"));
        let said = refusal_of(lab, command);
        assert!(said.contains("bb_sessions"), "{said}");
        // Who may read BTF knows better.
        lab.start();
        assert_eq!(lab.json("status")["adopted"], true);
    });
}
