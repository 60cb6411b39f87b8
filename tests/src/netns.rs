//! Namespaces for tests: everything in them, qdiscs, pins and mounts, is gone when the test ends, however it ends.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// A network namespace without a name: it ends with its last process and descriptor.
#[derive(Debug)]
pub struct Netns {
    fd: OwnedFd,
}

fn current_fd() -> OwnedFd {
    File::open("/proc/thread-self/ns/net")
        .expect("/proc is mounted")
        .into()
}

fn enter_fd(fd: i32) -> io::Result<()> {
    // SAFETY: changes the namespace of the calling thread (or of a child before exec) only.
    if unsafe { libc::setns(fd, libc::CLONE_NEWNET) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

impl Netns {
    /// A new one, with `lo` up.
    ///
    /// # Panics
    /// Without root.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let fd = thread::spawn(|| {
            // SAFETY: affects the calling thread only, which ends here.
            let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            assert_eq!(
                result,
                0,
                "network namespace: {}",
                io::Error::last_os_error()
            );
            current_fd()
        })
        .join()
        .expect("the thread that makes a namespace");
        let netns = Self { fd };
        netns.run("ip link set lo up");
        netns
    }

    /// That of the calling thread.
    pub fn current() -> Self {
        Self { fd: current_fd() }
    }

    /// Runs a closure in it, on a thread of its own.
    ///
    /// # Panics
    /// As the closure does.
    pub fn enter<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter_fd(self.fd.as_raw_fd()).expect("entering a namespace");
                f()
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A command that will run in it.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let fd = self.fd.as_raw_fd();
        // SAFETY: between fork and exec only setns is called, which is async-signal-safe; the descriptor is
        // this namespace's and is open as long as the command is spawned before it is dropped.
        unsafe { command.pre_exec(move || enter_fd(fd)) };
        command
    }

    /// Runs a command line (words separated by spaces) and returns what it prints.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let output = self
            .command(words.next().expect("a command"))
            .args(words)
            .output()
            .unwrap_or_else(|e| panic!("{line}: {e}"));
        assert!(
            output.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A link between two namespaces: devices, both with one transmit queue, and addresses (with `/BITS`).
    ///
    /// # Panics
    /// If a device or an address is refused.
    pub fn link(
        &self,
        dev: &str,
        address: &str,
        other: &Self,
        other_dev: &str,
        other_address: &str,
    ) {
        self.run(&format!(
            "ip link add {dev} numtxqueues 1 numrxqueues 1 type veth peer name {other_dev} numtxqueues 1 numrxqueues 1"
        ));
        self.run(&format!(
            "ip link set {other_dev} netns /proc/{}/fd/{}",
            std::process::id(),
            other.fd.as_raw_fd()
        ));
        for (netns, dev, address) in [(self, dev, address), (other, other_dev, other_address)] {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            netns.run(&format!("ip addr add {address} dev {dev}{nodad}"));
            netns.run(&format!("ip link set {dev} up"));
        }
    }
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

fn cgroup2() -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("/proc/mounts");
    let point = mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words.get(2) == Some(&"cgroup2")).then(|| PathBuf::from(words[1]))
    });
    point.expect("a cgroup2 tree is mounted")
}

fn mount(kind: &str, at: &Path, options: &str) {
    let status = Command::new("mount")
        .args(["-t", kind, "-o", options, kind])
        .arg(at)
        .status()
        .expect("mount");
    assert!(status.success(), "mounting {kind} at {}", at.display());
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
    let cgroup = Cgroup(cgroup2().join(&name));
    std::fs::create_dir(&cgroup.0).expect("making a cgroup");
    let dir = tempfile::tempdir().expect("a temporary directory");
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: affects the calling thread only, which ends with the test.
            let result = unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) };
            assert_eq!(
                result,
                0,
                "namespaces: {} (needs root)",
                io::Error::last_os_error()
            );
            let status = Command::new("mount")
                .args(["--make-rprivate", "/"])
                .status()
                .expect("mount");
            assert!(status.success(), "making mounts private");
            let bpffs = dir.path().join("bpffs");
            let files = dir.path().join("files");
            std::fs::create_dir(&bpffs).expect("a directory");
            std::fs::create_dir(&files).expect("a directory");
            mount("bpf", &bpffs, "rw");
            mount("tmpfs", &files, "size=1m");
            let netns = Netns::current();
            netns.run("ip link set lo up");
            test(&Lab {
                dir: files,
                bpffs: bpffs.join("bestby"),
                cgroup: cgroup.0.clone(),
                netns,
            })
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Number's place in a datagram: behind bytes that look like neither RTP, STUN nor DTLS, which the classifier knows.
const NUMBER: usize = 8;
/// A datagram has at least this many bytes.
const HEADER: usize = NUMBER + 8;

/// Receives numbered datagrams in a namespace until told to stop.
#[derive(Debug)]
pub struct Counter {
    socket: std::net::UdpSocket,
    thread: Option<thread::JoinHandle<Vec<u64>>>,
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Counter {
    /// Listens on `address:port`.
    ///
    /// # Panics
    /// If the address cannot be used.
    pub fn new(netns: &Netns, address: IpAddr, port: u16) -> Self {
        let socket = netns.enter(|| std::net::UdpSocket::bind((address, port)).expect("binding"));
        let size: libc::c_int = 8 << 20;
        // SAFETY: the pointer is to an int of the given length.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVBUFFORCE,
                (&raw const size).cast(),
                4,
            )
        };
        socket
            .set_read_timeout(Some(std::time::Duration::from_millis(50)))
            .expect("a timeout");
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (own, stopped) = (
            socket.try_clone().expect("a second descriptor"),
            stop.clone(),
        );
        let thread = thread::spawn(move || {
            let (mut buffer, mut seen) = ([0; 2048], Vec::new());
            loop {
                match own.recv(&mut buffer) {
                    Ok(length) if length >= HEADER => {
                        seen.push(u64::from_ne_bytes(
                            buffer[NUMBER..HEADER].try_into().expect("8 bytes"),
                        ));
                    }
                    Ok(_) => {}
                    // Nothing more under way.
                    Err(_) if stopped.load(Ordering::Relaxed) => return seen,
                    Err(_) => {}
                }
            }
        });
        Self {
            socket,
            thread: Some(thread),
            stop,
        }
    }

    /// The numbers received, in order of arrival; waits until nothing comes any more.
    ///
    /// # Panics
    /// If the receiver did.
    pub fn finish(mut self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let _ = &self.socket;
        self.thread
            .take()
            .expect("finish is called once")
            .join()
            .expect("the receiver")
    }
}

/// Sends numbered datagrams of `size` bytes at a steady pace while `keep_going` says so; returns how many.
///
/// # Panics
/// If the kernel refuses one.
pub fn send_numbered(
    netns: &Netns,
    to: (IpAddr, u16),
    size: usize,
    pace: std::time::Duration,
    keep_going: impl Fn(u64) -> bool + Sync,
) -> u64 {
    netns.enter(|| {
        let any: IpAddr = if to.0.is_ipv4() {
            [0; 4].into()
        } else {
            [0; 16].into()
        };
        let socket = std::net::UdpSocket::bind((any, 0)).expect("binding");
        let mut packet = vec![0xffu8; size.max(HEADER)];
        let (mut number, start) = (0_u64, std::time::Instant::now());
        while keep_going(number) {
            packet[NUMBER..HEADER].copy_from_slice(&number.to_ne_bytes());
            socket
                .send_to(&packet, to)
                .unwrap_or_else(|e| panic!("sending packet {number}: {e}"));
            number += 1;
            let due = pace * u32::try_from(number).expect("few packets");
            thread::sleep(due.saturating_sub(start.elapsed()));
        }
        number
    })
}
