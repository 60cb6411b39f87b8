/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_counters.h - what is counted, and what is told of each drop. A part of the ABI
 * (bb_abi.h, which includes it and has the rules).
 */
#ifndef BB_COUNTERS_H
#define BB_COUNTERS_H

#include <linux/types.h>

/* Why a packet was dropped. Every drop has exactly one reason. */
enum bb_reason {
	BB_DROP_STALE = 0, /* now + owd > deadline, at the head of the queue or deeper in it */
	BB_DROP_ADU = 1, /* the rest of an ADU that lost a packet, or an ADU given up by triage */
	BB_DROP_OVERFLOW = 2, /* arriving packet refused: a limit is reached */
	BB_DROP_EVICTED = 3, /* queued packet given up for an arriving one */
	BB_DROP_PREDICTED = 4, /* mode tc: would have become stale before it could leave */
	BB_DROP_CODEL =
		5, /* mode qdisc: no deadline, not media, and its session's packets wait too long */
	BB_REASONS = 6, /* of those that are counted in arrays */
	BB_DROP_CHAIN = 6, /* its frame needs one that was given up: nobody could decode it */
};

/*
 * in = sent + sum(dropped) + chain + queued, always. would_drop counts in observe mode only.
 * BB_SO_STATS copies this to programs that were built with an earlier one: new counters
 * come at the end, a new reason in a field of its own.
 */
struct bb_counters {
	__u64 packets_in;
	__u64 bytes_in;
	__u64 packets_sent;
	__u64 bytes_sent;
	__u64 queued;
	__u64 dropped[BB_REASONS];
	__u64 sent_stale; /* sent although stale: treatment forward, sfdps2's exception, lazy, fifo, observe */
	__u64 would_drop[BB_REASONS];
	__u64 truncated; /* of those sent: only their headers were */
	__u64 chain; /* dropped for BB_DROP_CHAIN ... */
	__u64 would_chain; /* ... or would have been */
};

/* ---- how long packets that left a queue of ours had waited, and had left ---- */

#define BB_TIME_BUCKETS 19
#define BB_TIME_SHIFT 16

/* Bucket i: up to 2^(BB_TIME_SHIFT + i) ns and more than the one before; the last one: all above. */
struct bb_time {
	__u64 sum_ns;
	__u64 count[BB_TIME_BUCKETS];
};

/* Of one transmit queue. */
struct bb_times {
	struct bb_time sojourn; /* since it came, or might depart */
	struct bb_time slack; /* of those with a deadline: until the latest departure */
	struct bb_time lateness; /* of those sent stale: since then */
};

/* ---- global counters: array indices of bb_global (each a __u64) ---- */

enum bb_global_counter {
	BB_G_NO_METADATA = 0,
	BB_G_MALFORMED = 1, /* headers that end early or never */
	BB_G_FOREIGN_MARK = 2, /* a mark without our magic */
	BB_G_NO_RTT = 3, /* a flow's owd was looked for, every 10 ms at most, and is not known: 0 */
	BB_G_SESSIONS_FULL = 4, /* no free way: packet went to the plain session of its interface */
	BB_G_EVENTS_LOST = 5, /* drop notices suppressed */
	BB_G_PAST_DEADLINE = 6, /* stale already when classified */
	BB_G_RULE_PROBES = 7, /* hash look-ups of rule searches: per new flow, one per shape */
	BB_G_BAD_CB = 8, /* a control block that another program wrote to: sent as plain traffic */
	BB_G_NO_CB =
		9, /* packets that came to the queue unjudged: a tcx program before ours ended the chain */
	BB_G_STREAMS_FULL = 10, /* no free way for a stream: its packet had a lifetime of its own */
	BB_G_USERS_FULL =
		11, /* no free way for a user: its traffic shares with the others of that kind */
	BB_G_FORWARDED_MARK = 12, /* our magic in the mark of a forwarded packet: not believed */
	BB_G_REFUSED =
		13, /* the queue took a packet not even to count it: it had no room, or no interface */
	BB_G_SEGMENTER_LOST = 14, /* a GSO packet did not come back from the segmenting device */
	/* LPD's option, not counting where: */
	BB_G_OPTION_MALFORMED = 15, /* lengths that cannot be */
	BB_G_OPTION_UNKNOWN = 16, /* a stale-treatment that nothing defines */
	BB_G_OPTION_FAR = 17, /* a deadline more than 131 s away */
	BB_G_OPTION_MANY = 18, /* behind more than BB_MAX_OPTIONS other options */
	BB_G_OPTION_UNTRUSTED = 19, /* of a forwarded packet whose source nobody vouches for */
	BB_G_OPTION_NO_CLOCK = 20, /* a deadline, while the clock is not synchronised */
	/* LPD's option in packets that leave: */
	BB_G_STAMPED = 21,
	BB_G_STAMP_MTU = 22, /* without: no room below the device's MTU */
	BB_G_STAMP_PATH_MTU = 23, /* ... below the path's */
	BB_G_STAMP_GSO = 24, /* segments of a super-packet would not fit */
	BB_G_STAMP_CHECKSUM = 25, /* a super-packet whose checksum the device does not complete */
	BB_G_STAMP_FRAGMENT = 26,
	BB_G_STAMP_SHARED = 27, /* somebody else holds the packet */
	BB_G_STAMP_AH = 28, /* IPsec protects the header */
	BB_G_STAMP_OPTIONS = 29, /* it has others, or there is no room for one more */
	BB_G_STAMP_CLOCK =
		30, /* longer than a lifetime can say, while the clock is not synchronised, or than 131 s */
	BB_G_DECREMENTED = 31, /* forwarded with less lifetime, or the deadline */
	BB_G_STAMP_FAILED = 32, /* without: no memory, or a frame that the kernel cannot open */
	BB_G_STAMP_PROBE = 33, /* ... or a path that no probe has come through */
	/* Of STUN and RTCP: */
	BB_G_ANSWER_UNKNOWN = 34, /* to nothing that left here: a stray, a repetition, a forgery */
	BB_G_ANSWER_REFUSED = 35, /* ... to what was sent twice, or of a delay that cannot be */
	BB_G_HELD_BACK =
		36, /* a flow's socket was found half full, with less buffer than rate x lifetime takes */
	BB_G_PREEMPTED = 37, /* PREEMPT_RT: came while another packet was judged: sent as plain */
	BB_G_ROUTED_TIME =
		38, /* a time of SO_TXTIME whose socket was lost on the way: not believed */
	BB_G_NO_CGROUP = 39, /* a routed flow that a rule with a cgroup could not be asked of */
	BB_G_UNTIMELY = 40, /* an explicit deadline of another clock than ours (bb_believe) */
	/* Control protocols of routers and hosts (bb_network.bpf.h): */
	BB_G_NETWORK = 41, /* went first */
	BB_G_NETWORK_OVER = 42, /* went as plain traffic, beyond their share */
	BB_GLOBALS = 64,
};

/* ---- drop notices (ring buffer bb_events) ---- */

struct bb_event {
	__u64 time_ns;
	__u64 age_ns; /* since the classifier saw it, 0 if unknown */
	__s64 late_ns; /* now + owd - deadline; negative = it was not stale (adu, evicted, overflow) */
	__u32 adu;
	__u32 ifindex;
	__u32 len;
	__u16 rule;
	__u16 session;
	__u8 reason; /* enum bb_reason */
	__u8 priority;
	__u8 observe; /* 1: would have been dropped */
	__u8 truncated; /* 1: its headers were sent, it was not dropped */
	__u32 suppressed; /* notices left out since the previous one */
};

#endif /* BB_COUNTERS_H */
