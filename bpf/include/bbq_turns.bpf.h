/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose turn it is: deficit round robin over the sessions that may send, and
 * the timing wheel of those whose rate forbids it for now.
 *
 * A session that becomes active goes to the list of new ones, which is served
 * first, and joins the old ones after its first turn (as in fq_codel): sparse
 * traffic (ARP, signalling, audio alone) does not wait for a round.
 */
#ifndef BBQ_TURNS_BPF_H
#define BBQ_TURNS_BPF_H

#include "bbq_state.bpf.h"

bb_inline void bbq_old_append(__u32 inst, struct bbq_instance *in, struct bbq_queue *q,
			      __u32 session)
{
	struct bbq_queue *last;

	q->next = BBQ_NONE;
	q->turn = BBQ_OLD;
	last = in->old_head ? bbq_queue_at(inst, in->old_tail) : 0;
	if (last)
		last->next = session;
	else
		in->old_head = session;
	in->old_tail = session;
}

/* An idle session got a packet. */
bb_inline void bbq_activate(__u32 inst, struct bbq_instance *in, struct bbq_queue *q, __u32 session)
{
	struct bbq_queue *last;

	in->active++;
	q->next = BBQ_NONE;
	q->turn = BBQ_NEW;
	q->deficit = BBQ_QUANTUM;
	last = in->new_head ? bbq_queue_at(inst, in->new_tail) : 0;
	if (last)
		last->next = session;
	else
		in->new_head = session;
	in->new_tail = session;
}

/* Takes the head session, q, off its list. */
bb_inline void bbq_turn_end(struct bbq_instance *in, struct bbq_queue *q)
{
	if (q->turn == BBQ_NEW)
		in->new_head = q->next;
	else
		in->old_head = q->next;
	q->next = BBQ_NONE;
}

/*
 * The head session, q, has nothing left. A new one waits one round among the
 * old ones, if there are any: else it could come back as new at once, and
 * starve them.
 */
bb_inline void bbq_turn_over(__u32 inst, struct bbq_instance *in, struct bbq_queue *q,
			     __u32 session)
{
	__u32 was_new = q->turn == BBQ_NEW;

	bbq_turn_end(in, q);
	if (was_new && in->old_head) {
		bbq_old_append(inst, in, q, session);
	} else {
		q->turn = BBQ_IDLE;
		in->active--;
	}
}

/* Number of the lowest bit set; x is not 0. De Bruijn, as BPF has no such instruction. */
static const __u8 bbq_bit[64] = {
	0,  1,	2,  53, 3,  7,	54, 27, 4,  38, 41, 8,	34, 55, 48, 28, 62, 5,	39, 46, 44, 42,
	22, 9,	24, 35, 59, 56, 49, 18, 29, 11, 63, 52, 6,  26, 37, 40, 33, 47, 61, 45, 43, 21,
	23, 58, 17, 10, 51, 25, 36, 32, 60, 20, 57, 16, 50, 31, 19, 15, 30, 14, 13, 12,
};

bb_inline __u32 bbq_lowest(__u64 x)
{
	__u32 n = bbq_bit[((x & -x) * 0x022fdd63cc95386dULL) >> 58];

	/* clang must not look through the table: its bounds checks would not be the verifier's. */
	asm volatile("" : "+r"(n));
	return n;
}

bb_inline struct bbq_wheel *bbq_wheel(__u32 inst)
{
	return bpf_map_lookup_elem(&bbq_wheels, &inst);
}

/*
 * Puts a session that may not send yet into the wheel. A time beyond the horizon
 * waits in the last bucket and is looked at again there. Its next turn is this
 * instance's, unless that sent last, or another one waits already.
 */
__noinline int bbq_throttle(__u32 inst, __u32 session, __u64 now)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bb_session *ses = bbq_session(session);
	struct bbq_wheel *w = bbq_wheel(inst);
	__u64 tick, today;
	__u32 bucket;

	if (!in || !q || !ses || !w)
		return 0;
	if (!ses->heir && ses->sent_by != inst + 1) {
		q->turn_ns = ses->next_ns;
		ses->heir = inst + 1;
	}
	today = now >> BBQ_WHEEL_SHIFT;
	if (!in->throttled)
		w->tick = today;
	/* Rounded up: never early. At least the next tick, at most the horizon. */
	tick = (bbq_allowed(ses, q, inst) >> BBQ_WHEEL_SHIFT) + 1;
	if (tick <= today)
		tick = today + 1;
	if (tick >= w->tick + BBQ_WHEEL_TICKS)
		tick = w->tick + BBQ_WHEEL_TICKS - 1;
	bucket = tick & (BBQ_WHEEL_TICKS - 1);
	q->next = w->bucket[bucket];
	w->bucket[bucket] = session;
	w->word[bucket >> 6] |= 1ULL << (bucket & 63);
	w->words |= 1ULL << (bucket >> 6);
	q->turn = BBQ_THROTTLED;
	if (!in->throttled || tick << BBQ_WHEEL_SHIFT < in->wake_ns)
		in->wake_ns = tick << BBQ_WHEEL_SHIFT;
	in->throttled++;
	return 0;
}

/*
 * The first non-empty tick at or after `from`, once round; 0 = the wheel is empty.
 * Buckets before w->tick are of the next round: from later on, they come last.
 */
bb_inline __u64 bbq_wheel_first(struct bbq_wheel *w, __u64 from)
{
	__u32 at = from & (BBQ_WHEEL_TICKS - 1);
	__u32 word = at >> 6;
	__u64 bits, rest;

	if (!w->words)
		return 0;
	bits = w->word[word] >> (at & 63);
	if (bits)
		return from + bbq_lowest(bits);
	/* Later words, in order round the circle; the current one again at the very end. */
	rest = word == 63 ? 0 : w->words >> (word + 1);
	if (rest)
		word = word + 1 + bbq_lowest(rest);
	else
		word = bbq_lowest(w->words);
	word &= 63;
	bits = w->word[word];
	if (!bits)
		return 0;
	at = (word << 6 | bbq_lowest(bits)) - at;
	return from + (at & (BBQ_WHEEL_TICKS - 1));
}

/* Gives every session whose time has come its place among the old ones. */
__noinline int bbq_release(__u32 inst, __u64 now)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_wheel *w = bbq_wheel(inst);
	__u64 tick = 0, today = now >> BBQ_WHEEL_SHIFT;

	if (!in || !w)
		return 0;
	while (bb_can_loop) {
		__u32 bucket, session;

		tick = bbq_wheel_first(w, w->tick);
		if (!tick || tick > today)
			break;
		bucket = tick & (BBQ_WHEEL_TICKS - 1);
		session = w->bucket[bucket];
		w->bucket[bucket] = BBQ_NONE;
		w->word[bucket >> 6] &= ~(1ULL << (bucket & 63));
		if (!w->word[bucket >> 6])
			w->words &= ~(1ULL << (bucket >> 6));
		w->tick = tick;
		while (session && bb_can_loop) {
			struct bbq_queue *q = bbq_queue_at(inst, session);
			__u32 next;

			if (!q)
				break;
			next = q->next;
			in->throttled--;
			if (q->qlen) {
				bbq_old_append(inst, in, q, session);
			} else {
				q->turn = BBQ_IDLE;
				in->active--;
			}
			session = next;
		}
	}
	w->tick = today;
	in->wake_ns = tick << BBQ_WHEEL_SHIFT;
	return 0;
}

#endif /* BBQ_TURNS_BPF_H */
