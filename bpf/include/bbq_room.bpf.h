/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who pays when a limit is reached: whoever holds most. A receiver that takes
 * less than it is sent fills the queue by itself; what others are sent must
 * still find room.
 *
 * It is asked in the order in which the link is shared. Users pay first while
 * they hold more than their part of what is queued (bb_iface.plain_share), else
 * media do. Among users it is the one that holds most, and in that one, as in
 * media, the session that holds most. It may be the arriving packet's own
 * session, and then the packet itself. Who holds nothing pays nothing.
 */
#ifndef BBQ_ROOM_BPF_H
#define BBQ_ROOM_BPF_H

#include "bbq_method.bpf.h"
#include "bbq_turns.bpf.h"

/*
 * Looked at in the order of their turns, beside the one known to hold much ... Who lost all
 * that it held keeps its turn, and has nothing: a search goes on behind the one that the last
 * one found, or it would look at those again and again.
 */
#define BBQ_LARGEST 8
/* ... and, if none of those holds more, sessions that wait for their rates. */
#define BBQ_LARGEST_WAITING 12

/* A limit is exceeded, the arriving packet included. */
bb_inline int bbq_full(struct bbq_instance *in, struct bb_iface *iface, struct bbq_queue *q)
{
	return q->qlen > iface->session_limit || in->qlen > iface->limit ||
	       in->bytes > iface->limit_bytes;
}

/*
 * What so many packets and bytes are of the two limits of an interface: the sum
 * of both shares, times both limits. Below 2^63: 2^17 packets, 2^34 bytes.
 */
bb_inline __u64 bbq_share(struct bb_iface *iface, __u32 packets, __u64 bytes)
{
	return bytes * iface->limit + packets * iface->limit_bytes;
}

/*
 * A packet came: does its session, or its user, hold most now? Asked of arrivals
 * only: one that has stopped growing may be forgotten for another, whose queue
 * then gets shorter than its own. bbq_largest_* look for it again.
 */
bb_inline void bbq_grown(__u32 inst, struct bbq_instance *in, struct bb_iface *iface,
			 struct bbq_user *u, __u32 user, struct bbq_queue *q, __u32 session)
{
	if (u->largest != session) {
		struct bbq_queue *most = bbq_queue_at(inst, u->largest);

		if (!u->largest || !most ||
		    bbq_share(iface, q->qlen, q->bytes) > bbq_share(iface, most->qlen, most->bytes))
			u->largest = session;
	}
	if (user != BBQ_MEDIA && in->largest != user) {
		struct bbq_user *most = bbq_user_at(in, inst, in->largest);

		if (!in->largest || !most ||
		    bbq_share(iface, u->qlen, u->bytes) > bbq_share(iface, most->qlen, most->bytes))
			in->largest = user;
	}
}

/*
 * The same of the sessions in the wheel, and of their users: the one that holds
 * most, and more than so much; 0 = none of those looked at. They have no turn, so
 * the wheel is where they are.
 */
__noinline __u32 bbq_largest_waiting(__u32 inst)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();
	__u32 at = 0, largest = 0, id;
	struct bbq_wheel *w = bbq_wheel(inst);
	struct bbq_search *search;
	__u64 tick, most, share;

	if (!in || !w || !iface)
		return 0;
	search = &in->search;
	most = search->most;
	tick = w->tick;
	for (__u32 n = bb_zero; n < BBQ_LARGEST_WAITING && in->work > BBQ_WORK_EVICT && bb_can_loop;
	     n++) {
		struct bbq_queue *q;

		in->work -= BBQ_WORK_LOOK;
		if (!at) {
			tick = bbq_wheel_first(w, tick);
			if (!tick || tick >= w->tick + BBQ_WHEEL_TICKS)
				break;
			at = w->bucket[tick & (BBQ_WHEEL_TICKS - 1)];
			tick++;
		}
		q = bbq_queue_at(inst, at);
		if (!q)
			break;
		id = at;
		at = q->m.next;
		share = 0;
		if (search->user) {
			if (q->user == search->user)
				share = bbq_share(iface, q->qlen, q->bytes);
		} else if (q->user != BBQ_MEDIA) {
			struct bbq_user *u;

			id = q->user;
			u = bbq_user_at(in, inst, id);
			if (u)
				share = bbq_share(iface, u->qlen, u->bytes);
		}
		if (share > most && id != search->but) {
			most = share;
			largest = id;
		}
	}
	return largest;
}

/* The user who holds more than `most`, but this one; 0 = none is known. */
bb_inline __u32 bbq_largest_user(__u32 inst, struct bbq_instance *in, struct bb_iface *iface,
				 __u32 but, __u64 most)
{
	__u32 next = in->looked, first, largest = 0;
	struct bbq_user *u = bbq_user_at(in, inst, next);

	if (!u || !bbq_in_ring(&u->m))
		next = bbq_ring_first(&in->users);
	first = next;
	for (__u32 n = bb_zero; n <= BBQ_LARGEST && bb_can_loop; n++) {
		__u32 at = n ? next : in->largest;
		__u64 share;

		u = bbq_user_at(in, inst, at);
		in->work -= BBQ_WORK_LOOK;
		if (n && (!u || !at || in->work <= BBQ_WORK_EVICT))
			break;
		if (!u)
			continue;
		if (n)
			next = bbq_ring_next(&in->users, &u->m);
		share = bbq_share(iface, u->qlen, u->bytes);
		if (share > most && at && at != but) {
			most = share;
			largest = at;
		}
		if (n && (at == largest || !largest))
			in->looked = next;
		if (n && next == first)
			break;
	}
	if (!largest && in->throttled) {
		in->search.user = 0;
		in->search.but = but;
		in->search.most = most;
		largest = bbq_largest_waiting(inst);
		if (largest)
			in->largest = largest;
	}
	return largest;
}

/* The session of this user that holds more than `most`, but this one; 0 = none is known. */
__noinline __u32 bbq_largest_session(__u32 inst, __u32 user, __u32 but, __u64 most)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();
	__u32 next, first, largest = 0;
	struct bbq_queue *q;
	struct bbq_user *u;

	if (!in || !iface)
		return 0;
	u = bbq_user_at(in, inst, user);
	if (!u)
		return 0;
	next = u->looked;
	q = bbq_queue_at(inst, next);
	if (!q || q->user != user || !bbq_in_ring(&q->m))
		next = bbq_ring_first(&u->sessions);
	first = next;
	for (__u32 n = bb_zero; n <= BBQ_LARGEST && bb_can_loop; n++) {
		__u32 at = n ? next : u->largest;
		__u64 share;

		q = bbq_queue_at(inst, at);
		in->work -= BBQ_WORK_LOOK;
		if (n && (!q || !at || in->work <= BBQ_WORK_EVICT))
			break;
		if (!q)
			continue;
		if (n)
			next = bbq_ring_next(&u->sessions, &q->m);
		/* What is remembered may have become another user's since. */
		share = q->user == user ? bbq_share(iface, q->qlen, q->bytes) : 0;
		if (share > most && at && at != but) {
			most = share;
			largest = at;
		}
		if (n && (at == largest || !largest))
			u->looked = next;
		if (n && next == first)
			break;
	}
	if (!largest && in->throttled) {
		in->search.user = user;
		in->search.but = but;
		in->search.most = most;
		largest = bbq_largest_waiting(inst);
		if (largest)
			u->largest = largest;
	}
	return largest;
}

/*
 * The user who pays for an arriving packet that is counted already, or BBQ_MEDIA.
 * What is compared is what its user and group held before it came: with it,
 * sessions of one small packet each could fill the queue, and nobody would pay
 * for a larger one.
 */
__noinline __u32 bbq_payer(__u32 inst, __u32 user, __u64 arriving)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();
	__u64 users_hold, media_hold, most = 0;
	__u32 payer, but = 0;
	struct bbq_user *u;

	if (!in || !iface)
		return user;
	u = bbq_user_at(in, inst, user);
	if (!u)
		return user;
	users_hold = bbq_share(iface, in->plain_qlen, in->plain_bytes);
	media_hold = bbq_share(iface, in->media.qlen, in->media.bytes);
	if (user == BBQ_MEDIA) {
		media_hold -= arriving;
	} else {
		users_hold -= arriving;
		most = bbq_share(iface, u->qlen, u->bytes) - arriving;
		but = user;
	}
	if (media_hold && (user == BBQ_MEDIA || iface->plain_share) &&
	    users_hold <= (users_hold + media_hold) / 100 * iface->plain_share)
		return BBQ_MEDIA;
	payer = bbq_largest_user(inst, in, iface, but, most);
	return payer ?: user;
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
	__u32 payer, victim, tried = bb_zero;
	__u64 arriving;

	if (!in || !q || !iface)
		return 0;
	arriving = bbq_share(iface, 1, bytes);
	while (bbq_full(in, iface, q) && bb_can_loop) {
		/* It gets its room within the bound, or is refused. */
		if (in->work <= BBQ_WORK_EVICT && tried)
			return 0;
		tried = 1;
		if (in->doomed) {
			bbq_free_doomed(inst, 0, now);
			continue;
		}
		payer = 0; /* the session itself */
		if (q->qlen <= iface->session_limit) {
			__u32 user = bbq_payer(inst, q->user, arriving);

			if (user == q->user) {
				payer = bbq_largest_session(inst, user, session,
							    bbq_share(iface, q->qlen, q->bytes) -
								    arriving);
			} else {
				payer = bbq_largest_session(inst, user, 0, 0);
				/* It holds something: farther on. */
				if (!payer)
					continue;
			}
		}
		o = bbq_queue_at(inst, payer);
		if (payer && o && now - o->purged_ns > BBQ_PURGE_NS) {
			struct bb_session *ses = bbq_session(payer);

			if (!ses)
				return 0;
			bbq_purge(inst, payer, now, bbq_rate(in, iface, ses), 0);
			if (!bbq_full(in, iface, q))
				break;
			if (!o->nonempty)
				continue;
		}
		victim = payer ? bbq_victim(inst, payer, 0, 1) :
				 bbq_victim(inst, session, priority, 0);
		if (victim == BBQ_NONE)
			return 0;
		if (!bbq_drop_adu(inst, victim, BB_DROP_EVICTED, now))
			return 0;
	}
	return !bbq_full(in, iface, q);
}

#endif /* BBQ_ROOM_BPF_H */
