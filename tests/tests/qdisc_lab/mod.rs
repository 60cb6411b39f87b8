//! One queue on one veth, loaded without the agent, fed with frames that carry
//! their own control block (`bpf/stamp.bpf.c`).
//!
//! An emulated kernel verifies the queue for seconds. So a lab that ends keeps its device and its programs, and the
//! next lab of the same sizes empties their maps and goes on with them.

#![allow(dead_code)] // each test program uses a part

mod wire;

use std::{
    mem::MaybeUninit,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use aya::{
    EbpfLoader,
    programs::{SchedClassifier, TcAttachType},
};
use bestby_bpf::{
    abi::*,
    maps::{MapsSkel, MapsSkelBuilder},
    packets_per_instance,
    qdisc::{QdiscSkel, QdiscSkelBuilder},
    qdisc_sizes,
};
use bestby_tests::{
    clock::now_ns,
    netns::{ifindex, shell, try_shell},
};
use libbpf_rs::{
    Link, MapCore as _, MapFlags, MapType,
    skel::{OpenSkel as _, Skel as _, SkelBuilder as _},
};
pub(crate) use wire::{Packet, Wire};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) struct Loaded {
    // Declared before the skeleton: the link must go first.
    _link: Link,
    pub(crate) skel: Box<QdiscSkel<'static>>,
}

/// Loads the queue's object for one interface; `id` names the Qdisc.
pub(crate) fn load(
    pins: &Path,
    device: &str,
    slot: u32,
    id: &str,
    limit: u32,
    instances: u32,
    reuse: Option<&Path>,
) -> Loaded {
    let storage = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut builder = QdiscSkelBuilder::default();
    builder.obj_builder.pin_root_path(pins).unwrap();
    let mut open = builder.open(storage).unwrap();
    {
        let data = open.maps.rodata_data.as_deref_mut().unwrap();
        data.bbq_slot = slot;
        data.bbq_ifindex = ifindex(device);
        data.bbq_netns = bestby_bpf::netns_cookie().unwrap();
        data.bbq_packets_n = packets_per_instance(limit);
        data.bbq_instances_n = instances;
    }
    let sizes = qdisc_sizes(limit, instances);
    for (map, size) in [
        &mut open.maps.bbq_packets,
        &mut open.maps.bbq_queues,
        &mut open.maps.bbq_users,
        &mut open.maps.bbq_instances,
        &mut open.maps.bbq_wheels,
        &mut open.maps.bbq_parked,
    ]
    .into_iter()
    .zip(sizes)
    {
        map.set_max_entries(size.1).unwrap();
        if let Some(dir) = reuse {
            map.set_pin_path(dir.join(size.0)).unwrap();
        }
    }
    let name: [i8; 16] = {
        let mut name = [0; 16];
        for (to, from) in name.iter_mut().zip(id.bytes()) {
            *to = from as i8;
        }
        name
    };
    open.struct_ops.bestby_ops_mut().id = name;
    let mut skel = Box::new(open.load().unwrap());
    let link = skel.maps.bestby_ops.attach_struct_ops().unwrap();
    Loaded { _link: link, skel }
}

/// A lab with this method and large limits.
pub(crate) fn lab(name: &str, method: u32) -> Lab {
    Lab::new(
        name,
        &Options {
            method,
            ..Options::default()
        },
    )
}

/// bytes/s of [`free_link`]: 1,000 bytes take 20 ms.
pub(crate) const RATE: u64 = 50_000;

/// A lab with triage on a link of [`RATE`] that is free.
pub(crate) fn free_link(name: &str) -> Lab {
    let lab = lab(name, BB_TRIAGE);
    lab.set_iface(|iface| iface.rate = RATE);
    lab
}

pub(crate) fn sleep_until(at: u64) {
    thread::sleep(Duration::from_nanos(at.saturating_sub(now_ns())));
}

/// One interface with the queue on it, and the far end of its link.
pub(crate) struct Bed {
    pub(crate) pins: PathBuf,
    pub(crate) device: String,
    /// The kind of its qdisc.
    pub(crate) kind: String,
    pub(crate) slot: u32,
    pub(crate) out: Wire,
    pub(crate) far: Wire,
    pub(crate) queue: Option<Loaded>,
    _classifier: aya::Ebpf,
    maps: Box<MapsSkel<'static>>,
    sequence: std::cell::Cell<u32>,
    /// Limit and instances that the programs are loaded for; the next lab of these may have them.
    sizes: Option<(u32, u32)>,
}

/// The bed of one test.
pub(crate) struct Lab(Option<Bed>);

impl Deref for Lab {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Lab {
    fn deref_mut(&mut self) -> &mut Bed {
        self.0.as_mut().unwrap()
    }
}

/// Of a test that has ended, for the next one.
struct Parked(Bed);

// SAFETY: a skeleton's pointers lead to memory of its own, which no thread owns; one thread at a time has it.
unsafe impl Send for Parked {}

static PARKED: Mutex<Vec<Parked>> = Mutex::new(Vec::new());

pub(crate) struct Options {
    pub(crate) method: u32,
    pub(crate) limit: u32,
    pub(crate) session_limit: u32,
    pub(crate) instances: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            method: BB_TRIAGE,
            limit: 10_000,
            session_limit: 10_000,
            instances: 1,
        }
    }
}

impl Lab {
    /// The name is that of a new device, whose kind of qdisc is `bbNAME`; one that is used again keeps its own.
    pub(crate) fn new(name: &str, options: &Options) -> Self {
        let sizes = Some((options.limit, options.instances));
        let parked = {
            let mut parked = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
            let place = parked.iter().position(|p| p.0.sizes == sizes);
            place.map(|place| parked.swap_remove(place).0)
        };
        match parked {
            Some(bed) => Self::on(bed, options),
            None => Self::fresh(name, options),
        }
    }

    /// On a device of its own, with programs that never ran.
    pub(crate) fn fresh(name: &str, options: &Options) -> Self {
        let mut bed = Bed::new(name, options);
        let (limit, instances) = (options.limit, options.instances);
        let (pins, device) = (&bed.pins, &bed.device);
        bed.queue = Some(load(
            pins, device, bed.slot, &bed.kind, limit, instances, None,
        ));
        bed.sizes = Some((limit, instances));
        Self::on(bed, options)
    }

    fn on(mut bed: Bed, options: &Options) -> Self {
        bed.empty(options);
        if options.instances == 1 {
            shell(&format!(
                "tc qdisc replace dev {} root {}",
                bed.device, bed.kind
            ));
        }
        Self(Some(bed))
    }

    /// Below mq, with two transmit queues.
    pub(crate) fn below_mq(name: &str) -> Self {
        let options = Options {
            instances: 2,
            ..Options::default()
        };
        let lab = Self::new(name, &options);
        let (device, kind) = (&lab.device, &lab.kind);
        shell(&format!(
            "tc qdisc replace dev {device} root handle 77: mq && for n in 1 2; do \
             tc qdisc replace dev {device} parent 77:$n {kind}; done"
        ));
        lab
    }

    /// Without the Qdisc.
    pub(crate) fn bare(name: &str, options: &Options) -> Self {
        let mut bed = Bed::new(name, options);
        bed.empty(options);
        Self(Some(bed))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let Some(bed) = self.0.take() else { return };
        let _ = try_shell(&format!("tc qdisc del dev {} root", bed.device));
        // What a failed test has left is nobody's.
        if bed.sizes.is_some() && !thread::panicking() {
            let mut parked = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
            parked.push(Parked(bed));
        } else {
            let _ = try_shell(&format!(
                "ip link del {}; rm -rf {}",
                bed.device,
                bed.pins.display()
            ));
        }
    }
}

/// Makes a map what it is after its load. The agent's rules, peers and so on are in none of these objects' maps.
fn empty(map: &impl libbpf_rs::MapCore) {
    if map.map_type() != MapType::Array || map.name().to_string_lossy().contains('.') {
        return;
    }
    let count = map.max_entries();
    let keys: Vec<u8> = (0..count).flat_map(u32::to_ne_bytes).collect();
    let values = vec![0; count as usize * map.value_size() as usize];
    map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY)
        .unwrap();
}

impl Bed {
    fn new(name: &str, options: &Options) -> Self {
        let pins = PathBuf::from(format!("/sys/fs/bpf/t_{name}"));
        std::fs::create_dir_all(&pins).unwrap();
        let device = format!("{name}0");
        let peer = format!("{name}1");
        shell(&format!(
            "ip link add {device} numtxqueues {n} numrxqueues {n} type veth peer name {peer} \
             numtxqueues {n} numrxqueues {n} && for d in {device} {peer}; do \
             echo 1 > /proc/sys/net/ipv6/conf/$d/disable_ipv6; ip link set $d up; done",
            n = options.instances
        ));
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut builder = MapsSkelBuilder::default();
        builder.obj_builder.pin_root_path(&pins).unwrap();
        let maps = Box::new(builder.open(storage).unwrap().load().unwrap());

        let mut classifier = EbpfLoader::new()
            .load(include_bytes!(concat!(env!("OUT_DIR"), "/stamp.bpf.o")))
            .unwrap();
        let program: &mut SchedClassifier =
            classifier.program_mut("stamp").unwrap().try_into().unwrap();
        program.load().unwrap();
        program.attach(&device, TcAttachType::Egress).unwrap();

        Self {
            pins,
            kind: format!("bb{name}"),
            slot: 3,
            out: Wire::open(&device),
            far: Wire::open(&peer),
            device,
            queue: None,
            _classifier: classifier,
            maps,
            sequence: std::cell::Cell::new(0),
            sizes: None,
        }
    }

    /// As if nothing had ever been sent: empty maps, new sockets, and these settings.
    fn empty(&mut self, options: &Options) {
        if let Some(queue) = &self.queue {
            for map in queue.skel.object().maps() {
                empty(&map);
            }
            let peer = format!("{}1", self.device.strip_suffix('0').unwrap());
            (self.out, self.far) = (Wire::open(&self.device), Wire::open(&peer));
            self.sequence.set(0);
        }
        self.slot = 3;
        let config = bb_config {
            abi_version: BB_ABI_VERSION,
            events_per_s: 1_000_000,
            ..Default::default()
        };
        self.maps
            .maps
            .bb_config
            .update(&0u32.to_ne_bytes(), config.as_bytes(), MapFlags::ANY)
            .unwrap();
        self.set_iface(|iface| {
            iface.mode = BB_MODE_QDISC as u8;
            iface.method = options.method as u8;
            iface.limit = options.limit;
            iface.session_limit = options.session_limit;
            iface.limit_bytes = 1 << 30;
        });
    }

    pub(crate) fn set_iface(&self, change: impl FnOnce(&mut bb_iface)) {
        let map = &self.maps.maps.bb_ifaces;
        let mut iface: bb_iface = self.get_map(map, self.slot);
        iface.ifindex = ifindex(&self.device);
        change(&mut iface);
        map.update(&self.slot.to_ne_bytes(), iface.as_bytes(), MapFlags::ANY)
            .unwrap();
    }

    fn get_map<T: FromBytes>(&self, map: &impl libbpf_rs::MapCore, key: u32) -> T {
        let value = map
            .lookup(&key.to_ne_bytes(), MapFlags::ANY)
            .unwrap()
            .unwrap();
        T::read_from_prefix(&value).unwrap().0
    }

    pub(crate) fn set_session(&self, session: u16, owd: Duration, rate: u64) {
        self.change_session(session, |s| {
            s.owd_ns = u64::try_from(owd.as_nanos()).unwrap();
            s.rate = rate;
        });
    }

    pub(crate) fn change_session(&self, session: u16, change: impl FnOnce(&mut bb_session)) {
        let map = &self.maps.maps.bb_sessions;
        let mut s = self.session_of(session);
        change(&mut s);
        map.update(
            &u32::from(session).to_ne_bytes(),
            s.as_bytes(),
            MapFlags::ANY,
        )
        .unwrap();
    }

    /// Drop notices a second.
    pub(crate) fn set_events(&self, per_second: u32) {
        let map = &self.maps.maps.bb_config;
        let mut config: bb_config = self.get_map(map, 0);
        config.events_per_s = per_second;
        map.update(&0u32.to_ne_bytes(), config.as_bytes(), MapFlags::ANY)
            .unwrap();
    }

    /// One of `BB_G_*`.
    pub(crate) fn global(&self, which: u32) -> u64 {
        self.get_map(&self.maps.maps.bb_global, which)
    }

    /// Counters of a payload type.
    pub(crate) fn payload_type(&self, rtp: u8) -> bb_counters {
        self.get_map(&self.maps.maps.bb_rtp_stats, rtp.into())
    }

    /// Drop notices that were counted and not sent.
    pub(crate) fn events_lost(&self) -> u64 {
        self.get_map(&self.maps.maps.bb_global, BB_G_EVENTS_LOST)
    }

    pub(crate) fn rule(&self, rule: u16) -> bb_counters {
        self.get_map(&self.maps.maps.bb_rule_stats, rule.into())
    }

    fn session_of(&self, session: u16) -> bb_session {
        self.get_map(&self.maps.maps.bb_sessions, session.into())
    }

    pub(crate) fn session(&self, session: u16) -> bb_counters {
        self.session_of(session).counters
    }

    /// The instance whose turn is next, if one was too late for its last.
    pub(crate) fn turn(&self, session: u16) -> Option<u16> {
        self.session_of(session).turn.checked_sub(1)
    }

    pub(crate) fn queue(&self) -> &Loaded {
        self.queue.as_ref().unwrap()
    }

    pub(crate) fn instance(&self, instance: u32) -> bb_counters {
        let map = &self.queue().skel.maps.bbq_instances;
        let value = map.lookup(&instance.to_ne_bytes(), MapFlags::ANY).unwrap();
        bestby_bpf::instance(&value.unwrap()).unwrap().counters
    }

    /// How long the packets waited that left, and how much of their time was left.
    pub(crate) fn times(&self, instance: u32) -> bb_times {
        let map = &self.queue().skel.maps.bbq_instances;
        let value = map.lookup(&instance.to_ne_bytes(), MapFlags::ANY).unwrap();
        bestby_bpf::instance(&value.unwrap()).unwrap().times
    }

    /// Sends one packet; returns its sequence number.
    pub(crate) fn send(&self, packet: &Packet) -> u32 {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        match self.out.send(&packet.frame(sequence)) {
            Ok(()) => {}
            // What the Qdisc refuses (NET_XMIT_DROP) a packet socket reports so.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => panic!("sending: {error}"),
        }
        sequence
    }

    /// Nothing leaves the interface until `open_link` (or one minute).
    pub(crate) fn shut_link(&mut self) {
        let opens = now_ns() + 60_000_000_000;
        // A rate makes the queue look at the link; fast enough to change nothing else.
        self.set_iface(|iface| (iface.rate, iface.link_next) = (1 << 40, opens));
    }

    /// Opens the link and sends `kick`, which makes the Qdisc run.
    pub(crate) fn open_link(&mut self, kick: &Packet) -> u32 {
        self.set_iface(|iface| (iface.rate, iface.link_next) = (0, 0));
        self.send(kick)
    }

    /// Waits until nothing is queued: a backlog goes a few packets at a time, slowly on a busy host.
    pub(crate) fn wait_until_empty(&self) {
        for _ in 0..6_000 {
            if self.instance(0).queued == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{} packets are queued", self.instance(0).queued);
    }

    /// Sequence numbers of all packets that arrive until none came for a while. Looks are counted, not time: a
    /// machine that stood still meanwhile has not looked.
    pub(crate) fn drain(&self) -> Vec<u32> {
        let (mut got, mut idle) = (Vec::new(), 0);
        while idle < 60 {
            match self.far.receive() {
                Some(sequence) => {
                    got.push(sequence);
                    idle = 0;
                }
                None => {
                    idle += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        got
    }
}

pub(crate) fn dropped(c: &bb_counters) -> u64 {
    c.dropped.iter().sum()
}

/// in = sent + dropped + queued.
pub(crate) fn assert_conserved(what: &str, c: &bb_counters) {
    assert_eq!(
        c.packets_in,
        c.packets_sent + dropped(c) + c.queued,
        "{what}: {c:?}"
    );
}
