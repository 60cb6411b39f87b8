//! What a viewer sees and hears of MPEG-TS over a link that is too narrow for it: ffmpeg sends what x264 encoded, and a
//! tone, and ffmpeg takes apart and decodes what arrives. A picture counts if it is exactly the one that was encoded.
//!
//! In virtual time. The media are encoded before; while it sends, ffmpeg only copies them.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use bestby_tests::agent::{drops, wait_for};
use bestby_tests::ffmpeg::{PICTURES, PORT, agent, ffmpeg, make_media, sums};
use bestby_tests::load::PEER;
use bestby_tests::netns::{Lab, Netns, linked_lab};
use bestby_tests::program::{InMemory, succeed};
use bestby_tests::require;

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

/// `[sent, hear]`: sums of the media's pictures and of its audio.
fn show(
    program: &InMemory,
    lab: &Lab,
    peer: &Netns,
    media: &Path,
    [sent, hear]: &[HashSet<String>; 2],
) -> Arrived {
    let directory = media.parent().unwrap();
    let [came, heard] = ["came.md5", "heard.md5"].map(|name| directory.join(name));
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
    Arrived {
        exact: sums(&came).intersection(sent).count(),
        audio: (sums(&heard).intersection(hear).count(), hear.len()),
    }
}

/// What arrives over a link of 700 kbit/s, for each word of `--media`.
fn arrived<const N: usize>(mode: &str, words: [&str; N]) -> Option<[Arrived; N]> {
    let mut arrived = None;
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        // The lab's own has no room for it.
        let directory = tempfile::tempdir().unwrap();
        let [media, sent, hear] =
            ["media.ts", "sent.md5", "hear.md5"].map(|name| directory.path().join(name));
        let program = &InMemory::new("ffmpeg", directory.path());
        make_media(program, &media, true);
        let mut decode = ffmpeg(program, None);
        decode.arg("-i").arg(&media);
        succeed(&mut write_sums(decode, &sent, &hear));
        let whole = [sums(&sent), sums(&hear)];
        arrived = Some(words.map(|read| {
            let agent = agent(lab, mode, "700kbit", read);
            let arrived = show(program, lab, peer, &media, &whole);
            let counters = &agent.stats()["flows"]["video"];
            println!("{mode}, media {read}: {arrived:?}; {counters}");
            println!("{}", agent.ok("GET", "/v1/media", None));
            assert!(drops(counters, "dropped") > 0, "{counters}");
            agent.ok("DELETE", "/v1/interfaces/v0", None);
            arrived
        }));
    });
    arrived
}

#[test]
fn ts_pictures_of_ffmpeg_in_udp_are_decoded_in_mode_qdisc() {
    if let Some([read, blind]) = arrived("qdisc", ["auto", "off"]) {
        // Nothing is known in the first second of eight.
        assert!(
            read.exact * 4 >= PICTURES && read.exact >= 3 * blind.exact,
            "{read:?}, {blind:?}"
        );
        assert_eq!(read.audio.0, read.audio.1, "{read:?}");
    }
}

/// Mode tc decides as packets come: its pictures are no more than without, and all is heard.
#[test]
fn ts_audio_of_ffmpeg_is_heard_in_mode_tc() {
    if let Some([read]) = arrived("tc", ["auto"]) {
        assert_eq!(read.audio.0, read.audio.1, "{read:?}");
    }
}
