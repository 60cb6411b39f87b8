/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The seven methods: what goes next in a session, what is given up when it is
 * stale, when the buffer is full, or (triage) when it cannot arrive in time.
 *
 *            order                stale at the head      full buffer
 *   fifo     arrival              sent                   arriving packet refused
 *   sfdps1   priority, deadline   dropped                arriving packet refused
 *   sfdps2   priority, deadline   dropped unless alone   arriving packet refused
 *   ring     priority, deadline   sent                   oldest of the least important evicted
 *   ring-sfdps2   as ring         dropped unless alone   as ring
 *   lazy     priority, deadline   sent after all fresh   stale evicted first, then as ring
 *   triage   deadline, and more   dropped                largest ADU of the least important
 *            important ones first where that costs nothing
 *
 * Sources: the paper on SFDPS ("Sending the Finest Data Package Subsequent"), 3.2-3.4
 * and 6, for the first six; triage is ours: docs/design.md.
 */
#ifndef BBQ_METHOD_BPF_H
#define BBQ_METHOD_BPF_H

#include "bbq_triage.bpf.h"

/* The list a packet belongs to; priority order and deadline order differ only here. */
bb_inline __u32 bbq_list_of(__u32 method, __u32 priority, __u64 deadline, __u64 rate)
{
	if (method == BB_FIFO || (method == BB_TRIAGE && rate))
		return 0;
	return priority & (BB_PRIORITIES - 1);
}

/*
 * Its place there. Triage's one list is ordered by deadline to 1.05 ms, then by
 * priority: a frame and an audio packet made together have one deadline, and
 * behind the frame the audio would be late (docs/triage.md, "Ties"). The low
 * bits keep packets of one priority in exact order. An ADU whose packets differ
 * in priority is one ADU per priority here; so is, per key, an important one
 * whose packets come milliseconds apart.
 *
 * Without a deadline what is more important than usual goes first: nothing it could wait for
 * would come in time. The rest is ordered as if due in a second.
 */
bb_inline __u64 bbq_key(__u32 method, __u32 priority, __u64 deadline, __u64 owd, __u64 rate,
			__u64 now)
{
	__u64 key = deadline ?: now + BBQ_NOMINAL_NS;

	if (method == BB_FIFO)
		return now;
	if (method != BB_TRIAGE)
		return key;
	if (rate) {
		if (!deadline && priority < BB_PRIORITY_DEFAULT)
			return bbq_key_first(priority, now);
		key -= bbq_early(priority, deadline, owd, now);
		key = (key & ~0xFFFFFULL) | (__u64)priority << 17 | (key & 0xFFFFF) >> 3;
	}
	/* Also while no rate is known: priority 0 has the same list. */
	return BBQ_KEY_DUE | key;
}

/*
 * Packet idx is in no list, its ADU is given up, and it has a twin. That will go where the packet
 * would have, behind what the ADU left before.
 */
bb_inline void bbq_doom_alone(struct bbq_instance *in, struct bb_iface *iface,
			      struct bb_session *ses, struct bbq_packet *p, __u32 idx, __u64 now)
{
	__u64 rate = bbq_rate(in, iface, ses);

	p->key = bbq_key(iface->method, bbq_rank(p), p->deadline, ses->owd_ns, rate, now);
	p->list = bbq_list_of(iface->method, bbq_rank(p), p->deadline, rate);
	p->chain = BBQ_NONE;
	bbq_doom(in, p, idx, BB_DROP_ADU);
}

/* How long a stale retransmission waits for its session to have nothing fresh. */
#define BBQ_REPAIR_NS BB_NSEC_PER_SEC

/* May this packet be dropped because it is stale? */
bb_inline int bbq_may_drop(struct bb_iface *iface, struct bbq_queue *q, struct bbq_packet *p,
			   __u64 rate, __u64 now)
{
	__u32 method = iface->method;

	if (p->flags & BBQ_F_REPAIR)
		return now - p->arrived_ns > BBQ_REPAIR_NS;
	if (p->treatment == BB_TREAT_FORWARD || method == BB_FIFO || method == BB_RING ||
	    method == BB_LAZY)
		return 0;
	if (q->qlen == 1 &&
	    (method == BB_SFDPS2 || method == BB_RING_SFDPS2 || (method == BB_TRIAGE && !rate)))
		return 0;
	return 1;
}

/* A stale retransmission goes only while no other media wait, those of other sessions included. */
bb_inline int bbq_in_the_way(struct bbq_instance *in, struct bbq_queue *q, struct bbq_packet *p)
{
	return p->flags & BBQ_F_REPAIR && in->qlen - in->plain_qlen > q->qlen;
}

/* The packet this session sends next (0 = none, or in->more); frees what is stale before it. */
__noinline __u32 bbq_select(__u32 inst, __u32 session, __u64 now, __u64 rate)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bb_session *ses = bbq_session(session);
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();

	if (!q || !ses || !in || !iface)
		return BBQ_NONE;
	while (q->nonempty && bb_can_loop) {
		__u32 l = bbq_lowest(q->nonempty), idx;
		struct bbq_packet *p;

		if (l >= BBQ_DEPART_LIST)
			break;
		idx = q->head[l];
		p = bbq_packet_at(idx);
		if (!p)
			break;
		if (p->role && bbq_is_chained(p)) {
			if (bbq_spent(in, BBQ_WORK_EVICT))
				break;
			bbq_drop_adu(inst, idx, BB_DROP_CHAIN, now);
			continue;
		}
		if (!bb_stale(bbq_out(in, p, now), ses->owd_ns, p->deadline))
			return idx;
		if (bbq_spent(in, BBQ_WORK_EVICT))
			break;
		if ((iface->method == BB_LAZY || p->flags & BBQ_F_REPAIR) && l != BBQ_STALE_LIST) {
			__u32 last = q->tail[BBQ_STALE_LIST];

			in->work -= BBQ_WORK_PLAN;
			q->walk.at = BBQ_NONE;
			bbq_unlink(q, p, idx);
			bbq_link(q, BBQ_STALE_LIST, idx, p, last, bbq_packet_at(last));
			continue;
		}
		if (!bbq_may_drop(iface, q, p, rate, now) && !bbq_in_the_way(in, q, p))
			return idx;
		bbq_drop_adu(inst, idx, BB_DROP_STALE, now);
		/* What is left of it may be first. */
		if (in->swapped) {
			in->more = 1;
			break;
		}
	}
	return BBQ_NONE;
}

/*
 * Frees what is stale at the head of each list of a session, so that expired packets hold
 * no memory; until no more than `left` of the operation's work is left.
 */
__noinline int bbq_purge(__u32 inst, __u32 session, __u64 now, __u64 rate, __s32 left)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bb_session *ses = bbq_session(session);
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();
	__u64 lists;
	int plans;

	if (!q || !ses || !in || !iface)
		return 0;
	lists = q->nonempty;
	plans = bbq_plans(iface, rate);
	while (lists && in->work > left && bb_can_loop) {
		__u32 l = bbq_lowest(lists);
		struct bbq_packet *p;
		__u32 idx;

		if (l >= BBQ_LISTS)
			break;
		idx = q->head[l];
		p = bbq_packet_at(idx);
		/* Behind what goes first there may be something stale. */
		while (p &&
		       (p->flags & BBQ_F_TRUNCATED ||
			(plans && p->key < BBQ_KEY_DUE &&
			 !bb_stale(bbq_out(in, p, now), ses->owd_ns, p->deadline))) &&
		       in->work > left && bb_can_loop) {
			in->work -= BBQ_WORK_LOOK;
			idx = p->next;
			p = bbq_packet_at(idx);
		}
		if (p && bb_stale(bbq_out(in, p, now), ses->owd_ns, p->deadline) &&
		    bbq_may_drop(iface, q, p, rate, now))
			bbq_drop_adu(inst, idx, BB_DROP_STALE, now);
		else
			lists &= lists - 1;
	}
	if (!lists)
		q->purged_ns = now;
	return 0;
}

/* ADUs that are compared when one must make room, beside the one that is known. */
#define BBQ_VICTIMS 4
/* Retransmissions go before anything else of that list. */
#define BBQ_REPAIR_WEIGHT (1ULL << 40)

/* The ADU with most of it makes room: above 2^32 unless it is local TCP's. */
bb_inline __u64 bbq_weight(__u32 method, const struct bbq_packet *p)
{
	__u64 weight = (__u64)(p->priority + 1) << 32;

	if (p->flags & BBQ_F_TCP)
		return p->priority + 1;
	if (method == BB_FIFO)
		return 1ULL << 32;
	if (method == BB_TRIAGE)
		weight = bbq_burden(p);
	return p->flags & BBQ_F_REPAIR ? weight | BBQ_REPAIR_WEIGHT : weight;
}

/*
 * An ADU of a list that has more than one priority got a packet: it makes room before
 * others where it weighs most. Asked of arrivals only: once it is gone bbq_victim looks
 * for another one.
 */
bb_inline void bbq_least(struct bbq_queue *q, __u32 idx)
{
	struct bbq_packet *p = bbq_packet_at(idx), *least = bbq_packet_at(q->least);

	if (p && (!least || bbq_weight(BB_TRIAGE, p) > bbq_weight(BB_TRIAGE, least)))
		q->least = idx;
}

/* The lists of priorities that are not triage's. */
#define BBQ_OF_PRIORITIES (((1U << BB_PRIORITIES) - 1) & ~1U)

/*
 * No rate was known when the first ADU of these lists came, and one is now: it gets its place in triage's list,
 * before whatever is due later.
 */
__noinline int bbq_line_up_with_rate(__u32 inst, __u32 session)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bb_session *ses = bbq_session(session);
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();
	__u32 l, idx, before;
	struct bbq_packet *p;

	if (!q || !ses || !in || !iface || !(q->nonempty & BBQ_OF_PRIORITIES))
		return 0;
	l = bbq_lowest(q->nonempty & BBQ_OF_PRIORITIES);
	if (l >= BBQ_STALE_LIST)
		return 0;
	idx = q->head[l];
	p = bbq_packet_at(idx);
	if (!p)
		return 0;
	in->work -= BBQ_WORK_PLAN;
	bbq_unlink(q, p, idx);
	p->key = bbq_key(iface->method, bbq_rank(p), p->deadline, ses->owd_ns,
			 bbq_rate(in, iface, ses), p->arrived_ns);
	before = bbq_find_first(inst, session, idx, 0);
	if (before == BBQ_LOST)
		before = q->tail[0];
	bbq_link(q, 0, idx, p, before, bbq_packet_at(before));
	if (p->adu)
		*bbq_recent(q, p->adu) = idx;
	q->walk.at = BBQ_NONE;
	q->unordered = 1;
	q->unplanned = 1;
	return 1;
}

/*
 * Gives packet idx its place in its session's queue. It may leave since `since`; if
 * that is later than now, the place is among those that wait for their departure.
 */
__noinline int bbq_place(__u32 inst, __u32 idx, __u64 since, __u64 now)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_packet *p = bbq_packet_at(idx);
	struct bb_iface *iface = bbq_iface();
	__u32 method, list, adu, first;
	struct bbq_packet *before;
	struct bb_session *ses;
	struct bbq_queue *q;
	__u64 rate;

	if (!in || !p || !iface)
		return 0;
	q = bbq_queue_at(inst, p->session);
	ses = bbq_session(p->session);
	if (!q || !ses)
		return 0;
	p->lanes = bbq_lanes_of(q, idx, now);
	method = iface->method;
	if (since > now) {
		p->key = since;
		list = BBQ_DEPART_LIST;
		adu = 0;
	} else {
		rate = bbq_rate(in, iface, ses);
		p->key = bbq_key(method, bbq_rank(p), p->deadline, ses->owd_ns, rate, since);
		list = bbq_list_of(method, bbq_rank(p), p->deadline, rate);
		adu = method == BB_FIFO ? 0 : p->adu;
		if (p->adu && p->adu == q->begun)
			p->flags |= BBQ_F_BEGUN;
		if (method == BB_TRIAGE && rate && p->deadline)
			q->unplanned = 1;
	}
	first = bbq_insert(inst, in, q, p, idx, list, adu);
	bbq_walk_grown(q, p, idx, first);
	before = first == idx && !q->unordered ? bbq_packet_at(p->prev) : 0;
	if (before && bbq_rank(before) > bbq_rank(p))
		q->unordered = 1;
	if (q->qlen > BBQ_VICTIMS && !list)
		bbq_least(q, first);
	return 0;
}

/*
 * Whom a full buffer costs its place: the oldest ADU of the least important
 * non-empty priority (SFDPS 3.4); in triage's single list the largest of the
 * least important that is no key frame (bbq_burden), among those looked at: the largest that came since the last one paid,
 * and some more in each call, in turn. What has the latest departure ahead goes before
 * others as important. Local TCP is last: what its own host drops it takes for
 * congestion of the path. Returns BBQ_NONE where the arriving packet is the
 * victim; it never is where another session pays for it (`others`).
 */
__noinline __u32 bbq_victim(__u32 inst, __u32 session, __u32 priority, __u32 others)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();
	__u32 victim = BBQ_NONE, method, idx;
	__s32 enough;
	struct bbq_packet *p;
	__u64 worst = 0;

	if (!q || !in || !iface)
		return BBQ_NONE;
	method = iface->method;
	enough = in->work - BBQ_VICTIMS * BBQ_WORK_LOOK;
	if (q->head[BBQ_STALE_LIST])
		return q->head[BBQ_STALE_LIST];
	if (!others && (method == BB_FIFO || method == BB_SFDPS1 || method == BB_SFDPS2))
		return BBQ_NONE;
	victim = q->tail[BBQ_DEPART_LIST];
	p = bbq_packet_at(victim);
	if (p)
		worst = bbq_weight(method, p);

	/* Least important list first: priority 0 is the most important one. With a rate all are in that. */
	for (__s32 l = q->nonempty & BBQ_OF_PRIORITIES || worst >> 32 ? BB_PRIORITIES - 1 : 0;
	     l >= 0; l--) {
		idx = q->head[l];
		if (!l && method == BB_TRIAGE) {
			p = bbq_packet_at(q->least);
			if (p && bbq_weight(method, p) > worst) {
				worst = bbq_weight(method, p);
				victim = q->least;
			}
			if (q->looked)
				idx = q->looked;
		}
		while (idx && bb_can_loop) {
			__u64 weight;

			p = bbq_packet_at(idx);
			/* Further, where there was nothing but local TCP. */
			if (!p || (worst && in->work <= (worst >> 32 ? enough : BBQ_WORK_EVICT)))
				break;
			in->work -= BBQ_WORK_LOOK;
			weight = bbq_weight(method, p);
			if (weight > worst) {
				worst = weight;
				victim = idx;
			}
			/* The others of its list are as important, and younger. */
			if ((l || method != BB_TRIAGE) && worst >> 32)
				break;
			idx = p->next;
		}
		if (!l && method == BB_TRIAGE)
			q->looked = idx;
		if (worst >> 32)
			break;
	}
	if (victim != BBQ_NONE && !others && priority > (worst >> 32 ?: worst) - 1)
		return BBQ_NONE;
	return victim;
}

#endif /* BBQ_METHOD_BPF_H */
