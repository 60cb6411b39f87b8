//! The parts of the agent, its threads and tasks: none outlives another.
//!
//! Each part holds a word that is said when the part ends, however that happens: by a return or by a panic. Whoever runs
//! the agent waits for that word beside the signals, and ends with a failure, so that systemd starts a whole agent. The
//! data path does not need the agent meanwhile.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::error::{Result, Tried as _};

/// Starts parts.
#[derive(Debug, Clone)]
pub struct Parts(UnboundedSender<&'static str>);

/// Tells which part ended first.
#[derive(Debug)]
pub struct Ended(UnboundedReceiver<&'static str>);

/// Says its name when it is dropped.
struct Word(&'static str, UnboundedSender<&'static str>);

impl Drop for Word {
    fn drop(&mut self) {
        // Nobody listens any more: the agent ends anyway.
        let _ = self.1.send(self.0);
    }
}

impl Parts {
    /// No parts yet, and who is told of their end.
    pub fn new() -> (Self, Ended) {
        let (parts, ended) = unbounded_channel();
        (Self(parts), Ended(ended))
    }

    /// Starts a thread that should never end.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn thread(&self, name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let word = Word(name, self.0.clone());
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let _word = word;
                work();
            })
            .map(drop)
            .tried(|| format!("starting the thread {name}"))
    }

    /// Starts a task that should never end.
    pub fn task(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let word = Word(name, self.0.clone());
        tokio::spawn(async move {
            let _word = word;
            work.await;
        });
    }
}

impl Ended {
    /// Waits for the end of a part, and returns its name.
    pub async fn first(&mut self) -> &'static str {
        // The sender of this pair lives in every part: it is gone when all of them are.
        self.0.recv().await.unwrap_or("all")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn end_of_a_part_is_told_by_return_and_by_panic() {
        let (parts, mut ended) = Parts::new();
        parts.task("waits", std::future::pending());
        parts.thread("returns", || {}).unwrap();
        assert_eq!(ended.first().await, "returns");
        parts.thread("panics", || panic!("as it should")).unwrap();
        assert_eq!(ended.first().await, "panics");
        parts.task("task", async {});
        assert_eq!(ended.first().await, "task");
        parts.task("failing task", async { panic!("as it should") });
        assert_eq!(ended.first().await, "failing task");
    }
}
