//! `bestby doctor` and `bestby status`.

use std::process::ExitCode;

use bestby_api::{Check, CheckStatus, Doctor, FEATURES, Status, kernel_version, path};

use crate::client::Client;
use crate::failure::Failure;
use crate::format::{BAD, GOOD, WARNING, long_time, or_dash};
use crate::output::Output;
use crate::table::{Cell, Table};

/// Exit code 1 if anything that was asked for cannot work.
pub(crate) async fn run(client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    let doctor = match client.get(path::DOCTOR).await {
        Ok(doctor) => doctor,
        // Without an agent, the kernel can still be judged by its release.
        Err(Failure::Message(message, hint)) => {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            without_agent(message, hint, release.trim())
        }
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
pub(crate) fn without_agent(message: String, hint: String, release: &str) -> Doctor {
    let mut checks = vec![Check {
        name: "agent".into(),
        status: CheckStatus::Fail,
        detail: message,
        hint,
    }];
    let running = kernel_version(release);
    for feature in FEATURES {
        let (major, minor) = feature.since;
        let new_enough = running.is_some_and(|r| r >= feature.since);
        checks.push(Check {
            name: feature.name.into(),
            status: if new_enough { CheckStatus::Ok } else { CheckStatus::Warn },
            detail: if new_enough {
                format!("kernel {release} is new enough ({major}.{minor}); whether it was built with it, only bestbyd can tell")
            } else {
                format!("kernel {release} is older than {major}.{minor}: {}", feature.without)
            },
            hint: String::new(),
        });
    }
    Doctor { checks }
}

/// One line per check, with what to do below those that need it.
pub(crate) fn render(doctor: &Doctor) -> String {
    let mut table = Table::new(&["", "CHECK", "FOUND"]);
    for check in &doctor.checks {
        let style = match check.status {
            CheckStatus::Ok => GOOD,
            CheckStatus::Warn => WARNING,
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
