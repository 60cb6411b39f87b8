/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a plan of one session reckons with: rates, the turns of other sessions, the
 * part of the link that others have, time to spare.
 */
#ifndef BBQ_PLAN_BPF_H
#define BBQ_PLAN_BPF_H

#include "bbq_drop.bpf.h"

/* Lateness of timers, and of who sends, that a plan allows for. */
#define BBQ_TRIAGE_MARGIN_NS 200000ULL
/* A packet more important than others is expected for this long after the last one. */
#define BBQ_AHEAD_NS 100000000ULL
/* Bytes per ns as a fixed-point number, at most 64 bytes/ns; times 8.6 s it is below 2^63. */
#define BBQ_LOAD_SHIFT 24
#define BBQ_LOAD_MAX (64U << BBQ_LOAD_SHIFT)
#define BBQ_LOAD_NS (1ULL << 33)
#define BBQ_INV_MAX (1ULL << 40)

/* All of the most important is planned as going first if it takes such a part of the link at most. */
#define BBQ_RESERVE_SHIFT 3

/* Bytes of the other group per byte of the own one, as a fixed-point number. */
#define BBQ_PART_SHIFT 10
/* A group that has had something queued for longer is taken to have so for good. */
#define BBQ_STANDING_NS 20000000ULL

/*
 * ns until `own` bytes of the session whose turn it is have left. Before each of
 * its further turns every other session has one, but sends no more than it holds
 * now: signalling, or a lone TCP segment, must not count as a full share.
 */
bb_inline __u64 bbq_until(const struct bbq_plan *plan, __u64 own)
{
	__u64 turns = (own + plan->used) / bbq_quantum, deep = turns * plan->round;
	__u64 others = deep < plan->deep_bytes ? deep : plan->deep_bytes;
	__u64 before = own + others + (turns ? plan->shallow_bytes : 0);
	__u64 group = before * plan->group_part >> BBQ_PART_SHIFT;
	__u64 session = own * plan->inv_session, link;

	before += group < plan->group_bytes ? group : plan->group_bytes;
	link = before * plan->inv_link;
	return (link > session ? link : session) >> BBQ_INV_SHIFT;
}

/* When a packet begins to leave behind so many bytes, if the link is free now. */
bb_inline __u64 bbq_begins(const struct bbq_plan *plan, __u64 now, __u64 before)
{
	return before ? now + BBQ_TRIAGE_MARGIN_NS + bbq_until(plan, before) : now;
}

/* Triage decides what is given up: it knows a rate. */
bb_inline int bbq_plans(struct bb_iface *iface, __u64 rate)
{
	return iface->method == BB_TRIAGE && rate;
}

/*
 * Time that what is more important than usual should have to spare: no plan is
 * as exact as its rate and its owd, and those must not lose by it. One owd, so
 * that the way may be twice as long as is believed, and at most an eighth of what
 * the packet could wait then. The order takes it for due so much earlier
 * (bbq_early), and a plan keeps it free (bbq_due). No owd is above
 * BB_LIFETIME_MAX_NS, so twice that does not wrap. docs/triage.md, "All of the
 * spare time".
 */
bb_inline __u64 bbq_spare(__u32 priority, __u64 deadline, __u64 owd, __u64 now)
{
	__u64 spare;

	if (priority >= BB_PRIORITY_DEFAULT || !deadline || bb_stale(now, 2 * owd, deadline))
		return 0;
	spare = (deadline - 2 * owd - now) >> 3;
	return spare < owd ? spare : owd;
}

/* In steps of 1.05 ms: a burst has one place in the order. */
bb_inline __u64 bbq_early(__u32 priority, __u64 deadline, __u64 owd, __u64 now)
{
	return bbq_spare(priority, deadline, owd, now) & ~0xFFFFFULL;
}

/*
 * What the sessions of other groups and users cost. Media leave users their part;
 * users are planned as if media took all the rest, and as if each of the session's
 * turns waited for a full turn of every other user.
 */
bb_inline void bbq_plan_others(struct bbq_plan *plan, struct bbq_instance *in,
			       struct bb_iface *iface, struct bbq_queue *q, struct bbq_user *u)
{
	__u32 share = iface->plain_share < 99 ? iface->plain_share : 99, rest = 100 - share;
	__u64 from;

	if (q->user == BBQ_MEDIA) {
		int deep = q->bytes > bbq_quantum;

		plan->deep_bytes = u->deep_bytes - (deep ? q->bytes : 0);
		plan->shallow_bytes = u->bytes - u->deep_bytes - (deep ? 0 : q->bytes);
		plan->round = (__u64)(u->deep - deep) * bbq_quantum;
		plan->group_bytes = in->plain_bytes;
		plan->group_part = (share << BBQ_PART_SHIFT) / rest;
		from = in->plain_from_ns;
	} else {
		__u64 sessions = (__u64)(u->active ?: 1) * (in->users.members ?: 1);

		plan->deep_bytes = in->plain_bytes - q->bytes;
		plan->shallow_bytes = 0;
		plan->round = (sessions - 1) * bbq_quantum;
		plan->group_bytes = in->media.bytes;
		plan->group_part = (rest << BBQ_PART_SHIFT) / (share ?: 1);
		from = in->media_from_ns;
	}
	if (plan->group_bytes && plan->now - from > BBQ_STANDING_NS)
		plan->group_bytes = ~0ULL;
}

bb_inline void bbq_plan_of(struct bbq_plan *plan, struct bbq_instance *in, struct bb_iface *iface,
			   struct bbq_queue *q, struct bbq_user *u, struct bb_session *ses)
{
	__u64 others, link = bbq_link_rate(in, iface);

	plan->owd = ses->owd_ns;
	plan->inv_link = 0;
	plan->inv_session = 0;
	if (link) {
		if (in->inv_of != link) {
			in->inv_of = link;
			in->inv = bbq_inverse(link);
		}
		plan->inv_link = in->inv;
	}
	if (ses->rate && (!link || ses->rate < link))
		plan->inv_session = bbq_inverse(ses->rate);
	bbq_plan_others(plan, in, iface, q, u);
	plan->used =
		bbq_quantum - q->m.deficit; /* it is its turn: the deficit is 1 to bbq_quantum */
	plan->inv = plan->inv_link > plan->inv_session ? plan->inv_link : plan->inv_session;
	others = 1 + plan->round / bbq_quantum;
	plan->inv_turns = plan->inv * others < BBQ_INV_MAX ? plan->inv * others : BBQ_INV_MAX;
	plan->load = plan->now - q->ahead_ns < BBQ_AHEAD_NS ? q->ahead_load : 0;
	/* Bytes/ns and ns/byte, both as fixed-point numbers; below 2^30 times 2^30. */
	plan->reserves =
		plan->load &&
		plan->load * plan->inv <
			1ULL << (BBQ_LOAD_SHIFT + BBQ_INV_SHIFT - BBQ_RESERVE_SHIFT) / others;
}

#endif /* BBQ_PLAN_BPF_H */
