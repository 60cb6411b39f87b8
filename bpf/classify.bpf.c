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
#include "bb_session.bpf.h"
#include "bb_tc.bpf.h"

/* The most that is made linear to reach a packet's headers. */
#define BB_MAX_PULL 2432

/* Everything the steps hand on. */
struct bb_work {
	struct bb_packet packet;
	struct bb_meta meta;
	__u64 now;
	__u64 owd_ns; /* of the destination, where its session has many; else of the session */
	__u32 session;
	__u32 slot; /* of the interface */
	__u32 adu_slot; /* in flow->adu; ~0 = none */
	__u16 rule;
	__u8 class_; /* as in struct bb_cb */
	__u8 control;
	__u8 stale; /* already now */
	__u8 leaf; /* mode tc */
	__u8 pad[6];
};

static __always_inline void bb_write_cb(struct __sk_buff *skb, const struct bb_work *w)
{
	__u8 flags = 0;
	union {
		struct bb_cb cb;
		__u32 words[5];
	} out = {
		.cb = {
			.magic = BB_CB_MAGIC,
			.rule = w->rule,
			.session = w->session,
			.class_ = w->class_,
			.adu = w->meta.adu,
			.deadline_lo = w->meta.deadline,
			.deadline_hi = w->meta.deadline >> 32,
		},
	};

	if (w->meta.deadline)
		flags |= BB_CB_DEADLINE;
	if (w->meta.adu) {
		flags |= BB_CB_ADU;
		if (w->packet.flags & BB_P_MARKER)
			flags |= BB_CB_ADU_LAST;
	}
	if (w->meta.flags & BB_M_COUNTED)
		flags |= BB_CB_SOCK;
	out.cb.flags = flags;

	skb->cb[0] = out.words[0];
	skb->cb[1] = out.words[1];
	skb->cb[2] = out.words[2];
	skb->cb[3] = out.words[3];
	skb->cb[4] = out.words[4];
}

/* ---- sessions ---- */

/* The session a flow remembers, if the slot still belongs to it. */
static __always_inline struct bb_session *bb_cached_session(__u32 index, __u32 gen)
{
	struct bb_session *session = bb_session_at(index);

	return session && index != BB_SESSION_NONE && session->gen == gen ? session : 0;
}

/*
 * It is the session for what found no way of its own, and it is time to look
 * again: a flow must not stay there because the table was full for a moment.
 */
static __always_inline int bb_look_again(const struct bb_flow *flow, __u32 session, __u64 now)
{
	return session == BB_SESSION_SHARED && now - flow->refreshed_ns >= BB_REFRESH_NS;
}

static __always_inline void bb_touch(struct bb_session *session, __u64 now)
{
	session->used_ns = now;
}

/*
 * Plain and control sessions: no owd, no rate, found by key. `flow` (may be
 * NULL) remembers the plain one.
 *
 * What looks like STUN, DTLS or RTCP anybody can send, as much as they like: each
 * user of this host, and each destination of what it forwards, has a control session
 * of its own, so that nobody's fills the queue of another's. What has neither (ARP)
 * shares one that no user can reach.
 */
static __always_inline void bb_simple_session(struct __sk_buff *skb, struct bb_work *w,
					      struct bb_flow *flow, __u8 kind)
{
	struct bb_session_key key __attribute__((aligned(8))) = {};
	struct bb_session *session;

	if (kind == BB_SESSION_PLAIN && flow) {
		session = bb_cached_session(flow->plain_session, flow->plain_gen);
		if (session && !bb_look_again(flow, flow->plain_session, w->now)) {
			w->session = flow->plain_session;
			bb_touch(session, w->now);
			return;
		}
	}
	key.ifindex = w->packet.key.ifindex;
	key.kind = kind;
	if (kind == BB_SESSION_CONTROL)
		key.user = bb_socket_uid(skb) + 1;
	if (!key.user) /* zero where there is no IP */
		__builtin_memcpy(key.addr, w->packet.key.dst, 16);
	w->session = bb_find_session(&key, w->now);
	session = bb_session_at(w->session);
	if (!session)
		return;
	bb_touch(session, w->now);
	if (kind == BB_SESSION_PLAIN && flow) {
		flow->plain_session = w->session;
		flow->plain_gen = session->gen;
		flow->refreshed_ns = w->now;
	}
}

/* bytes/s a non-TCP socket asked for with SO_MAX_PACING_RATE; 0 = none. */
static __always_inline __u64 bb_socket_rate(struct __sk_buff *skb, __u8 proto)
{
	struct bpf_sock *sk = skb->sk;
	unsigned long rate = 0;

	if (!sk || proto == BB_PROTO_TCP)
		return 0;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 0;
	bpf_core_read(&rate, sizeof(rate), &((struct sock *)bb_untyped(sk))->sk_max_pacing_rate);
	return rate == ~0UL || rate == ~0U ? 0 : rate;
}

/*
 * The session of a packet with metadata. Every BB_REFRESH_NS a flow asks anew what
 * is known of its way, and tells its session. Where sockets said it, the session is
 * their user's own: nobody delays or drops the packets of others by it. Where one
 * session has many destinations (PREFIX, INTERFACE) its owd stays 0 and the
 * destination's own is left in w->owd_ns.
 */
__noinline int bb_renew_session(struct __sk_buff *skb, struct bb_work *w, struct bb_flow *flow,
				const struct bb_iface *iface)
{
	struct bb_session_key key __attribute__((aligned(8))) = {};
	struct bb_session *session;
	struct bb_path path;
	int shared;
	__u8 kind;

	if (!w || !flow || !iface)
		return 0;
	kind = iface->session_kind;
	shared = kind == BB_SESSION_PREFIX || kind == BB_SESSION_INTERFACE;

	session = bb_cached_session(flow->session, flow->session_gen);
	if (session && w->now - flow->refreshed_ns < BB_REFRESH_NS)
		goto known;

	bb_find_path(skb, (struct bb_addr *)w->packet.key.dst, w->now, w->rule, &path);
	flow->owd_ns = path.owd_ns;
	key.ifindex = w->packet.key.ifindex;
	key.kind = kind;
	if (kind == BB_SESSION_PREFIX) {
		key.prefix = w->packet.key.family == 4 ? iface->prefix4 : iface->prefix6;
		bb_mask_address(key.addr, w->packet.key.dst, w->packet.key.family, key.prefix);
		bb_find_path(skb, (struct bb_addr *)key.addr, w->now, w->rule, &path);
	} else if (kind != BB_SESSION_INTERFACE) {
		__builtin_memcpy(key.addr, w->packet.key.dst, 16);
	}
	if (!path.rate && !shared) {
		path.rate = bb_socket_rate(skb, w->packet.key.proto);
		if (path.rate)
			path.user = bb_socket_uid(skb) + 1;
	}
	if (kind == BB_SESSION_FLOW)
		key.hash = flow->hash;
	if (kind != BB_SESSION_INTERFACE)
		key.user = path.user;
	if (!session || session->key.user != key.user ||
	    bb_look_again(flow, flow->session, w->now)) {
		flow->session = bb_find_session(&key, w->now);
		session = bb_session_at(flow->session);
		if (!session)
			return 0;
		flow->session_gen = session->gen;
	}
	flow->refreshed_ns = w->now;
	/* The overflow session is many destinations' too, and nobody's rate. */
	if (kind != BB_SESSION_INTERFACE && flow->session > BB_SESSION_SHARED) {
		session->rate = path.rate;
		session->owd_ns = shared ? 0 : path.owd_ns;
	}
known:
	w->session = flow->session;
	bb_touch(session, w->now);
	if (shared || w->session <= BB_SESSION_SHARED)
		w->owd_ns = flow->owd_ns;
	return 0;
}

/*
 * Session, and is the packet stale already? Takes the destination's own owd off
 * the deadline where the session has many.
 */
static __always_inline void bb_judge(struct __sk_buff *skb, struct bb_work *w, struct bb_flow *flow,
				     const struct bb_iface *iface)
{
	struct bb_session *session = bb_cached_session(flow->session, flow->session_gen);
	__u64 own;

	/* Nothing to ask, and a session of one destination, which knows its owd. */
	if (session && w->now - flow->refreshed_ns < BB_REFRESH_NS &&
	    iface->session_kind <= BB_SESSION_FLOW && flow->session > BB_SESSION_SHARED) {
		w->session = flow->session;
		bb_touch(session, w->now);
	} else {
		bb_renew_session(skb, w, flow, iface);
		session = bb_session_at(w->session);
		if (w->meta.deadline && !w->owd_ns && session && !session->owd_ns)
			bb_global_inc(BB_G_NO_RTT);
	}
	own = w->owd_ns;
	if (!own && session)
		w->owd_ns = session->owd_ns;
	if (!w->meta.deadline)
		return;
	w->stale = bb_stale(w->now, w->owd_ns, w->meta.deadline);
	if (w->stale)
		bb_global_inc(BB_G_PAST_DEADLINE);
	if (own) {
		w->meta.deadline = bb_latest_departure(own, w->meta.deadline);
		w->owd_ns = 0;
	}
}

/* ---- mode tc ---- */

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
	struct bb_flow_adu *adu = 0;
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

		if (w->adu_slot < BB_FLOW_ADUS)
			adu = &flow->adu[w->adu_slot];
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
