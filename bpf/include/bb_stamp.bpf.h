/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stamp: LPD's option in what leaves, so that the last hop knows the deadline, too.
 *
 * An application knows until when its data are of use, and the router in front of the
 * slow link drops what is too late. Between them lies a network that may lose packets
 * for a header it does not expect, and a kernel that has cut and checked the packet
 * already. So:
 *
 * 1. The packet must grow behind its fixed IP header and nowhere else. bpf_skb_adjust_room
 *    does that: the bytes in front move, the transport header and all that the checksum
 *    offload knows of it stay. Neither TCP's nor UDP's checksum covers the option.
 * 2. A packet that would not fit any more goes as it is, and so does each that could be
 *    harmed: every reason has its counter (BB_G_STAMP_*). No packet is lost.
 * 3. TCP super-packets get smaller segments. Those of UDP keep their size, which is the
 *    application's.
 * 4. The helper knows no VLAN tag within the frame. The outermost is taken off, which
 *    takes the next one out of band, and put back.
 * 5. A TCP segment without data has no deadline: an acknowledgement is always of use.
 *
 * IPv4: 8 bytes. IPv6: a hop-by-hop header of 16 bytes, because the option's lifetime
 * is aligned to 4.
 */
#ifndef BB_STAMP_BPF_H
#define BB_STAMP_BPF_H

#include <linux/if_ether.h>
#include "bb_count.bpf.h"
#include "bb_kernel.bpf.h"
#include "bb_sender.bpf.h"
#include "bb_session.bpf.h"
#include "bb_tc_verdict.bpf.h"
#include "bb_meta.bpf.h"
#include "bb_work.bpf.h"

#define BB_IPV4_BYTES 20
#define BB_IPV6_BYTES 40
#define BB_STAMP_BYTES4 BB_OPTION_LENGTH
#define BB_STAMP_BYTES6 16
#define BB_VLAN_BYTES 4
#define BB_OPTION6_PADN 1

/* How deep a reordering TCP bears: three duplicate acknowledgements are a loss to it. */
#define BB_TCP_REORDER 3

/* A segment of TCP must keep some payload: the helper would subtract down to 0. */
#define BB_STAMP_LEAST_SEGMENT 64

/* The kernel's, of which there is no type to take them from. */
#define BB_SKB_GSO_DODGY (1 << 1)
#define BB_SKB_GSO_TCP (1 << 0 | 1 << 4) /* over IPv4, over IPv6 */
#define BB_SKB_GSO_TCP_HOW (1 << 2 | 1 << 3 | 1 << 19) /* ECN, FIXEDID, ACCECN */
#define BB_SKB_GSO_UDP_L4 (1 << 17)

/* TCP's before it has measured anything, and at most (RFC 6298). */
#define BB_TCP_FIRST_RTO_NS BB_NSEC_PER_SEC
#define BB_TCP_DATA_RTO_NS (3 * BB_NSEC_PER_SEC)
#define BB_TCP_MAX_RTO_NS (120 * BB_NSEC_PER_SEC)

/* After so many timeouts of TCP in a row the next may be the option's fault: some 3 s. */
#define BB_PROBED_TIMEOUTS 3
#define BB_PROBED_TOUCH_NS BB_NSEC_PER_SEC

/* Of the kernel's enum tcp_ca_state: nothing was lost, as far as is known. */
#define BB_TCP_CA_OPEN 0
#define BB_TCP_CA_CWR 2

/* What is stamped counts as BB_G_STAMPED; this does not count. */
#define BB_STAMP_NOTHING (-1)

/* ---- what it says ---- */

/*
 * From now on, ns, until the packet's TCP socket gives it up, if nothing is acknowledged any more;
 * 0 = it does not say, or there is none.
 *
 * 1. The retransmission timeout, as tcp_set_rto() reckons it, without the rounding to ticks: srtt +
 *    rttvar, where rttvar_us is four times the mean deviation and at least tcp_rto_min.
 * 2. It doubles with each timeout. The segment that is sent because of one leaves before
 *    icsk_backoff counts the timeout, but icsk_retransmits has counted it.
 * 3. Of a handshake alone it is too short for a slow line, to which the first ten segments go at
 *    once. Until data are acknowledged it is 3 s at least, as after a lost SYN (RFC 6298 5.7).
 * 4. Unless something was lost, a tail loss probe (RFC 8985) comes first: when the oldest segment
 *    is as old as the timeout, and at the latest two round trips after what was sent last. Only
 *    then the timeout begins. So a segment may take as long as in slow start, whose queue doubles
 *    the round trip.
 * 5. The probe itself has no limit. It tells the sender at once what the last hop has dropped. A
 *    sender that takes a timeout back, because of what was on the line (F-RTO, timestamps),
 *    believes the rest to be on its way, and its window is full: it would stand still.
 */
__noinline __u64 bb_socket_rto(struct __sk_buff *skb, __u64 now)
{
	struct inet_connection_sock *connection;
	__u32 srtt_us = 0, rttvar_us = 0, flying = 0;
	__u8 doubled = 0, timeouts = 0;
	struct bpf_sock *sk = skb->sk;
	struct tcp_sock *tcp;
	__u64 rto, probe, state, since_us = 0, acked = 0;

	if (sk)
		sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 0;
	tcp = bb_untyped(sk);
	connection = (void *)tcp;
	bpf_core_read(&srtt_us, sizeof(srtt_us), &tcp->srtt_us);
	bpf_core_read(&rttvar_us, sizeof(rttvar_us), &tcp->rttvar_us);
	bpf_core_read(&doubled, sizeof(doubled), &connection->icsk_backoff);
	bpf_core_read(&timeouts, sizeof(timeouts), &connection->icsk_retransmits);
	bpf_core_read(&acked, sizeof(acked), &tcp->bytes_acked);
	rto = srtt_us ? ((__u64)(srtt_us >> 3) + rttvar_us) * 1000 : BB_TCP_FIRST_RTO_NS;
	if (acked <= 1 && rto < BB_TCP_DATA_RTO_NS)
		rto = BB_TCP_DATA_RTO_NS;
	rto <<= (doubled > timeouts ? doubled : timeouts) & 15;
	state = BPF_CORE_READ_BITFIELD_PROBED(connection, icsk_ca_state);
	if (state == BB_TCP_CA_OPEN || state == BB_TCP_CA_CWR) {
		/* Else it is acknowledgements that let segments go, or nothing is on its way. */
		bpf_core_read(&since_us, sizeof(since_us), &tcp->delivered_mstamp);
		bpf_core_read(&flying, sizeof(flying), &tcp->packets_out);
		if (flying && now / 1000 - since_us > rttvar_us / 2)
			return 0;
		probe = (__u64)(srtt_us >> 2) * 1000;
		rto += probe && probe < rto ? probe : rto;
	}
	return rto < BB_TCP_MAX_RTO_NS ? rto : BB_TCP_MAX_RTO_NS;
}

/*
 * When the packet is of no use any more; 0 = always of use. The last hop drops what its
 * sender has given up on and sends again.
 */
static __always_inline __u64 bb_stamp_deadline(struct __sk_buff *skb, const struct bb_work *w)
{
	__u64 deadline = w->deadline, rto;

	if (!(w->rule_flags & BB_RULE_RTO) || w->packet.key.proto != BB_PROTO_TCP)
		return deadline;
	rto = bb_socket_rto(skb, w->now);
	if (rto && (!deadline || w->now + rto < deadline))
		deadline = w->now + rto;
	return deadline;
}

/* The option's lifetime: BB_G_STAMPED, or why it cannot be said. */
static __always_inline int bb_option_lifetime(const struct bb_config *config,
					      const struct bb_work *w, __u64 deadline,
					      __u32 *lifetime)
{
	__u64 left = deadline > w->now ? deadline - w->now : 0, utc;

	if (left < BB_OPTION_RELATIVE_MS * BB_NSEC_PER_MSEC) {
		*lifetime = (__u32)(left / BB_NSEC_PER_MSEC) ?: 1;
		return BB_G_STAMPED;
	}
	utc = bb_utc(config, w->now);
	/* Nobody believes more than that of a time that comes round every day. */
	if (!utc || left > BB_LIFETIME_MAX_NS)
		return BB_G_STAMP_CLOCK;
	*lifetime = bb_option_time(utc + left);
	return BB_G_STAMPED;
}

/* IPv6 has a type for either form. */
static __always_inline __u8 bb_option6_type(const struct bb_config *config, __u32 lifetime)
{
	return lifetime > BB_OPTION_RELATIVE_MS ? config->option6_deadline :
						  config->option6_lifetime;
}

/*
 * Does the path to the packet's destination carry the option, as far as is known? Who asks
 * for the first time has the agent find out. A connection whose stamped segments vanish
 * takes the answer back.
 */
__noinline int bb_path_carries(struct __sk_buff *skb, const struct bb_work *w)
{
	struct bb_probed *probed, unknown = {};
	struct bpf_sock *sk = skb->sk;
	struct bb_addr dst;
	__u8 timeouts = 0;

	if (!w)
		return 0;
	/* The agent's own questions are ICMP: where marks are not read, nothing else tells them. */
	if (w->packet.key.proto == BB_PROTO_ICMP || w->packet.key.proto == BB_PROTO_ICMPV6)
		return 0;
	unknown.used_ns = w->now;
	__builtin_memcpy(dst.addr, w->packet.key.dst, sizeof(dst.addr));
	probed = bpf_map_lookup_elem(&bb_probed, &dst);
	if (!probed) {
		bpf_map_update_elem(&bb_probed, &dst, &unknown, BPF_NOEXIST);
		return 0;
	}
	if (w->now - probed->used_ns > BB_PROBED_TOUCH_NS)
		probed->used_ns = w->now;
	if (!sk || w->packet.key.proto != BB_PROTO_TCP || w->now >= probed->until_ns)
		return w->now < probed->until_ns;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 1;
	/*
	 * Not the backoff: a receiver that reads nothing for a while raises that, and so any
	 * receiver could end the stamp for others.
	 */
	bpf_core_read(&timeouts, sizeof(timeouts),
		      &((struct inet_connection_sock *)bb_untyped(sk))->icsk_retransmits);
	if (timeouts > BB_PROBED_TIMEOUTS)
		probed->until_ns = BB_PROBED_VANISH;
	return w->now < probed->until_ns;
}

/* Is it a TCP segment without data? */
static __always_inline int bb_only_acknowledges(struct __sk_buff *skb, const struct bb_work *w,
						__u32 tcp_at, __u32 bytes)
{
	__u8 words = 0;

	if (w->packet.key.proto != BB_PROTO_TCP || skb->gso_size)
		return 0;
	return bpf_skb_load_bytes(skb, tcp_at + 12, &words, 1) || bytes <= (words >> 4) * 4U;
}

/* ---- in place ---- */

/*
 * Writes lifetime and flags into the option that the packet has. BB_G_STAMPED, or
 * BB_G_STAMP_FAILED: then the packet is as it was.
 */
static __always_inline int bb_rewrite(struct __sk_buff *skb, const struct bb_config *config,
				      const struct bb_work *w, __u32 lifetime, __u8 flags)
{
	__u8 was[BB_OPTION_LENGTH] __attribute__((aligned(8)));
	__u8 is[BB_OPTION_LENGTH] __attribute__((aligned(8)));
	__u32 at = w->packet.ip_at, option_at = w->packet.option_at, sum;

	/* Writable first: what follows cannot fail half way. */
	if (bpf_skb_pull_data(skb, option_at + BB_OPTION_LENGTH) ||
	    bpf_skb_load_bytes(skb, option_at, was, sizeof(was)))
		return BB_G_STAMP_FAILED;
	__builtin_memcpy(is, was, sizeof(is));
	if (w->packet.key.family == 6)
		is[0] = bb_option6_type(config, lifetime);
	is[3] = flags;
	*(__be32 *)(is + 4) = bpf_htonl(lifetime);
	bpf_skb_store_bytes(skb, option_at, is, sizeof(is), 0);
	if (w->packet.key.family != 6) {
		sum = bb_fold(
			bpf_csum_diff((__be32 *)was, sizeof(was), (__be32 *)is, sizeof(is), 0));
		if ((option_at - at) & 1) /* its bytes are the other halves of the words */
			sum = (sum >> 8 | sum << 8) & 0xFFFF;
		bpf_l3_csum_replace(skb, at + 10, 0, sum, 0);
	}
	return BB_G_STAMPED;
}

/*
 * Fills the option that a socket of this host has put into the packet, with a lifetime of
 * 0: nothing grows, so it is the way for full packets, fragments and super-packets.
 * Reorder depth and the other flags are the application's. Where there is no deadline, as in an
 * acknowledgement, it says that the packet is always to be forwarded.
 */
static __always_inline int bb_fill(struct __sk_buff *skb, const struct bb_config *config,
				   const struct bb_work *w, __u64 deadline)
{
	__u8 ip[BB_IPV4_BYTES] __attribute__((aligned(8))), next[2], flags;
	__u32 at = w->packet.ip_at, lifetime, words;
	int six = w->packet.key.family == 6, result, empty;

	if (bpf_skb_load_bytes(skb, at, ip, sizeof(ip)))
		return BB_G_STAMP_FAILED;
	if (six) {
		if (bpf_skb_load_bytes(skb, at + BB_IPV6_BYTES, next, sizeof(next)))
			return BB_G_STAMP_FAILED;
		/* What lies behind may be protected with the header. */
		if (next[0] != w->packet.key.proto && next[0] != BB_PROTO_FRAGMENT)
			return next[0] == BB_PROTO_AH ? BB_G_STAMP_AH : BB_G_STAMP_OPTIONS;
		words = (next[1] + 1) * 2;
		empty = bb_only_acknowledges(skb, w, at + BB_IPV6_BYTES + words * 4,
					     bb_be16(ip + 4) - words * 4);
	} else {
		if (ip[9] == BB_PROTO_AH)
			return BB_G_STAMP_AH;
		words = ip[0] & 15;
		empty = bb_only_acknowledges(skb, w, at + words * 4, bb_be16(ip + 2) - words * 4);
	}
	flags = w->packet.option_flags & ~BB_OPTION_TREATMENT;
	if (empty || !deadline) {
		/* A lifetime of 0 is over. Without treatment it is forwarded. */
		result = bb_rewrite(skb, config, w, BB_OPTION_RELATIVE_MS, flags);
		return result == BB_G_STAMPED ? BB_STAMP_NOTHING : result;
	}
	result = bb_option_lifetime(config, w, deadline, &lifetime);
	if (result != BB_G_STAMPED)
		return result;
	return bb_rewrite(skb, config, w, lifetime, flags | bb_option_bits(w->asked));
}

/* What a packet will wait here, as far as can be known when it comes, ns. */
static __always_inline __u64 bb_expected_wait(struct __sk_buff *skb, const struct bb_work *w,
					      const struct bb_iface *iface)
{
	struct bb_session *session = bb_session_at(w->session);
	struct bb_tc_model *model;
	__u64 rate = iface->rate, wait = 0;
	__u32 slot = w->slot;

	if (iface->mode == BB_MODE_TC) {
		model = bpf_map_lookup_elem(&bb_tc_models, &slot);
		if (!model || !rate)
			return 0;
		/* It is in there itself by now. */
		for (__u32 leaf = 0; leaf <= BB_TC_LEAF_PLAIN; leaf++)
			if (leaf <= w->leaf)
				wait += model->queue[leaf];
		return wait;
	}
	if (!session)
		return 0;
	if (session->rate && (!rate || session->rate < rate))
		rate = session->rate;
	return bb_tx_time(session->counters.queued * skb->len, rate);
}

/*
 * What the next hop finds in LPD's option of a packet that is forwarded (enum
 * bb_decrement). A BPF qdisc cannot write into a packet that leaves. So either nothing
 * need be taken off, or what the packet will wait is foretold.
 */
__noinline int bb_pass_on(struct __sk_buff *skb, const struct bb_work *w,
			  const struct bb_iface *iface)
{
	__u32 lifetime, zero = 0, at;
	struct bb_config *config;
	__u8 next = 0;
	__u64 utc;

	if (!w || !iface || !(w->meta.flags & BB_M_OPTION) || bb_is_own(skb))
		return 0;
	lifetime = w->packet.option_lifetime;
	config = bpf_map_lookup_elem(&bb_config, &zero);
	if (!config || !lifetime || lifetime > BB_OPTION_RELATIVE_MS || bb_is_shared(skb))
		return 0;
	/* AH protects the option, or its type. */
	at = w->packet.ip_at + (w->packet.key.family == 6 ? BB_IPV6_BYTES : 9);
	if (bpf_skb_load_bytes(skb, at, &next, 1) || next == BB_PROTO_AH)
		return 0;
	if (iface->decrement == BB_DECREMENT_CLOCK) {
		utc = bb_utc(config, w->now);
		if (!utc)
			return 0;
		lifetime = bb_option_time(utc + lifetime * BB_NSEC_PER_MSEC);
	} else {
		__u64 wait = bb_expected_wait(skb, w, iface) / BB_NSEC_PER_MSEC;

		if (!wait)
			return 0;
		lifetime = lifetime > wait ? lifetime - wait : 1;
	}
	if (bb_rewrite(skb, config, w, lifetime, w->packet.option_flags) == BB_G_STAMPED)
		bb_global_inc(BB_G_DECREMENTED);
	return 0;
}

/* ---- where there is room ---- */

static __always_inline __u32 bb_headroom(struct sk_buff *kernel)
{
	unsigned char *head = 0, *data = 0;

	bpf_core_read(&head, sizeof(head), &kernel->head);
	bpf_core_read(&data, sizeof(data), &kernel->data);
	return data - head;
}

/* Where the kernel thinks that the IP header is: the helper opens what lies behind it. */
static __always_inline __u32 bb_network_at(struct sk_buff *kernel)
{
	__u16 network = 0;

	bpf_core_read(&network, sizeof(network), &kernel->network_header);
	return network - bb_headroom(kernel);
}

/* What segmentation will make of a super-packet (SKB_GSO_*). */
static __always_inline __u32 bb_gso_type(struct sk_buff *kernel)
{
	unsigned char *head = 0;
	struct skb_shared_info *info;
	__u32 end = 0, type = 0;

	bpf_core_read(&head, sizeof(head), &kernel->head);
	bpf_core_read(&end, sizeof(end), &kernel->end);
	info = (void *)(head + end);
	bpf_core_read(&type, sizeof(type), &info->gso_type);
	return type & ~BB_SKB_GSO_DODGY;
}

/*
 * May a packet of `total` bytes grow by `need`? BB_G_STAMPED, or why not. `headers`: those
 * of a datagram. `*how`: the helper's flags.
 */
static __always_inline int bb_has_room(struct __sk_buff *skb, struct sk_buff *kernel, __u8 proto,
				       __u32 headers, __u32 total, __u32 need, __u64 *how)
{
	__u32 gso_size = skb->gso_size, largest = total + need, mtu = 0, path, type;
	int too_large = gso_size ? BB_G_STAMP_GSO : BB_G_STAMP_MTU;

	/* A length of 0 is one beyond 64 KiB. */
	if (!total || total + need > 0xFFFF)
		return too_large;
	if (gso_size) {
		/* Only then does csum_start, by which it is cut, follow what moves. */
		if (BPF_CORE_READ_BITFIELD_PROBED(kernel, ip_summed) != BB_CHECKSUM_PARTIAL)
			return BB_G_STAMP_CHECKSUM;
		type = bb_gso_type(kernel);
		if (proto == BB_PROTO_TCP && type & BB_SKB_GSO_TCP &&
		    !(type & ~(BB_SKB_GSO_TCP | BB_SKB_GSO_TCP_HOW)) &&
		    gso_size >= need + BB_STAMP_LEAST_SEGMENT)
			return BB_G_STAMPED;
		if (proto != BB_PROTO_UDP || type != BB_SKB_GSO_UDP_L4)
			return BB_G_STAMP_GSO;
		*how = BPF_F_ADJ_ROOM_FIXED_GSO;
		largest = headers + gso_size + need;
	}
	bpf_check_mtu(skb, 0, &mtu, 0, 0);
	if (largest > mtu)
		return too_large;
	/* The device that cuts super-packets takes the route off their segments. */
	path = skb->cb[0] == BB_SEGMENT_MAGIC && skb->cb[1] == skb->ifindex ? skb->cb[3] :
									      bb_path_mtu(skb);
	return path && largest > path ? BB_G_STAMP_PATH_MTU : BB_G_STAMPED;
}

/* ---- growing ---- */

/*
 * Puts the first `size` bytes of `ip` in place of the header at `at`, which has `need` bytes
 * less. BB_G_STAMPED, or BB_G_STAMP_FAILED: then the packet is as it was. Only what is
 * done first may want memory.
 */
static __always_inline int bb_grow(struct __sk_buff *skb, struct sk_buff *kernel, __u32 at,
				   const __u8 *ip, __u32 size, __u32 need, __u64 how)
{
	__u32 protocol = skb->protocol, tag_proto = 0, tag_tci = 0, tags = 0;
	int result = BB_G_STAMP_FAILED;

	if (bpf_skb_pull_data(skb, at + size - need))
		return result;
	if (protocol == bpf_htons(BB_ETH_P_8021Q) || protocol == bpf_htons(BB_ETH_P_8021AD)) {
		__be16 tag[2];

		tags = (at - ETH_HLEN) / BB_VLAN_BYTES + !!skb->vlan_present;
		if (tags > BB_MAX_VLAN_TAGS || bpf_skb_load_bytes(skb, 2 * ETH_ALEN, tag, 4))
			return result;
		tag_proto = skb->vlan_present ? skb->vlan_proto : tag[0];
		tag_tci = skb->vlan_present ? skb->vlan_tci : bpf_ntohs(tag[1]);
		if (bpf_skb_vlan_pop(skb))
			return result;
		at = ETH_HLEN;
	}
	/*
	 * The inner tag will go back in front. The helper keeps room for it where it makes any;
	 * else there must be as much beforehand.
	 */
	if (tags < 2 || bb_headroom(kernel) - need >= BB_VLAN_BYTES) {
		if (!bpf_skb_adjust_room(skb, need, BPF_ADJ_ROOM_NET, how)) {
			bpf_skb_store_bytes(skb, at, ip, size, 0);
			result = BB_G_STAMPED;
		}
	}
	if (tags)
		bpf_skb_vlan_push(skb, tag_proto, tag_tci);
	return result;
}

/*
 * May a hop-by-hop header stand in front of IPv6's header `next` at `at`? In front of what
 * the packet carries, and of the destination options by which a tunnel says how deep others
 * may be within it (RFC 2473: ip6tnl's default).
 */
static __always_inline int bb_may_follow(struct __sk_buff *skb, __u32 at, __u8 next, __u8 proto)
{
	__u8 behind = 0;

	if (next == proto)
		return 1;
	if (next != BB_PROTO_DSTOPTS ||
	    (proto != BB_PROTO_IPIP && proto != BB_PROTO_IPV6 && proto != BB_PROTO_GRE))
		return 0;
	return !bpf_skb_load_bytes(skb, at, &behind, 1) && behind == proto;
}

static __always_inline int bb_try_stamp(struct __sk_buff *skb, struct bb_work *w)
{
	__u8 *ip = w->bytes;
	int six = w->packet.key.family == 6, result;
	__u64 deadline = bb_stamp_deadline(skb, w), how = 0;
	struct sk_buff *kernel = bb_untyped(skb);
	__u32 at, base, need, total, lifetime, zero = 0;
	__u8 proto = w->packet.key.proto, *option;
	struct bb_config *config;
	int place;

	config = bpf_map_lookup_elem(&bb_config, &zero);
	place = w->packet.option == BB_OPTION_READ && !w->packet.option_lifetime && bb_is_own(skb);
	if (!config || (!deadline && !place))
		return BB_STAMP_NOTHING;
	/* The kernel panics if a packet grows that somebody else holds (pktgen). */
	if (bb_is_shared(skb))
		return BB_G_STAMP_SHARED;
	if (place)
		return bb_fill(skb, config, w, deadline);
	if (w->packet.flags & (BB_P_FRAG_FIRST | BB_P_FRAG_LATER))
		return BB_G_STAMP_FRAGMENT;
	__builtin_memset(ip, 0, BB_IPV6_BYTES + BB_STAMP_BYTES6);
	base = six ? BB_IPV6_BYTES : BB_IPV4_BYTES;
	need = six ? BB_STAMP_BYTES6 : BB_STAMP_BYTES4;
	at = bb_network_at(kernel);
	if (at > BB_MAX_HEADER_OFFSET || bpf_skb_load_bytes(skb, at, ip, base))
		return BB_G_STAMP_FAILED;
	/* The kernel need not know of every tag within the frame: is that the header? */
	if (six ? !bb_same_words(ip + 8, w->packet.key.src, 4) :
		  ((__u32 *)ip)[3] != ((__u32 *)w->packet.key.src)[3] ||
			    ((__u32 *)ip)[4] != ((__u32 *)w->packet.key.dst)[3])
		return BB_G_STAMP_FAILED;
	if (ip[six ? 6 : 9] == BB_PROTO_AH)
		return BB_G_STAMP_AH;
	if (six ? !bb_may_follow(skb, at + base, ip[6], proto) : ip[0] != 0x45)
		return BB_G_STAMP_OPTIONS;
	total = six ? bb_be16(ip + 4) : bb_be16(ip + 2);
	if (bb_only_acknowledges(skb, w, at + base, six ? total : total - base))
		return BB_STAMP_NOTHING;
	if (six && total)
		total += base;
	result = bb_has_room(skb, kernel, proto, base + 8, total, need, &how);
	if (result != BB_G_STAMPED)
		return result;
	result = bb_option_lifetime(config, w, deadline, &lifetime);
	if (result != BB_G_STAMPED)
		return result;
	if (w->rule_flags & BB_RULE_PROBED && !bb_path_carries(skb, w))
		return BB_G_STAMP_PROBE;
	total += need;
	option = six ? ip + BB_IPV6_BYTES + 4 : ip + BB_IPV4_BYTES;
	option[0] = six ? bb_option6_type(config, lifetime) : config->option4;
	/* IPv6's do not count their first two bytes. */
	option[1] = six ? BB_OPTION_LENGTH - 2 : BB_OPTION_LENGTH;
	option[2] = proto == BB_PROTO_TCP ? BB_TCP_REORDER : 0;
	option[3] = bb_option_bits(w->asked);
	*(__be32 *)(option + 4) = bpf_htonl(lifetime);
	if (six) {
		*(__be16 *)(ip + 4) = bpf_htons(total - base);
		ip[40] = ip[6];
		ip[6] = BB_PROTO_HOPOPTS;
		ip[41] = BB_STAMP_BYTES6 / 8 - 1;
		ip[42] = BB_OPTION6_PADN; /* and no byte more */
		ip[52] = BB_OPTION6_PADN;
		ip[53] = 2; /* bytes more */
	} else {
		ip[0] += need / 4;
		*(__be16 *)(ip + 2) = bpf_htons(total);
		*(__u16 *)(ip + 10) = 0;
		*(__u16 *)(ip + 10) = ~bb_fold(
			bpf_csum_diff(0, 0, (__be32 *)ip, BB_IPV4_BYTES + BB_STAMP_BYTES4, 0));
	}
	return bb_grow(skb, kernel, at, ip, base + need, need, how);
}

/*
 * Stamps a packet of a rule with BB_RULE_STAMP, or counts why not. Call it last: skb->data
 * moves. A global function, called from the program itself, because of the stack.
 */
__noinline int bb_stamp(struct __sk_buff *skb, struct bb_work *w)
{
	int result;

	if (!w)
		return 0;
	result = bb_try_stamp(skb, w);
	if (result != BB_STAMP_NOTHING)
		bb_global_inc(result);
	w->stamped = result == BB_G_STAMPED;
	return 0;
}

#endif /* BB_STAMP_BPF_H */
