/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who shares a bottleneck with whom: the session of a packet, what is known of
 * its path, and whether the packet is stale already.
 */
#ifndef BB_SHARE_BPF_H
#define BB_SHARE_BPF_H

#include "bb_path.bpf.h"
#include "bb_rtt.h"
#include "bb_session.bpf.h"
#include "bb_stream.bpf.h"
#include "bb_work.bpf.h"

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
 * A TCP socket is told its session every BB_REFRESH_NS, because a 5-tuple may be
 * another connection's by now. What media of the same flow know of their path
 * has the same clock, so flows that carried media are left out.
 */
static __always_inline int bb_tell_again(struct __sk_buff *skb, const struct bb_work *w,
					 const struct bb_flow *flow)
{
	return w->packet.key.proto == BB_PROTO_TCP && skb->sk && flow->session == ~0U &&
	       w->now - flow->refreshed_ns >= BB_REFRESH_NS;
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
			if (bb_tell_again(skb, w, flow)) {
				bb_note_tcp_path(skb, w->session, session->gen);
				flow->refreshed_ns = w->now;
			}
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
		/* Before a full socket was told, no packet of the flow may pass without a look. */
		if (w->packet.key.proto == BB_PROTO_TCP &&
		    !bb_note_tcp_path(skb, w->session, session->gen))
			return;
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
	__u32 measured;
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
	measured = path.measured;
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
	flow->measured = measured;
	if (w->packet.key.proto == BB_PROTO_TCP)
		bb_note_tcp_path(skb, flow->session, flow->session_gen);
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
 * the deadline where the session has many. A measured owd takes at most half of the
 * lifetime (bb_measured_owd), which counts from the ADU's first packet, so that all its
 * packets keep one deadline.
 */
static __always_inline void bb_judge(struct __sk_buff *skb, struct bb_work *w, struct bb_flow *flow,
				     const struct bb_iface *iface)
{
	struct bb_session *session = bb_cached_session(flow->session, flow->session_gen);
	__u64 own, from = w->now, excess = 0;

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
	if (flow->measured) {
		struct bb_stream_adu *adu = bb_adu_of(w);

		if (adu)
			from = adu->first_ns;
		excess = w->owd_ns;
		w->owd_ns = bb_measured_owd(w->owd_ns, from, w->meta.deadline);
		excess -= w->owd_ns;
	}
	w->stale = bb_stale(w->now, w->owd_ns, w->meta.deadline);
	if (w->stale)
		bb_global_inc(BB_G_PAST_DEADLINE);
	if (own) {
		w->meta.deadline = bb_latest_departure(w->owd_ns, w->meta.deadline);
		w->owd_ns = 0;
	} else if (iface->mode == BB_MODE_QDISC) {
		/* The queue will take the session's whole owd off. */
		w->meta.deadline += excess;
	}
}

#endif /* BB_SHARE_BPF_H */
