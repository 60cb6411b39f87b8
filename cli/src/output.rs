//! Writing: text or JSON on standard output, errors on standard error, no colour unless a person reads it.

use std::io::{self, Write};
use std::process::ExitCode;

use bestby_api::{Done, ErrorBody, ErrorDetail};
use serde::Serialize;

use crate::failure::Failure;
use crate::format::WARNING;

/// How to print.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) const fn new(json: bool) -> Self {
        Self { json }
    }

    pub(crate) const fn is_json(self) -> bool {
        self.json
    }

    /// Prints an answer: as it came for machines, rendered for people.
    pub(crate) fn answer<T: Serialize>(
        self,
        answer: &T,
        render: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            let mut text = serde_json::to_string_pretty(answer)
                .map_err(|e| Failure::new(format!("cannot write the answer as JSON: {e}"), ""))?;
            text.push('\n');
            return print(&text);
        }
        print(&render(answer))
    }

    /// Prints one of many answers, on one line, at once.
    pub(crate) fn line<T: Serialize>(
        self,
        answer: &T,
        render: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        let mut text = if self.json {
            serde_json::to_string(answer)
                .map_err(|e| Failure::new(format!("cannot write the answer as JSON: {e}"), ""))?
        } else {
            render(answer)
        };
        text.push('\n');
        print(&text)
    }

    /// Prints a text as it is.
    pub(crate) fn text(self, text: &str) -> Result<(), Failure> {
        print(text)
    }

    /// Prints what a change did.
    pub(crate) fn done(self, done: &Done) -> Result<(), Failure> {
        if !self.json {
            for warning in &done.warnings {
                self.note(&format!("{WARNING}warning:{WARNING:#} {warning}"));
            }
        }
        self.answer(done, |done| format!("{}\n", done.message))
    }

    /// Prints what is probably a mistake where no answer says it: standard output is for what was asked.
    pub(crate) fn warn(self, warning: &str) {
        let mut stderr = anstream::stderr();
        // With standard error gone, there is nobody to tell.
        let _ = if self.json {
            writeln!(stderr, "{}", serde_json::json!({ "warnings": [warning] }))
        } else {
            writeln!(stderr, "{WARNING}warning:{WARNING:#} {warning}")
        };
    }

    /// A word to the person at the terminal; machines do not get it.
    pub(crate) fn note(self, text: &str) {
        if !self.json {
            // With standard error gone, there is nobody to tell.
            let _ = writeln!(anstream::stderr(), "{text}");
        }
    }

    /// Prints what went wrong and gives the exit code.
    pub(crate) fn failure(self, failure: Failure) -> ExitCode {
        let (message, hint, code) = match failure {
            Failure::Closed => return ExitCode::SUCCESS,
            Failure::Reported => return ExitCode::from(1),
            Failure::Message(message, hint) => (message, hint, 1),
            Failure::Usage(message) => (message, "see --help".to_string(), 2),
        };
        let body = ErrorBody {
            error: ErrorDetail { message, hint },
        };
        self.error(&body);
        ExitCode::from(code)
    }

    /// Prints an error.
    fn error(self, body: &ErrorBody) {
        let mut stderr = anstream::stderr();
        let _ = if self.json {
            writeln!(
                stderr,
                "{}",
                serde_json::to_string(body).unwrap_or_default()
            )
        } else if body.error.hint.is_empty() {
            writeln!(stderr, "bestby: {}", body.error.message)
        } else {
            writeln!(
                stderr,
                "bestby: {}\n  {}",
                body.error.message, body.error.hint
            )
        };
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = anstream::AutoStream::auto(io::stdout().lock());
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|e| Failure::output(&e))
}
