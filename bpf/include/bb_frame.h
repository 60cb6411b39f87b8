/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_frame.h - to which ADU of its stream does a packet belong? No maps, no
 * helpers: compiled into the classifier and, natively, into bpf/tests/frame.rs.
 *
 * The problem:
 *
 * 1. RTP names a frame by its timestamp. A timestamp may come back: by a packet
 *    that was overtaken, by a resend, by a sender that plays its file again.
 * 2. Timestamps go back between frames, too: B frames are sent in decoding order.
 * 3. One timestamp may go on for long: a DTMF tone (RFC 4733), a paused video
 *    whose sender probes, a protocol that only looks like RTP. Or for ever: MPEG-TS of
 *    IPTV and of cameras whose senders don't fill it in.
 * 4. Retransmissions (RFC 4588) are a stream of their own, and carry the
 *    timestamps of the frames that they repeat.
 * 5. Two CPUs may meet the first packets of a frame at the same moment.
 * 6. A key frame is several times larger than what refers to it, and under SRTP
 *    nothing else tells.
 *
 * The mechanism:
 *
 * 1. A stream follows two ADUs, the current one and the one before. Older ones
 *    are in the table bb_adus (bb_older.bpf.h).
 * 2. Where a stream counts its packets, the sequence number tells a resend (not
 *    newer than the newest) from a new frame with an old timestamp. Else an old
 *    timestamp that is still known is a late packet of its frame.
 * 3. A frame is packets that follow each other. One that goes on for so long that
 *    its next packet would be stale (the lifetime less the delay of the path), or with
 *    three pauses, is no frame: from then on each packet has a lifetime of its own,
 *    until the timestamp changes, however long that takes.
 * 4. A stream is one of repairs if the rule says so, or if three frames in a row
 *    have the timestamps of older frames of one other stream (bb_repair_learn): of
 *    another payload type, or, as RIST has it, of the SSRC below (bb_repeats).
 * 5. Source, number and place of the current ADU are one word, `head`: the CPU
 *    that swaps it has begun the ADU, the other one joins it.
 * 6. A frame is large from the packet on that takes it beyond twice the mean of its
 *    stream's (bb_frame_is_large). Frames that are all large are the mean; and one
 *    in five is large at most, so that no pattern of sizes spares a stream most of
 *    its bytes.
 */
#ifndef BB_FRAME_H
#define BB_FRAME_H

#include "bb_large.h"

/*
 * An ADU's identification may repeat for ever: a mark set once per socket, say.
 * Beyond this age, or twice the lifetime, the next packet begins another ADU.
 */
#define BB_ADU_MAX_AGE_NS BB_NSEC_PER_SEC

/*
 * A pause within a frame: no pacer that gives the stream 100 kbit/s waits so long
 * before a packet of so many bytes.
 */
#define BB_PAUSE_NS 10000000ULL
#define BB_PAUSE_BYTE_NS 80000ULL
#define BB_PAUSES 3

/* What a packet must have left of its frame's time at least: from here to the queue it loses some. */
#define BB_LAST_MOMENT_NS 1000000ULL

/* Resends and overtaken packets are at most so many packets old; else the stream began again. */
#define BB_SEQ_OLD 2048

/* So far behind, 11 s of video, a timestamp is an old one; else the stream began again. */
#define BB_TIME_OLD (1U << 20)
/* Old packets within an ADU whose own is forgotten: a stream that began again has more. */
#define BB_FORGOTTEN 63
#define BB_FORGOTTEN_ONE 4 /* in bb_stream.pauses, beside two bits that count those */
#define bb_forgotten(stream_) ((stream_)->pauses / BB_FORGOTTEN_ONE)
#define bb_pauses(stream_) ((stream_)->pauses % BB_FORGOTTEN_ONE)

/* Score of a stream of repairs: learnt at the first, and kept for a few misses. */
#define BB_REPAIR_LEARNT 3
#define BB_REPAIR_MOST 8

/* Frames between two large ones, at least. */
#define BB_LARGE_APART 4

/* What a packet says of its ADU. */
struct bb_piece {
	__u64 now;
	__u64 lifetime; /* 0 = none */
	__u64 owd; /* what the path takes of it */
	__u32 source; /* as in struct bb_stream_adu */
	__u32 bytes;
	__u16 seq; /* RTP only */
	__u8 rtp; /* BB_RTP | payload type; 0 = not RTP */
	__u8 old; /* set by bb_frame_place: the sequence number is not a new one */
	__u8 pad[4];
};

enum bb_place {
	BB_PLACE_NEW, /* of an ADU that the stream does not follow: an older one, or it begins */
	BB_PLACE_ADU, /* of one of the two ADUs */
	BB_PLACE_RESENT, /* a resend of one of them */
	BB_PLACE_ALONE, /* of no ADU */
};

/* ---- the head: source, number and place of the current ADU ---- */

#define bb_head(source_, number_, which_) \
	((__u32)(source_) | (__u64)(__u16)(number_) << 32 | (__u64)((which_) & 1) << 48)
#define bb_head_source(head_) ((__u32)(head_))
#define bb_head_number(head_) ((__u16)((head_) >> 32))
#define bb_head_which(head_) ((__u32)((head_) >> 48) & 1)

/* Numbers are 1 to 65535, so that no ADU has the id 0. */
bb_inline __u16 bb_number_after(__u16 number)
{
	return number == 0xFFFF ? 1 : number + 1;
}

bb_inline __u16 bb_number_before(__u16 number)
{
	return number <= 1 ? 0xFFFF : number - 1;
}

bb_inline __u32 bb_adu_id(__u32 stream, const struct bb_stream_adu *adu)
{
	return stream << 16 | adu->number;
}

/* Which of the two has this id; -1 if the stream does not follow it any more. */
bb_inline int bb_adu_which(__u64 head, __u32 id)
{
	__u16 number = bb_head_number(head);

	if ((__u16)id == number)
		return bb_head_which(head);
	return (__u16)id == bb_number_before(number) ? (int)(bb_head_which(head) ^ 1) : -1;
}

/* ---- place ---- */

bb_inline __u64 bb_least(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/* How long an ADU's name may come back and still be its own. */
bb_inline __u64 bb_adu_max_age(__u64 lifetime)
{
	return 2 * lifetime > BB_ADU_MAX_AGE_NS ? 2 * lifetime : BB_ADU_MAX_AGE_NS;
}

/*
 * Is the packet of this ADU, which should have this number? A CPU that begins
 * an ADU fills it in before it swaps the head: until then the number is of no
 * ADU yet. Signed ages: another CPU may have begun the ADU just after `now` was
 * read. An age that does not fit is that of an ADU which never began.
 */
bb_inline int bb_adu_known(const struct bb_stream_adu *adu, __u16 number, const struct bb_piece *p)
{
	return adu->first_ns && adu->source == p->source &&
	       *(const volatile __u16 *)&adu->number == number &&
	       (__s64)(p->now - adu->first_ns) < (__s64)bb_adu_max_age(p->lifetime);
}

/* Is the sequence number an old one? Keeps the newest. */
bb_inline int bb_seq_is_old(struct bb_stream *s, __u16 seq)
{
	__u16 behind = s->seq - seq;

	if (behind < BB_SEQ_OLD)
		return s->flags & BB_STREAM_COUNTS;
	if (behind == 0xFFFF && s->last_ns)
		s->flags |= BB_STREAM_COUNTS;
	s->seq = seq;
	return 0;
}

/* Where the packet belongs; *which says to which of s->adu. */
bb_inline enum bb_place bb_frame_place(struct bb_stream *s, struct bb_piece *p, __u32 *which)
{
	__u64 head = *(volatile __u64 *)&s->head, limit;
	__u32 at = bb_head_which(head);
	struct bb_stream_adu *current = &s->adu[at & 1], *before = &s->adu[(at ^ 1) & 1];
	__s64 pause = p->now - s->last_ns, age;

	p->old = p->rtp && bb_seq_is_old(s, p->seq);
	if (bb_head_source(head) == p->source && bb_adu_known(current, bb_head_number(head), p)) {
		*which = at;
		if (!p->rtp)
			return BB_PLACE_ADU;
		/* last_ns stays: what is resent with it follows at once. */
		if (p->old && pause >= (__s64)BB_PAUSE_NS)
			return BB_PLACE_RESENT;
		s->last_ns = p->now;
		if (pause >= (__s64)(BB_PAUSE_NS + p->bytes * BB_PAUSE_BYTE_NS) &&
		    bb_pauses(s) < BB_PAUSES)
			s->pauses++;
		limit = p->lifetime ? p->lifetime - bb_least(p->owd, p->lifetime) :
				      BB_ADU_MAX_AGE_NS;
		if (bb_pauses(s) >= BB_PAUSES ||
		    (__s64)(p->now + BB_LAST_MOMENT_NS - current->first_ns) > (__s64)limit)
			s->flags |= BB_STREAM_ALONE;
		return s->flags & BB_STREAM_ALONE ? BB_PLACE_ALONE : BB_PLACE_ADU;
	}
	/* The source first: who finds that of an ADU which another CPU begins finds its number, too. */
	if (*(volatile __u32 *)&before->source == p->source &&
	    bb_adu_known(before, bb_number_before(bb_head_number(head)), p)) {
		*which = at ^ 1;
		if (!p->rtp)
			return BB_PLACE_ADU;
		if (p->old && (__s64)(p->now - current->first_ns) >= (__s64)BB_PAUSE_NS)
			return BB_PLACE_RESENT;
		age = p->now - before->first_ns;
		return p->lifetime && age > (__s64)p->lifetime ? BB_PLACE_ALONE : BB_PLACE_ADU;
	}
	return BB_PLACE_NEW;
}

/* ---- size ---- */

/*
 * Is a frame of so many bytes a large one: a key frame, as far as sizes tell? Of a stream that
 * lost its last large one the next is known as such earlier. It grows packet by packet, and must
 * not be given up before that.
 */
bb_inline int bb_frame_is_large(const struct bb_stream *s, __u32 bytes)
{
	__u64 mean = s->avg_bytes;

	return mean && s->since >= BB_LARGE_APART &&
	       bytes > (*(const volatile __u8 *)&s->lost ? mean * 3 / 2 : mean * 2);
}

/*
 * Begins an ADU, or joins the one that another CPU has just begun: *which of s->adu.
 * 0 where another CPU has begun one of another name.
 */
bb_inline int bb_frame_begin(struct bb_stream *s, const struct bb_piece *p, __u32 *which)
{
	__u64 head = *(volatile __u64 *)&s->head;
	__u32 at = bb_head_which(head), bytes;
	struct bb_stream_adu *last = &s->adu[at & 1], *adu = &s->adu[(at ^ 1) & 1];
	__u64 next = bb_head(p->source, bb_number_after(bb_head_number(head)), at ^ 1);
	/* The same name goes on, and was no frame's. */
	__u8 alone = last->first_ns && last->source == p->source ? s->flags & BB_STREAM_ALONE : 0;

	/* Another CPU was faster, since the place was looked for. */
	if (bb_head_source(head) == p->source && bb_adu_known(last, bb_head_number(head), p)) {
		*which = at;
		return 1;
	}
	bytes = last->first_ns && !(s->flags & BB_STREAM_ALONE) ? last->bytes : 0;
	*(volatile __u16 *)&adu->number = bb_head_number(next);
	*(volatile __u64 *)&adu->first_ns = p->now;
	adu->bytes = 0;
	adu->flags = 0;
	adu->promised = 0;
	/* Last, see bb_frame_place: only volatile stores keep their order. */
	*(volatile __u32 *)&adu->source = p->source;
	if (!__sync_bool_compare_and_swap(&s->head, head, next)) {
		head = *(volatile __u64 *)&s->head;
		*which = bb_head_which(head);
		return bb_head_source(head) == p->source;
	}
	if (bb_frame_is_large(s, bytes))
		s->since = 0;
	else if (s->since < BB_LARGE_APART)
		s->since++;
	if (bytes)
		bb_large_learn(s, last, bytes);
	s->flags = (s->flags & ~BB_STREAM_ALONE) | alone;
	s->pauses = 0;
	s->last_ns = p->now;
	s->seq = p->seq;
	*which = at ^ 1;
	return 1;
}

/* Has the packet a lifetime of its own? `place` is where it was put, before an ADU began. */
bb_inline int bb_frame_alone(const struct bb_stream *s, enum bb_place place)
{
	return place == BB_PLACE_ALONE || (place == BB_PLACE_NEW && s->flags & BB_STREAM_ALONE);
}

/* ---- repairs ---- */

/* Is it an RTP timestamp of the past, where `now` is that of the current ADU? */
bb_inline int bb_time_is_old(__u32 now, __u32 source)
{
	return now - source - 1 < BB_TIME_OLD;
}

/*
 * RIST resends a packet as it was, but for the lowest bit of its SSRC, which is then 1 (VSF
 * TR-06-1). Two streams side by side may have such SSRCs, too, and the same timestamps. So
 * the frame, `id`, must be an old one, which the receiver has missed. And the number must be
 * about as far back: each frame since has a packet, and none a great many more than the mean.
 */
bb_inline int bb_repeats(const struct bb_stream *original, __u32 id, __u16 seq, __u32 bytes)
{
	__u32 behind = (__u16)(original->seq - seq);
	__u32 frames = (__u16)(bb_head_number(original->head) - id);
	__u32 packets = original->avg_bytes / (bytes ? bytes : 1) + 1;

	return original->flags & BB_STREAM_COUNTS && frames && behind < BB_SEQ_OLD &&
	       behind + 1 >= frames && behind <= (frames + 1) * 8 * packets;
}

/*
 * The packet has another timestamp than the one before. `hit`: it is that of a
 * frame of another stream, `original`, which began `age` ago; else of none. Is
 * this a stream of repairs? Streams whose timestamps run side by side meet, too:
 * a repair comes later.
 */
bb_inline int bb_repair_learn(struct bb_stream *s, int hit, __u32 original, __s64 age)
{
	if (!hit) {
		s->repairs = s->repairs > BB_REPAIR_LEARNT ? s->repairs - 1 : 0;
	} else if (s->repairs >= BB_REPAIR_LEARNT) {
		if (s->repairs < BB_REPAIR_MOST)
			s->repairs++;
	} else if (age >= (__s64)BB_PAUSE_NS) {
		s->repairs = s->original == (__u16)original ? s->repairs + 1 : 1;
		s->original = original;
	}
	return s->repairs >= BB_REPAIR_LEARNT;
}

#endif /* BB_FRAME_H */
