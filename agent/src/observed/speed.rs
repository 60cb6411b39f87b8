//! How fast a link is, and how many transmit queues it has.

use std::{fs, path::PathBuf};

/// What the kernel says in `speed`: Mbit/s, or that it does not know (-1, in older kernels as a number without sign).
fn known(text: &str) -> Option<u32> {
    text.trim().parse::<i32>().ok()?.try_into().ok()
}

/// A device's directory; `None` if this process sees the devices of another network namespace in /sys.
fn directory(dev: &str, ifindex: u32) -> Option<PathBuf> {
    let dir = PathBuf::from(format!("/sys/class/net/{dev}"));
    let index = fs::read_to_string(dir.join("ifindex")).ok()?;
    (index.trim().parse() == Ok(ifindex)).then_some(dir)
}

/// Speed of a device's link, Mbit/s; `None` if nobody knows: it has none (Wi-Fi, tunnels), it is down, or it is in
/// another namespace's /sys.
pub(crate) fn link_speed(dev: &str, ifindex: u32) -> Option<u32> {
    let file = directory(dev, ifindex)?.join("speed");
    known(&fs::read_to_string(file).ok()?)
}

/// Transmit queues that a device sends by. The kernel allocates more for many of them: one for each processor that
/// the host could have. `None` as above.
pub(crate) fn queues_in_use(dev: &str, ifindex: u32) -> Option<u32> {
    let queues = fs::read_dir(directory(dev, ifindex)?.join("queues")).ok()?;
    let names = queues.flatten().map(|entry| entry.file_name());
    let sending = names.filter(|name| name.as_encoded_bytes().starts_with(b"tx-"));
    u32::try_from(sending.count()).ok().filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_that_the_kernel_does_not_know_is_none() {
        assert_eq!(known("1000\n"), Some(1000));
        for unknown in ["-1\n", "4294967295\n", "", "fast\n"] {
            assert_eq!(known(unknown), None, "{unknown}");
        }
        assert_eq!(link_speed("lo", u32::MAX), None);
        assert_eq!(link_speed("nonesuch0", 1), None);
    }

    #[test]
    fn transmit_queues_of_another_device_are_not_counted() {
        assert_eq!(queues_in_use("lo", 1), Some(1));
        assert_eq!(queues_in_use("lo", u32::MAX), None);
        assert_eq!(queues_in_use("nonesuch0", 1), None);
    }
}
