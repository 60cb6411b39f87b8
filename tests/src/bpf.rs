//! The hook programs without the agent: maps pinned in a bpffs of the test's
//! own, packets in by `BPF_PROG_TEST_RUN` or through real devices.
#![allow(clippy::unwrap_used)]

mod packet;
mod rule;

use std::{
    fs::File,
    mem::MaybeUninit,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

pub use packet::{Classifier, Outcome, SkBuff, runs};
pub use rule::Rule;

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

use crate::clock::SECOND;

/// What the classifier returns for a packet that passes (`TC_ACT_UNSPEC`).
pub const PASS: i32 = -1;
/// What it returns for one it refuses (`TC_ACT_SHOT`).
pub const SHOT: i32 = 2;
/// The loopback interface: where `BPF_PROG_TEST_RUN` runs.
pub const LO: u32 = 1;

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
        option4: 0x9e,
        option6_deadline: 0x1e,
        option6_lifetime: 0x3e,
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
        Self::bare_on(0)
    }

    /// [`Lab::bare`] as the agent loads it on a kernel for real time.
    ///
    /// # Panics
    /// As [`Lab::bare`].
    #[must_use]
    pub fn preemptible() -> Self {
        Self::bare_on(1)
    }

    fn bare_on(preemptible: u32) -> Self {
        let mount = tempfile::tempdir().unwrap();
        crate::netns::mount("bpf", mount.path(), "");
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
            .override_global("bb_preemptible", &preemptible, true)
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

    /// A map that the classifier alone has, by name.
    ///
    /// # Panics
    /// When it has none of that name.
    #[must_use]
    pub fn own_map(&self, name: &str) -> MapHandle {
        use aya::maps::Map;

        let (Map::PerCpuArray(map) | Map::Array(map)) = self.classifier.map(name).unwrap() else {
            panic!("{name} is no array");
        };
        MapHandle::from_map_id(map.info().unwrap().id()).unwrap()
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

    /// Writes what is known of one address, as the agent does.
    pub fn tell<V: IntoBytes + Immutable>(&self, map: &str, addr: &bb_addr, value: &V) {
        self.put("bb_known", &bestby_bpf::known_index(addr), &1u32);
        self.put(map, addr, value);
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

    /// A session.
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
        self.classifier().run(frame, skb)
    }

    /// The classifier alone, for threads.
    ///
    /// # Panics
    /// When there are too many descriptors.
    #[must_use]
    pub fn classifier(&self) -> Classifier {
        let program: &SchedClassifier = self
            .classifier
            .program("bb_classify")
            .unwrap()
            .try_into()
            .unwrap();
        Classifier::new(program.fd().unwrap().as_fd().try_clone_to_owned().unwrap())
    }

    /// The program of the device that cuts super-packets.
    ///
    /// # Panics
    /// When the kernel refuses it.
    #[must_use]
    pub fn segmenter(&self) -> Classifier {
        self.program(bestby_bpf::SEGMENT, "bb_segmented")
    }

    /// The program that reads answers of receivers.
    ///
    /// # Panics
    /// When the kernel refuses it.
    #[must_use]
    pub fn answers(&self) -> Classifier {
        self.program(bestby_bpf::ANSWER, "bb_answers")
    }

    fn program(&self, object: &[u8], name: &str) -> Classifier {
        let mut object = EbpfLoader::new()
            .default_map_pin_directory(&self.dir)
            .load(object)
            .unwrap();
        let program: &mut SchedClassifier = object.program_mut(name).unwrap().try_into().unwrap();
        program.load().unwrap();
        Classifier::new(program.fd().unwrap().as_fd().try_clone_to_owned().unwrap())
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
            .override_global("bb_netns", &bestby_bpf::netns_cookie().unwrap(), true)
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

    /// The program of [`Lab::attach_rtt`], the last one if there are several.
    ///
    /// # Panics
    /// Without one.
    #[must_use]
    pub fn rtt_program(&self) -> std::os::fd::BorrowedFd<'_> {
        let mut hooks = self.hooks.iter().rev();
        let program = hooks.find_map(|object| object.program("bb_sockops"));
        let program: &SockOps = program.unwrap().try_into().unwrap();
        program.fd().unwrap().as_fd()
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

/// An object of another build: wherever one of two names of the same length stands in its types, the other one does.
///
/// # Panics
/// When a name is not there.
#[must_use]
pub fn swap_fields(object: &[u8], fields: [&str; 2]) -> Vec<u8> {
    let mut object = object.to_vec();
    // Behind the header of the BTF section: debugging sections have the same strings.
    let after = |from: usize, what: &[u8]| {
        let mut windows = object[from..].windows(what.len());
        from + windows.position(|w| w == what).unwrap()
    };
    let btf = after(0, &[0x9f, 0xeb, 1, 0, 24, 0, 0, 0]);
    let names = fields.map(|field| format!("\0{field}\0"));
    let [first, second] = [0, 1].map(|n| after(btf, names[n].as_bytes()));
    object[first..first + names[1].len()].copy_from_slice(names[1].as_bytes());
    object[second..second + names[0].len()].copy_from_slice(names[0].as_bytes());
    object
}
