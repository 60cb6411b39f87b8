// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* bb_frame.h for the native property tests. */
#include "bb_frame.h"

__u32 bbn_frame_place(struct bb_stream *stream, struct bb_piece *piece, __u32 *which)
{
	return bb_frame_place(stream, piece, which);
}

int bbn_frame_begin(struct bb_stream *stream, const struct bb_piece *piece, __u32 *which)
{
	return bb_frame_begin(stream, piece, which);
}

int bbn_frame_is_large(const struct bb_stream *stream, __u32 bytes)
{
	return bb_frame_is_large(stream, bytes);
}

int bbn_frame_alone(const struct bb_stream *stream, __u32 place)
{
	return bb_frame_alone(stream, place);
}

int bbn_repair_learn(struct bb_stream *stream, int hit, __u32 original, __s64 age)
{
	return bb_repair_learn(stream, hit, original, age);
}

int bbn_repeats(const struct bb_stream *original, __u32 id, __u16 seq, __u32 bytes)
{
	return bb_repeats(original, id, seq, bytes);
}

int bbn_time_is_old(__u32 now, __u32 source)
{
	return bb_time_is_old(now, source);
}

__u32 bbn_adu_id(__u32 stream, const struct bb_stream_adu *adu)
{
	return bb_adu_id(stream, adu);
}

int bbn_adu_which(__u64 head, __u32 id)
{
	return bb_adu_which(head, id);
}
