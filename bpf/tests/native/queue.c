// SPDX-License-Identifier: GPL-2.0-only
/*
 * The whole queue (qdisc.bpf.c) as a native program, for bpf/tests/queue: maps are arrays,
 * packets are allocated here, and time is a variable.
 *
 * After each operation bbn_queue_wrong() counts again what the queue holds, packet by packet,
 * and compares that with every counter that the queue keeps of it.
 */
#include "vmlinux.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

void *calloc(unsigned long, unsigned long);
void free(void *);
void *aligned_alloc(unsigned long, unsigned long);

/* ---- the kernel's side ---- */

static __u64 clock_ns;

struct backing {
	const void *map;
	char *entries;
};
static struct backing backings[16];

static void *find(const void *map, __u64 size, __u32 count, __u32 index)
{
	for (struct backing *b = backings; b < backings + 16; b++) {
		if (!b->map) {
			b->map = map;
			b->entries = calloc(count, size);
		}
		if (b->map == map)
			return index < count ? b->entries + index * size : 0;
	}
	return 0;
}

/* Entries of each array: what bestby_bpf::qdisc_sizes says of one instance. */
#define LIMIT 254
#define PACKETS (LIMIT + 2)
static __u32 count_of(const void *map);

#define bpf_map_lookup_elem(map_, key_)                                              \
	((typeof((map_)->value))find((map_), sizeof(*(map_)->value), count_of(map_), \
				     *(const __u32 *)(key_)))
#define bpf_ktime_get_ns() clock_ns
#define bpf_ringbuf_reserve(map_, size_, flags_) ((void *)0)
#define bpf_ringbuf_submit(event_, flags_) ((void)(event_))
#define bpf_kptr_xchg(at_, new_)                 \
	({                                       \
		typeof(*(at_)) was_ = *(at_);    \
		*(at_) = (typeof(*(at_)))(new_); \
		was_;                            \
	})
#undef bpf_probe_read_kernel
#define bpf_probe_read_kernel(to_, size_, from_) \
	((void)__builtin_memcpy((to_), (const void *)(from_), (size_)), 0L)
#undef __builtin_preserve_access_index
#define __builtin_preserve_access_index(x_) (x_)
#undef BPF_CORE_READ
#define BPF_CORE_READ(from_, ...) BBN_READ(from_, __VA_ARGS__, 4, 3, 2, 1)(from_, __VA_ARGS__)
#define BBN_READ(f_, a_, b_, c_, d_, n_, ...) BBN_READ_##n_
#define BBN_READ_1(f_, a_, ...) ((f_)->a_)
#define BBN_READ_2(f_, a_, b_, ...) ((f_)->a_->b_)
#define BBN_READ_3(f_, a_, b_, c_, ...) ((f_)->a_->b_->c_)
#define BBN_READ_4(f_, a_, b_, c_, d_, ...) ((f_)->a_->b_->c_->d_)
#undef BPF_CORE_READ_BITFIELD_PROBED
#define BPF_CORE_READ_BITFIELD_PROBED(from_, field_) ((__u64)(from_)->field_)
#undef bpf_core_field_exists
#define bpf_core_field_exists(field_) 1
#undef bpf_for
#define bpf_for(i_, from_, to_) for ((i_) = (from_); (i_) < (to_); (i_)++)
#undef __ksym
#define __ksym
/* The settings that the agent writes before the object is loaded. */
#define const

#include "../../qdisc.bpf.c"
#include "bb_auto.h"

static const char *wrong;
static __u64 alive; /* packets and twins that are allocated, and not sent */

static void give_up(struct sk_buff *skb)
{
	if (!skb || skb->len == ~0U) {
		wrong = "a packet is freed twice";
		return;
	}
	skb->len = ~0U;
	alive--;
	free(skb->head);
	free(skb);
}

void bpf_kfree_skb(struct sk_buff *skb)
{
	give_up(skb);
}

void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free)
{
	(void)to_free;
	give_up(skb);
}

static __u64 watchdog;

void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, __u64 expire, __u64 delta_ns)
{
	(void)sch;
	(void)delta_ns;
	watchdog = expire;
}

void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb)
{
	(void)sch;
	(void)skb;
}

#undef const

#define SOCKETS 4 /* by their cookies, which are 1 to 3 */

static __u32 count_of(const void *map)
{
	return map == &bbq_packets   ? PACKETS :
	       map == &bbq_queues    ? BB_MAX_SESSIONS :
	       map == &bbq_users     ? BBQ_USERS :
	       map == &bbq_parked    ? BB_MAX_PARKED :
	       map == &bbq_instances ? 1 :
	       map == &bbq_wheels    ? 1 :
	       map == &bb_config     ? 1 :
	       map == &bb_ifaces     ? BB_MAX_IFACES :
	       map == &bb_global     ? BB_GLOBALS :
	       map == &bb_sessions   ? BB_MAX_SESSIONS :
	       map == &bb_rule_stats ? 16 :
	       map == &bb_sock_stats ? SOCKETS :
				       0;
}

/* ---- what the test does ---- */

#define SESSIONS 6 /* from 2 on; even ones are media's, the others of users 1 and 2 */

static struct net net;
static struct net_device dev = { .nd_net = { &net }, .ifindex = 7 };
static struct netdev_queue tx = { .dev = &dev };
static struct Qdisc qdiscs[2], *sch;
static struct sock sockets[SOCKETS];

static void init(struct Qdisc *q)
{
	__builtin_memset(q, 0, sizeof(*q));
	q->parent = TC_H_ROOT;
	q->dev_queue = &tx;
	if (bestby_init((unsigned long long[]){ (unsigned long long)q, 0, 0 }))
		wrong = "it is refused";
	sch = q;
}

void bbn_queue_start(__u64 rate, __u32 overhead, __u32 method, __u32 limit, __u64 limit_bytes)
{
	struct bb_iface *iface;

	for (struct backing *b = backings; b < backings + 16; b++) {
		free(b->entries);
		*b = (struct backing){};
	}
	clock_ns = 100 * BB_NSEC_PER_SEC;
	wrong = 0;
	alive = 0;
	tx.dql = (struct dql){};
	tx.state = 0;
	bbq_slot = 0;
	bbq_ifindex = 7;
	bbq_netns = net.net_cookie;
	bbq_packets_n = PACKETS;
	iface = bbq_iface();
	iface->ifindex = 7;
	iface->mode = BB_MODE_QDISC;
	iface->method = method;
	iface->rate = rate;
	iface->overhead = overhead;
	iface->limit = limit < LIMIT ? limit : LIMIT;
	iface->session_limit = iface->limit;
	iface->limit_bytes = limit_bytes;
	iface->plain_share = 20;
	for (__u32 i = 0; i < SESSIONS; i++) {
		struct bb_session *ses = bbq_session(2 + i);

		ses->key.media = !(i & 1);
		ses->user = i & 1 ? 1 + (i >> 2) : 0;
		ses->rate = i == 2 || i == 3 ? rate / 2 : 0;
	}
	for (__u32 i = 0; i < SOCKETS; i++)
		sockets[i].__sk_common.skc_cookie.counter = i;
	init(&qdiscs[0]);
}

static struct sk_buff *packet(__u32 len)
{
	struct sk_buff *skb = aligned_alloc(64, 256);

	__builtin_memset(skb, 0, sizeof(*skb));
	skb->len = len;
	skb->head = calloc(1, sizeof(struct skb_shared_info));
	alive++;
	return skb;
}

static void write_cb(struct sk_buff *skb, __u64 first, __u64 second, __u32 adu)
{
	__u64 *data = (__u64 *)bbq_skb_cb(skb)->data;

	data[0] = first | bb_cb_check(first, second, adu);
	data[1] = second;
	*(__u32 *)&data[2] = adu;
}

static int enqueue(struct sk_buff *skb)
{
	struct bpf_sk_buff_ptr to_free;

	return bestby_enqueue((unsigned long long[]){
		(unsigned long long)skb, (unsigned long long)sch, (unsigned long long)&to_free });
}

struct bbn_sent {
	__u32 session; /* 0..SESSIONS */
	__u32 pkt_len; /* what the kernel reckons before the classifier sees it */
	__u32 grown; /* bytes by which the stamp, or a later program, made it longer */
	__u32 headers; /* bytes of its twin before that; 0 = it has none */
	__u64 lifetime; /* 0 = no deadline */
	__u64 departs; /* ns from now; 0 = at once */
	__u32 adu;
	__u32 priority;
	__u32 treatment;
	__u32 socket; /* its cookie; 0 = it has none */
	__u32 tag; /* bbn_queue_taken has it when it leaves */
	__u32 pad;
};

/* The verdict. */
int bbn_queue_send(const struct bbn_sent *sent)
{
	__u64 deadline = sent->lifetime ? clock_ns + sent->lifetime : 0, first, second;
	struct sk_buff *skb = packet(sent->pkt_len + sent->grown);
	__u8 flags = (deadline ? BB_CB_DEADLINE : 0) | (sent->adu ? BB_CB_ADU : 0) |
		     (sent->socket ? BB_CB_SOCK : 0);

	second = bb_cb_second(deadline, 0);
	if (sent->headers) {
		struct sk_buff *twin = packet(sent->headers + sent->grown);
		__u32 pair = bb_cb_pair(second, sent->adu);

		flags |= BB_CB_PAIRED;
		bbq_skb_cb(twin)->pkt_len = sent->pkt_len;
		write_cb(twin, bb_cb_first(0, 0, 0, BB_CB_TWIN), (__u64)skb, pair);
		enqueue(twin);
	}
	first = bb_cb_first(1 + sent->session, 2 + sent->session % SESSIONS,
			    sent->priority | sent->treatment << 4, flags);
	bbq_skb_cb(skb)->pkt_len = sent->pkt_len;
	skb->truesize = sent->tag;
	write_cb(skb, first, second, sent->adu);
	if (sent->socket)
		skb->sk = &sockets[sent->socket % SOCKETS];
	if (sent->departs) {
		skb->tstamp = clock_ns + sent->departs;
		skb->tstamp_type = SKB_CLOCK_MONOTONIC;
	}
	return enqueue(skb);
}

static __u32 taken;

/* Bytes of the packet that leaves; 0 = none does. */
__u32 bbn_queue_take(void)
{
	struct sk_buff *skb;
	__u32 len;

	watchdog = 0;
	skb = bestby_dequeue((unsigned long long[]){ (unsigned long long)sch });
	if (!skb)
		return 0;
	len = skb->len;
	taken = skb->truesize;
	give_up(skb);
	return len;
}

/* The tag of the packet that left last. */
__u32 bbn_queue_taken(void)
{
	return taken;
}

/* When the queue's timer goes off; 0 = it is not set. */
__u64 bbn_queue_wakes(void)
{
	return watchdog;
}

__u64 bbn_queue_now(void)
{
	return clock_ns;
}

/* One-way delay of all sessions, ns. */
void bbn_queue_owd(__u64 owd)
{
	for (__u32 i = 0; i < SESSIONS; i++)
		bbq_session(2 + i)->owd_ns = owd;
}

/* What the driver counts for byte queue limits. */
void bbn_queue_bql(__u32 queued, __u32 completed)
{
	tx.dql.num_queued = queued;
	tx.dql.num_completed = completed;
}

/* The operator tells the rate of the interface, bytes/s. */
void bbn_queue_rate(__u64 rate)
{
	bbq_iface()->rate = rate;
}

/* The driver has stopped its transmit queue, or takes packets. */
void bbn_queue_stop(int stopped)
{
	tx.state = stopped;
}

/* What the device takes, bytes/s, as the queue saw it; 0 = it has not been in the way. */
__u64 bbn_queue_seen(void)
{
	return bbq_instance(0)->device.rate;
}

void bbn_queue_wait(__u64 ns)
{
	clock_ns += ns;
}

/* Until the queue's timer goes off. */
void bbn_queue_sleep(void)
{
	if (watchdog > clock_ns)
		clock_ns = watchdog;
}

/* The device goes down and up. */
void bbn_queue_reset(void)
{
	bestby_reset((unsigned long long[]){ (unsigned long long)sch });
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

/* A newer object takes over; its Qdisc is allocated where the one before the last was. */
void bbn_queue_upgrade(void)
{
	struct Qdisc *old = sch;

	init(old == qdiscs ? qdiscs + 1 : qdiscs);
	bestby_reset((unsigned long long[]){ (unsigned long long)old });
	bestby_destroy((unsigned long long[]){ (unsigned long long)old });
}

__u64 bbn_queue_bytes(void)
{
	return bbq_instance(0)->bytes;
}

__u32 bbn_queue_qlen(void)
{
	return bbq_instance(0)->qlen;
}

__u32 bbn_queue_told(void)
{
	return sch->q.qlen;
}

__u64 bbn_queue_truncated(void)
{
	return bbq_instance(0)->counters.truncated;
}

static struct bb_counters *socket_stats(__u64 cookie)
{
	return bpf_map_lookup_elem(&bb_sock_stats, &cookie);
}

/* The counters of a socket are pushed out by those of others, and begin anew. */
void bbn_queue_forget(__u32 socket)
{
	__builtin_memset(socket_stats(socket), 0, sizeof(struct bb_counters));
}

__u64 bbn_queue_of_socket(__u32 socket)
{
	return socket_stats(socket)->queued;
}

/* A fault of the past, as an earlier object may have left it. */
void bbn_queue_break(__u64 bytes)
{
	bbq_instance(0)->bytes = bytes;
}

static int counts_fit(struct bb_counters *c, __u32 queued)
{
	__u64 out = c->packets_sent + queued;

	for (int i = 0; i < BB_REASONS; i++)
		out += c->dropped[i];
	return c->packets_in == out && c->queued == queued;
}

/* Each session that says so is in the line of urgent ones, once, and the last of them is its end. */
static int line_fits(struct bbq_instance *in)
{
	__u32 members = 0, last = BBQ_NONE, at = in->urgent;

	for (__u32 i = 0; i < SESSIONS; i++)
		members += bbq_queue_at(0, 2 + i)->urgent != BBQ_NONE;
	for (; at != BBQ_NONE && members; members--) {
		last = at;
		at = bbq_queue_at(0, at)->urgent;
		if (at == BBQ_URGENT_LAST)
			at = BBQ_NONE;
	}
	return at == BBQ_NONE && !members && (!in->urgent || last == in->urgent_tail);
}

/* What is wrong; NULL: nothing. `told`: an operation has told the Qdisc since the last change of it. */
const char *bbn_queue_wrong(int told)
{
	struct bbq_instance *in = bbq_instance(0);
	__u32 qlen = 0, pairs = 0, parked = 0, users[3] = {}, lined_up = 0, deep[3] = {};
	__u64 bytes = 0, user_bytes[3] = {}, deep_bytes[3] = {}, plain = 0;
	__u32 sessions[SESSIONS] = {};
	__u64 session_bytes[SESSIONS] = {};
	__u32 alone = 0, len;

	if (wrong)
		return wrong;
	for (__u32 i = 1; i < in->fresh; i++) {
		struct bbq_packet *p = bbq_packet_at(i);

		if (!p->skb) {
			if (p->twin)
				return "a twin is left behind";
			continue;
		}
		qlen++;
		bytes += p->pkt_len;
		pairs += !!p->twin;
		len = p->skb->len > p->pkt_len ? p->skb->len : p->pkt_len;
		if (p->len != bb_wire_bytes(len, 1, bbq_iface()->overhead))
			return "a packet's length on the wire";
		if (i == in->alone) {
			alone = p->session;
			continue;
		}
		lined_up++;
		sessions[p->session - 2]++;
		session_bytes[p->session - 2] += p->len;
	}
	for (__u32 i = 0; i < BB_MAX_PARKED; i++)
		parked += !!((struct bbq_parked *)bpf_map_lookup_elem(&bbq_parked, &i))->skb;
	if (in->qlen != qlen || in->bytes != bytes)
		return "the instance's packets or bytes";
	if (in->pairs != pairs || in->parked != parked)
		return "the instance's twins";
	if (in->dropped || in->dropped_bytes)
		return "the Qdisc was not told of a drop";
	if (told && (sch->q.qlen != qlen + parked || sch->qstats.backlog != (__u32)bytes))
		return "the Qdisc's packets or bytes";
	if (alive != qlen + pairs + parked)
		return "packets are lost";
	if (!counts_fit(&in->counters, lined_up))
		return "the instance's counters";
	for (__u32 i = 0; i < SESSIONS; i++) {
		struct bbq_queue *q = bbq_queue_at(0, 2 + i);
		__u32 user;

		if (q->qlen != sessions[i] || q->bytes != session_bytes[i])
			return "a session's packets or bytes";
		if (!counts_fit(&bbq_session(2 + i)->counters, sessions[i] + (alone == 2 + i)))
			return "a session's counters";
		if (!q->qlen)
			continue;
		user = q->user == BBQ_MEDIA ? 0 : q->user - 1;
		users[user] += q->qlen;
		user_bytes[user] += q->bytes;
		deep[user] += q->bytes > bbq_quantum;
		deep_bytes[user] += q->bytes > bbq_quantum ? q->bytes : 0;
		plain += user ? q->bytes : 0;
	}
	for (__u32 i = 0; i < 3; i++) {
		struct bbq_user *u = bbq_user_at(in, 0, i ? BBQ_USER(i) : BBQ_MEDIA);

		if (u->qlen != users[i] || u->bytes != user_bytes[i])
			return "a user's packets or bytes";
		if (u->deep != deep[i] || u->deep_bytes != deep_bytes[i])
			return "a user's deep sessions";
	}
	if (!line_fits(in))
		return "the line of urgent sessions";
	if (in->plain_qlen != users[1] + users[2] || in->plain_bytes != plain)
		return "the packets or bytes of all users";
	return 0;
}

/* ---- a path whose rate nobody tells ---- */

static struct bb_auto path;

void bbn_auto_start(__u64 least, __u64 most)
{
	bb_auto_init(&path);
	path.least = least;
	path.most = most;
}

/* Before the queue is asked for packets: is an answer overdue, and would more be sent? */
void bbn_auto_look(void)
{
	const struct bbq_instance *in = bbq_instance(0);

	path.gave_up_ns = in->device.gave_up_ns;
	if (clock_ns >= path.due_ns)
		bb_auto_overdue(&path, clock_ns);
	bbq_iface()->rate = path.rate;
}

/* So many bytes leave. */
void bbn_auto_sent(__u32 bytes)
{
	path.sent += bytes;
	path.largest = bb_auto_most(path.largest, bytes);
}

/* What left last is a marker, which asks this end: its name. */
__u32 bbn_auto_leaves(__u32 end)
{
	__u32 name = end << 16 | (path.next & 0xffff);

	if (bbq_instance(0)->bytes > 2 * path.largest)
		path.waited_ns = clock_ns;
	bb_auto_leaves(&path, name, clock_ns);
	return name;
}

void bbn_auto_hears(__u32 name)
{
	bb_auto_hears(&path, name, clock_ns);
	bbq_iface()->rate = path.rate;
}

__u64 bbn_auto_rate(void)
{
	return path.rate;
}

/* How long a packet waits behind us, ns. */
__u64 bbn_auto_behind(void)
{
	return path.behind_ns;
}

__u32 bbn_auto_state(void)
{
	return path.state;
}

/* When more would have been sent, last. */
__u64 bbn_auto_wanted(void)
{
	return bb_auto_most(path.gave_up_ns, path.waited_ns);
}
