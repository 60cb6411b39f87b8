//! How fast a link is.

/// What the kernel says in `speed`: Mbit/s, or that it does not know (-1, in older kernels as a number without sign).
fn known(text: &str) -> Option<u32> {
    text.trim().parse::<i32>().ok()?.try_into().ok()
}

/// Speed of a device's link, Mbit/s; `None` if nobody knows: it has none (Wi-Fi, tunnels), it is down, or this
/// process sees the devices of another network namespace in /sys.
pub(crate) fn link_speed(dev: &str, ifindex: u32) -> Option<u32> {
    let read = |file: &str| std::fs::read_to_string(format!("/sys/class/net/{dev}/{file}")).ok();
    let index = read("ifindex")?;
    (index.trim().parse() == Ok(ifindex)).then_some(())?;
    known(&read("speed")?)
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
}
