/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CoDel (RFC 8289) for what nobody else limits: packets without a deadline of sessions that
 * are not media. A sender that only a loss stops fills any queue, and all flows of its
 * session wait there. The one at the head is dropped if packets waited longer than the
 * target for a whole interval; then more of them, at intervals that shrink with the root of
 * their number, until they no longer wait.
 *
 * - The target is 5 ms, or what two full frames take at the session's rate.
 * - A session that holds no more than that (bbq_quantum), or one packet, is left alone: it
 *   waits for its turn, and not for itself.
 * - TCP of this host is left alone, too: TCP small queues hold each of its sockets to two
 *   packets, and it takes for congestion of the path what its own host drops.
 * - The queue cannot write into a packet. So one that could be marked (ECN) is dropped, too.
 *
 * The method fifo is what Linux' FIFO is, and has none.
 */
#ifndef BBQ_CODEL_BPF_H
#define BBQ_CODEL_BPF_H

#include "bbq_drop.bpf.h"

#define BBQ_CODEL_TARGET_NS 5000000ULL
#define BBQ_CODEL_INTERVAL_NS 100000000ULL
/* Dropping that begins again so soon goes on nearly where it ended. */
#define BBQ_CODEL_SOON 16 /* intervals */
#define BBQ_CODEL_ONE (1U << 16)

/* Does the first packet, p, of a session that is not media's wait in a queue that stands? */
bb_inline int bbq_codel_waits(struct bbq_queue *q, const struct bbq_packet *p, __u64 now,
			      __u64 target)
{
	if (now - p->arrived_ns >= target && q->bytes > bbq_quantum && q->qlen > 1)
		return 1;
	q->codel.until_ns = 0;
	q->codel.dropping = 0;
	return 0;
}

/* What CoDel never drops. */
bb_inline int bbq_codel_spares(const struct bb_iface *iface, const struct bbq_packet *p)
{
	return p->deadline || p->flags & (BBQ_F_TCP | BBQ_F_TRUNCATED) || iface->method == BB_FIFO;
}

/* One more was dropped: 2^16 / sqrt(count), by one step of Newton's method from what it was. */
bb_inline void bbq_codel_count(struct bbq_codel *c, __u32 count)
{
	__u64 root = c->root, square;

	c->count = count;
	/* Below 2^32 * 3 as long as the root is at most what it should be times 1.7. */
	square = count * root * root;
	if (count <= 1 || square >= 3ULL << 32)
		root = count <= 1 ? BBQ_CODEL_ONE : root >> 1;
	else
		root = root * ((3ULL << 32) - square) >> 33;
	c->root = root ?: 1;
}

bb_inline __u64 bbq_codel_gap(const struct bbq_codel *c)
{
	return BBQ_CODEL_INTERVAL_NS * c->root >> 16;
}

/* Is the first packet of a queue that stands to be dropped, as the session would send it now? */
bb_inline int bbq_codel_due(struct bbq_codel *c, __u64 now)
{
	if (!c->until_ns) {
		c->until_ns = now + BBQ_CODEL_INTERVAL_NS;
		return 0;
	}
	if ((__s64)(now - c->until_ns) < 0)
		return 0;
	if (c->dropping) {
		if ((__s64)(now - c->next_ns) < 0)
			return 0;
		bbq_codel_count(c, c->count + 1);
		c->next_ns += bbq_codel_gap(c);
		return 1;
	}
	c->dropping = 1;
	if (now - c->next_ns < BBQ_CODEL_SOON * BBQ_CODEL_INTERVAL_NS && c->count > c->before + 1)
		bbq_codel_count(c, c->count - c->before);
	else
		bbq_codel_count(c, 1);
	c->before = c->count;
	c->next_ns = now + bbq_codel_gap(c);
	return 1;
}

/*
 * Drops packet idx, which a session that is not media's would send now, if CoDel says so;
 * returns whether it did. `rate` binds the session; 0 = none is known. Where no work is left
 * for it the packet goes: something is sent by each operation.
 */
__noinline int bbq_codel(__u32 inst, __u32 session, __u32 idx, __u64 now, __u64 rate)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_packet *p = bbq_packet_at(idx);
	struct bb_iface *iface = bbq_iface();
	__u64 target = BBQ_CODEL_TARGET_NS;

	if (!in || !q || !p || !iface)
		return 0;
	if (rate && rate < bbq_quantum * (BB_NSEC_PER_SEC / BBQ_CODEL_TARGET_NS))
		target = bb_tx_time(bbq_quantum, rate);
	if (!bbq_codel_waits(q, p, now, target) || in->work < BBQ_WORK_EVICT ||
	    bbq_codel_spares(iface, p) || !bbq_codel_due(&q->codel, now))
		return 0;
	bbq_drop_adu(inst, idx, BB_DROP_CODEL, now);
	return 1;
}

#endif /* BBQ_CODEL_BPF_H */
