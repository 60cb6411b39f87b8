//! Traces of a call and of layered video, sent over an exact path, against the lab's clairvoyant bound
//! (`bench/src/bound/dp.rs`, included here: the lab depends on this crate).

use super::*;

const MS: u64 = 1_000_000;
const OWD: u64 = 40 * MS;

/// What `dp.rs` needs of the lab's `jobs.rs`.
mod jobs {
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Job {
        pub(super) release: i64,
        pub(super) due: i64,
        pub(super) work: i64,
    }

    #[derive(Clone, Debug, Default)]
    pub(super) struct Jobs(pub(super) Vec<Job>);

    impl Jobs {
        /// In order of release and due time, and whether that moved no due time.
        pub(super) fn agreeable(&self) -> (Self, bool) {
            let mut jobs = self.0.clone();
            jobs.sort_by_key(|job| (job.release, job.due));
            let (mut latest, mut moved) = (i64::MIN, false);
            for job in &mut jobs {
                moved |= job.due < latest;
                job.due = job.due.max(latest);
                latest = job.due;
            }
            (Self(jobs), !moved)
        }
    }
}

#[allow(dead_code)]
#[path = "../../../bench/src/bound/dp.rs"]
mod dp;

use jobs::{Job, Jobs};

/// One ADU of a trace; times in ns, the start is 1 s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered {
    pub(crate) at: u64,
    pub(crate) lifetime: u64,
    pub(crate) priority: u8,
    pub(crate) bytes: usize,
}

impl Offered {
    /// As it is pushed: at most `part` bytes of it go without another between.
    pub(super) fn adu(&self, part: usize) -> Adu<()> {
        Adu {
            deadline: self.at + self.lifetime,
            priority: Priority::new(self.priority).unwrap(),
            arrived: self.at,
            bytes: self.bytes,
            solid: self.bytes.min(part),
            keep: false,
            begun: false,
            content: (),
        }
    }
}

pub(super) const LIMITS: Limits = Limits {
    adus: 1024,
    bytes: 8 << 20,
};

/// A small generator: the traces are the same on every machine.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// From 0 to 1.
    pub(super) fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Audio every 20 ms, 30 frames/s of uneven sizes, and an object of data every 100 ms: together
/// `rate` bytes/s. Lifetimes in ms: audio, video, data.
fn call(seed: u64, rate: f64, lifetimes: [u64; 3]) -> Vec<Offered> {
    let mut random = Random(seed * 0x9e37_79b9 + 1);
    let mut trace = Vec::new();
    for n in 0..500 {
        trace.push((n * 20 * MS, 0, 240));
    }
    let video = (rate * 0.85 - 12_000.0) / 30.0;
    for n in 0..300u64 {
        let bytes = video * (0.4 + 1.2 * random.next());
        trace.push((n * 1_000 * MS / 30 + 3 * MS, 1, bytes as usize));
    }
    for n in 0..100 {
        let bytes = rate * 0.015 * (0.5 + random.next());
        trace.push((n * 100 * MS + 7 * MS, 2, bytes as usize));
    }
    trace.sort_unstable();
    let offered = trace.into_iter().map(|(at, class, bytes)| Offered {
        at: at + 1000 * MS,
        lifetime: lifetimes[class] * MS,
        priority: [0, 3, 5][class],
        bytes,
    });
    offered.collect()
}

/// The LDC paper's load (section 6): eight layers, one second of each is an ADU of 16,000 bytes.
fn layers() -> Vec<Offered> {
    let seconds = (1..61).flat_map(|second| (0..8).map(move |layer| (second, layer)));
    let offered = seconds.map(|(second, priority)| Offered {
        at: second * 1000 * MS,
        lifetime: 1050 * MS,
        priority,
        bytes: 16_000,
    });
    offered.collect()
}

/// On time by priority, if ADUs are sent whole over a path of exactly this rate.
fn sent(trace: &[Offered], rate: u64) -> [usize; 8] {
    let view = View {
        owd: OWD,
        margin: 0,
        acknowledged: false,
        rate,
    };
    let mut backlog = Backlog::new(Method::Triage, LIMITS);
    let mut on_time = [0; 8];
    let mut rest = (0..).zip(trace).peekable();
    let mut now = 0;
    let mut out = Vec::new();
    loop {
        while let Some((id, offered)) = rest.next_if(|(_, offered)| offered.at <= now) {
            backlog.push(id, offered.adu(usize::MAX), &mut out);
        }
        backlog.expire(now, &view, &mut out);
        if let Some(id) = backlog.choose(now, &view) {
            let adu = backlog.take(id).unwrap();
            now += transmission(adu.bytes, rate);
            assert!(now + OWD <= adu.deadline, "{id} is late");
            on_time[usize::from(adu.priority.get())] += 1;
        } else if let Some((_, offered)) = rest.peek() {
            now = (now + MS).min(offered.at).max(now + 1);
        } else if backlog.len() > 0 {
            now += MS;
        } else {
            return on_time;
        }
    }
}

/// What could be on time by priority, more important priorities first. ADUs may be interrupted.
fn bound(trace: &[Offered], rate: u64) -> [usize; 8] {
    let (mut forced, mut rivals) = (Vec::new(), Vec::new());
    std::array::from_fn(|priority| {
        let of_priority = trace
            .iter()
            .filter(|offered| usize::from(offered.priority) == priority);
        let mut jobs: Vec<Job> = of_priority
            .map(|offered| Job {
                release: offered.at as i64,
                due: (offered.at + offered.lifetime - OWD) as i64,
                work: transmission(offered.bytes, rate) as i64,
            })
            .collect();
        jobs.retain(|job| job.work <= job.due - job.release);
        let jobs = Jobs(jobs);
        let (rejected, _) = dp::rejected(&forced, &rivals, &jobs);
        let most = jobs.0.len() - rejected;
        if rejected == 0 && rivals.is_empty() {
            forced.push(jobs);
        } else {
            rivals.push((jobs, rejected));
        }
        most
    })
}

#[test]
fn a_call_at_any_load_has_99_percent_of_the_bound() {
    let rate = 125_000;
    for lifetimes in [[200, 200, 400], [150, 400, 1000], [200, 400, 1000]] {
        let mut total = [[0; 2]; 2];
        for (seed, load) in (1..).zip([0.8, 1.0, 1.2, 1.5, 2.0]) {
            let trace = call(seed, rate as f64 * load, lifetimes);
            let sent = sent(&trace, rate);
            // Data, behind them, is not asked for: with two rivals the program takes long.
            let media: Vec<Offered> = trace.into_iter().filter(|o| o.priority < 5).collect();
            let bound = bound(&media, rate);
            println!("{lifetimes:?} load {load}: {sent:?} of {bound:?}");
            for (total, priority) in total.iter_mut().zip([0, 3]) {
                total[0] += sent[priority];
                total[1] += bound[priority];
            }
            assert!(
                sent[0] * 1000 >= bound[0] * 999,
                "audio: {sent:?} {bound:?}"
            );
        }
        let [_, video] = total;
        assert!(video[0] * 100 >= video[1] * 99, "{lifetimes:?}: {video:?}");
    }
}

#[test]
fn layered_video_has_97_percent_of_the_whole_layers_that_fit() {
    for (rate, that_fit) in [(128_000, 8), (64_000, 4), (32_000, 2)] {
        let trace = layers();
        let sent = sent(&trace, rate);
        println!("{rate}: {sent:?}");
        let fit: Vec<Offered> = trace
            .into_iter()
            .filter(|offered| usize::from(offered.priority) < that_fit)
            .collect();
        let bound = bound(&fit, rate);
        assert_eq!(bound.iter().sum::<usize>(), 60 * that_fit);
        let all: usize = sent[..that_fit].iter().sum();
        assert!(all * 100 >= 60 * that_fit * 97, "{rate}: {sent:?}");
        assert_eq!(sent[0], 60);
    }
}
