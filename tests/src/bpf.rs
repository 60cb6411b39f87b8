//! The hook programs without the agent: maps pinned in a bpffs of the test's
//! own, packets in by `BPF_PROG_TEST_RUN` or through real devices.
#![allow(clippy::unwrap_used)]

use std::{
    fs::File,
    mem::MaybeUninit,
    os::fd::{AsFd as _, AsRawFd as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use aya::{
    Ebpf, EbpfLoader,
    programs::{CgroupAttachMode, CgroupSockopt, SchedClassifier, SockOps, TcAttachType},
};
use bestby_bpf::{abi::*, maps::MapsSkelBuilder};
use libbpf_rs::{
    MapCore as _, MapFlags, MapHandle,
    skel::{OpenSkel as _, SkelBuilder as _},
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What the classifier returns for a packet that passes (`TC_ACT_UNSPEC`).
pub const PASS: i32 = -1;
/// What it returns for one it refuses (`TC_ACT_SHOT`).
pub const SHOT: i32 = 2;
/// The loopback interface: where `BPF_PROG_TEST_RUN` runs.
pub const LO: u32 = 1;

/// One millisecond, in the ABI's unit.
pub const MS: u64 = 1_000_000;
/// One second, in the ABI's unit.
pub const SECOND: u64 = 1_000 * MS;

/// `CLOCK_MONOTONIC`, ns: the classifier's clock.
#[must_use]
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Any clock, ns.
///
/// # Panics
/// When the kernel has no such clock.
#[must_use]
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut t = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call fills the timespec that it points to.
    let t = unsafe {
        assert_eq!(libc::clock_gettime(clock, t.as_mut_ptr()), 0);
        t.assume_init()
    };
    u64::try_from(t.tv_sec).unwrap() * SECOND + u64::try_from(t.tv_nsec).unwrap()
}

/// `struct __sk_buff`, as `BPF_PROG_TEST_RUN` takes and returns it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[allow(missing_docs)]
pub struct SkBuff {
    pub len: u32,
    pub pkt_type: u32,
    pub mark: u32,
    pub queue_mapping: u32,
    pub protocol: u32,
    pub vlan_present: u32,
    pub vlan_tci: u32,
    pub vlan_proto: u32,
    pub priority: u32,
    pub ingress_ifindex: u32,
    pub ifindex: u32,
    pub tc_index: u32,
    pub cb: [u32; 5],
    pub hash: u32,
    pub tc_classid: u32,
    pub rest: [u32; 17],
    pub flow_keys: u64,
    pub tstamp: u64,
    pub wire_len: u32,
    pub gso_segs: u32,
    pub sk: u64,
    pub gso_size: u32,
    pub tstamp_type: u32,
    pub hwtstamp: u64,
}

/// What became of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// [`PASS`] or [`SHOT`].
    pub verdict: i32,
    /// The control block the queue would read.
    pub cb: bb_cb,
    /// The whole context afterwards.
    pub skb: SkBuff,
}

impl Outcome {
    /// 0 = none.
    #[must_use]
    pub fn deadline(&self) -> u64 {
        u64::from(self.cb.deadline_lo) | u64::from(self.cb.deadline_hi) << 32
    }

    /// 0..=7.
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.cb.class_ & 7
    }

    /// `enum bb_treatment`.
    #[must_use]
    pub fn treatment(&self) -> u32 {
        u32::from(self.cb.class_ >> 4)
    }

    /// Whether all of these `BB_CB_*` flags are set.
    #[must_use]
    pub fn has(&self, flags: u32) -> bool {
        u32::from(self.cb.flags) & flags == flags
    }
}

/// One rule: what it matches, in terms of the ABI, and what it says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rule {
    /// Fields to compare (all ones where compared).
    pub mask: bb_rule_key,
    /// Their values.
    pub key: bb_rule_key,
    /// 0 = cgroup not compared.
    pub cgroup_level: u32,
    /// What it says.
    pub says: bb_rule,
}

impl Rule {
    /// Matches everything, says nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Matches a destination port.
    #[must_use]
    pub fn dport(mut self, port: u16) -> Self {
        self.mask.dport = u16::MAX;
        self.key.dport = port;
        self
    }

    /// Matches an IP protocol.
    #[must_use]
    pub fn proto(mut self, proto: u8) -> Self {
        self.mask.proto = u8::MAX;
        self.key.proto = proto;
        self
    }

    /// Lifetime in ns.
    #[must_use]
    pub fn lifetime(mut self, ns: u64) -> Self {
        self.says.lifetime_ns = ns;
        self.says.flags |= u8::try_from(BB_RULE_LIFETIME).unwrap();
        self
    }

    /// Priority 0..=7.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.says.priority = priority;
        self.says.flags |= u8::try_from(BB_RULE_PRIORITY).unwrap();
        self
    }

    /// One of `BB_TREAT_*`.
    #[must_use]
    pub fn treatment(mut self, treatment: u32) -> Self {
        self.says.treatment = u8::try_from(treatment).unwrap();
        self
    }

    /// One-way delay where no RTT is known, ns.
    #[must_use]
    pub fn owd(mut self, ns: u64) -> Self {
        self.says.owd_default_ns = ns;
        self
    }
}

/// The default configuration of a [`Lab`]: the mark's default magic, no drop notices.
#[must_use]
pub fn default_config() -> bb_config {
    bb_config {
        abi_version: BB_ABI_VERSION,
        mark_magic: BB_MARK_MAGIC << BB_MARK_MAGIC_SHIFT,
        mark_magic_mask: 0xf << BB_MARK_MAGIC_SHIFT,
        rtt_max_age_ns: 10 * SECOND,
        prio_table: [255; 16],
        dscp_table: [255; 64],
        ..Default::default()
    }
}

/// The shared maps, pinned in a bpffs of their own, and the classifier.
pub struct Lab {
    dir: PathBuf,
    mount: tempfile::TempDir,
    config: std::cell::Cell<bb_config>,
    classifier: Ebpf,
    hooks: Vec<Ebpf>,
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

fn mount_bpffs(dir: &Path) {
    let target = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: all strings end in NUL and outlive the call.
    let mounted = unsafe {
        libc::mount(
            c"bpf".as_ptr(),
            target.as_ptr(),
            c"bpf".as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    assert_eq!(
        mounted,
        0,
        "mounting bpffs at {}: {} (run as root)",
        dir.display(),
        std::io::Error::last_os_error()
    );
}

impl Drop for Lab {
    fn drop(&mut self) {
        let target = std::ffi::CString::new(self.mount.path().as_os_str().as_encoded_bytes());
        if let Ok(target) = target {
            // SAFETY: the string ends in NUL and outlives the call.
            unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
        }
    }
}

impl Lab {
    /// Creates the maps and loads the classifier; nothing is attached, no interface known.
    ///
    /// # Panics
    /// Without root, or when the kernel refuses.
    #[must_use]
    pub fn bare() -> Self {
        let mount = tempfile::tempdir().unwrap();
        mount_bpffs(mount.path());
        let dir = mount
            .path()
            .join(format!("lab{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir(&dir).unwrap();
        let mut builder = MapsSkelBuilder::default();
        builder.obj_builder.pin_root_path(&dir).unwrap();
        let mut storage = MaybeUninit::uninit();
        let skel = builder.open(&mut storage).unwrap().load().unwrap();
        drop(skel);
        let mut classifier = EbpfLoader::new()
            .default_map_pin_directory(&dir)
            .load(bestby_bpf::CLASSIFY)
            .unwrap();
        classifier_of(&mut classifier).load().unwrap();
        let lab = Self {
            dir,
            mount,
            config: std::cell::Cell::new(default_config()),
            classifier,
            hooks: Vec::new(),
        };
        lab.configure(|_| {});
        lab
    }

    /// [`Lab::bare`] with the loopback interface in slot 0, mode qdisc, sessions by destination.
    #[must_use]
    pub fn new() -> Self {
        let lab = Self::bare();
        lab.iface(0, &iface(LO, BB_MODE_QDISC));
        lab
    }

    /// Where the maps are pinned.
    #[must_use]
    pub fn pins(&self) -> &Path {
        &self.dir
    }

    /// A shared map by name.
    #[must_use]
    pub fn map(&self, name: &str) -> MapHandle {
        MapHandle::from_pinned_path(self.dir.join(name)).unwrap()
    }

    /// Writes one map entry.
    pub fn put<K: IntoBytes + Immutable, V: IntoBytes + Immutable>(
        &self,
        map: &str,
        key: &K,
        value: &V,
    ) {
        self.map(map)
            .update(key.as_bytes(), value.as_bytes(), MapFlags::ANY)
            .unwrap();
    }

    /// Reads one map entry.
    #[must_use]
    pub fn get<K: IntoBytes + Immutable, V: FromBytes>(&self, map: &str, key: &K) -> Option<V> {
        let bytes = self
            .map(map)
            .lookup(key.as_bytes(), MapFlags::ANY)
            .unwrap()?;
        Some(V::read_from_prefix(&bytes).map_err(|_| "size").unwrap().0)
    }

    /// Changes the configuration.
    pub fn configure(&self, change: impl FnOnce(&mut bb_config)) {
        let mut config = self.config.get();
        change(&mut config);
        self.config.set(config);
        self.put("bb_config", &0u32, &config);
    }

    /// Fills an interface slot.
    pub fn iface(&self, slot: u32, iface: &bb_iface) {
        self.put("bb_ifaces", &slot, iface);
    }

    /// One of `BB_G_*`.
    #[must_use]
    pub fn global(&self, which: u32) -> u64 {
        self.get("bb_global", &which).unwrap()
    }

    /// A session slot.
    #[must_use]
    pub fn session(&self, index: u16) -> bb_session {
        self.get("bb_sessions", &u32::from(index)).unwrap()
    }

    /// Counters of a rule; 0 = traffic without one.
    #[must_use]
    pub fn rule_stats(&self, rule: u32) -> bb_counters {
        self.get("bb_rule_stats", &rule).unwrap()
    }

    /// Replaces all rules, as the agent does: the idle set is written, then the sets are
    /// switched. The first rule is number 1, and the first match wins.
    pub fn rules(&self, rules: &[Rule]) {
        let set = 1 - self.config.get().rule_set;
        let keys = self.map("bb_rule_keys");
        let old: Vec<Vec<u8>> = keys.keys().collect();
        for key in old {
            if bb_rule_key::read_from_bytes(&key).unwrap().set == u8::try_from(set).unwrap() {
                keys.delete(&key).unwrap();
            }
        }
        let mut shapes: Vec<(bb_rule_key, u32)> = Vec::new();
        for (order, rule) in rules.iter().enumerate() {
            let order = u32::try_from(order).unwrap();
            let shape = (rule.mask, rule.cgroup_level);
            let number = shapes
                .iter()
                .position(|known| *known == shape)
                .unwrap_or_else(|| {
                    let number = shapes.len();
                    let entry = bb_shape {
                        mask: rule.mask,
                        first_order: order,
                        cgroup_level: rule.cgroup_level,
                    };
                    self.put(
                        "bb_shapes",
                        &(set * BB_MAX_SHAPES + u32::try_from(number).unwrap()),
                        &entry,
                    );
                    shapes.push(shape);
                    number
                });
            let mut key = rule.key;
            key.set = u8::try_from(set).unwrap();
            key.shape = u32::try_from(number).unwrap();
            let target = bb_rule_ref {
                order,
                rule: order + 1,
            };
            // The first of equal matches stays.
            let _ = keys.update(key.as_bytes(), target.as_bytes(), MapFlags::NO_EXIST);
            self.put("bb_rules", &(order + 1), &rule.says);
        }
        self.configure(|config| {
            config.rule_set = set;
            config.shapes = u32::try_from(shapes.len()).unwrap();
            config.rule_gen += 1;
        });
    }

    /// Classifies one frame.
    #[must_use]
    pub fn run(&self, frame: &[u8]) -> Outcome {
        self.run_with(frame, SkBuff::default())
    }

    /// Classifies one frame with a mark.
    #[must_use]
    pub fn run_marked(&self, frame: &[u8], mark: u32) -> Outcome {
        self.run_with(
            frame,
            SkBuff {
                mark,
                ..Default::default()
            },
        )
    }

    /// Classifies one frame with a context of the test's choice.
    ///
    /// # Panics
    /// When the kernel refuses frame or context.
    #[must_use]
    pub fn run_with(&self, frame: &[u8], skb: SkBuff) -> Outcome {
        let mut after = SkBuff::default();
        let mut out = vec![0u8; frame.len() + 256];
        let program: &SchedClassifier = self
            .classifier
            .program("bb_classify")
            .unwrap()
            .try_into()
            .unwrap();
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: frame.as_ptr().cast(),
            data_size_in: u32::try_from(frame.len()).unwrap(),
            data_out: out.as_mut_ptr().cast(),
            data_size_out: u32::try_from(out.len()).unwrap(),
            ctx_in: (&raw const skb).cast(),
            ctx_size_in: u32::try_from(size_of::<SkBuff>()).unwrap(),
            ctx_out: (&raw mut after).cast(),
            ctx_size_out: u32::try_from(size_of::<SkBuff>()).unwrap(),
            repeat: 1,
            ..Default::default()
        };
        // SAFETY: every pointer is valid for the size given beside it.
        let status = unsafe {
            libbpf_sys::bpf_prog_test_run_opts(
                program.fd().unwrap().as_fd().as_raw_fd(),
                &raw mut options,
            )
        };
        assert_eq!(
            status,
            0,
            "BPF_PROG_TEST_RUN: {}",
            std::io::Error::last_os_error()
        );
        let cb = bb_cb::read_from_bytes(after.cb.as_bytes()).unwrap();
        #[allow(clippy::cast_possible_wrap)]
        let verdict = options.retval as i32;
        Outcome {
            verdict,
            cb,
            skb: after,
        }
    }

    /// Attaches the classifier to the egress of a device of the current namespace.
    pub fn attach(&mut self, device: &str) {
        let program = classifier_of(&mut self.classifier);
        program.attach(device, TcAttachType::Egress).unwrap();
    }

    /// Attaches the socket options to a cgroup.
    pub fn attach_sockopt(&mut self, cgroup: &Path) {
        let cgroup = File::open(cgroup).unwrap();
        let mut object = EbpfLoader::new()
            .default_map_pin_directory(&self.dir)
            .load(bestby_bpf::SOCKOPT)
            .unwrap();
        for name in ["bb_setsockopt", "bb_getsockopt"] {
            let program: &mut CgroupSockopt = object.program_mut(name).unwrap().try_into().unwrap();
            program.load().unwrap();
            program.attach(&cgroup, CgroupAttachMode::Single).unwrap();
        }
        self.hooks.push(object);
    }

    /// Attaches the RTT feed to a cgroup.
    pub fn attach_rtt(&mut self, cgroup: &Path) {
        let cgroup = File::open(cgroup).unwrap();
        let mut object = EbpfLoader::new()
            .default_map_pin_directory(&self.dir)
            .load(bestby_bpf::RTT)
            .unwrap();
        let program: &mut SockOps = object
            .program_mut("bb_sockops")
            .unwrap()
            .try_into()
            .unwrap();
        program.load().unwrap();
        program.attach(&cgroup, CgroupAttachMode::Single).unwrap();
        self.hooks.push(object);
    }
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

fn classifier_of(object: &mut Ebpf) -> &mut SchedClassifier {
    object
        .program_mut("bb_classify")
        .unwrap()
        .try_into()
        .unwrap()
}

/// An interface slot with defaults: sessions by destination, triage, no rate.
#[must_use]
pub fn iface(ifindex: u32, mode: u32) -> bb_iface {
    bb_iface {
        ifindex,
        mode: u8::try_from(mode).unwrap(),
        method: u8::try_from(BB_TRIAGE).unwrap(),
        session_kind: u8::try_from(BB_SESSION_DST).unwrap(),
        limit: 1000,
        session_limit: 1000,
        ..Default::default()
    }
}

/// An IPv4 address as the maps hold it.
#[must_use]
pub fn mapped(a: [u8; 4]) -> [u8; 16] {
    std::net::Ipv4Addr::from(a).to_ipv6_mapped().octets()
}

/// Runs a test in a network namespace of its own (a thread's), `lo` up.
///
/// # Panics
/// As the test does; without root.
pub fn in_namespace<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            assert_eq!(
                // SAFETY: affects only this thread, which ends with the test.
                unsafe { libc::unshare(libc::CLONE_NEWNET) },
                0,
                "a namespace needs root"
            );
            shell("ip link set lo up");
            test()
        });
        match thread.join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Runs a command line in the namespace of the calling thread.
///
/// # Panics
/// When it fails.
pub fn shell(command: &str) {
    let done = std::process::Command::new("sh")
        .args(["-euc", command])
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{command}: {}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Index of a device of the calling thread's namespace.
///
/// # Panics
/// When there is none of this name.
#[must_use]
pub fn ifindex(device: &str) -> u32 {
    let name = std::ffi::CString::new(device).unwrap();
    // SAFETY: the name ends in NUL.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0, "no device {device}");
    index
}

/// A veth pair `bb0` (10.9.0.1, fd09::1) and `bb1`, both in this namespace: what is sent to
/// 10.9.0.2 or fd09::2 leaves through `bb0` and is counted where it arrives, at `bb1`.
pub fn veth() {
    shell(
        "ip link add bb0 type veth peer name bb1
         for d in bb0 bb1; do
            ip link set $d up
         done
         ip addr add 10.9.0.1/24 dev bb0
         ip addr add fd09::1/64 dev bb0 nodad
         peer=$(ip -o link show bb1 | sed 's/.*ether \\([0-9a-f:]*\\).*/\\1/')
         ip neigh replace 10.9.0.2 lladdr $peer dev bb0 nud permanent
         ip neigh replace fd09::2 lladdr $peer dev bb0 nud permanent",
    );
}

/// The root of the cgroup2 tree.
///
/// # Panics
/// When it is not mounted.
#[must_use]
pub fn cgroup_root() -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&"cgroup2"))
        .map(|fields| PathBuf::from(fields[1]))
        .expect("cgroup2 is not mounted")
}
