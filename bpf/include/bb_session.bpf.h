/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The session table: which packets share a bottleneck, what is known of it.
 *
 * 8-way set associative over the array bb_sessions, filled from here without
 * the agent. A key has two sets and takes a way in the emptier one: at 10,000
 * sessions of 16,384 one set alone would already turn a few in a hundred away. A way changes hands only when it has been idle for a second with
 * nothing queued; its generation then moves on, which invalidates the copies
 * in bb_flows. Slot 0 is no session; slot 1 is never handed out: it is the
 * plain session for what finds no free way.
 *
 * Two CPUs that meet a new key at once may each take a way for it. Both then
 * work, each with its share, until one is idle: rare, and harmless.
 */
#ifndef BB_SESSION_BPF_H
#define BB_SESSION_BPF_H

#include <bpf/bpf_endian.h>
#include "bb_count.bpf.h"
#include "bb_kernel.bpf.h"

#define BB_SESSION_IDLE_NS BB_NSEC_PER_SEC
#define BB_REFRESH_NS 10000000ULL /* how old what a flow knows of its way may be */
#define BB_SETS (BB_MAX_SESSIONS / BB_SESSION_WAYS)
#define BB_TAG_CLAIMED 2 /* a way between two owners; real tags are odd */

static __always_inline struct bb_session *bb_session_at(__u32 index)
{
	return bpf_map_lookup_elem(&bb_sessions, &index);
}

static __always_inline int bb_same_key(const struct bb_session_key *a,
				       const struct bb_session_key *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]));
}

/* Slot of the session `key`, taking a way for it if it has none; BB_SESSION_SHARED if none is free. */
__noinline int bb_find_session(const struct bb_session_key *key, __u64 now)
{
	__u32 hash, tag, old, index;
	struct bb_session *session;
	__u32 sets[2];

	if (!key)
		return BB_SESSION_SHARED;
	hash = bb_hash_words((const __u32 *)key, sizeof(*key) / 4, 0x5E55);
	tag = hash | 1;
	sets[0] = (hash >> 8 & (BB_SETS - 1)) * BB_SESSION_WAYS;
	sets[1] = (bb_mix(hash, 0x5E55) >> 8 & (BB_SETS - 1)) * BB_SESSION_WAYS;

	for (__u32 i = 0; i < 2 * BB_SESSION_WAYS; i++) {
		index = (i < BB_SESSION_WAYS ? sets[0] : sets[1]) + i % BB_SESSION_WAYS;
		session = bb_session_at(index);
		if (session && session->tag == tag && bb_same_key(&session->key, key))
			return index;
	}
	/* In turn from either set: ways fill from the first, so this finds the emptier one. */
	for (__u32 i = 0; i < 2 * BB_SESSION_WAYS; i++) {
		index = (i & 1 ? sets[1] : sets[0]) + i / 2;
		session = bb_session_at(index);
		if (!session || index <= BB_SESSION_SHARED)
			continue;
		old = session->tag;
		if (old == BB_TAG_CLAIMED)
			continue;
		if (old &&
		    (session->counters.queued || session->used_ns + BB_SESSION_IDLE_NS > now))
			continue;
		if (!__sync_bool_compare_and_swap(&session->tag, old, BB_TAG_CLAIMED))
			continue;
		session->gen++;
		session->used_ns = now;
		session->owd_ns = 0;
		session->rate = 0;
		session->next_ns = 0;
		session->sent_by = 0;
		session->wait_from_ns = 0;
		session->heir = 0;
		__builtin_memset(&session->counters, 0, sizeof(session->counters));
		__builtin_memcpy(&session->key, key, sizeof(*key));
		/* Last, and ordered after the rest (a full barrier): now others may find it. */
		__sync_bool_compare_and_swap(&session->tag, BB_TAG_CLAIMED, tag);
		return index;
	}
	bb_global_inc(BB_G_SESSIONS_FULL);
	session = bb_session_at(BB_SESSION_SHARED);
	if (session && !session->tag) {
		session->key.kind = BB_SESSION_PLAIN;
		session->tag = 1;
	}
	if (session)
		session->used_ns = now;
	return BB_SESSION_SHARED;
}

/*
 * The address that stands for a destination in its session: itself, its
 * prefix, or nothing. `bits` counts from the address's own start (IPv4: of 32).
 */
static __always_inline void bb_mask_address(__u8 *out, const __u8 *in, __u32 family, __u32 bits)
{
	__u32 high, low;
	__u64 words[2];

	if (family == 4)
		bits += 96;
	high = bits < 64 ? bits : 64;
	low = bits < 64 ? 0 : bits < 128 ? bits - 64 : 64;
	__builtin_memcpy(words, in, 16);
	/* Shifts by 64 are undefined: halve them. */
	words[0] &= bpf_cpu_to_be64(~(~0ULL >> high / 2 >> (high - high / 2)));
	words[1] &= bpf_cpu_to_be64(~(~0ULL >> low / 2 >> (low - low / 2)));
	__builtin_memcpy(out, words, 16);
}

#endif /* BB_SESSION_BPF_H */
