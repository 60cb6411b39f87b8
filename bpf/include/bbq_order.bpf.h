/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Order inside a session: lists of ADUs sorted by key, ties in order of
 * arrival; the packets of one ADU hang below its first one, in order of
 * arrival. (The classifier gives all packets of an ADU the same deadline.)
 *
 * Insertion is exact and, for media, short: packets of one lifetime arrive in
 * order of their deadlines, so each lifetime in use has a front that moves
 * forward. The tail is the front of the longest one; up to BBQ_FINGERS others
 * are remembered as fingers, and a search starts at the nearest one. Deadlines
 * without any order cost a walk. Where that takes too long the packet goes where
 * the walk has come to, as if it were due then.
 */
#ifndef BBQ_ORDER_BPF_H
#define BBQ_ORDER_BPF_H

#include "bbq_state.bpf.h"

/* Steps back from the tail before the fingers are asked: jitter between flows. */
#define BBQ_TAIL_STEPS 1

/* A walk longer than this means that no finger stood near: take another one. */
#define BBQ_FINGER_STEPS 8

bb_inline void bbq_finger_set(struct bbq_queue *q, __u32 f, struct bbq_slot *s, __u32 idx)
{
	struct bbq_slot *old;

	f &= BBQ_FINGERS - 1;
	if (s->finger) /* an older finger may point here already: one is enough */
		return;
	old = bbq_slot_at(q->finger[f]);
	if (old && old->finger == f + 1)
		old->finger = 0;
	q->finger[f] = idx;
	q->finger_key[f] = s->key;
	q->finger_list[f] = s->list;
	s->finger = f + 1;
}

/* s leaves its place; `heir` (0 = none) has the same key and takes over its finger. */
bb_inline void bbq_finger_clear(struct bbq_queue *q, struct bbq_slot *s, struct bbq_slot *heir,
				__u32 heir_idx)
{
	__u32 f;

	if (!s->finger)
		return;
	f = (s->finger - 1) & (BBQ_FINGERS - 1);
	s->finger = 0;
	q->finger[f] = heir_idx;
	if (heir)
		heir->finger = f + 1;
}

/* The ADU behind a, or the first one of list l where there is no a. */
bb_inline __u32 bbq_behind(struct bbq_queue *q, __u32 l, struct bbq_slot *a)
{
	__u32 next = q->head[l];

	/* Else clang selects an address before it is known to be one, and loads once. */
	asm volatile("" : "+r"(next));
	if (a)
		next = a->next;
	return next;
}

/* Puts ADU `idx` behind `after` (BBQ_NONE: in front) of list l. */
bb_inline void bbq_link(struct bbq_queue *q, __u32 l, __u32 idx, struct bbq_slot *s, __u32 after,
			struct bbq_slot *a)
{
	struct bbq_slot *n;
	__u32 next = bbq_behind(q, l, a);

	s->prev = after;
	s->next = next;
	s->list = l;
	if (a)
		a->next = idx;
	else
		q->head[l] = idx;
	n = bbq_slot_at(next);
	if (n)
		n->prev = idx;
	else
		q->tail[l] = idx;
	q->nonempty |= 1U << l;
}

/* Takes ADU s out of its list; its chain is the caller's. */
bb_inline void bbq_unlink(struct bbq_queue *q, struct bbq_slot *s)
{
	struct bbq_slot *p = bbq_slot_at(s->prev);
	struct bbq_slot *n = bbq_slot_at(s->next);
	__u32 l = s->list;

	if (l >= BBQ_LISTS)
		return;
	bbq_finger_clear(q, s, 0, BBQ_NONE);
	if (p)
		p->next = s->next;
	else
		q->head[l] = s->next;
	if (n)
		n->prev = s->prev;
	else
		q->tail[l] = s->prev;
	if (!p && !n)
		q->nonempty &= ~(1U << l);
}

/* What it means for the plan that the first packet of the list's first ADU, `idx`, is sent. */
bb_inline void bbq_walk_sent(struct bbq_queue *q, const struct bbq_slot *s, __u32 idx)
{
	struct bbq_walk *walk = &q->walk;

	if (s->list)
		return;
	if (walk->at == idx)
		walk->at = s->chain ?: s->next;
	else
		walk->bytes -= s->len;
	if (walk->victim != idx)
		return;
	walk->victim = s->chain;
	walk->begun = 1;
	if (!s->chain)
		walk->at = BBQ_NONE;
}

/* The same of a packet that came: slot `idx`, of the ADU `first`. What is to be looked at yet may change. */
bb_inline void bbq_walk_grown(struct bbq_queue *q, const struct bbq_slot *s, __u32 idx, __u32 first)
{
	struct bbq_slot *at = bbq_slot_at(q->walk.at), *f;

	if (!at || first == q->walk.at)
		return;
	f = bbq_slot_at(first);
	if (!f || f->key < at->key || (first != idx && f->key == at->key))
		q->walk.at = BBQ_NONE;
}

/* Takes the first packet of ADU s out to be sent; the next packet of the ADU inherits its place. */
bb_inline void bbq_pop(struct bbq_queue *q, struct bbq_slot *s, __u32 sent)
{
	struct bbq_slot *h = bbq_slot_at(s->chain);
	struct bbq_slot *p, *n;
	__u32 idx = s->chain;
	__u32 l = s->list;

	q->begun = s->adu;
	bbq_walk_sent(q, s, sent);
	if (!h) {
		bbq_unlink(q, s);
		return;
	}
	if (l >= BBQ_LISTS)
		return;
	h->chain_tail = s->chain_tail;
	h->adu_bytes = s->adu_bytes - s->len;
	h->last_len = s->last_len;
	h->key = s->key;
	h->flags |= BBQ_F_BEGUN;
	h->list = l;
	h->next = s->next;
	h->prev = s->prev;
	bbq_finger_clear(q, s, h, idx);
	p = bbq_slot_at(s->prev);
	if (p)
		p->next = idx;
	else
		q->head[l] = idx;
	n = bbq_slot_at(s->next);
	if (n)
		n->prev = idx;
	else
		q->tail[l] = idx;
}

/* s joins the ADU whose first packet is a. */
bb_inline void bbq_join(struct bbq_slot *a, __u32 a_idx, struct bbq_slot *s, __u32 idx)
{
	struct bbq_slot *last = bbq_slot_at(a->chain_tail);

	if (last && a->chain_tail != a_idx)
		last->chain = idx;
	else
		a->chain = idx;
	a->chain_tail = idx;
	a->adu_bytes += s->len;
	a->last_len = s->len;
}

/*
 * Inserts the filled slot idx into list l of the session's queue.
 * Returns the first packet of its ADU (idx itself, if it is alone).
 */
bb_inline __u32 bbq_insert(struct bbq_instance *in, struct bbq_queue *q, struct bbq_slot *s,
			   __u32 idx, __u32 l)
{
	struct bbq_slot *at, *step;
	__u32 here = BBQ_NONE, best = BBQ_FINGERS, steps = bb_zero;
	__u64 key, best_key = 0;

	if (l >= BBQ_LISTS)
		return BBQ_NONE;
	key = s->key;
	s->chain = BBQ_NONE;
	s->chain_tail = idx;
	s->adu_bytes = s->len;
	s->last_len = s->len;
	s->finger = 0;

	/* The last ADU with a key not above ours: first from the tail ... */
	here = q->tail[l];
	at = bbq_slot_at(here);
	while (at && at->key > key && steps < BBQ_TAIL_STEPS && bb_can_loop) {
		here = at->prev;
		at = bbq_slot_at(here);
		steps++;
	}

	if (at && at->key > key) { /* ... then from the nearest finger, or the head. */
		for (__u32 f = 0; f < BBQ_FINGERS; f++) {
			__u64 fkey = q->finger_key[f];

			if (q->finger[f] && q->finger_list[f] == l && fkey <= key &&
			    fkey >= best_key) {
				best = f;
				best_key = fkey;
			}
		}
		if (best < BBQ_FINGERS) {
			here = q->finger[best & (BBQ_FINGERS - 1)];
			at = bbq_slot_at(here);
		} else {
			here = BBQ_NONE;
			at = 0;
		}
		steps = bb_zero;
		while (bb_can_loop) {
			__u32 next = bbq_behind(q, l, at);

			step = bbq_slot_at(next);
			if (!step || step->key > key)
				break;
			if (in->work <= 0) {
				key = at ? at->key : step->key;
				s->key = key;
				break;
			}
			in->work -= BBQ_WORK_STEP;
			here = next;
			at = step;
			steps++;
		}
		if (best < BBQ_FINGERS && steps <= BBQ_FINGER_STEPS) {
			steps = best;
		} else {
			/* A free one first: a front whose packets leave at once must not cost others theirs. */
			steps = q->finger_next;
			for (__u32 f = 0; f < BBQ_FINGERS; f++)
				if (!q->finger[f])
					steps = f;
			if (steps == q->finger_next)
				q->finger_next = (steps + 1) & (BBQ_FINGERS - 1);
		}
		best = BBQ_FINGERS + 1; /* remember where this one went */
	}

	/* Of several ADUs with this very deadline, ours may be any. */
	if (s->adu) {
		__u32 i = here;

		for (step = at; step && step->key == key && in->work > 0 && bb_can_loop;) {
			in->work -= BBQ_WORK_STEP;
			if (step->adu == s->adu) {
				bbq_join(step, i, s, idx);
				return i;
			}
			i = step->prev;
			step = bbq_slot_at(i);
		}
	}

	bbq_link(q, l, idx, s, here, at);
	if (best > BBQ_FINGERS)
		bbq_finger_set(q, steps, s, idx);
	return idx;
}

#endif /* BBQ_ORDER_BPF_H */
