/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is heard of a path: the estimate of one address, for whoever has a sample
 * of it, and how long what was sent waited in our own queue.
 */
#ifndef BB_HEARD_BPF_H
#define BB_HEARD_BPF_H

#include "bb_count.bpf.h"
#include "bb_rtt.h"

/* Not above the sample: nothing is known of the path then. */
#define BB_WAIT_UNKNOWN (~0ULL)

/* How long packets of this session waited in our queue lately, if it is still the same. */
static __always_inline __u64 bb_wait_in(__u32 index, __u32 gen, __u64 now)
{
	struct bb_session *session = bpf_map_lookup_elem(&bb_sessions, &index);

	if (!session || session->way.gen != gen)
		return BB_WAIT_UNKNOWN;
	return bb_wait_lately(session, now);
}

/* The estimate that a sample of this source counts for; NULL: it counts for none. */
static __always_inline struct bb_rtt *bb_rtt_for(const struct bb_addr *addr, __u32 source,
						 __u64 now)
{
	struct bb_rtt fresh, *rtt = bpf_map_lookup_elem(&bb_rtts, addr);

	if (!rtt) {
		bb_make_known(addr);
		__builtin_memset(&fresh, 0, sizeof(fresh));
		bb_rtt_init(&fresh);
		bpf_map_update_elem(&bb_rtts, addr, &fresh, BPF_NOEXIST);
		rtt = bpf_map_lookup_elem(&bb_rtts, addr);
	}
	return rtt && bb_rtt_takes(rtt, source, now) ? rtt : 0;
}

#endif /* BB_HEARD_BPF_H */
