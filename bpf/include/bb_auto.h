/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_auto.h - the rate of a path, from how long its markers take. Nobody has to tell it. Pure
 * arithmetic, like bb_core.h; bpf/tests/queue/auto.rs tests it, with the whole queue before a
 * router. Markers are the agent's echo requests (bbq_auto.bpf.h).
 *
 * 1. The problem. The narrow place is a router behind us. All that it cannot send waits there,
 *    in order of arrival, and is late. This host sees nothing but a longer round trip.
 * 2. A marker is a packet whose answer names it. Its round trip above the least one is the queue
 *    that it met. If two markers both met a queue, the path was busy between them: the bytes sent
 *    between them, by the time between their answers, are what it carries. One step finds a
 *    halved link, and nothing is guessed.
 * 3. The rate in force is what the path carries, less what empties its queue within 100 ms. Below
 *    the target (10 ms, or a large packet's time) it grows: else a path that got faster would
 *    never show it. It grows only while more would be sent: an ADU was given up, or packets wait.
 *    It grows slowly near the rate at which a queue stood last, and puts no more than 30 ms into
 *    the queue until the next answer.
 * 4. An answer that is overdue says the same before it comes. Since the last answer fewer bytes
 *    went through than those up to its marker.
 * 5. Nothing is in force until a queue was met: a path that is wide enough stays as it is.
 * 6. A queue that does not empty though all that was ours must have left is not ours. A short one is
 *    taken for the path, which has got longer. A long one, or one soon after, is of others, who fill
 *    the path: yielding would only give them all. No rate is in force then, for a while.
 *
 * Rates are bytes/s. Parts are in 1/65536.
 */
#ifndef BB_AUTO_H
#define BB_AUTO_H

#include "bb_auto_abi.h"
#include "bb_core.h"

#define BB_AUTO_NONE (~0ULL)
#define BB_AUTO_MS 1000000ULL
/* The least round trip is that of 17 to 34 s. */
#define BB_AUTO_BASE_SHIFT 34
#define BB_AUTO_ONE 65536ULL
/* The queue that is aimed at, at least, and what counts as none. */
#define BB_AUTO_TARGET_NS (10 * BB_AUTO_MS)
#define BB_AUTO_NO_QUEUE_NS (4 * BB_AUTO_MS)
/* Over which the carried rate is a mean, at least. */
#define BB_AUTO_MEAN_NS (150 * BB_AUTO_MS)
/* A queue is worked off within this. */
#define BB_AUTO_DRAIN_NS (100 * BB_AUTO_MS)
/* The most that growth may queue until an answer says so. */
#define BB_AUTO_GROWTH_NS (30 * BB_AUTO_MS)
/* Growth in 100 ms: at first, and at most. It doubles each 400 ms without a queue. */
#define BB_AUTO_GROWTH (BB_AUTO_ONE * 2 / 100)
#define BB_AUTO_GROWTH_MOST (BB_AUTO_ONE * 12 / 100)
#define BB_AUTO_CALM_NS (400 * BB_AUTO_MS)
/* More is wanted for so long after an ADU was given up, or more than two packets waited. */
#define BB_AUTO_WANTED_NS BB_NSEC_PER_SEC
/* Jitter is forgotten within this, and looked for only where answers are not further apart. */
#define BB_AUTO_FORGET_NS (15 * BB_NSEC_PER_SEC)
#define BB_AUTO_SELDOM_NS (400 * BB_AUTO_MS)
/* Answers that are further apart count as this. */
#define BB_AUTO_LONG_NS (5 * BB_NSEC_PER_SEC)
#define BB_AUTO_JITTER_MOST_NS (80 * BB_AUTO_MS)
#define BB_AUTO_BEHIND_MOST_NS (80 * BB_AUTO_MS)
/* A queue that stays is a longer path if it is shorter than this. */
#define BB_AUTO_REBASE_NS (150 * BB_AUTO_MS)
/* Nothing is tried for so long, doubled up to four times, where others fill the path. */
#define BB_AUTO_OTHERS_NS (10 * BB_NSEC_PER_SEC)
/* Without an answer for so long, or five times the usual time between them, nothing is known. */
#define BB_AUTO_SILENT_NS (10 * BB_NSEC_PER_SEC)

bb_inline __u64 bb_auto_least(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

bb_inline __u64 bb_auto_most(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

/* Lengths of time that scale with the path. */
struct bb_auto_scale {
	__u64 packet_ns; /* a large packet takes this */
	__u64 target_ns;
	__u64 no_queue_ns;
	__u64 mean_ns;
};

bb_inline __u64 bb_auto_ns(__u64 bytes, __u64 rate)
{
	return rate ? bb_auto_least(bytes, 1ULL << 34) * BB_NSEC_PER_SEC / rate : 0;
}

bb_inline __u64 bb_auto_rate(__u64 bytes, __u64 ns)
{
	return bb_auto_least(bytes, 1ULL << 34) * BB_NSEC_PER_SEC / (ns ?: 1);
}

/* part / whole. Both are below 2^47. */
bb_inline __u64 bb_auto_part(__u64 part, __u64 whole)
{
	return (part << 16) / (whole ?: 1);
}

bb_inline struct bb_auto_scale bb_auto_scale(const struct bb_auto *a)
{
	struct bb_auto_scale s;

	s.packet_ns = a->carries ? bb_auto_ns(a->largest, a->carries) : 5 * BB_AUTO_MS;
	s.target_ns = bb_auto_most(BB_AUTO_TARGET_NS, s.packet_ns);
	s.no_queue_ns = bb_auto_most(BB_AUTO_NO_QUEUE_NS, s.packet_ns / 2);
	s.mean_ns = bb_auto_most(BB_AUTO_MEAN_NS, 5 * s.packet_ns);
	return s;
}

bb_inline struct bb_auto_marker *bb_auto_marker(struct bb_auto *a, __u32 number)
{
	return &a->marker[number & (BB_AUTO_MARKERS - 1)];
}

bb_inline __u64 bb_auto_base(const struct bb_auto *a)
{
	return bb_auto_least(a->least_ns[0], a->least_ns[1]);
}

/* A path of which nothing is known yet. The bounds stay. */
bb_inline void bb_auto_init(struct bb_auto *a)
{
	a->rate = a->behind_ns = a->answers = a->sent = a->gave_up_ns = a->waited_ns = 0;
	a->carries = a->top = a->best = 0;
	a->heard_ns = a->heard_bytes = a->heard_carries = a->heard_queue_ns = 0;
	a->least_ns[0] = a->least_ns[1] = BB_AUTO_NONE;
	a->window = a->jitter_ns = a->spacing_ns = a->calm_ns = 0;
	a->drained_ns = a->watch_most_ns = a->others_ns = a->rebased_ns = 0;
	a->others = a->rebased = a->next = a->oldest = a->last = a->largest = a->state = a->busy =
		0;
	a->due_ns = BB_AUTO_NONE;
}

/* No rate is in force any more. It stays known how much the path carried. */
bb_inline void bb_auto_let_go(struct bb_auto *a, __u32 state)
{
	a->state = state;
	a->rate = 0;
	a->behind_ns = 0;
	a->watch_most_ns = 0;
	a->calm_ns = 0;
}

/* Without an answer until then nothing is known any more. */
bb_inline __u64 bb_auto_until(const struct bb_auto *a)
{
	return a->heard_ns + bb_auto_most(BB_AUTO_SILENT_NS, 5 * a->spacing_ns);
}

/* When is the answer of the oldest open marker overdue, or all that is known too old? */
bb_inline void bb_auto_set_due(struct bb_auto *a, const struct bb_auto_scale *s)
{
	__u64 base = bb_auto_base(a), late = 2 * s->target_ns;

	a->due_ns = a->rate ? bb_auto_until(a) : BB_AUTO_NONE;
	if (a->oldest == a->next || base == BB_AUTO_NONE || !a->last)
		return;
	/* Nothing is in force until a queue was met for certain. */
	late += a->jitter_ns + (a->rate ? 0 : late);
	a->due_ns = bb_auto_least(a->due_ns, bb_auto_marker(a, a->oldest)->left_ns + base + late);
}

/* A marker leaves at `now`; it is counted in a->sent already. */
bb_inline void bb_auto_leaves(struct bb_auto *a, __u32 name, __u64 now)
{
	struct bb_auto_scale s = bb_auto_scale(a);
	__u32 number = a->next;
	struct bb_auto_marker *m = bb_auto_marker(a, number);

	m->left_ns = now;
	m->bytes = a->sent;
	m->heard_ns = 0;
	m->queue_ns = 0;
	m->name = name;
	a->next = number + 1;
	if (a->next - a->oldest > BB_AUTO_MARKERS)
		a->oldest = a->next - BB_AUTO_MARKERS;
	bb_auto_set_due(a, &s);
}

/* A rate comes in force, since_ns after the last one: so much waits behind us now. */
bb_inline void bb_auto_put(struct bb_auto *a, const struct bb_auto_scale *s, __u64 queue_ns,
			   __u64 since_ns, int wanted)
{
	__u64 part, growth, rate = a->carries;

	if (queue_ns > s->target_ns) {
		part = bb_auto_part(queue_ns - s->target_ns,
				    bb_auto_most(BB_AUTO_DRAIN_NS, since_ns));
		rate -= rate * bb_auto_least(part, BB_AUTO_ONE * 3 / 4) >> 16;
	} else if (wanted) {
		part = bb_auto_part(BB_AUTO_GROWTH_NS + s->packet_ns,
				    (a->spacing_ns ?: BB_AUTO_DRAIN_NS) + bb_auto_base(a));
		growth = BB_AUTO_GROWTH << bb_auto_least(a->calm_ns / BB_AUTO_CALM_NS, 3);
		growth = bb_auto_least(growth, BB_AUTO_GROWTH_MOST);
		growth = growth * bb_auto_least(since_ns, 20 * BB_AUTO_DRAIN_NS) / BB_AUTO_DRAIN_NS;
		growth = bb_auto_least(growth, part);
		growth = growth * bb_auto_part(s->target_ns - queue_ns, s->target_ns) >> 16;
		rate += rate * growth >> 16;
	}
	rate = bb_auto_most(rate, a->least);
	a->rate = a->most ? bb_auto_least(rate, a->most) : rate;
	a->state = BB_AUTO_FOLLOWS;
	a->best = bb_auto_most(a->carries, a->best - (a->best >> 9));
}

/* A queue has begun since the marker before: the path carries no more than this. */
bb_inline __u64 bb_auto_begun(const struct bb_auto *a, __u64 rate, __u64 queue_ns, __u64 since_ns)
{
	/* carries / (1 + queue / since): as if it had begun with that marker. */
	__u64 shrunk = a->carries * 1024 / (1024 + (queue_ns << 10) / (since_ns ?: 1));

	return bb_auto_most(rate, shrunk);
}

/*
 * The marker that a busy time goes back to: from `number`, which met a queue, over those that did,
 * too, and for no longer than s->mean_ns. `number` itself: the one before met none.
 */
bb_inline __u32 bb_auto_busy_since(struct bb_auto *a, const struct bb_auto_scale *s, __u32 number,
				   __u64 now)
{
	__u32 since = number, n;

	for (n = 1; n < BB_AUTO_MARKERS; n++) {
		const struct bb_auto_marker *m = bb_auto_marker(a, number - n);

		if (n > number)
			break;
		if (!m->heard_ns)
			continue;
		if (m->queue_ns <= s->no_queue_ns)
			break;
		since = number - n;
		if (now - m->heard_ns >= s->mean_ns)
			break;
	}
	return since;
}

/* The answered marker before `number`, and how many are looked at; NULL: none is known. */
bb_inline struct bb_auto_marker *bb_auto_before(struct bb_auto *a, __u32 number, __u32 *steps)
{
	__u32 n;

	for (n = 1; n < BB_AUTO_MARKERS; n++) {
		struct bb_auto_marker *m = bb_auto_marker(a, number - n);

		if (n > number)
			return 0;
		if (m->heard_ns) {
			*steps = n;
			return m;
		}
	}
	return 0;
}

/* The answer of marker `number` came at `now`: how much does the path carry? */
bb_inline void bb_auto_learn(struct bb_auto *a, const struct bb_auto_scale *s, __u32 number,
			     __u64 now, __u64 since_ns, int wanted)
{
	struct bb_auto_marker *m = bb_auto_marker(a, number), *from;
	__u64 queue = m->queue_ns, rate, time, part;
	__u32 since, steps = 0;

	if (queue > s->no_queue_ns) {
		since = bb_auto_busy_since(a, s, number, now);
		if (since != number) {
			from = bb_auto_marker(a, since);
			time = now - from->heard_ns;
			rate = bb_auto_rate(m->bytes - from->bytes, time);
			part = bb_auto_least(bb_auto_part(time, s->mean_ns), BB_AUTO_ONE);
			part = part * bb_auto_least(bb_auto_part(2 * since_ns, time),
						    BB_AUTO_ONE) >>
			       16;
			if (!a->carries)
				a->carries = rate;
			else if (rate > a->carries)
				a->carries += (rate - a->carries) * part >> 16;
			else
				a->carries -= (a->carries - rate) * part >> 16;
			return;
		}
		if (queue <= 2 * s->target_ns)
			return;
		from = bb_auto_before(a, number, &steps);
		if (!from)
			return;
		time = now - from->heard_ns;
		rate = bb_auto_rate(m->bytes - from->bytes, time);
		a->carries = a->carries ? bb_auto_least(a->carries,
							bb_auto_begun(a, rate, queue, time)) :
					  rate;
	} else if (a->rate && wanted && a->carries) {
		/* It carries what was sent. */
		a->carries = bb_auto_most(a->carries,
					  bb_auto_least(a->rate, a->carries + a->carries / 10));
	}
}

/* The last three markers all met a queue, and more came through than is believed: then that counts. */
bb_inline int bb_auto_faster(struct bb_auto *a, const struct bb_auto_scale *s, __u32 number,
			     __u64 now)
{
	struct bb_auto_marker *m = bb_auto_marker(a, number), *one, *two;
	__u32 steps = 0, more = 0;
	__u64 rate;

	one = bb_auto_before(a, number, &steps);
	if (!one || one->queue_ns <= s->no_queue_ns)
		return 0;
	two = bb_auto_before(a, number - steps, &more);
	if (!two || two->queue_ns <= s->no_queue_ns || steps + more >= BB_AUTO_MARKERS)
		return 0;
	rate = bb_auto_rate(m->bytes - two->bytes, now - two->heard_ns);
	if (rate < a->carries + a->carries * 3 / 20)
		return 0;
	a->carries = rate;
	return 1;
}

/* A round trip of rtt_ns at `now`: the least one of this window and the one before. */
bb_inline void bb_auto_round_trip(struct bb_auto *a, __u64 rtt_ns, __u64 now)
{
	__u64 window = now >> BB_AUTO_BASE_SHIFT;

	if (window != a->window) {
		a->least_ns[1] = window == a->window + 1 ? a->least_ns[0] : BB_AUTO_NONE;
		a->least_ns[0] = BB_AUTO_NONE;
		a->window = window;
	}
	a->least_ns[0] = bb_auto_least(a->least_ns[0], rtt_ns);
}

/* The path is another one, whose round trip is longer by a queue that does not leave. */
bb_inline void bb_auto_rebase(struct bb_auto *a, const struct bb_auto_scale *s, __u64 queue,
			      __u64 rtt_ns, __u64 now)
{
	/* A little less than it is, so that it is seen to be one. */
	a->least_ns[0] = rtt_ns - bb_auto_least(2 * BB_AUTO_MS, queue / 10);
	a->least_ns[1] = BB_AUTO_NONE;
	a->rebased++;
	a->rebased_ns = now;
	a->watch_most_ns = 0;
	a->behind_ns = s->packet_ns / 2;
	/* Earlier markers met another path. */
	a->last = 0;
	a->oldest = a->next;
	bb_auto_put(a, s, 0, 0, 0);
}

/*
 * Does a queue stay though all that was ours must have left? Then what is known of the path changes. By
 * drained_ns it must have got shorter since the answer before.
 */
bb_inline void bb_auto_watch(struct bb_auto *a, const struct bb_auto_scale *s, __u64 queue,
			     __u64 drained_ns, __u64 rtt_ns, __u64 now)
{
	__u64 carries = bb_auto_most(a->carries, a->best / 2);
	__u64 packet = bb_auto_ns(a->largest, carries);

	if (queue <= bb_auto_most(BB_AUTO_TARGET_NS, packet) * 3 / 2) {
		a->watch_most_ns = 0;
		return;
	}
	a->drained_ns = a->watch_most_ns ? a->drained_ns + drained_ns : 0;
	a->watch_most_ns = bb_auto_most(a->watch_most_ns, queue);
	if (a->drained_ns <= a->watch_most_ns * 3 / 2 + bb_auto_most(BB_AUTO_DRAIN_NS, 5 * packet))
		return;
	a->carries = bb_auto_most(a->carries, a->best * 7 / 10);
	if (queue < BB_AUTO_REBASE_NS && now - a->rebased_ns > BB_AUTO_OTHERS_NS) {
		bb_auto_rebase(a, s, queue, rtt_ns, now);
		return;
	}
	a->others_ns = now + (BB_AUTO_OTHERS_NS << bb_auto_least(a->others, 4));
	a->others++;
	bb_auto_let_go(a, BB_AUTO_OTHERS);
}

/* An answer. */
struct bb_auto_answer {
	const struct bb_auto_marker *before; /* the one that was answered before; NULL = none was */
	__u64 now;
	__u64 rtt_ns;
	__u64 queue_ns; /* that its marker met */
	__u64 since_ns; /* the last answer */
	__u64 drained_ns; /* by so much the queue got shorter between the two markers */
	int wanted; /* more would be sent */
	int shown; /* the rate in force was all but used */
};

/*
 * Jitter only adds: the queue is the least of what two answers say, where answers were late without
 * one. To the earlier one comes what was sent since.
 */
bb_inline __u64 bb_auto_sure(struct bb_auto *a, const struct bb_auto_scale *s,
			     const struct bb_auto_answer *x, const struct bb_auto_marker *m)
{
	__u64 gap = m->left_ns - x->before->left_ns, sent, was, fell;

	sent = bb_auto_ns(m->bytes - x->before->bytes, a->carries);
	was = a->heard_queue_ns + sent;
	was = was > gap ? was - gap : 0;
	/* The one before fell faster than the path could have emptied it: it was jitter. */
	fell = x->queue_ns + (gap > sent ? gap - sent : 0);
	fell = a->heard_queue_ns > fell ? a->heard_queue_ns - fell : 0;
	a->jitter_ns -= a->jitter_ns * bb_auto_least(bb_auto_part(x->since_ns, BB_AUTO_FORGET_NS),
						     BB_AUTO_ONE) >>
			16;
	a->jitter_ns = bb_auto_most(a->jitter_ns, bb_auto_least(fell, BB_AUTO_JITTER_MOST_NS));
	if (a->jitter_ns <= s->no_queue_ns / 2 || a->spacing_ns > BB_AUTO_SELDOM_NS ||
	    a->heard_queue_ns >= x->queue_ns)
		return x->queue_ns;
	return bb_auto_least(x->queue_ns, was);
}

/* The answer of marker `number`, which comes at x->now. Does it count? */
bb_inline int bb_auto_reads(struct bb_auto *a, const struct bb_auto_scale *s, __u32 number,
			    struct bb_auto_answer *x)
{
	struct bb_auto_marker *m = bb_auto_marker(a, number);
	__u64 gap, sent, said;

	/* Of the last markers alone, once, in order. */
	if (a->next - number - 1 >= BB_AUTO_MARKERS || m->heard_ns || x->now < m->left_ns ||
	    (a->last && (__s32)(number + 1 - a->last) <= 0))
		return 0;
	x->rtt_ns = x->now - m->left_ns;
	bb_auto_round_trip(a, x->rtt_ns, x->now);
	said = x->queue_ns = x->rtt_ns - bb_auto_base(a);
	x->since_ns = BB_AUTO_DRAIN_NS;
	x->shown = 1;
	x->wanted = x->now - a->gave_up_ns < BB_AUTO_WANTED_NS;
	if (a->last && a->next - a->last < BB_AUTO_MARKERS)
		x->before = bb_auto_marker(a, a->last - 1);
	if (x->before && !x->before->heard_ns)
		x->before = 0;
	if (x->before) {
		x->since_ns = bb_auto_least(x->now - x->before->heard_ns, BB_AUTO_LONG_NS);
		a->spacing_ns = a->spacing_ns ? (a->spacing_ns * 4 + x->since_ns) / 5 : x->since_ns;
		gap = m->left_ns - x->before->left_ns;
		sent = bb_auto_ns(m->bytes - x->before->bytes,
				  bb_auto_most(a->carries, a->best / 2));
		x->drained_ns = gap > sent ? gap - sent : 0;
		if (a->carries)
			x->queue_ns = bb_auto_sure(a, s, x, m);
		x->shown =
			bb_auto_rate(m->bytes - x->before->bytes, x->since_ns) >= a->rate * 3 / 4;
		/* Packets that waited beside an idle path would not have been sent. */
		if (x->now - a->waited_ns < BB_AUTO_WANTED_NS && x->shown)
			x->wanted = 1;
	}
	m->heard_ns = x->now;
	m->queue_ns = x->queue_ns;
	a->answers++;
	a->heard_queue_ns = said;
	a->last = number + 1;
	a->oldest = number + 1;
	a->heard_ns = x->now;
	a->heard_bytes = m->bytes;
	return 1;
}

/* For how long has the rate grown away from where a queue stood? A slow path is soon full: there it must be shown. */
bb_inline void bb_auto_grew(struct bb_auto *a, const struct bb_auto_scale *s,
			    const struct bb_auto_answer *x)
{
	if (x->queue_ns > s->no_queue_ns) {
		a->calm_ns = 0;
		a->top = a->carries;
	} else if (a->carries > a->top * 17 / 20 && a->carries < a->top * 28 / 25) {
		a->calm_ns = 0;
	} else if (x->wanted) {
		a->calm_ns += bb_auto_least(x->since_ns, 5 * BB_AUTO_DRAIN_NS) /
			      (x->shown ? 1 : 1 + s->packet_ns / BB_AUTO_NO_QUEUE_NS);
	}
}

/* How long a packet waits behind us, a mean of 200 ms. */
bb_inline void bb_auto_waits(struct bb_auto *a, const struct bb_auto_scale *s,
			     const struct bb_auto_answer *x)
{
	__u64 wait = bb_auto_least(x->queue_ns, BB_AUTO_BEHIND_MOST_NS) + s->packet_ns / 2;
	__u64 part = bb_auto_least(bb_auto_part(x->since_ns, 2 * BB_AUTO_DRAIN_NS), BB_AUTO_ONE);

	if (wait > a->behind_ns)
		a->behind_ns += (wait - a->behind_ns) * part >> 16;
	else
		a->behind_ns -= (a->behind_ns - wait) * part >> 16;
}

bb_inline void bb_auto_hear(struct bb_auto *a, __u32 number, __u64 now)
{
	struct bb_auto_marker *m = bb_auto_marker(a, number);
	struct bb_auto_scale s = bb_auto_scale(a);
	struct bb_auto_answer x = { .now = now };
	__u64 there, gone = now - m->left_ns;

	if (!bb_auto_reads(a, &s, number, &x))
		return;
	if (a->state == BB_AUTO_SILENT)
		a->state = BB_AUTO_UNSEEN;
	if (a->state == BB_AUTO_OTHERS) {
		if (now < a->others_ns && x.queue_ns > s.no_queue_ns)
			return;
		if (x.queue_ns <= s.no_queue_ns)
			a->others = 0;
		a->state = BB_AUTO_UNSEEN;
	}
	if (x.before)
		bb_auto_learn(a, &s, number, now, x.since_ns, x.wanted);
	a->carries = a->carries ? bb_auto_most(a->carries, a->least) : 0;
	a->heard_carries = a->carries;
	if (!a->carries || (!a->rate && x.queue_ns <= 2 * s.target_ns))
		return;
	s = bb_auto_scale(a);
	bb_auto_grew(a, &s, &x);
	if (x.queue_ns > s.no_queue_ns && bb_auto_faster(a, &s, number, now))
		x.wanted = 1;
	if (x.queue_ns > s.no_queue_ns || x.wanted) {
		/* Since it left, what was sent has come to the queue, and the path has emptied it. */
		there = x.queue_ns + bb_auto_ns(a->sent - m->bytes, a->carries);
		bb_auto_put(a, &s, there > gone ? there - gone : 0, x.since_ns, x.wanted);
	}
	bb_auto_waits(a, &s, &x);
	if (a->rate && x.before)
		bb_auto_watch(a, &s, x.queue_ns, x.drained_ns, x.rtt_ns, now);
}

/* The answer of the marker with this name comes at `now`. */
bb_inline void bb_auto_hears(struct bb_auto *a, __u32 name, __u64 now)
{
	struct bb_auto_scale s;
	__u32 n;

	for (n = 1; n <= BB_AUTO_MARKERS; n++)
		if (n <= a->next && bb_auto_marker(a, a->next - n)->name == name)
			break;
	if (n > BB_AUTO_MARKERS)
		return;
	bb_auto_hear(a, a->next - n, now);
	s = bb_auto_scale(a);
	bb_auto_set_due(a, &s);
}

/* It is a->due_ns. */
bb_inline void bb_auto_overdue(struct bb_auto *a, __u64 now)
{
	struct bb_auto_scale s = bb_auto_scale(a);
	const struct bb_auto_marker *open = bb_auto_marker(a, a->oldest);
	__u64 base = bb_auto_base(a), queue, rate;

	if (now >= bb_auto_until(a))
		bb_auto_let_go(a, BB_AUTO_SILENT);
	if (a->oldest == a->next || base == BB_AUTO_NONE || !a->last ||
	    a->state == BB_AUTO_OTHERS || a->state == BB_AUTO_SILENT) {
		a->due_ns = a->rate ? bb_auto_until(a) : BB_AUTO_NONE;
		return;
	}
	/* It is looked at again. */
	a->due_ns = now + BB_AUTO_TARGET_NS;
	rate = bb_auto_rate(open->bytes - a->heard_bytes, now - a->heard_ns);
	if (!a->carries || rate < a->carries)
		a->carries = a->carries ? bb_auto_most(rate, a->heard_carries / 2) : rate;
	a->carries = bb_auto_most(a->carries, a->least);
	queue = bb_auto_ns(a->sent - open->bytes, a->carries);
	queue = queue > base ? queue - base : 0;
	bb_auto_put(a, &s, bb_auto_most(2 * s.target_ns, queue), BB_AUTO_DRAIN_NS, 1);
}

#endif /* BB_AUTO_H */
