//! Drop notices: from the kernel's ring buffer, by name, to everybody who listens.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bestby_api::{Event, NO_RULE, Reason};
use bestby_bpf::abi;
use libbpf_rs::{MapHandle, RingBufferBuilder};
use tokio::sync::broadcast;
use zerocopy::FromBytes as _;

use crate::datapath::Datapath;
use crate::error::{Result, Tried as _};
use crate::faces::session::session_name;
use crate::kernel::maps::Map;
use crate::kernel::sys::monotonic_ns;
use crate::parts::Parts;

/// Notices that wait for a slow listener; what goes beyond is counted in its next one's `suppressed`.
const WAITING: usize = 4096;

/// What ids mean at the moment.
#[derive(Debug, Clone, Default)]
pub struct Meaning {
    generation: u64,
    flows: HashMap<u16, String>,
    devices: HashMap<u32, String>,
}

impl Datapath {
    /// The names, if they changed since `generation`.
    pub fn meaning(&self, generation: u64) -> Option<Meaning> {
        (generation != self.generation).then(|| Meaning {
            generation: self.generation,
            flows: self
                .book
                .entries
                .iter()
                .map(|e| (e.id, e.rule.name.to_string()))
                .collect(),
            devices: self
                .attached
                .values()
                .map(|a| (a.ifindex, a.dev.to_string()))
                .collect(),
        })
    }
}

/// Distributes drop notices.
#[derive(Clone)]
pub struct Hub {
    sender: broadcast::Sender<Arc<Event>>,
    meaning: Arc<RwLock<Meaning>>,
}

impl Hub {
    /// Starts the thread that drains the ring buffer pinned in `dir`.
    ///
    /// # Errors
    /// The ring buffer cannot be opened.
    pub fn start(parts: &Parts, dir: &Path) -> Result<Self> {
        let (sender, _) = broadcast::channel(WAITING);
        let hub = Self {
            sender,
            meaning: Arc::default(),
        };
        let ring = MapHandle::from_pinned_path(dir.join("bb_events"))
            .tried(|| "opening bb_events".into())?;
        let sessions: Map<u32, abi::bb_session> = Map::open(&dir.join("bb_sessions"))?;
        let own = hub.clone();
        parts.thread("events", move || own.drain(&ring, &sessions))?;
        Ok(hub)
    }

    fn drain(&self, ring: &MapHandle, sessions: &Map<u32, abi::bb_session>) {
        let mut builder = RingBufferBuilder::new();
        let handle = |bytes: &[u8]| {
            // Nobody listens: only the ring buffer must not fill up.
            if self.listened()
                && let Ok((event, _)) = abi::bb_event::read_from_prefix(bytes)
            {
                let _ = self.sender.send(Arc::new(self.named(&event, sessions)));
            }
            0
        };
        if let Err(e) = builder.add(ring, handle) {
            return tracing::error!("no drop notices: {e}");
        }
        let buffer = match builder.build() {
            Ok(buffer) => buffer,
            Err(e) => return tracing::error!("no drop notices: {e}"),
        };
        loop {
            // Sleeps until the kernel side writes: latency is that of a wake-up.
            if let Err(e) = buffer.poll(Duration::from_secs(3600))
                && e.kind() != libbpf_rs::ErrorKind::Interrupted
            {
                tracing::error!("drop notices: {e}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    fn named(&self, event: &abi::bb_event, sessions: &Map<u32, abi::bb_session>) -> Event {
        let meaning = self
            .meaning
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let index = u32::from(event.session);
        let session = sessions.get(&index).ok().flatten().unwrap_or_default();
        let since_boot = monotonic_ns().saturating_sub(event.time_ns);
        let unix = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Event {
            time_ns: event.time_ns,
            unix_ns: u64::try_from(unix.as_nanos())
                .unwrap_or(u64::MAX)
                .saturating_sub(since_boot),
            dev: meaning
                .devices
                .get(&event.ifindex)
                .cloned()
                .unwrap_or_else(|| format!("#{}", event.ifindex)),
            flow: match event.rule {
                0 => NO_RULE.into(),
                id => meaning
                    .flows
                    .get(&id)
                    .cloned()
                    .unwrap_or_else(|| format!("#{id}")),
            },
            session: session_name(index, &session, |dev| meaning.devices.get(&dev).cloned()),
            reason: reason(event.reason),
            priority: event.priority,
            age_ns: event.age_ns,
            late_ns: event.late_ns,
            adu: event.adu,
            len: event.len,
            observe: event.observe != 0,
            truncated: event.truncated != 0,
            suppressed: event.suppressed,
        }
    }

    /// Generation of the names in use.
    pub fn generation(&self) -> u64 {
        self.meaning
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .generation
    }

    /// Takes new names.
    pub fn learn(&self, meaning: Meaning) {
        *self
            .meaning
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = meaning;
    }

    /// Whether anybody listens.
    pub fn listened(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    /// Every notice from now on, once the data path knows that somebody listens.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.sender.subscribe()
    }
}

const fn reason(reason: u8) -> Reason {
    match reason as u32 {
        abi::BB_DROP_STALE => Reason::Stale,
        abi::BB_DROP_ADU => Reason::Adu,
        abi::BB_DROP_OVERFLOW => Reason::Overflow,
        abi::BB_DROP_EVICTED => Reason::Evicted,
        abi::BB_DROP_PREDICTED => Reason::Predicted,
        abi::BB_DROP_CODEL => Reason::Codel,
        _ => Reason::Chain,
    }
}
