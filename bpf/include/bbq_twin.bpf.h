/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Twins: a packet's headers, as a packet of their own, for when it is stale (treatment truncate).
 *
 *  1. A qdisc cannot change a packet. So the classifier sends a clone ahead of each packet that
 *     may be truncated, and truncates that (bb_truncate.bpf.h).
 *  2. The clone, its twin, is parked until its packet comes. Twin and packet name each other: the
 *     twin has the packet's address, and what both control blocks have in common. Linux 6.19
 *     and later enqueue in batches, so packets of other CPUs may come between, and the CPU
 *     does not tell whose a twin is.
 *  3. The pair has one entry (bbq_packet.skb, .twin), which is counted as one packet. One of the
 *     two leaves: the packet while it is fresh. Whatever the queue would give up as stale, or
 *     with its ADU, is swapped for its twin, and keeps its place (bbq_truncate). Then it has no
 *     deadline any more and is never given up again, but for want of room.
 *  4. A packet that does not come, because a program behind the classifier dropped it, leaves
 *     its twin parked, with references for which a network namespace would wait. Such twins
 *     are freed when their places are needed, or nothing else is queued (bbq_sweep). The
 *     Qdisc's qlen counts what is parked, so that the kernel asks; no counter of ours does.
 */
#ifndef BBQ_TWIN_BPF_H
#define BBQ_TWIN_BPF_H

#include "bbq_state.bpf.h"

/* What is parked for so long waits for nothing. */
#define BBQ_PARKED_NS 10000000ULL

/* Where the twin of the packet at this address is parked. Such addresses are multiples of 64. */
bb_inline struct bbq_parked *bbq_parked_at(__u32 inst, __u64 of)
{
	__u32 key = inst * BB_MAX_PARKED + ((of >> 6 ^ of >> 12) & (BB_MAX_PARKED - 1));

	return bpf_map_lookup_elem(&bbq_parked, &key);
}

bb_inline int bbq_is_twin(__u64 first)
{
	return first >> 56 & BB_CB_TWIN;
}

/* The twin of packet p is of no use: the packet itself leaves, or is dropped. */
bb_inline void bbq_drop_twin(struct bbq_instance *in, struct bbq_packet *p)
{
	struct sk_buff *twin = bpf_kptr_xchg(&p->twin, 0);

	if (!twin)
		return;
	bpf_kfree_skb(twin);
	in->pairs--;
	in->work -= BBQ_WORK_TWIN;
}

#endif /* BBQ_TWIN_BPF_H */
