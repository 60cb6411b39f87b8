/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Role of a frame, read from the packet (bb_role.h has the rules): finds the payload, keeps what is
 * known of the stream, and says what follows from it.
 *
 * 1. Only RTP that a rule covers is read, and of a stream only the frame that it is at: repairs
 *    and what comes out of order say nothing new. Of a super-packet only the first could be
 *    read, so none is.
 * 2. Of a stream whose codec is known, the key frames are what the queue spares, whatever
 *    their size is. Sizes are what is left where nothing can be read (bb_large.h).
 * 3. Frames of which one is worth nothing without the other say so (bb_chain.h): to the queue in the
 *    control block, in mode tc to the model.
 * 4. Where neither the application nor the operator says how important the packet is, its role does.
 */
#ifndef BB_ROLE_BPF_H
#define BB_ROLE_BPF_H

#include "bb_chain.h"
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

/*
 * Reads the first bytes of RTP's payload into w->look, behind the header, and returns how many there
 * are; 0 = none, or they cannot be read.
 */
static __always_inline __u32 bb_look_at_payload(struct __sk_buff *skb, struct bb_work *w)
{
	__u32 at = w->packet.payload, length = w->packet.payload_bytes, header = BB_RTP_HEADER;
	__u32 n = length < BB_LOOK_BYTES ? length : BB_LOOK_BYTES;
	__u16 words = 0;

	if (n <= BB_RTP_HEADER || !bb_look(skb, at, w->look, n, 31))
		return 0;
	if (!(w->look[0] & 0x1F))
		return n - BB_RTP_HEADER;
	header += 4 * (w->look[0] & 15);
	if (w->look[0] & 0x10) {
		if (bpf_skb_load_bytes(skb, at + header + 2, &words, 2))
			return 0;
		header += 4 + 4 * bpf_ntohs(words);
	}
	if (header >= length)
		return 0;
	n = length - header < BB_ROLE_BYTES ? length - header : BB_ROLE_BYTES;
	return bb_look(skb, at + header, w->look + BB_RTP_HEADER, n, 15) ? n : 0;
}

/* A global function: verified once. `begins`: the packet is the first one of its frame. */
__noinline int bb_read_video(struct __sk_buff *skb, struct bb_work *w, __u32 begins, __u32 mode)
{
	struct bb_video *video;
	enum bb_role role;
	__u32 n;

	if (!w)
		return 0;
	video = bb_video_at(w->stream);
	if (!video)
		return 0;
	n = bb_look_at_payload(skb, w);
	role = bb_video_read(video, w->look + BB_RTP_HEADER, n, begins,
			     w->packet.flags & BB_P_MARKER);
	if (!video->codec || video->codec == BB_CODEC_OPAQUE)
		return 0;
	w->meta.flags &= ~BB_M_LARGE;
	if (role == BB_ROLE_KEY)
		w->meta.flags |= BB_M_LARGE;
	if (w->meta.treatment == BB_TREAT_DISCARD && bb_chain_ends(video))
		w->role = role; /* none: a delimiter tells nothing of a leaf, or of a link */
	if (w->unsaid)
		w->meta.priority = bb_role_priority(video, role, mode == BB_MODE_TC);
	return 0;
}

/* The packet's ADU was found: what is it for? */
static __always_inline void bb_read_role(struct __sk_buff *skb, struct bb_work *w, __u32 mode)
{
	struct bb_stream *s;
	struct bb_video *video;
	__u32 gen, begins;

	if (!w->packet.rtp || !w->rule || w->stream == BB_STREAM_NONE ||
	    w->meta.flags & BB_M_REPAIR || skb->gso_size)
		return;
	s = bb_stream_at(w->stream);
	video = bb_video_at(w->stream);
	if (!s || !video || w->adu_which != bb_head_which(s->head))
		return;
	gen = bb_owner_gen(bb_way_owner(&s->way));
	if (video->gen != gen) {
		__builtin_memset(video, 0, sizeof(*video));
		video->gen = gen;
	}
	if (video->codec == BB_CODEC_OPAQUE)
		return;
	begins = s->adu[w->adu_which & 1].bytes == skb->len;
	bb_read_video(skb, w, begins, mode);
}

#endif /* BB_ROLE_BPF_H */
