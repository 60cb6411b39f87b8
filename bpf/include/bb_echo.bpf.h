/* SPDX-License-Identifier: GPL-2.0-only */
/* The agent's echo requests, and the replies to them: markers of a path (bb_auto.h). */
#ifndef BB_ECHO_BPF_H
#define BB_ECHO_BPF_H

#include <bpf/bpf_endian.h>
#include "bb_auto.bpf.h"

#define BB_ICMP_REQUEST 8
#define BB_ICMP_REPLY 0
#define BB_ICMP6_REQUEST 128
#define BB_ICMP6_REPLY 129

/* Bytes of the IP headers before it: it leaves without options, and what answers it has none. */
#define BB_ECHO_AT4 20
#define BB_ECHO_AT6 40

/*
 * The path of the interface that the echo was sent on, if it is of this type and has the nonce of one of that path's
 * ends. `name` is the marker's. The nonce alone says which end it is: no end can speak for another.
 */
bb_inline struct bb_auto *bb_echo_of(struct __sk_buff *skb, __u32 at, __u8 type, __u32 *slot,
				     __u32 *name)
{
	__u64 words[BB_ECHO_BYTES / 8];
	__u32 *half = (__u32 *)words, end;
	struct bb_auto *a;

	if (bpf_skb_load_bytes_relative(skb, at, words, sizeof(words), BPF_HDR_START_NET) ||
	    bpf_ntohl(half[0]) >> 24 != type)
		return 0;
	*slot = words[1] & (BB_MAX_IFACES - 1);
	end = words[1] >> BB_ECHO_END_SHIFT & (BB_AUTO_ENDS - 1);
	a = bpf_map_lookup_elem(&bb_autos, slot);
	if (!a || !words[1] || a->end[end].nonce != words[1])
		return 0;
	*name = end << 16 | (bpf_ntohl(half[1]) & 0xFFFF);
	return a;
}

#endif /* BB_ECHO_BPF_H */
