//! Loads TCP-Real's two objects over the maps pinned in their directory.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use aya::programs::Program;
use bestby_bpf::{abi, real};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use zerocopy::IntoBytes as _;

use crate::error::{Error, Result, Tried as _};
use crate::kernel::hooks;
use crate::kernel::layouts::Layouts;
use crate::kernel::sys;

/// Maps that both objects share.
const MAPS: [&str; 3] = ["bb_real_config", "bb_real_counts", "bb_real_conns"];

/// How long a congestion control without a pin has to leave, before it is somebody else's.
const LEAVES_WITHIN: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Loads the congestion control, registers it or puts it in the place of an earlier one of this directory, and pins it
/// and the list of connections.
///
/// # Errors
/// The kernel refuses it, or another agent has one of that name.
pub(super) fn congestion_control(dir: &Path, config: &abi::bb_real_config) -> Result<()> {
    let mut storage = std::mem::MaybeUninit::uninit();
    let mut builder = real::RealSkelBuilder::default();
    builder
        .obj_builder
        .pin_root_path(dir)
        .tried(|| format!("using {} for pins", dir.display()))?;
    let open = builder
        .open(&mut storage)
        .tried(|| "opening TCP-Real's object".into())?;
    let layouts = Layouts::new(open.open_object(), dir)?;
    for name in MAPS {
        let path = dir.join(name);
        if !path.exists() {
            continue;
        }
        let pinned = MapHandle::from_pinned_path(&path)
            .tried(|| format!("opening the pinned map {}", path.display()))?;
        let other_size = open.open_object().maps().any(|map| {
            map.name() == name
                && (map.value_size(), map.max_entries())
                    != (pinned.value_size(), pinned.max_entries())
        });
        if other_size || layouts.misfit(name, &pinned)?.is_some() {
            // Nothing is lost with them: connections that use the earlier ones go on as Reno.
            tracing::warn!("TCP-Real: connections of the earlier version go on as Reno");
            forget(dir, name)?;
        }
    }
    let mut loaded = open.load().map_err(|e| {
        Error::unsupported(format!("the kernel refuses TCP-Real: {e:#}"))
            .hint("it needs Linux 6.4; `bestby doctor` shows what this kernel has")
    })?;
    layouts.keep(MAPS.into_iter())?;
    loaded
        .maps
        .bb_real_config
        .update(&0_u32.to_ne_bytes(), config.as_bytes(), MapFlags::ANY)
        .tried(|| "configuring TCP-Real".into())?;
    let list = loaded
        .progs
        .bb_real_list
        .attach()
        .tried(|| "making the list of connections".into())?;
    sys::pin(list.as_fd(), &dir.join("list")).tried(|| "pinning the list of connections".into())?;

    let pin = dir.join("ops");
    let mut waited = Duration::ZERO;
    loop {
        let refused = match loaded.maps.bestby_real.attach_struct_ops() {
            Ok(link) => {
                return sys::pin(link.as_fd(), &pin).tried(|| format!("pinning {}", pin.display()));
            }
            Err(e) => e,
        };
        if refused.kind() != libbpf_rs::ErrorKind::AlreadyExists {
            return Err(refused).tried(|| "registering the congestion control".into());
        }
        if let Ok(earlier) = sys::open_pin(&pin) {
            // Our own earlier one. The attempt has filled the new map, which takes its place.
            return sys::link_update(earlier.as_fd(), loaded.maps.bestby_real.as_fd())
                .tried(|| "replacing the congestion control".into());
        }
        // Our own earlier one may be on its way out: a link without a pin goes after a grace period of RCU.
        if waited >= LEAVES_WITHIN {
            return Err(
                Error::conflict("a congestion control bestby_real is registered already")
                    .hint("another bestbyd of this host has it: bestby tcp-real off there"),
            );
        }
        std::thread::sleep(LOOK_AGAIN);
        waited += LOOK_AGAIN;
    }
}

/// Maps of another layout: whoever still uses them must not act on them any more.
fn forget(dir: &Path, name: &str) -> Result<()> {
    let path = dir.join(name);
    if name == "bb_real_config"
        && let Ok(map) = MapHandle::from_pinned_path(&path)
    {
        // The mode comes first in every version, and off is 0.
        let off = vec![0; map.value_size() as usize];
        let _ = map.update(&0_u32.to_ne_bytes(), &off, MapFlags::ANY);
    }
    std::fs::remove_file(&path).tried(|| format!("removing {}", path.display()))
}

/// Loads the hooks, attaches the option to the cgroup, in the place of an earlier one there, and pins the receivers'
/// program, which is returned.
///
/// # Errors
/// The kernel refuses them.
pub(super) fn hooks(dir: &Path, cgroup: &std::fs::File) -> Result<OwnedFd> {
    let mut loader = aya::EbpfLoader::new();
    loader.default_map_pin_directory(dir);
    let mut object = hooks::load(&mut loader, bestby_bpf::REAL_HOOKS, "TCP-Real")?;
    let id = std::os::unix::fs::MetadataExt::ino(
        &cgroup
            .metadata()
            .tried(|| "reading the cgroup's id".into())?,
    );
    let mut ingress = None;
    for (name, program) in object.programs_mut() {
        let Program::SchedClassifier(classifier) = program else {
            hooks::attach_program(program, name, &dir.join("sockops"), cgroup, id)?;
            continue;
        };
        classifier.load().map_err(|e| hooks::refused(name, &e))?;
        let fd = classifier
            .fd()
            .map_err(|e| hooks::refused(name, &e))?
            .as_fd();
        sys::pin(fd, &dir.join("ingress")).tried(|| "pinning ingress".into())?;
        ingress = Some(
            fd.try_clone_to_owned()
                .tried(|| "duplicating a program's descriptor".into())?,
        );
    }
    ingress.ok_or_else(|| Error::failed("TCP-Real's object has no receiver"))
}
