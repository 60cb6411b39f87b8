//! Network namespaces that vanish with their guard, or on Ctrl-C.
//!
//! They are named (`/run/netns/bbl-PID-LABEL`), so that `ip -n NAME` and
//! `tc -n NAME` work on them and an operator can look inside while a run lasts.
//! A namespace left behind by a lab that was killed is removed by the next one.

use std::{
    ffi::CString,
    fs, io,
    os::{fd::AsRawFd as _, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context as _, Result, anyhow};

use crate::{cleanup, run};

const DIR: &str = "/run/netns";
const PREFIX: &str = "bbl";

/// One namespace; removed with all its devices when dropped.
#[derive(Debug)]
pub struct Netns {
    name: String,
    _guard: cleanup::Guard,
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
                    eprintln!("cannot remove the namespace {name}: {error:#}");
                }
            }
        });
        run::sh(&format!("ip -n {name} link set lo up"))?;
        Ok(Self {
            name,
            _guard: guard,
        })
    }

    /// The name under `/run/netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> PathBuf {
        Path::new(DIR).join(&self.name)
    }

    /// Runs `ip` or `tc` (any program that takes `-n NAME`) on this namespace:
    /// `ns.sh("ip", "link set dev a up")`.
    pub fn sh(&self, program: &str, words: &str) -> Result<String> {
        run::sh(&format!("{program} -n {} {words}", self.name))
    }

    /// Runs `work` on a thread of its own inside this namespace; sockets it
    /// returns stay in the namespace wherever they are used.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let file = fs::File::open(self.path())
            .with_context(|| format!("opening the namespace {}", self.name))?;
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    set_netns(file.as_raw_fd())
                        .with_context(|| format!("entering the namespace {}", self.name))?;
                    work()
                })
                .join()
                .map_err(|_| anyhow!("a thread in the namespace {} panicked", self.name))?
        })
    }

    /// A command that will run inside this namespace. Unlike `ip netns exec`
    /// it keeps the mounts, so bpffs and cgroups stay where they are.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        let path = CString::new(self.path().into_os_string().into_encoded_bytes())
            .context("namespace path")?;
        let mut command = Command::new(program);
        // SAFETY: between fork and exec only async-signal-safe calls are made
        // (open, setns, close, sigprocmask, prctl) and nothing is allocated.
        unsafe {
            command.pre_exec(move || {
                cleanup::unblock_in_child();
                // A child must not outlive a lab that was killed.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
                if fd < 0 {
                    return Err(io::Error::last_os_error());
                }
                let result = set_netns(fd);
                libc::close(fd);
                result
            });
        }
        Ok(command)
    }
}

fn set_netns(fd: i32) -> io::Result<()> {
    // SAFETY: setns takes plain integers; a bad descriptor is an error, not undefined.
    if unsafe { libc::setns(fd, libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Removes namespaces of labs that no longer run.
fn remove_orphans() {
    let Ok(entries) = fs::read_dir(DIR) else {
        return;
    };
    for name in entries
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
    {
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

/// Connects two namespaces: device `a_dev` in `a`, `b_dev` in `b`, addresses
/// with prefix length, both up. Offloads are switched off so that one packet
/// sent is one packet queued; neighbours are fixed so that no ARP is queued.
pub fn veth(
    (a, a_dev, a_addr): (&Netns, &str, &str),
    (b, b_dev, b_addr): (&Netns, &str, &str),
) -> Result<()> {
    run::sh(&format!(
        "ip link add {a_dev} netns {} type veth peer name {b_dev} netns {}",
        a.name, b.name
    ))?;
    for (ns, dev, addr) in [(a, a_dev, a_addr), (b, b_dev, b_addr)] {
        ns.sh("ip", &format!("addr add {addr} dev {dev}"))?;
        ns.sh("ip", &format!("link set {dev} gso_max_segs 1 up"))?;
    }
    for (ns, dev, other, other_dev, other_addr) in
        [(a, a_dev, b, b_dev, b_addr), (b, b_dev, a, a_dev, a_addr)]
    {
        let mac = mac(other, other_dev)?;
        let addr = other_addr.split('/').next().unwrap_or(other_addr);
        ns.sh(
            "ip",
            &format!("neigh replace {addr} lladdr {mac} dev {dev} nud permanent"),
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

/// Mounted where? Makes sure a bpffs is at `/sys/fs/bpf`; a fresh VM has none.
pub fn ensure_bpffs() -> Result<()> {
    let mounts = fs::read_to_string("/proc/mounts").context("reading /proc/mounts")?;
    if mounts
        .lines()
        .any(|l| l.split_whitespace().nth(2) == Some("bpf"))
    {
        return Ok(());
    }
    run::sh("mount -t bpf bpf /sys/fs/bpf").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_labs_have_an_owner() {
        assert_eq!(owner("bbl-123-s"), Some(123));
        assert_eq!(owner("bbl-x-s"), None);
        assert_eq!(owner("prod"), None);
    }
}
