//! What the agent itself must remember, in pinned maps beside the data path: the names of rules, and what to
//! restore at detach. It lives exactly as long as the pins it describes, and is never half-written.

use std::marker::PhantomData;
use std::path::Path;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};
use serde::{Serialize, de::DeserializeOwned};

use crate::error::{Error, Result, Tried as _};

/// A pinned hash map from a number to a JSON text.
pub struct Store<T> {
    handle: MapHandle,
    size: usize,
    types: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Store<T> {
    /// Opens the pinned store, or makes one for `entries` values of at most `size` bytes of JSON.
    ///
    /// # Errors
    /// The kernel's refusal, or a pin of another layout.
    pub fn open(dir: &Path, name: &str, size: u32, entries: u32) -> Result<Self> {
        let path = dir.join(name);
        let handle = if path.exists() {
            MapHandle::from_pinned_path(&path).tried(|| format!("opening {}", path.display()))?
        } else {
            let options = libbpf_sys::bpf_map_create_opts {
                sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
                map_flags: libbpf_sys::BPF_F_NO_PREALLOC,
                ..Default::default()
            };
            let mut map = MapHandle::create(MapType::Hash, Some(name), 4, size, entries, &options)
                .tried(|| format!("creating map {name}"))?;
            map.pin(&path)
                .tried(|| format!("pinning {}", path.display()))?;
            map
        };
        if handle.key_size() != 4 || handle.value_size() != size {
            return Err(Error::conflict(format!(
                "{} is not from this version of bestby",
                path.display()
            ))
            .hint(format!("remove {}", dir.display())));
        }
        Ok(Self {
            handle,
            size: size as usize,
            types: PhantomData,
        })
    }

    /// Everything in it; what cannot be read any more is left out.
    pub fn all(&self) -> Vec<(u32, T)> {
        self.handle
            .keys()
            .filter_map(|key| {
                let value = self.handle.lookup(&key, MapFlags::ANY).ok()??;
                let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
                let value = serde_json::from_slice(&value[..end]).ok()?;
                Some((u32::from_ne_bytes(*key.first_chunk()?), value))
            })
            .collect()
    }

    /// Sets an entry.
    ///
    /// # Errors
    /// It is too long, or the kernel's refusal.
    pub fn set(&self, key: u32, value: &T) -> Result<()> {
        let mut bytes =
            serde_json::to_vec(value).map_err(|e| Error::failed(format!("keeping state: {e}")))?;
        if bytes.len() > self.size {
            return Err(Error::invalid(format!(
                "it takes {} bytes to remember, more than the {} there are",
                bytes.len(),
                self.size
            ))
            .hint("use a shorter cgroup path"));
        }
        bytes.resize(self.size, 0);
        self.handle
            .update(&key.to_ne_bytes(), &bytes, MapFlags::ANY)
            .tried(|| "keeping state".into())
    }

    /// Removes an entry; one that is not there is no error.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn remove(&self, key: u32) -> Result<()> {
        match self.handle.delete(&key.to_ne_bytes()) {
            Err(e) if e.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            other => other.tried(|| "keeping state".into()),
        }
    }
}
