/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_tc_frame.h - mode tc: what a packet of an ADU asks of the model (bb_tc_model.h), as
 * arithmetic over what is known of its stream. No maps, no helpers.
 *
 * `need` of an ADU's first packet is 3/2 of the stream's mean ADU size, because
 * frames of one stream differ in size: a frame that will not fit is refused before
 * a byte of it is spent. A large frame, of more than half the time that it has, is
 * judged by less, at least by 13/16 of the mean: it fits an empty link only, and
 * would be refused for ever. The factors are from bpf/tests/tc_frames.rs, and from
 * a model of the SFDPS conference mix, whose frames are large (complete frames on
 * time at 253 kbit/s by factor: 0 28 %, 0.5 31 %, 0.7 43 %, 0.8125 44 %, 1.0 39 %).
 */
#ifndef BB_TC_FRAME_H
#define BB_TC_FRAME_H

#include "bb_large.h"
#include "bb_tc_ask.h"

#define BB_TC_WHOLE_BYTES 1200 /* an ADU of no more comes in one packet: nothing is promised */
/* ADUs so far apart come rarely: each says when it expects the next. */
#define BB_TC_RARE_NS (BB_NSEC_PER_SEC / 4)
#define BB_TC_RARE_MAX_NS (10 * BB_NSEC_PER_SEC)

/* When the next large ADU of stream `s` comes, and what it needs, as known when `adu` begins. */
bb_inline void bb_tc_foresee(struct bb_tc_request *r, const struct bb_stream *s,
			     const struct bb_stream_adu *adu, __u64 since, __u64 has)
{
	__u64 large_ns = bb_tx_time(s->large_bytes, r->rate);
	enum bb_large_when when;

	r->large_slack_ns = has;
	if (r->large) {
		r->large_ns = bb_tx_time(s->avg_bytes, r->rate);
		r->large_at_ns = adu->first_ns + since;
		r->large_leaf = r->leaf;
		return;
	}
	when = bb_large_next(s, r->now, &r->large_at_ns);
	/* Where packets say which it is, one that nobody expects is known as it comes. */
	if (adu->flags & (BB_ADU_KEY | BB_ADU_OTHER) && when != BB_LARGE_AT) {
		when = BB_LARGE_SOME_TIME;
		r->large_at_ns = r->now;
	}
	/* One that cannot come whole is not waited for. */
	if (when == BB_LARGE_NEVER || large_ns >= has)
		return;
	r->large_ns = large_ns;
	r->large_leaf = bb_large_leaf(s);
	r->large_sure = when == BB_LARGE_AT;
}

/*
 * Asks about a packet of ADU `adu` of stream `s`, after `before` bytes of that ADU. The ADU
 * before it began at last_ns. `last`: no more will come. Reads r->now, r->latest,
 * r->packet_ns, r->rate and r->leaf; fills the rest.
 */
bb_inline void bb_tc_frame(struct bb_tc_request *r, const struct bb_stream *s,
			   const struct bb_stream_adu *adu, __u64 last_ns, __u32 before, int last)
{
	__u32 mean = s->avg_bytes;
	__u64 mean_ns = bb_tx_time(mean, r->rate), before_ns = bb_tx_time(before, r->rate);
	__u64 large_ns = bb_tx_time(s->large_bytes, r->rate), expected;
	__u64 has = r->latest > adu->first_ns ? r->latest - adu->first_ns : 0;
	__u64 since = last_ns ? adu->first_ns - last_ns : 0;
	int due = bb_large_due(s, adu);

	r->begins = !before;
	r->promised_ns = adu->promised;
	r->large = since >= BB_TC_RARE_NS && since < BB_TC_RARE_MAX_NS;
	r->has_ns = has;
	r->gap_ns = bb_min(since, has / 4);
	r->size_ns = before_ns + r->packet_ns;
	if (!before && (r->large || !due))
		bb_tc_foresee(r, s, adu, since, has);
	if (due)
		r->large = 1;
	r->parts = before || mean > BB_TC_WHOLE_BYTES;
	if (mean <= BB_TC_WHOLE_BYTES)
		return;
	expected = mean_ns + mean_ns / 2;
	if (expected > has / 2)
		expected = has / 2;
	if (expected < mean_ns * 13 / 16)
		expected = mean_ns * 13 / 16;
	if (due && expected < large_ns * 13 / 16)
		expected = large_ns * 13 / 16;
	/* Only the first packet answers for its ADU: later, part of it has been spent. */
	if (!before && expected > r->packet_ns) {
		r->need_ns = r->size_ns = expected;
		r->whole_ns = expected > mean_ns ? expected : mean_ns;
	}
	if (due || bb_is_large(before, mean)) {
		r->large = 1;
		expected = bb_max(expected, bb_max(large_ns, before_ns + before_ns / 2));
	} else {
		r->age_ns = bb_min(r->now > adu->first_ns ? r->now - adu->first_ns : 0, has / 2);
	}
	if (!last && expected > before_ns + r->packet_ns)
		r->more_ns = expected - before_ns - r->packet_ns;
}

#endif /* BB_TC_FRAME_H */
