/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_ts.h - MPEG-TS (ISO/IEC 13818-1): of which picture are the packets in a datagram, and what is the
 * picture for? No maps, no helpers: compiled into the classifier and, natively, into bpf/tests.
 *
 * The problem: a datagram carries up to seven packets of 188 bytes, of several streams. It may have the end
 * of one picture, the beginning of the next one, audio, and tables. With UDP nothing else tells where a
 * picture begins; with RTP the timestamp is when the datagram was sent.
 *
 * The mechanism:
 *
 * 1. A picture begins with a packet whose payload begins a PES packet of video. Its packets have one PID.
 *    A second PID with video is another programme: then nothing is said of either.
 * 2. The program map says which codec the PID has. Behind the PES header the first slice says what the
 *    picture is for, as bb_codec.h has it; MPEG-2's picture header has a type. A picture with the random access
 *    indicator that has an I slice is a key frame. Where no slice is found in the first packets,
 *    indicator and delimiter decide.
 * 3. A picture whose PTS is before the latest one is a B picture, as in bb_role.h.
 * 4. The stream is known after 32 pictures in a row whose packets were counted without a gap, and which said
 *    what they are for. Two beginnings that are none, within 64 pictures, end that.
 * 5. Of two pictures a datagram belongs to the more important one. Of equals it is the earlier one's: the
 *    later one is lost with it anyway. A datagram with anything beside video belongs to none, so that no
 *    picture takes tables, PCR or audio along. What follows it is an ADU of its own: so ADUs leave in the order in
 *    which they came. Of UDP's receivers none could put them in order.
 */
#ifndef BB_TS_H
#define BB_TS_H

#include "bb_role.h"

#define BB_TS_BYTES 188
#define BB_TS_MOST 7 /* packets of a datagram that is looked at */
#define BB_TS_SYNC 0x47
#define BB_TS_NULL 0x1FFF /* PID of packets that carry nothing */

/* Start codes are looked for in so many steps of 1 to 3 bytes, in so many packets of a picture. */
#define BB_TS_STEPS 64
#define BB_TS_LOOKS 8
#define BB_TS_ENTRIES 8 /* of a program map that are looked at */

/* A datagram of MPEG-TS, and what was found in it. */
struct bb_ts_datagram {
	__u8 bytes[2048 + 8]; /* so that a mask keeps each index within it */
	__u32 at; /* in memory: the verifier must not follow what it may be */
	__u32 unit; /* where the unit begins that told, behind its start code; 0 = none did */
	__u16 source; /* the picture to which the datagram belongs ... */
	__u8 role; /* ... and what that is for; 0 = it belongs to none */
	__u8 flags; /* BB_TS_* below */
};

#define BB_TS_VIDEO 0x01 /* it has packets of the video */
#define BB_TS_OTHER 0x02 /* ... and of something else: tables, audio, PCR alone */
#define BB_TS_UNTOLD 0x04 /* ... of a picture that has not told yet what it is for */

/*
 * What is known of the stream beside struct bb_video: in the place of what header extensions have there, as no
 * stream has both.
 */
struct bb_ts {
	__u16 pid; /* of its video; 0 = not known yet */
	__u16 source; /* grows with each picture, and with each datagram that belongs to none */
	__u8 count; /* continuity counter of its last packet */
	__u8 type; /* what the program map says that it is; 0 = not known yet */
	__u8 flags; /* BB_TS_BEGAN ... */
	__u8 looks; /* packets of this picture in which a slice is looked for yet */
};

#define BB_TS_BEGAN 0x01 /* a picture */
#define BB_TS_RANDOM 0x02 /* the current one has the random access indicator */
#define BB_TS_MIXED 0x04 /* its delimiter allows B slices */

/* bb_video.wrong, of the current picture: */
#define BB_TS_WRONG_COUNT 0x01 /* packets of it are missing */
#define BB_TS_WRONG_BEGIN 0x02 /* something else began as a picture does */

#define BB_TS_TYPE_MPEG1 0x01
#define BB_TS_TYPE_MPEG2 0x02
#define BB_TS_TYPE_H264 0x1B
#define BB_TS_TYPE_H265 0x24

_Static_assert(sizeof(struct bb_video) - __builtin_offsetof(struct bb_video, dd_number) >=
		       sizeof(struct bb_ts),
	       "MPEG-TS is kept where header extensions are");

bb_inline struct bb_ts *bb_ts_of(struct bb_video *v)
{
	return (struct bb_ts *)(void *)((__u8 *)v + __builtin_offsetof(struct bb_video, dd_number));
}

/* bb_video.codec of this type of stream; 0 = it is not read. */
bb_inline __u8 bb_ts_codec(__u8 type)
{
	if (type == BB_TS_TYPE_H264)
		return BB_CODEC_TS_H264 + 1;
	if (type == BB_TS_TYPE_H265)
		return BB_CODEC_TS_H265 + 1;
	return type == BB_TS_TYPE_MPEG2 || type == BB_TS_TYPE_MPEG1 ? BB_CODEC_TS_MPEG2 + 1 : 0;
}

/* ---- bytes ---- */

#define bb_ts_byte(d_, at_) ((d_)->bytes[(at_) & 2047])

bb_inline __u32 bb_ts_word(const struct bb_ts_datagram *d, __u32 at)
{
	return __builtin_bswap32(*(const __u32 *)(const void *)(d->bytes + (at & 2047)));
}

/* As it is in memory: nothing is known of it. */
bb_inline __u32 bb_ts_at(const struct bb_ts_datagram *d)
{
	return *(const volatile __u32 *)&d->at & 2047;
}

bb_inline void bb_ts_go(struct bb_ts_datagram *d, __u32 at)
{
	*(volatile __u32 *)&d->at = at;
}

/* Does the payload at `q` begin a PES packet of video? */
bb_inline int bb_ts_is_video(const struct bb_ts_datagram *d, __u32 q)
{
	return bb_ts_word(d, q) >> 4 == 0x1E;
}

/* ---- what a picture is for ---- */

/* I slices: the first one of a picture, which begins with macroblock 0, of type 2 or 7. */
bb_inline int bb_ts_is_intra(__u8 slice)
{
	return slice == 0x88 || slice >> 4 == 0xB;
}

/* A unit of the picture begins at `at`, behind its start code: what it says, as in bb_codec.h. */
bb_inline __u32 bb_ts_unit(const struct bb_video *v, struct bb_ts *ts,
			   const struct bb_ts_datagram *d, __u32 at)
{
	__u32 header = bb_ts_byte(d, at), next = bb_ts_byte(d, at + 1), type, says;

	if (ts->type == BB_TS_TYPE_H264) {
		type = header & 31;
		says = header & 0x80 ? BB_SAYS_WRONG : bb_h264_unit(header, type);
		if (type == 9 && next >> 5 == 2)
			ts->flags |= BB_TS_MIXED;
		if (type == 1 && ts->flags & BB_TS_RANDOM && bb_ts_is_intra(next))
			says = BB_ROLE_KEY | BB_ROLE_SLICE;
		return says;
	}
	if (ts->type == BB_TS_TYPE_H265) {
		type = header >> 1 & 63;
		if (header & 0x81 || next >> 3 || !(next & 7))
			return BB_SAYS_WRONG;
		if (type == 35 && bb_ts_byte(d, at + 2) >> 5 == 2)
			ts->flags |= BB_TS_MIXED;
		return bb_h265_unit(type, (next & 7) - 1, v->levels) |
		       ((next & 7) - 1) << BB_SAYS_LEVEL_SHIFT;
	}
	/* MPEG-2: a picture header, with the type behind ten bits of a number. */
	if (header)
		return BB_ROLE_NONE;
	type = bb_ts_byte(d, at + 2) >> 3 & 7;
	if (type == 1)
		return BB_ROLE_KEY | BB_ROLE_SLICE;
	return (type == 2 ? BB_ROLE_LINK : BB_ROLE_LEAF) | BB_ROLE_SLICE;
}

/* The role of the current picture is known. */
bb_inline void bb_ts_tell(struct bb_video *v, struct bb_ts *ts, __u32 says)
{
	__u32 role = BB_ROLE_OF(says);

	ts->looks = 0;
	if (BB_SAYS_LEVEL(says) > v->levels)
		v->levels = BB_SAYS_LEVEL(says);
	if (role == BB_ROLE_KEY)
		bb_video_ends_group(v);
	else if (role == BB_ROLE_LINK && v->key & BB_VIDEO_BACK)
		role = BB_ROLE_LINK1;
	v->role = role;
}

/* The unit at d->unit, behind its start code. Returns whether it tells what the picture is for. */
bb_apart int bb_ts_ask(struct bb_video *v, struct bb_ts_datagram *d)
{
	__u32 says;

	if (!v || !d)
		return 0;
	says = bb_ts_unit(v, bb_ts_of(v), d, d->unit);
	if (says & BB_SAYS_WRONG || !(says & BB_ROLE_SLICE))
		return 0;
	bb_ts_tell(v, bb_ts_of(v), says);
	return 1;
}

/* One step of the look for a slice, up to `end`: whether it is over. */
bb_apart int bb_ts_step(struct bb_video *v, struct bb_ts_datagram *d, __u32 end)
{
	__u32 at, word;

	if (!v || !d)
		return 1;
	at = bb_ts_at(d);
	/* A start code, and what says of its unit what it is. */
	if (at + 6 > end) {
		d->unit = 0;
		return 1;
	}
	word = bb_ts_word(d, at);
	if (word >> 8 != 1) {
		bb_ts_go(d, at + ((word >> 8 & 0xFF) > 1 ? 3 : 1));
		return 0;
	}
	bb_ts_go(d, at + 4);
	d->unit = at + 3;
	return bb_ts_ask(v, d);
}

/* Looks for the first slice from d->at to `end`. */
bb_inline void bb_ts_look(struct bb_video *v, struct bb_ts *ts, struct bb_ts_datagram *d, __u32 end)
{
	for (__u32 i = 0; i < BB_TS_STEPS; i++)
		if (bb_ts_step(v, d, end))
			break;
	if (!ts->looks)
		return;
	d->unit = 0;
	if (!--ts->looks)
		bb_ts_tell(v, ts,
			   ts->flags & BB_TS_RANDOM ? BB_ROLE_KEY :
			   ts->flags & BB_TS_MIXED  ? BB_ROLE_LINK1 :
						      BB_ROLE_LINK);
}

/* ---- pictures ---- */

/* A picture begins: what of the one before? `time`: PTS, at 90 kHz; `timed`: it has one. */
bb_inline void bb_ts_picture(struct bb_video *v, struct bb_ts *ts, __u32 time, int timed)
{
	int right = !v->wrong && v->role;

	if (v->codec) {
		if (!(v->wrong & BB_TS_WRONG_BEGIN))
			v->strikes -= v->strikes != 0;
	} else if (ts->flags & BB_TS_BEGAN) {
		v->tried[0] = right ? v->tried[0] + 1 : 0;
		if (v->tried[0] >= BB_CODEC_SURE) {
			v->codec = bb_ts_codec(ts->type);
			v->strikes = 0;
		}
	}
	v->wrong = 0;
	v->role = BB_ROLE_NONE;
	v->key &= ~(BB_VIDEO_KEY | BB_VIDEO_BACK);
	if (timed && ts->flags & BB_TS_BEGAN && bb_time_is_back(time, v->latest))
		v->key |= BB_VIDEO_BACK;
	else if (timed)
		v->latest = time;
	if (v->position < 0xFFFF)
		v->position++;
	ts->source++;
	ts->flags = BB_TS_BEGAN;
	ts->looks = bb_ts_codec(ts->type) ? BB_TS_LOOKS : 0;
}

/* What begins at `q`, of the PID of the video, is no picture. */
bb_inline void bb_ts_strike(struct bb_video *v, struct bb_ts *ts)
{
	v->wrong |= BB_TS_WRONG_BEGIN;
	if (v->codec && v->strikes) {
		v->codec = 0;
		v->group = 0;
		v->tried[0] = 0;
		ts->pid = 0;
		ts->type = 0;
	} else if (v->codec) {
		v->strikes = BB_CODEC_STRIKE;
	}
}

/* PTS of the PES header at `q`, whose fields are there; 0 bits above 2^32 are lost. */
bb_inline __u32 bb_ts_pts(const struct bb_ts_datagram *d, __u32 q)
{
	return (__u32)bb_ts_byte(d, q + 9) >> 1 << 30 | (__u32)bb_ts_byte(d, q + 10) << 22 |
	       (__u32)bb_ts_byte(d, q + 11) >> 1 << 15 | (__u32)bb_ts_byte(d, q + 12) << 7 |
	       bb_ts_byte(d, q + 13) >> 1;
}

/* A program map at `q`, up to `end`: what does it say of the video's PID? */
bb_apart int bb_ts_map(struct bb_video *v, struct bb_ts_datagram *d, __u32 q, __u32 end)
{
	struct bb_ts *ts;
	__u32 last;

	if (!v || !d)
		return 0;
	ts = bb_ts_of(v);
	/* Behind it there is a checksum. */
	last = q + (bb_ts_word(d, q) & 0xFFF);
	last = last < end ? last : end;
	bb_ts_go(d, q + 13 + ((bb_ts_byte(d, q + 11) & 15) << 8 | bb_ts_byte(d, q + 12)));
	for (__u32 i = 0; i < BB_TS_ENTRIES; i++) {
		__u32 at = bb_ts_at(d);

		if (at + 5 > last)
			break;
		if ((bb_ts_word(d, at) >> 8 & 0x1FFF) == ts->pid && ts->pid) {
			__u8 type = bb_ts_byte(d, at);

			if (ts->type && ts->type != type && v->codec)
				v->codec = v->tried[0] = 0;
			ts->type = type;
			break;
		}
		bb_ts_go(d, at + 5 + ((bb_ts_byte(d, at + 3) & 15) << 8 | bb_ts_byte(d, at + 4)));
	}
	return 0;
}

/* A packet of the video, whose payload, if it has any, begins at `q` and ends at `end`. */
bb_inline void bb_ts_of_video(struct bb_video *v, struct bb_ts *ts, struct bb_ts_datagram *d,
			      __u32 begin, __u32 q, __u32 end)
{
	__u32 count = bb_ts_byte(d, begin + 3) & 15;
	int random;

	if (count != ((ts->count + 1) & 15) && count != ts->count)
		v->wrong |= BB_TS_WRONG_COUNT;
	ts->count = count;
	if (bb_ts_byte(d, begin + 1) & 0x40) {
		random = q > begin + 5 && bb_ts_byte(d, begin + 5) & 0x40;
		if (q + 14 > end || !bb_ts_is_video(d, q)) {
			d->flags |= BB_TS_OTHER;
			bb_ts_strike(v, ts);
			return;
		}
		bb_ts_picture(v, ts, bb_ts_pts(d, q), bb_ts_byte(d, q + 7) & 0x80);
		if (random)
			ts->flags |= BB_TS_RANDOM;
		q += 9 + bb_ts_byte(d, q + 8);
	}
	if (ts->looks) {
		bb_ts_go(d, q);
		bb_ts_look(v, ts, d, end);
	}
	d->flags |= BB_TS_VIDEO;
	if (!v->role)
		d->flags |= BB_TS_UNTOLD;
	else if (!d->role || v->role < d->role) {
		d->role = v->role;
		d->source = ts->source;
	}
}

/* Packet i of the datagram. */
bb_apart int bb_ts_packet(struct bb_video *v, struct bb_ts_datagram *d, __u32 i)
{
	__u32 begin = (i & 7) * BB_TS_BYTES, end = begin + BB_TS_BYTES, q = begin + 4, word, pid;
	struct bb_ts *ts;

	if (!v || !d)
		return 0;
	ts = bb_ts_of(v);
	word = bb_ts_word(d, begin);
	pid = word >> 8 & 0x1FFF;
	if (pid == BB_TS_NULL)
		return 0;
	if (word & 0x20)
		q += 1 + bb_ts_byte(d, q);
	/* Scrambled: nothing in it can be read. */
	if (!(word & 0x10) || q >= end || word & 0xC0)
		q = 0;
	if (q && word & 0x400000 && pid != ts->pid && bb_ts_is_video(d, q)) {
		if (ts->pid) {
			v->codec = BB_CODEC_OPAQUE;
			d->flags |= BB_TS_OTHER;
			return 0;
		}
		ts->pid = pid;
		ts->count = (word - 1) & 15;
	}
	if (q && pid == ts->pid) {
		bb_ts_of_video(v, ts, d, begin, q, end);
		return 0;
	}
	d->flags |= BB_TS_OTHER;
	/* Pointer 0, table 2, a section with its syntax. */
	if (q && word & 0x400000 && bb_ts_word(d, q) >> 12 == 0x2B)
		bb_ts_map(v, d, q, end);
	return 0;
}

/* Are all of the datagram's packets of MPEG-TS? */
bb_inline int bb_ts_is(const struct bb_ts_datagram *d, __u32 packets)
{
	for (__u32 i = 0; i < BB_TS_MOST; i++)
		if (i < packets && d->bytes[i * BB_TS_BYTES] != BB_TS_SYNC)
			return 0;
	return 1;
}

enum bb_ts_place {
	BB_TS_PICTURE, /* of picture d->source */
	BB_TS_ALONE, /* of none: it has something else, or is not known yet */
	BB_TS_NOTHING, /* null packets alone */
};

/* Reads a datagram of so many packets: where does it belong? */
bb_inline enum bb_ts_place bb_ts_read(struct bb_video *v, struct bb_ts_datagram *d, __u32 packets)
{
	d->unit = 0;
	d->source = 0;
	d->role = 0;
	d->flags = 0;
	for (__u32 i = 0; i < BB_TS_MOST; i++)
		if (i < packets)
			bb_ts_packet(v, d, i);
	if (!d->flags)
		return BB_TS_NOTHING;
	if (d->role && !(d->flags & (BB_TS_OTHER | BB_TS_UNTOLD)))
		return BB_TS_PICTURE;
	if (d->flags & BB_TS_VIDEO)
		bb_ts_of(v)->source++;
	return BB_TS_ALONE;
}

/* Does its picture end in it? Then another one begins there. */
bb_inline int bb_ts_ends(struct bb_video *v, const struct bb_ts_datagram *d)
{
	return d->source != bb_ts_of(v)->source;
}

#endif /* BB_TS_H */
