//! A link that can stop: SLIP over a pseudo-terminal. The kernel's SLIP device stops
//! its transmit queue while the terminal takes no more bytes, and the lab decides
//! when the other end reads. (veth, dummy and ifb take or drop every packet, they never
//! push back; tun does from Linux 7.2 on, see `line`.)

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsRawFd as _, OwnedFd},
    ptr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    pty::{OpenptyResult, openpty},
    sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr},
};

use crate::{netns::Netns, run, sys, traffic::MAC};

/// So many bytes less than on an Ethernet has a packet here, and so counts for every queue that
/// shapes this device: SLIP carries IP alone, without the MAC header that a schedule's `wire_bytes`
/// include. (The bytes that SLIP itself adds come behind the shaper, on a line without a rate.)
pub const SHORTER: u32 = MAC;

const N_SLIP: libc::c_int = 1;
const SIOCGIFNAME: libc::Ioctl = 0x8910;

/// A SLIP device and the far end of its line.
#[derive(Debug)]
pub struct Slip {
    name: String,
    /// The far end of its line, which never blocks.
    pub line: File,
    /// Keeps the line discipline, and so the device, in place.
    _near: OwnedFd,
}

impl Slip {
    /// Makes a SLIP device, moves it to `ns`, gives it `local` with `peer` at the
    /// far end, and takes it up.
    pub fn new(ns: &Netns, local: &str, peer: &str) -> Result<Self> {
        run::sh("modprobe slip")
            .context("no SLIP in this kernel: stalls are measured in the VM")?;
        let OpenptyResult { master, slave } =
            raw_terminal().context("opening a pseudo-terminal")?;
        let discipline = N_SLIP;
        // SAFETY: TIOCSETD reads one int; `discipline` is live.
        sys::check(unsafe {
            libc::ioctl(
                slave.as_raw_fd(),
                libc::TIOCSETD,
                ptr::from_ref(&discipline),
            )
        })
        .context("line discipline SLIP")?;
        let mut name = [0u8; libc::IFNAMSIZ];
        // SAFETY: SLIP's SIOCGIFNAME writes at most IFNAMSIZ bytes with a final zero.
        sys::check(unsafe { libc::ioctl(slave.as_raw_fd(), SIOCGIFNAME, name.as_mut_ptr()) })
            .context("name of the SLIP device")?;
        let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
        let name = String::from_utf8_lossy(&name[..end]).into_owned();
        run::sh(&format!("ip link set {name} netns {}", ns.name()))?;
        ns.sh("ip", &format!("addr add {local} peer {peer} dev {name}"))?;
        ns.sh("ip", &format!("link set {name} mtu 1500 up"))?;
        Ok(Self {
            name,
            line: File::from(master),
            _near: slave,
        })
    }

    /// The device's name inside its namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads (and discards) what arrives at the far end until `stop`; not while
    /// `stalled`, so that the line fills and the device stops.
    pub fn carry(&self, stalled: &AtomicBool, stop: &AtomicBool) -> Result<()> {
        let mut far = &self.line;
        let mut buffer = [0; 4096];
        while !stop.load(Ordering::Acquire) {
            if stalled.load(Ordering::Acquire) {
                thread::sleep(Duration::from_micros(200));
                continue;
            }
            sys::wait_readable(&[self.line.as_raw_fd()], 20)?;
            if stalled.load(Ordering::Acquire) {
                continue;
            }
            match far.read(&mut buffer) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("reading the far end of the line"),
            }
        }
        Ok(())
    }
}

/// Both ends of a pseudo-terminal that changes no byte; the far end never blocks.
fn raw_terminal() -> nix::Result<OpenptyResult> {
    let ends = openpty(None, None)?;
    for fd in [&ends.master, &ends.slave] {
        let mut mode = tcgetattr(fd)?;
        cfmakeraw(&mut mode);
        tcsetattr(fd, SetArg::TCSANOW, &mode)?;
    }
    fcntl(&ends.master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(ends)
}
