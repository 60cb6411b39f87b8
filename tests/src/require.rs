//! Tests that need something of the machine: a visible `SKIPPED: reason`, or a failure where it is required.

use std::process::Command;

/// Ends the test early unless `probe` is `Ok`. Returns whether to go on.
///
/// ```
/// # fn probe() -> Result<(), String> { Ok(()) }
/// if !bestby_tests::require::can(probe()) {
///     return;
/// }
/// ```
///
/// # Panics
/// With BESTBY_REQUIRE=1, where a skipped test would hide a broken machine.
#[must_use]
pub fn can(probe: Result<(), String>) -> bool {
    let Err(reason) = probe else { return true };
    assert!(
        std::env::var_os("BESTBY_REQUIRE").is_none_or(|v| v != "1"),
        "this test is required here, but: {reason}"
    );
    println!("SKIPPED: {reason}");
    false
}

/// Root in the initial user namespace, or at least what the agent needs.
///
/// # Errors
/// Says what is missing.
pub fn root() -> Result<(), String> {
    // SAFETY: reads a number of this process.
    if unsafe { libc::geteuid() } == 0 {
        Ok(())
    } else {
        Err("needs root".into())
    }
}

/// Whether the kernel has a structure of this name.
fn has(name: &str) -> Result<bool, String> {
    let btf = libbpf_rs::btf::Btf::from_vmlinux().map_err(|e| format!("no BTF: {e}"))?;
    let found = btf.type_by_name::<libbpf_rs::btf::types::Struct<'_>>(name);
    Ok(found.is_some())
}

/// A kernel with qdiscs in BPF (6.16, CONFIG_NET_SCH_BPF).
///
/// # Errors
/// Says that there are none.
pub fn bpf_qdisc() -> Result<(), String> {
    root()?;
    if has("bpf_struct_ops_Qdisc_ops")? {
        Ok(())
    } else {
        Err("this kernel has no qdiscs in BPF (6.16, CONFIG_NET_SCH_BPF)".into())
    }
}

/// A kernel with a device that can cut super-packets: netkit (6.7, CONFIG_NETKIT), or macvlan and dummy devices.
///
/// # Errors
/// Says that it has none.
pub fn segmenter() -> Result<(), String> {
    root()?;
    let modules = || {
        Command::new("modprobe")
            .args(["--all", "--quiet", "macvlan", "dummy"])
            .status()
            .is_ok_and(|status| status.success())
    };
    if has("netkit")? || modules() {
        Ok(())
    } else {
        Err(
            "this kernel has neither netkit (6.7, CONFIG_NETKIT) nor macvlan and dummy devices"
                .into(),
        )
    }
}

/// Prometheus and its promtool (`./dev` installs them).
///
/// # Errors
/// Says which is not there.
pub fn prometheus() -> Result<(), String> {
    root()?;
    for program in ["prometheus", "promtool"] {
        let runs = Command::new(program).arg("--version").output();
        if !runs.is_ok_and(|o| o.status.success()) {
            return Err(format!("there is no {program}"));
        }
    }
    Ok(())
}
