//! The shared maps, typed. libbpf creates and pins them; an earlier agent's are adopted after a check.

use std::marker::PhantomData;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use bestby_bpf::{abi, maps};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{Error, Result, Tried as _};
use crate::kernel::layouts::Layouts;
use crate::kernel::sys;

/// A map with keys `K` and values `V`.
pub struct Map<K, V> {
    handle: MapHandle,
    name: String,
    types: PhantomData<fn(K) -> V>,
}

impl<K: IntoBytes + Immutable + FromBytes, V: IntoBytes + Immutable + FromBytes> Map<K, V> {
    /// Opens a pinned map and checks that its sizes are those of the types.
    ///
    /// # Errors
    /// It is not there, or of another layout.
    pub fn open(path: &Path) -> Result<Self> {
        let handle = MapHandle::from_pinned_path(path)
            .tried(|| format!("opening the pinned map {}", path.display()))?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let (key, value) = (handle.key_size() as usize, handle.value_size() as usize);
        if key != size_of::<K>() || value != size_of::<V>() {
            return Err(layout(
                path,
                &format!(
                    "its entries have {key}+{value} bytes, this bestbyd wants {}+{}",
                    size_of::<K>(),
                    size_of::<V>()
                ),
            ));
        }
        Ok(Self {
            handle,
            name,
            types: PhantomData,
        })
    }

    /// The map itself.
    pub fn handle(&self) -> &MapHandle {
        &self.handle
    }

    /// Entries at most.
    pub fn max_entries(&self) -> u32 {
        self.handle.max_entries()
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let bytes = self
            .handle
            .lookup(key.as_bytes(), MapFlags::ANY)
            .tried(|| format!("reading map {}", self.name))?;
        Ok(bytes.and_then(|b| V::read_from_bytes(&b).ok()))
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// The map is full, or the kernel's refusal.
    pub fn set(&self, key: &K, value: &V) -> Result<()> {
        self.handle
            .update(key.as_bytes(), value.as_bytes(), MapFlags::ANY)
            .tried(|| {
                format!(
                    "writing map {} (of {} entries)",
                    self.name,
                    self.max_entries()
                )
            })
    }

    /// Removes a key; one that is not there is no error.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn remove(&self, key: &K) -> Result<()> {
        match self.handle.delete(key.as_bytes()) {
            Err(e) if e.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            other => other.tried(|| format!("deleting from map {}", self.name)),
        }
    }

    /// All keys of a hash map.
    pub fn keys(&self) -> Vec<K> {
        self.handle
            .keys()
            .filter_map(|k| K::read_from_bytes(&k).ok())
            .collect()
    }

    /// All entries; in batches where the kernel can.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn entries(&self) -> Result<Vec<(K, V)>> {
        // An entry may vanish between two calls for a hash map: it is left out.
        if matches!(self.handle.map_type(), MapType::Array) {
            let batch = self
                .handle
                .lookup_batch(
                    self.max_entries().clamp(1, 4096),
                    MapFlags::ANY,
                    MapFlags::ANY,
                )
                .tried(|| format!("reading map {}", self.name))?;
            return Ok(batch
                .filter_map(|(k, v)| {
                    Some((K::read_from_bytes(&k).ok()?, V::read_from_bytes(&v).ok()?))
                })
                .collect());
        }
        let mut all = Vec::new();
        for key in self.keys() {
            if let Some(value) = self.get(&key)? {
                all.push((key, value));
            }
        }
        Ok(all)
    }
}

impl<V: IntoBytes + Immutable + FromBytes> Map<u32, V> {
    /// What `of` makes of the entries of an array, in their order. Large tables are looked at without a copy of each
    /// entry: one of 65,536 takes milliseconds.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn collect<T>(&self, mut of: impl FnMut(u32, &V) -> Option<T>) -> Result<Vec<T>> {
        const BATCH: usize = 1024;
        let size = size_of::<V>();
        let mut keys = vec![0_u32; BATCH];
        let mut values = vec![0_u8; BATCH * size];
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let batch = sys::lookup_batch(self.handle.as_fd(), after, &mut keys, &mut values, size);
            let (count, next) = batch.tried(|| format!("reading map {}", self.name))?;
            let values = values.chunks_exact(size);
            for (key, value) in keys.iter().zip(values).take(count) {
                if let Ok(value) = V::read_from_bytes(value) {
                    found.extend(of(*key, &value));
                }
            }
            after = next;
            if after.is_none() {
                return Ok(found);
            }
        }
    }
}

/// What is known by address. `bb_known` is told first: the classifier looks no further without it.
pub struct ByAddress<V> {
    map: Map<abi::bb_addr, V>,
    known: Map<u32, u32>,
}

impl<V> std::ops::Deref for ByAddress<V> {
    type Target = Map<abi::bb_addr, V>;

    fn deref(&self) -> &Self::Target {
        &self.map
    }
}

impl<V: FromBytes + IntoBytes + Immutable> ByAddress<V> {
    /// The map `name` pinned in `dir`.
    ///
    /// # Errors
    /// It, or `bb_known`, is not there, or its entries have other sizes.
    pub fn open(dir: &Path, name: &str) -> Result<Self> {
        Ok(Self {
            map: Map::open(&dir.join(name))?,
            known: Map::open(&dir.join("bb_known"))?,
        })
    }

    /// Sets the value of an address.
    ///
    /// # Errors
    /// The map is full, or the kernel's refusal.
    pub fn set(&self, addr: &abi::bb_addr, value: &V) -> Result<()> {
        self.known.set(&bestby_bpf::known_index(addr), &1)?;
        self.map.set(addr, value)
    }
}

fn layout(path: &Path, why: &str) -> Error {
    let dir = path.parent().unwrap_or(path);
    let text = format!(
        "the pinned map {} is not from this version of bestby: {why}",
        path.display()
    );
    Error::conflict(text).hint(format!(
        "nothing was changed, packets are handled as before. To upgrade: detach every interface with the bestbyd that made \
         the map (`bestby iface detach DEV`), stop it, remove {0} (rm -r {0}), start this one and attach again. Without that \
         bestbyd: `tc qdisc del dev DEV root` and rm -r {0}; packets are then sent untouched until the next attach",
        dir.display()
    ))
}

/// Refuses the maps of another ABI version, whatever their sizes.
fn version(dir: &Path) -> Result<()> {
    let path = dir.join("bb_config");
    if !path.exists() {
        return Ok(());
    }
    let map = MapHandle::from_pinned_path(&path)
        .tried(|| format!("opening the pinned map {}", path.display()))?;
    // Another map under this name: the comparison of all maps refuses it.
    if map.key_size() != 4 {
        return Ok(());
    }
    let value = map
        .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
        .tried(|| format!("reading {}", path.display()))?;
    // The version comes first in every version.
    let version = value
        .as_deref()
        .and_then(|v| v.first_chunk())
        .map_or(0, |v| u32::from_ne_bytes(*v));
    // 0: created by an agent that was killed before it wrote anything.
    if version == 0 || version == abi::BB_ABI_VERSION {
        return Ok(());
    }
    Err(layout(
        &path,
        &format!(
            "it says ABI version {version}, this bestbyd has {}",
            abi::BB_ABI_VERSION
        ),
    ))
}

/// Every shared map of bb_maps.bpf.h that the agent reads or writes.
#[allow(missing_docs)] // bb_abi.h says what each holds
pub struct Shared {
    pub config: Map<u32, abi::bb_config>,
    pub ifaces: Map<u32, abi::bb_iface>,
    pub autos: Map<u32, abi::bb_auto>,
    pub shapes: Map<u32, abi::bb_shape>,
    pub rule_keys: Map<abi::bb_rule_key, abi::bb_rule_ref>,
    pub rules: Map<u32, abi::bb_rule>,
    pub rule_stats: Map<u32, abi::bb_counters>,
    pub rule_adus: Map<u32, u32>,
    pub rtp_stats: Map<u32, abi::bb_counters>,
    pub sessions: Map<u32, abi::bb_session>,
    pub flows: Map<u32, abi::bb_flow>,
    pub streams: Map<u32, abi::bb_stream>,
    pub videos: Map<u32, abi::bb_video>,
    pub users: Map<u32, abi::bb_user>,
    pub peers: ByAddress<abi::bb_peer>,
    pub sock_peers: Map<abi::bb_sock_peer_key, abi::bb_peer>,
    pub rtts: ByAddress<abi::bb_rtt>,
    pub trust: Map<abi::bb_trust_key, u32>,
    /// Destinations of rules with `stamp probed`.
    pub probed: Map<abi::bb_addr, abi::bb_probed>,
    pub global: Map<u32, u64>,
    /// By the socket's cookie.
    pub buffers: Map<u64, abi::bb_buffer>,
    pub events: MapHandle,
    /// Bytes of kernel memory of all shared maps.
    pub memory: u64,
    /// Whether an earlier agent made them.
    pub adopted: bool,
    /// Those that were gone of an earlier agent's, and were made anew.
    pub remade: Vec<String>,
    names: Vec<String>,
    dir: PathBuf,
}

impl Shared {
    /// Adopts the maps pinned in `dir`, and creates those that are missing.
    ///
    /// # Errors
    /// A pinned map of another layout or ABI version: nothing is changed.
    pub fn open(dir: &Path) -> Result<Self> {
        let mut storage = std::mem::MaybeUninit::uninit();
        let mut builder = maps::MapsSkelBuilder::default();
        builder
            .obj_builder
            .pin_root_path(dir)
            .tried(|| format!("using {} for pins", dir.display()))?;
        let open = builder
            .open(&mut storage)
            .tried(|| "opening the maps object".into())?;
        version(dir)?;
        let layouts = Layouts::new(open.open_object(), dir)?;
        let names: Vec<String> = open
            .open_object()
            .maps()
            .map(|map| map.name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("bb_"))
            .collect();
        let (mut adopted, mut gone) = (false, Vec::new());
        for map in open.open_object().maps() {
            let name = map.name().to_string_lossy().into_owned();
            let path = dir.join(&name);
            if !name.starts_with("bb_") {
                continue;
            }
            if !path.exists() {
                gone.push(name);
                continue;
            }
            adopted = true;
            let pinned = MapHandle::from_pinned_path(&path)
                .tried(|| format!("opening the pinned map {}", path.display()))?;
            let describe = |ty: MapType, key, value, entries| {
                format!("{ty:?} of {entries} entries, {key}+{value} bytes")
            };
            let is = describe(
                pinned.map_type(),
                pinned.key_size(),
                pinned.value_size(),
                pinned.max_entries(),
            );
            let wants = describe(
                map.map_type(),
                map.key_size(),
                map.value_size(),
                map.max_entries(),
            );
            if is != wants {
                return Err(layout(
                    &path,
                    &format!("it is {is}, this bestbyd wants {wants}"),
                ));
            }
            if let Some(why) = layouts.misfit(&name, &pinned)? {
                return Err(layout(&path, &why));
            }
        }
        let loaded = open
            .load()
            .tried(|| format!("creating the shared maps in {}", dir.display()))?;
        let memory = libbpf_rs::skel::Skel::object(&loaded)
            .maps()
            .filter_map(|m| memory(&m))
            .sum();
        drop(loaded);
        layouts.keep(names.iter().map(String::as_str))?;
        let path = |name: &str| -> PathBuf { dir.join(name) };
        Ok(Self {
            config: Map::open(&path("bb_config"))?,
            ifaces: Map::open(&path("bb_ifaces"))?,
            autos: Map::open(&path("bb_autos"))?,
            shapes: Map::open(&path("bb_shapes"))?,
            rule_keys: Map::open(&path("bb_rule_keys"))?,
            rules: Map::open(&path("bb_rules"))?,
            rule_stats: Map::open(&path("bb_rule_stats"))?,
            rule_adus: Map::open(&path("bb_rule_adus"))?,
            rtp_stats: Map::open(&path("bb_rtp_stats"))?,
            sessions: Map::open(&path("bb_sessions"))?,
            flows: Map::open(&path("bb_flows"))?,
            streams: Map::open(&path("bb_streams"))?,
            videos: Map::open(&path("bb_videos"))?,
            users: Map::open(&path("bb_users"))?,
            peers: ByAddress::open(dir, "bb_peers")?,
            sock_peers: Map::open(&path("bb_sock_peers"))?,
            rtts: ByAddress::open(dir, "bb_rtts")?,
            trust: Map::open(&path("bb_trust"))?,
            probed: Map::open(&path("bb_probed"))?,
            global: Map::open(&path("bb_global"))?,
            buffers: Map::open(&path("bb_buffers"))?,
            events: MapHandle::from_pinned_path(path("bb_events"))
                .tried(|| "opening bb_events".into())?,
            memory,
            adopted,
            remade: if adopted { gone } else { Vec::new() },
            names,
            dir: dir.to_path_buf(),
        })
    }
}

impl Shared {
    /// Maps whose pins are gone: the next agent would make new ones.
    pub fn unpinned(&self) -> Vec<&str> {
        let names = self.names.iter().map(String::as_str);
        names.filter(|name| !self.dir.join(name).exists()).collect()
    }

    /// The maps that say what the operator and measurements say, for another instance of the classifier, which writes in
    /// none of them. Ours, whatever is pinned by now.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn in_force(&self) -> Result<Vec<(&'static str, OwnedFd)>> {
        let maps: [(&'static str, &MapHandle); 9] = [
            ("bb_config", self.config.handle()),
            ("bb_shapes", self.shapes.handle()),
            ("bb_rules", self.rules.handle()),
            ("bb_rule_keys", self.rule_keys.handle()),
            ("bb_known", self.peers.known.handle()),
            ("bb_peers", self.peers.handle()),
            ("bb_sock_peers", self.sock_peers.handle()),
            ("bb_rtts", self.rtts.handle()),
            ("bb_trust", self.trust.handle()),
        ];
        maps.into_iter()
            .map(|(name, map)| {
                let fd = map.as_fd().try_clone_to_owned();
                Ok((
                    name,
                    fd.tried(|| format!("duplicating the descriptor of {name}"))?,
                ))
            })
            .collect()
    }
}

/// Kernel memory of a map, bytes.
pub fn memory(map: &impl libbpf_rs::MapCore) -> Option<u64> {
    libbpf_rs::MapFdInfo::from_fd(map.as_fd())
        .ok()
        .and_then(|info| info.memlock)
}

/// Counters as the API shows them.
pub fn times(t: &abi::bb_times) -> bestby_api::Times {
    let of = |t: &abi::bb_time| bestby_api::Histogram {
        sum_ns: t.sum_ns,
        counts: t.count.to_vec(),
    };
    bestby_api::Times {
        sojourn: of(&t.sojourn),
        slack: of(&t.slack),
        lateness: of(&t.lateness),
    }
}

/// The same of the counters.
pub fn counters(c: &abi::bb_counters) -> bestby_api::Counters {
    bestby_api::Counters {
        packets_in: c.packets_in,
        bytes_in: c.bytes_in,
        packets_sent: c.packets_sent,
        bytes_sent: c.bytes_sent,
        // Read while packets move: it may be below zero for a moment.
        queued: if c.queued > u64::MAX / 2 { 0 } else { c.queued },
        dropped: bestby_api::Drops::from_array(c.dropped, c.chain),
        sent_stale: c.sent_stale,
        truncated: c.truncated,
        would_drop: bestby_api::Drops::from_array(c.would_drop, c.would_chain),
    }
}
