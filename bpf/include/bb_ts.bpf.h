/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * MPEG-TS in UDP, or in RTP (bb_ts.h has the rules): finds the datagram's packets, keeps what is known of the
 * stream, and names the ADU: a picture instead of a datagram.
 *
 * 1. Only what a rule or, in mode qdisc, a mark vouches for is read, as in bb_role.bpf.h; and nothing where
 *    the application names its ADUs or their deadlines itself.
 * 2. What has another length than MPEG-TS costs a comparison, and what has another first byte one look.
 * 3. Its stream is beside that of RTP, which finds out what is a repair: a repair tells nothing new, and that
 *    what was given up may be healed.
 * 4. What belongs to no picture goes for itself. It is as important as a key frame, and spared like one; so
 *    nothing of the video is kept at the cost of audio, tables or PCR. Mode tc, which spares nothing, asks for it
 *    as for something more important (bb_tc_verdict.bpf.h). Where nobody says a priority all of a stream is in
 *    one leaf, and one class of the order, whatever its pictures are worth.
 */
#ifndef BB_TS_BPF_H
#define BB_TS_BPF_H

#include "bb_role.bpf.h"
#include "bb_ts.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct bb_ts_datagram);
	__uint(max_entries, 1);
} bb_ts_datagrams SEC(".maps");

static __always_inline __u32 bb_ts_header(const struct bb_work *w)
{
	return w->packet.flags & BB_P_RTP ? BB_RTP_HEADER : 0;
}

/* May the packet be of MPEG-TS, and is it to be read? */
static __always_inline int bb_may_be_ts(const struct __sk_buff *skb, const struct bb_work *w,
					__u32 mode)
{
	__u32 length = w->packet.payload_bytes - bb_ts_header(w);

	if (length % BB_TS_BYTES)
		return 0;
	return length - BB_TS_BYTES < BB_TS_MOST * BB_TS_BYTES &&
	       w->packet.key.proto == BB_PROTO_UDP && (mode == BB_MODE_TC ? w->rule : w->media) &&
	       !(w->rule_flags & (BB_RULE_BLIND | BB_RULE_NO_FRAMES)) && !w->meta.adu_bits &&
	       !w->meta.deadline && !skb->gso_size &&
	       !(w->packet.flags & (BB_P_FRAG_FIRST | BB_P_FRAG_LATER));
}

/* Its video, if it is MPEG-TS; NULL: it is not, or there is no room for what is known of it. */
static __always_inline struct bb_video *bb_ts_video(struct bb_work *w, struct bb_flow *flow)
{
	struct bb_stream_key key = { .flow = w->flow_hash, .rtp = BB_STREAM_TS };
	struct bb_video *video;
	struct bb_stream *s;
	__u32 index, gen;

	key.ssrc = bb_ts_ssrc(w);
	s = bb_find_stream(w, flow, &key, &index);
	video = bb_video_at(index);
	if (!s || !video)
		return 0;
	gen = bb_owner_gen(bb_way_owner(&s->way));
	if (video->gen != gen)
		bb_video_begin(w, video, gen);
	return video;
}

/* Reads the datagram's packets. 0: they are not of MPEG-TS. */
static __always_inline __u32 bb_ts_load(struct __sk_buff *skb, const struct bb_work *w,
					struct bb_ts_datagram *d)
{
	__u32 at = w->packet.payload + bb_ts_header(w);
	__u32 packets = (w->packet.payload_bytes - bb_ts_header(w)) / BB_TS_BYTES, more;

	if (bpf_skb_load_bytes(skb, at, d->bytes, 1) || d->bytes[0] != BB_TS_SYNC)
		return 0;
	more = packets - 1;
	/* clang must not see that the mask does nothing. */
	asm volatile("" : "+r"(more));
	if (bpf_skb_load_bytes(skb, at, d->bytes, (more & 7) * BB_TS_BYTES + BB_TS_BYTES) ||
	    !bb_ts_is(d, packets))
		return 0;
	return packets;
}

/* For `bestby explain`: the unit that told. */
static __always_inline void bb_ts_explain(const struct bb_work *w, const struct bb_video *video,
					  const struct bb_ts_datagram *d, __u32 role)
{
	struct bb_explained *explained = bb_explanation_here();

	if (!explained)
		return;
	explained->read.video = *video;
	explained->read.extension = 0;
	explained->read.n = role && d->unit ? BB_READ_BYTES : 0;
	for (__u32 i = 0; i < BB_READ_BYTES; i++)
		explained->read.bytes[i] = bb_ts_byte(d, d->unit + i);
	explained->read.done = 1;
	explained->read.role = role;
	explained->read.decides = !!w->unsaid;
}

/* What bb_place_ts returns. */
enum bb_ts_verdict {
	BB_TS_NONE, /* it is not of MPEG-TS */
	BB_TS_IS, /* ... or it is, and has its place */
	BB_TS_IS_PICTURE, /* it is of the picture w->ts: bb_find_adu finds that one */
};

/* A packet that may be of MPEG-TS, after bb_find_adu. What belongs to a picture has no place yet: stack is short. */
__noinline int bb_place_ts(struct __sk_buff *skb, struct bb_work *w, struct bb_flow *flow,
			   __u32 mode)
{
	__u32 zero = 0, packets, role;
	struct bb_ts_datagram *d;
	struct bb_video *video;
	enum bb_ts_place place;

	if (!w || !flow)
		return BB_TS_NONE;
	d = bpf_map_lookup_elem(&bb_ts_datagrams, &zero);
	if (!d)
		return BB_TS_NONE;
	packets = bb_ts_load(skb, w, d);
	if (!packets)
		return BB_TS_NONE;
	video = bb_ts_video(w, flow);
	if (!video || video->codec == BB_CODEC_OPAQUE)
		return BB_TS_IS;
	if (w->meta.flags & BB_M_REPAIR) {
		video->key |= BB_VIDEO_HEALED;
		return BB_TS_IS;
	}
	place = bb_ts_read(video, d, packets);
	if (!video->codec || video->codec == BB_CODEC_OPAQUE)
		return BB_TS_IS;
	bb_ts_explain(w, video, d, place == BB_TS_PICTURE ? d->role : BB_ROLE_NONE);
	w->packet.rtp = BB_STREAM_TS;
	w->meta.flags &= ~BB_M_LARGE;
	role = place == BB_TS_PICTURE ? d->role : BB_ROLE_KEY;
	if (w->unsaid)
		w->meta.priority = place == BB_TS_NOTHING ?
					   BB_PRIORITIES - 1 :
				   w->rule_flags & BB_RULE_ROLES ?
					   bb_told_priority(w, role) :
					   bb_role_priority(video, role, mode == BB_MODE_TC);
	if (role == BB_ROLE_KEY && place != BB_TS_NOTHING)
		w->meta.flags |= BB_M_LARGE;
	if (place != BB_TS_PICTURE) {
		w->ts_beside = place == BB_TS_ALONE;
		w->meta.adu = 0;
		w->stream = BB_STREAM_NONE;
		if (w->meta.lifetime)
			w->meta.deadline = w->now + w->meta.lifetime;
		return BB_TS_IS;
	}
	w->ts = 1U << 16 | d->source;
	if (bb_ts_ends(video, d))
		w->packet.flags |= BB_P_MARKER;
	/*
	 * Mode tc does not see the end of a picture that ends in a datagram with audio, and refuses
	 * too many: with chains the link would be idle.
	 */
	if (mode != BB_MODE_TC && w->meta.treatment == BB_TREAT_DISCARD &&
	    bb_chain_ends(video, w->rule_flags))
		w->role = role;
	return BB_TS_IS_PICTURE;
}

#endif /* BB_TS_BPF_H */
