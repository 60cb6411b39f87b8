//! The client crate's example `flv`: H.264 over a line that carries half of it, with ffmpeg as an unmodified player.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    process::Stdio,
    thread,
    time::Duration,
};

use crate::{
    player_lab::{Player, assert_key_frames, fallen_behind, number, piped, serve, start_camera},
    ring_lab::Line,
};

const SECONDS: u32 = 8;
const FRAMES: usize = 200;
/// How long the example says that a frame is of use.
const LIFETIME: Duration = Duration::from_secs(1);
/// kbit/s; the camera has 1100.
const NARROW: u32 = 500;
const URL: [&str; 2] = ["-i", "http://10.9.0.1:8080/"];

#[test]
fn ffmpeg_decodes_a_stream_without_half_of_its_frames_and_stays_live() {
    let line = Line::new(NARROW);
    let mut camera = start_camera(&line.sender, SECONDS, "-f flv -", Stdio::piped());
    let input = piped(&mut camera);
    let (_relay, mut says) = serve(&line.sender, "flv", &["10.9.0.1:8080"], input);
    let player = Player::new(&line.receiver, &URL);
    let mut summary = String::new();
    says.read_to_string(&mut summary).unwrap();
    let (shown, complaints) = player.end();
    let behind = fallen_behind(&shown);
    println!(
        "{} of {FRAMES} shown, {behind:?} behind, {summary}",
        shown.len()
    );

    assert_eq!(complaints, [""; 0]);
    let (sent, late) = (number(&summary, "sent"), number(&summary, "late"));
    assert!(number(&summary, "given") > 40, "{summary}");
    assert!(late * 20 <= sent, "{summary}");
    assert!((50..170).contains(&shown.len()), "{}", shown.len());
    assert!(behind < LIFETIME, "{behind:?}");
    assert_key_frames(&shown);
}

#[test]
fn plain_tcp_shows_every_frame_and_ever_later() {
    let line = Line::new(NARROW);
    let mut camera = start_camera(&line.sender, SECONDS, "-f flv -", Stdio::piped());
    let mut stream = camera.0.stdout.take().unwrap();
    let listener = line.sender.enter(|| TcpListener::bind("10.9.0.1:8080"));
    let listener = listener.unwrap();
    let server = thread::spawn(move || {
        let mut viewer = listener.accept().unwrap().0;
        let mut request = [0; 4096];
        assert!(viewer.read(&mut request).unwrap() > 0);
        viewer
            .write_all(b"HTTP/1.0 200 OK\r\nContent-Type: video/x-flv\r\n\r\n")
            .unwrap();
        std::io::copy(&mut stream, &mut viewer).unwrap();
    });
    let (shown, complaints) = Player::new(&line.receiver, &URL).end();
    server.join().unwrap();
    let behind = fallen_behind(&shown);
    println!("{} of {FRAMES} shown, {behind:?} behind", shown.len());
    assert_eq!(complaints, [""; 0]);
    assert_eq!(shown.len(), FRAMES);
    assert!(behind > 2 * LIFETIME, "{behind:?}");
}

#[test]
fn what_is_not_flv_is_refused_in_plain_words() {
    let line = Line::new(NARROW);
    let mut command = line
        .sender
        .command(bestby_tests::program::binary("examples/flv"));
    let mut relay = command
        .arg("10.9.0.1:8080")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = relay.stdin.take().unwrap();
    input.write_all(b"no film at all, but long enough").unwrap();
    drop(input);
    let output = relay.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("not FLV"),
        "{said}"
    );
}
