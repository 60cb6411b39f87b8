//! Attaches the programs that raise send buffers (`bpf/buffer.bpf.c`) while the classifier asks for them.
//!
//! The programs take the lock of every unconnected UDP socket of the cgroup that sends. So they are there only for some
//! seconds after a question, and have no pins: they go with the agent.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libbpf_rs::{MapHandle, RingBufferBuilder};

use crate::error::{Result, Tried as _};
use crate::kernel::hooks;
use crate::parts::Parts;

/// How long after the last question. The classifier asks again after a second, if it has to.
const STAY: Duration = Duration::from_secs(3);

/// Between two looks at questions at least.
const LEAST: Duration = Duration::from_millis(100);

/// What raises buffers.
struct Raiser {
    dir: PathBuf,
    cgroup: PathBuf,
    /// Loaded when they are first asked for.
    programs: Option<Vec<hooks::CgroupProgram>>,
    links: Vec<OwnedFd>,
}

impl Raiser {
    fn attach(&mut self) -> Result<()> {
        if !self.links.is_empty() {
            return Ok(());
        }
        let programs = match &self.programs {
            Some(programs) => programs,
            None => self.programs.insert(hooks::load_buffers(&self.dir)?),
        };
        let cgroup = File::open(&self.cgroup)
            .tried(|| format!("opening the cgroup {}", self.cgroup.display()))?;
        let links: Result<_> = programs
            .iter()
            .map(|program| program.attach(cgroup.as_fd()))
            .collect();
        self.links = links?;
        tracing::debug!("raising send buffers");
        Ok(())
    }

    /// Attaches and detaches, for ever.
    fn run(mut self, wants: &MapHandle) -> Result<()> {
        let asked = Cell::new(false);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(wants, |_| {
                asked.set(true);
                0
            })
            .tried(|| "reading bb_wants".into())?;
        let questions = builder.build().tried(|| "reading bb_wants".into())?;
        let mut until = Instant::now();
        let mut complained = false;
        loop {
            let left = match self.links.is_empty() {
                true => Duration::from_secs(3600),
                false => until.saturating_duration_since(Instant::now()),
            };
            // A part of a millisecond would be none.
            if let Err(e) = questions.poll(left + Duration::from_millis(1))
                && e.kind() != libbpf_rs::ErrorKind::Interrupted
            {
                return Err(e).tried(|| "waiting at bb_wants".into());
            }
            if asked.take() {
                until = Instant::now() + STAY;
                if let Err(e) = self.attach()
                    && !std::mem::replace(&mut complained, true)
                {
                    tracing::warn!("send buffers are not raised: {e}");
                }
                // Whoever opens many such sockets wakes nobody more often.
                std::thread::sleep(LEAST);
            } else if Instant::now() >= until {
                self.links.clear();
            }
        }
    }
}

/// Starts the thread that waits for questions, of a data path whose pins are in `dir`.
///
/// # Errors
/// No thread, or no map.
pub fn start(parts: &Parts, dir: &Path, cgroup: PathBuf) -> Result<()> {
    let wants =
        MapHandle::from_pinned_path(dir.join("bb_wants")).tried(|| "opening bb_wants".into())?;
    let raiser = Raiser {
        dir: dir.to_path_buf(),
        cgroup,
        programs: None,
        links: Vec::new(),
    };
    parts.thread("buffers", move || {
        if let Err(e) = raiser.run(&wants) {
            tracing::error!("send buffers are not raised: {e}");
        }
    })
}
