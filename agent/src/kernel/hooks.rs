//! The hook programs, loaded by Aya: the classifier at each interface, `sockopt` and `rtt` at the cgroup.
//! Programs and links are pinned; those of an earlier agent are updated in place, without a gap.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use aya::programs::{Program, ProgramError};
use aya::{Ebpf, EbpfLoader};

use crate::error::{Error, Result, Tried as _};
use crate::kernel::filter::Side;
use crate::kernel::locked;
use crate::kernel::sys;
use crate::kernel::tc::{Link, Tc};

/// An error with all its causes: Aya's verifier logs are in the sources.
fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut source = e.source();
    while let Some(e) = source {
        let part = e.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        source = e.source();
    }
    text
}

/// Whether the kernel is one for real time.
fn preemptible() -> &'static u32 {
    let realtime = nix::sys::utsname::uname()
        .is_ok_and(|name| bestby_api::realtime(&name.version().to_string_lossy()));
    if realtime { &1 } else { &0 }
}

/// A loader of objects that use the maps pinned in `dir` and work in the network namespace of this cookie. It reads the
/// types of the whole kernel, half of an agent's work at its start: one for all objects that are loaded together.
pub fn loader<'a>(dir: &Path, netns: &'a u64) -> EbpfLoader<'a> {
    let mut loader = EbpfLoader::new();
    loader
        .default_map_pin_directory(dir)
        .override_global("bb_netns", netns, false)
        .override_global("bb_preemptible", preemptible(), false);
    loader
}

pub(crate) fn load(loader: &mut EbpfLoader<'_>, object: &'static [u8], name: &str) -> Result<Ebpf> {
    locked::types()?;
    loader
        .load(object)
        .map_err(|e| Error::failed(format!("loading the {name} object: {}", chain(&e))))
}

pub(crate) fn refused(name: &str, e: &ProgramError) -> Error {
    let what = format!("the kernel refuses program {name}");
    let said = chain(e);
    locked::locked(&what, &said, locked::text().as_deref()).unwrap_or_else(|| {
        Error::failed(format!("{what}: {said}")).hint(
            "if `bestby doctor` finds that this kernel has all it needs, this is a bug of bestby's",
        )
    })
}

/// Makes a directory below the bpffs.
pub(crate) fn directory(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).tried(|| format!("creating {}", path.display()))
}

/// The loaded classifier.
pub struct Classifier {
    program: OwnedFd,
}

impl Classifier {
    /// The classifier of this agent: the pinned one if it is the same, else a new one.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn open(loader: &mut EbpfLoader<'_>, dir: &Path) -> Result<Self> {
        // The same program goes on with what it knows, in mode tc the queues it models.
        match sys::open_pin(&Self::pin(dir)) {
            Ok(program) => Ok(Self { program }),
            Err(_) => Self::load(loader, dir),
        }
    }

    /// Where a program of this version is pinned.
    fn pin(dir: &Path) -> PathBuf {
        dir.join("prog").join(format!(
            "classify_{}",
            crate::fingerprint(bestby_bpf::CLASSIFY)
        ))
    }

    /// Loads the classifier anew and pins it in place of any earlier one.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn load(loader: &mut EbpfLoader<'_>, dir: &Path) -> Result<Self> {
        let mut object = load(loader, bestby_bpf::CLASSIFY, "classify")?;
        for (name, program) in object.programs_mut() {
            if let Program::SchedClassifier(program) = program {
                program.load().map_err(|e| refused(name, &e))?;
                let fd = program.fd().map_err(|e| refused(name, &e))?.as_fd();
                let fd = fd
                    .try_clone_to_owned()
                    .tried(|| "duplicating a program's descriptor".into())?;
                let path = Self::pin(dir);
                let programs = dir.join("prog");
                directory(&programs)?;
                sys::pin(fd.as_fd(), &path).tried(|| format!("pinning {}", path.display()))?;
                let all = std::fs::read_dir(&programs).into_iter().flatten().flatten();
                for old in all.map(|e| e.path()).filter(|p| *p != path) {
                    let _ = std::fs::remove_file(old);
                }
                return Ok(Self { program: fd });
            }
        }
        Err(Error::failed("the classify object has no program"))
    }

    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

/// Attaches a program to one side of an interface, or puts it in the place of an earlier one. Returns whether tcx was
/// used.
///
/// # Errors
/// The kernel's refusal.
pub fn attach_to(
    program: BorrowedFd<'_>,
    tc: &mut Tc,
    link: &Link,
    pin: &Path,
    side: Side,
) -> Result<bool> {
    if let Ok(old) = sys::open_pin(pin) {
        if sys::link_update(old.as_fd(), program).is_ok() {
            return Ok(true);
        }
        // The device it was attached to is gone; this one has only the same name.
        let _ = std::fs::remove_file(pin);
    }
    let attached = match side {
        Side::Egress => sys::link_tcx_egress(program, link.ifindex),
        Side::Ingress => sys::link_tcx_ingress(program, link.ifindex),
    };
    match attached {
        Ok(new) => {
            sys::pin(new.as_fd(), pin).tried(|| format!("pinning {}", pin.display()))?;
            Ok(true)
        }
        // Before 6.6 there is no such attach type.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            use std::os::fd::AsRawFd as _;
            tc.filter(link, side, program.as_raw_fd())?;
            Ok(false)
        }
        Err(e) => Err(crate::error::os_error(
            &format!("interface {}: attaching {}", link.name, side.program()),
            &e,
        )),
    }
}

/// Loads the program that reads the answers of receivers.
///
/// # Errors
/// The kernel refuses it.
pub fn load_answers(loader: &mut EbpfLoader<'_>) -> Result<OwnedFd> {
    only_program(loader, bestby_bpf::ANSWER, "answer")
}

/// Loads the filter of the HTB tree.
///
/// # Errors
/// The kernel refuses it.
pub fn load_leaf(loader: &mut EbpfLoader<'_>) -> Result<OwnedFd> {
    only_program(loader, bestby_bpf::LEAF, "leaf")
}

/// Loads the program of the devices that cut super-packets.
///
/// # Errors
/// The kernel refuses it.
pub fn load_segment(loader: &mut EbpfLoader<'_>) -> Result<OwnedFd> {
    only_program(loader, bestby_bpf::SEGMENT, "segment")
}

/// The classifier of an object that has one and nothing else.
fn only_program(loader: &mut EbpfLoader<'_>, object: &'static [u8], what: &str) -> Result<OwnedFd> {
    let mut object = load(loader, object, what)?;
    for (name, program) in object.programs_mut() {
        if let Program::SchedClassifier(program) = program {
            program.load().map_err(|e| refused(name, &e))?;
            let fd = program.fd().map_err(|e| refused(name, &e))?.as_fd();
            return fd
                .try_clone_to_owned()
                .tried(|| "duplicating a program's descriptor".into());
        }
    }
    Err(Error::failed(format!("the {what} object has no program")))
}

/// Detaches a program from one side of an interface.
///
/// # Errors
/// The pin cannot be removed, or the kernel's refusal.
pub fn detach(tc: &mut Tc, ifindex: u32, name: &str, pin: &Path, side: Side) -> Result<()> {
    if pin.exists() {
        // At once: the kernel frees a link whose pin goes only later, and refuses the same program until then.
        if let Ok(link) = libbpf_rs::Link::open(pin) {
            let _ = link.detach();
        }
        return std::fs::remove_file(pin).tried(|| format!("removing {}", pin.display()));
    }
    tc.remove_filter(ifindex, name, side)
}

/// Loads `sockopt` and `rtt` and attaches them to the cgroup; links of an earlier agent are updated.
///
/// # Errors
/// What could not be loaded or attached.
pub fn attach_cgroup(loader: &mut EbpfLoader<'_>, dir: &Path, cgroup: &Path) -> Result<()> {
    let file =
        std::fs::File::open(cgroup).tried(|| format!("opening the cgroup {}", cgroup.display()))?;
    let id = std::os::unix::fs::MetadataExt::ino(
        &file.metadata().tried(|| "reading the cgroup's id".into())?,
    );
    let links = dir.join("link");
    directory(&links)?;
    let mut current = Vec::new();
    for (object, what) in [(bestby_bpf::SOCKOPT, "sockopt"), (bestby_bpf::RTT, "rtt")] {
        let mut object = load(loader, object, what)?;
        for (name, program) in object.programs_mut() {
            let pin = links.join(name);
            attach_program(program, name, &pin, &file, id)?;
            current.push(pin);
        }
    }
    // Programs that an earlier version had and this one has not.
    for entry in std::fs::read_dir(&links)
        .tried(|| format!("reading {}", links.display()))?
        .flatten()
    {
        if !current.contains(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// A loaded program of a cgroup that is not attached yet.
pub(crate) struct CgroupProgram {
    name: String,
    program: OwnedFd,
    kind: libbpf_sys::bpf_attach_type,
}

impl CgroupProgram {
    /// Attaches it until the link is closed.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn attach(&self, cgroup: BorrowedFd<'_>) -> Result<OwnedFd> {
        let doing = || format!("attaching {} to the cgroup", self.name);
        sys::link_cgroup(self.program.as_fd(), cgroup, self.kind).tried(doing)
    }
}

/// Loads what raises send buffers.
///
/// # Errors
/// The kernel refuses it.
pub(crate) fn load_buffers(dir: &Path) -> Result<Vec<CgroupProgram>> {
    // Names no type of the kernel.
    let mut loader = EbpfLoader::new();
    loader.default_map_pin_directory(dir);
    let mut object = load(&mut loader, bestby_bpf::BUFFER, "buffer")?;
    let mut loaded = Vec::new();
    for (name, program) in object.programs_mut() {
        let kind = match name {
            "bb_sendmsg4" => libbpf_sys::BPF_CGROUP_UDP4_SENDMSG,
            _ => libbpf_sys::BPF_CGROUP_UDP6_SENDMSG,
        };
        let Program::CgroupSockAddr(program) = program else {
            return Err(Error::failed(format!(
                "program {name} is of a type that bestbyd does not attach"
            )));
        };
        program.load().map_err(|e| refused(name, &e))?;
        let fd = program.fd().map_err(|e| refused(name, &e))?.as_fd();
        let program = fd.try_clone_to_owned();
        loaded.push(CgroupProgram {
            name: name.into(),
            program: program.tried(|| "duplicating a program's descriptor".into())?,
            kind,
        });
    }
    Ok(loaded)
}

/// Loads a program and attaches it to a cgroup, or puts it in the place of the one that is pinned for the same cgroup.
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn attach_program(
    program: &mut Program,
    name: &str,
    pin: &Path,
    cgroup: &std::fs::File,
    id: u64,
) -> Result<()> {
    match program {
        Program::CgroupSockopt(p) => p.load(),
        Program::SockOps(p) => p.load(),
        _ => {
            return Err(Error::failed(format!(
                "program {name} is of a type that bestbyd does not attach"
            )));
        }
    }
    .map_err(|e| refused(name, &e))?;
    if pin.exists()
        && let Ok(old) = libbpf_rs::Link::open(pin)
    {
        let same = match old.info().map(|i| i.info) {
            Ok(libbpf_rs::query::LinkTypeInfo::Cgroup(c)) => c.cgroup_id == id,
            _ => false,
        };
        let fd = program.fd().map_err(|e| refused(name, &e))?;
        if same && sys::link_update(old.as_fd(), fd.as_fd()).is_ok() {
            return Ok(());
        }
    }
    let fd = program.fd().map_err(|e| refused(name, &e))?;
    let kinds: &[_] = match program {
        // The kernel accepts only the one that the program was loaded for.
        Program::CgroupSockopt(_) => &[
            libbpf_sys::BPF_CGROUP_SETSOCKOPT,
            libbpf_sys::BPF_CGROUP_GETSOCKOPT,
        ],
        _ => &[libbpf_sys::BPF_CGROUP_SOCK_OPS],
    };
    let mut last = std::io::Error::from(std::io::ErrorKind::InvalidInput);
    for kind in kinds {
        match sys::link_cgroup(fd.as_fd(), cgroup.as_fd(), *kind) {
            Ok(link) => {
                return sys::pin(link.as_fd(), pin).tried(|| format!("pinning {}", pin.display()));
            }
            Err(e) => last = e,
        }
    }
    Err(crate::error::os_error(
        &format!("attaching {name} to the cgroup"),
        &last,
    ))
}
