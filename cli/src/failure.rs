//! What went wrong, for the operator and for the exit code.

use std::io;
use std::process::ExitCode;

use bestby_api::{ErrorBody, ErrorDetail};

use crate::output::Output;

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

    /// Prints it and gives the exit code.
    pub(crate) fn report(self, output: &Output) -> ExitCode {
        let (message, hint, code) = match self {
            Self::Closed => return ExitCode::SUCCESS,
            Self::Reported => return ExitCode::from(1),
            Self::Message(message, hint) => (message, hint, 1),
            Self::Usage(message) => (message, "see --help".to_string(), 2),
        };
        let body = ErrorBody {
            error: ErrorDetail { message, hint },
        };
        output.error(&body);
        ExitCode::from(code)
    }
}
