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
 *  2. enqueue notes the packet in an entry of its own (bbq_state.bpf.h) and puts that into its session's
 *     lists (bbq_order.bpf.h). Packets may be doomed there: stale ones, those that the method gives up
 *     (bbq_method.bpf.h, bbq_triage.bpf.h), and those that a limit costs (bbq_room.bpf.h). They leave
 *     their list at once, and are freed a few in each operation (bbq_drop.bpf.h).
 *     Most packets pass an empty queue. One that comes when nothing is queued stays
 *     alone, out of all lists and turns, until it leaves or the next one comes.
 *  3. dequeue lets media and users, users, and the sessions of each take turns
 *     (bbq_turns.bpf.h, bbq_next.bpf.h); the session whose turn it is sends what
 *     its method selects. What is important goes before its session's turn, and counts as
 *     sent in that (bbq_urgent.bpf.h). A session with a rate waits in a wheel, an interface
 *     with a rate waits for its watchdog.
 *
 * Invariants
 *  - packets in = sent + dropped + queued, for every rule, session and
 *    instance: counted here, under the Qdisc's lock, nowhere else. Rule, payload
 *    type and instance count a packet that is alone when it leaves, or lines up.
 *  - A packet without a deadline is dropped for want of room, or because it waits in a
 *    queue that stands (bbq_codel.bpf.h); media only for want of room.
 *  - A packet's entry is in exactly one of: free list, never used, one list or chain, the
 *    doomed ones, alone.
 *  - No enqueue or dequeue runs longer than 5,000 instructions. A budget (BBQ_WORK) pays for each step of a
 *    loop, and the next operation goes on.
 *
 * Handover
 *  The maps may be shared (pinned) by two loaded objects. init of a new Qdisc
 *  makes it the owner of its instance; reset of one that is not the owner
 *  leaves everything alone. So grafting a Qdisc of a newer object over an
 *  older one keeps every queued packet; the newer one takes the older one's
 *  packets into its qlen with its first operation. A Qdisc cannot arm its timer
 *  in init: the program that grafts it sends one packet to start it.
 *
 * What it does not do: child classes, peek of its own, changing packets.
 *
 * By hand (bestbyd does this): bpftool struct_ops register qdisc.bpf.o;
 *  tc qdisc add dev DEV root bestby. Without bb_ifaces' entry all is refused.
 */
#include "bb_compat.bpf.h"
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "bbq_auto.bpf.h"
#include "bbq_next.bpf.h"
#include "bbq_room.bpf.h"
#include "bbq_sojourn.bpf.h"

char _license[] SEC("license") = "GPL";

#define TC_H_ROOT 0xFFFFFFFFU

#define BBQ_KEPT 255 /* no enum bb_reason */

/* Instance of a Qdisc: 0 for the root, else its place below mq. bbq_init refuses what has none. */
bb_inline __u32 bbq_instance_of(struct Qdisc *sch)
{
	__u32 parent = sch->parent;

	return parent == TC_H_ROOT ? 0 : (parent & 0xffff) - 1;
}

/* Segments of a GSO packet (0 = not one). */
bb_inline __u32 bbq_segments(struct sk_buff *skb)
{
	struct skb_shared_info *info = (void *)(skb->head + skb->end);

	/* The stamp leaves the count to whoever cuts it. */
	if (!BPF_CORE_READ(info, gso_segs) && BPF_CORE_READ(info, gso_size))
		return skb->len / BPF_CORE_READ(info, gso_size) + 1;
	return BPF_CORE_READ(info, gso_segs);
}

/* Fills `p` with what the classifier wrote into the packet's control block. */
bb_inline void bbq_read_cb(struct bbq_packet *p, struct sk_buff *skb, __u64 now)
{
	struct qdisc_skb_cb *cb = bbq_skb_cb(skb);
	/* It is aligned, which clang does not know of an array of bytes. */
	const __u64 *data = (const __u64 *)cb->data;
	__u64 first = data[0], second = data[1];
	__u32 adu = *(const __u32 *)&data[2], session, flags;

	p->arrived_ns = now;
	p->pkt_len = cb->pkt_len;
	if ((__u16)first != bb_cb_check(first, second, adu)) {
		/* Nothing at all: nobody wrote it. */
		bb_global_inc(first | second | adu ? BB_G_BAD_CB : BB_G_NO_CB);
		p->deadline = 0;
		p->adu = 0;
		p->rule = 0;
		p->session = BB_SESSION_SHARED;
		p->priority = BB_PRIORITY_DEFAULT;
		p->treatment = BB_TREAT_DEFAULT;
		p->flags = 0;
		p->rtp = 0;
		p->role = 0;
		return;
	}
	flags = first >> 56;
	session = first >> 32 & 0xffff;
	p->deadline = flags & BB_CB_DEADLINE ? bb_cb_deadline(second, now) : 0;
	/* Whatever becomes of a retransmission, its ADU is what the originals are. */
	p->adu = (flags & (BB_CB_ADU | BB_CB_REPAIR)) == BB_CB_ADU ? adu : 0;
	p->rule = first >> 16;
	p->session = session - 1 < BB_MAX_SESSIONS - 1 ? session : BB_SESSION_SHARED;
	p->priority = first >> 48 & (BB_PRIORITIES - 1);
	p->treatment = first >> 52 & 3;
	p->flags = flags & BBQ_F_CB;
	p->rtp = second >> 56;
	p->cookie = p->adu;
	if (p->rtp == BB_STREAM_ECHO)
		p->adu = 0;
	p->role = bb_cb_role_of((__u8)(first >> 48));
	/* What is beside the pictures of MPEG-TS goes before key frames, of which it is as important. */
	if (p->flags & BBQ_F_LARGE && (p->adu ? bbq_is_owed(p->adu) : p->rtp == BB_STREAM_TS))
		p->flags |= BBQ_F_OWED;
}

/* Packet p is held by its session, which gets its turn, and by the user returned. */
bb_inline struct bbq_user *bbq_take_in(__u32 inst, struct bbq_instance *in, struct bbq_packet *p,
				       struct bbq_queue *q, struct bb_session *ses)
{
	/* Doomed packets of an idle one are its former user's. */
	__u32 user = q->m.turn != BBQ_IDLE || q->qlen ? q->user : bbq_user_of(ses);
	struct bbq_user *u = bbq_user_at(in, inst, user);

	if (!u)
		return 0; /* cannot be */
	if (q->m.turn == BBQ_IDLE)
		bbq_activate(inst, in, q, p->session, u, user);
	bbq_held_more(in, q, u, p, p->arrived_ns);
	return u;
}

/*
 * Why packet p, which its session holds, is refused; BBQ_KEPT = it is not. Makes
 * room for it.
 */
bb_inline __u32 bbq_refused(__u32 inst, struct bbq_instance *in, struct bb_iface *iface,
			    struct bbq_packet *p, __u32 idx, struct bbq_queue *q, __u64 now)
{
	if (bbq_dead(inst, q, p, now)) {
		/* It may have grown large since. */
		if (p->flags & BBQ_F_LARGE)
			bbq_note_large(p->adu, 1);
		return BB_DROP_ADU;
	}
	if (p->role && p->adu && bbq_is_chained(p))
		return BB_DROP_CHAIN;
	if (bbq_full(in, iface, q)) {
		if (!bbq_make_room(inst, p->session, p->priority, p->len, now))
			return BB_DROP_OVERFLOW;
		if (bbq_dead(inst, q, p, now))
			return BB_DROP_ADU; /* the room was that of its own ADU */
	}
	return BBQ_KEPT;
}

/* May the packet that just came, and that qlen and bytes count, be alone (bbq_instance.alone)? */
bb_inline int bbq_is_alone(__u32 inst, struct bbq_instance *in, struct bb_iface *iface,
			   struct bbq_packet *p, struct bbq_queue *q, __u64 now)
{
	return in->qlen == 1 && q->m.turn == BBQ_IDLE && !in->media.sessions.members &&
	       !in->users.members && in->bytes <= iface->limit_bytes &&
	       !bbq_dead(inst, q, p, now) && !(p->role && p->adu && bbq_is_chained(p));
}

/* The packet that was alone gets its place: another one came, or it may not go yet. */
__noinline int bbq_line_up_alone(__u32 inst)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();
	struct bb_session *ses;
	struct bbq_queue *q;
	struct bbq_user *u;
	struct bbq_packet *p;
	__u32 idx;

	if (!in || !iface)
		return 0;
	idx = in->alone;
	in->alone = BBQ_NONE;
	p = bbq_packet_at(idx);
	if (!p)
		return 0;
	q = bbq_queue_at(inst, p->session);
	ses = bbq_session(p->session);
	if (!q || !ses)
		return 0;
	in->work -= BBQ_WORK_LINE_UP;
	bbq_count_in(in, p);
	u = bbq_take_in(inst, in, p, q, ses);
	if (!u)
		return 0;
	bbq_place(inst, idx, p->arrived_ns, p->arrived_ns);
	bbq_grown(inst, in, iface, u, q->user, q, p->session);
	return 0;
}

SEC("struct_ops/bestby_enqueue")
int BPF_PROG(bestby_enqueue, struct sk_buff *skb, struct Qdisc *sch,
	     struct bpf_sk_buff_ptr *to_free)
{
	__u32 inst = bbq_instance_of(sch), session, idx, len, refuse;
	struct bbq_instance *in = bbq_instance(inst);
	struct bb_iface *iface = bbq_iface();
	struct bb_counters *c;
	struct bb_session *ses;
	struct bbq_queue *q;
	struct bbq_user *u;
	struct bbq_packet *p;
	const __u64 *data;
	__u64 now, departs;

	if (!in || !iface)
		goto out;
	data = (const __u64 *)bbq_skb_cb(skb)->data;
	if (bbq_is_twin(data[0]) &&
	    (__u16)data[0] == bb_cb_check(data[0], data[1], *(const __u32 *)&data[2]))
		return bbq_park(inst, in, sch, skb, to_free, data[1], *(const __u32 *)&data[2]);
	now = bpf_ktime_get_ns();
	in->work = BBQ_WORK_ENQUEUE;
	in->noticed = 0;
	if (in->doomed)
		bbq_free_doomed(inst, BBQ_WORK_ROOM, now);
	if (in->chained)
		bbq_drop_chain(inst);
	if (in->alone)
		bbq_line_up_alone(inst);

	p = bbq_packet_take(in, &idx);
	if (!p)
		goto out;
	bbq_meet_device(in, sch, now);
	bbq_read_cb(p, skb, now);
	/* The other methods are what their papers say. */
	if (iface->method != BB_TRIAGE)
		p->role = 0;
	session = p->session;
	ses = bbq_session(session);
	q = bbq_queue_at(inst, session);
	if (!ses || !q) {
		bbq_packet_return(in, p, idx);
		goto out;
	}

	len = p->pkt_len;
	if (p->flags & BBQ_F_SOCK) {
		c = bbq_sock_counters(bbq_cookie(skb));
		if (c)
			bb_count_in(c, len);
	}
	if (p->flags & BBQ_F_PAIRED)
		bbq_pair(inst, in, sch, p, skb, to_free);
	bb_count_in(&ses->counters, len);
	in->qlen++;
	in->bytes += len;

	departs = bbq_departs(skb, now);
	/* The stamp comes after the kernel reckons pkt_len. */
	p->len = skb->len > len ? skb->len : len;
	if (iface->overhead)
		p->len = bb_wire_bytes(p->len, bbq_segments(skb), iface->overhead);
	skb = bpf_kptr_xchg(&p->skb, skb);
	if (skb) /* cannot be: an unused entry holds none */
		bpf_qdisc_skb_drop(skb, to_free);

	if (!departs && bbq_is_alone(inst, in, iface, p, q, now)) {
		in->alone = idx;
	} else {
		bbq_count_in(in, p);
		if (q->nonempty && bbq_full(in, iface, q))
			bbq_purge(inst, session, now, bbq_rate(in, iface, ses),
				  BBQ_WORK_ROOM + BBQ_WORK_EVICT);
		else if (q->nonempty && now - q->purged_ns > BBQ_PURGE_NS)
			bbq_purge(inst, session, now, bbq_rate(in, iface, ses), BBQ_WORK_EVICT);
		u = bbq_take_in(inst, in, p, q, ses);
		refuse = u ? bbq_refused(inst, in, iface, p, idx, q, now) : BB_DROP_OVERFLOW;
		if (u && refuse == BB_DROP_ADU && p->flags & BBQ_F_PAIRED &&
		    !bbq_full(in, iface, q)) {
			bbq_doom_alone(in, iface, ses, p, idx, now);
			bbq_tell(in, sch, 1, len);
			return NET_XMIT_SUCCESS;
		}
		if (!u || refuse != BBQ_KEPT) {
			bbq_free(inst, idx, refuse, now);
			bbq_tell(in, sch, 1, len);
			return NET_XMIT_DROP;
		}
		bbq_place(inst, idx, departs ?: now, now);
		bbq_grown(inst, in, iface, u, q->user, q, session);
		if (q->user == BBQ_MEDIA && bbq_is_urgent(q, p) && !departs)
			bbq_urge(inst, in, q, session);
		if (q->m.turn == BBQ_THROTTLED && q->departs &&
		    (!departs || q->head[BBQ_DEPART_LIST] == idx))
			bbq_call_back(inst, session);
	}
	if (!departs)
		bbq_expect(in, iface, q, p, ses, now);
	bbq_tell(in, sch, 1, len);
	return NET_XMIT_SUCCESS;

out:
	bb_global_inc(BB_G_REFUSED);
	bpf_qdisc_skb_drop(skb, to_free);
	sch->qstats.drops++;
	return NET_XMIT_DROP;
}

/* Nothing may go now: when to look again. */
bb_inline void bbq_wait(struct bbq_instance *in, struct Qdisc *sch, __u64 now)
{
	__u64 wake = in->throttled ? in->wake_ns : ~0ULL;

	bbq_device_free(in);
	if (in->hold_ns && in->hold_ns < wake)
		wake = in->hold_ns;
	if (in->more || in->doomed || in->swapped) {
		__u64 again = in->hold_ns ? now + BBQ_AGAIN_NS : now;

		if (again < wake)
			wake = again;
	}
	if (wake != ~0ULL)
		bpf_qdisc_watchdog_schedule(sch, wake, 0);
}

SEC("struct_ops/bestby_dequeue")
struct sk_buff *BPF_PROG(bestby_dequeue, struct Qdisc *sch)
{
	__u32 inst, len;
	struct bbq_instance *in;
	struct bbq_pick pick = {};
	struct bb_iface *iface;
	struct sk_buff *skb = 0;
	struct bb_counters *c = 0;
	struct bb_session *ses;
	struct bbq_user *u;
	struct bbq_queue *q;
	struct bbq_packet *p;
	__u64 now, rate;
	int stale, alone = 0;

	/* The kernel asks until it gets nothing. */
	if (!sch->q.qlen)
		return 0;
	inst = bbq_instance_of(sch);
	in = bbq_instance(inst);
	if (!in)
		return 0;
	if (!in->qlen) {
		if (in->parked)
			bbq_sweep(inst, in, sch);
		return 0;
	}
	iface = bbq_iface();
	if (!iface)
		return 0;
	now = bpf_ktime_get_ns();
	rate = iface->rate;
	if (rate && rate != iface->link_rate)
		bbq_rate_changed(&iface->link_next, &iface->link_rate, now, rate);
	in->work = in->pairs ? BBQ_WORK - BBQ_WORK_TWIN : BBQ_WORK;
	in->noticed = 0;
	in->more = 0;
	if (in->doomed)
		bbq_free_doomed(inst, BBQ_WORK / 2, now);
	if (in->chained)
		bbq_drop_chain(inst);
	if (in->swapped)
		bbq_put_back(inst);
	if (rate && iface->link_next > now) {
		bbq_device_free(in);
		bpf_qdisc_watchdog_schedule(sch, iface->link_next, 0);
		bbq_tell(in, sch, 0, 0);
		return 0;
	}
	if (in->alone) {
		alone = bbq_alone(inst, in, iface, now, &pick);
		if (!alone)
			bbq_line_up_alone(inst);
	}
	if (!alone && !bbq_next_at_once(inst, in, iface, now, &pick)) {
		__u64 next = 0;

		while (bb_can_loop) {
			next = bbq_next(inst, in, now);
			/* It gave up what was first, whose headers may be. */
			if (next || !in->swapped || in->work <= 0)
				break;
			in->more = 0;
			bbq_put_back(inst);
		}
		pick.idx = (__u32)next;
		pick.session = next >> 32;
		if (!bbq_look_up(inst, in, &pick)) {
			bbq_wait(in, sch, now);
			bbq_tell(in, sch, 0, 0);
			return 0;
		}
	}
	p = pick.p;
	q = pick.q;
	u = pick.u;
	ses = pick.ses;

	if (alone) {
		in->alone = BBQ_NONE;
		q->begun = p->adu;
	} else {
		bbq_pop(q, p, pick.idx);
		bbq_held_less(in, q, u, p);
		bbq_turn_sent(in, iface, u, q->user, q, p->len);
		/* What was urgent left before its turn: that is still to come. */
		if (!q->nonempty && bbq_ring_has_turn(&u->sessions, &q->m, pick.session)) {
			bbq_turn_over(inst, u, q, pick.session);
			if (q->user != BBQ_MEDIA && !u->sessions.members)
				bbq_user_over(inst, in, u, q->user);
		}
	}
	if (p->flags & BBQ_F_LARGE && (alone || !p->chain))
		bbq_note_large(p->adu, 0);
	bb_take_out(&in->qlen, &in->bytes, p->pkt_len);
	skb = bpf_kptr_xchg(&p->skb, 0);
	if (ses->rate)
		bbq_take_turn(ses, pick.session, inst, now, p->len);
	if (rate)
		bbq_use(&iface->link_next, now, p->len, rate);

	bbq_tell_device(inst, in, sch, pick.idx, now);
	if (iface->flags & BB_IFACE_AUTO)
		bbq_note_path(inst, pick.idx, now);
	stale = bbq_note_departure(in, ses, p, now);
	len = p->pkt_len;
	bbq_count_sent(in, p, stale, alone);
	bb_count_sent(&ses->counters, len, stale);
	if (skb && p->flags & BBQ_F_SOCK) {
		c = bbq_sock_counters_of(p, skb);
		if (c)
			bb_count_sent(c, len, stale);
	}
	if (p->flags & (BBQ_F_PAIRED | BBQ_F_TRUNCATED))
		bbq_settle(in, p, ses, c);
	bbq_packet_return(in, p, pick.idx);
	bbq_tell(in, sch, -1, -len);
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
		in->fresh = inst * bbq_packets_n + 1; /* index 0 is "none" */
		in->fresh_end = (inst + 1) * bbq_packets_n;
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
	bpf_for(i, inst * bbq_packets_n + 1, in->fresh) {
		struct bbq_packet *p = bbq_packet_at(i);

		if (p && p->skb)
			bbq_free(inst, i, BB_DROP_EVICTED, now);
	}
	bpf_for(i, inst * BB_MAX_PARKED, (inst + 1) * BB_MAX_PARKED) {
		struct bbq_parked *parked = bpf_map_lookup_elem(&bbq_parked, &i);
		struct sk_buff *twin = parked ? bpf_kptr_xchg(&parked->skb, 0) : 0;

		if (twin)
			bpf_kfree_skb(twin);
	}
	bpf_for(i, 0, BB_MAX_SESSIONS) {
		struct bbq_queue *q = bbq_queue_at(inst, i);

		/* One that is empty may be in the line of urgent ones still. */
		if (q && (q->m.turn != BBQ_IDLE || q->nonempty || q->qlen || q->bytes || q->urgent))
			__builtin_memset(q, 0, sizeof(*q));
	}
	bpf_for(i, 0, BBQ_USERS) {
		struct bbq_user *u = bbq_user_at(in, inst, i);

		if (u && (u->active || u->m.turn != BBQ_IDLE || u->qlen || u->bytes))
			__builtin_memset(u, 0, sizeof(*u));
	}
	bpf_for(i, 0, BBQ_WHEEL_TICKS) {
		w->bucket[i & (BBQ_WHEEL_TICKS - 1)] = BBQ_NONE;
		w->word[(i >> 6) & (BBQ_WHEEL_TICKS / 64 - 1)] = 0;
	}
	w->words = 0;
	in->qlen = 0;
	in->bytes = 0;
	in->alone = BBQ_NONE;
	in->plain_qlen = 0;
	in->plain_bytes = 0;
	in->pairs = 0;
	__builtin_memset(&in->media, 0, sizeof(in->media));
	__builtin_memset(&in->users, 0, sizeof(in->users));
	in->plain_credit = 0;
	in->throttled = 0;
	in->largest = BBQ_NONE;
	in->looked = BBQ_NONE;
	in->urgent = BBQ_NONE;
	in->chained = BB_SESSION_NONE;
	in->doomed = BBQ_NONE;
	in->swapped = BBQ_NONE;
	in->parked = 0;
	in->free = BBQ_NONE;
	in->fresh = inst * bbq_packets_n + 1;
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
	in->dropped_bytes = 0;
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
	/* The next Qdisc may be allocated where this one was. */
	if (in->synced == (__u64)sch)
		in->synced = 0;
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
