//! The client crate's example `relay` on a line that is too narrow, with ffmpeg as an unmodified viewer.

use std::{
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use bestby_tests::program::binary;

use crate::ring_lab::Line;

/// 25 images a second of about 16 kB: 3 Mbit/s.
const CAMERA: &str =
    "-v error -re -f lavfi -i testsrc2=size=640x360:rate=25 -t 8 -q:v 6 -f mjpeg -";

/// Images that ffmpeg decodes, and what it complains about.
fn view(rate: u32) -> (usize, String) {
    let line = Line::new(rate);
    let mut camera = Command::new("ffmpeg")
        .args(CAMERA.split(' '))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut relay = line.sender.command(binary("examples/relay"));
    relay
        .arg("10.9.0.1:8080")
        .stdin(camera.stdout.take().unwrap());
    let mut relay = relay.spawn().unwrap();
    // No connection before it listens.
    let listens = || line.sender.run("ss -Hltn").contains(":8080");
    while !listens() {
        thread::sleep(Duration::from_millis(20));
    }
    let mut player = line.receiver.command("ffmpeg");
    player.args([
        "-v",
        "warning",
        "-f",
        "mpjpeg",
        "-i",
        "http://10.9.0.1:8080/",
    ]);
    player.args(["-fps_mode", "passthrough", "-f", "framemd5", "-"]);
    let player = player.stdin(Stdio::null()).output().unwrap();
    assert!(camera.wait().unwrap().success() && relay.wait().unwrap().success());
    let images = String::from_utf8(player.stdout).unwrap();
    let images = images.lines().filter(|line| !line.starts_with('#')).count();
    (images, String::from_utf8_lossy(&player.stderr).into_owned())
}

/// That there is no length, and no more data, is how such a stream ends.
fn complaints(said: &str) -> Vec<&str> {
    let end = ["Stream ends prematurely", "Input/output error"];
    let lines = said.lines().filter(|line| !line.trim().is_empty());
    lines
        .filter(|line| !end.iter().any(|end| line.contains(end)))
        .collect()
}

#[test]
fn ffmpeg_decodes_every_image_of_a_relay_that_gives_most_of_them_up() {
    let (images, said) = view(1_000);
    println!("{images} of 200 images\n{said}");
    assert_eq!(complaints(&said), [""; 0]);
    assert!((10..120).contains(&images), "{images}");
}

#[test]
fn ffmpeg_gets_nearly_every_image_where_the_line_is_wide() {
    let (images, said) = view(50_000);
    println!("{images} of 200 images\n{said}");
    assert_eq!(complaints(&said), [""; 0]);
    // It comes when some are gone, and waits for some more before it begins.
    assert!(images > 100, "{images}");
}
