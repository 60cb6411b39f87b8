//! `bestbyd teardown`: gives everything back without an agent.
//!
//! What an agent leaves has four holders: a qdisc at an interface, a filter or a tcx link beside it, a pair of devices
//! that cuts super-packets, and the pins. Records in the pins say what was there before. Pins can be gone: somebody
//! removed them, or unmounted the bpffs. So the records are used where there are some, and what no record names is
//! found by what it is:
//!
//! 1. TCP-Real is switched off, so that its connections go on as Reno.
//! 2. Each interface gets its earlier root qdisc back, or the kernel's default one.
//! 3. Links are detached, then clsact filters and tcx programs that no pin holds.
//! 4. Pairs of devices are deleted, when no classifier sends to them any more, and TCP's limit beside them is lifted.
//! 5. The pins are removed.
//!
//! A step that fails does not stop the others.

use std::path::{Path, PathBuf};

use bestby_bpf::abi;

use crate::datapath::segment;
use crate::datapath::{KEPT_IFACE, missing_capabilities};
use crate::error::{Error, Result, Tried as _};
use crate::kernel::filter::Side;
use crate::kernel::store::Store;
use crate::kernel::sys;
use crate::kernel::tc::{Link, Tc};
use crate::kernel::tcp_real::TcpReal;
use crate::observed::attached::{self, Attached};

/// Programs of ours at a device's tcx.
const AT_TCX: [&str; 3] = ["bb_classify", "bb_answers", "bb_real_ingress"];

/// Gives back what is pinned in `bpffs`, and what is left of bestby in this network namespace. Returns what was done,
/// line by line.
///
/// # Errors
/// An agent runs, the pins are of another network namespace, or a capability is missing: nothing was changed then.
/// Else what could not be given back.
pub fn teardown(bpffs: &Path, socket: &Path) -> Result<Vec<String>> {
    let missing = missing_capabilities();
    if !missing.is_empty() {
        let what = format!("bestbyd teardown lacks {}", missing.join(", "));
        return Err(Error::forbidden(what).hint("run it as root"));
    }
    let running =
        |what: String| Error::conflict(what).hint("stop it first: systemctl stop bestbyd");
    if std::os::unix::net::UnixStream::connect(socket).is_ok() {
        let socket = socket.display();
        return Err(running(format!(
            "a bestbyd is running and listens on {socket}"
        )));
    }
    let there = sys::is_bpffs(bpffs);
    let _lock = match there.then(|| sys::lock_directory(bpffs)) {
        Some(Err(e)) if e.kind() == std::io::ErrorKind::WouldBlock => {
            let dir = bpffs.display();
            return Err(running(format!("a bestbyd is running on {dir}")));
        }
        Some(lock) => Some(lock.tried(|| format!("locking {}", bpffs.display()))?),
        None => None,
    };
    if let Some(pid) = another_here() {
        return Err(running(format!(
            "a bestbyd is running in this network namespace (process {pid}), with other pins"
        )));
    }
    let mut work = Teardown {
        tc: Tc::open()?,
        said: Vec::new(),
        failed: Vec::new(),
    };
    let kept = if there {
        work.records(bpffs)
    } else {
        Vec::new()
    };
    attached::same_namespace(&kept, sys::netns_cookie()?, bpffs)?;
    if there && bpffs.join("real").exists() {
        let off = TcpReal::new(bpffs).off();
        work.done(off, "TCP-Real is off; its connections go on as Reno");
    }
    let links = work.tc.links()?;
    let record = |link: &Link| {
        kept.iter()
            .map(|(_, a)| a)
            .find(|a| a.ifindex == link.ifindex)
    };
    let mut pairs = segment::pairs(&links);
    for link in &links {
        let was_ours = work.root(link, record(link));
        // Where no device can cut, TCP's limit is all there is of it.
        if was_ours && record(link).is_none() {
            let pair = segment::unrecorded(link);
            pairs.entry(link.ifindex).or_insert(pair);
        }
    }
    if there {
        detach_links(bpffs);
    }
    for link in &links {
        work.programs(link);
    }
    for (ifindex, old) in kept
        .iter()
        .filter_map(|(_, a)| Some((a.ifindex, a.segmenter?)))
    {
        pairs.insert(ifindex, old);
    }
    for (ifindex, old) in pairs {
        let name = links
            .iter()
            .find(|l| l.ifindex == ifindex)
            .map_or("-", |l| &l.name);
        let given = segment::give_back(&mut work.tc, &old, ifindex);
        work.done(
            given,
            &format!("interface {name}: super-packets are as large as before"),
        );
    }
    if there {
        let removed = remove_pins(bpffs);
        work.done(removed, &format!("removed {}", bpffs.display()));
    }
    work.end()
}

/// A bestbyd of this network namespace beside this one. What no record names may be its own.
fn another_here() -> Option<u32> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net"));
    let own = namespace("self").ok()?;
    std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id())
        .find(|pid| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim_end() == "bestbyd")
                && namespace(&pid.to_string()).is_ok_and(|there| there == own)
        })
}

/// One teardown.
struct Teardown {
    tc: Tc,
    said: Vec<String>,
    failed: Vec<Error>,
}

impl Teardown {
    fn done(&mut self, result: Result<()>, what: &str) {
        match result {
            Ok(()) => self.said.push(what.to_string()),
            Err(e) => self.failed.push(e),
        }
    }

    /// What an agent remembered of its interfaces. Records that cannot be read are as good as gone.
    fn records(&mut self, bpffs: &Path) -> Vec<(u32, Attached)> {
        if !bpffs.join("bba_ifaces").exists() {
            return Vec::new();
        }
        match Store::open(bpffs, "bba_ifaces", KEPT_IFACE, abi::BB_MAX_IFACES) {
            Ok(store) => store.all(),
            Err(e) => {
                self.said.push(format!(
                    "earlier qdiscs are not known, interfaces get the kernel's default one: {e}"
                ));
                Vec::new()
            }
        }
    }

    /// Gives an interface the root qdisc back that it had; whether it was ours.
    fn root(&mut self, link: &Link, record: Option<&Attached>) -> bool {
        match self.tc.root(link.ifindex) {
            Ok(Some(q)) if q.is_ours() => {}
            Ok(_) => return false,
            Err(e) => {
                self.failed.push(e);
                return false;
            }
        }
        let earlier = record.and_then(|a| a.earlier.as_ref());
        let restored = self.tc.restore(link, earlier);
        let now = self.tc.root(link.ifindex).ok().flatten();
        let kind = now.map_or("none".to_string(), |q| q.kind);
        self.done(
            restored,
            &format!("interface {}: its root qdisc is {kind} now", link.name),
        );
        true
    }

    /// Removes programs from an interface that no pin holds any more: a filter, or links pinned in another bpffs.
    fn programs(&mut self, link: &Link) {
        for side in Side::ALL {
            match self.tc.has_filter(link.ifindex, side) {
                Ok(false) => {}
                Ok(true) => {
                    let removed = self.tc.remove_filter(link.ifindex, &link.name, side);
                    let what = format!("interface {}: {} is gone", link.name, side.program());
                    self.done(removed, &what);
                }
                Err(e) => self.failed.push(e),
            }
        }
        match sys::detach_tcx(link.ifindex, &AT_TCX) {
            Ok(0) => {}
            Ok(_) => self.said.push(format!(
                "interface {}: its packets are not judged any more",
                link.name
            )),
            Err(e) => self.failed.push(crate::error::os_error(
                &format!("interface {}: detaching what no pin holds", link.name),
                &e,
            )),
        }
    }

    fn end(mut self) -> Result<Vec<String>> {
        let failed = self.failed.into_iter().reduce(|a, b| Error {
            message: format!("{}\n{b}", a.message),
            ..a
        });
        if let Some(e) = failed {
            let done = if self.said.is_empty() {
                "nothing".to_string()
            } else {
                self.said.join("; ")
            };
            return Err(e.within(format!("not everything was given back (done: {done})")));
        }
        if self.said.is_empty() {
            self.said.push("nothing of bestby is here".into());
        }
        Ok(self.said)
    }
}

/// Detaches every link that is pinned somewhere below a directory: at once, not when the kernel gets round to it.
fn detach_links(dir: &Path) {
    let mut directories: Vec<PathBuf> = vec![dir.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
            } else if let Ok(link) = libbpf_rs::Link::open(entry.path()) {
                // Maps and programs are pinned, too: of them the kernel refuses it.
                let _ = link.detach();
            }
        }
    }
}

/// Removes a directory of pins. One that is itself where the bpffs is mounted stays, empty.
fn remove_pins(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => Ok(()),
        other => other.tried(|| format!("removing {}", dir.display())),
    }
}
