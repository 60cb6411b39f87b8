/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_buffer_abi.h - sockets that their send buffer holds back. A part of the ABI
 * (bb_abi.h, which includes it and has the rules).
 */
#ifndef BB_BUFFER_ABI_H
#define BB_BUFFER_ABI_H

#include <linux/types.h>

#define BB_BUFFER_MOST 4194304 /* bytes that no send buffer is raised above */

/* By cookie: a socket whose send buffer is smaller than rate x lifetime takes (bb_buffer.bpf.h). */
struct bb_buffer {
	__u64 need; /* what it takes, three times rate x lifetime; as the kernel counts, twice of what SO_SNDBUF asks for */
	__u64 lifetime_ns; /* of the packet that `need` was reckoned of */
	__u64 seen_ns; /* when it was */
	__u64 held_ns; /* when half of the buffer was last found in use */
	__u64 wanted_ns; /* when the agent was last asked for the programs that raise it */
	__u64 raised_ns; /* when one did */
	__u32 size; /* of the buffer, as last seen */
	__u16 rule;
	__u8 connected; /* no program sees its sends */
	__u8 observed; /* it sends through an interface that only observes */
	__u32 asked; /* how often the agent was, since one did */
	__u32 pad;
};

#endif /* BB_BUFFER_ABI_H */
