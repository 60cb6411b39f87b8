/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the steps of the classifier hand on, from the parser to the control
 * block or, in mode tc, the verdict.
 */
#ifndef BB_WORK_BPF_H
#define BB_WORK_BPF_H

#include "bb_meta.bpf.h"
#include "bb_parse.bpf.h"

/* Everything the steps hand on, times in ns. */
struct bb_work {
	struct bb_packet packet;
	struct bb_meta meta;
	__u64 now;
	__u64 owd_ns; /* of the destination, where its session has many; else of the session */
	__u32 session;
	__u32 slot; /* of the interface */
	__u64 flow_hash; /* all 64 bits */
	__u32 stream; /* of its ADU: index into bb_streams; ~0 = no ADU */
	__u32 adu_slot; /* in stream->adu */
	__u32 flow_gen; /* of the flow's way, when it was found */
	__u16 rule;
	__u8 class_; /* as in struct bb_cb */
	__u8 control;
	__u8 stale; /* already now */
	__u8 leaf; /* mode tc */
	__u8 media; /* the operator vouches for it, or the kernel says it itself */
	__u8 original; /* BB_RTP | payload type of what the packet repeats; 0 = any */
	__u8 pad[4];
};

#endif /* BB_WORK_BPF_H */
