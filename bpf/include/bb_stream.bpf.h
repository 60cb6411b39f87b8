/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Streams and their ADUs: whose packet is this, when did its ADU begin, and what
 * is its deadline?
 *
 * 1. The stream, in bb_streams under (flow, SSRC, payload type). Marks, explicit
 *    deadlines and fragments are streams, too, under constants in the place of an
 *    SSRC. A flow remembers the stream of its last packet.
 * 2. The ADU: one of the two that the stream follows (bb_frame.h), an older one,
 *    (bb_older.bpf.h), or a new one.
 * 3. The deadline: a lifetime starts with the ADU's first packet. A repair has
 *    its original's deadline, the lowest priority and no ADU: one that is refused
 *    does not take its frame along. One whose original is forgotten is stale.
 * 4. The rule, where rules compare payload types or SSRCs: kept for the stream.
 *
 * What finds no way in bb_streams has a lifetime of its own and no ADU.
 */
#ifndef BB_STREAM_BPF_H
#define BB_STREAM_BPF_H

#include "bb_count.bpf.h"
#include "bb_frame.h"
#include "bb_older.bpf.h"
#include "bb_rules.bpf.h"
#include "bb_work.bpf.h"

/* bb_stream_key.ssrc where rtp is 0. */
#define BB_STREAM_MARK 1
#define BB_STREAM_FRAGMENT 2
#define BB_STREAM_DEADLINE 3

#define BB_STREAM_NONE (~0U)

static __always_inline void bb_stream_wipe(struct bb_stream *s)
{
	s->last_ns = 0;
	s->head = bb_head(0, bb_head_number(s->head), bb_head_which(s->head));
	__builtin_memset(s->adu, 0, sizeof(s->adu));
	s->verdict = 0;
	s->avg_bytes = 0;
	s->large_ms = 0;
	s->large_bytes = 0;
	s->large_every = 0;
	s->seq = 0;
	s->original = 0;
	s->pauses = 0;
	s->repairs = 0;
	s->flags = 0;
	s->since = 0;
	s->lost = 0;
}

#define BB_T_NAME bb_stream
#define BB_T_ENTRY struct bb_stream
#define BB_T_KEY struct bb_stream_key
#define BB_T_SETS (BB_MAX_STREAMS / BB_STREAM_WAYS)
#define BB_T_WAYS BB_STREAM_WAYS
#define BB_T_FIRST 0
#define BB_T_IDLE_NS 0
#define BB_T_BUSY(entry_) 0
#define BB_T_AT(index_) bb_stream_at(index_)
#define BB_T_WIPE(entry_, hash_) bb_stream_wipe(entry_)
#include "bb_table.h"

/* The stream of this key, added if it is not there; BB_STREAM_NONE if no way is free. */
__noinline __u32 bb_search_stream(const struct bb_stream_key *key, __u64 now)
{
	__u32 gen = 0;
	__u64 hash;
	int index;

	if (!key)
		return BB_STREAM_NONE;
	hash = bb_hash_key(key, sizeof(*key) / 8, key->flow); /* secret, as it is a hash itself */
	index = bb_stream_find(key, hash, now, &gen);
	if (index < 0)
		index = bb_stream_add(key, hash, now, &gen);
	return index < 0 ? BB_STREAM_NONE : index;
}

/*
 * The same, that of the flow's last packet first; its index in *at. NULL if there is
 * none: that counts once for a packet, whose rule and whose ADU may both ask.
 */
static __always_inline struct bb_stream *bb_find_stream(struct bb_work *w, struct bb_flow *flow,
							const struct bb_stream_key *key, __u32 *at)
{
	__u32 index = flow->stream;
	struct bb_stream *s = bb_stream_at(index);
	struct bb_stream_key sought;
	__u64 owner;

	if (s) {
		owner = bb_way_owner(&s->way);
		if (bb_owner_tag(owner) & 1 && bb_same_words(&s->key, key, sizeof(*key) / 8) &&
		    bb_way_hold(&s->way, owner, w->now)) {
			*at = index;
			return s;
		}
	}
	/* A copy: with its address taken, a key would be in memory for all packets. */
	sought = *key;
	index = bb_search_stream(&sought, w->now);
	flow->stream = index;
	*at = index;
	if (index == BB_STREAM_NONE && !w->no_stream) {
		w->no_stream = 1;
		bb_global_inc(BB_G_STREAMS_FULL);
	}
	return bb_stream_at(index);
}

static __always_inline void bb_key_of_rtp(struct bb_stream_key *key, const struct bb_work *w)
{
	key->flow = w->flow_hash;
	key->ssrc = w->packet.ssrc;
	key->rtp = w->packet.rtp;
}

/* ---- the rule of a stream ---- */

/*
 * One word, so that a CPU that was slow writes nothing into a newcomer's entry:
 * the rule, the generation of the rules, the lowest bits of that of the way. Its
 * topmost bit says that the rule was searched.
 */
#define bb_verdict(rule_, rule_gen_, gen_) \
	((__u16)(rule_) | 0x8000U | (__u64)(__u16)(gen_) << 16 | (__u64)(__u32)(rule_gen_) << 32)
#define bb_verdict_rule(verdict_) ((__u16)(verdict_) & (BB_MAX_RULES - 1))

/* The rule of an RTP packet where rules compare payload types or SSRCs. */
__noinline __u32 bb_rule_of_stream(struct __sk_buff *skb, struct bb_work *w, struct bb_flow *flow,
				   __u32 rule_gen)
{
	struct bb_stream_key key;
	struct bb_stream *s;
	__u64 verdict, gen;
	__u32 rule, index;

	if (!w || !flow)
		return 0;
	bb_key_of_rtp(&key, w);
	s = bb_find_stream(w, flow, &key, &index);
	if (!s)
		return w->rule;
	gen = bb_owner_gen(bb_way_owner(&s->way));
	verdict = *(volatile __u64 *)&s->verdict;
	if (verdict == bb_verdict(bb_verdict_rule(verdict), rule_gen, gen))
		return bb_verdict_rule(verdict);
	rule = bb_find_rule(skb, &w->packet.key, w->packet.rtp, w->packet.ssrc);
	__sync_bool_compare_and_swap(&s->verdict, verdict, bb_verdict(rule, rule_gen, gen));
	return rule;
}

/* ---- the ADU of a packet ---- */

/* `first_ns`: when the ADU that the packet repeats began; 0 = nobody knows. */
static __always_inline void bb_is_repair(struct bb_meta *meta, __u64 now, __u64 first_ns)
{
	if (meta->lifetime)
		meta->deadline = first_ns ? first_ns + meta->lifetime : now - 1;
	if (!(meta->flags & BB_M_EXPLICIT))
		meta->priority = BB_PRIORITIES - 1;
	meta->flags |= BB_M_REPAIR;
}

/* With each ADU: how does the rule say to read the stream? */
static __always_inline void bb_ask_rule(struct bb_work *w, struct bb_stream *s, __u8 rtp)
{
	__u8 flags = s->flags & ~(BB_STREAM_NO_FRAMES | BB_STREAM_REPAIRS);

	if (w->rule_flags & BB_RULE_NO_FRAMES)
		flags |= BB_STREAM_NO_FRAMES;
	if (w->rtx_n) {
		__u32 index = w->rule;
		struct bb_rule *rule = bpf_map_lookup_elem(&bb_rules, &index);

		for (__u32 i = 0; rule && i < BB_RULE_RTX; i++)
			if (i < w->rtx_n && rule->rtx[i].rtx == rtp) {
				flags |= BB_STREAM_REPAIRS;
				w->original = rule->rtx[i].original;
			}
	}
	if (s->flags != flags)
		s->flags = flags;
}

/*
 * An RTP packet of a stream of repairs, or one whose timestamp other streams may
 * have: BB_OTHER_REPAIR if it is a repair and that is all there is to it; else
 * whether another stream has the timestamp, so that this one may repeat it.
 */
enum bb_other {
	BB_OTHER_NONE,
	BB_OTHER_HAS_IT,
	BB_OTHER_REPAIR,
};

/* Is it older than what the stream, which `s` repeats, is at? */
static __always_inline int bb_is_of_the_past(const struct bb_work *w, const struct bb_stream *s,
					     __u32 source)
{
	const struct bb_stream *original = bb_stream_at(s->original);

	return original && original->key.flow == w->flow_hash &&
	       bb_time_is_old(bb_head_source(original->head), source);
}

__noinline int bb_read_others(struct bb_work *w, struct bb_stream *s)
{
	struct bb_recall r = {};
	const struct bb_piece *p;

	if (!w || !s)
		return BB_OTHER_NONE;
	p = &w->piece;
	r.flow = w->flow_hash;
	r.now = w->now;
	r.max_age = bb_adu_max_age(p->lifetime);
	r.source = p->source;
	r.ssrc = w->packet.ssrc;
	r.stream = w->stream;
	r.rtp = p->rtp;
	r.original = w->original;
	r.seq = p->seq;
	r.bytes = p->bytes;
	bb_recall(&r);
	if (!r.id && s->repairs >= BB_REPAIR_LEARNT && bb_is_of_the_past(w, s, p->source))
		; /* of a frame that is forgotten: neither for nor against */
	else if (s->repairs < BB_REPAIR_LEARNT || bb_head_source(s->head) != p->source)
		bb_repair_learn(s, r.id != 0, r.id >> 16, w->now - r.first_ns);
	if (s->flags & BB_STREAM_REPAIRS || s->repairs >= BB_REPAIR_LEARNT) {
		/* So that the next packet tells whether the timestamp has changed. */
		s->head = bb_head(p->source, bb_head_number(s->head), bb_head_which(s->head));
		bb_is_repair(&w->meta, w->now, r.first_ns);
		if (r.id)
			bb_note_healed(r.id >> 16);
		return BB_OTHER_REPAIR;
	}
	return r.id ? BB_OTHER_HAS_IT : BB_OTHER_NONE;
}

/*
 * An RTP packet that is of neither ADU that its stream follows, or of a stream of
 * repairs: 1 if it is of an older ADU, or a repair; 0 if it begins an ADU. Its
 * place in bb_adus is then way *way of *set; no set: it has none, because it may be
 * a repair.
 */
static __always_inline int bb_read_older(struct bb_work *w, struct bb_stream *s,
					 const struct bb_piece *p, __u32 tag,
					 struct bb_adu_set **set, __u32 *way)
{
	const struct bb_adu *adu;
	__u64 after = w->now - bb_adu_max_age(p->lifetime);
	__u32 found = 0;
	int other;

	if (bb_may_know(*set, tag, after, way))
		found = bb_scan_adus(*set, tag, w->stream, after);
	if (found & BB_SCAN_OWN) {
		*way = found & (BB_ADU_WAYS - 1);
		adu = &(*set)->way[*way];
		if (p->old) {
			bb_is_repair(&w->meta, w->now, adu->first_ns);
			return 1;
		}
		/* It plays its timestamps again, or it is late. */
		if (s->flags & BB_STREAM_COUNTS)
			return 0;
		if (w->meta.lifetime)
			w->meta.deadline = adu->first_ns + w->meta.lifetime;
		w->meta.adu = adu->id;
		return 1;
	}
	if (p->old && bb_forgotten(s) < BB_FORGOTTEN && (__s64)(s->last_ns - after) > 0 &&
	    bb_time_is_old(bb_head_source(s->head), p->source)) {
		s->pauses += BB_FORGOTTEN_ONE;
		bb_is_repair(&w->meta, w->now, 0);
		return 1;
	}
	if (found & BB_SCAN_OTHERS || s->flags & BB_STREAM_REPAIRS ||
	    s->repairs >= BB_REPAIR_LEARNT) {
		w->piece = *p; /* as the key in bb_find_stream */
		other = bb_read_others(w, s);
		if (other == BB_OTHER_REPAIR)
			return 1;
		if (other == BB_OTHER_HAS_IT)
			*set = 0;
	} else if (s->repairs) {
		bb_repair_learn(s, 0, 0, 0);
	}
	return 0;
}

/* MPEG-TS: 0 without RTP. RIST's repairs have the lowest bit. */
static __always_inline __u32 bb_ts_ssrc(const struct bb_work *w)
{
	return w->packet.flags & BB_P_RTP ? w->packet.ssrc & ~1U : 0;
}

/* What names the packet's ADU: its stream and its source. 0: nothing does. */
static __always_inline int bb_name_adu(const struct bb_work *w, struct bb_stream_key *key,
				       struct bb_piece *p)
{
	const struct bb_meta *meta = &w->meta;

	key->flow = w->flow_hash;
	key->rtp = 0;
	if (w->ts) {
		key->ssrc = bb_ts_ssrc(w);
		key->rtp = BB_STREAM_TS;
		p->source = w->ts;
	} else if (meta->adu_bits) {
		key->ssrc = BB_STREAM_MARK;
		p->source = meta->adu_bits;
		if (meta->deadline)
			p->source = bb_mix(bb_mix(p->source, meta->deadline), meta->deadline >> 32);
	} else if (w->packet.flags & BB_P_RTP) {
		bb_key_of_rtp(key, w);
		p->source = w->packet.rtp_time;
		p->rtp = w->packet.rtp;
		p->seq = w->packet.seq;
	} else if (w->packet.flags & (BB_P_FRAG_FIRST | BB_P_FRAG_LATER)) {
		key->ssrc = BB_STREAM_FRAGMENT;
		p->source = w->packet.frag_id;
	} else if (meta->deadline && !(meta->flags & BB_M_OPTION_DUE)) {
		/* A sender of LPD's option may write the same into all that it sends in a ms. */
		key->ssrc = BB_STREAM_DEADLINE;
		p->source = bb_mix(meta->deadline, meta->deadline >> 32);
	} else {
		return 0;
	}
	return 1;
}

/* What the flow knows of its path before this packet asks anew; nothing for its first. */
static __always_inline __u64 bb_known_owd(const struct bb_work *w, const struct bb_flow *flow,
					  __u64 lifetime)
{
	__u64 owd = bb_answer(&flow->owd_ns);

	if (!bb_answer_is(owd, w->flow_gen))
		return 0;
	owd &= BB_ANSWER_MASK;
	return flow->measured && owd > lifetime / 2 ? lifetime / 2 : owd;
}

/* An ADU of the rule had so many bytes. Of the largest one little is forgotten with each. */
static __always_inline void bb_note_size(const struct bb_work *w, __u32 bytes)
{
	__u32 rule = w->rule, *largest = bpf_map_lookup_elem(&bb_rule_adus, &rule), now;

	if (!largest)
		return;
	now = *largest - *largest / 256;
	if (bytes > now)
		now = bytes;
	if (*largest != now)
		*largest = now;
}

/*
 * Names the packet's ADU (meta->adu, w->stream, w->adu_which) and turns its
 * lifetime into a deadline.
 */
__noinline int bb_find_adu(struct __sk_buff *skb, struct bb_work *w, struct bb_flow *flow)
{
	struct bb_piece p = {};
	struct bb_stream_key key;
	struct bb_stream_adu *adu;
	struct bb_adu_set *set = 0;
	enum bb_place place = BB_PLACE_NEW;
	struct bb_stream *s;
	__u32 which = 0, index, id, way = 0, tag = 0;
	int frames;

	if (!w || !flow)
		return 0;
	p.now = w->now;
	p.lifetime = w->meta.lifetime;
	p.owd = bb_known_owd(w, flow, p.lifetime);
	p.bytes = skb->len;
	if (!bb_name_adu(w, &key, &p))
		goto alone;
	if (w->packet.flags & BB_P_PADDED && bb_may_be_padding(skb, &w->packet) &&
	    bb_is_padding(skb, &w->packet))
		goto alone;
	s = bb_find_stream(w, flow, &key, &index);
	if (!s)
		goto alone;
	w->stream = index;
	if (!(s->flags & BB_STREAM_REPAIRS) && s->repairs < BB_REPAIR_LEARNT)
		place = bb_frame_place(s, &p, &which);
	if (place == BB_PLACE_NEW) {
		if (p.rtp) {
			__u64 hash = bb_adu_hash(key.flow, p.source);
			__u32 at = bb_adu_set_of(hash);

			bb_ask_rule(w, s, p.rtp);
			tag = bb_adu_tag(hash, p.rtp);
			set = bpf_map_lookup_elem(&bb_adus, &at);
			if (set && bb_read_older(w, s, &p, tag, &set, &way)) {
				w->stream = BB_STREAM_NONE;
				return 0;
			}
		}
		frames = (p.rtp || w->ts) && w->rule &&
			 !(s->flags & (BB_STREAM_ALONE | BB_STREAM_NO_FRAMES));
		if (!bb_frame_begin(s, &p, &which))
			goto alone;
		if (frames)
			bb_note_size(w, s->adu[(which ^ 1) & 1].bytes);
	}
	adu = &s->adu[which & 1];
	id = bb_adu_id(index, adu);
	if (set)
		bb_remember(set, way, tag, id, w->now);
	if (place == BB_PLACE_RESENT) {
		bb_note_healed(index);
		bb_is_repair(&w->meta, w->now, adu->first_ns);
		w->stream = BB_STREAM_NONE;
		return 0;
	}
	adu->bytes += p.bytes;
	if (bb_frame_alone(s, place) || s->flags & BB_STREAM_NO_FRAMES)
		goto alone;
	w->adu_which = which & 1;
	w->meta.adu = id;
	/* Of MPEG-TS it is known (bb_ts.bpf.h). */
	if (w->ts)
		adu->flags |= w->meta.flags & BB_M_LARGE ? BB_ADU_KEY : BB_ADU_OTHER;
	else if (bb_frame_is_large(s, adu->bytes))
		w->meta.flags |= BB_M_LARGE;
	if (w->meta.lifetime)
		w->meta.deadline = adu->first_ns + w->meta.lifetime;
	return 0;
alone:
	w->stream = BB_STREAM_NONE;
	if (w->meta.lifetime)
		w->meta.deadline = w->now + w->meta.lifetime;
	return 0;
}

/* The ADU of a later fragment is its datagram's (meta->adu): what is known of it. */
static __always_inline void bb_rejoin_adu(struct bb_work *w, __u32 bytes)
{
	struct bb_stream *s = bb_stream_at(w->meta.adu >> 16);
	int which;

	if (!w->meta.adu || !s)
		return;
	which = bb_adu_which(s->head, w->meta.adu);
	if (which < 0)
		return;
	w->stream = w->meta.adu >> 16;
	w->adu_which = which & 1;
	s->adu[which & 1].bytes += bytes;
}

/* What is known of the packet's ADU; NULL without one. */
static __always_inline struct bb_stream_adu *bb_adu_of(const struct bb_work *w)
{
	struct bb_stream *s = w->stream == BB_STREAM_NONE ? 0 : bb_stream_at(w->stream);

	return s ? &s->adu[w->adu_which & 1] : 0;
}

#endif /* BB_STREAM_BPF_H */
