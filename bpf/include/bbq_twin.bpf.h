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
/* Places that one operation looks at for twins whose packets did not come. */
#define BBQ_SWEPT 8

#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP 1

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

/* The twin `skb` of the packet at `of`, which comes next, waits for it. */
bb_inline int bbq_park(__u32 inst, struct bbq_instance *in, struct Qdisc *sch, struct sk_buff *skb,
		       struct bpf_sk_buff_ptr *to_free, __u64 of, __u32 pair)
{
	struct bbq_parked *parked = bbq_parked_at(inst, of);

	if (!parked) {
		bpf_qdisc_skb_drop(skb, to_free);
		return NET_XMIT_DROP;
	}
	parked->of = of;
	parked->pair = pair;
	in->parked_ns = bpf_ktime_get_ns();
	skb = bpf_kptr_xchg(&parked->skb, skb);
	if (skb) {
		bpf_qdisc_skb_drop(skb, to_free); /* its own did not come */
	} else {
		in->parked++;
		bbq_tell(in, sch, 1, 0);
	}
	return NET_XMIT_SUCCESS;
}

/* Packet p, which is `skb`, gets its twin. */
bb_inline void bbq_pair(__u32 inst, struct bbq_instance *in, struct Qdisc *sch,
			struct bbq_packet *p, struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free)
{
	struct bbq_parked *parked = bbq_parked_at(inst, (__u64)skb);
	const __u64 *data = (const __u64 *)bbq_skb_cb(skb)->data;
	struct sk_buff *twin = 0;

	if (parked && parked->of == (__u64)skb &&
	    parked->pair == bb_cb_pair(data[1], *(const __u32 *)&data[2]))
		twin = bpf_kptr_xchg(&parked->skb, 0);
	if (!twin) {
		p->flags &= ~BBQ_F_PAIRED;
		return;
	}
	in->parked--;
	in->pairs++;
	/* Else this operation brings what was inherited. */
	if (in->synced == (__u64)sch)
		sch->q.qlen--;
	twin = bpf_kptr_xchg(&p->twin, twin);
	if (twin) /* cannot be: an unused entry holds none */
		bpf_qdisc_skb_drop(twin, to_free);
}

/* Only twins are here: frees those whose packets did not come, some in each operation. */
static __noinline int bbq_sweep(__u32 inst, struct bbq_instance *in, struct Qdisc *sch)
{
	__u64 now = bpf_ktime_get_ns();

	if (now - in->parked_ns < BBQ_PARKED_NS) {
		bpf_qdisc_watchdog_schedule(sch, in->parked_ns + BBQ_PARKED_NS, 0);
		return 0;
	}
	for (__u32 n = bb_zero; n < BBQ_SWEPT && bb_can_loop; n++) {
		__u32 key = inst * BB_MAX_PARKED + (in->swept++ & (BB_MAX_PARKED - 1));
		struct bbq_parked *parked = bpf_map_lookup_elem(&bbq_parked, &key);
		struct sk_buff *twin = parked ? bpf_kptr_xchg(&parked->skb, 0) : 0;

		if (!twin)
			continue;
		bpf_kfree_skb(twin);
		in->parked--;
		bbq_tell(in, sch, -1, 0);
	}
	if (in->parked)
		bpf_qdisc_watchdog_schedule(sch, now, 0);
	return 0;
}

#endif /* BBQ_TWIN_BPF_H */
