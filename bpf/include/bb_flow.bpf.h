/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The flow cache: what was found out about a 5-tuple, so that rules are
 * searched once per flow and an ADU's packets share their deadline.
 *
 * A table (bb_table.h) without an idle time: a flow takes the way that was used
 * longest ago. So nearly all ways are in use before a flow that still sends
 * loses its own. One that does is looked up again: that costs time, and its ADU
 * under way begins anew.
 *
 * A way may change hands while another CPU still uses it. So each answer is one
 * word with the way's generation: bb_flow_answer reads one, bb_flow_keep writes
 * one. Who comes too late writes nothing. What has no generation (refreshed_ns,
 * flags, leaf) costs the newcomer at most one look-up more, or 10 ms.
 */
#ifndef BB_FLOW_BPF_H
#define BB_FLOW_BPF_H

#include "bb_maps.bpf.h"
#include "bb_core.h"
#include "bb_answer.h"

static __always_inline struct bb_flow *bb_flow_at(__u32 index)
{
	return bpf_map_lookup_elem(&bb_flows, &index);
}

static __always_inline __u64 bb_flow_hash(const struct bb_flow_key *key, __u64 seed)
{
	return bb_hash_key(key, sizeof(*key) / 8, seed);
}

#define BB_T_NAME bb_flow
#define BB_T_ENTRY struct bb_flow
#define BB_T_KEY struct bb_flow_key
#define BB_T_SETS BB_FLOW_SETS
#define BB_T_WAYS BB_FLOW_WAYS
#define BB_T_FIRST 0
#define BB_T_IDLE_NS 0
#define BB_T_BUSY(entry_) 0
#define BB_T_AT(index_) bb_flow_at(index_)
#define BB_T_WIPE(entry_, hash_) bb_wipe_flow(entry_, hash_)
#include "bb_table.h"

#endif /* BB_FLOW_BPF_H */
