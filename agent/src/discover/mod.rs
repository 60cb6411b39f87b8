//! `bestby discover`: which media leave an interface, and which rules would cover them.
//!
//! An operator does not know what is media on his host: ports change, payload types differ, SRT hides in UDP.
//!
//! 1. A packet socket shows the beginning of each packet that leaves (`kernel/capture.rs`).
//! 2. `packet.rs` finds its flow, `observe.rs` says what its payload can be, `flow.rs`, `rtp.rs` and `srt.rs` believe
//!    it when many packets agree.
//! 3. `anchor.rs` finds the port that stays, `cover.rs` asks the data path for rules and delays, `report.rs` makes
//!    rows.
//! 4. `suggest.rs` makes rules of what no rule covers.
//!
//! Nothing of this touches packets or the device. Time, packets a second, flows and memory are bounded.

mod anchor;
mod cover;
mod flow;
mod observe;
mod packet;
mod report;
mod rtp;
mod srt;
mod suggest;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedMutexGuard, watch::Receiver};

use crate::discover::cover::Target;
use crate::discover::watch::Watched;
use crate::error::{Error, Result};

/// Ends a watch when its client has gone.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Watches while it is this one's turn. The watch has a thread of its own, and ends with the client or the agent.
///
/// # Errors
/// Nothing can be captured.
pub(crate) async fn watched(
    target: Target,
    turn: OwnedMutexGuard<()>,
    ending: &mut Receiver<bool>,
) -> Result<Watched> {
    let ends = Ends(Arc::default());
    let stop = ends.0.clone();
    let mut watching = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        watch::watch(target.dev.as_str(), target.ifindex, target.time, &stop)
    });
    let over = tokio::select! {
        watched = &mut watching => Some(watched),
        _ = ending.wait_for(|end| *end) => None,
    };
    let watched = match over {
        Some(watched) => watched,
        None => {
            drop(ends);
            watching.await
        }
    };
    watched.map_err(|e| Error::failed(format!("discover: watching ended: {e}")))?
}
