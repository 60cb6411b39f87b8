/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fragments: only a datagram's first one has the ports, and so the rule, the ADU
 * and the deadline. The others find them in bb_frags under the addresses and the
 * identification; one that overtakes the first, or whose first is forgotten, is
 * plain traffic.
 */
#ifndef BB_FRAGMENT_BPF_H
#define BB_FRAGMENT_BPF_H

#include "bb_maps.bpf.h"
#include "bb_meta.bpf.h"
#include "bb_parse.bpf.h"

/*
 * The identification comes round again: soon where much is sent, and a datagram
 * whose first fragment is remembered may have been the last of its kind. What is
 * sent together comes together.
 */
#define BB_FRAG_MAX_AGE_NS BB_NSEC_PER_SEC

static __always_inline void bb_frag_key_of(struct bb_frag_key *key, const struct bb_packet *packet)
{
	__builtin_memset(key, 0, sizeof(*key));
	bb_copy_address(key->src, packet->key.src);
	bb_copy_address(key->dst, packet->key.dst);
	key->id = packet->frag_id;
	key->ifindex = packet->key.ifindex;
	key->proto = packet->frag_proto;
}

/*
 * A later fragment takes the ports of its datagram's first, if that was seen,
 * and, with meta, its ADU and deadline.
 */
__noinline int bb_join_fragment(struct bb_packet *packet, struct bb_meta *meta)
{
	struct bb_frag_key key __attribute__((aligned(8)));
	struct bb_frag *known;

	if (!packet)
		return 0;
	bb_frag_key_of(&key, packet);
	known = bpf_map_lookup_elem(&bb_frags, &key);
	if (!known || bpf_ktime_get_ns() - known->seen_ns > BB_FRAG_MAX_AGE_NS)
		return 0;
	if (meta) {
		meta->adu = known->adu;
		meta->deadline = known->deadline;
	}
	packet->key.sport = known->sport;
	packet->key.dport = known->dport;
	packet->key.proto = known->proto;
	return 1;
}

__noinline int bb_remember_fragment(const struct bb_packet *packet, const struct bb_meta *meta)
{
	struct bb_frag_key key __attribute__((aligned(8)));
	struct bb_frag first = {};

	if (!packet || !meta)
		return 0;
	bb_frag_key_of(&key, packet);
	first.sport = packet->key.sport;
	first.dport = packet->key.dport;
	first.proto = packet->key.proto;
	first.adu = meta->adu;
	first.deadline = meta->deadline;
	first.seen_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&bb_frags, &key, &first, BPF_ANY);
	return 0;
}

#endif /* BB_FRAGMENT_BPF_H */
