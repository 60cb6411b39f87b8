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
 *   triage   deadline, priority   dropped                largest ADU of the least important
 *
 * Sources: SFDPS 3.2-3.4 and 6 (papers/sfdps.txt) for the first six; triage is
 * ours: docs/design.md.
 */
#ifndef BBQ_METHOD_BPF_H
#define BBQ_METHOD_BPF_H

#include "bbq_drop.bpf.h"

/* ADUs a triage looks at: beyond them, staleness at the head decides alone. */
#define BBQ_TRIAGE_WALK 128
/* ADUs given up for one arrival. */
#define BBQ_TRIAGE_ROUNDS 4
/* Timer lateness that a plan allows for. */
#define BBQ_TRIAGE_MARGIN_NS 200000ULL
/* A packet more important than others is expected this long after the last one; that much slack is plenty. */
#define BBQ_AHEAD_NS 100000000ULL
/* How much later than expected it may come and still be waited for. */
#define BBQ_OVERDUE_NS 500000ULL
/* ns per byte as a fixed-point number; a rate below 1000 bytes/s is planned as that. */
#define BBQ_INV_SHIFT 10

bb_inline __u64 bbq_inverse(__u64 rate)
{
	return (BB_NSEC_PER_SEC << BBQ_INV_SHIFT) / (rate > 1000 ? rate : 1000);
}

/* What a plan of one session reckons with. An inverse of 0: that rate is not known. */
struct bbq_plan {
	__u64 inv_link; /* of the interface's rate */
	__u64 inv_session; /* of the session's own, where that is lower */
	__u64 other_bytes; /* queued in the other sessions ... */
	__u32 others; /* ... of which there are so many */
};

/*
 * ns until `own` bytes of a session have left. The link takes turns: meanwhile
 * each of the other sessions sends as much, but all of them no more than they
 * hold now (a lone TCP segment must not count as a full share).
 */
bb_inline __u64 bbq_until(const struct bbq_plan *plan, __u64 own)
{
	__u64 turns = own * plan->others, link, session;

	link = (own + (turns < plan->other_bytes ? turns : plan->other_bytes)) * plan->inv_link;
	session = own * plan->inv_session;
	return (link > session ? link : session) >> BBQ_INV_SHIFT;
}

/* May this packet be dropped because it is stale? */
bb_inline int bbq_may_drop(struct bb_iface *iface, struct bbq_queue *q, struct bbq_slot *s,
			   __u64 rate)
{
	__u32 method = iface->method;

	if (s->treatment == BB_TREAT_FORWARD || method == BB_FIFO || method == BB_RING ||
	    method == BB_LAZY)
		return 0;
	if (q->qlen == 1 &&
	    (method == BB_SFDPS2 || method == BB_RING_SFDPS2 || (method == BB_TRIAGE && !rate)))
		return 0;
	return 1;
}

/* The packet this session sends next (0 = none); frees what is stale before it. */
__noinline __u32 bbq_select(__u32 inst, __u32 session, __u64 now, __u64 rate)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bb_session *ses = bbq_session(session);
	struct bb_iface *iface = bbq_iface();

	if (!q || !ses || !iface)
		return BBQ_NONE;
	while (q->nonempty && bb_can_loop) {
		__u32 l = bbq_lowest(q->nonempty), idx;
		struct bbq_slot *s;

		if (l >= BBQ_LISTS)
			break;
		idx = q->head[l];
		s = bbq_slot_at(idx);
		if (!s)
			break;
		if (!bb_stale(now, ses->owd_ns, s->deadline))
			return idx;
		if (iface->method == BB_LAZY && l != BBQ_STALE_LIST) {
			__u32 last = q->tail[BBQ_STALE_LIST];

			bbq_unlink(q, s);
			bbq_link(q, BBQ_STALE_LIST, idx, s, last, bbq_slot_at(last));
			continue;
		}
		if (!bbq_may_drop(iface, q, s, rate))
			return idx;
		if (iface->flags & BB_IFACE_OBSERVE) {
			bbq_would_drop(inst, idx, BB_DROP_STALE, now);
			return idx;
		}
		bbq_drop_adu(inst, idx, BB_DROP_STALE, now);
	}
	return BBQ_NONE;
}

/* Frees what is stale at the head of each list of a session: expired packets hold no memory. */
__noinline int bbq_purge(__u32 inst, __u32 session, __u64 now, __u64 rate)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bb_session *ses = bbq_session(session);
	struct bb_iface *iface = bbq_iface();
	__u64 lists;

	if (!q || !ses || !iface || iface->flags & BB_IFACE_OBSERVE)
		return 0;
	q->purged_ns = now;
	lists = q->nonempty;
	while (lists && bb_can_loop) {
		__u32 l = bbq_lowest(lists);
		struct bbq_slot *s;
		__u32 idx;

		if (l >= BBQ_LISTS)
			break;
		idx = q->head[l];
		s = bbq_slot_at(idx);
		if (s && bb_stale(now, ses->owd_ns, s->deadline) && bbq_may_drop(iface, q, s, rate))
			bbq_drop_adu(inst, idx, BB_DROP_STALE, now);
		else
			lists &= lists - 1;
	}
	return 0;
}

/*
 * Whom a full buffer costs its place: the oldest ADU of the least important
 * non-empty priority (SFDPS 3.4; in triage's single list the largest of the
 * least important, among the first BBQ_TRIAGE_WALK). Returns BBQ_NONE where the
 * arriving packet is the victim.
 */
__noinline __u32 bbq_victim(__u32 inst, __u32 session, __u32 priority)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bb_iface *iface = bbq_iface();
	__u64 worst = 0;
	__u32 victim = BBQ_NONE, method, idx;

	if (!q || !iface)
		return BBQ_NONE;
	method = iface->method;
	if (method == BB_FIFO || method == BB_SFDPS1 || method == BB_SFDPS2)
		return BBQ_NONE;
	if (method == BB_LAZY && q->head[BBQ_STALE_LIST])
		return q->head[BBQ_STALE_LIST];

	/* Least important list first: priority 0 is the most important one. */
	for (__s32 l = BB_PRIORITIES - 1; l > 0; l--)
		if (q->nonempty & (1U << l))
			return priority > l ? BBQ_NONE : q->head[l];

	idx = q->head[0];
	for (__u32 n = bb_zero; n < BBQ_TRIAGE_WALK && bb_can_loop; n++) {
		struct bbq_slot *s = bbq_slot_at(idx);
		__u64 weight;

		if (!s)
			break;
		weight = (__u64)(s->priority + 1) << 32 | s->adu_bytes;
		if (method != BB_TRIAGE) /* oldest first */
			weight = (__u64)(s->priority + 1) << 32;
		if (weight > worst) {
			worst = weight;
			victim = idx;
		}
		idx = s->next;
	}
	if (victim != BBQ_NONE && priority > (worst >> 32) - 1)
		return BBQ_NONE;
	return victim;
}

bb_inline void bbq_plan_of(struct bbq_plan *plan, struct bbq_instance *in, struct bb_iface *iface,
			   struct bbq_queue *q, struct bb_session *ses)
{
	plan->inv_link = 0;
	plan->inv_session = 0;
	if (iface->rate) {
		if (in->inv_of != iface->rate) {
			in->inv_of = iface->rate;
			in->inv = bbq_inverse(iface->rate);
		}
		plan->inv_link = in->inv;
	}
	if (ses->rate && (!iface->rate || ses->rate < iface->rate))
		plan->inv_session = bbq_inverse(ses->rate);
	/* q->bytes has the overhead, in->bytes has not. */
	plan->other_bytes = in->bytes > q->bytes ? in->bytes - q->bytes : 0;
	plan->others = in->active > 1 ? in->active - 1 : 0;
}

/*
 * Everything queued in the session, sent from `start` on, is out before the
 * first of its deadlines: there is nothing to decide. An important packet at the
 * head may be due later than those behind it, by its owd at most (bbq_early).
 */
bb_inline int bbq_all_in_time(const struct bbq_plan *plan, struct bbq_queue *q,
			      struct bb_session *ses, __u64 start)
{
	struct bbq_slot *s = bbq_slot_at(q->head[0]);

	return s && s->deadline &&
	       !bb_stale(start + bbq_until(plan, q->bytes), 2 * ses->owd_ns, s->deadline);
}

/*
 * Gives up what cannot be saved. The queued ADUs of the session, in order of
 * deadline, are sent from now on. If the last packet of one would begin too
 * late (owd counts from there, docs/triage.md), the least important of those
 * due no later (among equals, the one with the most bytes left) is given up,
 * until the rest is feasible; itself, where it could not even be saved alone.
 *
 * Decided when the link is free and not when a packet comes: the rest of a
 * burst is known by then, and what waits costs nothing.
 */
__noinline int bbq_triage(__u32 inst, __u32 session, __u64 now)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bb_session *ses = bbq_session(session);
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();
	__u64 owd, start = now + BBQ_TRIAGE_MARGIN_NS;
	struct bbq_plan plan;

	if (!q || !ses || !in || !iface)
		return 0;
	bbq_plan_of(&plan, in, iface, q, ses);
	owd = ses->owd_ns;
	q->unplanned = 0;
	if (bbq_all_in_time(&plan, q, ses, start))
		return 0;

	for (__u32 round = bb_zero; round < BBQ_TRIAGE_ROUNDS && bb_can_loop; round++) {
		__u32 at = q->head[0], victim = BBQ_NONE, n = bb_zero;
		__u64 bytes = 0, worst = 0;
		int late = 0;

		while (n < BBQ_TRIAGE_WALK && bb_can_loop) {
			struct bbq_slot *s = bbq_slot_at(at);
			__u64 weight;

			if (!s)
				break;
			bytes += s->adu_bytes;
			if (s->deadline) {
				weight = (__u64)(s->priority + 1) << 32 | s->adu_bytes;
				if (weight >= worst && s->treatment != BB_TREAT_FORWARD) {
					worst = weight;
					victim = at;
				}
				if (bb_stale(start + bbq_until(&plan, bytes - s->last_len), owd,
					     s->deadline)) {
					late = 1;
					/* Not even alone: nothing else must suffer for it. */
					if (s->treatment != BB_TREAT_FORWARD &&
					    bb_stale(start + bbq_until(&plan,
								       s->adu_bytes - s->last_len),
						     owd, s->deadline))
						victim = at;
					break;
				}
			}
			at = s->next;
			n++;
		}
		if (!late || victim == BBQ_NONE)
			return 0;
		bbq_drop_adu(inst, victim, BB_DROP_ADU, now);
	}
	q->unplanned = 1; /* the next packet's turn goes on */
	return 0;
}

/* A packet came that what is less important must not stand in the way of. */
bb_inline void bbq_expect(struct bbq_queue *q, __u32 priority, __u64 deadline, __u64 owd, __u64 now)
{
	__u64 gap = now - q->ahead_ns, slack = deadline - owd - now;

	if (bb_stale(now, owd, deadline) || (priority > q->ahead_priority && gap < BBQ_AHEAD_NS))
		return;
	q->ahead_gap = priority == q->ahead_priority && gap < BBQ_AHEAD_NS ? gap : BBQ_AHEAD_NS;
	q->ahead_slack = slack < BBQ_AHEAD_NS ? slack : BBQ_AHEAD_NS;
	q->ahead_ns = now;
	q->ahead_priority = priority;
}

/*
 * Until when s must wait, because it would keep the link busy for longer than a
 * more important packet can wait that is to be expected meanwhile, judging by
 * the last two; 0 = it may go. A packet on its way cannot be interrupted, and on
 * a slow link that takes longer than audio of a short lifetime has left.
 */
bb_inline __u64 bbq_hold(struct bbq_queue *q, struct bbq_slot *s, __u64 rate, __u64 now)
{
	__u64 busy, next = q->ahead_ns + q->ahead_gap;

	if (s->priority <= q->ahead_priority || now - q->ahead_ns >= BBQ_AHEAD_NS)
		return 0;
	/* Both products are below 2^64: rates below 2^37 bytes/s, packets below 2^34 bytes. */
	if (q->ahead_slack * rate >= s->len * BB_NSEC_PER_SEC || now >= next + BBQ_OVERDUE_NS)
		return 0;
	busy = bb_tx_time(s->len, rate);
	if (now + busy <= next + q->ahead_slack)
		return 0;
	return next + BBQ_OVERDUE_NS;
}

#endif /* BBQ_METHOD_BPF_H */
