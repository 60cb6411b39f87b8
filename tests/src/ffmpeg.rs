//! ffmpeg as sender and receiver on both sides of a link with bestby; in a guest from the guest's memory. The media are
//! encoded before: while it sends, ffmpeg only copies them.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::agent::{Agent, drops, file, wait_for};
use crate::load::PEER;
use crate::netns::{Lab, Netns, cgroup_root, linked_lab};
use crate::program::{InMemory, binary, succeed};

/// Pictures from one key frame to the next: 2 s.
const GROUP: u32 = 50;
/// Length of the media.
const SECONDS: u32 = 8;
/// Pictures of the media.
pub const PICTURES: usize = 25 * SECONDS as usize;
/// The port to which they are sent.
pub const PORT: u16 = 5006;

/// ffmpeg in a namespace; without one where the test itself is.
pub fn ffmpeg(program: &InMemory, netns: Option<&Netns>) -> Command {
    let mut command = match netns {
        Some(netns) => program.command(netns),
        None => program.command(&Netns::current()),
    };
    command.args(["-hide_banner", "-loglevel", "fatal", "-nostdin"]);
    command
}

/// Some 900 kbit/s of H.264, with B pictures that others refer to and a delimiter in front of each picture; and 64
/// kbit/s of a tone, if it is to be heard.
///
/// # Panics
/// ffmpeg fails.
pub fn make_media(program: &InMemory, path: &Path, tone: bool) {
    let mut make = ffmpeg(program, None);
    make.args(["-f", "lavfi", "-i", "testsrc2=size=320x240:rate=25"]);
    if tone {
        make.args(["-f", "lavfi", "-i", "sine=frequency=440:beep_factor=4"]);
        make.args(["-c:a", "aac", "-b:a", "64k"]);
    }
    make.args(["-t", &SECONDS.to_string(), "-c:v", "libx264"]);
    make.args(["-preset", "veryfast", "-bf", "3", "-pix_fmt", "yuv420p"]);
    make.args(["-g", &GROUP.to_string(), "-sc_threshold", "0"]);
    make.args(["-b:v", "900k", "-maxrate", "900k", "-bufsize", "450k"]);
    make.args(["-x264-params", "aud=1:nal-hrd=cbr", "-f", "mpegts"]);
    succeed(make.arg(path));
}

/// Sums in a file that ffmpeg has written; a player that never had a key frame writes none.
pub fn sums(path: &Path) -> HashSet<String> {
    fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.rsplit(',').next()?.trim().to_owned()))
        .collect()
}

/// An agent at the link with one rule: a port, a lifetime, and whether pictures are read (`--media`).
///
/// # Panics
/// It does not start.
pub fn agent(lab: &Lab, mode: &str, rate: &str, media: &str) -> Agent {
    let config = format!(
        "[[flow]]\nname = \"video\"\nproto = \"udp\"\ndport = {PORT}\nlifetime = \"400ms\"\n\
         media = \"{media}\"\n"
    );
    let socket = lab.dir.join(format!("s-{media}"));
    let mut command = lab.netns.command(binary("bestbyd"));
    command.arg("--socket").arg(&socket);
    command
        .arg("--config")
        .arg(file(lab, "bestby.toml", &config));
    command.arg("--bpffs").arg(&lab.bpffs);
    command.arg("--cgroup").arg(cgroup_root());
    let agent = Agent::spawn(command, socket, lab.dir.join(format!("log-{media}")));
    agent.attach(json!({"dev": "v0", "mode": mode, "rate": rate}));
    agent
}

/// Pictures that arrive and are decoded exactly, of those that were sent.
fn exact(
    program: &InMemory,
    lab: &Lab,
    peer: &Netns,
    media: &Path,
    sent: &HashSet<String>,
) -> usize {
    let directory = media.parent().unwrap();
    let [came, sdp] = ["came.md5", "video.sdp"].map(|name| directory.join(name));
    fs::write(
        &sdp,
        format!(
            "v=0\no=- 0 0 IN IP4 {PEER}\ns=-\nc=IN IP4 {PEER}\nt=0 0\nm=video {PORT} RTP/AVP 96\n\
             a=rtpmap:96 H264/90000\na=fmtp:96 packetization-mode=1\n"
        ),
    )
    .unwrap();
    let _ = fs::remove_file(&came);
    let mut receive = ffmpeg(program, Some(peer));
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
        peer.run("ss -Huln").contains(&format!(":{PORT} "))
    });
    let mut send = ffmpeg(program, Some(&lab.netns));
    send.arg("-re")
        .arg("-i")
        .arg(media)
        .args(["-c", "copy", "-f", "rtp"]);
    succeed(send.arg(format!("rtp://{PEER}:{PORT}?pkt_size=1200")));
    receiver.wait().unwrap();
    let exact = sums(&came).intersection(sent).count();
    if exact == 0 {
        println!("{}", fs::read_to_string(&log).unwrap());
    }
    exact
}

/// Pictures of [`PICTURES`] that are decoded exactly behind a link of this rate, where bestby reads them and where it may
/// not; none if the probe says that this cannot be tried.
///
/// # Panics
/// ffmpeg or the agent fails, or nothing was dropped.
pub fn read_and_blind(mode: &str, rate: &str, probe: Result<(), String>) -> Option<[usize; 2]> {
    let mut pictures = None;
    linked_lab(probe, |lab, peer| {
        // The lab's own has no room for it.
        let directory = tempfile::tempdir().unwrap();
        let media = &directory.path().join("media.ts");
        let program = &InMemory::new("ffmpeg", directory.path());
        make_media(program, media, false);
        let list = directory.path().join("sent.md5");
        let mut decode = ffmpeg(program, None);
        decode.arg("-i").arg(media).args(["-f", "framemd5"]);
        succeed(decode.arg(&list));
        let sent = &sums(&list);
        pictures = Some(["auto", "off"].map(|read| {
            let agent = agent(lab, mode, rate, read);
            let exact = exact(program, lab, peer, media, sent);
            let counters = &agent.stats()["flows"]["video"];
            println!("{mode}, {rate}, media {read}: {exact} exact; {counters}");
            assert!(drops(counters, "dropped") > 0, "{counters}");
            agent.ok("DELETE", "/v1/interfaces/v0", None);
            exact
        }));
    });
    pictures
}
