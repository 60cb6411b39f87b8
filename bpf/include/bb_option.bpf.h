/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * LPD's option in a packet: a lifetime or a deadline, and what becomes of the packet
 * when it is stale (Gurtov and Ludwig, "Lifetime Packet Discard for Efficient
 * Real-Time Transport over Cellular Links", appendix A).
 *
 *   type, length 8, reorder depth, flags, lifetime in ms (bb_core.h)
 *
 * It is looked for among IPv4's options and in a hop-by-hop header that comes first.
 * Whether it counts is bb_meta.bpf.h's question. Nothing here makes a packet malformed:
 * a router passes on what it does not understand.
 */
#ifndef BB_OPTION_BPF_H
#define BB_OPTION_BPF_H

#include "bb_maps.bpf.h"
#include "bb_packet.bpf.h"

/* So many are looked at, padding included: each costs some 40 instructions. */
#define BB_MAX_OPTIONS 8

/*
 * Reads bytes [packet->cursor, until) of the packet: the options of an IPv4 header, or
 * of a hop-by-hop header (`six`).
 */
__noinline int bb_read_options(struct __sk_buff *skb, struct bb_packet *packet, __u32 until,
			       int six)
{
	struct bb_config *config;
	__u32 at, length, zero = 0;
	__u8 *p, type;

	if (!packet || until > BB_MAX_HEADER_OFFSET)
		return BB_PARSED;
	config = bpf_map_lookup_elem(&bb_config, &zero);
	if (!config)
		return BB_PARSED;
	for (int i = 0; i < BB_MAX_OPTIONS; i++) {
		at = bb_cursor(packet);
		/* One byte left can only be padding. */
		if (at + 2 > until)
			return BB_PARSED;
		/* clang would leave out bb_at's own bound, which the verifier needs to see. */
		asm volatile("" : "+r"(at));
		p = bb_at(skb, packet, at, 2);
		if (!p)
			return BB_PULL;
		type = p[0];
		if (type == (six ? 0 : 1)) { /* Pad1, no operation */
			packet->cursor = at + 1;
			continue;
		}
		if (!type) /* end of option list */
			return BB_PARSED;
		length = six ? p[1] + 2U : p[1];
		if (length < 2 || at + length > until) {
			packet->option = BB_OPTION_MALFORMED;
			return BB_PARSED;
		}
		if (six ? type == config->option6_deadline || type == config->option6_lifetime :
			  !((type ^ config->option4) & BB_OPTION4_NUMBER)) {
			if (length != BB_OPTION_LENGTH) {
				packet->option = BB_OPTION_MALFORMED;
				return BB_PARSED;
			}
			asm volatile("" : "+r"(at));
			p = bb_at(skb, packet, at, BB_OPTION_LENGTH);
			if (!p)
				return BB_PULL;
			packet->option = BB_OPTION_READ;
			packet->option_at = at;
			packet->option_flags = p[3];
			packet->option_lifetime = bb_be32(p + 4);
			return BB_PARSED;
		}
		packet->cursor = at + length;
	}
	if (bb_cursor(packet) + 2 <= until)
		packet->option = BB_OPTION_MANY;
	return BB_PARSED;
}

#endif /* BB_OPTION_BPF_H */
