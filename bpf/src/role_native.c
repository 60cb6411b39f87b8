// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* bb_role.h and bb_chain.h for the native property tests. */
#include "bb_chain.h"
#include "bb_role.h"

/* As bb_read_video does. `bytes` has BB_ROLE_BYTES, `ext` BB_EXT_BYTES; n and ext_n of them are the packet's. */
__u32 bbn_video_read(struct bb_video *video, const __u8 *bytes, __u32 n, const __u8 *ext,
		     __u32 ext_n, int two_byte, __u32 time, int first, int last)
{
	struct bb_seen seen = { .payload = bytes, .n = n, .first = !!first, .last = !!last };
	struct bb_ext e = { .n = ext_n, .two_byte = !!two_byte };

	__builtin_memcpy(e.b, ext, sizeof(e.b));
	if (first)
		bb_video_frame(video, time);
	if (video->codec == BB_CODEC_OPAQUE)
		return BB_ROLE_NONE;
	if (video->codec)
		return bb_video_role(video, bb_codec_says(video, &seen, &e, video->codec - 1));
	for (__u32 c = 0; c < BB_CODECS; c++)
		bb_codec_says(video, &seen, &e, c);
	return BB_ROLE_NONE;
}

__u32 bbn_role_priority(const struct bb_video *video, __u32 role, int refuses)
{
	return bb_role_priority(video, role, refuses);
}

__u32 bbn_role_priority_told(__u32 roles, __u32 role)
{
	return bb_role_priority_told(roles, role);
}

int bbn_chain_lost(struct bb_video *video, __u16 number, __u32 role)
{
	return bb_chain_lost(video, number, role);
}

int bbn_chain_broken(struct bb_video *video, __u16 number, __u32 role)
{
	return bb_chain_broken(video, number, role);
}

int bbn_chain_ends(const struct bb_video *video, __u32 rule_flags)
{
	return bb_chain_ends(video, rule_flags);
}
