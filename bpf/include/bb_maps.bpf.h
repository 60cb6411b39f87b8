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
#include "bb_tc_model.h"

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
BB_MAP(bb_rule_stats, BPF_MAP_TYPE_ARRAY, __u32, struct bb_counters, BB_MAX_RULES);
/* Bytes of a rule's largest ADUs of late, for who asks whether its lifetime suffices. */
BB_MAP(bb_rule_adus, BPF_MAP_TYPE_ARRAY, __u32, __u32, BB_MAX_RULES);
/* Per payload type of RTP (bb_cb.rtp); 0 = what is not RTP. */
BB_MAP(bb_rtp_stats, BPF_MAP_TYPE_ARRAY, __u32, struct bb_counters, BB_PAYLOAD_TYPES);
BB_MAP(bb_sessions, BPF_MAP_TYPE_ARRAY, __u32, struct bb_session, BB_MAX_SESSIONS);
BB_MAP(bb_users, BPF_MAP_TYPE_ARRAY, __u32, struct bb_user, BB_MAX_USERS);
BB_MAP(bb_flows, BPF_MAP_TYPE_ARRAY, __u32, struct bb_flow, BB_MAX_FLOWS);
BB_MAP(bb_streams, BPF_MAP_TYPE_ARRAY, __u32, struct bb_stream, BB_MAX_STREAMS);
BB_MAP(bb_videos, BPF_MAP_TYPE_ARRAY, __u32, struct bb_video, BB_MAX_STREAMS);
BB_MAP(bb_adus, BPF_MAP_TYPE_ARRAY, __u32, struct bb_adu_set, BB_ADU_SETS);
BB_MAP(bb_frags, BPF_MAP_TYPE_LRU_HASH, struct bb_frag_key, struct bb_frag, 1024);
/*
 * Most destinations are in none of bb_peers, bb_sock_peers and bb_rtts: 1 where one of
 * those may be whose bb_known_index is the index. Whoever adds to them sets it first;
 * nobody clears it.
 */
BB_MAP(bb_known, BPF_MAP_TYPE_ARRAY, __u32, __u32, BB_KNOWN);
BB_MAP(bb_rtts, BPF_MAP_TYPE_LRU_HASH, struct bb_addr, struct bb_rtt, BB_MAX_PEERS);
/* LRU: who asks much pushes out what was asked before, and the last answer counts for a while. */
BB_MAP(bb_asked, BPF_MAP_TYPE_LRU_HASH, struct bb_asked_key, struct bb_asked, BB_MAX_ASKED);
BB_MAP(bb_sock_stats, BPF_MAP_TYPE_LRU_HASH, __u64, struct bb_counters, BB_MAX_PEERS);
/* By slot of the interface, with BB_IFACE_AUTO. */
BB_MAP(bb_autos, BPF_MAP_TYPE_ARRAY, __u32, struct bb_auto, BB_MAX_IFACES);
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
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct bb_trust_key);
	__type(value, __u32);
	__uint(max_entries, BB_MAX_TRUST);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bb_trust SEC(".maps");

/* LRU: destinations that nobody sends to any more make room. */
BB_MAP(bb_probed, BPF_MAP_TYPE_LRU_HASH, struct bb_addr, struct bb_probed, BB_MAX_PROBED);

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct bb_sock);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bb_socks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct bb_tcp_path);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bb_tcp_paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bb_events SEC(".maps");

/* LRU: whoever has thousands of such sockets pushes out their own first. By cookie. */
BB_MAP(bb_buffers, BPF_MAP_TYPE_LRU_HASH, __u64, struct bb_buffer, BB_MAX_BUFFERS);

/* Cookies: the agent is to attach what raises their buffers. What finds no room is said again. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bb_wants SEC(".maps");

/* Mode tc: the model of the HTB tree of one interface slot. Only the classifier reads it. */
BB_MAP(bb_tc_models, BPF_MAP_TYPE_ARRAY, __u32, struct bb_tc_model, BB_MAX_IFACES);

/*
 * Super-packets at the device that cuts them (bb_segment.bpf.h): of one interface
 * slot on one CPU.
 */
struct bb_segment_cpu {
	__u64 whole_until_ns; /* the device is down or gone: packets go whole until then */
	__u64 away; /* 1: a packet was sent there, and no segment came out yet */
};

/* skb->cb on the way there and back: this, ifindex and slot of the interface, the path's MTU. */
#define BB_SEGMENT_MAGIC 0x5E6BB5E6

BB_MAP(bb_segment_cpus, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct bb_segment_cpu, BB_MAX_IFACES);

#endif /* BB_MAPS_BPF_H */
