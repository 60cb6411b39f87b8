/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_auto_abi.h - the state of a path whose rate is found (bb_auto.h). The agent sets the bounds, and who is asked.
 * The rules of bb_abi.h hold here.
 */
#ifndef BB_AUTO_ABI_H
#define BB_AUTO_ABI_H

#include <linux/types.h>

/* Power of two: the last markers of a path. At 50 ms each they are 1.6 s. */
#define BB_AUTO_MARKERS 32

/* A packet whose answer names it. */
struct bb_auto_marker {
	__u64 left_ns; /* when it left us */
	__u64 bytes; /* bb_auto.sent, itself included */
	__u64 heard_ns; /* when its answer came, less the end's least round trip; 0 = none has */
	__u64 queue_ns; /* what it waited behind us */
	__u32 name; /* by which its answer is known */
	__u32 pad;
};

/*
 * Who is asked. The queue is what all of them say that answered lately: what only one of them meets is on its own
 * way, or it says so falsely.
 */
#define BB_AUTO_ENDS 4 /* power of two */

struct bb_auto_end {
	__u64 least_ns
		[2]; /* least round trip of this window of BB_AUTO_BASE_SHIFT, and of the one before; ~0 = none */
	__u64 window;
	/* The last answer: */
	__u64 heard_ns; /* when it came; 0 = none did */
	__u64 queue_ns; /* that its marker met */
	__u64 left_ns; /* when that left us */
	__u64 bytes; /* bb_auto.sent then */
	__u64 nonce; /* of its echo requests: the last bits are the slot, then the end's index. 0 = nobody is asked */
};

/*
 * The agent's echo request, ICMP's or ICMPv6's: the end's nonce follows the header, as it lies in the map, and comes
 * back in the reply. Nobody else knows it but who is on the way. The marker's name is the end's index, then the
 * sequence number.
 */
#define BB_ECHO_END_SHIFT 6 /* of the nonce: BB_MAX_IFACES slots come first */
#define BB_ECHO_BYTES 16 /* ICMP's header and the nonce */

/* Why a path has the rate that it has. */
enum bb_auto_state {
	BB_AUTO_UNSEEN = 0, /* no queue was met: no rate is in force */
	BB_AUTO_FOLLOWS = 1,
	BB_AUTO_OTHERS = 2, /* others fill it: our yielding did not empty it. No rate is in force */
	BB_AUTO_SILENT = 3, /* no answer comes any more: no rate is in force */
};

struct bb_auto {
	/* Bounds of the rate, bytes/s. most = 0: it has none above. */
	__u64 least;
	__u64 most;
	/* In force: bytes/s, and how long a packet waits behind us. 0 = nothing is. */
	__u64 rate;
	__u64 behind_ns;
	__u64 answers; /* that counted */
	/* From here on the law's own. */
	__u64 sent; /* bytes that left on the path */
	__u64 gave_up_ns; /* when an ADU was given up, last */
	__u64 waited_ns; /* when more than two large packets waited as a marker left, last */
	__u64 due_ns; /* when an answer is overdue, or all that is known too old; ~0 = never */
	__u64 carries; /* what the path carries, bytes/s; 0 = not known */
	__u64 top; /* what it carried when it last had a queue */
	__u64 best; /* the most that it carried lately */
	__u64 heard_ns; /* the last answer */
	__u64 heard_bytes; /* bb_auto.sent, as its marker left */
	__u64 heard_queue_ns; /* the queue that it says, jitter included */
	__u64 heard_carries; /* bb_auto.carries then */
	__u64 base_ns; /* least round trip of whoever answered last; 0 = none did */
	__u64 jitter_ns; /* by which answers came too late lately though no queue stood */
	__u64 spacing_ns; /* between answers, a running mean */
	__u64 calm_ns; /* for how long the rate grew without meeting a queue */
	/* A queue that is watched until what is ours of it must have left. */
	__u64 drained_ns; /* how much of it must have, since it was met */
	__u64 watch_most_ns; /* its greatest length since; 0 = none is watched */
	__u64 others_ns; /* until when nothing is tried, because others fill the path */
	__u64 rebased_ns; /* when the path was found to be another one, last */
	/* Nobody has seen the path without its queue: it is emptied once. */
	__u64 rtt_ns; /* the last round trip; while it is emptied, the one that shorter ones are compared with */
	__u64 empties_ns; /* until when, unless it gets shorter; 0 = it is not */
	__u64 blind_ns; /* when that may be tried again */
	__u32 blind; /* how often it was in vain */
	__u32 fell; /* it got shorter this time */
	__u32 others; /* how often in a row they did */
	__u32 rebased; /* how often it was */
	__u32 first; /* earlier markers are of another path */
	__u32 next; /* number of the next marker */
	__u32 oldest; /* number of the oldest one that may be answered */
	__u32 last; /* 1 + number of the latest answered one; 0 = none was */
	__u32 largest; /* bytes of a large packet of the path */
	__u32 state; /* enum bb_auto_state */
	__u32 busy; /* 1 while a processor changes it */
	__u32 beside; /* another end has answered lately */
	struct bb_auto_end end[BB_AUTO_ENDS];
	struct bb_auto_marker marker[BB_AUTO_MARKERS];
};

#endif /* BB_AUTO_ABI_H */
