// SPDX-License-Identifier: GPL-2.0-only
/*
 * Raises the send buffer of sockets that it holds back (bb_buffer.bpf.h), at their next
 * send: the hooks of unconnected UDP sockets, the only place where a program may set an
 * option of a socket that is sending.
 *
 * The hooks take the socket's lock at every send of the whole cgroup. So the agent
 * attaches them when the classifier asks for them, and takes them away a little later.
 *
 * Never lowers. Not more than net.core.wmem_max: what any program may ask for itself.
 *
 * By hand: bpftool cgroup attach CGROUP cgroup_udp4_sendmsg pinned /sys/fs/bpf/x/bb_sendmsg4 multi
 */
#include "bb_maps.bpf.h"
#include "bb_core.h"

#define BB_SOL_SOCKET 1
#define BB_SO_SNDBUF 7

static __always_inline void bb_raise(struct bpf_sock_addr *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct bb_buffer *known = bpf_map_lookup_elem(&bb_buffers, &cookie);
	struct bb_config *config;
	__u32 zero = 0, goal;
	int size = 0, half;

	if (!known)
		return;
	config = bpf_map_lookup_elem(&bb_config, &zero);
	if (!config || !(config->flags & BB_CONFIG_RAISE) || known->observed)
		return;
	goal = bb_buffer_goal(known->need, config->wmem_max);
	if (bpf_getsockopt(ctx, BB_SOL_SOCKET, BB_SO_SNDBUF, &size, sizeof(size)) || size <= 0 ||
	    goal <= (__u32)size)
		return;
	half = goal / 2; /* the kernel doubles it */
	if (bpf_setsockopt(ctx, BB_SOL_SOCKET, BB_SO_SNDBUF, &half, sizeof(half)))
		return;
	known->raised_ns = bpf_ktime_get_ns();
	known->asked = 0;
}

SEC("cgroup/sendmsg4")
int bb_sendmsg4(struct bpf_sock_addr *ctx)
{
	bb_raise(ctx);
	return 1;
}

SEC("cgroup/sendmsg6")
int bb_sendmsg6(struct bpf_sock_addr *ctx)
{
	bb_raise(ctx);
	return 1;
}

char _license[] SEC("license") = "GPL";
