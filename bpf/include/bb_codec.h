/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_codec.h - what does a packet's payload say of its frame, if it is of a codec? No maps, no
 * helpers: compiled into the classifier and, natively, into bpf/tests.
 *
 * Each function reads the first bytes behind RTP's header as of one codec, and says: the role of
 * the frame, whether a unit begins and ends here, the temporal level; or that it is not of this codec.
 * Whether it is, bb_role.h decides.
 */
#ifndef BB_CODEC_H
#define BB_CODEC_H

#include "bb_core.h"

/* Bytes of the payload that are looked at. */
#define BB_ROLE_BYTES 12

/* What a payload says, beside its role: */
#define BB_ROLE_SLICE 0x10 /* it says so of the picture, and is no parameter set */
#define BB_SAYS_WRONG 0x100 /* it is not of this codec */
#define BB_SAYS_FIRST 0x200 /* a unit, or a frame, begins here */
#define BB_SAYS_LAST 0x400 /* a unit ends here */
#define BB_SAYS_PART 0x800 /* units may be parts of a frame: those of a spatial layer, or OBUs */
#define BB_SAYS_LEVEL_SHIFT 16 /* temporal level, 3 bits */
#define BB_SAYS_LEVEL(says_) ((says_) >> BB_SAYS_LEVEL_SHIFT & 7)
#define BB_SAYS_NEXT_SHIFT 24 /* header extensions: the id that is tried next */

#define BB_ROLE_OF(says_) ((says_) & 0xF)

/* Of a frame that others may need, by its temporal level. */
bb_inline __u32 bb_link_of(__u32 level)
{
	return level == 0 ? BB_ROLE_LINK : level == 1 ? BB_ROLE_LINK1 : BB_ROLE_LINK2;
}

/* The same, of the highest level that was seen: no frame needs it. */
bb_inline __u32 bb_role_of_level(__u32 level, __u32 levels)
{
	return level && level >= levels ? BB_ROLE_LEAF : bb_link_of(level);
}

/* ---- H.264, RFC 6184 ---- */

/* NAL units that streams have: slices, parameter sets, SEI, delimiters, filler, SVC's prefix. */
#define BB_H264_TYPES 0x0010FFFEU

bb_inline __u32 bb_h264_unit(__u8 header, __u32 type)
{
	if (type == 5)
		return BB_ROLE_KEY | BB_ROLE_SLICE;
	if (type == 7 || type == 8)
		return BB_ROLE_KEY;
	if (type >= 1 && type <= 4)
		return (header & 0x60 ? BB_ROLE_LINK : BB_ROLE_LEAF) | BB_ROLE_SLICE;
	return type < 32 && BB_H264_TYPES >> type & 1 ? BB_ROLE_NONE : BB_SAYS_WRONG;
}

/* Of a payload of n bytes: its role, what else it says, and in *unit the fragmented unit's type. */
bb_inline __u32 bb_h264_says(const __u8 *b, __u32 n, __u8 *unit)
{
	__u32 type = b[0] & 31, says;

	*unit = 0;
	if (n < 2 || b[0] & 0x80)
		return BB_SAYS_WRONG;
	if (type == 24) { /* STAP-A: the first unit; behind a delimiter the second one */
		if (n < 4 || b[3] & 0x80 || (b[3] & 31) > 23)
			return BB_SAYS_WRONG;
		says = bb_h264_unit(b[3], b[3] & 31);
		if ((b[3] & 31) == 9 && !b[1] && b[2] == 2 && n >= 8)
			says = bb_h264_unit(b[7], b[7] & 31);
		return says | BB_SAYS_FIRST | BB_SAYS_LAST;
	}
	if (type == 28) { /* FU-A */
		type = b[1] & 31;
		*unit = 0x80 | type;
		if (b[1] & 0x20 || b[1] >> 6 == 3)
			return BB_SAYS_WRONG;
		says = bb_h264_unit(b[0], type);
		if (b[1] & 0x80)
			says |= BB_SAYS_FIRST;
		if (b[1] & 0x40)
			says |= BB_SAYS_LAST;
		return says;
	}
	return bb_h264_unit(b[0], type) | BB_SAYS_FIRST | BB_SAYS_LAST;
}

/* ---- H.265, RFC 7798 ---- */

/* `levels`: the highest temporal level seen. */
bb_inline __u32 bb_h265_unit(__u32 type, __u32 level, __u32 levels)
{
	if (type >= 16 && type <= 21)
		return BB_ROLE_KEY | BB_ROLE_SLICE;
	if (type >= 32 && type <= 34)
		return BB_ROLE_KEY;
	if (type == 35 || (type >= 38 && type <= 40))
		return BB_ROLE_NONE;
	if (type > 9)
		return BB_SAYS_WRONG;
	/* Even types are no references of their own level: no frame needs one of the highest. */
	if (!(type & 1) && level >= levels)
		return BB_ROLE_LEAF | BB_ROLE_SLICE;
	return bb_link_of(level) | BB_ROLE_SLICE;
}

bb_inline __u32 bb_h265_says(const __u8 *b, __u32 n, __u32 levels, __u8 *unit)
{
	__u32 type = b[0] >> 1 & 63, level = (b[1] & 7) - 1, says;

	*unit = 0;
	/* One layer, and a level of 1 to 7 written in the header. */
	if (n < 3 || b[0] & 0x81 || b[1] >> 3 || level > 6)
		return BB_SAYS_WRONG;
	if (type == 48) { /* AP: the first unit; behind a delimiter the second one */
		if (n < 6)
			return BB_SAYS_WRONG;
		says = bb_h265_unit(b[4] >> 1 & 63, level, levels);
		if ((b[4] >> 1 & 63) == 35 && !b[2] && b[3] == 3 && n >= 11)
			says = bb_h265_unit(b[9] >> 1 & 63, level, levels);
		says |= BB_SAYS_FIRST | BB_SAYS_LAST;
	} else if (type == 49) { /* FU */
		type = b[2] & 63;
		*unit = 0x80 | type;
		if (b[2] >> 6 == 3)
			return BB_SAYS_WRONG;
		says = bb_h265_unit(type, level, levels);
		if (b[2] & 0x80)
			says |= BB_SAYS_FIRST;
		if (b[2] & 0x40)
			says |= BB_SAYS_LAST;
	} else {
		says = bb_h265_unit(type, level, levels) | BB_SAYS_FIRST | BB_SAYS_LAST;
	}
	return says | level << BB_SAYS_LEVEL_SHIFT;
}

/* ---- VP8, RFC 7741 ---- */

bb_inline __u32 bb_vp8_says(const __u8 *b, __u32 n, __u32 levels)
{
	__u32 at = 1, level = 0, says = BB_SAYS_LAST;

	if (b[0] & 0x48)
		return BB_SAYS_WRONG;
	if (b[0] & 0x80) {
		__u8 more = b[1];

		if (n < 3 || more & 0x0F)
			return BB_SAYS_WRONG;
		at = 2;
		if (more & 0x80)
			at += b[2] & 0x80 ? 2 : 1;
		if (more & 0x40)
			at++;
		if (more & 0x30) {
			level = more & 0x20 ? b[at & 7] >> 6 : 0;
			at++;
		}
	}
	if (n <= at)
		return BB_SAYS_WRONG;
	/* S, and partition 0: the frame begins, with its header. */
	if ((b[0] & 0x17) == 0x10) {
		says |= BB_SAYS_FIRST;
		at &= 7; /* at most 6 */
		if (!(b[at] & 1)) {
			if (at + 6 <= n && at + 6 <= BB_ROLE_BYTES &&
			    (b[at + 3] != 0x9D || b[at + 4] != 0x01 || b[at + 5] != 0x2A))
				return BB_SAYS_WRONG;
			return says | BB_ROLE_KEY | BB_ROLE_SLICE;
		}
	}
	says |= level << BB_SAYS_LEVEL_SHIFT;
	return says | BB_ROLE_SLICE |
	       (b[0] & 0x20 ? BB_ROLE_LEAF : bb_role_of_level(level, levels));
}

/* ---- VP9, RFC 9628 ---- */

/*
 * `first`: of its picture. B and E are of a spatial layer's frame; the picture ends with RTP's
 * marker. Whether it is a key frame the descriptor says (P); but ffmpeg's never sets that, and writes
 * nothing else either. Then the frame's own header does, unless a description of the layers comes before
 * it (V): GStreamer writes one in front of each key frame, and no picture ids by default.
 */
bb_inline __u32 bb_vp9_says(const __u8 *b, __u32 n, __u32 levels, int first)
{
	__u32 at = 1, level = 0, says = 0;
	int key;

	if (n < 2 || (b[0] & 0x10 && !(b[0] & 0x80)))
		return BB_SAYS_WRONG; /* flexible mode without picture ids */
	if (b[0] & 0x08)
		says |= BB_SAYS_FIRST;
	if (b[0] & 0x04)
		says |= BB_SAYS_LAST;
	if (b[0] & 0x80)
		at += b[1] & 0x80 ? 2 : 1;
	key = !(b[0] & 0x40);
	if (b[0] & 0x20) {
		says |= BB_SAYS_PART;
		level = b[at & 3] >> 5;
		/* Upper layers of a key frame's picture come with it. */
		if (b[at & 3] & 0x0E)
			key = 0;
	} else if (!(b[0] & 0x80) && b[0] & 0x02) {
		if (!first || b[1] & 0x07)
			return BB_SAYS_WRONG;
	} else if (!(b[0] & 0x80)) {
		/* Bits 10, the profile's, whether a frame is shown again, whether it is no key frame. */
		if (first && b[1] >> 6 != 2)
			return BB_SAYS_WRONG;
		key = first && !(b[1] & 0x0C) && b[2] == 0x49 && b[3] == 0x83 && b[4] == 0x42;
	}
	says |= level << BB_SAYS_LEVEL_SHIFT | BB_ROLE_SLICE;
	if (key)
		return says | BB_ROLE_KEY;
	return says | bb_role_of_level(level, levels);
}

/* ---- AV1, "RTP Payload Format For AV1" of the Alliance for Open Media ---- */

/* OBUs that streams have: sequence and frame headers, tiles, metadata, padding. */
#define BB_AV1_TYPES 0x81FAU

/*
 * Z and Y say whether an OBU goes on from the packet before, and into the next one: where none
 * does a unit begins, or ends. What goes on says nothing of the frame.
 */
bb_inline __u32 bb_av1_says(const __u8 *b, __u32 n, __u32 levels, int first)
{
	__u32 at = 1, level = 0, says = BB_SAYS_PART, type;

	if (n < 2 || b[0] & 0x07 || (b[0] & 0x08 && (b[0] & 0x80 || !first)))
		return BB_SAYS_WRONG;
	if (!(b[0] & 0x40))
		says |= BB_SAYS_LAST;
	if (b[0] & 0x80)
		return says;
	says |= BB_SAYS_FIRST;
	/* Of one element the length is that of the packet; else it is written, in bytes of 7 bits. */
	if ((b[0] & 0x30) != 0x10)
		at += b[1] & 0x80 ? 2 : 1;
	type = b[at & 3] >> 3 & 15;
	if (n < at + 1 || b[at & 3] & 0x81 || !(BB_AV1_TYPES >> type & 1))
		return BB_SAYS_WRONG;
	if (b[at & 3] & 0x04)
		level = b[(at + 1) & 3] >> 5;
	says |= level << BB_SAYS_LEVEL_SHIFT | BB_ROLE_SLICE;
	if (b[0] & 0x08)
		return says | BB_ROLE_KEY;
	return says | bb_role_of_level(level, levels);
}

#endif /* BB_CODEC_H */
