//! Reads all streams of a connection, in the task of whoever asks for the next ADU.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use quinn::{Connection, ConnectionError, ReadError, RecvStream};

use super::{
    BAD_HEADER, TOO_LARGE,
    frame::{BadHeader, Header},
    inbox::Inbox,
    types::{Adu, Ended, ReceiverOptions, ReceiverStats},
};

/// Bytes of a header, at most, with its type and length.
const HEADER_MOST: usize = 80;

/// Receives what a [`crate::quic::Sender`] sends: each ADU once, whole, in its newest version. One receiver per
/// connection and direction, because it takes all incoming unidirectional streams.
///
/// ```no_run
/// use bestby::quic::{Receiver, ReceiverOptions};
///
/// # async fn example(connection: quinn::Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let mut receiver = Receiver::new(connection, ReceiverOptions::new());
/// loop {
///     let adu = receiver.recv().await?;
///     println!("{}: {} bytes", adu.id, adu.payload.len());
/// }
/// # }
/// ```
///
/// It reads only while [`Receiver::recv`] is awaited. A program that stops asking fills its windows, and the
/// sender keeps what is still to come, and gives it up in time.
pub struct Receiver {
    connection: Connection,
    options: ReceiverOptions,
    accepting: Option<Accepting>,
    streams: BTreeMap<u64, Incoming>,
    next_stream: u64,
    /// Bytes of ADUs that are not complete.
    partial: usize,
    wakes: Arc<Wakes>,
    inbox: Inbox,
    ended: Option<Ended>,
}

type Accepting = Pin<Box<dyn Future<Output = Result<RecvStream, ConnectionError>> + Send>>;

/// A stream that is not at its end.
struct Incoming {
    stream: RecvStream,
    waker: Waker,
    header: Option<Header>,
    /// The start until it is a header, then the payload.
    pieces: Vec<Bytes>,
    bytes: usize,
}

/// Which streams may go on.
#[derive(Default)]
struct Wakes {
    state: Mutex<(VecDeque<u64>, Option<Waker>)>,
}

impl Wakes {
    fn with<T>(&self, work: impl FnOnce(&mut (VecDeque<u64>, Option<Waker>)) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut state)
    }
}

struct StreamWake {
    stream: u64,
    wakes: Arc<Wakes>,
}

impl Wake for StreamWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waker = self.wakes.with(|(streams, waker)| {
            streams.push_back(self.stream);
            waker.take()
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// What reading a stream came to.
enum Read {
    /// More is to come.
    Open,
    /// It was reset, or is of no use.
    Gone,
    /// It is complete; its header is a notice if there is no ADU.
    Complete(Option<Adu>),
}

impl Receiver {
    /// Takes the connection's incoming unidirectional streams.
    pub fn new(connection: Connection, options: ReceiverOptions) -> Self {
        Self {
            connection,
            options,
            accepting: None,
            streams: BTreeMap::new(),
            next_stream: 0,
            partial: 0,
            wakes: Arc::default(),
            inbox: Inbox::new(options),
            ended: None,
        }
    }

    /// The next ADU. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`Ended`], after everything that was complete is delivered; every later call says so again. With
    /// [`Ended::Protocol`] the connection was closed with 0x0b1.
    pub async fn recv(&mut self) -> Result<Adu, Ended> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// As [`Receiver::recv`], for futures written by hand.
    ///
    /// # Errors
    ///
    /// As [`Receiver::recv`].
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Adu, Ended>> {
        if let Some(adu) = self.inbox.take() {
            return Poll::Ready(Ok(adu));
        }
        if let Some(ended) = &self.ended {
            return Poll::Ready(Err(ended.clone()));
        }
        self.wakes
            .with(|(_, waker)| *waker = Some(context.waker().clone()));
        if let Err(ended) = self.read(context) {
            if let Ended::Protocol(bad) = &ended {
                let reason = bad.to_string();
                self.connection.close(BAD_HEADER.into(), reason.as_bytes());
            }
            self.inbox.settle();
            self.inbox.end();
            self.streams.clear();
            self.ended = Some(ended);
        } else {
            self.inbox.settle();
        }
        match (self.inbox.take(), &self.ended) {
            (Some(adu), _) => Poll::Ready(Ok(adu)),
            (None, Some(ended)) => Poll::Ready(Err(ended.clone())),
            (None, None) => Poll::Pending,
        }
    }

    /// Counters.
    pub fn stats(&self) -> ReceiverStats {
        self.inbox.stats
    }

    /// Reads all streams as far as they go.
    fn read(&mut self, context: &mut Context<'_>) -> Result<(), Ended> {
        let closed = self.accept(context);
        let mut postponed = VecDeque::new();
        while let Some(number) = self.wakes.with(|(ready, _)| ready.pop_front()) {
            if self.is_full() && self.streams.keys().next() != Some(&number) {
                postponed.push_back(number);
                continue;
            }
            self.advance(number)?;
            if !self.is_full() {
                self.wakes.with(|(ready, _)| ready.append(&mut postponed));
            }
        }
        if self.is_full() {
            // The oldest may itself have been postponed when it was not the oldest.
            let oldest = self.streams.keys().next().copied();
            if let Some(oldest) = oldest.filter(|oldest| postponed.contains(oldest)) {
                postponed.retain(|number| *number != oldest);
                self.wakes.with(|(ready, _)| ready.append(&mut postponed));
                self.advance(oldest)?;
                context.waker().wake_by_ref();
            }
        }
        self.wakes.with(|(ready, _)| ready.append(&mut postponed));
        closed.map_err(Ended::Closed)
    }

    /// Only the oldest stream is read.
    fn is_full(&self) -> bool {
        self.partial + self.inbox.held_bytes() > self.options.held
    }

    fn accept(&mut self, context: &mut Context<'_>) -> Result<(), ConnectionError> {
        loop {
            let accepting = self.accepting.get_or_insert_with(|| {
                let connection = self.connection.clone();
                Box::pin(async move { connection.accept_uni().await })
            });
            let Poll::Ready(stream) = accepting.as_mut().poll(context) else {
                return Ok(());
            };
            self.accepting = None;
            let stream = stream?;
            let number = self.next_stream;
            self.next_stream += 1;
            let wakes = Arc::clone(&self.wakes);
            let wake = Arc::new(StreamWake {
                stream: number,
                wakes,
            });
            self.wakes.with(|(ready, _)| ready.push_back(number));
            self.streams.insert(
                number,
                Incoming {
                    stream,
                    waker: wake.into(),
                    header: None,
                    pieces: Vec::new(),
                    bytes: 0,
                },
            );
        }
    }

    /// Reads one stream as far as it goes.
    fn advance(&mut self, number: u64) -> Result<(), Ended> {
        let Some(incoming) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        let before = incoming.bytes;
        let read = incoming.read(self.options.adu_limit, &mut self.inbox)?;
        self.partial = self.partial - before + incoming.bytes;
        if !matches!(read, Read::Open) {
            self.partial -= incoming.bytes;
            self.streams.remove(&number);
        }
        if let Read::Complete(Some(adu)) = read {
            self.inbox.complete(adu);
        }
        Ok(())
    }
}

impl Incoming {
    fn read(&mut self, limit: usize, inbox: &mut Inbox) -> Result<Read, Ended> {
        let waker = self.waker.clone();
        let mut context = Context::from_waker(&waker);
        loop {
            let chunk = pin!(self.stream.read_chunk(usize::MAX, true)).poll(&mut context);
            let chunk = match chunk {
                Poll::Pending => return Ok(Read::Open),
                Poll::Ready(Ok(Some(chunk))) => chunk.bytes,
                Poll::Ready(Ok(None)) => return self.complete().map(Read::Complete),
                Poll::Ready(Err(ReadError::ConnectionLost(_))) => return Ok(Read::Gone),
                Poll::Ready(Err(_)) => {
                    inbox.stats.resets += 1;
                    return Ok(Read::Gone);
                }
            };
            if self.header.is_none() {
                self.begin(chunk, inbox)?;
            } else {
                self.take(chunk);
            }
            if self.header.is_some_and(|header| header.notice) && self.bytes > 0 {
                return Err(BadHeader::NoticeWithPayload.into());
            }
            if let Some(header) = self.header.filter(|_| self.bytes > limit) {
                inbox.refuse(header.id);
                // It may be closed already.
                let _ = self.stream.stop(TOO_LARGE.into());
                return Ok(Read::Gone);
            }
        }
    }

    fn take(&mut self, bytes: Bytes) {
        self.bytes += bytes.len();
        if !bytes.is_empty() {
            self.pieces.push(bytes);
        }
    }

    /// The start of the stream is a header, once there is enough of it.
    fn begin(&mut self, chunk: Bytes, inbox: &mut Inbox) -> Result<(), BadHeader> {
        self.take(chunk);
        let mut start = self.join();
        let Some((header, len)) = Header::parse(&start[..start.len().min(HEADER_MOST)])? else {
            self.pieces.push(start);
            return Ok(());
        };
        inbox.header(&header);
        self.header = Some(header);
        self.bytes = 0;
        self.take(start.split_off(len));
        Ok(())
    }

    fn join(&mut self) -> Bytes {
        if self.pieces.len() > 1 {
            let mut all = BytesMut::with_capacity(self.bytes);
            for piece in self.pieces.drain(..) {
                all.extend_from_slice(&piece);
            }
            return all.freeze();
        }
        self.pieces.pop().unwrap_or_default()
    }

    fn complete(&mut self) -> Result<Option<Adu>, Ended> {
        let header = self.header.ok_or(BadHeader::Truncated)?;
        if header.notice {
            return Ok(None);
        }
        Ok(Some(Adu {
            id: header.id,
            version: header.version,
            priority: header.priority,
            left: header.left.filter(|ms| *ms > 0).map(Duration::from_millis),
            payload: self.join(),
            at: Instant::now(),
        }))
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("streams", &self.streams.len())
            .field("stats", &self.inbox.stats)
            .finish_non_exhaustive()
    }
}
