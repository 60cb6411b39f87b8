/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_real_abi.h - TCP-Real: what its programs share with each other and with the
 * agent. A part of the ABI (bb_abi.h, which includes it and has the rules). These
 * maps are pinned apart from the others and exist while TCP-Real is switched on.
 */
#ifndef BB_REAL_ABI_H
#define BB_REAL_ABI_H

#include <linux/types.h>

/* Name of the congestion control (TCP_CONGESTION). */
#define BB_REAL_NAME "bestby_real"

/* What a sender makes of what the receiver measured. */
enum bb_real_mode {
	BB_REAL_OFF = 0, /* switched off: connections that are left go on as Reno */
	BB_REAL_GUARDED = 1,
	BB_REAL_PAPER = 2,
};

#define BB_REAL_MAX_LEVEL 127 /* what the option's seven bits hold */
#define BB_REAL_DEFAULT_LEVEL 24 /* the paper's */

struct bb_real_config {
	__u32 mode; /* enum bb_real_mode */
	__u32 max_level; /* 1 to BB_REAL_MAX_LEVEL; level i stands for 2 i segments */
};

/* Why a connection is plain TCP. */
enum bb_real_why {
	BB_REAL_SPEAKS = 0, /* it is not */
	BB_REAL_NO_ANSWER = 1, /* the other end's SYN or SYN-ACK had no option */
	BB_REAL_RETRIED = 2, /* our SYN was sent again, without the option */
	BB_REAL_SILENT = 3, /* the other end stopped: its options no longer arrive */
	BB_REAL_LATE = 4, /* older than TCP-Real, or outside its cgroup: no option was offered */
};

/* Counters: indices of bb_real_counts. */
enum bb_real_count {
	BB_REAL_C_NEGOTIATED = 0, /* connections that speak it */
	BB_REAL_C_NO_ANSWER = 1,
	BB_REAL_C_RETRIED = 2,
	BB_REAL_C_SILENT = 3,
	BB_REAL_C_MALFORMED = 4, /* options of our kind with another length or impossible content */
	BB_REAL_C_NO_ROOM = 5, /* segments without room for the option */
	BB_REAL_C_MEASURED = 6, /* waves that gave a rate */
	BB_REAL_C_UNMEASURED = 7, /* waves that gave none: too short, or arrived at once */
	BB_REAL_C_TIMERS = 8, /* of those measured: the decision timer ended them */
	BB_REAL_C_CANCELLED = 9, /* reductions of a window that were cancelled */
	BB_REAL_C_REDUCED = 10, /* reductions left to Reno by the guards */
	BB_REAL_C_PLAIN = 11, /* reductions of connections without a receiver's rate: Reno's */
	BB_REAL_C_RESTORED = 12, /* timeouts after which the window was kept */
	BB_REAL_C_COLLAPSED = 13, /* timeouts after which it was not */
	BB_REAL_COUNTS = 14,
};

/* The receiver's side of a connection: the wave that arrives. */
struct bb_real_rx {
	__u64 first_ns; /* arrival of the wave's first new segment; 0: none came yet */
	__u64 last_ns; /* of its last one so far */
	__u32 first_end; /* sequence number behind the first one */
	__u32 end; /* behind all that arrived, of all waves */
	__u32 rate; /* bytes/s of the wave that was measured last; 0: none was */
	__u32 level; /* next level, in 1/65536; 0: nothing was decided yet */
	__u32 threshold; /* wave_level_threshold, in 1/65536 */
	__u8 wave; /* number of the wave that arrives */
	__u8 size; /* its level, as the sender says */
	__u8 flags; /* BB_REAL_RX_* */
	__u8 unmeasured; /* waves since one was measured */
};

#define BB_REAL_RX_BEGUN 1 /* a wave has arrived at all */
#define BB_REAL_RX_DECIDED 2 /* nothing more is to be learnt from this one */

/* The sender's side: the wave that leaves. */
struct bb_real_tx {
	__u64 last_ns; /* its last segment left */
	__u32 sent; /* segments */
	__u32 size; /* segments it is to have */
	__u8 wave;
	__u8 restart; /* after a timeout: the next segment begins a wave */
	__u8 pad[6];
};

/* A connection (sk_storage bb_real_conns). Under the socket's lock, but for rx. */
struct bb_real_conn {
	struct bb_real_rx rx;
	struct bb_real_tx tx;
	__u32 acks; /* segments from the other end since its last option */
	__u32 unheard; /* segments with data or a new acknowledgement, sent since then */
	__u32 rtt_us; /* last sample */
	__u32 cancelled; /* reductions cancelled */
	__u16 tcx; /* 256 + the wave that tcx ingress saw last; 0: none */
	__u8 why; /* enum bb_real_why */
	__u8 cc; /* 1: its congestion control is bestby_real */
	__u8 told_level; /* by the other end: next level; 0: nothing yet */
	__u8 told_rate; /* and the receiving rate, as coded in the option */
	__u8 fresh; /* 1: told since the window was set last */
	__u8 dupack; /* the paper's bit: a duplicate acknowledgement came since data were acknowledged */
	__u8 slow; /* after a timeout without it: slow start until told again */
	__u8 kept; /* the last reduction was cancelled */
	__u8 congested; /* the last acknowledgement had ECE */
	__u8 probing; /* a tail loss probe was out when it came */
	__u32 acknowledged; /* acknowledgement number sent last, as on the wire */
};

/* One connection as the agent reads it (bb_real_list). */
struct bb_real_record {
	__u8 local[16];
	__u8 remote[16];
	__u16 local_port;
	__u16 remote_port;
	__u32 cwnd; /* segments */
	__u32 mss;
	__u32 srtt_us;
	__u32 min_rtt_us; /* the kernel's: of five minutes */
	__u32 pad;
	__u64 cookie; /* of the socket: several processes may hold it */
	struct bb_real_conn conn;
};

#endif /* BB_REAL_ABI_H */
