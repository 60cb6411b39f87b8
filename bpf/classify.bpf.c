// SPDX-License-Identifier: GPL-2.0-only
/*
 * The classifier: what is this packet worth? Attached to the egress of every
 * interface of bestby (tcx from 6.6, a clsact filter before).
 *
 *   packet -> flow (bb_parse) -> rule, once per flow (bb_rules)
 *          -> deadline, priority, ADU (bb_meta) -> session (bb_session)
 *          -> struct bb_cb in skb->cb[0..4], which the qdisc reads;
 *             in mode tc also the verdict (bb_tc).
 *
 * A super-packet that would hold a slow link for long is cut first: it leaves
 * for another device, and each of its segments comes here again (bb_segment).
 *
 * Fail open: whatever is malformed, unknown or does not fit is passed on as
 * plain traffic. In mode qdisc nothing is dropped and nothing but bb_global is
 * counted here. Always TC_ACT_UNSPEC (= TCX_NEXT) for what passes, so that the
 * programs of others behind this one still run.
 *
 * TCP of this host is never dropped: the sender would see NET_XMIT_DROP as
 * congestion. Its treatment is always "forward".
 *
 * No kfuncs, one section "classifier", global functions: the object must load
 * with Aya 0.14 and verify on 6.1. By hand:
 *   bpftool prog load classify.bpf.o /sys/fs/bpf/x type classifier
 *   tc filter add dev DEV egress bpf direct-action object-pinned /sys/fs/bpf/x
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include "bb_count.bpf.h"
#include "bb_flow.bpf.h"
#include "bb_fragment.bpf.h"
#include "bb_kernel.bpf.h"
#include "bb_meta.bpf.h"
#include "bb_parse.bpf.h"
#include "bb_rules.bpf.h"
#include "bb_segment.bpf.h"
#include "bb_share.bpf.h"
#include "bb_tc_verdict.bpf.h"
#include "bb_work.bpf.h"

/* The most that is made linear to reach a packet's headers. */
#define BB_MAX_PULL 2432

static __always_inline void bb_write_cb(struct __sk_buff *skb, const struct bb_work *w)
{
	__u64 deadline = w->meta.deadline;
	__u8 flags = 0;
	union {
		struct bb_cb cb;
		__u32 words[5];
	} out = {
		.cb = {
			.rule = w->rule,
			.session = w->session,
			.class_ = w->class_,
			.adu = w->meta.adu,
			.deadline_lo = deadline,
		},
	};

	if (deadline)
		flags |= BB_CB_DEADLINE;
	if (w->meta.adu) {
		flags |= BB_CB_ADU;
		if (w->packet.flags & BB_P_MARKER)
			flags |= BB_CB_ADU_LAST;
	}
	if (w->meta.flags & BB_M_COUNTED)
		flags |= BB_CB_SOCK;
	out.cb.flags = flags;
	out.words[4] = deadline >> 32 & 0xFFFFFF;
	out.cb.check = bb_cb_check(out.words);

	skb->cb[0] = out.words[0];
	skb->cb[1] = out.words[1];
	skb->cb[2] = out.words[2];
	skb->cb[3] = out.words[3];
	skb->cb[4] = out.words[4];
}

/* ---- the packet's way ---- */

/*
 * Looks for the flow's rule, under the rules of this generation. The ADUs under
 * way keep their deadlines.
 */
__noinline int bb_renew_flow(struct __sk_buff *skb, struct bb_flow *flow, __u32 rule_gen,
			     __u32 slot)
{
	struct bb_flow_key key;
	struct bb_rule *rule;
	__u32 index;

	if (!flow)
		return 0;
	key = flow->key; /* another CPU may hand the way on meanwhile */
	index = bb_find_rule(skb, &key);
	flow->lifetime_ns = 0;
	flow->priority = BB_PRIORITY_NONE;
	flow->treatment = BB_TREAT_DEFAULT;
	rule = index ? bpf_map_lookup_elem(&bb_rules, &index) : 0;
	if (rule) {
		if (rule->flags & BB_RULE_LIFETIME)
			flow->lifetime_ns = rule->lifetime_ns;
		if (rule->flags & BB_RULE_PRIORITY)
			flow->priority = rule->priority;
		flow->treatment = rule->treatment;
	}
	flow->rule = index;
	flow->iface = slot;
	flow->session = flow->plain_session = ~0U;
	flow->refreshed_ns = 0;
	flow->rule_gen = rule_gen;
	return 0;
}

/* No metadata: plain or control. */
static __always_inline void bb_make_plain(struct __sk_buff *skb, struct bb_work *w,
					  struct bb_flow *flow)
{
	w->meta.deadline = 0;
	w->meta.adu = 0;
	w->meta.flags = 0;
	w->rule = 0;
	w->adu_slot = ~0U;
	w->class_ = (w->control ? 0 : BB_PRIORITY_DEFAULT) | BB_TREAT_FORWARD << 4;
	if (!w->control)
		bb_global_inc(BB_G_NO_METADATA);
	bb_simple_session(skb, w, flow, w->control ? BB_SESSION_CONTROL : BB_SESSION_PLAIN);
}

/* Rule fields that nothing before gave; the tables and defaults for what is still open. */
static __always_inline void bb_complete(struct __sk_buff *skb, struct bb_work *w,
					const struct bb_flow *flow, const struct bb_config *config)
{
	struct bb_meta *meta = &w->meta;

	if (!meta->deadline && !meta->lifetime && !(meta->flags & BB_M_NO_DEADLINE))
		meta->lifetime = flow->lifetime_ns;
	if (meta->priority == BB_PRIORITY_NONE)
		meta->priority = flow->priority;
	if (!meta->treatment)
		meta->treatment = flow->treatment;
	if (meta->priority == BB_PRIORITY_NONE)
		meta->priority = bb_table_priority(config, skb->priority, w->packet.key.dscp);
	if (meta->priority >= BB_PRIORITIES)
		meta->priority = BB_PRIORITY_DEFAULT;
	/* Truncation is not offered yet: its stale packets are discarded. */
	if (meta->treatment != BB_TREAT_FORWARD)
		meta->treatment = BB_TREAT_DISCARD;
	if (w->packet.key.proto == BB_PROTO_TCP && skb->sk)
		meta->treatment = BB_TREAT_FORWARD;
}

SEC("classifier")
int bb_classify(struct __sk_buff *skb)
{
	struct bb_work w = {};
	struct bb_iface_hint *hint;
	struct bb_config *config;
	struct bb_iface *iface;
	struct bb_flow *flow = 0;
	__u32 zero = 0, slot;
	__u64 hash;
	int joined = 0;

	hint = bb_iface_hint(skb->ifindex);
	if (hint->ifindex != skb->ifindex && !bb_find_iface(skb))
		return TC_ACT_UNSPEC;
	slot = hint->slot;
	iface = bpf_map_lookup_elem(&bb_ifaces, &slot);
	if (!iface)
		return TC_ACT_UNSPEC;
	if (iface->ifindex != skb->ifindex) {
		/* Attached in another slot since, or not at all. */
		if (!bb_find_iface(skb))
			return TC_ACT_UNSPEC;
		slot = hint->slot;
		iface = bpf_map_lookup_elem(&bb_ifaces, &slot);
		if (!iface || iface->ifindex != skb->ifindex)
			return TC_ACT_UNSPEC;
	}
	config = bpf_map_lookup_elem(&bb_config, &zero);
	if (!config || iface->mode == BB_MODE_NONE)
		return TC_ACT_UNSPEC;
	if (skb->gso_size) {
		int redirected = bb_segment(skb, iface, slot, hint->ethernet);

		if (redirected != TC_ACT_UNSPEC)
			return redirected;
	}

	w.now = bpf_ktime_get_ns();
	w.meta.priority = BB_PRIORITY_NONE;
	w.adu_slot = ~0U;
	w.slot = slot;
	w.packet.key.ifindex = skb->ifindex;
	if (hint->ethernet && bb_parse_usual(skb, &w.packet))
		goto parsed;
	if (bb_parse(skb, &w.packet, hint->ethernet) == BB_PULL) {
		__u32 pull = w.packet.pull;

		if (pull > BB_MAX_PULL || bpf_skb_pull_data(skb, pull) ||
		    bb_parse(skb, &w.packet, hint->ethernet) == BB_PULL) {
			/* Once more: the payload behind the ports may lie in another fragment. */
			pull = w.packet.pull;
			if (pull > BB_MAX_PULL || bpf_skb_pull_data(skb, pull) ||
			    bb_parse(skb, &w.packet, hint->ethernet) == BB_PULL)
				w.packet.flags |= BB_P_MALFORMED;
		}
	}
	if (w.packet.flags & BB_P_MALFORMED)
		bb_global_inc(BB_G_MALFORMED);
	if (!(w.packet.flags & BB_P_IP) || (w.packet.flags & BB_P_MALFORMED)) {
		w.control = !!(w.packet.flags & BB_P_CONTROL) && !(w.packet.flags & BB_P_MALFORMED);
		flow = 0;
		goto plain;
	}
	if (w.packet.flags & BB_P_FRAG_LATER)
		joined = bb_join_fragment(&w.packet, 0);

parsed:
	if (bb_is_ours(config, skb->mark)) {
		bb_read_mark(&w.meta, config, skb->mark, w.now);
	} else {
		/* Rules match the marks of others; ours differ with every packet. */
		w.packet.key.mark = skb->mark & config->flow_mark_mask;
		if (skb->mark && config->mark_magic_mask)
			bb_global_inc(BB_G_FOREIGN_MARK);
	}

	hash = bb_flow_hash(&w.packet.key);
	flow = bb_find_flow(&w.packet.key, hash);
	if (!flow) {
		int at = bb_add_flow(&w.packet.key, hash, w.now);

		if (at >= 0)
			flow = bb_flow_way(at / BB_FLOW_WAYS, at);
		if (!flow)
			goto plain; /* no room for it just now */
	}
	flow->used_ns = w.now;
	if (flow->rule_gen != config->rule_gen || flow->iface != slot)
		bb_renew_flow(skb, flow, config->rule_gen, slot);

	/* One packet may look like RTP by chance; a stream of it names its SSRC again. */
	if ((w.packet.flags & BB_P_RTP) && !(flow->flags & BB_FLOW_RTP))
		for (__u32 i = 0; i < BB_FLOW_ADUS; i++)
			if (flow->adu[i].first_ns && flow->adu[i].stream == w.packet.ssrc)
				flow->flags |= BB_FLOW_RTP;

	if (skb->tstamp && w.packet.key.proto != BB_PROTO_TCP)
		if (bb_read_txtime(skb, &w.meta) && w.meta.priority == BB_PRIORITY_NONE)
			w.meta.priority =
				bb_table_priority(config, skb->priority, w.packet.key.dscp);

	if (w.packet.flags & (BB_P_CONTROL | BB_P_MAYBE_DTLS) && !(w.meta.flags & BB_M_EXPLICIT)) {
		w.control = w.packet.flags & BB_P_CONTROL || flow->flags & BB_FLOW_RTP;
		if (w.control)
			goto plain;
	}

	if (skb->sk)
		bb_read_socket(skb, &w.meta);
	w.rule = flow->rule;
	if (!w.rule && !(w.meta.flags & (BB_M_EXPLICIT | BB_M_SOCKET))) {
		if (w.packet.flags & BB_P_FRAG_FIRST)
			bb_remember_fragment(&w.packet, &w.meta);
		goto plain;
	}
	bb_complete(skb, &w, flow, config);

	if (joined) {
		bb_join_fragment(&w.packet, &w.meta);
		for (__u32 i = 0; i < BB_FLOW_ADUS; i++)
			if (flow->adu[i].first_ns && flow->adu[i].id == w.meta.adu)
				w.adu_slot = i;
		if (w.adu_slot < BB_FLOW_ADUS)
			flow->adu[w.adu_slot].bytes += skb->len;
	} else {
		w.adu_slot = bb_find_adu(flow, &w.packet, &w.meta, w.now, skb->len);
	}
	if (w.packet.flags & BB_P_FRAG_FIRST)
		bb_remember_fragment(&w.packet, &w.meta);

	bb_judge(skb, &w, flow, iface);
	w.class_ = w.meta.priority | w.meta.treatment << 4;
	goto out;
plain:
	bb_make_plain(skb, &w, flow);
	flow = 0;
out:
	bb_write_cb(skb, &w);
	if (iface->mode == BB_MODE_TC)
		return bb_tc_finish(skb, &w, iface, bb_tc_judge(skb, &w, flow, iface));
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "GPL";
