/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Order inside a session: lists of ADUs sorted by key, ties in order of
 * arrival; the packets of one ADU hang below its first one, in order of
 * arrival. (The classifier gives all packets of an ADU the same deadline.)
 *
 * Insertion is exact and short:
 *  1. A packet joins its ADU by that one's id, if a packet of it came lately.
 *  2. Packets of one lifetime come in order of their deadlines: the place is the end.
 *  3. Else the lanes are walked, from the end: a skip list. Of the ADUs of all lists,
 *     in order of list and key, one in four is in the first lane, one in four of
 *     those in the second, and so on. The time of arrival draws them, so no sender
 *     knows which; 2,000 ADUs take some 20 steps.
 * A walk has an end (BBQ_WORK_FIND). It is reached with thousands of ADUs in one
 * session in an order that nothing but an attack has. The packet then goes where the
 * walk has come to, as if it were due then: it leaves late, and its session pays.
 */
#ifndef BBQ_ORDER_BPF_H
#define BBQ_ORDER_BPF_H

#include "bbq_state.bpf.h"

/* With fewer packets in a session a walk along its list is short enough. */
#define BBQ_LANES_FROM 8

/* Where the first packet of ADU `adu` is remembered; another one may be there. */
bb_inline __u32 *bbq_recent(struct bbq_queue *q, __u32 adu)
{
	return &q->recent[adu * 0x9E3779B1U >> (32 - BBQ_RECENT_SHIFT)];
}

/* How many lanes a new ADU is in: packet `idx` at `now`, as by chance. */
bb_inline __u32 bbq_lanes_of(const struct bbq_queue *q, __u32 idx, __u64 now)
{
	__u32 chance = ((__u32)now ^ idx) * 0x9E3779B1U, lanes = 0;

	if (q->qlen <= BBQ_LANES_FROM)
		return 0;
	for (int k = 0; k < BBQ_LANES && !(chance >> 30); k++) {
		chance <<= 2;
		lanes++;
	}
	return lanes;
}

/* Takes p out of its lanes. */
bb_inline void bbq_lanes_out(struct bbq_queue *q, struct bbq_packet *p)
{
	for (int k = 0; k < BBQ_LANES; k++) {
		struct bbq_packet *before, *n;

		if (k >= p->lanes)
			break;
		before = bbq_packet_at(p->lane[k].prev);
		n = bbq_packet_at(p->lane[k].next);
		if (before)
			before->lane[k].next = p->lane[k].next;
		if (n)
			n->lane[k].prev = p->lane[k].prev;
		else
			q->lane_tail[k] = p->lane[k].prev;
	}
	p->lanes = 0;
}

/* The same, as a call: few ADUs are in any. */
static __noinline int bbq_lanes_leave(struct bbq_queue *q, struct bbq_packet *p)
{
	bbq_lanes_out(q, p);
	return 0;
}

/* The ADU behind a, or the first one of list l where there is no a. */
bb_inline __u32 bbq_behind(struct bbq_queue *q, __u32 l, struct bbq_packet *a)
{
	__u32 next = q->head[l];

	/* Else clang selects an address before it is known to be one, and loads once. */
	asm volatile("" : "+r"(next));
	if (a)
		next = a->next;
	return next;
}

/* Puts ADU `idx` behind `after` (BBQ_NONE: in front) of list l. */
bb_inline void bbq_link(struct bbq_queue *q, __u32 l, __u32 idx, struct bbq_packet *p, __u32 after,
			struct bbq_packet *a)
{
	struct bbq_packet *n;
	__u32 next = bbq_behind(q, l, a);

	p->prev = after;
	p->next = next;
	p->list = l;
	if (a)
		a->next = idx;
	else
		q->head[l] = idx;
	n = bbq_packet_at(next);
	if (n)
		n->prev = idx;
	else
		q->tail[l] = idx;
	q->nonempty |= 1U << l;
}

/* Takes ADU p, whose first packet is idx, out of its list; its chain is the caller's. */
static __noinline int bbq_unlink(struct bbq_queue *q, struct bbq_packet *p, __u32 idx)
{
	struct bbq_packet *before = bbq_packet_at(p->prev);
	struct bbq_packet *n = bbq_packet_at(p->next);
	__u32 l = p->list;

	if (l >= BBQ_LISTS)
		return 0;
	bbq_lanes_out(q, p);
	if (p->adu && *bbq_recent(q, p->adu) == idx)
		*bbq_recent(q, p->adu) = BBQ_NONE;
	if (q->least == idx)
		q->least = BBQ_NONE;
	if (q->looked == idx)
		q->looked = p->next;
	if (before)
		before->next = p->next;
	else
		q->head[l] = p->next;
	if (n)
		n->prev = p->prev;
	else
		q->tail[l] = p->prev;
	if (!before && !n)
		q->nonempty &= ~(1U << l);
	return 0;
}

/* What it means for the plan that the first packet of the list's first ADU, `idx`, is sent. */
bb_inline void bbq_walk_sent(struct bbq_queue *q, const struct bbq_packet *p, __u32 idx)
{
	struct bbq_walk *walk = &q->walk;

	if (p->list || walk->at == BBQ_NONE)
		return;
	if (walk->at == idx)
		walk->at = p->chain ?: p->next;
	else
		walk->bytes -= p->len;
	if (walk->victim != idx)
		return;
	walk->victim = p->chain;
	walk->begun = 1;
	if (!p->chain)
		walk->at = BBQ_NONE;
}

/* The same of a packet that came: `idx`, of the ADU `first`. What is to be looked at yet may change. */
bb_inline void bbq_walk_grown(struct bbq_queue *q, const struct bbq_packet *p, __u32 idx,
			      __u32 first)
{
	struct bbq_packet *at = bbq_packet_at(q->walk.at), *f;

	if (!at || first == q->walk.at)
		return;
	f = bbq_packet_at(first);
	if (!f || f->key < at->key || (first != idx && f->key == at->key))
		q->walk.at = BBQ_NONE;
}

/*
 * Takes the first packet of ADU p, `sent`, which is the head of its list, out to be
 * sent; the next packet of the ADU inherits its place.
 */
bb_inline void bbq_pop(struct bbq_queue *q, struct bbq_packet *p, __u32 sent)
{
	__u32 successor = p->chain, next = p->next, head = next, l = p->list;
	struct bbq_packet *h = bbq_packet_at(successor), *n;

	if (l >= BBQ_LISTS)
		return;
	q->begun = p->adu;
	bbq_walk_sent(q, p, sent);
	if (p->lanes)
		bbq_lanes_leave(q, p);
	if (h) {
		h->chain_tail = p->chain_tail;
		h->adu_bytes = p->adu_bytes - p->len;
		h->last_len = p->last_len;
		h->key = p->key;
		h->flags |= BBQ_F_BEGUN | (p->flags & BBQ_F_SPARED);
		h->list = l;
		h->next = next;
		h->prev = BBQ_NONE;
		h->lanes = 0;
		head = successor;
	}
	if (p->adu && *bbq_recent(q, p->adu) == sent)
		*bbq_recent(q, p->adu) = successor;
	if (q->least == sent)
		q->least = successor;
	if (q->looked == sent)
		q->looked = head;
	q->head[l] = head;
	n = bbq_packet_at(next);
	if (n)
		n->prev = successor;
	else
		q->tail[l] = successor;
	if (!head)
		q->nonempty &= ~(1U << l);
}

/* p joins the ADU whose first packet is a. */
bb_inline void bbq_join(struct bbq_packet *a, __u32 a_idx, struct bbq_packet *p, __u32 idx)
{
	struct bbq_packet *last = bbq_packet_at(a->chain_tail);

	if (last && a->chain_tail != a_idx)
		last->chain = idx;
	else
		a->chain = idx;
	a->chain_tail = idx;
	a->flags |= p->flags & BBQ_F_SPARED;
	a->adu_bytes += p->len;
	a->last_len = p->len;
}

/* Puts ADU idx into its lanes, at the places that bbq_find left. */
__noinline int bbq_lanes_in(__u32 inst, __u32 session, __u32 idx)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_packet *p = bbq_packet_at(idx);

	if (!q || !in || !p)
		return 0;
	for (int k = 0; k < BBQ_LANES; k++) {
		struct bbq_packet *before, *n;

		if (k >= p->lanes)
			break;
		p->lane[k] = in->place[k];
		before = bbq_packet_at(p->lane[k].prev);
		n = bbq_packet_at(p->lane[k].next);
		if (before)
			before->lane[k].next = idx;
		if (n)
			n->lane[k].prev = idx;
		else
			q->lane_tail[k] = idx;
	}
	return 0;
}

/*
 * The ADU of list l behind which packet idx belongs (BBQ_NONE: it is the first); leaves its
 * places in the lanes in in->place.
 */
__noinline __u32 bbq_find(__u32 inst, __u32 session, __u32 idx, __u32 l)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_packet *p = bbq_packet_at(idx), *a, *beyond = 0;
	__u32 at, beyond_idx = BBQ_NONE, k;
	int found = 0;
	__s32 work;
	__u64 key;

	if (!q || !in || !p || l >= BBQ_LISTS)
		return BBQ_NONE;
	key = p->key;
	work = (in->work > 0 ? in->work : 0) + BBQ_WORK_FIND;
	in->lane = BBQ_LANES - 1;
	while (work > 0 && bb_can_loop) {
		work -= BBQ_WORK_STEP;
		k = *(volatile __u32 *)&in->lane;
		bb_mask(k, BBQ_LANES - 1);
		at = beyond ? beyond->lane[k].prev : q->lane_tail[k];
		a = bbq_packet_at(at);
		if (a && (a->list > l || (a->list == l && a->key > key))) {
			beyond = a;
			beyond_idx = at;
			continue;
		}
		in->place[k].prev = at;
		in->place[k].next = beyond_idx;
		if (!k) {
			found = 1;
			break;
		}
		in->lane = k - 1;
	}
	bb_keep_check(l);
	if (l >= BBQ_LISTS)
		return BBQ_NONE;
	at = q->tail[l];
	asm volatile("" : "+r"(at));
	if (beyond && beyond->list == l)
		at = beyond->prev;
	while (bb_can_loop) {
		a = bbq_packet_at(at);
		if (!a || a->key <= key)
			break;
		if (work <= 0) {
			p->key = a->key;
			break;
		}
		work -= BBQ_WORK_STEP;
		at = a->prev;
	}
	in->work = work - BBQ_WORK_FIND;
	if (!found)
		p->lanes = 0;
	return at;
}

/* ADUs that bbq_find_first passes by. */
#define BBQ_FIRST 48
#define BBQ_LOST (~0U)

/*
 * The same for a packet that was given up and is back. It was among the first, and in a list without lanes the
 * way from the end is long. BBQ_LOST: it is not found.
 */
__noinline __u32 bbq_find_first(__u32 inst, __u32 session, __u32 idx, __u32 l)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_packet *p = bbq_packet_at(idx), *a;
	__u32 at, before = BBQ_NONE;

	if (!q || !in || !p || l >= BBQ_LISTS)
		return BBQ_NONE;
	at = q->head[l];
	for (__u32 n = bb_zero; n < BBQ_FIRST && bb_can_loop; n++) {
		a = bbq_packet_at(at);
		if (!a || a->key > p->key)
			return before;
		in->work -= BBQ_WORK_STEP / 2;
		before = at;
		at = a->next;
	}
	return BBQ_LOST;
}

/*
 * Inserts packet idx into list l of the session's queue, and into as many lanes as
 * p->lanes says; `adu` is what it may join. Returns the first packet of its ADU (idx itself, if it is alone).
 */
bb_inline __u32 bbq_insert(__u32 inst, struct bbq_instance *in, struct bbq_queue *q,
			   struct bbq_packet *p, __u32 idx, __u32 l, __u32 adu)
{
	__u32 here, i;
	struct bbq_packet *at;

	if (l >= BBQ_LISTS)
		return BBQ_NONE;
	p->chain = BBQ_NONE;
	p->chain_tail = idx;
	p->adu_bytes = p->len;
	p->last_len = p->len;
	if (adu) {
		i = *bbq_recent(q, adu);
		at = bbq_packet_at(i);
		if (at && at->adu == adu && at->priority == p->priority && at->list == l) {
			p->lanes = 0;
			bbq_join(at, i, p, idx);
			return i;
		}
	}
	here = q->tail[l];
	at = bbq_packet_at(here);
	if (!at) {
		p->lanes = 0;
	} else if (p->lanes || at->key > p->key) {
		here = p->flags & BBQ_F_TRUNCATED ? bbq_find_first(inst, p->session, idx, l) :
						    BBQ_LOST;
		if (here == BBQ_LOST)
			here = bbq_find(inst, p->session, idx, l);
		if (p->lanes)
			bbq_lanes_in(inst, p->session, idx);
		at = bbq_packet_at(here);
	}
	if (adu) {
		/* Of several ADUs with this very deadline, ours may be any. */
		struct bbq_packet *step = at;

		for (i = here;
		     step && step->key == p->key && in->work > -BBQ_WORK_FIND && bb_can_loop;) {
			in->work -= BBQ_WORK_STEP;
			if (step->adu == adu && step->priority == p->priority) {
				if (p->lanes)
					bbq_lanes_leave(q, p);
				bbq_join(step, i, p, idx);
				*bbq_recent(q, adu) = i;
				return i;
			}
			i = step->prev;
			step = bbq_packet_at(i);
		}
		*bbq_recent(q, adu) = idx;
	}
	bbq_link(q, l, idx, p, here, at);
	return idx;
}

#endif /* BBQ_ORDER_BPF_H */
