/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reading a packet at egress: Ethernet (or none), VLAN tags, IPv4, IPv6 with
 * its extension headers, fragments, ports, and what kind of payload a datagram
 * carries. Nothing here judges; nothing here trusts a length field.
 *
 * A header that ends early, an impossible length or a chain of more than
 * BB_MAX_EXT_HEADERS extension headers makes the packet BB_P_MALFORMED: it has
 * no metadata and is sent as plain traffic.
 */
#ifndef BB_PARSE_BPF_H
#define BB_PARSE_BPF_H

#include "bb_option.bpf.h"
#include "bb_packet.bpf.h"

/*
 * A DTLS record that sets up, keeps or ends a connection: change_cipher_spec,
 * alert, handshake, heartbeat, ack (RFC 6347, 6520, 9147), by its version, an
 * epoch below 256 and a length that the datagram can hold. SRT data packets with
 * sequence numbers from 0x14fe0000 up begin like that, and have no such fields.
 *
 * Application data (23) is what the rule says. So are records whose type is
 * encrypted: those with a connection id (25), and those of DTLS 1.3, except its
 * first flights. Nobody but the two ends can tell them from application data, and
 * DTLS repeats what is lost.
 */
static __always_inline int bb_is_dtls_control(const __u8 *p, __u32 length)
{
	const __u32 types = 1 << 20 | 1 << 21 | 1 << 22 | 1 << 24 | 1 << 26;

	return p[0] < 32 && types >> p[0] & 1 && p[1] == 0xFE && (p[2] == 0xFD || p[2] == 0xFF) &&
	       !p[3] && length >= 13 && 13 + (__u32)p[11] * 256 <= length;
}

/*
 * What kind of payload p is, of a UDP or UDP-Lite datagram that carries `length`
 * bytes from `offset` on, of which 8 can be read, or 12 if it has as many (RFC
 * 7983 for who shares a port; RFC 5761 for RTP beside RTCP). Media that a TURN
 * client or server wraps is not looked for: in ChannelData it is what the rule
 * says, in Send and Data indications it is STUN.
 */
static __always_inline void bb_read_payload(struct bb_packet *packet, const __u8 *p, __u32 offset,
					    __u32 length)
{
	__u32 header;

	packet->payload = offset;
	packet->payload_bytes = length;
	if (p[0] >> 6 == 2) {
		if (p[1] >= 192 && p[1] <= 223) {
			/* RTCP counts its length in words, less one; a compound packet has more. */
			if (((__u32)bb_be16(p + 2) + 1) * 4 <= length)
				packet->flags |= BB_P_CONTROL | BB_P_RTCP;
			return;
		}
		header = 12 + 4 * (p[0] & 15) + (p[0] & 0x10 ? 4 : 0);
		if (header > length || length < 12)
			return; /* ends within its header: not RTP */
		packet->flags |= p[1] & 0x80 ? BB_P_RTP | BB_P_MARKER : BB_P_RTP;
		if (p[0] & 0x20)
			packet->flags |= BB_P_PADDED;
		packet->rtp = BB_RTP | p[1];
		packet->seq = bb_be16(p + 2);
		packet->rtp_time = bb_be32(p + 4);
		packet->ssrc = bb_be32(p + 8);
		return;
	}
	if (length < 12)
		return;
	if (p[0] < 4 && length >= 20 && bb_be32(p + 4) == 0x2112A442)
		packet->flags |= BB_P_CONTROL; /* STUN by its magic cookie */
	else if (bb_is_dtls_control(p, length))
		packet->flags |= BB_P_CONTROL;
}

/* No packet is read in place beyond this. */
#define BB_MAX_IN_PLACE 0x3FFF

/* The last byte of the datagram counts the padding: 0 if there is none. 1 where it cannot be read here. */
static __always_inline int bb_may_be_padding(struct __sk_buff *skb, const struct bb_packet *packet)
{
	__u32 last = packet->payload + packet->payload_bytes - 1;
	__u8 *at = (__u8 *)(long)skb->data, *end = (__u8 *)(long)skb->data_end;

	if (last > BB_MAX_IN_PLACE)
		return 1;
	at += last;
	return at + 1 > end || *at;
}

/*
 * Is the RTP packet nothing but header and padding, as probes are? Under SRTP the
 * count of padding bytes is encrypted: then it does not look like one.
 */
__noinline int bb_is_padding(struct __sk_buff *skb, const struct bb_packet *packet)
{
	__u32 header, offset, length;
	__u8 first = 0, padding = 0;
	__u16 words = 0;

	if (!packet)
		return 0;
	offset = packet->payload;
	length = packet->payload_bytes;
	/* The count comes first: of SRTP, and of media with some padding, it says no at once. */
	if (bpf_skb_load_bytes(skb, offset + length - 1, &padding, 1) || !padding)
		return 0;
	if (bpf_skb_load_bytes(skb, offset, &first, 1))
		return 0;
	header = 12 + 4 * (first & 15);
	if (first & 0x10) {
		if (bpf_skb_load_bytes(skb, offset + header + 2, &words, 2))
			return 0;
		header += 4 + 4 * bpf_ntohs(words);
	}
	return header + padding == length;
}

static __always_inline int bb_parse_payload(struct __sk_buff *skb, struct bb_packet *packet,
					    __u32 offset, __u32 length)
{
	__u8 *p;

	if (length < 8)
		return BB_PARSED;
	if (length < 12) {
		p = bb_at(skb, packet, offset, 8);
		if (p)
			bb_read_payload(packet, p, offset, 8);
	} else {
		p = bb_at(skb, packet, offset, 12);
		if (p)
			bb_read_payload(packet, p, offset, length);
	}
	return !p && packet->pull ? BB_PULL : BB_PARSED;
}

/* Ports and payload of the datagram in bytes [offset, end) of the packet. */
static __always_inline int bb_parse_l4(struct __sk_buff *skb, struct bb_packet *packet,
				       __u32 offset, __u32 end)
{
	__u32 room = end - offset, minimum, length;
	__u8 proto = packet->key.proto, *p;

	if (end < offset) {
		packet->flags |= BB_P_MALFORMED;
		return BB_PARSED;
	}
	if (proto == BB_PROTO_UDP || proto == BB_PROTO_UDPLITE) {
		minimum = 8;
	} else if (proto == BB_PROTO_TCP) {
		minimum = 20;
	} else if (proto == BB_PROTO_SCTP || proto == BB_PROTO_DCCP) {
		minimum = 12;
	} else if (proto == BB_PROTO_IGMP) {
		packet->flags |= BB_P_CONTROL;
		return BB_PARSED;
	} else if (proto == BB_PROTO_ICMPV6) {
		p = bb_at(skb, packet, offset, 4);
		if (!p || room < 4)
			return bb_short(packet);
		/* 130-132, 143: multicast listeners; 133-137: neighbour discovery. */
		if ((p[0] >= 130 && p[0] <= 137) || p[0] == 143)
			packet->flags |= BB_P_CONTROL;
		return BB_PARSED;
	} else {
		return BB_PARSED;
	}
	/* A first fragment need only hold the ports. */
	if (packet->flags & BB_P_FRAG_FIRST)
		minimum = 8;
	if (room < minimum) {
		packet->flags |= BB_P_MALFORMED;
		return BB_PARSED;
	}
	p = bb_at(skb, packet, offset, 8);
	if (!p)
		return bb_short(packet);
	packet->key.sport = bb_be16(p);
	packet->key.dport = bb_be16(p + 2);
	if (proto == BB_PROTO_UDP) {
		length = bb_be16(p + 4);
		/* The length is that of the whole datagram: not judged in a fragment or a GSO packet. */
		if ((length < 8 || length > room) && !(packet->flags & BB_P_FRAG_FIRST) &&
		    skb->gso_segs <= 1) {
			packet->flags |= BB_P_MALFORMED;
			return BB_PARSED;
		}
		if (length >= 8 && length < room)
			room = length;
	} else if (proto != BB_PROTO_UDPLITE) {
		return BB_PARSED;
	}
	return bb_parse_payload(skb, packet, offset + 8, room - 8);
}

/* The same at packet->cursor, up to packet->end: behind IPv6's extension headers. */
__noinline int bb_parse_l4_at_cursor(struct __sk_buff *skb, struct bb_packet *packet)
{
	if (!packet)
		return BB_PARSED;
	return bb_parse_l4(skb, packet, bb_cursor(packet), packet->end);
}

/* ::ffff:a.b.c.d */
static __always_inline void bb_map_ipv4(__u8 *to, const __u8 *from)
{
	*(__u64 *)to = 0;
	((__u32 *)to)[2] = bpf_htonl(0xFFFF);
	((__u32 *)to)[3] = *(const __u32 *)from;
}

static __always_inline void bb_key_of_ipv4(struct bb_packet *packet, const __u8 *ip)
{
	packet->key.family = 4;
	packet->key.dscp = ip[1] >> 2;
	packet->key.proto = ip[9];
	bb_map_ipv4(packet->key.src, ip + 12);
	bb_map_ipv4(packet->key.dst, ip + 16);
}

static __always_inline int bb_parse_ipv4(struct __sk_buff *skb, struct bb_packet *packet,
					 __u32 offset)
{
	__u32 header, total, end = skb->len;
	__u16 fragment;
	__u8 *p = bb_at(skb, packet, offset, 20);

	if (!p)
		return bb_short(packet);
	header = (p[0] & 15) * 4;
	total = bb_be16(p + 2);
	/* A length of 0 is that of a GSO packet beyond 64 KiB. */
	if (p[0] >> 4 != 4 || header < 20 || (total ? total < header : skb->gso_segs <= 1) ||
	    offset + total > end || offset + header > end) {
		packet->flags |= BB_P_MALFORMED;
		return BB_PARSED;
	}
	if (total)
		end = offset + total;
	packet->flags |= BB_P_IP;
	bb_key_of_ipv4(packet, p);

	fragment = bb_be16(p + 6);
	if (fragment & 0x3FFF) {
		packet->frag_id = bb_be16(p + 4);
		packet->frag_proto = p[9];
	}
	if (header > 20) {
		packet->ip_at = offset;
		packet->cursor = offset + 20;
		if (bb_read_options(skb, packet, offset + header, 0) == BB_PULL) {
			packet->pull = offset + header;
			return BB_PULL;
		}
	}
	if (fragment & 0x3FFF) {
		if (fragment & 0x1FFF) {
			packet->flags |= BB_P_FRAG_LATER;
			return BB_PARSED;
		}
		packet->flags |= BB_P_FRAG_FIRST;
	}
	return bb_parse_l4(skb, packet, offset + header, end);
}

static __always_inline int bb_parse_ipv6(struct __sk_buff *skb, struct bb_packet *packet,
					 __u32 offset)
{
	__u32 payload, end = skb->len;
	__u8 next, *p = bb_at(skb, packet, offset, 40);
	__u16 fragment;

	if (!p)
		return bb_short(packet);
	payload = bb_be16(p + 4);
	if (p[0] >> 4 != 6 || offset + 40 + payload > end) {
		packet->flags |= BB_P_MALFORMED;
		return BB_PARSED;
	}
	if (payload) /* 0: a jumbogram or a GSO packet beyond 64 KiB */
		end = offset + 40 + payload;
	packet->flags |= BB_P_IP;
	packet->key.family = 6;
	packet->key.dscp = (p[0] & 15) << 2 | p[1] >> 6;
	bb_copy_words(packet->key.src, p + 8, 4);
	bb_copy_words(packet->key.dst, p + 24, 4);
	packet->key.proto = p[6];
	packet->cursor = offset + 40;
	packet->end = end;

	for (int i = 0; i <= BB_MAX_EXT_HEADERS; i++) {
		next = packet->key.proto;
		offset = bb_cursor(packet);
		switch (next) {
		case BB_PROTO_HOPOPTS:
		case BB_PROTO_ROUTING:
		case BB_PROTO_DSTOPTS:
		case BB_PROTO_MOBILITY:
		case BB_PROTO_HIP:
		case BB_PROTO_SHIM6:
		case BB_PROTO_AH:
		case BB_PROTO_FRAGMENT:
			break;
		default:
			return bb_parse_l4_at_cursor(skb, packet);
		}
		p = bb_at(skb, packet, offset, 8);
		if (!p)
			return bb_short(packet);
		if (offset + 8 > packet->end)
			break;
		packet->key.proto = p[0];
		if (next == BB_PROTO_FRAGMENT) {
			fragment = bb_be16(p + 2);
			if (fragment & 0xFFF9) {
				packet->frag_id = bb_be32(p + 4);
				packet->frag_proto = p[0];
				if (fragment & 0xFFF8) {
					packet->flags |= BB_P_FRAG_LATER;
					return BB_PARSED;
				}
				packet->flags |= BB_P_FRAG_FIRST;
			}
			offset += 8;
		} else if (next == BB_PROTO_AH) {
			offset += ((__u32)p[1] + 2) * 4;
		} else {
			__u32 behind = offset + ((__u32)p[1] + 1) * 8;

			if (next == BB_PROTO_HOPOPTS && i == 0) {
				packet->ip_at = offset - 40;
				packet->cursor = offset + 2;
				if (bb_read_options(skb, packet, behind, 1) == BB_PULL) {
					packet->pull = behind;
					return BB_PULL;
				}
			}
			offset = behind;
		}
		packet->cursor = offset; /* at most 18 + 40 + 8 * 2048: fits */
	}
	packet->flags |= BB_P_MALFORMED;
	return BB_PARSED;
}

/*
 * Fills *packet. `ethernet`: the device's frames start with an Ethernet header. A global
 * function: verified once, whatever calls it.
 */
__noinline int bb_parse(struct __sk_buff *skb, struct bb_packet *packet, int ethernet)
{
	__u32 offset = 0;
	__u16 protocol;
	__u8 *p;

	if (!packet)
		return BB_PARSED;
	__builtin_memset(packet, 0, sizeof(*packet));
	packet->key.ifindex = skb->ifindex;
	/* A tag taken out of band (skb->vlan_present) leaves the inner protocol here. */
	protocol = bpf_ntohs(skb->protocol);
	if (ethernet) {
		p = bb_at(skb, packet, 0, 14);
		if (!p)
			return bb_short(packet);
		protocol = bb_be16(p + 12);
		offset = 14;
	}
	for (int i = 0; i < BB_MAX_VLAN_TAGS; i++) {
		if (protocol != BB_ETH_P_8021Q && protocol != BB_ETH_P_8021AD)
			break;
		p = bb_at(skb, packet, offset, 4);
		if (!p)
			return bb_short(packet);
		protocol = bb_be16(p + 2);
		offset += 4;
	}
	packet->cursor = offset;
	switch (protocol) {
	case BB_ETH_P_IP:
		return bb_parse_ipv4(skb, packet, bb_cursor(packet));
	case BB_ETH_P_IPV6:
		return bb_parse_ipv6(skb, packet, bb_cursor(packet));
	case BB_ETH_P_ARP:
		packet->flags |= BB_P_CONTROL;
		return BB_PARSED;
	case BB_ETH_P_SLOW:
	case BB_ETH_P_PAE:
	case BB_ETH_P_LLDP:
	case BB_ETH_P_MRP:
	case BB_ETH_P_MVRP:
	case BB_ETH_P_MMRP:
	case BB_ETH_P_1588:
	case BB_ETH_P_CFM:
		packet->flags |= BB_P_NETWORK;
		return BB_PARSED;
	}
	if (ethernet && protocol < BB_ETH_P_802_3_MIN) {
		p = bb_at(skb, packet, bb_cursor(packet), 2);
		if (!p)
			return packet->pull ? BB_PULL : BB_PARSED;
		protocol = bb_be16(p);
		if (protocol == BB_LLC_STP || protocol == BB_LLC_OSI)
			packet->flags |= BB_P_NETWORK;
	}
	return BB_PARSED;
}

/*
 * The same for what nearly every media packet is, in a third of the time: IPv4
 * on Ethernet without tag, option or fragment, a UDP datagram with a payload of
 * 12 bytes or more, its headers linear and its lengths in order. Returns 0, and
 * has done nothing, for all else.
 */
static __always_inline int bb_parse_usual(struct __sk_buff *skb, struct bb_packet *packet,
					  __u32 ifindex)
{
	__u8 *ip = (__u8 *)(long)skb->data + 14, *end = (__u8 *)(long)skb->data_end;
	__u32 total, length;

	if (ip + 20 + 8 + 12 > end)
		return 0;
	if (*(__u16 *)(ip - 2) != bpf_htons(BB_ETH_P_IP) || ip[0] != 0x45 ||
	    ip[9] != BB_PROTO_UDP || *(__u16 *)(ip + 6) & bpf_htons(0x3FFF))
		return 0;
	total = bb_be16(ip + 2);
	length = bb_be16(ip + 24);
	if (14 + total > skb->len || length < 8 + 12 || 20 + length > total)
		return 0;
	packet->key.ifindex = ifindex;
	packet->key.mark = 0;
	packet->key.pad = 0;
	packet->flags = BB_P_IP;
	packet->rtp = 0;
	packet->inner = 0;
	packet->option = BB_OPTION_NONE;
	bb_key_of_ipv4(packet, ip);
	packet->key.sport = bb_be16(ip + 20);
	packet->key.dport = bb_be16(ip + 22);
	bb_read_payload(packet, ip + 28, 14 + 20 + 8, length - 8);
	return 1;
}

#endif /* BB_PARSE_BPF_H */
