//! A narrow path: one UDP relay with a rate, a FIFO and losses in one direction, and a delay in both.

use std::{
    collections::VecDeque,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// From the client to the server.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// bytes/s.
    pub(crate) rate: u64,
    /// Datagrams of the FIFO.
    pub(crate) fifo: usize,
    /// Each way.
    pub(crate) delay: Duration,
    /// Whether the nth datagram of this length is lost.
    pub(crate) loses: fn(u64, usize) -> bool,
}

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    client: Mutex<Option<SocketAddr>>,
    /// The relay itself was late by so much at most, ns.
    late: AtomicU64,
}

impl Relay {
    pub(crate) fn new(server: SocketAddr, shape: Shape) -> Self {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = near.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let free = Shape {
            rate: u64::MAX,
            fifo: usize::MAX,
            loses: |_, _| false,
            ..shape
        };
        let sockets = [(&near, &far, shape), (&far, &near, free)];
        let threads = sockets
            .into_iter()
            .enumerate()
            .map(|(way, (from, to, shape))| {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let shared = Arc::clone(&shared);
                thread::spawn(move || run(&from, &to, shape, (way == 0).then_some(server), &shared))
            });
        let threads = threads.collect();
        Self {
            address,
            shared,
            threads,
        }
    }

    pub(crate) fn late(&self) -> Duration {
        Duration::from_nanos(self.shared.late.load(Relaxed))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn run(
    from: &UdpSocket,
    to: &UdpSocket,
    shape: Shape,
    server: Option<SocketAddr>,
    shared: &Shared,
) {
    let mut queue: VecDeque<(Instant, Instant, Vec<u8>)> = VecDeque::new();
    let mut free = Instant::now();
    let mut count = 0;
    let mut buffer = [0; 2048];
    while !shared.stop.load(Relaxed) {
        let now = Instant::now();
        while let Some((_, at, _)) = queue.front()
            && *at <= now
            && let Some((_, at, datagram)) = queue.pop_front()
        {
            let late = now.duration_since(at).as_nanos() as u64;
            shared.late.fetch_max(late, Relaxed);
            if let Some(target) = server.or(*shared.client.lock().unwrap()) {
                let _ = to.send_to(&datagram, target);
            }
        }
        let wait = queue
            .front()
            .map_or(Duration::from_millis(20), |(_, at, _)| {
                at.saturating_duration_since(Instant::now())
            });
        from.set_read_timeout(Some(wait.max(Duration::from_micros(50))))
            .unwrap();
        let Ok((len, source)) = from.recv_from(&mut buffer) else {
            continue;
        };
        let now = Instant::now();
        if server.is_some() {
            *shared.client.lock().unwrap() = Some(source);
        }
        count += 1;
        let waiting = queue.iter().filter(|(leaves, _, _)| *leaves > now).count();
        if (shape.loses)(count, len) || waiting >= shape.fifo {
            continue;
        }
        let nanos = (len as u64).saturating_mul(1_000_000_000) / shape.rate;
        free = free.max(now) + Duration::from_nanos(nanos);
        queue.push_back((free, free + shape.delay, buffer[..len].to_vec()));
    }
}
