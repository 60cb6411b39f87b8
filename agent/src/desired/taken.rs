//! When the configuration file was taken, and whether all of it was.

use std::time::SystemTime;

/// When the configuration file was read.
#[derive(Debug, Clone, Copy)]
pub struct FileTaken {
    /// When the agent started, and read it first.
    pub started: SystemTime,
    /// When it was taken whole last.
    pub taken: SystemTime,
    /// Whether it was taken whole when it was read last.
    pub whole: bool,
}

impl FileTaken {
    /// It was read for the first time just now.
    pub fn at_start() -> Self {
        let now = SystemTime::now();
        Self {
            started: now,
            taken: now,
            whole: true,
        }
    }

    /// It was read again just now.
    pub fn again(&mut self, whole: bool) {
        self.whole = whole;
        if whole {
            self.taken = SystemTime::now();
        }
    }
}
