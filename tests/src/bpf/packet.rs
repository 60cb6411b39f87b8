//! A packet as `BPF_PROG_TEST_RUN` takes it, and what became of it.
#![allow(clippy::unwrap_used)]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use bestby_bpf::abi::bb_cb;
use zerocopy::{FromBytes as _, IntoBytes as _};

pub use bestby_bpf::SkBuff;

/// What became of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// [`PASS`] or [`SHOT`].
    pub verdict: i32,
    /// The control block the queue would read.
    pub cb: bb_cb,
    /// The whole context afterwards.
    pub skb: SkBuff,
}

impl Outcome {
    /// 0 = none.
    #[must_use]
    pub fn deadline(&self) -> u64 {
        if self.has(bestby_bpf::abi::BB_CB_DEADLINE) {
            bestby_bpf::deadline(&self.cb, crate::clock::now_ns())
        } else {
            0
        }
    }

    /// 0..=7.
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.cb.class_ & 7
    }

    /// `enum bb_treatment`.
    #[must_use]
    pub fn treatment(&self) -> u32 {
        u32::from(self.cb.class_ >> 4)
    }

    /// Whether all of these `BB_CB_*` flags are set.
    #[must_use]
    pub fn has(&self, flags: u32) -> bool {
        u32::from(self.cb.flags) & flags == flags
    }
}

/// Runs of a program, and how long they took, ns; while `kernel.bpf_stats_enabled` is set.
///
/// # Panics
/// When the kernel does not say.
#[must_use]
pub fn runs(program: BorrowedFd<'_>) -> (u64, u64) {
    // SAFETY: the structure is plain data, valid for the length said, and outlives the call.
    let info = unsafe {
        let mut info: libbpf_sys::bpf_prog_info = std::mem::zeroed();
        let mut len = size_of_val(&info) as u32;
        let got = libbpf_sys::bpf_obj_get_info_by_fd(
            program.as_raw_fd(),
            (&raw mut info).cast(),
            &raw mut len,
        );
        assert_eq!(got, 0);
        info
    };
    (info.run_cnt, info.run_time_ns)
}

/// The loaded classifier, to be run on one frame at a time; any number of threads may.
#[derive(Debug)]
pub struct Classifier(OwnedFd);

impl Classifier {
    /// Any program at tc.
    #[must_use]
    pub fn new(program: OwnedFd) -> Self {
        Self(program)
    }

    /// Classifies one frame.
    ///
    /// # Panics
    /// When the kernel refuses frame or context.
    #[must_use]
    pub fn run(&self, frame: &[u8], skb: SkBuff) -> Outcome {
        self.repeat(frame, skb, 1)
    }

    /// Classifies one frame so many times, one right after the other; the outcome is the last one's.
    ///
    /// # Panics
    /// When the kernel refuses frame or context.
    #[must_use]
    pub fn repeat(&self, frame: &[u8], skb: SkBuff, times: u32) -> Outcome {
        self.execute(frame, skb, times).unwrap().0
    }

    /// Instructions per run of `times` runs in virtual time, where one takes 2 ns.
    ///
    /// # Panics
    /// When the kernel refuses frame or context.
    #[must_use]
    pub fn instructions(&self, frame: &[u8], times: u32) -> u64 {
        let before = runs(self.0.as_fd());
        let _ = self.repeat(frame, SkBuff::default(), times);
        let after = runs(self.0.as_fd());
        (after.1 - before.1) / (after.0 - before.0) / 2
    }

    /// Classifies one frame; what became of it, and the frame afterwards.
    ///
    /// # Panics
    /// When the kernel refuses frame or context.
    #[must_use]
    pub fn change(&self, frame: &[u8], skb: SkBuff) -> (Outcome, Vec<u8>) {
        self.try_change(frame, skb).unwrap()
    }

    /// [`Classifier::change`] with what the kernel may refuse.
    ///
    /// # Errors
    /// The kernel's refusal of frame or context.
    pub fn try_change(&self, frame: &[u8], skb: SkBuff) -> io::Result<(Outcome, Vec<u8>)> {
        self.execute(frame, skb, 1)
    }

    fn execute(&self, frame: &[u8], skb: SkBuff, times: u32) -> io::Result<(Outcome, Vec<u8>)> {
        let run = bestby_bpf::test_run(self.0.as_fd(), frame, skb, times)?;
        let outcome = Outcome {
            verdict: run.verdict,
            cb: bb_cb::read_from_bytes(run.skb.cb.as_bytes()).unwrap(),
            skb: run.skb,
        };
        Ok((outcome, run.frame))
    }
}
