/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What goes next: media or users, which user, which session, which packet.
 */
#ifndef BBQ_NEXT_BPF_H
#define BBQ_NEXT_BPF_H

#include "bbq_codel.bpf.h"
#include "bbq_depart.bpf.h"
#include "bbq_turns.bpf.h"
#include "bbq_urgent.bpf.h"

/* What goes next: a packet, its session and that session's queue and user. p = 0: nothing. */
struct bbq_pick {
	struct bbq_packet *p;
	struct bbq_queue *q;
	struct bbq_user *u;
	struct bb_session *ses;
	__u32 idx;
	__u32 session;
};

/* The rest of what pick->idx and pick->session name; 0 = they name nothing. */
bb_inline int bbq_look_up(__u32 inst, struct bbq_instance *in, struct bbq_pick *pick)
{
	pick->p = bbq_packet_at(pick->idx);
	pick->q = bbq_queue_at(inst, pick->session);
	pick->ses = bbq_session(pick->session);
	pick->u = pick->q ? bbq_user_at(in, inst, pick->q->user) : 0;
	return pick->p && pick->ses && pick->u;
}

/* Is the picked packet fresh, and may it leave now, for its session's rate and for what is expected? */
bb_inline int bbq_may_go(__u32 inst, const struct bbq_instance *in, struct bb_iface *iface,
			 __u64 now, struct bbq_pick *pick)
{
	return !(pick->ses->rate && bbq_allowed(pick->ses, pick->q, inst) > now) &&
	       !bb_stale(bbq_out(in, pick->p, now), pick->ses->owd_ns, pick->p->deadline) &&
	       !bbq_hold(in, pick->q, pick->p, iface, pick->ses, now);
}

/* Picks the packet that is alone; 0 = it may not go. */
bb_inline int bbq_alone(__u32 inst, struct bbq_instance *in, struct bb_iface *iface, __u64 now,
			struct bbq_pick *pick)
{
	pick->idx = in->alone;
	pick->p = bbq_packet_at(pick->idx);
	if (!pick->p)
		return 0;
	pick->session = pick->p->session;
	pick->q = bbq_queue_at(inst, pick->session);
	pick->ses = bbq_session(pick->session);
	return pick->q && pick->ses && bbq_may_go(inst, in, iface, now, pick);
}

/* Packets were given up whose headers have no place yet: those may go before what is queued. */
bb_inline int bbq_headers_wait(struct bbq_instance *in)
{
	return in->swapped || (in->doomed && in->pairs);
}

/*
 * The packet to send now if nothing stands in the way: it is the head of the
 * session whose turn it is, fresh, nobody waits to be released, and triage has
 * nothing to decide. Returns 0 where one must look closer (bbq_next).
 */
bb_inline int bbq_next_at_once(__u32 inst, struct bbq_instance *in, struct bb_iface *iface,
			       __u64 now, struct bbq_pick *pick)
{
	if ((in->throttled && now >= in->wake_ns) || bbq_headers_wait(in) || in->urgent)
		return 0;
	if (in->media.sessions.members && (in->plain_credit <= 0 || !in->users.members)) {
		pick->u = &in->media;
	} else {
		pick->u = bbq_user_at(in, inst, bbq_ring_head(&in->users));
		if (!pick->u || pick->u->m.deficit <= 0)
			return 0;
	}
	pick->session = bbq_ring_head(&pick->u->sessions);
	if (!pick->session)
		return 0;
	pick->q = bbq_queue_at(inst, pick->session);
	pick->ses = bbq_session(pick->session);
	if (!pick->q || !pick->ses || pick->q->m.deficit <= 0 || !pick->q->nonempty ||
	    pick->q->head[BBQ_DEPART_LIST])
		return 0;
	/* Some may not be in triage's list yet (bbq_line_up_with_rate). */
	if (pick->q->nonempty & 1 && pick->q->nonempty & BBQ_OF_PRIORITIES)
		return 0;
	if (pick->q->nonempty & 1) {
		pick->idx = pick->q->head[0];
	} else {
		__u32 l = bbq_lowest(pick->q->nonempty);

		if (l >= BBQ_LISTS)
			return 0;
		pick->idx = pick->q->head[l];
	}
	pick->p = bbq_packet_at(pick->idx);
	if (!pick->p || !bbq_may_go(inst, in, iface, now, pick))
		return 0;
	if (pick->u != &in->media && bbq_codel_waits(pick->q, pick->p, now, BBQ_CODEL_TARGET_NS) &&
	    !bbq_codel_spares(iface, pick->p))
		return 0;
	if (pick->q->unplanned) {
		if (pick->q->qlen > 1)
			return 0;
		pick->q->unplanned = 0; /* alone, and in time */
	}
	return 1;
}

/* Sessions, or users, that may be passed by in search of one that need not hold its packet back. */
#define BBQ_HOLDS 16

/*
 * The session and packet to send now of one user, or of media: session << 32 | index,
 * or 0: there is none, or in->more. in->hold_ns is then when a packet that is held back
 * may go, if it was not 0 and earlier already.
 */
__noinline __u64 bbq_next_of(__u32 inst, __u32 user, __u64 now)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();
	__u32 holds = bb_zero;
	struct bbq_user *u;

	if (!in || !iface)
		return 0;
	u = bbq_user_at(in, inst, user);
	if (!u)
		return 0;
	if (user == BBQ_MEDIA && in->urgent) {
		__u64 next = bbq_next_urgent(inst, now);

		if (next)
			return next;
	}
	while (bb_can_loop) {
		__u32 session = bbq_ring_head(&u->sessions), idx;
		struct bb_session *ses;
		struct bbq_queue *q;
		struct bbq_packet *p;
		__u64 rate, hold, departs;
		int waits;

		if (!session || bbq_spent(in, BBQ_WORK_TURN))
			return 0;
		in->work -= BBQ_WORK_TURN;
		q = bbq_queue_at(inst, session);
		ses = bbq_session(session);
		if (!q || !ses)
			return 0;
		if (q->m.deficit <= 0) {
			bbq_next_turn(&u->sessions, &q->m);
			if (u->sessions.members > 1 || q->m.turn == BBQ_NEW) {
				bbq_ring_take(&u->sessions, &q->m);
				bbq_session_append(inst, u, q, session,
						   bbq_goes_first(session) ? BBQ_NEW : BBQ_OLD);
				if (user == BBQ_MEDIA)
					bbq_urge(inst, in, q, session);
			}
			continue;
		}
		if (ses->rate && ses->rate != ses->next_rate)
			bbq_rate_changed(&ses->next_ns, &ses->next_rate, now, ses->rate);
		departs = 0;
		waits = ses->rate && bbq_allowed(ses, q, inst) > now && q->nonempty;
		if (!waits && q->head[BBQ_DEPART_LIST]) {
			idx = q->head[BBQ_DEPART_LIST];
			departs = bbq_depart(inst, session, now);
			if (in->more)
				return 0;
			if (departs && departs <= now) {
				bbq_place(inst, idx, departs, now);
				continue;
			}
			waits = departs != 0;
		}
		if (waits) {
			bbq_ring_take(&u->sessions, &q->m);
			bbq_throttle(inst, session, now, departs);
			continue;
		}
		rate = bbq_rate(in, iface, ses);
		if (q->nonempty & BBQ_OF_PRIORITIES && bbq_plans(iface, rate)) {
			if (bbq_spent(in, BBQ_WORK_FIND))
				return 0;
			bbq_line_up_with_rate(inst, session);
			continue;
		}
		if (q->unplanned && bbq_plans(iface, rate) && bbq_triage(inst, session, now))
			return 0;
		if (bbq_headers_wait(in)) {
			in->more = 1;
			return 0;
		}
		idx = bbq_select(inst, session, now, rate);
		p = bbq_packet_at(idx);
		if (!p && in->more)
			return 0;
		if (!p) {
			if (!q->nonempty)
				bbq_turn_over(inst, u, q, session);
			continue;
		}
		if (q->user != BBQ_MEDIA && bbq_codel(inst, session, idx, now, rate))
			continue;
		hold = bbq_plans(iface, rate) ? bbq_hold(in, q, p, iface, ses, now) : 0;
		if (!hold)
			return (__u64)session << 32 | idx;
		if (!in->hold_ns || hold < in->hold_ns)
			in->hold_ns = hold;
		bbq_ring_take(&u->sessions, &q->m);
		bbq_session_append(inst, u, q, session, BBQ_OLD);
		if (++holds == BBQ_HOLDS || holds >= u->sessions.members)
			return 0;
	}
	return 0;
}

/* bbq_next_of found nothing that may go of the user asked last. Its turn is over. */
bb_inline void bbq_user_waits(__u32 inst, struct bbq_instance *in)
{
	struct bbq_user *u = bbq_user_at(in, inst, in->asked);

	if (!u)
		return;
	if (!u->sessions.members) {
		bbq_user_over(inst, in, u, in->asked);
		return;
	}
	bbq_ring_take(&in->users, &u->m);
	bbq_user_append(inst, in, u, in->asked, BBQ_OLD);
	in->holds++;
}

/*
 * Whom to ask next for a packet: media or users, whoever may go first, then the others.
 * BBQ_NOBODY: all had nothing that may go, or in->more.
 */
__noinline __u32 bbq_ask(__u32 inst)
{
	struct bbq_instance *in = bbq_instance(inst);
	int users_first;

	if (!in)
		return BBQ_NOBODY;
	users_first = in->plain_credit > 0;
	if (in->asked == BBQ_NOBODY) {
		in->holds = 0;
		if (!users_first)
			return in->asked = BBQ_MEDIA;
	} else if (in->asked == BBQ_MEDIA) {
		if (users_first)
			return BBQ_NOBODY;
	} else {
		bbq_user_waits(inst, in);
	}
	while (in->holds < BBQ_HOLDS && (!in->holds || in->holds < in->users.members) &&
	       bb_can_loop) {
		__u32 user = bbq_ring_head(&in->users);
		struct bbq_user *u = bbq_user_at(in, inst, user);

		if (!user || !u)
			break;
		if (bbq_spent(in, BBQ_WORK_TURN))
			return BBQ_NOBODY;
		in->work -= BBQ_WORK_TURN;
		if (u->m.deficit > 0)
			return in->asked = user;
		bbq_next_turn(&in->users, &u->m);
		if (in->users.members > 1 || u->m.turn == BBQ_NEW) {
			bbq_ring_take(&in->users, &u->m);
			bbq_user_append(inst, in, u, user, BBQ_OLD);
		}
	}
	return users_first ? in->asked = BBQ_MEDIA : BBQ_NOBODY;
}

/*
 * The session and packet to send now, as bbq_next_of has them. in->hold_ns is then 0 or
 * when a packet that is held back may go. Inlined, with bbq_ask beside bbq_next_of and not
 * above it: the stack is for what is called below.
 */
bb_inline __u64 bbq_next(__u32 inst, struct bbq_instance *in, __u64 now)
{
	in->hold_ns = 0;
	in->asked = BBQ_NOBODY;
	if (in->throttled && now >= in->wake_ns)
		bbq_release(inst, now);
	while (bb_can_loop) {
		__u32 user = bbq_ask(inst);
		__u64 next = user == BBQ_NOBODY ? 0 : bbq_next_of(inst, user, now);

		if (next || user == BBQ_NOBODY || in->more)
			return next;
	}
	return 0;
}

#endif /* BBQ_NEXT_BPF_H */
