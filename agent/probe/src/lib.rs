//! Whether the path to a receiver carries LPD's option, and whether a hop acts on it.
//!
//! 1. Trains of small packets go to the receiver, which differ in what their option says (`verdict.rs`).
//! 2. The trains are interleaved, and each round begins with another one, so that a burst of losses or a rate limit
//!    on the way costs all of them the same.
//! 3. A packet that is answered has arrived (`question.rs`). An answer that gets lost counts as a lost packet.
//!
//! Packets that must look stale to the last hop must not to this host's own classifier, nor may it put an option
//! into those without: the caller gives them a mark that says so.

mod question;
mod verdict;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use bestby_api::{LpdExpiry, LpdOption, LpdTypes, StaleTreatment};
use etherparse::IcmpEchoHeader;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::question::{Echo, Question};
pub use self::verdict::{Hop, Kind, Path, Train, Verdict, judge, judge_path};

/// Between two packets: short enough for a person who waits, long enough that one burst of losses costs each train
/// one packet.
const GAP: Duration = Duration::from_millis(75);
/// After the last packet, for its answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the lifetime that lasts does; how long ago the deadline was. Both are far beyond any queue and any
/// error of a clock that counts as synchronised, and below the 131 s in which bestby takes a deadline for one.
const FAR: Duration = Duration::from_secs(60);

/// How a probe is sent.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Packets of each train, at most 100.
    pub count: u16,
    /// Packet mark (`SO_MARK`) by which this host's classifier leaves them alone.
    pub mark: Option<u32>,
    /// Code points of the option.
    pub types: LpdTypes,
}

/// Sends trains of these kinds to a receiver, and counts the answers: echo requests if the port is 0, else datagrams
/// to that port.
///
/// # Errors
/// Without CAP_NET_RAW or a route, if the address is of no single host, or if this host refuses every packet.
pub async fn send<const N: usize>(
    to: SocketAddr,
    kinds: [Kind; N],
    manner: &Manner,
) -> io::Result<[Train; N]> {
    let mut trains = kinds.map(Train::new);
    let mut refusal = None;
    let mut waiting = JoinSet::new();
    let mut clock = interval(GAP);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let cookie: u64 = rand::random();
    for round in 0..usize::from(manner.count) {
        for turn in 0..N {
            let which = (round + turn) % N;
            let seq = (round * N + turn) as u16; // at most 400
            let echo = (to.port() == 0).then_some(Echo {
                header: IcmpEchoHeader {
                    id: cookie as u16,
                    seq,
                },
                cookie: cookie.to_ne_bytes(),
            });
            let option = option(kinds[which], to.is_ipv4(), &manner.types);
            clock.tick().await;
            let question = Question::new(to, echo, option.as_deref(), manner.mark)?;
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
            let which = done.map_err(io::Error::other).flatten();
            trains[which?].answered += 1;
        }
        Ok(())
    };
    // What is not answered until then will not be.
    if let Ok(Err(error)) = timeout(PATIENCE, collect).await {
        return Err(error);
    }
    match refusal {
        Some(error) if trains.iter().all(|train| train.sent == 0) => Err(error),
        _ => Ok(trains),
    }
}

/// What a packet carries: IPv4's option, or IPv6's whole hop-by-hop header.
fn option(kind: Kind, ipv4: bool, types: &LpdTypes) -> Option<Vec<u8>> {
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
    Some(if ipv4 {
        option.ipv4(types).to_vec()
    } else {
        option.hop_by_hop(types, 0).to_vec() // the kernel says what follows
    })
}
