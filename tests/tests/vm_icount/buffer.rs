//! The real ffmpeg asks for a send buffer of 32 KiB and waits while half of it is used. On a link that carries 0.6 of what
//! it sends, bestby decides what goes, not that buffer: audio is on time, and ffmpeg does not fall behind.
//!
//! In virtual time. ffmpeg's media are made before; while it sends, it only copies them.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use bestby_tests::agent::{Agent, drops, file, wait_for};
use bestby_tests::clock::{MS, now_ns};
use bestby_tests::load::PEER;
use bestby_tests::netns::{Lab, Netns, cgroup_root, linked_lab};
use bestby_tests::program::{binary, succeed};
use bestby_tests::require;
use serde_json::json;

const AUDIO: u16 = 5004;
const VIDEO: u16 = 5006;
const SECONDS: u64 = 8;

/// Video of some 950 kbit/s and audio of 64 kbit/s, in this file.
fn make_media(path: &Path) {
    let mut make = Command::new("ffmpeg");
    make.args([
        "-hide_banner",
        "-loglevel",
        "error",
        "-nostdin",
        "-f",
        "lavfi",
    ]);
    make.args(["-i", "testsrc2=size=320x240:rate=25", "-f", "lavfi"]);
    make.args(["-i", "sine=sample_rate=48000", "-t", &SECONDS.to_string()]);
    make.args(["-c:v", "mpeg2video", "-g", "50", "-bf", "0", "-b:v", "950k"]);
    make.args(["-minrate", "950k", "-maxrate", "950k", "-bufsize", "200k"]);
    // A packet for each frame of 20 ms.
    make.args(["-c:a", "libopus", "-b:a", "64k", "-f", "matroska"]);
    succeed(make.arg(path));
}

/// The file of an agent that does this with send buffers.
fn config(switch: &str) -> String {
    let rule = |name: &str, dport: u16, lifetime: &str, priority: u8| {
        format!(
            "[[flow]]\nname = \"{name}\"\nproto = \"udp\"\ndport = {dport}\nlifetime = \"{lifetime}\"\n\
             priority = {priority}\n"
        )
    };
    format!("[agent]\nsend_buffers = \"{switch}\"\n")
        + &rule("audio", AUDIO, "200ms", 0)
        + &rule("video", VIDEO, "400ms", 4)
}

/// An agent whose link carries 700 kbit/s.
fn start(lab: &Lab, mode: &str, switch: &str) -> Agent {
    let config = file(lab, "bestby.toml", &config(switch));
    let socket = lab.dir.join("s");
    let mut command = lab.netns.command(binary("bestbyd"));
    command.arg("--socket").arg(&socket);
    command.arg("--config").arg(config);
    command.arg("--bpffs").arg(&lab.bpffs);
    command.arg("--cgroup").arg(cgroup_root());
    let agent = Agent::spawn(command, socket, lab.dir.join("log"));
    agent.attach(json!({"dev": "v0", "mode": mode, "rate": "700kbit"}));
    agent
}

/// What came to a port: RTP timestamps and when, ns.
type Came = Vec<(u32, u64)>;

/// Takes what comes until nothing has for two seconds.
fn receive(peer: &Netns, port: u16) -> thread::JoinHandle<Came> {
    let socket = peer.enter(|| UdpSocket::bind((PEER, port)).unwrap());
    let idle = Some(Duration::from_secs(2));
    thread::spawn(move || {
        let (mut packet, mut came) = ([0; 2048], Came::new());
        loop {
            // ffmpeg takes its time to begin.
            socket
                .set_read_timeout(if came.is_empty() { None } else { idle })
                .unwrap();
            match socket.recv(&mut packet) {
                Ok(size) if size >= 8 => {
                    let time = u32::from_be_bytes(packet[4..8].try_into().unwrap());
                    came.push((time, now_ns()));
                }
                _ => return came,
            }
        }
    })
}

/// Runs ffmpeg with these outputs; for how long it sent, ns.
fn play(lab: &Lab, media: &Path, outputs: &[&str]) -> u64 {
    let mut ffmpeg = lab.netns.command("ffmpeg");
    ffmpeg.args([
        "-hide_banner",
        "-loglevel",
        "error",
        "-nostdin",
        "-re",
        "-i",
    ]);
    ffmpeg.arg(media).args(outputs);
    let began = now_ns();
    succeed(&mut ffmpeg);
    now_ns() - began
}

/// RTP: packets of audio that came at most 200 ms later than the least delayed one, and how many were sent.
fn audio_on_time(lab: &Lab, peer: &Netns, agent: &Agent, media: &Path) -> (usize, u64) {
    let (audio, video) = (receive(peer, AUDIO), receive(peer, VIDEO));
    let address: IpAddr = PEER;
    let to = |port: u16| format!("rtp://{address}:{port}?pkt_size=1200");
    let (video_to, audio_to) = (to(VIDEO), to(AUDIO));
    let before = agent.flow("audio", "packets_in");
    let copy = ["-c", "copy", "-f", "rtp"];
    let outputs = [
        &["-map", "0:v"][..],
        &copy,
        &[&video_to, "-map", "0:a"],
        &copy,
        &[&audio_to],
    ];
    play(lab, media, &outputs.concat());
    let sent = agent.flow("audio", "packets_in") - before;
    let came = audio.join().unwrap();
    video.join().unwrap();
    let first = came.first().unwrap().0;
    // Opus counts in 48 kHz; when it came less when it was due.
    let delay = |(time, at): &(u32, u64)| {
        i128::from(*at) - i128::from(time.wrapping_sub(first)) * 62_500 / 3
    };
    let least = came.iter().map(delay).min().unwrap();
    let on_time = |d: &i128| d - least <= i128::from(200 * MS);
    (came.iter().map(delay).filter(on_time).count(), sent)
}

fn rtp_in(mode: &'static str, probe: Result<(), String>) {
    linked_lab(probe, |lab, peer| {
        // The lab's own has no room for it.
        let directory = tempfile::tempdir().unwrap();
        let media = &directory.path().join("media.mkv");
        make_media(media);
        let agent = start(lab, mode, "auto");
        let (on_time, sent) = audio_on_time(lab, peer, &agent, media);
        println!("mode {mode}: audio on time {on_time} of {sent}");
        let counters = &agent.stats()["flows"]["video"];
        println!("video: {counters}");
        assert!(sent >= SECONDS * 50 - 10, "{sent}");
        assert!(on_time as u64 * 100 >= sent * 95, "{on_time} of {sent}");
        assert!(drops(counters, "dropped") > 0, "{counters}");
        assert!(agent.complaints("send buffer").is_empty());

        // With the buffer that ffmpeg asked for, audio waits behind video in its thread: less in mode tc, which never
        // lets as much video wait.
        leave_buffers_alone(lab, &agent);
        let (on_time, sent) = audio_on_time(lab, peer, &agent, media);
        println!("mode {mode}, off: audio on time {on_time} of {sent}");
        assert!((on_time as u64) * 100 < sent * 95, "{on_time} of {sent}");
    });
}

/// The refusal: what the operator forbids does not happen.
fn leave_buffers_alone(lab: &Lab, agent: &Agent) {
    file(lab, "bestby.toml", &config("off"));
    agent.signal(libc::SIGHUP);
    wait_for("a reload", || agent.log().contains("read again"));
}

fn ts_in(mode: &'static str, probe: Result<(), String>) {
    linked_lab(probe, |lab, peer| {
        // The lab's own has no room for it.
        let directory = tempfile::tempdir().unwrap();
        let media = &directory.path().join("media.mkv");
        make_media(media);
        let agent = start(lab, mode, "auto");
        let to = format!("udp://{PEER}:{VIDEO}?pkt_size=1316");
        let seconds = |agent: &Agent| {
            let came = receive(peer, VIDEO);
            let ran = play(lab, media, &["-an", "-c", "copy", "-f", "mpegts", &to]);
            let came = came.join().unwrap();
            let lasted = came.last().unwrap().1 - came[0].1;
            let counters = &agent.stats()["flows"]["video"];
            println!(
                "mode {mode}: ran {} ms, sent for {} ms: {counters}",
                ran / MS,
                lasted / MS
            );
            (lasted, drops(counters, "dropped"))
        };
        let (lasted, dropped) = seconds(&agent);
        assert!(lasted < (SECONDS * 1000 + 700) * MS, "{lasted}");
        assert!(dropped > 0);

        leave_buffers_alone(lab, &agent);
        let (lasted, _) = seconds(&agent);
        assert!(lasted > (SECONDS * 1000 + 2000) * MS, "{lasted}");
        assert!(agent.complaints("send buffer").is_empty());
    });
}

#[test]
fn audio_of_ffmpeg_rtp_is_on_time_in_mode_qdisc() {
    rtp_in("qdisc", require::bpf_qdisc());
}

#[test]
fn audio_of_ffmpeg_rtp_is_on_time_in_mode_tc() {
    rtp_in("tc", require::root());
}

#[test]
fn ffmpeg_ts_does_not_fall_behind_in_mode_qdisc() {
    ts_in("qdisc", require::bpf_qdisc());
}

#[test]
fn ffmpeg_ts_does_not_fall_behind_in_mode_tc() {
    ts_in("tc", require::root());
}
