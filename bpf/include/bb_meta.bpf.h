/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What one packet says about itself, field by field, the first source that
 * gives a value wins:
 *
 *   1. the skb mark, if it carries the magic;
 *   2. SO_TXTIME in deadline mode (never for TCP, whose tstamp is its earliest
 *      departure time), with the priority of SO_PRIORITY or DSCP;
 *   3. bestby's socket options;
 *   4. LPD's option, if its sender is trusted;
 *   5. the flow rule (bb_rules.bpf.h).
 *
 * A mark whose time is 0 says "no deadline": the defaults of 3 to 5 then add
 * none; a deadline the same packet brings by SCM_TXTIME still counts.
 *
 * Then the ADU (bb_stream.bpf.h): relative lifetimes start at the first packet of
 * the ADU.
 */
#ifndef BB_META_BPF_H
#define BB_META_BPF_H

#include "bb_count.bpf.h"
#include "bb_kernel.bpf.h"
#include "bb_parse.bpf.h"
#include "bb_sender.bpf.h"

#define BB_M_EXPLICIT 0x01 /* mark or SO_TXTIME: said for this very packet */
#define BB_M_NO_DEADLINE 0x02 /* the mark says there is none */
#define BB_M_LARGE BB_CB_LARGE /* its ADU is large */
#define BB_M_SOCKET 0x40 /* bestby socket options are set */
#define BB_M_COUNTED BB_CB_SOCK /* ... and bb_sock_stats has an entry for the socket */
#define BB_M_REPAIR BB_CB_REPAIR /* it repeats a packet */
#define BB_M_OPTION 0x20 /* LPD's option counts */
#define BB_M_OPTION_DUE 0x80 /* ... and the deadline is the option's: of this packet alone */
#define BB_M_IN_CB (BB_M_COUNTED | BB_M_REPAIR | BB_M_LARGE)

struct bb_meta {
	__u64 deadline; /* absolute; 0 = none (yet) */
	__u64 lifetime; /* relative, from the ADU's first packet; 0 = none */
	__u64 cookie; /* of the socket, with BB_M_COUNTED */
	__u32 adu; /* 0 = none */
	__u8 priority; /* BB_PRIORITY_NONE = not said */
	__u8 treatment; /* enum bb_treatment */
	__u8 adu_bits; /* of the mark */
	__u8 flags; /* BB_M_* */
};

/* ---- 1. the mark ---- */

static __always_inline int bb_is_ours(const struct bb_config *config, __u32 mark)
{
	return config->mark_magic_mask && (mark & config->mark_magic_mask) == config->mark_magic;
}

/*
 * Anybody may have set the mark of a packet that this host only forwards, and
 * CNIs number their identities in it. So it counts on packets of this network
 * namespace's own sockets, packet sockets among them: setting it takes a
 * capability there. On others only if the operator says so.
 */
static __always_inline int bb_mark_counts(struct __sk_buff *skb, const struct bb_config *config)
{
	if (config->flags & BB_CONFIG_FORWARDED_MARKS || bb_is_own(skb))
		return 1;
	bb_global_inc(BB_G_FORWARDED_MARK);
	return 0;
}

static __always_inline void bb_read_mark(struct bb_meta *meta, const struct bb_config *config,
					 __u32 mark, __u64 now)
{
	/* Where a wider magic covers a field, that field says nothing. */
	mark &= ~config->mark_magic_mask;
	meta->flags |= BB_M_EXPLICIT;
	meta->priority = bb_mark_priority(mark);
	meta->treatment = bb_mark_treatment(mark);
	meta->adu_bits = bb_mark_adu(mark);
	if (!bb_mark_time(mark))
		meta->flags |= BB_M_NO_DEADLINE;
	else if (mark & BB_MARK_RELATIVE)
		meta->lifetime = bb_mark_time(mark) * BB_MARK_UNIT_NS;
	else
		meta->deadline = bb_mark_deadline(mark, now);
}

/* ---- 2. SO_TXTIME ---- */

/* An SO_PRIORITY that the kernel made of the DSCP says less than that. */
static __always_inline __u8 bb_table_priority(const struct bb_config *config, __u32 so_priority,
					      __u8 dscp)
{
	__u8 priority = config->prio_table[so_priority & 15],
	     by_dscp = config->dscp_table[dscp & 63];

	if (priority >= BB_PRIORITIES ||
	    (by_dscp < BB_PRIORITIES && so_priority == bb_dscp_so_priority(dscp)))
		priority = by_dscp;
	return priority < BB_PRIORITIES ? priority : BB_PRIORITY_NONE;
}

/*
 * Reads and clears the tstamp of a deadline-mode socket's packet; others keep
 * theirs. Cleared, because fq below would hold the packet until its deadline.
 * Call only for packets that are not TCP and have a tstamp. CLOCK_TAI counts
 * from another epoch; the difference of the two clocks is read now. Any other
 * clock cannot be converted: such a packet is left alone.
 *
 * A packet that was routed has lost its socket and kept the time (from 6.10 on). Nobody
 * can tell whether that is a deadline or a time of departure. So it is neither: as the
 * latter it would hold media until they are of no use.
 */
__noinline int bb_read_txtime(struct __sk_buff *skb, struct bb_meta *meta)
{
	struct bpf_sock *sk = skb->sk;
	struct sock *kernel_sk;
	__u64 deadline;
	__u8 clock = 0;

	if (!meta)
		return 0;
	if (!sk) {
		if (skb->tstamp_type) /* else when it arrived */
			bb_global_inc(BB_G_ROUTED_TIME);
		skb->tstamp = 0;
		return 0;
	}
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 0;
	kernel_sk = bb_untyped(sk);
	if (!BPF_CORE_READ_BITFIELD_PROBED(kernel_sk, sk_txtime_deadline_mode))
		return 0;
	bpf_core_read(&clock, sizeof(clock), &kernel_sk->sk_clockid);
	deadline = skb->tstamp;
	if (clock == BB_CLOCK_TAI) {
		__u64 ahead = bpf_ktime_get_tai_ns() - bpf_ktime_get_ns();

		deadline = deadline > ahead ? deadline - ahead : 1;
	} else if (clock != BB_CLOCK_MONOTONIC) {
		return 0;
	}
	/* Anybody may say any number: below 2^62, all that is reckoned with it holds. */
	if (deadline >> 62)
		deadline = 1ULL << 62;
	skb->tstamp = 0;
	meta->flags |= BB_M_EXPLICIT;
	if (!meta->deadline && !meta->lifetime)
		meta->deadline = deadline;
	return 1;
}

/* ---- 3. socket options ---- */

__noinline int bb_read_socket(struct __sk_buff *skb, struct bb_meta *meta)
{
	struct bpf_sock *sk = skb->sk;
	struct bb_sock *options;
	__u64 cookie;

	if (!meta || !sk)
		return 0;
	options = bpf_sk_storage_get(&bb_socks, sk, 0, 0);
	if (!options)
		return 0;
	meta->flags |= BB_M_SOCKET;
	if ((options->flags & BB_SOCK_LIFETIME) && !meta->deadline && !meta->lifetime &&
	    !(meta->flags & BB_M_NO_DEADLINE))
		meta->lifetime = options->lifetime_ns;
	if ((options->flags & BB_SOCK_PRIORITY) && meta->priority == BB_PRIORITY_NONE)
		meta->priority = options->priority;
	if ((options->flags & BB_SOCK_TREATMENT) && !meta->treatment)
		meta->treatment = options->treatment;

	/* setsockopt programs may not ask for the cookie: the first packet does. */
	cookie = options->cookie;
	if (!cookie) {
		cookie = bpf_get_socket_cookie(skb);
		options->cookie = cookie;
	}
	if (!bpf_map_lookup_elem(&bb_sock_stats, &cookie)) {
		static const struct bb_counters none;

		/* New, or pushed out by more recently used ones: then it starts again from 0. */
		if (!bpf_map_update_elem(&bb_sock_stats, &cookie, &none, BPF_NOEXIST))
			bb_add(options->made, 1);
	}
	meta->cookie = cookie;
	meta->flags |= BB_M_COUNTED;
	return 1;
}

/* ---- 4. LPD's option ---- */

/*
 * Anybody may have put the option into a packet that this host forwards: whose counts
 * the operator says. A socket of this host's needs a capability for it.
 */
static __always_inline int bb_option_counts(struct __sk_buff *skb, const struct bb_packet *packet)
{
	struct bb_trust_key source = { .prefix = 32 + 128, .ifindex = packet->key.ifindex };

	if (bb_is_own(skb))
		return 1;
	bb_copy_address(source.addr, packet->key.src);
	return bpf_map_lookup_elem(&bb_trust, &source) != 0;
}

/* UTC, ns; 0 while the clock is not synchronised. */
static __always_inline __u64 bb_utc(const struct bb_config *config, __u64 now)
{
	if (now >= config->clock_until_ns)
		return 0;
	return bpf_ktime_get_tai_ns() - config->tai_s * BB_NSEC_PER_SEC;
}

/*
 * What is malformed or says what cannot be is ignored and counted. A lifetime of 0 is
 * over; in a packet of this host it is a place that the stamp fills.
 */
__noinline int bb_read_option(struct __sk_buff *skb, const struct bb_packet *packet,
			      struct bb_meta *meta, __u64 now)
{
	struct bb_config *config;
	__u32 lifetime, zero = 0;
	__u64 utc;
	__u8 treatment;
	__s64 ahead;

	if (!packet || !meta)
		return 0;
	config = bpf_map_lookup_elem(&bb_config, &zero);
	if (!config)
		return 0;
	if (packet->option != BB_OPTION_READ) {
		bb_global_inc(packet->option == BB_OPTION_MANY ? BB_G_OPTION_MANY :
								 BB_G_OPTION_MALFORMED);
		return 0;
	}
	lifetime = packet->option_lifetime;
	treatment = bb_option_treatment(packet->option_flags);
	if (!treatment) {
		bb_global_inc(BB_G_OPTION_UNKNOWN);
		return 0;
	}
	if (lifetime > BB_OPTION_RELATIVE_MS && !bb_option_is_time(lifetime)) {
		bb_global_inc(BB_G_OPTION_MALFORMED);
		return 0;
	}
	if (!bb_option_counts(skb, packet)) {
		bb_global_inc(BB_G_OPTION_UNTRUSTED);
		return 0;
	}
	if (lifetime > BB_OPTION_RELATIVE_MS) {
		utc = bb_utc(config, now);
		if (!utc) {
			bb_global_inc(BB_G_OPTION_NO_CLOCK);
			return 0;
		}
		ahead = bb_option_until(lifetime, utc);
		if (ahead > (__s64)BB_LIFETIME_MAX_NS || ahead < -(__s64)BB_LIFETIME_MAX_NS) {
			bb_global_inc(BB_G_OPTION_FAR);
			return 0;
		}
	} else {
		ahead = lifetime * BB_NSEC_PER_MSEC;
		if (!ahead && bb_is_own(skb))
			return 0;
	}
	meta->flags |= BB_M_OPTION;
	if (!meta->treatment)
		meta->treatment = treatment;
	if (meta->deadline || meta->lifetime || meta->flags & BB_M_NO_DEADLINE)
		return 1;
	if (lifetime && lifetime <= BB_OPTION_RELATIVE_MS) {
		meta->lifetime = ahead;
	} else {
		meta->deadline = (__s64)now + ahead > 1 ? now + ahead - !lifetime : 1;
		meta->flags |= BB_M_OPTION_DUE;
	}
	return 1;
}

/* ---- `bestby explain` ---- */

/* What is known now that a source was asked; `counts`: it said something that counts. */
static __always_inline void bb_explain_step(const struct bb_meta *meta, enum bb_step step,
					    int counts)
{
	struct bb_explained *explained = bb_explanation_here();
	struct bb_said *said;

	if (!explained)
		return;
	said = &explained->said[step];
	said->done = 1;
	said->counts = !!counts;
	said->deadline = meta->deadline;
	said->lifetime = meta->lifetime;
	said->no_deadline = !!(meta->flags & BB_M_NO_DEADLINE);
	said->priority = meta->priority;
	said->treatment = meta->treatment;
}

#endif /* BB_META_BPF_H */
