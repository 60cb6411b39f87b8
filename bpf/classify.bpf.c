// SPDX-License-Identifier: GPL-2.0-only
/*
 * The classifier: what is this packet worth? Attached to the egress of every
 * interface of bestby (tcx from 6.6, a clsact filter before).
 *
 *   packet -> flow (bb_parse) -> rule, once per flow (bb_rules)
 *          -> deadline, priority (bb_meta), stream and ADU (bb_stream), SRT (bb_srt)
 *          -> session, owd, stale? (bb_share)
 *          -> where the rule says so, LPD's option (bb_stamp)
 *          -> struct bb_cb in skb->cb[0..4], which the qdisc reads;
 *             in mode tc also the verdict (bb_tc_verdict).
 *
 * A super-packet that would hold a slow link for long is cut first: it leaves
 * for another device, and each of its segments comes here again (bb_segment).
 *
 * Fail open: whatever is malformed, unknown or does not fit is passed on as
 * plain traffic. In mode qdisc nothing is dropped and nothing but bb_global is
 * counted here. Always TC_ACT_UNSPEC (= TCX_NEXT) for what passes, so that the
 * programs of others behind this one still run.
 *
 * TCP of this host is never dropped for a deadline, and for want of room after all
 * else: the sender would see NET_XMIT_DROP as congestion. Its treatment is always
 * "forward".
 *
 * No kfuncs, one section "classifier", global functions: the object must load
 * with Aya 0.14 and verify on 6.1. By hand:
 *   bpftool prog load classify.bpf.o /sys/fs/bpf/x type classifier
 *   tc filter add dev DEV egress bpf direct-action object-pinned /sys/fs/bpf/x
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include "bb_asked.bpf.h"
#include "bb_buffer.bpf.h"
#include "bb_count.bpf.h"
#include "bb_echo.bpf.h"
#include "bb_flow.bpf.h"
#include "bb_fragment.bpf.h"
#include "bb_kernel.bpf.h"
#include "bb_meta.bpf.h"
#include "bb_network.bpf.h"
#include "bb_parse.bpf.h"
#include "bb_role.bpf.h"
#include "bb_rules.bpf.h"
#include "bb_segment.bpf.h"
#include "bb_share.bpf.h"
#include "bb_srt.bpf.h"
#include "bb_stamp.bpf.h"
#include "bb_stream.bpf.h"
#include "bb_tc_verdict.bpf.h"
#include "bb_truncate.bpf.h"
#include "bb_ts.bpf.h"
#include "bb_work.bpf.h"

/* The most that is made linear to reach a packet's headers. */
#define BB_MAX_PULL 2432

static __always_inline void bb_write_cb(struct __sk_buff *skb, const struct bb_work *w)
{
	__u64 deadline = w->meta.deadline, first, second;
	/* The context takes whole words, which clang would not write of its own accord. */
	volatile __u64 *words = (volatile __u64 *)&skb->cb[0];
	__u8 flags = w->meta.flags & BB_M_IN_CB;
	__u32 adu = w->meta.adu;

	if (deadline)
		flags |= BB_CB_DEADLINE;
	if (adu)
		flags |= BB_CB_ADU;
	if (w->packet.key.proto == BB_PROTO_TCP && !(w->packet.flags & BB_P_MALFORMED) && skb->sk)
		flags |= BB_CB_TCP;
	first = bb_cb_first(w->rule, w->session, w->class_ | bb_cb_role(w->role), flags);
	second = bb_cb_second(deadline, w->packet.rtp);
	words[0] = first | bb_cb_check(first, second, adu);
	words[1] = second;
	skb->cb[4] = adu;
}

/* ---- the packet's way ---- */

/* The flow of this CPU's last packet, if it is this packet's, too. */
static __always_inline struct bb_flow *bb_last_flow(struct bb_cpu *cpu)
{
	struct bb_work *w = &cpu->work;
	struct bb_flow *flow = bb_flow_at(cpu->flow);
	__u64 owner;

	if (!flow)
		return 0;
	owner = bb_way_owner(&flow->way);
	if (!(bb_owner_tag(owner) & 1) ||
	    !bb_same_words(&flow->key, &w->packet.key, sizeof(flow->key) / 8))
		return 0;
	w->flow_hash = *(volatile __u64 *)&flow->hash;
	w->flow_gen = bb_owner_gen(owner);
	return bb_way_hold(&flow->way, owner, w->now) ? flow : 0;
}

/* Index of the packet's flow, added if it is not there; -1 if no way is free. */
__noinline int bb_flow_of(struct bb_cpu *cpu, __u64 seed)
{
	struct bb_work *w;
	int at;

	if (!cpu)
		return -1;
	w = &cpu->work;
	w->flow_hash = bb_flow_hash(&w->packet.key, seed);
	at = bb_flow_find(&w->packet.key, w->flow_hash, w->now, &w->flow_gen);
	if (at < 0)
		at = bb_flow_add(&w->packet.key, w->flow_hash, w->now, &w->flow_gen);
	if (at >= 0)
		cpu->flow = at;
	return at;
}

/*
 * The rule of the flow, under the rules of this generation: as it was found, or
 * looked for. The ADUs under way keep their deadlines.
 */
static __always_inline __u32 bb_rule_of(struct __sk_buff *skb, struct bb_work *w,
					struct bb_flow *flow, __u32 rule_gen)
{
	__u64 before = bb_answer(&flow->rule), found;

	found = bb_answer_of(w->flow_gen, bb_answer_rule(0, w->slot, rule_gen));
	/* But for the rule. */
	if (!((before ^ found) >> 16))
		return before & 0xFFFF;
	found = bb_find_rule(skb, &w->packet.key, 0, 0);
	/* What was routed has no socket. */
	if (w->no_cgroup && skb->ingress_ifindex)
		bb_global_inc(BB_G_NO_CGROUP);
	bb_keep_answer(&flow->rule, before, w->flow_gen, bb_answer_rule(found, w->slot, rule_gen));
	flow->refreshed_ns = 0;
	flow->plain_refreshed_ns = 0;
	return found;
}

/*
 * RTCP that no rule covers, on the port behind that of its media (RFC 3550, 11) on
 * both sides or on the receiver's: does a rule cover those? That no rule by port
 * does is kept for the flow.
 */
__noinline int bb_is_of_media(struct __sk_buff *skb, struct bb_work *w, struct bb_flow *flow,
			      const struct bb_config *config, __u32 media_gen)
{
	__u32 gen = 0;
	struct bb_flow *media;
	int at, found = 0;

	if (!w || !flow || !config)
		return 0;
	w->packet.key.sport--;
	w->packet.key.dport--;
	if (flow->rtcp_gen != media_gen) {
		found = !!bb_find_rule(skb, &w->packet.key, 0, 0);
		if (!found)
			flow->rtcp_gen = media_gen;
	}
	if (!found && config->flags & BB_CONFIG_RTP_RULES) {
		at = bb_flow_find(&w->packet.key, bb_flow_hash(&w->packet.key, config->seed),
				  w->now, &gen);
		media = at < 0 ? 0 : bb_flow_at(at);
		found = media && media->media_gen == media_gen;
	}
	w->packet.key.sport++;
	w->packet.key.dport++;
	return found;
}

/* Rules match the marks of others; ours differ with every packet. */
static __always_inline void bb_take_mark(struct __sk_buff *skb, struct bb_work *w,
					 const struct bb_config *config)
{
	int ours = bb_is_ours(config, skb->mark);

	if (ours && bb_mark_counts(skb, config)) {
		bb_read_mark(&w->meta, config, skb->mark, w->now);
		w->media = 1;
		return;
	}
	w->packet.key.mark = skb->mark & config->flow_mark_mask;
	if (config->mark_magic_mask && !ours)
		bb_global_inc(BB_G_FOREIGN_MARK);
}

/*
 * What the kernel of this host says to find and keep its neighbours and groups
 * (ARP, ND, IGMP, MLD), not what it bridges.
 */
static __always_inline int bb_is_kernels(struct __sk_buff *skb, const struct bb_work *w)
{
	return !skb->ingress_ifindex && w->packet.key.proto != BB_PROTO_UDP &&
	       w->packet.key.proto != BB_PROTO_UDPLITE;
}

static __always_inline int bb_may_be_echo(const struct bb_packet *packet)
{
	return packet->key.proto == BB_PROTO_ICMP || packet->key.proto == BB_PROTO_ICMPV6;
}

/* Is it the agent's echo request, a marker of the path behind this interface? Its name goes with it then. */
__noinline int bb_is_echo(struct __sk_buff *skb, struct bb_work *w)
{
	__u32 name = 0, slot = 0;
	int four;

	if (!w || skb->ingress_ifindex)
		return 0;
	four = w->packet.key.family == 4;
	if (!bb_echo_of(skb, four ? BB_ECHO_AT4 : BB_ECHO_AT6,
			four ? BB_ICMP_REQUEST : BB_ICMP6_REQUEST, &slot, &name) ||
	    slot != w->slot)
		return 0;
	w->packet.rtp = BB_STREAM_ECHO;
	w->packet.ssrc = name;
	return 1;
}

/*
 * Mode tc, where the rate of the path behind the interface is found. An admitted packet counts as sent, though it may
 * wait in the tree for a while. A marker does not wait there.
 */
__noinline int bb_tc_note_path(struct __sk_buff *skb, struct bb_work *w, int admitted)
{
	struct bb_auto_leaving leaving = {};
	struct bb_iface *iface;
	struct bb_auto *a;
	__u32 slot;

	if (!w)
		return 0;
	slot = w->slot;
	iface = bpf_map_lookup_elem(&bb_ifaces, &slot);
	a = bpf_map_lookup_elem(&bb_autos, &slot);
	if (!iface || !a)
		return 0;
	if (!admitted) {
		if (w->media)
			a->gave_up_ns = w->now;
		return 0;
	}
	leaving.now = w->now;
	leaving.bytes = skb->len + iface->overhead;
	leaving.marks = w->packet.rtp == BB_STREAM_ECHO;
	leaving.name = w->packet.ssrc;
	bb_auto_sends(a, iface, &leaving);
	return 0;
}

/* No metadata: plain or control. */
static __always_inline void bb_make_plain(struct __sk_buff *skb, struct bb_work *w,
					  struct bb_flow *flow)
{
	w->meta.deadline = 0;
	w->meta.adu = w->packet.rtp == BB_STREAM_ECHO ? w->packet.ssrc : 0;
	w->meta.flags = 0;
	w->stream = BB_STREAM_NONE;
	w->media = w->control && (w->media || bb_is_kernels(skb, w));
	if (!w->media && bb_is_network(skb, w))
		w->control = w->media = w->network = 1;
	w->class_ = (w->control ? 0 : BB_PRIORITY_DEFAULT) | BB_TREAT_FORWARD << 4;
	if (!w->control)
		bb_global_inc(BB_G_NO_METADATA);
	bb_simple_session(skb, w, flow);
	w->rule = 0;
}

/* Rule fields that nothing before gave; the tables and defaults for what is still open. */
static __always_inline void bb_complete(struct __sk_buff *skb, struct bb_work *w,
					const struct bb_config *config,
					const struct bb_iface *iface, int link)
{
	struct bb_meta *meta = &w->meta;
	struct bb_rule *rule = 0;
	__u32 index = w->rule;

	if (index)
		rule = bpf_map_lookup_elem(&bb_rules, &index);
	if (rule) {
		w->rule_flags = rule->flags;
		w->rtx_n = rule->rtx_n;
	}
	if (rule && !meta->flags) {
		/* Neither mark nor SO_TXTIME nor socket nor option said anything. */
		meta->lifetime = rule->lifetime_ns;
		meta->priority = rule->priority;
		meta->treatment = rule->treatment;
	} else if (rule) {
		if (!meta->deadline && !meta->lifetime && !(meta->flags & BB_M_NO_DEADLINE))
			meta->lifetime = rule->lifetime_ns;
		if (meta->priority == BB_PRIORITY_NONE)
			meta->priority = rule->priority;
		if (!meta->treatment)
			meta->treatment = rule->treatment;
	}
	bb_explain_step(meta, BB_STEP_RULE, !!rule);
	if (meta->priority >= BB_PRIORITIES) {
		w->unsaid = !!(w->rule_flags & BB_RULE_ROLES);
		meta->priority = bb_table_priority(config, skb->priority, w->packet.key.dscp);
	}
	if (meta->priority >= BB_PRIORITIES) {
		meta->priority = BB_PRIORITY_DEFAULT;
		w->unsaid = !!rule;
	}
	w->asked = meta->treatment;
	bb_explain_step(meta, BB_STEP_REST, 1);
	if (w->packet.key.proto == BB_PROTO_TCP && bb_has_socket(skb))
		meta->treatment = BB_TREAT_FORWARD;
	else if (!meta->treatment)
		meta->treatment = BB_TREAT_DISCARD;
	else if (meta->treatment == BB_TREAT_TRUNCATE &&
		 (!(link & BB_LINK_AGAIN || (iface->mode == BB_MODE_TC && !iface->htb_major)) ||
		  !bb_find_header(skb, w, link & BB_LINK_ETHERNET)))
		meta->treatment = BB_TREAT_DISCARD;
}

/* For `bestby explain`: what comes of it. */
static __always_inline void bb_explain_result(const struct bb_work *w, int reason)
{
	struct bb_explained *explained = bb_explanation_here();

	if (!explained)
		return;
	explained->now = w->now;
	explained->deadline = w->deadline;
	explained->session = w->session;
	explained->reason = reason;
	explained->rule = w->rule;
	explained->class_ = w->class_;
	explained->stale = w->stale;
	explained->control = w->control;
	explained->rtp = w->packet.rtp;
	explained->inner = w->packet.inner;
	explained->known = explained->said[BB_STEP_REST].done;
}

/*
 * A packet that came while this CPU judged another one (bb_take_cpu): plain traffic, whatever
 * its control block says of an earlier interface, and its time of departure no deadline.
 */
__noinline int bb_pass_plain(struct __sk_buff *skb, const struct bb_iface *iface)
{
	volatile __u64 *words = (volatile __u64 *)&skb->cb[0];
	struct bb_meta meta = {};

	if (!iface)
		return TC_ACT_UNSPEC;
	bb_global_inc(BB_G_PREEMPTED);
	if (skb->tstamp)
		bb_read_txtime(skb, &meta);
	words[0] = 0;
	words[1] = 0;
	skb->cb[4] = 0;
	if (iface->mode == BB_MODE_TC && iface->htb_major)
		bb_tc_steer(skb, iface, BB_TC_LEAF_PLAIN);
	return TC_ACT_UNSPEC;
}

SEC("classifier")
int bb_classify(struct __sk_buff *skb)
{
	struct bb_cpu *cpu;
	struct bb_work *w;
	struct bb_config *config;
	struct bb_iface *iface;
	struct bb_flow *flow = 0;
	__u32 ifindex = skb->ifindex, zero = 0, slot;
	__u64 hint;
	int joined = 0, link, reason = BB_TC_ADMIT, verdict = TC_ACT_UNSPEC;
	__u32 rule_gen;

	hint = *bb_iface_hint(ifindex, 0);
	if ((__u32)hint != ifindex)
		hint = bb_find_iface(skb);
	if (!hint)
		return TC_ACT_UNSPEC;
	slot = bb_hint_slot(hint);
	iface = bpf_map_lookup_elem(&bb_ifaces, &slot);
	if (!iface)
		return TC_ACT_UNSPEC;
	if (iface->ifindex != ifindex) {
		/* Attached in another slot since, or not at all. */
		hint = bb_find_iface(skb);
		if (!hint)
			return TC_ACT_UNSPEC;
		slot = bb_hint_slot(hint);
		iface = bpf_map_lookup_elem(&bb_ifaces, &slot);
		if (!iface || iface->ifindex != ifindex)
			return TC_ACT_UNSPEC;
	}
	config = bpf_map_lookup_elem(&bb_config, &zero);
	if (!config || iface->mode == BB_MODE_NONE)
		return TC_ACT_UNSPEC;
	if (skb->gso_size) {
		int redirected =
			bb_segment(skb, iface, slot, bb_hint_link(hint) & BB_LINK_ETHERNET);

		if (redirected != TC_ACT_UNSPEC)
			return redirected;
	}

	cpu = bb_this_cpu();
	if (!cpu)
		return TC_ACT_UNSPEC;
	w = &cpu->work;
	if (bb_is_back(skb, w, iface->mode)) {
		int back = bb_come_again(skb, w, iface->mode);

		if (back != BB_ANOTHER)
			return back;
	}
	if (!bb_take_cpu(cpu))
		return bb_pass_plain(skb, iface);
	bb_begin(w);
	w->now = bpf_ktime_get_ns();
	w->meta.priority = BB_PRIORITY_NONE;
	w->stream = BB_STREAM_NONE;
	w->slot = slot;
	link = bb_hint_link(hint);
	if (link & BB_LINK_ETHERNET && bb_parse_usual(skb, &w->packet, ifindex))
		goto parsed;
	if (bb_parse(skb, &w->packet, link & BB_LINK_ETHERNET) == BB_PULL) {
		__u32 pull = w->packet.pull;

		if (pull > BB_MAX_PULL || bpf_skb_pull_data(skb, pull) ||
		    bb_parse(skb, &w->packet, link & BB_LINK_ETHERNET) == BB_PULL) {
			/* Once more: the payload behind the ports may lie in another fragment. */
			pull = w->packet.pull;
			if (pull > BB_MAX_PULL || bpf_skb_pull_data(skb, pull) ||
			    bb_parse(skb, &w->packet, link & BB_LINK_ETHERNET) == BB_PULL)
				w->packet.flags |= BB_P_MALFORMED;
		}
	}
	if (w->packet.flags & BB_P_MALFORMED)
		bb_global_inc(BB_G_MALFORMED);
	if (!(w->packet.flags & BB_P_IP) || (w->packet.flags & BB_P_MALFORMED)) {
		w->control =
			!!(w->packet.flags & BB_P_CONTROL) && !(w->packet.flags & BB_P_MALFORMED);
		flow = 0;
		/* What is not judged is not held until its deadline either. */
		if (skb->tstamp)
			bb_read_txtime(skb, &w->meta);
		goto plain;
	}
	if (w->packet.flags & BB_P_FRAG_LATER)
		joined = bb_join_fragment(&w->packet, 0);

parsed:
	if (skb->mark)
		bb_take_mark(skb, w, config);
	bb_explain_step(&w->meta, BB_STEP_MARK, w->meta.flags & BB_M_EXPLICIT);
	if (skb->tstamp && w->packet.key.proto != BB_PROTO_TCP)
		if (bb_read_txtime(skb, &w->meta) && w->meta.priority == BB_PRIORITY_NONE)
			w->meta.priority =
				bb_table_priority(config, skb->priority, w->packet.key.dscp);
	bb_explain_step(&w->meta, BB_STEP_TXTIME, 0);

	if (iface->flags & BB_IFACE_AUTO && bb_may_be_echo(&w->packet) && bb_is_echo(skb, w)) {
		/* It goes before what waits here: it is to meet the queue behind us. */
		w->control = w->media = 1;
		goto plain;
	}

	flow = bb_last_flow(cpu);
	if (!flow) {
		if (bb_flow_of(cpu, config->seed) < 0)
			goto plain; /* no room for it just now */
		flow = bb_flow_at(cpu->flow);
		if (!flow)
			goto plain;
	}
	rule_gen = config->rule_gen;
	if (config->flags & BB_CONFIG_CGROUP_RULES) {
		__u64 cgroup = bb_own_cgroup(skb);

		w->no_cgroup = cgroup == BB_NO_CGROUP;
		rule_gen = bb_rule_gen(rule_gen, cgroup, config->seed);
	}
	w->rule = bb_rule_of(skb, w, flow, rule_gen);
	if (bb_asks_flow(&w->packet, flow) && (w->rule || config->flags & BB_CONFIG_RTP_RULES))
		bb_ask_flow(skb, w, flow);
	if (config->flags & BB_CONFIG_RTP_RULES && w->packet.flags & BB_P_RTP) {
		w->rule = bb_rule_of_stream(skb, w, flow, rule_gen);
		if (w->rule)
			flow->media_gen = rule_gen + 1;
	}
	if (w->rule)
		w->media = 1;

	if (w->meta.deadline && !bb_believe(&flow->untimely, w->meta.deadline, w->now)) {
		w->meta.deadline = 0;
		bb_global_inc(BB_G_UNTIMELY);
	}

	if (w->packet.flags & BB_P_CONTROL && !(w->meta.flags & BB_M_EXPLICIT)) {
		w->control = 1;
		/* Signalling of a flow whose streams have rules is media, too. */
		w->media |= flow->media_gen == rule_gen + 1;
		if (!w->media && w->packet.flags & BB_P_RTCP)
			w->media = bb_is_of_media(skb, w, flow, config, rule_gen + 1);
		goto plain;
	}

	if (skb->sk)
		bb_read_socket(skb, &w->meta);
	bb_explain_step(&w->meta, BB_STEP_SOCKET, w->meta.flags & BB_M_SOCKET);
	if (w->packet.option)
		bb_read_option(skb, &w->packet, &w->meta, w->now);
	bb_explain_step(&w->meta, BB_STEP_OPTION, w->meta.flags & BB_M_OPTION);
	if (!w->rule && !(w->meta.flags & (BB_M_EXPLICIT | BB_M_SOCKET | BB_M_OPTION))) {
		/* It would overtake those of its flow that say something, or be overtaken. */
		if (w->packet.key.proto == BB_PROTO_TCP)
			w->meta.lifetime = bb_behind_all(flow->due, w->now);
		if (!w->meta.lifetime)
			goto plain;
		w->meta.treatment = BB_TREAT_FORWARD;
	}
	bb_complete(skb, w, config, iface, link);

	if (joined) {
		bb_join_fragment(&w->packet, &w->meta);
		bb_rejoin_adu(w, skb->len);
	} else if (w->srt && !(w->meta.flags & BB_M_EXPLICIT)) {
		bb_place_srt(w, flow);
	} else {
		int ts = bb_may_be_ts(skb, w, iface->mode);

		bb_find_adu(skb, w, flow);
		if (ts)
			ts = bb_place_ts(skb, w, flow, iface->mode);
		if (!ts)
			bb_read_role(skb, w, iface->mode);
		else if (ts == BB_TS_IS_PICTURE)
			bb_find_adu(skb, w, flow);
	}
	if (w->packet.flags & BB_P_FRAG_FIRST)
		bb_remember_fragment(&w->packet, &w->meta);

	w->deadline = w->meta.deadline;
	if (w->packet.key.proto == BB_PROTO_TCP && w->deadline && !w->meta.adu)
		w->meta.deadline = bb_in_order(&flow->due, w->deadline);
	bb_judge(skb, w, flow, iface);
	/* Just looked up anew. */
	if (flow->refreshed_ns == w->now && w->rule && skb->sk &&
	    w->packet.key.proto == BB_PROTO_UDP)
		bb_look_at_buffer(skb, w, iface);
	w->class_ = w->meta.priority | w->meta.treatment << 4;
	goto out;
plain:
	bb_make_plain(skb, w, flow);
	flow = 0;
	/* This one, too, or the next would be taken for parts of an earlier datagram. */
	if (w->packet.flags & BB_P_FRAG_FIRST)
		bb_remember_fragment(&w->packet, &w->meta);
out:
	if (w->packet.flags & BB_P_CONTROL && w->media && !w->network &&
	    w->packet.key.proto == BB_PROTO_UDP)
		bb_note_asked(skb, w);
	if (iface->mode == BB_MODE_TC) {
		reason = bb_tc_judge(skb, w, flow, iface);
		if (iface->flags & BB_IFACE_AUTO)
			bb_tc_note_path(skb, w, reason == BB_TC_ADMIT);
	}
	bb_explain_result(w, reason);
	/* Who only observes changes no packet. */
	if (!(iface->flags & BB_IFACE_OBSERVE)) {
		if (w->rule_flags & BB_RULE_STAMP && reason == BB_TC_ADMIT)
			bb_stamp(skb, w);
		if (iface->decrement && w->packet.option == BB_OPTION_READ)
			bb_pass_on(skb, w, iface);
	}
	bb_write_cb(skb, w);
	if (iface->mode == BB_MODE_TC)
		verdict = bb_tc_finish(skb, w, iface, reason);
	else if (w->class_ >> 4 == BB_TREAT_TRUNCATE &&
		 (!w->stamped || bb_find_header(skb, w, link & BB_LINK_ETHERNET)))
		bb_send_twin(skb, w);
	bb_give_cpu(cpu);
	return verdict;
}

char _license[] SEC("license") = "GPL";
