/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Older ADUs: a stream follows two (bb_frame.h), and a packet may be of one before them,
 * or repeat one.
 *
 * 1. They are in bb_adus under (flow, RTP timestamp), each with the stream whose frame
 *    it was, so that a retransmission on an SSRC of its own finds the frame that it
 *    repeats.
 * 2. Each new ADU is looked for there first, because its timestamp may have come back.
 *    Nearly always none is found, so that the look comes before the search.
 * 3. The one that began longest ago gives its place to the next.
 */
#ifndef BB_OLDER_BPF_H
#define BB_OLDER_BPF_H

#include "bb_frame.h"
#include "bb_maps.bpf.h"

static __always_inline struct bb_stream *bb_stream_at(__u32 index)
{
	return bpf_map_lookup_elem(&bb_streams, &index);
}

static __always_inline struct bb_video *bb_video_at(__u32 index)
{
	return bpf_map_lookup_elem(&bb_videos, &index);
}

/* A packet of this stream is repaired: so a frame that was given up may be. */
static __always_inline void bb_note_healed(__u32 stream)
{
	struct bb_video *video = bb_video_at(stream);

	if (video && !(video->key & BB_VIDEO_HEALED))
		video->key |= BB_VIDEO_HEALED;
}

/* All but the number: an id of the last owner's is not given again. */
static __always_inline __u64 bb_adu_hash(__u64 flow, __u32 source)
{
	__u64 hash = (flow ^ source) * 0x9E3779B97F4A7C15ULL;

	return hash ^ hash >> 32;
}

#define bb_adu_set_of(hash_) ((__u32)(hash_) & (BB_ADU_SETS - 1))
#define bb_adu_tag(hash_, rtp_) ((__u32)((hash_) >> 32) << 8 | (__u8)(rtp_))

/* BPF has no conditional move: without a branch clang needs several for each choice. */
#define bb_keep_branch() asm volatile("")

/*
 * For each new ADU: may a way have one of its timestamp? Nearly always none does. The
 * way that began longest ago is left in *oldest.
 */
static __always_inline int bb_may_know(const struct bb_adu_set *set, __u32 tag, __u64 after,
				       __u32 *oldest)
{
	__u64 since = ~0ULL;
	int known = 0;

#pragma unroll
	for (__u32 i = 0; i < BB_ADU_WAYS; i++) {
		__u64 first = set->way[i].first_ns;

		if (first < since) {
			since = first;
			*oldest = i;
			bb_keep_branch();
		}
		if (!((set->way[i].tag ^ tag) >> 8) && (__s64)(first - after) > 0) {
			known = 1;
			bb_keep_branch();
		}
	}
	return known;
}

/* What bb_scan_adus returns: */
#define BB_SCAN_OWN 0x10 /* and a way, which has this ADU, of this stream */
#define BB_SCAN_OTHERS 0x20 /* a way has one that may be this ADU, of another stream */

/*
 * The short form of bb_recall. `tag` of bb_adu_tag; ADUs that did not begin after
 * `after` are forgotten.
 */
__noinline __u32 bb_scan_adus(const struct bb_adu_set *set, __u32 tag, __u32 stream, __u64 after)
{
	__u32 own = 0, others = 0;

	if (!set)
		return 0;
#pragma unroll
	for (__u32 i = 0; i < BB_ADU_WAYS; i++) {
		const struct bb_adu *adu = &set->way[i];

		if ((adu->tag ^ tag) >> 8 || (__s64)(adu->first_ns - after) <= 0)
			continue;
		if (adu->id >> 16 == stream && adu->tag == tag)
			own = BB_SCAN_OWN | i;
		else
			others = BB_SCAN_OTHERS;
	}
	return own ? own : others;
}

static __always_inline void bb_remember(struct bb_adu_set *set, __u32 way, __u32 tag, __u32 id,
					__u64 now)
{
	/* clang must not compute the address before the check. */
	asm volatile("" : "+r"(way));
	way &= BB_ADU_WAYS - 1;
	set->way[way].first_ns = now;
	set->way[way].id = id;
	set->way[way].tag = tag;
}

/* What is asked of bb_adus, and the answer. */
struct bb_recall {
	__u64 flow;
	__u64 now;
	__u64 max_age;
	__u64 first_ns; /* answer: when the ADU began */
	__u32 id; /* answer: its id; 0 = none is known */
	__u32 source;
	__u32 ssrc;
	__u32 stream; /* the asking packet's */
	__u32 bytes;
	__u16 seq;
	__u8 rtp;
	__u8 original; /* only ADUs of this BB_RTP | payload type; 0 = any that it may repeat */
};

/* May a packet repeat one of this stream's? */
static __always_inline int bb_may_repeat(const struct bb_recall *r, const struct bb_stream *other,
					 __u32 id)
{
	if (r->original)
		return other->key.rtp == r->original;
	if (other->key.rtp != r->rtp)
		return 1;
	return r->ssrc & 1 && other->key.ssrc == (r->ssrc ^ 1) &&
	       bb_repeats(other, id, r->seq, r->bytes);
}

/* Looks for an ADU of this timestamp: the youngest of another SSRC's. */
__noinline int bb_recall(struct bb_recall *r)
{
	struct bb_adu_set *set;
	struct bb_stream *other;
	__u64 hash;
	__u32 index, tag;

	if (!r)
		return 0;
	hash = bb_adu_hash(r->flow, r->source);
	index = bb_adu_set_of(hash);
	tag = bb_adu_tag(hash, r->rtp);
	r->id = 0;
	r->first_ns = 0;
	set = bpf_map_lookup_elem(&bb_adus, &index);
	if (!set)
		return 0;
#pragma unroll
	for (__u32 i = 0; i < BB_ADU_WAYS; i++) {
		struct bb_adu *adu = &set->way[i];
		__u64 first = adu->first_ns;

		if ((adu->tag ^ tag) >> 8 || (__s64)(r->now - first) >= (__s64)r->max_age)
			continue;
		other = bb_stream_at(adu->id >> 16);
		if (!other || adu->id >> 16 == r->stream || other->key.flow != r->flow ||
		    other->key.rtp != (__u8)adu->tag || other->key.ssrc == r->ssrc ||
		    first < r->first_ns || !bb_may_repeat(r, other, adu->id))
			continue;
		r->first_ns = first;
		r->id = adu->id;
	}
	return 0;
}

#endif /* BB_OLDER_BPF_H */
