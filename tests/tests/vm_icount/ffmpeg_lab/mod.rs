//! ffmpeg as sender and receiver on both sides of a link with bestby, from the guest's memory.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use bestby_tests::agent::{Agent, file};
use bestby_tests::netns::{Lab, Netns, cgroup_root};
use bestby_tests::program::{InMemory, binary, succeed};
use serde_json::json;

/// Pictures from one key frame to the next: 2 s.
const GROUP: u32 = 50;
/// Length of the media.
const SECONDS: u32 = 12;
/// The port to which they are sent.
pub(crate) const PORT: u16 = 5006;

/// ffmpeg in a namespace; without one where the test itself is.
pub(crate) fn ffmpeg(program: &InMemory, netns: Option<&Netns>) -> Command {
    let mut command = match netns {
        Some(netns) => program.command(netns),
        None => program.command(&Netns::current()),
    };
    command.args(["-hide_banner", "-loglevel", "fatal", "-nostdin"]);
    command
}

/// Some 900 kbit/s of H.264, with B pictures that others refer to and a delimiter in front of each picture; and 64
/// kbit/s of a tone, if it is to be heard.
pub(crate) fn make_media(program: &InMemory, path: &Path, tone: bool) {
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
pub(crate) fn sums(path: &Path) -> HashSet<String> {
    fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.rsplit(',').next()?.trim().to_owned()))
        .collect()
}

/// An agent at the link with one rule: a port, a lifetime, and whether pictures are read (`--media`).
pub(crate) fn agent(lab: &Lab, mode: &str, rate: &str, media: &str) -> Agent {
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
