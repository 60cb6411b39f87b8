/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A packet as it is read: what is found in it (struct bb_packet), and how its bytes
 * are reached. Headers are read in place. Where they are not in the linear part of the
 * skb the caller pulls them there and parses again.
 */
#ifndef BB_PACKET_BPF_H
#define BB_PACKET_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "bb_core.h"

#define BB_ETH_P_IP 0x0800
#define BB_ETH_P_ARP 0x0806
#define BB_ETH_P_8021Q 0x8100
#define BB_ETH_P_IPV6 0x86DD
#define BB_ETH_P_8021AD 0x88A8
/* Of those that keep a link alive: LACP and its like, EAPOL, LLDP, MRP, PTP, CFM. */
#define BB_ETH_P_SLOW 0x8809
#define BB_ETH_P_PAE 0x888E
#define BB_ETH_P_LLDP 0x88CC
#define BB_ETH_P_MRP 0x88E3
#define BB_ETH_P_MVRP 0x88F5
#define BB_ETH_P_MMRP 0x88F6
#define BB_ETH_P_1588 0x88F7
#define BB_ETH_P_CFM 0x8902
#define BB_ETH_P_802_3_MIN 0x0600 /* below: the length of an LLC frame */
#define BB_LLC_STP 0x4242 /* both access points */
#define BB_LLC_OSI 0xFEFE /* IS-IS */

#define BB_DSCP_CS6 48 /* RFC 4594: network control; CS7 is above */

#define BB_PROTO_HOPOPTS 0
#define BB_PROTO_ICMP 1
#define BB_PROTO_IGMP 2
#define BB_PROTO_IPIP 4
#define BB_PROTO_TCP 6
#define BB_PROTO_UDP 17
#define BB_PROTO_DCCP 33
#define BB_PROTO_IPV6 41
#define BB_PROTO_ROUTING 43
#define BB_PROTO_FRAGMENT 44
#define BB_PROTO_RSVP 46
#define BB_PROTO_GRE 47
#define BB_PROTO_AH 51
#define BB_PROTO_ICMPV6 58
#define BB_PROTO_DSTOPTS 60
#define BB_PROTO_EIGRP 88
#define BB_PROTO_OSPF 89
#define BB_PROTO_PIM 103
#define BB_PROTO_VRRP 112
#define BB_PROTO_ISIS 124
#define BB_PROTO_SCTP 132
#define BB_PROTO_MOBILITY 135
#define BB_PROTO_UDPLITE 136
#define BB_PROTO_HIP 139
#define BB_PROTO_SHIM6 140

#define BB_MAX_EXT_HEADERS 8
#define BB_MAX_VLAN_TAGS 2
/* No header of interest starts later: 8 extension headers of the largest size we follow. */
#define BB_MAX_HEADER_OFFSET 2304

/* struct bb_packet.flags */
#define BB_P_IP 0x0001 /* key holds addresses */
#define BB_P_MALFORMED 0x0002
#define BB_P_CONTROL 0x0004 /* ARP, ND, IGMP, MLD, RTCP, STUN, DTLS handshake */
#define BB_P_RTP 0x0008
#define BB_P_MARKER 0x0010 /* RTP marker bit */
#define BB_P_FRAG_FIRST 0x0020
#define BB_P_FRAG_LATER 0x0040 /* no ports of its own */
#define BB_P_PADDED 0x0080 /* RTP with the padding bit */
#define BB_P_RTCP 0x0200 /* by shape; with BB_P_CONTROL */
#define BB_P_NETWORK 0x0100 /* not IP: it keeps a link or a route alive */

/* What bb_parse wants. */
#define BB_PARSED 0
#define BB_PULL 1 /* make packet->pull bytes linear and parse again */

struct bb_packet {
	struct bb_flow_key key; /* the mark is the caller's */
	__u32 flags;
	__u32 ssrc; /* host order, as rtp_time */
	__u32 rtp_time;
	__u16 seq;
	__u16 payload; /* where the datagram's payload starts; with BB_P_RTP, and UDP with BB_P_CONTROL */
	__u16 payload_bytes;
	__u8 rtp; /* BB_RTP | payload type; 0 = not RTP */
	__u8 inner; /* bytes between UDP's header and RTP's */
	__u32 frag_id;
	__u32 pull;
	/*
	 * Where the next header starts, where the IP packet ends. In memory so
	 * that the verifier forgets how they came about: it would follow every
	 * combination of extension headers otherwise.
	 */
	__u32 end;
	__u16 cursor;
	__u8 frag_proto; /* as in the fragment header, the same for all fragments */
	/* LPD's option: what follows it is valid with BB_OPTION_READ. */
	__u8 option; /* enum bb_option */
	__u8 option_flags;
	__u8 ip_at; /* where the IP header starts; with any option */
	__u16 option_at; /* where the option starts in the packet */
	__u32 option_lifetime; /* host order, as in the packet */
};

enum bb_option {
	BB_OPTION_NONE,
	BB_OPTION_READ,
	BB_OPTION_MALFORMED, /* ignored: lengths that cannot be, of any option */
	BB_OPTION_MANY, /* ignored: it would be behind too many others */
};

/*
 * Bytes [offset, offset + size) of the packet, or NULL: then either the packet
 * ends there (malformed) or the bytes are not linear (packet->pull is set).
 */
static __always_inline void *bb_at(struct __sk_buff *skb, struct bb_packet *packet, __u32 offset,
				   __u32 size)
{
	void *data, *end;

	if (offset > BB_MAX_HEADER_OFFSET)
		return 0;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	data += offset;
	if (data + size > end) {
		if (offset + size <= skb->len)
			packet->pull = offset + size;
		return 0;
	}
	return data;
}

/* Early end of a header: pull when that may help, else malformed. */
static __always_inline int bb_short(struct bb_packet *packet)
{
	if (packet->pull)
		return BB_PULL;
	packet->flags |= BB_P_MALFORMED;
	return BB_PARSED;
}

/* The cursor, read back from memory: see there. */
static __always_inline __u32 bb_cursor(struct bb_packet *packet)
{
	return *(volatile __u16 *)&packet->cursor;
}

/*
 * Whole words instead of bytes: clang would not, as it knows no alignment. The
 * verifier allows it wherever the CPU does, and IP headers are aligned anyway.
 */
static __always_inline __u32 bb_be32(const __u8 *bytes)
{
	return bpf_ntohl(*(const __u32 *)bytes);
}

static __always_inline __u16 bb_be16(const __u8 *bytes)
{
	return bpf_ntohs(*(const __u16 *)bytes);
}

static __always_inline void bb_copy_words(__u8 *to, const __u8 *from, __u32 words)
{
	for (__u32 i = 0; i < words; i++)
		((__u32 *)to)[i] = ((const __u32 *)from)[i];
}

#endif /* BB_PACKET_BPF_H */
