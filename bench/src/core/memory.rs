//! Memory of one attached interface with default limits: what the kernel accounts
//! for every BPF map that was not there before, shared ones included.

use std::{
    collections::BTreeMap,
    fs, io, mem,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use anyhow::{Context as _, Result};

use super::Target;
use crate::{bestby::Agent, netns, netns::Netns, table::Table};

const BPF_MAP_GET_NEXT_ID: libc::c_long = 12;
const BPF_MAP_GET_FD_BY_ID: libc::c_long = 14;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const MIB: f64 = 1048576.0;

/// One map.
#[derive(Clone, Debug)]
pub struct Map {
    /// Its name, at most 15 characters.
    pub name: String,
    /// Bytes that the kernel accounts for it (`memlock` of its fdinfo).
    pub bytes: u64,
}

/// What attaching one interface took.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Maps that exist once, however many interfaces are attached.
    pub shared: Vec<Map>,
    /// Maps that came with the interface.
    pub interface: Vec<Map>,
}

impl Memory {
    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.shared
            .iter()
            .chain(&self.interface)
            .map(|m| m.bytes)
            .sum()
    }
}

/// `union bpf_attr` as far as it is used here: ids and info by descriptor.
#[repr(C, align(8))]
#[derive(Default)]
struct Attr {
    words: [u32; 4],
}

fn bpf(command: libc::c_long, attr: &mut Attr) -> io::Result<libc::c_long> {
    // SAFETY: `attr` is live, its size is what is passed, and the bytes it leaves
    // out are taken as zero by the kernel.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            mem::size_of::<Attr>(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// All maps of the kernel by id.
fn maps() -> Result<BTreeMap<u32, Map>> {
    let mut maps = BTreeMap::new();
    let words = |id| Attr {
        words: [id, 0, 0, 0],
    };
    let gone = |error: &io::Error| error.raw_os_error() == Some(libc::ENOENT);
    let mut id = 0;
    loop {
        let mut next = words(id);
        match bpf(BPF_MAP_GET_NEXT_ID, &mut next) {
            Ok(_) => id = next.words[1],
            Err(error) if gone(&error) => return Ok(maps),
            Err(error) => return Err(error).context("listing BPF maps (needs CAP_SYS_ADMIN)"),
        }
        let fd = match bpf(BPF_MAP_GET_FD_BY_ID, &mut words(id)) {
            // SAFETY: the call returned a new descriptor that nobody else owns.
            Ok(fd) => unsafe { OwnedFd::from_raw_fd(fd as i32) },
            // Gone since it was listed.
            Err(error) if gone(&error) => continue,
            Err(error) => return Err(error).context("opening a BPF map"),
        };
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))
            .context("reading a map's fdinfo")?;
        let bytes = info
            .lines()
            .find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
            .context("no memlock in a map's fdinfo")?;
        let name = name(&fd)?;
        maps.insert(id, Map { name, bytes });
    }
}

/// `bpf_map_info.name`.
fn name(fd: &OwnedFd) -> Result<String> {
    // type, id, key, value, entries, flags (6 words), then name[16].
    let mut info = [0u8; 40];
    let address = info.as_mut_ptr() as u64;
    let mut attr = Attr {
        words: [
            fd.as_raw_fd() as u32,
            info.len() as u32,
            address as u32,
            (address >> 32) as u32,
        ],
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr).context("reading a map's info")?;
    let name = &info[24..40];
    let end = name
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Starts the agent, attaches one interface, and looks at what is new.
pub fn run() -> Result<Memory> {
    let (a, b) = (Netns::new("ma")?, Netns::new("mb")?);
    netns::veth((&a, "s0", "10.79.0.1/24"), (&b, "r0", "10.79.0.2/24"))?;
    let before = maps()?;
    let agent = Agent::start(&a, "memory")?;
    let started = maps()?;
    agent.bestby("iface attach s0 --mode qdisc --rate 10mbit")?;
    let attached = maps()?;
    agent.bestby("iface detach s0")?;
    let new = |mut after: BTreeMap<u32, Map>, before: &BTreeMap<u32, Map>| {
        after.retain(|id, _| !before.contains_key(id));
        let mut list: Vec<Map> = after.into_values().collect();
        list.sort_by_key(|map| std::cmp::Reverse(map.bytes));
        list
    };
    Ok(Memory {
        interface: new(attached, &started),
        shared: new(started, &before),
    })
}

/// The maps as a table, largest first; those below 64 KiB in one line.
pub fn render(memory: &Memory) -> String {
    let mut table = Table::new(&["map", "KiB", ""]);
    for (list, what) in [(&memory.shared, "shared"), (&memory.interface, "interface")] {
        let mut row = |name: String, bytes: u64| {
            table.row(vec![name, (bytes / 1024).to_string(), what.into()]);
        };
        let (large, small): (Vec<&Map>, Vec<&Map>) = list.iter().partition(|m| m.bytes >= 65536);
        for map in large {
            row(map.name.clone(), map.bytes);
        }
        let rest = small.iter().map(|m| m.bytes).sum();
        row(format!("{} smaller", small.len()), rest);
    }
    format!(
        "\nMemory of one attached interface, default limits: {:.2} MiB\n{}",
        memory.bytes() as f64 / MIB,
        table.render()
    )
}

/// What must hold of it.
pub(super) fn target(memory: &Memory) -> Target {
    let what = "memory of one interface, MiB".to_owned();
    Target::at_most(what, memory.bytes() as f64 / MIB, 40.0)
}
