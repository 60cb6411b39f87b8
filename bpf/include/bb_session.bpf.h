/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The session table: which packets share a bottleneck, what is known of it. And
 * the users: who shares with whom what media leave.
 *
 * Both are tables of bb_table.h over arrays, filled from here without the agent.
 * A session's way changes hands when it has been idle for a second with nothing
 * queued; its generation then moves on, which invalidates the copies in
 * bb_flows. A user's way must be idle for longer than its sessions' are, which
 * look for their user again every 10 ms. Session 0 is none; session 1 is never
 * handed out: it is the plain session for what finds no free way. User 0 is
 * nobody, and all those for whom no way is free.
 *
 * Anybody can make sessions that are not media's, one for each destination. So the first
 * ways of each set are media's alone, who take those first. A media session that makes a
 * pause (DTX) keeps its way wherever that is: for what is not media, it is idle much later.
 */
#ifndef BB_SESSION_BPF_H
#define BB_SESSION_BPF_H

#include <bpf/bpf_endian.h>
#include "bb_count.bpf.h"
#include "bb_kernel.bpf.h"
#include "bb_table.h"

#define BB_SESSION_IDLE_NS BB_NSEC_PER_SEC
/* Of media, when something else asks for the way. */
#define BB_MEDIA_IDLE_NS (60 * BB_NSEC_PER_SEC)
#define BB_USER_IDLE_NS (2 * BB_SESSION_IDLE_NS)
#define BB_REFRESH_NS 10000000ULL /* how old what a flow knows of its way may be */

static __always_inline struct bb_session *bb_session_at(__u32 index)
{
	return bpf_map_lookup_elem(&bb_sessions, &index);
}

static __always_inline struct bb_user *bb_user_at(__u32 index)
{
	return bpf_map_lookup_elem(&bb_users, &index);
}

static __always_inline void bb_wipe_session(struct bb_session *session)
{
	session->owd_ns = 0;
	session->rate = 0;
	session->next_ns = 0;
	session->next_rate = 0;
	session->sent_by = 0;
	session->turn = 0;
	session->wait_from_ns = 0;
	session->user = BB_USER_NONE;
	__builtin_memset(&session->counters, 0, sizeof(session->counters));
}

#define BB_T_NAME bb_session
#define BB_T_ENTRY struct bb_session
#define BB_T_KEY struct bb_session_key
#define BB_T_SETS (BB_MAX_SESSIONS / BB_SESSION_WAYS)
#define BB_T_WAYS BB_SESSION_WAYS
#define BB_T_FIRST (BB_SESSION_SHARED + 1)
#define BB_T_IDLE_NS BB_SESSION_IDLE_NS
#define BB_T_BUSY(entry_) (*(volatile __u64 *)&(entry_)->counters.queued)
#define BB_T_LEAVES(key_) ((key_)->media ? 0 : BB_MEDIA_WAYS)
#define BB_T_IDLE_OF(entry_, leaves_)                                    \
	(BB_SESSION_IDLE_NS + (__u64)((leaves_) * (entry_)->key.media) * \
				      ((BB_MEDIA_IDLE_NS - BB_SESSION_IDLE_NS) / BB_MEDIA_WAYS))
#define BB_T_AT(index_) bb_session_at(index_)
#define BB_T_WIPE(entry_, hash_) bb_wipe_session(entry_)
#include "bb_table.h"

#define BB_T_NAME bb_user
#define BB_T_ENTRY struct bb_user
#define BB_T_KEY struct bb_user_key
#define BB_T_SETS (BB_MAX_USERS / BB_USER_WAYS)
#define BB_T_WAYS BB_USER_WAYS
#define BB_T_FIRST (BB_USER_NONE + 1)
#define BB_T_IDLE_NS BB_USER_IDLE_NS
#define BB_T_BUSY(entry_) 0
#define BB_T_AT(index_) bb_user_at(index_)
#define BB_T_WIPE(entry_, hash_) ((void)(entry_))
#include "bb_table.h"

static __always_inline __u64 bb_seed(void)
{
	__u32 zero = 0;
	struct bb_config *config = bpf_map_lookup_elem(&bb_config, &zero);

	return config ? config->seed : 0;
}

/* Index of the session `key`, taking a way for it if it has none; BB_SESSION_SHARED if none is free. */
__noinline int bb_find_session(const struct bb_session_key *key, __u64 now, __u32 *gen)
{
	struct bb_session *session;
	__u64 hash;
	int index;

	if (!key || !gen)
		return BB_SESSION_SHARED;
	hash = bb_hash_key(key, sizeof(*key) / 8, bb_seed());
	index = bb_session_find(key, hash, now, gen);
	if (index < 0)
		index = bb_session_add(key, hash, now, gen);
	if (index > BB_SESSION_SHARED)
		return index;
	bb_global_inc(BB_G_SESSIONS_FULL);
	*gen = 0;
	session = bb_session_at(BB_SESSION_SHARED);
	if (session && !session->way.tag) {
		session->key.kind = BB_SESSION_PLAIN;
		session->way.tag = 1;
	}
	if (session)
		bb_way_is(&session->way, 0, now);
	return BB_SESSION_SHARED;
}

/* Index of the user `key`; BB_USER_NONE if no way is free. */
__noinline int bb_find_user(const struct bb_user_key *key, __u64 now)
{
	__u32 gen = 0;
	__u64 hash;
	int index;

	if (!key)
		return BB_USER_NONE;
	hash = bb_hash_key(key, sizeof(*key) / 8, bb_seed());
	index = bb_user_find(key, hash, now, &gen);
	if (index < 0)
		index = bb_user_add(key, hash, now, &gen);
	if (index > BB_USER_NONE)
		return index;
	bb_global_inc(BB_G_USERS_FULL);
	return BB_USER_NONE;
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
	bb_copy_address(words, in);
	/* Shifts by 64 are undefined: halve them. */
	words[0] &= bpf_cpu_to_be64(~(~0ULL >> high / 2 >> (high - high / 2)));
	words[1] &= bpf_cpu_to_be64(~(~0ULL >> low / 2 >> (low - low / 2)));
	bb_copy_address(out, words);
}

#endif /* BB_SESSION_BPF_H */
