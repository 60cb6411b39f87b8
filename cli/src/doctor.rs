//! `bestby doctor` and `bestby status`.

use std::path::Path;
use std::process::ExitCode;

use bestby_api::{
    Check, CheckStatus, Doctor, FEATURES, Feature, Status, kernel_version, lockdown_check, path,
    realtime_check,
};

use crate::client::Client;
use crate::failure::Failure;
use crate::format::{BAD, GOOD, WARNING, count, long_time, or_dash};
use crate::output::Output;
use crate::table::{Cell, Table};

/// There where netkit is a module that is loaded.
const NETKIT: &str = "/sys/kernel/btf/netkit";
/// Where bestbyd pins its objects unless told otherwise.
const PINS: &str = "/sys/fs/bpf/bestby";

/// Exit code 1 if anything that was asked for cannot work.
pub(crate) async fn run(client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    let doctor = match client.get(path::DOCTOR).await {
        Ok(doctor) => doctor,
        // Without an agent, the kernel can still be asked.
        Err(Failure::Message(message, hint)) => without_agent(message, hint),
        Err(failure) => return Err(failure),
    };
    output.answer(&doctor, render)?;
    if doctor.worst() == CheckStatus::Fail {
        Err(Failure::Reported)
    } else {
        Ok(ExitCode::SUCCESS)
    }
}

pub(crate) async fn status(client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    let status: Status = client.get(path::STATUS).await?;
    output.answer(&status, render_status)?;
    Ok(ExitCode::SUCCESS)
}

/// What can be said when no agent answers.
fn without_agent(message: String, hint: String) -> Doctor {
    let mut doctor = of_kernel(Path::new(PINS));
    let agent = Check::new("agent", CheckStatus::Fail, message, hint);
    doctor.checks.insert(0, agent);
    doctor
}

/// What the kernel says to anybody who asks; `pins`: where an agent's data path would be.
pub(crate) fn of_kernel(pins: &Path) -> Doctor {
    let release = release();
    let btf = std::fs::read("/sys/kernel/btf/vmlinux").ok();
    let has = |name: &str| btf.as_ref().map(|btf| has_type(btf, name));
    let mut checks = features(&release, has);
    checks.push(match btf {
        Some(_) => Check::new("BTF", CheckStatus::Ok, "/sys/kernel/btf/vmlinux", ""),
        None => Check::new(
            "BTF",
            CheckStatus::Unknown,
            "/sys/kernel/btf/vmlinux cannot be read",
            "without CONFIG_DEBUG_INFO_BTF bestbyd does not run",
        ),
    });
    if let Ok(name) = nix::sys::utsname::uname() {
        checks.extend(realtime_check(&name.version().to_string_lossy()));
    }
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").ok();
    checks.extend(lockdown_check(lockdown.as_deref()));
    checks.push(mounts());
    checks.push(data_path(pins));
    Doctor { checks }
}

fn features(release: &str, has: impl Fn(&str) -> Option<bool>) -> Vec<Check> {
    let running = kernel_version(release);
    let check = |feature: &Feature| {
        let (major, minor) = feature.since;
        let new_enough = running.map(|r| r >= feature.since);
        // Where the kernel itself can be asked, its answer counts, not its number.
        let there = match feature.id {
            "mode-qdisc" => has("bpf_struct_ops_Qdisc_ops"),
            "tcx-attach" => has("tcx_entry"),
            "tcp-real" => has("bpf_struct_ops_tcp_congestion_ops")
                .map(|there| there && new_enough.unwrap_or(true)),
            // Its name alone is also that of other things.
            "netkit" => has("netkit_new_link").map(|there| there || Path::new(NETKIT).exists()),
            _ => new_enough,
        };
        let (status, detail) = match (there, new_enough) {
            (Some(true), _) => (CheckStatus::Ok, format!("kernel {release}")),
            (Some(false), _) if feature.id == "mode-tc" => (
                CheckStatus::Fail,
                format!("kernel {release}: {}", feature.without),
            ),
            (Some(false), _) | (None, Some(false)) => (
                CheckStatus::Warn,
                format!("not supported by kernel {release}: {}", feature.without),
            ),
            (None, _) => (
                CheckStatus::Unknown,
                format!("kernel {release}: whether it was built with it, only bestbyd can tell"),
            ),
        };
        let name = format!("{} ({major}.{minor})", feature.name);
        let mut check = Check::new(&name, status, detail, "");
        check.id = feature.id.into();
        check
    };
    FEATURES.iter().map(check).collect()
}

/// Whether a type of this name is among BTF's strings, which are separated by NUL.
fn has_type(btf: &[u8], name: &str) -> bool {
    let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
    btf.windows(wanted.len()).any(|w| w == wanted)
}

fn release() -> String {
    let name = nix::sys::utsname::uname();
    name.map_or_else(
        |_| String::new(),
        |name| name.release().to_string_lossy().into_owned(),
    )
}

/// File systems that the agent needs.
fn mounts() -> Check {
    let Ok(text) = std::fs::read_to_string("/proc/self/mounts") else {
        return Check::new(
            "mounts",
            CheckStatus::Unknown,
            "/proc/self/mounts cannot be read",
            "",
        );
    };
    let kinds: Vec<&str> = text.lines().filter_map(|l| l.split(' ').nth(2)).collect();
    let missing: Vec<&str> = ["bpf", "cgroup2"]
        .into_iter()
        .filter(|kind| !kinds.contains(kind))
        .collect();
    if missing.is_empty() {
        return Check::new("mounts", CheckStatus::Ok, "bpffs and a cgroup2 tree", "");
    }
    Check::new(
        "mounts",
        CheckStatus::Warn,
        format!("not mounted: {}", missing.join(", ")),
        "bestbyd mounts bpffs itself; without cgroup2 there are no socket options",
    )
}

/// Whether the data path of an agent is in place: it works on without one.
fn data_path(pins: &Path) -> Check {
    let shown = pins.display();
    let (status, detail, hint) = match std::fs::read_dir(pins.join("iface")) {
        Ok(interfaces) => (
            CheckStatus::Ok,
            format!(
                "in place in {shown}, {} under control: packets are judged without an agent, too",
                count(interfaces.count(), "interface")
            ),
            "",
        ),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => (
            CheckStatus::Ok,
            format!("none in {shown}: packets are sent untouched"),
            "",
        ),
        Err(e) => (
            CheckStatus::Unknown,
            format!("{shown} cannot be read: {e}"),
            "ask as root",
        ),
    };
    Check::new("data path", status, detail, hint)
}

/// One line per check, with what to do below those that need it.
pub(crate) fn render(doctor: &Doctor) -> String {
    let mut table = Table::new(&["", "CHECK", "FOUND"]);
    for check in &doctor.checks {
        let style = match check.status {
            CheckStatus::Ok => GOOD,
            CheckStatus::Warn | CheckStatus::Unknown => WARNING,
            CheckStatus::Fail => BAD,
        };
        table.row(vec![
            Cell::styled(check.status.to_string(), style),
            (&check.name).into(),
            (&check.detail).into(),
        ]);
        if !check.hint.is_empty() {
            table.row(vec![
                "".into(),
                "".into(),
                format!("-> {}", check.hint).into(),
            ]);
        }
    }
    table.render()
}

/// In UTC, as the journal's ISO form has it.
fn time_of_day(unix_s: u64) -> String {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix_s);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The agent in a few lines.
pub(crate) fn render_status(s: &Status) -> String {
    let mut table = Table::new(&["AGENT", "bestbyd"]);
    let mut row = |name: &'static str, text: String| table.row(vec![name.into(), text.into()]);
    row("version", format!("{} (ABI {})", s.version, s.abi_version));
    row(
        "process",
        format!("{}, up {}", s.pid, long_time(s.uptime_s)),
    );
    row("kernel", s.kernel.clone());
    row("pinned at", s.bpffs.clone());
    row("configuration", or_dash(s.config.as_ref()));
    row(
        "file taken",
        s.config_taken_s
            .map_or_else(|| "not since the start".into(), time_of_day),
    );
    if let Some(why) = &s.config_error {
        row(
            "file refused",
            format!("{}: {why}", time_of_day(s.config_read_s)),
        );
    }
    row(
        "data path",
        if s.adopted {
            "taken over from an earlier bestbyd"
        } else {
            "started anew"
        }
        .into(),
    );
    row("interfaces", s.interfaces.to_string());
    row("flow rules", s.flows.to_string());
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_is_there_missing_or_unknown() {
        let status = |release: &str, has: Option<bool>| {
            let checks = features(release, |_| has);
            let of = |id: &str| checks.iter().find(|c| c.id == id).unwrap().status;
            (of("mode-tc"), of("mode-qdisc"), of("so-priority-cmsg"))
        };
        use CheckStatus::{Fail, Ok, Unknown, Warn};
        assert_eq!(status("7.2.1-amd64", Some(true)), (Ok, Ok, Ok));
        assert_eq!(status("6.18.5", Some(false)), (Ok, Warn, Ok));
        assert_eq!(status("6.12.5", None), (Ok, Warn, Warn));
        assert_eq!(status("6.18.5", None), (Ok, Unknown, Ok));
        assert_eq!(status("5.10.1", Some(false)), (Fail, Warn, Warn));
        assert_eq!(status("", None), (Unknown, Unknown, Unknown));
    }

    #[test]
    fn type_is_found_by_its_whole_name() {
        let btf = b"\x9f\xeb\0netkit_link\0tcx_entry\0";
        assert!(has_type(btf, "tcx_entry"));
        assert!(!has_type(btf, "netkit") && !has_type(btf, "tcx"));
    }

    #[test]
    fn data_path_is_there_or_not_or_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let check = data_path(dir.path());
        assert!(check.detail.contains("untouched"), "{}", check.detail);
        std::fs::create_dir_all(dir.path().join("iface/7")).unwrap();
        let check = data_path(dir.path());
        assert!(
            check.detail.contains("1 interface under"),
            "{}",
            check.detail
        );
        std::fs::write(dir.path().join("file"), "").unwrap();
        let check = data_path(&dir.path().join("file"));
        assert_eq!(check.status, CheckStatus::Unknown);
        assert_eq!(check.id, "data-path");
    }
}
