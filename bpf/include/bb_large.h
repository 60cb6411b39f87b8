/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_large.h - which ADUs of a stream are large, and when is the next one expected? No
 * maps, no helpers: compiled into the classifier and, natively, into bpf/tests.
 *
 * The problem: a key frame is several times as large as the frames that refer to it.
 * Who gives up what is largest, or asks whether a frame of usual size still fits, loses
 * the one frame that all others need. What a frame is, SRTP does not say. Its size does,
 * and the time: encoders make key frames at regular intervals, or when asked to.
 *
 * The mechanism:
 *
 * 1. An ADU of more than twice the stream's mean is large, and counts as twice the mean in
 *    the mean: so the mean is that of the others, and follows a stream whose ADUs are larger
 *    from now on within a few of them. A stream's first ADU is taken for a large one, and not
 *    for the mean. Of large ones those count that are three quarters of the last at least: a
 *    scene may make others large for once. Where packets say which frames are key frames
 *    (bb_role.h), those are the large ones, and no others.
 * 2. The next one is expected one interval after the last. Where two intervals in a row
 *    are not alike, or only one was seen, or it is overdue, it may come at any moment.
 * 3. Verdicts change nothing of it: an ADU that was refused was seen as well.
 */
#ifndef BB_LARGE_H
#define BB_LARGE_H

#include "bb_core.h"

#define BB_LARGE_TIMES 2
/* How long the next large ADU is expected, at least, while none comes. */
#define BB_LARGE_RECENT_MS 10000
/* A frame's time is not exact: one that comes so early may be the one expected. */
#define BB_LARGE_EARLY_NS 20000000ULL

#define bb_ms(ns_) ((__u32)((ns_) / 1000000))

bb_inline int bb_is_large(__u32 bytes, __u32 mean)
{
	return mean && bytes / BB_LARGE_TIMES > mean;
}

/* bb_stream.large_every: an interval in units of 4 ms, 0 = not known, and mode tc's HTB leaf. */
#define BB_LARGE_UNIT_MS 4
#define bb_large_every(s_) (((s_)->large_every & 0x1FFFU) * BB_LARGE_UNIT_MS)
#define bb_large_leaf(s_) ((__u8)((s_)->large_every >> 13))

/* Has no large ADU come for so long that none is expected? */
bb_inline int bb_large_forgotten(const struct bb_stream *s, __u64 now)
{
	__u32 age = bb_ms(now) - s->large_ms;

	return !s->large_ms || age > BB_LARGE_RECENT_MS + 2 * bb_large_every(s);
}

/* A large ADU began at first_ns, in this leaf. */
bb_inline void bb_large_seen(struct bb_stream *s, __u64 first_ns, __u32 bytes, __u8 leaf)
{
	__u32 ms = bb_ms(first_ns), last = bb_large_every(s), every, unlike;

	every = s->large_ms ? ms - s->large_ms : 0;
	if (every >= 0x1FFF * BB_LARGE_UNIT_MS)
		every = 0;
	unlike = every > last ? every - last : last - every;
	if (every && last && unlike > every / 8)
		s->flags |= BB_STREAM_ODD;
	else
		s->flags &= ~BB_STREAM_ODD;
	s->large_every = (every + BB_LARGE_UNIT_MS / 2) / BB_LARGE_UNIT_MS | (leaf & 7) << 13;
	s->large_ms = ms ?: 1;
	s->large_bytes = bytes;
}

/* The ADU that began at last->first_ns has come, with so many bytes. */
bb_inline void bb_large_learn(struct bb_stream *s, const struct bb_stream_adu *last, __u32 bytes)
{
	__u32 mean = s->avg_bytes;
	int known = last->flags & (BB_ADU_KEY | BB_ADU_OTHER);
	int large = known ? last->flags & BB_ADU_KEY : bb_is_large(bytes, mean);
	/* A key frame may be no larger than others: of some streams all are key frames. */
	__u64 counts = large && bb_is_large(bytes, mean) ? 2 * (__u64)mean : bytes;

	if (!mean) {
		/* Decoders begin with a key frame, so senders do. */
		bb_large_seen(s, last->first_ns, bytes, last->leaf);
		s->avg_bytes = bytes;
		s->flags |= BB_STREAM_ONE;
		return;
	}
	if (s->flags & BB_STREAM_ONE)
		s->avg_bytes = bytes;
	else
		s->avg_bytes = (3 * (__u64)mean + counts) / 4;
	s->flags &= ~BB_STREAM_ONE;
	if (large &&
	    (known || bytes >= s->large_bytes / 4 * 3 || bb_large_forgotten(s, last->first_ns)))
		bb_large_seen(s, last->first_ns, bytes, last->leaf);
}

enum bb_large_when {
	BB_LARGE_NEVER, /* none is expected */
	BB_LARGE_SOME_TIME, /* from *at on, which may be long ago */
	BB_LARGE_AT, /* at *at */
};

/* When is the stream's next large ADU expected? */
bb_inline enum bb_large_when bb_large_next(const struct bb_stream *s, __u64 now, __u64 *at)
{
	__u32 age = bb_ms(now) - s->large_ms, every = bb_large_every(s), wait;

	*at = now;
	if (bb_large_forgotten(s, now))
		return BB_LARGE_NEVER;
	wait = s->flags & BB_STREAM_ODD ? every / 2 : every;
	if (age < wait)
		*at += (wait - age) * 1000000ULL;
	if (age < wait && !(s->flags & BB_STREAM_ODD))
		return BB_LARGE_AT;
	return s->large_bytes / 5 * 2 > s->avg_bytes ? BB_LARGE_SOME_TIME : BB_LARGE_NEVER;
}

/* May this ADU, which begins, be the one that is expected? */
bb_inline int bb_large_due(const struct bb_stream *s, const struct bb_stream_adu *adu)
{
	__u32 every = bb_large_every(s), tolerance = BB_LARGE_EARLY_NS / 1000000;
	__s32 late = bb_ms(adu->first_ns) - s->large_ms - every;

	if (adu->flags & (BB_ADU_KEY | BB_ADU_OTHER))
		return adu->flags & BB_ADU_KEY;
	return s->large_ms && every && !(s->flags & BB_STREAM_ODD) && late >= -(__s32)tolerance &&
	       late <= (__s32)(tolerance + every / 32);
}

#endif /* BB_LARGE_H */
