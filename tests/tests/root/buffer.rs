//! Applications that their own send buffer holds back: where a rule covers them bestby raises it, and says so where it
//! may not. In mode tc, which this kernel has; `vm_icount`'s `buffer` has both modes and what comes of it in time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Duration;

use bestby_tests::agent::{Agent, drops, file, wait_for};
use bestby_tests::load::PEER;
use bestby_tests::netns::{Lab, Netns, cgroup_root, linked_lab};
use bestby_tests::program::binary;
use bestby_tests::{require, socket};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;

/// Covered by a rule, and not.
const VIDEO: u16 = 5006;
const OTHER: u16 = 7000;
/// What ffmpeg asks for, and what the kernel makes of it.
const ASKED: i32 = 32_768;
const GIVEN: i32 = 65_536;

/// Packets of a frame.
const FRAME: u16 = 10;

/// An application that sends 25 frames a second, where it may, as ffmpeg does it: 2.5 Mbit/s, so that a busy host does
/// not make it slower than the link.
struct Application {
    socket: UdpSocket,
    to: SocketAddr,
    sequence: u16,
}

impl Application {
    fn new(lab: &Lab, to: (IpAddr, u16), asks: i32) -> Self {
        let any: IpAddr = match to.0 {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = lab.netns.enter(|| UdpSocket::bind((any, 0)).unwrap());
        let this = Self {
            socket,
            to: to.into(),
            sequence: 0,
        };
        this.ask(asks);
        this
    }

    fn connected(self) -> Self {
        self.socket.connect(self.to).unwrap();
        self
    }

    fn ask(&self, bytes: i32) {
        socket::set(&self.socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes).unwrap();
    }

    fn buffer(&self) -> i32 {
        socket::get(&self.socket, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap()
    }

    /// Each packet when the socket is writable: less than half of the buffer is used.
    fn send(&mut self, packets: u32) {
        let connected = self.socket.peer_addr().is_ok();
        let mut packet = [0; 1200];
        for n in 0..packets {
            if n % u32::from(FRAME) == 0 {
                std::thread::sleep(Duration::from_millis(40));
            }
            let mut writable = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
            poll(&mut writable, PollTimeout::NONE).unwrap();
            packet[..2].copy_from_slice(&[0x80, 96]);
            packet[2..4].copy_from_slice(&self.sequence.to_be_bytes());
            packet[4..8].copy_from_slice(&(u32::from(self.sequence / FRAME) * 3600).to_be_bytes());
            self.sequence = self.sequence.wrapping_add(1);
            match connected {
                true => self.socket.send(&packet),
                false => self.socket.send_to(&packet, self.to),
            }
            .unwrap();
        }
    }

    /// Sends until its buffer is larger than it asked for; how large.
    fn raised(&mut self) -> i32 {
        let before = self.buffer();
        for _ in 0..200 {
            self.send(FRAME.into());
            if self.buffer() > before {
                return self.buffer();
            }
        }
        panic!("its buffer is still {before} bytes");
    }
}

/// The file of an agent with one rule that does this with send buffers.
fn config(switch: &str) -> String {
    format!(
        "[agent]\nsend_buffers = \"{switch}\"\n[[flow]]\nname = \"video\"\nproto = \"udp\"\ndport = {VIDEO}\n\
         lifetime = \"400ms\"\npriority = 4\n"
    )
}

fn agent(lab: &Lab, cgroup: &std::path::Path, switch: &str) -> Agent {
    let config = file(lab, "bestby.toml", &config(switch));
    let socket = lab.dir.join("s");
    let mut command = lab.netns.command(binary("bestbyd"));
    command.arg("--socket").arg(&socket);
    command.arg("--config").arg(config);
    command.arg("--bpffs").arg(&lab.bpffs);
    command.arg("--cgroup").arg(cgroup);
    let agent = Agent::spawn(command, socket, lab.dir.join("log"));
    attach(&agent, false);
    agent
}

fn attach(agent: &Agent, observe: bool) {
    let request = json!({"dev": "v0", "mode": "tc", "rate": "700kbit", "observe": observe});
    agent.attach(request);
}

fn complaints(agent: &Agent) -> String {
    agent.complaints("send buffer").join("\n")
}

fn held_back(agent: &Agent) -> u64 {
    agent.stats()["global"]["held_back"].as_u64().unwrap()
}

fn peer_v6(lab: &Lab, peer: &Netns) -> IpAddr {
    lab.netns.run("ip addr add fd09::1/64 dev v0 nodad");
    peer.run("ip addr add fd09::2/64 dev v1 nodad");
    "fd09::2".parse().unwrap()
}

#[test]
fn buffer_of_covered_socket_is_raised_to_what_the_lifetime_takes() {
    linked_lab(require::root(), |lab, peer| {
        let six = peer_v6(lab, peer);
        let agent = agent(lab, &cgroup_root(), "auto");
        for to in [PEER, six] {
            let mut application = Application::new(lab, (to, VIDEO), ASKED);
            let raised = application.raised();
            // 700 kbit/s for 400 ms are 35,000 bytes on the wire, twice as many as the kernel counts, twice that.
            assert!((2 * 35_000..1 << 20).contains(&raised), "{to}: {raised}");
            // Now packets wait as long as they may: bestby is who decides.
            application.send(400);
            let counters = agent.stats()["flows"]["video"].clone();
            assert!(drops(&counters, "dropped") > 0, "{to}: {counters}");
            assert_eq!(application.buffer(), raised, "{to}");
            // The application asks for less: it is raised again. For more: it has that.
            application.ask(ASKED);
            assert_eq!(application.buffer(), GIVEN, "{to}");
            assert!(application.raised() >= raised / 2, "{to}");
            application.ask(180_000);
            application.send(200);
            assert_eq!(application.buffer(), 360_000, "{to}: lowered");
        }
        assert_eq!(complaints(&agent), "");
    });
}

#[test]
fn buffer_that_is_large_or_of_no_rule_is_left_alone() {
    linked_lab(require::root(), |lab, _| {
        let agent = agent(lab, &cgroup_root(), "auto");
        let mut large = Application::new(lab, (PEER, VIDEO), 180_000);
        large.send(300);
        assert_eq!(large.buffer(), 360_000);
        let mut other = Application::new(lab, (PEER, OTHER), ASKED);
        other.send(150);
        assert_eq!(other.buffer(), GIVEN);
        assert_eq!((held_back(&agent), complaints(&agent)), (0, String::new()));
    });
}

#[test]
fn buffer_is_left_alone_where_the_operator_says_so() {
    linked_lab(require::root(), |lab, _| {
        let agent = agent(lab, &cgroup_root(), "off");
        let mut application = Application::new(lab, (PEER, VIDEO), ASKED);
        application.send(150);
        assert_eq!(application.buffer(), GIVEN);
        assert_eq!((held_back(&agent), complaints(&agent)), (0, String::new()));

        // A warning has the figures, and one that is taken by a reload.
        file(lab, "bestby.toml", &config("warn"));
        agent.signal(libc::SIGHUP);
        wait_for("a reload", || agent.log().contains("read again"));
        application.send(150);
        assert_eq!(application.buffer(), GIVEN);
        assert!(held_back(&agent) > 0);
        let text = complaints(&agent);
        for part in ["video: ", "held back", "lifetime is 400 ms"] {
            assert!(text.contains(part), "{text}");
        }
        let (_, metrics) = agent.request("GET", "/metrics", "");
        assert!(
            metrics.contains("bestby_held_back_lookups_total"),
            "{metrics}"
        );
    });
}

#[test]
fn what_cannot_be_raised_is_said() {
    linked_lab(require::root(), |lab, peer| {
        // Nobody there would be an error of the connected socket.
        let _receiver = peer.enter(|| UdpSocket::bind((PEER, VIDEO)).unwrap());
        let agent = agent(lab, &cgroup_root(), "auto");
        let mut connected = Application::new(lab, (PEER, VIDEO), ASKED).connected();
        connected.send(150);
        assert_eq!(connected.buffer(), GIVEN);
        let text = complaints(&agent);
        assert!(text.contains("connected"), "{text}");
        drop(connected);

        agent.detach("v0");
        attach(&agent, true);
        let mut observed = Application::new(lab, (PEER, VIDEO), ASKED);
        observed.send(150);
        assert_eq!(observed.buffer(), GIVEN);
    });
}

/// ffmpeg as it is, with its two sockets, in a cgroup whose programs can be seen.
#[test]
fn buffers_of_ffmpeg_are_raised_and_the_programs_go() {
    linked_lab(require::root(), |lab, _| {
        let programs = || {
            let shown = std::process::Command::new("bpftool")
                .args(["cgroup", "show"])
                .arg(&lab.cgroup)
                .output()
                .unwrap();
            String::from_utf8_lossy(&shown.stdout)
                .matches("bb_sendmsg")
                .count()
        };
        let agent = agent(lab, &lab.cgroup, "auto");
        assert_eq!(programs(), 0, "nobody has asked");
        let procs = lab.cgroup.join("cgroup.procs");
        let sizes = || {
            // "skmem:(r0,rb212992,t0,tb65536,...": of its sockets, that which sends.
            let all = lab.netns.run("ss -uanmH");
            let words = all.split(',').filter_map(|w| w.strip_prefix("tb"));
            words.filter_map(|w| w.parse::<u64>().ok()).max()
        };
        let media = "testsrc2=size=320x240:rate=25";
        for output in [
            format!("-f rtp 'rtp://{PEER}:{VIDEO}?pkt_size=1200'"),
            format!("-f mpegts 'udp://{PEER}:{VIDEO}?pkt_size=1316'"),
        ] {
            let before = drops(&agent.stats()["flows"]["video"], "dropped");
            let mut shell = lab.netns.command("sh");
            shell.arg("-euc").arg(format!(
                "echo $$ >{}; exec ffmpeg -hide_banner -loglevel error -nostdin -re -f lavfi -i {media} -t 30 -an \
                 -c:v mpeg2video -b:v 1200k {output} >/dev/null",
                procs.display()
            ));
            let mut ffmpeg = shell.spawn().unwrap();
            wait_for("ffmpeg's socket", || sizes().is_some());
            wait_for("a larger buffer", || sizes().is_some_and(|s| s > 65_536));
            wait_for("drops", || {
                drops(&agent.stats()["flows"]["video"], "dropped") > before
            });
            ffmpeg.kill().unwrap();
            ffmpeg.wait().unwrap();
        }
        wait_for("the end of the programs", || programs() == 0);
    });
}
