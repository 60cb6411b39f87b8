/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The one place where the qdisc drops. Every packet is counted in once, and out once:
 * sent, or dropped for one reason.
 */
#ifndef BBQ_DROP_BPF_H
#define BBQ_DROP_BPF_H

#include "bbq_order.bpf.h"

/* What may be said in a second grows in steps of this. */
#define BBQ_EVENT_NS 10000000ULL
/* A notice, in what grows in such a step by one for each that may be sent in a second. */
#define BBQ_EVENT (BB_NSEC_PER_SEC / BBQ_EVENT_NS)

/* The owner of a cookie may be gone: then nobody can ask for its counters either. */
bb_inline struct bb_counters *bbq_sock_counters(struct sk_buff *skb)
{
	struct sock *sk = skb->sk;
	__u64 cookie;

	if (!sk)
		return 0;
	cookie = sk->__sk_common.skc_cookie.counter;
	return bpf_map_lookup_elem(&bb_sock_stats, &cookie);
}

/* Of its payload type; 0 = it is not RTP. */
bb_inline struct bb_counters *bbq_rtp_counters(struct bbq_packet *p)
{
	__u32 rtp = p->rtp;

	return rtp ? bpf_map_lookup_elem(&bb_rtp_stats, &rtp) : 0;
}

/*
 * Its rule, its payload type and this instance count packet p, when it is not alone or no
 * longer. Its session and its socket counted it when it came: what a session has queued
 * keeps its way in the table (BB_T_BUSY).
 */
bb_inline void bbq_count_in(struct bbq_instance *in, struct bbq_packet *p)
{
	__u32 rule = p->rule, bytes = p->pkt_len;
	struct bb_counters *c = bpf_map_lookup_elem(&bb_rule_stats, &rule);

	if (c)
		bb_count_in(c, bytes);
	c = bbq_rtp_counters(p);
	if (c)
		bb_count_in(c, bytes);
	bb_count_in(&in->counters, bytes);
}

/* Packet p is sent; `alone`: it was not counted before. */
bb_inline void bbq_count_sent(struct bbq_instance *in, struct bbq_packet *p, int stale, int alone)
{
	__u32 rule = p->rule, bytes = p->pkt_len;
	struct bb_counters *c = bpf_map_lookup_elem(&bb_rule_stats, &rule);
	struct bb_counters *of_rtp = bbq_rtp_counters(p);

	if (alone) {
		if (c)
			bb_count_passed(c, bytes);
		if (of_rtp)
			bb_count_passed(of_rtp, bytes);
		bb_count_passed(&in->counters, bytes);
	} else {
		if (c)
			bb_count_sent(c, bytes, stale);
		if (of_rtp)
			bb_count_sent(of_rtp, bytes, stale);
		bb_count_sent(&in->counters, bytes, stale);
	}
}

/*
 * A drop notice, unless this instance sent all that it may: a step's, or one, at once; and
 * one in each operation, as telling takes as long as dropping.
 */
bb_inline void bbq_notice(struct bbq_instance *in, struct bbq_packet *p, __u32 reason, __u64 now,
			  __u32 observe)
{
	struct bb_config *cfg;
	struct bb_session *ses;
	struct bb_event *e;
	__u64 owd = 0, steps, credit;
	__u32 zero = 0, most;

	cfg = bpf_map_lookup_elem(&bb_config, &zero);
	if (!cfg)
		return;
	steps = (now - in->event_ns) / BBQ_EVENT_NS;
	if (steps) {
		in->event_ns += steps * BBQ_EVENT_NS;
		most = cfg->events_per_s > BBQ_EVENT ? cfg->events_per_s : BBQ_EVENT;
		/* Below 2^39: after so many steps one notice is due at any rate. */
		credit = in->event_credit +
			 (steps < BBQ_EVENT ? steps : BBQ_EVENT) * cfg->events_per_s;
		in->event_credit = credit < most ? credit : most;
	}
	if (in->event_credit < BBQ_EVENT || in->noticed)
		goto suppressed;
	e = bpf_ringbuf_reserve(&bb_events, sizeof(*e), 0);
	if (!e)
		goto suppressed;
	ses = bbq_session(p->session);
	if (ses)
		owd = ses->owd_ns;
	in->event_credit -= BBQ_EVENT;
	in->noticed = 1;
	e->time_ns = now;
	e->age_ns = now - p->arrived_ns;
	e->late_ns = p->deadline ? bb_lateness(now, owd, p->deadline) : 0;
	e->adu = p->adu;
	e->ifindex = bbq_ifindex;
	e->len = p->pkt_len;
	e->rule = p->rule;
	e->session = p->session;
	e->reason = reason;
	e->priority = p->priority;
	e->observe = observe;
	e->truncated = 0;
	e->suppressed = in->suppressed;
	in->suppressed = 0;
	bpf_ringbuf_submit(e, 0);
	return;
suppressed:
	in->suppressed++;
	bb_global_inc(BB_G_EVENTS_LOST);
}

/* Observe mode: this packet would have been dropped; counted once in its life. */
__noinline int bbq_would_drop(__u32 inst, __u32 idx, __u32 reason, __u64 now)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_packet *p = bbq_packet_at(idx);
	struct bb_counters *c;
	struct bb_session *ses;
	__u32 rule;

	if (!in || !p || p->flags & BBQ_F_OBSERVED)
		return 0;
	p->flags |= BBQ_F_OBSERVED;
	rule = p->rule;
	c = bpf_map_lookup_elem(&bb_rule_stats, &rule);
	if (c)
		bb_count_would_drop(c, reason);
	ses = bbq_session(p->session);
	if (ses)
		bb_count_would_drop(&ses->counters, reason);
	bb_count_would_drop(&in->counters, reason);
	bbq_notice(in, p, reason, now, 1);
	return 0;
}

/*
 * Frees packet idx, which is out of every list already. The skb is ours alone: nothing
 * else holds the reference that is given up here.
 */
__noinline int bbq_free(__u32 inst, __u32 idx, __u32 reason, __u64 now)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_packet *p = bbq_packet_at(idx);
	struct bb_counters *c, *sc = 0;
	struct bb_session *ses;
	struct bbq_queue *q;
	struct bbq_user *u;
	struct sk_buff *skb;
	__u32 rule;

	if (!in || !p)
		return 0;
	bbq_notice(in, p, reason, now, 0);
	if (idx == in->alone)
		bbq_count_in(in, p);
	rule = p->rule;
	c = bpf_map_lookup_elem(&bb_rule_stats, &rule);
	if (c)
		bb_count_drop(c, reason);
	c = bbq_rtp_counters(p);
	if (c)
		bb_count_drop(c, reason);
	ses = bbq_session(p->session);
	if (ses)
		bb_count_drop(&ses->counters, reason);
	bb_count_drop(&in->counters, reason);
	in->dropped++;
	in->dropped_bytes += p->pkt_len;
	in->qlen--;
	in->bytes -= p->pkt_len;
	q = bbq_queue_at(inst, p->session);
	u = q ? bbq_user_at(in, inst, q->user) : 0;
	if (idx == in->alone)
		in->alone = BBQ_NONE;
	else if (q && u)
		bbq_held_less(in, q, u, p);
	skb = bpf_kptr_xchg(&p->skb, 0);
	if (skb) {
		if (p->flags & BBQ_F_SOCK)
			sc = bbq_sock_counters(skb);
		if (sc)
			bb_count_drop(sc, reason);
		bpf_kfree_skb(skb);
	}
	bbq_packet_return(in, p, idx);
	return 0;
}

/* Remembers that this ADU lost a packet: the rest of it is worth nothing. */
bb_inline void bbq_adu_kill(struct bbq_queue *q, __u32 adu, __u64 now)
{
	if (!adu)
		return;
	q->dead[q->dead_next & (BBQ_DEAD - 1)] = adu;
	q->dead_at[q->dead_next & (BBQ_DEAD - 1)] = now >> BBQ_DEAD_SHIFT;
	q->dead_next++;
	q->dead_any = 1;
}

/* Is this ADU of the session remembered as one that lost a packet? A call, for the verifier's sake. */
__noinline int bbq_lost_one(__u32 inst, __u32 session, __u32 adu, __u64 now)
{
	struct bbq_queue *q = bbq_queue_at(inst, session);

	if (!q)
		return 0;
	for (__u32 i = 0; i < BBQ_DEAD; i++)
		if (q->dead[i] == adu &&
		    (__u32)(now >> BBQ_DEAD_SHIFT) - q->dead_at[i] < BBQ_DEAD_UNITS)
			return 1;
	return 0;
}

/* The ADU of this packet lost one, so that it is worth nothing; what is forwarded does not count on the rest. */
bb_inline int bbq_dead(__u32 inst, struct bbq_queue *q, struct bbq_packet *p, __u64 now)
{
	return q->dead_any && p->adu && p->treatment != BB_TREAT_FORWARD &&
	       bbq_lost_one(inst, p->session, p->adu, now);
}

/*
 * Frees packets of doomed ADUs, at least one, and until no more than `left` of the
 * operation's work is left. Returns how many.
 */
bb_inline int bbq_free_some(__u32 inst, struct bbq_instance *in, __s32 left, __u64 now)
{
	int freed = 0;

	while (bb_can_loop) {
		__u32 idx = in->doomed, chain, reason;
		struct bbq_packet *p = bbq_packet_at(idx), *h;

		if (!p)
			break;
		reason = p->reason;
		chain = p->chain;
		h = bbq_packet_at(chain);
		if (h) {
			h->next = p->next;
			h->reason = reason == BB_DROP_STALE ? BB_DROP_ADU : reason;
			in->doomed = chain;
		} else {
			in->doomed = p->next;
		}
		bbq_free(inst, idx, reason, now);
		freed++;
		in->work -= BBQ_WORK_FREE;
		if (in->work <= left)
			break;
	}
	return freed;
}

/* The same, where an operation begins. */
__noinline int bbq_free_doomed(__u32 inst, __s32 left, __u64 now)
{
	struct bbq_instance *in = bbq_instance(inst);

	return in ? bbq_free_some(inst, in, left, now) : 0;
}

/*
 * Drops ADU idx whole: its first packet for `reason`, the rest because of it. A large
 * one is out of its list at once, but its packets count as queued until later
 * operations have freed them. Returns the number of packets freed.
 */
__noinline int bbq_drop_adu(__u32 inst, __u32 idx, __u32 reason, __u64 now)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_packet *p = bbq_packet_at(idx);
	struct bbq_queue *q;

	if (!in || !p)
		return 0;
	q = bbq_queue_at(inst, p->session);
	if (!q)
		return 0;
	bbq_adu_kill(q, p->adu, now);
	bbq_unlink(q, p, idx);
	q->walk.at = BBQ_NONE;
	p->reason = reason;
	p->next = in->doomed;
	in->doomed = idx;
	in->work -= BBQ_WORK_DROP;
	return bbq_free_some(inst, in, 0, now);
}

#endif /* BBQ_DROP_BPF_H */
