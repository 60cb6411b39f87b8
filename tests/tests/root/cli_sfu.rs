//! The commands of docs/sfu.md, typed as they stand there: each payload type that the server sends has its rule, nothing
//! is dropped before the last command, and all of it outlives the agent.

use std::fs;
use std::path::Path;

use crate::cli_lab::{Lab, lab};

/// The commands below a heading of the page, for the device that the tests have.
fn commands(server: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/sfu.md");
    let page = fs::read_to_string(page).unwrap();
    let heading = format!("\n## {server}\n");
    let (_, section) = page.split_once(&heading).expect(server);
    let block = section.split("```").nth(1).unwrap();
    // A command goes on behind a backslash.
    let block = block.replace("\\\n   ", "");
    let lines = block
        .lines()
        .filter_map(|line| line.strip_prefix("$ bestby "));
    lines.map(|line| line.replace("eth0", "v0")).collect()
}

/// The rule of a packet of this payload type, from this port.
fn rule(lab: &Lab, sport: u16, payload_type: u8) -> String {
    let packet = format!("udp 10.9.0.1:{sport} to 10.9.0.2:6000 rtp {payload_type} ssrc 1");
    lab.json(&format!("explain v0 {packet}"))["flow"]
        .as_str()
        .unwrap()
        .to_string()
}

fn observes(lab: &Lab) -> bool {
    lab.json("iface ls")[0]["observe"].as_bool().unwrap()
}

/// What the server sends from `sport`: audio, and pairs of a video and its retransmissions. `foreign` is nobody's.
struct Server {
    name: &'static str,
    sport: u16,
    audio: &'static [u8],
    video: &'static [u8],
    foreign: &'static [u8],
}

const SERVERS: [Server; 3] = [
    Server {
        name: "LiveKit",
        sport: 7882,
        audio: &[111, 63],
        video: &[
            96, 97, 98, 99, 100, 101, 125, 126, 108, 109, 123, 124, 35, 36,
        ],
        foreign: &[0, 8, 102, 127],
    },
    Server {
        name: "mediasoup",
        sport: 40000,
        audio: &[100],
        video: &[101, 102, 103, 104, 105, 106],
        foreign: &[96, 111],
    },
    Server {
        name: "Janus",
        sport: 20000,
        audio: &[111, 120],
        video: &[96, 97, 98, 100, 101, 107],
        foreign: &[0, 102],
    },
];

#[test]
fn sfu_page_covers_every_payload_type_of_each_server() {
    for server in SERVERS {
        lab("", |lab| {
            let commands = commands(server.name);
            let (last, rest) = commands.split_last().expect("commands");
            for command in rest {
                lab.ok(command);
                assert!(observes(lab), "{command}");
            }
            lab.ok(last);
            assert!(!observes(lab), "{last}");
            // All of it is in the file, and so in force after the next start.
            let saved = fs::read_to_string(lab.path("bestby.toml")).unwrap();
            for part in [
                "dev = \"v0\"",
                "observe = false",
                "name = \"audio\"",
                "rtx = ",
            ] {
                assert!(saved.contains(part), "{part}: {saved}");
            }
            lab.stop();
            lab.start();
            for (types, flow) in [
                (server.audio, "audio"),
                (server.video, "video"),
                (server.foreign, "-"),
            ] {
                for payload_type in types {
                    let found = rule(lab, server.sport, *payload_type);
                    assert_eq!(found, flow, "{} {payload_type}", server.name);
                }
            }
            assert!(!observes(lab));
        });
    }
}
