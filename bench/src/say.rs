//! Writing to standard output and standard error, where a reader may be gone.
//!
//! The macros of `std` panic then. Here a closed output (`| head`) ends the lab quietly
//! and with success, for the reader has what it wanted: namespaces, programs and guests
//! go as on Ctrl-C. A note that nobody can read is dropped.

use std::{
    fmt,
    io::{self, Write as _},
};

use crate::cleanup;

/// Prints a line of results on standard output, as `println!` does.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::say::line(format_args!($($words)*)) };
}

/// Prints a line about what is going on on standard error, as `eprintln!` does.
#[macro_export]
macro_rules! note {
    ($($words:tt)*) => { $crate::say::aside(format_args!($($words)*)) };
}

/// What [`say!`](crate::say!) does. Lines of several threads are not mixed.
pub fn line(words: fmt::Arguments<'_>) {
    text(&format!("{words}\n"));
}

/// Prints `text`, which ends its own lines, on standard output.
pub fn text(text: &str) {
    let mut output = io::stdout().lock();
    let written = output.write_all(text.as_bytes());
    let written = written.and_then(|()| output.flush());
    drop(output);
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => cleanup::end(0),
        Err(error) => {
            aside(format_args!("bestby-lab: cannot write its output: {error}"));
            cleanup::end(1);
        }
    }
}

/// What [`note!`](crate::note!) does.
pub fn aside(words: fmt::Arguments<'_>) {
    // One call, and so one line also beside other processes.
    let _ = io::stderr().write_all(format!("{words}\n").as_bytes());
}

/// A number of things in words: `1 run`, `2 runs`.
pub fn count(number: impl TryInto<u64>, thing: &str) -> String {
    // What does not fit is many.
    let number = number.try_into().unwrap_or(u64::MAX);
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{ending}")
}
