//! What became of a run's packets, judged from what was sent and what arrived.

mod carried;
mod judge;
mod transfer;

pub use bestby_api::Counters as QueueCounters;
pub use carried::{Carried, Layer, Spread};
pub use judge::judge;
use serde::{Deserialize, Serialize};
pub use transfer::{Flow, Real, Transfer, jain, share};

use crate::{srt, tfrc::sender::Rests, traffic::media::Picture};

/// Delay from creation to arrival, ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// Half of the packets were faster.
    pub p50: f64,
    /// 95 % were.
    pub p95: f64,
    /// 99 % were.
    pub p99: f64,
}

/// What a congestion-controlled sender (see [`tfrc`](crate::tfrc)) saw of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tfrc {
    /// Packets of the whole run that left the host.
    pub left: u64,
    /// Those of them that never arrived.
    pub lost: u64,
    /// Those of them of which a last hop forwarded the header alone.
    pub headers: u64,
    /// Packets of the whole run that TFRC counted as lost in the network.
    pub counted: u64,
    /// Bytes on the wire of the packets that left and were created in the time that was
    /// judged, kbit/s of that time.
    pub sent_kbit: f64,
    /// Mean of the smoothed round trip over the whole run, ms.
    pub rtt_ms: f64,
    /// How often the sender was idle or data-limited in the whole run, with the 1.5 s after
    /// its last packet: two ends of the nofeedback timer at a round trip of 130 ms.
    pub rests: Rests,
}

/// Packets that arrived stale behind a last hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LastHop {
    /// They left its queue when they were stale already.
    pub left_stale: u64,
    /// They left it in time, and were on the line when that stood still.
    pub on_line: u64,
}

/// The measures of one run, of the packets that were judged: those of ADUs that began
/// after the part of the run that is discarded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// Packets offered.
    pub sent: u64,
    /// Audio packets offered / arrived by their deadline.
    pub audio: [u64; 2],
    /// Video packets offered / arrived by their deadline.
    pub video: [u64; 2],
    /// Audio packets that arrived, late or not.
    pub audio_received: u64,
    /// Video packets that did.
    pub video_received: u64,
    /// Video frames offered / complete, every packet by its deadline.
    pub frames: [u64; 2],
    /// Data packets offered / arrived by their deadline.
    pub data: [u64; 2],
    /// Data objects offered / complete, every packet by its deadline.
    pub objects: [u64; 2],
    /// ADUs of all classes (audio packets, frames, objects) offered / complete, every
    /// packet by its deadline.
    pub adus: [u64; 2],
    /// Packets that arrived after their deadline.
    pub stale_arrivals: u64,
    /// Bytes of all packets offered, on the wire.
    pub offered_bytes: u64,
    /// Bytes of those that arrived.
    pub received_bytes: u64,
    /// Bytes of those that arrived after their deadline.
    pub stale_bytes: u64,
    /// Bytes of the ADUs that were complete on time.
    pub useful_bytes: u64,
    /// Packets that never arrived.
    pub dropped: u64,
    /// Packets that arrived more than once: 0 unless something is broken, or TCP sent again what was
    /// not lost.
    pub duplicates: u64,
    /// Longest time in ms by which a stale packet missed its deadline.
    pub latest_ms: f64,
    /// Useful bytes in kbit/s of the time that was judged.
    pub goodput_kbit: f64,
    /// Delay of the audio packets that arrived.
    pub audio_delay: Delay,
    /// Delay of the video packets that arrived.
    pub video_delay: Delay,
    /// Delay of the data packets that arrived.
    pub data_delay: Delay,
    /// Jain's index between streams, of the useful part of what each offered; absent
    /// with fewer than two streams.
    pub fairness: Option<f64>,
    /// ADUs on time of the stream that fared worst, in percent; absent with fewer than
    /// two streams.
    pub worst_stream: Option<f64>,
    /// What the queue says of itself over the whole run; bestby's only.
    pub counters: Option<QueueCounters>,
    /// What SRT says of itself over the whole run; of SRT only.
    pub srt: Option<srt::Counters>,
    /// What the lab's TFRC saw, with `control = "tfrc"` only.
    pub tfrc: Option<Tfrc>,
    /// What the line of a last hop carried too late; of such a path only.
    pub last_hop: Option<LastHop>,
    /// What a program's own connection carried, with `control = "program"` only.
    pub carried: Option<Carried>,
    /// What bulk TCP flows got, of `tcp transfer` only.
    pub transfer: Option<Transfer>,
    /// How long a download took, s.
    pub download_s: Option<f64>,
    /// What a decoder made of it; of real media only.
    pub picture: Option<Picture>,
    /// Part of the bytes on the wire delivered that was TCP's, where TCP flows competed.
    pub tcp_share: Option<f64>,
    /// Packets that the sender's own socket refused (never offered to the queue).
    pub would_block: u64,
    /// Packets that the kernel refused otherwise.
    pub refused: u64,
    /// Packets of the whole run that found the queue under test full, where it is the sending
    /// program's own (`pfifo N` of `control`): its drops, and no fault of the sender.
    pub tail_drops: Option<u64>,
    /// Longest time in ms by which the sender itself was late.
    pub sender_late_ms: f64,
}

/// Part of all bytes on the wire that were delivered which was that of the competing TCP
/// flows together: of `tcp` bytes of theirs and `media` bytes that arrived in the same time;
/// `None` if nothing arrived. With n flows beside one of media an even share is n / (n + 1).
pub fn tcp_share(tcp: u64, media: u64) -> Option<f64> {
    let all = tcp + media;
    (all > 0).then(|| tcp as f64 / all as f64)
}

/// The part in percent; 0 of nothing.
pub fn percent([of, part]: [u64; 2]) -> f64 {
    if of == 0 {
        0.0
    } else {
        part as f64 * 100.0 / of as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_share_is_of_all_bytes_and_of_none_there_is_none() {
        assert_eq!(tcp_share(0, 0), None);
        assert_eq!(tcp_share(200, 100), Some(2.0 / 3.0));
        assert_eq!(tcp_share(0, 1), Some(0.0));
    }
}
