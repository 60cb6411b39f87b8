/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_tc_leaf.h - mode tc: which leaf of the HTB tree does a packet go to, and how much does
 * each leaf hold? No maps, no helpers: compiled into the classifier and, natively, into
 * the agent and bpf/tests/tc_model.rs.
 *
 * The tree sends in strict order of its leaves, and each leaf in order of arrival. So the
 * leaf decides who waits for whom. By the deadline alone what matters most would go at the
 * last moment: a receiver's jitter buffer adds that to every call, and whatever the path
 * adds makes it late. By priority alone a file of priority 1 that may take 5 s would go
 * before a call of priority 4. So a lifetime counts by its priority: an eighth of itself
 * at priority 0, some 1.7 times more with each step to 4, two and a half times itself at 7.
 * Priorities 4 to 6 share the order of their deadlines: a video whose frames have all
 * three, by how much is lost with them, would find its own frames of a second ago in its way.
 * What never expires and is important (0 to 2) goes first: that is the operator's word.
 */
#ifndef BB_TC_LEAF_H
#define BB_TC_LEAF_H

#include "bb_core.h"

/* A leaf has room for two packets of the largest size at least, however slow the link. */
#define BB_TC_LEAF_MIN_BYTES (1 << 17)

/* Upper bounds of the urgency of leaves 1..7; leaf 0 is control, leaf 7 the rest. */
static const __u64 bb_leaf_ns[BB_TC_LEAVES] = {
	0,
	40000000ULL,
	100000000ULL,
	250000000ULL,
	600000000ULL,
	1500000000ULL,
	5000000000ULL,
	~0ULL / 2,
};

/* A priority for which a lifetime counts as itself. */
#define BB_TC_NEUTRAL 4

/* 1/64: what a packet of each priority counts its lifetime as. */
static const __u16 bb_tc_weight[BB_PRIORITIES] = { 8, 13, 23, 38, 64, 64, 64, 160 };

/* The less, the earlier; 0 = after all that expires. `lifetime` 0 = none. */
bb_inline __u64 bb_tc_urgency(__u64 lifetime, __u32 priority)
{
	lifetime = lifetime < 1ULL << 48 ? lifetime : 1ULL << 48;
	priority &= BB_PRIORITIES - 1;
	asm volatile("" : "+r"(priority));
	if (!lifetime)
		return priority < BB_PRIORITY_DEFAULT;
	return lifetime * bb_tc_weight[priority & (BB_PRIORITIES - 1)] / 64 + 1;
}

bb_inline __u64 bb_leaf_bound(__u32 leaf)
{
	leaf &= BB_TC_LEAVES - 1;
	/* Else clang compares a copy, and the verifier does not know this one's range. */
	asm volatile("" : "+r"(leaf));
	return bb_leaf_ns[leaf & (BB_TC_LEAVES - 1)];
}

/*
 * Leaf for a lifetime (0 = none) and a priority, given the leaf in use by that priority
 * (0 = none): it is kept within a quarter beyond its bounds, so that deadlines near one do
 * not flip a flow, and its packets' order, between two leaves.
 */
bb_inline __u8 bb_tc_leaf(__u64 lifetime, __u32 priority, __u8 leaf)
{
	__u64 ns = bb_tc_urgency(lifetime, priority);
	__u8 fresh = BB_TC_LEAVES - 1;

	if (!ns)
		return BB_TC_LEAVES - 1;
	if (leaf >= 1 && leaf < BB_TC_LEAVES) {
		__u64 low = bb_leaf_bound(leaf - 1U);
		__u64 high = bb_leaf_bound(leaf);

		if (ns > low - low / 4 && ns <= high + high / 4)
			return leaf;
	}
	for (__u8 i = BB_TC_LEAVES - 2; i >= 1; i--)
		if (ns <= bb_leaf_ns[i])
			fresh = i;
	return fresh;
}

/*
 * Bytes that a leaf's queue below holds at most; the agent sets its limit to the
 * same: 5 t where the leaf's bound is t, since lifetimes of important packets are
 * longer than that; 10 s at most, and for leaf 7; a second for control and for plain
 * traffic. The interface's own limit holds, too.
 */
bb_inline __u64 bb_tc_leaf_bytes(__u32 leaf, __u64 rate, __u64 limit_bytes)
{
	__u64 ms = 1000, bytes;

	if (leaf == BB_TC_LEAVES - 1)
		ms = 10000;
	else if (leaf && leaf < BB_TC_LEAVES)
		ms = bb_leaf_bound(leaf) / 200000;
	ms = ms < 10000 ? ms : 10000;
	/* No rate is beyond 2^44 bytes/s; bb_tx_time holds below 2^34 bytes. */
	bytes = (rate < 1ULL << 44 ? rate : 1ULL << 44) * ms / 1000;
	if (limit_bytes && bytes > limit_bytes)
		bytes = limit_bytes;
	if (bytes > 1ULL << 31)
		bytes = 1ULL << 31; /* struct tc_fifo_qopt has 32 bits */
	return bytes > BB_TC_LEAF_MIN_BYTES ? bytes : BB_TC_LEAF_MIN_BYTES;
}

#endif /* BB_TC_LEAF_H */
