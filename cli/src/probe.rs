//! `bestby probe`: whether the path to a receiver carries LPD's option, and whether a hop acts on it.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use bestby::{Magic, Mark, Metadata, Treatment};
use bestby_api::LpdTypes;
pub(crate) use bestby_probe::{Hop, Kind, Path, Train};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;

/// Exit code where packets with the option get lost.
const DROPS: u8 = 3;
/// Exit code where the answers do not tell.
const UNSURE: u8 = 4;

const KINDS: [Kind; 4] = [Kind::Plain, Kind::Valid, Kind::Lifetime, Kind::Deadline];

#[derive(Debug, Args)]
#[command(after_help = "\
Needs CAP_NET_RAW, and no bestbyd. Takes 0.3 s for each of --count, and a second more if something is lost.
Exit codes: 0 the path tolerates the option, 3 it drops packets with the option, 4 the answers do not tell;
1 the probe failed, 2 wrong usage.")]
pub(crate) struct What {
    /// Receiver: address or name
    dst: String,
    /// Which of a name's addresses to take: 4 or 6
    #[arg(long)]
    family: Option<Family>,
    /// Send datagrams to this UDP port instead of echo requests. Whatever comes back counts, also that nobody listens: but
    /// that is said about once a second, so take a port that answers, or a large --count
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Packets of each train
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(5..=100))]
    count: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Family {
    #[value(name = "4")]
    Ipv4,
    #[value(name = "6")]
    Ipv6,
}

/// What a probe found.
#[derive(Debug, Serialize)]
pub(crate) struct Probe {
    pub(crate) destination: IpAddr,
    /// UDP port; null = echo requests.
    pub(crate) port: Option<u16>,
    pub(crate) path: Path,
    /// What a hop does with a lifetime that has run out; null where the path does not carry the option.
    pub(crate) lifetime: Option<Hop>,
    /// The same for a deadline that has passed.
    pub(crate) deadline: Option<Hop>,
    pub(crate) trains: [Train; 4],
}

pub(crate) async fn run(what: What, output: &Output) -> Result<ExitCode, Failure> {
    let to = resolve(&what).await?;
    let manner = bestby_probe::Manner {
        count: what.count,
        mark: no_deadline(),
        types: LpdTypes::EXPERIMENTAL,
    };
    let trains = bestby_probe::send(to, KINDS, &manner)
        .await
        .map_err(|e| cannot_probe(to.ip(), &e))?;
    let probe = Probe::of(to.ip(), what.port, trains);
    output.answer(&probe, render)?;
    Ok(match probe.path {
        Path::Tolerates => ExitCode::SUCCESS,
        Path::Drops => ExitCode::from(DROPS),
        Path::Silent | Path::Unsure => ExitCode::from(UNSURE),
    })
}

/// The address to probe, port 0 for echo requests.
async fn resolve(what: &What) -> Result<SocketAddr, Failure> {
    let dst = &what.dst;
    let addresses = tokio::net::lookup_host((dst.as_str(), what.port.unwrap_or(0)))
        .await
        .map_err(|e| Failure::new(format!("cannot find {dst}: {e}"), "give an address"))?;
    let wanted = |to: &SocketAddr| match what.family {
        None => true,
        Some(Family::Ipv4) => to.is_ipv4(),
        Some(Family::Ipv6) => to.is_ipv6(),
    };
    let to = addresses.into_iter().find(wanted).ok_or_else(|| {
        Failure::new(
            format!("{dst} has no address of this family"),
            "leave --family out",
        )
    })?;
    if to.ip().is_multicast() || to.ip().is_unspecified() {
        return Err(Failure::Usage(format!(
            "{} is not the address of one host",
            to.ip()
        )));
    }
    Ok(to)
}

/// The mark without a deadline, where bestby reads marks; elsewhere another program might.
fn no_deadline() -> Option<u32> {
    let says = Metadata::new().treatment(Treatment::Forward);
    // Without a deadline there is none that the mark cannot hold, and the time of day does not count.
    let mark = Mark::encode(&says, 0, Magic::default()).ok()?;
    bestby::is_active().then_some(mark.get())
}

fn cannot_probe(to: IpAddr, error: &io::Error) -> Failure {
    let hint = match error.raw_os_error() {
        // IPv4 calls an option that one may not send an invalid one.
        Some(libc::EPERM | libc::EINVAL) => {
            "run it as root, or with CAP_NET_RAW; or this host's firewall refuses such packets"
        }
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => "ip route get shows the way there",
        _ => "",
    };
    Failure::new(format!("cannot probe {to}: {error}"), hint)
}

impl Probe {
    pub(crate) fn of(destination: IpAddr, port: Option<u16>, trains: [Train; 4]) -> Self {
        let verdict = bestby_probe::judge(&trains);
        Self {
            destination,
            port,
            path: verdict.path,
            lifetime: verdict.hops.map(|[lifetime, _]| lifetime),
            deadline: verdict.hops.map(|[_, deadline]| deadline),
            trains,
        }
    }

    fn verdict_of(&self, kind: Kind) -> &'static str {
        let hop = |hop| match hop {
            None => "",
            Some(Hop::Acts) => "discarded on the way",
            Some(Hop::Ignores) => "forwarded",
            Some(Hop::Unsure) => "unsure",
        };
        match kind {
            Kind::Plain => "",
            Kind::Valid => match self.path {
                Path::Tolerates => "tolerated",
                Path::Drops => "dropped",
                Path::Silent => "",
                Path::Unsure => "unsure",
            },
            Kind::Lifetime => hop(self.lifetime),
            Kind::Deadline => hop(self.deadline),
        }
    }

    fn summary(&self) -> &'static str {
        match (self.path, self.lifetime, self.deadline) {
            (Path::Drops, ..) => "the path drops packets with the option",
            (Path::Silent, ..) => "nothing was answered, so the path is unknown",
            (Path::Unsure, ..) => "too few answers to tell whether the path drops the option",
            (_, Some(Hop::Acts), _) | (_, _, Some(Hop::Acts)) => {
                "the path tolerates the option, and a hop discards what is stale"
            }
            (_, Some(Hop::Ignores), Some(Hop::Ignores)) => {
                "the path tolerates the option, and no hop acts on it"
            }
            _ => "the path tolerates the option; too few answers to tell whether a hop acts on it",
        }
    }

    /// What the verdict leaves open, and what to do.
    fn notes(&self) -> Vec<&'static str> {
        let mut notes = Vec::new();
        match (self.path, self.lifetime, self.deadline) {
            (Path::Drops, ..) if self.destination.is_ipv6() => notes.push(
                "a receiver whose net.ipv6.max_hbh_opts_number is 0 looks the same as a firewall",
            ),
            (Path::Silent, ..) if self.port.is_some() => {
                notes.push("try without --port, or a port that answers a datagram of 12 bytes");
            }
            (Path::Silent, ..) => notes.push("try --port with a UDP port that is not filtered"),
            (_, Some(Hop::Ignores), Some(Hop::Ignores)) => {
                notes.push("a last hop with bestby acts only on options of sources that it trusts");
            }
            (_, Some(Hop::Acts), Some(Hop::Ignores)) => {
                notes.push("a deadline needs a clock that is synchronised, here and there");
            }
            _ => {}
        }
        let unsure = [self.lifetime, self.deadline].contains(&Some(Hop::Unsure));
        if self.path == Path::Unsure || unsure {
            notes.push("try a larger --count");
        }
        if self.trains.iter().any(|train| train.refused > 0) {
            notes.push("this host refused packets: its own firewall or queue did");
        }
        notes
    }
}

/// The verdict, the trains behind it, and what it leaves open.
pub(crate) fn render(probe: &Probe) -> String {
    let asked = probe
        .port
        .map_or_else(|| "echo".to_string(), |port| format!("udp port {port}"));
    let mut text = format!("{} ({asked}): {}\n\n", probe.destination, probe.summary());
    let mut table = Table::new(&["PACKETS", ">SENT", ">ANSWERED", ">REFUSED HERE", "VERDICT"]);
    for train in &probe.trains {
        let packets = match train.packets {
            Kind::Plain => "without the option",
            Kind::Valid => "lifetime of 60 s",
            Kind::Lifetime => "lifetime of 0",
            Kind::Deadline => "deadline 60 s ago",
        };
        table.row(vec![
            packets.into(),
            train.sent.into(),
            train.answered.into(),
            train.refused.into(),
            probe.verdict_of(train.packets).into(),
        ]);
    }
    text += &table.without_empty(&["REFUSED HERE"]).render();
    for note in probe.notes() {
        let _ = writeln!(text, "-> {note}");
    }
    text
}
