/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Role of a frame, read from the packet (bb_role.h has the rules): finds the payload, keeps what is
 * known of the stream, and says what follows from it.
 *
 * 1. Only RTP that a rule or, in mode qdisc, a mark vouches for is read, and of a stream only the frame that it is at: repairs
 *    and what comes out of order say nothing new. Of a super-packet only the first could be
 *    read, so none is.
 * 2. Of a stream whose codec is known, the key frames are what the queue spares, whatever
 *    their size is. Sizes are what is left where nothing can be read (bb_large.h).
 * 3. Frames of which one is worth nothing without the other say so (bb_chain.h): to the queue in the
 *    control block, in mode tc to the model.
 * 4. Where neither the application nor the operator says how important the packet is, its role does. A
 *    rule with priorities of roles goes before the tables of SO_PRIORITY and DSCP, as any word of a rule.
 */
#ifndef BB_ROLE_BPF_H
#define BB_ROLE_BPF_H

#include "bb_chain.h"
#include "bb_role.h"
#include "bb_stream.bpf.h"

/* RTP's fixed header: the payload comes behind it nearly always. */
#define BB_RTP_HEADER 12

/* So many bytes of it and of the payload behind it are read: 1 to 32, as the mask tells the verifier. */
#define BB_LOOK_BYTES (BB_RTP_HEADER + BB_ROLE_BYTES)

static __always_inline int bb_look(struct __sk_buff *skb, __u32 at, __u8 *to, __u32 n, __u32 mask)
{
	n--;
	/* clang must not see that the mask does nothing. */
	asm volatile("" : "+r"(n));
	return !bpf_skb_load_bytes(skb, at, to, (n & mask) + 1);
}

/* Reads RTP's header extensions, `words` of them behind `at`, into w->ext: as much as there is room for. */
static __always_inline void bb_look_at_extensions(struct __sk_buff *skb, struct bb_work *w,
						  __u32 at, __u32 form, __u32 words)
{
	__u32 n = words < BB_EXT_BYTES / 4 ? 4 * words : BB_EXT_BYTES;

	w->ext.two_byte = form >> 4 == BB_EXT_TWO_BYTE >> 4;
	w->ext.form = form;
	if (n && (w->ext.two_byte || form == BB_EXT_ONE_BYTE) &&
	    bb_look(skb, at, w->ext.b, n, BB_EXT_BYTES - 1))
		w->ext.n = n;
}

/*
 * Reads the first bytes of RTP's payload into w->look, behind the header, and returns how many there
 * are; 0 = none, or they cannot be read. `extensions`: those, too.
 */
static __always_inline __u32 bb_look_at_payload(struct __sk_buff *skb, struct bb_work *w,
						int extensions)
{
	__u32 at = w->packet.payload, length = w->packet.payload_bytes, header = BB_RTP_HEADER;
	__u32 n = length < BB_LOOK_BYTES ? length : BB_LOOK_BYTES;
	__u16 words[2] = {};

	w->ext.n = 0;
	w->ext.form = 0;
	if (n <= BB_RTP_HEADER || !bb_look(skb, at, w->look, n, 31))
		return 0;
	if (!(w->look[0] & 0x1F))
		return n - BB_RTP_HEADER;
	header += 4 * (w->look[0] & 15);
	if (w->look[0] & 0x10) {
		if (bpf_skb_load_bytes(skb, at + header, words, sizeof(words)))
			return 0;
		header += 4;
		if (extensions)
			bb_look_at_extensions(skb, w, at + header, bpf_ntohs(words[0]),
					      bpf_ntohs(words[1]));
		header += 4 * bpf_ntohs(words[1]);
	}
	if (header >= length)
		return 0;
	n = length - header < BB_ROLE_BYTES ? length - header : BB_ROLE_BYTES;
	return bb_look(skb, at + header, w->look + BB_RTP_HEADER, n, 15) ? n : 0;
}

/* A global function: verified once. What does the packet say, read as of codec c? */
__noinline __u32 bb_ask_codec(struct bb_work *w, struct bb_video *video, __u32 c, __u32 first)
{
	struct bb_seen seen = {};

	if (!w || !video)
		return BB_SAYS_WRONG;
	seen.payload = w->look + BB_RTP_HEADER;
	seen.n = w->look_n;
	seen.first = first;
	seen.last = !!(w->packet.flags & BB_P_MARKER);
	return bb_codec_says(video, &seen, &w->ext, c);
}

/*
 * The packet is of ADU `adu`, of a stream whose frames tell their roles, and comes before what tells it: a
 * delimiter or parameter sets in packets of their own. Whatever becomes of the frame, it goes for itself,
 * as a key frame does that may follow: it is small, and without parameter sets a decoder does not begin.
 */
static __always_inline void bb_go_before(struct bb_work *w, struct bb_stream_adu *adu, __u32 bytes)
{
	adu->bytes -= bytes;
	w->meta.adu = 0;
	w->meta.flags |= BB_M_LARGE;
	w->stream = BB_STREAM_NONE;
}

/* What the rule says that a frame of this role is worth. */
static __always_inline __u32 bb_told_priority(const struct bb_work *w, enum bb_role role)
{
	__u32 index = w->rule;
	const struct bb_rule *rule = bpf_map_lookup_elem(&bb_rules, &index);

	return rule ? bb_role_priority_told(rule->roles, role) : BB_PRIORITY_DEFAULT;
}

/* For `bestby explain`: what is known of the stream at the interfaces. */
static __always_inline void bb_told_video(struct bb_video *video)
{
	const void *told = (const void *)&bb_told.video;

	/* clang knows what a constant begins with, and not that it is overwritten before it is loaded. */
	asm volatile("" : "+r"(told));
	__builtin_memcpy(video, told, sizeof(*video));
}

/*
 * ... and what was read: the payload, or the header extension that the codec is known by. In a loop, as
 * its place in memory is known to nobody.
 */
static __always_inline void bb_explain_read(const struct bb_work *w, const struct bb_video *video,
					    enum bb_role role)
{
	struct bb_explained *explained = bb_explanation_here();
	__u32 i;

	if (!explained)
		return;
	explained->read.video = *video;
	explained->read.extension = bb_is_extension(video->codec);
	if (explained->read.extension) {
		explained->read.n = w->ext.bytes < BB_READ_BYTES ? w->ext.bytes : BB_READ_BYTES;
		for (i = 0; i < BB_READ_BYTES; i++)
			explained->read.bytes[i] = bb_ext_byte(&w->ext, i);
	} else {
		explained->read.n = w->look_n;
		__builtin_memcpy(explained->read.bytes, w->look + BB_RTP_HEADER, BB_READ_BYTES);
	}
	explained->read.done = 1;
	explained->read.role = role;
	explained->read.decides = !!w->unsaid;
}

/* Nothing is known yet of the stream whose way has this generation. */
static __always_inline void bb_video_begin(const struct bb_work *w, struct bb_video *video,
					   __u32 gen)
{
	__builtin_memset(video, 0, sizeof(*video));
	if (bb_told.explain)
		bb_told_video(video);
	video->gen = gen;
	video->ssrc = w->packet.ssrc;
}

/*
 * Of a stream that begins: header extensions are tried first under the ids that the rule gives. They
 * are not believed more than others: if frames contradict, the next id is tried (bb_video_frame).
 */
__noinline int bb_video_ids(struct bb_work *w, struct bb_video *video)
{
	const struct bb_rule *rule;
	__u32 index;

	if (!w || !video)
		return 0;
	index = w->rule;
	rule = bpf_map_lookup_elem(&bb_rules, &index);
	if (!rule || bb_told.explain)
		return 0;
	video->dd = rule->dd;
	video->vfm = rule->vfm;
	return 0;
}

/* Of ADU `which` of its stream. */
__noinline int bb_read_video(struct __sk_buff *skb, struct bb_work *w, __u32 which, __u32 mode)
{
	struct bb_video *video;
	struct bb_stream *s;
	enum bb_role role;
	__u32 codec, says, first = 0;

	if (!w)
		return 0;
	video = bb_video_at(w->stream);
	s = bb_stream_at(w->stream);
	if (!video || !s)
		return 0;
	if (video->number != s->adu[which & 1].number) {
		video->number = s->adu[which & 1].number;
		bb_video_frame(video, w->packet.rtp_time);
		first = 1;
	}
	codec = video->codec;
	if (codec == BB_CODEC_OPAQUE)
		return 0;
	w->look_n = bb_look_at_payload(skb, w, !codec || bb_is_extension(codec));
	video->key |= bb_ext_cryptex(&w->ext);
	if (!codec) {
		for (__u32 c = 0; c < BB_CODECS; c++)
			bb_ask_codec(w, video, c, first);
		return 0;
	}
	says = bb_ask_codec(w, video, codec - 1, first);
	role = bb_video_role(video, says);
	bb_explain_read(w, video, role);
	/* Of a stream that was met in the middle nothing is known until its next key frame. */
	if (codec == BB_CODEC_DD + 1 && !video->templates)
		return 0;
	w->meta.flags &= ~BB_M_LARGE;
	if (w->unsaid)
		w->meta.priority = w->rule_flags & BB_RULE_ROLES ?
					   bb_told_priority(w, role) :
					   bb_role_priority(video, role, mode == BB_MODE_TC);
	if (!bb_video_told(video)) {
		if (!(says & BB_SAYS_WRONG))
			bb_go_before(w, &s->adu[which & 1], skb->len);
		return 0;
	}
	s->adu[which & 1].flags |= role == BB_ROLE_KEY ? BB_ADU_KEY : BB_ADU_OTHER;
	if (role == BB_ROLE_KEY)
		w->meta.flags |= BB_M_LARGE;
	if (w->meta.treatment == BB_TREAT_DISCARD && bb_chain_ends(video, w->rule_flags))
		w->role = role;
	return 0;
}

/* The packet's ADU was found: what is it for? */
static __always_inline void bb_read_role(struct __sk_buff *skb, struct bb_work *w, __u32 mode)
{
	struct bb_stream *s;
	struct bb_video *video;
	__u32 gen;

	/* In mode tc a mark alone does not do: some packets of such streams were seconds late there. */
	if (!w->packet.rtp || !(mode == BB_MODE_TC ? w->rule : w->media) ||
	    w->stream == BB_STREAM_NONE || w->rule_flags & BB_RULE_BLIND ||
	    w->meta.flags & BB_M_REPAIR || skb->gso_size)
		return;
	s = bb_stream_at(w->stream);
	video = bb_video_at(w->stream);
	if (!s || !video || w->adu_which != bb_head_which(s->head))
		return;
	gen = bb_owner_gen(bb_way_owner(&s->way));
	if (video->gen != gen) {
		bb_video_begin(w, video, gen);
		bb_video_ids(w, video);
	}
	if (video->ssrc != w->packet.ssrc)
		return;
	if (video->codec != BB_CODEC_OPAQUE)
		bb_read_video(skb, w, w->adu_which, mode);
}

#endif /* BB_ROLE_BPF_H */
