//! The client crate's example `game` on a line that carries a third of its states, with tungstenite as a stock client.

use std::{
    collections::BTreeMap,
    io::BufRead as _,
    net::{TcpListener, TcpStream},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use tungstenite::{Message, WebSocket};

use crate::{
    player_lab::{Shown, fallen_behind, number, serve},
    ring_lab::Line,
};

/// kbit/s; the states are three times as much.
const NARROW: u32 = 256;
const ADDRESS: &str = "10.9.0.1:8765";

fn connect(line: &Line) -> WebSocket<TcpStream> {
    let stream = line.receiver.enter(|| TcpStream::connect(ADDRESS)).unwrap();
    tungstenite::client(format!("ws://{ADDRESS}/"), stream)
        .unwrap()
        .0
}

/// A number of a state.
fn field(state: &str, name: &str) -> u64 {
    let (_, rest) = state.split_once(&format!("\"{name}\":")).unwrap();
    rest[..rest.find(',').unwrap()].parse().unwrap()
}

/// States until one is of this tick.
fn watch(socket: &mut WebSocket<TcpStream>, ticks: u64) -> (Vec<(u64, Shown)>, Vec<Message>) {
    let (mut states, mut others) = (Vec::new(), Vec::new());
    loop {
        match socket.read().unwrap() {
            Message::Text(text) if text.starts_with('{') => {
                let tick = field(&text, "tick");
                let stamp = Duration::from_secs_f64(tick as f64 / 60.0);
                let at = Instant::now();
                let sum = String::new();
                states.push((field(&text, "thing"), Shown { at, stamp, sum }));
                if tick >= ticks {
                    return (states, others);
                }
            }
            other => others.push(other),
        }
    }
}

#[test]
fn stock_client_gets_new_states_of_everything_and_every_event() {
    let line = Line::new(NARROW);
    let (_server, mut says) = serve(&line.sender, "game", &[ADDRESS], Stdio::null());
    let mut socket = connect(&line);
    let (mut states, mut others) = watch(&mut socket, 180);
    socket.send(Message::Ping("are you there?".into())).unwrap();
    for event in 0..5 {
        socket
            .send(Message::text(format!("event {event}")))
            .unwrap();
    }
    let (more, answers) = watch(&mut socket, 360);
    states.extend(more);
    others.extend(answers);
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
    let mut summary = String::new();
    says.read_line(&mut summary).unwrap();

    let mut of = BTreeMap::new();
    for (thing, shown) in &states {
        let before = of.insert(
            *thing,
            (
                of.get(thing).map_or(0, |(count, _)| *count) + 1,
                shown.stamp,
            ),
        );
        assert!(
            before.is_none_or(|(_, stamp)| stamp < shown.stamp),
            "never an older state"
        );
    }
    let counts: Vec<u32> = of.values().map(|(count, _)| *count).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    let shown: Vec<Shown> = states.into_iter().map(|(_, shown)| shown).collect();
    let behind = fallen_behind(&shown);
    println!("{least} to {most} states of each thing, {behind:?} behind, {summary}");
    assert_eq!(counts.len(), 32);
    // A thing whose state has left gets its new place with the next tick.
    assert!(2 * least > *most, "{counts:?}");
    assert!(
        number(&summary, "replaced") > number(&summary, "sent"),
        "{summary}"
    );
    assert!(behind < Duration::from_millis(500), "{behind:?}");
    // Only the answer to the ping may overtake another client's event, and there is none.
    let events = (0..5).map(|event| Message::text(format!("client 0: event {event}")));
    let expected: Vec<Message> = [Message::Pong("are you there?".into())]
        .into_iter()
        .chain(events)
        .collect();
    assert_eq!(others, expected);
}

#[test]
fn plain_tcp_brings_every_state_and_ever_later() {
    let line = Line::new(NARROW);
    let listener = line.sender.enter(|| TcpListener::bind(ADDRESS)).unwrap();
    let server = thread::spawn(move || {
        let mut socket = tungstenite::accept(listener.accept().unwrap().0).unwrap();
        let start = Instant::now();
        for tick in 0.. {
            let at = start + Duration::from_secs(tick) / 60;
            thread::sleep(at.saturating_duration_since(Instant::now()));
            for thing in 0..32 {
                let state = format!(r#"{{"tick":{tick},"thing":{thing},"x":-12.345,"y":12.345}}"#);
                if socket.send(Message::text(state)).is_err() {
                    return;
                }
            }
        }
    });
    let mut socket = connect(&line);
    let (states, _) = watch(&mut socket, 120);
    drop(socket);
    server.join().unwrap();
    let shown: Vec<Shown> = states.into_iter().map(|(_, shown)| shown).collect();
    let behind = fallen_behind(&shown);
    println!("{} states of 120 ticks, {behind:?} behind", shown.len());
    assert!(behind > Duration::from_secs(2), "{behind:?}");
}

#[test]
fn what_is_no_websocket_is_refused_and_the_others_go_on() {
    let line = Line::new(50_000);
    let (_server, mut says) = serve(&line.sender, "game", &[ADDRESS], Stdio::null());
    let mut wrong = line.receiver.enter(|| TcpStream::connect(ADDRESS)).unwrap();
    std::io::Write::write_all(&mut wrong, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut line_said = String::new();
    says.read_line(&mut line_said).unwrap();
    assert!(
        line_said.starts_with("client 0: ") && line_said.contains("WebSocket"),
        "{line_said}"
    );
    let mut socket = connect(&line);
    assert!(!watch(&mut socket, 1).0.is_empty());
    // Gone without a word.
    drop(socket);
    let mut line_said = String::new();
    says.read_line(&mut line_said).unwrap();
    assert!(line_said.starts_with("client 1: "), "{line_said}");
}
