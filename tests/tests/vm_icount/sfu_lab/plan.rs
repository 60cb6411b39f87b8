//! What the publishers send, made beforehand: sizes and moments like a real encoder's, and labels in the place of media.

use std::time::Duration;

/// Publishers: each has one audio and one video stream.
pub(super) const PUBLISHERS: usize = 4;
const AUDIO_EVERY: Duration = Duration::from_millis(20);
const FRAME_EVERY: Duration = Duration::from_millis(40);
/// Between the packets of one frame.
const PACE: Duration = Duration::from_millis(3);
/// Every so many frames is a key frame, five times as large.
const KEY: u32 = 50;
/// Bytes of a frame that is no key frame, by layer.
const FRAME: [usize; 2] = [350, 1_500];
/// bit/s of one video by layer, retransmissions left aside.
pub(super) const VIDEO_BITRATE: [u64; 2] = [110_000, 390_000];
pub(super) const AUDIO_BITRATE: u64 = 75_000;
/// bit/s to one receiver with every video in its upper layer.
pub(super) const WANTED: u64 = PUBLISHERS as u64 * (AUDIO_BITRATE + VIDEO_BITRATE[1]);
const AUDIO: usize = 100;
const MTU: usize = 1_100;

/// A packet that the publishers send to the SFU.
#[derive(Clone, Copy)]
pub(super) struct Planned {
    pub(super) at: Duration,
    pub(super) label: Label,
    pub(super) size: usize,
}

/// What a packet says of itself to the receivers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Label {
    /// Since media began.
    pub(super) captured: Duration,
    pub(super) publisher: usize,
    pub(super) video: bool,
    /// 1 is the upper layer.
    pub(super) layer: usize,
    pub(super) frame: u32,
    pub(super) index: u32,
    pub(super) count: u32,
}

impl Label {
    pub(super) fn write(&self, size: usize) -> Vec<u8> {
        let captured = u32::try_from(self.captured.as_micros()).unwrap();
        let publisher = u32::try_from(self.publisher).unwrap();
        let layer = u32::try_from(self.layer).unwrap();
        let video = u32::from(self.video);
        let words = [
            captured, publisher, video, layer, self.frame, self.index, self.count,
        ];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        bytes.resize(size.max(bytes.len()), 0);
        bytes
    }

    /// `None`: no media, such as the padding that a sender probes with.
    pub(super) fn read(payload: &[u8]) -> Option<Self> {
        let words: &[u8; 28] = payload.first_chunk()?;
        let mut words = words
            .chunks(4)
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()));
        let mut next = || words.next().unwrap();
        Some(Self {
            captured: Duration::from_micros(next().into()),
            publisher: next() as usize,
            video: next() == 1,
            layer: next() as usize,
            frame: next(),
            index: next(),
            count: next(),
        })
    }
}

/// All packets of all publishers, both layers, in the order in which they reach the SFU.
pub(super) fn plan(length: Duration) -> Vec<Planned> {
    let mut plan = Vec::new();
    for publisher in 0..PUBLISHERS {
        // Publishers do not begin at the same moment.
        let phase = Duration::from_millis(9 * publisher as u64);
        let mut add = |video, layer, frame, size: usize| {
            let every = if video { FRAME_EVERY } else { AUDIO_EVERY };
            let captured = phase + every * frame;
            let count = size.div_ceil(MTU);
            for index in 0..count {
                let size = MTU.min(size - index * MTU);
                let [index, count] = [index, count].map(|n| u32::try_from(n).unwrap());
                let label = Label {
                    captured,
                    publisher,
                    video,
                    layer,
                    frame,
                    index,
                    count,
                };
                plan.push(Planned {
                    at: captured + PACE * index,
                    label,
                    size,
                });
            }
        };
        let times =
            |every: Duration| u32::try_from(length.as_micros() / every.as_micros()).unwrap();
        (0..times(AUDIO_EVERY)).for_each(|frame| add(false, 0, frame, AUDIO));
        for frame in 0..times(FRAME_EVERY) {
            let key = (frame + 11 * publisher as u32).is_multiple_of(KEY);
            for (layer, size) in FRAME.into_iter().enumerate() {
                add(true, layer, frame, if key { 5 * size } else { size });
            }
        }
    }
    plan.sort_by_key(|packet| (packet.at, packet.label));
    plan
}
