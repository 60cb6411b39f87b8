// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device that cuts super-packets: where a segment goes. Attached to the primary
 * one of a netkit pair (BPF_NETKIT_PRIMARY, Linux 6.7), or to the egress of the dummy
 * device below a macvlan. bb_segment.bpf.h has the whole path.
 *
 * The device has no address and is for the classifier only. What the kernel sends
 * through it by itself has no magic, and must not leave by the interface.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include "bb_maps.bpf.h"

SEC("classifier")
int bb_segmented(struct __sk_buff *skb)
{
	struct bb_segment_cpu *cpu;
	__u32 slot = skb->cb[2];

	if (skb->cb[0] != BB_SEGMENT_MAGIC)
		return TC_ACT_SHOT;
	cpu = bpf_map_lookup_elem(&bb_segment_cpus, &slot);
	if (cpu)
		cpu->away = 0;
	return bpf_redirect(skb->cb[1], 0);
}

char _license[] SEC("license") = "GPL";
