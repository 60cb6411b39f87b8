//! The control API: HTTP/1.1 and JSON on a unix socket, Prometheus text there and, if asked, on TCP.

use std::convert::Infallible;
use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{self, DefaultBodyLimit, FromRequest, FromRequestParts, RawQuery, State};
use axum::handler::Handler;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, get, on, post, put};
use axum::{Extension, Json, Router};
use bestby_api::{
    AttachRequest, DevName, DiscoverRequest, Discovery, Done, ErrorBody, ErrorDetail,
    ExplainRequest, Explanation, FlowName, path,
};
use futures_util::stream;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Mutex, Semaphore, broadcast, watch};

use crate::datapath::{Datapath, Handle};
use crate::discover;
use crate::error::{Error, Kind, Result, Tried as _};
use crate::faces::audit::{Who, audited};
use crate::faces::events::Hub;
use crate::faces::explain::Answered;
use crate::faces::metrics::{self, Format};
use crate::kernel;

/// No request is longer, bytes.
const LONGEST_REQUEST: usize = 1 << 20;
/// How often a silent event stream says that it is alive.
const STILL_HERE: Duration = Duration::from_secs(10);
/// A client must have sent its headers by then, and within as long again the body. `bestby` waits 10 s for an answer:
/// strangers who never end their requests must be gone by then.
const PATIENCE: Duration = Duration::from_secs(4);
/// Connections served at once; further ones wait in the listener's queue. Far below the usual 1024 descriptors.
pub const MOST_CLIENTS: usize = 128;
/// How often a question is asked whose rules change meanwhile.
const MOST_CHANGES: u32 = 5;
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
    /// Whoever asks the classifier holds it.
    pub asking: Arc<Mutex<()>>,
    /// Whoever watches an interface for `discover` holds it.
    pub discovering: Arc<Mutex<()>>,
    /// Places of those who are served on the control socket.
    pub clients: Arc<Semaphore>,
    /// True once the agent ends: who has asked is answered, and nobody else is.
    pub ending: watch::Receiver<bool>,
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = match self.kind {
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
            message: self.message.clone(),
            hint: self.hint.clone(),
        };
        // The error goes with the answer to where it is known who asked.
        (status, Extension(self), Json(ErrorBody { error })).into_response()
    }
}

/// The name or address in a path.
struct Item<T>(T);

impl<T: FromStr<Err: Display>, S: Send + Sync> FromRequestParts<S> for Item<T> {
    type Rejection = Error;
    async fn from_request_parts(parts: &mut Parts, api: &S) -> Result<Self> {
        let text = extract::Path::<String>::from_request_parts(parts, api).await;
        let text = text.map_err(|e| Error::invalid(e.body_text()))?;
        let item = text.parse().map(Self);
        item.map_err(|e| Error::invalid(format!("\"{}\": {e}", text.escape_debug())))
    }
}

/// The body of a request. JSON is read whatever the request calls it.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Asked<T> {
    type Rejection = Error;
    async fn from_request(request: Request<Body>, api: &S) -> Result<Self> {
        let bytes = tokio::time::timeout(PATIENCE, Bytes::from_request(request, api))
            .await
            .map_err(|_| {
                let late = format!(
                    "reading the request: its end did not come within {} s",
                    PATIENCE.as_secs()
                );
                Error::new(Kind::Late, late)
            })?
            .map_err(|e| Error::invalid(format!("reading the request: {}", e.body_text())))?;
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|e| Error::invalid(format!("the request is not what it should be: {e}")))
    }
}

/// Answers with what a command says of what `A` takes from the request.
fn ask<A, M: 'static, T: Serialize + Send + 'static>(
    command: fn(&mut Datapath, A) -> Result<T>,
) -> impl Handler<(M, State<Api>, A), Api>
where
    A: FromRequest<Api, M> + Send + 'static,
{
    async move |State(api): State<Api>, of: A| api.ask(move |d| command(d, of)).await.map(Json)
}

/// As [`ask`], of a command that changes something.
fn change<A, M: 'static, T: Serialize + Send + 'static>(
    command: fn(&mut Datapath, A) -> Result<T>,
) -> impl Handler<(M, State<Api>, Extension<Who>, A), Api>
where
    A: FromRequest<Api, M> + Send + 'static,
{
    async move |State(api): State<Api>, Extension(who): Extension<Who>, of: A| {
        api.change(who, move |d| command(d, of)).await.map(Json)
    }
}

/// All that is on the control socket.
fn control(api: Api) -> Router {
    const SET: MethodFilter = MethodFilter::PUT.or(MethodFilter::PATCH);
    let interfaces = get(ask(|d, ()| d.interfaces()))
        .post(change(|d, Asked(with)| put_interface(d, with, false)));
    let interface =
        on(SET, change(interface_set)).delete(change(|d, Item(dev)| d.interface_detach(&dev)));
    let flows = get(ask(|d, ()| d.flows())).post(change(|d, Asked(with)| d.flows_add(with)));
    let flow = get(ask(|d, Item(name)| d.flow(&name)))
        .on(
            SET,
            change(|d, (Item(name), Asked(with))| d.flow_set(&name, &with)),
        )
        .delete(change(flow_remove));
    let session = put(change(|d, (Item(addr), Asked(with))| {
        d.session_set(addr, &with)
    }));
    let media = put(change(|d, (Item(name), Asked(with))| {
        d.media_set(name, with)
    }));
    let tcp_real = get(ask(|d, ()| d.tcp_real()))
        .put(change(|d, Asked(with)| d.tcp_real_on(with, false)))
        .delete(change(|d, ()| d.tcp_real_off()));
    let upgrade = post(change(|d, Item(dev)| d.upgrade(&dev)));
    let diff = get(ask(|d, ()| d.config_diff()));
    let each = |of: &str| format!("{of}/{{item}}");
    Router::new()
        .route("/metrics", get(metrics))
        .route(path::EVENTS, get(events))
        .route(path::STATUS, get(ask(|d, ()| Ok(d.status()))))
        .route(path::STATS, get(ask(|d, ()| d.stats())))
        .route(path::DOCTOR, get(ask(|d, ()| Ok(d.doctor()))))
        .route(path::EXPLAIN, post(explain))
        .route(path::DISCOVER, post(discovered))
        .route(path::RELOAD, post(change(|d, ()| d.reload())))
        .route(&format!("{}/diff", path::CONFIG), diff)
        .route(path::INTERFACES, interfaces)
        .route(&each(path::INTERFACES), interface)
        .route(&format!("{}/upgrade", each(path::INTERFACES)), upgrade)
        .route(path::FLOWS, flows)
        .route(&each(path::FLOWS), flow)
        .route(path::SESSIONS, get(ask(|d, ()| d.sessions())))
        .route(&each(path::SESSIONS), session)
        .route(path::MEDIA, get(ask(|d, ()| d.media())))
        .route(&each(path::MEDIA), media)
        .route(path::TCP_REAL, tcp_real)
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            let what = format!("{method} {} is not offered", uri.path());
            Error::new(Kind::NotOffered, what)
        })
        .fallback(async |uri: Uri| {
            Error::missing(format!("there is no {} here", uri.path()))
                .hint("bestby and bestbyd should be of the same version")
        })
        .layer(DefaultBodyLimit::max(LONGEST_REQUEST))
        .with_state(api)
}

/// For each question the classifier is loaded, which takes a while: one at a time, and not on the data path's thread.
async fn explain(
    State(api): State<Api>,
    Asked(request): Asked<ExplainRequest>,
) -> Result<Json<Explanation>> {
    let request = Arc::new(request);
    for _ in 0..MOST_CHANGES {
        // Who hung up is not waited for.
        let turn = api.asking.clone().lock_owned().await;
        let of = request.clone();
        let asked = api.ask(move |d| d.question(&of)).await?;
        let answered = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let answer = kernel::explain::ask(&asked.question)?;
            Ok(Answered { answer, asked })
        })
        .await
        .unwrap_or_else(|e| Err(Error::failed(format!("asking the classifier: {e}"))))?;
        let of = request.clone();
        if let Some(explanation) = api.ask(move |d| d.explanation(&of, &answered)).await? {
            return Ok(Json(explanation));
        }
    }
    Err(Error::new(
        Kind::Conflict,
        "rules or interfaces changed each time that the classifier was asked",
    )
    .hint("ask again"))
}

/// It changes nothing.
async fn discovered(
    State(mut api): State<Api>,
    Asked(request): Asked<DiscoverRequest>,
) -> Result<Json<Discovery>> {
    let target = api.ask(move |d| d.discover_target(&request)).await?;
    let turn = api.discovering.clone().try_lock_owned().map_err(|_| {
        Error::conflict("discover: somebody else watches an interface at the moment")
            .hint("try again in a minute; one watch takes 60 seconds at most")
    })?;
    let watched = discover::watched(target.clone(), turn, &mut api.ending).await?;
    api.ask(move |d| d.discovered(&target, &watched))
        .await
        .map(Json)
}

fn put_interface(datapath: &mut Datapath, with: AttachRequest, attached: bool) -> Result<Done> {
    let done = datapath.interface_set(with, attached)?;
    // Where a rate is to be found, the first answer is worth most before much is sent.
    datapath.beat();
    Ok(done)
}

fn interface_set(
    datapath: &mut Datapath,
    (Item(dev), Asked(asked)): (Item<DevName>, Asked<AttachRequest>),
) -> Result<Done> {
    if asked.dev != dev {
        return Err(Error::invalid(format!(
            "interface {dev}: the request is for {}",
            asked.dev
        )));
    }
    put_interface(datapath, asked, true)
}

fn flow_remove(
    datapath: &mut Datapath,
    (Item(name), RawQuery(query)): (Item<FlowName>, RawQuery),
) -> Result<Done> {
    let save = query.is_some_and(|q| q.split('&').any(|p| p == "save=true"));
    datapath.flow_remove(&name, save)
}

async fn metrics(
    State(api): State<Api>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<impl IntoResponse> {
    let sessions = metrics::sessions_wanted(query.as_deref())?;
    let accept = headers.get_all(ACCEPT).iter();
    let accept: Vec<_> = accept.filter_map(|v| v.to_str().ok()).collect();
    let format = Format::accepted(&accept.join(","));
    let _alone = api.scrape.lock().await;
    let measured = api.ask(move |d| d.measure(sessions)).await?;
    // Not on a worker: there are two, and the operator's commands need them.
    let text = tokio::task::spawn_blocking(move || metrics::text(&measured, format))
        .await
        .map_err(|e| Error::failed(format!("writing metrics: {e}")))??;
    Ok(([(CONTENT_TYPE, format.content_type())], text))
}

/// Drop notices from now on, one line each.
async fn events(State(api): State<Api>) -> Result<impl IntoResponse> {
    let notices = api.hub.subscribe();
    api.listen().await?;
    let listener = (notices, api.ending);
    let lines = stream::unfold(listener, async |(mut notices, mut ending)| {
        let mut missed = 0_u64;
        let line = loop {
            let next = tokio::time::timeout(STILL_HERE, notices.recv());
            let next = tokio::select! {
                next = next => next,
                _ = ending.wait_for(|end| *end) => return None,
            };
            match next {
                Err(_) => break Bytes::from_static(b"\n"),
                Ok(Err(broadcast::error::RecvError::Closed)) => return None,
                // This listener is too slow: what it missed is told with the next notice.
                Ok(Err(broadcast::error::RecvError::Lagged(count))) => missed += count,
                Ok(Ok(event)) => {
                    let mut event = (*event).clone();
                    let missed = u32::try_from(missed).unwrap_or(u32::MAX);
                    event.suppressed = event.suppressed.saturating_add(missed);
                    let mut line = serde_json::to_vec(&event).unwrap_or_default();
                    line.push(b'\n');
                    break line.into();
                }
            }
        };
        Some((Ok::<_, Infallible>(line), (notices, ending)))
    });
    let kind = [(CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)))
}

/// Serves one connection; `who` is `None` on the port of metrics.
async fn connection(
    mut ending: watch::Receiver<bool>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    routes: Router,
    who: Option<Who>,
) {
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |mut request: Request<Incoming>| {
        if let Some(who) = who {
            request.extensions_mut().insert(who);
        }
        let answer = routes.call(request);
        async move {
            let answer = answer.await?;
            match (answer.extensions().get::<Error>(), who) {
                (None, _) => {}
                (Some(e), Some(Who::Peer { uid, pid })) => {
                    tracing::info!(uid, pid, "refused: {e}");
                }
                // Anybody who reaches the port could fill the journal.
                (Some(e), _) => tracing::debug!("metrics: refused: {e}"),
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let served = http1::Builder::new()
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

    /// Tells the data path whether anybody reads drop notices. Whoever does is counted when its turn comes, so that no
    /// earlier question takes a new reader's notices away.
    ///
    /// # Errors
    /// The kernel side cannot be told.
    pub async fn listen(&self) -> Result<()> {
        let hub = self.hub.clone();
        self.ask(move |d| d.listen(hub.listened())).await
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

    /// Serves a unix socket until the agent ends.
    pub async fn serve(self, listener: UnixListener) {
        let mut ending = self.ending.clone();
        let routes = control(self.clone());
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
                    let connection = connection(ending.clone(), stream, routes.clone(), Some(who));
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
        let routes = Router::new()
            .route("/metrics", get(metrics))
            .fallback(async || Error::missing("only /metrics is here"))
            .with_state(self.clone());
        while let Ok(place) = places.clone().acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let connection = connection(self.ending.clone(), stream, routes.clone(), None);
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
    use std::net::IpAddr;

    use super::*;

    #[tokio::test]
    async fn percent_encoded_name_is_decoded_and_malformed_one_refused() {
        let named = async |Item(dev): Item<DevName>| dev.to_string();
        let addressed = async |Item(addr): Item<IpAddr>| addr.to_string();
        let routes = Router::new()
            .route("/dev/{item}", get(named))
            .route("/addr/{item}", get(addressed));
        let routes = TowerToHyperService::new(routes);
        for (path, said) in [
            ("/dev/eth0%2E10", Some("eth0.10")),
            ("/dev/a%2", None),
            ("/dev/%ff", None),
            ("/dev/a%2Fb", None),
            ("/addr/2001:db8::1", Some("2001:db8::1")),
            ("/addr/banana", None),
        ] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let answer = routes.call(request).await.unwrap();
            let status = said.map_or(StatusCode::BAD_REQUEST, |_| StatusCode::OK);
            assert_eq!(answer.status(), status, "{path}");
            let body = axum::body::to_bytes(answer.into_body(), 999).await.unwrap();
            assert!(said.is_none_or(|said| body == said), "{path}");
        }
    }
}
