//! The secret of the kernel side's hashes: nobody outside can choose addresses that share a place in a table.

use std::fs::File;
use std::io::Read as _;

use crate::error::{Result, Tried as _};

/// A random number other than 0.
///
/// # Errors
/// The kernel's random numbers cannot be read.
pub fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .tried(|| "reading random numbers from /dev/urandom".into())?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}
