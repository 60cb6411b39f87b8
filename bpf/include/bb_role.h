/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_role.h - what is a frame of video for, read from its packets? No maps, no helpers:
 * compiled into the classifier and, natively, into bpf/tests.
 *
 * The problem: among frames of one stream some are needed by all that follow, and some by none.
 * The first bytes of the payload say which (RFC 6184, 7798, 7741). What they are bytes of, nobody
 * says: payload types are dynamic, and SRTP encrypts the payload.
 *
 * The mechanism:
 *
 * 1. Every codec is tried on each packet. Its packets follow rules: fragments of a unit follow each
 *    other from first to last, the last one of a frame has RTP's marker, some bits are zero.
 * 2. A stream is of the codec of which 32 frames in a row broke no rule. Two that do, within 64,
 *    end that. Encrypted payload keeps to the rules for a packet in five at most.
 * 3. A stream of which 64 frames broke the rules of all is opaque: it is not looked at again.
 * 4. Until a codec is known, nothing is said of any frame.
 */
#ifndef BB_ROLE_H
#define BB_ROLE_H

#include "bb_core.h"

/* Bytes of the payload that are looked at. */
#define BB_ROLE_BYTES 12
/* Frames that keep to the rules of a codec until it is known; strikes of one that does not then. */
#define BB_CODEC_SURE 32
#define BB_CODEC_STRIKE 64
#define BB_CODEC_OPAQUE_AFTER 64

enum bb_codec {
	BB_CODEC_H264,
	BB_CODEC_H265,
	BB_CODEC_VP8,
	BB_CODECS,
	/* bb_video.codec is one more than these, or: */
	BB_CODEC_OPAQUE = 255,
};

enum bb_role {
	BB_ROLE_NONE, /* not known, or the packet says nothing of it */
	BB_ROLE_KEY, /* needs no other frame */
	BB_ROLE_LINK, /* all later frames need it until the next key frame; of temporal level 0 ... */
	BB_ROLE_LINK1, /* ... or of level 1: those of higher levels need it, until a lower one */
	BB_ROLE_LINK2, /* ... or above */
	BB_ROLE_LEAF, /* no frame needs it */
	BB_ROLE_SLICE = 0x10, /* a flag: it says so of the picture, and is no parameter set */
};

/* What a payload says, beside its role: */
#define BB_SAYS_WRONG 0x100 /* it is not of this codec */
#define BB_SAYS_FIRST 0x200 /* a unit, or a frame, begins here */
#define BB_SAYS_LAST 0x400 /* a unit ends here */
#define BB_SAYS_LEVEL_SHIFT 16 /* temporal level */

#define BB_ROLE_OF(says_) ((says_) & 0xF)

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
	return (level == 0 ? BB_ROLE_LINK :
		level == 1 ? BB_ROLE_LINK1 :
			     BB_ROLE_LINK2) |
	       BB_ROLE_SLICE;
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
	int has_level = 0;

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
			has_level = more & 0x20;
			level = has_level ? b[at & 7] >> 6 : 0;
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
	if (b[0] & 0x20 || (has_level && level && level >= levels))
		return says | BB_ROLE_LEAF | BB_ROLE_SLICE;
	return says | BB_ROLE_SLICE |
	       (level == 0 ? BB_ROLE_LINK :
		level == 1 ? BB_ROLE_LINK1 :
			     BB_ROLE_LINK2);
}

/* ---- the stream ---- */

/* A frame begins: what of the one before? */
bb_inline void bb_video_frame(struct bb_video *v)
{
	int began = v->position || v->key;
	__u32 right = 0;

	for (__u32 c = 0; c < BB_CODECS; c++) {
		int wrong = v->wrong >> c & 1;

		/* A unit whose end never came. */
		if (c < 2) {
			wrong |= v->open[c] != 0;
			v->open[c] = 0;
		}
		right |= !wrong << c;
		if (v->codec || !began)
			continue;
		v->tried[c] = wrong ? 0 : v->tried[c] + 1;
		if (v->tried[c] >= BB_CODEC_SURE) {
			v->codec = c + 1;
			v->strikes = 0;
		}
	}
	if (v->codec && v->codec <= BB_CODECS) {
		if (right >> (v->codec - 1) & 1) {
			v->strikes -= v->strikes != 0;
		} else if (v->strikes) {
			v->codec = 0;
			v->group = 0;
			for (__u32 c = 0; c < BB_CODECS; c++)
				v->tried[c] = 0;
		} else {
			v->strikes = BB_CODEC_STRIKE;
		}
	} else if (!right && ++v->misses >= BB_CODEC_OPAQUE_AFTER) {
		v->codec = BB_CODEC_OPAQUE;
	}
	v->wrong = 0;
	v->key &= ~BB_VIDEO_KEY;
	if (v->position < 0xFFFF)
		v->position++;
}

/* A packet of the frame, read as of codec c: did it keep to the rules? Its unit goes on, or ends. */
bb_inline int bb_video_fits(struct bb_video *v, __u32 c, __u32 says, __u8 unit, int first, int last)
{
	__u8 open;

	if (says & BB_SAYS_WRONG)
		return 0;
	if (c == BB_CODEC_VP8)
		return !(says & BB_SAYS_FIRST) == !first;
	open = v->open[c & 1];
	v->open[c & 1] = says & BB_SAYS_LAST ? 0 : unit;
	if (says & BB_SAYS_FIRST ? open : open != unit)
		return 0;
	return !last || says & BB_SAYS_LAST;
}

/*
 * A packet of the current frame, n bytes of payload from b on: its role. `first`, `last`: of its
 * frame. b has BB_ROLE_BYTES bytes.
 */
bb_inline enum bb_role bb_video_read(struct bb_video *v, const __u8 *b, __u32 n, int first,
				     int last)
{
	__u32 says, codec = v->codec, role = BB_ROLE_NONE;
	__u8 unit;

	if (first)
		bb_video_frame(v);
	if (v->codec == BB_CODEC_OPAQUE)
		return BB_ROLE_NONE;
	codec = v->codec;
	says = BB_SAYS_WRONG;
	if (!codec || codec == BB_CODEC_H264 + 1) {
		says = bb_h264_says(b, n, &unit);
		if (!bb_video_fits(v, BB_CODEC_H264, says, unit, first, last))
			v->wrong |= 1 << BB_CODEC_H264;
	}
	if (!codec || codec == BB_CODEC_H265 + 1) {
		says = bb_h265_says(b, n, v->levels, &unit);
		if (!bb_video_fits(v, BB_CODEC_H265, says, unit, first, last))
			v->wrong |= 1 << BB_CODEC_H265;
	}
	if (!codec || codec == BB_CODEC_VP8 + 1) {
		says = bb_vp8_says(b, n, v->levels);
		if (!bb_video_fits(v, BB_CODEC_VP8, says, 0, first, last))
			v->wrong |= 1 << BB_CODEC_VP8;
	}
	if (!codec || says & BB_SAYS_WRONG)
		return BB_ROLE_NONE;
	if (says >> BB_SAYS_LEVEL_SHIFT > v->levels)
		v->levels = says >> BB_SAYS_LEVEL_SHIFT;
	role = BB_ROLE_OF(says);
	if (role == BB_ROLE_KEY && says & BB_ROLE_SLICE && !(v->key & BB_VIDEO_KEY)) {
		v->group = v->key & BB_VIDEO_HAD_KEY ? v->position : 0;
		v->position = 0;
		v->key |= BB_VIDEO_KEY | BB_VIDEO_HAD_KEY;
	}
	/* The rest of a key frame: VP8 says so in the first packet only. */
	return v->key & BB_VIDEO_KEY ? BB_ROLE_KEY : role;
}

/* Where nobody says how important a frame is: a key frame is what all else is by default. */
#define BB_KEY_PRIORITY BB_PRIORITY_DEFAULT
#define BB_LINK_PRIORITY (BB_PRIORITY_DEFAULT + 1)

/*
 * What a frame of this role is worth where nobody says: 3 to 7. In a group without levels later
 * frames have fewer that need them: thirds of the group, as long as the last one was.
 *
 * `refuses`: who asks decides as frames come, and refuses (mode tc). Later frames are refused first
 * as it is. And a more important class would keep room for its largest burst at any time, the key
 * frame, of which bb_large.h knows better when it comes.
 */
bb_inline __u32 bb_role_priority(const struct bb_video *v, enum bb_role role, int refuses)
{
	__u32 third;

	if (role == BB_ROLE_LEAF)
		return BB_PRIORITIES - 1;
	if (role == BB_ROLE_KEY || refuses)
		return BB_KEY_PRIORITY;
	if (role == BB_ROLE_LINK1)
		return BB_LINK_PRIORITY + 1;
	if (role == BB_ROLE_LINK2)
		return BB_LINK_PRIORITY + 2;
	if (v->levels || !v->group)
		return BB_LINK_PRIORITY;
	third = 3 * (__u32)v->position / v->group;
	return BB_LINK_PRIORITY + (third < 2 ? third : 2);
}

#endif /* BB_ROLE_H */
