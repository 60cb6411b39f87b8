//! `bestby top` at a terminal, and `stats`, with an agent in mode tc: what fits, what keys do while the agent hangs.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::pty::{Winsize, openpty};

use crate::cli_lab::{Lab, lab};
use bestby_tests::agent::wait_for;

const CONFIG: &str = "
[[interface]]
dev = \"v0\"
mode = \"tc\"
rate = \"1mbit\"
observe = true

[[flow]]
name = \"a-flow-rule-with-a-name-longer-than-any-screen-has-room-in-it\"
dport = 5004
lifetime = \"10ms\"
";

/// A command at a terminal of its own; ends with it.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<vt100::Parser>>,
    width: u16,
}

impl Terminal {
    fn start(mut command: Command, width: u16) -> Self {
        let size = Winsize {
            ws_row: 30,
            ws_col: width,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        let child = command
            .stdin(end(&pty.slave))
            .stdout(end(&pty.slave))
            .stderr(end(&pty.slave))
            .spawn()
            .unwrap();
        drop(pty.slave);
        let keyboard = File::from(pty.master);
        let mut output = keyboard.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(30, width, 0)));
        let shown = screen.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the command has closed the other end.
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..n]);
            }
        });
        Self {
            child,
            keyboard,
            screen,
            width,
        }
    }

    fn text(&self) -> String {
        let screen = self.screen.lock().unwrap();
        screen
            .screen()
            .rows(0, self.width)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[track_caller]
    fn shows(&self, what: &str) {
        wait_for(what, || self.text().contains(what));
    }

    #[track_caller]
    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn ends(mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

fn send(packets: usize) {
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    for _ in 0..packets {
        socket.send_to(&[0; 500], ("10.9.0.2", 5004)).unwrap();
    }
}

fn top(lab: &Lab, width: u16) -> Terminal {
    Terminal::start(lab.command(&["top"]), width)
}

#[test]
fn top_fits_its_terminal_and_obeys_keys_while_the_agent_hangs() {
    lab(CONFIG, |lab| {
        lab.ok("session set 10.9.0.2 --owd 40ms");
        send(5);
        for width in [60, 80, 120, 200] {
            let mut at = top(lab, width);
            at.shows("v0/10.9.0.2");
            let text = at.text();
            // Whole headings: a number that lost its first digits would be another one.
            for heading in [
                "INTERFACE",
                "SESSION",
                "  IN ",
                " SENT ",
                "DROPPED",
                "WOULD",
            ] {
                assert!(text.contains(heading), "{width}: {text}");
            }
            assert_eq!(text.contains("LATE ALL"), width >= 120, "{text}");
            assert!(
                text.contains("a-flow-rule") && text.contains("in-it"),
                "{text}"
            );
            at.press("q");
            assert!(at.ends());
        }

        let mut at = top(lab, 80);
        at.shows("per second");
        lab.agent().signal(libc::SIGSTOP);
        at.shows("no answer for ");
        at.press("s");
        at.shows("by would-drop");
        at.press("/nothing-has-this-name\r");
        wait_for("the filter", || !at.text().contains("v0/10.9.0.2"));
        at.press("\x1b");
        at.shows("v0/10.9.0.2");
        // With the agent awake again the line goes away by itself.
        lab.agent().signal(libc::SIGCONT);
        wait_for("the answer", || !at.text().contains("no answer"));
        at.press("\r");
        at.shows("40ms (set, ");
        // When the stream of notices is open cannot be seen: packets go until one is told of.
        wait_for("the histogram", || {
            send(1);
            let text = at.text();
            let line = text.lines().find(|l| l.contains("10 to 100ms late"));
            line.is_some_and(|l| l.contains('#'))
        });
        at.shows("WOULD DROP");
        lab.agent().signal(libc::SIGSTOP);
        at.press("q");
        assert!(at.ends());
        lab.agent().signal(libc::SIGCONT);

        // An agent that is gone is told of, too, and does not end what is looked at.
        let mut at = top(lab, 80);
        at.shows("per second");
        lab.stop();
        at.shows("no agent answers");
        lab.start();
        wait_for("the answer", || !at.text().contains("no answer"));
        at.press("q");
        assert!(at.ends());
    });
}

#[test]
fn top_in_a_pipe_is_text_with_whole_names() {
    lab(CONFIG, |lab| {
        send(5);
        let text = lab.ok("top --count 1 --sort in");
        assert!(text.contains("longer-than-any-screen"), "{text}");
        assert!(
            text.contains("sorted by in") && !text.contains('\x1b'),
            "{text}"
        );
    });
}

#[test]
fn stats_show_one_flow_the_first_rows_and_what_the_leaves_hold() {
    lab("", |lab| {
        lab.ok("iface attach v0 --enforce --mode tc --rate 1mbit");
        lab.ok("flow add audio --dport 5004 --lifetime 10s");
        lab.ok("flow add video --dport 5005 --lifetime 10s");
        // 1 Mbit/s: 40 packets of 542 bytes take 170 ms, so some are still in the tree.
        send(40);
        let stats = lab.json("stats");
        let leaves = stats["leaves"]["v0"].as_array().unwrap();
        assert_eq!(leaves.len(), 9, "{stats}");
        let sum = |key: &str| leaves.iter().map(|l| l[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!(
            sum("queued") + sum("packets_sent") + sum("dropped"),
            40,
            "{stats}"
        );
        let longest = leaves.iter().find(|l| l["holds"] == "longer lifetimes");
        assert_eq!(longest.unwrap()["dropped"], 0, "{stats}");
        // A packet that came now would wait for all before it: 8 us a byte.
        let mut before = 0;
        for leaf in &leaves[..8] {
            before += leaf["queued_bytes"].as_u64().unwrap();
            assert_eq!(leaf["delay_ns"], before * 8_000, "{stats}");
        }
        assert!(before > 0, "{stats}");
        let text = lab.ok("stats");
        assert!(text.contains("DELAY NOW"), "{text}");
        assert!(
            text.contains("v0 longer lifetimes") && !text.contains("v0 plain"),
            "{text}"
        );

        let one = lab.json("stats audio");
        assert_eq!(one["flows"].as_object().unwrap().len(), 1, "{one}");
        assert_eq!(one["flows"]["audio"]["packets_in"], 40, "{one}");
        lab.refused("stats audoi", "did you mean audio?");
        let text = lab.ok("stats --sort in --top 1");
        assert!(text.contains("audio") && !text.contains("video"), "{text}");

        let mut at = Terminal::start(lab.command(&["stats", "--sort", "in"]), 60);
        assert!(at.child.wait().unwrap().success());
        at.shows("too narrow for");
        assert!(at.text().contains("DROPPED"), "{}", at.text());
        lab.ok("iface detach v0");
    });
}
