/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When the link, and a session with a rate of its own, may send next: one time for all
 * transmit queues, which take turns.
 */
#ifndef BBQ_RATE_BPF_H
#define BBQ_RATE_BPF_H

#include "bbq_device.bpf.h"

/* The lower of two rates of which each may not be known: 0. */
bb_inline __u64 bbq_lower(__u64 a, __u64 b)
{
	return b && (!a || b < a) ? b : a;
}

/* The rate of the link, bytes/s: the lower of what was told and what the device takes; 0 = neither is known. */
bb_inline __u64 bbq_link_rate(const struct bbq_instance *in, const struct bb_iface *iface)
{
	return bbq_lower(iface->rate, in->device.rate);
}

/* The rate that binds a session, bytes/s: the lower of its own and the link's; 0 = none is known. */
bb_inline __u64 bbq_rate(const struct bbq_instance *in, const struct bb_iface *iface,
			 const struct bb_session *ses)
{
	return bbq_lower(bbq_link_rate(in, iface), ses->rate);
}

/*
 * A packet of `bytes` leaves at `now`: when the next one of this link, or of this
 * session, may start. Other transmit queues may send on it meanwhile.
 */
bb_inline void bbq_use(__u64 *next_ns, __u64 now, __u64 bytes, __u64 rate)
{
	__u64 was = *next_ns;

	/* Where another one came first it is busy: nothing idle to be made up for. */
	if (__sync_val_compare_and_swap(next_ns, was, bb_pace(was, now, bytes, rate)) != was)
		__sync_fetch_and_add(next_ns, bb_tx_time(bytes, rate));
}

/*
 * The rate is not the one by which *next_ns was reckoned: what is owed are bytes,
 * and the time for them is another one now.
 */
bb_inline void bbq_rate_changed(__u64 *next_ns, __u64 *reckoned, __u64 now, __u64 rate)
{
	__u64 was = *reckoned, owed = *next_ns - now, ratio;

	/* Whoever is first of all transmit queues does it. */
	if (__sync_val_compare_and_swap(reckoned, was, rate) != was || !was || (__s64)owed <= 0)
		return;
	if (owed > BB_PACE_MAX_NS)
		owed = BB_PACE_MAX_NS;
	/* The product is below 2^63: BB_PACE_MAX_NS is below 2^36. */
	ratio = (was << 20) / rate;
	if (ratio > 1ULL << 37)
		ratio = 1ULL << 37;
	owed = (owed >> 10) * ratio >> 10;
	*next_ns = now + (owed < BB_PACE_MAX_NS ? owed : BB_PACE_MAX_NS);
}

/*
 * How long the other instances wait for the one whose turn is next, should its timer
 * be late. With two ticks of the wheel still less than BB_PACE_CREDIT_NS: who waited
 * in vain makes up for it.
 */
#define BBQ_TURN_NS 500000ULL

/*
 * When this instance may send a packet of a session with a rate. The timers of all
 * instances that wait for it go off together. If whoever is first could send, that
 * might be the same one for ever. So an instance that was too late gets the next turn
 * (bbq_throttle). If it is later than BBQ_TURN_NS, others go on, and it may send when
 * it comes; next_ns, which counts that, makes all wait for it.
 */
bb_inline __u64 bbq_allowed(struct bb_session *ses, struct bbq_queue *q, __u32 inst)
{
	if (!ses->turn)
		return ses->next_ns;
	if (ses->turn != inst + 1)
		return ses->next_ns + BBQ_TURN_NS;
	return q->turn_ns < ses->next_ns ? q->turn_ns : ses->next_ns;
}

/*
 * A packet of `bytes`, of a session with a rate, leaves this instance at `now`. Where a
 * socket said the rate, what follows waits a second for it at most (as in fq): at
 * a byte a second everybody's room would be held for minutes.
 */
bb_inline void bbq_take_turn(struct bb_session *ses, __u32 session, __u32 inst, __u64 now,
			     __u64 bytes)
{
	__u64 rate = ses->rate;

	if (ses->key.user && rate < bytes)
		rate = bytes;
	if (ses->turn) {
		struct bbq_queue *next = bbq_queue_at(ses->turn - 1, session);

		/* Its turn is over, or its packets are gone. */
		if (ses->turn == inst + 1 || !next || !next->nonempty)
			ses->turn = 0;
	}
	/* Before next_ns moves: who sees that it did may get the next turn. */
	ses->sent_by = inst + 1;
	ses->next_rate = ses->rate;
	bbq_use(&ses->next_ns, now, bytes, rate);
}

#endif /* BBQ_RATE_BPF_H */
