/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_chain.h - which frames are worth nothing because another one was given up? No maps, no helpers:
 * compiled into the classifier, into the queue and, natively, into bpf/tests.
 *
 * The problem: a frame that refers to one that did not arrive cannot be decoded. To send it
 * takes the link from frames that can.
 *
 * The rule: a link of level 0 that is given up, a key frame too, takes all later frames of its stream
 * along until the next key frame. A link of a higher temporal level takes those of its level and above
 * along, until a frame of a lower one. What nothing needs takes nothing along.
 *
 * It holds where frames tell their roles (bb_role.h), and where an end is in sight: the stream's key
 * frames come at regular intervals, of BB_CHAIN_GROUP frames at most, and the next one is not overdue. An
 * encoder of a call makes key frames on demand only. Its receiver demands one when it misses a packet, and it
 * misses none while nothing is sent: such a picture stood still for 38 s. Where repairs of the
 * stream's packets were seen, the lost frame may still be healed: then nothing is taken along, unless
 * the rule says so. A rule may also forbid all of it.
 */
#ifndef BB_CHAIN_H
#define BB_CHAIN_H

#include "bb_codec.h"
#include "bb_tables_abi.h"

/* Frames of the longest group of which the rest is not sent: 10 s at 60 frames/s. */
#define BB_CHAIN_GROUP 600

/* Level of a link, and above all of them for what nothing needs. */
bb_inline __u32 bb_chain_level(enum bb_role role)
{
	return role <= BB_ROLE_LINK ? 0 : role - BB_ROLE_LINK;
}

/*
 * May a frame of this stream that is given up take others along? Is there an end in sight if it does?
 * `rule_flags`: BB_RULE_* of its rule.
 */
bb_inline int bb_chain_ends(const struct bb_video *v, __u32 rule_flags)
{
	if (rule_flags & BB_RULE_CHAIN_OFF)
		return 0;
	return v->key & BB_VIDEO_STEADY && v->group <= BB_CHAIN_GROUP &&
	       2 * (__u32)v->position <= 3 * (__u32)v->group &&
	       (!(v->key & BB_VIDEO_HEALED) || rule_flags & BB_RULE_CHAIN_SKIP);
}

/* The frame with this number was given up. Returns whether others depend on it. */
bb_inline int bb_chain_lost(struct bb_video *v, __u16 number, enum bb_role role)
{
	__u32 level = bb_chain_level(role);

	if (role == BB_ROLE_NONE || role >= BB_ROLE_LEAF || (v->broken && v->broken <= level + 1))
		return 0;
	v->broken_at = number;
	v->broken = 1 + level;
	return 1;
}

/* Does the frame with this number need one that was given up, so that it is skipped? A key frame ends that. */
bb_inline int bb_chain_broken(struct bb_video *v, __u16 number, enum bb_role role)
{
	__s16 behind = number - v->broken_at;

	if (!v->broken || role == BB_ROLE_NONE || behind <= 0)
		return 0;
	if (role != BB_ROLE_KEY && bb_chain_level(role) + 1 >= v->broken) {
		/* Once for all packets of a frame; no ADU has the number 0. */
		v->skipped += v->skipped_at != number;
		v->skipped_at = number;
		return 1;
	}
	v->broken = 0;
	return 0;
}

#endif /* BB_CHAIN_H */
