//! The control API: HTTP/1.1 and JSON on a unix socket, Prometheus text there and, if asked, on TCP.

use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bestby_api::{
    AttachRequest, DevName, ErrorBody, ErrorDetail, ExplainRequest, FlowAdd, FlowName, FlowSet,
    RealRequest, SessionSet, path,
};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Mutex, Semaphore, broadcast, mpsc, watch};

use crate::datapath::{Datapath, Handle};
use crate::error::{Error, Kind, Result, Tried as _};
use crate::faces::audit::{Who, audited};
use crate::faces::events::Hub;
use crate::faces::metrics::{self, Format};

/// No request is longer, bytes.
const LONGEST_REQUEST: usize = 1 << 20;
/// How often a silent event stream says that it is alive.
const STILL_HERE: Duration = Duration::from_secs(10);
/// A client must have sent its headers by then, and within as long again the body. `bestby` waits 10 s for an answer:
/// strangers who never end their requests must be gone by then.
const PATIENCE: Duration = Duration::from_secs(4);
/// Connections served at once; further ones wait in the listener's queue. Far below the usual 1024 descriptors.
pub const MOST_CLIENTS: usize = 128;
/// Of the metrics port: Prometheus needs one.
const MOST_SCRAPERS: usize = 16;

/// What the API needs.
#[derive(Clone)]
pub struct Api {
    /// The data path's thread.
    pub datapath: Handle,
    /// Drop notices.
    pub hub: Hub,
    /// Whoever makes the metrics' text holds it: one text may take megabytes and a second of a CPU.
    pub scrape: Arc<Mutex<()>>,
    /// Places of those who are served on the control socket.
    pub clients: Arc<Semaphore>,
    /// True once the agent ends: who has asked is answered, and nobody else is.
    pub ending: watch::Receiver<bool>,
}

type Answer = Response<Either<Full<Bytes>, Lines>>;

/// A body that grows line by line.
pub struct Lines(mpsc::Receiver<Bytes>);

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(cx)
            .map(|line| line.map(|l| Ok(Frame::data(l))))
    }
}

fn answer(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Answer {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body))));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn json<T: Serialize>(value: &T) -> Result<Answer> {
    let body =
        serde_json::to_vec(value).map_err(|e| Error::failed(format!("writing the answer: {e}")))?;
    Ok(answer(StatusCode::OK, "application/json", body))
}

fn refusal(e: &Error) -> Answer {
    let status = match e.kind {
        Kind::Invalid => StatusCode::BAD_REQUEST,
        Kind::Late => StatusCode::REQUEST_TIMEOUT,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::Missing => StatusCode::NOT_FOUND,
        Kind::NotOffered => StatusCode::METHOD_NOT_ALLOWED,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        Kind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let error = ErrorDetail {
        message: e.message.clone(),
        hint: e.hint.clone(),
    };
    let body = serde_json::to_vec(&ErrorBody { error });
    answer(status, "application/json", body.unwrap_or_default())
}

/// Undoes percent-encoding of one part of a path.
fn decoded(part: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(b) = rest.next() {
        if b != b'%' {
            bytes.push(b);
            continue;
        }
        let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?')),
            _ => {
                return Err(Error::invalid(format!(
                    "\"{part}\" is not a percent-encoded name"
                )));
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| Error::invalid(format!("\"{part}\" is not UTF-8")))
}

/// A name or address in a path.
pub(crate) fn parsed<T: std::str::FromStr>(part: &str) -> Result<T>
where
    T::Err: std::fmt::Display,
{
    let text = decoded(part)?;
    text.parse()
        .map_err(|e: T::Err| Error::invalid(format!("\"{}\": {e}", text.escape_debug())))
}

async fn body<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T> {
    let whole = Limited::new(request.into_body(), LONGEST_REQUEST).collect();
    let bytes = tokio::time::timeout(PATIENCE, whole)
        .await
        .map_err(|_| {
            let late = format!(
                "reading the request: its end did not come within {} s",
                PATIENCE.as_secs()
            );
            Error::new(Kind::Late, late)
        })?
        .map_err(|e| Error::invalid(format!("reading the request: {e}")))?
        .to_bytes();
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::invalid(format!("the request is not what it should be: {e}")))
}

impl Api {
    /// Runs a command, and tells the translation of drop notices when names changed.
    ///
    /// # Errors
    /// The command's.
    pub async fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Datapath) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let generation = self.hub.generation();
        let (result, meaning) = self
            .datapath
            .run(move |d| {
                let r = command(d);
                Ok((r, d.meaning(generation)))
            })
            .await?;
        if let Some(meaning) = meaning {
            self.hub.learn(meaning);
        }
        result
    }

    /// As [`Api::ask`], of a command that changes something: what it changed is written down.
    ///
    /// # Errors
    /// The command's.
    pub async fn change<T: Send + 'static>(
        &self,
        who: Who,
        command: impl FnOnce(&mut Datapath) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.ask(move |d| audited(d, who, command)).await
    }

    async fn route(&self, request: Request<Incoming>, who: Who) -> Result<Answer> {
        let uri = request.uri().clone();
        let full = uri.path();
        if full == path::STATUS && request.method() == Method::GET {
            return json(&self.ask(|d| Ok(d.status())).await?);
        }
        // "/v1/flows/x" → ("/v1/flows", Some("x"), None)
        let mut parts = full.splitn(5, '/').skip(1);
        let base = format!(
            "/{}/{}",
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default()
        );
        let (item, verb) = (parts.next().filter(|p| !p.is_empty()), parts.next());
        let save = uri
            .query()
            .is_some_and(|q| q.split('&').any(|p| p == "save=true"));
        let method = request.method().clone();
        match (base.as_str(), item, verb, method.as_str()) {
            (path::INTERFACES, None, None, "GET") => json(&self.ask(Datapath::interfaces).await?),
            (path::INTERFACES, None, None, "POST") => {
                let asked: AttachRequest = body(request).await?;
                json(
                    &self
                        .change(who, move |d| d.interface_set(asked, false))
                        .await?,
                )
            }
            (path::INTERFACES, Some(dev), None, "DELETE") => {
                let dev: DevName = parsed(dev)?;
                json(&self.change(who, move |d| d.interface_detach(&dev)).await?)
            }
            (path::INTERFACES, Some(dev), None, "PUT" | "PATCH") => {
                let dev: DevName = parsed(dev)?;
                let asked: AttachRequest = body(request).await?;
                if asked.dev != dev {
                    return Err(Error::invalid(format!(
                        "interface {dev}: the request is for {}",
                        asked.dev
                    )));
                }
                json(
                    &self
                        .change(who, move |d| d.interface_set(asked, true))
                        .await?,
                )
            }
            (path::RELOAD, None, None, "POST") => json(&self.change(who, Datapath::reload).await?),
            (path::CONFIG, Some("diff"), None, "GET") => {
                json(&self.ask(Datapath::config_diff).await?)
            }
            (path::INTERFACES, Some(dev), Some("upgrade"), "POST") => {
                let dev: DevName = parsed(dev)?;
                json(&self.change(who, move |d| d.upgrade(&dev)).await?)
            }
            (path::FLOWS, None, None, "GET") => json(&self.ask(|d| d.flows()).await?),
            (path::FLOWS, None, None, "POST") => {
                let asked: FlowAdd = body(request).await?;
                json(&self.change(who, move |d| d.flow_add(asked)).await?)
            }
            (path::FLOWS, Some(name), None, "GET") => {
                let name: FlowName = parsed(name)?;
                json(&self.ask(move |d| d.flow(&name)).await?)
            }
            (path::FLOWS, Some(name), None, "PUT" | "PATCH") => {
                let name: FlowName = parsed(name)?;
                let asked: FlowSet = body(request).await?;
                json(&self.change(who, move |d| d.flow_set(&name, &asked)).await?)
            }
            (path::FLOWS, Some(name), None, "DELETE") => {
                let name: FlowName = parsed(name)?;
                json(
                    &self
                        .change(who, move |d| d.flow_remove(&name, save))
                        .await?,
                )
            }
            (path::SESSIONS, None, None, "GET") => json(&self.ask(|d| d.sessions()).await?),
            (path::SESSIONS, Some(addr), None, "PUT") => {
                let addr: std::net::IpAddr = parsed(addr)?;
                let asked: SessionSet = body(request).await?;
                json(
                    &self
                        .change(who, move |d| d.session_set(addr, &asked))
                        .await?,
                )
            }
            (path::TCP_REAL, None, None, "GET") => json(&self.ask(|d| d.tcp_real()).await?),
            (path::TCP_REAL, None, None, "PUT") => {
                let asked: RealRequest = body(request).await?;
                json(
                    &self
                        .change(who, move |d| d.tcp_real_on(asked, false))
                        .await?,
                )
            }
            (path::TCP_REAL, None, None, "DELETE") => {
                json(&self.change(who, Datapath::tcp_real_off).await?)
            }
            (path::STATS, None, None, "GET") => json(&self.ask(|d| d.stats()).await?),
            (path::DOCTOR, None, None, "GET") => json(&self.ask(|d| Ok(d.doctor())).await?),
            (path::EXPLAIN, None, None, "POST") => {
                let asked: ExplainRequest = body(request).await?;
                json(&self.ask(move |d| d.explain(&asked)).await?)
            }
            (path::EVENTS, None, None, "GET") => Ok(self.events()),
            (
                path::STATUS
                | path::RELOAD
                | path::INTERFACES
                | path::FLOWS
                | path::SESSIONS
                | path::TCP_REAL
                | path::STATS
                | path::DOCTOR
                | path::EXPLAIN
                | path::EVENTS,
                ..,
            ) => Err(Error::new(
                Kind::NotOffered,
                format!("{method} {full} is not offered"),
            )),
            _ => Err(Error::missing(format!("there is no {full} here"))
                .hint("bestby and bestbyd should be of the same version")),
        }
    }

    async fn metrics(&self, request: &Request<Incoming>) -> Result<Answer> {
        let sessions = metrics::sessions_wanted(request.uri().query())?;
        let accept = request.headers().get_all(ACCEPT).iter();
        let accept: Vec<_> = accept.filter_map(|v| v.to_str().ok()).collect();
        let format = Format::accepted(&accept.join(","));
        let _alone = self.scrape.lock().await;
        let measured = self.ask(move |d| d.measure(sessions)).await?;
        // Not on a worker: there are two, and the operator's commands need them.
        let text = tokio::task::spawn_blocking(move || metrics::text(&measured, format))
            .await
            .map_err(|e| Error::failed(format!("writing metrics: {e}")))??;
        Ok(answer(
            StatusCode::OK,
            format.content_type(),
            text.into_bytes(),
        ))
    }

    /// Drop notices from now on, one line each.
    fn events(&self) -> Answer {
        let mut notices = self.hub.subscribe();
        let mut ending = self.ending.clone();
        let (lines, body) = mpsc::channel(64);
        tokio::spawn(async move {
            let mut missed = 0_u64;
            loop {
                let next = tokio::time::timeout(STILL_HERE, notices.recv());
                let next = tokio::select! {
                    next = next => next,
                    _ = ending.wait_for(|end| *end) => return,
                };
                let line = match next {
                    Err(_) => Bytes::from_static(b"\n"),
                    Ok(Err(broadcast::error::RecvError::Closed)) => return,
                    Ok(Err(broadcast::error::RecvError::Lagged(count))) => {
                        // This listener is too slow: what it missed is told with the next notice.
                        missed += count;
                        continue;
                    }
                    Ok(Ok(event)) => {
                        let mut event = (*event).clone();
                        event.suppressed = event.suppressed.saturating_add(
                            u32::try_from(std::mem::take(&mut missed)).unwrap_or(u32::MAX),
                        );
                        let mut line = serde_json::to_vec(&event).unwrap_or_default();
                        line.push(b'\n');
                        line.into()
                    }
                };
                if lines.send(line).await.is_err() {
                    return; // the listener went away
                }
            }
        });
        let mut response = Response::new(Either::Right(Lines(body)));
        response.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-ndjson"),
        );
        response
    }

    /// Serves one connection; `who` is `None` on the port of metrics, where nothing else is.
    async fn connection(self, stream: impl AsyncRead + AsyncWrite + Unpin, who: Option<Who>) {
        let mut ending = self.ending.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let api = self.clone();
            async move {
                let result = match (request.uri().path(), who) {
                    ("/metrics", _) if request.method() == Method::GET => {
                        api.metrics(&request).await
                    }
                    (_, Some(who)) => api.route(request, who).await,
                    (_, None) => Err(Error::missing("only /metrics is here")),
                };
                Ok::<Answer, Infallible>(result.unwrap_or_else(|e| {
                    match who {
                        Some(Who::Peer { uid, pid }) => tracing::info!(uid, pid, "refused: {e}"),
                        // Anybody who reaches the port could fill the journal.
                        _ => tracing::debug!("metrics: refused: {e}"),
                    }
                    refusal(&e)
                }))
            }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .serve_connection(TokioIo::new(stream), service);
        let mut served = std::pin::pin!(served);
        // A client that goes away is nobody's error.
        tokio::select! {
            _ = served.as_mut() => return,
            _ = ending.wait_for(|end| *end) => served.as_mut().graceful_shutdown(),
        }
        let _ = served.await;
    }

    /// Serves a unix socket until the agent ends.
    pub async fn serve(self, listener: UnixListener) {
        let mut ending = self.ending.clone();
        while let Ok(place) = self.clients.clone().acquire_owned().await {
            // The place that waits for the next client is nobody's, and must not be waited for (`answered`).
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = ending.wait_for(|end| *end) => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    let who = match stream.peer_cred() {
                        Ok(peer) => Who::Peer {
                            uid: peer.uid(),
                            pid: peer.pid().unwrap_or(0),
                        },
                        Err(e) => {
                            tracing::warn!("control socket: who asks cannot be found out: {e}");
                            continue;
                        }
                    };
                    let connection = self.clone().connection(stream, Some(who));
                    tokio::spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(e) => {
                    // Out of descriptors, for example: others must end first.
                    tracing::warn!("control socket: {e}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Waits until everybody on the control socket has got an answer; nobody is let in any more.
    pub async fn answered(&self) {
        // Never closed: an error is not to be had.
        let _ = self.clients.acquire_many(MOST_CLIENTS as u32).await;
    }

    /// Serves Prometheus text on TCP, for ever.
    pub async fn serve_metrics(self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(MOST_SCRAPERS));
        while let Ok(place) = places.clone().acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let connection = self.clone().connection(stream, None);
                    tokio::spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(e) => {
                    tracing::warn!("metrics: {e}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// Whether a socket is there; `None`: nothing is.
fn is_socket(path: &Path) -> Option<bool> {
    use std::os::unix::fs::FileTypeExt as _;
    let meta = std::fs::symlink_metadata(path).ok()?;
    Some(meta.file_type().is_socket())
}

/// Refuses when somebody answers on the socket, or when something else is in its place.
///
/// # Errors
/// Another agent listens there, or a file lies there.
pub fn check_free(socket: &Path) -> Result<()> {
    if is_socket(socket) == Some(false) {
        return Err(Error::conflict(format!(
            "listening on {}: something is there, and it is not a socket",
            socket.display()
        ))
        .hint("give --socket a path of its own, or move away what is there"));
    }
    if std::os::unix::net::UnixStream::connect(socket).is_ok() {
        return Err(Error::conflict(format!(
            "another bestbyd is listening on {}",
            socket.display()
        ))
        .hint("stop it first, or give this one its own --socket and --bpffs"));
    }
    Ok(())
}

/// Opens the control socket: mode 0660, group `bestby` if there is one.
///
/// # Errors
/// The directory cannot be written.
pub fn listen(socket: &Path) -> Result<UnixListener> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    check_free(socket)?;
    if let Some(dir) = socket.parent() {
        std::fs::create_dir_all(dir).tried(|| format!("creating {}", dir.display()))?;
    }
    let what = || format!("listening on {}", socket.display());
    // Made under a private name, no longer than a socket's path may be, and moved when its rights are right.
    let fresh = socket.with_file_name(format!(".{}", std::process::id()));
    if is_socket(&fresh) == Some(true) {
        let _ = std::fs::remove_file(&fresh); // of an agent that was killed here
    }
    let listener = UnixListener::bind(&fresh).tried(what)?;
    // An agent that runs as that group may not be allowed to ask for what is so already.
    let group_of = |path: &Path| std::fs::metadata(path).map(|m| m.gid()).ok();
    if let Ok(Some(group)) = nix::unistd::Group::from_name("bestby")
        && group_of(&fresh) != Some(group.gid.as_raw())
        && let Err(e) = nix::unistd::chown(&fresh, None, Some(group.gid))
    {
        tracing::warn!("giving the socket to group bestby: {e}");
    }
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o660)).tried(what)?;
    std::fs::rename(&fresh, socket).tried(what)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoded_name_is_decoded_and_malformed_one_refused() {
        assert_eq!(decoded("eth0%2E10").unwrap(), "eth0.10");
        assert!(decoded("a%2").is_err());
        assert!(decoded("%ff").is_err());
        assert!(parsed::<DevName>("a%2Fb").is_err());
        assert_eq!(
            parsed::<std::net::IpAddr>("2001:db8::1")
                .unwrap()
                .to_string(),
            "2001:db8::1"
        );
    }
}
