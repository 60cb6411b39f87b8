//! `./dev demo`: the gain, on real media, on this machine.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use bestby_lab::{
    cleanup,
    demo::{self, Plan, Queue, Run, report},
    note, run, say,
};
use clap::Parser;

/// Sends real video and audio over a link that is too narrow for them, first
/// through a plain FIFO, then through bestby, and shows what arrived in time.
#[derive(Debug, Parser)]
#[command(name = "bestby-demo", version)]
struct Args {
    /// Measure in a virtual machine with the newest kernel, where bestby runs in
    /// mode qdisc; from the top of the source tree.
    #[arg(long)]
    vm: bool,

    /// Write everything measured to FILE.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the plot of delay over time (SVG) to FILE [default: bestby-demo.svg, in target/ if there is one].
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Length of each of the three runs, seconds.
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u32).range(4..=600))]
    seconds: u32,

    /// Length of the plain FIFO, packets; 1000 is what Linux gives a device.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    fifo: u32,

    /// Try only these, in this order.
    #[arg(long, value_enum, num_args = 1.., value_delimiter = ',',
          default_values = ["fifo", "bestby", "bestby-marked-frames"])]
    queues: Vec<Queue>,

    /// Keep the media, each run's H.264 stream and logs in DIR.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// Only measure what is prepared in DIR (how `--vm` works).
    #[arg(long, value_name = "DIR", hide = true)]
    measure: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match cleanup::on_signals()
        .context("watching for signals")
        .and_then(|()| demo(&args))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note!("bestby-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn demo(args: &Args) -> Result<()> {
    if let Some(work) = &args.measure {
        let plan: Plan = serde_json::from_slice(&fs::read(work.join("plan.json"))?)?;
        demo::check(&plan.queues)?;
        let runs = demo::measure(&plan, work)?;
        return Ok(fs::write(
            work.join("runs.json"),
            serde_json::to_vec(&runs)?,
        )?);
    }

    if !args.vm {
        demo::check(&args.queues)?;
    }
    // A VM shares nothing but the source tree with this machine.
    let (work, _removed) = work_directory(args)?;
    let plan = demo::prepare(&work, args.seconds, args.fifo, args.queues.clone())?;
    let mut runs = if args.vm {
        measure_in_vm(&plan, &work)?
    } else {
        demo::measure(&plan, &work)?
    };
    demo::finish(&plan, &mut runs, &work)?;

    say!(
        "\n{}\n{}",
        report::table(&plan, &runs),
        report::legend(&plan, &runs)
    );
    let plot = args.plot.clone().unwrap_or_else(|| {
        let target = Path::new("target");
        if target.is_dir() {
            target.join("bestby-demo.svg")
        } else {
            "bestby-demo.svg".into()
        }
    });
    demo::draw(&plan, &runs, &plot)?;
    say!("Delay over time: {}", plot.display());
    if let Some(file) = &args.json {
        let command: Vec<String> = env::args().collect();
        let commit = run::sh("git rev-parse --short HEAD").ok();
        let report = report::json(
            &plan,
            &runs,
            &command.join(" "),
            commit.as_deref().map(str::trim),
        );
        fs::write(file, format!("{report:#}\n"))
            .with_context(|| format!("writing {}", file.display()))?;
        say!("Everything measured: {}", file.display());
    }
    Ok(())
}

/// Where the media go, and the guard that removes them unless they are to be kept.
fn work_directory(args: &Args) -> Result<(PathBuf, Option<cleanup::Guard>)> {
    if let Some(directory) = &args.keep {
        fs::create_dir_all(directory)
            .with_context(|| format!("creating {}", directory.display()))?;
        return Ok((fs::canonicalize(directory)?, None));
    }
    let parent = if args.vm {
        env::current_dir()?.join("target")
    } else {
        env::temp_dir()
    };
    let directory = parent.join(format!("bestby-demo-{}", std::process::id()));
    fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    let guard = cleanup::on_exit({
        let directory = directory.clone();
        move || {
            if let Err(error) = fs::remove_dir_all(&directory) {
                note!("cannot remove {}: {error}", directory.display());
            }
        }
    });
    Ok((directory, Some(guard)))
}

fn measure_in_vm(plan: &Plan, work: &Path) -> Result<Vec<Run>> {
    let vm = Path::new("tests/vm/run");
    ensure!(
        vm.exists(),
        "--vm needs tests/vm/run: start the demo at the top of the source tree"
    );
    fs::write(work.join("plan.json"), serde_json::to_vec(plan)?)?;
    note!("starting a virtual machine ...");
    let status = Command::new(vm)
        .args(["--icount", "--timeout", "900", "--"])
        .arg(env::current_exe()?)
        .arg("--measure")
        .arg(work)
        .stdin(Stdio::null())
        .status()
        .context("starting tests/vm/run")?;
    ensure!(
        status.success(),
        "measuring in the VM failed ({status}); its words are above"
    );
    let runs = work.join("runs.json");
    serde_json::from_slice(&fs::read(&runs).with_context(|| format!("reading {}", runs.display()))?)
        .context("runs.json of the VM")
}
