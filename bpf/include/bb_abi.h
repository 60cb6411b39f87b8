/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_abi.h - everything that crosses a border: kernel <-> agent (map keys and
 * values), classifier <-> qdisc (the control block), application <-> kernel
 * (the mark and the socket options). The headers that it includes are parts of it:
 * bb_tables_abi.h has what the kernel side remembers of users, sessions, flows,
 * streams, paths and sockets.
 *
 * Rust types are generated from this file (`just gen`, committed as
 * bpf/src/abi.rs); a test compares every struct here with the BTF of the
 * compiled objects. Rules: fixed-width types, explicit padding, times in
 * nanoseconds of CLOCK_MONOTONIC, rates in bytes per second, lengths in bytes,
 * addresses as 16 bytes in network order (IPv4 as ::ffff:a.b.c.d).
 *
 * Any change of layout or meaning increments BB_ABI_VERSION: the agent refuses
 * to adopt pinned maps of another version.
 */
#ifndef BB_ABI_H
#define BB_ABI_H

#include <linux/types.h>
#include "bb_auto_abi.h"
#include "bb_buffer_abi.h"
#include "bb_counters.h"
#include "bb_explain_abi.h"
#include "bb_real_abi.h"

#define BB_ABI_VERSION 14

/* ---- vocabulary (docs/design.md, "Words") ---- */

#define BB_PRIORITIES 8 /* 0 is sent first */
#define BB_PRIORITY_DEFAULT 3 /* RFC 9218 urgency */
#define BB_PRIORITY_NONE 255 /* nothing is said of it */

/* What happens to a stale packet (LPD's two stale-treatment bits). */
enum bb_treatment {
	BB_TREAT_DEFAULT = 0, /* nothing said here: the next source decides; at the end, discard */
	BB_TREAT_FORWARD = 1,
	BB_TREAT_DISCARD = 2,
	BB_TREAT_TRUNCATE = 3, /* only its headers go: headercasting */
};

/* Queue discipline inside a session; the papers' six, and triage. */
enum bb_method {
	BB_FIFO = 0,
	BB_SFDPS1 = 1,
	BB_SFDPS2 = 2,
	BB_RING = 3,
	BB_RING_SFDPS2 = 4,
	BB_LAZY = 5,
	BB_TRIAGE = 6,
	BB_METHODS = 7,
};

/* What shares one bottleneck, and so one queue. */
enum bb_session_kind {
	/* ARP, ND, STUN, DTLS, RTCP: one per user of this host, or destination if forwarded */
	BB_SESSION_CONTROL = 0,
	BB_SESSION_PLAIN = 1, /* no metadata: best effort, of one destination */
	BB_SESSION_DST = 2,
	BB_SESSION_FLOW = 3,
	BB_SESSION_PREFIX = 4,
	BB_SESSION_INTERFACE = 5,
};

/* ---- skb mark: 32 bits, least significant first ---- */

#define BB_MARK_TIME_BITS 19 /* units of BB_MARK_UNIT_NS; 0 = no deadline */
#define BB_MARK_UNIT_NS 250000ULL
#define BB_MARK_TIME_MASK 0x7ffffU
#define BB_MARK_RELATIVE (1U << 19) /* time is a lifetime; else a deadline modulo 2^19 units */
#define BB_MARK_PRIORITY_SHIFT 20
#define BB_MARK_TREATMENT_SHIFT 23
#define BB_MARK_ADU_SHIFT 25 /* rolling, 0 = none */
#define BB_MARK_MAGIC_SHIFT 28 /* default place and value; configurable at load */
#define BB_MARK_MAGIC 0xBU

/* ---- socket options, level SOL_BESTBY (unprivileged) ---- */

#define SOL_BESTBY 0x4242
enum bb_sockopt {
	BB_SO_LIFETIME = 1, /* __u64 ns; 0 clears; at most BB_LIFETIME_MAX_NS */
	BB_SO_PRIORITY = 2, /* __u32 0..7 */
	BB_SO_TREATMENT = 3, /* __u32 enum bb_treatment */
	BB_SO_PEER = 4, /* struct bb_so_peer: what is known of one destination */
	BB_SO_STATS = 5, /* getsockopt only: struct bb_counters of this socket */
};
#define BB_LIFETIME_MAX_NS 131000000000ULL

struct bb_so_peer {
	__u8 addr[16];
	__u64 owd_ns; /* 0: use the measured RTT / 2 */
	__u64 rate; /* bytes/s; 0: not known */
};

/* ---- the control block: classifier -> qdisc, skb->cb[0..4] ---- */

#define BB_CB_MAGIC 0xBB5A

#define BB_CB_DEADLINE 0x01 /* deadline is valid */
#define BB_CB_ADU 0x02 /* adu is valid: the packet shares its fate with others of this id */
#define BB_CB_LARGE \
	0x04 /* its ADU is much larger than its stream's usual ones: a key frame, it seems */
#define BB_CB_SOCK 0x08 /* the socket keeps counters in bb_sock_stats */
#define BB_CB_REPAIR 0x10 /* a retransmission: when stale it goes only while nothing fresh waits */
#define BB_CB_TCP 0x20 /* of a TCP socket of this host: dropped for want of room after all else */
#define BB_CB_PAIRED 0x40 /* its header came before it, as a packet of its own */
#define BB_CB_TWIN 0x80 /* the header of the packet that comes next */

/*
 * Other programs between the classifier and the qdisc may write to skb->cb. A
 * block whose check (bb_cb_check in bb_core.h) does not fit its other words is
 * no metadata.
 */
struct bb_cb {
	/* The first of the words as which it is written and read (bb_core.h). */
	__u16 check; /* BB_CB_MAGIC, folded with all that follows */
	__u16 rule; /* index into bb_rule_stats; 0 = no rule */
	__u16 session; /* index into bb_sessions */
	__u8 class_; /* priority | treatment << 4 | bb_cb_role */
	__u8 flags; /* BB_CB_* */
	/* The second word. */
	__u32 deadline_lo; /* 56 bits of the deadline: the one nearest to now (bb_cb_deadline) */
	__u8 deadline_hi[3];
	__u8 rtp; /* BB_RTP | payload type; 0 = not RTP */
	/* The third, of 32 bits. */
	__u32 adu; /* streams: index into bb_streams << 16 | number of the ADU */
};

#define BB_RTP 0x80
#define BB_PAYLOAD_TYPES 256 /* entries of bb_rtp_stats, by bb_cb.rtp */

/* ---- configuration (one entry) ---- */

#define BB_MAX_RULES 16384 /* rule ids 1..16383; 0 = no rule ("-") */
#define BB_MAX_RULE_KEYS 262144 /* two sets; a port range takes up to 16 keys */
#define BB_MAX_SHAPES 128 /* distinct masks per set */
#define BB_MAX_IFACES 64 /* attached at once */
#define BB_MAX_USERS 4096 /* power of two */
#define BB_MAX_SESSIONS 16384 /* power of two, at most 65536 */
#define BB_SESSION_WAYS 8
#define BB_MEDIA_WAYS 2 /* of these: no key takes them whose `media` is 0 */
#define BB_PLAIN_PARTS \
	16 /* power of two: flows of one user to one destination take turns as so many */
#define BB_FLOW_SETS 8192 /* power of two */
#define BB_FLOW_WAYS 4
#define BB_MAX_FLOWS (BB_FLOW_SETS * BB_FLOW_WAYS)
#define BB_MAX_PEERS 16384
#define BB_MAX_SOCK_PEERS 8192
#define BB_MAX_TRUST 4096
#define BB_MAX_PROBED 1024
#define BB_MAX_ASKED 8192
#define BB_MAX_BUFFERS 4096
#define BB_MAX_PARKED 64 /* power of two: headers whose packets are about to come, per queue */

#define BB_CONFIG_FORWARDED_MARKS 0x01 /* marks count on forwarded packets, too */
#define BB_CONFIG_RTP_RULES 0x02 /* a rule in force compares payload types or SSRCs */
#define BB_CONFIG_BUFFERS \
	0x04 /* sockets are looked at that their send buffer holds back (bb_buffer) */
#define BB_CONFIG_RAISE 0x08 /* ... and their buffers raised */
#define BB_CONFIG_CGROUP_RULES 0x10 /* a rule in force compares cgroups */

struct bb_config {
	__u32 abi_version;
	__u32 rule_set; /* 0 or 1: which half of bb_shapes and bb_rule_keys is in force */
	__u32 rule_gen; /* incremented with every change: invalidates bb_flows */
	__u32 shapes; /* in the set in force */
	__u32 flow_mark_mask; /* union of the rules' mark masks: part of the flow key */
	__u32 mark_magic;
	__u32 mark_magic_mask; /* bits of the mark that must equal mark_magic; 0: marks are not read */
	__u32 events_per_s; /* drop notices beyond this are counted, not sent; 0: nobody reads them */
	__u64 rtt_max_age_ns; /* an older RTT is not used */
	__u64 seed; /* of all hashes of keys; random, made with the maps, never changed */
	__u32 flags; /* BB_CONFIG_* */
	__u32 tai_s; /* CLOCK_TAI - UTC */
	/*
	 * Until then CLOCK_TAI is exact enough for deadlines in UTC; 0 = it is not. The
	 * kernel's estimate of its error grows while nobody disciplines the clock, so that
	 * the agent may die.
	 */
	__u64 clock_until_ns;
	__u8 option4; /* LPD's option, IPv4: type sent; those that differ in copied bit and class are read */
	__u8 option6_deadline; /* IPv6, hop by hop: type with an absolute deadline */
	__u8 option6_lifetime; /* ... with a lifetime, which may change on the way */
	__u8 pad[1];
	__u32 wmem_max; /* net.core.wmem_max: the most that SO_SNDBUF may ask for */
	__u8 prio_table[16]; /* SO_PRIORITY & 15 -> priority; 255 = says nothing */
	__u8 dscp_table[64]; /* DSCP -> priority; 255 = says nothing */
};

/* ---- flow rules: tuple space search ---- */

/* One masked key. `set` is the half; all-zero fields are wildcards of the shape. */
struct bb_rule_key {
	__u8 src[16];
	__u8 dst[16];
	__u64 cgroup; /* id of the ancestor at the shape's cgroup_level */
	__u32 mark;
	__u32 ifindex;
	__u16 sport; /* host order, masked: a port range is a few prefixes */
	__u16 dport;
	__u8 family; /* 4, 6 or 0 */
	__u8 proto;
	__u8 dscp;
	__u8 set;
	__u32 shape; /* shapes never collide */
	__u32 ssrc; /* RTP, host order */
	__u8 rtp; /* BB_RTP | payload type; 0 = not RTP */
	__u8 pad[7];
};

/* Which fields a shape compares. */
struct bb_shape {
	struct bb_rule_key mask; /* mask.set, mask.shape unused */
	__u32 first_order; /* lowest order of a rule in it: lets the search stop early */
	__u32 cgroup_level; /* 0 = cgroup not compared */
};

struct bb_rule_ref {
	__u32 order; /* position in the operator's list; the lowest matching one wins */
	__u32 rule; /* index into bb_rules */
};

/* No ADU is found in RTP timestamps: each packet has a lifetime of its own. */
#define BB_RULE_NO_FRAMES 0x01
#define BB_RULE_STAMP 0x02 /* the deadline goes into LPD's option */
#define BB_RULE_RTO 0x04 /* TCP: its lifetime is its retransmission timeout at most */
#define BB_RULE_PROBED 0x08 /* ... and only where a probe has come through (bb_probed) */
#define BB_RULE_BLIND 0x10 /* what its packets carry is not looked at (bb_role.bpf.h) */
#define BB_RULE_CHAIN_SKIP 0x20 /* chains break where repairs were seen, too (bb_chain.h) */
#define BB_RULE_CHAIN_OFF 0x40 /* ... never */
#define BB_RULE_ROLES 0x80 /* `roles` has the priorities of frames */

/* As many as a server registers: LiveKit has seven (docs/sfu.md). */
#define BB_RULE_RTX 8

/* Packets of one payload type retransmit those of another (RFC 4588). */
struct bb_rtx {
	__u8 rtx; /* BB_RTP | payload type of the retransmissions */
	__u8 original; /* BB_RTP | payload type of what they repeat; 0 = any */
};

struct bb_rule {
	__u64 lifetime_ns; /* 0 = nothing is said of it */
	__u64 owd_default_ns; /* used when no RTT is known */
	__u8 priority; /* or BB_PRIORITY_NONE, which an entry never written does not say */
	__u8 treatment;
	__u8 flags; /* BB_RULE_* */
	__u8 rtx_n; /* entries of rtx */
	struct bb_rtx rtx[BB_RULE_RTX];
	__u16 roles; /* by enum bb_role: that of role r in the three bits from 3 * (r - 1) on */
	/* Ids of header extensions, as [media] of the file has them; 0 = found by their shape. */
	__u8 dd;
	__u8 vfm;
};

/* ---- interfaces ---- */

#define BB_MODE_NONE 0
#define BB_MODE_QDISC 1
#define BB_MODE_TC 2

/* A lifetime in LPD's option that is forwarded: what the next hop finds. */
enum bb_decrement {
	BB_DECREMENT_OFF = 0, /* what came */
	BB_DECREMENT_CLOCK = 1, /* the deadline; without a clock as OFF */
	BB_DECREMENT_PREDICT = 2, /* less by the wait that is expected here */
};

#define BB_IFACE_OBSERVE 0x01 /* mode tc: count what would be dropped, drop nothing */
#define BB_IFACE_STEERS 0x02 /* mode tc: the tree has its filter (leaf.bpf.c) */
#define BB_IFACE_AUTO 0x04 /* rate is found: bb_autos has the path at the interface's slot */

/*
 * Mode tc: the HTB tree below. Its root class htb_major:1 has the interface's rate.
 * Leaf htb_major:10 (HTB prio 0) is for control. Leaves to htb_major:17 (HTB prio 7)
 * are for media, by their lifetime and priority. All else has htb_major:18, with
 * plain_share per cent of the rate as its own.
 */
#define BB_TC_LEAF_MINOR 0x10
#define BB_TC_LEAVES 8
#define BB_TC_LEAF_PLAIN 8

/*
 * From the classifier to the tree's filter: skb->tc_index, 16 bits. Its high byte is a mark
 * and the leaf. An interface without BB_IFACE_STEERS has no filter: skb->priority is the
 * leaf's class.
 */
#define BB_TC_INDEX 0xB000
#define BB_TC_INDEX_MASK 0xF000
#define BB_TC_INDEX_SHIFT 8
#define BB_TC_INDEX_LEAF 0xF
#define BB_TC_INDEX_OTHERS 0xFF

struct bb_iface {
	__u32 ifindex; /* 0 = slot free */
	__u8 mode;
	__u8 method;
	__u8 session_kind; /* BB_SESSION_DST .. BB_SESSION_INTERFACE */
	__u8 flags; /* BB_IFACE_* */
	__u8 prefix4; /* session_kind PREFIX: bits of an IPv4 / IPv6 address */
	__u8 prefix6;
	__u16 htb_major; /* mode tc: leaf n is htb_major:(BB_TC_LEAF_MINOR + n); 0: no HTB below */
	__u32 overhead; /* bytes added to each packet's length */
	__u64 rate; /* bytes/s; 0 = not known. With BB_IFACE_AUTO the data path writes it */
	__u32 limit; /* packets queued on the interface (per transmit queue below mq) */
	__u32 session_limit; /* packets queued in one session */
	__u64 limit_bytes;
	__u32 segment_ifindex; /* device that cuts GSO packets which hold the link for long; 0 = none */
	__u8 plain_share; /* per cent of the rate that what is not media has at least */
	__u8 decrement; /* enum bb_decrement */
	__u8 pad[2];
	/* From here on the data path writes. */
	struct bb_counters counters; /* mode tc; in mode qdisc see bbq_instances */
	__u64 link_next; /* mode qdisc: when the link is free again; all transmit queues share it */
	__u64 link_rate; /* the rate by which that was reckoned; 0 = none was */
};

/* Whose options of LPD count on an interface, of what it forwards: longest prefix. */
struct bb_trust_key {
	__u32 prefix; /* bits: 32 of ifindex, then those of addr */
	__u32 ifindex; /* where they leave */
	__u8 addr[16]; /* source */
};

/* Destinations of rules with BB_RULE_PROBED. The classifier adds them, the agent probes. */
struct bb_probed {
	__u64 until_ns; /* the path carries LPD's option, as far as is known; 0 = it need not, or ... */
	__u64 used_ns; /* last packet of such a rule; exact to BB_PROBED_TOUCH_NS */
};

#define BB_PROBED_VANISH 1 /* until_ns: TCP's segments with the option vanish */

#include "bb_tables_abi.h"

#endif /* BB_ABI_H */
