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

/// Entries of a map that is an array, `keys.len()` at most, behind the one that `after` names (`None`: from its
/// beginning): how many, and how to go on; `None`: these are the last ones. `values`: room for their values.
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn lookup_batch(
    map: BorrowedFd<'_>,
    after: Option<u32>,
    keys: &mut [u32],
    values: &mut [u8],
    value_size: usize,
) -> io::Result<(usize, Option<u32>)> {
    let room = keys.len().min(values.len() / value_size.max(1));
    let mut count = u32::try_from(room).unwrap_or(u32::MAX);
    let (mut from, mut next) = (after.unwrap_or(0), 0_u32);
    let begins = after.map_or(std::ptr::null_mut(), |_| {
        std::ptr::from_mut(&mut from).cast()
    });
    // SAFETY: the keys of an array have four bytes. There is room for `count` keys and values of the size that the
    // map has (`Map::open` compared it). No options are passed, and nothing is kept after the call.
    let done = result(unsafe {
        libbpf_sys::bpf_map_lookup_batch(
            map.as_raw_fd(),
            begins,
            std::ptr::from_mut(&mut next).cast(),
            keys.as_mut_ptr().cast(),
            values.as_mut_ptr().cast(),
            &raw mut count,
            std::ptr::null(),
        )
    });
    match done {
        Ok(_) => Ok((count as usize, Some(next))),
        Err(e) if e.raw_os_error() == Some(nix::libc::ENOENT) => Ok((count as usize, None)),
        Err(e) => Err(e),
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

/// Attaches a program at a device's tcx ingress, behind what is there.
///
/// # Errors
/// `EINVAL` on kernels before 6.6.
pub fn link_tcx_ingress(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<OwnedFd> {
    let target =
        i32::try_from(ifindex).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    create_link(program, target, libbpf_sys::BPF_TCX_INGRESS)
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

/// Programs at a device's tcx egress, in the order in which they run.
///
/// # Errors
/// `EINVAL` on kernels before 6.6.
pub fn tcx_egress(ifindex: u32) -> io::Result<Vec<u32>> {
    tcx(ifindex, libbpf_sys::BPF_TCX_EGRESS).map(|all| all.into_iter().map(|(id, _)| id).collect())
}

/// Programs at one side of a device's tcx and the links that hold them there, by id, in the order in which they run.
fn tcx(ifindex: u32, side: libbpf_sys::bpf_attach_type) -> io::Result<Vec<(u32, u32)>> {
    // The kernel's own limit of programs at one place.
    let (mut ids, mut links) = ([0_u32; 64], [0_u32; 64]);
    let mut query = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as u64,
        prog_ids: ids.as_mut_ptr(),
        link_ids: links.as_mut_ptr(),
        ..Default::default()
    };
    query.__bindgen_anon_1.prog_cnt = ids.len() as u32;
    let target =
        i32::try_from(ifindex).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the query names two arrays of ours and their length, which the kernel fills at most; all outlive the call.
    let count = unsafe {
        result(libbpf_sys::bpf_prog_query_opts(
            target,
            side,
            &raw mut query,
        ))?;
        query.__bindgen_anon_1.prog_cnt
    };
    Ok(ids.into_iter().zip(links).take(count as usize).collect())
}

/// Detaches programs of these names from a device's tcx, whoever holds the links; how many.
///
/// # Errors
/// The kernel does not give the link to whom has no CAP_SYS_ADMIN.
pub fn detach_tcx(ifindex: u32, names: &[&str]) -> io::Result<usize> {
    let mut count = 0;
    for side in [libbpf_sys::BPF_TCX_EGRESS, libbpf_sys::BPF_TCX_INGRESS] {
        // Before 6.6 there is no tcx.
        for (program, link) in tcx(ifindex, side).unwrap_or_default() {
            let ours = program_name(program).is_some_and(|name| names.contains(&name.as_str()));
            if !ours || link == 0 {
                continue;
            }
            // SAFETY: the call takes a number and makes a descriptor.
            let fd = result(unsafe { libbpf_sys::bpf_link_get_fd_by_id(link) })?;
            // SAFETY: the call made this descriptor for us, and nobody else owns it.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            // SAFETY: the call takes a descriptor, which is open.
            result(unsafe { libbpf_sys::bpf_link_detach(fd.as_raw_fd()) })?;
            count += 1;
        }
    }
    Ok(count)
}

/// Name of a loaded program; `None` where the kernel does not show it (to CAP_SYS_ADMIN only).
pub fn program_name(id: u32) -> Option<String> {
    // SAFETY: the call takes a number and makes a descriptor.
    let fd = result(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) }).ok()?;
    // SAFETY: the call made this descriptor for us, and nobody else owns it.
    let program = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: `info` is plain data of `length` bytes, which the kernel fills at most.
    result(unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut length)
    })
    .ok()?;
    let bytes: Vec<u8> = info
        .name
        .iter()
        .map(|c| c.to_ne_bytes()[0])
        .take_while(|b| *b != 0)
        .collect();
    String::from_utf8(bytes).ok()
}

/// Makes a link run another program from the next packet on; a link of struct_ops: the operations of another map.
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

/// Memory of the host, bytes; what cannot be if the kernel does not say.
pub fn memory_total() -> u64 {
    nix::sys::sysinfo::sysinfo().map_or(u64::MAX, |info| info.ram_total())
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

/// The BTF of an object that is not loaded yet.
pub fn object_btf(object: &libbpf_rs::OpenObject) -> Option<Vec<u8>> {
    use libbpf_rs::AsRawLibbpf as _;
    let mut size = 0;
    // SAFETY: the object is borrowed for the whole call, and so is the BTF that it owns; libbpf gives a pointer to
    // `size` bytes, or null, and the bytes are copied before the borrow ends.
    unsafe {
        let btf = libbpf_sys::bpf_object__btf(object.as_libbpf_object().as_ptr());
        let bytes = libbpf_sys::btf__raw_data(std::ptr::NonNull::new(btf)?.as_ptr(), &raw mut size);
        let bytes = std::ptr::NonNull::new(bytes.cast_mut())?.cast::<u8>();
        Some(std::slice::from_raw_parts(bytes.as_ptr(), size as usize).to_vec())
    }
}

/// The BTF that a map was made with, and the ids of its key's and its value's types; `None`: it has no types.
///
/// # Errors
/// `EPERM`: the kernel shows BTF to CAP_SYS_ADMIN only.
pub fn map_btf(map: BorrowedFd<'_>) -> io::Result<Option<(Vec<u8>, u32, u32)>> {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: `info` is plain data of `length` bytes, which the kernel fills at most.
    result(unsafe {
        libbpf_sys::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut length)
    })?;
    if info.btf_id == 0 {
        return Ok(None);
    }
    // SAFETY: the call takes a number and makes a descriptor.
    let fd = result(unsafe { libbpf_sys::bpf_btf_get_fd_by_id(info.btf_id) })?;
    // SAFETY: the call made this descriptor for us, and nobody else owns it.
    let btf = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut bytes: Vec<u8> = Vec::new();
    // The first call says how many bytes there are.
    for _ in 0..2 {
        let mut about = libbpf_sys::bpf_btf_info {
            btf: bytes.as_mut_ptr() as u64,
            btf_size: bytes.len() as u32,
            ..Default::default()
        };
        let mut length = size_of_val(&about) as u32;
        // SAFETY: `about` is plain data of `length` bytes, and names a buffer of ours of `btf_size` bytes, which the
        // kernel fills at most.
        result(unsafe {
            libbpf_sys::bpf_btf_get_info_by_fd(btf.as_raw_fd(), &raw mut about, &raw mut length)
        })?;
        bytes.resize(about.btf_size as usize, 0);
    }
    Ok(Some((bytes, info.btf_key_type_id, info.btf_value_type_id)))
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

    /// Writes the settings of one slot, not what the data path keeps there; `ifindex`, which says whether the slot is
    /// used, last. A rate that the data path finds stays, if it was found for the same interface.
    pub fn write(&mut self, slot: u32, settings: &abi::bb_iface) {
        let (slot, settings_length) =
            (slot as usize, std::mem::offset_of!(abi::bb_iface, counters));
        if slot >= abi::BB_MAX_IFACES as usize {
            return;
        }
        // SAFETY: the slot lies within the mapping (checked above), which is page aligned; each field is one load.
        let (ifindex, flags) = unsafe {
            let entry = self.base.as_ptr().cast::<abi::bb_iface>().add(slot);
            (
                (&raw const (*entry).ifindex).read_volatile(),
                (&raw const (*entry).flags).read_volatile(),
            )
        };
        let finds = |flags: u8| u32::from(flags) & abi::BB_IFACE_AUTO != 0;
        let rate = std::mem::offset_of!(abi::bb_iface, rate) / 4;
        let found = rate..rate + size_of::<u64>() / 4;
        let stays = ifindex == settings.ifindex && finds(flags) && finds(settings.flags);
        let bytes = &settings.as_bytes()[..settings_length];
        for (index, word) in bytes.chunks_exact(4).enumerate().rev() {
            if stays && found.contains(&index) {
                continue;
            }
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    /// Memory of a table, and how its first entry looks.
    fn table() -> (IfaceTable, impl Fn() -> abi::bb_iface) {
        use nix::sys::memfd::{MFdFlags, memfd_create};
        let length = size_of::<abi::bb_iface>() * abi::BB_MAX_IFACES as usize;
        let file = File::from(memfd_create("table", MFdFlags::empty()).unwrap());
        file.set_len(length as u64).unwrap();
        let table = IfaceTable::map(file.as_fd()).unwrap();
        let first = move || {
            use std::os::unix::fs::FileExt as _;
            use zerocopy::FromBytes as _;
            let mut bytes = vec![0; size_of::<abi::bb_iface>()];
            file.read_exact_at(&mut bytes, 0).unwrap();
            abi::bb_iface::read_from_bytes(&bytes).unwrap()
        };
        (table, first)
    }

    #[test]
    fn rate_that_is_found_stays_until_it_is_set_or_the_interface_is_another() {
        let (mut table, first) = table();
        let settings = |ifindex, flags, rate| abi::bb_iface {
            ifindex,
            flags,
            rate,
            limit: 7,
            ..Default::default()
        };
        let auto = abi::BB_IFACE_AUTO as u8;
        let mut written = |ifindex, flags, rate| {
            table.write(0, &settings(ifindex, flags, rate));
            first().rate
        };
        assert_eq!(written(1, 0, 1 << 40), 1 << 40);
        // It is found from now on: nothing is in force yet.
        assert_eq!(written(1, auto, 0), 0);
        // As the data path would find it: written while the settings do not change.
        assert_eq!(written(1, 0, 9 << 33), 9 << 33);
        assert_eq!(written(1, auto, 5 << 34), 5 << 34);
        assert_eq!(written(1, auto, 0), 5 << 34);
        assert_eq!(written(1, auto | abi::BB_IFACE_STEERS as u8, 0), 5 << 34);
        assert_eq!(written(2, auto, 0), 0);
        assert_eq!(written(2, 0, 77), 77);
        assert_eq!(first().limit, 7);
    }
}
