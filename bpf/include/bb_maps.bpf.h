/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Maps shared by all objects, pinned once under the agent's bpffs directory.
 * maps.bpf.c is loaded by libbpf first and creates them; every other object
 * reuses the pins. libbpf refuses a pin of another size; the agent makes the
 * same check before Aya sees it (Aya would reuse it without a word).
 */
#ifndef BB_MAPS_BPF_H
#define BB_MAPS_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "bb_abi.h"

#define BB_MAP(name_, type_, key_, value_, entries_) \
	struct {                                     \
		__uint(type, type_);                 \
		__type(key, key_);                   \
		__type(value, value_);               \
		__uint(max_entries, entries_);       \
		__uint(pinning, LIBBPF_PIN_BY_NAME); \
	} name_ SEC(".maps")

BB_MAP(bb_config, BPF_MAP_TYPE_ARRAY, __u32, struct bb_config, 1);
BB_MAP(bb_shapes, BPF_MAP_TYPE_ARRAY, __u32, struct bb_shape, 2 * BB_MAX_SHAPES);
BB_MAP(bb_rules, BPF_MAP_TYPE_ARRAY, __u32, struct bb_rule, BB_MAX_RULES);
BB_MAP(bb_rtp_stats, BPF_MAP_TYPE_ARRAY, __u32, struct bb_counters, BB_PAYLOAD_TYPES);
BB_MAP(bb_rule_stats, BPF_MAP_TYPE_ARRAY, __u32, struct bb_counters, BB_MAX_RULES);
BB_MAP(bb_sessions, BPF_MAP_TYPE_ARRAY, __u32, struct bb_session, BB_MAX_SESSIONS);
BB_MAP(bb_flows, BPF_MAP_TYPE_ARRAY, __u32, struct bb_flow_set, BB_FLOW_SETS);
BB_MAP(bb_frags, BPF_MAP_TYPE_LRU_HASH, struct bb_frag_key, struct bb_frag, 1024);
BB_MAP(bb_rtts, BPF_MAP_TYPE_LRU_HASH, struct bb_addr, struct bb_rtt, BB_MAX_PEERS);
BB_MAP(bb_sock_stats, BPF_MAP_TYPE_LRU_HASH, __u64, struct bb_counters, BB_MAX_PEERS);
BB_MAP(bb_global, BPF_MAP_TYPE_ARRAY, __u32, __u64, BB_GLOBALS);

/* LRU: whoever names thousands of peers pushes out first those that nobody sends to. */
BB_MAP(bb_sock_peers, BPF_MAP_TYPE_LRU_HASH, struct bb_sock_peer_key, struct bb_peer,
       BB_MAX_SOCK_PEERS);

/*
 * Mapped by the agent: it changes an interface's settings while the classifier
 * counts in the same value, which an update of the whole value would undo.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct bb_iface);
	__uint(max_entries, BB_MAX_IFACES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bb_ifaces SEC(".maps");

/* The operator may name more rules or peers than a small host ever will: not preallocated. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct bb_rule_key);
	__type(value, struct bb_rule_ref);
	__uint(max_entries, BB_MAX_RULE_KEYS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bb_rule_keys SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct bb_addr);
	__type(value, struct bb_peer);
	__uint(max_entries, BB_MAX_PEERS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bb_peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct bb_sock);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bb_socks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bb_events SEC(".maps");

/*
 * Mode tc: the model of the HTB tree of one interface slot (bb_tc.bpf.h). Only
 * the classifier reads it. Times in ns; bytes are kept as transmission times.
 */
struct bb_tc_priority {
	__u64 seen_ns; /* last packet with a deadline */
	__u64 slack_ns; /* latest departure - arrival, lately */
	__u64 burst_ns; /* transmission time of its largest burst, lately */
	__u64 burst_start_ns;
	__u64 burst_now_ns;
	__u64 spare_ns; /* delay its queued packets can still bear */
	__u32 leaf;
	__u32 pad;
};

struct bb_tc_model {
	struct bpf_spin_lock lock; /* over all below; taken alone */
	__u32 ifindex;
	__u64 rate;
	__u64 updated_ns;
	__u64 window_ns; /* start of the load window */
	__u64 plain_ns; /* last plain packet */
	__u64 largest_ns; /* transmission time of the largest packet, lately */
	/* Leaves 0..7, plain 8; 16 so that an index needs only a mask. */
	__u64 queue[16];
	__u64 given[16]; /* admitted in this window */
	__u64 load[16]; /* share of the link, 1/1024 */
	__u64 ahead[16]; /* scratch of one decision: queue[0] + ... + queue[i] */
	struct bb_tc_priority priority[BB_PRIORITIES];
};

BB_MAP(bb_tc_models, BPF_MAP_TYPE_ARRAY, __u32, struct bb_tc_model, BB_MAX_IFACES);

#endif /* BB_MAPS_BPF_H */
