/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Mode tc: asks the model of the HTB tree (bb_tc_model.h), and counts what it said.
 *
 * The model predicts and does not observe: a link slower than its rate makes
 * packets late that were admitted. An interface without a rate has no model; only
 * the stale are refused there.
 */
#ifndef BB_TC_BPF_H
#define BB_TC_BPF_H

#include "bb_count.bpf.h"
#include "bb_tc_ask.h"

/*
 * Admits a packet to the model or refuses it: BB_TC_ADMIT or a reason. All in
 * one critical section, because two CPUs may fill the same link.
 */
__noinline int bb_tc_decide(__u32 slot, struct bb_tc_request *r)
{
	struct bb_tc_model *model;
	int verdict;

	if (!r)
		return BB_TC_ADMIT;
	model = bpf_map_lookup_elem(&bb_tc_models, &slot);
	if (!model)
		return BB_TC_ADMIT;
	bpf_spin_lock(&model->lock);
	verdict = bb_tc_ask(model, r);
	bpf_spin_unlock(&model->lock);
	return verdict;
}

/* ---- counters and notices ---- */

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
	__u8 rtp; /* as in struct bb_cb */
	__u32 sent_bytes; /* of what goes; less than `bytes`: the packet is truncated */
};

static __always_inline int bb_tc_truncated(const struct bb_tc_verdict *v)
{
	return v->sent_bytes != v->bytes;
}

static __always_inline void bb_tc_count(struct bb_counters *c, const struct bb_tc_verdict *v)
{
	int reason = v->reason;

	if (!c)
		return;
	bb_add(c->packets_in, 1);
	bb_add(c->bytes_in, v->bytes);
	if (v->drop) {
		if (reason >= 0 && reason < BB_REASONS)
			bb_add(c->dropped[reason], 1);
		else if (reason == BB_DROP_CHAIN)
			bb_add(c->chain, 1);
		return;
	}
	bb_add(c->packets_sent, 1);
	bb_add(c->bytes_sent, v->sent_bytes);
	if (bb_tc_truncated(v)) {
		bb_add(c->truncated, 1);
		return;
	}
	if (v->stale)
		bb_add(c->sent_stale, 1);
	if (reason >= 0 && reason < BB_REASONS)
		bb_add(c->would_drop[reason], 1);
	else if (reason == BB_DROP_CHAIN)
		bb_add(c->would_chain, 1);
}

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
	event->truncated = bb_tc_truncated(v);
	event->observe = !v->drop && !event->truncated;
	event->suppressed = __sync_lock_test_and_set(&bb_notices_suppressed, 0);
	bpf_ringbuf_submit(event, 0);
	return;
suppress:
	bb_add(bb_notices_suppressed, 1);
	bb_global_inc(BB_G_EVENTS_LOST);
}

/* Counts a packet once in each of: its rule, payload type, session, interface, socket. */
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
	bb_tc_count(bpf_map_lookup_elem(&bb_rule_stats, &key), v);
	key = v->rtp;
	bb_tc_count(bpf_map_lookup_elem(&bb_rtp_stats, &key), v);
	key = v->session;
	session = bpf_map_lookup_elem(&bb_sessions, &key);
	if (session)
		bb_tc_count(&session->counters, v);
	key = v->slot;
	iface = bpf_map_lookup_elem(&bb_ifaces, &key);
	if (iface)
		bb_tc_count(&iface->counters, v);
	cookie = v->cookie;
	if (cookie)
		bb_tc_count(bpf_map_lookup_elem(&bb_sock_stats, &cookie), v);
	if (v->reason >= 0) {
		config = bpf_map_lookup_elem(&bb_config, &zero);
		if (config && config->events_per_s)
			bb_tc_notice(v, config->events_per_s);
	}
	return 0;
}

#endif /* BB_TC_BPF_H */
