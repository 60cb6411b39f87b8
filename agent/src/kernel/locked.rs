//! What a host may keep from BPF programs: the memory of the kernel (lockdown), and the description of its types (BTF).

use bestby_api::lockdown_mode;

use crate::error::{Error, Result};

const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// The mode in which no BPF program may read the kernel's memory.
const CONFIDENTIALITY: &str = "confidentiality";

/// The text that names the mode of lockdown; `None` where this kernel has none, or securityfs is not mounted.
pub(crate) fn text() -> Option<String> {
    std::fs::read_to_string(LOCKDOWN).ok()
}

/// Why the kernel refused `what`, if lockdown is the reason: a verifier's log does not say it.
pub(crate) fn locked(what: &str, said: &str, text: Option<&str>) -> Option<Error> {
    let refused = said.contains("bpf_probe_read_kernel")
        && (said.contains("unknown func") || said.contains("cannot use helper"));
    (refused || text.and_then(lockdown_mode) == Some(CONFIDENTIALITY)).then(|| {
        Error::unsupported(format!(
            "{what}: the kernel is locked down (lockdown={CONFIDENTIALITY}), where no BPF program may read its memory"
        ))
        .hint("boot with lockdown=integrity, or without lockdown: bestby needs that")
    })
}

/// Whether the kernel's types can be read. Without them Aya loads programs that read at the offsets of our own headers.
///
/// # Errors
/// They cannot.
pub(crate) fn types() -> Result<()> {
    std::fs::File::open(BTF).map(drop).map_err(|e| {
        Error::unsupported(format!(
            "the kernel's types (BTF) cannot be read from {BTF}: {e}"
        ))
        .hint("needs CONFIG_DEBUG_INFO_BTF; a container must not mask /sys/kernel/btf")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lockdown_is_named_where_it_is_the_reason() {
        let log =
            "the kernel refuses: program of this type cannot use helper bpf_probe_read_kernel#113";
        let old = "unknown func bpf_probe_read_kernel#113";
        let (locked_down, open) = (
            "none integrity [confidentiality]\n",
            "none [integrity] confidentiality\n",
        );
        for (said, text, named) in [
            (log, None, true),
            (old, Some(open), true),
            ("permission denied", Some(locked_down), true),
            ("permission denied", Some(open), false),
            (
                "R1 type=scalar expected=ctx; 1: call bpf_probe_read_kernel#113",
                None,
                false,
            ),
            ("too many instructions", None, false),
        ] {
            let error = locked("program x", said, text);
            assert_eq!(error.is_some(), named, "{said} {text:?}");
            assert!(error.is_none_or(|e| e.message.contains("lockdown=confidentiality")));
        }
    }
}
