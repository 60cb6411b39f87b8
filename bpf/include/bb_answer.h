/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * The answers that a flow keeps (struct bb_flow): one 64-bit word each, the
 * generation of the flow's way on top. A word of another generation is another
 * flow's. It is compared-and-swapped with the word that was read before the
 * answer was looked for, so a CPU that is slow finds the word changed and leaves
 * it alone. Compiled natively, too: bpf/tests/table.rs.
 */
#ifndef BB_ANSWER_H
#define BB_ANSWER_H

#include "bb_table.h"

#define BB_ANSWER_BITS 48
#define BB_ANSWER_MASK ((1ULL << BB_ANSWER_BITS) - 1)

#define bb_answer_of(gen_, bits_) ((__u64)(gen_) << BB_ANSWER_BITS | ((bits_) & BB_ANSWER_MASK))

/* The word as it is; it is the flow's own if bb_answer_is. */
bb_inline __u64 bb_answer(const __u64 *word)
{
	BB_STEP();
	return *(const volatile __u64 *)word;
}

bb_inline int bb_answer_is(__u64 word, __u32 gen)
{
	return word >> BB_ANSWER_BITS == (gen & 0xFFFF);
}

/* Keeps the answer, if the word is still the flow's and still the one that was read. */
bb_inline void bb_keep_answer(__u64 *word, __u64 before, __u32 gen, __u64 bits)
{
	__u64 after = bb_answer_of(gen, bits);

	if (!bb_answer_is(before, gen) || before == after)
		return;
	BB_STEP();
	__sync_bool_compare_and_swap(word, before, after);
}

/* A session's index and generation as an answer. */
#define bb_answer_session(index_, gen_) ((__u64)(index_) | (__u64)(__u32)(gen_) << 16)
#define bb_answer_index(word_) ((__u32)(word_) & 0xFFFF)
#define bb_answer_gen(word_) ((__u32)((word_) >> 16))

/*
 * Under which rules an answer was found: their generation. Where rules compare cgroups,
 * that of the sender's cgroup, too: two senders may use one 5-tuple, one after the other,
 * and what was found for one is no answer for the other. `seed`: nobody may choose cgroups
 * that are taken for each other. `cgroup`: 0 = no rule compares them.
 */
bb_inline __u32 bb_rule_gen(__u32 rule_gen, __u64 cgroup, __u64 seed)
{
	return cgroup ? rule_gen ^ (__u32)((cgroup ^ seed) * 0x9E3779B97F4A7C15ULL >> 40) :
			rule_gen;
}

/* A rule, looked for under `rule_gen` for the interface in `slot`, as an answer. */
#define bb_answer_rule(rule_, slot_, rule_gen_) \
	((__u64)(rule_) | (__u64)(slot_) << 16 | (__u64)((rule_gen_) & 0xFFFFFF) << 24)
#define BB_NO_SLOT 0xFF

/* All but way and key, of a way that is claimed. */
bb_inline void bb_wipe_flow(struct bb_flow *flow, __u64 hash)
{
	__u32 gen = flow->way.gen;

	flow->rule = bb_answer_of(gen, bb_answer_rule(0, BB_NO_SLOT, 0));
	BB_STEP();
	flow->session = bb_answer_of(gen, BB_SESSION_NONE);
	flow->plain = bb_answer_of(gen, BB_SESSION_NONE);
	flow->owd_ns = bb_answer_of(gen, 0);
	flow->refreshed_ns = 0;
	flow->plain_refreshed_ns = 0;
	flow->hash = hash;
	flow->measured = 0;
	flow->media_gen = 0;
	flow->rtcp_gen = 0;
	flow->stream = 0;
	flow->plain_until_ns = 0;
	flow->leaf = 0;
	flow->untimely = 0;
	flow->srt = 0;
	flow->srt_misses = 0;
	flow->due = 0;
}

#endif /* BB_ANSWER_H */
