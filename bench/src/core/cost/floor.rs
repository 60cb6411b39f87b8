//! The floor of all costs: a classifier and a BPF qdisc that do nothing (`bpf/floor.bpf.c`).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};

use crate::netns::Netns;
use anyhow::{Context as _, Result};
use bestby_bpf::floor::FloorSkelBuilder;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

/// Runs `measure` with the floor's classifier on a device of `ns` and its qdisc registered as `floor`.
pub(super) fn with<T>(ns: &Netns, device: &str, measure: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut storage = MaybeUninit::uninit();
    let mut skel = FloorSkelBuilder::default()
        .open(&mut storage)?
        .load()
        .context("loading the floor's programs")?;
    let registered = skel
        .maps
        .floor_ops
        .attach_struct_ops()
        .context("registering the qdisc `floor`")?;
    let program = skel.progs.floor_classify.as_fd().as_raw_fd();
    // Devices are looked up in the namespace of the caller.
    let link = ns.enter(|| {
        let ifindex = nix::net::if_::if_nametoindex(device).map_err(std::io::Error::from)?;
        // SAFETY: no options are passed (null is allowed), the program's descriptor is open for the call.
        Ok(unsafe {
            libbpf_sys::bpf_link_create(
                program,
                ifindex as i32,
                libbpf_sys::BPF_TCX_EGRESS,
                std::ptr::null(),
            )
        })
    })?;
    if link < 0 {
        return Err(std::io::Error::from_raw_os_error(-link)).context("attaching at tcx egress");
    }
    // SAFETY: the call made this descriptor for us, and nobody else owns it.
    let link = unsafe { OwnedFd::from_raw_fd(link) };
    let result = measure();
    drop(link);
    drop(registered);
    result
}
