//! What the handles of an async ring or sender share with the task that drives it.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use ::tokio::{sync::Notify, time::sleep_until};

#[derive(Debug)]
pub(crate) struct Shared<T> {
    state: Mutex<T>,
    /// To the driver: something was taken or changed.
    pub(crate) changed: Arc<Notify>,
    /// From the driver: states have changed.
    pub(crate) driven: Notify,
}

impl<T> Shared<T> {
    pub(crate) fn new(state: T) -> Self {
        Self {
            state: Mutex::new(state),
            changed: Arc::default(),
            driven: Notify::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // A panic in the middle is not expected; the state is then still the best there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and lets the driver look.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let result = work(&mut self.lock());
        self.changed.notify_one();
        // What was given up at once has an outcome, too.
        self.driven.notify_waiters();
        result
    }

    /// Waits until the state has what `ready` looks for.
    pub(crate) async fn wait<R>(&self, mut ready: impl FnMut(&mut T) -> Option<R>) -> R {
        loop {
            let mut driven = pin!(self.driven.notified());
            driven.as_mut().enable();
            if let Some(value) = ready(&mut self.lock()) {
                return value;
            }
            driven.await;
        }
    }
}

/// Until then; for ever without a time.
pub(crate) async fn sleep(until: Option<Instant>) {
    match until {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
