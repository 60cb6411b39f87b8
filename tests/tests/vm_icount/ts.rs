//! What a viewer sees and hears of MPEG-TS over a link that is too narrow for it: ffmpeg sends what x264 encoded, and a
//! tone, and ffmpeg takes apart and decodes what arrives. A picture counts if it is exactly the one that was encoded.
//!
//! In virtual time. The media are encoded before; while it sends, ffmpeg only copies them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use bestby_tests::agent::{drops, wait_for};
use bestby_tests::load::PEER;
use bestby_tests::netns::{Lab, Netns, linked_lab};
use bestby_tests::program::{InMemory, succeed};
use bestby_tests::require;

use crate::ffmpeg_lab::{PORT, agent, ffmpeg, make_media, sums};

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

fn show(program: &InMemory, lab: &Lab, peer: &Netns, media: &Path) -> Arrived {
    let directory = media.parent().unwrap();
    let [sent, came, heard, hear] =
        ["sent.md5", "came.md5", "heard.md5", "hear.md5"].map(|name| directory.join(name));
    let mut decode = ffmpeg(program, None);
    decode.arg("-y").arg("-i").arg(media);
    succeed(&mut write_sums(decode, &sent, &hear));
    for written in [&came, &heard] {
        let _ = fs::remove_file(written);
    }
    let mut receive = ffmpeg(program, Some(peer));
    // The end is a minute without a packet: the guest idles for seconds while programs like ss come from the host.
    let options = "timeout=60000000&fifo_size=20000&buffer_size=4000000";
    receive.args(["-i", &format!("udp://{PEER}:{PORT}?{options}")]);
    let mut receive = write_sums(receive, &came, &heard);
    let mut receiver = receive.stderr(Stdio::null()).spawn().unwrap();
    wait_for("the receiver's port", || {
        peer.run("ss -Huln").contains(&format!(":{PORT} "))
    });
    let mut send = ffmpeg(program, Some(&lab.netns));
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

/// What arrives over a link of this rate, where bestby reads it and where it may not.
fn read_and_blind(mode: &str, rate: &str, probe: Result<(), String>) -> Option<[Arrived; 2]> {
    let mut arrived = None;
    linked_lab(probe, |lab, peer| {
        // The lab's own has no room for it.
        let directory = tempfile::tempdir().unwrap();
        let media = &directory.path().join("media.ts");
        let program = &InMemory::new("ffmpeg", directory.path());
        make_media(program, media, true);
        arrived = Some(["auto", "off"].map(|read| {
            let agent = agent(lab, mode, rate, read);
            let arrived = show(program, lab, peer, media);
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
