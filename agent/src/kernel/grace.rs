//! Waiting for programs that run now.

use std::mem::size_of;
use std::os::fd::{AsFd as _, AsRawFd as _};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};

use crate::error::{Error, Result, Tried as _};

/// A map in a map, which no program reads. An update of such a map returns when every program has ended that may
/// have looked an old value up (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c, since Linux 5.0): RCU's grace
/// period.
pub struct Grace {
    outer: MapHandle,
    inner: MapHandle,
}

impl Grace {
    /// # Errors
    /// The kernel makes no map.
    pub fn new() -> Result<Self> {
        let mut options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
            ..Default::default()
        };
        let inner = MapHandle::create(MapType::Array, Some("bb_nothing"), 4, 4, 1, &options)
            .tried(|| "creating map bb_nothing".into())?;
        options.inner_map_fd = u32::try_from(inner.as_fd().as_raw_fd())
            .map_err(|_| Error::failed("creating map bb_grace: no descriptor is negative"))?;
        let outer = MapHandle::create(MapType::ArrayOfMaps, Some("bb_grace"), 4, 4, 1, &options)
            .tried(|| "creating map bb_grace".into())?;
        Ok(Self { outer, inner })
    }

    /// Returns when no program runs any more that began before.
    ///
    /// # Errors
    /// The kernel refuses the update.
    pub fn wait(&self) -> Result<()> {
        let inner = self.inner.as_fd().as_raw_fd().to_ne_bytes();
        self.outer
            .update(&0_u32.to_ne_bytes(), &inner, MapFlags::ANY)
            .tried(|| "waiting for running programs (map bb_grace)".into())
    }
}
