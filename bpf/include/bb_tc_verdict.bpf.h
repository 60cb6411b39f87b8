/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Mode tc: from a classified packet to the model's question (bb_tc.bpf.h), and
 * from its answer to counters and the verdict.
 */
#ifndef BB_TC_VERDICT_BPF_H
#define BB_TC_VERDICT_BPF_H

#include <linux/pkt_cls.h>
#include "bb_stream.bpf.h"
#include "bb_tc.bpf.h"
#include "bb_work.bpf.h"

static __always_inline __u32 bb_wire_length(struct __sk_buff *skb, const struct bb_iface *iface)
{
	/* wire_len counts the headers of every segment; a test run leaves it 0. */
	__u32 bytes = skb->wire_len > skb->len ? skb->wire_len : skb->len;

	return bb_wire_bytes(bytes, skb->gso_segs, iface->overhead);
}

/*
 * Chooses the leaf (w->leaf) and says whether the packet may go: BB_TC_ADMIT or
 * a reason. `flow` is NULL for packets without metadata. Apart from bb_tc_finish,
 * because 6.1 gives a chain of three calls 512 bytes of stack in all.
 */
__noinline int bb_tc_judge(struct __sk_buff *skb, struct bb_work *w, struct bb_flow *flow,
			   const struct bb_iface *iface)
{
	struct bb_tc_request r = {};
	struct bb_stream_adu *adu = 0;
	__u32 bytes, need, whole, expected;
	int reason = BB_TC_ADMIT;
	__u8 treatment;

	if (!w || !iface)
		return BB_TC_ADMIT;
	treatment = w->class_ >> 4;
	w->leaf = w->control ? 0 : BB_TC_LEAF_PLAIN;
	bytes = bb_wire_length(skb, iface);
	need = whole = bytes;
	if (flow) {
		__u64 lifetime = 0;

		adu = bb_adu_of(w);
		if (w->meta.deadline) {
			__u64 from = adu ? adu->first_ns : w->now;

			lifetime = w->meta.deadline > from ? w->meta.deadline - from : 1;
		}
		w->leaf = bb_tc_leaf(lifetime, flow->leaf);
		if (lifetime)
			flow->leaf = w->leaf;
		/* Only the first packet answers for its ADU: later, part of it has been spent. */
		expected = w->meta.avg_bytes * 13 / 16;
		if (adu && adu->bytes <= skb->len && expected > need) {
			need = expected;
			whole = w->meta.avg_bytes;
		}
	}
	if (adu && adu->dead && treatment != BB_TREAT_FORWARD) {
		reason = BB_DROP_ADU;
	} else if (w->stale && treatment != BB_TREAT_FORWARD) {
		reason = BB_DROP_STALE;
	} else if (iface->rate) {
		r.now = w->now;
		r.rate = iface->rate;
		r.latest = bb_latest_departure(w->owd_ns, w->meta.deadline);
		r.packet_ns = bb_tx_time(bytes, iface->rate);
		r.need_ns = bb_tx_time(need, iface->rate);
		r.whole_ns = bb_tx_time(whole, iface->rate);
		r.ifindex = iface->ifindex;
		r.leaf = w->leaf;
		r.priority = w->class_ & 7;
		r.forward = treatment == BB_TREAT_FORWARD;
		r.signalling = w->control && (w->packet.key.proto == BB_PROTO_UDP ||
					      w->packet.key.proto == BB_PROTO_UDPLITE);
		reason = bb_tc_decide(w->slot, &r);
		w->leaf = r.leaf;
	}
	if (reason != BB_TC_ADMIT && adu)
		adu->dead = 1;
	return reason;
}

/* Counts the packet and carries the verdict out. */
__noinline int bb_tc_finish(struct __sk_buff *skb, const struct bb_work *w,
			    const struct bb_iface *iface, int reason)
{
	struct bb_tc_verdict v = {};

	if (!w || !iface)
		return TC_ACT_UNSPEC;
	v.reason = reason;
	v.drop = reason != BB_TC_ADMIT && !(iface->flags & BB_IFACE_OBSERVE);
	v.now = w->now;
	v.late_ns = w->meta.deadline ? bb_lateness(w->now, w->owd_ns, w->meta.deadline) : 0;
	v.cookie = w->meta.flags & BB_M_COUNTED ? w->meta.cookie : 0;
	v.bytes = skb->len;
	v.slot = w->slot;
	v.adu = w->meta.adu;
	v.ifindex = iface->ifindex;
	v.rule = w->rule;
	v.session = w->session;
	v.priority = w->class_ & 7;
	v.stale = w->stale;
	bb_tc_account(&v);
	if (v.drop)
		return TC_ACT_SHOT;
	if (iface->htb_major)
		skb->priority = (__u32)iface->htb_major << 16 | (BB_TC_LEAF_MINOR + w->leaf);
	return TC_ACT_UNSPEC;
}

#endif /* BB_TC_VERDICT_BPF_H */
