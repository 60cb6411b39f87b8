/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_explain_abi.h - what `bestby explain` and its own instance of the classifier
 * tell each other (bb_explain.bpf.h). No map of it is pinned: the agent loads an
 * instance for each question.
 */
#ifndef BB_EXPLAIN_ABI_H
#define BB_EXPLAIN_ABI_H

#include <linux/types.h>
#include "bb_tables_abi.h"

#define BB_TOLD_CGROUPS 64

/* What a test run cannot say of a packet's sender, as a test run has a socket of the agent's. */
struct bb_told {
	/* Ids of the sender's cgroup and of those above it, by level; 0 = none. */
	__u64 cgroups[BB_TOLD_CGROUPS];
	__u32 explain; /* 0: this instance is at an interface, and nothing here counts */
	__u32 forwarded; /* no socket of this host's sends it */
	/* What is known of the frames of its stream, at the interfaces; gen does not count. */
	struct bb_video video;
};

/* Steps of the classifier, each of which asks one source. */
enum bb_step {
	BB_STEP_MARK = 0,
	BB_STEP_TXTIME = 1,
	BB_STEP_SOCKET = 2,
	BB_STEP_OPTION = 3,
	BB_STEP_RULE = 4,
	BB_STEP_REST = 5, /* SO_PRIORITY, DSCP, defaults */
	BB_STEPS = 6,
};

/* What is known of the packet after a step. */
struct bb_said {
	__u64 deadline; /* 0 = none (yet) */
	__u64 lifetime; /* from the packet's arrival; 0 = none */
	__u8 done; /* the step was made */
	__u8 no_deadline; /* that there is none was said */
	__u8 counts; /* the source of this step said something that counts */
	__u8 priority; /* BB_PRIORITY_NONE = not said */
	__u8 treatment; /* enum bb_treatment */
	__u8 pad[3];
};

#define BB_READ_BYTES 12

/* What was read of its frame (bb_role.bpf.h). */
struct bb_read {
	struct bb_video video; /* of its stream, with this packet */
	__u8 bytes[BB_READ_BYTES]; /* behind RTP's header, or of its header extension */
	__u8 n; /* so many there were */
	__u8 extension; /* they are of a header extension */
	__u8 done; /* it was looked at */
	__u8 role; /* enum bb_role */
	__u8 decides; /* its priority is that of the role */
	__u8 pad[7];
};

struct bb_explained {
	struct bb_said said[BB_STEPS];
	__u64 now;
	__u64 deadline; /* at the receiver; 0 = none */
	__u64 owd_ns; /* by which it was judged */
	__u32 session; /* index into bb_sessions */
	__s32 reason; /* enum bb_reason why it is refused, or -1 */
	__u16 rule; /* 0 = none */
	__u8 class_; /* as in struct bb_cb */
	__u8 stale; /* it would arrive after its deadline, sent now */
	__u8 known; /* some source says something of it: it is not plain traffic or signalling */
	__u8 control; /* signalling */
	__u8 rtp; /* BB_RTP | payload type; 0 = it was not read as RTP */
	__u8 inner; /* bytes between UDP's header and RTP's */
	struct bb_read read;
};

#endif /* BB_EXPLAIN_ABI_H */
