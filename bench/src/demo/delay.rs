//! The long link: everything that enters on one device leaves the other one
//! 40 ms later, unchanged and in order, in both directions. In user space,
//! because many kernels have no netem; what it cost in punctuality is measured
//! and reported.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read as _, Write as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};

use super::{
    account::Delay,
    sys::{be_punctual, packet_socket, readable},
};
use crate::{netns::Netns, sys::now};

/// Longest frame, with its virtio_net_hdr: a segmentation offload of 64 KiB.
const FRAME_MAX: usize = 10 + 14 + 65_536;

/// A running delay line; stops when dropped.
#[derive(Debug)]
pub(super) struct DelayLine {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Vec<f64>>>>,
}

/// One direction: what was read, and when it is due.
struct Direction {
    from: usize,
    waiting: VecDeque<(u64, Vec<u8>)>,
}

impl DelayLine {
    /// Connects the devices `a` and `b` of `namespace` for frames that wait
    /// `delay` on the way.
    pub(super) fn start(namespace: &Netns, a: &str, b: &str, delay: Duration) -> Result<Self> {
        let sockets = namespace.enter(|| {
            let open = |device: &str| {
                packet_socket(device).with_context(|| format!("packet socket on {device}"))
            };
            Ok([open(a)?, open(b)?])
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("link".into()).spawn({
            let stop = Arc::clone(&stop);
            move || carry(sockets, delay.as_nanos() as u64, &stop)
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends it; how much later than due frames left, ms.
    pub(super) fn finish(mut self) -> Result<Option<Delay>> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("the link was stopped twice")?;
        let lateness = thread
            .join()
            .map_err(|_| anyhow!("the link's thread panicked"))?
            .context("the link failed")?;
        Ok(Delay::of(lateness))
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn carry(sockets: [File; 2], delay_ns: u64, stop: &AtomicBool) -> io::Result<Vec<f64>> {
    be_punctual();
    let mut directions = [0, 1].map(|from| Direction {
        from,
        waiting: VecDeque::new(),
    });
    let mut lateness_ms = Vec::new();
    let mut buffer = vec![0; FRAME_MAX];
    while !stop.load(Ordering::Relaxed) {
        let due = directions
            .iter()
            .filter_map(|d| d.waiting.front())
            .map(|f| f.0)
            .min();
        let wait = due.map_or(50_000_000, |due| due.saturating_sub(now()).min(50_000_000));
        let ready = readable([&sockets[0], &sockets[1]], Duration::from_nanos(wait))?;
        for direction in &mut directions {
            let (from, to) = (direction.from, 1 - direction.from);
            if ready[from] {
                read_all(&sockets[from], &mut buffer, |frame| {
                    direction
                        .waiting
                        .push_back((now() + delay_ns, frame.to_vec()));
                })?;
            }
            while let Some((due, frame)) = direction.waiting.pop_front_if(|f| f.0 <= now()) {
                lateness_ms.push((now() - due) as f64 / 1e6);
                // As on a wire: what the other end cannot take is lost.
                match (&sockets[to]).write(&frame) {
                    Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
                    _ => {}
                }
            }
        }
    }
    Ok(lateness_ms)
}

/// Hands over every frame that waits on `socket`.
fn read_all(
    mut socket: &File,
    buffer: &mut [u8],
    mut on_frame: impl FnMut(&[u8]),
) -> io::Result<()> {
    loop {
        match socket.read(buffer) {
            Ok(length) => on_frame(&buffer[..length]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e),
        }
    }
}
