/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_stun.h - the first words of STUN messages (RFC 8489, 5) and of RTCP's reports
 * (RFC 3550, 6.4), as they are in the packet.
 */
#ifndef BB_STUN_H
#define BB_STUN_H

#include <bpf/bpf_endian.h>
#include "bb_core.h"

#define BB_STUN_HEADER 20
#define BB_STUN_COOKIE 0x2112A442
#define BB_STUN_REQUEST 0x0001 /* Binding */
#define BB_STUN_SUCCESS 0x0101
#define BB_STUN_ERROR 0x0111

#define BB_RTCP_SR 200
#define BB_RTCP_RR 201
#define BB_RTCP_SR_HEADER 28 /* up to the first report block */
#define BB_RTCP_RR_HEADER 8
#define BB_RTCP_BLOCK 24

/* Class and method of a STUN message; 0: it is none. */
bb_inline __u32 bb_stun_type(const __u32 *words)
{
	return words[1] == bpf_htonl(BB_STUN_COOKIE) ? bpf_ntohl(words[0]) >> 16 : 0;
}

/* Type of an RTCP packet (version 2); 0: it is none. What is RTP has another. */
bb_inline __u32 bb_rtcp_type(const __u32 *words)
{
	__u32 first = bpf_ntohl(words[0]);

	return first >> 30 == 2 ? first >> 16 & 255 : 0;
}

/* Bytes of it. */
bb_inline __u32 bb_rtcp_length(const __u32 *words)
{
	return ((bpf_ntohl(words[0]) & 0xFFFF) + 1) * 4;
}

/* How a report names this sender report: the middle half of its NTP timestamp, host order. */
bb_inline __u32 bb_rtcp_lsr(const __u32 *words)
{
	return bpf_ntohl(words[2]) << 16 | bpf_ntohl(words[3]) >> 16;
}

#endif /* BB_STUN_H */
