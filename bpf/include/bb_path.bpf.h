/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is known of the path to one address: delay and rate; and the other way
 * round, which of our queues a TCP connection's packets wait in, so that
 * rtt.bpf.c can tell the path's delay from the queue's.
 */
#ifndef BB_PATH_BPF_H
#define BB_PATH_BPF_H

#include "bb_auto.h"
#include "bb_count.bpf.h"
#include "bb_kernel.bpf.h"
#include "bb_sender.bpf.h"

/*
 * owd (0 = not known) and rate (bytes/s, 0 = not known). Order: what the operator
 * said, what a socket of the packet's user said, half of the path's RTT while
 * that is fresh, the rule's default.
 */
struct bb_path {
	__u64 owd_ns;
	__u64 rate;
	__u32 user; /* as in the key of a session: whose sockets said so; 0 = no socket did */
	__u16 measured; /* owd_ns is half of a measured RTT */
	__u16 by_rule; /* owd_ns is the rule's: another flow to the same address may have another */
};

static __always_inline void bb_path_of_rule(__u32 rule, struct bb_path *path)
{
	struct bb_rule *settings = bpf_map_lookup_elem(&bb_rules, &rule);

	path->by_rule = 1;
	if (settings)
		path->owd_ns = settings->owd_default_ns;
}

/* `path` is zeroed. */
__noinline int bb_search_path(struct __sk_buff *skb, const struct bb_addr *to, __u64 now,
			      __u32 rule, struct bb_path *path)
{
	struct bb_sock_peer_key key __attribute__((aligned(8))) = {};
	struct bb_addr addr __attribute__((aligned(8)));
	struct bb_config *config;
	struct bb_peer *peer;
	struct bb_rtt *rtt;
	__u32 zero = 0;

	if (!to || !path)
		return 0;
	bb_copy_address(&addr, to); /* v6.2: before it a key had to be on the stack or in a map */
	peer = bpf_map_lookup_elem(&bb_peers, &addr);
	if (!peer && skb->sk) {
		bb_copy_address(key.addr, &addr);
		key.uid = bb_socket_uid(skb);
		peer = bpf_map_lookup_elem(&bb_sock_peers, &key);
		if (peer)
			path->user = key.uid + 1;
	}
	if (peer) {
		if (peer->flags & BB_PEER_RATE)
			path->rate = peer->rate;
		if (peer->flags & BB_PEER_OWD) {
			path->owd_ns = peer->owd_ns;
			return 0;
		}
	}
	config = bpf_map_lookup_elem(&bb_config, &zero);
	rtt = bpf_map_lookup_elem(&bb_rtts, &addr);
	/* A signed age: another CPU may have written it just after `now` was read. */
	if (rtt && rtt->min_rtt_ns && config &&
	    (__s64)(now - rtt->updated_ns) <= (__s64)config->rtt_max_age_ns) {
		path->owd_ns = rtt->min_rtt_ns / 2;
		path->measured = 1;
		return 0;
	}
	bb_path_of_rule(rule, path);
	return 0;
}

static __always_inline void bb_find_path(struct __sk_buff *skb, const struct bb_addr *to, __u64 now,
					 __u32 rule, struct bb_path *path)
{
	__builtin_memset(path, 0, sizeof(*path));
	if (bb_is_known(to))
		bb_search_path(skb, to, now, rule, path);
	else
		bb_path_of_rule(rule, path);
}

/*
 * The rate of the path behind the interface at `slot` is found: what waits there is on the way, too. And where
 * nobody knows the way, it is as long as that of the echoes.
 */
__noinline int bb_add_behind(__u32 slot, struct bb_path *path)
{
	struct bb_auto *a = bpf_map_lookup_elem(&bb_autos, &slot);

	if (!a || !path)
		return 0;
	if (!path->owd_ns && a->base_ns) {
		path->owd_ns = a->base_ns / 2;
		path->measured = 1;
	}
	path->owd_ns += a->behind_ns;
	return 0;
}

/*
 * Tells the packet's TCP socket its session. Returns whether that is done for good: a
 * SYN-ACK has no full socket yet, so the next packet of its flow must ask again.
 */
__noinline int bb_note_tcp_path(struct __sk_buff *skb, __u32 session, __u32 gen)
{
	struct bpf_sock *sk = skb->sk;
	struct bb_tcp_path *path;

	if (!sk)
		return 1;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 0;
	path = bpf_sk_storage_get(&bb_tcp_paths, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (path) {
		path->session = session;
		path->gen = gen;
	}
	return 1;
}

#endif /* BB_PATH_BPF_H */
