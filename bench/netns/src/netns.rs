//! Network namespaces that vanish with their guard, or on Ctrl-C.
//!
//! Those of the lab are named (`/run/netns/bbl-PID-LABEL`), so that `ip -n NAME`
//! and `tc -n NAME` work on them and an operator can look inside while a run
//! lasts. One left behind by a lab that was killed is removed by the next one.
//! Those of tests have no name and end with their last descriptor and process.

use std::{
    fs,
    io::{self, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    panic,
    path::Path,
    process::Command,
    thread,
};

use anyhow::{Context as _, Result};
use nix::{
    sched::{CloneFlags, setns, unshare},
    sys::{prctl::set_pdeathsig, signal::Signal},
};

use crate::{cleanup, run};

const DIR: &str = "/run/netns";
const PREFIX: &str = "bbl";

/// One namespace; removed with all its devices when dropped, unless a process
/// or socket is still in it.
#[derive(Debug)]
pub struct Netns {
    // Dropped in this order: the name goes, then the last descriptor, and with it the namespace.
    _guard: Option<cleanup::Guard>,
    fd: OwnedFd,
    name: String,
}

impl Netns {
    /// Creates `bbl-PID-LABEL` with its loopback up. Needs CAP_SYS_ADMIN.
    pub fn new(label: &str) -> Result<Self> {
        remove_orphans();
        let name = format!("{PREFIX}-{}-{label}", std::process::id());
        run::sh(&format!("ip netns add {name}"))
            .context("creating a network namespace (needs root)")?;
        let guard = cleanup::on_exit({
            let name = name.clone();
            move || {
                // A busy namespace lives on without its name; nothing more can be done here.
                if let Err(error) = run::sh(&format!("ip netns delete {name}")) {
                    // Must not panic, as `eprintln!` does if nobody reads.
                    let words = format!("cannot remove the namespace {name}: {error:#}\n");
                    let _ = io::stderr().write_all(words.as_bytes());
                }
            }
        });
        let fd = fs::File::open(Path::new(DIR).join(&name))
            .with_context(|| format!("opening the namespace {name}"))?
            .into();
        let ns = Self {
            _guard: Some(guard),
            fd,
            name,
        };
        ns.sh("ip", "link set lo up")?;
        Ok(ns)
    }

    /// Creates one without a name, its loopback up. Needs CAP_SYS_ADMIN.
    pub fn unnamed() -> Result<Self> {
        let ns = on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .context("creating a network namespace (needs root)")?;
            Self::current()
        })?;
        ns.sh("ip", "link set lo up")?;
        Ok(ns)
    }

    /// That of the calling thread.
    pub fn current() -> Result<Self> {
        let fd: OwnedFd = fs::File::open("/proc/thread-self/ns/net")
            .context("opening the namespace of this thread (is /proc mounted?)")?
            .into();
        let name = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
        Ok(Self {
            _guard: None,
            fd,
            name,
        })
    }

    /// What `ip link set DEV netns` takes: the name under `/run/netns`, or
    /// where there is none a path that is valid while this value lives.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a program in this namespace: `ns.sh("ip", "link set dev a up")`.
    pub fn sh(&self, program: &str, words: &str) -> Result<String> {
        let mut command = self.command(program)?;
        run::output(command.args(words.split_whitespace()))
            .with_context(|| format!("in the namespace {}", self.name))
    }

    /// Runs `work` on a thread of its own inside this namespace; sockets it
    /// returns stay in the namespace wherever they are used. A panic in `work`
    /// goes on in the caller.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        on_a_thread(|| {
            setns(&self.fd, CloneFlags::CLONE_NEWNET)
                .with_context(|| format!("entering the namespace {}", self.name))?;
            work()
        })
    }

    /// A command that will run inside this namespace. Unlike `ip netns exec`
    /// it keeps the mounts, so bpffs and cgroups stay where they are. It ends
    /// with the thread that starts it.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        // The command's own descriptor: it may be spawned when the namespace's value is gone.
        let fd = self
            .fd
            .try_clone()
            .with_context(|| format!("one more descriptor of the namespace {}", self.name))?;
        let mut command = Command::new(program);
        // SAFETY: between fork and exec only system calls are made (pthread_sigmask, prctl, setns),
        // and nothing is allocated.
        unsafe {
            command.pre_exec(move || {
                cleanup::unblock_in_child();
                // A child must not outlive a lab or a test that was killed.
                set_pdeathsig(Signal::SIGKILL)?;
                Ok(setns(&fd, CloneFlags::CLONE_NEWNET)?)
            });
        }
        Ok(command)
    }
}

/// Runs `work` on a thread of its own, which may change its namespace. A panic goes on here.
fn on_a_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let result = thread::scope(|scope| scope.spawn(work).join());
    result.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

/// Removes namespaces of labs that no longer run.
fn remove_orphans() {
    let entries = fs::read_dir(DIR).into_iter().flatten().flatten();
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        if let Some(pid) = owner(&name)
            && !Path::new("/proc").join(pid.to_string()).exists()
        {
            let _ = run::sh(&format!("ip netns delete {name}"));
        }
    }
}

/// The process that made a namespace of this name, if a lab did.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?
        .strip_prefix('-')?
        .split('-')
        .next()?
        .parse()
        .ok()
}

/// One end of a link: namespace, device, address with prefix length.
pub type End<'a> = (&'a Netns, &'a str, &'a str);

/// Connects two namespaces by a veth pair with one transmit queue in each
/// direction, so that packets keep their order; both ends are up.
pub fn link(a: End<'_>, b: End<'_>) -> Result<()> {
    let ((a_ns, a_dev, _), (b_ns, b_dev, _)) = (a, b);
    // Made in place: a name as common as "v0" may exist in the caller's namespace.
    a_ns.sh(
        "ip",
        &format!(
            "link add {a_dev} numtxqueues 1 numrxqueues 1 type veth \
             peer name {b_dev} netns {} numtxqueues 1 numrxqueues 1",
            b_ns.name
        ),
    )?;
    for (ns, dev, address) in [a, b] {
        // Duplicate detection would keep an IPv6 address from use for a second.
        let nodad = if address.contains(':') { " nodad" } else { "" };
        ns.sh("ip", &format!("addr add {address} dev {dev}{nodad}"))?;
        ns.sh("ip", &format!("link set {dev} up"))?;
    }
    Ok(())
}

/// [`link`] with offloads off, so that one packet sent is one packet queued, and
/// [`fixed_neighbours`].
pub fn veth(a: End<'_>, b: End<'_>) -> Result<()> {
    link(a, b)?;
    for (ns, dev, _) in [a, b] {
        ns.sh("ip", &format!("link set {dev} gso_max_segs 1"))?;
    }
    fixed_neighbours(a, b)
}

/// Tells both ends of a [`link`] the other's hardware address: no ARP is queued, and no
/// packet waits for an answer while the next one passes it.
pub fn fixed_neighbours(a: End<'_>, b: End<'_>) -> Result<()> {
    for ((ns, dev, _), (other, other_dev, other_address)) in [(a, b), (b, a)] {
        let mac = mac(other, other_dev)?;
        let address = other_address.split('/').next().unwrap_or(other_address);
        ns.sh(
            "ip",
            &format!("neigh replace {address} lladdr {mac} dev {dev} nud permanent"),
        )?;
    }
    Ok(())
}

fn mac(ns: &Netns, dev: &str) -> Result<String> {
    let text = ns.sh("ip", &format!("-brief link show dev {dev}"))?;
    // "a0@if3   UP   02:00:00:00:00:01 <FLAGS>"
    text.split_whitespace()
        .nth(2)
        .map(str::to_owned)
        .with_context(|| format!("no MAC address of {dev} in `{}`", text.trim()))
}

/// Where the first file system of this kind is mounted, e.g. `cgroup2`.
pub fn mounted(kind: &str) -> Result<Option<std::path::PathBuf>> {
    // Fields: device, mount point, type, options.
    let mounts = fs::read_to_string("/proc/thread-self/mounts").context("reading the mounts")?;
    Ok(mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let point = fields.next()?;
        (fields.next()? == kind).then(|| point.into())
    }))
}

/// Makes sure a bpffs is at `/sys/fs/bpf` or elsewhere; a fresh VM has none.
pub fn ensure_bpffs() -> Result<()> {
    if mounted("bpf")?.is_some() {
        return Ok(());
    }
    run::sh("mount -t bpf bpf /sys/fs/bpf").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_of_a_name_that_no_lab_gave_is_none() {
        assert_eq!(owner("bbl-123-s"), Some(123));
        assert_eq!(owner("bbl-x-s"), None);
        assert_eq!(owner("prod"), None);
    }

    #[test]
    fn mounted_finds_a_mount_by_its_kind() {
        for (kind, point) in [("proc", Some("/proc".into())), ("no such kind", None)] {
            assert_eq!(mounted(kind).expect("/proc is mounted"), point);
        }
    }
}
