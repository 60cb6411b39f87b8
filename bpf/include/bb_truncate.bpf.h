/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Treatment "truncate" (headercasting): of a packet that would be dropped as stale, or with its
 * ADU, only the headers go. Its receiver learns which data it will not get, and when.
 *
 * The problem
 *  1. Lengths and checksums must be right, whatever the headers are. So only packets whose
 *     checksums can be made anew are truncated (bb_find_header); others are discarded.
 *  2. Mode qdisc knows late that a packet is stale, and a qdisc cannot change packets.
 *
 * How
 *  - Mode tc truncates in place what it would refuse. The layers below have read the packet's
 *    length already, so it goes round once more (w->again) and passes unjudged.
 *  - Mode qdisc: the classifier sends a clone to the same device ahead of each packet. The
 *    clone, its twin, meets the classifier again, which truncates it. The queue keeps both
 *    and sends one of them (bbq_twin.bpf.h). The packet itself stays whole, with its socket.
 *
 * A clone costs some 5,500 instructions, so only packets whose treatment says so have one.
 */
#ifndef BB_TRUNCATE_BPF_H
#define BB_TRUNCATE_BPF_H

#include <linux/pkt_cls.h>
#include "bb_explain.bpf.h"
#include "bb_kernel.bpf.h"
#include "bb_work.bpf.h"

/* More extension headers than that, and their packets are discarded. */
#define BB_MAX_KEPT_EXT 4
/* A larger one may hold a home address (RFC 6275), which the checksum counts as the source. */
#define BB_DSTOPTS_MAX 16

static __always_inline __u32 bb_load16(struct __sk_buff *skb, __u32 offset)
{
	__u16 value = 0;

	bpf_skb_load_bytes(skb, offset, &value, sizeof(value));
	return bpf_ntohs(value);
}

/* Where the transport header of an IPv6 packet starts; 0 = behind headers that forbid truncation. */
static __always_inline __u32 bb_behind_extensions(struct __sk_buff *skb, __u32 network, __u8 proto)
{
	__u32 at = network + 40;
	__u8 next[2] = {};

	bpf_skb_load_bytes(skb, network + 6, next, 1);
	for (int i = 0; i <= BB_MAX_KEPT_EXT; i++) {
		__u32 length;
		__u8 type = next[0];

		if (type == proto)
			return at;
		if (type != BB_PROTO_HOPOPTS && type != BB_PROTO_DSTOPTS)
			return 0;
		if (bpf_skb_load_bytes(skb, at, next, sizeof(next)))
			return 0;
		length = (next[1] + 1) * 8;
		if (type == BB_PROTO_DSTOPTS && length > BB_DSTOPTS_MAX)
			return 0;
		at += length;
	}
	return 0;
}

/* Bytes of a TCP header, of a segment that is worth nothing but data; else 0. */
static __always_inline __u32 bb_tcp_header(struct __sk_buff *skb, __u32 at)
{
	__u32 word = bb_load16(skb, at + 12);

	/* FIN, SYN and RST say what must not be said without the data; so may the urgent pointer. */
	return word & 0x27 ? 0 : (word >> 12) * 4;
}

/* The same of DCCP: Data and DataAck whose checksum covers everything, or the header alone. */
static __always_inline __u32 bb_dccp_header(struct __sk_buff *skb, __u32 at)
{
	__u32 word = bb_load16(skb, at + 4), type = bb_load16(skb, at + 8) >> 9 & 15;

	return (type != 2 && type != 4) || (word & 15) > 1 ? 0 : (word >> 8) * 4;
}

/* Bytes of the RTP header at `at`, CSRCs and extension included. */
static __always_inline __u32 bb_rtp_header(struct __sk_buff *skb, __u32 at)
{
	__u32 first = bb_load16(skb, at) >> 8, length = 12 + 4 * (first & 15);

	return first & 0x10 ? length + 4 + 4 * bb_load16(skb, at + length + 2) : length;
}

/*
 * Where the headers of the packet in w->packet are: in w->header. Returns 0 where it cannot be
 * truncated, or would be no shorter.
 */
__noinline int bb_find_header(struct __sk_buff *skb, struct bb_work *w, int ethernet)
{
	__u32 network = 0, at, end, length;
	__u8 proto, first = 0;

	if (!w || skb->gso_size || w->packet.flags & (BB_P_FRAG_FIRST | BB_P_FRAG_LATER) ||
	    bb_is_shared(skb))
		return 0;
	proto = w->packet.key.proto;
	if (ethernet) {
		network = 14;
		for (int i = 0; i < BB_MAX_VLAN_TAGS; i++) {
			__u32 type = bb_load16(skb, network - 2);

			if (type != BB_ETH_P_8021Q && type != BB_ETH_P_8021AD)
				break;
			network += 4;
		}
	}
	bpf_skb_load_bytes(skb, network, &first, 1);
	if (first >> 4 == 4) {
		at = network + (first & 15) * 4;
		end = network + bb_load16(skb, network + 2);
	} else if (first >> 4 == 6) {
		at = bb_behind_extensions(skb, network, proto);
		end = network + 40 + bb_load16(skb, network + 4);
	} else {
		return 0;
	}
	if (!at || end > skb->len)
		return 0;
	if (proto == BB_PROTO_UDP || proto == BB_PROTO_UDPLITE) {
		length = 8 + w->packet.inner;
		if (w->packet.flags & BB_P_RTP)
			length += bb_rtp_header(skb, at + length);
		if (proto == BB_PROTO_UDP && at + bb_load16(skb, at + 4) < end)
			end = at + bb_load16(skb, at + 4);
	} else if (proto == BB_PROTO_TCP) {
		length = bb_tcp_header(skb, at);
	} else if (proto == BB_PROTO_DCCP) {
		length = bb_dccp_header(skb, at);
	} else {
		return 0;
	}
	if (length < (proto == BB_PROTO_TCP  ? 20 :
		      proto == BB_PROTO_DCCP ? 12 :
					       8) ||
	    length > BB_MAX_KEPT || at + length >= end)
		return 0;
	w->header.network = network;
	w->header.transport = at;
	w->header.length = length;
	w->header.proto = proto;
	w->header.rtp = !!(w->packet.flags & BB_P_RTP);
	return 1;
}

/* The sum of a packet's addresses. */
static __always_inline __u64 bb_sum_addresses(struct __sk_buff *skb, __u8 *bytes, __u32 network,
					      int six)
{
	if (six) {
		bpf_skb_load_bytes(skb, network + 8, bytes, 32);
		return bpf_csum_diff(0, 0, (void *)bytes, 32, 0);
	}
	bpf_skb_load_bytes(skb, network + 12, bytes, 8);
	return bpf_csum_diff(0, 0, (void *)bytes, 8, 0);
}

/*
 * Truncates the packet to the header that bb_find_header found. 0 = done; else it is as it was,
 * and cannot be truncated.
 */
__noinline int bb_truncate(struct __sk_buff *skb, struct bb_work *w)
{
	struct sk_buff *kernel_skb = bb_untyped(skb);
	__u32 network, transport, length, check_at;
	__u8 proto, *bytes, first = 0;
	int partial, six;
	__u16 old, new;
	__u64 sum;

	if (!w)
		return 1;
	network = w->header.network;
	transport = w->header.transport;
	length = w->header.length;
	proto = w->header.proto;
	bytes = w->bytes;
	partial = BPF_CORE_READ_BITFIELD_PROBED(kernel_skb, ip_summed) == BB_CHECKSUM_PARTIAL;
	if (length < 8 || length > BB_MAX_KEPT || (partial && proto == BB_PROTO_UDPLITE))
		return 1;
	/* Both may fail, and change nothing then. What is written below is there, and our own. */
	if (bpf_skb_pull_data(skb, transport + length) ||
	    bpf_skb_change_tail(skb, transport + length, 0))
		return 1;

	bpf_skb_load_bytes(skb, network, &first, 1);
	six = first >> 4 == 6;
	sum = bb_sum_addresses(skb, bytes, network, six);
	if (six) {
		new = bpf_htons(transport + length - network - 40);
		bpf_skb_store_bytes(skb, network + 4, &new, sizeof(new), 0);
	} else {
		old = bpf_htons(bb_load16(skb, network + 2));
		new = bpf_htons(transport + length - network);
		bpf_skb_store_bytes(skb, network + 2, &new, sizeof(new), 0);
		bpf_l3_csum_replace(skb, network + 10, old, new, sizeof(new));
	}

	/* The transport header: its lengths, then its checksum from scratch. */
	bb_keep_check(length);
	if (length < 8 || length > BB_MAX_KEPT)
		return 1;
	*(__u32 *)&bytes[length & ~3] = 0;
	*(__u32 *)&bytes[(length + 3) & ~3] = 0;
	if (bpf_skb_load_bytes(skb, transport, bytes, length))
		return 1;
	new = bpf_htons(length);
	if (proto == BB_PROTO_UDP || (proto == BB_PROTO_UDPLITE && *(__u16 *)&bytes[4]))
		*(__u16 *)&bytes[4] = new; /* UDP-Lite: what the checksum covers; 0 = everything */
	if (w->header.rtp)
		bytes[8] &= ~0x20; /* the padding is gone */
	sum += new + bpf_htons(proto);
	check_at = proto == BB_PROTO_TCP ? 16 : 6;
	old = *(__u16 *)&bytes[check_at];
	if (partial) {
		*(__u16 *)&bytes[check_at] = bb_fold(sum);
	} else if (proto != BB_PROTO_UDP || old) {
		*(__u16 *)&bytes[check_at] = 0;
		sum += bpf_csum_diff(0, 0, (void *)bytes, (length + 3) & ~3, 0);
		new = ~bb_fold(sum);
		if (!new && proto != BB_PROTO_TCP && proto != BB_PROTO_DCCP)
			new = 0xFFFF;
		*(__u16 *)&bytes[check_at] = new;
	}
	bpf_skb_store_bytes(skb, transport, bytes, length, 0);
	return 0;
}

/*
 * Is this the packet that w->again waits for? Where nothing comes between, the interface
 * says so. Else its address does, or, as a clone has another one, its control block.
 */
static __always_inline int bb_is_back(struct __sk_buff *skb, const struct bb_work *w, int mode)
{
	const volatile __u64 *words = (const volatile __u64 *)&skb->cb[0];
	__u64 twin = bb_cb_first(0, 0, 0, BB_CB_TWIN);

	if (w->again != skb->ifindex)
		return 0;
	if (!bb_preemptible)
		return 1;
	if (mode == BB_MODE_QDISC)
		return words[1] == w->again_of &&
		       words[0] == (twin | bb_cb_check(twin, w->again_of, skb->cb[4]));
	return (__u64)bb_untyped(skb) == w->again_of;
}

#define BB_ANOTHER 1 /* none of our verdicts */

/*
 * What w->again waits for is back at the classifier, before anything else on this CPU: the clone
 * that is to be a twin, or (mode tc) what was truncated. That may have been lost on its way, if
 * a program before ours dropped it. BB_ANOTHER: then this is some other packet.
 */
__noinline int bb_come_again(struct __sk_buff *skb, struct bb_work *w, int mode)
{
	if (!w)
		return TC_ACT_UNSPEC;
	w->again = 0;
	if (mode == BB_MODE_QDISC)
		return bb_truncate(skb, w) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	return skb->len == w->again_len ? TC_ACT_UNSPEC : BB_ANOTHER;
}

/* The kind of our queue (agent/src/kernel/qdisc.rs), as the first six of eight bytes. */
#define BB_QUEUE_KIND 0x796274736562ULL /* "bestby" */
#define BB_QUEUE_KIND_MASK 0xFFFFFFFFFFFFULL

/* Does our queue take what the device sends? Any other would send the twin, too. */
static __always_inline int bb_is_queued(struct __sk_buff *skb)
{
	struct sk_buff *kernel_skb = bb_untyped(skb);
	const struct Qdisc_ops___named *ops = 0;
	struct netdev_queue *queue = 0;
	struct net_device *dev = 0;
	struct Qdisc *qdisc = 0;
	__u64 kind = 0;

	bpf_core_read(&dev, sizeof(dev), &kernel_skb->dev);
	bpf_core_read(&queue, sizeof(queue), &dev->_tx);
	bpf_core_read(&qdisc, sizeof(qdisc), &queue->qdisc);
	bpf_core_read(&ops, sizeof(ops), &qdisc->ops);
	bpf_core_read(&kind, sizeof(kind), &ops->id);
	return (kind & BB_QUEUE_KIND_MASK) == BB_QUEUE_KIND;
}

/*
 * Sends the packet's twin ahead of it, and says so in its control block. Whatever fails, the
 * packet is as it was, without a twin: stale it is discarded.
 */
__noinline int bb_send_twin(struct __sk_buff *skb, struct bb_work *w)
{
	volatile __u64 *words = (volatile __u64 *)&skb->cb[0];
	__u64 first, second, twin, of = (__u64)bb_untyped(skb);
	__u32 adu, ifindex = skb->ifindex, pair;

	if (!w || bb_told.explain || !bb_is_queued(skb))
		return 0;
	first = words[0] & ~0xFFFFULL;
	second = words[1];
	adu = skb->cb[4];
	pair = bb_cb_pair(second, adu);
	twin = bb_cb_first(0, 0, 0, BB_CB_TWIN);
	words[0] = twin | bb_cb_check(twin, of, pair);
	words[1] = of;
	skb->cb[4] = pair;
	w->again_of = of;
	w->again = ifindex;
	if (!bpf_clone_redirect(skb, ifindex, 0))
		first |= bb_cb_first(0, 0, 0, BB_CB_PAIRED);
	w->again = 0;
	words[0] = first | bb_cb_check(first, second, adu);
	words[1] = second;
	skb->cb[4] = adu;
	return 0;
}

#endif /* BB_TRUNCATE_BPF_H */
