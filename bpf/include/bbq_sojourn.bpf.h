/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How long packets waited here, and how much of their time was left then. Of a session for
 * rtt.bpf.c, which takes it off what TCP measured: a queue of our own is not the path
 * (bb_rtt.h). Of the transmit queue for the operator, as histograms.
 */
#ifndef BBQ_SOJOURN_BPF_H
#define BBQ_SOJOURN_BPF_H

#include "bb_rtt.h"
#include "bbq_device.bpf.h"

bb_inline void bbq_time_add(struct bb_time *t, __u64 ns)
{
	__u64 above = ns ? (ns - 1) >> BB_TIME_SHIFT : 0;
	__u32 bucket;

	if (above >= 1ULL << (BB_TIME_BUCKETS - 2))
		above = (1ULL << (BB_TIME_BUCKETS - 1)) - 1;
	/* All bits below the highest one: their number is the bucket. */
	above |= above >> 1;
	above |= above >> 2;
	above |= above >> 4;
	above |= above >> 8;
	above |= above >> 16;
	bucket = bbq_lowest(above + 1);
	if (bucket >= BB_TIME_BUCKETS)
		return;
	t->count[bucket]++;
	t->sum_ns += ns;
}

/* Packet p leaves its session at `now`; returns whether it is late. A call: a dequeue has no room for it on its stack. */
static __noinline int bbq_note_departure(struct bbq_instance *in, struct bb_session *ses,
					 const struct bbq_packet *p, __u64 now)
{
	__u64 wait = now - p->arrived_ns;
	__s64 late;

	bb_wait_add(ses, wait, now);
	bbq_time_add(&in->times.sojourn, wait);
	if (!p->deadline)
		return 0;
	late = bb_lateness(bbq_free_at(in, now), ses->owd_ns, p->deadline);
	if (late > 0)
		bbq_time_add(&in->times.lateness, late);
	else
		bbq_time_add(&in->times.slack, -late);
	return late > 0;
}

#endif /* BBQ_SOJOURN_BPF_H */
