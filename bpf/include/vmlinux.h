/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel types that our programs touch, written by hand: only the members we
 * use, found at load time by name (CO-RE), so their order and offsets here
 * mean nothing.
 *
 * The queue gets pointers of these types from the kernel. The hooks do not: a
 * pointer from a helper or a context is of another verifier type there, so they
 * read these members with bpf_probe_read_kernel only (bb_kernel.bpf.h).
 */
#ifndef BB_VMLINUX_H
#define BB_VMLINUX_H

#include <linux/types.h>

#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#endif

typedef struct {
	__s64 counter;
} atomic64_t;

typedef struct {
	int counter;
} atomic_t;

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

struct net {
	__u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct netdev_queue;

struct net_device {
	possible_net_t nd_net;
	struct netdev_queue *_tx;
	int ifindex;
	unsigned short type; /* ARPHRD_* */
};

/* Of another name than linux/in6.h's. */
struct in6_addr___named {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num; /* local port, host order */
	unsigned short skc_family;
	volatile unsigned char skc_state; /* TCP_* */
	struct in6_addr___named skc_v6_daddr;
	struct in6_addr___named skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
	possible_net_t skc_net;
};

typedef struct {
	__u32 val;
} kuid_t;

struct sock {
	struct sock_common __sk_common;
	__u8 sk_txtime_deadline_mode : 1;
	__u8 sk_clockid;
	kuid_t sk_uid;
	refcount_t sk_wmem_alloc; /* bytes under way, and one */
	int sk_sndbuf;
	unsigned long sk_max_pacing_rate; /* bytes/s; ~0 = none set */
};

struct tcp_rack {
	__u32 rtt_us; /* of the segment sent last of those that are acknowledged */
};

struct inet_connection_sock {
	__u8 icsk_ca_state : 5; /* TCP_CA_* */
	__u8 icsk_retransmits; /* timeouts since anything was acknowledged */
	__u8 icsk_backoff; /* how often the RTO was doubled */
	__u8 icsk_pending; /* the timer that is set; 0: none, as while one runs out */
};

struct minmax_sample {
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	__u32 srtt_us; /* times 8 */
	__u32 rttvar_us;
	__u32 packets_out; /* not acknowledged, without the one that is being sent for the first time */
	__u64 bytes_acked; /* with the SYN that a client has sent */
	__u64 delivered_mstamp; /* us: when something was acknowledged last, or sent after all was */
	struct tcp_rack rack;
	__u32 snd_cwnd; /* segments, as the next three */
	__u32 snd_cwnd_clamp;
	__u32 snd_ssthresh;
	__u32 prior_ssthresh; /* 0 since the window was reduced */
	__u32 undo_marker; /* 0: the reduction can not be undone */
	__u32 tlp_high_seq; /* 0: no tail loss probe is out */
	__u32 mss_cache;
	__u32 rcv_nxt;
	__u32 rcv_wnd;
	struct minmax rtt_min; /* us */
};

/* The kernel's side of a sock_ops context. */
struct bpf_sock_ops_kern {
	struct sock *sk;
};

struct ack_sample {
	__u32 pkts_acked;
	__s32 rtt_us; /* below 0: none */
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct task_struct;
struct file;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

struct socket {
	struct sock *sk;
};

struct dst_ops {
	unsigned short family;
};

struct dst_entry {
	struct dst_ops *ops;
	unsigned long _metrics; /* address of the route's, and two flags */
	unsigned short flags; /* DST_* */
};

struct rtable {
	__u32 rt_pmtu : 31; /* 0 = none was learnt */
};

struct sk_buff {
	struct net_device *dev;
	unsigned long _skb_refdst; /* address of the dst_entry, and a flag */
	__u8 ip_summed : 2; /* CHECKSUM_* */
	__u16 network_header; /* from head */
	refcount_t users;
	unsigned char *data;
	char cb[48];
	struct sock *sk;
	unsigned int len;
	unsigned char *head;
	unsigned int end;
	unsigned int truesize;
	__s64 tstamp;
	__u8 tstamp_type : 2; /* SKB_CLOCK_*, v6.11 */
};

struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
	unsigned int gso_type; /* SKB_GSO_* */
};

/* net/sch_generic.h: lies in sk_buff.cb while a packet is in a qdisc. */
struct qdisc_skb_cb {
	unsigned int pkt_len;
	unsigned char data[20];
};

struct qdisc_skb_head {
	__u32 qlen;
};

struct gnet_stats_queue {
	__u32 qlen;
	__u32 backlog;
	__u32 drops;
	__u32 requeues;
	__u32 overlimits;
};

struct Qdisc;

struct dql {
	unsigned int num_queued; /* bytes that the driver was given; wraps */
	unsigned int num_completed; /* bytes that have left the device; wraps */
};

struct netdev_queue {
	struct net_device *dev;
	struct Qdisc *qdisc;
	unsigned long state; /* bits __QUEUE_STATE_* */
	struct dql dql; /* CONFIG_BQL; all 0 where the driver does not count */
};

/* Of another name than the one below, which is not relocated. */
struct Qdisc_ops___named {
	char id[16];
};

struct Qdisc {
	const struct Qdisc_ops___named *ops;
	__u32 limit;
	__u32 parent;
	struct netdev_queue *dev_queue;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};

struct netlink_ext_ack;
struct nlattr;

struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};

#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute pop
#endif

/* Not relocated: libbpf matches these members with the kernel's by name. */
struct Qdisc_ops {
	char id[16];
	int (*enqueue)(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *sch);
	int (*init)(struct Qdisc *sch, struct nlattr *arg, struct netlink_ext_ack *extack);
	void (*reset)(struct Qdisc *sch);
	void (*destroy)(struct Qdisc *sch);
};

/* Likewise. */
struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sk, __u8 state);
	void (*in_ack_event)(struct sock *sk, __u32 flags);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	__u32 (*undo_cwnd)(struct sock *sk);
	void (*init)(struct sock *sk);
	char name[16];
};

#endif /* BB_VMLINUX_H */
