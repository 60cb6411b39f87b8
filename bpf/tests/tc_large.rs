//! Key frames through the model of mode tc, in virtual time: what all others refer to is not what is given up,
//! and what matters most goes first.

mod tc;

use bestby_bpf::abi::{BB_ADU_KEY, BB_ADU_OTHER};
use tc::{
    link::{self, Asks, Class, Packet, frame},
    *,
};

const SECONDS: u64 = 20;
/// Frames from one key frame to the next.
const EVERY: u64 = 60;
const BYTES: u64 = 1142;

const AUDIO: usize = 0;
const KEY: usize = 1;
const OTHER: usize = 2;
const LAYER: usize = 2;
const DISPOSABLE: usize = 3;

/// 30 frames a second, each packet `pace` after the one before at least. `role` says class, priority, lifetime
/// and stream of frame n.
fn video(
    packets: &mut Vec<Packet>,
    phase: u64,
    pace: u64,
    role: impl Fn(u64) -> (usize, u8, u64, usize),
) {
    let mut at = 0;
    for n in 0..SECONDS * 30 {
        let (class, priority, lifetime, stream) = role(n);
        let count = if n % EVERY == 0 {
            20
        } else {
            3 + u64::from(n % 3 == 0)
        };
        at = at.max(START + phase + n * SECOND / 30);
        let of = Packet {
            at,
            stream,
            frame: stream * 1_000_000 + n as usize,
            class,
            priority,
            lifetime,
            bytes: BYTES,
            last: false,
            says: 0,
        };
        frame(packets, of, count, count * pace);
        at += count * pace;
    }
}

fn audio(packets: &mut Vec<Packet>, lifetime: u64) {
    for n in 0..SECONDS * 50 {
        let of = Packet {
            at: START + n * 20 * MS,
            stream: 9,
            frame: 9_000_000 + n as usize,
            class: AUDIO,
            priority: 0,
            lifetime,
            bytes: 202,
            last: false,
            says: 0,
        };
        frame(packets, of, 1, 0);
    }
}

/// Classes, and per cent of what was sent for nothing.
fn run(mut packets: Vec<Packet>, kbit: u64, asks: Asks) -> (Vec<Class>, f64) {
    packets.sort_by_key(|p| p.at);
    let mut numbers: Vec<usize> = packets.iter().map(|p| p.frame).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for p in &mut packets {
        p.frame = numbers.binary_search(&p.frame).expect("it is there");
    }
    let left = link::run(&packets, kbit * 125, 0, asks);
    link::judge(&packets, &left, kbit * 125, 0)
}

/// One rule for all of the video: 1.1 to 1.4 times what the link carries. Audio of another rule beside it or not.
#[test]
fn key_frame_is_not_what_is_refused_among_equals() {
    for (kbit, pace, beside, least) in [
        (1000, 0, false, 10),
        (900, 0, false, 10),
        (700, 0, false, 9),
        (1000, 0, true, 10),
        (900, 0, true, 10),
        (700, 0, true, 9),
        (1000, 5 * MS, false, 10),
        (900, 5 * MS, false, 10),
        (700, 5 * MS, false, 9),
    ] {
        let mut packets = Vec::new();
        let role = |n| (if n % EVERY == 0 { KEY } else { OTHER }, 4, 400 * MS, 1);
        video(&mut packets, 0, pace, role);
        if beside {
            audio(&mut packets, 200 * MS);
        }
        let (classes, wasted) = run(packets, kbit, Asks::Frames);
        let (key, other) = (&classes[KEY], &classes[OTHER]);
        let cell = format!(
            "{kbit} kbit/s, packets {} ms apart, audio {beside}: {} key frames, {} others, {wasted:.1} % for nothing",
            pace / MS,
            key.whole,
            other.whole
        );
        println!("{cell}");
        assert!(key.whole >= least && key.frames == 10, "{cell}");
        // What the key frames take is all that the others lose: their packets are 10 in 3 frames.
        let link = kbit * 125 * SECONDS / BYTES;
        let fits = (link - 20 * 10 - if beside { 177 } else { 0 }) * 3 / 10;
        assert!(
            other.whole as u64 * 100 >= fits.min(590) * 95,
            "{cell}, of {fits} that fit"
        );
        assert!(wasted < 1.0, "{cell}");
        if beside {
            assert_eq!(classes[AUDIO].whole, classes[AUDIO].frames, "{cell}");
            assert!(
                classes[AUDIO].delay(99) <= 20,
                "{cell}: {}",
                classes[AUDIO].delay(99)
            );
        }
    }
}

/// The key frames of each of four videos come at their own times, and with the first loss of each the rest of its
/// group does not decode: what is lost should come late in it.
#[test]
fn each_stream_loses_what_leads_up_to_its_key_frame() {
    let mut packets = Vec::new();
    for stream in 1..=4usize {
        let role = |n| {
            (
                if n % EVERY == 0 { KEY } else { OTHER },
                4,
                400 * MS,
                stream,
            )
        };
        video(&mut packets, stream as u64 * 507 * MS, 0, role);
    }
    packets.sort_by_key(|p| p.at);
    let left = link::run(&packets, 4 * 900 * 125, 0, Asks::Frames);
    let mut lost = [false; 5];
    let (mut decode, mut dead) = (0, [usize::MAX; 5]);
    for (p, left) in packets.iter().zip(&left) {
        if p.class == KEY {
            lost[p.stream] = false;
        }
        if left.is_none() {
            dead[p.stream] = p.frame;
        }
        lost[p.stream] |= dead[p.stream] == p.frame;
        decode += usize::from(p.last && !lost[p.stream]);
    }
    assert!(decode > 2000, "{decode} of 2400");
}

/// No room is kept for what could not come whole over an empty link.
#[test]
fn key_frame_longer_than_its_lifetime_costs_the_others_nothing() {
    let mut packets = Vec::new();
    let role = |n| (if n % EVERY == 0 { KEY } else { OTHER }, 4, 200 * MS, 1);
    video(&mut packets, 0, 0, role);
    let (classes, wasted) = run(packets, 800, Asks::Frames);
    assert_eq!(classes[KEY].whole, 0);
    assert!(classes[OTHER].whole > 500, "{}", classes[OTHER].whole);
    assert!(wasted < 3.0, "{wasted}");
}

/// Four classes told by payload type: audio, key frames, layers, and what nothing refers to.
#[test]
fn what_matters_most_goes_first_and_is_not_refused() {
    for kbit in [900, 700, 600] {
        let mut packets = Vec::new();
        let role = |n: u64| match n {
            n if n % EVERY == 0 => (KEY, 1, SECOND, 1),
            n if n % 3 == 0 => (LAYER, 2, 500 * MS, 2),
            _ => (DISPOSABLE, 6, 500 * MS, 3),
        };
        video(&mut packets, 0, 0, role);
        audio(&mut packets, 300 * MS);
        let (by_lifetime, _) = run(packets.clone(), kbit, Asks::Lifetimes);
        let (classes, _) = run(packets, kbit, Asks::Frames);
        let of = |class: usize| classes[class].whole;
        let cell = format!(
            "{kbit} kbit/s: key {}, layer {}, disposable {}, audio p99 {} ms",
            of(KEY),
            of(LAYER),
            of(DISPOSABLE),
            classes[AUDIO].delay(99)
        );
        println!("{cell}");
        assert_eq!(of(AUDIO), classes[AUDIO].frames, "{cell}");
        assert!(classes[AUDIO].delay(99) <= 20, "{cell}");
        let late = by_lifetime[AUDIO].delay(99);
        assert!(late > 200, "the control: {cell}, by lifetimes {late} ms");
        assert_eq!((of(KEY), of(LAYER)), (10, 190), "{cell}");
        if kbit == 900 {
            assert!(of(DISPOSABLE) > 240, "{cell}");
        }
    }
}

/// A scene begins: nobody knows when. The frames between are alike, or one in four is three times as large; with
/// audio beside them or not.
#[test]
fn key_frame_that_nobody_expects_is_known_by_what_it_says() {
    const KEYS: [u64; 9] = [0, 70, 105, 190, 215, 320, 350, 441, 560];
    for (kbit, uneven, beside) in [
        (900, false, false),
        (700, false, false),
        (900, true, false),
        (700, true, false),
        (900, false, true),
        (700, false, true),
        (900, true, true),
        (700, true, true),
    ] {
        let [said, silent] = [true, false].map(|says| {
            let mut packets = Vec::new();
            for n in 0..SECONDS * 30 {
                let key = KEYS.contains(&n);
                let count = match n {
                    _ if key => 20,
                    n if uneven && n % 4 == 0 => 6,
                    _ if uneven => 2,
                    n => 3 + u64::from(n % 3 == 0),
                };
                let role = if key { BB_ADU_KEY } else { BB_ADU_OTHER };
                let of = Packet {
                    at: START + n * SECOND / 30,
                    stream: 1,
                    frame: n as usize,
                    class: if key { KEY } else { OTHER },
                    priority: 4,
                    lifetime: 360 * MS,
                    bytes: BYTES,
                    last: false,
                    // A codec is known after 32 frames.
                    says: if says && n >= 32 { role as u8 } else { 0 },
                };
                frame(&mut packets, of, count, 0);
            }
            if beside {
                audio(&mut packets, 160 * MS);
            }
            run(packets, kbit, Asks::Frames)
        });
        let of = |(classes, wasted): &(Vec<Class>, f64)| {
            format!(
                "{} key frames, {} others, {wasted:.1} % for nothing",
                classes[KEY].whole, classes[OTHER].whole
            )
        };
        let cell = format!(
            "{kbit} kbit/s, uneven {uneven}, audio {beside}: {}; silent {}",
            of(&said),
            of(&silent)
        );
        println!("{cell}");
        let count = |(classes, _): &(Vec<Class>, f64), class: usize| classes[class].whole;
        assert!(count(&said, KEY) >= 7, "{cell}");
        assert!(count(&said, KEY) >= count(&silent, KEY), "{cell}");
        // A key frame is worth six or seven of the others.
        assert!(
            count(&said, OTHER) * 10 >= count(&silent, OTHER) * 9,
            "{cell}"
        );
        assert!(said.1 <= silent.1, "{cell}");
    }
}

/// Cameras and editors send nothing but key frames: all are alike, and each says that it is one.
#[test]
fn stream_of_key_frames_alone_uses_the_link() {
    let mut packets = Vec::new();
    for n in 0..SECONDS * 30 {
        let of = Packet {
            at: START + n * SECOND / 30,
            stream: 1,
            frame: n as usize,
            class: KEY,
            priority: 4,
            lifetime: 400 * MS,
            bytes: BYTES,
            last: false,
            says: BB_ADU_KEY as u8,
        };
        frame(&mut packets, of, 4 + n % 2, 0);
    }
    let (classes, wasted) = run(packets, 800, Asks::Frames);
    let fits = 800 * 125 * SECONDS * 2 / 9 / BYTES;
    assert!(
        classes[KEY].whole as u64 * 100 >= fits * 95,
        "{} of {fits}",
        classes[KEY].whole
    );
    assert!(wasted < 1.0, "{wasted}");
}

/// What says of all of its frames that they are key frames takes nothing from what matters more.
#[test]
fn key_frames_that_matter_less_take_no_room_of_those_that_matter_more() {
    let mut packets = Vec::new();
    for n in 0..SECONDS * 30 {
        let key = n % EVERY == 0;
        let of = Packet {
            at: START + n * SECOND / 30,
            stream: 1,
            frame: n as usize,
            class: if key { KEY } else { OTHER },
            priority: 1,
            lifetime: 400 * MS,
            bytes: BYTES,
            last: false,
            says: if key { BB_ADU_KEY } else { BB_ADU_OTHER } as u8,
        };
        frame(&mut packets, of, if key { 20 } else { 3 }, 0);
        let intra = Packet {
            at: of.at + 7 * MS,
            stream: 2,
            frame: 1_000_000 + n as usize,
            class: DISPOSABLE,
            priority: 4,
            says: BB_ADU_KEY as u8,
            ..of
        };
        frame(&mut packets, intra, 5, 0);
    }
    let (classes, wasted) = run(packets, 1100, Asks::Frames);
    let of = |class: usize| (classes[class].whole, classes[class].frames);
    println!(
        "{:?} {:?} {:?}, {wasted:.1} % for nothing",
        of(KEY),
        of(OTHER),
        of(DISPOSABLE)
    );
    // The first one of stream 1 is before anybody knows that it comes.
    assert!(of(KEY) == (10, 10) && of(OTHER).0 >= 589);
}

/// x264's default, and three temporal levels: 30 frames a second of which two in four matter to no other. What they
/// cost the others is nothing, and what is left is theirs.
#[test]
fn frames_that_nothing_refers_to_take_what_is_left() {
    // Packets of a key frame and of four frames in order; which of the four are disposable.
    let of_x264 = (20, [6, 3, 2, 2], [false, false, true, true]);
    let of_levels = (12, [5, 2, 3, 2], [false, true, false, true]);
    for (kbit, beside) in [1000, 950, 850, 700]
        .into_iter()
        .flat_map(|kbit| [(kbit, false), (kbit, true)])
    {
        for (key_packets, sizes, disposable) in [of_x264, of_levels] {
            let video = |leaves: bool| {
                let mut packets = Vec::new();
                for n in 0..SECONDS * 30 {
                    let at = (n % 4) as usize;
                    let (class, priority, count) = match n {
                        n if n % EVERY == 0 => (KEY, 3, key_packets),
                        _ if disposable[at] => (DISPOSABLE, 7, sizes[at]),
                        _ => (OTHER, 3, sizes[at]),
                    };
                    let of = Packet {
                        at: START + n * SECOND / 30,
                        stream: 1,
                        frame: n as usize,
                        class,
                        priority,
                        lifetime: 400 * MS,
                        bytes: BYTES,
                        last: false,
                        says: if class == KEY {
                            BB_ADU_KEY
                        } else {
                            BB_ADU_OTHER
                        } as u8,
                    };
                    if leaves || class != DISPOSABLE {
                        frame(&mut packets, of, count, 0);
                    }
                }
                if beside {
                    audio(&mut packets, 200 * MS);
                }
                packets
            };
            let packets = video(true);
            let bytes = |class: usize| {
                let of = packets.iter().filter(|p| p.class == class);
                of.map(|p| p.bytes).sum::<u64>()
            };
            let others = bytes(KEY) + bytes(OTHER) + bytes(AUDIO);
            let left = (kbit * 125 * SECONDS).saturating_sub(others);
            let fits = 300 * left.min(bytes(DISPOSABLE)) / bytes(DISPOSABLE);
            let (alone, _) = run(video(false), kbit, Asks::Roles);
            let (classes, wasted) = run(packets, kbit, Asks::Roles);
            let of = |class: usize| classes[class].whole;
            let cell = format!(
                "{kbit} kbit/s, audio {beside}, {sizes:?}: {} key frames, {} others, without leaves {}; {} leaves \
                 where {fits} fit; {wasted:.1} % for nothing",
                of(KEY),
                of(OTHER),
                alone[OTHER].whole,
                of(DISPOSABLE)
            );
            println!("{cell}");
            assert!(of(KEY) >= alone[KEY].whole, "{cell}");
            assert!(of(OTHER) * 100 >= alone[OTHER].whole * 98, "{cell}");
            assert!(of(DISPOSABLE) as u64 * 100 >= fits * 80, "{cell}");
        }
    }
}

/// Frames of streams of x264's default by marks: of each group those up to the first lost one that others need, and
/// beside them what nothing refers to.
fn intact(kbit: u64, streams: usize, asks: Asks, mark: impl Fn(u64, bool) -> u8) -> usize {
    const SIZES: [u64; 4] = [6, 3, 2, 2];
    let is_key = |n: u64| n.is_multiple_of(EVERY);
    let is_leaf = |n: u64| !is_key(n) && n % 4 >= 2;
    let mut packets = Vec::new();
    for n in 0..SECONDS * 30 {
        for stream in 0..streams {
            // The key frames of each come at another time.
            let own = n + 23 * stream as u64;
            let of = Packet {
                at: START + n * SECOND / 30 + stream as u64 * 5 * MS,
                stream: 1 + stream,
                frame: stream * 1000 + n as usize,
                class: 0,
                priority: mark(own, is_leaf(own)),
                lifetime: 400 * MS,
                bytes: BYTES,
                last: false,
                says: 0,
            };
            let count = if is_key(own) {
                20
            } else {
                SIZES[own as usize % 4]
            };
            frame(&mut packets, of, count, 0);
        }
    }
    let left = link::run(&packets, kbit * 125 * streams as u64, 0, asks);
    let mut lost = vec![false; 1000 * streams];
    let mut begun = vec![None; 1000 * streams];
    for (p, left) in packets.iter().zip(&left) {
        let latest = *begun[p.frame].get_or_insert(p.at) + p.lifetime;
        lost[p.frame] |= left.is_none_or(|at| at > latest);
    }
    let mut intact = 0;
    for stream in 0..streams {
        let mut decodes = false;
        for n in 0..SECONDS * 30 {
            let (own, lost) = (n + 23 * stream as u64, lost[stream * 1000 + n as usize]);
            if is_leaf(own) {
                intact += usize::from(decodes && !lost);
            } else {
                decodes = !lost && (decodes || is_key(own));
                intact += usize::from(decodes);
            }
        }
    }
    intact
}

/// A key frame that matters more than the frames behind it takes none of them along, in a leaf of its own or in theirs:
/// nobody waits for it any more when it is there, whatever mark the frames had that foretold it, and between two
/// of them no room is kept for what they alone need.
#[test]
fn key_frame_with_a_mark_of_its_own_costs_no_frame_behind_it() {
    for (kbit, streams) in [(1000, 1), (950, 1), (850, 1), (1000, 2), (950, 2), (850, 2)] {
        let alike = |asks| intact(kbit, streams, asks, |_, leaf| if leaf { 7 } else { 3 });
        let key = |n: u64, rest: u8| if n.is_multiple_of(EVERY) { 3 } else { rest };
        let first = |asks| {
            intact(kbit, streams, asks, |n, leaf| {
                key(n, if leaf { 7 } else { 4 })
            })
        };
        let of_roles = [first(Asks::Roles), alike(Asks::Roles)];
        let (first, alike) = (first(Asks::Frames), alike(Asks::Frames));
        // What is lost with each frame, in thirds.
        let thirds = intact(kbit, streams, Asks::Frames, |n, leaf| {
            key(
                n,
                if leaf {
                    7
                } else {
                    4 + (n % EVERY * 3 / EVERY) as u8
                },
            )
        });
        let cell = format!(
            "{kbit} kbit/s for each of {streams}: of {} frames key frames first {first}, in thirds {thirds}, \
             alike {alike}; by roles {of_roles:?}",
            SECONDS as usize * 30 * streams
        );
        println!("{cell}");
        // It learns for two groups of ten.
        assert!(
            first * 10 >= alike * 8
                && thirds * 10 >= alike * 8
                && of_roles[0] * 10 >= of_roles[1] * 8,
            "{cell}"
        );
    }
}
