//! Generated from `include/bb_abi.h` by `just gen`; do not edit.
#![allow(missing_docs, non_camel_case_types, clippy::all)]

pub const BB_AUTO_MARKERS: u32 = 32;
pub const BB_AUTO_ENDS: u32 = 4;
pub const BB_ECHO_END_SHIFT: u32 = 6;
pub const BB_ECHO_BYTES: u32 = 16;
pub const BB_BUFFER_MOST: u32 = 4194304;
pub const BB_TIME_BUCKETS: u32 = 19;
pub const BB_TIME_SHIFT: u32 = 16;
pub const BB_USER_NONE: u32 = 0;
pub const BB_USER_WAYS: u32 = 8;
pub const BB_PART_NETWORK: u32 = 1;
pub const BB_SESSION_NONE: u32 = 0;
pub const BB_SESSION_SHARED: u32 = 1;
pub const BB_STREAM_TS: u32 = 2;
pub const BB_STREAM_ECHO: u32 = 3;
pub const BB_MAX_STREAMS: u32 = 65536;
pub const BB_STREAM_WAYS: u32 = 4;
pub const BB_ADU_DEAD: u32 = 1;
pub const BB_ADU_KEY: u32 = 2;
pub const BB_ADU_OTHER: u32 = 4;
pub const BB_STREAM_COUNTS: u32 = 1;
pub const BB_STREAM_ALONE: u32 = 2;
pub const BB_STREAM_NO_FRAMES: u32 = 4;
pub const BB_STREAM_REPAIRS: u32 = 8;
pub const BB_STREAM_ONE: u32 = 16;
pub const BB_STREAM_ODD: u32 = 32;
pub const BB_CODEC_SURE: u32 = 32;
pub const BB_VIDEO_KEY: u32 = 1;
pub const BB_VIDEO_HAD_KEY: u32 = 2;
pub const BB_VIDEO_HEALED: u32 = 4;
pub const BB_VIDEO_STEADY: u32 = 32;
pub const BB_VIDEO_MARKED: u32 = 16;
pub const BB_VIDEO_CRYPTEX: u32 = 64;
pub const BB_VIDEO_BACK: u32 = 8;
pub const BB_ADU_SETS: u32 = 32768;
pub const BB_ADU_WAYS: u32 = 4;
pub const BB_KNOWN_BITS: u32 = 15;
pub const BB_KNOWN: u32 = 32768;
pub const BB_RTT_WINDOW_SHIFT: u32 = 32;
pub const BB_RTT_SELDOM_SHIFT: u32 = 34;
pub const BB_WAIT_WINDOW_NS: u32 = 1000000000;
pub const BB_RTT_BASE_SHIFT: u32 = 38;
pub const BB_PEER_OWD: u32 = 1;
pub const BB_PEER_RATE: u32 = 2;
pub const BB_PEER_OPERATOR: u32 = 4;
pub const BB_SOCK_LIFETIME: u32 = 1;
pub const BB_SOCK_PRIORITY: u32 = 2;
pub const BB_SOCK_TREATMENT: u32 = 4;
pub const BB_TOLD_CGROUPS: u32 = 64;
pub const BB_READ_BYTES: u32 = 12;
pub const BB_REAL_NAME: &[u8; 12] = b"bestby_real\0";
pub const BB_REAL_MAX_LEVEL: u32 = 127;
pub const BB_REAL_DEFAULT_LEVEL: u32 = 24;
pub const BB_REAL_RX_BEGUN: u32 = 1;
pub const BB_REAL_RX_DECIDED: u32 = 2;
pub const BB_ABI_VERSION: u32 = 14;
pub const BB_PRIORITIES: u32 = 8;
pub const BB_PRIORITY_DEFAULT: u32 = 3;
pub const BB_PRIORITY_NONE: u32 = 255;
pub const BB_MARK_TIME_BITS: u32 = 19;
pub const BB_MARK_UNIT_NS: u32 = 250000;
pub const BB_MARK_TIME_MASK: u32 = 524287;
pub const BB_MARK_RELATIVE: u32 = 524288;
pub const BB_MARK_PRIORITY_SHIFT: u32 = 20;
pub const BB_MARK_TREATMENT_SHIFT: u32 = 23;
pub const BB_MARK_ADU_SHIFT: u32 = 25;
pub const BB_MARK_MAGIC_SHIFT: u32 = 28;
pub const BB_MARK_MAGIC: u32 = 11;
pub const SOL_BESTBY: u32 = 16962;
pub const BB_LIFETIME_MAX_NS: u64 = 131000000000;
pub const BB_CB_MAGIC: u32 = 47962;
pub const BB_CB_DEADLINE: u32 = 1;
pub const BB_CB_ADU: u32 = 2;
pub const BB_CB_LARGE: u32 = 4;
pub const BB_CB_SOCK: u32 = 8;
pub const BB_CB_REPAIR: u32 = 16;
pub const BB_CB_TCP: u32 = 32;
pub const BB_CB_PAIRED: u32 = 64;
pub const BB_CB_TWIN: u32 = 128;
pub const BB_RTP: u32 = 128;
pub const BB_PAYLOAD_TYPES: u32 = 256;
pub const BB_MAX_RULES: u32 = 16384;
pub const BB_MAX_RULE_KEYS: u32 = 262144;
pub const BB_MAX_SHAPES: u32 = 128;
pub const BB_MAX_IFACES: u32 = 64;
pub const BB_MAX_USERS: u32 = 4096;
pub const BB_MAX_SESSIONS: u32 = 16384;
pub const BB_SESSION_WAYS: u32 = 8;
pub const BB_MEDIA_WAYS: u32 = 2;
pub const BB_PLAIN_PARTS: u32 = 16;
pub const BB_FLOW_SETS: u32 = 8192;
pub const BB_FLOW_WAYS: u32 = 4;
pub const BB_MAX_FLOWS: u32 = 32768;
pub const BB_MAX_PEERS: u32 = 16384;
pub const BB_MAX_SOCK_PEERS: u32 = 8192;
pub const BB_MAX_TRUST: u32 = 4096;
pub const BB_MAX_PROBED: u32 = 1024;
pub const BB_MAX_ASKED: u32 = 8192;
pub const BB_MAX_BUFFERS: u32 = 4096;
pub const BB_MAX_PARKED: u32 = 64;
pub const BB_CONFIG_FORWARDED_MARKS: u32 = 1;
pub const BB_CONFIG_RTP_RULES: u32 = 2;
pub const BB_CONFIG_BUFFERS: u32 = 4;
pub const BB_CONFIG_RAISE: u32 = 8;
pub const BB_CONFIG_CGROUP_RULES: u32 = 16;
pub const BB_RULE_NO_FRAMES: u32 = 1;
pub const BB_RULE_STAMP: u32 = 2;
pub const BB_RULE_RTO: u32 = 4;
pub const BB_RULE_PROBED: u32 = 8;
pub const BB_RULE_BLIND: u32 = 16;
pub const BB_RULE_CHAIN_SKIP: u32 = 32;
pub const BB_RULE_CHAIN_OFF: u32 = 64;
pub const BB_RULE_ROLES: u32 = 128;
pub const BB_RULE_RTX: u32 = 8;
pub const BB_MODE_NONE: u32 = 0;
pub const BB_MODE_QDISC: u32 = 1;
pub const BB_MODE_TC: u32 = 2;
pub const BB_IFACE_OBSERVE: u32 = 1;
pub const BB_IFACE_STEERS: u32 = 2;
pub const BB_IFACE_AUTO: u32 = 4;
pub const BB_TC_LEAF_MINOR: u32 = 16;
pub const BB_TC_LEAVES: u32 = 8;
pub const BB_TC_LEAF_PLAIN: u32 = 8;
pub const BB_TC_INDEX: u32 = 45056;
pub const BB_TC_INDEX_MASK: u32 = 61440;
pub const BB_TC_INDEX_SHIFT: u32 = 8;
pub const BB_TC_INDEX_LEAF: u32 = 15;
pub const BB_TC_INDEX_OTHERS: u32 = 255;
pub const BB_PROBED_VANISH: u32 = 1;
pub type __u8 = ::std::os::raw::c_uchar;
pub type __u16 = ::std::os::raw::c_ushort;
pub type __s32 = ::std::os::raw::c_int;
pub type __u32 = ::std::os::raw::c_uint;
pub type __s64 = ::std::os::raw::c_longlong;
pub type __u64 = ::std::os::raw::c_ulonglong;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_auto_marker {
    pub left_ns: __u64,
    pub bytes: __u64,
    pub heard_ns: __u64,
    pub queue_ns: __u64,
    pub name: __u32,
    pub pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_auto_marker"][::std::mem::size_of::<bb_auto_marker>() - 40usize];
    ["Alignment of bb_auto_marker"][::std::mem::align_of::<bb_auto_marker>() - 8usize];
    ["Offset of field: bb_auto_marker::left_ns"]
        [::std::mem::offset_of!(bb_auto_marker, left_ns) - 0usize];
    ["Offset of field: bb_auto_marker::bytes"]
        [::std::mem::offset_of!(bb_auto_marker, bytes) - 8usize];
    ["Offset of field: bb_auto_marker::heard_ns"]
        [::std::mem::offset_of!(bb_auto_marker, heard_ns) - 16usize];
    ["Offset of field: bb_auto_marker::queue_ns"]
        [::std::mem::offset_of!(bb_auto_marker, queue_ns) - 24usize];
    ["Offset of field: bb_auto_marker::name"]
        [::std::mem::offset_of!(bb_auto_marker, name) - 32usize];
    ["Offset of field: bb_auto_marker::pad"][::std::mem::offset_of!(bb_auto_marker, pad) - 36usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_auto_end {
    pub least_ns: [__u64; 2usize],
    pub window: __u64,
    pub heard_ns: __u64,
    pub queue_ns: __u64,
    pub left_ns: __u64,
    pub bytes: __u64,
    pub nonce: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_auto_end"][::std::mem::size_of::<bb_auto_end>() - 64usize];
    ["Alignment of bb_auto_end"][::std::mem::align_of::<bb_auto_end>() - 8usize];
    ["Offset of field: bb_auto_end::least_ns"]
        [::std::mem::offset_of!(bb_auto_end, least_ns) - 0usize];
    ["Offset of field: bb_auto_end::window"][::std::mem::offset_of!(bb_auto_end, window) - 16usize];
    ["Offset of field: bb_auto_end::heard_ns"]
        [::std::mem::offset_of!(bb_auto_end, heard_ns) - 24usize];
    ["Offset of field: bb_auto_end::queue_ns"]
        [::std::mem::offset_of!(bb_auto_end, queue_ns) - 32usize];
    ["Offset of field: bb_auto_end::left_ns"]
        [::std::mem::offset_of!(bb_auto_end, left_ns) - 40usize];
    ["Offset of field: bb_auto_end::bytes"][::std::mem::offset_of!(bb_auto_end, bytes) - 48usize];
    ["Offset of field: bb_auto_end::nonce"][::std::mem::offset_of!(bb_auto_end, nonce) - 56usize];
};
pub const BB_AUTO_UNSEEN: bb_auto_state = 0;
pub const BB_AUTO_FOLLOWS: bb_auto_state = 1;
pub const BB_AUTO_OTHERS: bb_auto_state = 2;
pub const BB_AUTO_SILENT: bb_auto_state = 3;
pub type bb_auto_state = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_auto {
    pub least: __u64,
    pub most: __u64,
    pub rate: __u64,
    pub behind_ns: __u64,
    pub answers: __u64,
    pub sent: __u64,
    pub gave_up_ns: __u64,
    pub waited_ns: __u64,
    pub due_ns: __u64,
    pub carries: __u64,
    pub top: __u64,
    pub best: __u64,
    pub heard_ns: __u64,
    pub heard_bytes: __u64,
    pub heard_queue_ns: __u64,
    pub heard_carries: __u64,
    pub base_ns: __u64,
    pub jitter_ns: __u64,
    pub spacing_ns: __u64,
    pub calm_ns: __u64,
    pub drained_ns: __u64,
    pub watch_most_ns: __u64,
    pub others_ns: __u64,
    pub rebased_ns: __u64,
    pub rtt_ns: __u64,
    pub empties_ns: __u64,
    pub blind_ns: __u64,
    pub blind: __u32,
    pub fell: __u32,
    pub others: __u32,
    pub rebased: __u32,
    pub first: __u32,
    pub next: __u32,
    pub oldest: __u32,
    pub last: __u32,
    pub largest: __u32,
    pub state: __u32,
    pub busy: __u32,
    pub beside: __u32,
    pub end: [bb_auto_end; 4usize],
    pub marker: [bb_auto_marker; 32usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_auto"][::std::mem::size_of::<bb_auto>() - 1800usize];
    ["Alignment of bb_auto"][::std::mem::align_of::<bb_auto>() - 8usize];
    ["Offset of field: bb_auto::least"][::std::mem::offset_of!(bb_auto, least) - 0usize];
    ["Offset of field: bb_auto::most"][::std::mem::offset_of!(bb_auto, most) - 8usize];
    ["Offset of field: bb_auto::rate"][::std::mem::offset_of!(bb_auto, rate) - 16usize];
    ["Offset of field: bb_auto::behind_ns"][::std::mem::offset_of!(bb_auto, behind_ns) - 24usize];
    ["Offset of field: bb_auto::answers"][::std::mem::offset_of!(bb_auto, answers) - 32usize];
    ["Offset of field: bb_auto::sent"][::std::mem::offset_of!(bb_auto, sent) - 40usize];
    ["Offset of field: bb_auto::gave_up_ns"][::std::mem::offset_of!(bb_auto, gave_up_ns) - 48usize];
    ["Offset of field: bb_auto::waited_ns"][::std::mem::offset_of!(bb_auto, waited_ns) - 56usize];
    ["Offset of field: bb_auto::due_ns"][::std::mem::offset_of!(bb_auto, due_ns) - 64usize];
    ["Offset of field: bb_auto::carries"][::std::mem::offset_of!(bb_auto, carries) - 72usize];
    ["Offset of field: bb_auto::top"][::std::mem::offset_of!(bb_auto, top) - 80usize];
    ["Offset of field: bb_auto::best"][::std::mem::offset_of!(bb_auto, best) - 88usize];
    ["Offset of field: bb_auto::heard_ns"][::std::mem::offset_of!(bb_auto, heard_ns) - 96usize];
    ["Offset of field: bb_auto::heard_bytes"]
        [::std::mem::offset_of!(bb_auto, heard_bytes) - 104usize];
    ["Offset of field: bb_auto::heard_queue_ns"]
        [::std::mem::offset_of!(bb_auto, heard_queue_ns) - 112usize];
    ["Offset of field: bb_auto::heard_carries"]
        [::std::mem::offset_of!(bb_auto, heard_carries) - 120usize];
    ["Offset of field: bb_auto::base_ns"][::std::mem::offset_of!(bb_auto, base_ns) - 128usize];
    ["Offset of field: bb_auto::jitter_ns"][::std::mem::offset_of!(bb_auto, jitter_ns) - 136usize];
    ["Offset of field: bb_auto::spacing_ns"]
        [::std::mem::offset_of!(bb_auto, spacing_ns) - 144usize];
    ["Offset of field: bb_auto::calm_ns"][::std::mem::offset_of!(bb_auto, calm_ns) - 152usize];
    ["Offset of field: bb_auto::drained_ns"]
        [::std::mem::offset_of!(bb_auto, drained_ns) - 160usize];
    ["Offset of field: bb_auto::watch_most_ns"]
        [::std::mem::offset_of!(bb_auto, watch_most_ns) - 168usize];
    ["Offset of field: bb_auto::others_ns"][::std::mem::offset_of!(bb_auto, others_ns) - 176usize];
    ["Offset of field: bb_auto::rebased_ns"]
        [::std::mem::offset_of!(bb_auto, rebased_ns) - 184usize];
    ["Offset of field: bb_auto::rtt_ns"][::std::mem::offset_of!(bb_auto, rtt_ns) - 192usize];
    ["Offset of field: bb_auto::empties_ns"]
        [::std::mem::offset_of!(bb_auto, empties_ns) - 200usize];
    ["Offset of field: bb_auto::blind_ns"][::std::mem::offset_of!(bb_auto, blind_ns) - 208usize];
    ["Offset of field: bb_auto::blind"][::std::mem::offset_of!(bb_auto, blind) - 216usize];
    ["Offset of field: bb_auto::fell"][::std::mem::offset_of!(bb_auto, fell) - 220usize];
    ["Offset of field: bb_auto::others"][::std::mem::offset_of!(bb_auto, others) - 224usize];
    ["Offset of field: bb_auto::rebased"][::std::mem::offset_of!(bb_auto, rebased) - 228usize];
    ["Offset of field: bb_auto::first"][::std::mem::offset_of!(bb_auto, first) - 232usize];
    ["Offset of field: bb_auto::next"][::std::mem::offset_of!(bb_auto, next) - 236usize];
    ["Offset of field: bb_auto::oldest"][::std::mem::offset_of!(bb_auto, oldest) - 240usize];
    ["Offset of field: bb_auto::last"][::std::mem::offset_of!(bb_auto, last) - 244usize];
    ["Offset of field: bb_auto::largest"][::std::mem::offset_of!(bb_auto, largest) - 248usize];
    ["Offset of field: bb_auto::state"][::std::mem::offset_of!(bb_auto, state) - 252usize];
    ["Offset of field: bb_auto::busy"][::std::mem::offset_of!(bb_auto, busy) - 256usize];
    ["Offset of field: bb_auto::beside"][::std::mem::offset_of!(bb_auto, beside) - 260usize];
    ["Offset of field: bb_auto::end"][::std::mem::offset_of!(bb_auto, end) - 264usize];
    ["Offset of field: bb_auto::marker"][::std::mem::offset_of!(bb_auto, marker) - 520usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_buffer {
    pub need: __u64,
    pub lifetime_ns: __u64,
    pub seen_ns: __u64,
    pub held_ns: __u64,
    pub wanted_ns: __u64,
    pub raised_ns: __u64,
    pub size: __u32,
    pub rule: __u16,
    pub connected: __u8,
    pub observed: __u8,
    pub asked: __u32,
    pub pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_buffer"][::std::mem::size_of::<bb_buffer>() - 64usize];
    ["Alignment of bb_buffer"][::std::mem::align_of::<bb_buffer>() - 8usize];
    ["Offset of field: bb_buffer::need"][::std::mem::offset_of!(bb_buffer, need) - 0usize];
    ["Offset of field: bb_buffer::lifetime_ns"]
        [::std::mem::offset_of!(bb_buffer, lifetime_ns) - 8usize];
    ["Offset of field: bb_buffer::seen_ns"][::std::mem::offset_of!(bb_buffer, seen_ns) - 16usize];
    ["Offset of field: bb_buffer::held_ns"][::std::mem::offset_of!(bb_buffer, held_ns) - 24usize];
    ["Offset of field: bb_buffer::wanted_ns"]
        [::std::mem::offset_of!(bb_buffer, wanted_ns) - 32usize];
    ["Offset of field: bb_buffer::raised_ns"]
        [::std::mem::offset_of!(bb_buffer, raised_ns) - 40usize];
    ["Offset of field: bb_buffer::size"][::std::mem::offset_of!(bb_buffer, size) - 48usize];
    ["Offset of field: bb_buffer::rule"][::std::mem::offset_of!(bb_buffer, rule) - 52usize];
    ["Offset of field: bb_buffer::connected"]
        [::std::mem::offset_of!(bb_buffer, connected) - 54usize];
    ["Offset of field: bb_buffer::observed"][::std::mem::offset_of!(bb_buffer, observed) - 55usize];
    ["Offset of field: bb_buffer::asked"][::std::mem::offset_of!(bb_buffer, asked) - 56usize];
    ["Offset of field: bb_buffer::pad"][::std::mem::offset_of!(bb_buffer, pad) - 60usize];
};
pub const BB_DROP_STALE: bb_reason = 0;
pub const BB_DROP_ADU: bb_reason = 1;
pub const BB_DROP_OVERFLOW: bb_reason = 2;
pub const BB_DROP_EVICTED: bb_reason = 3;
pub const BB_DROP_PREDICTED: bb_reason = 4;
pub const BB_DROP_CODEL: bb_reason = 5;
pub const BB_REASONS: bb_reason = 6;
pub const BB_DROP_CHAIN: bb_reason = 6;
pub type bb_reason = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_counters {
    pub packets_in: __u64,
    pub bytes_in: __u64,
    pub packets_sent: __u64,
    pub bytes_sent: __u64,
    pub queued: __u64,
    pub dropped: [__u64; 6usize],
    pub sent_stale: __u64,
    pub would_drop: [__u64; 6usize],
    pub truncated: __u64,
    pub chain: __u64,
    pub would_chain: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_counters"][::std::mem::size_of::<bb_counters>() - 168usize];
    ["Alignment of bb_counters"][::std::mem::align_of::<bb_counters>() - 8usize];
    ["Offset of field: bb_counters::packets_in"]
        [::std::mem::offset_of!(bb_counters, packets_in) - 0usize];
    ["Offset of field: bb_counters::bytes_in"]
        [::std::mem::offset_of!(bb_counters, bytes_in) - 8usize];
    ["Offset of field: bb_counters::packets_sent"]
        [::std::mem::offset_of!(bb_counters, packets_sent) - 16usize];
    ["Offset of field: bb_counters::bytes_sent"]
        [::std::mem::offset_of!(bb_counters, bytes_sent) - 24usize];
    ["Offset of field: bb_counters::queued"][::std::mem::offset_of!(bb_counters, queued) - 32usize];
    ["Offset of field: bb_counters::dropped"]
        [::std::mem::offset_of!(bb_counters, dropped) - 40usize];
    ["Offset of field: bb_counters::sent_stale"]
        [::std::mem::offset_of!(bb_counters, sent_stale) - 88usize];
    ["Offset of field: bb_counters::would_drop"]
        [::std::mem::offset_of!(bb_counters, would_drop) - 96usize];
    ["Offset of field: bb_counters::truncated"]
        [::std::mem::offset_of!(bb_counters, truncated) - 144usize];
    ["Offset of field: bb_counters::chain"][::std::mem::offset_of!(bb_counters, chain) - 152usize];
    ["Offset of field: bb_counters::would_chain"]
        [::std::mem::offset_of!(bb_counters, would_chain) - 160usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_time {
    pub sum_ns: __u64,
    pub count: [__u64; 19usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_time"][::std::mem::size_of::<bb_time>() - 160usize];
    ["Alignment of bb_time"][::std::mem::align_of::<bb_time>() - 8usize];
    ["Offset of field: bb_time::sum_ns"][::std::mem::offset_of!(bb_time, sum_ns) - 0usize];
    ["Offset of field: bb_time::count"][::std::mem::offset_of!(bb_time, count) - 8usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_times {
    pub sojourn: bb_time,
    pub slack: bb_time,
    pub lateness: bb_time,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_times"][::std::mem::size_of::<bb_times>() - 480usize];
    ["Alignment of bb_times"][::std::mem::align_of::<bb_times>() - 8usize];
    ["Offset of field: bb_times::sojourn"][::std::mem::offset_of!(bb_times, sojourn) - 0usize];
    ["Offset of field: bb_times::slack"][::std::mem::offset_of!(bb_times, slack) - 160usize];
    ["Offset of field: bb_times::lateness"][::std::mem::offset_of!(bb_times, lateness) - 320usize];
};
pub const BB_G_NO_METADATA: bb_global_counter = 0;
pub const BB_G_MALFORMED: bb_global_counter = 1;
pub const BB_G_FOREIGN_MARK: bb_global_counter = 2;
pub const BB_G_NO_RTT: bb_global_counter = 3;
pub const BB_G_SESSIONS_FULL: bb_global_counter = 4;
pub const BB_G_EVENTS_LOST: bb_global_counter = 5;
pub const BB_G_PAST_DEADLINE: bb_global_counter = 6;
pub const BB_G_RULE_PROBES: bb_global_counter = 7;
pub const BB_G_BAD_CB: bb_global_counter = 8;
pub const BB_G_NO_CB: bb_global_counter = 9;
pub const BB_G_STREAMS_FULL: bb_global_counter = 10;
pub const BB_G_USERS_FULL: bb_global_counter = 11;
pub const BB_G_FORWARDED_MARK: bb_global_counter = 12;
pub const BB_G_REFUSED: bb_global_counter = 13;
pub const BB_G_SEGMENTER_LOST: bb_global_counter = 14;
pub const BB_G_OPTION_MALFORMED: bb_global_counter = 15;
pub const BB_G_OPTION_UNKNOWN: bb_global_counter = 16;
pub const BB_G_OPTION_FAR: bb_global_counter = 17;
pub const BB_G_OPTION_MANY: bb_global_counter = 18;
pub const BB_G_OPTION_UNTRUSTED: bb_global_counter = 19;
pub const BB_G_OPTION_NO_CLOCK: bb_global_counter = 20;
pub const BB_G_STAMPED: bb_global_counter = 21;
pub const BB_G_STAMP_MTU: bb_global_counter = 22;
pub const BB_G_STAMP_PATH_MTU: bb_global_counter = 23;
pub const BB_G_STAMP_GSO: bb_global_counter = 24;
pub const BB_G_STAMP_CHECKSUM: bb_global_counter = 25;
pub const BB_G_STAMP_FRAGMENT: bb_global_counter = 26;
pub const BB_G_STAMP_SHARED: bb_global_counter = 27;
pub const BB_G_STAMP_AH: bb_global_counter = 28;
pub const BB_G_STAMP_OPTIONS: bb_global_counter = 29;
pub const BB_G_STAMP_CLOCK: bb_global_counter = 30;
pub const BB_G_DECREMENTED: bb_global_counter = 31;
pub const BB_G_STAMP_FAILED: bb_global_counter = 32;
pub const BB_G_STAMP_PROBE: bb_global_counter = 33;
pub const BB_G_ANSWER_UNKNOWN: bb_global_counter = 34;
pub const BB_G_ANSWER_REFUSED: bb_global_counter = 35;
pub const BB_G_HELD_BACK: bb_global_counter = 36;
pub const BB_G_PREEMPTED: bb_global_counter = 37;
pub const BB_G_ROUTED_TIME: bb_global_counter = 38;
pub const BB_G_NO_CGROUP: bb_global_counter = 39;
pub const BB_G_UNTIMELY: bb_global_counter = 40;
pub const BB_G_NETWORK: bb_global_counter = 41;
pub const BB_G_NETWORK_OVER: bb_global_counter = 42;
pub const BB_GLOBALS: bb_global_counter = 64;
pub type bb_global_counter = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_event {
    pub time_ns: __u64,
    pub age_ns: __u64,
    pub late_ns: __s64,
    pub adu: __u32,
    pub ifindex: __u32,
    pub len: __u32,
    pub rule: __u16,
    pub session: __u16,
    pub reason: __u8,
    pub priority: __u8,
    pub observe: __u8,
    pub truncated: __u8,
    pub suppressed: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_event"][::std::mem::size_of::<bb_event>() - 48usize];
    ["Alignment of bb_event"][::std::mem::align_of::<bb_event>() - 8usize];
    ["Offset of field: bb_event::time_ns"][::std::mem::offset_of!(bb_event, time_ns) - 0usize];
    ["Offset of field: bb_event::age_ns"][::std::mem::offset_of!(bb_event, age_ns) - 8usize];
    ["Offset of field: bb_event::late_ns"][::std::mem::offset_of!(bb_event, late_ns) - 16usize];
    ["Offset of field: bb_event::adu"][::std::mem::offset_of!(bb_event, adu) - 24usize];
    ["Offset of field: bb_event::ifindex"][::std::mem::offset_of!(bb_event, ifindex) - 28usize];
    ["Offset of field: bb_event::len"][::std::mem::offset_of!(bb_event, len) - 32usize];
    ["Offset of field: bb_event::rule"][::std::mem::offset_of!(bb_event, rule) - 36usize];
    ["Offset of field: bb_event::session"][::std::mem::offset_of!(bb_event, session) - 38usize];
    ["Offset of field: bb_event::reason"][::std::mem::offset_of!(bb_event, reason) - 40usize];
    ["Offset of field: bb_event::priority"][::std::mem::offset_of!(bb_event, priority) - 41usize];
    ["Offset of field: bb_event::observe"][::std::mem::offset_of!(bb_event, observe) - 42usize];
    ["Offset of field: bb_event::truncated"][::std::mem::offset_of!(bb_event, truncated) - 43usize];
    ["Offset of field: bb_event::suppressed"]
        [::std::mem::offset_of!(bb_event, suppressed) - 44usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_way {
    pub tag: __u32,
    pub gen_: __u32,
    pub used_ns: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_way"][::std::mem::size_of::<bb_way>() - 16usize];
    ["Alignment of bb_way"][::std::mem::align_of::<bb_way>() - 8usize];
    ["Offset of field: bb_way::tag"][::std::mem::offset_of!(bb_way, tag) - 0usize];
    ["Offset of field: bb_way::gen_"][::std::mem::offset_of!(bb_way, gen_) - 4usize];
    ["Offset of field: bb_way::used_ns"][::std::mem::offset_of!(bb_way, used_ns) - 8usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_user_key {
    pub addr: [__u8; 16usize],
    pub ifindex: __u32,
    pub user: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_user_key"][::std::mem::size_of::<bb_user_key>() - 24usize];
    ["Alignment of bb_user_key"][::std::mem::align_of::<bb_user_key>() - 4usize];
    ["Offset of field: bb_user_key::addr"][::std::mem::offset_of!(bb_user_key, addr) - 0usize];
    ["Offset of field: bb_user_key::ifindex"]
        [::std::mem::offset_of!(bb_user_key, ifindex) - 16usize];
    ["Offset of field: bb_user_key::user"][::std::mem::offset_of!(bb_user_key, user) - 20usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_user {
    pub way: bb_way,
    pub key: bb_user_key,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_user"][::std::mem::size_of::<bb_user>() - 40usize];
    ["Alignment of bb_user"][::std::mem::align_of::<bb_user>() - 8usize];
    ["Offset of field: bb_user::way"][::std::mem::offset_of!(bb_user, way) - 0usize];
    ["Offset of field: bb_user::key"][::std::mem::offset_of!(bb_user, key) - 16usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_session_key {
    pub addr: [__u8; 16usize],
    pub ifindex: __u32,
    pub hash: __u32,
    pub kind: __u8,
    pub prefix: __u8,
    pub media: __u8,
    pub part: __u8,
    pub user: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_session_key"][::std::mem::size_of::<bb_session_key>() - 32usize];
    ["Alignment of bb_session_key"][::std::mem::align_of::<bb_session_key>() - 4usize];
    ["Offset of field: bb_session_key::addr"]
        [::std::mem::offset_of!(bb_session_key, addr) - 0usize];
    ["Offset of field: bb_session_key::ifindex"]
        [::std::mem::offset_of!(bb_session_key, ifindex) - 16usize];
    ["Offset of field: bb_session_key::hash"]
        [::std::mem::offset_of!(bb_session_key, hash) - 20usize];
    ["Offset of field: bb_session_key::kind"]
        [::std::mem::offset_of!(bb_session_key, kind) - 24usize];
    ["Offset of field: bb_session_key::prefix"]
        [::std::mem::offset_of!(bb_session_key, prefix) - 25usize];
    ["Offset of field: bb_session_key::media"]
        [::std::mem::offset_of!(bb_session_key, media) - 26usize];
    ["Offset of field: bb_session_key::part"]
        [::std::mem::offset_of!(bb_session_key, part) - 27usize];
    ["Offset of field: bb_session_key::user"]
        [::std::mem::offset_of!(bb_session_key, user) - 28usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_session {
    pub way: bb_way,
    pub key: bb_session_key,
    pub owd_ns: __u64,
    pub rate: __u64,
    pub next_ns: __u64,
    pub next_rate: __u64,
    pub sent_by: __u16,
    pub turn: __u16,
    pub user: __u16,
    pub pad: __u16,
    pub wait_from_ns: __u64,
    pub wait_ns: [__u64; 2usize],
    pub counters: bb_counters,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_session"][::std::mem::size_of::<bb_session>() - 280usize];
    ["Alignment of bb_session"][::std::mem::align_of::<bb_session>() - 8usize];
    ["Offset of field: bb_session::way"][::std::mem::offset_of!(bb_session, way) - 0usize];
    ["Offset of field: bb_session::key"][::std::mem::offset_of!(bb_session, key) - 16usize];
    ["Offset of field: bb_session::owd_ns"][::std::mem::offset_of!(bb_session, owd_ns) - 48usize];
    ["Offset of field: bb_session::rate"][::std::mem::offset_of!(bb_session, rate) - 56usize];
    ["Offset of field: bb_session::next_ns"][::std::mem::offset_of!(bb_session, next_ns) - 64usize];
    ["Offset of field: bb_session::next_rate"]
        [::std::mem::offset_of!(bb_session, next_rate) - 72usize];
    ["Offset of field: bb_session::sent_by"][::std::mem::offset_of!(bb_session, sent_by) - 80usize];
    ["Offset of field: bb_session::turn"][::std::mem::offset_of!(bb_session, turn) - 82usize];
    ["Offset of field: bb_session::user"][::std::mem::offset_of!(bb_session, user) - 84usize];
    ["Offset of field: bb_session::pad"][::std::mem::offset_of!(bb_session, pad) - 86usize];
    ["Offset of field: bb_session::wait_from_ns"]
        [::std::mem::offset_of!(bb_session, wait_from_ns) - 88usize];
    ["Offset of field: bb_session::wait_ns"][::std::mem::offset_of!(bb_session, wait_ns) - 96usize];
    ["Offset of field: bb_session::counters"]
        [::std::mem::offset_of!(bb_session, counters) - 112usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_flow_key {
    pub src: [__u8; 16usize],
    pub dst: [__u8; 16usize],
    pub ifindex: __u32,
    pub mark: __u32,
    pub sport: __u16,
    pub dport: __u16,
    pub family: __u8,
    pub proto: __u8,
    pub dscp: __u8,
    pub pad: __u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_flow_key"][::std::mem::size_of::<bb_flow_key>() - 48usize];
    ["Alignment of bb_flow_key"][::std::mem::align_of::<bb_flow_key>() - 4usize];
    ["Offset of field: bb_flow_key::src"][::std::mem::offset_of!(bb_flow_key, src) - 0usize];
    ["Offset of field: bb_flow_key::dst"][::std::mem::offset_of!(bb_flow_key, dst) - 16usize];
    ["Offset of field: bb_flow_key::ifindex"]
        [::std::mem::offset_of!(bb_flow_key, ifindex) - 32usize];
    ["Offset of field: bb_flow_key::mark"][::std::mem::offset_of!(bb_flow_key, mark) - 36usize];
    ["Offset of field: bb_flow_key::sport"][::std::mem::offset_of!(bb_flow_key, sport) - 40usize];
    ["Offset of field: bb_flow_key::dport"][::std::mem::offset_of!(bb_flow_key, dport) - 42usize];
    ["Offset of field: bb_flow_key::family"][::std::mem::offset_of!(bb_flow_key, family) - 44usize];
    ["Offset of field: bb_flow_key::proto"][::std::mem::offset_of!(bb_flow_key, proto) - 45usize];
    ["Offset of field: bb_flow_key::dscp"][::std::mem::offset_of!(bb_flow_key, dscp) - 46usize];
    ["Offset of field: bb_flow_key::pad"][::std::mem::offset_of!(bb_flow_key, pad) - 47usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_flow {
    pub way: bb_way,
    pub key: bb_flow_key,
    pub rule: __u64,
    pub session: __u64,
    pub plain: __u64,
    pub owd_ns: __u64,
    pub refreshed_ns: __u64,
    pub plain_refreshed_ns: __u64,
    pub plain_until_ns: __u64,
    pub hash: __u64,
    pub stream: __u32,
    pub media_gen: __u32,
    pub leaf: __u8,
    pub measured: __u8,
    pub untimely: __u16,
    pub due: __u32,
    pub rtcp_gen: __u32,
    pub srt: __u8,
    pub srt_misses: __u8,
    pub pad: [__u8; 2usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_flow"][::std::mem::size_of::<bb_flow>() - 152usize];
    ["Alignment of bb_flow"][::std::mem::align_of::<bb_flow>() - 8usize];
    ["Offset of field: bb_flow::way"][::std::mem::offset_of!(bb_flow, way) - 0usize];
    ["Offset of field: bb_flow::key"][::std::mem::offset_of!(bb_flow, key) - 16usize];
    ["Offset of field: bb_flow::rule"][::std::mem::offset_of!(bb_flow, rule) - 64usize];
    ["Offset of field: bb_flow::session"][::std::mem::offset_of!(bb_flow, session) - 72usize];
    ["Offset of field: bb_flow::plain"][::std::mem::offset_of!(bb_flow, plain) - 80usize];
    ["Offset of field: bb_flow::owd_ns"][::std::mem::offset_of!(bb_flow, owd_ns) - 88usize];
    ["Offset of field: bb_flow::refreshed_ns"]
        [::std::mem::offset_of!(bb_flow, refreshed_ns) - 96usize];
    ["Offset of field: bb_flow::plain_refreshed_ns"]
        [::std::mem::offset_of!(bb_flow, plain_refreshed_ns) - 104usize];
    ["Offset of field: bb_flow::plain_until_ns"]
        [::std::mem::offset_of!(bb_flow, plain_until_ns) - 112usize];
    ["Offset of field: bb_flow::hash"][::std::mem::offset_of!(bb_flow, hash) - 120usize];
    ["Offset of field: bb_flow::stream"][::std::mem::offset_of!(bb_flow, stream) - 128usize];
    ["Offset of field: bb_flow::media_gen"][::std::mem::offset_of!(bb_flow, media_gen) - 132usize];
    ["Offset of field: bb_flow::leaf"][::std::mem::offset_of!(bb_flow, leaf) - 136usize];
    ["Offset of field: bb_flow::measured"][::std::mem::offset_of!(bb_flow, measured) - 137usize];
    ["Offset of field: bb_flow::untimely"][::std::mem::offset_of!(bb_flow, untimely) - 138usize];
    ["Offset of field: bb_flow::due"][::std::mem::offset_of!(bb_flow, due) - 140usize];
    ["Offset of field: bb_flow::rtcp_gen"][::std::mem::offset_of!(bb_flow, rtcp_gen) - 144usize];
    ["Offset of field: bb_flow::srt"][::std::mem::offset_of!(bb_flow, srt) - 148usize];
    ["Offset of field: bb_flow::srt_misses"]
        [::std::mem::offset_of!(bb_flow, srt_misses) - 149usize];
    ["Offset of field: bb_flow::pad"][::std::mem::offset_of!(bb_flow, pad) - 150usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_stream_key {
    pub flow: __u64,
    pub ssrc: __u32,
    pub rtp: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_stream_key"][::std::mem::size_of::<bb_stream_key>() - 16usize];
    ["Alignment of bb_stream_key"][::std::mem::align_of::<bb_stream_key>() - 8usize];
    ["Offset of field: bb_stream_key::flow"][::std::mem::offset_of!(bb_stream_key, flow) - 0usize];
    ["Offset of field: bb_stream_key::ssrc"][::std::mem::offset_of!(bb_stream_key, ssrc) - 8usize];
    ["Offset of field: bb_stream_key::rtp"][::std::mem::offset_of!(bb_stream_key, rtp) - 12usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_stream_adu {
    pub first_ns: __u64,
    pub source: __u32,
    pub bytes: __u32,
    pub number: __u16,
    pub flags: __u8,
    pub leaf: __u8,
    pub promised: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_stream_adu"][::std::mem::size_of::<bb_stream_adu>() - 24usize];
    ["Alignment of bb_stream_adu"][::std::mem::align_of::<bb_stream_adu>() - 8usize];
    ["Offset of field: bb_stream_adu::first_ns"]
        [::std::mem::offset_of!(bb_stream_adu, first_ns) - 0usize];
    ["Offset of field: bb_stream_adu::source"]
        [::std::mem::offset_of!(bb_stream_adu, source) - 8usize];
    ["Offset of field: bb_stream_adu::bytes"]
        [::std::mem::offset_of!(bb_stream_adu, bytes) - 12usize];
    ["Offset of field: bb_stream_adu::number"]
        [::std::mem::offset_of!(bb_stream_adu, number) - 16usize];
    ["Offset of field: bb_stream_adu::flags"]
        [::std::mem::offset_of!(bb_stream_adu, flags) - 18usize];
    ["Offset of field: bb_stream_adu::leaf"][::std::mem::offset_of!(bb_stream_adu, leaf) - 19usize];
    ["Offset of field: bb_stream_adu::promised"]
        [::std::mem::offset_of!(bb_stream_adu, promised) - 20usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_stream {
    pub way: bb_way,
    pub key: bb_stream_key,
    pub last_ns: __u64,
    pub head: __u64,
    pub adu: [bb_stream_adu; 2usize],
    pub verdict: __u64,
    pub avg_bytes: __u32,
    pub seq: __u16,
    pub original: __u16,
    pub pauses: __u8,
    pub repairs: __u8,
    pub flags: __u8,
    pub leaf: __u8,
    pub since: __u8,
    pub lost: __u8,
    pub large_every: __u16,
    pub large_ms: __u32,
    pub large_bytes: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_stream"][::std::mem::size_of::<bb_stream>() - 128usize];
    ["Alignment of bb_stream"][::std::mem::align_of::<bb_stream>() - 8usize];
    ["Offset of field: bb_stream::way"][::std::mem::offset_of!(bb_stream, way) - 0usize];
    ["Offset of field: bb_stream::key"][::std::mem::offset_of!(bb_stream, key) - 16usize];
    ["Offset of field: bb_stream::last_ns"][::std::mem::offset_of!(bb_stream, last_ns) - 32usize];
    ["Offset of field: bb_stream::head"][::std::mem::offset_of!(bb_stream, head) - 40usize];
    ["Offset of field: bb_stream::adu"][::std::mem::offset_of!(bb_stream, adu) - 48usize];
    ["Offset of field: bb_stream::verdict"][::std::mem::offset_of!(bb_stream, verdict) - 96usize];
    ["Offset of field: bb_stream::avg_bytes"]
        [::std::mem::offset_of!(bb_stream, avg_bytes) - 104usize];
    ["Offset of field: bb_stream::seq"][::std::mem::offset_of!(bb_stream, seq) - 108usize];
    ["Offset of field: bb_stream::original"]
        [::std::mem::offset_of!(bb_stream, original) - 110usize];
    ["Offset of field: bb_stream::pauses"][::std::mem::offset_of!(bb_stream, pauses) - 112usize];
    ["Offset of field: bb_stream::repairs"][::std::mem::offset_of!(bb_stream, repairs) - 113usize];
    ["Offset of field: bb_stream::flags"][::std::mem::offset_of!(bb_stream, flags) - 114usize];
    ["Offset of field: bb_stream::leaf"][::std::mem::offset_of!(bb_stream, leaf) - 115usize];
    ["Offset of field: bb_stream::since"][::std::mem::offset_of!(bb_stream, since) - 116usize];
    ["Offset of field: bb_stream::lost"][::std::mem::offset_of!(bb_stream, lost) - 117usize];
    ["Offset of field: bb_stream::large_every"]
        [::std::mem::offset_of!(bb_stream, large_every) - 118usize];
    ["Offset of field: bb_stream::large_ms"]
        [::std::mem::offset_of!(bb_stream, large_ms) - 120usize];
    ["Offset of field: bb_stream::large_bytes"]
        [::std::mem::offset_of!(bb_stream, large_bytes) - 124usize];
};
pub const BB_CODEC_H264: bb_codec = 0;
pub const BB_CODEC_H265: bb_codec = 1;
pub const BB_CODEC_VP8: bb_codec = 2;
pub const BB_CODEC_VP9: bb_codec = 3;
pub const BB_CODEC_AV1: bb_codec = 4;
pub const BB_CODEC_DD: bb_codec = 5;
pub const BB_CODEC_VFM: bb_codec = 6;
pub const BB_CODECS: bb_codec = 7;
pub const BB_CODEC_TS_H264: bb_codec = 8;
pub const BB_CODEC_TS_H265: bb_codec = 9;
pub const BB_CODEC_TS_MPEG2: bb_codec = 10;
pub const BB_CODEC_OPAQUE: bb_codec = 255;
pub type bb_codec = ::std::os::raw::c_uint;
pub const BB_ROLE_NONE: bb_role = 0;
pub const BB_ROLE_KEY: bb_role = 1;
pub const BB_ROLE_LINK: bb_role = 2;
pub const BB_ROLE_LINK1: bb_role = 3;
pub const BB_ROLE_LINK2: bb_role = 4;
pub const BB_ROLE_LEAF: bb_role = 5;
pub type bb_role = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_video {
    pub gen_: __u32,
    pub latest: __u32,
    pub ssrc: __u32,
    pub skipped: __u32,
    pub codec: __u8,
    pub tried: [__u8; 7usize],
    pub key_at: [__u8; 7usize],
    pub open: [__u8; 2usize],
    pub going: __u8,
    pub wrong: __u8,
    pub strikes: __u8,
    pub levels: __u8,
    pub key: __u8,
    pub role: __u8,
    pub misses: __u8,
    pub broken: __u8,
    pub dd: __u8,
    pub position: __u16,
    pub group: __u16,
    pub broken_at: __u16,
    pub skipped_at: __u16,
    pub number: __u16,
    pub dd_number: __u16,
    pub dd_seen: __u8,
    pub dd_next: __u8,
    pub vfm: __u8,
    pub vfm_next: __u8,
    pub first_template: __u8,
    pub templates: __u8,
    pub template_levels: __u8,
    pub levels_of: [__u8; 16usize],
    pub pad: [__u8; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_video"][::std::mem::size_of::<bb_video>() - 80usize];
    ["Alignment of bb_video"][::std::mem::align_of::<bb_video>() - 4usize];
    ["Offset of field: bb_video::gen_"][::std::mem::offset_of!(bb_video, gen_) - 0usize];
    ["Offset of field: bb_video::latest"][::std::mem::offset_of!(bb_video, latest) - 4usize];
    ["Offset of field: bb_video::ssrc"][::std::mem::offset_of!(bb_video, ssrc) - 8usize];
    ["Offset of field: bb_video::skipped"][::std::mem::offset_of!(bb_video, skipped) - 12usize];
    ["Offset of field: bb_video::codec"][::std::mem::offset_of!(bb_video, codec) - 16usize];
    ["Offset of field: bb_video::tried"][::std::mem::offset_of!(bb_video, tried) - 17usize];
    ["Offset of field: bb_video::key_at"][::std::mem::offset_of!(bb_video, key_at) - 24usize];
    ["Offset of field: bb_video::open"][::std::mem::offset_of!(bb_video, open) - 31usize];
    ["Offset of field: bb_video::going"][::std::mem::offset_of!(bb_video, going) - 33usize];
    ["Offset of field: bb_video::wrong"][::std::mem::offset_of!(bb_video, wrong) - 34usize];
    ["Offset of field: bb_video::strikes"][::std::mem::offset_of!(bb_video, strikes) - 35usize];
    ["Offset of field: bb_video::levels"][::std::mem::offset_of!(bb_video, levels) - 36usize];
    ["Offset of field: bb_video::key"][::std::mem::offset_of!(bb_video, key) - 37usize];
    ["Offset of field: bb_video::role"][::std::mem::offset_of!(bb_video, role) - 38usize];
    ["Offset of field: bb_video::misses"][::std::mem::offset_of!(bb_video, misses) - 39usize];
    ["Offset of field: bb_video::broken"][::std::mem::offset_of!(bb_video, broken) - 40usize];
    ["Offset of field: bb_video::dd"][::std::mem::offset_of!(bb_video, dd) - 41usize];
    ["Offset of field: bb_video::position"][::std::mem::offset_of!(bb_video, position) - 42usize];
    ["Offset of field: bb_video::group"][::std::mem::offset_of!(bb_video, group) - 44usize];
    ["Offset of field: bb_video::broken_at"][::std::mem::offset_of!(bb_video, broken_at) - 46usize];
    ["Offset of field: bb_video::skipped_at"]
        [::std::mem::offset_of!(bb_video, skipped_at) - 48usize];
    ["Offset of field: bb_video::number"][::std::mem::offset_of!(bb_video, number) - 50usize];
    ["Offset of field: bb_video::dd_number"][::std::mem::offset_of!(bb_video, dd_number) - 52usize];
    ["Offset of field: bb_video::dd_seen"][::std::mem::offset_of!(bb_video, dd_seen) - 54usize];
    ["Offset of field: bb_video::dd_next"][::std::mem::offset_of!(bb_video, dd_next) - 55usize];
    ["Offset of field: bb_video::vfm"][::std::mem::offset_of!(bb_video, vfm) - 56usize];
    ["Offset of field: bb_video::vfm_next"][::std::mem::offset_of!(bb_video, vfm_next) - 57usize];
    ["Offset of field: bb_video::first_template"]
        [::std::mem::offset_of!(bb_video, first_template) - 58usize];
    ["Offset of field: bb_video::templates"][::std::mem::offset_of!(bb_video, templates) - 59usize];
    ["Offset of field: bb_video::template_levels"]
        [::std::mem::offset_of!(bb_video, template_levels) - 60usize];
    ["Offset of field: bb_video::levels_of"][::std::mem::offset_of!(bb_video, levels_of) - 61usize];
    ["Offset of field: bb_video::pad"][::std::mem::offset_of!(bb_video, pad) - 77usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_adu {
    pub first_ns: __u64,
    pub id: __u32,
    pub tag: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_adu"][::std::mem::size_of::<bb_adu>() - 16usize];
    ["Alignment of bb_adu"][::std::mem::align_of::<bb_adu>() - 8usize];
    ["Offset of field: bb_adu::first_ns"][::std::mem::offset_of!(bb_adu, first_ns) - 0usize];
    ["Offset of field: bb_adu::id"][::std::mem::offset_of!(bb_adu, id) - 8usize];
    ["Offset of field: bb_adu::tag"][::std::mem::offset_of!(bb_adu, tag) - 12usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_adu_set {
    pub way: [bb_adu; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_adu_set"][::std::mem::size_of::<bb_adu_set>() - 64usize];
    ["Alignment of bb_adu_set"][::std::mem::align_of::<bb_adu_set>() - 8usize];
    ["Offset of field: bb_adu_set::way"][::std::mem::offset_of!(bb_adu_set, way) - 0usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_addr {
    pub addr: [__u8; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_addr"][::std::mem::size_of::<bb_addr>() - 16usize];
    ["Alignment of bb_addr"][::std::mem::align_of::<bb_addr>() - 1usize];
    ["Offset of field: bb_addr::addr"][::std::mem::offset_of!(bb_addr, addr) - 0usize];
};
pub const BB_RTT_TCP: bb_rtt_source = 0;
pub const BB_RTT_STUN: bb_rtt_source = 1;
pub const BB_RTT_RTCP: bb_rtt_source = 2;
pub const BB_RTT_NOBODY: bb_rtt_source = 3;
pub type bb_rtt_source = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_rtt {
    pub min_rtt_ns: __u64,
    pub least_ns: [__u64; 2usize],
    pub window: __u64,
    pub srtt_ns: __u64,
    pub rto_ns: __u64,
    pub updated_ns: __u64,
    pub base_ns: [__u64; 2usize],
    pub base_window: __u32,
    pub source: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_rtt"][::std::mem::size_of::<bb_rtt>() - 80usize];
    ["Alignment of bb_rtt"][::std::mem::align_of::<bb_rtt>() - 8usize];
    ["Offset of field: bb_rtt::min_rtt_ns"][::std::mem::offset_of!(bb_rtt, min_rtt_ns) - 0usize];
    ["Offset of field: bb_rtt::least_ns"][::std::mem::offset_of!(bb_rtt, least_ns) - 8usize];
    ["Offset of field: bb_rtt::window"][::std::mem::offset_of!(bb_rtt, window) - 24usize];
    ["Offset of field: bb_rtt::srtt_ns"][::std::mem::offset_of!(bb_rtt, srtt_ns) - 32usize];
    ["Offset of field: bb_rtt::rto_ns"][::std::mem::offset_of!(bb_rtt, rto_ns) - 40usize];
    ["Offset of field: bb_rtt::updated_ns"][::std::mem::offset_of!(bb_rtt, updated_ns) - 48usize];
    ["Offset of field: bb_rtt::base_ns"][::std::mem::offset_of!(bb_rtt, base_ns) - 56usize];
    ["Offset of field: bb_rtt::base_window"][::std::mem::offset_of!(bb_rtt, base_window) - 72usize];
    ["Offset of field: bb_rtt::source"][::std::mem::offset_of!(bb_rtt, source) - 76usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_asked_key {
    pub local: [__u8; 16usize],
    pub peer: [__u8; 16usize],
    pub id: [__u32; 3usize],
    pub local_port: __u16,
    pub peer_port: __u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_asked_key"][::std::mem::size_of::<bb_asked_key>() - 48usize];
    ["Alignment of bb_asked_key"][::std::mem::align_of::<bb_asked_key>() - 4usize];
    ["Offset of field: bb_asked_key::local"][::std::mem::offset_of!(bb_asked_key, local) - 0usize];
    ["Offset of field: bb_asked_key::peer"][::std::mem::offset_of!(bb_asked_key, peer) - 16usize];
    ["Offset of field: bb_asked_key::id"][::std::mem::offset_of!(bb_asked_key, id) - 32usize];
    ["Offset of field: bb_asked_key::local_port"]
        [::std::mem::offset_of!(bb_asked_key, local_port) - 44usize];
    ["Offset of field: bb_asked_key::peer_port"]
        [::std::mem::offset_of!(bb_asked_key, peer_port) - 46usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_asked {
    pub sent_ns: __u64,
    pub session: __u32,
    pub gen_: __u32,
    pub source: __u32,
    pub again: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_asked"][::std::mem::size_of::<bb_asked>() - 24usize];
    ["Alignment of bb_asked"][::std::mem::align_of::<bb_asked>() - 8usize];
    ["Offset of field: bb_asked::sent_ns"][::std::mem::offset_of!(bb_asked, sent_ns) - 0usize];
    ["Offset of field: bb_asked::session"][::std::mem::offset_of!(bb_asked, session) - 8usize];
    ["Offset of field: bb_asked::gen_"][::std::mem::offset_of!(bb_asked, gen_) - 12usize];
    ["Offset of field: bb_asked::source"][::std::mem::offset_of!(bb_asked, source) - 16usize];
    ["Offset of field: bb_asked::again"][::std::mem::offset_of!(bb_asked, again) - 20usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_tcp_path {
    pub session: __u32,
    pub gen_: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_tcp_path"][::std::mem::size_of::<bb_tcp_path>() - 8usize];
    ["Alignment of bb_tcp_path"][::std::mem::align_of::<bb_tcp_path>() - 4usize];
    ["Offset of field: bb_tcp_path::session"]
        [::std::mem::offset_of!(bb_tcp_path, session) - 0usize];
    ["Offset of field: bb_tcp_path::gen_"][::std::mem::offset_of!(bb_tcp_path, gen_) - 4usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_peer {
    pub owd_ns: __u64,
    pub rate: __u64,
    pub said_ns: __u64,
    pub flags: __u32,
    pub pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_peer"][::std::mem::size_of::<bb_peer>() - 32usize];
    ["Alignment of bb_peer"][::std::mem::align_of::<bb_peer>() - 8usize];
    ["Offset of field: bb_peer::owd_ns"][::std::mem::offset_of!(bb_peer, owd_ns) - 0usize];
    ["Offset of field: bb_peer::rate"][::std::mem::offset_of!(bb_peer, rate) - 8usize];
    ["Offset of field: bb_peer::said_ns"][::std::mem::offset_of!(bb_peer, said_ns) - 16usize];
    ["Offset of field: bb_peer::flags"][::std::mem::offset_of!(bb_peer, flags) - 24usize];
    ["Offset of field: bb_peer::pad"][::std::mem::offset_of!(bb_peer, pad) - 28usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_sock_peer_key {
    pub addr: [__u8; 16usize],
    pub uid: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_sock_peer_key"][::std::mem::size_of::<bb_sock_peer_key>() - 20usize];
    ["Alignment of bb_sock_peer_key"][::std::mem::align_of::<bb_sock_peer_key>() - 4usize];
    ["Offset of field: bb_sock_peer_key::addr"]
        [::std::mem::offset_of!(bb_sock_peer_key, addr) - 0usize];
    ["Offset of field: bb_sock_peer_key::uid"]
        [::std::mem::offset_of!(bb_sock_peer_key, uid) - 16usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_sock {
    pub lifetime_ns: __u64,
    pub cookie: __u64,
    pub made: __u32,
    pub answered_made: __u32,
    pub base: bb_counters,
    pub answered: bb_counters,
    pub priority: __u8,
    pub treatment: __u8,
    pub flags: __u8,
    pub pad: [__u8; 5usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_sock"][::std::mem::size_of::<bb_sock>() - 368usize];
    ["Alignment of bb_sock"][::std::mem::align_of::<bb_sock>() - 8usize];
    ["Offset of field: bb_sock::lifetime_ns"]
        [::std::mem::offset_of!(bb_sock, lifetime_ns) - 0usize];
    ["Offset of field: bb_sock::cookie"][::std::mem::offset_of!(bb_sock, cookie) - 8usize];
    ["Offset of field: bb_sock::made"][::std::mem::offset_of!(bb_sock, made) - 16usize];
    ["Offset of field: bb_sock::answered_made"]
        [::std::mem::offset_of!(bb_sock, answered_made) - 20usize];
    ["Offset of field: bb_sock::base"][::std::mem::offset_of!(bb_sock, base) - 24usize];
    ["Offset of field: bb_sock::answered"][::std::mem::offset_of!(bb_sock, answered) - 192usize];
    ["Offset of field: bb_sock::priority"][::std::mem::offset_of!(bb_sock, priority) - 360usize];
    ["Offset of field: bb_sock::treatment"][::std::mem::offset_of!(bb_sock, treatment) - 361usize];
    ["Offset of field: bb_sock::flags"][::std::mem::offset_of!(bb_sock, flags) - 362usize];
    ["Offset of field: bb_sock::pad"][::std::mem::offset_of!(bb_sock, pad) - 363usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_frag_key {
    pub src: [__u8; 16usize],
    pub dst: [__u8; 16usize],
    pub id: __u32,
    pub ifindex: __u32,
    pub proto: __u8,
    pub pad: [__u8; 7usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_frag_key"][::std::mem::size_of::<bb_frag_key>() - 48usize];
    ["Alignment of bb_frag_key"][::std::mem::align_of::<bb_frag_key>() - 4usize];
    ["Offset of field: bb_frag_key::src"][::std::mem::offset_of!(bb_frag_key, src) - 0usize];
    ["Offset of field: bb_frag_key::dst"][::std::mem::offset_of!(bb_frag_key, dst) - 16usize];
    ["Offset of field: bb_frag_key::id"][::std::mem::offset_of!(bb_frag_key, id) - 32usize];
    ["Offset of field: bb_frag_key::ifindex"]
        [::std::mem::offset_of!(bb_frag_key, ifindex) - 36usize];
    ["Offset of field: bb_frag_key::proto"][::std::mem::offset_of!(bb_frag_key, proto) - 40usize];
    ["Offset of field: bb_frag_key::pad"][::std::mem::offset_of!(bb_frag_key, pad) - 41usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_frag {
    pub sport: __u16,
    pub dport: __u16,
    pub adu: __u32,
    pub deadline: __u64,
    pub seen_ns: __u64,
    pub proto: __u8,
    pub pad: [__u8; 7usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_frag"][::std::mem::size_of::<bb_frag>() - 32usize];
    ["Alignment of bb_frag"][::std::mem::align_of::<bb_frag>() - 8usize];
    ["Offset of field: bb_frag::sport"][::std::mem::offset_of!(bb_frag, sport) - 0usize];
    ["Offset of field: bb_frag::dport"][::std::mem::offset_of!(bb_frag, dport) - 2usize];
    ["Offset of field: bb_frag::adu"][::std::mem::offset_of!(bb_frag, adu) - 4usize];
    ["Offset of field: bb_frag::deadline"][::std::mem::offset_of!(bb_frag, deadline) - 8usize];
    ["Offset of field: bb_frag::seen_ns"][::std::mem::offset_of!(bb_frag, seen_ns) - 16usize];
    ["Offset of field: bb_frag::proto"][::std::mem::offset_of!(bb_frag, proto) - 24usize];
    ["Offset of field: bb_frag::pad"][::std::mem::offset_of!(bb_frag, pad) - 25usize];
};
#[repr(C)]
#[derive(
    Debug,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_told {
    pub cgroups: [__u64; 64usize],
    pub explain: __u32,
    pub forwarded: __u32,
    pub video: bb_video,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_told"][::std::mem::size_of::<bb_told>() - 600usize];
    ["Alignment of bb_told"][::std::mem::align_of::<bb_told>() - 8usize];
    ["Offset of field: bb_told::cgroups"][::std::mem::offset_of!(bb_told, cgroups) - 0usize];
    ["Offset of field: bb_told::explain"][::std::mem::offset_of!(bb_told, explain) - 512usize];
    ["Offset of field: bb_told::forwarded"][::std::mem::offset_of!(bb_told, forwarded) - 516usize];
    ["Offset of field: bb_told::video"][::std::mem::offset_of!(bb_told, video) - 520usize];
};
impl Default for bb_told {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const BB_STEP_MARK: bb_step = 0;
pub const BB_STEP_TXTIME: bb_step = 1;
pub const BB_STEP_SOCKET: bb_step = 2;
pub const BB_STEP_OPTION: bb_step = 3;
pub const BB_STEP_RULE: bb_step = 4;
pub const BB_STEP_REST: bb_step = 5;
pub const BB_STEPS: bb_step = 6;
pub type bb_step = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_said {
    pub deadline: __u64,
    pub lifetime: __u64,
    pub done: __u8,
    pub no_deadline: __u8,
    pub counts: __u8,
    pub priority: __u8,
    pub treatment: __u8,
    pub pad: [__u8; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_said"][::std::mem::size_of::<bb_said>() - 24usize];
    ["Alignment of bb_said"][::std::mem::align_of::<bb_said>() - 8usize];
    ["Offset of field: bb_said::deadline"][::std::mem::offset_of!(bb_said, deadline) - 0usize];
    ["Offset of field: bb_said::lifetime"][::std::mem::offset_of!(bb_said, lifetime) - 8usize];
    ["Offset of field: bb_said::done"][::std::mem::offset_of!(bb_said, done) - 16usize];
    ["Offset of field: bb_said::no_deadline"]
        [::std::mem::offset_of!(bb_said, no_deadline) - 17usize];
    ["Offset of field: bb_said::counts"][::std::mem::offset_of!(bb_said, counts) - 18usize];
    ["Offset of field: bb_said::priority"][::std::mem::offset_of!(bb_said, priority) - 19usize];
    ["Offset of field: bb_said::treatment"][::std::mem::offset_of!(bb_said, treatment) - 20usize];
    ["Offset of field: bb_said::pad"][::std::mem::offset_of!(bb_said, pad) - 21usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_read {
    pub video: bb_video,
    pub bytes: [__u8; 12usize],
    pub n: __u8,
    pub extension: __u8,
    pub done: __u8,
    pub role: __u8,
    pub decides: __u8,
    pub pad: [__u8; 7usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_read"][::std::mem::size_of::<bb_read>() - 104usize];
    ["Alignment of bb_read"][::std::mem::align_of::<bb_read>() - 4usize];
    ["Offset of field: bb_read::video"][::std::mem::offset_of!(bb_read, video) - 0usize];
    ["Offset of field: bb_read::bytes"][::std::mem::offset_of!(bb_read, bytes) - 80usize];
    ["Offset of field: bb_read::n"][::std::mem::offset_of!(bb_read, n) - 92usize];
    ["Offset of field: bb_read::extension"][::std::mem::offset_of!(bb_read, extension) - 93usize];
    ["Offset of field: bb_read::done"][::std::mem::offset_of!(bb_read, done) - 94usize];
    ["Offset of field: bb_read::role"][::std::mem::offset_of!(bb_read, role) - 95usize];
    ["Offset of field: bb_read::decides"][::std::mem::offset_of!(bb_read, decides) - 96usize];
    ["Offset of field: bb_read::pad"][::std::mem::offset_of!(bb_read, pad) - 97usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_explained {
    pub said: [bb_said; 6usize],
    pub now: __u64,
    pub deadline: __u64,
    pub owd_ns: __u64,
    pub session: __u32,
    pub reason: __s32,
    pub rule: __u16,
    pub class_: __u8,
    pub stale: __u8,
    pub known: __u8,
    pub control: __u8,
    pub rtp: __u8,
    pub inner: __u8,
    pub read: bb_read,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_explained"][::std::mem::size_of::<bb_explained>() - 288usize];
    ["Alignment of bb_explained"][::std::mem::align_of::<bb_explained>() - 8usize];
    ["Offset of field: bb_explained::said"][::std::mem::offset_of!(bb_explained, said) - 0usize];
    ["Offset of field: bb_explained::now"][::std::mem::offset_of!(bb_explained, now) - 144usize];
    ["Offset of field: bb_explained::deadline"]
        [::std::mem::offset_of!(bb_explained, deadline) - 152usize];
    ["Offset of field: bb_explained::owd_ns"]
        [::std::mem::offset_of!(bb_explained, owd_ns) - 160usize];
    ["Offset of field: bb_explained::session"]
        [::std::mem::offset_of!(bb_explained, session) - 168usize];
    ["Offset of field: bb_explained::reason"]
        [::std::mem::offset_of!(bb_explained, reason) - 172usize];
    ["Offset of field: bb_explained::rule"][::std::mem::offset_of!(bb_explained, rule) - 176usize];
    ["Offset of field: bb_explained::class_"]
        [::std::mem::offset_of!(bb_explained, class_) - 178usize];
    ["Offset of field: bb_explained::stale"]
        [::std::mem::offset_of!(bb_explained, stale) - 179usize];
    ["Offset of field: bb_explained::known"]
        [::std::mem::offset_of!(bb_explained, known) - 180usize];
    ["Offset of field: bb_explained::control"]
        [::std::mem::offset_of!(bb_explained, control) - 181usize];
    ["Offset of field: bb_explained::rtp"][::std::mem::offset_of!(bb_explained, rtp) - 182usize];
    ["Offset of field: bb_explained::inner"]
        [::std::mem::offset_of!(bb_explained, inner) - 183usize];
    ["Offset of field: bb_explained::read"][::std::mem::offset_of!(bb_explained, read) - 184usize];
};
pub const BB_REAL_OFF: bb_real_mode = 0;
pub const BB_REAL_GUARDED: bb_real_mode = 1;
pub const BB_REAL_PAPER: bb_real_mode = 2;
pub type bb_real_mode = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_real_config {
    pub mode: __u32,
    pub max_level: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_real_config"][::std::mem::size_of::<bb_real_config>() - 8usize];
    ["Alignment of bb_real_config"][::std::mem::align_of::<bb_real_config>() - 4usize];
    ["Offset of field: bb_real_config::mode"]
        [::std::mem::offset_of!(bb_real_config, mode) - 0usize];
    ["Offset of field: bb_real_config::max_level"]
        [::std::mem::offset_of!(bb_real_config, max_level) - 4usize];
};
pub const BB_REAL_SPEAKS: bb_real_why = 0;
pub const BB_REAL_NO_ANSWER: bb_real_why = 1;
pub const BB_REAL_RETRIED: bb_real_why = 2;
pub const BB_REAL_SILENT: bb_real_why = 3;
pub const BB_REAL_LATE: bb_real_why = 4;
pub type bb_real_why = ::std::os::raw::c_uint;
pub const BB_REAL_C_NEGOTIATED: bb_real_count = 0;
pub const BB_REAL_C_NO_ANSWER: bb_real_count = 1;
pub const BB_REAL_C_RETRIED: bb_real_count = 2;
pub const BB_REAL_C_SILENT: bb_real_count = 3;
pub const BB_REAL_C_MALFORMED: bb_real_count = 4;
pub const BB_REAL_C_NO_ROOM: bb_real_count = 5;
pub const BB_REAL_C_MEASURED: bb_real_count = 6;
pub const BB_REAL_C_UNMEASURED: bb_real_count = 7;
pub const BB_REAL_C_TIMERS: bb_real_count = 8;
pub const BB_REAL_C_CANCELLED: bb_real_count = 9;
pub const BB_REAL_C_REDUCED: bb_real_count = 10;
pub const BB_REAL_C_PLAIN: bb_real_count = 11;
pub const BB_REAL_C_RESTORED: bb_real_count = 12;
pub const BB_REAL_C_COLLAPSED: bb_real_count = 13;
pub const BB_REAL_COUNTS: bb_real_count = 14;
pub type bb_real_count = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_real_rx {
    pub first_ns: __u64,
    pub last_ns: __u64,
    pub first_end: __u32,
    pub end: __u32,
    pub rate: __u32,
    pub level: __u32,
    pub threshold: __u32,
    pub wave: __u8,
    pub size: __u8,
    pub flags: __u8,
    pub unmeasured: __u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_real_rx"][::std::mem::size_of::<bb_real_rx>() - 40usize];
    ["Alignment of bb_real_rx"][::std::mem::align_of::<bb_real_rx>() - 8usize];
    ["Offset of field: bb_real_rx::first_ns"]
        [::std::mem::offset_of!(bb_real_rx, first_ns) - 0usize];
    ["Offset of field: bb_real_rx::last_ns"][::std::mem::offset_of!(bb_real_rx, last_ns) - 8usize];
    ["Offset of field: bb_real_rx::first_end"]
        [::std::mem::offset_of!(bb_real_rx, first_end) - 16usize];
    ["Offset of field: bb_real_rx::end"][::std::mem::offset_of!(bb_real_rx, end) - 20usize];
    ["Offset of field: bb_real_rx::rate"][::std::mem::offset_of!(bb_real_rx, rate) - 24usize];
    ["Offset of field: bb_real_rx::level"][::std::mem::offset_of!(bb_real_rx, level) - 28usize];
    ["Offset of field: bb_real_rx::threshold"]
        [::std::mem::offset_of!(bb_real_rx, threshold) - 32usize];
    ["Offset of field: bb_real_rx::wave"][::std::mem::offset_of!(bb_real_rx, wave) - 36usize];
    ["Offset of field: bb_real_rx::size"][::std::mem::offset_of!(bb_real_rx, size) - 37usize];
    ["Offset of field: bb_real_rx::flags"][::std::mem::offset_of!(bb_real_rx, flags) - 38usize];
    ["Offset of field: bb_real_rx::unmeasured"]
        [::std::mem::offset_of!(bb_real_rx, unmeasured) - 39usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_real_tx {
    pub last_ns: __u64,
    pub sent: __u32,
    pub size: __u32,
    pub wave: __u8,
    pub restart: __u8,
    pub pad: [__u8; 6usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_real_tx"][::std::mem::size_of::<bb_real_tx>() - 24usize];
    ["Alignment of bb_real_tx"][::std::mem::align_of::<bb_real_tx>() - 8usize];
    ["Offset of field: bb_real_tx::last_ns"][::std::mem::offset_of!(bb_real_tx, last_ns) - 0usize];
    ["Offset of field: bb_real_tx::sent"][::std::mem::offset_of!(bb_real_tx, sent) - 8usize];
    ["Offset of field: bb_real_tx::size"][::std::mem::offset_of!(bb_real_tx, size) - 12usize];
    ["Offset of field: bb_real_tx::wave"][::std::mem::offset_of!(bb_real_tx, wave) - 16usize];
    ["Offset of field: bb_real_tx::restart"][::std::mem::offset_of!(bb_real_tx, restart) - 17usize];
    ["Offset of field: bb_real_tx::pad"][::std::mem::offset_of!(bb_real_tx, pad) - 18usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_real_conn {
    pub rx: bb_real_rx,
    pub tx: bb_real_tx,
    pub acks: __u32,
    pub unheard: __u32,
    pub rtt_us: __u32,
    pub cancelled: __u32,
    pub tcx: __u16,
    pub why: __u8,
    pub cc: __u8,
    pub told_level: __u8,
    pub told_rate: __u8,
    pub fresh: __u8,
    pub dupack: __u8,
    pub slow: __u8,
    pub kept: __u8,
    pub congested: __u8,
    pub probing: __u8,
    pub acknowledged: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_real_conn"][::std::mem::size_of::<bb_real_conn>() - 96usize];
    ["Alignment of bb_real_conn"][::std::mem::align_of::<bb_real_conn>() - 8usize];
    ["Offset of field: bb_real_conn::rx"][::std::mem::offset_of!(bb_real_conn, rx) - 0usize];
    ["Offset of field: bb_real_conn::tx"][::std::mem::offset_of!(bb_real_conn, tx) - 40usize];
    ["Offset of field: bb_real_conn::acks"][::std::mem::offset_of!(bb_real_conn, acks) - 64usize];
    ["Offset of field: bb_real_conn::unheard"]
        [::std::mem::offset_of!(bb_real_conn, unheard) - 68usize];
    ["Offset of field: bb_real_conn::rtt_us"]
        [::std::mem::offset_of!(bb_real_conn, rtt_us) - 72usize];
    ["Offset of field: bb_real_conn::cancelled"]
        [::std::mem::offset_of!(bb_real_conn, cancelled) - 76usize];
    ["Offset of field: bb_real_conn::tcx"][::std::mem::offset_of!(bb_real_conn, tcx) - 80usize];
    ["Offset of field: bb_real_conn::why"][::std::mem::offset_of!(bb_real_conn, why) - 82usize];
    ["Offset of field: bb_real_conn::cc"][::std::mem::offset_of!(bb_real_conn, cc) - 83usize];
    ["Offset of field: bb_real_conn::told_level"]
        [::std::mem::offset_of!(bb_real_conn, told_level) - 84usize];
    ["Offset of field: bb_real_conn::told_rate"]
        [::std::mem::offset_of!(bb_real_conn, told_rate) - 85usize];
    ["Offset of field: bb_real_conn::fresh"][::std::mem::offset_of!(bb_real_conn, fresh) - 86usize];
    ["Offset of field: bb_real_conn::dupack"]
        [::std::mem::offset_of!(bb_real_conn, dupack) - 87usize];
    ["Offset of field: bb_real_conn::slow"][::std::mem::offset_of!(bb_real_conn, slow) - 88usize];
    ["Offset of field: bb_real_conn::kept"][::std::mem::offset_of!(bb_real_conn, kept) - 89usize];
    ["Offset of field: bb_real_conn::congested"]
        [::std::mem::offset_of!(bb_real_conn, congested) - 90usize];
    ["Offset of field: bb_real_conn::probing"]
        [::std::mem::offset_of!(bb_real_conn, probing) - 91usize];
    ["Offset of field: bb_real_conn::acknowledged"]
        [::std::mem::offset_of!(bb_real_conn, acknowledged) - 92usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_real_record {
    pub local: [__u8; 16usize],
    pub remote: [__u8; 16usize],
    pub local_port: __u16,
    pub remote_port: __u16,
    pub cwnd: __u32,
    pub mss: __u32,
    pub srtt_us: __u32,
    pub min_rtt_us: __u32,
    pub pad: __u32,
    pub cookie: __u64,
    pub conn: bb_real_conn,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_real_record"][::std::mem::size_of::<bb_real_record>() - 160usize];
    ["Alignment of bb_real_record"][::std::mem::align_of::<bb_real_record>() - 8usize];
    ["Offset of field: bb_real_record::local"]
        [::std::mem::offset_of!(bb_real_record, local) - 0usize];
    ["Offset of field: bb_real_record::remote"]
        [::std::mem::offset_of!(bb_real_record, remote) - 16usize];
    ["Offset of field: bb_real_record::local_port"]
        [::std::mem::offset_of!(bb_real_record, local_port) - 32usize];
    ["Offset of field: bb_real_record::remote_port"]
        [::std::mem::offset_of!(bb_real_record, remote_port) - 34usize];
    ["Offset of field: bb_real_record::cwnd"]
        [::std::mem::offset_of!(bb_real_record, cwnd) - 36usize];
    ["Offset of field: bb_real_record::mss"][::std::mem::offset_of!(bb_real_record, mss) - 40usize];
    ["Offset of field: bb_real_record::srtt_us"]
        [::std::mem::offset_of!(bb_real_record, srtt_us) - 44usize];
    ["Offset of field: bb_real_record::min_rtt_us"]
        [::std::mem::offset_of!(bb_real_record, min_rtt_us) - 48usize];
    ["Offset of field: bb_real_record::pad"][::std::mem::offset_of!(bb_real_record, pad) - 52usize];
    ["Offset of field: bb_real_record::cookie"]
        [::std::mem::offset_of!(bb_real_record, cookie) - 56usize];
    ["Offset of field: bb_real_record::conn"]
        [::std::mem::offset_of!(bb_real_record, conn) - 64usize];
};
pub const BB_TREAT_DEFAULT: bb_treatment = 0;
pub const BB_TREAT_FORWARD: bb_treatment = 1;
pub const BB_TREAT_DISCARD: bb_treatment = 2;
pub const BB_TREAT_TRUNCATE: bb_treatment = 3;
pub type bb_treatment = ::std::os::raw::c_uint;
pub const BB_FIFO: bb_method = 0;
pub const BB_SFDPS1: bb_method = 1;
pub const BB_SFDPS2: bb_method = 2;
pub const BB_RING: bb_method = 3;
pub const BB_RING_SFDPS2: bb_method = 4;
pub const BB_LAZY: bb_method = 5;
pub const BB_TRIAGE: bb_method = 6;
pub const BB_METHODS: bb_method = 7;
pub type bb_method = ::std::os::raw::c_uint;
pub const BB_SESSION_CONTROL: bb_session_kind = 0;
pub const BB_SESSION_PLAIN: bb_session_kind = 1;
pub const BB_SESSION_DST: bb_session_kind = 2;
pub const BB_SESSION_FLOW: bb_session_kind = 3;
pub const BB_SESSION_PREFIX: bb_session_kind = 4;
pub const BB_SESSION_INTERFACE: bb_session_kind = 5;
pub type bb_session_kind = ::std::os::raw::c_uint;
pub const BB_SO_LIFETIME: bb_sockopt = 1;
pub const BB_SO_PRIORITY: bb_sockopt = 2;
pub const BB_SO_TREATMENT: bb_sockopt = 3;
pub const BB_SO_PEER: bb_sockopt = 4;
pub const BB_SO_STATS: bb_sockopt = 5;
pub type bb_sockopt = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_so_peer {
    pub addr: [__u8; 16usize],
    pub owd_ns: __u64,
    pub rate: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_so_peer"][::std::mem::size_of::<bb_so_peer>() - 32usize];
    ["Alignment of bb_so_peer"][::std::mem::align_of::<bb_so_peer>() - 8usize];
    ["Offset of field: bb_so_peer::addr"][::std::mem::offset_of!(bb_so_peer, addr) - 0usize];
    ["Offset of field: bb_so_peer::owd_ns"][::std::mem::offset_of!(bb_so_peer, owd_ns) - 16usize];
    ["Offset of field: bb_so_peer::rate"][::std::mem::offset_of!(bb_so_peer, rate) - 24usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_cb {
    pub check: __u16,
    pub rule: __u16,
    pub session: __u16,
    pub class_: __u8,
    pub flags: __u8,
    pub deadline_lo: __u32,
    pub deadline_hi: [__u8; 3usize],
    pub rtp: __u8,
    pub adu: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_cb"][::std::mem::size_of::<bb_cb>() - 20usize];
    ["Alignment of bb_cb"][::std::mem::align_of::<bb_cb>() - 4usize];
    ["Offset of field: bb_cb::check"][::std::mem::offset_of!(bb_cb, check) - 0usize];
    ["Offset of field: bb_cb::rule"][::std::mem::offset_of!(bb_cb, rule) - 2usize];
    ["Offset of field: bb_cb::session"][::std::mem::offset_of!(bb_cb, session) - 4usize];
    ["Offset of field: bb_cb::class_"][::std::mem::offset_of!(bb_cb, class_) - 6usize];
    ["Offset of field: bb_cb::flags"][::std::mem::offset_of!(bb_cb, flags) - 7usize];
    ["Offset of field: bb_cb::deadline_lo"][::std::mem::offset_of!(bb_cb, deadline_lo) - 8usize];
    ["Offset of field: bb_cb::deadline_hi"][::std::mem::offset_of!(bb_cb, deadline_hi) - 12usize];
    ["Offset of field: bb_cb::rtp"][::std::mem::offset_of!(bb_cb, rtp) - 15usize];
    ["Offset of field: bb_cb::adu"][::std::mem::offset_of!(bb_cb, adu) - 16usize];
};
#[repr(C)]
#[derive(
    Debug,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_config {
    pub abi_version: __u32,
    pub rule_set: __u32,
    pub rule_gen: __u32,
    pub shapes: __u32,
    pub flow_mark_mask: __u32,
    pub mark_magic: __u32,
    pub mark_magic_mask: __u32,
    pub events_per_s: __u32,
    pub rtt_max_age_ns: __u64,
    pub seed: __u64,
    pub flags: __u32,
    pub tai_s: __u32,
    pub clock_until_ns: __u64,
    pub option4: __u8,
    pub option6_deadline: __u8,
    pub option6_lifetime: __u8,
    pub pad: [__u8; 1usize],
    pub wmem_max: __u32,
    pub prio_table: [__u8; 16usize],
    pub dscp_table: [__u8; 64usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_config"][::std::mem::size_of::<bb_config>() - 152usize];
    ["Alignment of bb_config"][::std::mem::align_of::<bb_config>() - 8usize];
    ["Offset of field: bb_config::abi_version"]
        [::std::mem::offset_of!(bb_config, abi_version) - 0usize];
    ["Offset of field: bb_config::rule_set"][::std::mem::offset_of!(bb_config, rule_set) - 4usize];
    ["Offset of field: bb_config::rule_gen"][::std::mem::offset_of!(bb_config, rule_gen) - 8usize];
    ["Offset of field: bb_config::shapes"][::std::mem::offset_of!(bb_config, shapes) - 12usize];
    ["Offset of field: bb_config::flow_mark_mask"]
        [::std::mem::offset_of!(bb_config, flow_mark_mask) - 16usize];
    ["Offset of field: bb_config::mark_magic"]
        [::std::mem::offset_of!(bb_config, mark_magic) - 20usize];
    ["Offset of field: bb_config::mark_magic_mask"]
        [::std::mem::offset_of!(bb_config, mark_magic_mask) - 24usize];
    ["Offset of field: bb_config::events_per_s"]
        [::std::mem::offset_of!(bb_config, events_per_s) - 28usize];
    ["Offset of field: bb_config::rtt_max_age_ns"]
        [::std::mem::offset_of!(bb_config, rtt_max_age_ns) - 32usize];
    ["Offset of field: bb_config::seed"][::std::mem::offset_of!(bb_config, seed) - 40usize];
    ["Offset of field: bb_config::flags"][::std::mem::offset_of!(bb_config, flags) - 48usize];
    ["Offset of field: bb_config::tai_s"][::std::mem::offset_of!(bb_config, tai_s) - 52usize];
    ["Offset of field: bb_config::clock_until_ns"]
        [::std::mem::offset_of!(bb_config, clock_until_ns) - 56usize];
    ["Offset of field: bb_config::option4"][::std::mem::offset_of!(bb_config, option4) - 64usize];
    ["Offset of field: bb_config::option6_deadline"]
        [::std::mem::offset_of!(bb_config, option6_deadline) - 65usize];
    ["Offset of field: bb_config::option6_lifetime"]
        [::std::mem::offset_of!(bb_config, option6_lifetime) - 66usize];
    ["Offset of field: bb_config::pad"][::std::mem::offset_of!(bb_config, pad) - 67usize];
    ["Offset of field: bb_config::wmem_max"][::std::mem::offset_of!(bb_config, wmem_max) - 68usize];
    ["Offset of field: bb_config::prio_table"]
        [::std::mem::offset_of!(bb_config, prio_table) - 72usize];
    ["Offset of field: bb_config::dscp_table"]
        [::std::mem::offset_of!(bb_config, dscp_table) - 88usize];
};
impl Default for bb_config {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_rule_key {
    pub src: [__u8; 16usize],
    pub dst: [__u8; 16usize],
    pub cgroup: __u64,
    pub mark: __u32,
    pub ifindex: __u32,
    pub sport: __u16,
    pub dport: __u16,
    pub family: __u8,
    pub proto: __u8,
    pub dscp: __u8,
    pub set: __u8,
    pub shape: __u32,
    pub ssrc: __u32,
    pub rtp: __u8,
    pub pad: [__u8; 7usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_rule_key"][::std::mem::size_of::<bb_rule_key>() - 72usize];
    ["Alignment of bb_rule_key"][::std::mem::align_of::<bb_rule_key>() - 8usize];
    ["Offset of field: bb_rule_key::src"][::std::mem::offset_of!(bb_rule_key, src) - 0usize];
    ["Offset of field: bb_rule_key::dst"][::std::mem::offset_of!(bb_rule_key, dst) - 16usize];
    ["Offset of field: bb_rule_key::cgroup"][::std::mem::offset_of!(bb_rule_key, cgroup) - 32usize];
    ["Offset of field: bb_rule_key::mark"][::std::mem::offset_of!(bb_rule_key, mark) - 40usize];
    ["Offset of field: bb_rule_key::ifindex"]
        [::std::mem::offset_of!(bb_rule_key, ifindex) - 44usize];
    ["Offset of field: bb_rule_key::sport"][::std::mem::offset_of!(bb_rule_key, sport) - 48usize];
    ["Offset of field: bb_rule_key::dport"][::std::mem::offset_of!(bb_rule_key, dport) - 50usize];
    ["Offset of field: bb_rule_key::family"][::std::mem::offset_of!(bb_rule_key, family) - 52usize];
    ["Offset of field: bb_rule_key::proto"][::std::mem::offset_of!(bb_rule_key, proto) - 53usize];
    ["Offset of field: bb_rule_key::dscp"][::std::mem::offset_of!(bb_rule_key, dscp) - 54usize];
    ["Offset of field: bb_rule_key::set"][::std::mem::offset_of!(bb_rule_key, set) - 55usize];
    ["Offset of field: bb_rule_key::shape"][::std::mem::offset_of!(bb_rule_key, shape) - 56usize];
    ["Offset of field: bb_rule_key::ssrc"][::std::mem::offset_of!(bb_rule_key, ssrc) - 60usize];
    ["Offset of field: bb_rule_key::rtp"][::std::mem::offset_of!(bb_rule_key, rtp) - 64usize];
    ["Offset of field: bb_rule_key::pad"][::std::mem::offset_of!(bb_rule_key, pad) - 65usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_shape {
    pub mask: bb_rule_key,
    pub first_order: __u32,
    pub cgroup_level: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_shape"][::std::mem::size_of::<bb_shape>() - 80usize];
    ["Alignment of bb_shape"][::std::mem::align_of::<bb_shape>() - 8usize];
    ["Offset of field: bb_shape::mask"][::std::mem::offset_of!(bb_shape, mask) - 0usize];
    ["Offset of field: bb_shape::first_order"]
        [::std::mem::offset_of!(bb_shape, first_order) - 72usize];
    ["Offset of field: bb_shape::cgroup_level"]
        [::std::mem::offset_of!(bb_shape, cgroup_level) - 76usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_rule_ref {
    pub order: __u32,
    pub rule: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_rule_ref"][::std::mem::size_of::<bb_rule_ref>() - 8usize];
    ["Alignment of bb_rule_ref"][::std::mem::align_of::<bb_rule_ref>() - 4usize];
    ["Offset of field: bb_rule_ref::order"][::std::mem::offset_of!(bb_rule_ref, order) - 0usize];
    ["Offset of field: bb_rule_ref::rule"][::std::mem::offset_of!(bb_rule_ref, rule) - 4usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_rtx {
    pub rtx: __u8,
    pub original: __u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_rtx"][::std::mem::size_of::<bb_rtx>() - 2usize];
    ["Alignment of bb_rtx"][::std::mem::align_of::<bb_rtx>() - 1usize];
    ["Offset of field: bb_rtx::rtx"][::std::mem::offset_of!(bb_rtx, rtx) - 0usize];
    ["Offset of field: bb_rtx::original"][::std::mem::offset_of!(bb_rtx, original) - 1usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_rule {
    pub lifetime_ns: __u64,
    pub owd_default_ns: __u64,
    pub priority: __u8,
    pub treatment: __u8,
    pub flags: __u8,
    pub rtx_n: __u8,
    pub rtx: [bb_rtx; 8usize],
    pub roles: __u16,
    pub dd: __u8,
    pub vfm: __u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_rule"][::std::mem::size_of::<bb_rule>() - 40usize];
    ["Alignment of bb_rule"][::std::mem::align_of::<bb_rule>() - 8usize];
    ["Offset of field: bb_rule::lifetime_ns"]
        [::std::mem::offset_of!(bb_rule, lifetime_ns) - 0usize];
    ["Offset of field: bb_rule::owd_default_ns"]
        [::std::mem::offset_of!(bb_rule, owd_default_ns) - 8usize];
    ["Offset of field: bb_rule::priority"][::std::mem::offset_of!(bb_rule, priority) - 16usize];
    ["Offset of field: bb_rule::treatment"][::std::mem::offset_of!(bb_rule, treatment) - 17usize];
    ["Offset of field: bb_rule::flags"][::std::mem::offset_of!(bb_rule, flags) - 18usize];
    ["Offset of field: bb_rule::rtx_n"][::std::mem::offset_of!(bb_rule, rtx_n) - 19usize];
    ["Offset of field: bb_rule::rtx"][::std::mem::offset_of!(bb_rule, rtx) - 20usize];
    ["Offset of field: bb_rule::roles"][::std::mem::offset_of!(bb_rule, roles) - 36usize];
    ["Offset of field: bb_rule::dd"][::std::mem::offset_of!(bb_rule, dd) - 38usize];
    ["Offset of field: bb_rule::vfm"][::std::mem::offset_of!(bb_rule, vfm) - 39usize];
};
pub const BB_DECREMENT_OFF: bb_decrement = 0;
pub const BB_DECREMENT_CLOCK: bb_decrement = 1;
pub const BB_DECREMENT_PREDICT: bb_decrement = 2;
pub type bb_decrement = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_iface {
    pub ifindex: __u32,
    pub mode: __u8,
    pub method: __u8,
    pub session_kind: __u8,
    pub flags: __u8,
    pub prefix4: __u8,
    pub prefix6: __u8,
    pub htb_major: __u16,
    pub overhead: __u32,
    pub rate: __u64,
    pub limit: __u32,
    pub session_limit: __u32,
    pub limit_bytes: __u64,
    pub segment_ifindex: __u32,
    pub plain_share: __u8,
    pub decrement: __u8,
    pub pad: [__u8; 2usize],
    pub counters: bb_counters,
    pub link_next: __u64,
    pub link_rate: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_iface"][::std::mem::size_of::<bb_iface>() - 232usize];
    ["Alignment of bb_iface"][::std::mem::align_of::<bb_iface>() - 8usize];
    ["Offset of field: bb_iface::ifindex"][::std::mem::offset_of!(bb_iface, ifindex) - 0usize];
    ["Offset of field: bb_iface::mode"][::std::mem::offset_of!(bb_iface, mode) - 4usize];
    ["Offset of field: bb_iface::method"][::std::mem::offset_of!(bb_iface, method) - 5usize];
    ["Offset of field: bb_iface::session_kind"]
        [::std::mem::offset_of!(bb_iface, session_kind) - 6usize];
    ["Offset of field: bb_iface::flags"][::std::mem::offset_of!(bb_iface, flags) - 7usize];
    ["Offset of field: bb_iface::prefix4"][::std::mem::offset_of!(bb_iface, prefix4) - 8usize];
    ["Offset of field: bb_iface::prefix6"][::std::mem::offset_of!(bb_iface, prefix6) - 9usize];
    ["Offset of field: bb_iface::htb_major"][::std::mem::offset_of!(bb_iface, htb_major) - 10usize];
    ["Offset of field: bb_iface::overhead"][::std::mem::offset_of!(bb_iface, overhead) - 12usize];
    ["Offset of field: bb_iface::rate"][::std::mem::offset_of!(bb_iface, rate) - 16usize];
    ["Offset of field: bb_iface::limit"][::std::mem::offset_of!(bb_iface, limit) - 24usize];
    ["Offset of field: bb_iface::session_limit"]
        [::std::mem::offset_of!(bb_iface, session_limit) - 28usize];
    ["Offset of field: bb_iface::limit_bytes"]
        [::std::mem::offset_of!(bb_iface, limit_bytes) - 32usize];
    ["Offset of field: bb_iface::segment_ifindex"]
        [::std::mem::offset_of!(bb_iface, segment_ifindex) - 40usize];
    ["Offset of field: bb_iface::plain_share"]
        [::std::mem::offset_of!(bb_iface, plain_share) - 44usize];
    ["Offset of field: bb_iface::decrement"][::std::mem::offset_of!(bb_iface, decrement) - 45usize];
    ["Offset of field: bb_iface::pad"][::std::mem::offset_of!(bb_iface, pad) - 46usize];
    ["Offset of field: bb_iface::counters"][::std::mem::offset_of!(bb_iface, counters) - 48usize];
    ["Offset of field: bb_iface::link_next"]
        [::std::mem::offset_of!(bb_iface, link_next) - 216usize];
    ["Offset of field: bb_iface::link_rate"]
        [::std::mem::offset_of!(bb_iface, link_rate) - 224usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_trust_key {
    pub prefix: __u32,
    pub ifindex: __u32,
    pub addr: [__u8; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_trust_key"][::std::mem::size_of::<bb_trust_key>() - 24usize];
    ["Alignment of bb_trust_key"][::std::mem::align_of::<bb_trust_key>() - 4usize];
    ["Offset of field: bb_trust_key::prefix"]
        [::std::mem::offset_of!(bb_trust_key, prefix) - 0usize];
    ["Offset of field: bb_trust_key::ifindex"]
        [::std::mem::offset_of!(bb_trust_key, ifindex) - 4usize];
    ["Offset of field: bb_trust_key::addr"][::std::mem::offset_of!(bb_trust_key, addr) - 8usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_probed {
    pub until_ns: __u64,
    pub used_ns: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_probed"][::std::mem::size_of::<bb_probed>() - 16usize];
    ["Alignment of bb_probed"][::std::mem::align_of::<bb_probed>() - 8usize];
    ["Offset of field: bb_probed::until_ns"][::std::mem::offset_of!(bb_probed, until_ns) - 0usize];
    ["Offset of field: bb_probed::used_ns"][::std::mem::offset_of!(bb_probed, used_ns) - 8usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    PartialEq,
    Eq,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct bb_piece {
    pub now: __u64,
    pub lifetime: __u64,
    pub owd: __u64,
    pub source: __u32,
    pub bytes: __u32,
    pub seq: __u16,
    pub rtp: __u8,
    pub old: __u8,
    pub pad: [__u8; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of bb_piece"][::std::mem::size_of::<bb_piece>() - 40usize];
    ["Alignment of bb_piece"][::std::mem::align_of::<bb_piece>() - 8usize];
    ["Offset of field: bb_piece::now"][::std::mem::offset_of!(bb_piece, now) - 0usize];
    ["Offset of field: bb_piece::lifetime"][::std::mem::offset_of!(bb_piece, lifetime) - 8usize];
    ["Offset of field: bb_piece::owd"][::std::mem::offset_of!(bb_piece, owd) - 16usize];
    ["Offset of field: bb_piece::source"][::std::mem::offset_of!(bb_piece, source) - 24usize];
    ["Offset of field: bb_piece::bytes"][::std::mem::offset_of!(bb_piece, bytes) - 28usize];
    ["Offset of field: bb_piece::seq"][::std::mem::offset_of!(bb_piece, seq) - 32usize];
    ["Offset of field: bb_piece::rtp"][::std::mem::offset_of!(bb_piece, rtp) - 34usize];
    ["Offset of field: bb_piece::old"][::std::mem::offset_of!(bb_piece, old) - 35usize];
    ["Offset of field: bb_piece::pad"][::std::mem::offset_of!(bb_piece, pad) - 36usize];
};
pub const BB_PLACE_NEW: bb_place = 0;
pub const BB_PLACE_ADU: bb_place = 1;
pub const BB_PLACE_RESENT: bb_place = 2;
pub const BB_PLACE_ALONE: bb_place = 3;
pub type bb_place = ::std::os::raw::c_uint;
