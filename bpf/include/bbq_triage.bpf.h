/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Triage: which ADU is given up when not all can arrive in time, which packet
 * waits for a more important one that is still to come, and what is sent early
 * because an estimate may be wrong. docs/triage.md has the reasons and the
 * rules that were tried and left.
 */
#ifndef BBQ_TRIAGE_BPF_H
#define BBQ_TRIAGE_BPF_H

#include "bbq_early.bpf.h"

/* ADUs that must have been looked at before one of them is sent: two operations' work. */
#define BBQ_TRIAGE_SURE 32
/* More than any ADU has to spare. */
#define BBQ_SLACK_MAX_NS (1LL << 62)
/* How much later than expected it may come and still be waited for. */
#define BBQ_OVERDUE_NS 500000ULL

/*
 * Everything queued in the session, sent from `start` on, is out an owd before
 * the first of its deadlines, and in its order: there is nothing to decide. The head
 * need not be due first, but what it overtook (bbq_early, bbq_overtake) begins to leave in
 * time if the last byte of all leaves by then. What goes first is due at any time.
 */
bb_inline int bbq_all_in_time(const struct bbq_plan *plan, struct bbq_queue *q, __u64 start)
{
	struct bbq_packet *p = bbq_packet_at(q->head[0]);

	return !q->unordered && p && p->deadline && p->key >= BBQ_KEY_DUE &&
	       !bb_stale(start + bbq_until(plan, q->bytes), 2 * plan->owd, p->deadline);
}

/*
 * When a packet is planned to be there, where only what is less important pays
 * for it. A plan up to the last moment loses what is important to an owd that is
 * a little too short; and of the rest it keeps what matters less until it is too
 * late: what is as important as this one and comes next finds the link's time
 * spent. Whose video has layers loses references to frames that nobody needs.
 */
bb_inline __u64 bbq_due(struct bbq_packet *p, __u64 owd)
{
	if (p->priority < BB_PRIORITY_DEFAULT)
		return p->deadline - bbq_spare(p->priority, p->deadline, owd, p->arrived_ns);
	if (bb_stale(p->arrived_ns, owd, p->deadline))
		return p->deadline;
	return p->deadline - ((p->deadline - owd - p->arrived_ns) >> 2);
}

/*
 * When the last byte of this ADU must have left, but for the owd. Turns do not
 * count: where in one the last packet will stand is not known.
 */
bb_inline __u64 bbq_end(const struct bbq_plan *plan, struct bbq_packet *p, __u64 owd)
{
	return p->deadline - bbq_early(p->priority, p->deadline, owd, p->arrived_ns) +
	       (p->last_len * plan->inv >> BBQ_INV_SHIFT);
}

/*
 * b, which is behind p, must go before it. Deadlines are for the *first* byte of
 * a last packet, and whoever must end first goes first: behind a frame whose
 * last packet begins at its last moment and takes long, audio that is due a
 * little later would be late. (The keys know no sizes: those change with every
 * packet of an ADU that comes.)
 */
bb_inline int bbq_before(const struct bbq_plan *plan, struct bbq_packet *b, struct bbq_packet *p,
			 __u64 owd)
{
	return bbq_rank(b) < bbq_rank(p) && b->deadline && p->deadline &&
	       bbq_end(plan, b, owd) < bbq_end(plan, p, owd);
}

/*
 * Bytes that are still to come and have to go before this ADU: what is more
 * important keeps coming as it came of late, and all of it is due first that
 * comes before the ADU's last moment by more than its own slack.
 */
bb_inline __u64 bbq_expected(struct bbq_queue *q, struct bbq_packet *p, __u64 owd, __u64 now)
{
	__u64 from = now + owd + q->ahead_slack, time;

	if (p->priority <= q->ahead_priority || now - q->ahead_ns >= BBQ_AHEAD_NS ||
	    p->deadline <= from)
		return 0;
	time = p->deadline - from;
	return ((time < BBQ_LOAD_NS ? time : BBQ_LOAD_NS) * q->ahead_load) >> BBQ_LOAD_SHIFT;
}

/*
 * Moves the ADU behind the walk's next one in front of that (bbq_before). It takes the
 * key that goes with its place, and is the walk's next one.
 */
__noinline int bbq_overtake(__u32 inst, __u32 session)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bbq_packet *p, *b;
	__u32 behind, before;

	if (!q)
		return 0;
	p = bbq_packet_at(q->walk.at);
	if (!p)
		return 0;
	behind = p->next;
	before = p->prev;
	b = bbq_packet_at(behind);
	if (!b)
		return 0;
	bbq_unlink(q, b, behind);
	b->key = p->key;
	bbq_link(q, 0, behind, b, before, bbq_packet_at(before));
	if (b->adu)
		*bbq_recent(q, b->adu) = behind;
	q->walk.at = behind;
	return 0;
}

/*
 * Bytes of the ADU that may be under way when its time is up: those of its last packet, as a plan is for when
 * that begins to leave. Where it is known what the device takes, the ADU is to be out of it by then.
 */
bb_inline __u32 bbq_last(const struct bbq_plan *plan, const struct bbq_packet *p)
{
	return p->last_len & plan->last_mask;
}

enum bbq_step {
	BBQ_STEP_ON,
	BBQ_STEP_FIRST, /* the ADU at walk->at may go first */
	BBQ_STEP_OVERTAKE, /* the ADU behind the one at walk->at must go before it */
	BBQ_STEP_LATE, /* the ADU at walk->at would be late */
	BBQ_STEP_END, /* nothing is late. The last ADU is looked at again: it may grow. */
};

/*
 * One step of the walk of plan->session. Not inlined: the verifier would follow all
 * ways through one step into the next one.
 */
__noinline int bbq_step(const struct bbq_plan *plan)
{
	__u64 worst, weight, due, bytes, begins, early, owd, now, expected, reserve;
	__u32 at, victim, begun;
	struct bbq_walk *walk;
	struct bbq_packet *p, *b;
	struct bbq_queue *q;
	__s64 slack;

	if (!plan)
		return BBQ_STEP_END;
	owd = plan->owd;
	now = plan->now;
	q = bbq_queue_at(plan->inst, plan->session);
	if (!q)
		return BBQ_STEP_END;
	walk = &q->walk;
	at = walk->at;
	p = bbq_packet_at(at);
	if (!p)
		return BBQ_STEP_END;
	b = bbq_packet_at(p->next);
	if (b && bbq_before(plan, b, p, owd))
		return BBQ_STEP_OVERTAKE;
	if (bbq_rank(p) < walk->passed && walk->passed < BB_PRIORITIES && p->key >= BBQ_KEY_DUE) {
		if (bbq_goes_early(plan, q, p))
			return BBQ_STEP_FIRST;
		walk->stuck = 1;
	}
	bytes = walk->bytes + p->adu_bytes;
	worst = walk->worst;
	victim = walk->victim;
	begun = walk->begun;
	slack = walk->slack;
	if (!p->deadline)
		goto next;
	weight = bbq_burden(p);
	if (weight >= worst && p->treatment != BB_TREAT_FORWARD) {
		worst = weight;
		victim = at;
		begun = p->flags & BBQ_F_BEGUN;
	}
	due = p->deadline;
	/* At the cost of what is less important only, and not of link time that is spent already. */
	if (worst >> 32 > p->priority + 1U && !begun)
		due = bbq_due(p, owd);
	expected = bbq_expected(q, p, owd, now);
	begins = bbq_begins(plan, now, bytes - bbq_last(plan, p) + expected);
	if (bb_stale(begins, owd, due)) {
		/* Not even alone: nothing else must suffer for it. */
		if (p->treatment != BB_TREAT_FORWARD &&
		    bb_stale(bbq_begins(plan, now, p->adu_bytes - bbq_last(plan, p)), owd,
			     p->deadline))
			victim = at;
		walk->victim = victim;
		return BBQ_STEP_LATE;
	}
	if (slack > (__s64)(due - owd - begins))
		slack = due - owd - begins;
	early = begins;
	reserve = bbq_reserve(plan, q, p);
	if (reserve > expected)
		early = bbq_begins(plan, now, bytes - bbq_last(plan, p) + reserve);
	if (plan->reserves && early > begins && bb_stale(early, owd, p->deadline) &&
	    bbq_may_pay(plan, q, p, worst, begun)) {
		walk->victim = victim;
		return BBQ_STEP_LATE;
	}
	if (!p->next)
		return BBQ_STEP_END;
	if (walk->bears > (__s64)(p->deadline - owd - begins))
		walk->bears = p->deadline - owd - begins;
	if (walk->bears_early > (__s64)(p->deadline - owd - early))
		walk->bears_early = p->deadline - owd - early;
next:
	if (!p->next)
		return BBQ_STEP_END;
	if (p->key >= BBQ_KEY_DUE && bbq_rank(p) < walk->passed)
		walk->passed = bbq_rank(p);
	walk->bytes = bytes;
	walk->worst = worst;
	walk->victim = victim;
	walk->begun = begun;
	walk->slack = slack;
	walk->steps++;
	walk->at = p->next;
	return BBQ_STEP_ON;
}

/*
 * Gives up what cannot be saved. The queued ADUs of the session, in order of
 * deadline, are sent from now on, each behind what is expected to overtake it
 * (bbq_expected). If the last packet of one would begin too late (owd counts
 * from there, docs/triage.md), the least important of those due no later (among
 * equals, the one with the most bytes left) is given up, until the rest is
 * feasible; itself, where it could not even be saved alone. bbq_burden spares
 * key frames.
 *
 * Decided when the link is free and not when a packet comes: the rest of a
 * burst is known by then, and what waits costs nothing.
 *
 * A walk goes on where the one before ended, if what it passed by has only been
 * sent since, and no later than planned. One that takes long goes on with the next
 * packet's turn: this one may go, as there is time for what comes first. Returns 1 where it
 * may not yet: something was given up, so the first may be next.
 */
__noinline int bbq_triage(__u32 inst, __u32 session, __u64 now)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bb_session *ses = bbq_session(session);
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();
	struct bbq_plan *plan;
	struct bbq_walk *walk;
	__u32 dropped = bb_zero, sure = BBQ_TRIAGE_SURE;
	struct bbq_user *u;

	if (!q || !ses || !in || !iface)
		return 0;
	u = bbq_user_at(in, inst, q->user);
	if (!u)
		return 0;
	plan = &in->plan;
	walk = &q->walk;
	plan->inst = inst;
	plan->session = session;
	plan->now = bbq_free_at(in, now);
	plan->last_mask = in->device.inv ? 0 : ~0U;
	bbq_plan_of(plan, in, iface, q, u, ses);
	q->unplanned = 0;
	if (bbq_all_in_time(plan, q, plan->now + BBQ_TRIAGE_MARGIN_NS))
		return 0;

	/* What it waited for may have left. */
	if (q->unordered == BBQ_STUCK) {
		q->unordered = 1;
		walk->at = BBQ_NONE;
	}
	if (walk->at != BBQ_NONE) {
		__s64 later = plan->now + plan->owd + bbq_until(plan, walk->bytes) - walk->end;

		walk->slack -= later;
		walk->bears -= later;
		walk->bears_early -= later;
		if (walk->slack < 0) {
			walk->at = BBQ_NONE;
			sure = 0; /* else time would pass for ever */
		}
	}
	while (bb_can_loop) {
		int step;

		if (walk->at == BBQ_NONE) {
			walk->at = q->head[0];
			if (walk->at == BBQ_NONE)
				return 0;
			walk->bytes = 0;
			walk->worst = 0;
			walk->victim = BBQ_NONE;
			walk->begun = 0;
			walk->slack = BBQ_SLACK_MAX_NS;
			walk->bears = BBQ_SLACK_MAX_NS;
			walk->bears_early = BBQ_SLACK_MAX_NS;
			walk->passed = 255;
			walk->stuck = 0;
			walk->steps = 0;
		}
		/* Each step may end with an ADU dropped. */
		if (in->work < BBQ_WORK_EVICT) {
			q->unplanned = 1;
			break;
		}
		in->work -= BBQ_WORK_PLAN;
		step = bbq_step(plan);
		if (step == BBQ_STEP_OVERTAKE)
			bbq_overtake(inst, session);
		if (step == BBQ_STEP_FIRST && bbq_go_first(inst, session) && walk->at == BBQ_NONE)
			step = BBQ_STEP_END;
		if (step <= BBQ_STEP_OVERTAKE)
			continue;
		if (step == BBQ_STEP_END)
			q->unordered = walk->stuck ? BBQ_STUCK : 0;
		if (step == BBQ_STEP_END || walk->victim == BBQ_NONE)
			break;
		bbq_drop_adu(inst, walk->victim, BB_DROP_ADU, now);
		if (in->chained)
			bbq_drop_chain(inst);
		dropped = 1;
	}
	walk->end = plan->now + plan->owd + bbq_until(plan, walk->bytes);
	if (!in->swapped && (!q->unplanned || (!dropped && walk->steps >= sure)))
		return 0;
	in->more = 1;
	return 1;
}

/* A packet came that what is less important must not stand in the way of. */
bb_inline void bbq_expect(const struct bbq_instance *in, struct bb_iface *iface,
			  struct bbq_queue *q, struct bbq_packet *p, struct bb_session *ses,
			  __u64 now)
{
	/* Signed: below 2^62 is what anybody may say (bb_read_txtime). */
	__s64 slack = p->deadline - ses->owd_ns - now;
	__u64 gap = now - q->ahead_ns, period, load;
	__u32 priority = p->priority;

	if (iface->method != BB_TRIAGE || !(iface->rate | ses->rate | in->device.rate) ||
	    !p->deadline || slack < 0 || (priority > q->ahead_priority && gap < BBQ_AHEAD_NS))
		return;
	period = now - q->ahead_from_ns;
	if (priority != q->ahead_priority || gap >= BBQ_AHEAD_NS) {
		q->ahead_gap = BBQ_AHEAD_NS;
		q->ahead_load = 0;
		q->walk.at = BBQ_NONE;
		q->ahead_from_ns = now;
		q->ahead_bytes = 0;
	} else {
		q->ahead_gap = gap;
		if (period >= BBQ_AHEAD_NS) {
			load = ((__u64)q->ahead_bytes << BBQ_LOAD_SHIFT) / period;
			q->ahead_load = load < BBQ_LOAD_MAX ? load : BBQ_LOAD_MAX;
			q->walk.at = BBQ_NONE;
			q->ahead_from_ns = now;
			q->ahead_bytes = 0;
		}
	}
	q->ahead_bytes += p->len;
	q->ahead_slack = slack < ~0U ? slack : ~0U;
	q->ahead_ns = now;
	q->ahead_priority = priority;
}

/*
 * Until when p must wait, because it would keep the link busy for longer than a
 * more important packet can wait that is to be expected meanwhile, judging by
 * the last two; 0 = it may go. A packet on its way cannot be interrupted, and on
 * a slow link that takes longer than audio of a short lifetime has left. What
 * never expires does not wait: beside steady audio it would do so for ever.
 */
bb_inline __u64 bbq_hold(const struct bbq_instance *in, struct bbq_queue *q, struct bbq_packet *p,
			 struct bb_iface *iface, struct bb_session *ses, __u64 now)
{
	__u64 busy, next = q->ahead_ns + q->ahead_gap, rate;

	if (p->priority <= q->ahead_priority || now - q->ahead_ns >= BBQ_AHEAD_NS)
		return 0;
	rate = bbq_rate(in, iface, ses);
	/* Both products are below 2^64: factors below 2^32, and packets below 2^34 bytes. */
	if (q->ahead_slack * (rate < ~0U ? rate : ~0U) >= p->len * BB_NSEC_PER_SEC ||
	    now >= next + BBQ_OVERDUE_NS)
		return 0;
	if (!p->deadline || p->treatment == BB_TREAT_FORWARD)
		return 0;
	busy = bb_tx_time(p->len, rate);
	if (bbq_free_at(in, now) + busy + BBQ_TRIAGE_MARGIN_NS <= next + q->ahead_slack)
		return 0;
	return next + BBQ_OVERDUE_NS;
}

#endif /* BBQ_TRIAGE_BPF_H */
