/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_rtt.h - how long a path takes, from RTTs of TCP that may have waited in
 * our own queue. Pure arithmetic, like bb_core.h; bpf/tests/rtt.rs tests it.
 *
 * 1. The problem. A packet is stale when now + owd > deadline. The only delay
 *    that TCP measures contains the time its packets waited in our own queue.
 *    A bulk download that waits there for a second would make all audio to the
 *    same receiver stale, and the audio never waits behind it.
 * 2. What is known. A sample u is never below the path's RTT. The queue knows
 *    for each session how long packets waited lately (wait); so c = u - wait is
 *    never above what the path, and queues of others, took.
 * 3. The estimate m starts with c. It falls to u at once. It rises to the
 *    least c of all connections in two windows (of 4.3 s), so a path that really got
 *    longer is followed within 10 s. One slow connection, or one receiver that
 *    delays its acknowledgements, raises nothing while another one is honest.
 *
 * 4. STUN and RTCP measure the same where a receiver has no TCP, more seldom, and
 *    by the receiver's own word. So one source speaks at a time (bb_rtt_takes): a
 *    lesser one only where the better ones were silent for 17 s. What it says goes
 *    through the same filter.
 *
 * Several CPUs may add samples at once. One of them begins a new window; a
 * sample lost in that moment costs one window's precision, which the next
 * sample of that path repairs.
 */
#ifndef BB_RTT_H
#define BB_RTT_H

#include "bb_core.h"

#define BB_RTT_NONE (~0ULL)

/* No path of today's is longer: whoever says so lies, or its answer lay about. */
#define BB_RTT_MOST_NS (10 * BB_NSEC_PER_SEC)

/* A packet of the session leaves our queue at now_ns, wait_ns after it came. */
bb_inline void bb_wait_add(struct bb_session *session, __u64 wait_ns, __u64 now_ns)
{
	__u64 age = now_ns - session->wait_from_ns;

	if (age >= BB_WAIT_WINDOW_NS) {
		session->wait_ns[1] = age < 2 * BB_WAIT_WINDOW_NS ? session->wait_ns[0] : 0;
		session->wait_ns[0] = 0;
		session->wait_from_ns = now_ns;
	}
	if (wait_ns > session->wait_ns[0])
		session->wait_ns[0] = wait_ns;
}

/* The longest wait of a packet whose acknowledgement may come now. */
bb_inline __u64 bb_wait_lately(const struct bb_session *session, __u64 now_ns)
{
	__u64 wait = session->wait_ns[0], before = session->wait_ns[1];
	/* Another CPU may have begun the window just after `now` was read: signed. */
	__s64 age = now_ns - session->wait_from_ns;

	if (age >= (__s64)(3 * BB_WAIT_WINDOW_NS))
		return 0;
	return age < (__s64)(2 * BB_WAIT_WINDOW_NS) && before > wait ? before : wait;
}

/* Samples of another source say nothing of these windows; min_rtt_ns stays until the next one. */
bb_inline void bb_rtt_begin(struct bb_rtt *rtt, __u32 source)
{
	rtt->source = source;
	rtt->least_ns[0] = rtt->least_ns[1] = BB_RTT_NONE;
	rtt->window = 0;
	rtt->base_ns[0] = rtt->base_ns[1] = BB_RTT_NONE;
	rtt->base_window = 0;
}

/* An estimate that knows nothing. */
bb_inline void bb_rtt_init(struct bb_rtt *rtt)
{
	rtt->min_rtt_ns = 0;
	bb_rtt_begin(rtt, BB_RTT_NOBODY);
}

bb_inline __u32 bb_rtt_shift(__u32 source)
{
	return source == BB_RTT_TCP ? BB_RTT_WINDOW_SHIFT : BB_RTT_SELDOM_SHIFT;
}

/*
 * Does a sample of this source count? Not while a better one speaks. Else it is the
 * one that does from now on.
 */
bb_inline int bb_rtt_takes(struct bb_rtt *rtt, __u32 source, __u64 now_ns)
{
	__u32 now = rtt->source;

	if (now == source)
		return 1;
	/* A signed age: another CPU may have written it just after `now` was read. */
	if (now < source && (__s64)(now_ns - rtt->updated_ns) < 1LL << BB_RTT_SELDOM_SHIFT)
		return 0;
	bb_rtt_begin(rtt, source);
	return 1;
}

/*
 * The RTT in an answer that came age_ns after what it answers was seen, which the
 * other end says it kept for held_ns; 0: that cannot be. At least a microsecond else,
 * because 0 says that nothing is known.
 */
bb_inline __u64 bb_rtt_of_answer(__u64 age_ns, __u64 held_ns)
{
	if (held_ns > age_ns || age_ns - held_ns > BB_RTT_MOST_NS)
		return 0;
	return age_ns - held_ns > 1000 ? age_ns - held_ns : 1000;
}

/* DLSR of a report block, in 1/65536 s. */
bb_inline __u64 bb_dlsr_ns(__u32 dlsr)
{
	return (__u64)dlsr * BB_NSEC_PER_SEC >> 16;
}

/*
 * The least round trip of minutes, whatever waited in it: the last one above that, less our own wait, is
 * what a queue behind us holds.
 */
bb_inline void bb_rtt_base(struct bb_rtt *rtt, __u64 sample_ns, __u64 now_ns)
{
	__u32 window = now_ns >> BB_RTT_BASE_SHIFT, last = rtt->base_window;

	if (window != last && __sync_bool_compare_and_swap(&rtt->base_window, last, window)) {
		rtt->base_ns[1] = window == last + 1 ? rtt->base_ns[0] : BB_RTT_NONE;
		rtt->base_ns[0] = BB_RTT_NONE;
	}
	if (sample_ns < rtt->base_ns[0])
		rtt->base_ns[0] = sample_ns;
}

/* A sample of sample_ns, of which at most wait_ns were our own queue. */
bb_inline void bb_rtt_add(struct bb_rtt *rtt, __u64 sample_ns, __u64 wait_ns, __u64 now_ns)
{
	__u64 least = sample_ns > wait_ns ? sample_ns - wait_ns : 0;
	__u64 window = now_ns >> bb_rtt_shift(rtt->source), last = rtt->window;
	__u64 floor, estimate = rtt->min_rtt_ns;

	if (window > last && __sync_bool_compare_and_swap(&rtt->window, last, window)) {
		rtt->least_ns[1] = window == last + 1 ? rtt->least_ns[0] : BB_RTT_NONE;
		rtt->least_ns[0] = BB_RTT_NONE;
	}
	if (least < rtt->least_ns[0])
		rtt->least_ns[0] = least;
	floor = rtt->least_ns[1] < least ? rtt->least_ns[1] : least;
	if (rtt->least_ns[0] < floor)
		floor = rtt->least_ns[0];
	if (estimate < floor)
		estimate = floor;
	rtt->min_rtt_ns = estimate < sample_ns ? estimate : sample_ns;
	bb_rtt_base(rtt, sample_ns, now_ns);
}

/*
 * The owd that a packet first seen at from_ns is judged by, where owd_ns is
 * half of a measured RTT: at most half of its lifetime. A measurement alone must
 * not make a packet stale that nothing else keeps from being sent.
 */
bb_inline __u64 bb_measured_owd(__u64 owd_ns, __u64 from_ns, __u64 deadline_ns)
{
	__u64 half;

	if (deadline_ns <= from_ns)
		return owd_ns;
	half = (deadline_ns - from_ns) / 2;
	return owd_ns < half ? owd_ns : half;
}

#endif /* BB_RTT_H */
