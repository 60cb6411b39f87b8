//! `./dev demo`: the gain, on real media, on this machine.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use bestby_lab::{
    cleanup,
    demo::{self, Demo},
    note, say,
};
use clap::Parser;

/// Sends real video and audio over a link that is too narrow for them, first through a
/// plain FIFO, then through bestby, and shows what arrived in time.
#[derive(Debug, Parser)]
#[command(name = "bestby-demo", version)]
struct Args {
    /// Measure in a virtual machine with the newest kernel, where bestby runs in mode
    /// qdisc; from the top of the source tree, with DIR in it.
    #[arg(long)]
    vm: bool,

    /// Length of each of the three runs, seconds.
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u64).range(4..=600))]
    seconds: u64,

    /// Where the film, the figures and the packets' records go.
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    out: PathBuf,

    /// Only measure what is prepared in DIR (how `--vm` works).
    #[arg(long, hide = true)]
    measure: bool,
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
    if !args.vm {
        demo::check()?;
    }
    fs::create_dir_all(&args.out).with_context(|| format!("creating {}", args.out.display()))?;
    let demo = Demo {
        directory: fs::canonicalize(&args.out)?,
        seconds: args.seconds,
    };
    if args.measure {
        return demo.measure();
    }
    demo.prepare()?;
    if args.vm {
        in_vm(&demo)?;
    } else {
        demo.measure()?;
    }
    demo.finish()?;
    for (what, file) in [
        ("What a viewer sees", "demo.mp4"),
        ("One picture of it", "demo.png"),
        ("Everything measured", "demo.json"),
    ] {
        say!("{what}: {}", args.out.join(file).display());
    }
    Ok(())
}

/// [`Demo::measure`] in a VM, which shares nothing but the source tree with this machine.
fn in_vm(demo: &Demo) -> Result<()> {
    let vm = Path::new("tests/vm/run");
    ensure!(
        vm.exists(),
        "--vm needs tests/vm/run: start the demo at the top of the source tree"
    );
    note!("starting a virtual machine ...");
    let status = Command::new(vm)
        .args(["--icount", "--timeout", "900", "--"])
        .arg(env::current_exe()?)
        .args(["--measure", "--seconds", &demo.seconds.to_string(), "--out"])
        .arg(&demo.directory)
        .stdin(Stdio::null())
        .status()
        .context("starting tests/vm/run")?;
    ensure!(
        status.success(),
        "measuring in the VM failed ({status}); its words are above"
    );
    Ok(())
}
