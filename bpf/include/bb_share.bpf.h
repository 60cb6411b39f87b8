/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who shares a bottleneck with whom: the session of a packet, what is known of
 * its path, and whether the packet is stale already.
 */
#ifndef BB_SHARE_BPF_H
#define BB_SHARE_BPF_H

#include "bb_answer.h"
#include "bb_path.bpf.h"
#include "bb_rtt.h"
#include "bb_sender.bpf.h"
#include "bb_session.bpf.h"
#include "bb_stream.bpf.h"
#include "bb_work.bpf.h"

/* The session that a flow's word names, if it is this flow's word and the way is still the session's. */
static __always_inline struct bb_session *bb_kept_session(__u64 word, __u32 gen, __u64 now)
{
	struct bb_session *session;

	if (!bb_answer_is(word, gen) || bb_answer_index(word) == BB_SESSION_NONE)
		return 0;
	session = bb_session_at(bb_answer_index(word));
	return session && bb_way_is(&session->way, bb_answer_gen(word), now) ? session : 0;
}

/*
 * Who sends this packet: a user of this host, or the source of what it forwards. An IPv6
 * host has all addresses of its /64.
 */
static __always_inline void bb_user_of(struct __sk_buff *skb, const struct bb_packet *packet,
				       struct bb_user_key *user)
{
	__builtin_memset(user, 0, sizeof(*user));
	user->ifindex = packet->key.ifindex;
	user->user = bb_is_own(skb) ? bb_socket_uid(skb) + 1 : 0;
	if (!user->user)
		bb_copy_address(user->addr, packet->key.src);
	if (packet->key.family == 6)
		*(__u64 *)&user->addr[8] = 0;
}

/*
 * What is not media belongs to a user, whose traffic shares the room of that user.
 * The key of the session says whose it is, its `user` under which index.
 */
static __always_inline void bb_own_key(struct bb_session_key *key, const struct bb_user_key *user)
{
	key->user = user->user;
	if (!user->user && key->kind != BB_SESSION_FLOW)
		key->hash = bb_hash_key(user, sizeof(*user) / 8, bb_seed());
}

static __always_inline void bb_set_user(struct bb_session *session, const struct bb_user_key *user,
					__u64 now)
{
	__u32 index = session->user;
	struct bb_user *known = bb_user_at(index);

	/* Nearly always the one it had. */
	if (index != BB_USER_NONE && known) {
		__u64 owner = bb_way_owner(&known->way);

		if (bb_owner_tag(owner) & 1 &&
		    bb_same_words(&known->key, user, sizeof(*user) / 8) &&
		    bb_way_hold(&known->way, owner, now))
			return;
	}
	index = bb_find_user(user, now);
	if (session->user != index)
		session->user = index;
}

/*
 * The session of this key; `kept`, if the flow keeps one that is still its own, under
 * `word`. The overflow session is looked for again each time: a way may be free by now.
 */
static __always_inline __u32 bb_session_of(const struct bb_session_key *key, __u64 now,
					   struct bb_session *kept, __u64 word, __u32 *gen)
{
	if (kept && bb_answer_index(word) > BB_SESSION_SHARED &&
	    bb_same_words(&kept->key, key, sizeof(*key) / 8)) {
		*gen = bb_answer_gen(word);
		return bb_answer_index(word);
	}
	return bb_find_session(key, now, gen);
}

/*
 * In mode qdisc flows of one user to one destination take turns, as fq_codel has it: each has a
 * session, or shares one with those of its part. They are few, so that nobody who opens
 * connections takes the table's ways. Mode tc has other leaves, and no use for more of them.
 */
static __always_inline __u8 bb_part_of(const struct bb_work *w)
{
	__u32 slot = w->slot; /* v6.2: before it a key had to be on the stack or in a map */
	struct bb_iface *iface = bpf_map_lookup_elem(&bb_ifaces, &slot);

	if (!iface || iface->mode != BB_MODE_QDISC)
		return 0;
	return 1 + (w->flow_hash & (BB_PLAIN_PARTS - 1));
}

/* The key of a session of the packet's interface, all else of it 0: it is made in bb_work. */
static __always_inline struct bb_session_key *bb_begin_key(struct bb_work *w)
{
	__builtin_memset(&w->key, 0, sizeof(w->key));
	w->key.ifindex = w->packet.key.ifindex;
	return &w->key;
}

/*
 * Sessions of what has no metadata: no owd, no rate. `flow` (may be NULL)
 * remembers that of plain traffic. A TCP socket is told its session with every
 * look: a 5-tuple may be another connection's by now.
 *
 * What looks like STUN, DTLS or RTCP anybody can send, as much as they like. So it
 * is media only where a rule covers the flow, or where the kernel says it itself
 * (ARP, ND, MLD), or within a share (bb_network.bpf.h). All else belongs to its user: each user of this host, and each
 * source and destination of what the host forwards, has a control session.
 */
__noinline int bb_simple_session(struct __sk_buff *skb, struct bb_work *w, struct bb_flow *flow)
{
	struct bb_session *session = 0;
	struct bb_session_key *key;
	__u64 before = 0;
	__u32 gen = 0;

	if (!w)
		return 0;
	if (w->control)
		flow = 0;
	if (flow) {
		before = bb_answer(&flow->plain);
		session = bb_kept_session(before, w->flow_gen, w->now);
		if (session && w->now - flow->plain_refreshed_ns < BB_REFRESH_NS) {
			w->session = bb_answer_index(before);
			return 0;
		}
	}
	key = bb_begin_key(w);
	key->kind = w->control ? BB_SESSION_CONTROL : BB_SESSION_PLAIN;
	key->media = w->media;
	if (w->media) {
		/* The kernel's own has one session; signalling of media has a destination. */
		if (w->network)
			key->part = BB_PART_NETWORK;
		else if (w->rule || w->packet.key.proto == BB_PROTO_UDP)
			bb_copy_address(key->addr, w->packet.key.dst);
	} else {
		bb_user_of(skb, &w->packet, &w->user);
		bb_own_key(key, &w->user);
		if (!w->control || !key->user) /* zero where there is no IP */
			bb_copy_address(key->addr, w->packet.key.dst);
		if (flow)
			key->part = bb_part_of(w);
	}
	w->session = bb_session_of(key, w->now, session, before, &gen);
	session = bb_session_at(w->session);
	if (!session)
		return 0;
	if (!w->media && w->session != BB_SESSION_SHARED)
		bb_set_user(session, &w->user, w->now);
	if (flow) {
		/* Before a full socket was told, no packet of the flow may pass without a look. */
		if (w->packet.key.proto == BB_PROTO_TCP && !bb_note_tcp_path(skb, w->session, gen))
			return 0;
		bb_keep_answer(&flow->plain, before, w->flow_gen,
			       bb_answer_session(w->session, gen));
		flow->plain_refreshed_ns = w->now;
	}
	return 0;
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
 * is known of its way, and tells its session. Media that sockets said something of
 * have a session of that user's own: nobody delays or drops the packets of others
 * by it. What is not media has one of its user anyway. The flow's owd is left in
 * w->owd_ns. Where one session has many destinations (PREFIX, INTERFACE) the session's
 * stays 0. A rule's owd never lowers it: rules may have different ones, or none, and what
 * is queued must not change its time with each packet of another flow. `before`: what
 * flow->session was; with w->kept its session is still the flow's.
 */
__noinline int bb_renew_session(struct __sk_buff *skb, struct bb_work *w, struct bb_flow *flow,
				const struct bb_iface *iface, __u64 before)
{
	struct bb_session *session = 0;
	struct bb_session_key *key;
	struct bb_path *path;
	__u64 owd;
	__u32 gen = 0;
	int shared;
	__u8 kind;

	if (!w || !flow || !iface)
		return 0;
	kind = iface->session_kind;
	shared = kind == BB_SESSION_PREFIX || kind == BB_SESSION_INTERFACE;

	owd = bb_answer(&flow->owd_ns);
	if (w->kept)
		session = bb_session_at(bb_answer_index(before));
	if (session && session->key.media == w->media && bb_answer_is(owd, w->flow_gen) &&
	    w->now - flow->refreshed_ns < BB_REFRESH_NS) {
		w->session = bb_answer_index(before);
		owd &= BB_ANSWER_MASK;
		goto known;
	}

	path = &w->path;
	bb_find_path(skb, (struct bb_addr *)w->packet.key.dst, w->now, w->rule, path);
	if (iface->flags & BB_IFACE_AUTO)
		bb_add_behind(w->slot, path);
	if (path->owd_ns > BB_LIFETIME_MAX_NS)
		path->owd_ns = BB_LIFETIME_MAX_NS;
	bb_keep_answer(&flow->owd_ns, owd, w->flow_gen, path->owd_ns);
	flow->measured = path->measured;
	owd = path->owd_ns;
	key = bb_begin_key(w);
	key->kind = kind;
	key->media = w->media;
	if (kind == BB_SESSION_PREFIX) {
		key->prefix = w->packet.key.family == 4 ? iface->prefix4 : iface->prefix6;
		bb_mask_address(key->addr, w->packet.key.dst, w->packet.key.family, key->prefix);
		bb_find_path(skb, (struct bb_addr *)key->addr, w->now, w->rule, path);
	} else if (kind != BB_SESSION_INTERFACE) {
		bb_copy_address(key->addr, w->packet.key.dst);
	}
	if (!path->rate && !shared) {
		path->rate = bb_socket_rate(skb, w->packet.key.proto);
		if (path->rate)
			path->user = bb_socket_uid(skb) + 1;
	}
	if (kind == BB_SESSION_FLOW)
		key->hash = w->flow_hash;
	if (!w->media) {
		bb_user_of(skb, &w->packet, &w->user);
		bb_own_key(key, &w->user);
	} else if (kind != BB_SESSION_INTERFACE) {
		key->user = path->user;
	}
	/* The port may be another user's by now. */
	w->session = bb_session_of(key, w->now, session, before, &gen);
	session = bb_session_at(w->session);
	if (!session)
		return 0;
	bb_keep_answer(&flow->session, before, w->flow_gen, bb_answer_session(w->session, gen));
	flow->refreshed_ns = w->now;
	if (w->packet.key.proto == BB_PROTO_TCP)
		bb_note_tcp_path(skb, w->session, gen);
	/* The overflow session is many destinations' too, nobody's rate, and no user's. */
	if (w->session > BB_SESSION_SHARED) {
		if (!w->media)
			bb_set_user(session, &w->user, w->now);
		if (kind != BB_SESSION_INTERFACE) {
			session->rate = path->rate;
			if (shared)
				session->owd_ns = 0;
			else if (!path->by_rule || path->owd_ns > session->owd_ns)
				session->owd_ns = path->owd_ns;
		}
	}
known:
	w->owd_ns = owd;
	return 0;
}

/*
 * Session, and is the packet stale already, by the owd of its own flow? The queue will take the
 * session's off the deadline, so in mode qdisc the difference is put there. A measured owd takes
 * at most half of the lifetime (bb_measured_owd), which counts from the ADU's first packet, so
 * that all its packets keep one deadline.
 */
static __always_inline void bb_judge(struct __sk_buff *skb, struct bb_work *w, struct bb_flow *flow,
				     const struct bb_iface *iface)
{
	__u64 word = bb_answer(&flow->session), owd = bb_answer(&flow->owd_ns), taken;
	struct bb_session *session = bb_kept_session(word, w->flow_gen, w->now);
	struct bb_explained *explained;

	/* Nothing to ask, and a session of one destination. */
	if (session && session->key.media == w->media &&
	    w->now - flow->refreshed_ns < BB_REFRESH_NS && iface->session_kind <= BB_SESSION_FLOW &&
	    bb_answer_index(word) > BB_SESSION_SHARED && bb_answer_is(owd, w->flow_gen)) {
		w->session = bb_answer_index(word);
		w->owd_ns = owd & BB_ANSWER_MASK;
	} else {
		w->kept = !!session;
		bb_renew_session(skb, w, flow, iface, word);
		session = bb_session_at(w->session);
		if (w->meta.deadline && !w->owd_ns)
			bb_global_inc(BB_G_NO_RTT);
	}
	if (!w->meta.deadline)
		return;
	if (w->first_ns) {
		/* So far it said when the packet must leave: SRT's receiver takes no delay off. */
		w->meta.deadline += w->owd_ns;
		w->deadline = w->meta.deadline;
	} else if (flow->measured) {
		struct bb_stream_adu *adu = bb_adu_of(w);

		w->owd_ns =
			bb_measured_owd(w->owd_ns, adu ? adu->first_ns : w->now, w->meta.deadline);
	}
	explained = bb_explanation_here();
	if (explained)
		explained->owd_ns = w->owd_ns;
	w->stale = bb_stale(w->now, w->owd_ns, w->meta.deadline);
	if (w->stale)
		bb_global_inc(BB_G_PAST_DEADLINE);
	taken = session ? session->owd_ns : 0;
	if (iface->mode == BB_MODE_QDISC && taken != w->owd_ns)
		w->meta.deadline = bb_latest_departure(w->owd_ns, w->meta.deadline) + taken;
}

#endif /* BB_SHARE_BPF_H */
