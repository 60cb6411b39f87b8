/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Super-packets (UDP GSO, TSO) on a slow link.
 *
 * 1. The kernel hands an application's 64 KiB to the device as one packet. A BPF
 *    qdisc cannot cut it, and an HTB class does not: at 2 Mbit/s it holds the link
 *    for a quarter of a second, and audio behind it is late.
 * 2. The kernel cuts a packet where it is given to a device that does not take it
 *    whole. So the classifier redirects it to such a device, with gso_max_segs 1,
 *    that the agent makes for each interface that needs it: a netkit pair, or,
 *    before Linux 6.7, a macvlan on a dummy device.
 * 3. A netkit device runs a program for each packet it is given: segment.bpf.c,
 *    which redirects each segment back to the egress of the interface. Behind a
 *    macvlan the dummy device's egress runs it.
 * 4. There the classifier sees each segment by itself. It is no GSO packet, so it
 *    is judged and queued like any other.
 *
 * All this is one chain of calls with bottom halves disabled: nothing overtakes,
 * nothing is queued in between, and socket, mark, priority and timestamp stay.
 *
 * A packet that holds the link for less than a millisecond stays whole, because
 * cutting costs some 3,600 instructions per segment.
 *
 * Fail open:
 * - The device does not cut (its gso_max_segs was changed): the packet returns
 *   whole, with BB_SEGMENT_MAGIC in its control block, and is not sent round again.
 * - The device is down or gone: bpf_redirect drops. The first packet lost this way
 *   leaves bb_segment_cpu.away set, so the next one is sent whole, and all for
 *   BB_SEGMENT_RETRY_NS. At most one packet per CPU and second is lost until the
 *   agent, which looks once a second, repairs or clears bb_iface.segment_ifindex.
 */
#ifndef BB_SEGMENT_BPF_H
#define BB_SEGMENT_BPF_H

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include "bb_count.bpf.h"
#include "bb_kernel.bpf.h"

#define BB_SEGMENT_RETRY_NS 1000000000ULL
/* A packet stays whole if it holds the link for less than this part of a second. */
#define BB_SEGMENT_HOLDS_PER_S 1000

/*
 * Sends a GSO packet to the device that cuts it. TC_ACT_UNSPEC: it goes on whole.
 * `ethernet`: the interface has a link-layer header, which the device wants; the
 * way back takes one off that is added here.
 */
__noinline int bb_segment(struct __sk_buff *skb, const struct bb_iface *iface, __u32 slot,
			  int ethernet)
{
	struct bb_segment_cpu *cpu;
	__be16 protocol = skb->protocol;
	__u64 now, rate;
	__u32 device;

	if (!iface)
		return TC_ACT_UNSPEC;
	device = iface->segment_ifindex;
	rate = iface->rate;
	if (!device || !rate || (__u64)skb->len * BB_SEGMENT_HOLDS_PER_S <= rate)
		return TC_ACT_UNSPEC;
	if (skb->cb[0] == BB_SEGMENT_MAGIC && skb->cb[1] == skb->ifindex)
		return TC_ACT_UNSPEC; /* it was there, and was not cut */
	cpu = bpf_map_lookup_elem(&bb_segment_cpus, &slot);
	if (!cpu)
		return TC_ACT_UNSPEC;
	now = bpf_ktime_get_ns();
	if (cpu->away) {
		cpu->away = 0;
		cpu->whole_until_ns = now + BB_SEGMENT_RETRY_NS;
		bb_global_inc(BB_G_SEGMENTER_LOST);
	}
	if (now < cpu->whole_until_ns)
		return TC_ACT_UNSPEC;
	if (!ethernet) {
		if (bpf_skb_change_head(skb, ETH_HLEN, 0))
			return TC_ACT_UNSPEC;
		bpf_skb_store_bytes(skb, 2 * ETH_ALEN, &protocol, sizeof(protocol), 0);
	}
	skb->cb[0] = BB_SEGMENT_MAGIC;
	skb->cb[1] = skb->ifindex;
	skb->cb[2] = slot;
	skb->cb[3] = bb_path_mtu(skb);
	cpu->away = 1;
	return bpf_redirect(device, 0);
}

#endif /* BB_SEGMENT_BPF_H */
