//! `bestbyd`, the agent of bestby.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bestby_agent::datapath::{Datapath, Handle, Paths, teardown};
use bestby_agent::desired::file::ConfigFile;
use bestby_agent::faces::control::{self, Api};
use bestby_agent::faces::events::Hub;
use bestby_agent::feeds::{prober, rtt};
use bestby_agent::kernel::maps;
use bestby_agent::observed::clock;
use bestby_api::{Config, DEFAULT_SOCKET, Span};
use clap::{CommandFactory as _, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Loads the BPF programs of bestby and keeps them loaded; serves the control API for `bestby`.
///
/// On SIGTERM the data path stays as it is, and the next bestbyd takes it over. SIGHUP reads the
/// configuration file again.
#[derive(Debug, Parser)]
#[command(name = "bestbyd", version)]
struct Args {
    /// Configuration file [default: /etc/bestby/bestby.toml, which need not exist]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen for `bestby` [default: the file's, or /run/bestby/bestbyd.sock]
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Directory of the pinned programs, maps and links; on a bpffs, which is mounted if it is missing
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        default_value = "/sys/fs/bpf/bestby"
    )]
    bpffs: PathBuf,
    /// cgroup (v2) whose sockets may use bestby's options and give RTTs [default: the root]
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// How often TCP_INFO of all TCP sockets is read: more often costs CPU, less often makes RTTs older
    #[arg(long, value_name = "TIME", default_value = "1s")]
    rtt_period: Span,
    #[command(subcommand)]
    verb: Option<Verb>,
}

/// What to do instead of running.
#[derive(Debug, Subcommand)]
enum Verb {
    /// Gives everything back without an agent: interfaces, cgroups, TCP-Real, pins
    ///
    /// Each interface gets the root qdisc back that it had. What no pin names any more is found by what it is, and
    /// interfaces get the kernel's default qdisc then. An agent that runs must be stopped first.
    #[command(after_help = "Example:\n  systemctl stop bestbyd; bestbyd teardown")]
    Teardown,
    /// Writes the man pages, as `bestby man-pages` does
    #[command(hide = true)]
    ManPages {
        /// Where to
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .without_time() // the journal has the time
        .init();
    // What libbpf says belongs to errors that are reported anyway; its warnings alone alarm for nothing.
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |_, text| {
        tracing::debug!("libbpf: {}", text.trim_end())
    })));
    let args = Args::parse();
    let done = match &args.verb {
        None => run(args),
        Some(Verb::Teardown) => give_back(args),
        Some(Verb::ManPages { dir }) => man_pages(dir),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bestbyd: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Where an agent with these arguments and this file listens.
fn socket(asked: Option<PathBuf>, config: &Config) -> PathBuf {
    let named = |path: &PathBuf| !path.as_os_str().is_empty();
    let named = Some(config.agent.socket.clone()).filter(named);
    asked.or(named).unwrap_or_else(|| DEFAULT_SOCKET.into())
}

fn give_back(args: Args) -> Result<()> {
    // A bad file must not keep anybody from giving everything back.
    let config = ConfigFile::new(args.config).read().unwrap_or_default();
    for line in teardown::teardown(&args.bpffs, &socket(args.socket, &config))? {
        println!("{line}");
    }
    Ok(())
}

/// Writes a page for bestbyd and for each verb.
fn man_pages(dir: &Path) -> Result<()> {
    let to = || format!("writing man pages to {}", dir.display());
    std::fs::create_dir_all(dir).with_context(to)?;
    // Without `bestbyd help VERB`, which would be a page, too.
    let mut bestbyd = Args::command().disable_help_subcommand(true);
    bestbyd.build();
    let verbs = bestbyd.get_subcommands().filter(|verb| !verb.is_hide_set());
    for command in verbs.cloned().chain([bestbyd.clone()]) {
        let page = clap_mangen::Man::new(command).section("8");
        page.generate_to(dir).with_context(to)?;
    }
    Ok(())
}

fn run(args: Args) -> Result<()> {
    let file = ConfigFile::new(args.config);
    let config = file.read()?;
    let socket = socket(args.socket, &config);
    control::check_free(&socket)?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let metrics = config.agent.metrics;
    let paths = Paths {
        bpffs: args.bpffs.clone(),
        config: file,
        cgroup: args.cgroup,
    };
    let datapath = Handle::start(move || Datapath::open(paths, config))?;
    let hub = Hub::start(&args.bpffs)?;
    feed_rtts(&args.bpffs, args.rtt_period)?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the runtime")?;
    runtime.block_on(async move {
        let listener = control::listen(&socket)?;
        let metrics = match metrics {
            None => None,
            Some(address) => Some(
                tokio::net::TcpListener::bind(address)
                    .await
                    .with_context(|| format!("listening on {address} for metrics"))?,
            ),
        };
        let mut hangup = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let api = Api {
            datapath,
            hub,
            scrape: Default::default(),
        };
        // Devices that come and go get their names without a request, too.
        let mut refresh = tokio::time::interval(std::time::Duration::from_secs(1));
        tokio::spawn(control::run(api.clone(), listener, metrics));
        tokio::spawn(prober::run(api.datapath.clone()));
        tracing::info!("ready on {}", socket.display());
        notify("READY=1");
        loop {
            tokio::select! {
                _ = refresh.tick() => drop(api.ask(|_| Ok(())).await),
                () = clock::stepped() => drop(api.ask(Datapath::keep_time).await),
                _ = hangup.recv() => match api.ask(Datapath::reload).await {
                    Ok(done) => {
                        for warning in &done.warnings {
                            tracing::warn!("{warning}");
                        }
                        tracing::info!("configuration read again");
                    }
                    Err(e) => tracing::error!("configuration not read again: {e}"),
                },
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
        }
        notify("STOPPING=1");
        // The data path stays; only the way to talk to it goes.
        let _ = std::fs::remove_file(&socket);
        tracing::info!("stopped; what is attached stays attached");
        Ok(())
    })
}

/// Reads TCP_INFO for ever, on a thread of its own: a dump of many sockets takes its time.
fn feed_rtts(bpffs: &Path, period: Span) -> Result<()> {
    let rtts = maps::ByAddress::open(bpffs, "bb_rtts")?;
    std::thread::Builder::new()
        .name("rtt".into())
        .spawn(move || {
            let mut complained = false;
            loop {
                match rtt::feed(&rtts) {
                    Ok(_) => complained = false,
                    // Once is enough: a kernel without inet_diag will not get it.
                    Err(e) if !complained => {
                        tracing::warn!("{e}");
                        complained = true;
                    }
                    Err(_) => {}
                }
                std::thread::sleep(period.as_duration());
            }
        })
        .context("starting the thread of the RTT feed")?;
    Ok(())
}

/// Tells systemd how far we are, if it asked to be told.
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let socket = std::os::unix::net::UnixDatagram::unbound();
    if let Ok(socket) = socket
        && let Err(e) = socket.send_to(state.as_bytes(), &path)
    {
        tracing::warn!("telling systemd {state}: {e}");
    }
}
