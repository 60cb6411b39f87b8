// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* bb_role.h and bb_chain.h for the native property tests. */
#include "bb_chain.h"

__u32 bbn_video_read(struct bb_video *video, const __u8 *bytes, __u32 n, int first, int last)
{
	return bb_video_read(video, bytes, n, first, last);
}

__u32 bbn_role_priority(const struct bb_video *video, __u32 role, int refuses)
{
	return bb_role_priority(video, role, refuses);
}

int bbn_chain_lost(struct bb_video *video, __u16 number, __u32 role)
{
	return bb_chain_lost(video, number, role);
}

int bbn_chain_broken(struct bb_video *video, __u16 number, __u32 role)
{
	return bb_chain_broken(video, number, role);
}

int bbn_chain_ends(const struct bb_video *video)
{
	return bb_chain_ends(video);
}
