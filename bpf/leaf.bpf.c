// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mode tc: the filter at the root of the HTB tree. HTB asks it for the class of each
 * packet; it answers with the leaf that the classifier left in skb->tc_index.
 *
 * Without a filter HTB takes skb->priority for the class. Then the application's own
 * SO_PRIORITY is lost, and with it what is made of it below: the priority of a VLAN's
 * tag, the band of a pfifo_fast on the device that a bond or a tunnel stands on. The
 * filter costs some 200 instructions a packet, so only such interfaces have it.
 *
 * The low byte of tc_index stays what it was: programs of others keep flags there.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include "bb_abi.h"

SEC("classifier")
int bb_leaf(struct __sk_buff *skb)
{
	__u32 index = skb->tc_index;

	/* Not judged: the tree's default class, which is the plain leaf. */
	if ((index & BB_TC_INDEX_MASK) != BB_TC_INDEX)
		return TC_ACT_UNSPEC;
	/* Major number: that of the filter's own class (TCA_BPF_CLASSID). */
	skb->tc_classid = BB_TC_LEAF_MINOR + (index >> BB_TC_INDEX_SHIFT & BB_TC_INDEX_LEAF);
	skb->tc_index = index & BB_TC_INDEX_OTHERS;
	return TC_ACT_OK;
}

char _license[] SEC("license") = "GPL";
