//! The whole queue (`qdisc.bpf.c`), compiled natively (`tests/native/queue.c`).

mod auto;
mod counters;
mod device;
mod media;

use std::{ffi::c_char, sync::Mutex};

/// A packet as it comes to the queue (`struct bbn_sent`).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Sent {
    session: u32,
    pkt_len: u32,
    grown: u32,
    headers: u32,
    lifetime: u64,
    departs: u64,
    adu: u32,
    priority: u32,
    treatment: u32,
    socket: u32,
    tag: u32,
    pad: u32,
}

impl media::Packet {
    /// As it comes to the queue. Its number says when it left.
    fn sent(&self, number: usize) -> Sent {
        Sent {
            pkt_len: self.bytes,
            lifetime: media::LIFETIME,
            adu: self.frame.map_or(0, |frame| (1 << 16) | (frame + 1)),
            priority: if self.frame.is_some() { 2 } else { 0 },
            treatment: bestby_bpf::abi::BB_TREAT_DISCARD,
            tag: number as u32,
            ..Sent::default()
        }
    }
}

unsafe extern "C" {
    fn bbn_queue_start(rate: u64, overhead: u32, method: u32, limit: u32, limit_bytes: u64);
    fn bbn_queue_send(sent: *const Sent) -> i32;
    fn bbn_queue_take() -> u32;
    fn bbn_queue_taken() -> u32;
    fn bbn_queue_wakes() -> u64;
    fn bbn_queue_now() -> u64;
    fn bbn_queue_owd(owd: u64);
    fn bbn_queue_bql(queued: u32, completed: u32);
    fn bbn_queue_rate(rate: u64);
    fn bbn_queue_stop(stopped: i32);
    fn bbn_queue_seen() -> u64;
    fn bbn_queue_wait(ns: u64);
    fn bbn_queue_sleep();
    fn bbn_queue_reset();
    fn bbn_queue_upgrade();
    fn bbn_queue_break(bytes: u64);
    fn bbn_queue_bytes() -> u64;
    fn bbn_queue_qlen() -> u32;
    fn bbn_queue_told() -> u32;
    fn bbn_queue_truncated() -> u64;
    fn bbn_queue_forget(socket: u32);
    fn bbn_queue_of_socket(socket: u32) -> u64;
    fn bbn_queue_wrong(told: i32) -> *const c_char;
    fn bbn_auto_start(least: u64, most: u64);
    fn bbn_auto_look();
    fn bbn_auto_sent(bytes: u32);
    fn bbn_auto_leaves(end: u32) -> u32;
    fn bbn_auto_hears(name: u32);
    fn bbn_auto_rate() -> u64;
    fn bbn_auto_behind() -> u64;
    fn bbn_auto_state() -> u32;
    fn bbn_auto_wanted() -> u64;
}

/// The queue keeps its state in globals.
static ONE: Mutex<()> = Mutex::new(());

#[derive(Debug, Clone, Copy)]
struct Link {
    rate: u64,
    overhead: u32,
    method: u32,
    limit: u32,
    limit_bytes: u64,
}

const MS: u64 = 1_000_000;
/// The verdict on `sent`.
fn send(sent: &Sent) -> i32 {
    // SAFETY: `sent` outlives the call.
    unsafe { bbn_queue_send(sent) }
}

fn start(link: Link) {
    // SAFETY: only one thread is here at a time.
    unsafe {
        bbn_queue_start(
            link.rate,
            link.overhead,
            link.method,
            link.limit,
            link.limit_bytes,
        );
    }
}
