//! What a viewer sees and hears of MPEG-TS over a link that is too narrow for it: ffmpeg sends what x264 encoded, and a
//! tone, and ffmpeg takes apart and decodes what arrives. A picture counts if it is exactly the one that was encoded.
//!
//! In virtual time. The media are encoded before; while it sends, ffmpeg only copies them.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use bestby_tests::agent::{Agent, drops, file, wait_for};
use bestby_tests::load::PEER;
use bestby_tests::netns::{Lab, Netns, cgroup_root, linked_lab};
use bestby_tests::program::{binary, succeed};
use bestby_tests::require;
use serde_json::json;

const PORT: u16 = 5006;
const SECONDS: u32 = 12;
/// Pictures from one key frame to the next: 2 s.
const GROUP: u32 = 50;

fn ffmpeg(mut command: Command) -> Command {
    command.args(["-hide_banner", "-loglevel", "fatal", "-nostdin"]);
    command
}

/// Some 900 kbit/s, with B pictures that others refer to, and 64 kbit/s of a tone.
fn make_media(path: &Path) {
    let mut make = ffmpeg(Command::new("ffmpeg"));
    make.args(["-f", "lavfi", "-i", "testsrc2=size=320x240:rate=25"]);
    make.args(["-f", "lavfi", "-i", "sine=frequency=440:beep_factor=4"]);
    make.args(["-t", &SECONDS.to_string(), "-c:v", "libx264"]);
    make.args(["-preset", "veryfast", "-bf", "3", "-pix_fmt", "yuv420p"]);
    make.args(["-g", &GROUP.to_string(), "-sc_threshold", "0"]);
    make.args(["-b:v", "900k", "-maxrate", "900k", "-bufsize", "450k"]);
    make.args(["-x264-params", "aud=1:nal-hrd=cbr"]);
    make.args(["-c:a", "aac", "-b:a", "64k", "-f", "mpegts"]);
    succeed(make.arg(path));
}

/// Sums of what is in a file that ffmpeg has written; a player that never had a key frame writes none.
fn sums(path: &Path) -> HashSet<String> {
    fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.rsplit(',').next()?.trim().to_owned()))
        .collect()
}

/// Sums of decoded pictures, and of audio as it was sent.
fn write_sums(mut command: Command, video: &Path, audio: &Path) -> Command {
    command.args(["-map", "0:v", "-fps_mode", "passthrough", "-f", "framemd5"]);
    command.arg(video);
    command.args(["-map", "0:a", "-c:a", "copy", "-f", "framemd5"]);
    command.arg(audio);
    command
}

/// What arrived of so many.
#[derive(Debug)]
struct Arrived {
    /// Pictures that are decoded exactly.
    exact: usize,
    /// Frames of audio, and how many were sent.
    audio: (usize, usize),
}

fn show(lab: &Lab, peer: &Netns, media: &Path) -> Arrived {
    let directory = media.parent().unwrap();
    let [sent, came, heard, hear] =
        ["sent.md5", "came.md5", "heard.md5", "hear.md5"].map(|name| directory.join(name));
    let mut decode = ffmpeg(Command::new("ffmpeg"));
    decode.arg("-y").arg("-i").arg(media);
    succeed(&mut write_sums(decode, &sent, &hear));
    for written in [&came, &heard] {
        let _ = fs::remove_file(written);
    }
    let mut receive = ffmpeg(peer.command("ffmpeg"));
    let options = "timeout=4000000&fifo_size=20000&buffer_size=4000000";
    receive.args(["-i", &format!("udp://{PEER}:{PORT}?{options}")]);
    let mut receive = write_sums(receive, &came, &heard);
    let mut receiver = receive.stderr(Stdio::null()).spawn().unwrap();
    wait_for("the receiver's port", || {
        peer.run("ss -Huln").contains(&format!(":{PORT} "))
    });
    let mut send = ffmpeg(lab.netns.command("ffmpeg"));
    send.arg("-re").arg("-i").arg(media).args(["-c", "copy"]);
    let url = format!("udp://{PEER}:{PORT}?pkt_size=1316");
    succeed(send.args(["-f", "mpegts", &url]));
    receiver.wait().unwrap();
    let audio = sums(&hear);
    Arrived {
        exact: sums(&came).intersection(&sums(&sent)).count(),
        audio: (sums(&heard).intersection(&audio).count(), audio.len()),
    }
}

/// The file of an agent with one rule: a port, a lifetime, and whether pictures are read.
fn config(media: &str) -> String {
    format!(
        "[[flow]]\nname = \"video\"\nproto = \"udp\"\ndport = {PORT}\nlifetime = \"400ms\"\n\
         media = \"{media}\"\n"
    )
}

/// What arrives over a link of this rate, where bestby reads it and where it may not.
fn read_and_blind(mode: &str, rate: &str, probe: Result<(), String>) -> Option<[Arrived; 2]> {
    let mut arrived = None;
    linked_lab(probe, |lab, peer| {
        // The lab's own has no room for it.
        let directory = tempfile::tempdir().unwrap();
        let media = &directory.path().join("media.ts");
        make_media(media);
        arrived = Some(["auto", "off"].map(|read| {
            let socket = lab.dir.join(format!("s-{read}"));
            let mut command = lab.netns.command(binary("bestbyd"));
            command.arg("--socket").arg(&socket);
            command
                .arg("--config")
                .arg(file(lab, "bestby.toml", &config(read)));
            command.arg("--bpffs").arg(&lab.bpffs);
            command.arg("--cgroup").arg(cgroup_root());
            let agent = Agent::spawn(command, socket, lab.dir.join(format!("log-{read}")));
            agent.attach(json!({"dev": "v0", "mode": mode, "rate": rate}));
            let arrived = show(lab, peer, media);
            let counters = &agent.stats()["flows"]["video"];
            println!("{mode}, {rate}, media {read}: {arrived:?}; {counters}");
            println!("{}", agent.ok("GET", "/v1/media", None));
            assert!(drops(counters, "dropped") > 0, "{counters}");
            agent.ok("DELETE", "/v1/interfaces/v0", None);
            arrived
        }));
    });
    arrived
}

/// At least so many times as many pictures are seen where bestby reads them, and there all is heard.
fn more_is_seen_and_all_is_heard(mode: &str, times: usize) {
    if let Some([read, blind]) = read_and_blind(mode, "700kbit", require::bpf_qdisc()) {
        assert!(read.exact >= times * blind.exact, "{read:?}, {blind:?}");
        assert_eq!(read.audio.0, read.audio.1, "{read:?}");
    }
}

#[test]
fn ts_pictures_of_ffmpeg_in_udp_are_decoded_in_mode_qdisc() {
    more_is_seen_and_all_is_heard("qdisc", 4);
}

/// Mode tc decides as packets come: its pictures are no more than without, and all is heard.
#[test]
fn ts_audio_of_ffmpeg_is_heard_in_mode_tc() {
    more_is_seen_and_all_is_heard("tc", 0);
}
