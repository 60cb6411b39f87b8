//! Every program of every object, loaded on the kernel it runs on (6.1, 6.12, newest): the
//! verifier's own count of instructions, or the refusal that is expected.

use std::{
    mem::MaybeUninit,
    sync::{Arc, Mutex},
};

use aya::{
    Ebpf, EbpfLoader,
    programs::{CgroupSockAddr, CgroupSockopt, ProgramInfo, SchedClassifier, SockOps},
};
use bestby_bpf::{abi::bb_told, maps::MapsSkelBuilder, qdisc::QdiscSkelBuilder};
use bestby_tests::bpf::Lab;
use libbpf_rs::{
    PrintLevel,
    skel::{OpenSkel as _, Skel as _, SkelBuilder as _},
};
use zerocopy::IntoBytes as _;

/// The kernel refuses a program beyond a million, and counts differ by kernel and clang: stay well below.
const MOST: u32 = 175_000;

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap()
        .trim()
        .to_owned()
}

fn report(name: &str, info: &ProgramInfo) {
    let count = info.verified_instruction_count();
    println!(
        "{} {name}: {} instructions verified",
        kernel(),
        count.unwrap_or(0)
    );
    assert!(
        count.is_some_and(|n| n > 0 && n < MOST),
        "{name}: {count:?}"
    );
}

#[test]
fn hook_programs_load_with_aya() {
    let lab = Lab::bare();
    let load = |object: &[u8]| {
        EbpfLoader::new()
            .default_map_pin_directory(lab.pins())
            .load(object)
            .unwrap()
    };
    let verified = |object: &mut Ebpf, program: &str, what: &str| {
        let program: &mut SchedClassifier =
            object.program_mut(program).unwrap().try_into().unwrap();
        program.load().unwrap();
        report(what, &program.info().unwrap());
    };
    let mut classify = load(bestby_bpf::CLASSIFY);
    verified(&mut classify, "bb_classify", "bb_classify");

    // As `explain` loads it: nothing is constant then that says that nobody asks.
    let told = bb_told {
        explain: 1,
        ..Default::default()
    };
    let mut asked = EbpfLoader::new()
        .default_map_pin_directory(lab.pins())
        .override_global("bb_told", told.as_bytes(), true)
        .load(bestby_bpf::CLASSIFY)
        .unwrap();
    verified(&mut asked, "bb_classify", "bb_classify for explain");

    let mut leaf = load(bestby_bpf::LEAF);
    verified(&mut leaf, "bb_leaf", "bb_leaf");
    let mut segment = load(bestby_bpf::SEGMENT);
    verified(&mut segment, "bb_segmented", "bb_segmented");
    let mut answer = load(bestby_bpf::ANSWER);
    verified(&mut answer, "bb_answers", "bb_answers");

    let mut sockopt = load(bestby_bpf::SOCKOPT);
    for name in ["bb_setsockopt", "bb_getsockopt"] {
        let program: &mut CgroupSockopt = sockopt.program_mut(name).unwrap().try_into().unwrap();
        program.load().unwrap();
        report(name, &program.info().unwrap());
    }

    let mut buffer = load(bestby_bpf::BUFFER);
    for name in ["bb_sendmsg4", "bb_sendmsg6"] {
        let program: &mut CgroupSockAddr = buffer.program_mut(name).unwrap().try_into().unwrap();
        program.load().unwrap();
        report(name, &program.info().unwrap());
    }

    let mut rtt = load(bestby_bpf::RTT);
    let program: &mut SockOps = rtt.program_mut("bb_sockops").unwrap().try_into().unwrap();
    program.load().unwrap();
    report("bb_sockops", &program.info().unwrap());
    // What was loaded is all there is.
    for (object, count) in [
        (&classify, 1),
        (&leaf, 1),
        (&segment, 1),
        (&answer, 1),
        (&sockopt, 2),
        (&buffer, 2),
        (&rtt, 1),
    ] {
        assert_eq!(object.programs().count(), count);
    }
}

#[test]
fn pinned_maps_of_another_size_are_refused() {
    // libbpf, which creates the maps, checks sizes; Aya would reuse such a pin without a word.
    let lab = Lab::bare();
    let pin = lab.pins().join("bb_config");
    std::fs::remove_file(&pin).unwrap();
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let mut other = libbpf_rs::MapHandle::create(
        libbpf_rs::MapType::Array,
        Some("bb_config"),
        4,
        16,
        1,
        &options,
    )
    .unwrap();
    other.pin(&pin).unwrap();
    let mut builder = MapsSkelBuilder::default();
    builder.obj_builder.pin_root_path(lab.pins()).unwrap();
    let mut storage = MaybeUninit::uninit();
    assert!(builder.open(&mut storage).unwrap().load().is_err());
}

static LOG: Mutex<String> = Mutex::new(String::new());

fn keep(_level: PrintLevel, line: String) {
    LOG.lock().unwrap().push_str(&line);
}

#[test]
fn queue_loads_only_on_a_kernel_with_bpf_qdiscs() {
    let lab = Lab::bare();
    let storage = Arc::new(Mutex::new(MaybeUninit::uninit()));
    let mut storage = storage.lock().unwrap();
    let mut builder = QdiscSkelBuilder::default();
    builder.obj_builder.pin_root_path(lab.pins()).unwrap();
    let open = builder.open(&mut storage).unwrap();
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    let loaded = open.load();
    libbpf_rs::set_print(before);
    let supported = std::fs::read_to_string("/proc/kallsyms")
        .unwrap()
        .lines()
        .any(|line| line.ends_with(" bpf_qdisc_skb_drop") || line.ends_with(" bpf_Qdisc_ops"));
    match loaded {
        Ok(skel) => {
            assert!(supported, "loaded on a kernel without BPF qdiscs?");
            for program in skel.object().progs() {
                let name = program.name().to_string_lossy().into_owned();
                let fd = std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&program));
                let mut info = libbpf_sys::bpf_prog_info::default();
                let mut size = size_of::<libbpf_sys::bpf_prog_info>() as u32;
                // SAFETY: info is valid for the size given beside it.
                let status = unsafe {
                    libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut size)
                };
                assert_eq!(status, 0);
                println!(
                    "{} {name}: {} instructions verified",
                    kernel(),
                    info.verified_insns
                );
                assert!(
                    info.verified_insns > 0 && info.verified_insns < MOST,
                    "{name}"
                );
            }
        }
        Err(error) => {
            assert!(
                !supported,
                "refused on a kernel with BPF qdiscs: {error}\n{}",
                LOG.lock().unwrap()
            );
            let log = LOG.lock().unwrap();
            println!("{} qdisc: refused, as expected: {error}", kernel());
            assert!(
                log.contains("Qdisc_ops")
                    || (log.contains("bpf_kfree_skb") && log.contains("not found in kernel")),
                "refused for another reason: {error}\n{log}"
            );
        }
    }
}
