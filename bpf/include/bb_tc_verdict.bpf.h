/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Mode tc: from a classified packet to the model's question (bb_tc.bpf.h), and
 * from its answer to counters and the verdict.
 */
#ifndef BB_TC_VERDICT_BPF_H
#define BB_TC_VERDICT_BPF_H

#include <linux/pkt_cls.h>
#include "bb_role.bpf.h"
#include "bb_rtt.h"
#include "bb_session.bpf.h"
#include "bb_stream.bpf.h"
#include "bb_tc.bpf.h"
#include "bb_tc_frame.h"
#include "bb_truncate.bpf.h"
#include "bb_work.bpf.h"

static __always_inline __u32 bb_wire_length(struct __sk_buff *skb, const struct bb_iface *iface)
{
	/* wire_len counts the headers of every segment; a test run leaves it 0. */
	__u32 bytes = skb->wire_len > skb->len ? skb->wire_len : skb->len;

	return bb_wire_bytes(bytes, skb->gso_segs, iface->overhead);
}

/* Says which leaf of the HTB tree the packet goes to. */
static __always_inline void bb_tc_steer(struct __sk_buff *skb, const struct bb_iface *iface,
					__u8 leaf)
{
	__u32 major = iface->htb_major;

	if (!(iface->flags & BB_IFACE_STEERS)) {
		skb->priority = major << 16 | (BB_TC_LEAF_MINOR + leaf);
		return;
	}
	/* HTB would take it for a class before it asks the filter: no sender picks its leaf. */
	if (skb->priority >> 16 == major)
		skb->priority = 0;
	skb->tc_index = (skb->tc_index & BB_TC_INDEX_OTHERS) | BB_TC_INDEX |
			(leaf & BB_TC_INDEX_LEAF) << BB_TC_INDEX_SHIFT;
}

/*
 * The longest that a packet may wait below, for those who measure with it (bb_rtt.h): what
 * is queued, while plain traffic has no more than its share. It is 0 on an idle link.
 */
static __always_inline void bb_tc_note_wait(const struct bb_work *w, const struct bb_tc_request *r)
{
	struct bb_session *session = bb_session_at(w->session);

	if (session)
		bb_wait_add(session, r->queued_ns * 100 / (r->plain_share ?: 1), w->now);
}

/* On no stack: 6.1 gives a chain of three calls 512 bytes in all. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct bb_tc_request);
	__uint(max_entries, 1);
} bb_tc_requests SEC(".maps");

/* The leaf of a media packet: by its lifetime and its priority. */
static __always_inline __u8 bb_tc_media_leaf(const struct bb_work *w, struct bb_flow *flow,
					     const struct bb_stream_adu *adu, int never)
{
	__u64 lifetime = 0, from = adu ? adu->first_ns : w->first_ns ?: w->now;
	struct bb_stream *stream = adu ? bb_stream_at(w->stream) : 0;
	__u8 priority = w->class_ & 7, *kept = &flow->leaf, leaf;

	if (w->meta.deadline)
		lifetime = w->meta.deadline > from ? w->meta.deadline - from : 1;
	/*
	 * What only its role says decides whether a frame is refused, not when it goes: decoders take frames in the
	 * order in which they were made, and receivers of MPEG-TS put nothing in order.
	 */
	if (priority > BB_PRIORITY_DEFAULT &&
	    (w->packet.rtp == BB_STREAM_TS || (w->unsaid && !(w->rule_flags & BB_RULE_ROLES))))
		priority = BB_PRIORITY_DEFAULT;
	/* Streams of one 5-tuple have lifetimes of their own, and packets of one stream priorities. */
	if (stream) {
		/* clang must not compute addresses before the check. */
		asm volatile("" : "+r"(stream));
		kept = &stream->leaf;
	}
	leaf = bb_tc_leaf(lifetime, priority, *kept >> 4 == priority ? *kept & 0xF : 0);
	if (lifetime)
		*kept = leaf | priority << 4;
	/* What was not refused but went to the plain leaf is not overtaken by what follows it. */
	return never && w->now < flow->plain_until_ns ? BB_TC_LEAF_PLAIN : leaf;
}

/* Where its lifetime alone would put it. */
static __always_inline __u8 bb_tc_late_leaf(const struct bb_work *w,
					    const struct bb_stream_adu *adu)
{
	__u64 from = adu ? adu->first_ns : w->now;

	return w->meta.deadline > from ? bb_tc_leaf(w->meta.deadline - from, BB_TC_NEUTRAL, 0) : 0;
}

/* The rest of the question about a packet of an ADU. Apart, because of the stack. */
static __noinline void bb_tc_judge_frame(const struct __sk_buff *skb, const struct bb_work *w,
					 struct bb_stream_adu *adu, struct bb_tc_request *r)
{
	struct bb_stream *s = bb_stream_at(w->stream);
	__u32 before = adu->bytes > skb->len ? adu->bytes - skb->len : 0;

	if (!s)
		return;
	/* clang must not compute addresses before the check. */
	asm volatile("" : "+r"(s));
	/* Of a later fragment nothing here tells whether it is the last: it is asked for itself. */
	if (w->packet.flags & BB_P_FRAG_LATER) {
		r->begins = !before;
		return;
	}
	r->stream = w->stream + 1;
	adu->leaf = w->leaf;
	bb_tc_frame(r, s, adu, s->adu[(w->adu_which ^ 1) & 1].first_ns, before,
		    w->packet.flags & BB_P_MARKER);
}

/* Does the packet's frame need one that was refused? */
static __noinline int bb_tc_is_chained(const struct bb_work *w, const struct bb_stream_adu *adu)
{
	struct bb_video *video = bb_video_at(w->stream);

	return video && bb_chain_broken(video, adu->number, w->role);
}

/* The packet's frame is refused: what needs it is, too. */
static __noinline int bb_tc_break_chain(const struct bb_work *w, const struct bb_stream_adu *adu)
{
	struct bb_video *video = bb_video_at(w->stream);

	return video && bb_chain_lost(video, adu->number, w->role);
}

/*
 * Chooses the leaf (w->leaf) and says whether the packet may go: BB_TC_ADMIT or
 * a reason. `flow` is NULL for packets without metadata. Apart from bb_tc_finish,
 * because of the stack.
 */
__noinline int bb_tc_judge(struct __sk_buff *skb, struct bb_work *w, struct bb_flow *flow,
			   const struct bb_iface *iface)
{
	struct bb_stream_adu *adu = 0;
	struct bb_tc_request *r;
	__u32 zero = 0;
	int reason = BB_TC_ADMIT, media;
	__u32 bytes;
	__u8 forward, repair;

	if (!w || !iface)
		return BB_TC_ADMIT;
	repair = w->meta.flags & BB_M_REPAIR;
	forward = w->class_ >> 4 == BB_TREAT_FORWARD;
	w->leaf = w->control ? 0 : BB_TC_LEAF_PLAIN;
	if (flow)
		adu = bb_adu_of(w);
	/* What nobody vouches for shares the plain leaf, whatever its sockets say. */
	media = flow && w->media;
	if (media)
		w->leaf = bb_tc_media_leaf(w, flow, adu, forward);
	if (w->role && adu && bb_tc_is_chained(w, adu)) {
		/* Later fragments of the datagram say nothing of the frame. */
		adu->flags |= BB_ADU_DEAD;
		return BB_DROP_CHAIN;
	}
	if (!forward && adu && adu->flags & BB_ADU_DEAD && !repair)
		return BB_DROP_ADU;
	if (!forward && w->stale && !(repair && iface->rate)) {
		reason = BB_DROP_STALE;
		goto out;
	}
	r = bpf_map_lookup_elem(&bb_tc_requests, &zero);
	if (!iface->rate || !r)
		goto out;
	__builtin_memset(r, 0, sizeof(*r));
	r->rate = iface->rate;
	bytes = bb_wire_length(skb, iface);
	r->now = w->now;
	r->ifindex = iface->ifindex;
	r->packet_ns = r->need_ns = r->whole_ns = bb_tx_time(bytes, r->rate);
	r->priority = w->class_ & 7;
	/* Pictures leave room for what is beside them. */
	if (w->ts_beside && w->unsaid)
		r->priority = BB_PRIORITY_DEFAULT - 1;
	r->never = forward;
	r->plain_share = iface->plain_share < 90 ? iface->plain_share : 90;
	if (w->stale && repair) {
		r->idle = 1;
		w->leaf = BB_TC_LEAVES - 1;
	} else if (media) {
		r->latest = bb_latest_departure(w->owd_ns, w->meta.deadline);
		r->begins = 1;
		r->leaf = w->leaf;
		r->late_leaf = bb_tc_late_leaf(w, adu);
		if (adu)
			bb_tc_judge_frame(skb, w, adu, r);
		else if (w->meta.flags & BB_M_LARGE)
			r->large = 1;
		r->tcp = forward && w->packet.key.proto == BB_PROTO_TCP;
	} else {
		r->signalling = w->control && !w->network &&
				(w->packet.key.proto == BB_PROTO_UDP ||
				 w->packet.key.proto == BB_PROTO_UDPLITE);
	}
	r->leaf = w->leaf;
	r->cap_ns = bb_tx_time(bb_tc_leaf_bytes(r->leaf, r->rate, iface->limit_bytes), r->rate);
	if (r->leaf == BB_TC_LEAF_PLAIN)
		r->plain_cap_ns = r->cap_ns;
	else if (r->never || r->signalling)
		r->plain_cap_ns = bb_tx_time(
			bb_tc_leaf_bytes(BB_TC_LEAF_PLAIN, r->rate, iface->limit_bytes), r->rate);
	reason = bb_tc_decide(w->slot, r);
	if (adu)
		adu->promised = reason == BB_TC_ADMIT ? bb_min(r->more_ns, ~0U) : 0;
	/* Where nothing is shaped, nothing waits. */
	if (iface->htb_major)
		bb_tc_note_wait(w, r);
	if (media && r->leaf == BB_TC_LEAF_PLAIN)
		flow->plain_until_ns = w->now + r->wait_ns;
	w->leaf = r->leaf;
out:
	/* A retransmission that is refused takes no frame along. */
	if (reason != BB_TC_ADMIT && adu && !repair) {
		adu->flags |= BB_ADU_DEAD;
		if (w->role)
			bb_tc_break_chain(w, adu);
	}
	return reason;
}

/* The header that is left of a packet takes its time on the link, too. It is not refused. */
__noinline int bb_tc_charge(struct __sk_buff *skb, struct bb_work *w, const struct bb_iface *iface)
{
	struct bb_tc_request *r;
	__u32 zero = 0;

	if (!w || !iface)
		return 0;
	r = bpf_map_lookup_elem(&bb_tc_requests, &zero);
	if (!iface->rate || !r)
		return 0;
	__builtin_memset(r, 0, sizeof(*r));
	r->rate = iface->rate;
	r->now = w->now;
	r->ifindex = iface->ifindex;
	r->packet_ns = bb_tx_time(skb->len + iface->overhead, r->rate);
	r->priority = w->class_ & 7;
	r->never = 1;
	r->plain_share = iface->plain_share < 90 ? iface->plain_share : 90;
	r->leaf = w->leaf;
	r->cap_ns = bb_tx_time(bb_tc_leaf_bytes(r->leaf, r->rate, iface->limit_bytes), r->rate);
	r->plain_cap_ns = bb_tx_time(
		bb_tc_leaf_bytes(BB_TC_LEAF_PLAIN, r->rate, iface->limit_bytes), r->rate);
	bb_tc_decide(w->slot, r);
	w->leaf = r->leaf;
	return 0;
}

/* Counts the packet and carries the verdict out. */
__noinline int bb_tc_finish(struct __sk_buff *skb, struct bb_work *w, const struct bb_iface *iface,
			    int reason)
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
	v.sent_bytes = v.bytes;
	v.slot = w->slot;
	v.adu = w->meta.adu;
	v.ifindex = iface->ifindex;
	v.rule = w->rule;
	v.rtp = w->packet.rtp;
	v.session = w->session;
	v.priority = w->class_ & 7;
	v.stale = w->stale;
	/* For want of room its header goes no more than itself. */
	if (v.drop && reason != BB_DROP_OVERFLOW && w->class_ >> 4 == BB_TREAT_TRUNCATE &&
	    !bb_truncate(skb, w)) {
		v.drop = 0;
		v.sent_bytes = skb->len;
		bb_tc_charge(skb, w, iface);
	}
	bb_tc_account(&v);
	if (v.drop)
		return TC_ACT_SHOT;
	if (!iface->htb_major)
		return TC_ACT_UNSPEC;
	bb_tc_steer(skb, iface, w->leaf);
	if (!bb_tc_truncated(&v))
		return TC_ACT_UNSPEC;
	/* HTB would charge what the packet's length was when it came to the device. */
	w->again_of = (__u64)bb_untyped(skb);
	w->again_len = skb->len;
	w->again = iface->ifindex;
	return bpf_redirect(iface->ifindex, 0);
}

#endif /* BB_TC_VERDICT_BPF_H */
