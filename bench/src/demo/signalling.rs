//! The TCP connection that every call has beside its media: a question each
//! 200 ms, answered by the client. The kernel measures its round trip, and so
//! bestby learns how far away the client is; the demo measures it too, because
//! it waits in the same queue as the media.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};

use super::{
    account::Delay,
    relay::Worker,
    world::{SERVER, World},
};
use crate::sys::now;

const PORT: u16 = 8443;
const EVERY: Duration = Duration::from_millis(200);

/// The running connection.
#[derive(Debug)]
pub(super) struct Signalling {
    server: TcpStream,
    client: TcpStream,
    round_trips_ms: Arc<Mutex<Vec<f64>>>,
    _workers: [Worker; 3],
}

impl Signalling {
    pub(super) fn start(world: &World) -> Result<Self> {
        let listener = world
            .server
            .enter(|| Ok(TcpListener::bind((SERVER, PORT))?))
            .context("signalling: listening on the server")?;
        let client = world
            .client
            .enter(|| Ok(TcpStream::connect((SERVER, PORT))?))
            .context("signalling: connecting from the client, across the link")?;
        let (server, _) = listener
            .accept()
            .context("signalling: accepting the client")?;
        for socket in [&server, &client] {
            socket.set_nodelay(true)?;
        }

        let round_trips_ms = Arc::new(Mutex::new(Vec::new()));
        let mut ask = server.try_clone()?;
        let mut answers = server.try_clone()?;
        let mut echo = client.try_clone()?;
        let workers = [
            Worker::start("ask", move |stop| {
                while !stop.load(Ordering::Relaxed) && ask.write_all(&now().to_be_bytes()).is_ok() {
                    thread::sleep(EVERY);
                }
                Ok(())
            })?,
            Worker::start("answers", {
                let round_trips = Arc::clone(&round_trips_ms);
                move |_| {
                    let mut asked = [0; 8];
                    while answers.read_exact(&mut asked).is_ok() {
                        let elapsed = now().saturating_sub(u64::from_be_bytes(asked));
                        round_trips
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(elapsed as f64 / 1e6);
                    }
                    Ok(())
                }
            })?,
            Worker::start("echo", move |_| {
                let mut question = [0; 8];
                while echo.read_exact(&mut question).is_ok() && echo.write_all(&question).is_ok() {}
                Ok(())
            })?,
        ];
        Ok(Self {
            server,
            client,
            round_trips_ms,
            _workers: workers,
        })
    }

    /// Round trips answered so far.
    pub(super) fn round_trips(&self) -> Vec<f64> {
        self.round_trips_ms
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits for `count` answers: then the kernel knows the round trip.
    pub(super) fn wait_for(&self, count: usize) -> Result<()> {
        for _ in 0..100 {
            if self.round_trips().len() >= count {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Err(anyhow!("the client does not answer across the empty link"))
    }

    /// Of the answers after the first `skip`.
    pub(super) fn delay_ms(&self, skip: usize) -> Option<Delay> {
        Delay::of(self.round_trips().into_iter().skip(skip).collect())
    }
}

impl Drop for Signalling {
    fn drop(&mut self) {
        // Wakes the threads that read; they are joined right after.
        let _ = self.server.shutdown(Shutdown::Both);
        let _ = self.client.shutdown(Shutdown::Both);
    }
}
