//! The command line: nouns and verbs. The texts here are the help.

use std::path::PathBuf;

use bestby_api::DEFAULT_SOCKET;
use clap::{Parser, Subcommand};

use crate::{
    config, discover, events, explain, flow, iface, media, probe, report, session, stats, tcp_real,
    top,
};

/// Best-before dates for packets: what would arrive too late never leaves the host, what matters most leaves first.
#[derive(Debug, Parser)]
#[command(
    name = "bestby",
    version,
    propagate_version = true,
    max_term_width = 100
)]
pub(crate) struct Args {
    /// Socket of bestbyd
    #[arg(long, global = true, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub(crate) socket: PathBuf,

    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Interfaces under control: attach, set, detach, upgrade, ls
    #[command(subcommand)]
    Iface(iface::Verb),
    /// Flow rules, the first matching one wins: add, set, rm, ls, show
    #[command(subcommand)]
    Flow(Box<flow::Verb>),
    /// Sessions (packets that share one bottleneck) and their receivers: ls, set
    #[command(subcommand)]
    Session(session::Verb),
    /// RTP streams, and what is known of their frames: ls, learn
    #[command(subcommand)]
    Media(media::Verb),
    /// TCP-Real, a congestion control in which the receiver measures: on, off, ls
    #[command(subcommand)]
    TcpReal(tcp_real::Verb),
    /// Counters by flow, session and interface
    Stats(stats::What),
    /// The same, live, once a second
    Top(top::What),
    /// What the agent is and does
    Status,
    /// Read the configuration file again: all of it comes into force, or nothing of it
    Reload,
    /// Drop notices as they happen, until Ctrl-C
    Events(events::What),
    /// Which media leave an interface, and the flow rules that would cover them
    Discover(discover::What),
    /// What this host can and cannot do, and what to change
    Doctor,
    /// Which rule and which source decide for a packet
    Explain(explain::What),
    /// Whether the path to a receiver carries the option of Lifetime Packet Discard, and a hop acts on it
    Probe(probe::What),
    /// One file for a bug report; works without an agent, too
    Report(report::What),
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages of all commands
    #[command(hide = true)]
    ManPages {
        /// Where to
        dir: PathBuf,
        /// Write the completions of all shells, too, to this directory
        #[arg(long, value_name = "DIR")]
        completions: Option<PathBuf>,
    },
    /// The configuration file: check, diff
    #[command(subcommand)]
    Config(config::Verb),
}
