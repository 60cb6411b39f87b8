/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_srt.h - SRT (draft-sharabayko-srt): what its header says, and when a packet was
 * first due. No maps, no helpers: compiled into the classifier and, natively, into
 * bpf/tests/srt.rs.
 *
 * The problem:
 *
 * 1. A retransmission is of use until its original's time is over, and says so: bit R,
 *    and the time in us since the connection began. Nothing says when that was.
 * 2. The time wraps after 71 minutes, and a sender that is not this host has a clock of
 *    its own.
 * 3. Nothing in a data packet says "SRT". Its first bit is 0, as in much else.
 *
 * The mechanism:
 *
 * 1. The time of a timestamp of 0 (`base`) is the least of (now - timestamp) over first
 *    sends. All is reckoned modulo 2^32 us, in which both wrap.
 * 2. It falls at once, and rises to the least age of a window, by 1/1024 of the time at
 *    most: more than two clocks drift. Where no packet of a window was within its
 *    lifetime it was wrong, and rises at once.
 * 3. A flow is SRT's if it sent a handshake (bb_srt_handshake), or if its packets were
 *    what SRT's are many times in a row (bb_srt_fits). First sends that are 16 s off
 *    say that it is not, or no more.
 */
#ifndef BB_SRT_H
#define BB_SRT_H

#include "bb_core.h"

#define BB_SRT_HEADER 16 /* bytes */
#define BB_SRT_HANDSHAKE 64 /* with the header */
#define BB_SRT_EXTENDED 80 /* ... and the extension that says the latency */

#define BB_SRT_CONTROL (1U << 31) /* of word 0 */
#define BB_SRT_RESENT (1U << 26) /* of word 1 of a data packet */
#define BB_SRT_KEY (3U << 27) /* of the same: which key encrypts it; no data packet has both */
#define BB_SRT_SEQ 0x7FFFFFFFU
#define BB_SRT_LAST_TYPE 8 /* of control packets: PEER ERROR */
#define BB_SRT_USER_TYPE 0x7FFF
#define BB_SRT_RESPONSE 2 /* extension of a listener's last handshake */

#define BB_SRT_WINDOW_US (1U << 22)
#define BB_SRT_DRIFT 10 /* 2^-10 of the time */
#define BB_SRT_OFF_US (1 << 24)
#define BB_SRT_STRIKES 8

#define BB_SRT_RUN 16 /* packets in a row, and as long: */
#define BB_SRT_RUN_US 100000
#define BB_SRT_JITTER_US 20000

/* bb_flow.srt */
#define BB_SRT_UNKNOWN 0
#define BB_SRT_IS 1
#define BB_SRT_NEVER 2 /* so many packets were not what SRT's are: BB_SRT_MISSES */
#define BB_SRT_MISSES 64

/* What is known of an SRT connection, in the place of its stream's ADUs (bb_srt.bpf.h). */
struct __attribute__((may_alias)) bb_srt {
	__u32 base_us; /* when the timestamp was 0, modulo 2^32 */
	__u32 least_us; /* least age of a first send in this window */
	__u32 window_us; /* when it began, modulo 2^32 */
	__u32 id; /* destination's socket id */
	__u32 seq; /* of the last data packet, while it is not known to be SRT */
	__u16 latency_ms; /* that a listener has granted; 0 = not known */
	__u8 started; /* base is known */
	__u8 run; /* packets in a row that fit */
	__u8 strikes; /* first sends in a row that are far off */
};

/* Modulo 2^32. */
bb_inline __u32 bb_srt_us(__u64 now_ns)
{
	return now_ns / 1000;
}

/* Of a header's words, host order: a control packet of a type that is known? */
bb_inline int bb_srt_is_control(__u32 word)
{
	__u32 type = word >> 16 & 0x7FFF;

	return word & BB_SRT_CONTROL && (type <= BB_SRT_LAST_TYPE || type == BB_SRT_USER_TYPE);
}

/* Is it a handshake? Of the first 64 bytes, host order. */
bb_inline int bb_srt_is_handshake(const __u32 *words)
{
	__u32 version = words[4], mtu = words[7], type = words[9];

	return words[0] == BB_SRT_CONTROL && !words[1] && (version == 4 || version == 5) &&
	       !(words[6] & BB_SRT_CONTROL) && mtu >= 76 && mtu <= 65535 &&
	       (type <= 1 || type >= 0xFFFFFFFD);
}

/*
 * The latency that a handshake of 80 bytes or more has granted its receiver, ms; 0: it
 * grants none. A caller only proposes one.
 */
bb_inline __u16 bb_srt_granted(const __u32 *words)
{
	return words[4] == 5 && words[16] >> 16 == BB_SRT_RESPONSE && (__u16)words[16] >= 3 ?
		       (__u16)words[19] :
		       0;
}

/* Since the time that the timestamp says. Negative: the base was too late. */
bb_inline __s32 bb_srt_age(const struct bb_srt *s, __u32 now_us, __u32 time)
{
	return now_us - s->base_us - time;
}

bb_inline void bb_srt_start(struct bb_srt *s, __u32 now_us, __u32 time)
{
	s->base_us = now_us - time;
	s->least_us = ~0U;
	s->window_us = now_us;
	s->started = 1;
	s->strikes = 0;
}

/* Goes on with what was found of the same connection. */
bb_inline void bb_srt_go_on(struct bb_srt *s, const struct bb_srt *found, __u32 now_us)
{
	if (!s->started)
		bb_srt_start(s, now_us, now_us - found->base_us);
}

/*
 * The age of a first send, us. `lifetime_us`: 0 = none. A stranger's, which is far off,
 * is 0; after so many in a row the flow is not SRT's: s->strikes.
 */
bb_inline __u32 bb_srt_first(struct bb_srt *s, __u32 now_us, __u32 time, __u32 lifetime_us)
{
	__s32 age = bb_srt_age(s, now_us, time);
	__u32 rise, since;

	if (!s->started) {
		bb_srt_start(s, now_us, time);
		return 0;
	}
	if (age > BB_SRT_OFF_US || age < -BB_SRT_OFF_US) {
		if (s->strikes < BB_SRT_STRIKES)
			s->strikes++;
		return 0;
	}
	s->strikes = 0;
	if (age < 0) {
		s->base_us += age;
		age = 0;
	}
	if ((__u32)age < s->least_us)
		s->least_us = age;
	since = now_us - s->window_us;
	if (since < BB_SRT_WINDOW_US)
		return age;
	rise = s->least_us;
	if (!lifetime_us || rise <= lifetime_us) {
		since >>= BB_SRT_DRIFT;
		rise = rise < since ? rise : since;
	}
	s->base_us += rise;
	s->least_us = ~0U;
	s->window_us = now_us;
	return age - rise;
}

/* The age of a retransmission's original. */
bb_inline __u32 bb_srt_again(const struct bb_srt *s, __u32 now_us, __u32 time)
{
	__s32 age = bb_srt_age(s, now_us, time);

	return s->started && age > 0 ? age : 0;
}

/*
 * Is the flow SRT's? Asked of each packet while it is not known. `words`: its header.
 * 1: yes. 0: perhaps. -1: this packet does not go on with what the last one began.
 *
 * All packets have one destination id, data packets count up by one, and their times
 * pass about as fast as time does.
 */
bb_inline int bb_srt_fits(struct bb_srt *s, const __u32 *words, __u32 now_us)
{
	int data = !(words[0] & BB_SRT_CONTROL);
	__u32 since;
	__s32 age;

	if (!words[3] || (data ? (words[1] & BB_SRT_KEY) == BB_SRT_KEY :
				 !bb_srt_is_control(words[0]) || words[0] & 0xFFFF)) {
		s->run = 0;
		return -1;
	}
	age = bb_srt_age(s, now_us, words[2]);
	since = now_us - s->window_us;
	if (!s->run || s->id != words[3]) {
		if (data && words[1] & BB_SRT_RESENT)
			return -1;
		goto again;
	}
	if (data && words[1] & BB_SRT_RESENT)
		return 0;
	if (age > (__s32)(since / 2 + BB_SRT_JITTER_US) ||
	    age < -(__s32)(since / 2 + BB_SRT_JITTER_US))
		goto again;
	if (data) {
		if (s->seq != ~0U && words[0] != ((s->seq + 1) & BB_SRT_SEQ))
			goto again;
		s->seq = words[0];
	}
	if (s->run < BB_SRT_RUN)
		s->run++;
	return s->run == BB_SRT_RUN && since >= BB_SRT_RUN_US;
again:
	bb_srt_start(s, now_us, words[2]);
	s->id = words[3];
	s->seq = data ? words[0] : ~0U;
	s->run = 1;
	return -1;
}

#endif /* BB_SRT_H */
