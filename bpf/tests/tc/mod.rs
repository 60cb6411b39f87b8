//! The model of mode tc (`include/bb_tc_model.h`), compiled natively, as the tests use it.

#![allow(dead_code)] // each test program uses a part

pub(crate) mod link;

use bestby_bpf::{abi::*, tc_leaf_bytes};

/// `struct bb_tc_request`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    pub(crate) now: u64,
    pub(crate) rate: u64,
    pub(crate) latest: u64,
    pub(crate) packet_ns: u64,
    pub(crate) need_ns: u64,
    pub(crate) whole_ns: u64,
    pub(crate) promised_ns: u64,
    pub(crate) more_ns: u64,
    pub(crate) age_ns: u64,
    pub(crate) large_ns: u64,
    pub(crate) large_at_ns: u64,
    pub(crate) large_slack_ns: u64,
    pub(crate) gap_ns: u64,
    pub(crate) size_ns: u64,
    pub(crate) has_ns: u64,
    pub(crate) cap_ns: u64,
    pub(crate) plain_cap_ns: u64,
    pub(crate) wait_ns: u64,
    pub(crate) queued_ns: u64,
    pub(crate) ifindex: u32,
    pub(crate) stream: u32,
    pub(crate) leaf: u8,
    pub(crate) priority: u8,
    pub(crate) never: u8,
    pub(crate) signalling: u8,
    pub(crate) tcp: u8,
    pub(crate) begins: u8,
    pub(crate) idle: u8,
    pub(crate) plain_share: u8,
    pub(crate) large_leaf: u8,
    pub(crate) large: u8,
    pub(crate) large_sure: u8,
    pub(crate) late_leaf: u8,
    pub(crate) tight: u8,
    pub(crate) yields: u8,
    pub(crate) load_leaf: u8,
    pub(crate) parts: u8,
}

/// `struct bb_tc_model`: the tests read it by functions only.
#[repr(C, align(8))]
pub(crate) struct Memory([u8; 4096]);

unsafe extern "C" {
    safe fn bbn_tc_model_size() -> u64;
    safe fn bbn_tc_request_size() -> u64;
    safe fn bbn_tc_queue(model: &Memory, leaf: u32) -> u64;
    safe fn bbn_tc_ask(model: &mut Memory, request: &mut Request) -> i32;
    pub(crate) safe fn bbn_tc_frame(
        request: &mut Request,
        stream: &bb_stream,
        which: u32,
        before: u32,
        last: i32,
    );
    pub(crate) safe fn bbn_tc_leaf(lifetime: u64, priority: u32, leaf: u8) -> u8;
    pub(crate) safe fn bbn_tx_time(bytes: u64, rate: u64) -> u64;
}

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;
pub(crate) const PLAIN: u8 = BB_TC_LEAF_PLAIN as u8;
pub(crate) const SHARE: u64 = 20;
pub(crate) const ADMIT: i32 = -1;
/// Long after boot.
pub(crate) const START: u64 = 1000 * SECOND;

pub(crate) struct Model {
    memory: Box<Memory>,
    pub(crate) rate: u64,
    pub(crate) now: u64,
}

impl Model {
    pub(crate) fn new(rate: u64) -> Self {
        assert!(bbn_tc_model_size() <= size_of::<Memory>() as u64);
        assert_eq!(bbn_tc_request_size(), size_of::<Request>() as u64);
        Self {
            memory: Box::new(Memory([0; 4096])),
            rate,
            now: START,
        }
    }

    pub(crate) fn cap(&self, leaf: u8) -> u64 {
        bbn_tx_time(tc_leaf_bytes(leaf.into(), self.rate, 0), self.rate)
    }

    pub(crate) fn queue(&self, leaf: u8) -> u64 {
        bbn_tc_queue(&self.memory, leaf.into())
    }

    pub(crate) fn total(&self) -> u64 {
        (0..=PLAIN).map(|leaf| self.queue(leaf)).sum()
    }

    /// A packet of `bytes` that is not part of an ADU; `slack` ns until it must leave, 0 = no deadline.
    pub(crate) fn packet(&self, leaf: u8, priority: u8, bytes: u64, slack: u64) -> Request {
        let packet_ns = bbn_tx_time(bytes, self.rate);
        Request {
            now: self.now,
            rate: self.rate,
            latest: if slack == 0 { 0 } else { self.now + slack },
            packet_ns,
            need_ns: packet_ns,
            whole_ns: packet_ns,
            cap_ns: self.cap(leaf),
            plain_cap_ns: self.cap(PLAIN),
            ifindex: 1,
            leaf,
            priority,
            begins: 1,
            plain_share: SHARE as u8,
            ..Default::default()
        }
    }

    /// The verdict, and the leaf.
    pub(crate) fn ask(&mut self, mut request: Request) -> (i32, u8) {
        let verdict = bbn_tc_ask(&mut self.memory, &mut request);
        (verdict, request.leaf)
    }

    pub(crate) fn audio(&mut self) -> i32 {
        self.ask(self.packet(3, 0, 214, 160 * MS)).0
    }

    pub(crate) fn plain(&mut self, bytes: u64) {
        assert_eq!(self.ask(self.packet(PLAIN, 3, bytes, 0)).0, ADMIT);
    }
}
