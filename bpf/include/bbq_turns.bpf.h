/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose turn it is. Media and users share the link as two groups: media go
 * first, users have a part of it at least (bb_iface.plain_share). Users take
 * turns by deficit round robin, so many sessions gain a user nothing; in a
 * user, and in media, sessions do. Sessions whose rate forbids them to send for
 * now wait in a timing wheel.
 *
 * Who becomes active goes to the list of new ones, which is served first, and
 * joins the old ones after its first turn (as in fq_codel): sparse traffic
 * (ARP, signalling, audio alone) does not wait for a round. New ones may be as
 * many as anybody likes to make, so old ones keep a part of each round.
 */
#ifndef BBQ_TURNS_BPF_H
#define BBQ_TURNS_BPF_H

#include "bbq_rate.bpf.h"

/* Of what a ring sends while both kinds wait, one byte in 1 + this is for old ones ... */
#define BBQ_NEW_PART 4
/* ... and new ones are ahead by so much at most. */
#define BBQ_NEW_BYTES (BBQ_NEW_PART * bbq_quantum)

/* Who is next (0 = nobody). */
bb_inline __u32 bbq_ring_head(const struct bbq_ring *r)
{
	if (r->new_head && (!r->old_head || r->new_bytes < BBQ_NEW_BYTES))
		return r->new_head;
	return r->old_head;
}

/* It is in one of the two lists. */
bb_inline int bbq_in_ring(const struct bbq_member *m)
{
	return m->turn == BBQ_NEW || m->turn == BBQ_OLD;
}

/* m, number id, which is in one of the lists, is the next one of that. */
bb_inline int bbq_ring_has_turn(const struct bbq_ring *r, const struct bbq_member *m, __u32 id)
{
	return id == (m->turn == BBQ_NEW ? r->new_head : r->old_head);
}

/* One after the other through both lists, and round: where that begins (0 = nobody is there) ... */
bb_inline __u32 bbq_ring_first(const struct bbq_ring *r)
{
	return r->old_head ?: r->new_head;
}

/* ... and who is behind m, which is in one of them. */
bb_inline __u32 bbq_ring_next(const struct bbq_ring *r, const struct bbq_member *m)
{
	if (m->next)
		return m->next;
	return (m->turn == BBQ_OLD ? r->new_head : r->old_head) ?: bbq_ring_first(r);
}

/* Appends member m, with number id, to one of the lists; `last` is the member at its end. */
bb_inline void bbq_ring_append(struct bbq_ring *r, struct bbq_member *m, __u32 id,
			       struct bbq_member *last, __u8 turn)
{
	m->next = BBQ_NONE;
	m->turn = turn;
	r->members++;
	if (last)
		last->next = id;
	if (turn == BBQ_NEW) {
		if (!last)
			r->new_head = id;
		r->new_tail = id;
	} else {
		if (!last)
			r->old_head = id;
		r->old_tail = id;
	}
}

/* Takes m, the head of its list, off it. */
bb_inline void bbq_ring_take(struct bbq_ring *r, struct bbq_member *m)
{
	if (m->turn == BBQ_NEW)
		r->new_head = m->next;
	else
		r->old_head = m->next;
	m->next = BBQ_NONE;
	r->members--;
}

/* m, the head, has nothing left of its turn. Who takes turns with nobody has all that it owes at once. */
bb_inline void bbq_next_turn(const struct bbq_ring *r, struct bbq_member *m)
{
	__u32 turns = 1;

	if (r->members == 1)
		turns += (__u32)-m->deficit / bbq_quantum;
	m->deficit += turns * bbq_quantum;
}

/* m sent so many bytes. */
bb_inline void bbq_ring_sent(struct bbq_ring *r, struct bbq_member *m, __u32 bytes)
{
	m->deficit -= bytes;
	if (!r->old_head || !r->new_head)
		r->new_bytes = 0;
	else if (m->turn == BBQ_NEW)
		r->new_bytes += bytes;
	else
		r->new_bytes = r->new_bytes > BBQ_NEW_PART * bytes ?
				       r->new_bytes - BBQ_NEW_PART * bytes :
				       0;
}

bb_inline void bbq_session_append(__u32 inst, struct bbq_user *u, struct bbq_queue *q,
				  __u32 session, __u8 turn)
{
	__u32 head = turn == BBQ_NEW ? u->sessions.new_head : u->sessions.old_head;
	__u32 tail = turn == BBQ_NEW ? u->sessions.new_tail : u->sessions.old_tail;
	struct bbq_queue *last = head ? bbq_queue_at(inst, tail) : 0;

	bbq_ring_append(&u->sessions, &q->m, session, last ? &last->m : 0, turn);
}

bb_inline void bbq_user_append(__u32 inst, struct bbq_instance *in, struct bbq_user *u, __u32 user,
			       __u8 turn)
{
	__u32 head = turn == BBQ_NEW ? in->users.new_head : in->users.old_head;
	__u32 tail = turn == BBQ_NEW ? in->users.new_tail : in->users.old_tail;
	struct bbq_user *last = head ? bbq_user_at(in, inst, tail) : 0;

	bbq_ring_append(&in->users, &u->m, user, last ? &last->m : 0, turn);
}

/* An idle session got a packet: it is of this user (or BBQ_MEDIA) until it is idle again. */
bb_inline void bbq_activate(__u32 inst, struct bbq_instance *in, struct bbq_queue *q, __u32 session,
			    struct bbq_user *u, __u32 user)
{
	q->user = user;
	q->m.deficit = bbq_quantum;
	q->codel.until_ns = 0;
	q->codel.dropping = 0;
	u->active++;
	bbq_session_append(inst, u, q, session, BBQ_NEW);
	if (user != BBQ_MEDIA && u->m.turn == BBQ_IDLE) {
		u->m.deficit = bbq_quantum;
		bbq_user_append(inst, in, u, user, BBQ_NEW);
	}
}

/* A session of media that may have something important waits for its turn: bbq_urgent.bpf.h. */
bb_inline void bbq_urge(__u32 inst, struct bbq_instance *in, struct bbq_queue *q, __u32 session)
{
	struct bbq_queue *last;

	if (q->urgent || !bbq_in_ring(&q->m) || in->media.sessions.members == 1 ||
	    (bbq_ring_head(&in->media.sessions) == session && q->m.deficit > 0))
		return;
	last = in->urgent ? bbq_queue_at(inst, in->urgent_tail) : 0;
	if (last)
		last->urgent = session;
	else
		in->urgent = session;
	in->urgent_tail = session;
	q->urgent = BBQ_URGENT_LAST;
}

/* Its packets go before others', each time: they are few (bb_network.bpf.h). */
bb_inline int bbq_goes_first(__u32 session)
{
	struct bb_session *ses = bbq_session(session);

	return ses && ses->key.kind == BB_SESSION_CONTROL && ses->key.part == BB_PART_NETWORK;
}

/*
 * The head session, q, has nothing left. A new one waits one round among the
 * old ones, if there are any: else it could come back as new at once, and
 * starve them.
 */
bb_inline void bbq_turn_over(__u32 inst, struct bbq_user *u, struct bbq_queue *q, __u32 session)
{
	__u32 was_new = q->m.turn == BBQ_NEW;

	bbq_ring_take(&u->sessions, &q->m);
	if (was_new && u->sessions.old_head && !bbq_goes_first(session)) {
		bbq_session_append(inst, u, q, session, BBQ_OLD);
	} else {
		q->m.turn = BBQ_IDLE;
		u->active--;
	}
}

/* The same for the head user. Who sent too much (a GSO packet) waits until others had as much. */
bb_inline void bbq_user_over(__u32 inst, struct bbq_instance *in, struct bbq_user *u, __u32 user)
{
	__u32 was_new = u->m.turn == BBQ_NEW;

	bbq_ring_take(&in->users, &u->m);
	if ((was_new || u->m.deficit <= 0) && in->users.old_head)
		bbq_user_append(inst, in, u, user, BBQ_OLD);
	else
		u->m.turn = BBQ_IDLE;
}

/* A packet of so many bytes leaves: what it means for the turns of its group and user. */
bb_inline void bbq_turn_sent(struct bbq_instance *in, struct bb_iface *iface, struct bbq_user *u,
			     __u32 user, struct bbq_queue *q, __u32 bytes)
{
	bbq_ring_sent(&u->sessions, &q->m, bytes);
	if (user != BBQ_MEDIA) {
		bbq_ring_sent(&in->users, &u->m, bytes);
		/* What media leave costs nothing. */
		if (in->plain_credit > 0 && in->media.sessions.members)
			in->plain_credit -= bytes;
	} else if (in->plain_qlen && iface->plain_share) {
		__u32 share = iface->plain_share < 99 ? iface->plain_share : 99;
		__s64 credit = in->plain_credit + (__u64)bytes * share / (100 - share);

		in->plain_credit = credit < bbq_quantum ? credit : bbq_quantum;
	}
}

bb_inline struct bbq_wheel *bbq_wheel(__u32 inst)
{
	return bpf_map_lookup_elem(&bbq_wheels, &inst);
}

/*
 * Puts a session that may not send yet into the wheel: for its rate, or, where
 * `departs` is not 0, because it has nothing that may depart before then. A time beyond
 * the horizon waits in the last bucket and is looked at again there. The next turn of a
 * session with a rate is this instance's, unless that sent last, or another one waits
 * already.
 */
__noinline int bbq_throttle(__u32 inst, __u32 session, __u64 now, __u64 departs)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bb_session *ses = bbq_session(session);
	struct bbq_wheel *w = bbq_wheel(inst);
	__u64 tick, today, until = departs;
	struct bbq_queue *behind;
	__u32 bucket;

	if (!in || !q || !ses || !w)
		return 0;
	if (!departs && !ses->turn && ses->sent_by != inst + 1) {
		q->turn_ns = ses->next_ns;
		ses->turn = inst + 1;
	}
	today = now >> BBQ_WHEEL_SHIFT;
	if (!in->throttled)
		w->tick = today;
	/* Rounded up: never early. At least the next tick, at most the horizon. */
	if (!departs)
		until = bbq_allowed(ses, q, inst);
	tick = (until >> BBQ_WHEEL_SHIFT) + 1;
	if (tick <= today)
		tick = today + 1;
	if (tick >= w->tick + BBQ_WHEEL_TICKS)
		tick = w->tick + BBQ_WHEEL_TICKS - 1;
	bucket = tick & (BBQ_WHEEL_TICKS - 1);
	q->m.next = w->bucket[bucket];
	behind = bbq_queue_at(inst, q->m.next);
	if (behind)
		behind->before = session;
	q->bucket = bucket;
	q->departs = departs != 0;
	w->bucket[bucket] = session;
	w->word[bucket >> 6] |= 1ULL << (bucket & 63);
	w->words |= 1ULL << (bucket >> 6);
	q->m.turn = BBQ_THROTTLED;
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

/* Bucket b has nobody left. */
bb_inline void bbq_wheel_emptied(struct bbq_wheel *w, __u32 b)
{
	__u32 word = (b >> 6) & (BBQ_WHEEL_TICKS / 64 - 1);

	w->word[word] &= ~(1ULL << (b & 63));
	if (!w->word[word])
		w->words &= ~(1ULL << word);
}

/* Session q, which is out of the wheel, may send again. */
bb_inline void bbq_wake(__u32 inst, struct bbq_instance *in, struct bbq_queue *q, __u32 session)
{
	__u32 user = q->user;
	struct bbq_user *u = bbq_user_at(in, inst, user);

	in->throttled--;
	if (!u)
		return;
	if (!q->nonempty) {
		q->m.turn = BBQ_IDLE;
		u->active--;
		return;
	}
	bbq_session_append(inst, u, q, session, BBQ_OLD);
	if (user == BBQ_MEDIA)
		bbq_urge(inst, in, q, session);
	else if (u->m.turn == BBQ_IDLE)
		bbq_user_append(inst, in, u, user, BBQ_OLD);
}

/*
 * Gives every session whose time has come its place among the old ones. With half of the operation's
 * work: the others wait for the next one, and something is sent meanwhile.
 */
__noinline int bbq_release(__u32 inst, __u64 now)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_wheel *w = bbq_wheel(inst);
	__u64 tick = 0, today = now >> BBQ_WHEEL_SHIFT;

	if (!in || !w)
		return 0;
	while (bb_can_loop) {
		__u32 bucket, session;

		/* The rest of a bucket is there still. */
		if (in->work <= BBQ_WORK / 2)
			return 0;
		tick = bbq_wheel_first(w, w->tick);
		if (!tick || tick > today)
			break;
		bucket = tick & (BBQ_WHEEL_TICKS - 1);
		session = w->bucket[bucket];
		w->tick = tick;
		while (session && in->work > BBQ_WORK / 2 && bb_can_loop) {
			struct bbq_queue *q = bbq_queue_at(inst, session);
			__u32 next;

			if (!q)
				break;
			in->work -= BBQ_WORK_WAKE;
			next = q->m.next;
			bbq_wake(inst, in, q, session);
			session = next;
		}
		w->bucket[bucket] = session;
		if (!session)
			bbq_wheel_emptied(w, bucket);
	}
	w->tick = today;
	in->wake_ns = tick << BBQ_WHEEL_SHIFT;
	return 0;
}

/*
 * A session that waits in the wheel for a departure got something that may leave
 * earlier: takes it out.
 */
__noinline int bbq_call_back(__u32 inst, __u32 session)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_queue *q = bbq_queue_at(inst, session), *other;
	struct bbq_wheel *w = bbq_wheel(inst);
	__u32 bucket;

	if (!in || !q || !w)
		return 0;
	bucket = q->bucket & (BBQ_WHEEL_TICKS - 1);
	other = bbq_queue_at(inst, q->m.next);
	if (other)
		other->before = q->before;
	if (w->bucket[bucket] == session) {
		w->bucket[bucket] = q->m.next;
		if (!q->m.next)
			bbq_wheel_emptied(w, bucket);
	} else {
		other = bbq_queue_at(inst, q->before);
		if (other)
			other->m.next = q->m.next;
	}
	bbq_wake(inst, in, q, session);
	return 0;
}

#endif /* BBQ_TURNS_BPF_H */
