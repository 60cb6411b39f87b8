//! One error type for everything an operator may see: what was tried and why it failed, what to do, and
//! the HTTP status that says whose fault it is.

use bestby_api::{ErrorBody, ErrorDetail};

/// A refused or failed operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", if hint.is_empty() { String::new() } else { format!(" ({hint})") })]
pub struct Error {
    /// HTTP status of the answer, 400..=599.
    pub status: u16,
    /// What was tried, on which object, and why it failed.
    pub message: String,
    /// What the operator can do; may be empty.
    pub hint: String,
}

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    fn new(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            hint: String::new(),
        }
    }

    /// The request makes no sense (400).
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    /// The agent lacks a capability (403).
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, message)
    }

    /// No such object (404).
    pub fn missing(message: impl Into<String>) -> Self {
        Self::new(404, message)
    }

    /// The state of the host or of the agent stands against it (409).
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, message)
    }

    /// This kernel cannot (501).
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(501, message)
    }

    /// The kernel, a file or the agent failed (500).
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(500, message)
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Puts `context: ` in front of the message.
    #[must_use]
    pub fn within(mut self, context: impl std::fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Body of the HTTP answer.
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorDetail {
                message: self.message.clone(),
                hint: self.hint.clone(),
            },
        }
    }
}

/// Says what was tried when something outside failed; "permission denied" becomes 403 and names the
/// capabilities that are missing.
pub trait Tried<T> {
    /// `what` was tried.
    ///
    /// # Errors
    /// The error of `self`, in words.
    fn tried(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Tried<T> for std::io::Result<T> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| os_error(&what(), &e))
    }
}

impl<T> Tried<T> for std::result::Result<T, libbpf_rs::Error> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| {
            let text = format!("{}: {e:#}", what());
            match e.kind() {
                libbpf_rs::ErrorKind::PermissionDenied => permission(text),
                _ => Error::failed(text),
            }
        })
    }
}

impl<T> Tried<T> for nix::Result<T> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| os_error(&what(), &e.into()))
    }
}

fn permission(text: String) -> Error {
    Error::forbidden(text)
        .hint("bestbyd needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON (or CAP_SYS_ADMIN); run it as root or by its systemd unit")
}

/// An operating system error in words.
pub fn os_error(what: &str, e: &std::io::Error) -> Error {
    let text = format!("{what}: {e}");
    match e.kind() {
        std::io::ErrorKind::PermissionDenied => permission(text),
        _ => Error::failed(text),
    }
}
