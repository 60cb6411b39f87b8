/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/* bb_auto_path.h - the constants and scales of the law (bb_auto.h), the ends that are asked, begin and end. */
#ifndef BB_AUTO_PATH_H
#define BB_AUTO_PATH_H

#include "bb_auto_marker.h"

#define BB_AUTO_NONE (~0ULL)
#define BB_AUTO_MS 1000000ULL
/* The least round trip is that of 17 to 34 s. */
#define BB_AUTO_BASE_SHIFT 34
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
/* The word of another end counts for so long, or for three times the usual time between answers. */
#define BB_AUTO_BESIDE_NS (500 * BB_AUTO_MS)
/* Answers that are further apart count as this. */
#define BB_AUTO_LONG_NS (5 * BB_NSEC_PER_SEC)
#define BB_AUTO_JITTER_MOST_NS (80 * BB_AUTO_MS)
#define BB_AUTO_BEHIND_MOST_NS (80 * BB_AUTO_MS)
/* A queue that stays is a longer path if it is shorter than this. */
#define BB_AUTO_REBASE_NS (150 * BB_AUTO_MS)
/* Nothing is tried for so long, doubled up to four times, where others fill the path. */
#define BB_AUTO_OTHERS_NS (10 * BB_NSEC_PER_SEC)
/* One in so many answers is missing where a router's queue is full, and so many are looked at, at least. */
#define BB_AUTO_MISSING 6
#define BB_AUTO_DECIDED 8
/* A queue of 100 ms that is met before so many answers came may have stood from the beginning. */
#define BB_AUTO_FEW 40
#define BB_AUTO_LONG_WAY_NS (300 * BB_AUTO_MS)
/* Round trips must get shorter within this, and go on getting shorter. */
#define BB_AUTO_EMPTIES_NS (400 * BB_AUTO_MS)
/* A path that got no shorter is emptied again after this, doubled up to four times. */
#define BB_AUTO_BLIND_NS (60 * BB_NSEC_PER_SEC)
/* Without an answer for so long, or five times the usual time between them, nothing is known. */
#define BB_AUTO_SILENT_NS (10 * BB_NSEC_PER_SEC)

/* Lengths of time that scale with the path. */
struct bb_auto_scale {
	__u64 packet_ns; /* a large packet takes this */
	__u64 target_ns;
	__u64 no_queue_ns;
	__u64 mean_ns;
};

bb_inline struct bb_auto_scale bb_auto_scale(const struct bb_auto *a)
{
	struct bb_auto_scale s;

	s.packet_ns = a->carries ? bb_auto_ns(a->largest, a->carries) : 5 * BB_AUTO_MS;
	s.target_ns = bb_auto_most(BB_AUTO_TARGET_NS, s.packet_ns);
	s.no_queue_ns = bb_auto_most(BB_AUTO_NO_QUEUE_NS, s.packet_ns / 2);
	s.mean_ns = bb_auto_most(BB_AUTO_MEAN_NS, 5 * s.packet_ns);
	return s;
}

/* The end that the marker of this name asked. */
bb_inline struct bb_auto_end *bb_auto_end(struct bb_auto *a, __u32 name)
{
	return &a->end[name >> 16 & (BB_AUTO_ENDS - 1)];
}

/* Its least round trip; BB_AUTO_NONE: none is known. */
bb_inline __u64 bb_auto_base(const struct bb_auto_end *e)
{
	return bb_auto_least(e->least_ns[0], e->least_ns[1]);
}

/* A path of which nothing is known yet. The bounds stay. */
bb_inline void bb_auto_init(struct bb_auto *a)
{
	a->rate = a->behind_ns = a->answers = a->sent = a->gave_up_ns = a->waited_ns = 0;
	a->carries = a->top = a->best = 0;
	a->heard_ns = a->heard_bytes = a->heard_carries = a->heard_queue_ns = 0;
	a->base_ns = a->jitter_ns = a->spacing_ns = a->calm_ns = 0;
	a->drained_ns = a->watch_most_ns = a->others_ns = a->rebased_ns = 0;
	a->rtt_ns = a->empties_ns = a->blind_ns = a->blind = a->fell = 0;
	a->others = a->rebased = a->first = a->next = a->oldest = a->last = a->largest = a->state =
		a->busy = a->beside = 0;
	for (__u32 n = 0; n < BB_AUTO_ENDS; n++) {
		a->end[n].least_ns[0] = a->end[n].least_ns[1] = BB_AUTO_NONE;
		a->end[n].heard_ns = 0;
	}
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
	a->empties_ns = 0;
}

/* Without an answer until then nothing is known any more. */
bb_inline __u64 bb_auto_until(const struct bb_auto *a)
{
	return a->heard_ns + bb_auto_most(BB_AUTO_SILENT_NS, 5 * a->spacing_ns);
}

#endif /* BB_AUTO_PATH_H */
