/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * State of one interface's queue: maps, packets, instances, sessions' queues.
 *
 * Everything here is guarded by the root lock of the Qdisc that the instance
 * belongs to: one instance per transmit queue, no sharing between instances.
 * Packets are entries of an array that is made beforehand. Index 0 means "none";
 * instance n uses those from n * bbq_packets_n + 1 on.
 *
 * A packet owns its skb (kptr) from enqueue until dequeue or free. Packets, lists
 * and sessions outlive the Qdisc and the programs (the maps are pinned): that
 * is what makes an upgrade without loss possible, see "Handover" in
 * qdisc.bpf.c.
 */
#ifndef BBQ_STATE_BPF_H
#define BBQ_STATE_BPF_H

#include "bb_compat.bpf.h"
#include "bb_count.bpf.h"

#define BBQ_NONE 0 /* no packet, no session: both count from 1 */
#define BBQ_LISTS 10 /* one per priority (triage uses list 0), and: */
#define BBQ_STALE_LIST 8 /* stale ones that may go */
#define BBQ_DEPART_LIST 9 /* packets whose time of departure is ahead, the next one first */
#define BBQ_LANES 4 /* above the lists: bbq_order.bpf.h */
#define BBQ_RECENT_SHIFT 3 /* ADUs that are found by their ids: 2^this */
#define BBQ_DEAD 8 /* ADUs remembered per session as given up */
#define BBQ_DEAD_SHIFT 20 /* a unit is 1.05 ms */
#define BBQ_DEAD_UNITS 4768 /* 5 s: whatever has its id afterwards is another ADU */
#define BBQ_PURGE_NS 1000000ULL /* how long a stale packet may stay behind the head of a list */

/*
 * What one operation may do beside what each does: instructions, of which each step costs
 * so many at most, by measurement. It stops when they are spent, and the next one goes on
 * from there: all senders wait for the lock meanwhile.
 */
#define BBQ_WORK 3000 /* of a dequeue */
#define BBQ_WORK_ENQUEUE 2500
#define BBQ_WORK_FREE 760 /* a packet is freed; four of them took 5,062 instructions */
#define BBQ_WORK_TWIN 500 /* a twin is freed, beside its packet */
#define BBQ_WORK_SWAP 760 /* a packet is swapped for its twin ... */
#define BBQ_WORK_PUT 300 /* ... and put back */
#define BBQ_WORK_DROP 350 /* an ADU is taken out of its list */
#define BBQ_WORK_EVICT (BBQ_WORK_DROP + BBQ_WORK_FREE)
#define BBQ_WORK_ROOM (BBQ_WORK_EVICT + 250) /* of an enqueue, kept for one eviction */
#define BBQ_WORK_PLAN 120 /* an ADU is planned, or moved to another list */
#define BBQ_WORK_LOOK 50 /* an ADU, a session or a user is compared with others */
#define BBQ_WORK_STEP 30 /* a place is passed by in search of another one ... */
#define BBQ_WORK_FIND 700 /* ... for which so much is there besides */
#define BBQ_WORK_TURN 150 /* a session or user has its turn */
#define BBQ_WORK_LINE_UP 600 /* a packet that was alone gets its place */
#define BBQ_WORK_WAKE 350 /* a session is released from the wheel */
#define BBQ_WORK_DEPART 400 /* a packet may depart, and gets its place */
/* Who waits for packets that are held back looks again after this, if work was left undone, too. */
#define BBQ_AGAIN_NS 200000ULL

/* A packet without a deadline is ordered as if it were of use this long. */
#define BBQ_NOMINAL_NS BB_NSEC_PER_SEC

/* ---- set by the agent before load ---- */
const volatile __u32 bb_abi_version = BB_ABI_VERSION;
const volatile __u32 bbq_slot = 0; /* index in bb_ifaces */
const volatile __u32 bbq_ifindex = 0; /* the interface that this queue is of, in ... */
const volatile __u64 bbq_netns = 0; /* ... the network namespace with this cookie */
const volatile __u32 bbq_packets_n = 0; /* packets per instance, index 0 included */
const volatile __u32 bbq_instances_n = 1; /* transmit queues served */
const volatile __u32 bbq_quantum = 3028; /* bytes a session may send in its turn: two full frames */

/* ---- one queued packet ---- */
struct bbq_lane {
	__u32 prev;
	__u32 next;
};

struct bbq_packet {
	struct sk_buff __kptr *skb;
	struct sk_buff __kptr *twin; /* its headers, with BBQ_F_PAIRED (bbq_twin.bpf.h) */
	__u64 key; /* place in its list: deadline, arrival for fifo, or its time of departure */
	__u64 deadline; /* 0 = none */
	__u64 arrived_ns; /* or since when it may depart */
	__u64 cookie; /* of its socket, with BBQ_F_TRUNCATED: its headers have none; name of an echo request */
	__u32 next; /* next ADU of the list; the next free one while free */
	__u32 prev;
	__u32 chain; /* next packet of the same ADU */
	__u32 chain_tail; /* first packet of an ADU only */
	__u32 adu; /* 0 = alone */
	__u32 len; /* bytes on the wire, overhead included */
	__u32 adu_bytes; /* first packet of an ADU only: its len and that of its chain */
	__u32 last_len; /* first packet of an ADU only: len of the last one of its chain */
	__u32 pkt_len; /* what the Qdisc's backlog counts */
	struct bbq_lane lane[BBQ_LANES];
	__u16 rule;
	__u16 session;
	__u8 priority;
	__u8 treatment;
	__u8 list;
	__u8 lanes; /* it is in so many of them */
	__u8 flags;
	__u8 rtp; /* bb_cb.rtp */
	__u8 reason; /* first packet of a doomed ADU only: why it is freed */
	__u8 role; /* enum bb_role of its frame; 0 = nothing depends on it, or it is not known */
};

#define BBQ_F_OWED 0x01 /* large, of a stream that lost its last large ADU: with BBQ_F_LARGE only */
#define BBQ_F_BEGUN 0x02 /* first packet of an ADU only: others of it were sent before */
#define BBQ_F_TRUNCATED 0x80 /* only its headers are left, in skb */
/* The others are the control block's. */
#define BBQ_F_LARGE BB_CB_LARGE /* of an ADU much larger than its stream's others */
#define BBQ_F_SOCK BB_CB_SOCK /* counts in bb_sock_stats, too */
#define BBQ_F_REPAIR BB_CB_REPAIR /* a retransmission */
#define BBQ_F_TCP BB_CB_TCP /* of a TCP socket of this host */
#define BBQ_F_PAIRED BB_CB_PAIRED /* its headers are here, too */
#define BBQ_F_SPARED (BBQ_F_LARGE | BBQ_F_OWED) /* an ADU has them if any of its packets does */
#define BBQ_F_CB (BBQ_F_LARGE | BBQ_F_SOCK | BBQ_F_REPAIR | BBQ_F_TCP | BBQ_F_PAIRED)

/*
 * By which priority a packet has its place. MPEG-TS is not in order at its receivers unless it leaves as it
 * came, whatever its pictures are worth: all of it has one.
 */
bb_inline __u32 bbq_rank(const struct bbq_packet *p)
{
	return p->rtp == BB_STREAM_TS && p->priority > BB_PRIORITY_DEFAULT ? BB_PRIORITY_DEFAULT :
									     p->priority;
}

/* ---- who takes turns with whom (bbq_turns.bpf.h) ---- */
enum bbq_turn {
	BBQ_IDLE = 0,
	BBQ_NEW = 1,
	BBQ_OLD = 2,
	BBQ_THROTTLED = 3, /* a session in the wheel until it may send */
};

/* A session among those of its user, or a user among all users. Comes first in both. */
struct bbq_member {
	__u32 next; /* of the ring's list, or of the wheel's bucket */
	__s32 deficit; /* bytes it may still send in this turn */
	__u8 turn; /* enum bbq_turn */
	__u8 pad[3];
};

struct bbq_ring {
	__u32 new_head;
	__u32 new_tail;
	__u32 old_head;
	__u32 old_tail;
	__u32 members; /* in the two lists */
	__u32 new_bytes; /* how far new ones are ahead of their part, see bbq_ring_head */
};

/* ---- triage: how far the plan of a session has come, and whom it would give up ---- */
struct bbq_walk {
	__u64 bytes; /* of the ADUs before `at` */
	__u64 worst; /* the victim's bbq_burden */
	__s64 slack; /* how much later all before `at` may leave, ns, with what they should have to spare ... */
	__s64 bears; /* ... and without it */
	__s64 bears_early; /* ... and if all of what is expected goes first (bbq_reserve) */
	__u64 end; /* when the last of them was to arrive */
	__u32 at; /* the ADU that is next; 0 = from the first one on */
	__u32 victim;
	__u32 steps; /* ADUs before `at` that were looked at */
	__u8 begun; /* some of the victim was sent */
	__u8 passed; /* the most important priority before `at` that has its place by its deadline */
	__u8 stuck; /* one of them would go first, and the others cannot wait so long */
	__u8 pad[5];
};

/* ---- CoDel: how long the packets of a session have waited (bbq_codel.bpf.h) ---- */
struct bbq_codel {
	__u64 until_ns; /* they are above the target; dropping begins then. 0 = they are below */
	__u64 next_ns; /* while dropping: when the next one is due; else when it would have been */
	__u32 count; /* dropped in a row */
	__u32 before; /* count when dropping began */
	__u32 root; /* 2^16 / sqrt(count) */
	__u8 dropping;
	__u8 pad[3];
};

/* ---- the queue of one session ---- */
struct bbq_queue {
	struct bbq_member m; /* first */
	__u32 head[BBQ_LISTS];
	__u32 tail[BBQ_LISTS];
	__u32 lane_tail[BBQ_LANES];
	__u32 recent[1 << BBQ_RECENT_SHIFT]; /* first packets of ADUs that packets came of lately */
	__u32 qlen;
	__u64 bytes; /* on the wire */
	__u64 purged_ns; /* when the lists were looked through for stale packets last */
	__u16 nonempty; /* bit l: list l has packets */
	__u16 user; /* BBQ_MEDIA or its user; fixed from activation until it is idle */
	/*
	 * Triage: of the most important priority seen lately, when its last packet
	 * came, how long after the one before it, how long it could wait, and how
	 * many bytes come in how much time.
	 */
	__u64 ahead_ns; /* 0 = none yet */
	__u32 ahead_gap;
	__u32 ahead_slack;
	__u64 ahead_from_ns; /* the period in which bytes are counted now */
	__u32 ahead_bytes; /* of 200 ms at most: wraps beyond 170 Gbit/s, to a load too small */
	__u32 ahead_load; /* bytes/ns << BBQ_LOAD_SHIFT of the one before; 0 = there was none */
	__u32 begun; /* the ADU of the packet that was sent last */
	struct bbq_walk walk;
	__u32 least; /* triage: an ADU that makes room before others; 0 = none is known */
	__u32 looked; /* where the search for another one goes on; 0 = at the head */
	__u32 before; /* in the wheel: the session before it in its bucket */
	__u16 bucket; /* in the wheel: its bucket */
	__u8 departs; /* in the wheel: for a departure, not for its rate */
	__u8 unordered; /* triage: what is more important may stand behind; or BBQ_STUCK */
	__u64 turn_ns; /* where the session's next turn is this instance's: when it begins */
	struct bbq_codel codel;
	__u32 dead[BBQ_DEAD];
	__u32 dead_at[BBQ_DEAD]; /* since when, in units of BBQ_DEAD_SHIFT */
	__u32 urgent; /* the session behind it in the line (bbq_urgent.bpf.h); BBQ_NONE = it is not in it */
	__u8 dead_next;
	__u8 dead_any;
	__u8 ahead_priority;
	__u8 unplanned; /* triage: a packet came since it was decided what is given up */
};

#define BBQ_URGENT_LAST (~0U) /* bbq_queue.urgent: nobody is behind it */

/* ---- one user of one transmit queue, and all media as if they were one ---- */

/* Numbers: 0 is none, index n of bb_users is 1 + n. Media's place is in the instance. */
#define BBQ_USER(n) ((n) + 1)
#define BBQ_USERS (BB_MAX_USERS + 1)
#define BBQ_MEDIA BBQ_USERS
#define BBQ_NOBODY 0 /* neither a user nor media */

struct bbq_user {
	struct bbq_member m; /* first; not used by media */
	struct bbq_ring sessions;
	__u64 bytes; /* queued, on the wire */
	__u64 deep_bytes; /* of them in deep sessions, which need more than one turn */
	__u32 qlen;
	__u32 active; /* sessions in the ring or the wheel */
	__u32 deep; /* sessions that hold more than bbq_quantum */
	__u32 largest; /* a session that held more than any that a packet came for since; 0 = none */
	__u32 looked; /* where the search for another one goes on; 0 = at the first one */
	__u32 pad;
};

/* ---- what one operation reckons with: no room on the stack ---- */

/* What a plan of one session reckons with. An inverse of 0: that rate is not known. */
struct bbq_plan {
	__u64 inv_link; /* of the interface's rate */
	__u64 inv_session; /* of the session's own, where that is lower */
	__u64 deep_bytes; /* queued in the other sessions of its group (media, or users) ... */
	__u64 shallow_bytes; /* ... but for these, which all leave with the next turns */
	__u64 round; /* bytes that the deep ones send while each of them has a turn */
	__u64 group_bytes; /* queued in the other group; ~0 = more keeps coming */
	__u64 group_part; /* bytes it sends per byte of this group, << BBQ_PART_SHIFT */
	__u64 now; /* or when the device is free */
	__u64 owd; /* of the session */
	__u64 inv; /* ns per byte while its turn lasts ... */
	__u64 inv_turns; /* ... and with the turns of the others, at most BBQ_INV_MAX */
	__u32 load; /* of what is most important lately: q->ahead_load, or 0 */
	__u32 reserves; /* it takes little: what is less important makes room for all of it */
	__u32 used; /* bytes that the session has sent in its own turn */
	__u32 inst;
	__u32 session;
	__u32 last_mask; /* of the length of an ADU's last packet, see bbq_last */
};

/* What bbq_largest_waiting looks for. */
struct bbq_search {
	__u64 most; /* who pays must hold more than this */
	__u32 user, but; /* of whose sessions, 0 = among users; neither this session, or user */
};

/*
 * ---- what the device takes, and holds (bbq_device.bpf.h) ----
 * It is in the way where a packet waits although the queue would send it.
 */
#define BBQ_DEVICE_HOLDS 8
struct bbq_device {
	__u64 rate; /* bytes/s that left it while it was in the way; 0 = it has not been of late */
	__u64 last; /* for the operator: as measured, however long ago; 0 = it never was in the way */
	__u64 seen_ns; /* when that was */
	__u64 gave_up_ns; /* when an ADU of media was given up last */
	__u64 stopped_ns; /* the last packet that came while the transmit queue was stopped; 0 = none ever did */
	__u64 at_ns; /* the last departure, if the device had been in the way and nothing else has since; 0 = no */
	__u64 ns; /* so long it has been in the way of late ... */
	__u64 bytes; /* ... and so many bytes left it meanwhile */
	__u64 busy_ns; /* until when it is busy with what it holds */
	__u64 inv; /* ns per byte (bbq_inverse) of `rate`; 0 = not known */
	__u32 packets; /* departures that ns and bytes are of */
	__u32 done; /* bytes that had left it with the last departure (BQL) */
	__u32 holds; /* packets that it holds, where it does not count bytes; 0 = not known ... */
	__u32 found; /* ... what was found last ... */
	__u32 alike; /* ... and how often in a row */
	__u32 run; /* packets that it took since it was empty ... */
	__u64 run_ns; /* ... and until when none of them is out; 0 = it is not known */
	__u32 departed;
	__u32 free; /* this queue refused to send since the last departure */
	__u32 before
		[BBQ_DEVICE_HOLDS]; /* bytes of the last departures; that of `departed` is the last one */
};

/* ---- one transmit queue ---- */
struct bbq_instance {
	/* First, up to `device`: the agent reads these (bpf/src/instance.rs). */
	struct bb_counters counters;
	struct bb_times times;
	/*
	 * A packet that came when nothing was queued and nobody had a turn. It is in no list,
	 * its session has no turn, and neither it nor its user holds anything; only its session
	 * and its socket have counted it. All that is made up for if another one comes, or it may
	 * not go at once. 0 = none.
	 */
	__u32 alone;
	__u32 qlen;
	__u64 bytes; /* sum of pkt_len queued */
	struct bbq_device device;
	__u64 event_ns; /* when event_credit grew last */
	__u32 free; /* list of packets that were used before */
	__u32 fresh; /* packets never used yet start here; 0 = not initialised ... */
	__u32 fresh_end; /* ... and end before this one */
	struct bbq_user media;
	struct bbq_ring users; /* all others */
	__u32 plain_qlen; /* what users hold together */
	__u64 plain_bytes; /* on the wire */
	__u64 plain_from_ns; /* since when users have had something queued */
	__u64 media_from_ns; /* since when media have */
	__s32 plain_credit; /* bytes that users may send before media */
	__u32 throttled; /* sessions in the wheel */
	__u64 wake_ns; /* when the wheel has something to release; valid while throttled */
	__u64 hold_ns; /* when a packet that was held back may go; 0 = none was */
	__u32 event_credit; /* BBQ_EVENT for each drop notice that may be sent */
	__u32 suppressed;
	__u32 dropped; /* by this operation, and not told the Qdisc yet ... */
	__u32 dropped_bytes; /* ... and their bytes */
	__u32 largest; /* a user who held more than any that a packet came for since; 0 = none */
	__u32 looked; /* where the search for another one goes on; 0 = at the first one */
	__u64 owner; /* address of the Qdisc in charge; 0 = none */
	__u64 before; /* the one before it, while that exists: in charge again if it is gone first */
	__u64 synced; /* address of the Qdisc whose qlen includes what it inherited */
	__u64 inv; /* ns per byte (bbq_inverse) at ... */
	__u64 inv_of; /* ... this rate of the interface */
	struct bbq_plan plan;
	struct bbq_search search;
	struct bbq_lane place[BBQ_LANES]; /* what a new ADU stands between */
	__u32 lane; /* of these, in bbq_find: in memory the verifier does not follow its number */
	__s32 work; /* what is left of BBQ_WORK, or BBQ_WORK_ENQUEUE */
	__u8 noticed; /* this operation has sent a drop notice */
	__u8 more; /* something was left undone: come back at once */
	__u8 holds; /* users of this search who had nothing that may go, see bbq_ask */
	__u32 parked; /* twins whose packets have not come yet */
	__u32 pairs; /* packets with twins */
	__u32 swapped; /* packets that were swapped for their twins and have no place yet, in order ... */
	__u32 swapped_tail; /* ... and the last of them */
	__u32 swept; /* where bbq_sweep goes on */
	__u32 urgent; /* sessions of media whose important packets do not wait for a turn, in line ... */
	__u32 urgent_tail; /* ... and the last of them */
	__u32 asked; /* whom of media and users this search asked last; BBQ_NOBODY = it begins */
	__u64 parked_ns; /* when a twin came last */
	__u32 chained; /* a session of which a frame was given up that others need, see bbq_drop_chain; 0 = none */
	__u32 doomed; /* ADUs that are out of all lists and to be freed, by their first packets; 0 = none */
	__u32 doomed_tail; /* the last of them */
};

/* ---- a twin that waits for its packet ---- */
struct bbq_parked {
	struct sk_buff __kptr *skb;
	__u64 of; /* address of the packet */
	__u32 pair; /* bb_cb_pair */
	__u32 pad;
};

/* ---- timing wheel of throttled sessions ---- */
#define BBQ_WHEEL_SHIFT 16 /* a tick is 65.5 us */
#define BBQ_WHEEL_TICKS 4096 /* horizon 268 ms; farther sessions pass by and are put back */

struct bbq_wheel {
	__u64 tick; /* every tick before this one is empty */
	__u64 words; /* bit w: word w has a non-empty bucket */
	__u64 word[BBQ_WHEEL_TICKS / 64];
	__u32 bucket[BBQ_WHEEL_TICKS];
};

/* max_entries of these six are set by the agent (bestby_bpf::qdisc_sizes). */
#define BBQ_MAP(name_, value_)                    \
	struct {                                  \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__type(key, __u32);               \
		__type(value, value_);            \
		__uint(max_entries, 1);           \
	} name_ SEC(".maps")

BBQ_MAP(bbq_packets, struct bbq_packet);
BBQ_MAP(bbq_queues, struct bbq_queue);
BBQ_MAP(bbq_users, struct bbq_user);
BBQ_MAP(bbq_instances, struct bbq_instance);
BBQ_MAP(bbq_wheels, struct bbq_wheel);
BBQ_MAP(bbq_parked, struct bbq_parked);

/* Number of the lowest bit set; x is not 0. De Bruijn, as BPF has no such instruction. */
static const __u8 bbq_bit[64] = {
	0,  1,	2,  53, 3,  7,	54, 27, 4,  38, 41, 8,	34, 55, 48, 28, 62, 5,	39, 46, 44, 42,
	22, 9,	24, 35, 59, 56, 49, 18, 29, 11, 63, 52, 6,  26, 37, 40, 33, 47, 61, 45, 43, 21,
	23, 58, 17, 10, 51, 25, 36, 32, 60, 20, 57, 16, 50, 31, 19, 15, 30, 14, 13, 12,
};

bb_inline __u32 bbq_lowest(__u64 x)
{
	__u32 n = bbq_bit[((x & -x) * 0x022fdd63cc95386dULL) >> 58];

	/* clang must not look through the table: its bounds checks would not be the verifier's. */
	asm volatile("" : "+r"(n));
	return n;
}

bb_inline struct bbq_instance *bbq_instance(__u32 inst)
{
	return bpf_map_lookup_elem(&bbq_instances, &inst);
}

/* A step of so much may not be taken in this operation; what is left undone is the next one's. */
bb_inline int bbq_spent(struct bbq_instance *in, __s32 step)
{
	if (in->work >= step)
		return 0;
	in->more = 1;
	return 1;
}

bb_inline struct bbq_packet *bbq_packet_at(__u32 idx)
{
	return idx == BBQ_NONE ? 0 : bpf_map_lookup_elem(&bbq_packets, &idx);
}

bb_inline struct bbq_queue *bbq_queue_at(__u32 inst, __u32 session)
{
	__u32 key = inst * BB_MAX_SESSIONS + session;

	return bpf_map_lookup_elem(&bbq_queues, &key);
}

/* A user, or media. */
bb_inline struct bbq_user *bbq_user_at(struct bbq_instance *in, __u32 inst, __u32 user)
{
	__u32 key = inst * BBQ_USERS + user;

	return user == BBQ_MEDIA ? &in->media : bpf_map_lookup_elem(&bbq_users, &key);
}

bb_inline struct bb_session *bbq_session(__u32 session)
{
	return bpf_map_lookup_elem(&bb_sessions, &session);
}

bb_inline struct bb_iface *bbq_iface(void)
{
	__u32 key = bbq_slot;

	return bpf_map_lookup_elem(&bb_ifaces, &key);
}

/* Whom the packets of a session are of: BBQ_MEDIA, or a user. */
bb_inline __u32 bbq_user_of(struct bb_session *ses)
{
	return ses->key.media ? BBQ_MEDIA : BBQ_USER(ses->user & (BB_MAX_USERS - 1));
}

/* A packet comes to an active queue: what that and its user hold. */
bb_inline void bbq_held_more(struct bbq_instance *in, struct bbq_queue *q, struct bbq_user *u,
			     struct bbq_packet *p, __u64 now)
{
	__u64 held = q->bytes;

	q->qlen++;
	q->bytes = held + p->len;
	if (q->bytes > bbq_quantum) {
		u->deep += held <= bbq_quantum;
		u->deep_bytes += held <= bbq_quantum ? q->bytes : p->len;
	}
	if (q->user != BBQ_MEDIA) {
		if (!in->plain_qlen++)
			in->plain_from_ns = now;
		in->plain_bytes += p->len;
	} else if (!u->qlen) {
		in->media_from_ns = now;
	}
	u->qlen++;
	u->bytes += p->len;
}

/* A packet of an active queue is sent or freed. */
bb_inline void bbq_held_less(struct bbq_instance *in, struct bbq_queue *q, struct bbq_user *u,
			     struct bbq_packet *p)
{
	__u64 held = q->bytes;

	bb_take_out(&q->qlen, &q->bytes, p->len);
	if (held > bbq_quantum) {
		u->deep = bb_less(u->deep, q->bytes <= bbq_quantum);
		u->deep_bytes = bb_less(u->deep_bytes, q->bytes <= bbq_quantum ? held : p->len);
	}
	bb_take_out(&u->qlen, &u->bytes, p->len);
	if (!u->qlen) {
		/* An earlier object may have reckoned with another quantum. */
		u->deep = 0;
		u->deep_bytes = 0;
	}
	if (q->user != BBQ_MEDIA)
		bb_take_out(&in->plain_qlen, &in->plain_bytes, p->len);
}

/* Takes an unused entry: its address, and its index in *idx; 0 = all are in use. */
bb_inline struct bbq_packet *bbq_packet_take(struct bbq_instance *in, __u32 *idx)
{
	__u32 at = in->free;
	struct bbq_packet *p;

	if (at != BBQ_NONE) {
		p = bpf_map_lookup_elem(&bbq_packets, &at);
		if (p)
			in->free = p->next;
	} else {
		at = in->fresh;
		p = at < in->fresh_end ? bbq_packet_at(at) : 0;
		if (p)
			in->fresh++;
	}
	*idx = at;
	return p;
}

bb_inline void bbq_packet_return(struct bbq_instance *in, struct bbq_packet *p, __u32 idx)
{
	p->next = in->free;
	in->free = idx;
}

bb_inline struct qdisc_skb_cb *bbq_skb_cb(struct sk_buff *skb)
{
	return (struct qdisc_skb_cb *)skb->cb;
}

/*
 * Tells the Qdisc that `packets` of `bytes` came (or, negative, left), and what was freed
 * meanwhile. The first operation brings what it inherited instead.
 */
bb_inline void bbq_tell(struct bbq_instance *in, struct Qdisc *sch, __s32 packets, __s32 bytes)
{
	if (in->synced != (__u64)sch) {
		in->synced = (__u64)sch;
		packets = in->qlen + in->parked + in->dropped;
		bytes = in->bytes + in->dropped_bytes;
	}
	sch->q.qlen += packets;
	sch->qstats.backlog += bytes;
	if (in->dropped | in->dropped_bytes) {
		sch->q.qlen -= in->dropped;
		sch->qstats.backlog -= in->dropped_bytes;
		sch->qstats.drops += in->dropped;
		in->dropped = 0;
		in->dropped_bytes = 0;
	}
}

#endif /* BBQ_STATE_BPF_H */
