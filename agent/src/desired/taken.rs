//! When the configuration file was taken, and why not all of it was.

use std::time::SystemTime;

/// When the configuration file was read.
#[derive(Debug, Clone)]
pub struct FileTaken {
    /// When the agent started, and read it first.
    pub started: SystemTime,
    /// When it was read last.
    pub read: SystemTime,
    /// When it was taken whole last; `None`: never.
    pub taken: Option<SystemTime>,
    /// Why it was not taken whole when it was read last.
    pub why_not: Option<String>,
}

impl FileTaken {
    /// It was read for the first time just now, and taken whole.
    pub fn at_start() -> Self {
        let now = SystemTime::now();
        Self {
            started: now,
            read: now,
            taken: Some(now),
            why_not: None,
        }
    }

    /// It was read for the first time just now, and not all of it works.
    pub fn start_failed(&mut self, why: String) {
        self.taken = None;
        self.why_not = Some(why);
    }

    /// It was read again just now.
    pub fn again(&mut self, why_not: Option<String>) {
        self.read = SystemTime::now();
        if why_not.is_none() {
            self.taken = Some(self.read);
        }
        self.why_not = why_not;
    }
}
