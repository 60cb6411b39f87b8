//! `bestby doctor`: what this kernel has, what is loaded, what would surprise the operator.

use std::path::Path;

use bestby_api::{
    Check, CheckStatus, Doctor, FEATURES, HOP_BY_HOP_BYTES, kernel_version, lockdown_check,
    realtime_check,
};
use libbpf_rs::btf::{Btf, types};

use crate::datapath::{Datapath, has_capability, missing_capabilities};
use crate::faces::report::{global, kernel_release};
use crate::kernel::{locked, sys};
use crate::observed::names::{PART_OF_TREE, WHOLE_TREE};
use crate::observed::speed::queues_in_use;

fn check(
    name: &str,
    status: CheckStatus,
    detail: impl Into<String>,
    hint: impl Into<String>,
) -> Check {
    Check::new(name, status, detail, hint)
}

/// What a sandbox (systemd's, a container's) hides from this process, and what is unknown or lost by that. `read`
/// tells whether a file can be read.
fn sandbox(read: impl Fn(&str) -> bool, net_raw: bool) -> Check {
    let mut lost = Vec::new();
    for (file, what) in [
        (
            "/proc/self/mounts",
            "/proc/self/mounts: no cgroup2 tree is found",
        ),
        (
            "/proc/sys/kernel/osrelease",
            "/proc/sys (ProcSubset=pid): limits of IPv6 options cannot be checked",
        ),
        (
            "/sys/kernel/btf/vmlinux",
            "/sys/kernel/btf: what the kernel has cannot be found out",
        ),
    ] {
        if !read(file) {
            lost.push(what);
        }
    }
    if !net_raw {
        lost.push(
            "CAP_NET_RAW: no probes, and packets queued at an upgrade wait for the next packet",
        );
    }
    if lost.is_empty() {
        return check(
            "sandbox",
            CheckStatus::Ok,
            "takes nothing away that bestbyd uses",
            "",
        );
    }
    check(
        "sandbox",
        CheckStatus::Warn,
        format!("takes away {}", lost.join("; ")),
        "run bestbyd by the unit of its package, or allow it this",
    )
}

/// Whether this host lets the hop-by-hop header with LPD's option pass: what it forwards, and what comes to it.
fn hop_by_hop(number: i32, length: i32) -> Check {
    // Of options that are no padding; a negative number also refuses those that the kernel does not know.
    let passes =
        number > 0 && usize::try_from(length).is_ok_and(|length| length >= HOP_BY_HOP_BYTES);
    check(
        "IPv6 options",
        if passes {
            CheckStatus::Ok
        } else {
            CheckStatus::Warn
        },
        format!("net.ipv6.max_hbh_opts_number {number}, net.ipv6.max_hbh_length {length}")
            + if passes {
                ""
            } else {
                ": packets with LPD's option that are forwarded or received here are dropped"
            },
        if passes {
            String::new()
        } else {
            format!(
                "sysctl net.ipv6.max_hbh_opts_number=8 net.ipv6.max_hbh_length={}",
                i32::MAX
            )
        },
    )
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

impl Datapath {
    fn kernel_checks(&self, checks: &mut Vec<Check>) {
        let release = kernel_release();
        let running = kernel_version(&release);
        let btf = Btf::from_vmlinux().ok();
        let has = |name: &str| {
            btf.as_ref()
                .is_some_and(|b| b.type_by_name::<types::Struct<'_>>(name).is_some())
        };
        for feature in FEATURES {
            let (major, minor) = feature.since;
            let new_enough = running.is_none_or(|r| r >= feature.since);
            // Where the kernel itself can be asked, its answer counts, not its number.
            let there = match major * 100 + minor {
                616 => self.qdisc_supported,
                606 => has("tcx_entry"),
                604 => new_enough && has("bpf_struct_ops_tcp_congestion_ops"),
                607 => has("netkit"),
                _ => new_enough,
            };
            let name = format!("{} ({major}.{minor})", feature.name);
            let mut found = if there {
                check(&name, CheckStatus::Ok, format!("kernel {release}"), "")
            } else if major * 100 + minor == 601 {
                check(
                    &name,
                    CheckStatus::Fail,
                    format!("kernel {release}: {}", feature.without),
                    "use a newer kernel",
                )
            } else {
                let options: Vec<String> = feature
                    .config
                    .iter()
                    .map(|c| format!("CONFIG_{c}"))
                    .collect();
                let hint = if options.is_empty() {
                    String::new()
                } else {
                    format!("needs {}", options.join(", "))
                };
                // The release says nothing when it cannot be read, and types say nothing without BTF.
                let unknown = running.is_none() || btf.is_none() && new_enough;
                let (status, detail) = if unknown {
                    (CheckStatus::Unknown, "cannot be found out here".into())
                } else {
                    let why = format!("not supported by kernel {release}: {}", feature.without);
                    (CheckStatus::Warn, why)
                };
                check(&name, status, detail, hint)
            };
            found.id = feature.id.into();
            checks.push(found);
        }
        if let Ok(name) = nix::sys::utsname::uname() {
            checks.extend(realtime_check(&name.version().to_string_lossy()));
        }
        checks.push(match btf {
            Some(_) => check("BTF", CheckStatus::Ok, "/sys/kernel/btf/vmlinux", ""),
            None => check(
                "BTF",
                CheckStatus::Fail,
                "the kernel describes its types nowhere",
                "needs CONFIG_DEBUG_INFO_BTF",
            ),
        });
        checks.extend(lockdown_check(locked::text().as_deref()));
        checks.push(
            if has("htb_sched") || Path::new("/sys/module/sch_htb").exists() {
                check("HTB", CheckStatus::Ok, "for mode tc with a rate", "")
            } else {
                check(
                    "HTB",
                    CheckStatus::Warn,
                    "not loaded (it may come as a module)",
                    "modprobe sch_htb, if mode tc with --rate fails",
                )
            },
        );
        checks.push(match self.clock.trouble() {
            None => check(
                "clock",
                CheckStatus::Ok,
                format!(
                    "exact to {:.1} ms, TAI - UTC is {} s",
                    self.clock.error_ns as f64 / 1e6,
                    self.clock.tai_s
                ),
                "",
            ),
            Some(why) => check(
                "clock",
                CheckStatus::Warn,
                format!("{why}: deadlines in IP options (LPD) are ignored, lifetimes count"),
                "run an NTP client, such as chrony or systemd-timesyncd",
            ),
        });
        let missing = missing_capabilities();
        checks.push(if missing.is_empty() {
            check(
                "privileges",
                CheckStatus::Ok,
                "CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON",
                "",
            )
        } else {
            check(
                "privileges",
                CheckStatus::Fail,
                format!("missing: {}", missing.join(", ")),
                "run bestbyd by its systemd unit",
            )
        });
        // CAP_NET_RAW is 13.
        let readable = |file: &str| std::fs::File::open(file).is_ok();
        checks.push(sandbox(readable, has_capability(13)));
        if self.stamps_probed() && !has_capability(13) {
            checks.push(check(
                "probes",
                CheckStatus::Warn,
                "no CAP_NET_RAW: nothing can be probed, so stamp probed never stamps",
                "run bestbyd by its systemd unit",
            ));
        }
    }

    fn loaded_checks(&self, checks: &mut Vec<Check>) {
        checks.push(match &self.cgroup {
            Some(path) if self.names.sees_part() => check(
                "cgroup",
                CheckStatus::Warn,
                format!(
                    "socket options and TCP's RTT only from {}: {PART_OF_TREE}",
                    path.display()
                ),
                WHOLE_TREE,
            ),
            Some(path) => check(
                "cgroup",
                CheckStatus::Ok,
                format!("socket options and TCP's RTT from {}", path.display()),
                "",
            ),
            None => check(
                "cgroup",
                CheckStatus::Warn,
                "no cgroup2 tree: no socket options, RTT of TCP by polling only",
                "mount a cgroup2 tree and restart bestbyd",
            ),
        });
        let pins = std::fs::read_dir(self.paths.bpffs.join("link"))
            .map(Iterator::count)
            .unwrap_or(0);
        let status = if pins > 0 {
            CheckStatus::Ok
        } else {
            CheckStatus::Warn
        };
        checks.push(check(
            "cgroup programs",
            status,
            format!("{pins} attached"),
            "",
        ));
        let queues: u64 = self
            .attached
            .values()
            .map(|a| crate::kernel::qdisc::memory(&self.pins(a.ifindex)))
            .sum();
        checks.push(check(
            "memory",
            CheckStatus::Ok,
            format!(
                "{} in shared maps, {} in the queues of {} interfaces",
                mib(self.shared.memory),
                mib(queues),
                self.attached.len()
            ),
            "",
        ));
    }

    /// Of the namespace that this runs in. Linux forwards IPv4 options whatever they are.
    fn option_checks(checks: &mut Vec<Check>) {
        let limit = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/sys/net/ipv6/{name}")).ok()?;
            text.trim().parse().ok()
        };
        // Without IPv6 there is nothing to say; with it, but without /proc/sys, nothing is known.
        if !Path::new("/proc/sys").exists() && Path::new("/proc/self/net/if_inet6").exists() {
            checks.push(check(
                "IPv6 options",
                CheckStatus::Unknown,
                "/proc/sys cannot be read",
                "",
            ));
        }
        if let (Some(number), Some(length)) =
            (limit("max_hbh_opts_number"), limit("max_hbh_length"))
        {
            checks.push(hop_by_hop(number, length));
        }
    }

    fn surprises(&mut self, checks: &mut Vec<Check>) {
        for warning in &self.warnings {
            checks.push(check("start", CheckStatus::Warn, warning.clone(), ""));
        }
        if let Some(why) = &self.file_taken.why_not {
            checks.push(check(
                "configuration",
                CheckStatus::Fail,
                format!("the file was not taken when it was read last: {why}"),
                format!(
                    "bestby config check {}; bestby reload",
                    self.paths.config.path().display()
                ),
            ));
        }
        for info in self.flows().unwrap_or_default() {
            if let Some(why) = info.matches_nothing {
                checks.push(check(
                    "flow rule",
                    CheckStatus::Warn,
                    format!("\"{}\" matches nothing yet: {why}", info.flow.name),
                    "",
                ));
            }
        }
        for mistake in self.mistakes() {
            let status = if mistake.harmless {
                CheckStatus::Ok
            } else {
                CheckStatus::Warn
            };
            checks.push(check(
                &mistake.id.replace('-', " "),
                status,
                mistake.what,
                mistake.todo,
            ));
        }
        checks.extend(self.queue_elsewhere());
        checks.extend(self.path_checks());
        for held in self.held_back().unwrap_or_default() {
            let warn = CheckStatus::Warn;
            checks.push(check("send buffer", warn, held.what, held.todo));
        }
        self.media_checks(checks);
        if !sys::is_bpffs(&self.paths.bpffs) {
            checks.push(check(
                "pins",
                CheckStatus::Fail,
                format!("{} is no bpffs any more", self.paths.bpffs.display()),
                "restart bestbyd",
            ));
        } else if let gone = self.shared.unpinned()
            && !gone.is_empty()
        {
            checks.push(check(
                "pins",
                CheckStatus::Fail,
                format!(
                    "gone from {}: {}",
                    self.paths.bpffs.display(),
                    gone.join(", ")
                ),
                "restart bestbyd, then bestby iface upgrade DEV for each interface",
            ));
        }
        // fq holds a packet with a timestamp until then; only our classifier clears a deadline's.
        for link in self.tc.links().unwrap_or_default() {
            let attached = self.attached.values().any(|a| a.ifindex == link.ifindex);
            let root_fq = self
                .tc
                .qdiscs(link.ifindex)
                .is_ok_and(|q| q.iter().any(|q| q.kind == "fq"));
            if root_fq && !attached {
                checks.push(check(
                    "fq",
                    CheckStatus::Warn,
                    format!("interface {} has fq and no classifier: packets of deadline-mode SO_TXTIME sockets are held there until their deadline", link.name),
                    format!("bestby iface attach {} --replace, or do not send such packets through it", link.name),
                ));
            }
        }
        for (dev, (_, why)) in &self.wanted.missing {
            checks.push(check(
                "interface",
                CheckStatus::Fail,
                format!("{dev} is wanted and not attached: {}", why.message),
                if why.hint.is_empty() {
                    format!("bestby iface attach {dev} tries again")
                } else {
                    why.hint.clone()
                },
            ));
        }
        for (slot, attached) in self.attached.clone() {
            let root = self.tc.root(attached.ifindex).ok().flatten();
            if attached.needs_root()
                && !root.as_ref().is_some_and(crate::kernel::tc::Qdisc::is_ours)
            {
                checks.push(check(
                    "interface",
                    CheckStatus::Fail,
                    format!("{}: somebody replaced its root qdisc", attached.dev),
                    format!("bestby iface attach {} --replace", attached.dev),
                ));
            } else if !self.classifier_there(&attached) {
                checks.push(check(
                    "interface",
                    CheckStatus::Fail,
                    format!("{}: the classifier is gone, its packets are not judged", attached.dev),
                    "systemctl restart bestbyd puts it back and costs no packet; or attach again with the same settings",
                ));
            } else if !self.leaf_filter_there(&attached) {
                checks.push(check(
                    "interface",
                    CheckStatus::Fail,
                    format!(
                        "{}: the filter of its HTB tree is gone, all its packets share one leaf",
                        attached.dev
                    ),
                    "systemctl restart bestbyd puts it back and costs no packet",
                ));
            } else if self.iface_counted(slot, &attached).is_err() {
                checks.push(check(
                    "interface",
                    CheckStatus::Fail,
                    format!("{}: its pins are gone", attached.dev),
                    "systemctl restart bestbyd",
                ));
            }
            if !self.answers_there(&attached) {
                checks.push(check(
                    "answers",
                    CheckStatus::Warn,
                    format!("{}: the program that reads answers is gone: STUN and RTCP measure no delay there", attached.dev),
                    "systemctl restart bestbyd puts it back and costs no packet; or attach again with the same settings",
                ));
            }
        }
        for attached in self.attached.values() {
            if attached.instances > 1
                && let Some(now) = queues_in_use(attached.dev.as_str(), attached.ifindex)
                && now > attached.instances
            {
                checks.push(check(
                    "transmit queues",
                    CheckStatus::Warn,
                    format!(
                        "{}: it sends by {now} transmit queues now, and {} are bestby's: packets of the others pass by",
                        attached.dev, attached.instances
                    ),
                    "attach it again with the same settings; what waits in the queue then is lost",
                ));
            }
            if attached.request.observe {
                checks.push(check(
                    "observe",
                    CheckStatus::Warn,
                    format!("{} only observes: nothing is dropped there", attached.dev),
                    format!("bestby iface set {} --enforce --save", attached.dev),
                ));
            }
            let before = self.before_classifier(attached);
            if !before.is_empty() {
                checks.push(check(
                    "tcx",
                    CheckStatus::Warn,
                    format!(
                        "{}: {} at tcx before the classifier; packets for which it ends the chain are not judged",
                        attached.dev,
                        before.join(", ")
                    ),
                    format!(
                        "let it return TCX_NEXT, or start it after bestby iface attach {}",
                        attached.dev
                    ),
                ));
            }
        }
        for problem in self.segmenters.problems.values() {
            checks.push(check(
                "super-packets",
                CheckStatus::Warn,
                problem.to_string(),
                "media beside UDP GSO of other applications may be late: turn UDP GSO off there",
            ));
        }
        if let Ok(g) = global(&self.shared) {
            for (name, count, meaning) in g.named() {
                let hint = match name {
                    "bad cb" => {
                        "another tcx program behind the classifier writes to skb->cb: it should not"
                    }
                    "no cb" => "bpftool net shows the programs at tcx; they should return TCX_NEXT",
                    "refused" => "attach the interface again",
                    "streams full" => {
                        "some are harmless; for many, narrow the flow rules: what no rule matches takes no place"
                    }
                    "users full" => {
                        "give media that matter a flow rule: what a rule matches shares with no user"
                    }
                    "routed time" => {
                        "SO_TXTIME of a routed container has no effect: give its packets a flow rule by port, address or mark"
                    }
                    "untimely" => {
                        "is their application in a time namespace? relative marks, lifetimes of sockets and rules count there"
                    }
                    "segmenter lost" => {
                        "leave the devices named bbs... alone; bestbyd makes them again"
                    }
                    _ => continue,
                };
                if count > 0 {
                    checks.push(check(
                        name,
                        CheckStatus::Warn,
                        format!("{count} {meaning}"),
                        hint,
                    ));
                }
            }
            if g.sessions_full > 0 {
                checks.push(check(
                    "sessions",
                    CheckStatus::Warn,
                    format!(
                        "{} packets found the session table full and went best effort",
                        g.sessions_full
                    ),
                    "use fewer sessions: --session prefix/24, for example",
                ));
            }
            if g.no_rtt > 0 {
                checks.push(check("delay", CheckStatus::Warn, format!("{} times the delay to a receiver was looked for and not known: deadlines are judged as if it were 0", g.no_rtt), "bestby session set ADDR --owd T, or owd in the flow rule"));
            }
        }
    }

    /// GET /v1/doctor.
    pub fn doctor(&mut self) -> Doctor {
        let mut checks = Vec::new();
        self.kernel_checks(&mut checks);
        self.loaded_checks(&mut checks);
        self.tcp_real_checks(&mut checks);
        Self::option_checks(&mut checks);
        self.surprises(&mut checks);
        Doctor { checks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_names_what_it_takes_away() {
        let all = sandbox(|_| true, true);
        assert_eq!(all.status, CheckStatus::Ok);
        let subset = sandbox(|file| !file.starts_with("/proc/sys"), true);
        assert_eq!(subset.status, CheckStatus::Warn);
        assert!(subset.detail.contains("ProcSubset"), "{}", subset.detail);
        let raw = sandbox(|_| true, false);
        assert!(
            raw.detail.contains("CAP_NET_RAW") && !raw.detail.contains("BTF"),
            "{}",
            raw.detail
        );
    }

    #[test]
    fn limit_of_hop_by_hop_options_below_lpd_is_warned_of() {
        for (number, length, status) in [
            (8, i32::MAX, CheckStatus::Ok),
            (1, 16, CheckStatus::Ok),
            (0, 16, CheckStatus::Warn),
            (-1, 16, CheckStatus::Warn),
            (8, 8, CheckStatus::Warn),
        ] {
            let check = hop_by_hop(number, length);
            assert_eq!(check.status, status, "{number} {length}");
            assert_eq!(check.hint.is_empty(), status == CheckStatus::Ok);
        }
    }
}
