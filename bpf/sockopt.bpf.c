// SPDX-License-Identifier: GPL-2.0-only
/*
 * bestby's socket options, level SOL_BESTBY, caught at the cgroup's setsockopt
 * and getsockopt hooks. No privilege needed, so nothing here may reach beyond
 * the caller's own traffic:
 *
 * - lifetime, priority and treatment are stored with the socket and die with it;
 * - what a process says of a peer (owd, rate) is kept in bb_sock_peers under
 *   (address, uid of the socket) and counts only for packets of that user's sockets, which
 *   have a session of their own for it (bb_renew_session in classify.bpf.c). The
 *   table is LRU: a process that names thousands of peers pushes out first what
 *   nobody sends to, its own; peers in use are looked up every 10 ms. What the
 *   operator set (bb_peers) is a separate table, wins, and answers EPERM.
 *
 * Wrong lengths and values: EINVAL, nothing changed. Every other level is left
 * exactly as it was.
 *
 * By hand: bpftool prog loadall sockopt.bpf.o /sys/fs/bpf/x
 *          bpftool cgroup attach CGROUP cgroup_setsockopt pinned /sys/fs/bpf/x/bb_setsockopt multi
 */
#include "bb_count.bpf.h"
#include "bb_kernel.bpf.h"

#define BB_EPERM 1
#define BB_EINVAL 22
#define BB_ENOMEM 12
#define BB_ENOPROTOOPT 92

/* The hook shows at most a page; longer options of others must be let through unread. */
#define BB_PAGE_SIZE 4096

/* Programs are built with these: they stay where they are. */
_Static_assert(__builtin_offsetof(struct bb_counters, sent_stale) == 88 &&
		       __builtin_offsetof(struct bb_counters, truncated) == 144,
	       "new counters at the end only");

#define BB_ALLOW 1
#define BB_REFUSE 0

static __always_inline int bb_refuse(int error)
{
	bpf_set_retval(-error);
	return BB_REFUSE;
}

/* Not ours: the kernel goes on with the caller's own buffer. */
static __always_inline int bb_pass(struct bpf_sockopt *ctx)
{
	if (ctx->optlen > BB_PAGE_SIZE)
		ctx->optlen = 0;
	return BB_ALLOW;
}

/* Handled: the kernel's own handler, which knows no such level, is skipped. */
static __always_inline int bb_done(struct bpf_sockopt *ctx)
{
	ctx->optlen = -1;
	return BB_ALLOW;
}

/*
 * Is the value of exactly `size` bytes, all readable? A length of -1 means that
 * another instance above in the cgroup tree has handled the call before us.
 */
static __always_inline int bb_is_size(struct bpf_sockopt *ctx, int size)
{
	return ctx->optlen == size || ctx->optlen == -1;
}

static __always_inline int bb_set_peer(struct bpf_sockopt *ctx)
{
	struct bb_so_peer *said = ctx->optval;
	struct bb_sock_peer_key key = {};
	struct bb_peer *known, peer = {};
	struct bb_addr addr;

	if (!ctx->sk || !bb_is_size(ctx, sizeof(*said)) || (void *)(said + 1) > ctx->optval_end)
		return bb_refuse(BB_EINVAL);
	__builtin_memcpy(&addr, said->addr, sizeof(addr));
	peer.owd_ns = said->owd_ns;
	peer.rate = said->rate;
	peer.said_ns = bpf_ktime_get_ns();
	if (peer.owd_ns > BB_LIFETIME_MAX_NS)
		return bb_refuse(BB_EINVAL);
	known = bpf_map_lookup_elem(&bb_peers, &addr);
	if (known && (known->flags & BB_PEER_OPERATOR))
		return bb_refuse(BB_EPERM);

	__builtin_memcpy(key.addr, &addr, sizeof(key.addr));
	/* Not the caller's: a daemon may have opened its socket before it gave up root. */
	key.uid = bb_uid_of(ctx->sk);
	if (peer.owd_ns)
		peer.flags |= BB_PEER_OWD;
	if (peer.rate)
		peer.flags |= BB_PEER_RATE;
	bb_make_known(&addr);
	if (!peer.flags)
		bpf_map_delete_elem(&bb_sock_peers, &key);
	else if (bpf_map_update_elem(&bb_sock_peers, &key, &peer, BPF_ANY))
		return bb_refuse(BB_ENOMEM);
	return bb_done(ctx);
}

SEC("cgroup/setsockopt")
int bb_setsockopt(struct bpf_sockopt *ctx)
{
	struct bb_sock *options;
	__u64 value;

	if (ctx->level != SOL_BESTBY)
		return bb_pass(ctx);

	switch (ctx->optname) {
	case BB_SO_LIFETIME:
		if (!bb_is_size(ctx, 8) || ctx->optval + 8 > ctx->optval_end)
			return bb_refuse(BB_EINVAL);
		value = *(__u64 *)ctx->optval;
		if (value > BB_LIFETIME_MAX_NS)
			return bb_refuse(BB_EINVAL);
		break;
	case BB_SO_PRIORITY:
	case BB_SO_TREATMENT:
		if (!bb_is_size(ctx, 4) || ctx->optval + 4 > ctx->optval_end)
			return bb_refuse(BB_EINVAL);
		value = *(__u32 *)ctx->optval;
		if (ctx->optname == BB_SO_PRIORITY ? value >= BB_PRIORITIES :
						     value > BB_TREAT_TRUNCATE)
			return bb_refuse(BB_EINVAL);
		break;
	case BB_SO_PEER:
		return bb_set_peer(ctx);
	default: /* BB_SO_STATS, too, can only be read */
		return bb_refuse(BB_ENOPROTOOPT);
	}

	if (!ctx->sk)
		return bb_refuse(BB_EINVAL);
	options = bpf_sk_storage_get(&bb_socks, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!options)
		return bb_refuse(BB_ENOMEM);
	switch (ctx->optname) {
	case BB_SO_LIFETIME:
		options->lifetime_ns = value;
		if (value)
			options->flags |= BB_SOCK_LIFETIME;
		else
			options->flags &= ~BB_SOCK_LIFETIME;
		break;
	case BB_SO_PRIORITY:
		options->priority = value;
		options->flags |= BB_SOCK_PRIORITY;
		break;
	default:
		options->treatment = value;
		if (value)
			options->flags |= BB_SOCK_TREATMENT;
		else
			options->flags &= ~BB_SOCK_TREATMENT;
	}
	return bb_done(ctx);
}

/* Answers with `size` bytes, which the caller has written to optval. */
static __always_inline int bb_answer(struct bpf_sockopt *ctx, int size)
{
	/* Volatile: one 8-byte store to both fields would be refused. */
	*(volatile __s32 *)&ctx->optlen = size;
	*(volatile __s32 *)&ctx->retval = 0; /* the kernel's handler has said ENOPROTOOPT */
	return BB_ALLOW;
}

/*
 * The socket's counters, which never go backwards. Its entry of bb_sock_stats may
 * be pushed out by those of other sockets (LRU): made anew it begins at 0, and what
 * was counted since the last answer is lost. It may become another socket's while
 * it is read: so it is looked for again.
 */
static __always_inline void bb_read_stats(struct bb_sock *options, struct bb_counters *answer)
{
	__u64 *base = (__u64 *)&options->base, *out = (__u64 *)answer;
	__u64 cookie = options->cookie;
	struct bb_counters *counters;
	__u32 made = options->made;

	if (options->answered_made != made) {
		options->base = options->answered;
		options->base.queued = 0; /* no count, but how many there are */
		options->answered_made = made;
	}
	*answer = options->answered;
	if (!cookie) /* no packet yet */
		return;
	counters = bpf_map_lookup_elem(&bb_sock_stats, &cookie);
	if (!counters)
		return;
	__builtin_memcpy(answer, counters, sizeof(*answer));
	if (bpf_map_lookup_elem(&bb_sock_stats, &cookie) != counters || options->made != made) {
		*answer = options->answered;
		return;
	}
#pragma unroll
	for (__u32 i = 0; i < sizeof(*answer) / 8; i++)
		out[i] += base[i];
	options->answered = *answer;
}

/*
 * The counters as they are in struct bb_counters: as many as the caller has room for. So a
 * program that was built with fewer reads those, and one that was built with more is told
 * how many there are. What was counted once stays where it is: new ones come at the end.
 */
static __always_inline int bb_answer_stats(struct bpf_sockopt *ctx, struct bb_sock *options)
{
	struct bb_counters now = {};
	const __u64 *from = (const __u64 *)&now;
	int size = 0;

	if (ctx->optlen > 0 && ctx->optlen < 8)
		return bb_refuse(BB_EINVAL);
	if (options)
		bb_read_stats(options, &now);
#pragma unroll
	for (int i = 0; i < (int)sizeof(now) / 8; i++) {
		__u64 *to = (__u64 *)ctx->optval + i;

		if (ctx->optlen < 8 * (i + 1) || (void *)(to + 1) > ctx->optval_end)
			break;
		*to = from[i];
		size = 8 * (i + 1);
	}
	return bb_answer(ctx, size);
}

SEC("cgroup/getsockopt")
int bb_getsockopt(struct bpf_sockopt *ctx)
{
	struct bb_sock *options;

	if (ctx->level != SOL_BESTBY)
		return bb_pass(ctx);
	options = ctx->sk ? bpf_sk_storage_get(&bb_socks, ctx->sk, 0, 0) : 0;

	switch (ctx->optname) {
	case BB_SO_LIFETIME:
		if (ctx->optlen < 8 || ctx->optval + 8 > ctx->optval_end)
			return bb_refuse(BB_EINVAL);
		*(__u64 *)ctx->optval = options ? options->lifetime_ns : 0;
		return bb_answer(ctx, 8);
	case BB_SO_PRIORITY:
		if (ctx->optlen < 4 || ctx->optval + 4 > ctx->optval_end)
			return bb_refuse(BB_EINVAL);
		*(__u32 *)ctx->optval = options && (options->flags & BB_SOCK_PRIORITY) ?
						options->priority :
						BB_PRIORITY_DEFAULT;
		return bb_answer(ctx, 4);
	case BB_SO_TREATMENT:
		if (ctx->optlen < 4 || ctx->optval + 4 > ctx->optval_end)
			return bb_refuse(BB_EINVAL);
		*(__u32 *)ctx->optval = options ? options->treatment : 0;
		return bb_answer(ctx, 4);
	case BB_SO_STATS:
		return bb_answer_stats(ctx, options);
	}
	return bb_refuse(BB_ENOPROTOOPT);
}

char _license[] SEC("license") = "GPL";
