// SPDX-License-Identifier: GPL-2.0-only
/*
 * TCP-Real's sender: the congestion control bestby_real. bb_real.h has the problem
 * and the idea, real_hooks.bpf.c the option and the receiver.
 *
 * 1. Everything that is not a verdict is the kernel's own Reno, by its functions. A
 *    connection whose other end does not speak the option, or stops, is plain Reno.
 * 2. A reduction is cancelled where the kernel asks for it: ssthresh() returns the
 *    window, and the kernel's own recovery (PRR) then aims at that. After a timeout the
 *    kernel has cut the window already; set_state() writes it again.
 * 3. Mode paper also sets the window to twice the level on each acknowledgement.
 *
 * Switched off, connections that use it go on, in mode off, as Reno: the kernel keeps
 * the programs and maps for as long as they live.
 */
#include "bb_real.bpf.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define BB_CA_OPEN 0 /* TCP_CA_* */
#define BB_CA_RECOVERY 3
#define BB_CA_LOSS 4
#define BB_ACK_ECE 4 /* CA_ACK_ECE */
#define BB_AF_INET 2
#define BB_AF_INET6 10

extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern __u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

static __always_inline struct bb_real_conn *bb_conn(struct sock *sk)
{
	return bpf_sk_storage_get(&bb_real_conns, sk, 0, 0);
}

static __always_inline __u32 bb_larger(__u32 a, __u32 b)
{
	return a > b ? a : b;
}

SEC("struct_ops/bb_real_init")
void BPF_PROG(bb_real_init, struct sock *sk)
{
	struct bb_real_conn *conn = bb_conn(sk);

	if (!conn) {
		/* The hooks saw no handshake of it. */
		conn = bpf_sk_storage_get(&bb_real_conns, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
		if (!conn)
			return;
		conn->why = BB_REAL_LATE;
	}
	conn->cc = 1;
}

/* Do both guards let a window of so many segments be? */
static __always_inline int bb_is_allowed(struct tcp_sock *tp, const struct bb_real_conn *conn,
					 __u32 window)
{
	__u32 min_rtt_us = tp->rtt_min.s[0].v;

	return bb_real_quiet(bb_larger(tp->srtt_us >> 3, conn->rtt_us), min_rtt_us) &&
	       bb_real_room(window, tp->mss_cache, conn->told_rate, min_rtt_us);
}

/* Is the loss, or whatever else the reduction is for, no sign of congestion? */
static __always_inline int bb_is_spared(struct tcp_sock *tp, const struct bb_real_conn *conn)
{
	/*
	 * ECN said so, or the local qdisc. A reduction for either can not be undone and has no
	 * threshold to go back to; nor has one for a loss that a tail loss probe repaired.
	 */
	if (conn->congested || (!tp->undo_marker && !tp->prior_ssthresh && !conn->probing))
		return 0;
	return bb_is_allowed(tp, conn, tp->snd_cwnd);
}

SEC("struct_ops/bb_real_ssthresh")
__u32 BPF_PROG(bb_real_ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct bb_real_conn *conn = bb_conn(sk);
	__u32 mode = bb_real_mode(), half = tcp_reno_ssthresh(sk);

	if (conn)
		conn->kept = 0;
	if (mode == BB_REAL_OFF || !conn || !bb_real_live(conn, tp->snd_cwnd)) {
		bb_real_count(BB_REAL_C_PLAIN);
		return half;
	}
	if (mode != BB_REAL_PAPER && !bb_is_spared(tp, conn)) {
		bb_real_count(BB_REAL_C_REDUCED);
		return half;
	}
	conn->kept = 1;
	conn->cancelled++;
	bb_real_count(BB_REAL_C_CANCELLED);
	return mode == BB_REAL_PAPER ? bb_real_window(conn, bb_real_most()) :
				       bb_real_kept(tp->snd_cwnd, half, bb_real_most());
}

SEC("struct_ops/bb_real_cong_avoid")
void BPF_PROG(bb_real_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct bb_real_conn *conn = bb_conn(sk);
	__u32 window;

	if (bb_real_mode() != BB_REAL_PAPER || !conn || !bb_real_live(conn, tp->snd_cwnd) ||
	    (conn->slow && !conn->fresh)) {
		tcp_reno_cong_avoid(sk, ack, acked);
		return;
	}
	conn->slow = 0;
	conn->fresh = 0;
	window = bb_real_window(conn, bb_real_most());
	tp->snd_cwnd = window < tp->snd_cwnd_clamp ? window : tp->snd_cwnd_clamp;
}

/* For each acknowledgement, before the kernel decides anything by it. */
SEC("struct_ops/bb_real_in_ack_event")
void BPF_PROG(bb_real_in_ack_event, struct sock *sk, __u32 flags)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct bb_real_conn *conn = bb_conn(sk);

	if (!conn)
		return;
	conn->acks++;
	conn->congested = !!(flags & BB_ACK_ECE);
	conn->probing = !!tp->tlp_high_seq;
	/* cong_avoid is not asked in recovery: the level is what recovery aims at then. */
	if (bb_real_mode() == BB_REAL_PAPER && conn->fresh &&
	    BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state) == BB_CA_RECOVERY &&
	    bb_real_live(conn, tp->snd_cwnd))
		tp->snd_ssthresh = bb_real_window(conn, bb_real_most());
}

SEC("struct_ops/bb_real_pkts_acked")
void BPF_PROG(bb_real_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct bb_real_conn *conn = bb_conn(sk);

	if (!conn)
		return;
	if (sample->rtt_us > 0)
		conn->rtt_us = sample->rtt_us;
	if (sample->pkts_acked)
		conn->dupack = 0;
}

SEC("struct_ops/bb_real_set_state")
void BPF_PROG(bb_real_set_state, struct sock *sk, __u8 state)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct bb_real_conn *conn = bb_conn(sk);
	__u32 mode = bb_real_mode();

	if (!conn)
		return;
	if (state != BB_CA_LOSS) {
		/* That verdict's losses are over. */
		if (state == BB_CA_OPEN)
			conn->kept = 0;
		return;
	}
	conn->tx.restart = 1;
	/* A timer is pending: it was no timeout. The path's MTU shrank, and the window stays. */
	if (mode == BB_REAL_OFF || icsk->icsk_pending || !bb_real_live(conn, tp->snd_cwnd))
		return;
	/*
	 * A duplicate acknowledgement came since data were acknowledged: the path is not
	 * dead, and its word is fresh. ssthresh() has judged the window that is cut by now,
	 * but maybe at a loss before this timeout: the guards are asked again.
	 */
	if (conn->dupack && conn->kept &&
	    (mode == BB_REAL_PAPER || bb_is_allowed(tp, conn, tp->snd_ssthresh))) {
		bb_real_count(BB_REAL_C_RESTORED);
		tp->snd_cwnd = bb_larger(tp->snd_ssthresh, 2);
	} else {
		bb_real_count(BB_REAL_C_COLLAPSED);
		if (mode == BB_REAL_PAPER) {
			tp->snd_cwnd = 2;
			conn->slow = 1;
			conn->fresh = 0;
		}
	}
	conn->dupack = 0;
	conn->kept = 0;
}

SEC("struct_ops/bb_real_undo_cwnd")
__u32 BPF_PROG(bb_real_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops bestby_real = {
	.init = (void *)bb_real_init,
	.ssthresh = (void *)bb_real_ssthresh,
	.cong_avoid = (void *)bb_real_cong_avoid,
	.in_ack_event = (void *)bb_real_in_ack_event,
	.pkts_acked = (void *)bb_real_pkts_acked,
	.set_state = (void *)bb_real_set_state,
	.undo_cwnd = (void *)bb_real_undo_cwnd,
	.name = BB_REAL_NAME,
};

/* An address as bb_abi.h has it. */
static __always_inline void bb_put_address(__u8 *to, const struct sock *sk, int local)
{
	__u32 *words = (__u32 *)to;

	if (sk->__sk_common.skc_family == BB_AF_INET) {
		words[0] = words[1] = 0;
		words[2] = __builtin_bswap32(0xFFFF);
		words[3] = local ? sk->__sk_common.skc_rcv_saddr : sk->__sk_common.skc_daddr;
	} else {
		bpf_core_read(to, 16,
			      local ? &sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr8 :
				      &sk->__sk_common.skc_v6_daddr.in6_u.u6_addr8);
	}
}

/*
 * Read by the agent: a record for each connection that has something to say, of all namespaces,
 * for each process that holds it. Over the sockets' storage itself there is an iterator as well,
 * which kernels that are locked down may refuse: what it is given can be written.
 */
SEC("iter/task_file")
int bb_real_list(struct bpf_iter__task_file *ctx)
{
	struct bb_real_record record = {};
	struct file *file = ctx->file;
	struct bb_real_conn *conn;
	struct socket *socket;
	struct tcp_sock *tp;
	struct sock *sk;
	__u16 family;

	socket = file ? bpf_sock_from_file(file) : 0;
	sk = socket ? socket->sk : 0;
	if (!sk)
		return 0;
	family = sk->__sk_common.skc_family;
	if (family != BB_AF_INET && family != BB_AF_INET6)
		return 0;
	conn = bpf_sk_storage_get(&bb_real_conns, sk, 0, 0);
	if (!conn)
		return 0;
	record.cookie = bpf_get_socket_cookie(sk);
	bb_put_address(record.local, sk, 1);
	bb_put_address(record.remote, sk, 0);
	record.local_port = sk->__sk_common.skc_num;
	record.remote_port = __builtin_bswap16(sk->__sk_common.skc_dport);
	tp = (struct tcp_sock *)sk;
	bpf_core_read(&record.cwnd, sizeof(record.cwnd), &tp->snd_cwnd);
	bpf_core_read(&record.mss, sizeof(record.mss), &tp->mss_cache);
	bpf_core_read(&record.srtt_us, sizeof(record.srtt_us), &tp->srtt_us);
	record.srtt_us >>= 3;
	bpf_core_read(&record.min_rtt_us, sizeof(record.min_rtt_us), &tp->rtt_min.s[0].v);
	__builtin_memcpy(&record.conn, conn, sizeof(record.conn));
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

/* Makes BTF describe what only a program's stack holds, for bpf/tests/layout.rs. */
const volatile struct bb_real_record bb_real_types = {};

char _license[] SEC("license") = "GPL";
