//! TCP-Real, switched on and off: its congestion control, its option and its receivers.
//!
//! Everything of it is pinned in `DIR/real`, apart from the rest: maps, the congestion control's link (`ops`), the list
//! of connections (`list`), the link at the cgroup (`sockops`), the receivers' program (`ingress`) and its links
//! (`iface/IFINDEX`). What was asked for is kept there before anything is loaded, so that the next agent finishes what
//! this one could not.

pub(crate) mod list;
mod load;

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use bestby_api::{RealCounters, RealMode, RealRequest};
use bestby_bpf::abi;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, Tried as _};
use crate::kernel::hooks;
use crate::kernel::maps::Map;
use crate::kernel::store::Store;
use crate::kernel::sys;
use crate::kernel::tc::Link;

/// Name of the pin that keeps what was asked for.
const KEPT: &str = "bba_real";
/// JSON of it, bytes: twice the longest path.
const KEPT_SIZE: u32 = 3840;

/// What was asked for, as it is remembered across restarts of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) request: RealRequest,
    /// Directory of the cgroup.
    pub(crate) cgroup: PathBuf,
    /// Whether the configuration file asked for it.
    pub(crate) from_file: bool,
    /// Fingerprint of the objects that are loaded.
    pub(crate) object: String,
}

/// TCP-Real while it is on.
pub(crate) struct Running {
    pub(crate) kept: Kept,
    config: Map<u32, abi::bb_real_config>,
    counts: Map<u32, u64>,
    /// The receivers' program.
    ingress: OwnedFd,
    /// Interfaces where it runs.
    pub(crate) interfaces: BTreeSet<u32>,
}

/// TCP-Real, on or off.
pub(crate) struct TcpReal {
    dir: PathBuf,
    pub(crate) running: Option<Running>,
}

/// Fingerprint of the objects that this agent brings: others are an upgrade.
fn version() -> String {
    crate::fingerprint(bestby_bpf::REAL) + &crate::fingerprint(bestby_bpf::REAL_HOOKS)
}

fn kernel_config(request: &RealRequest) -> abi::bb_real_config {
    abi::bb_real_config {
        mode: match request.mode {
            RealMode::Guarded => abi::BB_REAL_GUARDED,
            RealMode::Paper => abi::BB_REAL_PAPER,
        },
        max_level: u32::from(request.max_level.get()),
    }
}

impl TcpReal {
    /// Off, until [`TcpReal::adopt`] finds otherwise.
    pub(crate) fn new(bpffs: &Path) -> Self {
        Self {
            dir: bpffs.join("real"),
            running: None,
        }
    }

    pub(crate) fn pin(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Takes over what an earlier agent switched on; what is not whole, or of another version, is loaded again.
    ///
    /// # Errors
    /// It cannot be loaded: it is off then.
    pub(crate) fn adopt(&mut self, links: &[Link]) -> Result<()> {
        if !self.pin(KEPT).exists() {
            // Nothing was asked for, or an earlier agent ended while it switched it off.
            return self.clear();
        }
        let Some((_, kept)) = self.store()?.all().into_iter().next() else {
            return self.clear();
        };
        if kept.object == version()
            && self.is_whole()
            && let Ok(ingress) = sys::open_pin(&self.pin("ingress"))
        {
            self.running = Some(Running {
                config: Map::open(&self.pin("bb_real_config"))?,
                counts: Map::open(&self.pin("bb_real_counts"))?,
                ingress,
                interfaces: BTreeSet::new(),
                kept,
            });
            self.configure()?;
            self.follow(links);
            return Ok(());
        }
        let result = self.start(kept, links);
        if result.is_err() {
            self.off()?;
        }
        result
    }

    /// Whether its pins are there.
    fn is_whole(&self) -> bool {
        let pins = ["bb_real_config", "bb_real_counts", "ops", "list", "sockops"];
        pins.iter().all(|name| self.pin(name).exists())
    }

    fn store(&self) -> Result<Store<Kept>> {
        Store::open(&self.dir, KEPT, KEPT_SIZE, 1)
    }

    fn configure(&self) -> Result<()> {
        match &self.running {
            Some(running) => running
                .config
                .set(&0, &kernel_config(&running.kept.request)),
            None => Ok(()),
        }
    }

    /// Switches it on, or changes how it is on.
    ///
    /// # Errors
    /// The kernel refuses something: it is as it was, off if it was off.
    pub(crate) fn on(
        &mut self,
        request: RealRequest,
        cgroup: PathBuf,
        from_file: bool,
        links: &[Link],
    ) -> Result<()> {
        let kept = Kept {
            request,
            cgroup,
            from_file,
            object: version(),
        };
        if self.is_whole()
            && let Some(running) = &mut self.running
            && running.kept.cgroup == kept.cgroup
        {
            running.kept = kept;
            let kept = running.kept.clone();
            self.store()?.set(0, &kept)?;
            return self.configure();
        }
        let before = self.running.as_ref().map(|running| running.kept.clone());
        let result = self.start(kept, links);
        if result.is_err() {
            match before {
                Some(kept) => self.start(kept, links)?,
                None => self.off()?,
            }
        }
        result
    }

    fn start(&mut self, kept: Kept, links: &[Link]) -> Result<()> {
        hooks::directory(&self.dir)?;
        let kept = Kept {
            object: version(),
            ..kept
        };
        let cgroup = std::fs::File::open(&kept.cgroup)
            .tried(|| format!("opening the cgroup {}", kept.cgroup.display()))?;
        if !sys::is_cgroup2(&kept.cgroup) {
            return Err(Error::invalid(format!(
                "{} is not a directory of a cgroup2 tree",
                kept.cgroup.display()
            )));
        }
        // With a mark of no version: whoever finds it like this loads all of it again.
        let unfinished = Kept {
            object: String::new(),
            ..kept.clone()
        };
        self.store()?.set(0, &unfinished)?;
        load::congestion_control(&self.dir, &kernel_config(&kept.request))?;
        let ingress = load::hooks(&self.dir, &cgroup)?;
        self.running = Some(Running {
            config: Map::open(&self.pin("bb_real_config"))?,
            counts: Map::open(&self.pin("bb_real_counts"))?,
            ingress,
            interfaces: BTreeSet::new(),
            kept: kept.clone(),
        });
        self.follow(links);
        self.store()?.set(0, &kept)
    }

    /// Attaches the receivers' program to interfaces that came, and forgets those that went.
    pub(crate) fn follow(&mut self, links: &[Link]) {
        let pins = self.pin("iface");
        let Some(running) = &mut self.running else {
            return;
        };
        let program = &running.ingress;
        if hooks::directory(&pins).is_err() {
            return;
        }
        let there: BTreeSet<u32> = links.iter().map(|link| link.ifindex).collect();
        for entry in std::fs::read_dir(&pins).into_iter().flatten().flatten() {
            let index = entry.file_name().to_string_lossy().parse::<u32>();
            if !index.is_ok_and(|index| there.contains(&index)) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        running
            .interfaces
            .retain(|ifindex| there.contains(ifindex) && pins.join(ifindex.to_string()).exists());
        for link in links {
            if running.interfaces.contains(&link.ifindex) {
                continue;
            }
            let pin = pins.join(link.ifindex.to_string());
            if let Ok(old) = sys::open_pin(&pin)
                && sys::link_update(old.as_fd(), program.as_fd()).is_ok()
            {
                running.interfaces.insert(link.ifindex);
                continue;
            }
            let attached = sys::link_tcx_ingress(program.as_fd(), link.ifindex)
                .and_then(|new| sys::pin(new.as_fd(), &pin));
            match attached {
                Ok(()) => drop(running.interfaces.insert(link.ifindex)),
                // It may be gone again; where it is not, its waves are measured where TCP gets them.
                Err(e) => tracing::debug!("TCP-Real at interface {}: {e}", link.name),
            }
        }
    }

    /// Switches it off. Connections go on as Reno; their kernel side ends with the last of them.
    ///
    /// # Errors
    /// A pin cannot be removed.
    pub(crate) fn off(&mut self) -> Result<()> {
        if let Ok(config) = Map::<u32, abi::bb_real_config>::open(&self.pin("bb_real_config")) {
            config.set(
                &0,
                &abi::bb_real_config {
                    mode: abi::BB_REAL_OFF,
                    max_level: abi::BB_REAL_DEFAULT_LEVEL,
                },
            )?;
        }
        self.running = None;
        self.clear()
    }

    /// Removes all pins, links first: what they hold is detached at once, not when the kernel gets round to it.
    fn clear(&self) -> Result<()> {
        let iface = std::fs::read_dir(self.pin("iface"));
        let iface = iface.into_iter().flatten().flatten().map(|e| e.path());
        for link in iface.chain(["sockops", "ops"].map(|name| self.pin(name))) {
            if let Ok(link) = libbpf_rs::Link::open(&link) {
                let _ = link.detach();
            }
        }
        match std::fs::remove_dir_all(&self.dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other.tried(|| format!("removing {}", self.dir.display())),
        }
    }

    /// What was counted since it was switched on; `None`: it is off.
    ///
    /// # Errors
    /// The map cannot be read.
    pub(crate) fn counted(&self) -> Result<Option<RealCounters>> {
        let Some(running) = &self.running else {
            return Ok(None);
        };
        let mut counters = [0; abi::BB_REAL_COUNTS as usize];
        for (index, value) in running.counts.entries()? {
            if let Some(counter) = counters.get_mut(index as usize) {
                *counter = value;
            }
        }
        Ok(Some(RealCounters::from_array(counters)))
    }
}
