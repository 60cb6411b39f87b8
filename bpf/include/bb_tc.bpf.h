/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Mode tc: the decision of a queue, without a queue.
 *
 * Below is an HTB tree (bb_abi.h, "mode tc") that sends leaf 0 before leaf 1
 * before ... leaf 7, each a FIFO, and gives plain traffic its share. What was
 * handed down cannot be taken back. So the classifier keeps a model of that
 * tree per interface, in ns of transmission time, and refuses a packet at once
 * where the model says it would arrive late, or make a more important one late.
 *
 * The rule: *priority decides what is given up, the deadline decides the
 * order*. The leaf follows from the lifetime alone (deadline-monotonic; equal
 * lifetimes share one leaf, hence leave in order of arrival, which is the order
 * of their deadlines). A packet of priority p, `need` bytes still to come of
 * its ADU, is admitted if
 *
 *   1. it leaves in time: what its leaf and those before it hold, plus need,
 *      stretched by the share that more urgent leaves have been taking lately,
 *      plus one packet in transmission, fits before deadline - owd - margin;
 *   2. it leaves room: for every more important priority m seen in the last two
 *      seconds whose leaf is not more urgent, what an m packet arriving next
 *      would find before it, plus need, plus m's usual burst, fits into m's
 *      usual slack; and what is queued of m behind this leaf can bear the delay.
 *
 * `need` of an ADU's first packet is 13/16 of the stream's mean ADU size: a
 * frame that will not fit is refused before a byte of it is spent. The factor
 * is from a model of the SFDPS conference mix (complete frames on time at 253
 * kbit/s by factor: 0 28 %, 0.5 31 %, 0.7 43 %, 0.8125 44 %, 1.0 39 %).
 *
 * Leaf 0 goes before all others and is never refused. What any user can send as
 * signalling (STUN, DTLS, RTCP) has a quarter of each 250 ms of the link there;
 * what is beyond is plain traffic.
 *
 * It predicts and does not observe: a link slower than its rate, or plain bulk
 * traffic beyond the model, makes packets late that were admitted.
 *
 * An interface without a rate has no model; only the stale are refused there.
 */
#ifndef BB_TC_BPF_H
#define BB_TC_BPF_H

#include "bb_count.bpf.h"

#define BB_TC_MARGIN_NS 2000000ULL /* timers, and the last bytes' way through the driver */
#define BB_TC_RECENT_NS (2 * BB_NSEC_PER_SEC)
#define BB_TC_BURST_NS 5000000ULL /* packets this close are one burst */
#define BB_TC_WINDOW_NS 250000000ULL
#define BB_TC_SIGNALLING_SHARE 4 /* of a window: a quarter goes before media */
#define BB_TC_ADMIT (-1)

/* Upper bounds of the lifetimes of leaves 1..7; leaf 0 is control, leaf 7 the rest. */
static const __u64 bb_leaf_ns[BB_TC_LEAVES] = {
	0,
	40000000ULL,
	100000000ULL,
	250000000ULL, /* interactive audio ... */
	600000000ULL, /* ... goes before interactive video */
	1500000000ULL,
	5000000000ULL,
	~0ULL / 2,
};

static __always_inline __u64 bb_leaf_bound(__u32 leaf)
{
	leaf &= BB_TC_LEAVES - 1;
	/* Else clang compares a copy, and the verifier does not know this one's range. */
	asm volatile("" : "+r"(leaf));
	return bb_leaf_ns[leaf & (BB_TC_LEAVES - 1)];
}

/*
 * Leaf for a lifetime of ns (0 = none), given the leaf in use: it is kept
 * within a quarter beyond its bounds, so that deadlines near one do not flip a
 * flow, and its packets' order, between two leaves.
 */
static __always_inline __u8 bb_tc_leaf(__u64 ns, __u8 leaf)
{
	__u8 fresh = BB_TC_LEAVES - 1;

	if (!ns)
		return BB_TC_LEAVES - 1;
	if (leaf >= 1 && leaf < BB_TC_LEAVES) {
		__u64 low = bb_leaf_bound(leaf - 1U);
		__u64 high = bb_leaf_bound(leaf);

		if (ns > low - low / 4 && ns <= high + high / 4)
			return leaf;
	}
	for (__u8 i = BB_TC_LEAVES - 2; i >= 1; i--)
		if (ns <= bb_leaf_ns[i])
			fresh = i;
	return fresh;
}

struct bb_tc_request {
	__u64 now;
	__u64 rate; /* of the interface, bytes/s, not 0 */
	__u64 latest; /* deadline - owd; 0 = no deadline: never refused */
	__u64 need_ns; /* transmission time of what is still to come of the ADU, this packet too */
	__u64 whole_ns; /* the same without the discount: what it will take from others */
	__u64 packet_ns; /* of this packet */
	__u64 queued_ns; /* answer: of all that was queued when it came */
	__u32 ifindex;
	__u8 leaf; /* 0..BB_TC_LEAF_PLAIN; the decision may make it the last */
	__u8 priority;
	__u8 forward; /* count its bytes, never refuse */
	__u8 signalling; /* control traffic that any user can send */
};

/*
 * The smaller of two values below 2^62, without a branch: the verifier would
 * otherwise follow both ways of each of the nine leaves.
 */
static __always_inline __u64 bb_min(__u64 a, __u64 b)
{
	__s64 mask = (__s64)(a - b) >> 63;

	asm volatile("" : "+r"(mask));
	return b + ((a - b) & mask);
}

/* What has left since the last look: plain's own share, then the leaves in order, then plain. */
static __always_inline void bb_tc_drain(struct bb_tc_model *model, __u64 now)
{
	__u64 left, sent;

	if (now <= model->updated_ns)
		return;
	left = bb_min(now - model->updated_ns, 1ULL << 60);
	model->updated_ns = now;

	sent = bb_min(model->queue[BB_TC_LEAF_PLAIN], left / BB_TC_PLAIN_SHARE);
	model->queue[BB_TC_LEAF_PLAIN] -= sent;
	left -= sent;
#pragma unroll
	for (__u32 leaf = 0; leaf <= BB_TC_LEAF_PLAIN; leaf++) {
		sent = bb_min(model->queue[leaf], left);
		model->queue[leaf] -= sent;
		left -= sent;
	}
}

/* Share of the link each leaf has been given, in 1/1024, renewed every window. */
static __always_inline void bb_tc_loads(struct bb_tc_model *model, __u64 now)
{
	__u64 elapsed = now - model->window_ns;

	if (elapsed < BB_TC_WINDOW_NS)
		return;
	model->window_ns = now;
#pragma unroll
	for (__u32 leaf = 0; leaf < BB_TC_LEAVES; leaf++) {
		model->load[leaf] = (model->load[leaf] + model->given[leaf] * 1024 / elapsed) / 2;
		model->given[leaf] = 0;
	}
}

/*
 * How long what is less important may keep a packet waiting that itself can wait
 * for `slack`. Whoever names a priority, a lifetime and an owd can say that nothing
 * may stand before it; in a leaf of long lifetimes that would be believed at the
 * cost of all others. So it is a quarter of the leaf's shortest lifetime at least.
 */
static __always_inline __u64 bb_tc_bears(const struct bb_tc_request *r, __u64 slack)
{
	__u64 least = bb_leaf_bound(r->leaf - 1U) / 4;

	return slack > least ? slack : least;
}

/* Learn when packets of this priority come, and how much room they need. */
static __always_inline void bb_tc_learn(struct bb_tc_priority *p, const struct bb_tc_request *r)
{
	__u64 slack = bb_tc_bears(r, r->latest > r->now ? r->latest - r->now : 0);
	if (r->now - p->seen_ns > BB_TC_RECENT_NS) {
		p->slack_ns = slack;
		p->burst_ns = 0;
		p->burst_now_ns = 0;
	} else if (slack < p->slack_ns) {
		p->slack_ns = slack;
	} else {
		p->slack_ns += (slack - p->slack_ns) / 16;
	}
	p->seen_ns = r->now;
	if (r->now - p->burst_start_ns > BB_TC_BURST_NS) {
		p->burst_start_ns = r->now;
		p->burst_now_ns = 0;
		p->burst_ns -= p->burst_ns / 16;
	}
	p->burst_now_ns += r->packet_ns;
	if (p->burst_now_ns > p->burst_ns)
		p->burst_ns = p->burst_now_ns;
	/* Of a refused ADU only the first packet comes here: learn what it would have needed. */
	if (r->need_ns > p->burst_ns)
		p->burst_ns = r->need_ns;
	p->leaf = r->leaf;
}

/*
 * Admits a packet to the model or refuses it: BB_TC_ADMIT or a reason. All in
 * one critical section, because two CPUs may fill the same link.
 */
__noinline int bb_tc_decide(__u32 slot, struct bb_tc_request *r)
{
	__u64 before = 0, behind = 0, finish, load = 0, slack;
	struct bb_tc_model *model;
	int verdict = BB_TC_ADMIT, plain;
	__u32 leaf, priority;

	if (!r)
		return BB_TC_ADMIT;
	model = bpf_map_lookup_elem(&bb_tc_models, &slot);
	if (!model)
		return BB_TC_ADMIT;
	leaf = r->leaf;
	priority = r->priority & (BB_PRIORITIES - 1);
	if (leaf > BB_TC_LEAF_PLAIN)
		return BB_TC_ADMIT;

	bpf_spin_lock(&model->lock);
	if (model->ifindex != r->ifindex || model->rate != r->rate) {
		/* Another owner, or another rate: what is queued is not known; nothing is. */
		model->ifindex = r->ifindex;
		model->rate = r->rate;
#pragma unroll
		for (__u32 i = 0; i <= BB_TC_LEAF_PLAIN; i++)
			model->queue[i] = model->given[i] = model->load[i] = 0;
#pragma unroll
		for (__u32 i = 0; i < BB_PRIORITIES; i++)
			model->priority[i].seen_ns = 0;
		model->plain_ns = 0;
	}
	bb_tc_drain(model, r->now);
	/* Read before the lock was had: another CPU may have come later, and first. No age wraps. */
	if (r->now < model->updated_ns)
		r->now = model->updated_ns;
	bb_tc_loads(model, r->now);
	r->queued_ns = 0;
#pragma unroll
	for (__u32 i = 0; i <= BB_TC_LEAF_PLAIN; i++)
		r->queued_ns += model->queue[i];

	/* Its own bytes count, too: one GSO packet may be longer than the window. */
	if (r->signalling &&
	    model->given[0] + r->packet_ns > BB_TC_WINDOW_NS / BB_TC_SIGNALLING_SHARE)
		r->leaf = leaf = BB_TC_LEAF_PLAIN;
	if (leaf == BB_TC_LEAF_PLAIN) {
		model->plain_ns = r->now;
		goto admit;
	}
	plain = model->plain_ns && r->now - model->plain_ns < BB_NSEC_PER_SEC;
#pragma unroll
	for (__u32 i = 0; i < BB_TC_LEAVES; i++) {
		/* All ones where leaf i is more urgent than ours. */
		__u64 urgent = (__u64)((__s64)((__u64)i - leaf) >> 63);

		before += model->queue[i];
		model->ahead[i] = before;
		load += model->load[i] & urgent;
	}
	before = model->ahead[leaf & (BB_TC_LEAVES - 1)];
	behind = model->ahead[BB_TC_LEAVES - 1] - before + model->queue[BB_TC_LEAF_PLAIN];

	if (!r->latest)
		goto admit;
	slack = r->latest > r->now ? r->latest - r->now : 0;
	bb_tc_learn(&model->priority[priority], r);
	if (r->forward)
		goto admit;

	finish = before + r->need_ns;
	if (plain)
		finish += finish / (BB_TC_PLAIN_SHARE - 1);
	if (load > 896)
		load = 896; /* however busy the others: at least an eighth */
	finish = finish * 1024 / (1024 - load);
	if (behind)
		finish += model->largest_ns;
	if (finish + BB_TC_MARGIN_NS > slack)
		verdict = BB_DROP_PREDICTED;

	for (__u32 i = 0; i < BB_PRIORITIES; i++) {
		struct bb_tc_priority *m = &model->priority[i];
		__u64 total;

		if (i >= priority || verdict != BB_TC_ADMIT)
			break;
		if (r->now - m->seen_ns > BB_TC_RECENT_NS || m->leaf < leaf)
			continue;
		/*
		 * In its own leaf every later packet of the ADU is asked again, so the
		 * discount stands; from a less urgent one m sees all of it go first.
		 */
		total = model->ahead[m->leaf & (BB_TC_LEAVES - 1)] + m->burst_ns;
		total += m->leaf == leaf ? r->need_ns : r->whole_ns;
		if (plain)
			total += total / (BB_TC_PLAIN_SHARE - 1);
		/* As its own finish will be stretched; no less, or it is refused when it comes. */
		total = total * 1024 / (1024 - load);
		if (behind > model->ahead[m->leaf & (BB_TC_LEAVES - 1)] - before)
			total += model->largest_ns;
		if (total + BB_TC_MARGIN_NS > m->slack_ns)
			verdict = BB_DROP_PREDICTED;
		else if (m->leaf > leaf && model->queue[m->leaf & 15] && r->need_ns > m->spare_ns)
			verdict = BB_DROP_PREDICTED;
	}
	if (verdict != BB_TC_ADMIT)
		goto out;

	/* How much delay the packets of this priority in this leaf can still bear. */
	slack = bb_tc_bears(r, slack);
	slack = slack > before + r->packet_ns ? slack - before - r->packet_ns : 0;
	if (!model->queue[leaf & 15] || slack < model->priority[priority].spare_ns)
		model->priority[priority].spare_ns = slack;
admit:
	for (__u32 i = 0; i < BB_PRIORITIES; i++) {
		struct bb_tc_priority *m = &model->priority[i];

		if (m->leaf > leaf)
			m->spare_ns -= bb_min(m->spare_ns, r->packet_ns);
	}
	model->queue[leaf & 15] += r->packet_ns;
	model->given[leaf & 15] += r->packet_ns;
	/* Forgets slowly: one packet of the largest size may be in transmission at any time. */
	model->largest_ns -= model->largest_ns / 256;
	if (r->packet_ns > model->largest_ns)
		model->largest_ns = r->packet_ns;
out:
	bpf_spin_unlock(&model->lock);
	return verdict;
}

/* ---- counters and notices ---- */

static __always_inline void bb_tc_count(struct bb_counters *c, __u32 bytes, int reason, int drop,
					int stale)
{
	if (!c)
		return;
	bb_add(c->packets_in, 1);
	bb_add(c->bytes_in, bytes);
	if (drop) {
		if (reason >= 0 && reason < BB_REASONS)
			bb_add(c->dropped[reason], 1);
		return;
	}
	bb_add(c->packets_sent, 1);
	bb_add(c->bytes_sent, bytes);
	if (stale)
		bb_add(c->sent_stale, 1);
	if (reason >= 0 && reason < BB_REASONS)
		bb_add(c->would_drop[reason], 1);
}

struct bb_tc_verdict {
	__u64 now;
	__s64 late_ns;
	__u64 cookie; /* 0 = the socket keeps no counters */
	__u32 bytes;
	__u32 slot; /* of the interface */
	__u32 adu;
	__u32 ifindex;
	__s32 reason; /* BB_TC_ADMIT or enum bb_reason */
	__u16 rule;
	__u16 session;
	__u8 priority;
	__u8 drop; /* 0 with a reason: observed only */
	__u8 stale;
	__u8 pad[5];
};

/* Notices of this second, and those kept back since the last one sent. */
__u64 bb_notice_second;
__u64 bb_notices;
__u64 bb_notices_suppressed;

static __always_inline void bb_tc_notice(const struct bb_tc_verdict *v, __u32 per_second)
{
	__u64 second = v->now / BB_NSEC_PER_SEC;
	struct bb_event *event;

	if (second != bb_notice_second) {
		bb_notice_second = second;
		bb_notices = 0;
	}
	if (__sync_fetch_and_add(&bb_notices, 1) >= per_second)
		goto suppress;
	event = bpf_ringbuf_reserve(&bb_events, sizeof(*event), 0);
	if (!event)
		goto suppress;
	__builtin_memset(event, 0, sizeof(*event));
	event->time_ns = v->now;
	event->late_ns = v->late_ns;
	event->adu = v->adu;
	event->ifindex = v->ifindex;
	event->len = v->bytes;
	event->rule = v->rule;
	event->session = v->session;
	event->reason = v->reason;
	event->priority = v->priority;
	event->observe = !v->drop;
	event->suppressed = __sync_lock_test_and_set(&bb_notices_suppressed, 0);
	bpf_ringbuf_submit(event, 0);
	return;
suppress:
	bb_add(bb_notices_suppressed, 1);
	bb_global_inc(BB_G_EVENTS_LOST);
}

/* Counts a packet once in each of: its rule, its session, its interface, its socket. */
__noinline int bb_tc_account(const struct bb_tc_verdict *v)
{
	struct bb_session *session;
	struct bb_config *config;
	struct bb_iface *iface;
	__u32 key, zero = 0;
	__u64 cookie;

	if (!v)
		return 0;
	key = v->rule;
	bb_tc_count(bpf_map_lookup_elem(&bb_rule_stats, &key), v->bytes, v->reason, v->drop,
		    v->stale);
	key = v->session;
	session = bpf_map_lookup_elem(&bb_sessions, &key);
	if (session)
		bb_tc_count(&session->counters, v->bytes, v->reason, v->drop, v->stale);
	key = v->slot;
	iface = bpf_map_lookup_elem(&bb_ifaces, &key);
	if (iface)
		bb_tc_count(&iface->counters, v->bytes, v->reason, v->drop, v->stale);
	cookie = v->cookie;
	if (cookie)
		bb_tc_count(bpf_map_lookup_elem(&bb_sock_stats, &cookie), v->bytes, v->reason,
			    v->drop, v->stale);
	if (v->reason >= 0) {
		config = bpf_map_lookup_elem(&bb_config, &zero);
		if (config && config->events_per_s)
			bb_tc_notice(v, config->events_per_s);
	}
	return 0;
}

#endif /* BB_TC_BPF_H */
