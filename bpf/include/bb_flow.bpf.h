/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The flow cache: what was found out about a 5-tuple, so that rules are
 * searched once per flow and an ADU's packets share their deadline.
 *
 * Set associative over the array bb_flows; an LRU hash map did the same for more
 * instructions (`bestby-lab core --only cost` before and after commit da77c50).
 * A key has two sets and takes the way that was used longest ago; so nearly all
 * ways are in use before a flow that still sends loses its own. One that does is
 * looked up again: that costs time, and its ADU under way begins anew.
 *
 * As in the kernel's LRU maps a way may change hands while another CPU still
 * reads it: that one packet is then judged as the newcomer's.
 */
#ifndef BB_FLOW_BPF_H
#define BB_FLOW_BPF_H

#include "bb_maps.bpf.h"
#include "bb_core.h"

#define BB_FLOW_TAG_CLAIMED 2 /* a way between two owners; real tags are odd */

/* Which sets, from the bits of the hash that the tag does not have. */
#define bb_flow_set_1(hash_) ((__u32)((hash_) >> 32) & (BB_FLOW_SETS - 1))
#define bb_flow_set_2(hash_) ((__u32)((hash_) >> 48) & (BB_FLOW_SETS - 1))
#define bb_flow_tag(hash_) ((__u32)(hash_) | 1)

static __always_inline __u64 bb_flow_hash(const struct bb_flow_key *key)
{
	return bb_hash64((const __u64 *)key, sizeof(*key) / 8);
}

static __always_inline struct bb_flow *bb_flow_way(__u32 set, __u32 way)
{
	struct bb_flow_set *at = bpf_map_lookup_elem(&bb_flows, &set);

	if (!at)
		return 0;
	/* clang must not compute the address before the check. */
	asm volatile("" : "+r"(way));
	return &at->way[way & (BB_FLOW_WAYS - 1)];
}

static __always_inline int bb_same_flow(const struct bb_flow_key *a, const struct bb_flow_key *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ y[4]) |
		 (x[5] ^ y[5]));
}

static __always_inline struct bb_flow *bb_flow_in(__u32 set, __u32 tag,
						  const struct bb_flow_key *key)
{
	struct bb_flow_set *at = bpf_map_lookup_elem(&bb_flows, &set);
	struct bb_flow *flow;
	__u32 way;

	if (!at)
		return 0;
	if (at->tag[0] == tag)
		way = 0;
	else if (at->tag[1] == tag)
		way = 1;
	else if (at->tag[2] == tag)
		way = 2;
	else if (at->tag[3] == tag)
		way = 3;
	else
		return 0;
	/* One address computed at run time, or the verifier follows four. */
	asm volatile("" : "+r"(way));
	flow = &at->way[way & (BB_FLOW_WAYS - 1)];
	return bb_same_flow(&flow->key, key) ? flow : 0;
}

_Static_assert(BB_FLOW_WAYS == 4 && sizeof(struct bb_flow_key) == 48, "as unrolled above");

/* The flow of this key, or NULL. */
static __always_inline struct bb_flow *bb_find_flow(const struct bb_flow_key *key, __u64 hash)
{
	struct bb_flow *flow = bb_flow_in(bb_flow_set_1(hash), bb_flow_tag(hash), key);

	return flow ?: bb_flow_in(bb_flow_set_2(hash), bb_flow_tag(hash), key);
}

/* Other CPUs may each take the way that looked best; beyond so many at once a packet goes as plain. */
#define BB_FLOW_TRIES 4

/*
 * Takes a way for a new flow: set * BB_FLOW_WAYS + way, or -1 if other CPUs are
 * just taking all of them. The flow is not a current one, whatever bb_config
 * says: its rule is still to be looked for. Where another CPU has just added
 * this very flow, that is the one.
 */
__noinline int bb_add_flow(const struct bb_flow_key *key, __u64 hash, __u64 now)
{
	__u32 tag = bb_flow_tag(hash), best, old, set, way, *claim;
	struct bb_flow_set *at;
	struct bb_flow *flow;
	__u64 oldest;

	if (!key)
		return -1;
	for (__u32 tries = 0; tries < BB_FLOW_TRIES; tries++) {
		best = ~0U;
		oldest = ~0ULL;
		for (__u32 i = 0; i < 2 * BB_FLOW_WAYS; i++) {
			set = i < BB_FLOW_WAYS ? bb_flow_set_1(hash) : bb_flow_set_2(hash);
			way = i & (BB_FLOW_WAYS - 1);
			at = bpf_map_lookup_elem(&bb_flows, &set);
			if (!at || at->tag[way] == BB_FLOW_TAG_CLAIMED)
				continue;
			if (at->tag[way] == tag && bb_same_flow(&at->way[way].key, key))
				return set * BB_FLOW_WAYS + way;
			/* Another key with this very tag would hide ours: it goes first. */
			if (!at->tag[way] || at->tag[way] == tag) {
				best = i;
				break;
			}
			if (at->way[way].used_ns < oldest) {
				oldest = at->way[way].used_ns;
				best = i;
			}
		}
		if (best >= 2 * BB_FLOW_WAYS)
			return -1;
		set = best < BB_FLOW_WAYS ? bb_flow_set_1(hash) : bb_flow_set_2(hash);
		way = best & (BB_FLOW_WAYS - 1);
		at = bpf_map_lookup_elem(&bb_flows, &set);
		if (!at)
			return -1;
		claim = &at->tag[way];
		old = *claim;
		if (old == BB_FLOW_TAG_CLAIMED ||
		    !__sync_bool_compare_and_swap(claim, old, BB_FLOW_TAG_CLAIMED))
			continue;
		flow = &at->way[way];
		__builtin_memset(flow, 0, sizeof(*flow));
		flow->key = *key;
		flow->used_ns = now;
		flow->hash = (__u32)hash;
		flow->rule_gen = ~0U;
		flow->session = ~0U; /* no slot: looked up with the first packet */
		flow->plain_session = ~0U;
		/* Last, and ordered after the rest (a full barrier): now others may find it. */
		__sync_bool_compare_and_swap(claim, BB_FLOW_TAG_CLAIMED, tag);
		return set * BB_FLOW_WAYS + way;
	}
	return -1;
}

#endif /* BB_FLOW_BPF_H */
