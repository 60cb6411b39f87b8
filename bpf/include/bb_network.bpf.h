/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Control protocols of routers and hosts: what keeps a link, a route or a neighbour
 * alive (LACP, STP, LLDP, IS-IS, BFD, VRRP, OSPF, BGP, ...). They are few packets, and
 * one that is late takes the network down. So they go first without a rule, in both modes.
 *
 * What anybody can say must cost others nothing. So they go first within a small
 * share of the link, and are plain traffic beyond it. An interface has several such
 * shares, which do not take from each other:
 *
 *   RAW        what only the kernel or a raw socket of this host sends
 *   FORWARDED  what this host bridges
 *   ROOT       UDP and TCP of uid 0: BFD; all else
 *   USERS      UDP and TCP of other users, who share a few by a secret hash
 *
 * Who asks for more than the share is charged for what is refused, too: a stream that is
 * always above it is plain as a whole, and keeps its order.
 */
#ifndef BB_NETWORK_BPF_H
#define BB_NETWORK_BPF_H

#include "bb_count.bpf.h"
#include "bb_packet.bpf.h"
#include "bb_sender.bpf.h"
#include "bb_session.bpf.h"
#include "bb_work.bpf.h"

#define BB_NETWORK_SHARE 64 /* one in so many bytes of the link */
#define BB_NETWORK_RATE 1000000 /* bytes/s of a link whose rate nobody knows */
#define BB_NETWORK_BURST_NS 250000000ULL
#define BB_NETWORK_BURST_BYTES 4096 /* the least: two packets of the usual largest size */

/* The shares of an interface. */
#define BB_NETWORK_RAW 0
#define BB_NETWORK_FORWARDED 1
#define BB_NETWORK_ROOT 2
#define BB_NETWORK_USERS 4
#define BB_NETWORK_PARTS 32
#define BB_NETWORK_USER_PARTS 16

/* Each: until when it is used up; nothing of it where that is over. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, BB_MAX_IFACES *BB_NETWORK_PARTS);
} bb_network SEC(".maps");

/* Of what is IP: by protocol, port or DSCP; TTL and sender are not looked at. */
static __always_inline int bb_is_bfd(const struct bb_packet *packet)
{
	__u16 port = packet->key.dport;

	/* RFC 5881 (control, echo), 5883 (many hops), 7130 (link aggregation), 7881 (seamless) */
	return packet->key.proto == BB_PROTO_UDP &&
	       (port == 3784 || port == 3785 || port == 4784 || port == 6784 || port == 7784);
}

static __always_inline int bb_is_routing(__u8 proto)
{
	return proto == BB_PROTO_IGMP || proto == BB_PROTO_RSVP || proto == BB_PROTO_EIGRP ||
	       proto == BB_PROTO_OSPF || proto == BB_PROTO_PIM || proto == BB_PROTO_VRRP ||
	       proto == BB_PROTO_ISIS;
}

#define BB_BGP 179

/* Cheap, since each plain packet comes here: may it be one? */
static __always_inline int bb_may_be_network(const struct bb_packet *packet)
{
	__u8 proto = packet->key.proto;

	if (!(packet->flags & BB_P_IP))
		return packet->flags & BB_P_NETWORK;
	if (packet->key.dscp >= BB_DSCP_CS6)
		return 1;
	if (proto == BB_PROTO_TCP)
		return packet->key.dport == BB_BGP || packet->key.sport == BB_BGP;
	if (proto == BB_PROTO_UDP)
		return bb_is_bfd(packet);
	return bb_is_routing(proto);
}

/* Which share it takes from; -1: it is no such packet. */
static __always_inline int bb_network_part(struct __sk_buff *skb, const struct bb_packet *packet)
{
	int own = bb_is_own(skb), bfd = bb_is_bfd(packet);
	__u8 hops = 0, proto = packet->key.proto;
	__u64 seed = bb_seed();
	__u32 uid;

	/* Its length may be anybody's, its protocol is not. */
	if (!(packet->flags & BB_P_IP) || bb_is_routing(proto))
		return own || !(skb->ingress_ifindex || bb_told.forwarded) ? BB_NETWORK_RAW :
									     BB_NETWORK_FORWARDED;
	if (bfd) {
		/* What was routed has fewer (RFC 5082). */
		if (bpf_skb_load_bytes_relative(skb, packet->key.family == 4 ? 8 : 7, &hops, 1,
						BPF_HDR_START_NET) ||
		    hops != 255)
			bfd = 0;
	}
	if (!own)
		return bfd ? BB_NETWORK_FORWARDED : -1;
	if (!bfd && packet->key.dscp < BB_DSCP_CS6 && proto != BB_PROTO_TCP)
		return -1;
	uid = bb_socket_uid(skb);
	if (!uid)
		return BB_NETWORK_ROOT + bfd;
	seed = (seed ^ (2 * (__u64)uid + bfd)) * 0x9E3779B97F4A7C15ULL;
	return BB_NETWORK_USERS + (seed >> 32 & (BB_NETWORK_USER_PARTS - 1));
}

/* Is the packet one that goes first? Apart: the verifier need not follow it in each plain packet. */
__noinline int bb_is_network(struct __sk_buff *skb, struct bb_work *w)
{
	__u32 slot, index, bytes;
	struct bb_iface *iface;
	__u64 *until, before, after, cost, burst, rate;
	int part, over;

	if (!w || w->packet.flags & BB_P_MALFORMED || !bb_may_be_network(&w->packet))
		return 0;
	slot = w->slot; /* v6.2: before it a key had to be on the stack or in a map */
	iface = bpf_map_lookup_elem(&bb_ifaces, &slot);
	part = bb_network_part(skb, &w->packet);
	if (part < 0 || !iface)
		return 0;
	index = w->slot * BB_NETWORK_PARTS + part;
	until = bpf_map_lookup_elem(&bb_network, &index);
	if (!until)
		return 0;
	rate = iface->rate ?: BB_NETWORK_RATE;
	bytes = skb->wire_len > skb->len ? skb->wire_len : skb->len;
	bytes = bb_wire_bytes(bytes, skb->gso_segs, iface->overhead);
	cost = bb_tx_time((__u64)bytes * BB_NETWORK_SHARE, rate);
	burst = bb_tx_time(BB_NETWORK_BURST_BYTES * BB_NETWORK_SHARE, rate);
	if (burst < BB_NETWORK_BURST_NS)
		burst = BB_NETWORK_BURST_NS;

	before = *(volatile __u64 *)until;
	after = (before > w->now ? before : w->now) + cost;
	over = after > w->now + burst;
	if (after > w->now + 2 * burst)
		after = w->now + 2 * burst;
	/* Of two CPUs one may be charged nothing: no more than a packet for each. */
	__sync_bool_compare_and_swap(until, before, after);
	bb_global_inc(over ? BB_G_NETWORK_OVER : BB_G_NETWORK);
	return !over;
}

#endif /* BB_NETWORK_BPF_H */
