//! Everything loaded, and the one thread that owns it.

pub(crate) mod auto;
mod flows;
mod ifaces;
mod media;
pub(crate) mod mistakes;
mod peers;
mod programs;
mod reload;
mod ruleset;
mod segment;
mod takeover;
mod tcp_real;
pub mod teardown;
mod trust;
mod wanted;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bestby_api::{CgroupPath, Config, MediaTables, PlainShare, RtpProfile, SendBuffers};
use bestby_bpf::abi;

use crate::datapath::ruleset::RuleSet;
use crate::desired::book::{Book, Kept, Merge};
use crate::desired::file::ConfigFile;
use crate::desired::taken::FileTaken;
use crate::error::{Error, Result, Tried as _};
use crate::kernel::explain;
use crate::kernel::hooks::{self, Classifier};
use crate::kernel::htb;
use crate::kernel::maps::Shared;
use crate::kernel::store::Store;
use crate::kernel::sys::{self, IfaceTable};
use crate::kernel::tc::{Link, Tc};
use crate::kernel::tcp_real::TcpReal;
use crate::observed::attached;
use crate::observed::attached::Attached;
use crate::observed::buffers::wmem_max;
use crate::observed::clock::Clock;
use crate::observed::names::{self, Names};
use crate::observed::probes::Probes;
use crate::parts::Parts;
use crate::plan::rules;

/// How often the agent looks whether devices, cgroups and interfaces are still what they were.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// JSON of one rule, bytes.
const KEPT_RULE: u32 = 1024;
/// JSON of one interface, bytes; a hash map's element must stay below a page.
pub(crate) const KEPT_IFACE: u32 = 3840;
/// JSON of one address, bytes.
const KEPT_PEER: u32 = 64;
/// Most peers of a file.
const MAX_PEERS: u32 = 16384;

/// Where things are.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Directory of the pins.
    pub bpffs: PathBuf,
    /// Configuration file.
    pub config: ConfigFile,
    /// cgroup of the socket programs, if the operator named one.
    pub cgroup: Option<PathBuf>,
}

/// What the agent knows of the devices that cut super-packets.
#[derive(Default)]
pub(crate) struct Segmenters {
    pub(crate) program: Option<OwnedFd>,
    /// Interfaces (slots) whose super-packets should be cut and are not, and why.
    pub(crate) problems: BTreeMap<u32, Error>,
}

/// Owner of programs, maps, interfaces and rules.
pub struct Datapath {
    pub(crate) paths: Paths,
    pub(crate) config: Config,
    pub(crate) shared: Shared,
    pub(crate) table: IfaceTable,
    pub(crate) tc: Tc,
    pub(crate) classifier: Classifier,
    /// The program that reads the answers of receivers, at each interface's ingress.
    pub(crate) answers: OwnedFd,
    /// Whether anybody reads drop notices.
    listened: bool,
    /// The filter of mode tc's trees, once one needs it.
    pub(crate) leaf: Option<OwnedFd>,
    pub(crate) segmenters: Segmenters,
    /// What works for interfaces whose rate is found.
    pub(crate) autos: auto::Autos,
    pub(crate) attached: BTreeMap<u32, Attached>,
    pub(crate) kept_ifaces: Store<Attached>,
    pub(crate) wanted: wanted::WantedInterfaces,
    /// Addresses of the peers that the file had when it was read last.
    kept_peers: Store<IpAddr>,
    /// Cookie of the network namespace.
    pub(crate) netns: u64,
    pub(crate) book: Book,
    pub(crate) kept_rules: Store<Kept>,
    pub(crate) ruleset: RuleSet,
    /// What the rules were compiled with.
    pub(crate) rtp_profile: RtpProfile,
    /// ... and with which ids of header extensions.
    pub(crate) media_tables: MediaTables,
    /// The time of day, as it was looked at last.
    pub(crate) clock: Clock,
    pub(crate) probes: Probes,
    pub(crate) tcp_real: TcpReal,
    /// Per cent of each link for what is not media.
    pub(crate) plain_share: PlainShare,
    /// The host's names as they were when the rules were compiled.
    pub(crate) names: Names,
    /// What the cgroups that rules name were when the rules were compiled.
    pub(crate) cgroups: HashMap<CgroupPath, Option<(u64, u32)>>,
    /// Rules that match nothing yet, and why.
    pub(crate) waiting: Vec<(bestby_api::FlowName, String)>,
    pub(crate) cgroup: Option<PathBuf>,
    /// What the operator should know, for doctor.
    pub(crate) warnings: Vec<String>,
    pub(crate) qdisc_supported: bool,
    pub(crate) started: Instant,
    /// When the configuration file was read, and whether it was taken.
    pub(crate) file_taken: FileTaken,
    /// Serial number of what names mean, for the translation of drop notices.
    pub(crate) generation: u64,
    // Last: released after everything else is.
    _lock: nix::fcntl::Flock<std::fs::File>,
}

/// Whether the agent has a capability, by its number.
pub fn has_capability(bit: u32) -> bool {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|s| {
            s.lines()
                .find_map(|l| l.strip_prefix("CapEff:").map(|h| h.trim().to_string()))
        })
        .and_then(|h| u64::from_str_radix(&h, 16).ok())
        .is_some_and(|effective| effective >> bit & 1 == 1)
}

/// The file systems the agent needs; mounts the bpffs if it is missing.
fn prepare(dir: &Path) -> Result<()> {
    let existing = dir
        .ancestors()
        .find(|p| p.exists())
        .unwrap_or(Path::new("/"));
    if !sys::is_bpffs(existing) {
        let standard = Path::new("/sys/fs/bpf");
        let point = if dir.starts_with(standard) && standard.exists() {
            standard
        } else {
            std::fs::create_dir_all(dir).tried(|| format!("creating {}", dir.display()))?;
            dir
        };
        sys::mount_bpffs(point).map_err(|e| {
            Error::failed(format!(
                "{} is not on a bpffs, and mounting one at {} failed: {e}",
                dir.display(),
                point.display()
            ))
            .hint(format!("mount -t bpf bpf {}", point.display()))
        })?;
        tracing::info!("mounted a bpffs at {}", point.display());
    }
    hooks::directory(dir)
}

/// Capabilities the agent needs and does not have.
pub fn missing_capabilities() -> Vec<&'static str> {
    let admin = has_capability(21);
    [
        ("CAP_NET_ADMIN", has_capability(12)),
        ("CAP_BPF", has_capability(39) || admin),
        ("CAP_PERFMON", has_capability(38) || admin),
    ]
    .into_iter()
    .filter_map(|(name, there)| (!there).then_some(name))
    .collect()
}

impl Datapath {
    /// Loads what is not loaded, and takes over what an earlier agent left.
    ///
    /// # Errors
    /// A missing capability, another agent, pins of another version, a bad file: nothing was changed then.
    pub fn open(paths: Paths, config: Config) -> Result<Self> {
        let missing = missing_capabilities();
        if !missing.is_empty() {
            return Err(
                Error::forbidden(format!("bestbyd lacks {}", missing.join(", ")))
                    .hint("run it as root or by its systemd unit"),
            );
        }
        prepare(&paths.bpffs)?;
        let dir = paths.bpffs.clone();
        let lock = sys::lock_directory(&dir).map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => {
                Error::conflict(format!("another bestbyd is running on {}", dir.display()))
                    .hint("stop it first, or give this one its own --bpffs and --socket")
            }
            _ => Error::failed(format!("locking {}: {e}", dir.display())),
        })?;
        let mut warnings = Vec::new();
        explain::clear(&dir);
        let shared = Shared::open(&dir)?;
        if !shared.remade.is_empty() {
            warnings.push(format!(
                "pins were gone, and were made anew: {}. An interface that was attached goes on with the old ones: \
                 bestby iface upgrade DEV",
                shared.remade.join(", ")
            ));
        }
        let table = IfaceTable::map(std::os::fd::AsFd::as_fd(shared.ifaces.handle()))
            .tried(|| "mapping bb_ifaces".into())?;
        let mut tc = Tc::open()?;
        let cgroup = match names::cgroup_root(paths.cgroup.as_deref()) {
            Ok(path) => Some(path),
            Err(e) if paths.cgroup.is_some() => return Err(e),
            Err(e) => {
                warnings.push(e.to_string());
                None
            }
        };
        let links = tc.links()?;
        let names = Names::new(
            links.iter().map(|l| (l.name.clone(), l.ifindex)),
            cgroup.as_deref(),
        );
        let kept_rules: Store<Kept> = Store::open(&dir, "bba_rules", KEPT_RULE, abi::BB_MAX_RULES)?;
        let kept_ifaces = Store::open(&dir, "bba_ifaces", KEPT_IFACE, abi::BB_MAX_IFACES)?;
        let kept_wanted = Store::open(&dir, "bba_wanted", KEPT_IFACE, 4 * abi::BB_MAX_IFACES)?;
        let kept_peers = Store::open(&dir, "bba_peers", KEPT_PEER, MAX_PEERS)?;
        let netns = sys::netns_cookie()?;
        attached::same_namespace(&kept_ifaces.all(), netns, &dir)?;
        let book = Book::adopt(kept_rules.all());
        // Only to see whether it can be: from here on, what runs is changed.
        let list = book.merged(&config.flows, Merge::Adopt);
        rules::compile_list(&list, config.rtp_profile, &config.media, &names)?;
        let mut loader = hooks::loader(&dir, &netns);
        let classifier = Classifier::open(&mut loader, &dir)?;
        let answers = hooks::load_answers(&mut loader)?;
        if let Some(cgroup) = &cgroup
            && let Err(e) = hooks::attach_cgroup(&mut loader, &dir, cgroup)
        {
            warnings.push(format!(
                "no socket options and no RTT of new TCP connections: {e}"
            ));
        }
        let ruleset = RuleSet::adopt(&shared)?;
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        let mut datapath = Self {
            paths,
            config: Config::default(),
            shared,
            table,
            tc,
            classifier,
            answers,
            listened: false,
            leaf: None,
            segmenters: Segmenters::default(),
            autos: auto::Autos::default(),
            attached: BTreeMap::new(),
            kept_ifaces,
            wanted: wanted::WantedInterfaces::adopt(kept_wanted),
            kept_peers,
            netns,
            book,
            kept_rules,
            ruleset,
            rtp_profile: config.rtp_profile,
            media_tables: config.media.clone(),
            clock: Clock::read(),
            probes: Probes::default(),
            tcp_real: TcpReal::new(&dir),
            plain_share: config.agent.plain_share,
            names,
            cgroups: HashMap::new(),
            waiting: Vec::new(),
            cgroup,
            warnings,
            qdisc_supported: crate::kernel::qdisc::supported(),
            started: Instant::now(),
            file_taken: FileTaken::at_start(),
            generation: 1,
            _lock: lock,
        };
        datapath.configure(&config)?;
        datapath.keep_time()?;
        datapath.adopt_interfaces(&links);
        datapath.trust()?;
        let list = datapath.book.merged(&config.flows, Merge::Adopt);
        datapath.put_rules(list)?;
        datapath.set_peers(&config.peers)?;
        datapath.config = config;
        // A device may come later, or not at all: the others must not wait for it.
        let interfaces = datapath.config.interfaces.clone();
        let mut problems = datapath.read_interfaces(&interfaces, Merge::Adopt);
        problems.extend(datapath.open_tcp_real(&links));
        if let Err(e) = reload::all(problems) {
            datapath.file_taken.start_failed(e.to_string());
        }
        let unsaid = datapath.config.unsaid().into_iter();
        let mistakes = datapath.mistakes();
        let mistakes = mistakes.iter().map(ToString::to_string);
        for warning in unsaid.chain(mistakes).chain(datapath.unknown_media()) {
            tracing::warn!("{warning}");
        }
        Ok(datapath)
    }

    /// Takes TCP-Real over, or switches it on as the file says. The rest must not wait for it.
    fn open_tcp_real(&mut self, links: &[Link]) -> Option<Error> {
        let asked = self.config.tcp_real.clone();
        let adopted = self.tcp_real.adopt(links);
        let followed = match asked {
            Some(_) => self.follow_file(asked.as_ref()),
            None => Ok(()),
        };
        let followed = followed.err();
        for e in adopted.err().iter().chain(&followed) {
            tracing::error!("{e}");
            self.warnings.push(e.to_string());
        }
        followed
    }

    /// Writes `[agent]`'s part of the kernel's configuration.
    fn configure(&mut self, config: &Config) -> Result<()> {
        let agent = &config.agent;
        let mut kernel = self.shared.config.get(&0)?.unwrap_or_default();
        (kernel.mark_magic, kernel.mark_magic_mask) = agent.mark_magic.bits();
        kernel.abi_version = abi::BB_ABI_VERSION;
        if kernel.seed == 0 {
            kernel.seed = crate::kernel::seed::random()?;
        }
        kernel.flags &= !abi::BB_CONFIG_FORWARDED_MARKS;
        if agent.forwarded_marks {
            kernel.flags |= abi::BB_CONFIG_FORWARDED_MARKS;
        }
        kernel.flags &= !(abi::BB_CONFIG_BUFFERS | abi::BB_CONFIG_RAISE);
        kernel.flags |= match agent.send_buffers {
            SendBuffers::Off => 0,
            SendBuffers::Warn => abi::BB_CONFIG_BUFFERS,
            SendBuffers::Auto => abi::BB_CONFIG_BUFFERS | abi::BB_CONFIG_RAISE,
        };
        let types = agent.ip_option;
        let (new4, new6) = (types.ipv4, (types.ipv6_deadline, types.ipv6_lifetime));
        if (
            kernel.option4,
            (kernel.option6_deadline, kernel.option6_lifetime),
        ) != (new4, new6)
        {
            // What is known of paths is known of another option.
            self.forget_probes()?;
        }
        kernel.option4 = new4;
        (kernel.option6_deadline, kernel.option6_lifetime) = new6;
        kernel.events_per_s = if self.listened { agent.events_per_s } else { 0 };
        kernel.rtt_max_age_ns = agent.rtt_max_age.as_ns();
        kernel.prio_table = agent.so_priority.to_bytes();
        kernel.dscp_table = agent.dscp.to_bytes();
        self.shared.config.set(&0, &kernel)?;
        self.share(agent.plain_share)
    }

    /// Tells the kernel side whether anybody reads drop notices: else it sends none, and counts none as lost.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn listen(&mut self, listened: bool) -> Result<()> {
        if self.listened == listened {
            return Ok(());
        }
        let mut kernel = self.shared.config.get(&0)?.unwrap_or_default();
        let most = self.config.agent.events_per_s;
        kernel.events_per_s = if listened { most } else { 0 };
        self.shared.config.set(&0, &kernel)?;
        self.listened = listened;
        Ok(())
    }

    /// Tells the kernel side whether the clock is exact enough, and what the host allows send buffers. Once a second, and when the clock was set.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn keep_time(&mut self) -> Result<()> {
        let was = std::mem::replace(&mut self.clock, Clock::read());
        let clock = self.clock;
        if was.trouble().is_none() != clock.trouble().is_none() {
            match clock.trouble() {
                Some(why) => tracing::info!("deadlines in IP options are ignored: {why}"),
                None => tracing::info!("the clock is exact enough for deadlines in IP options"),
            }
        }
        let mut kernel = self.shared.config.get(&0)?.unwrap_or_default();
        kernel.tai_s = clock.tai_s;
        kernel.wmem_max = wmem_max();
        kernel.clock_until_ns = clock.until(sys::monotonic_ns());
        self.shared.config.set(&0, &kernel)
    }

    /// Gives what is not media this part of every attached interface: in the kernel side's settings, and in mode tc
    /// in the tree below.
    fn share(&mut self, plain: PlainShare) -> Result<()> {
        let before = std::mem::replace(&mut self.plain_share, plain);
        if self.attached.is_empty() {
            return Ok(());
        }
        let links = self.tc.links()?;
        for (slot, attached) in self.attached.clone() {
            self.table.write(slot, &attached.kernel(plain));
            let found = self.found(slot, &attached);
            let (old, new) = (attached.tree(before, found), attached.tree(plain, found));
            let shaped = attached.shapes();
            let link = links.iter().find(|l| l.ifindex == attached.ifindex);
            if let (true, Some(link)) = (shaped && htb::differs(&old, &new), link) {
                self.put_tree(slot, link, &new, true)?;
            }
        }
        Ok(())
    }

    /// Whether the way to the kernel side is there and back: systemd's watchdog waits for that.
    ///
    /// # Errors
    /// The map of settings cannot be read, or is not what this agent wrote.
    pub fn round_trip(&mut self) -> Result<()> {
        let kernel = self.shared.config.get(&0)?.unwrap_or_default();
        if kernel.abi_version == abi::BB_ABI_VERSION {
            return Ok(());
        }
        Err(Error::failed(format!(
            "the kernel side has layout {}, and not {}",
            kernel.abi_version,
            abi::BB_ABI_VERSION
        )))
    }

    /// Follows the host: devices that went or came, cgroups that rules name.
    pub(crate) fn housekeeping(&mut self) {
        if let Err(e) = self.keep_time() {
            tracing::error!("{e}");
        }
        let Ok(links) = self.tc.links() else { return };
        self.follow(&links);
        self.attach_missing(&links);
        self.watch_segmenters(&links);
        self.tcp_real.follow(&links);
        let names = Names::new(
            links.into_iter().map(|l| (l.name, l.ifindex)),
            self.cgroup.as_deref(),
        );
        if self.rules_depend_on(&names) {
            let list = self.book.entries.clone();
            self.names = names;
            if let Err(e) = self.put_rules(list) {
                tracing::error!("compiling the flow rules again: {e}");
            }
        } else {
            self.names = names;
        }
        self.generation += 1;
    }
}

type Command = Box<dyn FnOnce(&mut Datapath) + Send>;

/// Sends commands to the thread that owns the [`Datapath`].
#[derive(Clone)]
pub struct Handle {
    commands: std::sync::mpsc::Sender<Command>,
}

impl Handle {
    /// Starts the thread; `open` runs on it, and its error is returned.
    ///
    /// # Errors
    /// What `open` says, or no thread can be made.
    pub fn start(
        parts: &Parts,
        open: impl FnOnce() -> Result<Datapath> + Send + 'static,
    ) -> Result<Self> {
        let (commands, inbox) = std::sync::mpsc::channel::<Command>();
        let (ready, opened) = std::sync::mpsc::channel();
        parts.thread("datapath", move || {
            let mut datapath = match open() {
                Ok(datapath) => datapath,
                Err(e) => return drop(ready.send(Err(e))),
            };
            let _ = ready.send(Ok(()));
            let mut due = Instant::now() + HOUSEKEEPING;
            loop {
                match inbox.recv_timeout(due.saturating_duration_since(Instant::now())) {
                    Ok(command) => command(&mut datapath),
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                        datapath.housekeeping();
                        due = Instant::now() + HOUSEKEEPING;
                    }
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
                }
            }
        })?;
        opened
            .recv()
            .map_err(|_| Error::failed("the data path's thread died"))??;
        Ok(Self { commands })
    }

    /// Runs a command and waits for its result.
    ///
    /// # Errors
    /// The command's, or the thread is gone.
    pub async fn run<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Datapath) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, result) = tokio::sync::oneshot::channel();
        let gone = || {
            Error::failed("the data path's thread is gone; what is loaded goes on")
                .hint("restart bestbyd")
        };
        self.commands
            .send(Box::new(move |datapath| {
                drop(answer.send(command(datapath)))
            }))
            .map_err(|_| gone())?;
        result.await.map_err(|_| gone())?
    }
}
