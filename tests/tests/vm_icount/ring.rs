//! `bestby::tcp::Ring` beside plain TCP, and what it is for, in virtual time: shares of a line's rate and of what is
//! in time are then the same on every machine.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    thread,
    time::{Duration, Instant},
};

use bestby::{
    Lifetime, Metadata, Priority,
    tcp::{Fate, Options, Outcome, Reason, Ring, Ticket},
};

use crate::ring_lab::{Line, Receiver, Unsent, frame, pictures::Source};

/// Bytes of a segment's payload on these lines.
const SEGMENT: i32 = 1448;
/// Slow start is over.
const SETTLED: Duration = Duration::from_secs(1);
const END: Duration = Duration::from_secs(5);
const BYTES: usize = 16_000;

fn said(lifetime: Duration, priority: u8) -> Metadata {
    Metadata::new()
        .lifetime(Lifetime::new(lifetime).unwrap())
        .priority(Priority::new(priority).unwrap())
}

/// Counts what arrives once the rate has settled, until the end.
fn count(mut far: TcpStream) -> thread::JoinHandle<usize> {
    let start = Instant::now();
    thread::spawn(move || {
        let (mut bytes, mut buffer) = (0, [0; 1 << 16]);
        // An error where the sender is gone in the middle of a frame.
        while let Ok(read) = far.read(&mut buffer)
            && read > 0
        {
            if (SETTLED..END).contains(&start.elapsed()) {
                bytes += read;
            }
        }
        bytes
    })
}

/// What a sender that always has more to send brings over the line.
fn plain(line: &Line, congestion_control: &str) -> usize {
    let (mut near, far) = line.connect(congestion_control);
    let arrived = count(far);
    let writer = near.try_clone().unwrap();
    let writing = thread::spawn(move || {
        let frame = frame(0, BYTES);
        // Ends with an error when the socket is shut down.
        while near.write_all(&frame).is_ok() {}
    });
    thread::sleep(END);
    writer.shutdown(Shutdown::Both).unwrap();
    writing.join().unwrap();
    arrived.join().unwrap()
}

/// The same with a ring in front, and the bytes that the kernel held unsent in 99 of 100 looks.
fn ring(line: &Line, congestion_control: &str, queue: Option<Duration>) -> (usize, i32) {
    let (near, far) = line.connect(congestion_control);
    let arrived = count(far);
    let start = Instant::now();
    let unsent = Unsent::of(&near);
    let mut ring = Ring::with(near, Options::new().queue(queue)).unwrap();
    let frame = frame(0, BYTES);
    while start.elapsed() < END {
        for _ in ring.stats().waiting..20 {
            ring.push(frame.clone(), said(Duration::from_secs(100), 3));
        }
        ring.run_until(Instant::now() + Duration::from_millis(50))
            .unwrap();
    }
    let p99 = unsent.p99();
    ring.wire().shutdown(Shutdown::Both).unwrap();
    drop(ring.close());
    (arrived.join().unwrap(), p99)
}

#[test]
fn ring_carries_what_plain_tcp_carries_with_two_segments_unsent() {
    // More would be a measure of this program without optimisation.
    for congestion_control in ["cubic", "bbr"] {
        let line = Line::far(8_000, 20, 0);
        let plain = plain(&line, congestion_control);
        let (free, free_p99) = ring(&line, congestion_control, None);
        let queue = Some(Duration::from_millis(20));
        let (capped, capped_p99) = ring(&line, congestion_control, queue);
        println!(
            "{congestion_control}: plain {plain}, free {free} ({free_p99}), capped {capped} ({capped_p99})"
        );
        assert!(free * 100 >= plain * 99, "{free} of {plain}");
        assert!(capped * 100 >= plain * 95, "{capped} of {plain}");
        assert!(free_p99.max(capped_p99) <= 2 * SEGMENT);
    }
}

/// Audio and video, 1.5 Mbit/s: (ms, priority, bytes). Every other second a key frame of six times the size.
fn call(seconds: u32) -> Vec<(u32, u8, usize)> {
    let video = (0..30 * seconds).map(|n| match n % 60 {
        0 => (n * 1000 / 30, 1, 34_600),
        // Between 80 and 120 % of the mean.
        place => {
            let bytes = 4_600 + 2_300 * (n * 7 % 11) as usize / 10;
            (n * 1000 / 30, 2 + (place / 20) as u8, bytes)
        }
    });
    let audio = (0..50 * seconds).map(|n| (n * 20 + 3, 0, 240));
    let mut adus: Vec<_> = video.chain(audio).collect();
    adus.sort_unstable();
    adus
}

#[test]
fn audio_is_in_time_and_the_path_is_used_where_key_frames_do_not_fit() {
    const SECONDS: u32 = 20;
    for congestion_control in ["cubic", "bbr"] {
        let line = Line::far(1_000, 40, 1);
        let (near, far) = line.connect(congestion_control);
        let receiver = Receiver::new(far);
        let mut ring = Ring::new(near).unwrap();
        let start = Instant::now();
        let adus = call(SECONDS);
        let mut tickets: BTreeMap<Ticket, usize> = BTreeMap::new();
        for (number, &(ms, priority, bytes)) in adus.iter().enumerate() {
            ring.run_until(start + Duration::from_millis(ms.into()))
                .unwrap();
            let lifetime = Duration::from_millis(if priority == 0 { 200 } else { 400 });
            let ticket = ring.push(frame(number as u32, bytes), said(lifetime, priority));
            tickets.insert(ticket, number);
        }
        assert!(ring.finish(start + Duration::from_secs(100)).unwrap());
        let outcomes: Vec<Outcome> = ring.outcomes().collect();
        assert_eq!(outcomes.len(), adus.len(), "each ADU once");
        let sent = ring.stats().bytes;
        drop(ring.close());
        let arrived: BTreeMap<u32, Instant> = receiver.end().into_iter().collect();

        // The first key frame came before any audio: nothing forbade it, and audio had to wait for its end.
        let settled = |number: &usize| adus[*number].0 >= 1_000;
        let mut audio = [0, 0];
        for outcome in &outcomes {
            let number = tickets[&outcome.ticket];
            let (ms, priority, _) = adus[number];
            let at = arrived.get(&(number as u32));
            assert_eq!(at.is_some(), matches!(outcome.fate, Fate::Sent { .. }));
            if priority == 0 && settled(&number) {
                let due = start + Duration::from_millis(u64::from(ms) + 200);
                audio[0] += usize::from(at.is_some_and(|at| *at <= due));
                audio[1] += 1;
            }
        }
        let predicted = Fate::GivenUp(Reason::Predicted);
        let predicted = outcomes.iter().filter(|o| o.fate == predicted).count();
        let [in_time, all] = audio;
        let used = sent * 8 / u64::from(SECONDS);
        println!(
            "{congestion_control}: audio {in_time} of {all}, {used} bit/s, {predicted} given up"
        );
        // A segment that is lost twice makes five of them late, and which are lost is chance.
        assert!(in_time * 100 >= all * 96, "{in_time} of {all}");
        assert!(used > 870_000, "{used} bit/s");
        assert!(predicted > 100, "there was too much: {predicted}");
    }
}

#[test]
fn key_frames_arrive_at_twice_the_rate_with_and_without_loss() {
    let cells = [
        (0, "cubic", 26_000, 300, false),
        (0, "bbr", 38_000, 450, false),
        (2, "bbr", 26_000, 300, false),
        (2, "cubic", 38_000, 300, true),
    ];
    for (loss, congestion_control, key, audio, parts) in cells {
        let source = Source {
            seconds: 12,
            key,
            audio,
            parts,
        };
        println!("loss {loss} %");
        let seen = source.stream(&Line::far(1_000, 20, loss), congestion_control);
        // Which segments are lost is chance.
        let [least, may_fail] = if loss > 0 { [97, 1] } else { [99, 0] };
        assert!(
            seen.audio.in_time * 100 >= seen.audio.pushed * least,
            "{seen:?}"
        );
        assert!(seen.keys.in_time + may_fail >= seen.keys.pushed, "{seen:?}");
    }
}

/// A radio that has to wake up, or a neighbour that has to be found: the handshake takes longer than anything may.
#[test]
fn a_handshake_that_was_slow_keeps_nothing_back() {
    let line = Line::far(1_000, 600, 0);
    let (near, far) = line.connect("cubic");
    line.moves_to(40);
    let receiver = Receiver::new(far);
    let mut ring = Ring::new(near).unwrap();
    let start = Instant::now();
    let mut pushed = 0;
    for (ms, _, _) in call(4)
        .into_iter()
        .filter(|(_, priority, _)| *priority == 0)
    {
        ring.run_until(start + Duration::from_millis(ms.into()))
            .unwrap();
        ring.push(frame(pushed, 240), said(Duration::from_millis(200), 0));
        pushed += 1;
    }
    let first = ring.path().unwrap();
    ring.finish(start + Duration::from_secs(10)).unwrap();
    drop(ring.close());
    let due = |at: u64| start + Duration::from_millis(20 * at + 203);
    let arrived = receiver.end();
    let in_time = arrived.iter().filter(|(n, at)| *at <= due((*n).into()));
    let in_time = in_time.count();
    println!("{in_time} of {pushed} in time; {first:?}");
    assert!(in_time as u32 * 100 >= pushed * 80, "{in_time} of {pushed}");
}
