//! `bestby probe`: whether the path to a receiver carries LPD's option, and whether a hop acts on it.
//!
//! 1. Four trains of small packets go to the receiver, which differ in what their option says (`verdict.rs`).
//! 2. The trains are interleaved, and each round begins with another one, so that a burst of losses or a rate limit
//!    on the way costs all of them the same.
//! 3. A packet that is answered has arrived (`question.rs`). An answer that gets lost counts as a lost packet.
//!
//! Packets that must look stale to the last hop must not to this host's own classifier, nor may it put an option
//! into those without: their mark says that they have no deadline.

mod question;
mod verdict;

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use bestby::{Magic, Mark, Metadata, Treatment};
use bestby_api::{LpdExpiry, LpdOption, LpdTypes, StaleTreatment};
use clap::{Args, ValueEnum};
use etherparse::IcmpEchoHeader;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::question::{Echo, Question};
pub(crate) use self::verdict::{Hop, Kind, Path, Train};
use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;

/// Between two packets: short enough for a person who waits, long enough that one burst of losses costs each train
/// one packet.
const GAP: Duration = Duration::from_millis(75);
/// After the last packet, for its answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the lifetime that lasts does; how long ago the deadline was. Both are far beyond any queue and any
/// error of a clock that counts as synchronised, and below the 131 s in which bestby takes a deadline for one.
const FAR: Duration = Duration::from_secs(60);

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
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(5..=100))]
    count: u32,
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
    let trains = send_trains(to, &what).await?;
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

async fn send_trains(to: SocketAddr, what: &What) -> Result<[Train; 4], Failure> {
    let mut trains = KINDS.map(Train::new);
    let mut refusal = None;
    let mut waiting = JoinSet::new();
    let mut clock = interval(GAP);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let cookie: u64 = rand::random();
    let mark = no_deadline();
    for round in 0..what.count as usize {
        for turn in 0..KINDS.len() {
            let which = (round + turn) % KINDS.len();
            let seq = (round * KINDS.len() + turn) as u16; // at most 400
            let echo = what.port.is_none().then_some(Echo {
                header: IcmpEchoHeader {
                    id: cookie as u16,
                    seq,
                },
                cookie: cookie.to_ne_bytes(),
            });
            let option = option(KINDS[which], to.is_ipv4());
            clock.tick().await;
            let question = Question::new(to, echo, option.as_deref(), mark)
                .map_err(|e| cannot_probe(to.ip(), &e))?;
            match question.ask() {
                Ok(()) => {
                    trains[which].sent += 1;
                    waiting.spawn(async move { question.answer().await.map(|()| which) });
                }
                Err(error) => {
                    trains[which].refused += 1;
                    refusal.get_or_insert(error);
                }
            }
        }
    }
    let collect = async {
        while let Some(done) = waiting.join_next().await {
            // A task that panicked has no answer either.
            let which = done.map_err(std::io::Error::other).flatten();
            trains[which?].answered += 1;
        }
        Ok(())
    };
    // What is not answered until then will not be.
    if let Ok(Err(error)) = timeout(PATIENCE, collect).await {
        return Err(cannot_probe(to.ip(), &error));
    }
    match refusal {
        Some(error) if trains.iter().all(|train| train.sent == 0) => {
            Err(cannot_probe(to.ip(), &error))
        }
        _ => Ok(trains),
    }
}

/// The mark without a deadline, where bestby reads marks; elsewhere another program might.
fn no_deadline() -> Option<u32> {
    let says = Metadata::new().treatment(Treatment::Forward);
    // Without a deadline there is none that the mark cannot hold, and the time of day does not count.
    let mark = Mark::encode(&says, 0, Magic::default()).ok()?;
    bestby::is_active().then_some(mark.get())
}

/// What a packet carries: IPv4's option, or IPv6's whole hop-by-hop header.
fn option(kind: Kind, ipv4: bool) -> Option<Vec<u8>> {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let expiry = match kind {
        Kind::Plain => return None,
        Kind::Valid => LpdExpiry::lifetime(FAR)?,
        Kind::Lifetime => LpdExpiry::Lifetime(0),
        Kind::Deadline => LpdExpiry::deadline(now.saturating_sub(FAR)),
    };
    let option = LpdOption::new(expiry, StaleTreatment::Discard);
    let types = LpdTypes::EXPERIMENTAL;
    Some(if ipv4 {
        option.ipv4(&types).to_vec()
    } else {
        option.hop_by_hop(&types, 0).to_vec() // the kernel says what follows
    })
}

fn cannot_probe(to: IpAddr, error: &std::io::Error) -> Failure {
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
        let verdict = verdict::judge(&trains);
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
