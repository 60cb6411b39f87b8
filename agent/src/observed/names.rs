//! Devices and cgroups by name, as the host has them now.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bestby_api::{CgroupPath, DevName};

use crate::error::{Error, Result, Tried as _};
use crate::kernel::sys;

/// Finds the cgroup2 tree: the one asked for, or the first in /proc/mounts that can be reached.
///
/// # Errors
/// There is none, or the path asked for is not in one.
pub fn cgroup_root(asked: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = asked {
        if sys::is_cgroup2(path) {
            return Ok(path.to_path_buf());
        }
        return Err(Error::invalid(format!(
            "--cgroup {}: not a directory of a cgroup2 tree",
            path.display()
        )));
    }
    let mounts = std::fs::read_to_string("/proc/mounts").tried(|| "reading /proc/mounts".into())?;
    // A mount may hide below a later one: what is at its path now decides.
    mount_points(&mounts).find(|point| sys::is_cgroup2(point)).ok_or_else(|| {
        Error::unsupported("no cgroup2 tree is mounted, so socket options and the RTT of TCP cannot be read")
            .hint("mount -t cgroup2 none /sys/fs/cgroup/unified, or give --cgroup PATH; then restart bestbyd")
    })
}

/// The cgroup2 mount points in the text of /proc/mounts.
fn mount_points(mounts: &str) -> impl Iterator<Item = PathBuf> {
    mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(point.replace("\\040", " ")))
    })
}

/// The top of the cgroup2 tree that a path lies in.
fn tree_top(path: &Path) -> PathBuf {
    let mut top = path;
    while let Some(parent) = top.parent() {
        if !sys::is_cgroup2(parent) {
            break;
        }
        top = parent;
    }
    top.to_path_buf()
}

/// Names that only the running host can turn into numbers.
pub trait Resolve {
    /// Index of a device, `None` while it does not exist.
    fn ifindex(&self, dev: &DevName) -> Option<u32>;
    /// Id and level (the root has 0) of a cgroup, `None` while the kernel would not find it by those.
    fn cgroup(&self, path: &CgroupPath) -> Option<(u64, u32)>;
    /// Why [`Resolve::cgroup`] has none.
    fn no_cgroup(&self, path: &CgroupPath) -> String {
        format!("cgroup {path} does not exist")
    }
}

/// A picture of the host's names at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    devices: BTreeMap<String, u32>,
    cgroup_top: Option<PathBuf>,
    /// Whether that is the top that the kernel counts levels from.
    whole: bool,
}

/// Id of the real top of the cgroup2 tree. In a cgroup namespace, as a container has, another one seems to be it.
const CGROUP_ROOT: u64 = 1;
/// What is wrong with the tree then, and what to do.
pub(crate) const PART_OF_TREE: &str = "bestbyd is in a cgroup namespace of its own (a container's), \
     where levels of cgroups are not the kernel's";
pub(crate) const WHOLE_TREE: &str = "run bestbyd in the host's cgroup namespace (docker: --cgroupns host), or mount the host's tree and give --cgroup";

impl Names {
    /// Takes the devices given, and looks cgroups up below `cgroup_root`'s tree.
    pub fn new(
        devices: impl IntoIterator<Item = (String, u32)>,
        cgroup_root: Option<&Path>,
    ) -> Self {
        let cgroup_top = cgroup_root.map(tree_top);
        let top = cgroup_top
            .as_ref()
            .and_then(|top| std::fs::metadata(top).ok());
        Self {
            devices: devices.into_iter().collect(),
            cgroup_top,
            whole: top.is_some_and(|top| top.ino() == CGROUP_ROOT),
        }
    }

    /// Whether a cgroup2 tree is seen, and only a part of it.
    pub(crate) const fn sees_part(&self) -> bool {
        self.cgroup_top.is_some() && !self.whole
    }

    /// The directory of a cgroup, if there is a cgroup2 tree; it need not exist.
    pub fn cgroup_directory(&self, path: &CgroupPath) -> Option<PathBuf> {
        let top = self.cgroup_top.as_deref()?;
        let given = Path::new(path.as_str());
        let below = given
            .strip_prefix(top)
            .or_else(|_| given.strip_prefix("/"))
            .ok()?;
        Some(top.join(below))
    }

    /// Id and level of each cgroup from the top down to this one.
    pub fn cgroup_ancestors(&self, path: &CgroupPath) -> Option<Vec<u64>> {
        if !self.whole {
            return None;
        }
        let directory = self.cgroup_directory(path)?;
        let top = self.cgroup_top.as_deref()?;
        let below = directory.strip_prefix(top).ok()?;
        let mut at = top.to_path_buf();
        let mut ids = vec![std::fs::metadata(&at).ok()?.ino()];
        for part in below.components() {
            at.push(part);
            let meta = std::fs::metadata(&at).ok()?;
            if !meta.is_dir() {
                return None;
            }
            ids.push(meta.ino());
        }
        Some(ids)
    }
}

impl Resolve for Names {
    fn ifindex(&self, dev: &DevName) -> Option<u32> {
        self.devices.get(dev.as_str()).copied()
    }

    fn cgroup(&self, path: &CgroupPath) -> Option<(u64, u32)> {
        let ids = self.cgroup_ancestors(path)?;
        Some((*ids.last()?, u32::try_from(ids.len() - 1).ok()?))
    }

    fn no_cgroup(&self, path: &CgroupPath) -> String {
        if self.sees_part() {
            format!("cgroup {path}: {PART_OF_TREE}; {WHOLE_TREE}")
        } else {
            format!("cgroup {path} does not exist")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup2_mount_point_is_found_and_unescaped() {
        let text = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /a\\040b cgroup2 rw 0 0\n";
        assert_eq!(mount_points(text).next(), Some(PathBuf::from("/a b")));
        assert_eq!(mount_points("proc /proc proc rw 0 0\n").next(), None);
    }
}
