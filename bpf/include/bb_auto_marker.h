/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/* bb_auto_marker.h - the markers of a path (bb_auto.h): which one is asked for, and the law's arithmetic. */
#ifndef BB_AUTO_MARKER_H
#define BB_AUTO_MARKER_H

#include "bb_auto_abi.h"
#include "bb_core.h"

#define BB_AUTO_ONE 65536ULL

bb_inline __u64 bb_auto_least(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

bb_inline __u64 bb_auto_most(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

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

bb_inline struct bb_auto_marker *bb_auto_marker(struct bb_auto *a, __u32 number)
{
	return &a->marker[number & (BB_AUTO_MARKERS - 1)];
}

/*
 * A busy time goes back from marker `number`, which met a queue, over markers that met more than no_queue_ns, for
 * mean_ns at most. Returns its first marker; `number` itself: the one before met none.
 */
bb_apart __u32 bb_auto_busy_since(struct bb_auto *a, __u64 no_queue_ns, __u64 mean_ns, __u32 number,
				  __u64 now)
{
	__u32 since = number, n;

	if (!a)
		return number;
	for (n = 1; n < BB_AUTO_MARKERS; n++) {
		const struct bb_auto_marker *m = bb_auto_marker(a, number - n);

		if ((__s32)(number - n - a->first) < 0)
			break;
		if (!m->heard_ns)
			continue;
		if (m->queue_ns <= no_queue_ns)
			break;
		since = number - n;
		if (now - m->heard_ns >= mean_ns)
			break;
	}
	return since;
}

/* How many before `number` the one before it that was answered is; 0: none is known. */
bb_apart __u32 bb_auto_before(struct bb_auto *a, __u32 number)
{
	__u32 n;

	if (!a)
		return 0;
	for (n = 1; n < BB_AUTO_MARKERS; n++) {
		if ((__s32)(number - n - a->first) < 0)
			return 0;
		if (bb_auto_marker(a, number - n)->heard_ns)
			return n;
	}
	return 0;
}

/* How many before the next one the marker with this name is; 0: it is none of the last. */
bb_apart __u32 bb_auto_named(struct bb_auto *a, __u32 name)
{
	__u32 n;

	if (!a)
		return 0;
	for (n = 1; n <= BB_AUTO_MARKERS && n <= a->next; n++)
		if (bb_auto_marker(a, a->next - n)->name == name)
			return n;
	return 0;
}

#endif /* BB_AUTO_MARKER_H */
