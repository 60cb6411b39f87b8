/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_descriptor.h - what do RTP's header extensions say of a frame? No maps, no helpers: compiled
 * into the classifier and, natively, into bpf/tests.
 *
 * The problem: SRTP leaves the header extensions in clear, and two of them say what a frame is for.
 * Which id an extension has is agreed upon elsewhere.
 *
 * The mechanism: ids are tried one after another. The Dependency Descriptor (of AV1's RTP payload
 * format, used with other codecs, too) and Video Frame Marking (RFC 9626) both say where a frame begins
 * and ends; the one also counts frames. A stream has such an extension under this id if 32 frames
 * in a row agreed with RTP's timestamps and markers (bb_role.h). Else it is the next id's turn.
 */
#ifndef BB_DESCRIPTOR_H
#define BB_DESCRIPTOR_H

#include "bb_codec.h"
#include "bb_tables_abi.h"

/* Bytes of extensions that are looked at (power of two), and how many of them. */
#define BB_EXT_BYTES 64
#define BB_EXT_ELEMENTS 10

/* RFC 8285: the "defined by profile" field of the two forms; RFC 9335 (Cryptex) has others. */
#define BB_EXT_ONE_BYTE 0xBEDE
#define BB_EXT_TWO_BYTE 0x1000 /* to 0x100F */

/*
 * Extensions of a packet, from behind their length on, and where its reader is. In memory of which
 * the verifier knows nothing, that is not on the stack: else it would follow each length and each
 * number of elements apart.
 */
struct bb_ext {
	__u8 b[BB_EXT_BYTES];
	__u32 n;
	__u32 two_byte; /* their form */
	__u32 form; /* "defined by profile" */
	/* Of bb_ext_find: */
	__u32 at; /* where the next element is */
	__u32 found; /* where the one is that was looked for ... */
	__u32 bytes; /* ... and its length; 0 = there is none */
	__u32 next; /* the lowest id above it; 0 = none */
};

/* BB_VIDEO_CRYPTEX, if they are encrypted: 0xC0DE and 0xC2DE. The verifier would follow a branch. */
bb_inline __u32 bb_ext_cryptex(const struct bb_ext *e)
{
	return ((((e->form & 0xFDFF) ^ 0xC0DE) - 1) >> 31) * BB_VIDEO_CRYPTEX;
}

#define bb_ext_at(e_) (*(volatile __u32 *)&(e_)->at)

/*
 * Finds the element with this id; and the lowest id above it of an element that is there, with `least`
 * bytes at least.
 */
bb_apart int bb_ext_find(struct bb_ext *e, __u32 id, __u32 least)
{
	if (!e)
		return 0;
	e->found = 0;
	e->bytes = 0;
	e->next = 0;
	bb_ext_at(e) = 0;
	for (__u32 i = 0; i < BB_EXT_ELEMENTS; i++) {
		__u32 at = bb_ext_at(e), bytes, has;

		if (at + 1 >= e->n || at >= BB_EXT_BYTES - 1)
			break;
		at &= BB_EXT_BYTES - 1;
		has = e->b[at];
		if (!has) { /* padding */
			bb_ext_at(e) = at + 1;
			continue;
		}
		if (e->two_byte) {
			bytes = e->b[(at + 1) & (BB_EXT_BYTES - 1)];
			at += 2;
		} else {
			bytes = (has & 15) + 1;
			has >>= 4;
			at++;
			if (has == 15)
				break;
		}
		if (at + bytes > e->n)
			break;
		if (has == id) {
			e->found = at;
			e->bytes = bytes;
		} else if (has > id && bytes >= least && (!e->next || has < e->next)) {
			e->next = has;
		}
		bb_ext_at(e) = at + bytes;
	}
	return 0;
}

/* Byte i of the element that was found. */
#define bb_ext_byte(e_, i_) ((e_)->b[((e_)->found + (i_)) & (BB_EXT_BYTES - 1)])

/* ---- Dependency Descriptor ---- */

#define BB_DD_BYTES 3
#define BB_DD_STRUCTURE 0x80 /* in the byte behind those */
/* So many templates are kept, two a byte: those of three spatial layers with three levels. */
#define BB_DD_TEMPLATES 32
/* Frames that a relay leaves out in a row, at most. */
#define BB_DD_AHEAD 64

/*
 * Temporal levels of the templates: two bits say how the next one differs. They begin at byte 5:
 * behind 24 bits, five flags, the first template's id (6) and the number of targets (5). The level
 * is in memory, as above.
 */
bb_apart int bb_dd_structure(struct bb_video *v, struct bb_ext *e)
{
	if (!v || !e)
		return 0;
	bb_ext_at(e) = 0;
	v->first_template = (bb_ext_byte(e, 3) & 7) << 3 | bb_ext_byte(e, 4) >> 5;
	v->template_levels = 0;
	v->templates = 0;
	for (__u32 i = 0; i < BB_DD_TEMPLATES; i++) {
		__u32 next = bb_ext_byte(e, 5 + i / 4) >> (6 - 2 * (i & 3)) & 3;
		__u32 level = bb_ext_at(e) & 7;

		if (5 + i / 4 >= e->bytes)
			break;
		v->levels_of[i / 2 & 15] = i & 1 ? v->levels_of[i / 2 & 15] | level << 4 : level;
		if (level > v->template_levels)
			v->template_levels = level;
		v->templates = i + 1;
		if (next == 3)
			break;
		/* The next level, or the first one of a further spatial layer. */
		bb_ext_at(e) = next == 2 ? 0 : level + (next & 1);
	}
	return 0;
}

bb_inline __u32 bb_dd_says(struct bb_video *v, struct bb_ext *e)
{
	__u32 says = 0, template, level;
	__u16 number;
	__s16 ahead;
	__u8 b;

	bb_ext_find(e, v->dd, BB_DD_BYTES);
	says |= e->next << BB_SAYS_NEXT_SHIFT;
	if (e->bytes < BB_DD_BYTES || e->found + e->bytes > BB_EXT_BYTES)
		return says | BB_SAYS_WRONG;
	b = bb_ext_byte(e, 0);
	says |= BB_ROLE_SLICE | BB_SAYS_PART;
	if (b & 0x80)
		says |= BB_SAYS_FIRST;
	if (b & 0x40)
		says |= BB_SAYS_LAST;
	/* Frames are counted. Some may be missing: a relay leaves layers out. */
	number = bb_ext_byte(e, 1) << 8 | bb_ext_byte(e, 2);
	ahead = number - v->dd_number;
	if (v->dd_seen && (b & 0x80 ? ahead <= 0 || ahead > BB_DD_AHEAD : ahead))
		says |= BB_SAYS_WRONG;
	v->dd_seen = 1;
	v->dd_number = number;
	if (e->bytes >= BB_DD_BYTES + 3 && bb_ext_byte(e, 3) & BB_DD_STRUCTURE) {
		if (says & BB_SAYS_WRONG || !(b & 0x80))
			return says | BB_SAYS_WRONG;
		bb_dd_structure(v, e);
		return says | BB_ROLE_KEY;
	}
	template = ((b & 63) - v->first_template) & 63;
	if (template >= v->templates)
		return says; /* its structure was not seen */
	level = v->levels_of[template / 2 & 15] >> (template & 1 ? 4 : 0) & 7;
	return says | level << BB_SAYS_LEVEL_SHIFT | bb_role_of_level(level, v->template_levels);
}

/* ---- Video Frame Marking, RFC 9626 ---- */

bb_inline __u32 bb_vfm_says(struct bb_video *v, struct bb_ext *e)
{
	__u32 says, level;
	__u8 b;

	bb_ext_find(e, v->vfm, 1);
	b = bb_ext_byte(e, 0);
	says = e->next << BB_SAYS_NEXT_SHIFT;
	/* One byte, then with no levels, or three. A frame that needs no other is not discardable. */
	if ((e->bytes == 1 ? b & 0x0F : e->bytes != 3) || (b & 0x30) == 0x30)
		return says | BB_SAYS_WRONG;
	if (b & 0x80)
		says |= BB_SAYS_FIRST;
	if (b & 0x40)
		says |= BB_SAYS_LAST;
	level = b & 7;
	says |= level << BB_SAYS_LEVEL_SHIFT | BB_ROLE_SLICE;
	if (b & 0x20)
		return says | BB_ROLE_KEY;
	return says | (b & 0x10 ? BB_ROLE_LEAF : bb_role_of_level(level, v->levels));
}

/* What the extensions say, tried as codec c. Apart, so that the verifier follows once what comes behind it. */
bb_apart __u32 bb_ext_says(struct bb_video *v, struct bb_ext *e, __u32 c)
{
	if (!v || !e)
		return BB_SAYS_WRONG;
	return c == BB_CODEC_DD ? bb_dd_says(v, e) : bb_vfm_says(v, e);
}

#endif /* BB_DESCRIPTOR_H */
