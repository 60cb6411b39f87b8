/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who sends a packet: a socket of this host or another host, which user, in which
 * cgroup. From the socket, or from what `bestby explain` was told.
 */
#ifndef BB_SENDER_BPF_H
#define BB_SENDER_BPF_H

#include "bb_explain.bpf.h"
#include "bb_kernel.bpf.h"

#define BB_NO_CGROUP ~0ULL

/*
 * Does the packet come from a socket of the network namespace that its device is
 * in? skb->sk alone does not say so: it survives the way to another namespace. A
 * socket that is not a full one (TIME_WAIT, a request) has no user to ask for.
 */
static __always_inline int bb_is_own(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct net_device *dev = 0;
	struct net *here = 0, *there = 0;

	if (bb_told.explain)
		return !bb_told.forwarded;
	if (sk)
		sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 0;
	bpf_core_read(&dev, sizeof(dev), &((struct sk_buff *)bb_untyped(skb))->dev);
	bpf_core_read(&here, sizeof(here), &dev->nd_net.net);
	bpf_core_read(&there, sizeof(there),
		      &((struct sock *)bb_untyped(sk))->__sk_common.skc_net.net);
	return here && here == there;
}

/* Has it a socket at all, on whatever way it came here? */
static __always_inline int bb_has_socket(struct __sk_buff *skb)
{
	return skb->sk && !(bb_told.explain && bb_told.forwarded);
}

static __always_inline __u32 bb_socket_uid(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;

	if (sk && !bb_told.explain)
		sk = bpf_sk_fullsock(sk);
	return sk && !bb_told.explain ? bb_uid_of(sk) : ~0U;
}

/* Id of the cgroup of the packet's socket; BB_NO_CGROUP = it has none. One question has one sender. */
static __always_inline __u64 bb_own_cgroup(struct __sk_buff *skb)
{
	__u64 cgroup = bb_told.explain ? 0 : bpf_skb_cgroup_id(skb);

	return cgroup ? cgroup : BB_NO_CGROUP;
}

/* Id of the cgroup of the packet's socket, or of the one above it at this level; 0 = none. */
static __always_inline __u64 bb_cgroup_of(struct __sk_buff *skb, __u32 level)
{
	if (bb_told.explain)
		return level < BB_TOLD_CGROUPS ? bb_told.cgroups[level] : 0;
	return bpf_skb_ancestor_cgroup_id(skb, level);
}

#endif /* BB_SENDER_BPF_H */
