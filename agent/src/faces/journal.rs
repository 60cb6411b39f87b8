//! What the agent says of itself: to the journal with fields where systemd started it, else to standard error as text.

use std::os::fd::AsFd as _;

use tracing::level_filters::LevelFilter;
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Whether standard error leads to the journal: systemd names device and inode of it.
fn is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    nix::sys::stat::fstat(std::io::stderr().as_fd())
        .is_ok_and(|is| named == format!("{}:{}", is.st_dev, is.st_ino))
}

/// Starts it. In the journal, the fields of a line are `BESTBY_AUDIT`, `BESTBY_UID` and so on, and its level is the
/// priority.
pub fn start(level: LevelFilter) {
    if is_journal()
        && let Ok(journal) = tracing_journald::layer()
    {
        let journal = journal
            .with_field_prefix(Some("BESTBY".into()))
            .with_syslog_identifier("bestbyd".into())
            // One lower by default: a usual line would be a notice.
            .with_priority_mappings(PriorityMappings {
                info: Priority::Informational,
                debug: Priority::Debug,
                ..PriorityMappings::new()
            });
        return tracing_subscriber::registry()
            .with(level)
            .with(journal)
            .init();
    }
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .without_time() // the journal has the time
        .init();
}
