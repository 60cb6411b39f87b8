/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Applications that their own send buffer holds back.
 *
 * A kernel lets a UDP socket have so many bytes under way (SO_SNDBUF). A sender that
 * polls may go on while less than half of them are used, one that blocks while any are
 * free. Where rate x lifetime is more than that, no packet ever waits here for its
 * whole lifetime: nothing is dropped, and the application falls behind without limit.
 *
 * 1. Every BB_REFRESH_NS of a flow that a rule covers, the classifier looks at the socket:
 *    how much is under way, how much may be, and how much rate x lifetime takes.
 * 2. Of a socket that is a quarter full and may have less than that, it keeps an entry in
 *    bb_buffers, and asks the agent by bb_wants for the programs of buffer.bpf.c, which
 *    raise the buffer at the socket's next send.
 * 3. What is half full is counted, for the operator.
 */
#ifndef BB_BUFFER_BPF_H
#define BB_BUFFER_BPF_H

#include "bb_count.bpf.h"
#include "bb_kernel.bpf.h"
#include "bb_sender.bpf.h"
#include "bb_session.bpf.h"
#include "bb_work.bpf.h"

#define BB_TCP_ESTABLISHED 1 /* of UDP: connected */

/* How often the agent is asked for one socket at most: the first times, and when that did not help. */
#define BB_WANT_NS BB_NSEC_PER_SEC
#define BB_WANTS 4
#define BB_WANT_AGAIN_NS (60 * BB_NSEC_PER_SEC)

/* Bytes as the socket counts them (truesize) that are sent within the lifetime, at this rate. */
static __always_inline __u64 bb_buffer_holds(__u64 rate, __u64 lifetime_ns, __u32 truesize,
					     __u32 len)
{
	/* At most 1.7e7 x 1.31e8 / 1e3, and 2^17 times as much: no product wraps. */
	if (rate > 1ULL << 34)
		rate = 1ULL << 34;
	if (truesize > 1 << 17)
		truesize = 1 << 17;
	return rate / 1000 * (lifetime_ns / 1000) / 1000 * truesize / (len ? len : 1);
}

static __always_inline __u64 bb_lifetime_of(const struct bb_work *w)
{
	if (w->meta.lifetime)
		return w->meta.lifetime;
	return w->deadline > w->now ? w->deadline - w->now : 0;
}

/*
 * What the buffer has to be, by a packet's length, its session's rate and its interface's:
 * half of it is what a poller uses, and half of rate x lifetime more is for what comes while
 * that waits. A socket may have many receivers. What is half full although it has enough for
 * one of them needs more, up to what the interface sends.
 */
static __always_inline __u64 bb_buffer_need(struct __sk_buff *skb, const struct bb_work *w,
					    const struct bb_iface *iface, __u32 size, __u32 used)
{
	struct bb_session *session = bb_session_at(w->session);
	__u32 truesize = 0, len = skb->wire_len + iface->overhead;
	__u64 rate = iface->rate, lifetime = bb_lifetime_of(w), all, one;

	if (!lifetime || lifetime > BB_LIFETIME_MAX_NS)
		return 0;
	bpf_core_read(&truesize, sizeof(truesize), &((struct sk_buff *)bb_untyped(skb))->truesize);
	all = 3 * bb_buffer_holds(rate, lifetime, truesize, len);
	one = session ? 3 * bb_buffer_holds(session->rate, lifetime, truesize, len) : 0;
	if (!one || (all && all < one))
		return all;
	if (one > size || used < size / 2)
		return one;
	return !all || all > 2ULL * size ? 2ULL * size : all;
}

/* Of a packet whose flow has just been looked up anew, and that a rule covers. */
__noinline int bb_look_at_buffer(struct __sk_buff *skb, struct bb_work *w,
				 const struct bb_iface *iface)
{
	struct bb_buffer *known;
	struct bb_config *config;
	struct bpf_sock *sk = skb->sk;
	struct sock *kernel_sk;
	__u64 cookie, need;
	__u32 used = 0, zero = 0;
	int size = 0;

	if (!w || !iface || !sk || bb_told.explain)
		return 0;
	config = bpf_map_lookup_elem(&bb_config, &zero);
	sk = bpf_sk_fullsock(sk);
	if (!config || !(config->flags & BB_CONFIG_BUFFERS) || !sk)
		return 0;
	kernel_sk = bb_untyped(sk);
	bpf_core_read(&size, sizeof(size), &kernel_sk->sk_sndbuf);
	bpf_core_read(&used, sizeof(used), &kernel_sk->sk_wmem_alloc.refs.counter);
	if (size <= 0 || used < (__u32)size / 4 || !bb_is_own(skb))
		return 0;
	need = bb_buffer_need(skb, w, iface, size, used);
	if (need <= (__u32)size)
		return 0;
	cookie = bpf_get_socket_cookie(skb);
	known = bpf_map_lookup_elem(&bb_buffers, &cookie);
	if (!known) {
		struct bb_buffer fresh = {};

		bpf_map_update_elem(&bb_buffers, &cookie, &fresh, BPF_NOEXIST);
		known = bpf_map_lookup_elem(&bb_buffers, &cookie);
		if (!known)
			return 0;
	}
	/* It varies with the length of packets. */
	if (need >= known->need || w->now - known->seen_ns > BB_WANT_NS) {
		known->need = need;
		known->lifetime_ns = bb_lifetime_of(w);
		known->rule = w->rule;
		known->seen_ns = w->now;
	}
	known->size = size;
	known->connected = sk->state == BB_TCP_ESTABLISHED;
	known->observed = !!(iface->flags & BB_IFACE_OBSERVE);
	if (used >= (__u32)size / 2) {
		known->held_ns = w->now;
		bb_global_inc(BB_G_HELD_BACK);
	}
	/* The programs see no send of a connected socket, and raise no further than they may. */
	if (!(config->flags & BB_CONFIG_RAISE) || known->connected || known->observed ||
	    bb_buffer_goal(known->need, config->wmem_max) <= (__u32)size ||
	    w->now - known->wanted_ns < (known->asked < BB_WANTS ? BB_WANT_NS : BB_WANT_AGAIN_NS))
		return 0;
	known->wanted_ns = w->now;
	known->asked++;
	bpf_ringbuf_output(&bb_wants, &cookie, sizeof(cookie), 0);
	return 0;
}

#endif /* BB_BUFFER_BPF_H */
