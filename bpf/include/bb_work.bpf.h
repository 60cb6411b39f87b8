/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the steps of the classifier hand on, from the parser to the control
 * block or, in mode tc, the verdict.
 */
#ifndef BB_WORK_BPF_H
#define BB_WORK_BPF_H

#include "bb_descriptor.h"
#include "bb_frame.h"
#include "bb_meta.bpf.h"
#include "bb_parse.bpf.h"
#include "bb_path.bpf.h"

/* Transport headers of no more are kept, RTP's included, of packets that are truncated. */
#define BB_MAX_KEPT 256

/* What stays of a packet that is truncated, and where it is (bb_truncate.bpf.h). */
struct bb_header {
	__u16 network;
	__u16 transport;
	__u16 length; /* from there on, RTP's header included */
	__u8 proto;
	__u8 rtp;
};

enum bb_srt_data {
	BB_SRT_NONE,
	BB_SRT_FIRST,
	BB_SRT_AGAIN,
};

/* Everything the steps hand on, times in ns. */
struct bb_work {
	__u8 bytes[BB_MAX_KEPT + 8]; /* of the header that is made */
	struct bb_header header;
	/* The ifindex where a packet that is judged already comes once more on this CPU; 0 = none. */
	__u32 again;
	__u32 again_len; /* mode tc: its length */
	__u64 again_of; /* kernel address of that packet, in mode qdisc of the one whose twin it is */
	/* Each is written before it is read. */
	/* The session that is looked for, and whose it is, where it is not media. */
	struct bb_session_key key __attribute__((aligned(8)));
	struct bb_user_key user __attribute__((aligned(8)));
	struct bb_path path;
	struct bb_piece piece; /* of what may be an ADU of another stream's */
	__u8 look[32]; /* RTP's header, and the payload behind it (bb_role.bpf.h) */
	__u32 look_n; /* bytes of that payload */
	struct bb_ext ext; /* RTP's header extensions */
	struct bb_packet packet;
	__u64 now;
	__u64 flow_hash; /* all 64 bits */
	__u32 flow_gen; /* of the flow's way, when it was found */
	__u32 session;
	__u32 slot; /* of the interface */
	__u32 stream; /* of its ADU: index into bb_streams; ~0 = no ADU */
	__u32 adu_which; /* which of stream->adu */
	/* From here on 0 where nothing was found. */
	struct bb_meta meta;
	__u64 owd_ns; /* of the destination, where its session has many; else of the session */
	__u64 deadline; /* at the receiver: what the next hop is told */
	__u64 first_ns; /* SRT: when what it carries was first due; 0 = it is not SRT */
	__u32 srt_time; /* of its header, as srt_id */
	__u32 srt_id;
	__u32 ts; /* MPEG-TS: the picture that it is of (bb_ts.bpf.h); 0 = of none, or it is not known */
	__u16 rule;
	__u8 class_; /* as in struct bb_cb */
	__u8 control;
	__u8 stale; /* already now */
	__u8 leaf; /* mode tc */
	__u8 media; /* the operator vouches for it, or the kernel says it itself */
	__u8 network; /* a control protocol, within its share: goes first (bb_network.bpf.h) */
	__u8 original; /* BB_RTP | payload type of what the packet repeats; 0 = any */
	__u8 rule_flags; /* of the rule: BB_RULE_* */
	__u8 rtx_n; /* of the rule */
	__u8 no_stream; /* none was found: it is counted */
	__u8 kept; /* the flow's session is still its own */
	__u8 stamped; /* its headers are no more where they were */
	__u8 no_cgroup; /* rules compare cgroups, and its sender's is not known */
	__u8 srt; /* enum bb_srt_data */
	__u8 role; /* enum bb_role, where what depends on it goes with it (bb_chain.h) */
	__u8 unsaid; /* nobody said how important it is: its role may (bb_role.bpf.h) */
	__u8 ts_beside; /* MPEG-TS: audio, tables, or else that no picture may take along */
	__u8 asked; /* treatment before this host makes something of it: what the next hop is told */
};

/* What a CPU keeps between packets. */
struct bb_cpu {
	struct bb_work work;
	__u32 flow; /* index of the flow of its last packet: packets come in trains */
	__u32 taken; /* a packet has it, see bb_take_cpu */
};

/*
 * Not on the stack, of which 6.1 gives a chain of calls 512 bytes (bpf/tests/stack.rs). A CPU
 * judges one packet at a time, but see bb_take_cpu.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct bb_cpu);
	__uint(max_entries, 1);
} bb_cpus SEC(".maps");

static __always_inline struct bb_cpu *bb_this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&bb_cpus, &zero);
}

/*
 * 1 where the kernel is PREEMPT_RT; whoever loads this says so. Elsewhere it is constant, and
 * the verifier takes out of the program what depends on it.
 */
const volatile __u32 bb_preemptible = 0;

/*
 * A packet takes the CPU's bb_work. 0: another packet has it. On PREEMPT_RT a sender may be
 * preempted here by another one on its CPU: since v6.18 local_bh_disable() forbids no more
 * than migration there. The second one would overwrite what is said of the first.
 */
static __always_inline int bb_take_cpu(struct bb_cpu *cpu)
{
	return !bb_preemptible || !__sync_lock_test_and_set(&cpu->taken, 1);
}

static __always_inline void bb_give_cpu(struct bb_cpu *cpu)
{
	if (bb_preemptible)
		*(volatile __u32 *)&cpu->taken = 0;
}

/* For the next packet: all that is not written first. */
static __always_inline void bb_begin(struct bb_work *w)
{
	__builtin_memset(&w->meta, 0, sizeof(*w) - offsetof(struct bb_work, meta));
}

#endif /* BB_WORK_BPF_H */
