//! The few system calls that no wrapper offers: links and pins by file descriptor, the lock on a directory,
//! mounting bpffs. All of the agent's `unsafe` is here.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bestby_bpf::abi;
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, CGROUP2_SUPER_MAGIC, statfs};
use zerocopy::IntoBytes as _;

use crate::error::{self, Tried as _};

fn path_c(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// libbpf's calls return a negative error number.
fn result(ret: i32) -> io::Result<i32> {
    if ret < 0 {
        Err(io::Error::from_raw_os_error(-ret))
    } else {
        Ok(ret)
    }
}

/// A pinned object.
///
/// # Errors
/// There is none, or it may not be opened.
pub fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = path_c(path)?;
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    let fd = result(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })?;
    // SAFETY: the call made this descriptor for us, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Pins an object in place of whatever is pinned there, without a moment in which nothing is.
///
/// # Errors
/// The directory is not a bpffs, or full of the wrong rights.
pub fn pin(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let fresh = path.with_file_name(format!(
        "{}_new",
        path.file_name().unwrap_or_default().to_string_lossy()
    ));
    let _ = std::fs::remove_file(&fresh);
    let name = path_c(&fresh)?;
    // SAFETY: `name` is a NUL-terminated string that outlives the call; the descriptor is open.
    result(unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), name.as_ptr()) })?;
    std::fs::rename(&fresh, path)
}

fn create_link(
    program: BorrowedFd<'_>,
    target: i32,
    kind: libbpf_sys::bpf_attach_type,
) -> io::Result<OwnedFd> {
    // SAFETY: no options are passed (null is allowed), the descriptors are open for the call.
    let fd = result(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), target, kind, std::ptr::null())
    })?;
    // SAFETY: the call made this descriptor for us, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a classifier at a device's tcx egress, behind what is there.
///
/// # Errors
/// `EINVAL` on kernels before 6.6.
pub fn link_tcx_egress(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<OwnedFd> {
    let target =
        i32::try_from(ifindex).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    create_link(program, target, libbpf_sys::BPF_TCX_EGRESS)
}

/// Attaches a program to what is sent to a netkit device.
///
/// # Errors
/// `EINVAL` if the device is none.
pub fn link_netkit(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<OwnedFd> {
    let target =
        i32::try_from(ifindex).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    create_link(program, target, libbpf_sys::BPF_NETKIT_PRIMARY)
}

/// Attaches a program to a cgroup and everything below it.
///
/// # Errors
/// `EINVAL` if the program is not for this kind of attachment.
pub fn link_cgroup(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    kind: libbpf_sys::bpf_attach_type,
) -> io::Result<OwnedFd> {
    create_link(program, cgroup.as_raw_fd(), kind)
}

/// Makes a link run another program from the next packet on.
///
/// # Errors
/// `ENOLINK` if what it was attached to is gone.
pub fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no options are passed (null is allowed), both descriptors are open for the call.
    result(unsafe {
        libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
    })
    .map(drop)
}

/// Wall-clock independent time of the kernel side, ns.
pub fn monotonic_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
    let (s, ns) = (
        u64::try_from(time.tv_sec()).unwrap_or(0),
        u64::try_from(time.tv_nsec()).unwrap_or(0),
    );
    s * 1_000_000_000 + ns
}

/// What tells this agent's network namespace from all others.
///
/// # Errors
/// The kernel does not say (before 5.14).
pub fn netns_cookie() -> error::Result<u64> {
    bestby_bpf::netns_cookie().tried(|| "asking for the cookie of the network namespace".into())
}

/// Locks a directory for this process; held until the file is dropped.
///
/// # Errors
/// `WouldBlock` if another process holds it.
pub fn lock_directory(path: &Path) -> io::Result<nix::fcntl::Flock<File>> {
    let file = File::open(path)?;
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock)
        .map_err(|(_, e)| e.into())
}

/// Whether a path lies on a bpffs.
pub fn is_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|s| s.filesystem_type() == BPF_FS_MAGIC)
}

/// Whether a path lies on a cgroup2 tree.
pub fn is_cgroup2(path: &Path) -> bool {
    statfs(path).is_ok_and(|s| s.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// Mounts a bpffs.
///
/// # Errors
/// No CAP_SYS_ADMIN, or the directory does not exist.
pub fn mount_bpffs(path: &Path) -> io::Result<()> {
    mount(
        Some("bpf"),
        path,
        Some("bpf"),
        MsFlags::empty(),
        Some("mode=0700"),
    )
    .map_err(Into::into)
}

/// The interface table of the kernel side, mapped: settings can be changed while counters beside them run.
pub struct IfaceTable {
    base: std::ptr::NonNull<libc::c_void>,
    length: usize,
}

// SAFETY: the mapping belongs to the process and lives until drop; writes need `&mut self`.
unsafe impl Send for IfaceTable {}

impl IfaceTable {
    /// Maps `bb_ifaces`.
    ///
    /// # Errors
    /// The map was not made for this.
    pub fn map(map: BorrowedFd<'_>) -> io::Result<Self> {
        use nix::sys::mman::{MapFlags, ProtFlags, mmap};
        let length = size_of::<abi::bb_iface>() * abi::BB_MAX_IFACES as usize;
        let size = std::num::NonZeroUsize::new(length)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe {
            mmap(
                None,
                size,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                map,
                0,
            )
        }?;
        Ok(Self { base, length })
    }

    /// Writes the settings of one slot, not what the data path keeps there; `ifindex`, which says whether the slot is used, last.
    pub fn write(&mut self, slot: u32, settings: &abi::bb_iface) {
        let (slot, settings_length) =
            (slot as usize, std::mem::offset_of!(abi::bb_iface, counters));
        if slot >= abi::BB_MAX_IFACES as usize {
            return;
        }
        let bytes = &settings.as_bytes()[..settings_length];
        for (index, word) in bytes.chunks_exact(4).enumerate().rev() {
            let word = word.first_chunk().map_or(0, |w| u32::from_ne_bytes(*w));
            // SAFETY: slot and index lie within the mapping (checked above, and settings are shorter than an
            // entry), which is page aligned; the kernel side may read at any time, so each word is one store.
            unsafe {
                let entry = self.base.as_ptr().cast::<abi::bb_iface>().add(slot);
                entry.cast::<u32>().add(index).write_volatile(word);
            }
        }
    }
}

impl Drop for IfaceTable {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and nothing points into it any more.
        let _ = unsafe { nix::sys::mman::munmap(self.base, self.length) };
    }
}

/// Sends one minimal frame through a device, so that a newly placed qdisc runs once and arms its timer.
/// The frame's type (0x88B5) is IEEE 802's for local experiments; it is addressed to nobody.
///
/// # Errors
/// No CAP_NET_RAW, or the device is down.
pub fn kick(ifindex: u32) -> io::Result<()> {
    use nix::sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrLike, sendto,
        socket,
    };
    let fd = socket(
        AddressFamily::Packet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        None::<SockProtocol>,
    )?;
    let mut frame = [0u8; 60];
    // A locally administered, unicast destination that no bridge has learned.
    frame[..6].copy_from_slice(&[0x02, 0xbe, 0x57, 0xbe, 0x57, 0x00]);
    frame[6..12].copy_from_slice(&[0x02, 0xbe, 0x57, 0xbe, 0x57, 0x01]);
    frame[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
    let raw = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0x88b5_u16.to_be(),
        sll_ifindex: i32::try_from(ifindex).unwrap_or(0),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [0x02, 0xbe, 0x57, 0xbe, 0x57, 0x00, 0, 0],
    };
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).unwrap_or(0);
    // SAFETY: the pointer is to a whole sockaddr_ll of the given length, which is copied.
    let address = unsafe { LinkAddr::from_raw((&raw const raw).cast(), Some(length)) }
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    sendto(fd.as_raw_fd(), &frame, &address, MsgFlags::empty())?;
    Ok(())
}
