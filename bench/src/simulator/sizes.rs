//! Which ADUs of a stream are large: key frames, as far as sizes tell. The classifier's bb_frame.h.

use crate::traffic::Class;

/// An ADU is large beyond so many times its stream's mean, or so many where the stream lost its last
/// large one; not within so many ADUs of another one (bb_frame.h).
const LARGE: f64 = 2.0;
const LARGE_OWED: f64 = 1.5;
const LARGE_APART: u32 = 4;
/// What has a mean size: a class's stream.
pub(super) type Stream = (Class, u16);

/// What the classifier knows of a stream.
#[derive(Clone, Copy, Default)]
pub(super) struct Sizes {
    /// The current ADU, and its bytes so far.
    adu: Option<u32>,
    bytes: u64,
    mean: f64,
    /// ADUs since the last large one.
    since: u32,
    /// Its last large one was given up.
    pub(super) lost: bool,
}

impl Sizes {
    /// Whether the current ADU is a large one.
    fn is_large(&self) -> bool {
        let times = if self.lost { LARGE_OWED } else { LARGE };
        self.mean > 0.0 && self.since >= LARGE_APART && self.bytes as f64 > self.mean * times
    }

    /// A packet comes: whether its ADU is a large one.
    pub(super) fn saw(&mut self, adu: u32, bytes: u64) -> bool {
        if self.adu != Some(adu) {
            self.since = if self.is_large() { 0 } else { self.since + 1 };
            if self.adu.is_some() {
                self.mean = match self.mean {
                    0.0 => self.bytes as f64,
                    mean => (3.0 * mean + self.bytes as f64) / 4.0,
                };
            }
            (self.adu, self.bytes) = (Some(adu), 0);
        }
        self.bytes += bytes;
        self.is_large()
    }
}
