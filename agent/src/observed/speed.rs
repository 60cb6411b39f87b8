//! How fast a link is, how many transmit queues it has, and what else a device says of itself.

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

/// The text of /proc/net/vlan/DEV has priorities of packets that become priorities of tags.
fn maps_priorities(text: &str) -> bool {
    let of = |line: &str| {
        line.trim()
            .strip_prefix("EGRESS priority mappings:")
            .map(str::to_owned)
    };
    let maps = text.lines().find_map(of).unwrap_or_default();
    maps.split_whitespace()
        .any(|pair| pair.rsplit_once(':').is_some_and(|(_, tag)| tag != "0"))
}

/// Whether a device is a VLAN's with an `egress-qos-map` that says more than 0.
pub(crate) fn tags_priority(dev: &str) -> bool {
    std::fs::read_to_string(format!("/proc/net/vlan/{dev}"))
        .is_ok_and(|text| maps_priorities(&text))
}

/// Devices that hand packets to no other one which reads their priority.
const LAST: [&str; 5] = ["dummy", "ifb", "netkit", "tun", "veth"];

/// Whether anything behind a device's qdisc reads a packet's priority: a VLAN's tag, the qdisc of the device below,
/// Wi-Fi. A wired NIC chooses the queue before.
pub(crate) fn reads_priority(dev: &str, ifindex: u32, kind: &str) -> bool {
    match kind {
        "" => directory(dev, ifindex).is_some_and(|dir| dir.join("phy80211").exists()),
        kind => !LAST.contains(&kind),
    }
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

    #[test]
    fn priority_is_read_behind_devices_that_stand_on_another() {
        for kind in ["vlan", "bond", "bridge", "macvlan", "wireguard", "gre"] {
            assert!(reads_priority("x", 1, kind), "{kind}");
        }
        for kind in ["", "veth", "dummy", "tun"] {
            assert!(!reads_priority("x", 1, kind), "{kind}");
        }
    }

    #[test]
    fn egress_map_of_a_vlan_is_found_and_one_without_priorities_is_not() {
        let of = |maps: &str| {
            format!(
                "v0.5  VID: 5\t REORDER_HDR: 1  dev->priv_flags: 1021\n         total frames received            0\n\
                 Device: v0\nINGRESS priority mappings: 0:0  1:0  2:0  3:0  4:0  5:0  6:6 7:0\n \
                 EGRESS priority mappings: {maps}\n"
            )
        };
        assert!(maps_priorities(&of("6:6 ")));
        assert!(maps_priorities(&of("7:0 6:5 ")));
        for none in ["", "6:0 "] {
            assert!(!maps_priorities(&of(none)), "{none}");
        }
        assert!(!maps_priorities(""));
        assert!(!tags_priority("lo"));
    }
}
