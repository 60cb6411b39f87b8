//! `bestbyd`, the agent of bestby.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bestby_agent::datapath::{Datapath, Handle, Paths, teardown};
use bestby_agent::desired::file::ConfigFile;
use bestby_agent::faces::audit::Who;
use bestby_agent::faces::control::{self, Api, MOST_CLIENTS};
use bestby_agent::faces::events::Hub;
use bestby_agent::faces::journal;
use bestby_agent::feeds::{buffers, echo, prober, rtt};
use bestby_agent::kernel::maps;
use bestby_agent::observed::{clock, names};
use bestby_agent::parts::Parts;
use bestby_api::{Config, DEFAULT_SOCKET, Span};
use clap::{CommandFactory as _, Parser, Subcommand};
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tracing::level_filters::LevelFilter;

/// At the end, those who have asked something are answered within this time; systemd kills after 90 s.
const LAST_ANSWERS: Duration = Duration::from_secs(60);

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
    /// What is said at most: error, warn, info, debug (libbpf, too) or trace
    #[arg(long, global = true, value_name = "LEVEL", default_value = "info")]
    log_level: LevelFilter,
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
    let args = Args::parse();
    journal::start(args.log_level);
    // What libbpf says belongs to errors that are reported anyway; its warnings alone alarm for nothing.
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |_, text| {
        tracing::debug!("libbpf: {}", text.trim_end())
    })));
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
    let metrics = config.agent.metrics;
    let paths = Paths {
        bpffs: args.bpffs.clone(),
        config: file,
        cgroup: args.cgroup.clone(),
    };
    let (parts, mut ended) = Parts::new();
    let datapath = Handle::start(&parts, move || Datapath::open(paths, config))?;
    let hub = Hub::start(&parts, &args.bpffs)?;
    // Without a cgroup2 tree doctor says so.
    if let Ok(cgroup) = names::cgroup_root(args.cgroup.as_deref()) {
        buffers::start(&parts, &args.bpffs, cgroup)?;
    }
    feed_rtts(&parts, &args.bpffs, args.rtt_period)?;

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
        let (end, ending) = watch::channel(false);
        let api = Api {
            datapath,
            hub,
            scrape: Default::default(),
            asking: Default::default(),
            discovering: Default::default(),
            clients: Arc::new(Semaphore::new(MOST_CLIENTS)),
            ending,
        };
        parts.task("control", api.clone().serve(listener));
        if let Some(metrics) = metrics {
            parts.task("metrics", api.clone().serve_metrics(metrics));
        }
        parts.task("prober", prober::run(api.datapath.clone()));
        parts.task("echo", echo::run(api.datapath.clone()));
        parts.task("refresh", refresh(api.clone()));
        if let Some(within) = sd_notify::watchdog_enabled() {
            parts.task("watchdog", feed_watchdog(api.clone(), within));
        }
        tracing::info!("ready on {}", socket.display());
        notify(NotifyState::Ready);
        let died = loop {
            tokio::select! {
                part = ended.first() => break Some(part),
                _ = hangup.recv() => match api.change(Who::Signal, Datapath::reload).await {
                    Ok(_) => tracing::info!("configuration read again"),
                    Err(e) => tracing::error!("configuration not read again: {e}"),
                },
                _ = terminate.recv() => break None,
                _ = interrupt.recv() => break None,
            }
        };
        notify(NotifyState::Stopping);
        // The data path stays; only the way to talk to it goes.
        let _ = std::fs::remove_file(&socket);
        // Who has asked something gets the answer. What hangs is not waited for.
        let _ = end.send(true);
        let last = async {
            api.answered().await;
            // Nobody reads any more.
            let _ = api.ask(|d| d.listen(false)).await;
        };
        if tokio::time::timeout(LAST_ANSWERS, last).await.is_err() {
            tracing::warn!(
                "not everybody was answered within {} s",
                LAST_ANSWERS.as_secs()
            );
        }
        match died {
            None => tracing::info!("stopped; what is attached stays attached"),
            Some(part) => anyhow::bail!(
                "its part \"{part}\" ended, so bestbyd ends; what is attached stays attached"
            ),
        }
        Ok(())
    })
}

/// Asks for what changed without a request: names of devices that come and go, who reads drop notices, and the time of
/// day when it was set.
async fn refresh(api: Api) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            _ = second.tick() => drop(api.listen().await),
            () = clock::stepped() => drop(api.ask(Datapath::keep_time).await),
        }
    }
}

/// Feeds systemd's watchdog as long as commands come through the data path's thread and the kernel side and back.
async fn feed_watchdog(api: Api, within: Duration) {
    // Two may be late.
    let mut clock = tokio::time::interval(within / 3);
    let mut ending = api.ending.clone();
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            _ = ending.wait_for(|end| *end) => return,
        }
        match api.ask(Datapath::round_trip).await {
            Ok(()) => notify(NotifyState::Watchdog),
            Err(e) => tracing::error!("the watchdog is not fed: {e}"),
        }
    }
}

/// Reads TCP_INFO for ever, on a thread of its own: a dump of many sockets takes its time.
fn feed_rtts(parts: &Parts, bpffs: &Path, period: Span) -> Result<()> {
    let rtts = maps::ByAddress::open(bpffs, "bb_rtts")?;
    parts.thread("rtt", move || {
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
    })?;
    Ok(())
}

/// Tells systemd how far we are, if it asked to be told.
fn notify(state: NotifyState<'_>) {
    if let Err(e) = sd_notify::notify(&[state]) {
        tracing::warn!("telling systemd: {e}");
    }
}
