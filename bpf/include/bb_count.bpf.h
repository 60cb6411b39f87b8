/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Accounting shared by the two places that decide: the qdisc (mode qdisc) and
 * the classifier (mode tc). Atomic, because several transmit queues or CPUs
 * share a rule and a session; uncontended below one root qdisc.
 */
#ifndef BB_COUNT_BPF_H
#define BB_COUNT_BPF_H

#include "bb_maps.bpf.h"
#include "bb_core.h"

#define bb_add(counter, value) ((void)__sync_fetch_and_add(&(counter), (value)))

bb_inline void bb_global_inc(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&bb_global, &which);

	if (counter)
		bb_add(*counter, 1);
}

/* May anything be known of the address? */
bb_inline int bb_is_known(const void *addr)
{
	__u32 index = bb_known_index(addr), *known = bpf_map_lookup_elem(&bb_known, &index);

	return known && *known;
}

/* Before the address gets an entry in bb_sock_peers or bb_rtts. */
bb_inline void bb_make_known(const void *addr)
{
	__u32 index = bb_known_index(addr), *known = bpf_map_lookup_elem(&bb_known, &index);

	if (known)
		*known = 1;
}

/*
 * One packet fewer is queued. Counters that began anew meanwhile (a socket's, which others
 * pushed out) have not counted that it came: then they stay at 0.
 */
bb_inline void bb_count_out(struct bb_counters *c)
{
	if (!__sync_fetch_and_add(&c->queued, -1ULL))
		bb_add(c->queued, 1);
}

bb_inline void bb_count_in(struct bb_counters *c, __u32 bytes)
{
	bb_add(c->packets_in, 1);
	bb_add(c->bytes_in, bytes);
	bb_add(c->queued, 1);
}

bb_inline void bb_count_sent(struct bb_counters *c, __u32 bytes, int stale)
{
	bb_add(c->packets_sent, 1);
	bb_add(c->bytes_sent, bytes);
	bb_count_out(c);
	if (stale)
		bb_add(c->sent_stale, 1);
}

/* It came, and went at once: what was alone all the time. */
bb_inline void bb_count_passed(struct bb_counters *c, __u32 bytes)
{
	bb_add(c->packets_in, 1);
	bb_add(c->bytes_in, bytes);
	bb_add(c->packets_sent, 1);
	bb_add(c->bytes_sent, bytes);
}

/* clang would check a reason once and keep it on the stack, where the verifier forgets its bound. */
#define bb_keep_check(value) asm volatile("" : "+r"(value))

bb_inline void bb_count_drop(struct bb_counters *c, __u32 reason)
{
	bb_count_out(c);
	bb_keep_check(reason);
	if (reason < BB_REASONS)
		bb_add(c->dropped[reason], 1);
	else
		bb_add(c->chain, 1);
}

#endif /* BB_COUNT_BPF_H */
