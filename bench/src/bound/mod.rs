//! The limit: what no schedule can beat, even one that knows the future.
//!
//! [`on`] gives the clairvoyant bound of a schedule on a link: as many audio packets
//! as possible on time, then as many complete video frames, then as many complete data
//! objects. [`false_drops`] counts what was dropped although it would have fitted.
//!
//! **Model.** An ADU is a job: released when its first packet is created, due at
//! deadline − owd, as long as its bytes take on the link. Jobs may be interrupted
//! anywhere (a relaxation: packets may not), so a set of jobs can be on time exactly
//! if in every window the work released and due inside it fits (the demand criterion
//! of EDF scheduling). What is a bound here holds for every real queue. How many frames
//! packets that are sent whole leave room for is known where few wait at one time: [`whole`]. How many
//! can be decoded, where frames refer to others: [`intact`].
//!
//! **Departure.** A shaper hands a packet over when its *first* bit would leave, and
//! keeps the link busy afterwards; the path then delays it by the owd. So the last
//! packet of an ADU may start as late as deadline − owd: see [`Departure`].
//!
//! **Other links.** A router's token bucket: [`Link::of_bucket`]. A link that stands still for a
//! while: [`stall`].

mod classes;
mod dp;
mod drops;
pub mod intact;
mod jobs;
pub mod stall;
#[cfg(test)]
pub(crate) mod tests;
mod whole;

pub use drops::{FalseDrops, Fate, false_drops};
use serde::{Deserialize, Serialize};

use self::classes::Before;
use crate::{
    sys::MILLI,
    traffic::{Class, Schedule},
};

/// When a packet counts as departed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Departure {
    /// When its transmission begins: what a shaping qdisc in front of a fast device
    /// does (bestby, TBF, HTB, cake), so what the lab's path does.
    FirstBit,
    /// As soon as the time for all its bytes is saved up, which may have been before it existed:
    /// a token bucket (TBF), which holds [`Link::burst`].
    Bucket,
}

/// A link whose rate is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// bit/s of bytes on the wire, at least 1.
    pub rate: u64,
    /// One-way delay behind the queue, ns.
    pub owd: u64,
    /// What departure means here.
    pub departure: Departure,
    /// How far the shaper may run ahead of its rate after an idle time, ns of the link
    /// (BB_PACE_CREDIT_NS in bestby, what a bucket holds).
    pub burst: u64,
}

impl Link {
    /// The lab's path: first-bit departure, bestby's credit of 1 ms.
    pub fn of_path(rate: u64, owd: u64) -> Self {
        Self {
            rate: rate.max(1),
            owd,
            departure: Departure::FirstBit,
            burst: MILLI,
        }
    }

    /// A router's link behind a token bucket of `bucket` bytes, as the lab's path has it with
    /// `bottleneck = "router"`.
    ///
    /// The bound holds for every queue in front of it, whatever rate that believes in, and for
    /// every order. What a sender's queue does is to let packets reach the bucket later than they
    /// are created, and a FIFO there makes them wait longer or drops them: neither gives back any of
    /// the link's time. Let c be the time up to which the bucket has spent its credit. A packet of
    /// transmission time w leaves at some t ≥ c + w, not before it was created, and c becomes
    /// max(c, t − burst) + w ≤ t. So
    ///
    /// - in every window up to t no more leaves than the window and one burst hold: the demand
    ///   criterion, with due times that are a burst later than deadline − owd. Other than with
    ///   [`Departure::FirstBit`] the last packet is within that, too: its bytes are paid for
    ///   when it leaves;
    /// - the search of [`whole`] goes from c to the next c exactly so, with every packet as early
    ///   as it may leave, which leaves c least.
    ///
    /// What the bucket cannot hold it never sends (the lab's holds every packet); that it might
    /// here is a relaxation.
    pub fn of_bucket(rate: u64, owd: u64, bucket: u64) -> Self {
        let burst = (u128::from(bucket) * 8_000_000_000).div_ceil(rate.max(1).into()) as u64;
        Self {
            departure: Departure::Bucket,
            burst,
            ..Self::of_path(rate, owd)
        }
    }

    /// ns that `bytes` occupy the link, rounded down: the bound stays a bound.
    pub fn transmission(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 8_000_000_000 / u128::from(self.rate)) as u64
    }
}

/// The bound for one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassBound {
    /// ADUs offered.
    pub adus_offered: u64,
    /// ADUs that could not be on time even with the link to themselves, or of which one
    /// packet would inevitably block a more important one for too long.
    pub adus_impossible: u64,
    /// No schedule that does its best for the more important classes has more
    /// complete ADUs of this one on time.
    pub adus: u64,
    /// Whether `adus` is the exact optimum of the model above. Otherwise it is a bound
    /// still, but a looser one: lifetimes differ within the class, or not all of a more
    /// important class fits and its choice was left open.
    pub exact: bool,
    /// Whether in that model packets are sent whole, as real ones are, so that a schedule
    /// which knows the future reaches `adus`. Otherwise they may be interrupted.
    pub whole_packets: bool,
}

/// The clairvoyant bound of one schedule on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The link it holds for.
    pub link: Link,
    /// An audio packet is an ADU by itself.
    pub audio: ClassBound,
    /// Video frames, all that audio leaves.
    pub video: ClassBound,
    /// Data objects, what both leave.
    pub data: ClassBound,
}

impl Bound {
    /// The bound of one class.
    pub fn class(&self, class: Class) -> &ClassBound {
        match class {
            Class::Audio => &self.audio,
            Class::Video => &self.video,
            Class::Data => &self.data,
        }
    }
}

/// The clairvoyant bound on a link that is up all the time.
pub fn on(schedule: &Schedule, link: Link) -> Bound {
    bound(schedule, link, true)
}

/// `uninterrupted`: video's packets are sent whole, where it can be known what that costs.
fn bound(schedule: &Schedule, link: Link, uninterrupted: bool) -> Bound {
    let mut before = Before::default();
    let [audio, video, data] =
        Class::ALL.map(|class| before.class(schedule, class, &link, uninterrupted));
    Bound {
        link,
        audio,
        video,
        data,
    }
}
