/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_role.h - what is a frame of video for, read from its packets? No maps, no helpers:
 * compiled into the classifier and, natively, into bpf/tests.
 *
 * The problem: among frames of one stream some are needed by all that follow, and some by none.
 * The first bytes of the payload say which (bb_codec.h). What they are bytes of, nobody says:
 * payload types are dynamic, and SRTP encrypts the payload. It leaves header extensions in clear
 * (bb_descriptor.h). What they are, nobody says either.
 *
 * The mechanism:
 *
 * 1. Every codec is tried on each packet. Its packets follow rules: fragments of a unit follow each
 *    other from first to last, the last one of a frame has RTP's marker, some bits are zero. A
 *    header extension that says the same is tried as a codec.
 * 2. A stream is of the codec of which 32 frames in a row broke no rule. Two with a packet that cannot
 *    be of it, within 64, end that. Fragments that are missing or out of order do not: a relay gets packets
 *    over a path that loses some, and one with several threads sends a few in another order. Encrypted
 *    payload keeps to the rules for a packet in five at most.
 * 3. A stream of which 64 frames broke the rules of all is opaque: it is not looked at again.
 * 4. Until a codec is known, nothing is said of any frame.
 * 5. A frame whose timestamp is before the latest one is a B picture: others that refer to it are
 *    shown around it, and none after the next frame in order.
 */
#ifndef BB_ROLE_H
#define BB_ROLE_H

#include "bb_descriptor.h"

/* Frames until a wrong one is forgotten; frames that are of no codec until a stream is opaque. */
#define BB_CODEC_STRIKE 64
#define BB_CODEC_OPAQUE_AFTER 64

/* Is what bb_video.codec says a header extension, so that the payload is not looked at? */
#define bb_is_extension(codec_) ((codec_) > BB_CODEC_AV1 + 1)

/* What is looked at of an RTP packet. */
struct bb_seen {
	const __u8 *payload; /* its first n bytes, of BB_ROLE_BYTES */
	__u32 n;
	__u8 first; /* of its frame */
	__u8 last;
};

/* ---- the stream ---- */

/* So far behind, 0.7 s of video, a timestamp is that of a B picture; else the stream began again. */
#define BB_TIME_BACK (1U << 16)

/* Is a frame shown before one that was sent before it? */
bb_inline int bb_time_is_back(__u32 time, __u32 latest)
{
	return latest - time - 1 < BB_TIME_BACK;
}

/* A frame begins: what of the one before? */
bb_apart int bb_video_frame(struct bb_video *v, __u32 time)
{
	__u32 right;
	int began;

	if (!v)
		return 0;
	began = v->position || v->key;
	if (!v->codec) {
		/* Video has a marker at each frame's end, audio has not: 0xfc before Opus is VP9, too. */
		if (began && !(v->key & BB_VIDEO_MARKED))
			v->wrong = ~0;
		/* A unit whose end never came. */
		v->wrong |= v->going | (v->open[0] != 0) << BB_CODEC_H264 |
			    (v->open[1] != 0) << BB_CODEC_H265;
	}
	v->open[0] = 0;
	v->open[1] = 0;
	v->going = 0;
	right = ~(__u32)v->wrong & ((1 << BB_CODECS) - 1);
	for (__u32 c = 0; began && c < BB_CODECS; c++) {
		int wrong = v->wrong >> c & 1;

		if (v->codec)
			break;
		v->tried[c] = wrong ? 0 : v->tried[c] + 1;
		if (wrong)
			v->key_at[c] = 0;
		if (v->tried[c] >= BB_CODEC_SURE) {
			v->codec = c + 1;
			v->strikes = 0;
			/* Streams begin with a key frame: the second one tells how long a group is. */
			if (v->key_at[c])
				v->position = BB_CODEC_SURE - v->key_at[c];
			v->key &= ~BB_VIDEO_HAD_KEY;
			v->key |= v->key_at[c] ? BB_VIDEO_HAD_KEY : 0;
		}
	}
	/* The next header extension may be the one: from a frame's first packet on. */
	if (!v->codec && v->wrong >> BB_CODEC_DD & 1) {
		v->dd = v->dd_next;
		v->dd_seen = 0;
		v->templates = 0;
	}
	if (!v->codec && v->wrong >> BB_CODEC_VFM & 1)
		v->vfm = v->vfm_next;
	if (v->codec && v->codec <= BB_CODECS) {
		if (right >> (v->codec - 1) & 1) {
			v->strikes -= v->strikes != 0;
		} else if (v->strikes) {
			v->codec = 0;
			v->group = 0;
			for (__u32 c = 0; c < BB_CODECS; c++)
				v->tried[c] = v->key_at[c] = 0;
		} else {
			v->strikes = BB_CODEC_STRIKE;
		}
	} else if (!right && ++v->misses >= BB_CODEC_OPAQUE_AFTER) {
		v->codec = BB_CODEC_OPAQUE;
	}
	v->wrong = 0;
	v->role = BB_ROLE_NONE;
	v->key &= ~(BB_VIDEO_KEY | BB_VIDEO_BACK | BB_VIDEO_MARKED);
	if (began && bb_time_is_back(time, v->latest))
		v->key |= BB_VIDEO_BACK;
	else
		v->latest = time;
	if (v->position < 0xFFFF)
		v->position++;
	return 0;
}

/* A packet of the frame, read as of codec c: did it keep to the rules? Its unit goes on, or ends. */
bb_inline int bb_video_fits(struct bb_video *v, __u32 c, __u32 says, const struct bb_seen *s)
{
	int going = v->going >> c & 1;

	if (says & BB_SAYS_WRONG)
		return 0;
	if (c == BB_CODEC_VP8)
		return !(says & BB_SAYS_FIRST) == !s->first;
	v->going &= ~(1 << c);
	if (!(says & BB_SAYS_LAST))
		v->going |= 1 << c;
	if (!!(says & BB_SAYS_FIRST) == going)
		return 0;
	if (!s->last != !(says & BB_SAYS_LAST))
		return says & BB_SAYS_PART && !s->last;
	return says & BB_SAYS_PART || !s->first == !(says & BB_SAYS_FIRST);
}

/* The same of H.264 and H.265, whose fragments are of the unit that was begun. */
bb_inline int bb_units_fit(struct bb_video *v, __u32 c, __u32 says, __u8 unit,
			   const struct bb_seen *s)
{
	__u8 open;

	/* Of which clang must not see that it is no more: the verifier does not. */
	asm volatile("" : "+r"(c));
	c &= 1;
	open = v->open[c];
	if (says & BB_SAYS_WRONG)
		return 0;
	v->open[c] = says & BB_SAYS_LAST ? 0 : unit;
	if (says & BB_SAYS_FIRST ? open : open != unit)
		return 0;
	return !s->last || says & BB_SAYS_LAST;
}

/* A packet of the current frame, read as of codec c: what it says. That it is not is noted. */
bb_inline __u32 bb_codec_says(struct bb_video *v, const struct bb_seen *s, struct bb_ext *e,
			      __u32 c)
{
	const __u8 *b = s->payload;
	__u32 says = BB_SAYS_WRONG, n = s->n;
	__u8 unit = 0;
	int fits;

	if (c >= BB_CODECS)
		return says;
	if (s->last)
		v->key |= BB_VIDEO_MARKED;

	switch (c) {
	case BB_CODEC_H264:
		says = bb_h264_says(b, n, &unit);
		break;
	case BB_CODEC_H265:
		says = bb_h265_says(b, n, v->levels, &unit);
		break;
	case BB_CODEC_VP8:
		says = bb_vp8_says(b, n, v->levels);
		break;
	case BB_CODEC_VP9:
		says = bb_vp9_says(b, n, v->levels, s->first);
		break;
	case BB_CODEC_AV1:
		says = bb_av1_says(b, n, v->levels, s->first);
		break;
	default: /* header extensions */
		says = bb_ext_says(v, e, c);
		break;
	}
	fits = c <= BB_CODEC_H265 ? bb_units_fit(v, c, says, unit, s) :
				    bb_video_fits(v, c, says, s);
	if (fits) {
		if (!v->codec && BB_ROLE_OF(says) == BB_ROLE_KEY && says & BB_ROLE_SLICE)
			v->key_at[c] = v->tried[c] + 1;
		return says;
	}
	/* Of no codec yet, or it cannot be of this one. Without a branch, which the verifier would follow. */
	v->wrong |= (((__u32)v->codec - 1) >> 31 | (says / BB_SAYS_WRONG & 1)) << (c & 7);
	if (c == BB_CODEC_DD)
		v->dd_next = says >> BB_SAYS_NEXT_SHIFT;
	else if (c == BB_CODEC_VFM)
		v->vfm_next = says >> BB_SAYS_NEXT_SHIFT;
	return says;
}

/*
 * Are two groups about as long as each other, so that the key frames seem to come by the clock, and not on
 * demand? A quarter less is not: a chain ends half a group after its key frame was due (bb_chain.h), and groups
 * that grow because of that must not agree.
 */
bb_inline int bb_groups_agree(__u32 before, __u32 group)
{
	__u32 shorter = before < group ? before : group, longer = before < group ? group : before;

	return shorter && 4 * shorter >= 3 * longer;
}

/* The current frame is a key frame: the group before it ends. */
bb_inline void bb_video_ends_group(struct bb_video *v)
{
	__u32 group = v->key & BB_VIDEO_HAD_KEY ? v->position : 0;

	v->key &= ~BB_VIDEO_STEADY;
	if (bb_groups_agree(v->group, group))
		v->key |= BB_VIDEO_STEADY;
	v->group = group;
	v->position = 0;
	v->key |= BB_VIDEO_KEY | BB_VIDEO_HAD_KEY;
}

/* What a packet of a stream whose codec is known says: the role of its frame. */
bb_inline enum bb_role bb_video_role(struct bb_video *v, __u32 says)
{
	__u32 role = BB_ROLE_OF(says);

	if (says & BB_SAYS_WRONG)
		return BB_ROLE_NONE;
	if (BB_SAYS_LEVEL(says) > v->levels)
		v->levels = BB_SAYS_LEVEL(says);
	if (role == BB_ROLE_KEY && says & BB_ROLE_SLICE && !(v->key & BB_VIDEO_KEY))
		bb_video_ends_group(v);
	/* The rest of a key frame: most codecs say so in the first packet only. */
	if (v->key & BB_VIDEO_KEY)
		return BB_ROLE_KEY;
	/* What goes on, and what is beside the picture, is for what the picture is for, once that is told. */
	if (!(says & BB_ROLE_SLICE))
		return v->role ? v->role : role;
	/* A B picture that others refer to: those around it, until the next one in order. */
	if (role == BB_ROLE_LINK && v->key & BB_VIDEO_BACK)
		role = BB_ROLE_LINK1;
	v->role = role;
	return role;
}

/* Has a packet of the current frame told what the frame is for? A delimiter, or parameter sets, do not. */
bb_inline int bb_video_told(const struct bb_video *v)
{
	return v->key & BB_VIDEO_KEY || v->role;
}

/* Where nobody says how important a frame is: a key frame is what all else is by default. */
#define BB_KEY_PRIORITY BB_PRIORITY_DEFAULT
#define BB_LINK_PRIORITY (BB_PRIORITY_DEFAULT + 1)

/*
 * What a frame of this role is worth where nobody says: 3 to 7. In a group without levels later
 * frames have fewer that need them: thirds of the group, as long as the last one was.
 *
 * `refuses`: who asks decides as frames come, and refuses (mode tc). Later frames are refused first
 * as it is. And a class of key frames alone would keep room for one until it is known when they
 * come (bb_large.h).
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

/* The same where the rule has priorities of its own (bb_rule.roles). What says nothing is a link. */
bb_inline __u32 bb_role_priority_told(__u32 roles, enum bb_role role)
{
	__u32 at = role >= BB_ROLE_KEY && role <= BB_ROLE_LEAF ? role : BB_ROLE_LINK;

	return roles >> 3 * (at - 1) & (BB_PRIORITIES - 1);
}

#endif /* BB_ROLE_H */
