//! ffmpeg as an unmodified camera and player, what it shows and when; and the client crate's examples.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout, Stdio},
    thread,
    time::{Duration, Instant},
};

use bestby_tests::{netns::Netns, program::binary};

/// A program that ends with its guard, as far as it has not ended by itself.
pub(crate) struct Program(pub(crate) Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// 25 frames a second of H.264 and AAC, 1.1 Mbit/s on the whole: a key frame a second, and of four frames three
/// that no other needs. `output`: where ffmpeg puts them.
fn camera(seconds: u32, output: &str) -> Vec<String> {
    let video =
        "-v error -re -f lavfi -i testsrc2=size=640x360:rate=25 -f lavfi -i sine=frequency=440";
    let video = format!(
        "{video} -t {seconds} -c:v libx264 -preset ultrafast -tune film -b:v 1M -maxrate 1M"
    );
    let video = format!(
        "{video} -bufsize 500k -g 25 -bf 3 -b_strategy 0 -x264-params b-pyramid=none:scenecut=0"
    );
    let all = format!("{video} -c:a aac -b:a 64k {output}");
    all.split(' ').map(str::to_owned).collect()
}

/// An example that listens, in `netns`, and what it says after its first line.
pub(crate) fn serve(
    netns: &Netns,
    example: &str,
    args: &[&str],
    input: Stdio,
) -> (Program, BufReader<ChildStdout>) {
    let mut command = netns.command(binary(&format!("examples/{example}")));
    let mut child = command
        .args(args)
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut says = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    says.read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "{example} does not listen");
    (Program(child), says)
}

/// The number before `word` in what a program says.
pub(crate) fn number(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text.split([' ', '\n', ',']).collect();
    let at = words.windows(2).position(|pair| pair[1] == word);
    let at = at.unwrap_or_else(|| panic!("{word} in {text}"));
    words[at].parse().unwrap()
}

/// A frame that the player shows, or what else has a time.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) at: Instant,
    /// By the camera's clock.
    pub(crate) stamp: Duration,
    /// Checksum of what is seen.
    pub(crate) sum: String,
}

pub(crate) struct Player {
    child: Program,
    shows: thread::JoinHandle<Vec<Shown>>,
    says: thread::JoinHandle<String>,
}

impl Player {
    /// Plays the video in `netns`.
    pub(crate) fn new(netns: &Netns, input: &[&str]) -> Self {
        let mut command = netns.command("ffmpeg");
        command.args(["-v", "warning"]).args(input);
        command.args("-map 0:v -fps_mode passthrough -flush_packets 1 -f framecrc -".split(' '));
        let command = command.stdin(Stdio::null());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (output, mut errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let shows = thread::spawn(|| shown(BufReader::new(output)));
        let says = thread::spawn(move || {
            let mut said = String::new();
            errors.read_to_string(&mut said).unwrap();
            said
        });
        let child = Program(child);
        Self { child, shows, says }
    }

    /// After the stream has ended: what was shown, and what the player complains about.
    pub(crate) fn end(mut self) -> (Vec<Shown>, Vec<String>) {
        self.child.0.wait().unwrap();
        let said = self.says.join().unwrap();
        // That there is no more data is how a live stream over HTTP ends.
        let end = [
            "Stream ends prematurely",
            "Input/output error",
            "Last message repeated",
        ];
        let lines = said.lines().filter(|line| !line.trim().is_empty());
        let lines = lines.filter(|line| !end.iter().any(|end| line.contains(end)));
        (
            self.shows.join().unwrap(),
            lines.map(str::to_owned).collect(),
        )
    }
}

/// Lines of ffmpeg's framecrc: stream, decoding time, presentation time.
fn shown(lines: impl std::io::BufRead) -> Vec<Shown> {
    let mut unit = 0.0;
    let mut shown = Vec::new();
    for line in lines.lines().map_while(Result::ok) {
        if let Some(base) = line.strip_prefix("#tb 0: ") {
            let (ticks, of) = base.split_once('/').unwrap();
            unit = ticks.parse::<f64>().unwrap() / of.parse::<f64>().unwrap();
        } else if !line.starts_with('#') {
            let time: f64 = line.split(',').nth(2).unwrap().trim().parse().unwrap();
            shown.push(Shown {
                at: Instant::now(),
                stamp: Duration::from_secs_f64(time * unit),
                sum: line.rsplit(',').next().unwrap().trim().to_owned(),
            });
        }
    }
    shown
}

/// How much older what comes last is than what was freshest: the freshest frames of the last quarter and of
/// all. A machine that is busy makes single frames older, and neither of these.
pub(crate) fn fallen_behind(shown: &[Shown]) -> Duration {
    let first = &shown[0];
    // Shown at some time, later than its stamp by this; the clocks' difference is the same for all.
    let age = |frame: &Shown| {
        let came = frame.at.duration_since(first.at).as_secs_f64();
        came - (frame.stamp.as_secs_f64() - first.stamp.as_secs_f64())
    };
    let freshest = |frames: &[Shown]| frames.iter().map(age).fold(f64::INFINITY, f64::min);
    let last = freshest(&shown[shown.len() * 3 / 4..]);
    Duration::from_secs_f64(last - freshest(shown))
}

/// All key frames are there, one each second: none is given up. When in the second is the stream's affair, and
/// ffmpeg guesses the time of the first frame.
pub(crate) fn assert_key_frames(shown: &[Shown]) {
    let stamps = shown[1..].iter().map(|frame| frame.stamp.as_millis());
    let mut phases = [0; 25];
    for stamp in stamps.clone() {
        phases[(stamp % 1000 / 40) as usize] += 1;
    }
    let seconds = (stamps.clone().max().unwrap() - stamps.min().unwrap()) / 1000;
    let most = phases.into_iter().max().unwrap();
    assert!(most >= seconds && seconds >= 3, "{phases:?} in {seconds} s");
}

/// ffmpeg as a camera, in `netns`.
pub(crate) fn start_camera(netns: &Netns, seconds: u32, output: &str, to: Stdio) -> Program {
    let mut command = netns.command("ffmpeg");
    command.args(camera(seconds, output)).stdin(Stdio::null());
    Program(command.stdout(to).spawn().unwrap())
}

/// What a camera gives, as input of another program.
pub(crate) fn piped(camera: &mut Program) -> Stdio {
    camera.0.stdout.take().unwrap().into()
}
