/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/* bb_auto_empty.h - a queue that was full when the first marker left is emptied once (bb_auto.h, 8). */
#ifndef BB_AUTO_EMPTY_H
#define BB_AUTO_EMPTY_H

#include "bb_auto_path.h"

/*
 * Upper half: markers before the last one that was answered, as far as they are still known. Lower half: those of them
 * that have no answer. Such an answer does not come any more.
 */
bb_apart __u64 bb_auto_missing(struct bb_auto *a)
{
	__u64 count = 0;
	__u32 n;

	if (!a)
		return 0;
	for (n = 1; n < BB_AUTO_MARKERS; n++) {
		__u32 number = a->last - n;

		if ((__s32)(number - a->first) < 0 || a->next - number > BB_AUTO_MARKERS)
			break;
		count += bb_auto_marker(a, number)->heard_ns ? 1ULL << 32 : (1ULL << 32) + 1;
	}
	return count;
}

/* It is emptied from now on. `sure`: a queue was met, whether it gets shorter or not. */
bb_apart int bb_auto_empty(struct bb_auto *a, __u32 sure, __u64 now)
{
	if (!a)
		return 0;
	a->rate = bb_auto_most(a->carries / 4, a->least);
	if (a->most)
		a->rate = bb_auto_least(a->rate, a->most);
	a->state = BB_AUTO_FOLLOWS;
	/* The next answers left before. */
	a->empties_ns = now + a->rtt_ns + BB_AUTO_EMPTIES_NS;
	a->fell = sure;
	return 0;
}

/* Are so many answers missing that a queue may be full whose end nobody has seen? Then it is emptied from now on. */
bb_apart int bb_auto_look(struct bb_auto *a, __u64 now)
{
	const struct bb_auto_marker *from, *to;
	__u64 count, rate;
	__u32 all, missing;

	if (!a || a->state != BB_AUTO_UNSEEN || now < a->blind_ns)
		return 0;
	count = bb_auto_missing(a);
	all = count >> 32;
	missing = count;
	if (all < BB_AUTO_DECIDED)
		return 0;
	/* Few ways are that long without a queue: then one that is missing says enough. */
	if (!missing ||
	    (a->base_ns < BB_AUTO_LONG_WAY_NS && (missing < 3 || missing * BB_AUTO_MISSING < all)))
		return 0;
	to = bb_auto_marker(a, a->last - 1);
	from = bb_auto_marker(a, a->last - all);
	rate = bb_auto_rate(to->bytes - from->bytes, to->left_ns - from->left_ns);
	a->carries = bb_auto_most(rate * (all - missing) / all, a->least);
	bb_auto_empty(a, 0, now);
	return 1;
}

/*
 * An answer took rtt_ns, and the least round trip was `before`. Is the path being emptied? It goes on while round trips
 * get shorter. A least one that falls far while a rate is in force was a queue.
 */
bb_apart int bb_auto_empties(struct bb_auto *a, __u64 before, __u64 rtt_ns, __u64 now)
{
	if (!a)
		return 0;
	if (!a->empties_ns) {
		a->rtt_ns = rtt_ns;
		if (!a->rate || a->base_ns + 2 * BB_AUTO_TARGET_NS >= before)
			return 0;
		bb_auto_empty(a, 1, now);
		return 1;
	}
	if (a->base_ns + 2 * BB_AUTO_MS < before)
		a->fell = 1;
	/* They get longer at first, since those who left before are still to come. Jitter is neither. */
	if (rtt_ns + BB_AUTO_MS < a->rtt_ns)
		a->empties_ns = bb_auto_most(a->empties_ns, now + BB_AUTO_EMPTIES_NS);
	if (rtt_ns + BB_AUTO_MS < a->rtt_ns || rtt_ns > a->rtt_ns + 2 * BB_AUTO_TARGET_NS)
		a->rtt_ns = rtt_ns;
	if (now < a->empties_ns)
		return 1;
	if (!a->fell) {
		bb_auto_let_go(a, BB_AUTO_UNSEEN);
		a->blind_ns = now + (BB_AUTO_BLIND_NS << bb_auto_least(a->blind, 4));
		a->blind++;
		return 1;
	}
	a->empties_ns = 0;
	a->blind = 0;
	return 0;
}

#endif /* BB_AUTO_EMPTY_H */
