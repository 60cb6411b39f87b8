/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Packets that may not leave yet: their sockets said when (SO_TXTIME,
 * SO_MAX_PACING_RATE). They wait in a list of their own, each for itself, and get
 * their places among the others when their time has come, as if they arrived then. So
 * they hold up nothing, and no plan reckons with them before.
 */
#ifndef BBQ_DEPART_BPF_H
#define BBQ_DEPART_BPF_H

#include "bbq_method.bpf.h"

/* A later time of departure is taken to be this: as with fq's horizon. */
#define BBQ_DEPARTS_NS (10 * BB_NSEC_PER_SEC)
#define SKB_CLOCK_MONOTONIC 1
#define SKB_CLOCK_TAI 2

/*
 * When a packet may leave at the earliest, if its socket says so; 0 = at once. The
 * classifier has cleared what means a deadline. CLOCK_TAI, which ETF and TSN talkers use,
 * counts from another epoch; the difference of the two clocks is read now. A time of no
 * clock that a socket may name is that of the packet's arrival.
 */
bb_inline __u64 bbq_departs(struct sk_buff *skb, __u64 now)
{
	__u64 at = skb->tstamp;
	__u32 clock;

	if (at <= now)
		return 0;
	clock = BPF_CORE_READ_BITFIELD_PROBED(skb, tstamp_type);
	if (clock == SKB_CLOCK_TAI) {
		__u64 ahead = bpf_ktime_get_tai_ns() - bpf_ktime_get_ns();

		if (at <= now + ahead)
			return 0;
		at -= ahead;
	} else if (clock != SKB_CLOCK_MONOTONIC) {
		return 0;
	}
	return at - now < BBQ_DEPARTS_NS ? at : now + BBQ_DEPARTS_NS;
}

/*
 * The first packet of a session that waits for its departure: when that is. If it has
 * come, the packet is out of its list, and its place is the caller's (bbq_place), with half
 * of the operation's work at most. 0: something else may be sent now, or in->more is set.
 */
__noinline __u64 bbq_depart(__u32 inst, __u32 session, __u64 now)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);
	struct bb_session *ses = bbq_session(session);
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();
	struct bbq_packet *p;
	__u64 departs;
	__u32 idx, alone;

	if (!q || !ses || !in || !iface)
		return 0;
	idx = q->head[BBQ_DEPART_LIST];
	p = bbq_packet_at(idx);
	if (!p)
		return 0;
	departs = p->key;
	alone = q->nonempty == 1U << BBQ_DEPART_LIST;
	if (departs > now)
		return alone ? departs : 0;
	if (in->work <= BBQ_WORK / 2) {
		/* What has its place goes first. */
		in->more = alone;
		return 0;
	}
	in->work -= BBQ_WORK_DEPART;
	bbq_unlink(q, p, idx);
	/* Its ADU may have lost a packet meanwhile. */
	if (bbq_dead(inst, q, p, now)) {
		if (p->flags & BBQ_F_PAIRED) {
			bbq_doom_alone(in, iface, ses, p, idx, now);
		} else {
			in->work -= BBQ_WORK_FREE;
			bbq_free(inst, idx, BB_DROP_ADU, now);
		}
		return 0;
	}
	p->arrived_ns = now;
	bbq_expect(in, iface, q, p, ses, now);
	return departs;
}

#endif /* BBQ_DEPART_BPF_H */
