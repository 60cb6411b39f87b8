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
 * 6. Several ends may be asked. A queue that only one of them meets is on its own way, or it says so
 *    falsely: then the rate of all is not its rate. So the queue is what the least of them says.
 * 7. A queue that does not empty though all that was ours must have left is not ours. A short one is
 *    taken for the path, which has got longer. A long one, or one soon after, is of others, who fill
 *    the path: yielding would only give them all. No rate is in force then, for a while.
 *
 * 8. Where a queue stood from the beginning, its length is taken for the way. Then it is met after few answers, or
 *    answers are missing because the router drops what does not fit. So the path gets a quarter of what comes
 *    through for as long as round trips get shorter. If they do not, and none was met, it was no queue.
 *
 * Rates are bytes/s. Parts are in 1/65536.
 */
#ifndef BB_AUTO_H
#define BB_AUTO_H

#include "bb_auto_empty.h"

/* When is the answer of the oldest open marker overdue, or all that is known too old? */
bb_apart int bb_auto_set_due(struct bb_auto *a)
{
	struct bb_auto_scale s;
	__u64 base, late;

	if (!a)
		return 0;
	if (a->empties_ns) {
		a->due_ns = bb_auto_until(a);
		return 0;
	}
	s = bb_auto_scale(a);
	base = bb_auto_base(bb_auto_end(a, bb_auto_marker(a, a->oldest)->name));
	/* Another end's answer may show that the path is not in the way. */
	late = 2 * s.target_ns + (a->beside ? a->spacing_ns : 0);
	a->due_ns = a->rate ? bb_auto_until(a) : BB_AUTO_NONE;
	if (a->oldest == a->next || base == BB_AUTO_NONE || !a->last)
		return 0;
	/* Nothing is in force until a queue was met for certain. */
	late += a->jitter_ns + (a->rate ? 0 : late);
	a->due_ns = bb_auto_least(a->due_ns, bb_auto_marker(a, a->oldest)->left_ns + base + late);
	return 0;
}

/* A marker leaves at `now`; it is counted in a->sent already. */
bb_inline void bb_auto_leaves(struct bb_auto *a, __u32 name, __u64 now)
{
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
	bb_auto_set_due(a);
}

/* A rate comes in force, since_ns after the last one: so much waits behind us now. */
bb_apart int bb_auto_put(struct bb_auto *a, const struct bb_auto_scale *s, __u64 queue_ns,
			 __u64 since_ns, int wanted)
{
	__u64 part, growth, rate;

	if (!a || !s)
		return 0;
	rate = a->carries;
	if (queue_ns > s->target_ns) {
		part = bb_auto_part(queue_ns - s->target_ns,
				    bb_auto_most(BB_AUTO_DRAIN_NS, since_ns));
		rate -= rate * bb_auto_least(part, BB_AUTO_ONE * 3 / 4) >> 16;
	} else if (wanted) {
		part = bb_auto_part(BB_AUTO_GROWTH_NS + s->packet_ns,
				    (a->spacing_ns ?: BB_AUTO_DRAIN_NS) + a->base_ns);
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
	return 0;
}

/* A queue has begun since the marker before: the path carries no more than this. */
bb_inline __u64 bb_auto_begun(const struct bb_auto *a, __u64 rate, __u64 queue_ns, __u64 since_ns)
{
	/* carries / (1 + queue / since): as if it had begun with that marker. */
	__u64 shrunk = a->carries * 1024 / (1024 + (queue_ns << 10) / (since_ns ?: 1));

	return bb_auto_most(rate, shrunk);
}

/* The last three markers all met a queue, and more came through than is believed: then that counts. */
bb_apart int bb_auto_faster(struct bb_auto *a, __u64 no_queue_ns, __u32 number, __u64 now)
{
	struct bb_auto_marker *m, *two;
	__u32 one, more;
	__u64 rate;

	if (!a)
		return 0;
	m = bb_auto_marker(a, number);
	one = bb_auto_before(a, number);
	if (!one || bb_auto_marker(a, number - one)->queue_ns <= no_queue_ns)
		return 0;
	more = bb_auto_before(a, number - one);
	two = bb_auto_marker(a, number - one - more);
	if (!more || two->queue_ns <= no_queue_ns || one + more >= BB_AUTO_MARKERS)
		return 0;
	rate = bb_auto_rate(m->bytes - two->bytes, now - two->heard_ns);
	if (rate < a->carries + a->carries * 3 / 20)
		return 0;
	a->carries = rate;
	return 1;
}

/* A round trip of rtt_ns at `now`: the least one of this window and the one before. */
bb_inline void bb_auto_round_trip(struct bb_auto_end *e, __u64 rtt_ns, __u64 now)
{
	__u64 window = now >> BB_AUTO_BASE_SHIFT;

	if (window != e->window) {
		e->least_ns[1] = window == e->window + 1 ? e->least_ns[0] : BB_AUTO_NONE;
		e->least_ns[0] = BB_AUTO_NONE;
		e->window = window;
	}
	e->least_ns[0] = bb_auto_least(e->least_ns[0], rtt_ns);
}

/* The queue that the marker of this name met, which left at left_ns: no more than what other ends say. */
bb_apart __u64 bb_auto_common(struct bb_auto *a, __u32 name, __u64 left_ns, __u64 now)
{
	__u32 own = name >> 16 & (BB_AUTO_ENDS - 1), n;
	__u64 queue, lately, grown;

	if (!a)
		return 0;
	lately = bb_auto_most(BB_AUTO_BESIDE_NS, 3 * a->spacing_ns);
	queue = a->end[own].queue_ns;
	a->beside = 0;
	for (n = 0; n < BB_AUTO_ENDS; n++) {
		const struct bb_auto_end *e = &a->end[n];
		__u64 there = e->queue_ns, gap = left_ns - e->left_ns;

		if (n == own || !e->heard_ns || now - e->heard_ns > lately)
			continue;
		a->beside = 1;
		/*
		 * Since that one left, what was sent has come to the queue, and the path has emptied it. Long ago
		 * says nothing of a queue that has grown.
		 */
		if (a->carries && (__s64)gap > 0) {
			grown = bb_auto_ns(a->end[own].bytes - e->bytes, a->carries);
			if (gap > 2 * BB_AUTO_DRAIN_NS)
				grown = bb_auto_least(grown, gap);
			there = there + grown > gap ? there + grown - gap : 0;
		}
		queue = bb_auto_least(queue, there);
	}
	return queue;
}

/* An answer. */
struct bb_auto_answer {
	__u32 before; /* 1 + number of the marker that was answered before; 0 = none was */
	__u64 now;
	__u64 at; /* less the end's least round trip */
	__u64 rtt_ns;
	__u64 queue_ns; /* that its marker met */
	__u64 since_ns; /* the last answer */
	__u64 drained_ns; /* by so much the queue got shorter between the two markers */
	int wanted; /* more would be sent */
	int shown; /* the rate in force was all but used */
};

/* The answer of marker `number` came: how much does the path carry? */
bb_apart int bb_auto_learn(struct bb_auto *a, const struct bb_auto_scale *s, __u32 number,
			   const struct bb_auto_answer *x)
{
	struct bb_auto_marker *m, *from;
	__u64 queue, rate, time, part;
	__u32 since, steps;

	if (!a || !s || !x)
		return 0;
	m = bb_auto_marker(a, number);
	queue = m->queue_ns;
	if (queue > s->no_queue_ns) {
		since = bb_auto_busy_since(a, s->no_queue_ns, s->mean_ns, number, x->at);
		if (since != number) {
			from = bb_auto_marker(a, since);
			time = x->at - from->heard_ns;
			rate = bb_auto_rate(m->bytes - from->bytes, time);
			part = bb_auto_least(bb_auto_part(time, s->mean_ns), BB_AUTO_ONE);
			part = part * bb_auto_least(bb_auto_part(2 * x->since_ns, time),
						    BB_AUTO_ONE) >>
			       16;
			if (!a->carries)
				a->carries = rate;
			else if (rate > a->carries)
				a->carries += (rate - a->carries) * part >> 16;
			else
				a->carries -= (a->carries - rate) * part >> 16;
			return 0;
		}
		if (queue <= 2 * s->target_ns)
			return 0;
		steps = bb_auto_before(a, number);
		if (!steps)
			return 0;
		from = bb_auto_marker(a, number - steps);
		time = x->at - from->heard_ns;
		rate = bb_auto_rate(m->bytes - from->bytes, time);
		a->carries = a->carries ? bb_auto_least(a->carries,
							bb_auto_begun(a, rate, queue, time)) :
					  rate;
	} else if (a->rate && x->wanted && a->carries) {
		/* It carries what was sent. */
		a->carries = bb_auto_most(a->carries,
					  bb_auto_least(a->rate, a->carries + a->carries / 10));
	}
	return 0;
}

/*
 * Jitter only adds: the queue is the least of what two answers say, where answers were late without
 * one. To the earlier one comes what was sent since, which takes sent_ns; it left gap_ns before.
 */
bb_apart __u64 bb_auto_sure(struct bb_auto *a, const struct bb_auto_answer *x, __u64 no_queue_ns,
			    __u64 gap_ns, __u64 sent_ns)
{
	__u64 was, fell;

	if (!a || !x)
		return 0;
	was = a->heard_queue_ns + sent_ns;
	was = was > gap_ns ? was - gap_ns : 0;
	/* The one before fell faster than the path could have emptied it: it was jitter. */
	fell = x->queue_ns + (gap_ns > sent_ns ? gap_ns - sent_ns : 0);
	fell = a->heard_queue_ns > fell ? a->heard_queue_ns - fell : 0;
	a->jitter_ns -= a->jitter_ns * bb_auto_least(bb_auto_part(x->since_ns, BB_AUTO_FORGET_NS),
						     BB_AUTO_ONE) >>
			16;
	a->jitter_ns = bb_auto_most(a->jitter_ns, bb_auto_least(fell, BB_AUTO_JITTER_MOST_NS));
	if (a->jitter_ns <= no_queue_ns / 2 || a->spacing_ns > BB_AUTO_SELDOM_NS ||
	    a->heard_queue_ns >= x->queue_ns)
		return x->queue_ns;
	return bb_auto_least(x->queue_ns, was);
}

/* The answer of marker `number`, which comes at x->now. Does it count? */
bb_apart int bb_auto_reads(struct bb_auto *a, const struct bb_auto_scale *s, __u32 number,
			   struct bb_auto_answer *x)
{
	struct bb_auto_marker *m, *before;
	__u64 gap, sent, said, bytes;
	struct bb_auto_end *e;

	if (!a || !s || !x)
		return 0;
	m = bb_auto_marker(a, number);
	e = bb_auto_end(a, m->name);
	/* Of the last markers alone, and once. */
	if (a->next - number - 1 >= BB_AUTO_MARKERS || m->heard_ns || x->now < m->left_ns)
		return 0;
	x->rtt_ns = x->now - m->left_ns;
	bb_auto_round_trip(e, x->rtt_ns, x->now);
	x->at = x->now - bb_auto_base(e);
	e->queue_ns = x->at - m->left_ns;
	e->heard_ns = x->now;
	e->left_ns = m->left_ns;
	e->bytes = m->bytes;
	/* In order: an end that is nearer, or less in the way, has said more already. */
	if (a->last && (__s32)(number + 1 - a->last) <= 0)
		return 0;
	a->base_ns = bb_auto_base(e);
	said = x->queue_ns = bb_auto_common(a, m->name, m->left_ns, x->now);
	x->since_ns = BB_AUTO_DRAIN_NS;
	x->shown = 1;
	x->wanted = x->now - a->gave_up_ns < BB_AUTO_WANTED_NS;
	before = bb_auto_marker(a, a->last - 1);
	if (a->last && a->next - a->last < BB_AUTO_MARKERS && before->heard_ns) {
		x->before = a->last;
		bytes = m->bytes - before->bytes;
		x->since_ns = bb_auto_least(x->at - before->heard_ns, BB_AUTO_LONG_NS);
		a->spacing_ns = a->spacing_ns ? (a->spacing_ns * 4 + x->since_ns) / 5 : x->since_ns;
		gap = m->left_ns - before->left_ns;
		sent = bb_auto_ns(bytes, bb_auto_most(a->carries, a->best / 2));
		x->drained_ns = gap > sent ? gap - sent : 0;
		if (a->carries)
			x->queue_ns = bb_auto_sure(a, x, s->no_queue_ns, gap,
						   bb_auto_ns(bytes, a->carries));
		x->shown = bb_auto_rate(bytes, x->since_ns) >= a->rate * 3 / 4;
		/* Packets that waited beside an idle path would not have been sent. */
		if (x->now - a->waited_ns < BB_AUTO_WANTED_NS && x->shown)
			x->wanted = 1;
	}
	m->heard_ns = x->at;
	m->queue_ns = x->queue_ns;
	a->answers++;
	a->heard_queue_ns = said;
	a->last = number + 1;
	a->oldest = number + 1;
	a->heard_ns = x->now;
	a->heard_bytes = m->bytes;
	return 1;
}

/* The path is another one, whose round trip is longer by a queue that does not leave. */
bb_inline void bb_auto_rebase(struct bb_auto *a, const struct bb_auto_scale *s,
			      const struct bb_auto_answer *x)
{
	struct bb_auto_end *e = bb_auto_end(a, bb_auto_marker(a, a->last - 1)->name);

	/* A little less than it is, so that it is seen to be one. */
	e->least_ns[0] = x->rtt_ns - bb_auto_least(2 * BB_AUTO_MS, x->queue_ns / 10);
	e->least_ns[1] = BB_AUTO_NONE;
	a->base_ns = e->least_ns[0];
	a->rebased++;
	a->rebased_ns = x->now;
	a->watch_most_ns = 0;
	a->behind_ns = s->packet_ns / 2;
	/* Earlier markers met another path. */
	a->last = 0;
	a->oldest = a->first = a->next;
	bb_auto_put(a, s, 0, 0, 0);
}

/* Does a queue stay though all that was ours must have left? Then what is known of the path changes. */
bb_apart int bb_auto_watch(struct bb_auto *a, const struct bb_auto_scale *s,
			   const struct bb_auto_answer *x)
{
	__u64 queue, packet;

	if (!a || !s || !x)
		return 0;
	queue = x->queue_ns;
	packet = bb_auto_ns(a->largest, bb_auto_most(a->carries, a->best / 2));
	if (queue <= bb_auto_most(BB_AUTO_TARGET_NS, packet) * 3 / 2) {
		a->watch_most_ns = 0;
		return 0;
	}
	a->drained_ns = a->watch_most_ns ? a->drained_ns + x->drained_ns : 0;
	a->watch_most_ns = bb_auto_most(a->watch_most_ns, queue);
	if (a->drained_ns <= a->watch_most_ns * 3 / 2 + bb_auto_most(BB_AUTO_DRAIN_NS, 5 * packet))
		return 0;
	a->carries = bb_auto_most(a->carries, a->best * 7 / 10);
	if (queue < BB_AUTO_REBASE_NS && x->now - a->rebased_ns > BB_AUTO_OTHERS_NS) {
		bb_auto_rebase(a, s, x);
		return 0;
	}
	a->others_ns = x->now + (BB_AUTO_OTHERS_NS << bb_auto_least(a->others, 4));
	a->others++;
	bb_auto_let_go(a, BB_AUTO_OTHERS);
	return 0;
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
	__u64 there, before, gone = now - m->left_ns;

	before = a->base_ns;
	if (!bb_auto_reads(a, &s, number, &x) || bb_auto_empties(a, before, x.rtt_ns, now) ||
	    bb_auto_look(a, now))
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
		bb_auto_learn(a, &s, number, &x);
	a->carries = a->carries ? bb_auto_most(a->carries, a->least) : 0;
	a->heard_carries = a->carries;
	if (!a->carries || (!a->rate && x.queue_ns <= 2 * s.target_ns))
		return;
	if (!a->rate && a->answers < BB_AUTO_FEW && x.queue_ns > BB_AUTO_DRAIN_NS) {
		bb_auto_empty(a, 1, now);
		return;
	}
	s = bb_auto_scale(a);
	bb_auto_grew(a, &s, &x);
	if (x.queue_ns > s.no_queue_ns && bb_auto_faster(a, s.no_queue_ns, number, x.at))
		x.wanted = 1;
	if (x.queue_ns > s.no_queue_ns || x.wanted) {
		/* Since it left, what was sent has come to the queue, and the path has emptied it. */
		there = x.queue_ns + bb_auto_ns(a->sent - m->bytes, a->carries);
		bb_auto_put(a, &s, there > gone ? there - gone : 0, x.since_ns, x.wanted);
	}
	bb_auto_waits(a, &s, &x);
	if (a->rate && x.before)
		bb_auto_watch(a, &s, &x);
}

/* The answer of the marker with this name comes at `now`. */
bb_inline void bb_auto_hears(struct bb_auto *a, __u32 name, __u64 now)
{
	__u32 n = bb_auto_named(a, name);

	if (!n)
		return;
	bb_auto_hear(a, a->next - n, now);
	bb_auto_set_due(a);
}

/* It is a->due_ns. */
bb_apart int bb_auto_overdue(struct bb_auto *a, __u64 now)
{
	const struct bb_auto_marker *open;
	__u64 base, queue, rate;
	struct bb_auto_scale s;

	if (!a)
		return 0;
	s = bb_auto_scale(a);
	open = bb_auto_marker(a, a->oldest);
	base = bb_auto_base(bb_auto_end(a, open->name));
	if (now >= bb_auto_until(a))
		bb_auto_let_go(a, BB_AUTO_SILENT);
	if (a->empties_ns) {
		a->due_ns = bb_auto_until(a);
		return 0;
	}
	if (a->oldest == a->next || base == BB_AUTO_NONE || !a->last ||
	    a->state == BB_AUTO_OTHERS || a->state == BB_AUTO_SILENT) {
		a->due_ns = a->rate ? bb_auto_until(a) : BB_AUTO_NONE;
		return 0;
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
	return 0;
}

#endif /* BB_AUTO_H */
