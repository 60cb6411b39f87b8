/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_real.h - TCP-Real (Zhang, Tsaoussidis, NOSSDAV 2001): the option, the waves,
 * the receiver's rate and decision, the sender's verdict. Pure arithmetic, like
 * bb_core.h; bpf/tests/real.rs tests it.
 *
 * 1. The problem. Reno halves its window at every loss. A loss on a radio link
 *    says nothing of congestion, and the sender alone cannot tell them apart.
 * 2. The idea. Segments leave in waves of a congestion window each. The receiver
 *    measures how fast a wave arrives: a bottleneck spreads it out, a lost segment
 *    does not. It tells the sender the rate and, in the paper, the next wave's
 *    level (level i = 2 i segments).
 * 3. Figure 1 of the paper moves the level with the ratio of two rates. On an idle
 *    path the ratio is 1 and the level stays for ever, so one rule is ours
 *    (BB_REAL_STEADY): a rate that did not fall makes the level grow.
 * 4. Mode paper follows the level. Mode guarded grows as Reno does and cancels a
 *    reduction only if two guards agree: the RTT is near its minimum, so no queue
 *    stands, and the window is below what the measured rate carries in that time.
 *
 * Whoever sends the option can lie. What arrives here is bounded, wraps, and decides
 * nothing but the rate and level that are told back; the sender's guards rest on
 * its own RTT, and the greatest level bounds what they can keep.
 */
#ifndef BB_REAL_H
#define BB_REAL_H

#include "bb_core.h"

/* ---- the option: 8 bytes on every segment ---- */

#define BB_REAL_KIND 253 /* RFC 4727; with an identifier behind it, RFC 6994 */
#define BB_REAL_EXID 0x5254 /* not registered */
#define BB_REAL_LENGTH 8
#define BB_REAL_LAST 0x80 /* of wave_level: the last segment of its wave */

struct bb_real_option {
	__u8 kind;
	__u8 length;
	__u8 exid[2];
	__u8 wave; /* of the segment's data */
	__u8 wave_level; /* level of that wave, 0 = no data; BB_REAL_LAST */
	__u8 rate; /* bb_real_code: of what arrived; 0 = not known */
	__u8 next; /* next level for the other end, 0 = not decided */
};

/* No sender of ours sends it: a level that says it is the last segment of no wave, or too high. */
bb_inline int bb_real_valid(const struct bb_real_option *option)
{
	return option->kind == BB_REAL_KIND && option->length == BB_REAL_LENGTH &&
	       option->exid[0] == BB_REAL_EXID >> 8 && option->exid[1] == (BB_REAL_EXID & 0xff) &&
	       option->wave_level != BB_REAL_LAST && option->next <= BB_REAL_MAX_LEVEL;
}

/*
 * A rate (bytes/s) in 8 bits: five of exponent, three of mantissa, rounded down by
 * less than an eighth. 0 to 7 bytes/s are 0; 4 GB/s and more are the greatest code.
 */
bb_inline __u8 bb_real_code(__u64 rate)
{
	__u32 exponent = 0, left;

	if (rate > 0xffffffffULL)
		rate = 0xffffffffULL;
	if (rate < 8)
		return 0;
	left = (__u32)rate;
	if (left >> 16) {
		left >>= 16;
		exponent += 16;
	}
	if (left >> 8) {
		left >>= 8;
		exponent += 8;
	}
	if (left >> 4) {
		left >>= 4;
		exponent += 4;
	}
	if (left >> 2) {
		left >>= 2;
		exponent += 2;
	}
	if (left >> 1)
		exponent += 1;
	return (__u8)(exponent << 3 | ((rate >> (exponent - 3)) & 7));
}

bb_inline __u64 bb_real_rate(__u8 code)
{
	return code ? ((__u64)(8 + (code & 7)) << (code >> 3)) >> 3 : 0;
}

/* ---- the receiver ---- */

#define BB_REAL_ONE 65536U /* one level */

/* Ours: a rate of at least so many thousandths of the one before did not fall. */
#define BB_REAL_STEADY 900

/* A ratio of rates beyond it says no more. */
#define BB_REAL_RATIO_MAX 4000

/* Waiting for a wave longer than twice its time and this much: the decision timer. */
#define BB_REAL_TIMER_US 2000

/* So many waves without a rate: the last rate is of another time. */
#define BB_REAL_RATE_WAVES 16

/*
 * Figure 1: the next level (in 1/65536) from the current one and two rates (bytes/s).
 * Its weights 0.618 and 0.382 are the golden ratio's, in thousandths here. Then our
 * growth: as slow start below the threshold, one segment a wave above it.
 */
bb_inline __u32 bb_real_next(__u32 level, __u32 threshold, __u32 before, __u32 rate, __u32 most)
{
	__u64 ratio = before ? (__u64)rate * 1000 / before : 1000, next;

	if (ratio > BB_REAL_RATIO_MAX)
		ratio = BB_REAL_RATIO_MAX;
	if (ratio < 1000)
		next = level > threshold ? level * (618000 + 382 * ratio) / 1000000 :
					   level * (382000 + 618 * ratio) / 1000000;
	else
		next = level > threshold ? level * (382000 + 618 * ratio) / 1000000 :
					   level * (500000 + 500 * ratio) / 1000000;
	if (before && ratio >= BB_REAL_STEADY) {
		if (next < level)
			next = level;
		next += level < threshold ? level : BB_REAL_ONE / 2;
	}
	if (next > (__u64)most * BB_REAL_ONE)
		next = (__u64)most * BB_REAL_ONE;
	return next < BB_REAL_ONE ? BB_REAL_ONE : (__u32)next;
}

/* The level told: whole, 1 at least; 0 before anything was decided. */
bb_inline __u8 bb_real_told(const struct bb_real_rx *rx)
{
	__u32 level = (rx->level + BB_REAL_ONE / 2) / BB_REAL_ONE;

	if (!rx->level)
		return 0;
	if (level > BB_REAL_MAX_LEVEL)
		level = BB_REAL_MAX_LEVEL;
	return level ? (__u8)level : 1;
}

/* The rate told, as a code; 0 when the last one is too old. */
bb_inline __u8 bb_real_told_rate(const struct bb_real_rx *rx)
{
	return rx->unmeasured < BB_REAL_RATE_WAVES ? bb_real_code(rx->rate) : 0;
}

/* Data that arrived: one segment, or several that were merged on the way up. */
struct bb_real_segment {
	__u64 now_ns;
	__u32 seq;
	__u32 length; /* of the data */
	__u32 segments; /* 1 at least */
	__u8 wave;
	__u8 wave_level;
};

/* What became of the wave: bits. */
#define BB_REAL_MEASURED 1
#define BB_REAL_UNMEASURED 2
#define BB_REAL_TIMER 4

/*
 * Ends the wave at what arrived until now. The rate is that of the bytes behind the
 * first segment, by sequence numbers: what was lost inside counts, as the paper
 * wants, and the first segment's own time does not. Two segments say nothing.
 */
bb_inline int bb_real_decide(struct bb_real_rx *rx, __u32 length, int timer, __u32 most)
{
	__u64 us = (rx->last_ns - rx->first_ns) / 1000, rate;
	__u32 span = rx->end - rx->first_end, level = rx->level, size = rx->size * BB_REAL_ONE;

	rx->flags |= BB_REAL_RX_DECIDED;
	if (!rx->first_ns || !us || span < 2 * length || span > 0x7fffffff) {
		if (rx->unmeasured < 255)
			rx->unmeasured++;
		return BB_REAL_UNMEASURED;
	}
	rate = (__u64)span * 1000000 / us;
	if (rate > 0xffffffffULL)
		rate = 0xffffffffULL;
	if (!rx->threshold)
		rx->threshold = most * BB_REAL_ONE / 2;
	/* A window far below what was told, after a timeout for example, is where it goes on from. */
	if (!level || level > size + 2 * BB_REAL_ONE)
		level = size;
	if (timer) {
		rx->threshold = level / 2 > BB_REAL_ONE ? level / 2 : BB_REAL_ONE;
	}
	rx->level = bb_real_next(level, rx->threshold, rx->rate, (__u32)rate, most);
	rx->rate = (__u32)rate;
	rx->unmeasured = 0;
	return BB_REAL_MEASURED | (timer ? BB_REAL_TIMER : 0);
}

/*
 * Takes arrived data into account; `most` is the greatest level. A wave ends with its
 * last segment, with the next wave's first, or when it takes longer than twice what
 * the rate before makes of its size. Retransmissions have no part in its rate. A number
 * that goes back begins a wave, too, if its data are beyond all others: a stranger's
 * segment may have put the number ahead.
 */
bb_inline int bb_real_arrive(struct bb_real_rx *rx, const struct bb_real_segment *s, __u32 most)
{
	__u32 end = s->seq + s->length, each = s->length / (s->segments ? s->segments : 1);
	__u64 expected_us;
	int became = 0;

	if (!(rx->flags & BB_REAL_RX_BEGUN) || (__s8)(s->wave - rx->wave) > 0 ||
	    (s->wave != rx->wave && (__s32)(end - rx->end) > 0)) {
		if (!(rx->flags & BB_REAL_RX_BEGUN))
			rx->end = s->seq;
		else if (!(rx->flags & BB_REAL_RX_DECIDED))
			became = bb_real_decide(rx, each, 0, most);
		rx->wave = s->wave;
		rx->size = s->wave_level & (BB_REAL_LAST - 1);
		rx->flags = BB_REAL_RX_BEGUN;
		rx->first_ns = 0;
	} else if (s->wave != rx->wave) {
		return 0; /* an earlier wave's, overtaken */
	}
	if ((__s32)(end - rx->end) > 0) {
		rx->end = end;
		rx->last_ns = s->now_ns;
		if (!rx->first_ns) {
			rx->first_ns = s->now_ns;
			rx->first_end = end;
		}
	}
	if ((rx->flags & BB_REAL_RX_DECIDED) || !rx->first_ns || !each)
		return became;
	if (s->wave_level & BB_REAL_LAST) {
		/* The mark is on each segment of a super-packet: until three came, it says nothing. */
		if (rx->end - rx->first_end >= 2 * each)
			became |= bb_real_decide(rx, each, 0, most);
		return became;
	}
	if (rx->rate) {
		expected_us = (__u64)rx->size * 2 * each * 1000000 / rx->rate;
		if ((s->now_ns - rx->first_ns) / 1000 > 2 * expected_us + BB_REAL_TIMER_US) {
			rx->last_ns = s->now_ns;
			became |= bb_real_decide(rx, each, 1, most);
		}
	}
	return became;
}

/* ---- the sender ---- */

/* Of the option's seven bits of level. */
#define BB_REAL_WAVE_MAX (2U * BB_REAL_MAX_LEVEL)

/* A pause of at least this much ends a wave, however short the RTT is. */
#define BB_REAL_GAP_NS 2000000ULL

/*
 * The tag of so many segments that leave now, window cwnd: returns wave_level, the number
 * is tx->wave. A wave is a window; after a pause of a quarter of the RTT (srtt_us), or
 * a timeout, a new one begins, else its rate would be one window in an RTT.
 */
bb_inline __u8 bb_real_tag(struct bb_real_tx *tx, __u32 cwnd, __u32 segments, __u32 srtt_us,
			   __u64 now_ns)
{
	__u64 gap = (__u64)srtt_us * 250;

	if (gap < BB_REAL_GAP_NS)
		gap = BB_REAL_GAP_NS;
	if (tx->sent >= tx->size || tx->restart || now_ns - tx->last_ns > gap) {
		tx->wave++;
		tx->sent = 0;
		tx->restart = 0;
		tx->size = cwnd < 2 ? 2 : cwnd > BB_REAL_WAVE_MAX ? BB_REAL_WAVE_MAX : cwnd;
	}
	tx->sent += segments;
	tx->last_ns = now_ns;
	return (__u8)((tx->size + 1) / 2 | (tx->sent >= tx->size ? BB_REAL_LAST : 0));
}

/* Does the other end still speak? It may miss from acknowledgements of many holes, which have no room. */
bb_inline int bb_real_live(const struct bb_real_conn *conn, __u32 cwnd)
{
	return conn->told_level && conn->why == BB_REAL_SPEAKS && conn->acks <= 2 * (__u64)cwnd + 8;
}

/* The window (segments) that the other end's level stands for. */
bb_inline __u32 bb_real_window(const struct bb_real_conn *conn, __u32 most)
{
	__u32 level = conn->told_level < most ? conn->told_level : most;

	return level > 1 ? 2 * level : 2;
}

/* First guard: no queue stands, since the RTT is at most 5/4 of the least one (both us, 0 = not known). */
bb_inline int bb_real_quiet(__u32 rtt_us, __u32 min_rtt_us)
{
	return rtt_us && min_rtt_us && (__u64)rtt_us * 4 <= (__u64)min_rtt_us * 5;
}

/* Second guard: the window is at most 3/4 of what the receiver's rate carries in the least RTT. */
bb_inline int bb_real_room(__u32 cwnd, __u32 mss, __u8 rate, __u32 min_rtt_us)
{
	/* A rate is below 2^32 * 2, an RTT below 2^32: the product fits. */
	__u64 carries = bb_real_rate(rate) * min_rtt_us / 1000000;

	return rate && (__u64)cwnd * mss <= carries / 4 * 3;
}

/* What a cancelled reduction leaves of a window: all, up to the greatest level; never less than Reno's half. */
bb_inline __u32 bb_real_kept(__u32 cwnd, __u32 half, __u32 most)
{
	__u32 kept = cwnd < 2 * most ? cwnd : 2 * most;

	return kept > half ? kept : half;
}

#endif /* BB_REAL_H */
