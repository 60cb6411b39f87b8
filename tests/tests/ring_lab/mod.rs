//! A sender, a router with a slow line, and an unmodified receiver, each in a namespace of its own.

pub(crate) mod pictures;

use std::{
    fs,
    io::Read as _,
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bestby_tests::netns::Netns;

/// Three namespaces in a row; what is in the middle has the line's rate.
pub(crate) struct Line {
    pub(crate) sender: Netns,
    pub(crate) router: Netns,
    pub(crate) receiver: Netns,
}

const RECEIVER: &str = "10.9.1.2";

impl Line {
    /// `rate` in kbit/s; a FIFO of 60 packets in front of it.
    pub(crate) fn new(rate: u32) -> Self {
        let (sender, router, receiver) = (Netns::new(), Netns::new(), Netns::new());
        sender.link("a0", "10.9.0.1/24", &router, "a1", "10.9.0.2/24");
        router.link("b0", "10.9.1.1/24", &receiver, "b1", "10.9.1.2/24");
        sender.run("ip route add 10.9.1.0/24 via 10.9.0.2");
        receiver.run("ip route add 10.9.0.0/24 via 10.9.1.1");
        router.enter(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
        // One packet sent is one packet queued; the bucket holds one.
        sender.run("ip link set a0 gso_max_segs 1");
        let line = format!("tc qdisc add dev b0 root tbf rate {rate}kbit burst 1600 limit 90000");
        router.run(&line);
        Self {
            sender,
            router,
            receiver,
        }
    }

    /// A line to a receiver `owd` ms away that loses so many packets in 100 (netem: the newest kernels only).
    pub(crate) fn far(rate: u32, owd: u32, loss: u32) -> Self {
        let line = Self::new(rate);
        let netem = format!("root netem limit 10000 delay {owd}ms");
        line.receiver.run(&format!("tc qdisc add dev b1 {netem}"));
        let netem = format!("tc qdisc add dev a0 {netem} loss {loss}%");
        line.sender.run(&netem);
        line
    }

    /// The receiver of [`Line::far`] is so many ms away from now on.
    pub(crate) fn moves_to(&self, owd: u32) {
        let netem = format!("root netem limit 10000 delay {owd}ms");
        self.receiver
            .run(&format!("tc qdisc change dev b1 {netem}"));
        self.sender.run(&format!("tc qdisc change dev a0 {netem}"));
    }

    /// A connection over the line; sender's end first.
    pub(crate) fn connect(&self, congestion_control: &str) -> (TcpStream, TcpStream) {
        let listener = self
            .receiver
            .enter(|| TcpListener::bind((RECEIVER, 0)).unwrap());
        let address = listener.local_addr().unwrap();
        let near = self.sender.enter(|| TcpStream::connect(address).unwrap());
        set_congestion_control(&near, congestion_control);
        let far = listener.accept().unwrap().0;
        (near, far)
    }
}

fn set_congestion_control(socket: &TcpStream, name: &str) {
    // SAFETY: the kernel reads the name's bytes.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{name}: {}", std::io::Error::last_os_error());
}

/// Of the paper's experiments and the lab's, those that this kernel has.
pub(crate) fn congestion_controls() -> Vec<&'static str> {
    let have = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let all = ["reno", "cubic", "bbr"].into_iter();
    all.filter(|name| have.split_whitespace().any(|word| word == *name))
        .collect()
}

/// A frame of the tests' protocol: length behind it, number, then bytes that follow from the number.
pub(crate) fn frame(number: u32, bytes: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(bytes);
    frame.extend_from_slice(&(bytes as u32 - 8).to_be_bytes());
    frame.extend_from_slice(&number.to_be_bytes());
    frame.extend((8..bytes).map(|n| (n as u32 ^ number) as u8));
    frame
}

/// Reads whole frames until the stream ends, and says which and when; a torn one fails the test.
pub(crate) struct Receiver {
    thread: thread::JoinHandle<()>,
    frames: mpsc::Receiver<(u32, Instant)>,
}

impl Receiver {
    pub(crate) fn new(mut stream: TcpStream) -> Self {
        let (sender, frames) = mpsc::channel();
        let thread = thread::spawn(move || {
            loop {
                let mut header = [0; 8];
                match stream.read(&mut header[..1]) {
                    Ok(1) => {}
                    _ => return,
                }
                stream.read_exact(&mut header[1..]).unwrap();
                let field = |at: usize| u32::from_be_bytes(*header[at..].first_chunk().unwrap());
                let (len, number) = (field(0) as usize, field(4));
                assert!(len < 1 << 24, "torn: {len}");
                let mut rest = vec![0; len];
                stream.read_exact(&mut rest).unwrap();
                assert_eq!(rest, frame(number, len + 8)[8..], "torn");
                if sender.send((number, Instant::now())).is_err() {
                    return;
                }
            }
        });
        Self { thread, frames }
    }

    /// All frames, after the sender's end is closed.
    pub(crate) fn end(self) -> Vec<(u32, Instant)> {
        let frames = self.frames.iter().collect();
        self.thread.join().unwrap();
        frames
    }
}

/// Looks at what the kernel holds unsent, every 5 ms.
pub(crate) struct Unsent {
    thread: thread::JoinHandle<Vec<i32>>,
    stop: Arc<AtomicBool>,
}

impl Unsent {
    pub(crate) fn of(socket: &TcpStream) -> Self {
        const SIOCOUTQNSD: libc::c_ulong = 0x894B;
        let (socket, stop) = (
            socket.try_clone().unwrap(),
            Arc::new(AtomicBool::new(false)),
        );
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut seen = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let mut bytes = 0;
                // SAFETY: the kernel writes one int.
                let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCOUTQNSD, &raw mut bytes) };
                assert_eq!(done, 0);
                seen.push(bytes);
                thread::sleep(Duration::from_millis(5));
            }
            seen
        });
        Self { thread, stop }
    }

    /// So many bytes at most in 99 of 100 looks.
    pub(crate) fn p99(self) -> i32 {
        self.stop.store(true, Ordering::Relaxed);
        let mut seen = self.thread.join().unwrap();
        seen.sort_unstable();
        seen[seen.len() * 99 / 100]
    }
}
