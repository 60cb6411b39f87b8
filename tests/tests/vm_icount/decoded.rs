//! What a viewer sees of a real sender: ffmpeg sends what x264 encoded over a link that is too narrow for it, and ffmpeg
//! decodes what arrives. A picture counts if it is exactly the one that was encoded.
//!
//! In virtual time. The media are encoded before; while it sends, ffmpeg only copies them.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use bestby_tests::agent::{Agent, drops, file, wait_for};
use bestby_tests::load::PEER;
use bestby_tests::netns::{Lab, Netns, cgroup_root, linked_lab};
use bestby_tests::program::{InMemory, binary, succeed};
use bestby_tests::require;
use serde_json::json;

const VIDEO: u16 = 5006;
const SECONDS: u32 = 12;
/// Pictures from one key frame to the next: 2 s.
const GROUP: u32 = 50;

fn ffmpeg(program: &InMemory, netns: &Netns) -> Command {
    let mut command = program.command(netns);
    command.args(["-hide_banner", "-loglevel", "fatal", "-nostdin"]);
    command
}

/// Some 900 kbit/s, with B pictures that others refer to and a delimiter in front of each picture.
fn make_media(program: &InMemory, path: &Path) {
    let mut make = ffmpeg(program, &Netns::current());
    make.args(["-f", "lavfi", "-i", "testsrc2=size=320x240:rate=25"]);
    make.args(["-t", &SECONDS.to_string(), "-c:v", "libx264"]);
    make.args(["-preset", "veryfast", "-bf", "3", "-pix_fmt", "yuv420p"]);
    make.args(["-g", &GROUP.to_string(), "-sc_threshold", "0"]);
    make.args(["-b:v", "900k", "-maxrate", "900k", "-bufsize", "450k"]);
    make.args(["-x264-params", "aud=1:nal-hrd=cbr", "-f", "mpegts"]);
    succeed(make.arg(path));
}

/// Sums of the pictures in a file that ffmpeg has written; a player that never had a key frame writes none.
fn sums(path: &Path) -> HashSet<String> {
    fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.rsplit(',').next()?.trim().to_owned()))
        .collect()
}

/// Pictures that arrive and are decoded exactly, of those that were sent.
fn exact(program: &InMemory, lab: &Lab, peer: &Netns, media: &Path) -> usize {
    let directory = media.parent().unwrap();
    let [sent, came, sdp] = ["sent.md5", "came.md5", "video.sdp"].map(|name| directory.join(name));
    let mut decode = ffmpeg(program, &Netns::current());
    succeed(
        decode
            .arg("-y")
            .arg("-i")
            .arg(media)
            .args(["-f", "framemd5"])
            .arg(&sent),
    );
    fs::write(
        &sdp,
        format!(
            "v=0\no=- 0 0 IN IP4 {PEER}\ns=-\nc=IN IP4 {PEER}\nt=0 0\nm=video {VIDEO} RTP/AVP 96\n\
             a=rtpmap:96 H264/90000\na=fmtp:96 packetization-mode=1\n"
        ),
    )
    .unwrap();
    let _ = fs::remove_file(&came);
    let mut receive = ffmpeg(program, peer);
    receive
        .args(["-protocol_whitelist", "file,udp,rtp", "-i"])
        .arg(&sdp);
    // It ends with the sender's BYE, or when nothing has come for 10 s.
    receive
        .args(["-fps_mode", "passthrough", "-f", "framemd5"])
        .arg(&came);
    let log = directory.join("receiver.log");
    receive.args(["-loglevel", "info"]);
    let mut receiver = receive
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    wait_for("the receiver's port", || {
        peer.run("ss -Huln").contains(&format!(":{VIDEO} "))
    });
    let mut send = ffmpeg(program, &lab.netns);
    send.arg("-re")
        .arg("-i")
        .arg(media)
        .args(["-c", "copy", "-f", "rtp"]);
    succeed(send.arg(format!("rtp://{PEER}:{VIDEO}?pkt_size=1200")));
    receiver.wait().unwrap();
    let exact = sums(&came).intersection(&sums(&sent)).count();
    if exact == 0 {
        println!("{}", fs::read_to_string(&log).unwrap());
    }
    exact
}

/// The file of an agent with one rule: a port, a lifetime, and whether pictures are read.
fn config(media: &str) -> String {
    format!(
        "[[flow]]\nname = \"video\"\nproto = \"udp\"\ndport = {VIDEO}\nlifetime = \"400ms\"\n\
         media = \"{media}\"\n"
    )
}

/// Exact pictures of so many over a link of this rate, where bestby reads them and where it may not.
fn read_and_blind(mode: &str, rate: &str, probe: Result<(), String>) -> Option<[usize; 2]> {
    let mut pictures = None;
    linked_lab(probe, |lab, peer| {
        // The lab's own has no room for it.
        let directory = tempfile::tempdir().unwrap();
        let media = &directory.path().join("media.ts");
        let program = &InMemory::new("ffmpeg", directory.path());
        make_media(program, media);
        pictures = Some(["auto", "off"].map(|read| {
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
            let exact = exact(program, lab, peer, media);
            let counters = &agent.stats()["flows"]["video"];
            println!("{mode}, {rate}, media {read}: {exact} exact; {counters}");
            assert!(drops(counters, "dropped") > 0, "{counters}");
            agent.ok("DELETE", "/v1/interfaces/v0", None);
            exact
        }));
    });
    pictures
}

/// Of 300: B pictures that no other needs go first, half of the pictures, evenly.
#[test]
fn pictures_of_ffmpeg_are_decoded_in_mode_qdisc() {
    if let Some([read, blind]) = read_and_blind("qdisc", "700kbit", require::bpf_qdisc()) {
        assert!(read >= 110 && read >= 2 * blind, "{read}, {blind}");
    }
}

/// The same behind mode tc, which decides as packets come. There are no parameter sets but those in the stream.
#[test]
fn pictures_of_ffmpeg_are_decoded_in_mode_tc() {
    if let Some([read, blind]) = read_and_blind("tc", "700kbit", require::root()) {
        assert!(read >= 110 && read > blind, "{read}, {blind}");
    }
}
