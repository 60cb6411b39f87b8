/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Mode tc: the model of the HTB tree below, as arithmetic. No maps, no helpers:
 * compiled into the classifier and, natively, into bpf/tests/tc_model.rs.
 *
 * The problem: the classifier must decide before a packet is queued, and cannot
 * take it back. So it keeps a model of what the tree holds, in ns of
 * transmission time, and refuses a packet at once where the model says that the
 * packet would leave late, or make a more important one leave late.
 *
 * 1. The tree sends leaf 0 before leaf 1 before ... leaf 7. Plain traffic (leaf
 *    8) has plain_share per cent of the link as its own, and what the others leave.
 * 2. *Priority decides what is given up; deadline and priority decide the order.* The leaf
 *    follows from both (bb_tc_leaf.h): what is important goes early, and what matters less
 *    is admitted only if it fits behind all that will go before it. One leaf sends in order
 *    of arrival, which is for equal lifetimes the order of the deadlines.
 * 3. A packet has to pass four tests. `need` bytes of its ADU are still to come.
 *      a. It leaves in time. Its leaf and those before it hold some bytes. These and
 *         need take longer by the share that more urgent leaves took lately. One
 *         packet is in transmission. All that fits before deadline - owd - margin.
 *      b. It leaves room for each more important priority m of the last two seconds.
 *         A packet of m that comes next would find some bytes before it. These, need
 *         and m's usual burst fit into m's usual slack. Packets of m that are queued
 *         behind this leaf can bear the delay.
 *      c. It leaves room for the large ADU that is expected (7).
 *      d. Its leaf has room below (bb_tc_leaf_bytes).
 * 4. What may not be refused (treatment forward, TCP of this host, signalling)
 *    passes the same test, and goes to the plain leaf where it fails. Of TCP and
 *    of signalling, which any user can send, no more than a quarter of each
 *    250 ms goes before plain traffic, whatever the test says.
 * 5. An ADU that was begun has the rest of its bytes promised, until they came,
 *    or its last packet came, or none came for half the time that such ADUs take
 *    to come, at most 500 ms. Later ADUs of the same or of lesser importance do
 *    not take that room. While the packets of an ADU come one by one, others come
 *    between them. So an ADU that begins is asked to leave earlier by that time. If more
 *    urgent leaves take more of the link in that time, it is asked for as much.
 * 6. The model forgets what the link has sent. No leaf owes more than its queue
 *    below can hold. So after t ns of silence a leaf owes at most what it can
 *    hold - t. A packet's size counts until that packet has left, no longer.
 * 7. A key frame comes after smaller frames of the same importance, which would have taken
 *    all the room: of frames in a leaf that is always full the largest never fits. And its
 *    first packet looks like theirs. But each stream knows when it expects its next large
 *    ADU, and how large (bb_large.h). With every ADU it says so, and the model keeps the
 *    earliest of each priority. Until then an ADU that begins has to leave so early that
 *    the large one still fits behind it, or, where that goes to a more urgent leaf, that it
 *    fits before it or survives it. The stream's own ADUs have to leave nearly before the
 *    large one comes: what refers to it counts for more than what ends with it, and as much
 *    of the link is used. An ADU that matters less than the large one has to leave as early, and
 *    so have the more important ones that come into its leaf until then. Where nobody knows when,
 *    one goes that finds no more in its leaf than leaves before the next ADU of its stream
 *    comes: else the link would be idle.
 *    The ADU that comes when the large one is expected is asked for 13/16 of that one's
 *    size, and has all of it promised; what turns out large is promised as it grows. What
 *    cannot come whole even over an empty link has no room kept.
 * 8. What goes first delays the others: by its share of the link, of all the time that they
 *    have. Two kinds of ADU are judged as if nothing went first, if they do not fit beside it:
 *    those that would need more than 5/8 of their time beside it, with nothing else there; and,
 *    where it takes more than a fifth of the link, all. While such an ADU is on its way what is
 *    more important goes into its leaf, behind it, if that is no later than its own by its
 *    lifetime alone, and in time. So on a link so slow that a frame takes most of its time, and
 *    where going first costs frames, all go in order of their deadlines. Only what comes in
 *    one packet waits: part of an ADU behind others, and the rest before them, makes it late.
 *    Of what takes so much of the link all that follows waits as well until the last has left,
 *    or it would make late what waits already.
 *
 * What an ADU needs is estimated in bb_tc_frame.h.
 */
#ifndef BB_TC_MODEL_H
#define BB_TC_MODEL_H

#include <linux/bpf.h>
#include "bb_tc_leaf.h"

#ifdef __clang__
#define BB_UNROLL _Pragma("unroll")
#else
#define BB_UNROLL
#endif

#define BB_TC_MARGIN_NS 2000000ULL /* timers, and the last bytes' way through the driver */
#define BB_TC_RECENT_NS (2 * BB_NSEC_PER_SEC)
#define BB_TC_BURST_NS 5000000ULL /* packets this close are one burst */
#define BB_TC_WINDOW_NS 250000000ULL
#define BB_TC_ANYBODY_SHARE 4 /* of a window: a quarter for what any user can send */
#define BB_TC_ORDER_LOAD 205 /* of 1024: a fifth; who goes first with more costs frames (8) */
#define BB_TC_LOAD_MAX 896 /* of 1024: however busy the others, at least an eighth is left */
#define BB_TC_PACED_NS \
	10000000ULL /* a promise is kept for so long at least, and twice as long at most */
#define BB_TC_ADMIT (-1)

/* Times in ns; bytes are kept as transmission times. */
struct bb_tc_priority {
	__u64 seen_ns; /* last packet with a deadline */
	__u64 parts_ns; /* last packet of an ADU of several */
	__u64 slack_ns; /* latest departure - arrival, lately */
	__u64 burst_ns; /* transmission time of its largest burst, lately */
	__u64 burst_start_ns;
	__u64 burst_now_ns;
	__u64 spare_ns; /* delay its queued packets can still bear */
	__u64 promised_ns; /* of ADUs admitted since promised_since_ns: what did not come yet */
	__u64 promised_before_ns; /* the same, of the time before */
	__u64 promised_since_ns;
	__u64 spread_ns; /* from the first to the last packet of its ADUs, lately at most */
	__u64 given_ns; /* admitted in this window ... */
	__u64 load; /* ... and its share of the link, as of leaves ... */
	__u64 beside; /* ... and that of what is more important in the same leaf */
	/* The large ADU that one of its streams expects next: who waits for it keeps room. */
	__u64 large_ns; /* what it will need; 0 = none is expected */
	__u64 large_at_ns; /* when it comes */
	__u64 large_slack_ns; /* how long it can wait */
	__u64 large_until_ns; /* a stream said so; it is believed until then */
	__u32 large_stream; /* which */
	__u32 leaf;
	__u8 large_leaf;
	__u8 large_sure; /* large_at_ns is exact */
	__u8 pad[6];
};

struct bb_tc_model {
	struct bpf_spin_lock lock; /* over all below; taken alone */
	__u32 ifindex;
	__u64 rate;
	__u64 updated_ns;
	__u64 window_ns; /* start of the load window */
	__u64 queued_ns; /* of all leaves */
	__u64 plain_ns; /* last plain packet */
	__u64 given_tcp; /* to TCP in this window, before plain traffic */
	/* The last ADU that fitted only if what is more important waits for it (8 of the top). */
	__u64 tight_until_ns; /* it has left */
	__u64 tight_cap_ns; /* of its leaf */
	__u32 tight_leaf;
	__u32 tight_priority;
	/* Leaves 0..7, plain 8; 16 so that an index needs only a mask. */
	__u64 queue[16];
	__u64 given[16]; /* admitted in this window */
	__u64 load[16]; /* share of the link, 1/1024 ... */
	__u64 before[16]; /* ... and that of all leaves before it */
	__u64 beside[BB_TC_LEAVES]; /* scratch: load of the priorities before, by leaf */
	__u64 largest[16]; /* packet in the queue ... */
	__u64 until[16]; /* ... which has left when so much more was sent of the leaf ... */
	__u64 since[16]; /* ... and the largest behind it */
	__u64 ahead[16]; /* queue[0] + ... + queue[i] when the last packet came */
	__u64 blocked[16]; /* by one packet of a less urgent leaf at most so long, then */
	struct bb_tc_priority priority[BB_PRIORITIES];
};

struct bb_tc_request {
	__u64 now;
	__u64 rate; /* of the interface, bytes/s, not 0 */
	__u64 latest; /* deadline - owd; 0 = no deadline */
	__u64 packet_ns; /* transmission time of this packet */
	__u64 need_ns; /* of what is still to come of the ADU, this packet too */
	__u64 whole_ns; /* the same without the discount: what it will take from others */
	__u64 promised_ns; /* of what the model keeps for this packet's ADU until now */
	__u64 more_ns; /* of what is still to come of the ADU after this packet */
	__u64 age_ns; /* since the ADU's first packet */
	__u64 large_ns; /* of the next large ADU of its stream; 0 = none is expected */
	__u64 large_at_ns; /* when that is expected */
	__u64 large_slack_ns; /* how long that can wait */
	__u64 gap_ns; /* from the ADU before it in its stream */
	__u64 size_ns; /* of all of its ADU, as far as known */
	__u64 has_ns; /* how long the ADU could wait when it began; 0 = it has none */
	__u64 cap_ns; /* what the leaf holds at most */
	__u64 plain_cap_ns; /* what the plain leaf holds at most, if it may go there */
	__u64 wait_ns; /* answer, if it went to the plain leaf: when that has sent it, at the latest */
	__u64 queued_ns; /* answer: of all that was queued when it came */
	__u32 ifindex;
	__u32 stream; /* any number that is its own; 0 = none */
	__u8 leaf; /* 0..BB_TC_LEAF_PLAIN; the decision may make it the last */
	__u8 priority;
	__u8 never; /* refused: to the plain leaf instead */
	__u8 signalling; /* control traffic that any user can send */
	__u8 tcp; /* of this host */
	__u8 begins; /* the first packet of its ADU, or without one */
	__u8 idle; /* goes only while nothing else waits: a stale retransmission */
	__u8 plain_share; /* per cent, below 100 */
	__u8 large_leaf; /* where that goes */
	__u8 large; /* it is large, or may be the large one that is expected */
	__u8 large_sure; /* large_at_ns is exact */
	__u8 late_leaf; /* its leaf by the lifetime alone; 0 = it goes nowhere else */
	__u8 tight; /* scratch: it fits only if what is more important waits */
	__u8 yields; /* scratch: it waits for such an ADU */
	__u8 load_leaf; /* scratch: where it counts as load */
	__u8 parts; /* its ADU comes in several packets */
};

/*
 * The smaller of two values below 2^62, without a branch: the verifier would
 * otherwise follow both ways of each of the nine leaves.
 */
bb_inline __u64 bb_min(__u64 a, __u64 b)
{
	__s64 mask = (__s64)(a - b) >> 63;

	asm volatile("" : "+r"(mask));
	return b + ((a - b) & mask);
}

bb_inline __u64 bb_max(__u64 a, __u64 b)
{
	return a + b - bb_min(a, b);
}

/* `ns` of this leaf have been sent. */
bb_inline void bb_tc_sent(struct bb_tc_model *model, __u32 leaf, __u64 ns)
{
	__u64 queue = model->queue[leaf] - ns;
	__u64 until = model->until[leaf] - bb_min(model->until[leaf], ns);
	/* All ones where the largest packet was among them. */
	__u64 gone = (__u64)((__s64)(until - 1) >> 63);

	asm volatile("" : "+r"(gone));
	model->queue[leaf] = queue;
	model->until[leaf] = until | (queue & gone);
	model->largest[leaf] = (model->largest[leaf] & ~gone) | (model->since[leaf] & gone);
	model->since[leaf] &= ~gone;
}

/* What has left since the last look: plain's own share, then the leaves in order, then plain. */
bb_inline void bb_tc_drain(struct bb_tc_model *model, __u64 now, __u32 plain_share)
{
	__u64 left, sent;

	if (now <= model->updated_ns)
		return;
	left = bb_min(now - model->updated_ns, 1ULL << 48);
	model->updated_ns = now;
	if (!model->queued_ns)
		return;
	if (model->queued_ns <= left) {
		/* As on each link that has room. */
		BB_UNROLL
		for (__u32 leaf = 0; leaf <= BB_TC_LEAF_PLAIN; leaf++) {
			model->queue[leaf] = model->ahead[leaf] = model->blocked[leaf] = 0;
			model->largest[leaf] = model->until[leaf] = model->since[leaf] = 0;
		}
		model->queued_ns = 0;
		return;
	}

	sent = bb_min(model->queue[BB_TC_LEAF_PLAIN], left * plain_share / 100);
	bb_tc_sent(model, BB_TC_LEAF_PLAIN, sent);
	left -= sent;
	BB_UNROLL
	for (__u32 leaf = 0; leaf <= BB_TC_LEAF_PLAIN; leaf++) {
		sent = bb_min(model->queue[leaf], left);
		bb_tc_sent(model, leaf, sent);
		left -= sent;
	}
}

/* Adds up what is queued. */
bb_inline void bb_tc_sum(struct bb_tc_model *model)
{
	__u64 sum = 0;

	if (!model->queued_ns)
		return;
	BB_UNROLL
	for (__u32 leaf = 0; leaf <= BB_TC_LEAF_PLAIN; leaf++) {
		sum += model->queue[leaf];
		model->ahead[leaf] = sum;
	}
	model->queued_ns = sum;
}

/*
 * Once a window: the share of the link each leaf has been given, in 1/1024, which
 * silence halves with every window that passes; and old promises are forgotten.
 */
bb_inline void bb_tc_windows(struct bb_tc_model *model, __u64 now)
{
	__u64 elapsed = now - model->window_ns, windows = bb_min(elapsed / BB_TC_WINDOW_NS, 31);
	__u64 before = 0;

	if (!windows)
		return;
	model->window_ns = now;
	model->given_tcp = 0;
	BB_UNROLL
	for (__u32 leaf = 0; leaf < BB_TC_LEAVES; leaf++) {
		__u64 given = bb_min(model->given[leaf] * 1024 / elapsed, 1024);

		model->load[leaf] = (model->load[leaf] + given) >> windows;
		model->given[leaf] = 0;
		model->beside[leaf] = 0;
		model->before[leaf] = before;
		before += model->load[leaf];
	}
	BB_UNROLL
	for (__u32 i = 0; i < BB_PRIORITIES; i++) {
		struct bb_tc_priority *p = &model->priority[i];
		__s64 loads;

		p->load = (p->load + bb_min(p->given_ns * 1024 / elapsed, 1024)) >> windows;
		/* All ones where anything but large ADUs came. */
		loads = -(__s64)p->load >> 63;
		asm volatile("" : "+r"(loads));
		p->burst_ns &= loads;
		p->given_ns = 0;
		p->beside = model->beside[p->leaf & (BB_TC_LEAVES - 1)];
		model->beside[p->leaf & (BB_TC_LEAVES - 1)] += p->load;
		p->promised_before_ns = windows == 1 ? p->promised_ns : 0;
		p->promised_ns = 0;
		p->spread_ns -= p->spread_ns / 8;
	}
}

/*
 * How long what is less important may keep a packet waiting that itself can wait
 * for `slack`. Any sender can name a priority, a lifetime and an owd by which nothing
 * may stand before it. In a leaf of long lifetimes all others would pay for that. So it is a quarter of the leaf's shortest lifetime at least.
 */
bb_inline __u64 bb_tc_bears(const struct bb_tc_request *r, __u64 slack)
{
	__u64 least = bb_leaf_bound(r->leaf - 1U) / 4;

	return slack > least ? slack : least;
}

/* Learn when packets of this priority come, and how much room they need. */
bb_inline void bb_tc_learn(struct bb_tc_priority *p, const struct bb_tc_request *r)
{
	__u64 slack = bb_tc_bears(r, r->latest > r->now ? r->latest - r->now : 0);

	if (r->now - p->seen_ns > BB_TC_RECENT_NS) {
		p->slack_ns = slack;
		p->burst_ns = 0;
		p->burst_now_ns = 0;
	} else if (slack < p->slack_ns) {
		p->slack_ns = slack;
	} else {
		p->slack_ns += (slack - p->slack_ns) / 16;
	}
	p->seen_ns = r->now;
	if (r->parts)
		p->parts_ns = r->now;
	p->spread_ns = bb_max(p->spread_ns, r->age_ns);
	p->leaf = r->yields ? r->load_leaf : r->leaf;
	/* Where nothing but large ADUs comes, room is kept when they are expected (7). */
	if (r->large && !(p->load | p->given_ns))
		return;
	if (r->now - p->burst_start_ns > BB_TC_BURST_NS) {
		p->burst_start_ns = r->now;
		p->burst_now_ns = 0;
		p->burst_ns -= p->burst_ns / 16;
	}
	p->burst_now_ns += r->packet_ns;
	if (p->burst_now_ns > p->burst_ns)
		p->burst_ns = p->burst_now_ns;
	/* Of a refused ADU only the first packet comes here: learn what it would have needed. */
	if (r->need_ns > p->burst_ns)
		p->burst_ns = r->need_ns;
}

/*
 * What was kept for the packet's ADU is no longer, `more` is instead. So each packet
 * renews its ADU's promise, and what never comes is forgotten soon: ADUs whose last
 * packet does not say so leave half of their mean behind.
 */
bb_inline void bb_tc_keep(struct bb_tc_priority *p, const struct bb_tc_request *r, __u64 more)
{
	__u64 lasts = bb_max(p->spread_ns / 4, BB_TC_PACED_NS),
	      since = r->now - p->promised_since_ns;
	__u64 old;

	if (since >= lasts) {
		p->promised_before_ns = since < 2 * lasts ? p->promised_ns : 0;
		p->promised_ns = 0;
		p->promised_since_ns = r->now;
	}
	old = bb_min(p->promised_before_ns, r->promised_ns);
	p->promised_before_ns -= old;
	p->promised_ns -= bb_min(p->promised_ns, r->promised_ns - old);
	p->promised_ns += more;
}

/*
 * The packet's stream says when it expects its next large ADU. The earliest is kept. When the
 * large one comes, or one that may be it, the stream expects none until its next ADU. ADUs of
 * any priority may have said that it comes.
 */
bb_inline void bb_tc_expect(struct bb_tc_model *model, const struct bb_tc_request *r)
{
	struct bb_tc_priority *p = &model->priority[r->priority & (BB_PRIORITIES - 1)];
	int own = p->large_ns && p->large_stream == r->stream;

	if (r->large && !r->large_ns) {
		for (__u32 i = 0; i < BB_PRIORITIES; i++)
			if (model->priority[i].large_stream == r->stream)
				model->priority[i].large_ns = 0;
		return;
	}
	if (!r->large_ns) {
		if (own)
			p->large_ns = 0;
		return;
	}
	if (p->large_ns && !own && r->now <= p->large_until_ns && p->large_at_ns <= r->large_at_ns)
		return;
	p->large_ns = r->large_ns;
	p->large_at_ns = r->large_at_ns;
	p->large_slack_ns = r->large_slack_ns;
	p->large_until_ns = r->large_at_ns + (r->large_at_ns - r->now) + BB_NSEC_PER_SEC / 2;
	p->large_stream = r->stream;
	p->large_leaf = r->large_leaf;
	p->large_sure = r->large_sure;
}

/* Another owner, or another rate: what is queued is not known; nothing is. */
bb_inline void bb_tc_begin(struct bb_tc_model *model, const struct bb_tc_request *r)
{
	model->ifindex = r->ifindex;
	model->rate = r->rate;
	model->queued_ns = 0;
	model->plain_ns = 0;
	model->given_tcp = 0;
	model->tight_until_ns = 0;
	BB_UNROLL
	for (__u32 i = 0; i <= BB_TC_LEAF_PLAIN; i++) {
		model->queue[i] = model->given[i] = model->load[i] = 0;
		model->before[i] = model->ahead[i] = model->blocked[i] = 0;
		model->largest[i] = model->until[i] = model->since[i] = 0;
	}
	BB_UNROLL
	for (__u32 i = 0; i < BB_PRIORITIES; i++) {
		model->priority[i].seen_ns = model->priority[i].parts_ns = 0;
		model->priority[i].promised_ns = model->priority[i].promised_before_ns = 0;
		model->priority[i].spread_ns = 0;
		model->priority[i].given_ns = model->priority[i].load = 0;
		model->priority[i].beside = 0;
		model->priority[i].large_ns = 0;
	}
}

/* Puts the packet into leaf r->leaf of the model; what does not fit below is dropped there. */
bb_inline void bb_tc_take(struct bb_tc_model *model, const struct bb_tc_request *r, __u64 cap)
{
	__u32 leaf = r->leaf & 15;
	__u64 packet = bb_min(r->packet_ns, cap - bb_min(cap, model->queue[leaf]));

	for (__u32 i = 0; i < BB_PRIORITIES; i++) {
		struct bb_tc_priority *m = &model->priority[i];

		if (m->leaf > leaf)
			m->spare_ns -= bb_min(m->spare_ns, packet);
	}
	model->queue[leaf] += packet;
	model->queued_ns += packet;
	/* What comes rarely is foreseen, and no part of the load of other times. */
	if (!r->large) {
		model->given[r->yields ? r->load_leaf & 15 : leaf] += packet;
		if (r->latest)
			model->priority[r->priority & (BB_PRIORITIES - 1)].given_ns += packet;
	}
	if (packet >= model->largest[leaf]) {
		model->largest[leaf] = packet;
		model->until[leaf] = model->queue[leaf];
		model->since[leaf] = 0;
	} else {
		model->since[leaf] = bb_max(model->since[leaf], packet);
	}
}

bb_inline int bb_tc_to_plain(struct bb_tc_model *model, struct bb_tc_request *r)
{
	r->leaf = BB_TC_LEAF_PLAIN;
	model->plain_ns = r->now;
	bb_tc_take(model, r, r->plain_cap_ns);
	r->wait_ns = model->queue[BB_TC_LEAF_PLAIN] * 100 / (r->plain_share ?: 1);
	return BB_TC_ADMIT;
}

#endif /* BB_TC_MODEL_H */
