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
 * The path of the interface that the echo was sent on, if it is of this type and has that path's nonce, whose
 * last bits are the slot. `name` is its identifier and number.
 */
bb_inline struct bb_auto *bb_echo_of(struct __sk_buff *skb, __u32 at, __u8 type, __u32 *name)
{
	__u64 words[BB_ECHO_BYTES / 8];
	__u32 *half = (__u32 *)words, slot;
	struct bb_auto *a;

	if (bpf_skb_load_bytes_relative(skb, at, words, sizeof(words), BPF_HDR_START_NET) ||
	    bpf_ntohl(half[0]) >> 24 != type)
		return 0;
	slot = words[1] & (BB_MAX_IFACES - 1);
	a = bpf_map_lookup_elem(&bb_autos, &slot);
	if (!a || !a->nonce || a->nonce != words[1])
		return 0;
	*name = bpf_ntohl(half[1]);
	return a;
}

#endif /* BB_ECHO_BPF_H */
