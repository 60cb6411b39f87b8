/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the hook programs ask of kernel structures (vmlinux.h). Only by
 * bpf_probe_read_kernel: a pointer from a helper or a context is of another
 * verifier type and must not be dereferenced as one of these.
 */
#ifndef BB_KERNEL_BPF_H
#define BB_KERNEL_BPF_H

#include "vmlinux.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "bb_core.h"

#define BB_ARPHRD_ETHER 1
#define BB_ARPHRD_LOOPBACK 772

#define BB_CLOCK_MONOTONIC 1
#define BB_CLOCK_TAI 11

/*
 * A kernel address as a number. The verifier forbids arithmetic on the typed
 * pointers of contexts and sockets, but lets their spilled bytes be read; the
 * result is only good for bpf_probe_read_kernel.
 */
static __always_inline void *bb_untyped(const void *pointer)
{
	const void *volatile spilled = pointer;
	void *number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), (const void *)&spilled);
	return number;
}

#define BB_CHECKSUM_PARTIAL 3 /* ip_summed */

/* Somebody else holds the packet, too: pktgen does. Whatever moves its bytes would be a kernel BUG. */
static __always_inline int bb_is_shared(struct __sk_buff *skb)
{
	struct sk_buff *kernel_skb = bb_untyped(skb);
	int users = 0;

	bpf_core_read(&users, sizeof(users), &kernel_skb->users.refs.counter);
	return users != 1;
}

/*
 * The user of a socket, as bpf_get_current_uid_gid names it; ~0 = not
 * known. bpf_get_socket_uid would name it as in the user namespace of the socket's
 * network, where others have the same number.
 */
static __always_inline __u32 bb_uid_of(const struct bpf_sock *sk)
{
	__u32 uid = ~0U;

	bpf_core_read(&uid, sizeof(uid), &((struct sock *)bb_untyped(sk))->sk_uid.val);
	return uid;
}

#define BB_AF_INET 2
#define BB_DST_METADATA 0x0080
#define BB_RTAX_MTU 2

/*
 * The MTU that the kernel knows of the packet's path, learnt from ICMP or said by its
 * route; 0 = none but the device's. An expired one counts until the kernel forgets it.
 */
static __always_inline __u32 bb_path_mtu(struct __sk_buff *skb)
{
	unsigned long route = 0, metrics = 0;
	unsigned short flags = 0, family = 0;
	struct dst_entry *dst;
	struct dst_ops *ops = 0;
	__u32 mtu = 0;

	bpf_core_read(&route, sizeof(route), &((struct sk_buff *)bb_untyped(skb))->_skb_refdst);
	dst = (void *)(route & ~1UL);
	if (!dst)
		return 0;
	bpf_core_read(&flags, sizeof(flags), &dst->flags);
	if (flags & BB_DST_METADATA)
		return 0; /* no route: what a tunnel is told */
	bpf_core_read(&ops, sizeof(ops), &dst->ops);
	bpf_core_read(&family, sizeof(family), &ops->family);
	if (family == BB_AF_INET)
		mtu = BPF_CORE_READ_BITFIELD_PROBED((struct rtable *)dst, rt_pmtu);
	if (mtu)
		return mtu;
	bpf_core_read(&metrics, sizeof(metrics), &dst->_metrics);
	bpf_probe_read_kernel(&mtu, sizeof(mtu), (__u32 *)(metrics & ~3UL) + BB_RTAX_MTU - 1);
	return mtu;
}

#endif /* BB_KERNEL_BPF_H */
