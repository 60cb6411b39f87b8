//! Memory of one attached interface with default limits: what the kernel accounts
//! for every BPF map that was not there before, shared ones included.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fs,
    os::fd::{AsFd as _, AsRawFd as _},
};

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::{ErrorKind, MapHandle, query::MapInfoIter};

use super::Target;
use crate::{bestby::Agent, netns, netns::Netns, say, table::Table};

const MIB: f64 = 1048576.0;

/// All maps of the kernel by id: the name and the bytes that the kernel accounts for it
/// (`memlock` of its fdinfo).
type Maps = BTreeMap<u32, (String, u64)>;

fn maps() -> Result<Maps> {
    let mut maps = BTreeMap::new();
    for info in MapInfoIter::default() {
        let map = match MapHandle::from_map_id(info.id) {
            // Gone since it was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            map => map.with_context(|| format!("opening map {}", info.id))?,
        };
        let file = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
        let text = fs::read_to_string(file).context("reading a map's fdinfo")?;
        let bytes = text
            .lines()
            .find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
            .context("no memlock in a map's fdinfo")?;
        maps.insert(info.id, (info.name.to_string_lossy().into_owned(), bytes));
    }
    Ok(maps)
}

/// Starts the agent, attaches one interface, and prints what is new, largest first; maps below
/// 64 KiB in one line.
pub(super) fn run() -> Result<Target> {
    let (a, b) = (Netns::new("ma")?, Netns::new("mb")?);
    netns::veth((&a, "s0", "10.79.0.1/24"), (&b, "r0", "10.79.0.2/24"))?;
    let before = maps()?;
    let agent = Agent::start(&a, "memory")?;
    let started = maps()?;
    agent.bestby("iface attach s0 --enforce --mode qdisc --rate 10mbit")?;
    let attached = maps()?;
    agent.bestby("iface detach s0")?;
    let mut table = Table::new(&["map", "KiB", ""]);
    let mut all = 0;
    for (what, after, before) in [
        ("shared", &started, &before),
        ("interface", &attached, &started),
    ] {
        // The kernel's list of maps ends at an error as it does at its end.
        ensure!(
            after.len() > before.len() && before.keys().all(|id| after.contains_key(id)),
            "{what}: {} maps became {}, of which some are others: the kernel did not list all",
            before.len(),
            after.len()
        );
        let new = after.iter().filter(|(id, _)| !before.contains_key(*id));
        let mut new: Vec<&(String, u64)> = new.map(|(_, map)| map).collect();
        new.sort_by_key(|(_, bytes)| Reverse(*bytes));
        let large = new.partition_point(|(_, bytes)| *bytes >= 65536);
        let bytes = |maps: &[&(String, u64)]| maps.iter().map(|(_, bytes)| bytes).sum::<u64>();
        all += bytes(&new);
        let (large, small) = new.split_at(large);
        let small = (format!("{} smaller", small.len()), bytes(small));
        for (name, bytes) in large.iter().copied().chain([&small]) {
            table.row(vec![name.clone(), (bytes / 1024).to_string(), what.into()]);
        }
    }
    let all = all as f64 / MIB;
    say::text(&format!(
        "\nMemory of one attached interface, default limits: {all:.2} MiB\n{}",
        table.render()
    ));
    let what = "memory of one interface, MiB".to_owned();
    Ok(Target::at_most(what, all, 40.0))
}
