//! The client crate's example `rtsp` on a line that carries half of the stream: ffmpeg publishes, and ffmpeg plays,
//! both unmodified.

use std::{
    io::{BufRead as _, Read as _, Write as _},
    net::TcpStream,
    process::Stdio,
    time::Duration,
};

use crate::{
    player_lab::{Player, assert_key_frames, fallen_behind, number, serve, start_camera},
    ring_lab::Line,
};

/// How long the example says that a frame is of use.
const LIFETIME: Duration = Duration::from_secs(1);
const PUBLISH: &str = "-f rtsp -rtsp_transport tcp rtsp://10.9.0.1:8554/live";
const PLAY: [&str; 4] = ["-rtsp_transport", "tcp", "-i", "rtsp://10.9.0.1:8554/live"];

/// Status that the server answers with.
fn ask(line: &Line, request: &str) -> String {
    let socket = line.receiver.enter(|| TcpStream::connect("10.9.0.1:8554"));
    let mut socket = socket.unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

fn describe(line: &Line) -> String {
    let request = "DESCRIBE rtsp://10.9.0.1:8554/live RTSP/1.0\r\nCSeq: 1\r\n\r\n";
    ask(line, request)
}

#[test]
fn ffmpeg_decodes_rtsp_without_half_of_its_frames_and_stays_live() {
    let line = Line::new(500);
    let (_server, mut says) = serve(&line.sender, "rtsp", &["10.9.0.1:8554"], Stdio::null());
    let camera = start_camera(&line.sender, 10, PUBLISH, Stdio::null());
    while !describe(&line).contains("200") {
        std::thread::sleep(Duration::from_millis(50));
    }
    let player = Player::new(&line.receiver, &PLAY);
    let (shown, complaints) = player.end();
    let mut summary = String::new();
    says.read_line(&mut summary).unwrap();
    drop(camera);
    let behind = fallen_behind(&shown);
    println!("{} of 250 shown, {behind:?} behind, {summary}", shown.len());

    assert_eq!(complaints, [""; 0]);
    let (sent, late) = (number(&summary, "sent"), number(&summary, "late"));
    assert!(number(&summary, "given") > 40, "{summary}");
    assert!(late * 10 <= sent, "{summary}");
    assert!((50..200).contains(&shown.len()), "{}", shown.len());
    assert!(behind < LIFETIME, "{behind:?}");
    assert_key_frames(&shown);
}

#[test]
fn ffmpeg_gets_every_frame_where_the_line_is_wide() {
    let line = Line::new(50_000);
    let (_server, mut says) = serve(&line.sender, "rtsp", &["10.9.0.1:8554"], Stdio::null());
    let camera = start_camera(&line.sender, 5, PUBLISH, Stdio::null());
    while !describe(&line).contains("200") {
        std::thread::sleep(Duration::from_millis(50));
    }
    // Asks for UDP first, and takes the refusal.
    let player = Player::new(&line.receiver, &PLAY[2..]);
    let (shown, complaints) = player.end();
    let mut summary = String::new();
    says.read_line(&mut summary).unwrap();
    drop(camera);
    println!("{} of 125 shown, {summary}", shown.len());
    let only_that = |line: &String| line.contains("SETUP failed: 461");
    assert!(complaints.iter().all(only_that), "{complaints:?}");
    // From the first key frame after it has come; ffmpeg guesses the time of that one.
    let stamps = shown[1..].iter().map(|frame| frame.stamp.as_millis());
    let stamps: Vec<u128> = stamps.collect();
    assert!(stamps.len() > 40, "{stamps:?}");
    assert!(
        stamps.windows(2).all(|pair| pair[1] - pair[0] <= 50),
        "{stamps:?}"
    );
}

#[test]
fn wrong_use_is_refused_in_plain_words() {
    let line = Line::new(50_000);
    let (_server, _says) = serve(&line.sender, "rtsp", &["10.9.0.1:8554"], Stdio::null());
    assert_eq!(describe(&line), "RTSP/1.0 404 Nothing Is Published");
    let url = "rtsp://10.9.0.1:8554/live";
    let play = format!("PLAY {url} RTSP/1.0\r\nCSeq: 1\r\n\r\n");
    assert_eq!(ask(&line, &play), "RTSP/1.0 455 SETUP Comes First");
    let camera = start_camera(&line.sender, 60, PUBLISH, Stdio::null());
    while !describe(&line).contains("200") {
        std::thread::sleep(Duration::from_millis(50));
    }
    let announce = format!("ANNOUNCE {url} RTSP/1.0\r\nCSeq: 1\r\nContent-Length: 4\r\n\r\nv=0\n");
    assert_eq!(
        ask(&line, &announce),
        "RTSP/1.0 403 Another Publisher Is There"
    );
    let udp = "Transport: RTP/AVP;unicast;client_port=5000-5001";
    let setup = format!("SETUP {url}/streamid=0 RTSP/1.0\r\nCSeq: 1\r\n{udp}\r\n\r\n");
    assert_eq!(ask(&line, &setup), "RTSP/1.0 461 Only Interleaved In TCP");
    let wrong = format!("SETUP {url}/streamid=7 RTSP/1.0\r\nCSeq: 1\r\n\r\n");
    assert_eq!(ask(&line, &wrong), "RTSP/1.0 404 No Such Track");
    assert_eq!(
        ask(&line, "JUMP * RTSP/1.0\r\n\r\n"),
        "RTSP/1.0 501 Not Implemented"
    );
    assert_eq!(ask(&line, "a request without an end"), "");
    drop(camera);
    // The next publisher is welcome.
    while describe(&line).contains("200") {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(describe(&line), "RTSP/1.0 404 Nothing Is Published");
}
