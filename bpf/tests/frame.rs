//! Properties of `include/bb_frame.h`, compiled natively (`src/frame_native.c`): which packet is of
//! which ADU, whatever wraps, and what is no frame.

use bestby_bpf::abi::*;
use proptest::prelude::*;

// Links the archive that holds the functions below.
use bestby_bpf as _;

unsafe extern "C" {
    safe fn bbn_frame_place(stream: &mut bb_stream, piece: &mut bb_piece, which: &mut u32) -> u32;
    safe fn bbn_frame_begin(stream: &mut bb_stream, piece: &bb_piece, which: &mut u32) -> i32;
    safe fn bbn_frame_is_large(stream: &bb_stream, bytes: u32) -> i32;
    safe fn bbn_frame_alone(stream: &bb_stream, place: u32) -> i32;
    safe fn bbn_repair_learn(stream: &mut bb_stream, hit: i32, original: u32, age: i64) -> i32;
    safe fn bbn_repeats(original: &bb_stream, id: u32, seq: u16, bytes: u32) -> i32;
    safe fn bbn_time_is_old(now: u32, source: u32) -> i32;
    safe fn bbn_adu_id(stream: u32, adu: &bb_stream_adu) -> u32;
    safe fn bbn_adu_which(head: u64, id: u32) -> i32;
}

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const INDEX: u32 = 0xabcd;
const LIFETIME: u64 = 200 * MS;
/// `BB_LAST_MOMENT_NS`.
const LAST_MOMENT: u64 = MS;

/// One stream as the classifier follows it, without the older ADUs.
#[derive(Default)]
struct Stream {
    state: bb_stream,
    seq: u16,
    /// Of the last packet's ADU.
    large: bool,
    owd: u64,
}

impl Stream {
    fn numbered(number: u16, seq: u16) -> Self {
        let state = bb_stream {
            head: u64::from(number) << 32,
            ..Default::default()
        };
        Self {
            state,
            seq,
            large: false,
            owd: 0,
        }
    }

    /// Place and id of a packet with this sequence number; a new ADU is begun.
    fn put(&mut self, now: u64, source: u32, seq: u16, bytes: u32, rtp: u8) -> (bb_place, u32) {
        let mut piece = bb_piece {
            now,
            lifetime: LIFETIME,
            owd: self.owd,
            source,
            bytes,
            seq,
            rtp,
            ..Default::default()
        };
        let mut which = 2;
        let place = bbn_frame_place(&mut self.state, &mut piece, &mut which);
        if place == BB_PLACE_NEW {
            assert_eq!(bbn_frame_begin(&mut self.state, &piece, &mut which), 1);
        }
        assert!(which < 2);
        let place = match bbn_frame_alone(&self.state, place) {
            0 => place,
            _ => BB_PLACE_ALONE,
        };
        let adu = &mut self.state.adu[which as usize];
        assert_eq!(adu.source, source, "the ADU of another name");
        adu.bytes += bytes;
        self.large = bbn_frame_is_large(&self.state, self.state.adu[which as usize].bytes) == 1;
        let adu = &self.state.adu[which as usize];
        (place, bbn_adu_id(INDEX, adu))
    }

    /// The next RTP packet.
    fn send(&mut self, now: u64, source: u32, bytes: u32) -> (bb_place, u32) {
        self.seq = self.seq.wrapping_add(1);
        self.put(now, source, self.seq, bytes, 0x80 | 96)
    }
}

/// A CPU fills in a new ADU before it swaps the head. Another CPU that looks in between
/// must not take it for the ADU before: its packet had the name of the one before that.
#[test]
fn adu_begun_by_another_cpu_is_not_found_before_the_head_moves() {
    let mut stream = Stream::default();
    let (_, first) = stream.send(SECOND, 1000, 100);
    let (_, second) = stream.send(SECOND + 33 * MS, 4000, 100);
    // The other CPU has read the head, and begins 7000 in the place of 1000.
    let head = stream.state.head;
    let mut other = bb_stream { ..stream.state };
    let (now, mut which) = (SECOND + 66 * MS, 2);
    let piece = bb_piece {
        now,
        lifetime: LIFETIME,
        source: 7000,
        bytes: 100,
        ..Default::default()
    };
    assert_eq!(bbn_frame_begin(&mut other, &piece, &mut which), 1);
    stream.state.adu = other.adu;
    assert_eq!(stream.state.head, head);
    let (place, third) = stream.send(now, 7000, 100);
    assert_eq!(place, BB_PLACE_NEW);
    assert!(third != first && third != second);
    assert_eq!(third, bbn_adu_id(INDEX, &other.adu[which as usize]));
}

/// Packets of one timestamp, each so many ms, for a minute: how many are of an ADU that is stale where they would leave.
fn stale_of_one_timestamp(owd: u64, gap: u64) -> (usize, usize) {
    let mut stream = Stream {
        owd: owd * MS,
        ..Default::default()
    };
    let (mut first, mut of_adus, mut stale) = (0, 0, 0);
    for now in (SECOND..61 * SECOND).step_by((gap * MS) as usize) {
        let (place, _) = stream.send(now, 0, 1356);
        if place == BB_PLACE_NEW {
            first = now;
        }
        if place != BB_PLACE_ALONE {
            of_adus += 1;
            stale += usize::from(now + owd * MS > first + LIFETIME);
        }
    }
    (of_adus, stale)
}

/// MPEG-TS of senders that write no timestamp: found out once, and for good.
#[test]
fn one_timestamp_for_ever_makes_nothing_stale() {
    for owd in [0, 20, 60, 199] {
        let (of_adus, stale) = stale_of_one_timestamp(owd, 4);
        assert_eq!(stale, 0, "{owd} ms");
        assert!(of_adus <= 51, "{owd} ms: {of_adus} of ADUs");
    }
}

/// Until the timestamp changes: then frames are frames again.
#[test]
fn new_timestamp_after_a_long_one_is_a_frame() {
    let mut stream = Stream::default();
    let mut now = SECOND;
    while now < 5 * SECOND {
        stream.send(now, 7, 1200);
        now += 4 * MS;
    }
    for timestamp in [3000, 6000] {
        let (place, id) = stream.send(now, timestamp, 1200);
        assert_eq!(place, BB_PLACE_NEW);
        assert_eq!(stream.send(now + MS, timestamp, 1200), (BB_PLACE_ADU, id));
        now += 33 * MS;
    }
    // An old one that comes back is none of the long one's.
    assert_eq!(stream.send(now, 7, 1200).0, BB_PLACE_NEW);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// Frames of any timestamps that differ from the two before: each is one ADU, and no two share
    /// an id, whatever wraps.
    #[test]
    fn each_frame_is_one_adu_with_an_id_of_its_own(
        number in any::<u16>(),
        seq in any::<u16>(),
        start in any::<u32>(),
        frames in prop::collection::vec((1u32..5, 1u32..90_000), 1..50),
    ) {
        let mut stream = Stream::numbered(number, seq);
        let (mut now, mut timestamp, mut ids) = (SECOND, start, Vec::new());
        for (packets, step) in frames {
            timestamp = timestamp.wrapping_add(step);
            let first = stream.send(now, timestamp, 1200);
            prop_assert_eq!(first.0, BB_PLACE_NEW);
            for _ in 1..packets {
                now += 3 * MS;
                prop_assert_eq!(stream.send(now, timestamp, 1200), (BB_PLACE_ADU, first.1));
            }
            now += 20 * MS;
            prop_assert!(first.1 >> 16 == INDEX && first.1 & 0xffff != 0);
            ids.push(first.1);
        }
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), all);
    }

    /// A packet that was overtaken by the next frame is still of its own; the resend of one, later,
    /// is known as such at any place of the sequence numbers.
    #[test]
    fn late_packet_joins_its_adu_and_a_resent_one_is_known(seq in any::<u16>(), start in any::<u32>(), later in 10 * MS..LIFETIME / 2) {
        let mut stream = Stream::numbered(7, seq);
        let mut now = SECOND;
        let mut send = |stream: &mut Stream, timestamp: u32| {
            now += 2 * MS;
            (stream.send(now, timestamp, 1000), now)
        };
        send(&mut stream, start);
        let ((_, first), _) = send(&mut stream, start.wrapping_add(3000));
        send(&mut stream, start.wrapping_add(3000));
        let ((_, second), now) = send(&mut stream, start.wrapping_add(6000));
        let last = stream.seq;
        let late = stream.put(now + MS, start.wrapping_add(3000), last.wrapping_sub(1), 1000, 0x80);
        prop_assert_eq!(late, (BB_PLACE_ADU, first));
        for (timestamp, back, id) in [(3000, 1, first), (3000, 2, first), (6000, 0, second)] {
            let seq = last.wrapping_sub(back);
            let again = stream.put(now + MS + later, start.wrapping_add(timestamp), seq, 1000, 0x80);
            prop_assert_eq!(again, (BB_PLACE_RESENT, id));
        }
        // And the stream goes on.
        prop_assert_eq!(stream.send(now + MS + later, start.wrapping_add(6000), 1000), (BB_PLACE_ADU, second));
    }

    /// A large frame that a pacer sends at 100 kbit/s or more is a frame for its lifetime.
    #[test]
    fn frame_paced_within_its_lifetime_is_one_adu(bytes in prop::collection::vec(100u32..1500, 2..40), rate in 12_500u64..1_000_000) {
        let mut stream = Stream::default();
        let (mut now, start) = (SECOND, SECOND);
        let (_, id) = stream.send(now, 9, 1200);
        for bytes in bytes {
            // The pacer lets a packet go when the link could have carried it.
            now += u64::from(bytes) * SECOND / rate;
            if now - start > LIFETIME - LAST_MOMENT {
                break;
            }
            prop_assert_eq!(stream.send(now, 9, bytes), (BB_PLACE_ADU, id));
        }
    }

    /// One timestamp that goes on: from the lifetime on at the latest, each packet is alone, however
    /// close they come, and whatever the sequence numbers are.
    #[test]
    fn packet_of_a_timestamp_beyond_the_lifetime_is_alone(
        gaps in prop::collection::vec(0u64..60 * MS, 1..200),
        bytes in 12u32..1500,
        count in any::<bool>(),
    ) {
        let mut stream = Stream::default();
        let (start, mut now, mut alone) = (SECOND, SECOND, false);
        stream.send(now, 1, bytes);
        for gap in gaps {
            now += gap;
            stream.seq = stream.seq.wrapping_sub(u16::from(!count));
            let (place, _) = stream.send(now, 1, bytes);
            alone |= now - start > LIFETIME - LAST_MOMENT;
            prop_assert!(place == BB_PLACE_ALONE || !alone && place == BB_PLACE_ADU, "{:?}", place);
            alone |= place == BB_PLACE_ALONE;
        }
        // A frame again with the next timestamp.
        let next = stream.send(now, 2, bytes);
        prop_assert_eq!(next.0, BB_PLACE_NEW);
        prop_assert_eq!(stream.send(now, 2, bytes), (BB_PLACE_ADU, next.1));
    }

    /// The mean lies within the sizes of the frames.
    #[test]
    fn mean_frame_size_lies_between_least_and_most(sizes in prop::collection::vec(1u32..1 << 20, 2..50)) {
        let mut stream = Stream::default();
        let mut now = SECOND;
        for (frame, size) in (1u32..).zip(&sizes) {
            now += 30 * MS;
            stream.send(now, frame, *size);
        }
        let known = &sizes[..sizes.len() - 1];
        let (least, most) = (known.iter().min().expect("one"), known.iter().max().expect("one"));
        prop_assert!((*least - 1..=*most).contains(&stream.state.avg_bytes));
    }

    /// Frames of any sizes: one in five is large at most, and none of them where all are within
    /// twice the least.
    #[test]
    fn few_frames_of_a_stream_are_large(
        sizes in prop::collection::vec(100u32..20_000, 10..100),
        equal in any::<bool>(),
        lost in any::<bool>(),
    ) {
        let mut stream = Stream::default();
        stream.state.lost = u8::from(lost && !equal);
        let mut large = 0;
        for (n, size) in (1u32..).zip(&sizes) {
            let size = if equal { 10_000 + size / 2 } else { *size };
            stream.send(SECOND + u64::from(n) * 30 * MS, n, size);
            large += usize::from(stream.large);
        }
        let most = if equal { 0 } else { sizes.len() / 5 + 1 };
        prop_assert!(large <= most, "{} of {}", large, sizes.len());
    }

    /// Two CPUs begin the same ADU: one begins it, both have its name.
    #[test]
    fn second_cpu_to_begin_an_adu_joins_it(source in any::<u32>(), other in any::<u32>()) {
        let piece = |source| bb_piece { now: SECOND, source, rtp: 0x80, ..Default::default() };
        let mut stream = Stream::numbered(0xffff, 0);
        let (mut one, mut two) = (0, 0);
        prop_assert_eq!(bbn_frame_begin(&mut stream.state, &piece(source), &mut one), 1);
        // It had looked before, or it looks now.
        let head = stream.state.head;
        prop_assert_eq!(bbn_frame_begin(&mut stream.state, &piece(source), &mut two), 1);
        prop_assert_eq!((two, stream.state.head), (one, head));
        let mut late = piece(source);
        prop_assert_eq!(bbn_frame_place(&mut stream.state, &mut late, &mut two), 1);
        prop_assert_eq!(one, two);
        if other != source {
            prop_assert_eq!(bbn_frame_place(&mut stream.state, &mut piece(other), &mut two), 0);
        }
    }

    /// Three frames of one other stream in a row, each older than a pause: then it repeats. Nothing
    /// less is enough, and a run of timestamps of its own ends it.
    #[test]
    fn retransmissions_are_learnt_after_three_hits_in_a_row(
        frames in prop::collection::vec((0u32..3, 0i64..40), 1..200),
    ) {
        let mut stream = bb_stream::default();
        let (mut row, mut of) = (0, u32::MAX);
        let mut learnt = false;
        for (original, age) in frames {
            // Original 0: the timestamp is nobody's.
            let hit = original != 0;
            let was = learnt;
            learnt = bbn_repair_learn(&mut stream, i32::from(hit), original, age * 1_000_000) == 1;
            if !hit {
                row = 0;
            } else if age >= 10 {
                row = if original == of { row + 1 } else { 1 };
                of = original;
            }
            if learnt && !was {
                prop_assert!(row >= 3, "learnt after {} in a row", row);
            }
            if row >= 3 && !was && hit && age >= 10 {
                prop_assert!(learnt);
            }
        }
        for _ in 0..6 {
            learnt = bbn_repair_learn(&mut stream, 0, 0, 0) == 1;
        }
        prop_assert!(!learnt);
    }
}

/// Sixty-five thousand and more ADUs: an id comes again after 65,535 others, never earlier, and
/// the two that are followed are found by their ids.
#[test]
fn adu_id_repeats_after_65535_others() {
    let mut stream = Stream::numbered(0x1234, 0);
    let mut last_seen = vec![0u32; 1 << 16];
    let (mut before, mut begun) = (None, 0);
    for frame in 1..70_000u32 {
        let (place, id) = stream.put(SECOND + u64::from(frame), frame, 0, 1, 0);
        assert_eq!(place, BB_PLACE_NEW);
        let seen = &mut last_seen[(id & 0xffff) as usize];
        assert!(
            *seen == 0 || frame - *seen == 65_535,
            "{} after {}",
            frame,
            *seen
        );
        *seen = frame;
        let which = bbn_adu_which(stream.state.head, id);
        assert_eq!(
            stream.state.adu[usize::try_from(which).expect("followed")].source,
            frame
        );
        if let Some(before) = before {
            assert_eq!(bbn_adu_which(stream.state.head, before), which ^ 1);
        }
        if begun > 2 && id & 0xffff > 2 {
            assert_eq!(bbn_adu_which(stream.state.head, id - 2), -1);
        }
        before = Some(id);
        begun += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Each packet of a frame that is remembered may be repeated; one that is newer, or far from there, is no repeat.
    #[test]
    fn repeat_has_the_number_of_its_frame(
        number in any::<u16>(),
        seq in any::<u16>(),
        start in any::<u32>(),
        frames in prop::collection::vec(1u16..5, 2..60),
        of in any::<prop::sample::Index>(),
        off in 1u16..,
    ) {
        let mut stream = Stream::numbered(number, seq);
        let mut sent = Vec::new();
        for (n, packets) in frames.iter().enumerate() {
            let now = SECOND + n as u64 * 33 * MS;
            for _ in 0..*packets {
                let (_, id) = stream.send(now, start.wrapping_add(3000 * n as u32), 1200);
                sent.push((id, stream.seq));
            }
        }
        let (id, seq) = sent[of.index(sent.len())];
        // Of the current frame nobody can have missed one yet.
        let current = i32::from(id == sent[sent.len() - 1].0);
        prop_assert_eq!(bbn_repeats(&stream.state, id, seq, 1200), 1 - current);
        // Sizes of 1200 and up to 4 packets a frame: no frame is farther away than that.
        let (newer, far) = (stream.seq.wrapping_add(off % 30_000 + 1), stream.seq.wrapping_sub(2048 + off % 30_000));
        prop_assert_eq!(bbn_repeats(&stream.state, id, newer, 1200), 0);
        prop_assert_eq!(bbn_repeats(&stream.state, id, far, 1200), 0);
    }

    #[test]
    fn time_is_old_up_to_11_seconds(now in any::<u32>(), back in 1u32..=1 << 20, ahead in 0u32..1 << 31) {
        prop_assert_eq!(bbn_time_is_old(now, now.wrapping_sub(back)), 1);
        prop_assert_eq!(bbn_time_is_old(now, now.wrapping_add(ahead)), 0);
    }
}

/// A key frame is large, packet by packet, from twice the mean on; from one and a half times where the one
/// before was lost.
#[test]
fn key_frame_is_large_and_earlier_after_a_lost_one() {
    let mut stream = Stream::default();
    let mut grown = |lost: u8| {
        stream.state.lost = lost;
        let first = stream.seq.wrapping_mul(7);
        for n in 1..60 {
            for _ in 0..3 {
                stream.send(SECOND, u32::from(first) + n, 1000);
                assert!(!stream.large);
            }
        }
        let sizes = (1..=20).map(|n| {
            stream.send(SECOND, u32::from(first) + 60, 1000);
            (n, stream.large)
        });
        let sizes: Vec<(u32, bool)> = sizes.collect();
        sizes
            .iter()
            .filter(|(_, large)| !large)
            .map(|(n, _)| *n)
            .max()
    };
    assert_eq!(grown(0), Some(6));
    assert_eq!(grown(0), Some(6));
    assert_eq!(grown(1), Some(4));
}
