/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Payloads that say what they are to a flow, not packet by packet: SRT (bb_srt.h), and
 * RTP behind the headers of RIST's main profile.
 *
 * What an SRT connection is known by is in bb_streams, under (flow, socket id of the
 * destination). While a flow is not known to be SRT's it has one such entry, under the
 * id 0, and only where a rule covers it: what nobody vouches for makes no state.
 */
#ifndef BB_SRT_BPF_H
#define BB_SRT_BPF_H

#include "bb_srt.h"
#include "bb_stream.bpf.h"

/* bb_stream_key.rtp */
#define BB_STREAM_SRT 1

_Static_assert(sizeof(struct bb_srt) <= sizeof(((struct bb_stream *)0)->adu),
	       "an SRT connection is kept where a stream has its ADUs");

static __always_inline struct bb_srt *bb_srt_of(struct bb_stream *s)
{
	return (struct bb_srt *)(void *)s->adu;
}

static __always_inline struct bb_stream *bb_srt_stream(struct bb_work *w, struct bb_flow *flow,
						       __u32 id)
{
	struct bb_stream_key key = { .flow = w->flow_hash, .ssrc = id, .rtp = BB_STREAM_SRT };
	__u32 index;

	return bb_find_stream(w, flow, &key, &index);
}

static __always_inline void bb_srt_miss(struct bb_flow *flow)
{
	if (++flow->srt_misses >= BB_SRT_MISSES)
		flow->srt = BB_SRT_NEVER;
}

/* What SRT's control packets look like to RTP: a payload type below 9, no marker, number 0. */
static __always_inline int bb_may_be_srt_control(const struct bb_packet *packet)
{
	return !(packet->flags & BB_P_MARKER) && !packet->seq &&
	       packet->rtp <= (BB_RTP | BB_SRT_LAST_TYPE);
}

/* Is there more to find out of the datagram than bb_read_payload did? */
static __always_inline int bb_asks_flow(const struct bb_packet *packet, const struct bb_flow *flow)
{
	if (packet->key.proto != BB_PROTO_UDP || packet->payload_bytes < BB_SRT_HEADER ||
	    packet->flags & (BB_P_CONTROL | BB_P_FRAG_LATER))
		return 0;
	return packet->flags & BB_P_RTP ? bb_may_be_srt_control(packet) : flow->srt != BB_SRT_NEVER;
}

/* A handshake of SRT is for sure; its words in w->bytes. */
static __always_inline int bb_read_handshake(struct __sk_buff *skb, struct bb_work *w,
					     struct bb_flow *flow)
{
	__u32 *words = (__u32 *)w->bytes;
	struct bb_stream *s;
	__u16 latency;

	if (w->packet.payload_bytes < BB_SRT_HANDSHAKE ||
	    bpf_skb_load_bytes(skb, w->packet.payload, words, BB_SRT_HANDSHAKE))
		return 0;
	for (int i = 0; i < BB_SRT_HANDSHAKE / 4; i++)
		words[i] = bpf_ntohl(words[i]);
	if (!bb_srt_is_handshake(words))
		return 0;
	flow->srt = BB_SRT_IS;
	flow->srt_misses = 0;
	if (!w->rule || w->packet.payload_bytes < BB_SRT_EXTENDED ||
	    bpf_skb_load_bytes(skb, w->packet.payload + BB_SRT_HANDSHAKE,
			       words + BB_SRT_HANDSHAKE / 4, BB_SRT_EXTENDED - BB_SRT_HANDSHAKE))
		return 1;
	words[16] = bpf_ntohl(words[16]);
	words[19] = bpf_ntohl(words[19]);
	latency = bb_srt_granted(words);
	if (latency) {
		s = bb_srt_stream(w, flow, words[3]);
		if (s)
			bb_srt_of(s)->latency_ms = latency;
	}
	return 1;
}

/*
 * RIST's main profile (VSF TR-06-2): GRE's header without options, then the ports of the
 * tunnel, then RTP or RTCP. What is encrypted has a key there.
 */
#define BB_GRE_REDUCED 0x88B6 /* protocol type: ports instead of IP and UDP */
#define BB_GRE_KEEPALIVE 0x88B5
#define BB_GRE_BYTES 8

static __always_inline int bb_read_tunnel(struct __sk_buff *skb, struct bb_work *w, __u32 first)
{
	struct bb_packet *packet = &w->packet;
	__u32 length = packet->payload_bytes - BB_GRE_BYTES;
	__u8 *inner = w->bytes;

	if (first == BB_GRE_KEEPALIVE) {
		packet->flags |= BB_P_CONTROL;
		return 1;
	}
	if (first != BB_GRE_REDUCED || length < 8)
		return 0;
	if (bpf_skb_load_bytes(skb, packet->payload + BB_GRE_BYTES, inner, length < 12 ? 8 : 12))
		return 0;
	if (inner[0] >> 6 != 2)
		return 0;
	packet->inner = BB_GRE_BYTES;
	bb_read_payload(packet, inner, packet->payload + BB_GRE_BYTES, length);
	return 1;
}

/*
 * What a datagram is that does not say so by itself, of a flow that a rule covers or
 * where rules compare payload types: changes w->packet, and w->srt.
 */
__noinline int bb_ask_flow(struct __sk_buff *skb, struct bb_work *w, struct bb_flow *flow)
{
	struct bb_packet *packet;
	struct bb_stream *s;
	struct bb_srt *known;
	__u32 *words, i;
	int fits;

	if (!w || !flow)
		return 0;
	packet = &w->packet;
	words = (__u32 *)w->bytes;
	if (bpf_skb_load_bytes(skb, packet->payload, words, BB_SRT_HEADER))
		return 0;
	for (i = 0; i < BB_SRT_HEADER / 4; i++)
		words[i] = bpf_ntohl(words[i]);
	if (words[0] == BB_SRT_CONTROL && bb_read_handshake(skb, w, flow))
		goto control;
	if (flow->srt != BB_SRT_IS) {
		if (!(packet->flags & BB_P_RTP) && bb_read_tunnel(skb, w, words[0]))
			return 0;
		s = w->rule ? bb_srt_stream(w, flow, 0) : 0;
		if (!s) {
			bb_srt_miss(flow);
			return 0;
		}
		fits = bb_srt_fits(bb_srt_of(s), words, bb_srt_us(w->now));
		if (fits < 0)
			bb_srt_miss(flow);
		if (fits <= 0)
			return 0;
		flow->srt = BB_SRT_IS;
		flow->srt_misses = 0;
		known = bb_srt_of(s);
		known->run = 0;
		s = bb_srt_stream(w, flow, words[3]);
		if (s)
			bb_srt_go_on(bb_srt_of(s), known, bb_srt_us(w->now));
	}
	if (bb_srt_is_control(words[0]))
		goto control;
	if (words[0] & BB_SRT_CONTROL || packet->flags & BB_P_RTP)
		return 0;
	w->srt = words[1] & BB_SRT_RESENT ? BB_SRT_AGAIN : BB_SRT_FIRST;
	w->srt_time = words[2];
	w->srt_id = words[3];
	return 0;
control:
	packet->flags &= ~BB_P_RTP;
	packet->flags |= BB_P_CONTROL;
	packet->rtp = 0;
	return 0;
}

/*
 * The deadline of a data packet: its lifetime began when its original was first due. The
 * receiver counts from the handshake, which took the path's delay, too: so the deadline
 * is when it must have left (bb_judge).
 */
__noinline int bb_place_srt(struct bb_work *w, struct bb_flow *flow)
{
	__u32 now_us, age = 0, lifetime_us;
	__u64 latency;
	struct bb_srt *srt;
	struct bb_stream *s;

	if (!w || !flow)
		return 0;
	s = bb_srt_stream(w, flow, w->srt_id);
	if (s) {
		srt = bb_srt_of(s);
		latency = srt->latency_ms * BB_NSEC_PER_MSEC;
		if (latency && !(w->meta.flags & BB_M_NO_DEADLINE) &&
		    (!w->meta.lifetime || latency < w->meta.lifetime))
			w->meta.lifetime = latency;
		lifetime_us = w->meta.lifetime / 1000;
		now_us = bb_srt_us(w->now);
		if (w->srt == BB_SRT_AGAIN)
			age = bb_srt_again(srt, now_us, w->srt_time);
		else
			age = bb_srt_first(srt, now_us, w->srt_time, lifetime_us);
		if (srt->strikes >= BB_SRT_STRIKES) {
			srt->started = 0;
			srt->strikes = 0;
			flow->srt = BB_SRT_UNKNOWN;
		}
	}
	w->first_ns = w->now > age * 1000ULL ? w->now - age * 1000ULL : 1;
	w->stream = BB_STREAM_NONE;
	if (w->meta.lifetime)
		w->meta.deadline = w->first_ns + w->meta.lifetime;
	if (w->srt == BB_SRT_AGAIN)
		bb_is_repair(&w->meta, w->now, w->first_ns);
	return 0;
}

#endif /* BB_SRT_BPF_H */
