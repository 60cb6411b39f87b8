// SPDX-License-Identifier: GPL-2.0-only
/*
 * TCP-Real's option on both ends, and the receiver. bb_real.h has the idea.
 *
 * 1. Negotiation. A SYN of the cgroup carries the option, a SYN-ACK answers only if
 *    the SYN had it, and the segment that completes the handshake says that the answer
 *    came. So nothing is kept of a SYN, and a SYN cookie is answered, too. Some
 *    middleboxes drop what they do not know: a SYN or SYN-ACK sent again goes without.
 * 2. Each later segment carries it: the wave of its data, and what the receiver on
 *    this end has to say. Acknowledgements repeat the last word, so losing some is
 *    harmless. Beside timestamps and three SACK blocks there is no room; the
 *    kernel does not even ask then.
 * 3. The receiver measures at tcx ingress, where each packet has its time, before the
 *    socket's lock and its backlog. Where no ingress program sees a wave (another
 *    namespace, a kernel before 6.6) the parse callback measures it.
 * 4. Whoever does not hear the other end any more stops writing options.
 *
 * Ingress runs beside the socket's lock: rx may change while it is read for an
 * option. Each word is whole, and a wrong wave is one of many.
 */
#include "bb_real.bpf.h"
#include "bb_kernel.bpf.h"
#include <bpf/bpf_endian.h>

#define BB_AF_INET6 10
#define BB_SOL_TCP 6
#define BB_TCP_CONGESTION 13
#define BB_SYN 0x02
#define BB_RST 0x04
#define BB_ACK 0x10
#define BB_IPPROTO_TCP 6

struct bb_tcphdr {
	__be16 source;
	__be16 dest;
	__be32 seq;
	__be32 ack;
	__u8 offset; /* in words, in the upper four bits */
	__u8 flags;
	__be16 window;
	__be16 check;
	__be16 urgent;
};

/* ---- the option ---- */

#define BB_HDR_FLAGS (BPF_SOCK_OPS_PARSE_ALL_HDR_OPT_CB_FLAG | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG)

static __always_inline void bb_listen_for(struct bpf_sock_ops *ops, int on)
{
	int flags = ops->bpf_sock_ops_cb_flags;

	bpf_sock_ops_cb_flags_set(ops, on ? flags | BB_HDR_FLAGS : flags & ~BB_HDR_FLAGS);
}

/* Reads our option of this segment, or of the SYN that is answered; 0: there is none, or it is malformed. */
static __always_inline int bb_read(struct bpf_sock_ops *ops, struct bb_real_option *option,
				   __u64 from)
{
	/* What is looked for: kind, length of what is known, identifier. */
	__u8 bytes[16] = { BB_REAL_KIND, 4, BB_REAL_EXID >> 8, BB_REAL_EXID & 0xff };
	int length = bpf_load_hdr_opt(ops, bytes, sizeof(bytes), from);

	if (length == -28 /* ENOSPC: longer than the buffer */)
		bb_real_count(BB_REAL_C_MALFORMED);
	if (length < 0)
		return 0;
	__builtin_memcpy(option, bytes, sizeof(*option));
	if (!bb_real_valid(option)) {
		bb_real_count(BB_REAL_C_MALFORMED);
		return 0;
	}
	return 1;
}

static __always_inline void bb_write(struct bpf_sock_ops *ops, struct bb_real_option *option)
{
	option->kind = BB_REAL_KIND;
	option->length = BB_REAL_LENGTH;
	option->exid[0] = BB_REAL_EXID >> 8;
	option->exid[1] = BB_REAL_EXID & 0xff;
	bpf_store_hdr_opt(ops, option, sizeof(*option), 0);
}

/* Does the socket send by bestby_real? */
static __always_inline int bb_is_ours(struct bpf_sock_ops *ops)
{
	char name[16] = {};

	return !bpf_getsockopt(ops, BB_SOL_TCP, BB_TCP_CONGESTION, name, sizeof(name)) &&
	       !__builtin_memcmp(name, BB_REAL_NAME, sizeof(BB_REAL_NAME));
}

/* The handshake is over: the other end speaks it, or not. */
static __always_inline void bb_established(struct bpf_sock_ops *ops, int retried)
{
	struct bb_real_option option;
	struct bpf_sock *sk = ops->sk;
	struct bb_real_conn *conn;
	int speaks;

	if (!sk)
		return;
	speaks = !retried && bb_read(ops, &option, 0);
	bb_listen_for(ops, speaks);
	if (!speaks)
		bb_real_count(retried ? BB_REAL_C_RETRIED : BB_REAL_C_NO_ANSWER);
	if (!speaks && !bb_is_ours(ops))
		return;
	conn = bpf_sk_storage_get(&bb_real_conns, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!conn) {
		bb_listen_for(ops, 0);
		return;
	}
	if (!speaks) {
		conn->why = retried ? BB_REAL_RETRIED : BB_REAL_NO_ANSWER;
		return;
	}
	conn->why = BB_REAL_SPEAKS;
	bb_real_count(BB_REAL_C_NEGOTIATED);
}

static __always_inline void bb_reserve(struct bpf_sock_ops *ops)
{
	struct bb_real_option syn;
	struct bpf_sock *sk = ops->sk;
	struct bb_real_conn *conn;
	__u32 flags = ops->skb_tcp_flags;

	if (flags & BB_SYN) {
		if (!(flags & BB_ACK) && ops->total_retrans)
			return;
		/* The SYN is here only when it is answered for the first time. */
		if ((flags & BB_ACK) && !bb_read(ops, &syn, BPF_LOAD_HDR_OPT_TCP_SYN))
			return;
	} else {
		conn = sk ? bpf_sk_storage_get(&bb_real_conns, sk, 0, 0) : 0;
		if (!conn || conn->why != BB_REAL_SPEAKS)
			return;
	}
	if (bpf_reserve_hdr_opt(ops, BB_REAL_LENGTH, 0))
		bb_real_count(BB_REAL_C_NO_ROOM);
}

static __always_inline struct bb_tcphdr *bb_header(struct bpf_sock_ops *ops)
{
	struct bb_tcphdr *tcp = ops->skb_data;

	return (void *)(tcp + 1) > ops->skb_data_end ? 0 : tcp;
}

static __always_inline void bb_tag(struct bpf_sock_ops *ops)
{
	struct bb_real_option option = {};
	struct bpf_sock *sk = ops->sk;
	__u32 payload, mss = ops->mss_cache, cwnd = ops->snd_cwnd;
	struct bb_real_conn *conn;
	struct bb_tcphdr *tcp;
	__be32 acknowledges;

	if (ops->skb_tcp_flags & BB_SYN) {
		bb_write(ops, &option);
		return;
	}
	conn = sk ? bpf_sk_storage_get(&bb_real_conns, sk, 0, 0) : 0;
	tcp = bb_header(ops);
	if (!conn || !tcp)
		return;
	payload = ops->skb_len - (tcp->offset >> 4) * 4;
	/* Writing the option invalidates the pointer. */
	acknowledges = tcp->ack;
	if (payload) {
		option.wave_level = bb_real_tag(
			&conn->tx, cwnd, mss && payload > mss ? (payload + mss - 1) / mss : 1,
			ops->srtt_us >> 3, bpf_ktime_get_ns());
		option.wave = conn->tx.wave;
	}
	option.rate = bb_real_told_rate(&conn->rx);
	option.next = bb_real_told(&conn->rx);
	bb_write(ops, &option);
	/*
	 * A window of segments is answered by one acknowledgement at least, and data that come
	 * bring an option. An acknowledgement of nothing new tells of neither: whoever knows
	 * the ports can have as many of those sent as they like.
	 */
	if (payload || acknowledges != conn->acknowledged)
		conn->unheard++;
	conn->acknowledged = acknowledges;
	if (conn->unheard > 2 * (__u64)cwnd + 64) {
		conn->why = BB_REAL_SILENT;
		bb_real_count(BB_REAL_C_SILENT);
		bb_listen_for(ops, 0);
	}
}

static __always_inline void bb_parse(struct bpf_sock_ops *ops)
{
	struct bb_real_segment segment = { .segments = 1 };
	struct bb_real_option option;
	struct bpf_sock *sk = ops->sk;
	struct bb_real_conn *conn;
	struct bb_tcphdr *tcp;
	__u32 ack;

	conn = sk ? bpf_sk_storage_get(&bb_real_conns, sk, 0, 0) : 0;
	tcp = bb_header(ops);
	if (!conn || !tcp || conn->why != BB_REAL_SPEAKS || !bb_read(ops, &option, 0))
		return;
	segment.length = ops->skb_len - (tcp->offset >> 4) * 4;
	if (segment.length && option.wave_level && conn->tcx != 256 + option.wave) {
		segment.now_ns = bpf_ktime_get_ns();
		segment.seq = bpf_ntohl(tcp->seq);
		segment.wave = option.wave;
		segment.wave_level = option.wave_level;
		bb_real_count_wave(bb_real_arrive(&conn->rx, &segment, bb_real_most()));
	}
	/* What acknowledges nothing that is out is old, or by a stranger who guessed the sequence number. */
	ack = bpf_ntohl(tcp->ack);
	if (ack - ops->snd_una > ops->snd_nxt - ops->snd_una)
		return;
	conn->acks = 0;
	conn->unheard = 0;
	if (option.next) {
		conn->told_level = option.next;
		conn->told_rate = option.rate;
		conn->fresh = 1;
	}
	if (!segment.length && ack == ops->snd_una && ops->packets_out)
		conn->dupack = 1;
}

SEC("sockops")
int bb_real_sockops(struct bpf_sock_ops *ops)
{
	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		bb_listen_for(ops, 1);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		bb_established(ops, ops->total_retrans > 0);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		bb_established(ops, 0);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		bb_reserve(ops);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		bb_tag(ops);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		bb_parse(ops);
		break;
	}
	return 1;
}

/* ---- the receiver's ingress ---- */

#define BB_MAX_HEADERS 4 /* extension headers of IPv6 before TCP's */
#define BB_MAX_OPTIONS 40 /* bytes */

/* clang knows more of a value than the verifier does, and would leave a check out. */
#define bb_keep_check(value) asm volatile("" : "+r"(value))

struct bb_arrived {
	struct bpf_sock_tuple tuple;
	__u32 ipv6; /* or not */
	__u32 tcp_at; /* from the network header */
	__u32 length; /* TCP's header and data */
};

static __always_inline int bb_load(struct __sk_buff *skb, __u32 at, void *to, __u32 size)
{
	return bpf_skb_load_bytes_relative(skb, at, to, size, BPF_HDR_START_NET);
}

/* Has the packet so many bytes from its network header on? IP's length is only a claim here. */
static __always_inline int bb_has(struct __sk_buff *skb, __u32 bytes)
{
	__u8 last;

	return !bb_load(skb, bytes - 1, &last, 1);
}

/* Addresses and place of a TCP header; 0: there is none. VLAN tags are gone by now. */
static __always_inline int bb_find_tcp(struct __sk_buff *skb, struct bb_arrived *a)
{
	__u8 ip[40], next[2], protocol;
	__u32 i, header, end;

	if (skb->protocol == bpf_htons(0x0800)) {
		if (bb_load(skb, 0, ip, 20) || ip[0] >> 4 != 4 || ip[9] != BB_IPPROTO_TCP ||
		    ((ip[6] & 0x3f) | ip[7])) /* a fragment */
			return 0;
		header = (ip[0] & 15) * 4;
		end = (__u32)ip[2] << 8 | ip[3];
		if (header < 20 || end < header || !bb_has(skb, end))
			return 0;
		__builtin_memcpy(&a->tuple.ipv4.saddr, ip + 12, 4);
		__builtin_memcpy(&a->tuple.ipv4.daddr, ip + 16, 4);
		a->tcp_at = header;
		a->length = end - header;
		return 1;
	}
	if (skb->protocol != bpf_htons(0x86DD) || bb_load(skb, 0, ip, 40) || ip[0] >> 4 != 6)
		return 0;
	end = 40 + ((__u32)ip[4] << 8 | ip[5]);
	header = 40;
	protocol = ip[6];
	for (i = 0; i < BB_MAX_HEADERS && protocol != BB_IPPROTO_TCP; i++) {
		/* Hop-by-hop, routing, destination options: of one form. */
		if (protocol != 0 && protocol != 43 && protocol != 60)
			return 0;
		if (bb_load(skb, header, next, 2))
			return 0;
		protocol = next[0];
		header += 8 + (__u32)next[1] * 8;
	}
	if (protocol != BB_IPPROTO_TCP || end < header || !bb_has(skb, end))
		return 0;
	__builtin_memcpy(a->tuple.ipv6.saddr, ip + 8, 16);
	__builtin_memcpy(a->tuple.ipv6.daddr, ip + 24, 16);
	a->ipv6 = 1;
	a->tcp_at = header;
	a->length = end - header;
	return 1;
}

/* Finds our option among TCP's; 0: there is none that is valid. */
static __always_inline int bb_find_option(const __u8 *options, __u32 length,
					  struct bb_real_option *option)
{
	__u32 at = 0, i;

	for (i = 0; i < BB_MAX_OPTIONS; i++) {
		if (at + BB_REAL_LENGTH > length || at > BB_MAX_OPTIONS - BB_REAL_LENGTH)
			return 0;
		if (options[at] == 0) /* end of the list */
			return 0;
		if (options[at] == 1) { /* padding */
			at++;
			continue;
		}
		if (options[at] == BB_REAL_KIND && options[at + 2] == BB_REAL_EXID >> 8 &&
		    options[at + 3] == (BB_REAL_EXID & 0xff)) {
			__builtin_memcpy(option, options + at, sizeof(*option));
			return bb_real_valid(option);
		}
		if (options[at + 1] < 2)
			return 0;
		at += options[at + 1];
	}
	return 0;
}

/* Is the data within what the socket may receive? Else anybody could say what arrived. */
static __always_inline int bb_is_expected(struct bpf_sock *sk, __u32 seq, __u32 length)
{
	struct tcp_sock *tcp = bb_untyped(sk);
	__u32 next = 0, window = 0;

	bpf_core_read(&next, sizeof(next), &tcp->rcv_nxt);
	bpf_core_read(&window, sizeof(window), &tcp->rcv_wnd);
	return (__s32)(seq + length - next) > 0 && (__s32)(seq - next) <= (__s32)window;
}

static __always_inline void bb_measure(struct bpf_sock *sk, const struct bb_real_segment *segment)
{
	struct bb_real_conn *conn = bpf_sk_storage_get(&bb_real_conns, sk, 0, 0);

	if (!conn || conn->why != BB_REAL_SPEAKS ||
	    !bb_is_expected(sk, segment->seq, segment->length))
		return;
	conn->tcx = 256 + segment->wave;
	bb_real_count_wave(bb_real_arrive(&conn->rx, segment, bb_real_most()));
}

SEC("classifier")
int bb_real_ingress(struct __sk_buff *skb)
{
	struct bb_real_segment segment = { .now_ns = bpf_ktime_get_ns() };
	struct bb_arrived arrived = {};
	struct bb_real_option option;
	__u8 options[64]; /* 40 at most; the verifier knows of six bits */
	struct bb_tcphdr tcp;
	struct bpf_sock *sk, *full;
	__u32 header, length;

	if (!bb_find_tcp(skb, &arrived) || bb_load(skb, arrived.tcp_at, &tcp, sizeof(tcp)))
		goto on;
	header = (tcp.offset >> 4) * 4;
	if (header < sizeof(tcp) + BB_REAL_LENGTH || arrived.length <= header ||
	    (tcp.flags & (BB_SYN | BB_RST | BB_ACK)) != BB_ACK)
		goto on;
	length = (header - sizeof(tcp)) & 63;
	bb_keep_check(length);
	if (length < BB_REAL_LENGTH)
		goto on;
	if (bb_load(skb, arrived.tcp_at + sizeof(tcp), options, length))
		goto on;
	if (!bb_find_option(options, length, &option) || !option.wave_level)
		goto on;
	segment.seq = bpf_ntohl(tcp.seq);
	segment.length = arrived.length - header;
	segment.segments = skb->gso_segs ? skb->gso_segs : 1;
	segment.wave = option.wave;
	segment.wave_level = option.wave_level;
	/* The verifier wants the size of a tuple as a constant. */
	if (arrived.ipv6) {
		arrived.tuple.ipv6.sport = tcp.source;
		arrived.tuple.ipv6.dport = tcp.dest;
		sk = bpf_skc_lookup_tcp(skb, &arrived.tuple, sizeof(arrived.tuple.ipv6),
					BPF_F_CURRENT_NETNS, 0);
	} else {
		arrived.tuple.ipv4.sport = tcp.source;
		arrived.tuple.ipv4.dport = tcp.dest;
		sk = bpf_skc_lookup_tcp(skb, &arrived.tuple, sizeof(arrived.tuple.ipv4),
					BPF_F_CURRENT_NETNS, 0);
	}
	if (!sk)
		goto on;
	full = bpf_tcp_sock(sk) ? bpf_sk_fullsock(sk) : 0;
	if (full)
		bb_measure(full, &segment);
	bpf_sk_release(sk);
on:
	return -1; /* TCX_NEXT, TC_ACT_UNSPEC */
}

char _license[] SEC("license") = "GPL";
