/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_tc_ask.h - mode tc: the decision about a packet. bb_tc_model.h has the rules, and what
 * they are decided by.
 */
#ifndef BB_TC_ASK_H
#define BB_TC_ASK_H

#include "bb_tc_model.h"

/*
 * Does what would be sent by `finish` leave room for the large ADUs that are expected,
 * of the same and of greater importance? What the link would be idle without does.
 */
bb_inline int bb_tc_leaves_room(const struct bb_tc_model *model, const struct bb_tc_request *r,
				__u64 finish, __u64 slack, __u64 stretch)
{
	__u32 leaf = r->leaf & (BB_TC_LEAVES - 1), priority = r->priority & (BB_PRIORITIES - 1);
	__u64 load = model->before[leaf] + model->priority[priority].beside;
	/* When it is gone, together with more important ADUs that come into its leaf until then. */
	__u64 over = finish * 1024 / (1024 - bb_min(load, BB_TC_LOAD_MAX));

	for (__u32 i = 0; i < BB_PRIORITIES; i++) {
		const struct bb_tc_priority *m = &model->priority[i];
		__u64 wait = m->large_at_ns > r->now ? m->large_at_ns - r->now : 0, room;

		if (i > priority)
			break;
		if (!m->large_ns || r->now > m->large_until_ns)
			continue;
		if (m->large_leaf < leaf) {
			/* It overtakes. */
			if (finish > wait &&
			    finish + (m->large_ns * stretch >> 10) + BB_TC_MARGIN_NS > slack)
				return 0;
			continue;
		}
		/* For its own stream, what follows it counts for more than what leads up to it. */
		room = m->large_ns * stretch >> 10;
		if (!m->large_sure)
			room = bb_min(room, m->large_slack_ns / 4 * 3);
		else if (m->large_stream == r->stream)
			room = bb_max(room, m->large_slack_ns - m->large_slack_ns / 8);
		if ((i < priority ? over : finish) + room + BB_TC_MARGIN_NS >
			    wait + m->large_slack_ns &&
		    (m->large_sure || model->ahead[leaf] > r->gap_ns))
			return 0;
	}
	return 1;
}

/* By how long one packet of a less urgent leaf may hold each leaf up. */
bb_inline void bb_tc_block(struct bb_tc_model *model)
{
	__u64 blocked = 0;

	if (!model->queued_ns)
		return;
	BB_UNROLL
	for (__u32 i = BB_TC_LEAF_PLAIN; i > 0; i--) {
		/* No longer than what is there, no longer than its largest packet. */
		blocked = bb_max(blocked, bb_min(model->queue[i], model->largest[i]));
		model->blocked[i - 1] = blocked;
	}
}

/* 3a and 3b of the top: BB_TC_ADMIT or a reason. */
bb_inline int bb_tc_fits(struct bb_tc_model *model, struct bb_tc_request *r)
{
	__u64 load, promised = 0, stretch, slack, finish, alone, spread;
	__u32 leaf = r->leaf & (BB_TC_LEAVES - 1), priority = r->priority & (BB_PRIORITIES - 1);
	int plain = model->plain_ns && r->now - model->plain_ns < BB_NSEC_PER_SEC;
	/*
	 * What media have while plain traffic takes its own, in per cent. Where the rest of
	 * what is never refused goes there will be plain traffic, of such packets.
	 */
	__u32 own = plain || r->never ? 100 - r->plain_share : 100;
	__u64 rest = r->never ? r->packet_ns : 0, blocked;

	bb_tc_block(model);
	blocked = bb_max(rest, model->blocked[leaf]);
	load = bb_min(model->before[leaf], BB_TC_LOAD_MAX);
	/* How much longer all takes beside plain and more urgent traffic, in 1/1024. */
	stretch = (100ULL << 20) / (own * (1024 - load));
	slack = r->latest > r->now ? r->latest - r->now : 0;

	/* An ADU that begins leaves what was promised to those before it. */
	if (r->begins) {
		for (__u32 i = 0; i < BB_PRIORITIES; i++) {
			struct bb_tc_priority *m = &model->priority[i];

			if (i > priority)
				break;
			if (m->leaf <= leaf)
				promised += m->promised_ns + m->promised_before_ns;
		}
		promised = bb_min(promised, 1ULL << 40);
	}

	/*
	 * While its packets come, others fill the leaf before the last of them. Where
	 * nobody waits, nobody does.
	 */
	finish = model->ahead[leaf] + promised;
	spread = r->begins ? bb_min(finish, model->priority[priority].spread_ns) : 0;
	finish += r->need_ns;
	alone = (finish * 100 / own) + spread + blocked;
	finish += bb_max(finish * (stretch - 1024) >> 10, spread) + blocked;
	if (finish + BB_TC_MARGIN_NS > slack) {
		/* Would it fit beside what is more urgent if nothing else were there? */
		if (!r->has_ns || alone + BB_TC_MARGIN_NS > slack)
			return BB_DROP_PREDICTED;
		/* What was begun is not given up for that. */
		if (r->begins && load <= BB_TC_ORDER_LOAD &&
		    (r->size_ns * stretch >> 10) + BB_TC_MARGIN_NS <= r->has_ns / 8 * 5)
			return BB_DROP_PREDICTED;
		r->tight = 1;
		finish = alone;
		stretch = (100 << 10) / own;
	}
	if (r->begins && !r->large && !bb_tc_leaves_room(model, r, finish, slack, stretch))
		return BB_DROP_PREDICTED;

	for (__u32 i = 0; i < BB_PRIORITIES; i++) {
		struct bb_tc_priority *m = &model->priority[i];
		__u32 at = m->leaf & (BB_TC_LEAVES - 1);
		__u64 total;

		if (i >= priority)
			break;
		if (r->now - m->seen_ns > BB_TC_RECENT_NS)
			continue;
		if (m->leaf < leaf) {
			if (r->tight &&
			    (r->now - m->parts_ns < BB_TC_RECENT_NS ||
			     finish - spread + m->burst_ns + BB_TC_MARGIN_NS > m->slack_ns))
				return BB_DROP_PREDICTED;
			continue;
		}
		/*
		 * In its own leaf every later packet of the ADU is asked again, so the
		 * discount stands; from a less urgent one m sees all of it go first.
		 */
		total = model->ahead[at] + promised + m->burst_ns;
		total += at == leaf ? r->need_ns : r->whole_ns;
		/* As its own finish will be stretched; no less, or it is refused when it comes. */
		total = (total * stretch >> 10) + bb_max(rest, model->blocked[at]);
		if (total + BB_TC_MARGIN_NS > m->slack_ns)
			return BB_DROP_PREDICTED;
		if (at > leaf && model->queue[at] && r->need_ns > m->spare_ns)
			return BB_DROP_PREDICTED;
	}
	if (r->tight) {
		model->tight_until_ns = bb_max(model->tight_until_ns, r->now + finish);
		model->tight_leaf = leaf;
		model->tight_priority = priority;
		model->tight_cap_ns = r->cap_ns;
	}
	return BB_TC_ADMIT;
}

/*
 * Waits for an ADU that fitted only on that condition (8 of the top), in its leaf, if it can;
 * else 0. Its own leaf bounds how long.
 */
bb_inline int bb_tc_yields(struct bb_tc_model *model, struct bb_tc_request *r)
{
	__u32 leaf = model->tight_leaf & (BB_TC_LEAVES - 1);

	if (r->now >= model->tight_until_ns || r->parts || r->priority >= model->tight_priority ||
	    r->leaf >= leaf || r->late_leaf < leaf)
		return 0;
	if (r->now + model->ahead[leaf] + r->packet_ns + BB_TC_MARGIN_NS > r->latest ||
	    model->queue[leaf] + r->packet_ns > model->tight_cap_ns)
		return 0;
	r->yields = 1;
	r->load_leaf = r->leaf;
	if (model->load[r->leaf & 15] > BB_TC_ORDER_LOAD)
		model->tight_until_ns =
			bb_max(model->tight_until_ns, r->now + model->ahead[leaf] + r->packet_ns);
	r->leaf = leaf;
	r->cap_ns = model->tight_cap_ns;
	return 1;
}

/*
 * Admits a packet to the model or refuses it: BB_TC_ADMIT or a reason. The
 * caller holds the model's lock.
 */
bb_inline int bb_tc_ask(struct bb_tc_model *model, struct bb_tc_request *r)
{
	struct bb_tc_priority *p = &model->priority[r->priority & (BB_PRIORITIES - 1)];
	__u32 leaf = r->leaf & 15;
	__u64 slack;
	int verdict = BB_TC_ADMIT;

	if (model->ifindex != r->ifindex || model->rate != r->rate)
		bb_tc_begin(model, r);
	bb_tc_drain(model, r->now, r->plain_share);
	/* Read before the lock was had: another CPU may have come later, and first. No age wraps. */
	if (r->now < model->updated_ns)
		r->now = model->updated_ns;
	bb_tc_windows(model, r->now);
	bb_tc_sum(model);
	r->queued_ns = model->queued_ns;

	if (r->idle && r->queued_ns)
		return BB_DROP_STALE;
	if (leaf >= BB_TC_LEAF_PLAIN)
		return bb_tc_to_plain(model, r);
	/* Its own bytes count, too: one GSO packet may be longer than the window. */
	if (r->signalling && model->given[0] + r->packet_ns > BB_TC_WINDOW_NS / BB_TC_ANYBODY_SHARE)
		return bb_tc_to_plain(model, r);
	if (r->tcp && model->given_tcp + r->packet_ns > BB_TC_WINDOW_NS / BB_TC_ANYBODY_SHARE)
		return bb_tc_to_plain(model, r);

	if (r->latest && r->begins && r->stream)
		bb_tc_expect(model, r);
	if (r->latest && bb_tc_yields(model, r))
		leaf = r->leaf & 15;
	else if (r->latest)
		verdict = bb_tc_fits(model, r);
	if (verdict == BB_TC_ADMIT && model->queue[leaf] + r->packet_ns > r->cap_ns)
		verdict = BB_DROP_OVERFLOW;
	/* What is never refused teaches only what it was given. */
	if (r->latest && (!r->never || verdict == BB_TC_ADMIT))
		bb_tc_learn(p, r);
	if (verdict != BB_TC_ADMIT) {
		bb_tc_keep(p, r, 0);
		return r->never ? bb_tc_to_plain(model, r) : verdict;
	}

	if (r->latest) {
		/* How much delay the packets of this priority in this leaf can still bear. */
		__u64 before = model->ahead[leaf] + r->packet_ns;

		slack = bb_tc_bears(r, r->latest > r->now ? r->latest - r->now : 0);
		slack = slack > before ? slack - before : 0;
		if (!model->queue[leaf] || slack < p->spare_ns)
			p->spare_ns = slack;
		bb_tc_keep(p, r, r->more_ns);
	}
	if (r->tcp)
		model->given_tcp += r->packet_ns;
	bb_tc_take(model, r, r->cap_ns);
	return BB_TC_ADMIT;
}

#endif /* BB_TC_ASK_H */
