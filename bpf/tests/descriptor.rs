//! Properties of `include/bb_descriptor.h`, compiled natively: what RTP's header extensions say of frames whose payload
//! is encrypted, under whatever id, and that nothing is said by what only looks like one.

mod video;

use proptest::prelude::*;
use video::{Role::*, *};

/// Bits from the first one of a byte on.
#[derive(Default)]
struct Bits(Vec<bool>);

impl Bits {
    fn put(&mut self, value: u32, bits: u32) -> &mut Self {
        self.0
            .extend((0..bits).rev().map(|bit| value >> bit & 1 == 1));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        self.0
            .chunks(8)
            .map(|byte| {
                let bits = byte.iter().enumerate();
                bits.fold(0, |sum, (i, bit)| sum | u8::from(*bit) << (7 - i))
            })
            .collect()
    }
}

/// A writer of Dependency Descriptors (AV1 RTP specification, appendix A).
struct Writer {
    /// (spatial, temporal) layer of each template, in order.
    templates: Vec<(u8, u8)>,
    first_template: u32,
    number: u16,
}

impl Writer {
    /// One spatial layer with three temporal ones, as libwebrtc has it.
    fn l1t3() -> Self {
        Self {
            templates: vec![(0, 0), (0, 0), (0, 1), (0, 2), (0, 2)],
            first_template: 60, // so that the ids wrap
            number: 65_530,
        }
    }

    fn packet(&self, template: usize, first: bool, last: bool, structure: bool) -> Vec<u8> {
        let mut bits = Bits::default();
        bits.put(first.into(), 1).put(last.into(), 1);
        bits.put((self.first_template + template as u32) % 64, 6);
        bits.put(self.number.into(), 16);
        if structure {
            bits.put(0b10000, 5);
            bits.put(self.first_template, 6).put(0, 5);
            for (i, layer) in self.templates.iter().enumerate() {
                let next = match self.templates.get(i + 1) {
                    Option::None => 3,
                    Some(next) if next == layer => 0,
                    Some(next) if next.0 == layer.0 => 1,
                    Some(_) => 2,
                };
                bits.put(next, 2);
            }
            // DTIs, frame differences and chains follow, which nobody reads.
            bits.put(0xA5A5_A5A5, 32);
        }
        bits.bytes()
    }

    /// Extensions of all packets of the next frame.
    fn frame(&mut self, template: usize, key: bool, packets: usize) -> Vec<Vec<u8>> {
        self.number = self.number.wrapping_add(1);
        (0..packets)
            .map(|i| self.packet(template, i == 0, i + 1 == packets, key && i == 0))
            .collect()
    }
}

/// A stream whose payload is encrypted, and which has this extension beside some that say nothing of frames.
struct Encrypted {
    stream: Stream,
    id: u8,
    seed: u64,
    sent: u32,
}

impl Encrypted {
    fn new(id: u8) -> Self {
        Self {
            stream: Stream::default(),
            id,
            seed: 7,
            sent: 0,
        }
    }

    fn frame(&mut self, ours: &[Vec<u8>]) -> Vec<Role> {
        self.stream.time = self.stream.time.wrapping_add(3000);
        let count = ours.len();
        let packets = ours.iter().enumerate().map(|(i, ours)| {
            self.sent += 1;
            // abs-send-time, the transport's sequence number, MID: as Chrome has them beside it.
            let sent = self.sent.wrapping_mul(7919).to_be_bytes();
            let mut elements = vec![
                (2, sent[1..].to_vec()),
                (4, sent[2..].to_vec()),
                (9, b"0".to_vec()),
                (self.id, ours.clone()),
            ];
            elements.sort_by_key(|(id, _)| *id);
            let payload = noise::<12>(&mut self.seed);
            let ext = Extensions::of(&elements);
            self.stream.extended(&payload, &ext, i == 0, i + 1 == count)
        });
        packets.collect()
    }

    /// Frames in the pattern of three temporal layers, with a key frame in 60.
    fn l1t3(&mut self, writer: &mut Writer, frames: usize, packets: impl Fn(usize) -> usize) {
        for n in 0..frames {
            let key = n % 60 == 0;
            let template = if key { 0 } else { [1, 3, 2, 4][n % 4] };
            let frame = writer.frame(template, key, packets(n));
            self.frame(&frame);
        }
    }
}

#[test]
fn dependency_descriptor_tells_the_levels_of_encrypted_frames() {
    for (id, packets) in [(1, 0), (3, 1), (12, 2), (14, 3)] {
        let mut writer = Writer::l1t3();
        let mut encrypted = Encrypted::new(id);
        let packets = |n| if packets == 0 { 1 + n % 3 } else { packets };
        encrypted.l1t3(&mut writer, 60 + SURE, packets);
        assert_eq!(encrypted.stream.video.codec, DD, "{id}");
        assert_eq!(encrypted.frame(&writer.frame(1, false, 2)), [Link; 2]);
        assert_eq!(encrypted.frame(&writer.frame(2, false, 2)), [Link1; 2]);
        assert_eq!(encrypted.frame(&writer.frame(3, false, 1)), [Leaf]);
        assert_eq!(encrypted.frame(&writer.frame(0, true, 3)), [Key; 3]);
        // A relay leaves the upper layers out: frames are missing.
        writer.number = writer.number.wrapping_add(3);
        assert_eq!(encrypted.frame(&writer.frame(4, false, 1)), [Leaf]);
        assert_eq!(encrypted.stream.video.strikes, 0);
    }
}

/// Frames until the descriptor is known, if the rule gives this id.
fn frames_until_known(told: u8) -> usize {
    let mut writer = Writer::l1t3();
    let mut encrypted = Encrypted::new(12);
    encrypted.stream.video.dd = told;
    (1..200)
        .find(|n| {
            let key = n % 60 == 1;
            let template = if key { 0 } else { [1, 3, 2, 4][n % 4] };
            encrypted.frame(&writer.frame(template, key, 2));
            encrypted.stream.video.codec == DD
        })
        .unwrap_or(usize::MAX)
}

#[test]
fn id_that_is_told_is_tried_first_and_a_wrong_one_costs_a_few_frames_only() {
    assert_eq!(frames_until_known(12), SURE + 1);
    // None: that of the time of sending comes before it.
    assert_eq!(frames_until_known(0), SURE + 3);
    // Of the time of sending, of the MID, of what is not there, beyond all.
    for wrong in [2, 9, 11, 14, 255] {
        let frames = frames_until_known(wrong);
        assert!(frames <= SURE + 4, "{wrong}: {frames}");
    }
}

#[test]
fn id_that_is_told_is_not_believed() {
    let mut seed = 5;
    for stream in 0..500u32 {
        let mut encrypted = Encrypted::new(12);
        (encrypted.stream.video.dd, encrypted.stream.video.vfm) = (12, 12);
        for n in 0..200u32 {
            let packets = 1 + (n * 7 + stream) % 3;
            let ours: Vec<_> = (0..packets)
                .map(|_| noise::<4>(&mut seed).to_vec())
                .collect();
            assert!(encrypted.frame(&ours).iter().all(|role| *role == None));
        }
        assert_eq!(encrypted.stream.video.codec, OPAQUE);
    }
}

#[test]
fn stream_that_is_met_in_the_middle_says_nothing_until_its_key_frame() {
    let mut writer = Writer::l1t3();
    let mut encrypted = Encrypted::new(5);
    for n in 0..2 * SURE {
        encrypted.frame(&writer.frame(1 + n % 4, false, 2));
    }
    assert_eq!(encrypted.stream.video.codec, DD);
    assert_eq!(encrypted.frame(&writer.frame(1, false, 2)), [None; 2]);
    assert_eq!(encrypted.frame(&writer.frame(0, true, 2)), [Key; 2]);
    assert_eq!(encrypted.frame(&writer.frame(1, false, 2)), [Link; 2]);
}

#[test]
fn spatial_layers_of_a_picture_are_frames_of_their_own() {
    let mut writer = Writer {
        templates: vec![(0, 0), (0, 0), (0, 1), (1, 0), (1, 0), (1, 1)],
        first_template: 9,
        number: 3,
    };
    let mut encrypted = Encrypted::new(5);
    let mut roles = Vec::new();
    for n in 0..3 * SURE {
        let (key, level) = (n % 40 == 0, n % 2);
        let (below, above) = match (key, level) {
            (true, _) => (0, 3),
            (_, 0) => (1, 4),
            _ => (2, 5),
        };
        let mut picture = writer.frame(below, key, 1 + n % 2);
        picture.extend(writer.frame(above, false, 2));
        roles = encrypted.frame(&picture);
        if n == 2 * SURE + 16 {
            assert_eq!(roles, [Key; 3]);
        }
    }
    assert_eq!(encrypted.stream.video.codec, DD);
    assert_eq!(roles, [Leaf; 4]);
}

/// A byte of Video Frame Marking (RFC 9626), and with levels two more.
fn marking(ours: u8, level: Option<u8>, packets: usize) -> Vec<Vec<u8>> {
    (0..packets)
        .map(|i| {
            let ends = u8::from(i == 0) << 7 | u8::from(i + 1 == packets) << 6;
            let mut bytes = vec![ends | ours | level.unwrap_or(0)];
            if level.is_some() {
                bytes.extend([0, 5]);
            }
            bytes
        })
        .collect()
}

#[test]
fn frame_marking_tells_key_frames_and_what_may_be_discarded() {
    let mut encrypted = Encrypted::new(6);
    for n in 0..2 * SURE {
        encrypted.frame(&marking(
            if n % 20 == 0 { 0x20 } else { 0 },
            Option::None,
            1 + n % 3,
        ));
    }
    assert_eq!(encrypted.stream.video.codec, VFM);
    assert_eq!(encrypted.frame(&marking(0, Option::None, 2)), [Link; 2]);
    assert_eq!(encrypted.frame(&marking(0x10, Option::None, 2)), [Leaf; 2]);
    assert_eq!(encrypted.frame(&marking(0x20, Option::None, 3)), [Key; 3]);
    let mut encrypted = Encrypted::new(7);
    for n in 0..2 * SURE {
        encrypted.frame(&marking(0, Some([0, 2, 1, 2][n % 4]), 1 + n % 3));
    }
    assert_eq!(encrypted.stream.video.codec, VFM);
    assert_eq!(encrypted.frame(&marking(0, Some(0), 2)), [Link; 2]);
    assert_eq!(encrypted.frame(&marking(0, Some(1), 2)), [Link1; 2]);
    assert_eq!(encrypted.frame(&marking(0, Some(2), 2)), [Leaf; 2]);
}

#[test]
fn nothing_is_said_by_extensions_that_are_about_something_else() {
    // Chrome's without the descriptor, whatever the time of sending begins with.
    for start in 0..200u32 {
        let mut encrypted = Encrypted::new(12);
        encrypted.sent = start << 12;
        for n in 0..200 {
            // Playout delay: three bytes that stay as they are.
            assert!(
                encrypted
                    .frame(&vec![vec![0xC0, 0x12, 0x34]; 1 + n % 3])
                    .iter()
                    .all(|role| *role == None)
            );
        }
        assert_eq!(encrypted.stream.video.codec, OPAQUE);
    }
}

#[test]
fn nothing_is_said_by_encrypted_extensions() {
    let mut seed = 3;
    for stream in 0..5_000u32 {
        let mut encrypted = Encrypted::new(12);
        for n in 0..200u32 {
            let packets = 1 + (n * 7 + stream) % 3;
            let ours: Vec<_> = (0..packets)
                .map(|_| noise::<4>(&mut seed).to_vec())
                .collect();
            for role in encrypted.frame(&ours) {
                assert_eq!(role, None);
            }
        }
        assert_eq!(encrypted.stream.video.codec, OPAQUE);
    }
}

proptest! {
    /// Whatever bytes the extensions are: nothing outside of them is read.
    #[test]
    fn any_extensions_are_read(
        packets in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..70), any::<bool>(), any::<bool>(), any::<bool>()), 0..200),
        codec in 0..8u8,
    ) {
        let mut stream = Stream::default();
        stream.video.codec = codec;
        stream.video.position = 1;
        for (bytes, two_byte, first, last) in packets {
            let mut ext = Extensions { bytes, two_byte };
            ext.bytes.truncate(64);
            stream.extended(&[0xFF; 12], &ext, first, last);
            prop_assert!(stream.video.templates <= 32 && stream.video.levels < 8);
        }
    }
}
