//! tun devices: what is sent to one, a program reads, a packet at a time.

use std::{fs::File, io, os::fd::AsRawFd as _, ptr};

use anyhow::{Context as _, Result, ensure};

use crate::run;

/// The device stops its transmit queue where it would drop (linux/if_tun.h, from 7.2 on).
const IFF_BACKPRESSURE: i32 = 0x0080;

/// Makes the device `name` in the namespace of the calling thread. Its packets begin with the IP
/// header. It is there as long as the file.
///
/// # Errors
/// Without the driver or CAP_NET_ADMIN; where it is to push back and this kernel's never does.
pub fn open(name: &str, pushes_back: bool) -> Result<File> {
    // Where it is a module, that makes the file, too.
    let _ = run::sh("modprobe tun");
    let file = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .context("opening /dev/net/tun")?;
    let mut can = 0i32;
    // SAFETY: TUNGETFEATURES writes one int.
    let got = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNGETFEATURES, &raw mut can) };
    ensure!(got == 0, "TUNGETFEATURES: {}", io::Error::last_os_error());
    let back = if pushes_back { IFF_BACKPRESSURE } else { 0 };
    // It would take the flag and ignore it.
    ensure!(
        can & back == back,
        "this kernel has no tun device that pushes back (Linux 7.2)"
    );
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | back) as i16;
    // SAFETY: TUNSETIFF reads and writes an ifreq; `request` outlives the call.
    let set = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            libc::TUNSETIFF,
            ptr::from_mut(&mut request),
        )
    };
    ensure!(set == 0, "tun {name}: {}", io::Error::last_os_error());
    Ok(file)
}
