//! The system calls of the demo that neither std nor the lab's `sys` has.

use std::{
    ffi::CString,
    fs::File,
    io,
    mem::size_of,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
    time::Duration,
};

use crate::sys;

// linux/if_packet.h; not in the libc crate for every target.
const PACKET_VNET_HDR: i32 = 15;
const PACKET_IGNORE_OUTGOING: i32 = 23;

/// Waits until one of `sockets` can be read, at most `timeout`; says which can.
pub(super) fn readable<const N: usize>(
    sockets: [&dyn AsRawFd; N],
    timeout: Duration,
) -> io::Result<[bool; N]> {
    let mut fds = sockets.map(|s| libc::pollfd {
        fd: s.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: the array holds N entries and outlives the call; a null mask is allowed.
    let result = unsafe { libc::ppoll(fds.as_mut_ptr(), N as libc::nfds_t, &timeout, ptr::null()) };
    if result < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        return Ok([false; N]);
    }
    Ok(fds.map(|fd| fd.revents != 0))
}

/// A packet socket of the calling thread's namespace on `device`: reads and
/// writes whole Ethernet frames behind a `virtio_net_hdr`, which carries
/// unfinished checksums and segmentation from one device to the other.
pub(super) fn packet_socket(device: &str) -> io::Result<File> {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    let name = CString::new(device)?;
    // SAFETY: plain integers; the result is checked.
    let fd = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            protocol.into(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fd was just opened and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let fd = socket.as_raw_fd();
    sys::set_option(fd, libc::SOL_PACKET, PACKET_VNET_HDR, 1)?;
    sys::set_option(fd, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
    sys::big_receive_buffer(fd, 8 << 20)?;
    sys::big_send_buffer(fd, 8 << 20)?;

    // SAFETY: `name` is a C string that outlives the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all-zero is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = index as i32;
    // SAFETY: pointer and length are those of a live sockaddr_ll.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(File::from(socket))
}

/// Real time priority for the calling thread where that is allowed; elsewhere
/// only the jitter grows, and the demo reports the link's.
pub(super) fn be_punctual() {
    let _ = sys::realtime_thread(10);
}

/// Is this process root, as far as networks go?
pub(super) fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}
