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
	__u32 flow_gen; /* of the flow's way, when it was found */
	__u32 stream; /* of its ADU: index into bb_streams; ~0 = no ADU */
	__u32 adu_slot; /* in stream->adu */
	__u16 rule;
	__u8 class_; /* as in struct bb_cb */
	__u8 control;
	__u8 stale; /* already now */
	__u8 leaf; /* mode tc */
	__u8 media; /* the operator vouches for it, or the kernel says it itself */
	__u8 original; /* BB_RTP | payload type of what the packet repeats; 0 = any */
	__u8 pad[4];
};

/* Not on the stack, of which 6.1 gives a chain of calls 512 bytes. A CPU judges one packet at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct bb_work);
	__uint(max_entries, 1);
} bb_works SEC(".maps");

/* Zeroed. */
static __always_inline struct bb_work *bb_new_work(void)
{
	__u32 zero = 0;
	struct bb_work *w = bpf_map_lookup_elem(&bb_works, &zero);

	if (w)
		__builtin_memset(w, 0, sizeof(*w));
	return w;
}

#endif /* BB_WORK_BPF_H */
