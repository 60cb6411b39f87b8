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
	/* Each is written before it is read. */
	struct bb_packet packet;
	__u64 now;
	__u64 flow_hash; /* all 64 bits */
	__u32 flow_gen; /* of the flow's way, when it was found */
	__u32 session;
	__u32 slot; /* of the interface */
	__u32 stream; /* of its ADU: index into bb_streams; ~0 = no ADU */
	__u32 adu_which; /* which of stream->adu */
	__u32 pad;
	/* From here on 0 where nothing was found. */
	struct bb_meta meta;
	__u64 owd_ns; /* of the destination, where its session has many; else of the session */
	__u16 rule;
	__u8 class_; /* as in struct bb_cb */
	__u8 control;
	__u8 stale; /* already now */
	__u8 leaf; /* mode tc */
	__u8 media; /* the operator vouches for it, or the kernel says it itself */
	__u8 original; /* BB_RTP | payload type of what the packet repeats; 0 = any */
	__u8 rule_flags; /* of the rule: BB_RULE_* */
	__u8 rtx_n; /* of the rule */
	__u8 no_stream; /* none was found: it is counted */
	__u8 kept; /* the flow's session is still its own */
};

/* What a CPU keeps between packets. */
struct bb_cpu {
	struct bb_work work;
	__u32 flow; /* index of the flow of its last packet: packets come in trains */
	__u32 pad;
};

/* Not on the stack, of which 6.1 gives a chain of calls 512 bytes. A CPU judges one packet at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct bb_cpu);
	__uint(max_entries, 1);
} bb_cpus SEC(".maps");

/* Its `work` zeroed, but for what is written first. */
static __always_inline struct bb_cpu *bb_this_cpu(void)
{
	__u32 zero = 0;
	struct bb_cpu *cpu = bpf_map_lookup_elem(&bb_cpus, &zero);

	if (cpu)
		__builtin_memset(&cpu->work.meta, 0,
				 sizeof(cpu->work) - offsetof(struct bb_work, meta));
	return cpu;
}

#endif /* BB_WORK_BPF_H */
