//! Whether pinned maps have the layout that an object wants.
//!
//! The kernel keeps the BTF that a map was made with, and shows it to CAP_SYS_ADMIN only. bestbyd's unit does not give
//! that capability, so the agent that makes maps also keeps a fingerprint of each layout beside them.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapHandle, OpenObject};

use crate::error::{Error, Result, os_error};
use crate::kernel::btf::{self, Btf};
use crate::kernel::store::Store;
use crate::kernel::sys;

/// Name of the pin that keeps the fingerprints.
const KEPT: &str = "bba_layouts";
/// JSON of a map's name and fingerprint, bytes.
const KEPT_SIZE: u32 = 64;
/// More maps than any object has.
const KEPT_ENTRIES: u32 = 64;

/// Layouts that an object declares for its maps, and those of the maps pinned in a directory.
pub struct Layouts {
    btf: Vec<u8>,
    dir: PathBuf,
    kept: HashMap<String, String>,
}

impl Layouts {
    /// Reads an object that is not loaded yet, and what is kept in the directory.
    ///
    /// # Errors
    /// The object has no BTF, or what is kept cannot be read.
    pub fn new(object: &OpenObject, dir: &Path) -> Result<Self> {
        let btf = sys::object_btf(object)
            .filter(|bytes| Btf::parse(bytes).is_some())
            .ok_or_else(|| Error::failed("the object describes no types"))?;
        let kept = if dir.join(KEPT).exists() {
            Self::store(dir)?
                .all()
                .into_iter()
                .map(|(_, pair)| pair)
                .collect()
        } else {
            HashMap::new()
        };
        Ok(Self {
            btf,
            dir: dir.into(),
            kept,
        })
    }

    fn store(dir: &Path) -> Result<Store<(String, String)>> {
        Store::open(dir, KEPT, KEPT_SIZE, KEPT_ENTRIES)
    }

    fn declared(&self, map: &str) -> Option<btf::Layout> {
        Btf::parse(&self.btf)?.declared(map)
    }

    /// How a pinned map differs from what the object declares under this name; `None`: it fits, or has no types.
    ///
    /// # Errors
    /// The kernel does not say what the map is.
    pub fn misfit(&self, name: &str, pinned: &MapHandle) -> Result<Option<String>> {
        let Some(wants) = self.declared(name) else {
            return Ok(None);
        };
        match sys::map_btf(pinned.as_fd()) {
            Ok(None) => Ok(None),
            Ok(Some((bytes, key, value))) => {
                let is = Btf::parse(&bytes).and_then(|btf| btf.layout(key, value));
                Ok(match is {
                    Some(is) => btf::difference(&is, &wants),
                    None => Some("what the kernel says of its fields cannot be read".into()),
                })
            }
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Ok(self
                .kept
                .get(name)
                .filter(|kept| **kept != btf::fingerprint(&wants))
                .map(|_| "its fields are not where this bestbyd wants them".into())),
            Err(e) => Err(os_error(
                &format!("asking for the layout of map {name}"),
                &e,
            )),
        }
    }

    /// Keeps the layouts of these maps beside them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn keep<'n>(&self, maps: impl Iterator<Item = &'n str>) -> Result<()> {
        let store = Self::store(&self.dir)?;
        let mut count = 0;
        for name in maps {
            if let Some(layout) = self.declared(name) {
                store.set(count, &(name.into(), btf::fingerprint(&layout)))?;
                count += 1;
            }
        }
        for (index, _) in store.all().into_iter().filter(|(index, _)| *index >= count) {
            store.remove(index)?;
        }
        Ok(())
    }
}
