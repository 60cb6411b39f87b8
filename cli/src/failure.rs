//! What went wrong.

use std::io;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// What was tried and why it failed; what to do (may be empty).
    #[error("{0}")]
    Message(String, String),
    /// Options that are each valid but do not go together: exit code 2, as for any wrong usage.
    #[error("{0}")]
    Usage(String),
    /// Standard output is gone (`| head`): the reader has what it wanted.
    #[error("output closed")]
    Closed,
    /// Everything is printed already, and it was bad news.
    #[error("failed")]
    Reported,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Message(message.into(), hint.into())
    }

    /// An error of writing to standard output.
    pub(crate) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        Self::new(format!("cannot write the output: {error}"), "")
    }
}
