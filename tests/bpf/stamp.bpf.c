// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test classifier: the frame carries, behind its Ethernet header, the control
 * block that it wants. So a test of the queue says exactly what each packet is
 * worth. Frames of another ethertype get none.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "bb_abi.h"

SEC("classifier")
int stamp(struct __sk_buff *skb)
{
	__u32 block[5] = {};
	__u16 type = 0;

	bpf_skb_load_bytes(skb, 12, &type, sizeof(type));
	if (type == 0xb588) /* 0x88b5, local experimental, in network order */
		bpf_skb_load_bytes(skb, 14, block, sizeof(block));
	for (int i = 0; i < 5; i++)
		skb->cb[i] = block[i];
	return 0;
}

char _license[] SEC("license") = "GPL";
