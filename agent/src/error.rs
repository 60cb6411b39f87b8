//! One error type for everything an operator may see: what kind it is, what was tried and why it failed, and what to do.

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request makes no sense.
    Invalid,
    /// The request did not come whole in time.
    Late,
    /// The agent lacks a capability.
    Forbidden,
    /// No such object.
    Missing,
    /// There is such an object, but this cannot be asked of it.
    NotOffered,
    /// The state of the host or of the agent stands against it.
    Conflict,
    /// This kernel cannot.
    Unsupported,
    /// The kernel, a file or the agent failed.
    Failed,
}

/// A refused or failed operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", if hint.is_empty() { String::new() } else { format!(" ({hint})") })]
pub struct Error {
    /// What went wrong.
    pub kind: Kind,
    /// What was tried, on which object, and why it failed.
    pub message: String,
    /// What the operator can do; may be empty.
    pub hint: String,
}

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Without a hint.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: String::new(),
        }
    }

    /// [`Kind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    /// [`Kind::Forbidden`].
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(Kind::Forbidden, message)
    }

    /// [`Kind::Missing`].
    pub fn missing(message: impl Into<String>) -> Self {
        Self::new(Kind::Missing, message)
    }

    /// [`Kind::Conflict`].
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, message)
    }

    /// [`Kind::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Kind::Unsupported, message)
    }

    /// [`Kind::Failed`].
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
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
}

/// Says what was tried when something outside failed; "permission denied" is [`Kind::Forbidden`] and
/// names the capabilities that are missing.
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
