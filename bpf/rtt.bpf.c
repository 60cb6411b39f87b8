// SPDX-License-Identifier: GPL-2.0-only
/*
 * Round trip times of this host's TCP connections, by destination: bb_rtts.
 * The classifier takes half of the path's as the one-way delay of whatever else goes
 * to the same address. "This host" is the network namespace of the agent: in
 * others, which any user may make, an address is somebody else's.
 *
 * Each acknowledgement brings a sample (the RTT callback): the RTT of the segment
 * sent last. bb_rtt.h says how samples of several connections, which may have
 * waited in our own queue, become one estimate of the path. How long they waited
 * says the session that the classifier noted at the socket (bb_tcp_paths). A socket
 * without one sends through an interface that is not ours.
 *
 * Sees connections established after it was attached; the agent feeds the
 * older ones from sock_diag.
 *
 * By hand: bpftool cgroup attach CGROUP cgroup_sock_ops pinned /sys/fs/bpf/x multi
 */
#include "bb_heard.bpf.h"
#include "bb_kernel.bpf.h"
#include <bpf/bpf_endian.h>

#define BB_AF_INET6 10

/* Set by the agent before load: the cookie of its network namespace. */
const volatile __u64 bb_netns = 0;

/* How long packets of this socket waited in our queue lately. */
static __always_inline __u64 bb_own_wait(struct bpf_sock *sk, __u64 now)
{
	struct bb_tcp_path *path = bpf_sk_storage_get(&bb_tcp_paths, sk, 0, 0);

	return path ? bb_wait_in(path->session, path->gen, now) : 0;
}

static __always_inline void bb_add_sample(struct bpf_sock_ops *ops)
{
	struct bb_addr addr __attribute__((aligned(8))) = {};
	struct bb_rtt *rtt;
	__u32 *words = (__u32 *)addr.addr, sample_us = 0, rttvar_us = 0, ip4;
	volatile __u32 *remote = ops->remote_ip6;
	struct tcp_sock *tcp;
	struct bpf_sock *sk;
	__u64 now;

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
	sk = ops->sk;
	if (!ops->is_fullsock || !ops->srtt_us || !sk)
		return;
	tcp = bb_untyped(sk);
	bpf_core_read(&sample_us, sizeof(sample_us), &tcp->rack.rtt_us);
	if (!sample_us)
		return;
	/*
	 * The kernel's own RTO before backoff is srtt + rttvar_us (__tcp_set_rto:
	 * rttvar_us is four times the mean deviation, and at least tcp_rto_min).
	 */
	bpf_core_read(&rttvar_us, sizeof(rttvar_us), &tcp->rttvar_us);

	now = bpf_ktime_get_ns();
	rtt = bb_rtt_for(&addr, BB_RTT_TCP, now);
	if (!rtt)
		return;
	bb_rtt_add(rtt, (__u64)sample_us * 1000, bb_own_wait(sk, now), now);
	rtt->srtt_ns = (__u64)(ops->srtt_us >> 3) * 1000;
	rtt->rto_ns = rtt->srtt_ns + (__u64)rttvar_us * 1000;
	rtt->updated_ns = now;
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
		/*
		 * The handshake's own sample. A SYN-ACK's is not taken: it had no socket that
		 * knows where it waited.
		 */
		if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB)
			bb_add_sample(ops);
		break;
	case BPF_SOCK_OPS_RTT_CB:
		bb_add_sample(ops);
		break;
	}
	return 1;
}

char _license[] SEC("license") = "GPL";
