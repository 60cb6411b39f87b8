// SPDX-License-Identifier: GPL-2.0-only
/*
 * The floor: what any BPF qdisc with any classifier costs. `bestby-lab core
 * --only cost` shows it beside bestby's queue. Nothing of bestby loads it.
 *
 * The classifier looks at nothing. The Qdisc is a FIFO of FLOOR_PACKETS packets:
 * the least that can hold an skb between enqueue and dequeue.
 */
#include "bb_compat.bpf.h"
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "GPL";

#define FLOOR_PACKETS 1024 /* power of two */

struct floor_packet {
	struct sk_buff __kptr *skb;
	__u32 len;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct floor_packet);
	__uint(max_entries, FLOOR_PACKETS);
} floor_packets SEC(".maps");

/* Under the Qdisc's lock; one Qdisc at a time. */
__u32 floor_in, floor_out;

SEC("tcx/egress")
int floor_classify(struct __sk_buff *skb)
{
	return -1; /* TCX_NEXT */
}

SEC("struct_ops/floor_enqueue")
int BPF_PROG(floor_enqueue, struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free)
{
	__u32 key = floor_in & (FLOOR_PACKETS - 1);
	struct floor_packet *p = bpf_map_lookup_elem(&floor_packets, &key);

	if (!p || floor_in - floor_out == FLOOR_PACKETS) {
		bpf_qdisc_skb_drop(skb, to_free);
		return 1; /* NET_XMIT_DROP */
	}
	p->len = ((struct qdisc_skb_cb *)skb->cb)->pkt_len;
	sch->qstats.backlog += p->len;
	sch->q.qlen++;
	skb = bpf_kptr_xchg(&p->skb, skb);
	if (skb) /* cannot be: the ring is not full */
		bpf_qdisc_skb_drop(skb, to_free);
	floor_in++;
	return 0; /* NET_XMIT_SUCCESS */
}

SEC("struct_ops/floor_dequeue")
struct sk_buff *BPF_PROG(floor_dequeue, struct Qdisc *sch)
{
	__u32 key = floor_out & (FLOOR_PACKETS - 1);
	struct floor_packet *p = bpf_map_lookup_elem(&floor_packets, &key);
	struct sk_buff *skb;

	if (!p || floor_in == floor_out)
		return 0;
	floor_out++;
	sch->q.qlen--;
	sch->qstats.backlog -= p->len;
	skb = bpf_kptr_xchg(&p->skb, 0);
	if (skb)
		bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

SEC("struct_ops/floor_init")
int BPF_PROG(floor_init, struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	return 0;
}

SEC("struct_ops/floor_reset")
void BPF_PROG(floor_reset, struct Qdisc *sch)
{
	while (floor_out != floor_in && bb_can_loop) {
		__u32 key = floor_out++ & (FLOOR_PACKETS - 1);
		struct floor_packet *p = bpf_map_lookup_elem(&floor_packets, &key);
		struct sk_buff *skb = p ? bpf_kptr_xchg(&p->skb, 0) : 0;

		if (skb)
			bpf_kfree_skb(skb);
	}
}

SEC("struct_ops/floor_destroy")
void BPF_PROG(floor_destroy, struct Qdisc *sch)
{
}

SEC(".struct_ops.link")
struct Qdisc_ops floor_ops = {
	.enqueue = (void *)floor_enqueue,
	.dequeue = (void *)floor_dequeue,
	.init = (void *)floor_init,
	.reset = (void *)floor_reset,
	.destroy = (void *)floor_destroy,
	.id = "floor",
};
