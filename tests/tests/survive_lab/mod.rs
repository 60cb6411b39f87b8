//! An agent that is killed at random points, with commands and load under way. Whatever the moment was, the next agent
//! must find what the killed one had been told:
//!
//! 1. A command that was answered holds. One that was not answered holds or has done nothing, never a part of it.
//! 2. What the agent says of an interface is what the kernel has there.
//! 3. No counter goes back, and what came in was sent, dropped, or is queued.
//! 4. Packets arrive the whole time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bestby_tests::agent::*;
use bestby_tests::load::{PEER, send_numbered};
use bestby_tests::netns::{Lab, Netns};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};

/// What the load's packets match.
const PORT: u16 = 5004;

/// How an agent is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kills {
    /// How often.
    pub count: u32,
    /// Of all random choices.
    pub seed: u64,
    /// `tc` or `qdisc`.
    pub mode: &'static str,
    /// Longest time between an agent's first command and its end.
    pub within: Duration,
}

/// What the agent was told.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    /// Rate of `v0`, Mbit/s.
    rate: Option<u32>,
    /// Whether `w0` is attached.
    second: bool,
    /// Name and lifetime (s) of each rule, in order.
    flows: Vec<(String, u32)>,
    /// owd (ms) of each receiver.
    owds: BTreeMap<String, u32>,
}

#[derive(Clone, Debug)]
enum Command {
    Rate(Option<u32>),
    Second(bool),
    Upgrade,
    Add(String, u32, Option<String>),
    Set(String, u32),
    Remove(String),
    Owd(String, Option<u32>),
}

impl Command {
    fn random(random: &mut StdRng, told: &Told, mode: &str) -> Self {
        let lifetime = random.random_range(1..60);
        // The first rule is the load's, and stays.
        let others = &told.flows[1..];
        let any = |random: &mut StdRng| others[random.random_range(0..others.len())].0.clone();
        match random.random_range(0..12) {
            0..=2 => {
                let none = mode == "tc" && random.random_bool(0.3);
                Self::Rate((!none).then(|| random.random_range(50..90)))
            }
            3..=4 => Self::Second(!told.second),
            5 if random.random_bool(0.5) => Self::Upgrade,
            6..=7 if others.len() > 3 => Self::Remove(any(random)),
            8 if !others.is_empty() => Self::Set(any(random), lifetime),
            9 => {
                let owd = random.random_bool(0.7).then(|| random.random_range(1..90));
                Self::Owd(format!("10.7.0.{}", random.random_range(1..5)), owd)
            }
            _ => {
                let before = !others.is_empty() && random.random_bool(0.7);
                let before = before.then(|| any(random));
                Self::Add(
                    format!("r{}", random.random_range(0..u32::MAX)),
                    lifetime,
                    before,
                )
            }
        }
    }

    fn request(&self, mode: &str) -> (&'static str, String, Option<Value>) {
        let flow = |name: &str| format!("/v1/flows/{name}");
        match self {
            Self::Rate(rate) => {
                let mut body = json!({"dev": "v0", "mode": mode});
                // null takes it away; what is not said stays.
                body["rate"] = json!(rate.map(|rate| format!("{rate}mbit")));
                ("POST", "/v1/interfaces".into(), Some(body))
            }
            Self::Second(true) => {
                let body = json!({"dev": "w0", "mode": "tc", "rate": "30mbit", "observe": false});
                ("POST", "/v1/interfaces".into(), Some(body))
            }
            Self::Second(false) => ("DELETE", "/v1/interfaces/w0".into(), None),
            Self::Upgrade => ("POST", "/v1/interfaces/v0/upgrade".into(), None),
            Self::Add(name, lifetime, before) => {
                let rule =
                    json!({"name": name, "dport": "1-1000", "lifetime": format!("{lifetime}s")});
                let mut body = json!({"flow": rule});
                if let Some(before) = before {
                    body["before"] = json!(before);
                }
                ("POST", "/v1/flows".into(), Some(body))
            }
            Self::Set(name, lifetime) => {
                let body = json!({"change": {"lifetime": format!("{lifetime}s")}});
                ("PUT", flow(name), Some(body))
            }
            Self::Remove(name) => ("DELETE", flow(name), None),
            Self::Owd(addr, owd) => {
                let owd = owd.map(|ms| format!("{ms}ms"));
                let body = json!({"owd": owd});
                ("PUT", format!("/v1/sessions/{addr}"), Some(body))
            }
        }
    }
}

impl Told {
    fn with(&self, command: &Command) -> Self {
        let mut next = self.clone();
        let at = |name: &str| self.flows.iter().position(|(n, _)| n == name).unwrap();
        match command {
            Command::Rate(rate) => next.rate = *rate,
            Command::Second(attached) => next.second = *attached,
            Command::Upgrade => {}
            Command::Add(name, lifetime, before) => {
                let place = before.as_ref().map_or(self.flows.len(), |b| at(b));
                next.flows.insert(place, (name.clone(), *lifetime));
            }
            Command::Set(name, lifetime) => next.flows[at(name)].1 = *lifetime,
            Command::Remove(name) => drop(next.flows.remove(at(name))),
            Command::Owd(addr, Some(owd)) => drop(next.owds.insert(addr.clone(), *owd)),
            Command::Owd(addr, None) => drop(next.owds.remove(addr)),
        }
        next
    }

    /// What the agent says now.
    fn read(agent: &Agent) -> Self {
        let list = |path| {
            let all = agent.ok("GET", path, None);
            all.as_array().unwrap().clone()
        };
        let number = |value: &Value, unit: &str| -> Option<u32> {
            Some(value.as_str()?.strip_suffix(unit)?.parse().unwrap())
        };
        let interfaces = list("/v1/interfaces");
        let dev = |name: &str| interfaces.iter().find(|i| i["dev"] == name);
        let lifetime = |flow: &Value| match number(&flow["lifetime"], "m") {
            Some(minutes) => minutes * 60,
            None => number(&flow["lifetime"], "s").unwrap(),
        };
        let flows = list("/v1/flows").into_iter().map(|f| {
            let name = f["flow"]["name"].as_str().unwrap().to_string();
            (name, lifetime(&f["flow"]))
        });
        let sessions = agent.ok("GET", "/v1/sessions", None);
        let peers = sessions["peers"].as_array().unwrap().iter();
        Self {
            rate: number(&dev("v0").expect("v0 is not attached")["rate"], "mbit"),
            second: dev("w0").is_some(),
            flows: flows.collect(),
            owds: peers
                .filter_map(|p| {
                    let addr = p["addr"].as_str().unwrap().to_string();
                    Some((addr, number(&p["owd"], "ms")?))
                })
                .collect(),
        }
    }
}

/// Rate of HTB's root class, Mbit/s.
fn shaped(lab: &Lab, dev: &str) -> Option<u32> {
    let classes = lab.netns.run(&format!("tc class show dev {dev}"));
    let root = classes.lines().find(|l| l.contains("htb bb:1 "))?;
    let rate = root.split(" rate ").nth(1)?.split("Mbit").next()?;
    Some(rate.parse().unwrap_or_else(|e| panic!("{root}: {e}")))
}

/// The kernel has what the agent says.
fn assert_in_force(lab: &Lab, told: &Told, mode: &str) {
    let root = root_qdisc(&lab.netns, "v0");
    if mode == "qdisc" {
        assert!(root.contains("qdisc bestby0"), "{root}");
    } else {
        assert_eq!(shaped(lab, "v0"), told.rate, "v0: {root}");
    }
    let second = told.second.then_some(30);
    let root = root_qdisc(&lab.netns, "w0");
    assert_eq!(shaped(lab, "w0"), second, "w0: {root}");
    let pins = std::fs::read_dir(lab.bpffs.join("iface")).unwrap().count();
    assert_eq!(pins, 1 + usize::from(told.second), "directories of pins");
}

/// Nothing of it may get less.
fn totals(stats: &Value) -> [u64; 4] {
    let audio = &stats["flows"]["audio"];
    let v0 = &stats["interfaces"]["v0"];
    [
        audio["packets_in"].as_u64().unwrap(),
        audio["packets_sent"].as_u64().unwrap() + drops(audio, "dropped"),
        v0["packets_in"].as_u64().unwrap(),
        v0["packets_sent"].as_u64().unwrap() + drops(v0, "dropped"),
    ]
}

#[track_caller]
fn assert_conserved(name: &str, counters: &Value) {
    let count = |which: &str| counters[which].as_u64().unwrap();
    assert_eq!(
        count("packets_in"),
        count("packets_sent") + drops(counters, "dropped") + count("queued"),
        "{name}: {counters}"
    );
}

/// Datagrams from `v0` to its peer, but for pauses.
struct Load {
    stop: AtomicBool,
    pause: AtomicBool,
    paused: AtomicBool,
    arrived: AtomicU64,
}

impl Load {
    fn run(&self, lab: &Lab, peer: &Netns) {
        let receiver = peer.enter(|| std::net::UdpSocket::bind((PEER, PORT)).unwrap());
        let patience = Duration::from_millis(50);
        receiver.set_read_timeout(Some(patience)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut packet = [0; 600];
                while !self.stop.load(Ordering::Relaxed) {
                    if receiver.recv(&mut packet).is_ok() {
                        self.arrived.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            let pace = Duration::from_millis(2);
            send_numbered(&lab.netns, (PEER, PORT), 500, pace, |_| {
                while self.pause.load(Ordering::Relaxed) && !self.stop.load(Ordering::Relaxed) {
                    self.paused.store(true, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(1));
                }
                self.paused.store(false, Ordering::Relaxed);
                !self.stop.load(Ordering::Relaxed)
            });
        });
    }

    /// While `look` runs, nothing is sent.
    fn quiet<R>(&self, look: impl FnOnce() -> R) -> R {
        self.pause.store(true, Ordering::Relaxed);
        wait_for("a pause of the load", || {
            self.paused.load(Ordering::Relaxed)
        });
        let seen = look();
        self.pause.store(false, Ordering::Relaxed);
        seen
    }
}

/// Gives commands until the agent is dead. What was told, and the command that it did not answer.
fn command_until_killed(
    agent: Agent,
    random: &mut StdRng,
    mut told: Told,
    kills: Kills,
) -> (Told, Option<Command>) {
    let pid = agent.pid();
    let after = random.random_range(Duration::ZERO..kills.within);
    let mut unanswered = None;
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(after);
            // SAFETY: sends a signal to a child that has not been waited for.
            assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
        });
        loop {
            let command = Command::random(random, &told, kills.mode);
            let (method, path, body) = command.request(kills.mode);
            let body = body.map_or(String::new(), |b| b.to_string());
            match agent.try_request(method, &path, &body) {
                Ok((200, _)) => told = told.with(&command),
                Ok((status, said)) => panic!("{command:?}: {status} {said}"),
                Err(_) => {
                    unanswered = Some(command);
                    return;
                }
            }
        }
    });
    (told, unanswered)
}

/// Starts an agent; at times it is killed while it starts, and another one starts.
fn start(lab: &Lab, random: &mut StdRng, took: &mut Duration) -> Agent {
    while random.random_bool(0.3) {
        let mut command = command(lab, &[]);
        let log = std::fs::File::create(lab.dir.join("killed")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let mut early = command.spawn().unwrap();
        thread::sleep(random.random_range(Duration::ZERO..*took));
        early.kill().unwrap();
        early.wait().unwrap();
    }
    let began = Instant::now();
    let agent = Agent::start(lab, &[]);
    *took = began.elapsed();
    agent
}

/// Kills an agent as often as asked, and looks each time what the next one finds.
pub(crate) fn kill(lab: &Lab, peer: &Netns, kills: Kills) {
    let mut random = StdRng::seed_from_u64(kills.seed);
    lab.netns
        .link("w0", "10.8.0.1/24", peer, "w1", "10.8.0.2/24");
    let links = || lab.netns.run("ip -brief link").lines().count();
    let before = (["v0", "w0"].map(|dev| root_qdisc(&lab.netns, dev)), links());
    let mut took = Duration::from_secs(1);
    let mut agent = start(lab, &mut random, &mut took);
    agent.attach(json!({"dev": "v0", "mode": kills.mode, "rate": "50mbit"}));
    agent.add(json!({"name": "audio", "dport": PORT, "lifetime": "10s", "priority": 0}));
    let mut told = Told::read(&agent);
    let load = Load {
        stop: AtomicBool::new(false),
        pause: AtomicBool::new(false),
        paused: AtomicBool::new(false),
        arrived: AtomicU64::new(0),
    };
    let mut seen = [0; 4];
    let (mut cut_short, mut taken) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| load.run(lab, peer));
        let rounds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..kills.count {
                let arrived = load.arrived.load(Ordering::Relaxed);
                let unanswered;
                (told, unanswered) = command_until_killed(agent, &mut random, told.clone(), kills);
                agent = start(lab, &mut random, &mut took);
                let found = Told::read(&agent);
                let what = format!("kill {round} of seed {}, {unanswered:?}", kills.seed);
                if found != told {
                    let next = unanswered.as_ref().map(|c| told.with(c));
                    assert_eq!(Some(&found), next.as_ref(), "{what}; it was {told:?}");
                    taken += 1;
                }
                cut_short += u32::from(unanswered.is_some());
                told = found;
                println!("{what}");
                assert_in_force(lab, &told, kills.mode);
                let complaints = agent.complaints("interface");
                assert!(complaints.is_empty(), "{what}: {complaints:?}");
                let stats = load.quiet(|| {
                    wait_for("an empty queue", || agent.flow("audio", "queued") == 0);
                    agent.stats()
                });
                let now = totals(&stats);
                let more = now.iter().zip(&seen).all(|(now, seen)| now >= seen);
                assert!(more, "{what}: {seen:?}, then {now:?}");
                seen = now;
                for (name, part) in [("audio", "flows"), ("v0", "interfaces")] {
                    assert_conserved(name, &stats[part][name]);
                }
                wait_for("packets", || load.arrived.load(Ordering::Relaxed) > arrived);
            }
            agent
        }));
        load.stop.store(true, Ordering::Relaxed);
        let agent = rounds.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        println!(
            "{} kills in mode {}: {taken} of {cut_short} unanswered commands hold",
            kills.count, kills.mode
        );
        agent.detach("v0");
        if told.second {
            agent.detach("w0");
        }
        let after = (["v0", "w0"].map(|dev| root_qdisc(&lab.netns, dev)), links());
        assert_eq!(after, before);
        agent.terminate();
    });
}
