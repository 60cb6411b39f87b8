//! Programs over QUIC (quinn), both ends in one process with two threads.

use std::{
    future::Future,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use bestby::{
    Deadline, Metadata, Priority,
    quic::{ALPN, Fate, Metered, Options, Receiver, ReceiverOptions, Sender, transport_config},
};
use bytes::Bytes;
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, SendStream, ServerConfig, TokioRuntime,
    TransportConfig, VarInt,
    congestion::{BbrConfig, CubicConfig, NewRenoConfig},
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc,
    time::{self, Instant},
};

use super::{Congestion, Frames, Program, Seen, Task, Times, arrival, frame};
use crate::{
    netns::Netns,
    sys,
    topology::{Path, RECEIVER},
    traffic::{Schedule, sender::Sent},
};

const PORT: u16 = 5050;
/// The code of a reset at the deadline.
const GIVEN_UP: VarInt = VarInt::from_u32(1);
/// Threads of both ends together.
const THREADS: usize = 2;
/// The tests' certificate, for `localhost`.
const CERTIFICATE: &[u8] = include_bytes!("../../../client/tests/tls/cert.der");
const KEY: &[u8] = include_bytes!("../../../client/tests/tls/key.der");

/// What tasks write down.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Seen>>);

impl Log {
    fn put(&self, write: impl FnOnce(&mut Seen)) {
        // What others wrote before a panic stays right.
        write(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

pub(super) fn run(
    path: &Path,
    task: &Task<'_>,
    times: impl FnOnce() -> Times,
) -> Result<(Times, Seen)> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()?;
    let (ends, near, far) = connect(&runtime, path, task)?;
    let (log, schedule) = (Log::default(), Arc::new(task.schedule.clone()));
    let times = times();
    let _context = runtime.enter();
    tokio::spawn(receive(far, task.program, schedule, times, log.clone()));
    let mut submit = submitter(task, near.clone(), &log);
    let sent = Sent::at_times(task.schedule, times.start, |_, packet, record| {
        let lifetime = match task.deadline_srtts {
            0.0 => packet.lifetime,
            srtts => (near.rtt().as_nanos() as f64 * srtts) as u64,
        };
        log.put(|seen| seen.rtts.push(near.rtt().as_nanos() as u64));
        let adu = frame(record.sequence, packet);
        submit(
            record.sequence,
            packet.stream,
            packet.priority,
            adu.into(),
            record.created + lifetime,
        )
    })?;
    sys::sleep_until(times.end);
    // Tasks that wait end with the connection, and the runtime with its tasks.
    near.close(GIVEN_UP, b"");
    drop((submit, ends));
    runtime.shutdown_timeout(Duration::from_secs(5));
    let mut seen = std::mem::take(&mut *log.0.lock().unwrap_or_else(PoisonError::into_inner));
    seen.late = sent.latest;
    Ok((times, seen))
}

/// Takes an ADU: position, stream, priority, payload, deadline (ns).
type Submit<'a> = Box<dyn FnMut(u32, u16, u8, Bytes, u64) -> Result<()> + 'a>;

fn submitter<'a>(task: &Task<'a>, near: Connection, log: &Log) -> Submit<'a> {
    let (log, program) = (log.clone(), task.program);
    match program {
        Program::Bestby => {
            let sender = Sender::new(near, Options::new());
            tokio::spawn(outcomes(sender.clone(), log));
            Box::new(move |_, _, priority, adu, deadline| {
                let metadata = Metadata::new()
                    .deadline(Deadline::from_monotonic_ns(deadline))
                    .priority(Priority::new(priority)?);
                // Its tickets count as the schedule does.
                sender.send(adu, metadata)?;
                Ok(())
            })
        }
        Program::Stream => {
            let streams = (0..task.schedule.streams()).map(|_| {
                let (adus, taken) = mpsc::unbounded_channel();
                tokio::spawn(one_stream(near.clone(), taken));
                adus
            });
            let streams: Vec<_> = streams.collect();
            Box::new(move |_, stream, _, adu, _| {
                streams[usize::from(stream)]
                    .send(adu)
                    .map_err(|_| anyhow!("a QUIC stream ended"))
            })
        }
        _ => Box::new(move |sequence, _, priority, adu, deadline| {
            let until = (program == Program::Reset).then_some(deadline);
            tokio::spawn(own_stream(
                near.clone(),
                sequence,
                priority,
                adu,
                until,
                log.clone(),
            ));
            Ok(())
        }),
    }
}

/// Takes down what becomes of a sender's ADUs.
async fn outcomes(sender: Sender, log: Log) {
    loop {
        let outcomes = sender.outcomes().await;
        if outcomes.is_empty() {
            return;
        }
        let resets = sender.stats().resets;
        log.put(|seen| {
            for outcome in outcomes {
                match outcome.fate {
                    Fate::Sent { .. } => {
                        let sequence = outcome.ticket.number() as u32;
                        seen.acknowledged.push((sequence, outcome.more.ended));
                    }
                    Fate::GivenUp(_) => seen.given_up += 1,
                }
            }
            seen.resets = resets;
        });
    }
}

/// Writes ADUs to one stream, one after the other.
async fn one_stream(near: Connection, mut adus: mpsc::UnboundedReceiver<Bytes>) -> Result<()> {
    let mut stream = near.open_uni().await?;
    while let Some(adu) = adus.recv().await {
        stream.write_chunk(adu).await?;
    }
    Ok(stream.finish()?)
}

/// Writes an ADU to a stream of its own; until its deadline, if it has one.
async fn own_stream(
    near: Connection,
    sequence: u32,
    priority: u8,
    adu: Bytes,
    until: Option<u64>,
    log: Log,
) -> Result<()> {
    let Some(stream) = in_time(until, near.open_uni()).await else {
        log.put(|seen| seen.given_up += 1);
        return Ok(());
    };
    let mut stream = stream?;
    stream.set_priority(-i32::from(priority))?;
    match in_time(until, acknowledged(&mut stream, adu)).await {
        Some(result) => {
            result?;
            log.put(|seen| seen.acknowledged.push((sequence, sys::now())));
        }
        None => {
            stream.reset(GIVEN_UP)?;
            log.put(|seen| (seen.given_up, seen.resets) = (seen.given_up + 1, seen.resets + 1));
        }
    }
    Ok(())
}

async fn acknowledged(stream: &mut SendStream, adu: Bytes) -> Result<()> {
    stream.write_chunk(adu).await?;
    stream.finish()?;
    stream.stopped().await?;
    Ok(())
}

/// What `work` gives by then (ns).
async fn in_time<T>(until: Option<u64>, work: impl Future<Output = T>) -> Option<T> {
    let Some(until) = until else {
        return Some(work.await);
    };
    let left = Duration::from_nanos(until.saturating_sub(sys::now()));
    time::timeout_at(Instant::now() + left, work).await.ok()
}

/// Receives until the connection ends.
async fn receive(
    far: Connection,
    program: Program,
    schedule: Arc<Schedule>,
    times: Times,
    log: Log,
) {
    let arrived = move |log: &Log, bytes: usize, whole: Vec<u32>| {
        let in_time = sys::now() <= times.made;
        log.put(|seen| {
            seen.received += if in_time { bytes as u64 } else { 0 };
            seen.arrivals.extend(whole.into_iter().map(arrival));
        });
    };
    if program == Program::Bestby {
        let mut receiver = Receiver::new(far, ReceiverOptions::new());
        while let Ok(adu) = receiver.recv().await {
            arrived(&log, adu.payload.len(), vec![adu.id as u32]);
        }
        return;
    }
    while let Ok(mut stream) = far.accept_uni().await {
        let (schedule, log) = (schedule.clone(), log.clone());
        tokio::spawn(async move {
            let mut frames = Frames::default();
            // A reset is the end of a stream, too.
            while let Ok(Some(chunk)) = stream.read_chunk(64 << 10, true).await {
                let whole = frames.take(&chunk.bytes, &schedule)?;
                arrived(&log, chunk.bytes.len(), whole);
            }
            anyhow::Ok(())
        });
    }
}

/// Both ends, and the connection as each of them has it.
fn connect(
    runtime: &Runtime,
    path: &Path,
    task: &Task<'_>,
) -> Result<((Endpoint, Endpoint), Connection, Connection)> {
    let socket = |ns: &Netns, port: u16| {
        ns.enter(|| {
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))
                .with_context(|| format!("binding QUIC's port {port}"))
        })
    };
    let (here, there) = (socket(path.sender(), 0)?, socket(path.receiver(), PORT)?);
    let transport = Arc::new(transport(task)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate = CertificateDer::from(CERTIFICATE);
    let versions = &[&rustls::version::TLS13];

    let mut server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.clone()],
            PrivateKeyDer::from(PrivatePkcs8KeyDer::from(KEY)),
        )?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    let mut server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(server)?));
    server.transport_config(transport.clone());

    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate)?;
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![ALPN.to_vec()];
    let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client)?));
    client.transport_config(transport);

    let _context = runtime.enter();
    let end = |config, socket| {
        Endpoint::new(
            EndpointConfig::default(),
            config,
            socket,
            Arc::new(TokioRuntime),
        )
    };
    let (near, far) = (end(None, here)?, end(Some(server), there)?);
    let to = SocketAddr::V4(SocketAddrV4::new(RECEIVER, PORT));
    let connecting = near.connect_with(client, to, "localhost")?;
    let accepting = far.clone();
    let accepting = tokio::spawn(async move {
        let incoming = accepting.accept().await.context("no connection came")?;
        anyhow::Ok(incoming.await?)
    });
    let one = runtime.block_on(connecting)?;
    let other = runtime.block_on(accepting)??;
    Ok(((near, far), one, other))
}

/// The same for all: that of the crate, with this congestion control. bestby's counts around it.
fn transport(task: &Task<'_>) -> Result<TransportConfig> {
    let mut transport = transport_config();
    let metered = task.program == Program::Bestby;
    macro_rules! control {
        ($kind:ident) => {
            match metered {
                true => transport
                    .congestion_controller_factory(Arc::new(Metered::new($kind::default()))),
                false => transport.congestion_controller_factory(Arc::new($kind::default())),
            }
        };
    }
    match task.congestion {
        Congestion::Reno => control!(NewRenoConfig),
        Congestion::Cubic => control!(CubicConfig),
        Congestion::Bbr => control!(BbrConfig),
        other => bail!("QUIC has no `{other}`"),
    };
    Ok(transport)
}
