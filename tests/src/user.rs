//! Other users than root.
#![allow(clippy::unwrap_used)]

use crate::netns::in_thread;

/// Debian's `nobody`.
pub const NOBODY: libc::uid_t = 65534;

/// Runs as nobody, without any capability, in a thread of its own, in the caller's namespace.
///
/// # Panics
/// As the work does; without root.
pub fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    in_thread(|| {
        // SAFETY: raw calls change the credentials of the calling thread alone; the others stay root.
        unsafe {
            let no_groups = std::ptr::null::<libc::gid_t>();
            assert_eq!(libc::syscall(libc::SYS_setgroups, 0, no_groups), 0);
            for call in [libc::SYS_setresgid, libc::SYS_setresuid] {
                assert_eq!(libc::syscall(call, NOBODY, NOBODY, NOBODY), 0);
            }
        }
        work()
    })
}
