//! The relay of twenty lines (the client crate's example `small`, `docs/applications.md`) on a line that carries a
//! third of the camera's images, with ffmpeg as an unmodified viewer.

use std::{
    collections::BTreeMap,
    io::Read as _,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use bestby_tests::program::{binary, succeed};

use crate::{
    player_lab::{Player, Program, Shown, fallen_behind, number},
    ring_lab::Line,
};

/// How long the example says that an image is of use.
const LIFETIME: Duration = Duration::from_millis(500);
const IMAGES: usize = 200;
const CAMERA: &str = "127.0.0.1:9000";
const RELAY: &str = "10.9.0.1:8080";

fn ffmpeg(args: &str, files: &[&Path]) -> Command {
    let mut command = Command::new("ffmpeg");
    let mut files = files.iter();
    for arg in args.split(' ') {
        match arg {
            "FILE" => command.arg(files.next().unwrap()),
            arg => command.arg(arg),
        };
    }
    command.stdin(Stdio::null());
    command
}

/// What a viewer sees by way of `relay`, with the image's number as time; its complaints; what `relay` says.
fn view(relay: impl FnOnce(&Line) -> String + Send) -> (Vec<Shown>, Vec<String>, String) {
    // 25 images a second of about 16 kB: 3 Mbit/s.
    let film = tempfile::NamedTempFile::new().unwrap();
    let make = "-v error -y -f lavfi -i testsrc2=size=640x360:rate=25 -t 8 -q:v 6 -f mjpeg FILE";
    succeed(&mut ffmpeg(make, &[film.path()]));
    let look = "-v error -f mjpeg -i FILE -fps_mode passthrough -f framecrc -";
    let sums = succeed(&mut ffmpeg(look, &[film.path()]));
    let sums = sums
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let sums = sums.map(|line| line.rsplit(',').next().unwrap().trim());
    let number_of: BTreeMap<&str, u32> = sums.zip(0..).collect();
    assert_eq!(number_of.len(), IMAGES, "no two are alike");

    let line = Line::new(1_000);
    let play = format!(
        "-v error -re -f mjpeg -framerate 25 -i FILE -c copy -f mjpeg tcp://{CAMERA}?listen=1"
    );
    let camera = line
        .sender
        .enter(|| ffmpeg(&play, &[film.path()]).spawn().unwrap());
    let _camera = Program(camera);
    let listens = |port| {
        while !line.sender.run("ss -Hltn").contains(port) {
            thread::sleep(Duration::from_millis(20));
        }
    };
    listens(":9000");
    thread::scope(|scope| {
        let relay = scope.spawn(|| relay(&line));
        listens(":8080");
        let input = format!("-f mjpeg -i tcp://{RELAY}");
        let player = Player::new(&line.receiver, &input.split(' ').collect::<Vec<_>>());
        let (mut shown, complaints) = player.end();
        for image in &mut shown {
            image.stamp = Duration::from_millis(40) * number_of[image.sum.as_str()];
        }
        (shown, complaints, relay.join().unwrap())
    })
}

#[test]
fn relay_of_twenty_lines_stays_live() {
    let (shown, complaints, said) = view(|line| {
        let mut relay = line.sender.command(binary("examples/small"));
        let mut relay = Program(
            relay
                .args([CAMERA, RELAY])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let mut said = String::new();
        let mut says = relay.0.stdout.take().unwrap();
        says.read_to_string(&mut said).unwrap();
        assert!(relay.0.wait().unwrap().success());
        said
    });
    let behind = fallen_behind(&shown);
    println!(
        "{} of {IMAGES} shown, {behind:?} behind, {said}",
        shown.len()
    );
    assert_eq!(complaints, [""; 0]);
    assert!(number(&said, "given") > 60, "{said}");
    assert!((20..140).contains(&shown.len()), "{}", shown.len());
    assert!(shown.windows(2).all(|pair| pair[0].stamp < pair[1].stamp));
    assert!(behind < LIFETIME, "{behind:?}");
    // To the end of the film.
    let last = shown.last().unwrap().stamp;
    assert!(last + 2 * LIFETIME > Duration::from_secs(8), "{last:?}");
}

#[test]
fn relay_without_a_ring_shows_every_image_and_ever_later() {
    let (shown, complaints, _) = view(|line| {
        let (mut camera, mut viewer) = line.sender.enter(|| {
            let camera = TcpStream::connect(CAMERA).unwrap();
            (
                camera,
                TcpListener::bind(RELAY).unwrap().accept().unwrap().0,
            )
        });
        std::io::copy(&mut camera, &mut viewer).unwrap();
        String::new()
    });
    let behind = fallen_behind(&shown);
    println!("{} of {IMAGES} shown, {behind:?} behind", shown.len());
    assert_eq!(complaints, [""; 0]);
    assert_eq!(shown.len(), IMAGES);
    assert!(behind > 2 * LIFETIME, "{behind:?}");
}
