//! Properties of `include/bb_srt.h`, compiled natively (`src/srt_native.c`): when a packet of SRT was first due,
//! whatever wraps or drifts, and what is not SRT.

use proptest::prelude::*;

// Links the archive that holds the functions below.
use bestby_bpf as _;

/// `struct bb_srt`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Srt {
    base_us: u32,
    least_us: u32,
    window_us: u32,
    id: u32,
    seq: u32,
    latency_ms: u16,
    started: u8,
    run: u8,
    strikes: u8,
}

unsafe extern "C" {
    safe fn bbn_srt_us(now_ns: u64) -> u32;
    safe fn bbn_srt_first(srt: &mut Srt, now_us: u32, time: u32, lifetime_us: u32) -> u32;
    safe fn bbn_srt_again(srt: &Srt, now_us: u32, time: u32) -> u32;
    safe fn bbn_srt_fits(srt: &mut Srt, words: &[u32; 4], now_us: u32) -> i32;
    safe fn bbn_srt_is_control(word: u32) -> i32;
    safe fn bbn_srt_is_handshake(words: &[u32; 20]) -> i32;
    safe fn bbn_srt_granted(words: &[u32; 20]) -> u16;
}

const MS: u64 = 1000;
const SECOND: u64 = 1000 * MS;
const LIFETIME: u32 = 400 * MS as u32;
/// How often a first send that is far off is forgiven.
const STRIKES: u8 = 8;
/// Packets in a row, and so long, until a flow is SRT's.
const RUN: u32 = 16;
const RUN_US: u64 = 100 * MS;

/// Both clocks in us: this host's and the connection's began at any time.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    now: u64,
    began: u64,
}

impl Clocks {
    fn us(self, at: u64) -> u32 {
        bbn_srt_us((self.now + at) * 1000)
    }

    /// The timestamp of what was due `at`.
    fn time(self, at: u64) -> u32 {
        (self.began + at) as u32
    }
}

fn clocks() -> impl Strategy<Value = Clocks> {
    // Often within seconds of where 2^32 us are over.
    let near = prop_oneof![
        0..1u64 << 40,
        (1u64..100).prop_map(|n| (n << 32) - 3 * SECOND)
    ];
    (near.clone(), near).prop_map(|(now, began)| Clocks { now, began })
}

fn data(seq: u32, time: u32, id: u32) -> [u32; 4] {
    [
        seq & 0x7fff_ffff,
        0xc000_0000 | (seq + 1) & 0x03ff_ffff,
        time,
        id,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// What is sent again is as old as its original, to the microsecond, whatever has wrapped since.
    #[test]
    fn a_repair_is_as_old_as_its_original(
        clocks in clocks(),
        steps in prop::collection::vec((0u64..20 * MS, 0u64..300 * MS), 2..200),
        ages in prop::collection::vec(0u64..60 * SECOND, 1..20),
    ) {
        let mut srt = Srt::default();
        let mut at = 0;
        // The first one came at once; each later one that much later than it was due.
        prop_assert_eq!(bbn_srt_first(&mut srt, clocks.us(0), clocks.time(0), 0), 0);
        for (step, late) in steps {
            at += step;
            let age = bbn_srt_first(&mut srt, clocks.us(at + late), clocks.time(at), LIFETIME);
            prop_assert_eq!(u64::from(age), late);
            if at + late > 4 * SECOND {
                break; // the window ends, and the base may rise
            }
        }
        for age in ages.into_iter().filter(|age| *age <= at) {
            prop_assert_eq!(u64::from(bbn_srt_again(&srt, clocks.us(at), clocks.time(at - age))), age);
        }
    }

    /// The least late packet counts, in whatever order they come.
    #[test]
    fn the_base_is_that_of_the_least_late_packet(
        clocks in clocks(),
        lates in prop::collection::vec(0u64..2 * SECOND, 1..50),
    ) {
        let mut srt = Srt::default();
        let mut least = u64::MAX;
        for (n, late) in lates.iter().enumerate() {
            let at = n as u64 * 10 * MS;
            least = least.min(*late);
            let age = bbn_srt_first(&mut srt, clocks.us(at + late), clocks.time(at), 0);
            prop_assert_eq!(u64::from(age), late - least);
        }
    }

    /// Hours with a clock that is 500 ppm off either way: what is on time stays within 10 ms of it.
    #[test]
    fn the_base_follows_a_clock_that_drifts(clocks in clocks(), ppm in -500i64..=500) {
        let mut srt = Srt::default();
        for n in 0..20_000u64 {
            let at = n * 500 * MS; // 2.8 hours
            let theirs = at.saturating_add_signed(at as i64 * ppm / 1_000_000);
            let age = bbn_srt_first(&mut srt, clocks.us(at), clocks.time(theirs), LIFETIME);
            prop_assert!(age < 10 * MS as u32, "{age} us after {n}");
        }
        prop_assert_eq!(srt.strikes, 0);
    }

    /// A sender that is behind for a minute gains nothing by it but the drift that is allowed.
    #[test]
    fn a_sender_that_is_late_stays_late(clocks in clocks(), late in 50 * MS..390 * MS) {
        let mut srt = Srt::default();
        bbn_srt_first(&mut srt, clocks.us(0), clocks.time(0), LIFETIME);
        for n in 1..6000u64 {
            let at = n * 10 * MS;
            let age = bbn_srt_first(&mut srt, clocks.us(at + late), clocks.time(at), LIFETIME);
            prop_assert!(u64::from(age) <= late && u64::from(age) + (at + late) / 1000 >= late);
        }
    }

    /// One wrong timestamp of the future does not make all that follows stale for long.
    #[test]
    fn a_wrong_timestamp_is_forgotten(clocks in clocks(), ahead in SECOND..15 * SECOND) {
        let mut srt = Srt::default();
        bbn_srt_first(&mut srt, clocks.us(0), clocks.time(ahead), LIFETIME);
        let ages: Vec<u32> = (1..1000u64)
            .map(|n| bbn_srt_first(&mut srt, clocks.us(n * 10 * MS), clocks.time(n * 10 * MS), LIFETIME))
            .collect();
        prop_assert!(ages[0] > LIFETIME);
        prop_assert!(ages[450..].iter().all(|age| *age <= LIFETIME), "{ages:?}");
    }

    /// What is no time at all makes nothing stale, and is found out.
    #[test]
    fn random_words_are_no_times(clocks in clocks(), times in prop::collection::vec(any::<u32>(), 2000)) {
        let mut srt = Srt::default();
        let mut stale = 0;
        for (n, time) in times.into_iter().enumerate() {
            stale += u32::from(bbn_srt_first(&mut srt, clocks.us(n as u64 * 10 * MS), time, LIFETIME) > LIFETIME);
            if srt.strikes == STRIKES {
                break;
            }
        }
        prop_assert_eq!(srt.strikes, STRIKES);
        prop_assert!(stale <= 3, "{stale}");
    }

    /// A flow is SRT's once its packets were so for as many and as long; resends between them say nothing.
    #[test]
    fn srt_is_recognised_in_mid_stream(
        clocks in clocks(),
        seq in any::<u32>(),
        id in 1u32..,
        gap in 100u64..40 * MS,
        resends in any::<u64>(),
    ) {
        let mut srt = Srt::default();
        for n in 0..2000u32 {
            let at = u64::from(n) * gap;
            let words = data(seq.wrapping_add(n), clocks.time(at), id);
            let known = bbn_srt_fits(&mut srt, &words, clocks.us(at + at / 3));
            if known == 1 {
                prop_assert!(n + 1 >= RUN && at + at / 3 >= RUN_US);
                return Ok(());
            }
            prop_assert!(n == 0 || known == 0, "{n}: {known}");
            if n > 0 && resends >> (n % 64) & 1 == 1 {
                let mut again = data(seq.wrapping_add(n - 1), clocks.time(at - gap), id);
                again[1] |= 1 << 26;
                prop_assert_eq!(bbn_srt_fits(&mut srt, &again, clocks.us(at + at / 3)), 0);
            }
        }
        prop_assert!(false, "not recognised");
    }

    /// Control packets alone do, too.
    #[test]
    fn srt_is_recognised_by_its_acknowledgements(clocks in clocks(), id in 1u32.., gap in 100u64..20 * MS) {
        let mut srt = Srt::default();
        let known = (0..2000u32).any(|n| {
            let at = u64::from(n) * gap;
            bbn_srt_fits(&mut srt, &[0x8006_0000, n, clocks.time(at), id], clocks.us(at)) == 1
        });
        prop_assert!(known);
    }

    /// Two of: a number that counts, a constant id, a time that passes. It takes all three.
    #[test]
    fn what_lacks_one_of_three_is_not_srt(
        clocks in clocks(),
        words in prop::collection::vec(any::<[u32; 4]>(), 500),
        lacks in 0usize..3,
        gap in 5 * MS..40 * MS,
    ) {
        let mut srt = Srt::default();
        for (n, random) in words.iter().enumerate() {
            let at = n as u64 * gap;
            let mut packet = data(n as u32, clocks.time(at), 7);
            let word = [0, 2, 3][lacks];
            packet[word] = random[word] & 0x7fff_ffff;
            prop_assert!(bbn_srt_fits(&mut srt, &packet, clocks.us(at)) != 1, "{n}");
        }
    }

    /// A constant in the place of the time is none.
    #[test]
    fn a_time_that_stands_still_is_none(clocks in clocks(), gap in 100u64..40 * MS) {
        let mut srt = Srt::default();
        for n in 0..2000u32 {
            let packet = data(n, 99, 7);
            prop_assert!(bbn_srt_fits(&mut srt, &packet, clocks.us(u64::from(n) * gap)) != 1);
        }
    }
}

/// RTP of PCMU (payload type 0), whose first byte and types are those of SRT's control packets.
#[test]
fn pcmu_is_not_srt() {
    let mut srt = Srt::default();
    for n in 0..70_000u32 {
        let words = [0x8000_0000 | n & 0xffff, 160 * n, 0x1234, 0x5555_5555];
        let now = bbn_srt_us(u64::from(n) * 20_000_000);
        assert!(bbn_srt_fits(&mut srt, &words, now) != 1, "{n}");
    }
}

#[test]
fn control_packets_have_known_types() {
    for word in [
        0x8000_0000,
        0x8001_0000,
        0x8006_0000,
        0x8008_0000,
        0xffff_0003,
    ] {
        assert_eq!(bbn_srt_is_control(word), 1, "{word:x}");
    }
    for word in [
        0,
        0x7fff_0000,
        0x8009_0000,
        0x80c8_0000,
        0x9000_0000,
        0x4740_1000,
    ] {
        assert_eq!(bbn_srt_is_control(word), 0, "{word:x}");
    }
}

#[test]
fn handshake_is_known_and_only_a_listener_grants_a_latency() {
    let mut words = [0u32; 20];
    words[0] = 0x8000_0000;
    (words[4], words[6], words[7], words[8]) = (5, 77, 1500, 8192);
    words[9] = 0xffff_ffff;
    (words[16], words[17], words[18], words[19]) = (2 << 16 | 3, 0x1_0501, 0xbf, 120 << 16 | 400);
    assert_eq!(bbn_srt_is_handshake(&words), 1);
    assert_eq!(bbn_srt_granted(&words), 400);
    let with = |at: usize, word: u32| {
        let mut words = words;
        words[at] = word;
        words
    };
    // A caller's request; an extension of keys; version 4.
    for (at, word) in [
        (16, 1 << 16 | 3),
        (16, 4 << 16 | 3),
        (16, 2 << 16 | 2),
        (4, 4),
    ] {
        assert_eq!(bbn_srt_is_handshake(&with(at, word)), 1);
        assert_eq!(bbn_srt_granted(&with(at, word)), 0, "{at} {word:x}");
    }
    for (at, word) in [
        (0, 0x8000_0001),
        (1, 9),
        (4, 6),
        (6, 1 << 31),
        (7, 75),
        (7, 1 << 16),
        (9, 2),
    ] {
        assert_eq!(bbn_srt_is_handshake(&with(at, word)), 0, "{at} {word:x}");
    }
}
