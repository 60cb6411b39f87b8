// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test classifier: a middlebox that does not know TCP-Real's option, of IPv4 without
 * VLAN tags. It overwrites the option with padding, or drops such packets.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "bb_real.h"

#define ETHERNET 14
#define TCP 34 /* behind an IPv4 header without options */
#define SYN 2

volatile const __u8 strip_syn; /* of SYN and SYN-ACK */
volatile const __u8 strip_rest; /* of all others */
volatile const __u8 drop; /* drop such packets instead */

/* Packets that it changed or dropped. */
__u64 hits;

SEC("classifier")
int strip(struct __sk_buff *skb)
{
	__u64 padding = 0x0101010101010101ULL, option;
	__u8 ip[20], tcp[20], options[64];
	__u32 length, at = 0, i;

	if (skb->protocol != bpf_htons(0x0800) || bpf_skb_load_bytes(skb, ETHERNET, ip, sizeof(ip)))
		return -1;
	if (ip[0] != 0x45 || ip[9] != 6 || bpf_skb_load_bytes(skb, TCP, tcp, sizeof(tcp)))
		return -1;
	if (tcp[13] & SYN ? !strip_syn : !strip_rest)
		return -1;
	length = ((tcp[12] >> 4) * 4 - sizeof(tcp)) & 63;
	asm volatile("" : "+r"(length));
	if (length < BB_REAL_LENGTH || bpf_skb_load_bytes(skb, TCP + sizeof(tcp), options, length))
		return -1;
	for (i = 0; i < 40; i++) {
		if (at > 32 || at + BB_REAL_LENGTH > length || !options[at])
			return -1;
		if (options[at] == BB_REAL_KIND)
			break;
		if (options[at] == 1)
			at++;
		else if (options[at + 1] < 2)
			return -1;
		else
			at += options[at + 1];
	}
	if (at > 32 || options[at] != BB_REAL_KIND)
		return -1;
	__sync_fetch_and_add(&hits, 1);
	if (drop)
		return 2; /* TC_ACT_SHOT */
	__builtin_memcpy(&option, options + at, sizeof(option));
	bpf_skb_store_bytes(skb, TCP + sizeof(tcp) + at, &padding, sizeof(padding), 0);
	/* The kernel puts the option at a multiple of four. */
	bpf_l4_csum_replace(skb, TCP + 16, 0,
			    bpf_csum_diff((__be32 *)&option, 8, (__be32 *)&padding, 8, 0), 0);
	return -1;
}

char _license[] SEC("license") = "GPL";
