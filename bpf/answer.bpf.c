// SPDX-License-Identifier: GPL-2.0-only
/*
 * Answers of receivers that have no TCP with this host: STUN's to a Binding request, and
 * RTCP's reports on a sender report. Attached to the ingress of every interface of
 * bestby (tcx from 6.6, a clsact filter before). Changes no packet.
 *
 * 1. The classifier noted what left, and when (bb_asked.bpf.h). An answer to nothing that
 *    is noted makes no state, and is counted.
 * 2. STUN is matched by its 96 bits, both addresses and both ports. A report is matched by
 *    SSRC, LSR and both addresses; its ports need not be those of the sender report.
 * 3. One answer counts, the first. RTT = now - sent - DLSR, which must not be below zero
 *    nor above 10 s.
 * 4. The estimate is bb_rtt.h's, as of TCP. TCP speaks before STUN, STUN before RTCP.
 *
 * A receiver can delay its answer, or report too long a DLSR. It deceives nobody but
 * itself, and those behind the same address: a path that seems short makes nothing
 * stale, and a path that seems long takes half of a lifetime at most.
 *
 * Echo replies with a nonce of an interface's path (bb_echo.bpf.h) are the answers of its markers.
 *
 * SRTCP is encrypted but for its first 8 bytes: its reports name nothing that left, and are
 * no answers. It has an index and a tag behind the last packet, where RTCP in clear ends
 * or has another packet.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "bb_echo.bpf.h"
#include "bb_heard.bpf.h"
#include "bb_stun.h"

#define BB_ETH_P_IP 0x0800
#define BB_ETH_P_IPV6 0x86DD
#define BB_PROTO_ICMP 1
#define BB_PROTO_UDP 17
#define BB_PROTO_ICMPV6 58

#define BB_MAX_BLOCKS 4 /* of a report: they are all of one path */

/* A UDP datagram that came in. Offsets count from the network header. */
struct bb_datagram {
	struct bb_asked_key key; /* but for the id */
	__u64 now;
	__u32 payload;
	__u32 length;
};

static __always_inline int bb_load(struct __sk_buff *skb, __u32 at, void *to, __u32 size)
{
	return bpf_skb_load_bytes_relative(skb, at, to, size, BPF_HDR_START_NET);
}

/* An echo reply may be the answer of a marker. */
__noinline int bb_take_echo(struct __sk_buff *skb, __u32 at, __u32 type)
{
	__u32 name = 0, slot = 0;
	struct bb_auto *a = bb_echo_of(skb, at, type, &slot, &name);
	struct bb_iface *iface;

	if (!a)
		return 0;
	iface = bpf_map_lookup_elem(&bb_ifaces, &slot);
	if (!iface || !(iface->flags & BB_IFACE_AUTO) || !bb_auto_take(a))
		return 0;
	bb_auto_hears(a, name, bpf_ktime_get_ns());
	bb_auto_give(a, iface);
	return 0;
}

/* Addresses, ports and payload; 0: it is no whole datagram. VLAN tags are gone by now. */
static __always_inline int bb_find_datagram(struct __sk_buff *skb, struct bb_datagram *d)
{
	__u32 ip[10], udp[2], at, end, *local = (__u32 *)d->key.local, *peer = (__u32 *)d->key.peer;

	if (skb->protocol == bpf_htons(BB_ETH_P_IP)) {
		if (bb_load(skb, 0, ip, 20) || bpf_ntohl(ip[1]) & 0x3FFF) /* a fragment */
			return 0;
		if ((bpf_ntohl(ip[2]) >> 16 & 255) == BB_PROTO_ICMP)
			bb_take_echo(skb, BB_ECHO_AT4, BB_ICMP_REPLY);
		if ((bpf_ntohl(ip[2]) >> 16 & 255) != BB_PROTO_UDP)
			return 0;
		at = (bpf_ntohl(ip[0]) >> 24 & 15) * 4;
		end = bpf_ntohl(ip[0]) & 0xFFFF;
		if (at < 20)
			return 0;
		peer[2] = local[2] = bpf_htonl(0xFFFF);
		peer[3] = ip[3];
		local[3] = ip[4];
	} else if (skb->protocol == bpf_htons(BB_ETH_P_IPV6)) {
		/* Behind extension headers nobody puts an answer. */
		if (bb_load(skb, 0, ip, 40))
			return 0;
		if ((bpf_ntohl(ip[1]) >> 8 & 255) == BB_PROTO_ICMPV6)
			bb_take_echo(skb, BB_ECHO_AT6, BB_ICMP6_REPLY);
		if ((bpf_ntohl(ip[1]) >> 8 & 255) != BB_PROTO_UDP)
			return 0;
		at = 40;
		end = 40 + (bpf_ntohl(ip[1]) >> 16);
		__builtin_memcpy(peer, ip + 2, 16);
		__builtin_memcpy(local, ip + 6, 16);
	} else {
		return 0;
	}
	if (bb_load(skb, at, udp, 8))
		return 0;
	d->length = bpf_ntohl(udp[1]) >> 16;
	if (d->length < 8 || at + d->length > end)
		return 0;
	d->key.peer_port = bpf_ntohl(udp[0]) >> 16;
	d->key.local_port = bpf_ntohl(udp[0]);
	d->payload = at + 8;
	d->length -= 8;
	return 1;
}

/* Takes in what answers the key; the other end kept it for held_ns. */
__noinline int bb_take_answer(const struct bb_asked_key *answers, __u64 held_ns, __u64 now)
{
	struct bb_asked_key key __attribute__((aligned(8)));
	struct bb_addr addr __attribute__((aligned(8)));
	struct bb_asked *found, asked;
	__u64 sample;
	struct bb_rtt *rtt;

	if (!answers)
		return 0;
	key = *answers; /* v6.2: before it a key had to be on the stack or in a map */
	found = bpf_map_lookup_elem(&bb_asked, &key);
	if (!found) {
		bb_global_inc(BB_G_ANSWER_UNKNOWN);
		return 0;
	}
	asked = *found;
	/* Of two CPUs that have the same answer one does it. */
	if (bpf_map_delete_elem(&bb_asked, &key))
		return 0;
	sample = bb_rtt_of_answer(now - asked.sent_ns, held_ns);
	if (!sample || asked.again) {
		bb_global_inc(BB_G_ANSWER_REFUSED);
		return 0;
	}
	__builtin_memcpy(&addr, key.peer, sizeof(addr));
	rtt = bb_rtt_for(&addr, asked.source, now);
	if (!rtt)
		return 0;
	bb_rtt_add(rtt, sample, bb_wait_in(asked.session, asked.gen, now), now);
	rtt->srtt_ns = sample;
	rtt->rto_ns = 0;
	rtt->updated_ns = now;
	return 0;
}

/* Is RTCP in clear, whose first packet has `length` bytes? */
static __always_inline int bb_is_clear(struct __sk_buff *skb, const struct bb_datagram *d,
				       __u32 length)
{
	__u32 word;

	if (length == d->length)
		return 1;
	if (length + 4 > d->length || bb_load(skb, d->payload + length, &word, 4))
		return 0;
	return bb_rtcp_type(&word) >= 192 && bb_rtcp_type(&word) <= 223;
}

/* The report blocks of an RTCP packet of `length` bytes, from `at` on. */
static __always_inline void bb_read_report(struct __sk_buff *skb, struct bb_datagram *d, __u32 at,
					   __u32 length, __u32 count)
{
	__u32 block[BB_RTCP_BLOCK / 4], i;

	d->key.local_port = d->key.peer_port = 0;
	for (i = 0; i < BB_MAX_BLOCKS; i++) {
		if (i >= count || at + BB_RTCP_BLOCK > length ||
		    bb_load(skb, d->payload + at, block, sizeof(block)))
			return;
		at += BB_RTCP_BLOCK;
		d->key.id[0] = block[0];
		d->key.id[1] = bpf_ntohl(block[4]);
		if (d->key.id[1])
			bb_take_answer(&d->key, bb_dlsr_ns(bpf_ntohl(block[5])), d->now);
	}
}

SEC("classifier")
int bb_answers(struct __sk_buff *skb)
{
	struct bb_datagram d __attribute__((aligned(8))) = {};
	__u32 words[BB_STUN_HEADER / 4], type, length;

	if (!bb_find_datagram(skb, &d) || d.length < BB_STUN_HEADER ||
	    bb_load(skb, d.payload, words, sizeof(words)))
		return -1; /* TCX_NEXT, TC_ACT_UNSPEC */
	d.now = bpf_ktime_get_ns();
	type = bb_stun_type(words);
	if (type == BB_STUN_SUCCESS || type == BB_STUN_ERROR) {
		if (BB_STUN_HEADER + (bpf_ntohl(words[0]) & 0xFFFF) > d.length)
			return -1;
		d.key.id[0] = words[2];
		d.key.id[1] = words[3];
		d.key.id[2] = words[4];
		bb_take_answer(&d.key, 0, d.now);
		return -1;
	}
	type = bb_rtcp_type(words);
	length = bb_rtcp_length(words);
	if ((type == BB_RTCP_RR || type == BB_RTCP_SR) && length <= d.length &&
	    bb_is_clear(skb, &d, length))
		bb_read_report(skb, &d, type == BB_RTCP_RR ? BB_RTCP_RR_HEADER : BB_RTCP_SR_HEADER,
			       length, bpf_ntohl(words[0]) >> 24 & 31);
	return -1;
}

char _license[] SEC("license") = "GPL";
