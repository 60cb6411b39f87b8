/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The one place where the qdisc drops. Every packet is counted in once, and out once:
 * sent, or dropped for one reason.
 */
#ifndef BBQ_DROP_BPF_H
#define BBQ_DROP_BPF_H

#include "bb_chain.h"
#include "bbq_order.bpf.h"
#include "bbq_turns.bpf.h"
#include "bbq_twin.bpf.h"

/* What may be said in a second grows in steps of this. */
#define BBQ_EVENT_NS 10000000ULL
/* A notice, in what grows in such a step by one for each that may be sent in a second. */
#define BBQ_EVENT (BB_NSEC_PER_SEC / BBQ_EVENT_NS)

/* Of the packet's socket; 0 = it has none. */
bb_inline __u64 bbq_cookie(struct sk_buff *skb)
{
	struct sock *sk = skb->sk;
	__u64 cookie = sk ? sk->__sk_common.skc_cookie.counter : 0;

	/* Else clang loads it and bbq_packet.cookie by one instruction, from either address. */
	asm volatile("" : "+r"(cookie));
	return cookie;
}

/* The owner of a cookie may be gone: then nobody can ask for its counters either. */
bb_inline struct bb_counters *bbq_sock_counters(__u64 cookie)
{
	return cookie ? bpf_map_lookup_elem(&bb_sock_stats, &cookie) : 0;
}

/* The same of packet p, whose skb this is. */
bb_inline struct bb_counters *bbq_sock_counters_of(struct bbq_packet *p, struct sk_buff *skb)
{
	return bbq_sock_counters(p->flags & BBQ_F_TRUNCATED ? p->cookie : bbq_cookie(skb));
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
 * Packet p leaves, which had a twin: that is freed, or it is what leaves, and is counted as
 * truncated wherever it is counted as sent.
 */
static __noinline int bbq_settle(struct bbq_instance *in, struct bbq_packet *p,
				 struct bb_session *ses, struct bb_counters *of_socket)
{
	struct bb_counters *c;
	__u32 rule = p->rule;

	if (p->flags & BBQ_F_PAIRED) {
		bbq_drop_twin(in, p);
		return 0;
	}
	c = bpf_map_lookup_elem(&bb_rule_stats, &rule);
	if (c)
		bb_add(c->truncated, 1);
	c = bbq_rtp_counters(p);
	if (c)
		bb_add(c->truncated, 1);
	bb_add(in->counters.truncated, 1);
	bb_add(ses->counters.truncated, 1);
	if (of_socket)
		bb_add(of_socket->truncated, 1);
	return 0;
}

/*
 * A drop notice, unless this instance sent all that it may: a step's, or one, at once; and
 * one in each operation, as telling takes as long as dropping. `truncated`: its headers
 * will go.
 */
bb_inline void bbq_notice(struct bbq_instance *in, struct bbq_packet *p, __u32 reason, __u64 now,
			  int truncated)
{
	struct bb_config *cfg;
	struct bb_session *ses;
	struct bb_event *e;
	__u64 owd = 0, steps, credit;
	__u32 zero = 0, most;

	cfg = bpf_map_lookup_elem(&bb_config, &zero);
	if (!cfg || !cfg->events_per_s)
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
	e->late_ns = p->deadline ? bb_lateness(bbq_out(in, p, now), owd, p->deadline) : 0;
	e->adu = p->adu;
	e->ifindex = bbq_ifindex;
	e->len = p->pkt_len;
	e->rule = p->rule;
	e->session = p->session;
	e->reason = reason;
	e->priority = p->priority;
	e->observe = 0; /* who observes has no queue of ours */
	e->truncated = truncated;
	e->suppressed = in->suppressed;
	in->suppressed = 0;
	bpf_ringbuf_submit(e, 0);
	return;
suppressed:
	in->suppressed++;
	bb_global_inc(BB_G_EVENTS_LOST);
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
	bb_take_out(&in->qlen, &in->bytes, p->pkt_len);
	q = bbq_queue_at(inst, p->session);
	u = q ? bbq_user_at(in, inst, q->user) : 0;
	if (idx == in->alone)
		in->alone = BBQ_NONE;
	else if (q && u)
		bbq_held_less(in, q, u, p);
	skb = bpf_kptr_xchg(&p->skb, 0);
	if (skb) {
		if (p->flags & BBQ_F_SOCK)
			sc = bbq_sock_counters_of(p, skb);
		if (sc)
			bb_count_drop(sc, reason);
		bpf_kfree_skb(skb);
	}
	if (p->flags & BBQ_F_PAIRED)
		bbq_drop_twin(in, p);
	bbq_packet_return(in, p, idx);
	return 0;
}

/*
 * Swaps packet idx, which is given up for `reason` and is in no list, for its twin. That goes
 * where its packet would have, is never stale, and its ADU does not concern it. Returns 0 if it
 * has no twin.
 */
__noinline int bbq_truncate(__u32 inst, __u32 idx, __u32 reason, __u64 now)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_packet *p = bbq_packet_at(idx);
	struct sk_buff *skb, *twin;
	struct bbq_queue *q;
	struct bbq_user *u;
	__u32 len;

	if (!in || !p || !(p->flags & BBQ_F_PAIRED))
		return 0;
	q = bbq_queue_at(inst, p->session);
	u = q ? bbq_user_at(in, inst, q->user) : 0;
	if (!u)
		return 0;
	twin = bpf_kptr_xchg(&p->twin, 0);
	if (!twin)
		return 0;
	in->pairs--;
	in->work -= BBQ_WORK_SWAP;
	bbq_notice(in, p, reason, now, 1);
	len = twin->len;
	skb = bpf_kptr_xchg(&p->skb, twin);
	bbq_held_less(in, q, u, p);
	if (skb)
		p->len = bb_less(p->len, bb_less(skb->len, len));
	bbq_held_more(in, q, u, p, p->arrived_ns);
	/*
	 * What the stamp, or another program, made longer is not in pkt_len. So the headers
	 * alone may be longer than that.
	 */
	if (p->pkt_len > len) {
		in->bytes = bb_less(in->bytes, p->pkt_len - len);
		in->dropped_bytes += p->pkt_len - len;
		p->pkt_len = len;
	}
	if (skb) {
		p->cookie = p->flags & BBQ_F_SOCK ? bbq_cookie(skb) : 0;
		bpf_kfree_skb(skb);
	}
	p->flags = (p->flags & ~BBQ_F_PAIRED) | BBQ_F_TRUNCATED;
	p->deadline = 0;
	p->treatment = BB_TREAT_FORWARD;
	return 1;
}

/* Packet idx was swapped for its twin, and waits for its place: its list and key are its ADU's. */
bb_inline void bbq_await_place(struct bbq_instance *in, struct bbq_packet *p, __u32 idx)
{
	struct bbq_packet *last = bbq_packet_at(in->swapped_tail);

	p->next = BBQ_NONE;
	if (in->swapped && last)
		last->next = idx;
	else
		in->swapped = idx;
	in->swapped_tail = idx;
}

/*
 * Gives packets that were swapped their places again, one at least, and while there is work
 * left. Apart from bbq_truncate, because of the stack: a dequeue drops deep below.
 */
__noinline int bbq_put_back(__u32 inst)
{
	struct bbq_instance *in = bbq_instance(inst);

	if (!in)
		return 0;
	while (bb_can_loop) {
		__u32 idx = in->swapped, list, first;
		struct bbq_packet *p = bbq_packet_at(idx);
		struct bbq_queue *q;
		struct bbq_user *u;

		if (!p)
			break;
		q = bbq_queue_at(inst, p->session);
		u = q ? bbq_user_at(in, inst, q->user) : 0;
		if (!u)
			break;
		in->swapped = p->next;
		in->work -= BBQ_WORK_PUT;
		if (q->m.turn == BBQ_IDLE)
			bbq_activate(inst, in, q, p->session, u, q->user);
		p->lanes = 0;
		list = p->list;
		first = bbq_insert(inst, in, q, p, idx, list, list == BBQ_DEPART_LIST ? 0 : p->adu);
		bbq_walk_grown(q, p, idx, first);
		if (in->swapped && bbq_spent(in, BBQ_WORK_PUT))
			break;
	}
	return 0;
}

/*
 * A large ADU of a stream was given up (`lost` = 1), or the last of what was queued of one is
 * sent (0): the classifier knows the stream's next one sooner, and the queue spares it. The id
 * of an ADU names its stream; another one's may be there since, which costs nothing.
 */
static __noinline int bbq_note_large(__u32 adu, __u32 lost)
{
	__u32 index = adu >> 16;
	struct bb_stream *s = bpf_map_lookup_elem(&bb_streams, &index);

	/* What is beside the pictures of MPEG-TS is spared, and of no ADU. */
	if (s && adu && s->lost != lost)
		s->lost = lost;
	return 0;
}

/* A packet of a large ADU comes: does its stream miss one? */
static __noinline int bbq_is_owed(__u32 adu)
{
	__u32 index = adu >> 16;
	struct bb_stream *s = bpf_map_lookup_elem(&bb_streams, &index);

	return s && s->lost;
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

/* The ADU whose first packet is idx, and which is in no list, is to be freed, behind the others. */
bb_inline void bbq_doom(struct bbq_instance *in, struct bbq_packet *p, __u32 idx, __u32 reason)
{
	struct bbq_packet *last = bbq_packet_at(in->doomed_tail);

	p->reason = reason;
	p->next = BBQ_NONE;
	if (in->doomed && last)
		last->next = idx;
	else
		in->doomed = idx;
	in->doomed_tail = idx;
}

/*
 * Frees packets of doomed ADUs, or swaps them for their twins, at least one, and until no more than `left` of the
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
			h->list = p->list;
			h->key = p->key;
			in->doomed = chain;
			if (in->doomed_tail == idx)
				in->doomed_tail = chain;
		} else {
			in->doomed = p->next;
		}
		if (p->flags & BBQ_F_PAIRED && reason <= BB_DROP_ADU &&
		    bbq_truncate(inst, idx, reason, now)) {
			bbq_await_place(in, p, idx);
		} else {
			bbq_free(inst, idx, reason, now);
			in->work -= BBQ_WORK_FREE;
		}
		freed++;
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

static __noinline struct bb_video *bbq_video(__u32 adu)
{
	__u32 stream = adu >> 16;

	return bpf_map_lookup_elem(&bb_videos, &stream);
}

/* Does packet p, of a frame with a role, need a frame that was given up? */
static __noinline int bbq_is_chained(const struct bbq_packet *p)
{
	struct bb_video *video = bbq_video(p->adu);

	return video && bb_chain_broken(video, p->adu, p->role);
}

/*
 * Frames of the session in->chained may need one that was given up: those do that are queued, and
 * they are doomed. While there is work left; the rest comes with the next operation.
 */
__noinline int bbq_drop_chain(__u32 inst)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_queue *q;
	__u32 idx;

	if (!in)
		return 0;
	q = bbq_queue_at(inst, in->chained);
	if (!q)
		return 0;
	idx = q->head[0];
	while (bb_can_loop) {
		struct bbq_packet *p = bbq_packet_at(idx);
		__u32 next;

		if (!p) {
			in->chained = BB_SESSION_NONE;
			break;
		}
		if (in->work <= BBQ_WORK_EVICT)
			break;
		next = p->next;
		in->work -= BBQ_WORK_LOOK;
		if (p->role && bbq_is_chained(p)) {
			bbq_unlink(q, p, idx);
			q->walk.at = BBQ_NONE;
			bbq_doom(in, p, idx, BB_DROP_CHAIN);
			in->work -= BBQ_WORK_DROP;
		}
		idx = next;
	}
	return 0;
}

/* Frame `adu` of this role is given up: what of that goes with it? Returns whether something does. */
static __noinline int bbq_break_chain(__u32 adu, __u32 role)
{
	struct bb_video *video = bbq_video(adu);

	return video && bb_chain_lost(video, adu, role);
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
	bbq_device_gave_up(in, q, now);
	bbq_adu_kill(q, p->adu, now);
	if (p->flags & BBQ_F_LARGE)
		bbq_note_large(p->adu, 1);
	bbq_unlink(q, p, idx);
	q->walk.at = BBQ_NONE;
	bbq_doom(in, p, idx, reason);
	in->work -= BBQ_WORK_DROP;
	if (p->role && p->adu && bbq_break_chain(p->adu, p->role))
		in->chained = p->session;
	return bbq_free_some(inst, in, 0, now);
}

#endif /* BBQ_DROP_BPF_H */
