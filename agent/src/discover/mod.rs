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

use axum::Json;
use axum::extract::State;
use bestby_api::{DiscoverRequest, Discovery};

use crate::error::{Error, Result};
use crate::faces::control::{Api, Asked};

/// Ends a watch when its client has gone.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// POST /v1/discover. It changes nothing. The watch has a thread of its own, and ends with the client or the agent.
///
/// # Errors
/// The request is not valid, another watch is under way, or nothing can be captured.
pub(crate) async fn discover(
    State(mut api): State<Api>,
    Asked(request): Asked<DiscoverRequest>,
) -> Result<Json<Discovery>> {
    let target = api.ask(move |d| d.discover_target(&request)).await?;
    let turn = api.discovering.clone().try_lock_owned().map_err(|_| {
        Error::conflict("discover: somebody else watches an interface at the moment")
            .hint("try again in a minute; one watch takes 60 seconds at most")
    })?;
    let ends = Ends(Arc::default());
    let (to, stop) = (target.clone(), ends.0.clone());
    let mut watching = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        watch::watch(to.dev.as_str(), to.ifindex, to.time, &stop)
    });
    let over = tokio::select! {
        watched = &mut watching => Some(watched),
        _ = api.ending.wait_for(|end| *end) => None,
    };
    let watched = match over {
        Some(watched) => watched,
        None => {
            drop(ends);
            watching.await
        }
    };
    let watched =
        watched.map_err(|e| Error::failed(format!("discover: watching ended: {e}")))??;
    api.ask(move |d| d.discovered(&target, &watched))
        .await
        .map(Json)
}
