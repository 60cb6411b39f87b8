//! What the relays of H.264 share (`flv`, `rtsp`): which frames a viewer goes without.
//!
//! The problem: a decoder that misses a frame which others refer to shows garbage and reports errors until the
//! next key frame. A ring does not know who refers to whom. So here the program chooses, by the structure:
//!
//! 1. The ring sends audio first, and video in the order of decoding: [`Method::Priority`], and one
//!    priority for all video. Audio that is stale is given up by the ring.
//! 2. The ring gives up no video by itself ([`Treatment::Forward`]).
//! 3. With each frame that comes, [`choose`] looks at the frames that wait, and the program cancels those that
//!    cannot arrive in time: first frames that nobody refers to, then all up to the next key frame.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use bestby::{
    Deadline, Metadata, Priority, Treatment,
    tcp::{Method, Options, State, Ticket},
    tokio::Ring,
};
use tokio::net::tcp::OwnedWriteHalf;

/// How long a frame is of use.
pub(crate) const LIFETIME: Duration = Duration::from_secs(1);
/// Of that, for audio that comes while a frame waits, and for a rate that is not quite right.
const SPARE: Duration = Duration::from_millis(150);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Independent of all others.
    Audio,
    /// A decoder cannot begin without; of audio and of the whole stream.
    Header,
    /// The same, in the order of video.
    VideoHeader,
    /// Decoding begins here.
    Key,
    /// Others refer to it, and it to others.
    Reference,
    /// Nobody refers to it.
    Disposable,
}

/// A frame with the framing of its protocol; viewers share the buffers.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    /// Audio of others may go between two parts.
    pub(crate) parts: Vec<Arc<[u8]>>,
    pub(crate) born: Instant,
}

impl Frame {
    pub(crate) fn new(kind: Kind, parts: Vec<Arc<[u8]>>) -> Self {
        let born = Instant::now();
        Self { kind, parts, born }
    }
}

/// A video frame that has not begun, as [`choose`] sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) kind: Kind,
    pub(crate) bytes: usize,
    /// Its last byte must leave within this time.
    pub(crate) left: Duration,
}

/// What [`choose`] gives up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Places of the frames.
    pub(crate) gone: Vec<usize>,
    /// Nothing can be decoded until a new key frame comes.
    pub(crate) broken: bool,
}

/// Which of the `frames`, in the order of decoding, must go so that the others arrive in time, `ahead` bytes
/// being sent before them at `rate` bytes/s.
///
/// A header never goes, and a key frame only for a newer one.
pub(crate) fn choose(frames: &[Candidate], ahead: usize, rate: Option<u64>) -> Choice {
    let mut kept: Vec<usize> = (0..frames.len()).collect();
    // Those before have been looked at: whatever is done, they are late or in time.
    let mut settled = 0;
    let mut broken = false;
    let is = |at: usize, kind| frames[at].kind == kind;
    loop {
        let mut bytes = ahead;
        let late = kept.iter().position(|&at| {
            bytes += frames[at].bytes;
            let takes = rate.map_or(0.0, |rate| bytes as f64 / rate.max(1) as f64);
            at >= settled && (frames[at].left.is_zero() || takes > frames[at].left.as_secs_f64())
        });
        let Some(place) = late else { break };
        let at = kept[place];
        let disposable = kept[..=place].iter().enumerate();
        let disposable = disposable.filter(|(_, at)| is(**at, Kind::Disposable));
        if let Some((largest, _)) = disposable.max_by_key(|(_, at)| frames[**at].bytes) {
            kept.remove(largest);
            continue;
        }
        let next_key = kept[place + 1..].iter().find(|at| is(**at, Kind::Key));
        let (from, to) = match (frames[at].kind, next_key) {
            // What stands before this key frame.
            (Kind::Key, _) if kept[..place].iter().any(|&at| !is(at, Kind::VideoHeader)) => (0, at),
            (_, Some(&key)) => (at, key),
            // The only one left: late is better than never.
            (Kind::Key | Kind::VideoHeader, None) => {
                settled = at + 1;
                continue;
            }
            (_, None) => {
                broken = true;
                (at, usize::MAX)
            }
        };
        let before = kept.len();
        kept.retain(|&at| !(from..to).contains(&at) || is(at, Kind::VideoHeader));
        if kept.len() == before {
            settled = at + 1;
        }
    }
    let gone = (0..frames.len()).filter(|at| !kept.contains(at)).collect();
    Choice { gone, broken }
}

/// A viewer and its ring.
pub(crate) struct Viewer {
    ring: Ring<OwnedWriteHalf, Arc<[u8]>>,
    /// Video frames that may not have begun, in the order of decoding.
    video: VecDeque<(Ticket, Candidate, Instant)>,
    /// Everything that the next frame may refer to is sent or waits.
    decodes: bool,
    /// It has got its first key frame.
    started: bool,
    /// Video frames that never came to the ring.
    skipped: u64,
}

impl Viewer {
    /// How a viewer's ring works.
    pub(crate) fn options() -> Options {
        Options::new().method(Method::Priority).interleave(true)
    }

    /// It gets its first frames with the next key frame.
    pub(crate) fn new(ring: Ring<OwnedWriteHalf, Arc<[u8]>>) -> Self {
        Self {
            ring,
            video: VecDeque::new(),
            decodes: false,
            started: false,
            skipped: 0,
        }
    }

    /// Sends the frame, or gives it or others up.
    pub(crate) fn send(&mut self, frame: &Frame) {
        let deadline = Metadata::new().deadline(Deadline::from_instant(frame.born + LIFETIME));
        let first = deadline.priority(Priority::HIGHEST);
        let push = |metadata| self.ring.push_parts(frame.parts.clone(), None, metadata);
        match frame.kind {
            Kind::Audio if !self.started => return,
            Kind::Audio => drop(push(first)),
            Kind::Header => drop(push(first.treatment(Treatment::Forward))),
            Kind::Reference | Kind::Disposable if !self.decodes => {
                self.skipped += u64::from(self.started);
                return;
            }
            kind => {
                let ticket = push(deadline.treatment(Treatment::Forward));
                self.started |= kind == Kind::Key;
                self.decodes |= kind == Kind::Key;
                let candidate = Candidate {
                    kind,
                    bytes: frame.parts.iter().map(|part| part.len()).sum(),
                    left: Duration::ZERO,
                };
                self.video.push_back((ticket, candidate, frame.born));
            }
        }
        self.choose();
    }

    fn choose(&mut self) {
        let (video, decodes) = (&mut self.video, &mut self.decodes);
        // The ring is locked meanwhile: nothing begins between the look and the choice.
        self.ring.with(|ring| {
            video.retain(|(ticket, ..)| ring.state(*ticket) == State::Waiting);
            let path = ring.path();
            let owd = path.map_or(Duration::ZERO, |path| path.owd);
            let now = Instant::now();
            let candidates: Vec<Candidate> = video
                .iter()
                .map(|(_, candidate, born)| Candidate {
                    left: (*born + LIFETIME - SPARE).saturating_duration_since(now + owd),
                    ..*candidate
                })
                .collect();
            let waiting: usize = candidates.iter().map(|frame| frame.bytes).sum();
            let ahead = (ring.stats().waiting_bytes as usize).saturating_sub(waiting);
            let choice = choose(&candidates, ahead, path.and_then(|path| path.rate));
            for &at in &choice.gone {
                // It was waiting above.
                let _ = ring.cancel(video[at].0);
            }
            *decodes &= !choice.broken;
        });
    }

    /// What became of the frames, in words.
    pub(crate) fn summary(&self) -> String {
        let stats = self.ring.stats();
        let given_up = stats.given_up.total() + self.skipped;
        let late = stats.late;
        format!(
            "{} sent, of these {late} late, {given_up} given up",
            stats.sent
        )
    }

    /// As [`say`].
    pub(crate) fn say(&self, message: Arc<[u8]>) {
        say(&self.ring, message);
    }

    /// The connection has ended.
    pub(crate) fn has_left(&self) -> bool {
        self.ring.stats().given_up.closed > 0
    }
}

/// Sends an answer or a report, in front of the frames that come later.
pub(crate) fn say(ring: &Ring<OwnedWriteHalf, Arc<[u8]>>, message: Arc<[u8]>) {
    let metadata = Metadata::new().deadline(Deadline::after(LIFETIME));
    let metadata = metadata.priority(Priority::HIGHEST);
    ring.push(message, metadata.treatment(Treatment::Forward));
}
