//! `bestby discover`: what it finds of senders behind a link, the rules that it would set, and what it refuses.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bestby_tests::agent::wait_for;
use bestby_tests::netns::{self, shell};
use serde_json::{Value, json};

use crate::cli_lab::{Lab, lab, text};

const PEER: &str = "10.9.0.2";

fn rtp(pt: u8, marker: bool, seq: u32, timestamp: u32, ssrc: u32, bytes: usize) -> Vec<u8> {
    let mut out = vec![0x80, pt | u8::from(marker) << 7];
    out.extend((seq as u16).to_be_bytes());
    out.extend(timestamp.to_be_bytes());
    out.extend(ssrc.to_be_bytes());
    out.resize(12 + bytes, 0xa5);
    out
}

fn words(words: &[u32], bytes: usize) -> Vec<u8> {
    let mut out: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    out.resize(bytes, 0x33);
    out
}

/// The last handshake of a listener that grants 400 ms.
fn handshake() -> Vec<u8> {
    let mut of = [0; 20];
    of[0] = 0x8000_0000;
    (of[3], of[4], of[6], of[7], of[9]) = (7, 5, 9, 1500, 0xffff_ffff);
    (of[16], of[19]) = (2 << 16 | 3, 400 << 16 | 400);
    words(&of, 80)
}

fn ts(null: bool) -> Vec<u8> {
    let pid = if null { [0x1f, 0xff] } else { [1, 0] };
    [&[0x47, pid[0], pid[1], 0x10][..], &[0xff; 184]]
        .concat()
        .repeat(7)
}

/// An SFU with two receivers, a listener of SRT, a multiplexer and noise, until told to stop.
fn send(stop: &AtomicBool) {
    let bound = |port: u16| UdpSocket::bind(("10.9.0.1", port)).unwrap();
    let (sfu, srt, mux, noise) = (bound(7882), bound(9000), bound(0), bound(0));
    let stun = words(&[0x0001_0000, 0x2112_a442, 1, 2, 3], 20);
    let began = Instant::now();
    let mut random = 1_u32;
    for n in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        for receiver in 0..2_u16 {
            let to = (PEER, 50_001 + receiver);
            let ssrc = u32::from(receiver) * 16;
            let _ = sfu.send_to(&rtp(111, false, n, n * 960, 1 + ssrc, 80), to);
            for part in 0..3 {
                let packet = rtp(96, part == 2, n * 3 + part, n * 1800, 2 + ssrc, 1000);
                let _ = sfu.send_to(&packet, to);
            }
            if n % 10 == 3 {
                let again = rtp(97, false, n / 10, (n - 2) * 1800, 3 + ssrc, 1002);
                let _ = sfu.send_to(&again, to);
            }
            if n % 50 == 1 {
                let _ = sfu.send_to(&stun, to);
            }
        }
        if n % 25 == 0 {
            let _ = srt.send_to(&handshake(), (PEER, 50_010));
        }
        let since = began.elapsed().as_micros() as u32;
        let _ = srt.send_to(
            &words(&[n, 0xe000_0001 & !(3 << 27), since, 7], 1332),
            (PEER, 50_010),
        );
        let _ = mux.send_to(&ts(n % 4 == 0), (PEER, 1234));
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let junk = words(&[random, random ^ 0x5555_5555, !random, random >> 3], 300);
        let _ = noise.send_to(&junk, (PEER, 6666));
        thread::sleep((Duration::from_millis(20) * (n + 1)).saturating_sub(began.elapsed()));
    }
}

/// Runs something beside a sender, which is given a sign to end.
fn beside(sender: impl FnOnce(&AtomicBool) + Send, run: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| sender(&stop));
        // Whatever happens, the sender ends.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The row of a kind.
fn row<'a>(found: &'a Value, kind: &str) -> &'a Value {
    let rows = found["streams"].as_array().unwrap();
    let row = rows.iter().find(|row| row["kind"] == kind);
    row.unwrap_or_else(|| panic!("no {kind}: {found}"))
}

/// Whether a packet socket is open in this namespace.
fn watched() -> bool {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
    sockets.lines().count() > 1
}

fn names(of: &Value) -> Vec<String> {
    let rules = of.as_array().unwrap().iter();
    rules
        .map(|r| r["flow"]["name"].as_str().unwrap().to_string())
        .collect()
}

#[test]
fn media_that_leave_are_found_and_their_rules_are_saved() {
    lab("# mine\n", |lab| {
        lab.ok("iface attach v0");
        let check = lab.json("doctor");
        let checks = check["checks"].as_array().unwrap();
        let hint = checks.iter().find(|c| c["id"] == "matched").unwrap();
        assert!(
            hint["hint"]
                .as_str()
                .unwrap()
                .contains("bestby discover v0"),
            "{hint}"
        );
        beside(send, || {
            let found = lab.json("discover --seconds 2");
            assert_eq!((&found["dev"], &found["one_of"]), (&json!("v0"), &json!(1)));
            let audio = row(&found, "audio");
            assert_eq!(
                (&audio["rtp_pt"], &audio["clock_hz"], &audio["receivers"]),
                (&json!("111"), &json!(48_000), &json!(2)),
                "{audio}"
            );
            assert_eq!(row(&found, "video")["rtp_pt"], "96");
            assert_eq!(row(&found, "rtx")["repeats"], 96);
            let latency = json!({"ms": 400, "granted": true});
            assert_eq!(row(&found, "srt")["latency"], latency);
            let nulls = row(&found, "ts")["null_percent"].as_u64().unwrap();
            assert!((20..=30).contains(&nulls), "{nulls}");
            assert_eq!(row(&found, "stun")["receivers"], 2);
            assert_eq!(row(&found, "other")["dport"], "6666");
            assert_eq!(names(&found["rules"]), ["audio", "video", "ts", "srt"]);
            assert_eq!(lab.json("flow ls"), json!([]), "discover changed something");

            let said = lab.ok("discover v0 --seconds 2 --save");
            println!("{said}");
            for part in [
                "bestby flow add audio --proto udp --sport 7882 --rtp-pt 111 --lifetime 200ms --priority 0 --save",
                "bestby flow add video --proto udp --sport 7882 --rtp-pt 96 --lifetime 400ms --rtx 97:96 --save",
                "bestby flow add srt --proto udp --sport 9000 --priority 3 --lifetime none --save",
                "bestby flow add ts --proto udp --dport 1234 --lifetime 400ms --save",
                "and written to the file",
            ] {
                assert!(said.contains(part), "{part}: {said}");
            }
            let rules = lab.json("flow ls");
            assert_eq!(names(&rules), ["audio", "video", "ts", "srt"]);
            assert!(rules.as_array().unwrap().iter().all(|r| r["saved"] == true));
            let file = std::fs::read_to_string(lab.path("bestby.toml")).unwrap();
            assert!(
                file.contains("# mine\n") && file.contains("rtx = \"97:96\""),
                "{file}"
            );

            let again = lab.json("discover --seconds 2");
            assert_eq!(again["rules"], json!([]), "{again}");
            assert!(again.get("saved").is_none());
            for (kind, rule) in [
                ("audio", "audio"),
                ("video", "video"),
                ("rtx", "video"),
                ("srt", "srt"),
                ("ts", "ts"),
            ] {
                assert_eq!(row(&again, kind)["flow"], rule, "{again}");
            }
            assert_eq!(row(&again, "other")["flow"], json!(null));
        });
    });
}

#[test]
fn rules_are_added_all_or_none() {
    lab("", |lab| {
        let agent = lab.agent();
        let rule = |name: &str| json!({"flow": {"name": name, "dport": 9, "lifetime": "1s"}, "save": true});
        for (body, why) in [
            (json!([rule("a"), rule("a")]), "already"),
            (json!([]), "no flow rule"),
            (
                json!([rule("a"), {"flow": {"name": "b"}, "save": true}]),
                "neither",
            ),
            (
                json!([rule("a"), {"flow": {"name": "b", "priority": 1}}]),
                "save all",
            ),
        ] {
            let (_, said) = agent.refused("POST", "/v1/flows", Some(body));
            assert!(said.contains(why), "{said}");
            assert_eq!(lab.json("flow ls"), json!([]));
        }
        agent.ok("POST", "/v1/flows", Some(json!([rule("a"), rule("b")])));
        assert_eq!(names(&lab.json("flow ls")), ["a", "b"]);
    });
}

#[test]
fn discover_refuses_what_cannot_be_watched_and_a_second_one() {
    lab("", |lab| {
        lab.refused("discover nope --seconds 1", "no interface nope");
        lab.refused("discover v0 --seconds 0", "1 to 60");
        lab.refused("discover v0 --seconds 1000", "1 to 60");
        lab.refused("discover --seconds 1", "no default route");
        shell("ip link add down0 type veth peer name down1");
        lab.refused("discover down0 --seconds 1", "is down");
        let mut first = lab
            .command(&["discover", "v0", "--seconds", "60"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("the watch", watched);
        lab.refused("discover v0 --seconds 1", "somebody else watches");
        // Its client goes away, and the watch ends.
        first.kill().unwrap();
        first.wait().unwrap();
        wait_for("the end of the first one", || !watched());
        shell("ip route add default via 10.9.0.2 dev v0");
        assert_eq!(lab.json("discover --seconds 1")["dev"], "v0");
    });
}

#[test]
fn discover_ends_with_the_agent_and_with_the_device() {
    lab("", |lab| {
        let child = |lab: &Lab| {
            let mut command = lab.command(&["discover", "v0", "--seconds", "60"]);
            let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let gone = child(lab);
        wait_for("the watch", watched);
        shell("ip link set v0 down");
        let output = gone.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("v0"), "{said}");
        shell("ip link set v0 up");
        let answered = child(lab);
        wait_for("the watch", watched);
        lab.agent().signal(libc::SIGTERM);
        let output = answered.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    });
}

/// Sends audio of a static payload type.
fn audio(from: &str, to: &str, stop: &AtomicBool) {
    let socket = UdpSocket::bind(from).unwrap();
    for n in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let _ = socket.send_to(&rtp(0, false, n, n * 160, 9, 160), to);
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn packets_of_ipv6_and_of_a_tun_device_are_found() {
    lab("", |lab| {
        let _tun = netns::tun("tn0");
        shell(
            "ip addr add fd00::1/64 dev v0 nodad
             ip neigh add fd00::2 lladdr 02:00:00:00:00:02 dev v0
             ip addr add 10.8.0.1/24 dev tn0
             ip link set tn0 up",
        );
        let ipv6 = |stop: &AtomicBool| audio("[fd00::1]:5004", "[fd00::2]:5006", stop);
        beside(ipv6, || {
            let found = lab.json("discover v0 --seconds 1");
            let audio = row(&found, "audio");
            assert_eq!(
                (&audio["src"], &audio["rtp_pt"]),
                (&json!("fd00::1"), &json!("0"))
            );
            assert_eq!(names(&found["rules"]), ["audio"]);
        });
        // Its packets have no header of a link.
        let tun = |stop: &AtomicBool| audio("10.8.0.1:5004", "10.8.0.2:5006", stop);
        beside(tun, || {
            let found = lab.json("discover tn0 --seconds 1");
            assert_eq!(row(&found, "audio")["dst"], "10.8.0.2");
        });
    });
}

/// The program can be run here.
fn has(program: &str) -> Result<(), String> {
    let runs = Command::new(program).arg("-version").output();
    match runs {
        Ok(_) => Ok(()),
        Err(e) => Err(format!("{program}: {e}")),
    }
}

#[test]
fn streams_of_ffmpeg_are_told_apart() {
    if !bestby_tests::require::can(has("ffmpeg")) {
        return;
    }
    lab("", |lab| {
        lab.ok("iface attach v0");
        let mut sender = Command::new("ffmpeg")
            .args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re"])
            .args(["-f", "lavfi", "-i", "testsrc2=size=320x240:rate=25"])
            .args(["-re", "-f", "lavfi", "-i", "sine=frequency=440"])
            .args(["-map", "0", "-c:v", "mpeg4", "-b:v", "900k", "-g", "50"])
            .args(["-f", "rtp", "rtp://10.9.0.2:5006?pkt_size=1200"])
            .args(["-map", "1", "-c:a", "aac", "-b:a", "64k", "-f", "rtp"])
            .arg("rtp://10.9.0.2:5004")
            .args([
                "-map",
                "0",
                "-map",
                "1",
                "-c:v",
                "mpeg2video",
                "-b:v",
                "900k",
            ])
            .args(["-c:a", "mp2", "-f", "mpegts", "-muxrate", "2M"])
            .arg("udp://10.9.0.2:1234?pkt_size=1316")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_secs(2));
        let found = lab.json("discover --seconds 4");
        let shown = lab.ok("discover --seconds 2");
        let running = sender.try_wait().unwrap().is_none();
        let _ = sender.kill();
        let _ = sender.wait();
        println!("{shown}");
        assert!(running, "ffmpeg ended");
        assert_eq!(row(&found, "audio")["dport"], "5004", "{found}");
        assert_eq!(row(&found, "video")["dport"], "5006", "{found}");
        assert_eq!(row(&found, "ts")["dport"], "1234", "{found}");
        assert_eq!(names(&found["rules"]), ["audio", "video", "ts"], "{found}");
    });
}
