//! Namespaces for tests: everything in them, qdiscs, pins and mounts, is gone when the test ends, however it ends.
//!
//! Where `bestby_netns` returns an error, the test fails.
#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use bestby_netns::{netns, tun};

use crate::require;

/// A network namespace without a name: it ends with its last process and descriptor.
#[derive(Debug)]
pub struct Netns(netns::Netns);

impl Netns {
    /// A new one, with `lo` up.
    ///
    /// # Panics
    /// Without root.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(netns::Netns::unnamed().unwrap())
    }

    /// That of the calling thread.
    pub fn current() -> Self {
        Self(netns::Netns::current().unwrap())
    }

    /// What `ip link set DEV netns` takes.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Runs a closure in it, on a thread of its own.
    ///
    /// # Panics
    /// As the closure does.
    pub fn enter<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        self.0.enter(|| Ok(f())).unwrap()
    }

    /// A command that will run in it; it ends with the thread that starts it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.0.command(program).unwrap()
    }

    /// Runs a command line (words separated by spaces) and returns what it prints.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn run(&self, line: &str) -> String {
        let (program, words) = line.split_once(' ').unwrap_or((line, ""));
        self.0.sh(program, words).unwrap()
    }

    /// A link between two namespaces: devices, both with one transmit queue, and addresses (with `/BITS`).
    ///
    /// # Panics
    /// If a device or an address is refused.
    #[track_caller]
    pub fn link(
        &self,
        dev: &str,
        address: &str,
        other: &Self,
        other_dev: &str,
        other_address: &str,
    ) {
        netns::link(
            (&self.0, dev, address),
            (&other.0, other_dev, other_address),
        )
        .unwrap();
    }
}

/// Runs a closure on a thread of its own, whose namespaces, credentials and capabilities it may change for good.
///
/// # Panics
/// As the closure does.
pub fn in_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(f).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs a test in a network namespace of its own (a thread's), `lo` up.
///
/// # Panics
/// As the test does; without root.
pub fn in_namespace<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    Netns::new().enter(test)
}

/// Runs a script in the namespaces of the calling thread and returns what it prints.
///
/// # Errors
/// The script and all it printed, if it fails.
pub fn try_shell(script: &str) -> Result<String, String> {
    let done = Command::new("sh").args(["-euc", script]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() {
        Ok(text(&done.stdout))
    } else {
        let said = text(&done.stdout) + &text(&done.stderr);
        Err(format!("{script}: {said}"))
    }
}

/// [`try_shell`] with a script that must work.
///
/// # Panics
/// If it fails.
#[track_caller]
pub fn shell(script: &str) -> String {
    try_shell(script).unwrap_or_else(|said| panic!("{said}"))
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

/// A tun device: its packets start with the IP header, and their checksums are the reader's to make (Linux 6.1 wants
/// that of a device for UDP GSO). The file keeps it there.
///
/// # Panics
/// Without the driver.
#[must_use]
pub fn tun(name: &str) -> File {
    let file = tun::open(name, false).unwrap();
    // SAFETY: the argument is a number.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::TUN_F_CSUM) };
    assert_eq!(status, 0, "{}", io::Error::last_os_error());
    file
}

/// The root of the cgroup2 tree.
///
/// # Panics
/// When it is not mounted.
#[must_use]
pub fn cgroup_root() -> PathBuf {
    let mounted = netns::mounted("cgroup2").unwrap();
    mounted.expect("cgroup2 is not mounted")
}

/// What one test of the agent needs, in mount and network namespaces of its own.
#[derive(Debug)]
pub struct Lab {
    /// A directory for files.
    pub dir: PathBuf,
    /// A bpffs of this test.
    pub bpffs: PathBuf,
    /// A cgroup of this test; empty.
    pub cgroup: PathBuf,
    /// Where the test runs.
    pub netns: Netns,
}

/// Removes the cgroup, which no namespace does.
struct Cgroup(PathBuf);

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Mounts a file system of this kind.
///
/// # Panics
/// If the kernel refuses.
pub fn mount(kind: &str, at: &Path, options: &str) {
    let strings = [
        kind.as_bytes(),
        at.as_os_str().as_encoded_bytes(),
        options.as_bytes(),
    ];
    let [kind, target, options] = strings.map(|bytes| std::ffi::CString::new(bytes).unwrap());
    // SAFETY: all strings end in NUL and outlive the call; the data of these kinds is a string.
    let mounted = unsafe {
        libc::mount(
            kind.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            0,
            options.as_ptr().cast(),
        )
    };
    assert_eq!(
        mounted,
        0,
        "mounting {} at {}: {} (run as root)",
        kind.to_string_lossy(),
        at.display(),
        io::Error::last_os_error()
    );
}

/// Runs a test in fresh namespaces; `/tmp/...` of [`Lab::dir`] is a small tmpfs that others do not see.
///
/// # Panics
/// As the test does; without root.
pub fn lab<R: Send>(test: impl FnOnce(&Lab) -> R + Send) -> R {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "bestby-test-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    let cgroup = Cgroup(cgroup_root().join(&name));
    std::fs::create_dir(&cgroup.0).expect("making a cgroup");
    let dir = tempfile::tempdir().expect("a temporary directory");
    in_thread(|| {
        // SAFETY: affects the calling thread only, which ends with the test.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) };
        assert_eq!(
            result,
            0,
            "namespaces: {} (needs root)",
            io::Error::last_os_error()
        );
        shell("mount --make-rprivate /; ip link set lo up");
        let bpffs = dir.path().join("bpffs");
        let files = dir.path().join("files");
        for (kind, at, options) in [("bpf", &bpffs, ""), ("tmpfs", &files, "size=1m")] {
            std::fs::create_dir(at).expect("a directory");
            mount(kind, at, options);
        }
        test(&Lab {
            dir: files,
            bpffs: bpffs.join("bestby"),
            cgroup: cgroup.0.clone(),
            netns: Netns::current(),
        })
    })
}

/// Lets what arrives at `dev` wait on one CPU, so that it is received in the order in which a qdisc let it go.
///
/// Without, a veth has a backlog per CPU, and a packet waits on that which happened to run the qdisc: while an IPv6
/// worker sends a report of its own on another one, that one takes a test's packet along, and the next overtakes it.
fn one_backlog(netns: &Netns, dev: &str) {
    let script =
        format!("mount -t sysfs sysfs /sys; echo 1 > /sys/class/net/{dev}/queues/rx-0/rps_cpus");
    let mut command = netns.command("unshare");
    let done = command.args(["--mount", "sh", "-euc", &script]).output();
    let done = done.unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{script}: {said}");
}

/// [`lab`] with a link: `v0` (10.9.0.1) in it, `v1` (10.9.0.2, [`crate::load::PEER`]) in another namespace, which
/// receives what leaves `v0` in the order in which it left. Not run, and said so, where `probe` finds something missing.
///
/// # Panics
/// As the test does.
pub fn linked_lab(probe: Result<(), String>, test: impl FnOnce(&Lab, &Netns) + Send) {
    if !require::can(probe) {
        return;
    }
    lab(|lab| {
        let peer = Netns::new();
        let ends = (
            (&lab.netns.0, "v0", "10.9.0.1/24"),
            (&peer.0, "v1", "10.9.0.2/24"),
        );
        netns::link(ends.0, ends.1).unwrap();
        netns::fixed_neighbours(ends.0, ends.1).unwrap();
        one_backlog(&peer, "v1");
        test(lab, &peer);
    });
}
