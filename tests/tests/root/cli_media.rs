//! What an operator sees of streams of video: `media ls`, the frame's row of `explain`, and how many there are by codec.

use std::net::UdpSocket;

use serde_json::{Value, json};

use crate::cli_lab::{Lab, lab, text};

/// Units of H.264 by their header.
const KEY: u8 = 0x65;
const REFERENCE: u8 = 0x41;
const DISPOSABLE: u8 = 0x01;

/// Sends RTP of one stream; a packet is a frame.
struct Sender {
    socket: UdpSocket,
    to: String,
    ssrc: u32,
    number: u16,
}

impl Sender {
    fn new(port: u16, ssrc: u32) -> Self {
        Self {
            socket: UdpSocket::bind("10.9.0.1:5004").unwrap(),
            to: format!("10.9.0.2:{port}"),
            ssrc,
            number: 0,
        }
    }

    fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x80, 0x80 | 96];
        packet.extend(self.number.to_be_bytes());
        packet.extend((u32::from(self.number) * 3000).to_be_bytes());
        packet.extend(self.ssrc.to_be_bytes());
        packet.extend(payload);
        packet
    }

    fn frame(&mut self, payload: &[u8]) {
        self.number += 1;
        let packet = self.packet(payload);
        self.socket.send_to(&packet, &self.to).unwrap();
    }

    /// Groups of ten frames of H.264, of which each second one is disposable.
    fn groups(&mut self, frames: u16) {
        for n in 0..frames {
            let header = match n % 10 {
                0 => KEY,
                n if n % 2 == 1 => DISPOSABLE,
                _ => REFERENCE,
            };
            self.frame(&[header, 1, 2, 3]);
        }
    }
}

/// The only stream of the list.
#[track_caller]
fn stream(lab: &Lab) -> Value {
    let list = lab.json("media ls");
    assert_eq!(list["streams"].as_array().unwrap().len(), 1, "{list}");
    list["streams"][0].clone()
}

/// What `explain` says of a packet with this payload: the row of its frame, and the priority.
fn explained(lab: &Lab, sender: &Sender, payload: &[u8]) -> (Value, u64) {
    let packet = sender.packet(payload);
    let hex: String = packet.iter().map(|b| format!("{b:02x}")).collect();
    let port = sender.to.rsplit_once(':').unwrap().1;
    let asked = format!("explain v0 udp 10.9.0.1:5004 to 10.9.0.2:{port} payload {hex}");
    let answer = lab.json(&asked);
    let sources = answer["sources"].as_array().unwrap();
    let frame = sources.iter().find(|s| s["source"] == "frame");
    (
        frame.cloned().unwrap_or_default(),
        answer["priority"].as_u64().unwrap(),
    )
}

#[test]
fn stream_is_listed_and_explained_once_its_codec_is_known_and_not_before() {
    for mode in ["tc", "auto"] {
        lab("", |lab| {
            lab.ok(&format!("iface attach v0 --enforce --mode {mode}"));
            lab.ok("flow add video --proto udp --dport 6000 --lifetime 10s");
            assert!(lab.ok("media ls").starts_with("no stream of RTP"));
            let mut sender = Sender::new(6000, 7);
            let (frame, priority) = explained(lab, &sender, &[KEY, 1, 2, 3]);
            let says = frame["says"].as_str().unwrap();
            assert!(says.starts_with("no packet of its stream"), "{says}");
            assert_eq!((&frame["decides"], priority), (&json!([]), 3));

            sender.groups(13);
            let learning = stream(lab);
            assert_eq!(learning["codec"], json!(null));
            let of = json!({"codec": "h264", "frames": 12, "of": 32});
            assert_eq!(
                (&learning["learning"], &learning["flow"]),
                (&of, &json!("video"))
            );
            assert!(lab.ok("media ls").contains("H.264? 12 of 32"));
            let (frame, _) = explained(lab, &sender, &[DISPOSABLE, 1, 2, 3]);
            let says = frame["says"].as_str().unwrap();
            assert!(
                says.contains("not known yet (H.264: 12 of 32 frames)"),
                "{says}"
            );

            sender.groups(44);
            let known = stream(lab);
            assert_eq!(known["codec"], "h264");
            let pictures = json!({"levels": 1, "group_frames": 10, "since_key_frames": 3,
                "broken_level": null, "broken_frames": null, "skipped_frames": 0, "repaired": false});
            assert_eq!(known["pictures"], pictures, "{known}");
            let of = [
                &known["dev"],
                &known["src"],
                &known["sport"],
                &known["dst"],
                &known["dport"],
            ];
            let is = json!(["v0", "10.9.0.1", 5004, "10.9.0.2", 6000]);
            assert_eq!(json!(of), is);
            assert_eq!(
                (&known["ssrc"], &known["payload_type"]),
                (&json!("0x00000007"), &json!(96))
            );
            let metrics = lab.agent().request("GET", "/metrics", "").1;
            assert!(
                metrics.contains("bestby_media_streams{codec=\"h264\"} 1"),
                "{metrics}"
            );
            assert!(
                metrics.contains("bestby_media_streams{codec=\"unknown\"} 0"),
                "{metrics}"
            );

            let third = if mode == "tc" { 3 } else { 5 };
            let modes = lab.json("iface ls")[0]["mode"].clone();
            let third = if modes == "tc" { 3 } else { third };
            for (payload, says, priority) in [
                (
                    [KEY, 1, 2, 3],
                    "payload byte 0 = 0x65: H.264 IDR -> key frame",
                    3,
                ),
                (
                    [REFERENCE, 1, 2, 3],
                    "payload byte 0 = 0x41: H.264 slice with NRI 2 -> link of level 0: later frames need it",
                    third,
                ),
                (
                    [DISPOSABLE, 1, 2, 3],
                    "payload byte 0 = 0x01: H.264 slice with NRI 0 -> leaf: no frame needs it",
                    7,
                ),
                (
                    [0x7c, 0x85, 2, 3],
                    "payload byte 1 = 0x85: H.264 IDR in an FU-A -> key frame",
                    3,
                ),
            ] {
                let (frame, is) = explained(lab, &sender, &payload);
                assert_eq!((frame["says"].as_str().unwrap(), is), (says, priority));
                assert_eq!(frame["decides"], json!(["priority"]));
            }
            // The asked classifier has a table of streams of its own: nothing was learnt or forgotten.
            assert_eq!(stream(lab)["pictures"], pictures);
            // Where the operator gives a priority the frame decides nothing.
            lab.ok("flow set video --priority 2");
            let (frame, priority) = explained(lab, &sender, &[DISPOSABLE, 1, 2, 3]);
            assert_eq!((&frame["decides"], priority), (&json!([]), 2));
        });
    }
}

#[test]
fn stream_that_is_not_looked_at_and_one_of_no_codec_say_so() {
    lab("", |lab| {
        lab.ok("iface attach v0 --enforce --mode tc");
        lab.ok("flow add radar --proto udp --dport 6002 --lifetime 10s --media off");
        let mut sender = Sender::new(6002, 8);
        sender.groups(40);
        let off = stream(lab);
        assert_eq!(
            (&off["codec"], &off["learning"]),
            (&json!("off"), &json!(null))
        );
        let (frame, priority) = explained(lab, &sender, &[DISPOSABLE, 1, 2, 3]);
        assert_eq!(frame["says"], "not looked at: the rule has media off");
        assert_eq!(priority, 3);
        let metrics = lab.agent().request("GET", "/metrics", "").1;
        assert!(
            metrics.contains("bestby_media_streams{codec=\"h264\"} 0"),
            "{metrics}"
        );

        lab.ok("flow set radar --media auto");
        // As encryption makes it.
        let mut noise = 7_u64;
        for _ in 0..400 {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            sender.frame(&noise.to_be_bytes());
        }
        assert_eq!(stream(lab)["codec"], "opaque");
        let (frame, _) = explained(lab, &sender, &[DISPOSABLE, 1, 2, 3]);
        let says = frame["says"].as_str().unwrap();
        assert!(says.starts_with("the stream is opaque"), "{says}");
        // What no rule covers is not listed.
        lab.ok("flow rm radar");
        sender.ssrc = 9;
        sender.groups(40);
        let list = lab.json("media ls");
        let ssrcs: Vec<&Value> = list["streams"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| &s["ssrc"])
            .collect();
        assert!(!ssrcs.contains(&&json!("0x00000009")), "{list}");
    });
}

/// RTP with a Dependency Descriptor of a frame in one packet, and a payload as encryption makes it. `template` 0 and 1 are
/// of level 0, 2 of level 1.
fn described(number: u16, template: u8, key: bool) -> Vec<u8> {
    let mut descriptor = vec![0xC0 | template];
    descriptor.extend(number.to_be_bytes());
    if key {
        descriptor.extend([0x80, 0, 0b0001_1100, 0, 0, 0]);
    }
    let mut element = vec![0xC0 | (descriptor.len() as u8 - 1)];
    element.extend(descriptor);
    element.resize(element.len().next_multiple_of(4), 0);
    let mut packet = vec![0x90, 0x80 | 96];
    packet.extend(number.to_be_bytes());
    packet.extend((u32::from(number) * 3000).to_be_bytes());
    packet.extend([0, 0, 0, 7, 0xBE, 0xDE, 0, (element.len() / 4) as u8]);
    packet.extend(element);
    packet.extend(
        u64::from(number)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .to_be_bytes(),
    );
    packet
}

#[test]
fn stream_with_cryptex_is_named_in_lists_metrics_and_doctor() {
    lab("", |lab| {
        lab.ok("iface attach v0 --enforce --mode tc");
        lab.ok("flow add video --proto udp --dport 6000 --lifetime 10s");
        let socket = UdpSocket::bind("10.9.0.1:5004").unwrap();
        let doctor = || lab.json("doctor")["checks"].to_string();
        for (form, known) in [
            ([0xC0, 0xDF], json!(null)),
            ([0xC2, 0xDE], json!("cryptex")),
        ] {
            for n in 1..40 {
                // A descriptor that would be read if its form were in clear.
                let mut packet = described(n, 1, n % 10 == 1);
                packet[12..14].copy_from_slice(&form);
                packet[11] = form[0]; // the SSRC
                socket.send_to(&packet, "10.9.0.2:6000").unwrap();
            }
            let list = lab.json("media ls");
            let streams = list["streams"].as_array().unwrap();
            let ssrc = json!(format!("0x{:08x}", form[0]));
            let of = streams.iter().find(|s| s["ssrc"] == ssrc).unwrap();
            assert_eq!(of["codec"], known, "{list}");
            assert_eq!(doctor().contains("Cryptex"), known != json!(null));
        }
        assert!(lab.ok("media ls").contains("Cryptex"));
        let metrics = lab.agent().request("GET", "/metrics", "").1;
        assert!(
            metrics.contains("bestby_media_streams{codec=\"cryptex\"} 1"),
            "{metrics}"
        );
        let asked = "explain v0 udp 10.9.0.1:5004 to 10.9.0.2:6000 rtp 96 ssrc 194";
        let says = lab.json(asked)["sources"].to_string();
        assert!(says.contains("Cryptex"), "{says}");
    });
}

/// A session description of a camera whose Dependency Descriptor has this id.
fn description(id: u8) -> String {
    format!(
        "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96 97\r\n\
         a=rtpmap:96 VP9/90000\r\na=rtpmap:97 rtx/90000\r\na=fmtp:97 apt=96\r\na=extmap:{id} \
         https://aomediacodec.github.io/av1-rtp-spec/#dependency-descriptor-rtp-header-extension\r\n"
    )
}

/// The codec of a new stream of 33 frames, of which the descriptor's first packet is the first of 32.
fn codec_after_33(lab: &Lab, ssrc: u8) -> Value {
    let socket = UdpSocket::bind("10.9.0.1:5004").unwrap();
    for n in 1..34 {
        let mut packet = described(n, 1 + (n % 2) as u8, n % 10 == 1);
        packet[11] = ssrc;
        packet[4] = ssrc; // else it would repeat another one
        socket.send_to(&packet, "10.9.0.2:6000").unwrap();
    }
    let list = lab.json("media ls");
    let ssrc = json!(format!("0x{ssrc:08x}"));
    let streams = list["streams"].as_array().unwrap();
    streams.iter().find(|s| s["ssrc"] == ssrc).unwrap()["codec"].clone()
}

#[test]
fn ids_learnt_from_a_description_are_tried_first_and_wrong_ones_do_no_harm() {
    lab("# mine\n", |lab| {
        lab.ok("iface attach v0 --enforce --mode tc");
        let offer = lab.path("offer.sdp");
        let learn = format!("media learn conf --sdp {}", offer.display());
        let file = lab.path("bestby.toml");
        std::fs::write(&offer, description(12).replace("apt=96", "apt=x")).unwrap();
        lab.refused(&learn, "offer.sdp:8: fmtp apt has payload type");
        lab.refused(&format!("{learn} --save"), "nothing of it was taken");
        std::fs::write(&offer, description(12)).unwrap();
        let printed = lab.ok(&learn);
        assert!(printed.starts_with("[media.conf]\ndd = 12\n"), "{printed}");
        assert!(printed.contains("rtx = \"97:96\""), "{printed}");
        let add = "flow add video --proto udp --dport 6000 --lifetime 10s --media";
        lab.refused(&format!("{add} conf"), "there is no table [media.conf]");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "# mine\n");
        let taken = learn.replace("conf", "chrome");
        let output = lab.bestby(&taken.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("name of a profile"));

        lab.ok(&format!("{learn} --save"));
        let saved = std::fs::read_to_string(&file).unwrap();
        assert!(
            saved.contains("# mine\n") && saved.contains("[media.conf]\ndd = 12\n"),
            "{saved}"
        );
        lab.ok(&format!("{add} conf"));
        assert_eq!(lab.json("flow show video")["flow"]["media"], "conf");
        let known = json!("dependency-descriptor");
        assert_eq!(codec_after_33(lab, 1), known);
        // By its shape a frame later: the first one showed the id.
        lab.ok("flow set video --media auto");
        assert_eq!(codec_after_33(lab, 2), json!(null));
        lab.ok("flow set video --media chrome");
        assert_eq!(codec_after_33(lab, 3), known);
        // Another server's: as without.
        lab.ok("flow set video --media livekit");
        assert_eq!(codec_after_33(lab, 4), json!(null));
        let socket = UdpSocket::bind("10.9.0.1:5004").unwrap();
        for n in 34..40 {
            let mut packet = described(n, 1 + (n % 2) as u8, n % 10 == 1);
            (packet[4], packet[11]) = (4, 4);
            socket.send_to(&packet, "10.9.0.2:6000").unwrap();
        }
        drop(socket);
        let list = lab.json("media ls")["streams"].clone();
        let of = list
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["ssrc"] == "0x00000004");
        assert_eq!(of.unwrap()["codec"], known);

        // Both ways of the file: what a reload would change, and a rule whose table is gone.
        lab.ok("flow set video --media conf --save");
        let saved = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, saved.replace("dd = 12", "dd = 7")).unwrap();
        assert!(lab.ok("config diff").contains("change [media]"));
        std::fs::write(
            &file,
            saved.replace("media = \"conf\"", "media = \"other\""),
        )
        .unwrap();
        let check = format!("config check {}", file.display());
        let output = lab.bestby(&check.split(' ').collect::<Vec<_>>());
        let said = text(&output.stdout);
        assert!(
            !output.status.success() && said.contains("no table [media.other]"),
            "{said}"
        );
        lab.refused("reload", "no table [media.other]");
        std::fs::write(&file, &saved).unwrap();
        lab.ok("reload");
        lab.ok("flow rm video --save");
        lab.ok(&format!("{add} conf"));
        std::fs::write(&file, "# mine\n").unwrap();
        let reloaded = lab.json("reload")["warnings"].to_string();
        assert!(reloaded.contains("found by their shape"), "{reloaded}");
        assert_eq!(codec_after_33(lab, 5), json!(null));
    });
}

#[test]
fn encrypted_stream_is_known_by_its_descriptor_and_explained_by_it() {
    lab("", |lab| {
        lab.ok("iface attach v0 --enforce --mode tc");
        lab.ok("flow add video --proto udp --dport 6000 --lifetime 10s");
        let socket = UdpSocket::bind("10.9.0.1:5004").unwrap();
        for n in 1..80 {
            let template = if n % 2 == 0 { 1 } else { 2 };
            let packet = described(n, template, n % 10 == 1);
            socket.send_to(&packet, "10.9.0.2:6000").unwrap();
        }
        let known = stream(lab);
        assert_eq!(known["codec"], "dependency-descriptor", "{known}");
        assert_eq!(known["pictures"]["levels"], 2, "{known}");
        assert!(lab.ok("media ls").contains("Dependency Descriptor"));
        for (template, key, says, priority) in [
            (
                0,
                true,
                "header extension begins c0 00 50 80 00 1c 00: Dependency Descriptor -> key frame",
                3,
            ),
            (
                1,
                false,
                "header extension begins c1 00 50: Dependency Descriptor -> link of level 0: later frames need it",
                3,
            ),
            (
                2,
                false,
                "header extension begins c2 00 50: Dependency Descriptor -> leaf: no frame needs it",
                7,
            ),
        ] {
            let packet = described(80, template, key);
            let hex: String = packet.iter().map(|b| format!("{b:02x}")).collect();
            let asked = format!("explain v0 udp 10.9.0.1:5004 to 10.9.0.2:6000 payload {hex}");
            let answer = lab.json(&asked);
            let sources = answer["sources"].as_array().unwrap();
            let frame = sources.iter().find(|s| s["source"] == "frame").unwrap();
            assert_eq!(
                (&frame["says"], &answer["priority"]),
                (&json!(says), &json!(priority))
            );
        }
        // One that is no descriptor's says nothing.
        let bare = "9060005000000000000000070000000001020304";
        let answer = lab.json(&format!(
            "explain v0 udp 10.9.0.1:5004 to 10.9.0.2:6000 payload {bare}"
        ));
        let sources = answer["sources"].as_array().unwrap();
        let frame = sources.iter().find(|s| s["source"] == "frame").unwrap();
        let says =
            "no Dependency Descriptor among its header extensions: nothing is said of its frame";
        assert_eq!(frame["says"], says);
    });
}
