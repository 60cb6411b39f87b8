//! The classifier's own answer to `bestby explain` (`bpf/include/bb_explain.bpf.h`): loaded once more for the question,
//! with the rules, delays and settings in force and all else its own, and run on one frame.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use aya::EbpfLoader;
use aya::maps::Array;
use aya::programs::SchedClassifier;
use bestby_bpf::{SkBuff, abi, test_run};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::error::{Error, Result, Tried as _};
use crate::kernel::maps::Map;
use crate::kernel::{hooks, sys};

const PROGRAM: &str = "bb_classify";
const LOOPBACK: u32 = 1;

/// A packet to be judged, and by what. It needs nothing else: whoever has it may ask on any thread.
pub(crate) struct Question {
    /// Directory of the agent's pins.
    pub dir: PathBuf,
    /// The maps that say what the operator and measurements say, by name ([`crate::kernel::maps::Shared::in_force`]).
    pub in_force: Vec<(&'static str, OwnedFd)>,
    /// The interface's settings; an attached one's, or any.
    pub iface: abi::bb_iface,
    /// Of the sender.
    pub told: abi::bb_told,
    /// The frame, with Ethernet's header.
    pub frame: Vec<u8>,
    /// Bytes on the link, if the frame stands for a longer one.
    pub wire_len: u32,
    /// `SO_MARK`.
    pub mark: u32,
    /// `SO_PRIORITY`.
    pub priority: u32,
}

/// What the classifier says of it.
pub(crate) struct Answer {
    /// Step by step.
    pub explained: abi::bb_explained,
    /// The session it would join.
    pub session: abi::bb_session,
    /// What it added to the counters of the whole host, by `BB_G_*`.
    global: Map<u32, u64>,
}

impl Answer {
    /// Whether the classifier counted one of `BB_G_*`.
    pub(crate) fn counted(&self, which: u32) -> bool {
        matches!(self.global.get(&which), Ok(Some(n)) if n > 0)
    }

    /// What was known after a step; `None`: it was not made.
    pub(crate) fn after(&self, step: u32) -> Option<&abi::bb_said> {
        self.explained
            .said
            .get(step as usize)
            .filter(|said| said.done != 0)
    }
}

/// Directory of an instance's pins, of the maps in force and of those that Aya makes for it. It goes with this.
struct Pins(PathBuf);

impl Pins {
    fn new(question: &Question) -> Result<Self> {
        clear(&question.dir);
        let pins = Self(place(&question.dir));
        hooks::directory(&pins.0)?;
        for (name, map) in &question.in_force {
            let path = pins.0.join(name);
            sys::pin(map.as_fd(), &path).tried(|| format!("pinning {}", path.display()))?;
        }
        Ok(pins)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn place(dir: &Path) -> PathBuf {
    dir.join("explain")
}

/// Takes away what an agent left that was killed while it asked.
pub(crate) fn clear(dir: &Path) {
    let _ = std::fs::remove_dir_all(place(dir));
}

/// Asks the classifier. Takes as long as loading it, and 25 MB of kernel memory meanwhile. One at a time: the place of
/// its pins is one.
///
/// # Errors
/// The kernel refuses the instance, or the frame.
pub(crate) fn ask(question: &Question) -> Result<Answer> {
    let pins = Pins::new(question)?;
    let mut loader = EbpfLoader::new();
    loader.default_map_pin_directory(&pins.0).override_global(
        "bb_told",
        question.told.as_bytes(),
        true,
    );
    let mut object = hooks::load(&mut loader, bestby_bpf::CLASSIFY, "classify")?;
    let ifaces: Map<u32, abi::bb_iface> = Map::open(&pins.0.join("bb_ifaces"))?;
    ifaces.set(&0, &question.iface)?;
    let program: &mut SchedClassifier = object
        .program_mut(PROGRAM)
        .and_then(|program| program.try_into().ok())
        .ok_or_else(|| Error::failed("the classify object has no program"))?;
    program.load().map_err(|e| hooks::refused(PROGRAM, &e))?;
    let skb = SkBuff {
        ifindex: question.iface.ifindex,
        ingress_ifindex: if question.told.forwarded != 0 {
            LOOPBACK
        } else {
            0
        },
        mark: question.mark,
        priority: question.priority,
        wire_len: question.wire_len,
        ..SkBuff::default()
    };
    let fd = program.fd().map_err(|e| hooks::refused(PROGRAM, &e))?;
    test_run(fd.as_fd(), &question.frame, skb, 1)
        .tried(|| "running the classifier on the packet".into())?;

    let read =
        |e: aya::maps::MapError| Error::failed(format!("reading the classifier's answer: {e}"));
    let map = object
        .map("bb_explanation")
        .ok_or_else(|| Error::failed("the classify object has no bb_explanation"))?;
    let answers: Array<_, [u8; size_of::<abi::bb_explained>()]> =
        Array::try_from(map).map_err(read)?;
    let bytes = answers.get(&0, 0).map_err(read)?;
    let explained = abi::bb_explained::read_from_bytes(&bytes)
        .map_err(|_| Error::failed("the classifier's answer has another size"))?;
    let sessions: Map<u32, abi::bb_session> = Map::open(&pins.0.join("bb_sessions"))?;
    Ok(Answer {
        session: sessions.get(&explained.session)?.unwrap_or_default(),
        global: Map::open(&pins.0.join("bb_global"))?,
        explained,
    })
}
