//! A game server over WebSocket whose clients see the newest state, however narrow their link is.
//!
//! 32 things move, 60 times a second, and each state of a thing makes the one before worthless. So a state that
//! still waits is replaced in its place (`Ring::replace`): a narrow link shows fewer states, none of them old. What
//! a client says is an event for all; events are never replaced, and go first.
//!
//! ```sh
//! cargo run -p bestby --example game -- 127.0.0.1:8765
//! python3 -m websockets ws://127.0.0.1:8765/     # `pip install websockets`; a line that is typed is an event
//! ```
//!
//! To see it on a narrow link, begin a shell with `sudo unshare --net`, type
//! `ip link set lo up mtu 1500; tc qdisc add dev lo root tbf rate 256kbit burst 3000 limit 90000`,
//! and run all of the commands above in it.

use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use bestby::{
    Metadata, Priority, Treatment,
    tcp::{Method, Options, Ring, State, Ticket},
};
use tungstenite::{
    Message, WebSocket,
    protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    },
};

const THINGS: usize = 32;
const TICK: Duration = Duration::from_nanos(1_000_000_000 / 60);
/// For events, after a client has said goodbye.
const GRACE: Duration = Duration::from_secs(1);

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let Some(address) = std::env::args().nth(1) else {
        return Err("usage: game ADDRESS:PORT".into());
    };
    let listener = TcpListener::bind(address)?;
    println!("ws://{}/", listener.local_addr()?);
    let world = Arc::new(World {
        start: Instant::now(),
        clients: Mutex::default(),
    });
    for (number, stream) in listener.incoming().enumerate() {
        let (stream, world) = (stream?, Arc::clone(&world));
        thread::spawn(move || {
            if let Err(error) = play(stream, number, &world) {
                println!("client {number}: {error}");
            }
            world.leave(number);
        });
    }
    Ok(())
}

/// What goes to a client beside states.
enum Out {
    /// Whole frames.
    Frames(Vec<u8>),
    End,
}

struct World {
    start: Instant,
    clients: Mutex<BTreeMap<usize, Sender<Out>>>,
}

impl World {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<usize, Sender<Out>>) -> T) -> T {
        work(&mut self.clients.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn leave(&self, number: usize) {
        self.with(|clients| clients.remove(&number));
    }

    fn tick(&self) -> u32 {
        (self.start.elapsed().as_nanos() / TICK.as_nanos()) as u32
    }

    /// Each thing goes around in its own circle.
    fn state(&self, thing: usize, tick: u32) -> String {
        let angle = f64::from(tick) / 60.0 + thing as f64;
        let (x, y) = (angle.cos() * thing as f64, angle.sin() * thing as f64);
        format!(r#"{{"tick":{tick},"thing":{thing},"x":{x:.3},"y":{y:.3}}}"#)
    }
}

/// The connection as tungstenite sees it. What it writes after the handshake, answers to pings and to a
/// goodbye, goes through the ring: nobody else may write to the ring's socket.
struct Half {
    stream: TcpStream,
    out: Option<Sender<Out>>,
}

impl Read for Half {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl Write for Half {
    fn write(&mut self, frames: &[u8]) -> io::Result<usize> {
        let Some(out) = &self.out else {
            return self.stream.write(frames);
        };
        // tungstenite writes all that it has, and that is whole frames.
        let sent = out.send(Out::Frames(frames.to_vec()));
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(frames.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A text as a frame, which is an ADU.
fn frame(text: String) -> Result<Vec<u8>, tungstenite::Error> {
    let mut bytes = Vec::new();
    Frame::message(text, OpCode::Data(Data::Text), true).format(&mut bytes)?;
    Ok(bytes)
}

/// One client, until it leaves.
fn play(stream: TcpStream, number: usize, world: &Arc<World>) -> Result<(), Failure> {
    let (out, outgoing) = mpsc::channel();
    let half = Half {
        stream: stream.try_clone()?,
        out: None,
    };
    let mut socket = tungstenite::accept(half).map_err(|error| error.to_string())?;
    socket.get_mut().out = Some(out.clone());
    world.with(|clients| clients.insert(number, out));
    let listening = Arc::clone(world);
    thread::spawn(move || listen(socket, number, &listening));

    // Events by their priority, states in the order in which their places became free.
    let mut ring = Ring::with(stream, Options::new().method(Method::Priority))?;
    let event = Metadata::new()
        .priority(Priority::HIGHEST)
        .treatment(Treatment::Forward);
    let mut places: [Option<Ticket>; THINGS] = [None; THINGS];
    let mut replaced = 0;
    loop {
        for out in outgoing.try_iter() {
            match out {
                Out::Frames(frames) => drop(ring.push(frames, event)),
                Out::End => {
                    for place in places.iter().flatten() {
                        let _ = ring.cancel(*place); // too late: it is sent
                    }
                    ring.finish(Instant::now() + GRACE)?;
                    let stats = ring.stats();
                    let sent = stats.sent;
                    println!("client {number}: {sent} sent, {replaced} replaced by newer ones");
                    return Ok(());
                }
            }
        }
        let tick = world.tick();
        for (thing, place) in places.iter_mut().enumerate() {
            let state = frame(world.state(thing, tick))?;
            match *place {
                Some(ticket) if ring.state(ticket) == State::Waiting => {
                    ring.replace(ticket, state)?;
                    replaced += 1;
                }
                _ => *place = Some(ring.push(state, Metadata::new())),
            }
        }
        // A tick has one state, however late the last one came.
        ring.run_until(world.start + TICK * (tick + 1))?;
    }
}

/// What the client says, until it says goodbye or is gone.
fn listen(mut socket: WebSocket<Half>, number: usize, world: &World) {
    while let Ok(message) = socket.read() {
        let Message::Text(text) = message else {
            continue; // tungstenite has answered
        };
        if let Ok(event) = frame(format!("client {number}: {text}")) {
            world.with(|clients| {
                for out in clients.values() {
                    let _ = out.send(Out::Frames(event.clone())); // or it is leaving
                }
            });
        }
    }
    if let Some(out) = &socket.get_ref().out {
        let _ = out.send(Out::End);
    }
}
