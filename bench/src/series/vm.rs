//! `--vm`: the same runs inside one guest after the other, in virtual time.
//!
//! The lab starts itself in the VM and passes on what it prints. A guest that dies
//! is replaced as long as each of them finishes a run.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{Options, all_jobs, progress::Progress, repetitions};
use crate::{cleanup, report, run, scenario::Scenario};

/// Real seconds that one guest may take; the next one goes on.
const GUEST_SECONDS: u32 = 6 * 3600;

/// Makes all runs in guests.
pub(super) fn run(options: &Options, scenarios: &[Scenario]) -> Result<()> {
    let script = script()?;
    let tree = script
        .ancestors()
        .nth(3)
        .context("tests/vm/run stands in no source tree")?;
    let out = fs::canonicalize(&options.out)?;
    ensure!(
        out.starts_with(tree),
        "a guest can write below {} only, which {} is not: give another --out",
        tree.display(),
        out.display()
    );
    all_jobs(scenarios, options)?;
    let mut if_changed = options.if_changed;
    loop {
        let mut command = command(options, scenarios, &script, &out, if_changed)?;
        let (status, made) = guest(&mut command, scenarios, options)?;
        match status {
            Some(0) => return Ok(()),
            // tests/vm/run: still running after the time given, or ended without a status.
            Some(code @ (124 | 125)) if made > 0 => {
                eprintln!(
                    "the guest ended (status {code}) after {made} runs: the next one goes on"
                );
                // What is there now was made by this very series.
                if_changed = super::IfChanged::Refuse;
            }
            Some(124 | 125) => bail!(
                "the guest ended before it had finished one run: the words above are its \
                 last, and `{}` starts it alone",
                run::line(&command)
            ),
            Some(code) => bail!("the series in the VM failed (status {code}), see above"),
            None => bail!("the VM was ended by a signal"),
        }
    }
}

/// `tests/vm/run` of the tree that this program, or the current directory, is in.
fn script() -> Result<PathBuf> {
    let own = env::current_exe().context("where is this program?")?;
    let here = env::current_dir().context("the current directory")?;
    for start in [own, here] {
        for directory in start.ancestors() {
            let script = directory.join("tests/vm/run");
            if script.is_file() {
                return Ok(fs::canonicalize(script)?);
            }
        }
    }
    bail!(
        "--vm needs tests/vm/run of bestby's source tree: neither this program nor the current directory is in one"
    )
}

fn command(
    options: &Options,
    scenarios: &[Scenario],
    script: &Path,
    out: &Path,
    if_changed: super::IfChanged,
) -> Result<Command> {
    let mut command = Command::new(script);
    command
        .env(report::COMMAND, report::command_line())
        .args(["--icount", "--kernel", &options.kernel])
        .args(["--timeout", &GUEST_SECONDS.to_string()])
        .arg("--")
        .arg(env::current_exe().context("where is this program?")?)
        .args(["run", "--inner", "--if-changed"])
        .arg(match if_changed {
            super::IfChanged::Refuse => "refuse",
            super::IfChanged::Anew => "anew",
        })
        .arg("--out")
        .arg(out);
    if let Some(runs) = options.runs {
        command.arg("--runs").arg(runs.to_string());
    }
    if !options.only.is_empty() {
        command.arg("--only").arg(options.only.join(","));
    }
    for scenario in scenarios {
        command.arg(copy(out, scenario)?);
    }
    Ok(command)
}

/// A copy of the scenario where every guest can read it, whatever becomes of the file
/// meanwhile: all guests of a series must read the same.
fn copy(out: &Path, scenario: &Scenario) -> Result<PathBuf> {
    let directory = out.join(".scenarios");
    let file = directory.join(format!("{}.toml", scenario.name));
    fs::create_dir_all(&directory)
        .and_then(|()| fs::write(&file, &scenario.text))
        .with_context(|| format!("writing {}", file.display()))?;
    Ok(file)
}

/// Runs one guest to its end; its exit status and how many runs it made.
fn guest(
    command: &mut Command,
    scenarios: &[Scenario],
    options: &Options,
) -> Result<(Option<i32>, usize)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    // SAFETY: only sigprocmask is called between fork and exec; it is async-signal-safe.
    // Without it the script would inherit that SIGTERM is blocked here.
    unsafe {
        command.pre_exec(|| {
            cleanup::unblock_in_child();
            Ok(())
        });
    }
    let line = run::line(command);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start `{line}`"))?;
    let output = child.stdout.take().context("no pipe from the VM")?;
    // On Ctrl-C the script ends QEMU; without it the guest would go on.
    let pid = Arc::new(Mutex::new(Some(child.id())));
    let _guard = cleanup::on_exit({
        let pid = Arc::clone(&pid);
        move || {
            if let Some(pid) = *pid.lock().unwrap_or_else(PoisonError::into_inner) {
                // SAFETY: plain integers; the child has not been waited for while its id is here.
                unsafe { libc::kill(pid as libc::pid_t, libc::SIGTERM) };
            }
        }
    });
    let mut clock = Clock::new(scenarios, options);
    for line in BufReader::new(output).lines() {
        println!(
            "{}",
            clock.line(&line.context("reading what the VM prints")?)
        );
    }
    let status = child.wait()?;
    *pid.lock().unwrap_or_else(PoisonError::into_inner) = None;
    if cleanup::is_ending() {
        cleanup::wait_for_the_end();
    }
    Ok((status.code(), clock.runs))
}

/// The guest's clock skips idle time, so its estimates are of no use: they are made
/// anew out here.
struct Clock {
    progress: Progress,
    /// Seen so far.
    runs: usize,
}

impl Clock {
    fn new(scenarios: &[Scenario], options: &Options) -> Self {
        let total = scenarios
            .iter()
            .map(|s| super::jobs(s, repetitions(s, options), &options.only).len())
            .sum();
        Self {
            progress: Progress::new(total, 0),
            runs: 0,
        }
    }

    /// A line of the guest with the time that is really left.
    fn line(&mut self, line: &str) -> String {
        let position = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
            .and_then(|(position, rest)| {
                let at: usize = position.split(['/', ',']).next()?.parse().ok()?;
                Some((at, rest))
            });
        let Some((at, rest)) = position else {
            return line.to_owned();
        };
        if self.runs == 0 {
            // Only the guest knows which runs it took for finished.
            self.progress.resume_at(at.saturating_sub(1));
        }
        self.runs += 1;
        format!("{}{rest}", self.progress.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_and_other_lines_passed_on() {
        let mut clock = Clock {
            progress: Progress::new(9, 0),
            runs: 0,
        };
        assert_eq!(clock.line("no netem here"), "no netem here");
        assert_eq!(clock.line("[odd] line"), "[odd] line");
        assert_eq!(clock.runs, 0);
        // Seven were there; the guest's own estimate is of virtual time.
        let line = clock.line("[8/9, 3 h 00 min left] quick pfifo-5 run 0: stale 0");
        assert!(line.starts_with("[8/9, 0 s left] quick pfifo-5"), "{line}");
        assert_eq!(clock.line("[9/9] done"), "[9/9] done");
        assert_eq!(clock.runs, 2);
    }
}
