//! The client crate's example `layers` (`tcp-ldc.txt`, section 6): half of the layers fit. Its receiver is an ordinary
//! TCP program, the same for both senders.

use std::{io::Read as _, process::Stdio};

use bestby_tests::program::{binary, succeed};

use crate::{
    player_lab::{number, serve},
    ring_lab::Line,
};

const SECONDS: u64 = 8;
const TO: &str = "10.9.1.2:5004";

/// What sender and receiver say in the end.
fn stream(form: &[&str]) -> (String, String) {
    let line = Line::new(512);
    let (_receiver, mut says) = serve(&line.receiver, "layers", &["receive", TO], Stdio::null());
    let mut sender = line.sender.command(binary("examples/layers"));
    let sent = succeed(
        sender
            .arg("send")
            .args(form)
            .args([TO, &SECONDS.to_string()]),
    );
    let mut received = String::new();
    says.read_to_string(&mut received).unwrap();
    println!("{received}");
    (sent, received)
}

/// Seconds of a layer that were on time.
fn on_time(received: &str, layer: u8) -> u64 {
    let line = received.lines().nth(usize::from(layer)).unwrap();
    assert!(line.starts_with(&format!("layer {layer}: ")), "{line}");
    number(line, "of")
}

#[test]
fn upper_layers_are_given_up_and_the_base_layer_stays() {
    let (sent, received) = stream(&[]);
    assert!(number(&sent, "given") >= 2 * SECONDS, "{sent}");
    assert!(5 * number(&sent, "late") <= number(&sent, "sent"), "{sent}");
    // The first second has no rate yet, and its last ADU may be in the way of the next second's.
    assert!(on_time(&received, 0) >= SECONDS - 2, "{received}");
    assert!(on_time(&received, 7) <= 1, "{received}");
    let layers: Vec<u64> = (0..8).map(|layer| on_time(&received, layer)).collect();
    assert!(layers[..4].iter().sum::<u64>() >= 2 * SECONDS, "{layers:?}");
}

#[test]
fn plain_tcp_sends_all_layers_and_none_is_on_time() {
    let (sent, received) = stream(&["plain"]);
    assert_eq!(number(&sent, "given"), 0);
    assert!(number(&received, "late") > 4 * SECONDS, "{received}");
    assert!(on_time(&received, 0) <= SECONDS / 2, "{received}");
    let all: u64 = (0..8).map(|layer| on_time(&received, layer)).sum();
    assert_eq!(all + number(&received, "late"), 8 * SECONDS);
}

#[test]
fn what_is_no_layer_is_refused() {
    let line = Line::new(50_000);
    let (mut receiver, _says) = serve(&line.receiver, "layers", &["receive", TO], Stdio::null());
    let mut socket = line
        .sender
        .enter(|| std::net::TcpStream::connect(TO))
        .unwrap();
    std::io::Write::write_all(&mut socket, &[9; 16_000]).unwrap();
    assert!(!receiver.0.wait().unwrap().success());
}
