//! Status of the agent, and what the host can and cannot do.

use serde::{Deserialize, Serialize};

/// GET /v1/status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Version of `bestbyd`.
    pub version: String,
    /// Layout of the pinned maps.
    pub abi_version: u32,
    /// Process id.
    pub pid: u32,
    /// Since it started, seconds.
    pub uptime_s: u64,
    /// Kernel release.
    pub kernel: String,
    /// Directory of the pinned objects.
    pub bpffs: String,
    /// Configuration file; null = none.
    pub config: Option<String>,
    /// When that file was read last, seconds since 1970.
    pub config_read_s: u64,
    /// When it was taken whole last, seconds since 1970; null = not since the start.
    pub config_taken_s: Option<u64>,
    /// Why it was not taken whole when it was read last; null = it was.
    pub config_error: Option<String>,
    /// Whether the data path of an earlier agent was taken over.
    pub adopted: bool,
    /// Flow rules in force.
    pub flows: u32,
    /// Interfaces attached.
    pub interfaces: u32,
}

words!(
    /// Result of one check.
    CheckStatus, "check status", "ok, unknown, warn or fail", {
        /// As it should be.
        Ok = "ok",
        /// It could not be found out; why is in the detail.
        Unknown = "unknown",
        /// Works, but something is worse than it could be.
        Warn = "warn",
        /// Something asked for cannot work.
        Fail = "fail",
    }
);

/// One check of `bestby doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was looked at, for programs: lower-case words joined by `-`, which later versions keep. Checks of
    /// several objects (interfaces, flow rules) share one.
    #[serde(default)]
    pub id: String,
    /// What was looked at, e.g. `BPF qdisc`.
    pub name: String,
    /// Result.
    pub status: CheckStatus,
    /// What was found.
    pub detail: String,
    /// What to do; empty if nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl Check {
    /// One whose id follows from its name.
    pub fn new(
        name: &str,
        status: CheckStatus,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            id: name.to_lowercase().replace(' ', "-"),
            name: name.into(),
            status,
            detail: detail.into(),
            hint: hint.into(),
        }
    }
}

/// GET /v1/doctor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doctor {
    /// All checks, in a sensible order.
    pub checks: Vec<Check>,
}

impl Doctor {
    /// The worst result.
    pub fn worst(&self) -> CheckStatus {
        self.checks
            .iter()
            .map(|c| c.status)
            .max()
            .unwrap_or(CheckStatus::Ok)
    }
}

/// The mode in the text of `/sys/kernel/security/lockdown`, e.g. `none [integrity] confidentiality`.
pub fn lockdown_mode(text: &str) -> Option<&str> {
    text.split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

/// What lockdown, in the mode that this text names, means for bestby; `None` where there is no such file.
pub fn lockdown_check(text: Option<&str>) -> Option<Check> {
    let mode = lockdown_mode(text?)?;
    Some(if mode == "confidentiality" {
        Check::new(
            "lockdown",
            CheckStatus::Fail,
            format!("{mode}: no BPF program may read the kernel's memory, so bestby loads none"),
            "boot with lockdown=integrity, or without lockdown",
        )
    } else {
        Check::new("lockdown", CheckStatus::Ok, mode, "")
    })
}

/// `6.18.44-x` -> (6, 18).
pub fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Whether the kernel of this version (`uname -v`) is one for real time: a sender may then be preempted by
/// another one of its CPU while its packet is judged.
pub fn realtime(version: &str) -> bool {
    version.contains("PREEMPT_RT")
}

/// What that means, where it is so.
pub fn realtime_check(version: &str) -> Option<Check> {
    realtime(version).then(|| {
        Check::new(
            "PREEMPT_RT",
            CheckStatus::Warn,
            "a packet that preempts another one of its CPU goes as plain traffic: no deadline, no \
             priority (`preempted` in stats)",
            "a kernel without PREEMPT_RT, or senders of media that do not preempt each other",
        )
    })
}

/// One row of the kernel table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Id of its check.
    pub id: &'static str,
    /// What works from then on.
    pub name: &'static str,
    /// First kernel release, `(major, minor)`.
    pub since: (u32, u32),
    /// Kernel options it needs.
    pub config: &'static [&'static str],
    /// What happens without it.
    pub without: &'static str,
}

/// The kernel table of README, docs/commands.md and `bestby doctor`.
pub const FEATURES: &[Feature] = &[
    Feature {
        id: "mode-tc",
        name: "flow rules, mark, socket options, mode tc",
        since: (6, 1),
        config: &[
            "BPF_SYSCALL",
            "BPF_JIT",
            "CGROUP_BPF",
            "DEBUG_INFO_BTF",
            "NET_CLS_BPF",
            "NET_SCH_INGRESS",
            "NET_SCH_HTB",
        ],
        without: "bestby does not run",
    },
    Feature {
        id: "tcp-real",
        name: "TCP-Real",
        since: (6, 4),
        config: &["BPF_SYSCALL", "BPF_JIT", "CGROUP_BPF", "DEBUG_INFO_BTF"],
        without: "bestby tcp-real on is refused",
    },
    Feature {
        id: "tcx-attach",
        name: "tcx attach (ordered, survives without a clsact qdisc)",
        since: (6, 6),
        config: &["NET_XGRESS"],
        without: "a clsact filter is used",
    },
    Feature {
        id: "netkit",
        name: "netkit cuts super-packets on slow links",
        since: (6, 7),
        config: &["NETKIT"],
        without: "a macvlan on a dummy device cuts them, if there is one",
    },
    Feature {
        id: "so-priority-cmsg",
        name: "SO_PRIORITY per packet (cmsg)",
        since: (6, 14),
        config: &[],
        without: "priority per packet through the mark only",
    },
    Feature {
        id: "mode-qdisc",
        name: "mode qdisc",
        since: (6, 16),
        config: &["NET_SCH_BPF", "BPF_JIT", "DEBUG_INFO_BTF"],
        without: "mode tc: delay is predicted, not observed",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_status_of_all_checks_is_reported() {
        let check = |status| Check::new("x", status, "", "");
        assert_eq!(Doctor::default().worst(), CheckStatus::Ok);
        let doctor = Doctor {
            checks: [CheckStatus::Warn, CheckStatus::Unknown, CheckStatus::Ok]
                .map(check)
                .into(),
        };
        assert_eq!(doctor.worst(), CheckStatus::Warn);
    }

    #[test]
    fn kernel_release_gives_major_and_minor_version() {
        assert_eq!(kernel_version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(kernel_version("7.2-rc1"), Some((7, 2)));
        assert_eq!(kernel_version("x"), None);
    }

    #[test]
    fn kernels_for_real_time_are_warned_of() {
        let debian = "#1 SMP PREEMPT_RT Debian 6.18.3-1 (2026-01-05)";
        let check = realtime_check(debian).unwrap();
        assert_eq!(
            (&*check.id, check.status),
            ("preempt_rt", CheckStatus::Warn)
        );
        for other in [
            "#1 SMP PREEMPT_DYNAMIC Debian 6.18.3-1 (2026-01-05)",
            "#1 SMP PREEMPT Debian",
            "",
        ] {
            assert_eq!(realtime_check(other), None, "{other}");
        }
    }

    #[test]
    fn features_are_sorted_by_kernel_version() {
        assert!(FEATURES.is_sorted_by_key(|f| f.since));
    }
}
