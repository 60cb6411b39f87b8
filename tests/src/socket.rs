//! Socket options as the kernel takes them. Their names are `u32` in the ABI and `i32` in libc.
#![allow(clippy::unwrap_used)]

use std::{fmt::Debug, io, os::fd::AsRawFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `setsockopt` with the bytes of `value`.
///
/// # Errors
/// The kernel's.
pub fn set<T: IntoBytes + Immutable + ?Sized>(
    socket: &impl AsRawFd,
    level: i32,
    name: impl TryInto<i32, Error: Debug>,
    value: &T,
) -> io::Result<()> {
    let bytes = value.as_bytes();
    // SAFETY: the value is valid for its size, which fits: it is in memory.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name.try_into().unwrap(),
            bytes.as_ptr().cast(),
            bytes.len() as u32,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// `getsockopt` into a `T`.
///
/// # Errors
/// The kernel's.
///
/// # Panics
/// When the kernel answers with another size.
pub fn get<T: FromBytes + IntoBytes>(
    socket: &impl AsRawFd,
    level: i32,
    name: impl TryInto<i32, Error: Debug>,
) -> io::Result<T> {
    let mut value = T::new_zeroed();
    let mut size = size_of::<T>() as u32;
    // SAFETY: the value is valid for its size.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name.try_into().unwrap(),
            value.as_mut_bytes().as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    assert_eq!(size as usize, size_of::<T>());
    Ok(value)
}

/// `SO_RCVBUFFORCE` or `SO_SNDBUFFORCE`: room for `bytes`, whatever the host's limit.
///
/// # Panics
/// Without CAP_NET_ADMIN.
pub fn force_buffer(socket: &impl AsRawFd, option: i32, bytes: i32) {
    set(socket, libc::SOL_SOCKET, option, &bytes)
        .unwrap_or_else(|e| panic!("a buffer of {bytes} bytes: {e}"));
}
