// SPDX-License-Identifier: GPL-2.0-only
/*
 * bestby's queue: a Qdisc in BPF (struct_ops, v6.16).
 *
 * The problem
 *  1. An interface gets more packets than it can send. Some are of use for a
 *     fraction of a second only, and a FIFO sends them when they no longer are.
 *  2. Not all that cannot arrive in time is known to be so: a frame of which one
 *     packet is late is worth nothing, and the time of its others is lost, too.
 *  3. A receiver whose own path is slower must not hold up the others.
 *  4. Nor must what one user sends cost another's media, whether by many packets,
 *     many destinations, or by what it claims about them.
 *  5. All this has to be decided per packet, under the lock that all senders wait
 *     for, in bounded time, with memory that was allocated before.
 *
 * Theory of operation
 *  1. The classifier (classify.bpf.c, tcx egress) has written a control block
 *     into skb->cb: flow rule, session, priority, treatment, ADU, deadline. A
 *     packet without one is best effort in the shared session.
 *  2. enqueue puts the packet into a slot (bbq_state.bpf.h) and the slot into
 *     its session's lists (bbq_order.bpf.h). What is stale there, what the
 *     method gives up (bbq_method.bpf.h, bbq_triage.bpf.h) and what a limit
 *     costs (bbq_room.bpf.h) is doomed: it leaves its list at once, and its packets
 *     are freed a few in each operation (bbq_drop.bpf.h).
 *  3. dequeue lets media and users, users, and the sessions of each take turns
 *     (bbq_turns.bpf.h, bbq_next.bpf.h); the session whose turn it is sends what
 *     its method selects. A session with a rate waits in a wheel, an interface
 *     with a rate waits for its watchdog.
 *
 * Invariants
 *  - packets in = sent + dropped + queued, for every rule, session and
 *    instance: counted here, under the Qdisc's lock, nowhere else.
 *  - A packet without a deadline is dropped for want of room only.
 *  - A slot is in exactly one of: free list, never used, one list or chain, the
 *    doomed ones.
 *  - No enqueue or dequeue runs longer than 5,000 instructions: each step of a loop
 *    is taken off a budget (BBQ_WORK), and the next operation goes on.
 *
 * Handover
 *  The maps may be shared (pinned) by two loaded objects. init of a new Qdisc
 *  makes it the owner of its instance; reset of one that is not the owner
 *  leaves everything alone. So grafting a Qdisc of a newer object over an
 *  older one keeps every queued packet; the newer one takes the older one's
 *  packets into its qlen with its first operation. A Qdisc cannot arm its timer
 *  in init: whoever grafts sends one packet to start it.
 *
 * What it does not do: child classes, peek of its own, changing packets.
 *
 * By hand (bestbyd does this): bpftool struct_ops register qdisc.bpf.o;
 *  tc qdisc add dev DEV root bestby. Without bb_ifaces' entry all is refused.
 */
#include "bb_compat.bpf.h"
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "bbq_next.bpf.h"
#include "bbq_room.bpf.h"
#include "bbq_sojourn.bpf.h"

char _license[] SEC("license") = "GPL";

#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP 1
#define TC_H_ROOT 0xFFFFFFFFU

/* Instance of a Qdisc: 0 for the root, else its place below mq. bbq_init refuses what has none. */
bb_inline __u32 bbq_instance_of(struct Qdisc *sch)
{
	__u32 parent = sch->parent;

	return parent == TC_H_ROOT ? 0 : (parent & 0xffff) - 1;
}

bb_inline struct qdisc_skb_cb *bbq_skb_cb(struct sk_buff *skb)
{
	return (struct qdisc_skb_cb *)skb->cb;
}

/* One 32-bit word of the classifier's control block. */
#define bbq_cb_word(cb_, i_) (*(__u32 *)&(cb_)->data[(i_) * 4])

/* Tells the Qdisc what an operation did; the first one brings what it inherited. */
bb_inline void bbq_tell(struct bbq_instance *in, struct Qdisc *sch, __u32 qlen, __u64 bytes)
{
	if (in->synced != (__u64)sch) {
		in->synced = (__u64)sch;
		qlen = 0;
		bytes = 0;
	}
	sch->q.qlen += in->qlen - qlen;
	sch->qstats.backlog += (__u32)(in->bytes - bytes);
	if (in->dropped) {
		sch->qstats.drops += in->dropped;
		in->dropped = 0;
	}
}

/* Segments of a GSO packet (0 = not one). */
bb_inline __u32 bbq_segments(struct sk_buff *skb)
{
	struct skb_shared_info *info = (void *)(skb->head + skb->end);

	return BPF_CORE_READ(info, gso_segs);
}

SEC("struct_ops/bestby_enqueue")
int BPF_PROG(bestby_enqueue, struct sk_buff *skb, struct Qdisc *sch,
	     struct bpf_sk_buff_ptr *to_free)
{
	struct qdisc_skb_cb *cb = bbq_skb_cb(skb);
	__u32 inst = bbq_instance_of(sch), session, rule, idx, qlen, adu, w1, words[5];
	__u32 user;
	__u32 priority, refuse = BB_REASONS;
	__u64 bytes, now, departs, deadline, rate;
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();
	struct bb_counters *c;
	struct bb_session *ses;
	struct bbq_user *u;
	struct bbq_queue *q;
	struct bbq_slot *s;

	if (!in || !iface)
		goto out;
	now = bpf_ktime_get_ns();
	qlen = in->qlen;
	bytes = in->bytes;
	in->work = BBQ_WORK_ENQUEUE;
	in->noticed = 0;
	if (in->doomed)
		bbq_free_doomed(inst, BBQ_WORK_ROOM, now);

	for (int i = 0; i < 5; i++)
		words[i] = bbq_cb_word(cb, i);
	w1 = words[1];
	if ((words[0] & 0xffff) == bb_cb_check(words)) {
		rule = words[0] >> 16;
		session = w1 & 0xffff;
		priority = (w1 >> 16) & (BB_PRIORITIES - 1);
		adu = w1 >> 24 & BB_CB_ADU ? words[2] : 0;
		deadline = w1 >> 24 & BB_CB_DEADLINE ? bb_cb_deadline(words[3], words[4], now) : 0;
	} else {
		/* Nothing at all: nobody wrote it. */
		bb_global_inc(words[0] | w1 | words[2] | words[3] | words[4] ? BB_G_BAD_CB :
									       BB_G_NO_CB);
		rule = 0;
		session = 0;
		priority = BB_PRIORITY_DEFAULT;
		w1 = 0;
		adu = 0;
		deadline = 0;
	}
	if (!session || session >= BB_MAX_SESSIONS)
		session = BB_SESSION_SHARED;
	ses = bbq_session(session);
	q = bbq_queue_at(inst, session);
	if (!ses || !q)
		goto out;
	/* Doomed packets of an idle one are its former user's. */
	user = q->m.turn != BBQ_IDLE || q->qlen ? q->user : bbq_user_of(ses);
	u = bbq_user_at(inst, user);
	if (!u)
		goto out;
	s = bbq_slot_take(in, &idx);
	if (!s)
		goto out;

	s->deadline = deadline;
	s->arrived_ns = now;
	rate = bbq_rate(iface, ses);
	departs = bbq_departs(skb, now);
	s->key = departs ?: bbq_key(iface->method, priority, deadline, ses->owd_ns, rate, now);
	s->adu = adu;
	s->rule = rule;
	s->session = session;
	s->priority = priority;
	s->treatment = w1 >> 20 & 3;
	s->flags = w1 >> 24 & BB_CB_SOCK ? BBQ_F_SOCK : 0;
	if (w1 >> 24 & BB_CB_TCP)
		s->flags |= BBQ_F_TCP;
	if (w1 >> 24 & BB_CB_REPAIR) {
		/* Whatever becomes of it, its ADU is what the originals are. */
		s->flags |= BBQ_F_REPAIR;
		adu = 0;
		s->adu = 0;
	}
	s->rtp = w1 ? words[4] >> 24 : 0;
	s->chain = BBQ_NONE;
	s->pkt_len = cb->pkt_len;
	s->len = s->pkt_len;
	if (iface->overhead)
		s->len = bb_wire_bytes(s->len, bbq_segments(skb), iface->overhead);

	c = bpf_map_lookup_elem(&bb_rule_stats, &rule);
	if (c)
		bb_count_in(c, s->pkt_len);
	c = bbq_rtp_counters(s);
	if (c)
		bb_count_in(c, s->pkt_len);
	bb_count_in(&ses->counters, s->pkt_len);
	bb_count_in(&in->counters, s->pkt_len);
	if (s->flags & BBQ_F_SOCK) {
		c = bbq_sock_counters(skb);
		if (c)
			bb_count_in(c, s->pkt_len);
	}

	skb = bpf_kptr_xchg(&s->skb, skb);
	if (skb) /* cannot be: a free slot holds none */
		bpf_qdisc_skb_drop(skb, to_free);
	in->qlen++;
	in->bytes += s->pkt_len;

	if (q->m.turn == BBQ_IDLE)
		bbq_activate(inst, in, q, session, u, user);
	if (q->nonempty && bbq_full(in, iface, q))
		bbq_purge(inst, session, now, rate, BBQ_WORK_ROOM + BBQ_WORK_EVICT);
	else if (q->nonempty && now - q->purged_ns > BBQ_PURGE_NS)
		bbq_purge(inst, session, now, rate, BBQ_WORK_EVICT);
	bbq_held_more(in, q, u, s, now);

	if (bbq_dead(inst, q, s, now)) {
		if (!(iface->flags & BB_IFACE_OBSERVE)) {
			refuse = BB_DROP_ADU;
			goto refused;
		}
		bbq_would_drop(inst, idx, BB_DROP_ADU, now);
	}
	if (bbq_full(in, iface, q)) {
		if (!bbq_make_room(inst, session, priority, s->len, now))
			refuse = BB_DROP_OVERFLOW;
		else if (bbq_dead(inst, q, s, now) && !(iface->flags & BB_IFACE_OBSERVE))
			refuse = BB_DROP_ADU; /* the room was that of its own ADU */
		if (refuse != BB_REASONS)
			goto refused;
	}
	if (departs)
		bbq_insert(inst, session, in, q, s, idx, BBQ_DEPART_LIST, 0);
	else
		bbq_place(inst, session, in, q, iface, ses, s, idx, rate, now);
	bbq_grown(inst, in, iface, u, user, q, session);
	if (q->m.turn == BBQ_THROTTLED && q->departs &&
	    (!departs || q->head[BBQ_DEPART_LIST] == idx))
		bbq_call_back(inst, session);
	bbq_tell(in, sch, qlen, bytes);
	return NET_XMIT_SUCCESS;

refused:
	bbq_free(inst, idx, refuse, now);
	bbq_tell(in, sch, qlen, bytes);
	return NET_XMIT_DROP;

out:
	bb_global_inc(BB_G_REFUSED);
	bpf_qdisc_skb_drop(skb, to_free);
	sch->qstats.drops++;
	return NET_XMIT_DROP;
}

SEC("struct_ops/bestby_dequeue")
struct sk_buff *BPF_PROG(bestby_dequeue, struct Qdisc *sch)
{
	__u32 inst = bbq_instance_of(sch), qlen, rule;
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_pick pick = {};
	struct bbq_user *media, *u;
	struct bb_iface *iface;
	struct sk_buff *skb = 0;
	struct bb_counters *c;
	struct bb_session *ses;
	struct bbq_queue *q;
	struct bbq_slot *s;
	__u64 now, bytes;
	int stale = 0;

	if (!in || !in->qlen)
		return 0;
	iface = bbq_iface();
	media = bbq_user_at(inst, BBQ_MEDIA);
	if (!iface || !media)
		return 0;
	now = bpf_ktime_get_ns();
	if (iface->rate && iface->rate != iface->link_rate)
		bbq_rate_changed(&iface->link_next, &iface->link_rate, now, iface->rate);
	qlen = in->qlen;
	bytes = in->bytes;
	in->work = BBQ_WORK;
	in->noticed = 0;
	in->more = 0;
	if (in->doomed)
		bbq_free_doomed(inst, BBQ_WORK / 2, now);
	if (iface->rate && iface->link_next > now) {
		bpf_qdisc_watchdog_schedule(sch, iface->link_next, 0);
		bbq_tell(in, sch, qlen, bytes);
		return 0;
	}
	if (!bbq_next_at_once(inst, in, iface, media, now, &pick)) {
		__u64 next = bbq_next(inst, now);

		pick.idx = (__u32)next;
		pick.session = next >> 32;
		bbq_look_up(inst, &pick);
		if (pick.s && pick.ses)
			stale = bb_stale(now, pick.ses->owd_ns, pick.s->deadline);
	}
	s = pick.s;
	q = pick.q;
	u = pick.u;
	ses = pick.ses;
	if (!s || !q || !u || !ses) {
		__u64 wake = in->throttled ? in->wake_ns : ~0ULL;

		if (in->hold_ns && in->hold_ns < wake)
			wake = in->hold_ns;
		if (in->more || in->doomed) {
			__u64 again = in->hold_ns ? now + BBQ_AGAIN_NS : now;

			if (again < wake)
				wake = again;
		}
		if (wake != ~0ULL)
			bpf_qdisc_watchdog_schedule(sch, wake, 0);
		bbq_tell(in, sch, qlen, bytes);
		return 0;
	}

	bbq_pop(q, s, pick.idx);
	skb = bpf_kptr_xchg(&s->skb, 0);
	bbq_held_less(in, q, u, s);
	bbq_turn_sent(in, iface, u, q->user, media, q, s->len);
	if (ses->rate)
		bbq_take_turn(ses, pick.session, inst, now, s->len);
	if (iface->rate)
		bbq_use(&iface->link_next, now, s->len, iface->rate);

	bbq_note_sojourn(ses, s, now);
	rule = s->rule;
	c = bpf_map_lookup_elem(&bb_rule_stats, &rule);
	if (c)
		bb_count_sent(c, s->pkt_len, stale);
	c = bbq_rtp_counters(s);
	if (c)
		bb_count_sent(c, s->pkt_len, stale);
	bb_count_sent(&ses->counters, s->pkt_len, stale);
	bb_count_sent(&in->counters, s->pkt_len, stale);
	if (skb && s->flags & BBQ_F_SOCK) {
		c = bbq_sock_counters(skb);
		if (c)
			bb_count_sent(c, s->pkt_len, stale);
	}
	bbq_slot_return(in, s, pick.idx);
	if (!q->nonempty) {
		bbq_turn_over(inst, u, q, pick.session);
		if (q->user != BBQ_MEDIA && !u->sessions.members)
			bbq_user_over(inst, in, u, q->user);
	}
	bbq_tell(in, sch, qlen, bytes);
	if (skb)
		bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

/*
 * Is it a Qdisc of our own interface? Kinds are known in all network namespaces,
 * and any user may be root of one: its Qdisc would share this queue, without its lock.
 * An index says little by itself, as everybody numbers their interfaces.
 */
bb_inline int bbq_is_ours(struct Qdisc *sch)
{
	return (__u32)BPF_CORE_READ(sch, dev_queue, dev, ifindex) == bbq_ifindex &&
	       BPF_CORE_READ(sch, dev_queue, dev, nd_net.net, net_cookie) == bbq_netns;
}

SEC("struct_ops/bestby_init")
int BPF_PROG(bestby_init, struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	__u32 inst = bbq_instance_of(sch);
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();

	if (!in || !iface || !bbq_is_ours(sch))
		return -22; /* EINVAL */
	if (!in->fresh) {
		in->fresh = inst * bbq_slots_n + 1; /* slot 0 is "none" */
		in->slots_end = (inst + 1) * bbq_slots_n;
	}
	in->before = in->owner;
	in->owner = (__u64)sch;
	sch->limit = iface->limit;
	return 0;
}

/* Frees every packet of the instance; counted as evicted. */
__noinline int bbq_clear(__u32 inst)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_wheel *w = bbq_wheel(inst);
	__u64 now = bpf_ktime_get_ns();
	__u32 i;

	if (!in || !w)
		return 0;
	bpf_for(i, inst * bbq_slots_n + 1, in->fresh) {
		struct bbq_slot *s = bbq_slot_at(i);

		if (s && s->skb)
			bbq_free(inst, i, BB_DROP_EVICTED, now);
	}
	bpf_for(i, 0, BB_MAX_SESSIONS) {
		struct bbq_queue *q = bbq_queue_at(inst, i);

		if (q && (q->m.turn != BBQ_IDLE || q->nonempty))
			__builtin_memset(q, 0, sizeof(*q));
	}
	bpf_for(i, 0, BBQ_USERS) {
		struct bbq_user *u = bbq_user_at(inst, i);

		if (u && (u->active || u->m.turn != BBQ_IDLE))
			__builtin_memset(u, 0, sizeof(*u));
	}
	bpf_for(i, 0, BBQ_WHEEL_TICKS) {
		w->bucket[i & (BBQ_WHEEL_TICKS - 1)] = BBQ_NONE;
		w->word[(i >> 6) & (BBQ_WHEEL_TICKS / 64 - 1)] = 0;
	}
	w->words = 0;
	__builtin_memset(&in->users, 0, sizeof(in->users));
	in->plain_credit = 0;
	in->throttled = 0;
	in->largest = BBQ_NONE;
	in->doomed = BBQ_NONE;
	in->free = BBQ_NONE;
	in->fresh = inst * bbq_slots_n + 1;
	return 0;
}

SEC("struct_ops/bestby_reset")
void BPF_PROG(bestby_reset, struct Qdisc *sch)
{
	__u32 inst = bbq_instance_of(sch);
	struct bbq_instance *in = bbq_instance(inst);

	if (!in || in->owner != (__u64)sch)
		return;
	bbq_clear(inst);
	in->dropped = 0;
	in->synced = 0; /* the kernel sets qlen to 0 after this */
}

SEC("struct_ops/bestby_destroy")
void BPF_PROG(bestby_destroy, struct Qdisc *sch)
{
	struct bbq_instance *in = bbq_instance(bbq_instance_of(sch));

	if (!in)
		return;
	if (in->before == (__u64)sch)
		in->before = 0;
	/* Also where the kernel gives up a Qdisc right after init: the one before goes on. */
	if (in->owner == (__u64)sch) {
		in->owner = in->before;
		in->before = 0;
	}
}

SEC(".struct_ops.link")
struct Qdisc_ops bestby_ops = {
	.enqueue = (void *)bestby_enqueue,
	.dequeue = (void *)bestby_dequeue,
	.init = (void *)bestby_init,
	.reset = (void *)bestby_reset,
	.destroy = (void *)bestby_destroy,
	.id = "bestby",
};
