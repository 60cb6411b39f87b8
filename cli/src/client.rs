//! HTTP over the agent's unix socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bestby_api::ErrorBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::failure::Failure;

/// With a change: attaching loads programs through the verifier, which takes seconds on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// With a question: an agent that needs longer hangs. It ends idle connections, which may hold all places, after 10 s.
const PATIENCE_TO_READ: Duration = Duration::from_secs(20);

/// An answer of 16384 sessions has a few megabytes; more than this is not an answer of bestbyd.
const LARGEST_ANSWER: usize = 256 << 20;

/// What stays as it is in a part of a path.
const PART: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b':');

/// Where to ask.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    socket: PathBuf,
}

/// A part of a path, e.g. the name of an interface.
pub(crate) fn part(text: &str) -> String {
    utf8_percent_encode(text, PART).to_string()
}

impl Client {
    pub(crate) const fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Asks without a body.
    pub(crate) async fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, Failure> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    /// Asks for a change without a body.
    pub(crate) async fn delete<A: DeserializeOwned>(&self, path: &str) -> Result<A, Failure> {
        self.call(Method::DELETE, path, Bytes::new()).await
    }

    /// Asks with a JSON body.
    pub(crate) async fn send<Q: Serialize, A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        question: &Q,
    ) -> Result<A, Failure> {
        self.send_and_wait(method, path, question, Duration::ZERO)
            .await
    }

    /// As [`Client::send`], of a question that takes so long.
    pub(crate) async fn send_and_wait<Q: Serialize, A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        question: &Q,
        takes: Duration,
    ) -> Result<A, Failure> {
        let body = serde_json::to_vec(question)
            .map_err(|e| Failure::new(format!("cannot write the request as JSON: {e}"), ""))?;
        let patience = PATIENCE + takes;
        self.call_within(method, path, body.into(), patience).await
    }

    async fn call<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<A, Failure> {
        let patience = match method {
            Method::GET => PATIENCE_TO_READ,
            _ => PATIENCE,
        };
        self.call_within(method, path, body, patience).await
    }

    async fn call_within<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<A, Failure> {
        let what = format!("{method} {path}");
        let answer = async {
            let response = self.open(method, path, body).await?;
            let body = Limited::new(response.into_body(), LARGEST_ANSWER)
                .collect()
                .await;
            Ok(body
                .map_err(|e| self.broken(&what, &e.to_string()))?
                .to_bytes())
        };
        let answer = tokio::time::timeout(patience, answer).await.map_err(|_| {
            Failure::new(
                format!(
                    "bestbyd on {} did not answer {what} within {} s",
                    self.socket.display(),
                    patience.as_secs()
                ),
                "look at `systemctl status bestbyd` and `journalctl -u bestbyd`",
            )
        })??;
        serde_json::from_slice(&answer).map_err(|e| {
            self.broken(
                &what,
                &format!("its answer is not what this bestby understands: {e}"),
            )
        })
    }

    /// Asks and gives the answer's body, still arriving, if the agent agreed.
    pub(crate) async fn open(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let what = format!("{method} {path}");
        let broken = |e: hyper::Error| self.broken(&what, &e.to_string());
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|e| unreachable(&self.socket, &e))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "bestbyd")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|e| Failure::new(format!("cannot ask {what}: {e}"), ""))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST_ANSWER)
            .collect()
            .await;
        let body = body
            .map_err(|e| self.broken(&what, &e.to_string()))?
            .to_bytes();
        Err(match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(body) => Failure::Message(body.error.message, body.error.hint),
            Err(_) => self.broken(&what, &format!("it answered {status} without saying why")),
        })
    }

    fn broken(&self, what: &str, why: &str) -> Failure {
        Failure::new(
            format!("{what} on {} failed: {why}", self.socket.display()),
            "is it the socket of bestbyd, and of the same version? `bestby --version`, `bestbyd --version`",
        )
    }
}

/// Why nobody can be asked, and what to do about it.
pub(crate) fn unreachable(socket: &Path, error: &io::Error) -> Failure {
    let shown = socket.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Failure::new(
            format!("no agent answers on {shown} ({})", reason(error)),
            format!(
                "start it with `systemctl start bestbyd`, or by hand with `bestbyd --socket {shown}`; \
                 is it running with another socket? then say `bestby --socket PATH`"
            ),
        ),
        io::ErrorKind::PermissionDenied => Failure::new(
            format!("you may not use {shown} (permission denied)"),
            "members of the group bestby may: `sudo usermod -aG bestby $USER`, then log in again; or use sudo",
        ),
        _ => Failure::new(format!("cannot connect to {shown}: {}", reason(error)), ""),
    }
}

/// The error without Rust's "(os error N)".
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such socket".into(),
        io::ErrorKind::ConnectionRefused => "nobody listens there".into(),
        _ => error.to_string(),
    }
}
