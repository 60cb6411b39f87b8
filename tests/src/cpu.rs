//! The same work on two CPUs at once.
#![allow(clippy::unwrap_used)]

use std::{
    mem::MaybeUninit,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// CPUs that this thread may run on.
fn allowed() -> Vec<usize> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the call fills the set, whose size it is told; CPU_ISSET reads within it.
    unsafe {
        let size = size_of::<libc::cpu_set_t>();
        assert_eq!(libc::sched_getaffinity(0, size, set.as_mut_ptr()), 0);
        let set = set.assume_init();
        (0..libc::CPU_SETSIZE as usize)
            .filter(|cpu| libc::CPU_ISSET(*cpu, &set))
            .collect()
    }
}

/// Two CPUs that this thread may run on.
///
/// # Errors
/// There is only one.
pub fn two() -> Result<(), String> {
    match allowed().len() {
        0 | 1 => Err("needs two CPUs".into()),
        _ => Ok(()),
    }
}

/// Keeps this thread on one CPU, where what a program keeps for each CPU is one thing.
pub fn stay() {
    keep_on(allowed()[0]);
}

/// Two CPUs that start together, again and again.
#[derive(Debug, Default)]
pub struct Start(AtomicUsize);

impl Start {
    /// Waits, awake, until the other one is here, too.
    pub fn together(&self) {
        let arrived = self.0.fetch_add(1, Ordering::AcqRel);
        // Each round takes two numbers.
        let round_ends = (arrived | 1) + 1;
        let mut spins = 0u32;
        while self.0.load(Ordering::Acquire) < round_ends {
            std::hint::spin_loop();
            spins += 1;
            // The other one may want this very CPU's time: others use the machine, too.
            if spins.is_multiple_of(20_000) {
                thread::yield_now();
            }
        }
    }
}

/// Keeps this thread on one CPU.
fn keep_on(cpu: usize) {
    // SAFETY: all zeroes is an empty set; the CPU is one of those allowed, hence within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        let size = size_of::<libc::cpu_set_t>();
        assert_eq!(libc::sched_setaffinity(0, size, &raw const set), 0);
    }
}

/// Runs `work` on one CPU, in the caller's namespaces.
///
/// # Panics
/// As the work does.
pub fn on_one<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let cpu = allowed()[0];
    crate::netns::in_thread(move || {
        keep_on(cpu);
        work()
    })
}

/// Runs `work(0)` and `work(1)` on two CPUs, in the caller's namespaces.
///
/// # Panics
/// As the work does; where [`two`] fails.
pub fn on_both<T: Send>(work: impl Fn(usize, &Start) -> T + Sync) -> [T; 2] {
    let cpus = allowed();
    let start = Start::default();
    thread::scope(|scope| {
        [0, 1]
            .map(|n| {
                let (cpu, start, work) = (cpus[n], &start, &work);
                scope.spawn(move || {
                    keep_on(cpu);
                    work(n, start)
                })
            })
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
    })
}
