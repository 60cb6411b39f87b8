/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which interface slot, which rule: the work done once per flow.
 *
 * Rules are found by tuple space search (Srinivasan, Suri, Varghese 1999): all
 * rules that compare the same bits (a "shape") are entries of one hash table,
 * so a search costs one look-up per shape, whatever the number of rules. The
 * matching rule with the lowest order wins. Results, "no rule" included, stay
 * in bb_flows until bb_config.rule_gen moves on. Where rules compare cgroups, a
 * result holds for the sender's cgroup only (bb_rule_gen).
 */
#ifndef BB_RULES_BPF_H
#define BB_RULES_BPF_H

#include "bb_count.bpf.h"
#include "bb_kernel.bpf.h"
#include "bb_parse.bpf.h"
#include "bb_sender.bpf.h"

/* ---- interface slots ---- */

/*
 * Slot and link type of an ifindex, so that a packet does not search the 64
 * slots: one word, ifindex | slot << 32 | BB_LINK_* << 48, because another CPU
 * may write it at any moment. The hint of an interface is in one of BB_HINT_WAYS
 * places from that of its hash on. There are four times as many as interfaces, so
 * none is without one. A hint that is gone costs a search: bb_ifaces has the last word.
 */
#define BB_HINT_BITS 8
#define BB_HINT_WAYS 16
__u64 bb_iface_hints[1 << BB_HINT_BITS];

#define BB_LINK_ETHERNET 1 /* frames begin with Ethernet's header */
#define BB_LINK_AGAIN 2 /* takes what is sent to it anew (bb_takes_again) */
#define bb_hint_link(hint_) ((int)((hint_) >> 48))
#define bb_hint_slot(hint_) ((__u32)((hint_) >> 32) & 0xFFFF)

/* The n-th place of an ifindex. Indices that are equal modulo something have other places. */
static __always_inline volatile __u64 *bb_iface_hint(__u32 ifindex, __u32 n)
{
	__u32 at = (ifindex * 0x9E3779B1U >> (32 - BB_HINT_BITS)) + n;

	return &bb_iface_hints[at & ((1 << BB_HINT_BITS) - 1)];
}

/* Is the slot of this hint still its interface's? */
static __always_inline int bb_hint_holds(__u64 hint)
{
	__u32 slot = bb_hint_slot(hint);
	struct bb_iface *iface = bpf_map_lookup_elem(&bb_ifaces, &slot);

	return (__u32)hint && iface && iface->ifindex == (__u32)hint;
}

/*
 * Does the kernel let packets be sent to such a device anew? Not where it believes that they have a
 * MAC header which they have not, as on SLIP: dev_is_mac_header_xmit has the same list.
 */
static __always_inline int bb_takes_again(__u16 type)
{
	switch (type) {
	case 512: /* ARPHRD_PPP */
	case 519: /* ARPHRD_RAWIP */
	case 768: /* ARPHRD_TUNNEL */
	case 769: /* ARPHRD_TUNNEL6 */
	case 776: /* ARPHRD_SIT */
	case 778: /* ARPHRD_IPGRE */
	case 779: /* ARPHRD_PIMREG */
	case 823: /* ARPHRD_IP6GRE */
	case 0xFFFE: /* ARPHRD_NONE: tun, WireGuard */
	case 0xFFFF: /* ARPHRD_VOID */
		return 1;
	}
	return 0;
}

/* The hint of skb->ifindex, made anew if it is in no place; 0 when the interface is not attached. */
__noinline __u64 bb_find_iface(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, slot, n;
	struct net_device *dev = 0;
	struct bb_iface *iface;
	__u16 type = 0;
	__u64 hint;

	for (n = 0; n < BB_HINT_WAYS; n++) {
		hint = *bb_iface_hint(ifindex, n);
		if ((__u32)hint == ifindex && bb_hint_holds(hint))
			return hint;
	}
	for (slot = 0; slot < BB_MAX_IFACES; slot++) {
		__u32 key = slot;

		iface = bpf_map_lookup_elem(&bb_ifaces, &key);
		if (iface && iface->ifindex == ifindex)
			break;
	}
	if (slot == BB_MAX_IFACES)
		return 0;
	bpf_core_read(&dev, sizeof(dev), &((struct sk_buff *)bb_untyped(skb))->dev);
	bpf_core_read(&type, sizeof(type), &dev->type);
	hint = ifindex | (__u64)slot << 32;
	/* A test run takes Ethernet's header for granted, whatever the device has. */
	if (bb_told.explain)
		hint |= BB_LINK_ETHERNET * 1ULL << 48;
	if (type == BB_ARPHRD_ETHER || type == BB_ARPHRD_LOOPBACK)
		hint |= (BB_LINK_ETHERNET | BB_LINK_AGAIN) * 1ULL << 48;
	else if (bb_takes_again(type))
		hint |= BB_LINK_AGAIN * 1ULL << 48;
	/* The first place that is no attached interface's. */
	for (n = 0; n < BB_HINT_WAYS; n++)
		if (!bb_hint_holds(*bb_iface_hint(ifindex, n)))
			break;
	*bb_iface_hint(ifindex, n) = hint;
	return hint;
}

/* ---- rules ---- */

static __always_inline void bb_key_of_flow(struct bb_rule_key *key, const struct bb_flow_key *flow,
					   __u32 rtp, __u32 ssrc)
{
	__builtin_memset(key, 0, sizeof(*key));
	__builtin_memcpy(key->src, flow->src, 16);
	__builtin_memcpy(key->dst, flow->dst, 16);
	key->mark = flow->mark;
	key->ifindex = flow->ifindex;
	key->sport = flow->sport;
	key->dport = flow->dport;
	key->family = flow->family;
	key->proto = flow->proto;
	key->dscp = flow->dscp;
	key->rtp = rtp;
	key->ssrc = ssrc;
}

/* A search: what is looked for, and the best of what was found. */
struct bb_rule_search {
	struct bb_rule_key packet;
	__u32 set; /* of the two sets of shapes */
	__u32 best; /* its order */
	__u32 rule; /* 0 = none yet */
};

/* Looks among the rules of one shape. A global function: verified once, and not for each of the shapes. */
__noinline int bb_find_in_shape(struct __sk_buff *skb, struct bb_rule_search *search, __u32 n)
{
	const __u64 *full, *mask;
	__u32 index, probes = BB_G_RULE_PROBES;
	struct bb_rule_ref *found;
	struct bb_rule_key key;
	__u64 *masked = (__u64 *)&key, *probed;
	struct bb_shape *shape;

	if (!search)
		return 0;
	index = (search->set ? BB_MAX_SHAPES : 0) + n;
	shape = bpf_map_lookup_elem(&bb_shapes, &index);
	probed = bpf_map_lookup_elem(&bb_global, &probes);
	/* Where all come after what is found, none is looked for. */
	if (!shape || !probed || shape->first_order >= search->best)
		return 0;
	full = (const __u64 *)&search->packet;
	mask = (const __u64 *)&shape->mask;
#pragma unroll
	for (__u32 word = 0; word < sizeof(key) / 8; word++)
		masked[word] = full[word] & mask[word];
	key.cgroup = 0;
	if (shape->cgroup_level)
		key.cgroup = bb_cgroup_of(skb, shape->cgroup_level);
	key.set = search->set;
	key.shape = n;
	bb_add(*probed, 1);
	found = bpf_map_lookup_elem(&bb_rule_keys, &key);
	if (found && found->order < search->best) {
		search->best = found->order;
		search->rule = found->rule;
	}
	return 0;
}

/*
 * Index of the rule that decides for this packet's flow, or for its stream (`rtp`,
 * BB_RTP | payload type, and `ssrc`; else 0); 0 = none. At most BB_MAX_SHAPES
 * look-ups. Cgroup rules match the sending socket's ancestor at
 * the level the rule's cgroup has.
 */
__noinline int bb_find_rule(struct __sk_buff *skb, const struct bb_flow_key *flow, __u32 rtp,
			    __u32 ssrc)
{
	struct bb_rule_search search = { .best = ~0U };
	struct bb_config *config;
	__u32 zero = 0, count;

	if (!flow)
		return 0;
	config = bpf_map_lookup_elem(&bb_config, &zero);
	if (!config)
		return 0;
	bb_key_of_flow(&search.packet, flow, rtp, ssrc);
	search.set = !!config->rule_set;
	count = config->shapes;
	for (__u32 i = 0; i < BB_MAX_SHAPES && i < count; i++)
		bb_find_in_shape(skb, &search, i);
	return search.rule < BB_MAX_RULES ? search.rule : 0;
}

#endif /* BB_RULES_BPF_H */
