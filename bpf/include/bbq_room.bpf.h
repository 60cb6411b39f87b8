/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who pays when a limit is reached: the session that holds most. A receiver
 * that takes less than it is sent fills the queue by itself; what others are
 * sent must still find room.
 */
#ifndef BBQ_ROOM_BPF_H
#define BBQ_ROOM_BPF_H

#include "bbq_method.bpf.h"
#include "bbq_turns.bpf.h"

/* Sessions looked at in the order of their turns, beside the one known to hold much ... */
#define BBQ_FATTEST 8
/* ... and, if none of those holds more, of those that wait for their rates. */
#define BBQ_FATTEST_WAITING 64

/* A limit is exceeded, the arriving packet included. */
bb_inline int bbq_full(struct bbq_instance *in, struct bb_iface *iface, struct bbq_queue *q)
{
	return q->qlen > iface->session_limit || in->qlen > iface->limit ||
	       in->bytes > iface->limit_bytes;
}

/*
 * What a session holds of the two limits of its interface, packets and bytes:
 * the sum of both shares, times both limits. Below 2^63: 2^17 packets, 2^34 bytes.
 */
bb_inline __u64 bbq_share(struct bb_iface *iface, struct bbq_queue *q)
{
	return q->bytes * iface->limit + q->qlen * iface->limit_bytes;
}

/*
 * A packet came: does its session hold most now? Asked of arrivals only: one that
 * has stopped growing may be forgotten for another, whose queue then gets shorter
 * than its own. bbq_fattest looks for it again.
 */
bb_inline void bbq_grown(__u32 inst, struct bbq_instance *in, struct bb_iface *iface,
			 struct bbq_queue *q, __u32 session)
{
	struct bbq_queue *most;

	if (in->fattest == session)
		return;
	most = bbq_queue_at(inst, in->fattest);
	if (!most || bbq_share(iface, q) > bbq_share(iface, most))
		in->fattest = session;
}

/*
 * Of the sessions in the wheel but this one, the one that holds most, and more than
 * `most`; 0 = none of those looked at. They have no turn, so the wheel is where they are.
 */
__noinline __u32 bbq_fattest_waiting(__u32 inst, __u32 session, __u64 most)
{
	struct bbq_wheel *w = bbq_wheel(inst);
	struct bb_iface *iface = bbq_iface();
	__u32 at = 0, fattest = 0;
	__u64 tick, share;

	if (!w || !iface)
		return 0;
	tick = w->tick;
	for (__u32 n = bb_zero; n < BBQ_FATTEST_WAITING && bb_can_loop; n++) {
		struct bbq_queue *o;

		if (!at) {
			tick = bbq_wheel_first(w, tick);
			if (!tick || tick >= w->tick + BBQ_WHEEL_TICKS)
				break;
			at = w->bucket[tick & (BBQ_WHEEL_TICKS - 1)];
			tick++;
		}
		o = bbq_queue_at(inst, at);
		if (!o)
			break;
		share = bbq_share(iface, o);
		if (share > most && at != session) {
			most = share;
			fattest = at;
		}
		at = o->next;
	}
	return fattest;
}

/*
 * The session that holds most, and more than this one held before a packet of so
 * many bytes came; 0 = none is known. With what came counted, sessions of one small
 * packet each could fill the queue, and nobody would pay for a larger one.
 */
bb_inline __u32 bbq_fattest(__u32 inst, struct bbq_instance *in, struct bb_iface *iface,
			    __u32 session, struct bbq_queue *q, __u32 bytes)
{
	__u32 turn = in->old_head ?: in->new_head, fattest = 0;
	__u64 most = bbq_share(iface, q) - (bytes * (__u64)iface->limit + iface->limit_bytes);
	__u64 share;

	for (__u32 n = bb_zero; n <= BBQ_FATTEST && bb_can_loop; n++) {
		__u32 at = n ? turn : in->fattest;
		struct bbq_queue *o = bbq_queue_at(inst, at);

		if (!o || (n && !at))
			break;
		share = bbq_share(iface, o);
		if (share > most && at != session) {
			most = share;
			fattest = at;
		}
		if (n)
			turn = o->next;
	}
	if (!fattest && in->throttled) {
		fattest = bbq_fattest_waiting(inst, session, most);
		if (fattest)
			in->fattest = fattest;
	}
	return fattest;
}

/* The packet that a session gives up for another session's; 0 = it has none queued. */
bb_inline __u32 bbq_tribute(__u32 inst, __u32 session)
{
	__u32 victim = bbq_victim(inst, session, 0);
	struct bbq_queue *q;

	if (victim != BBQ_NONE)
		return victim;
	/* Methods that refuse what arrives: the oldest of the least important. */
	q = bbq_queue_at(inst, session);
	if (!q)
		return BBQ_NONE;
	for (__s32 l = BB_PRIORITIES; l >= 0; l--)
		if (q->nonempty & (1U << l))
			return q->head[l];
	return BBQ_NONE;
}

/*
 * Makes room for a packet of this session, priority and size that is counted already:
 * first of what is stale where most is held, then at the cost of who holds it;
 * that may be the session itself. Returns whether there is room now.
 */
__noinline int bbq_make_room(__u32 inst, __u32 session, __u32 priority, __u32 bytes, __u64 now)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_queue *q = bbq_queue_at(inst, session), *o;
	struct bb_iface *iface = bbq_iface();
	__u32 fattest, victim;

	if (!in || !q || !iface)
		return 0;
	while (bbq_full(in, iface, q) && bb_can_loop) {
		fattest = q->qlen > iface->session_limit ?
				  0 :
				  bbq_fattest(inst, in, iface, session, q, bytes);
		o = bbq_queue_at(inst, fattest);
		if (fattest && o && now - o->purged_ns > BBQ_PURGE_NS) {
			struct bb_session *ses = bbq_session(fattest);

			if (!ses)
				return 0;
			bbq_purge(inst, fattest, now, bbq_rate(iface, ses));
			o->purged_ns = now; /* also where it only watches */
			continue;
		}
		victim = fattest ? bbq_tribute(inst, fattest) : bbq_victim(inst, session, priority);
		if (victim == BBQ_NONE)
			return 0;
		if (!bbq_drop_adu(inst, victim, BB_DROP_EVICTED, now))
			return 0;
	}
	return !bbq_full(in, iface, q);
}

#endif /* BBQ_ROOM_BPF_H */
