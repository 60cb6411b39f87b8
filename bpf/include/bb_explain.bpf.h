/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * `bestby explain` asks the classifier itself. For each question the agent loads this
 * object once more: over the rules, delays and settings in force, with flows, sessions,
 * models and counters of its own. BPF_PROG_TEST_RUN gives it the frame that was
 * described, and nobody else notices.
 *
 * bb_told says what a description says of the sender, and bb_explanation takes the
 * answer. Both are for that instance alone: at an interface bb_told is constant, and the
 * verifier takes what depends on it out of the program.
 */
#ifndef BB_EXPLAIN_BPF_H
#define BB_EXPLAIN_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "bb_abi.h"

const volatile struct bb_told bb_told = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct bb_explained);
	__uint(max_entries, 1);
} bb_explanation SEC(".maps");

/* Where the answer goes; NULL in an instance that is not asked. */
static __always_inline struct bb_explained *bb_explanation_here(void)
{
	__u32 zero = 0;

	return bb_told.explain ? bpf_map_lookup_elem(&bb_explanation, &zero) : 0;
}

#endif /* BB_EXPLAIN_BPF_H */
