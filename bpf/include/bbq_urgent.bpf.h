/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is important does not wait for the turns of all other receivers.
 *
 * The problem: sessions of media take turns, and with 30 receivers on a link that has 127 kbit/s
 * for each a round takes 190 ms. Audio that comes just after its session's turn is late, while
 * the video of the others goes.
 *
 * 1. A session that waits for its turn, and gets something small that is more important than usual
 *    and than all else that it was sent lately, is urgent: it stands in a line, in the order in
 *    which that happened.
 * 2. The next of that line sends it, before whose turn it is. It counts as sent in its own next
 *    turn, and is no more than that and one more: so nobody gets a larger part of the link by
 *    calling everything important.
 * 3. The rest of the session waits for its turn. So do a key frame and layers: where each goes first
 *    that is a little more important, what is most important waits for them.
 */
#ifndef BBQ_URGENT_BPF_H
#define BBQ_URGENT_BPF_H

#include "bbq_early.bpf.h"

/* ADUs of the session that are looked at for an important one. */
#define BBQ_URGENT_LOOKS 8

/* Takes the first session, q, out of the line. */
bb_inline void bbq_urgent_over(struct bbq_instance *in, struct bbq_queue *q)
{
	in->urgent = q->urgent == BBQ_URGENT_LAST ? BBQ_NONE : q->urgent;
	q->urgent = BBQ_NONE;
}

/* Is p such a one? It takes less than a turn. */
bb_inline int bbq_is_urgent(const struct bbq_queue *q, const struct bbq_packet *p)
{
	return p->priority < BB_PRIORITY_DEFAULT && p->priority <= q->ahead_priority &&
	       p->adu_bytes < bbq_quantum;
}

/* The first ADU of q that is one and in time, among those looked at; 0 = none. */
bb_inline __u32 bbq_urgent_adu(struct bbq_instance *in, struct bbq_queue *q, struct bb_session *ses,
			       __u64 now)
{
	__u32 l = bbq_lowest(q->nonempty), idx;

	if (!q->nonempty || l >= BBQ_STALE_LIST)
		return BBQ_NONE;
	idx = q->head[l];
	for (__u32 n = bb_zero; n < BBQ_URGENT_LOOKS && bb_can_loop; n++) {
		struct bbq_packet *p = bbq_packet_at(idx);

		if (!p)
			break;
		in->work -= BBQ_WORK_STEP;
		if (bbq_is_urgent(q, p) && !bb_stale(bbq_out(in, p, now), ses->owd_ns, p->deadline))
			return idx;
		idx = p->next;
	}
	return BBQ_NONE;
}

/*
 * The urgent packet that goes next: session << 32 | index, as bbq_next_of has it; 0 = there is none.
 * It is the head of its list then. The session's plan reckoned with another order, and begins anew.
 */
__noinline __u64 bbq_next_urgent(__u32 inst, __u64 now)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();

	if (!in || !iface)
		return 0;
	while (in->urgent && in->work > BBQ_WORK_TURN && bb_can_loop) {
		__u32 session = in->urgent, idx = BBQ_NONE;
		struct bbq_queue *q = bbq_queue_at(inst, session);
		struct bb_session *ses = bbq_session(session);
		struct bbq_packet *p;

		if (!q || !ses)
			return 0;
		in->work -= BBQ_WORK_TURN;
		if (iface->method == BB_TRIAGE && bbq_in_ring(&q->m) && q->user == BBQ_MEDIA &&
		    q->m.deficit > -(__s32)bbq_quantum &&
		    !(ses->rate && bbq_allowed(ses, q, inst) > now))
			idx = bbq_urgent_adu(in, q, ses, now);
		p = bbq_packet_at(idx);
		/* Where priorities have lists of their own what is stale may be before it: not here. */
		if (!p || (p->prev && p->list)) {
			bbq_urgent_over(in, q);
			continue;
		}
		if (p->prev) {
			/* All before it is less important. */
			bbq_unlink(q, p, idx);
			p->key = bbq_key_first(p->priority, p->deadline);
			bbq_link(q, 0, idx, p, BBQ_NONE, 0);
			q->walk.at = BBQ_NONE;
		}
		return (__u64)session << 32 | idx;
	}
	return 0;
}

#endif /* BBQ_URGENT_BPF_H */
