/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is important goes early where that costs nothing.
 *
 * The problem: by deadlines alone everything leaves at its last moment while the link is
 * full. Audio comes in time, but all its time is spent, and a call is as late as that.
 *
 * 1. Among the orders that keep every planned ADU in time there is one in which more of what
 *    is important is early. An ADU that is more important than all that stand before it by
 *    their deadlines goes first, if these can wait for it (bbq_goes_early).
 * 2. On a full link nothing can wait. So a plan counts the most important traffic that is still to
 *    come as if all of it went first (bbq_reserve). Where it takes little of the link this
 *    costs one ADU when the link becomes full (bbq_may_pay). Where it takes much, or where
 *    an ADU is large beside what it can wait, it would cost others again and again: then nobody
 *    pays, and it is early as far as others can wait.
 * 3. What goes first has a key before all others (bbq_key_first).
 */
#ifndef BBQ_EARLY_BPF_H
#define BBQ_EARLY_BPF_H

#include "bbq_plan.bpf.h"

/* bbq_queue.unordered: something would have gone first, and the others could not wait. */
#define BBQ_STUCK 2
/* Larger ADUs have their place by their deadline: the time for one, in any of these, is below 2^63. */
#define BBQ_FIRST_BYTES (1U << 20)

/*
 * Keys of triage's list. What goes first stands before all that has its place by its deadline,
 * in order of priority, then of deadline.
 */
#define BBQ_KEY_DUE (1ULL << 63)
#define bbq_key_first(priority_, due_) ((__u64)(priority_) << 56 | ((due_) & ((1ULL << 56) - 1)))

/* ADUs pay that take such a part of what the one that would be late could wait. */
#define BBQ_RESERVE_PART 6

#define BBQ_RANK_SHIFT 30 /* no ADU has so many bytes */
#define BBQ_LINK_BYTES 4096 /* links of a chain are as large, beside other ADUs */

/*
 * Who is given up first: the least important, and among equals the one with most bytes; but of
 * those that seem to be key frames none while there is another. What refers to a key frame is
 * worth nothing without it, and to give it up makes most room: by size alone it would always be
 * the one. Last comes one whose stream lost such a one before. Of links of a chain it is the
 * last one, whatever their sizes are: it takes the fewest along.
 */
bb_inline __u64 bbq_burden(const struct bbq_packet *p)
{
	/* Less one for each flag, without a branch: full buffers ask this often. */
	__u64 rank = 2 - (p->flags / BBQ_F_LARGE & 1) - (p->flags / BBQ_F_OWED & 1);
	__u32 bytes = p->role && p->role < BB_ROLE_LEAF ? BBQ_LINK_BYTES : p->adu_bytes;

	return (__u64)(p->priority + 1) << 32 | rank << BBQ_RANK_SHIFT | bytes;
}

/*
 * Bytes that are still to come and go before this ADU if all of what is most important goes
 * first. They count from its last packet on: so the next one that comes changes nothing.
 */
bb_inline __u64 bbq_reserve(const struct bbq_plan *plan, struct bbq_queue *q, struct bbq_packet *p)
{
	__u64 from = q->ahead_ns + plan->owd, time;

	if (!plan->load || p->priority <= q->ahead_priority || p->deadline <= from)
		return 0;
	time = p->deadline - from;
	return ((time < BBQ_LOAD_NS ? time : BBQ_LOAD_NS) * plan->load) >> BBQ_LOAD_SHIFT;
}

/*
 * Important early where that costs nothing. The walk's next ADU is more important than all that
 * it would overtake by going first: can these wait so much longer? Of what is not the most
 * important they must be able to wait besides for what is, or that would wait instead.
 */
bb_inline int bbq_goes_early(const struct bbq_plan *plan, struct bbq_queue *q, struct bbq_packet *p)
{
	const struct bbq_walk *walk = &q->walk;
	__s64 bears =
		plan->load && p->priority > q->ahead_priority ? walk->bears_early : walk->bears;

	return p->adu_bytes < BBQ_FIRST_BYTES &&
	       bears >= (__s64)(p->adu_bytes * plan->inv_turns >> BBQ_INV_SHIFT);
}

/*
 * Lets the walk's next ADU go first. What else comes of it stands by its deadline, as if it were
 * another one: nobody asked whether the others can wait for that, too. Returns 0 if there are too
 * many before it.
 */
__noinline int bbq_go_first(__u32 inst, __u32 session)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bbq_instance *in = bbq_instance(inst);
	__u32 idx, before, next;
	struct bbq_packet *p;
	__s64 takes;
	__u64 key;

	if (!q || !in)
		return 0;
	idx = q->walk.at;
	p = bbq_packet_at(idx);
	if (!p)
		return 0;
	key = p->key;
	next = p->next;
	p->key = bbq_key_first(bbq_rank(p), p->deadline);
	before = bbq_find_first(inst, session, idx, 0);
	if (before == BBQ_LOST) {
		p->key = key;
		q->walk.passed = BB_PRIORITIES;
		return 0;
	}
	/* What it would have overtaken has left since the walk passed it. */
	if (before == idx)
		before = p->prev;
	bbq_unlink(q, p, idx);
	bbq_link(q, 0, idx, p, before, bbq_packet_at(before));
	takes = p->adu_bytes * in->plan.inv_turns >> BBQ_INV_SHIFT;
	q->walk.bytes += p->adu_bytes;
	q->walk.slack -= takes;
	q->walk.bears -= takes;
	q->walk.bears_early -= takes;
	q->walk.steps++;
	q->walk.at = next;
	return 1;
}

/*
 * May the one that is given up first pay for it that what is more important goes early? It has
 * not begun, is no key frame, and small beside what p could wait: so it is one ADU when the link
 * becomes full, and later the others, each of which the link has no time for anyway.
 */
bb_inline int bbq_may_pay(const struct bbq_plan *plan, struct bbq_queue *q, struct bbq_packet *p,
			  __u64 worst, __u32 begun)
{
	__u64 bytes = worst & ((1ULL << BBQ_RANK_SHIFT) - 1);
	__u64 time = p->deadline - plan->owd - p->arrived_ns;

	return !begun && (worst >> BBQ_RANK_SHIFT & 3) == 2 &&
	       worst >> 32 > q->ahead_priority + 1U && bytes < BBQ_FIRST_BYTES &&
	       (bytes * plan->inv >> BBQ_INV_SHIFT) * BBQ_RESERVE_PART <= time;
}

#endif /* BBQ_EARLY_BPF_H */
