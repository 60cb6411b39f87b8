// SPDX-License-Identifier: GPL-2.0-only
/*
 * Round trip times of this host's TCP connections, by destination: bb_rtts.
 * The classifier takes half of it as the one-way delay of whatever else goes
 * to the same address. "This host" is the network namespace of the agent: in
 * others, which any user may make, an address is somebody else's.
 *
 * Sees connections established after it was attached; the agent feeds the
 * older ones from sock_diag. Several connections to one address: the one that
 * had the last sample counts.
 *
 * By hand: bpftool cgroup attach CGROUP cgroup_sock_ops pinned /sys/fs/bpf/x multi
 */
#include "bb_count.bpf.h"
#include "bb_kernel.bpf.h"
#include <bpf/bpf_endian.h>

#define BB_AF_INET 2
#define BB_AF_INET6 10

/* Set by the agent before load: the cookie of its network namespace. */
const volatile __u64 bb_netns = 0;

static __always_inline void bb_store_rtt(struct bpf_sock_ops *ops)
{
	struct bb_addr addr __attribute__((aligned(8))) = {};
	struct bb_rtt rtt = {}, *known;
	__u32 *words = (__u32 *)addr.addr, rttvar_us = 0, ip4;
	volatile __u32 *remote = ops->remote_ip6;
	struct bpf_sock *sk;

	/* Volatile, before any branch: merged ones would read the context at a variable offset. */
	ip4 = *(volatile __u32 *)&ops->remote_ip4;
	words[0] = remote[0];
	words[1] = remote[1];
	words[2] = remote[2];
	words[3] = remote[3];
	if (ops->family == BB_AF_INET) {
		words[0] = words[1] = 0;
		words[2] = bpf_htonl(0xFFFF);
		words[3] = ip4;
	} else if (ops->family != BB_AF_INET6) {
		return;
	}
	if (!ops->is_fullsock || !ops->srtt_us)
		return;
	/*
	 * The kernel's own RTO before backoff is srtt + rttvar_us (__tcp_set_rto:
	 * rttvar_us is four times the mean deviation, and at least tcp_rto_min).
	 */
	sk = ops->sk;
	if (sk)
		bpf_core_read(&rttvar_us, sizeof(rttvar_us),
			      &((struct tcp_sock *)bb_untyped(sk))->rttvar_us);
	rtt.srtt_ns = (__u64)(ops->srtt_us >> 3) * 1000;
	rtt.min_rtt_ns = (__u64)ops->rtt_min * 1000;
	rtt.rto_ns = rtt.srtt_ns + (__u64)rttvar_us * 1000;
	rtt.updated_ns = bpf_ktime_get_ns();

	known = bpf_map_lookup_elem(&bb_rtts, &addr);
	if (known)
		*known = rtt;
	else
		bpf_map_update_elem(&bb_rtts, &addr, &rtt, BPF_ANY);
}

SEC("sockops")
int bb_sockops(struct bpf_sock_ops *ops)
{
	/* The same address is another host, or nobody's, in the networks of others. */
	if (bpf_get_netns_cookie(ops) != bb_netns)
		return 1;
	switch (ops->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		bpf_sock_ops_cb_flags_set(ops,
					  ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RTT_CB_FLAG);
		bb_store_rtt(ops); /* the handshake's own sample */
		break;
	case BPF_SOCK_OPS_RTT_CB:
		bb_store_rtt(ops);
		break;
	}
	return 1;
}

char _license[] SEC("license") = "GPL";
