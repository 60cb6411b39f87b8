/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_core.h - the arithmetic of deadlines, marks and rates. No maps, no
 * helpers, no kernel types: compiled into the BPF programs and, natively, into
 * the property tests (bpf/tests/core.rs).
 *
 * Times are ns of CLOCK_MONOTONIC in __u64; a kernel's uptime keeps them far
 * below 2^63, so signed differences are exact. A deadline of 0 means "none".
 */
#ifndef BB_CORE_H
#define BB_CORE_H

#include "bb_abi.h"

#define bb_inline static inline __attribute__((always_inline, unused))

/* A function that the verifier follows once, whatever is known of its arguments where it is called. */
#ifdef __bpf__
#define bb_apart __attribute__((noinline))
#else
#define bb_apart static __attribute__((noinline, unused))
#endif

#define BB_NSEC_PER_SEC 1000000000ULL

/* Longest time a packet's pacing may be owed: bounds the effect of a rate of 1 byte/s. */
#define BB_PACE_MAX_NS (60ULL * BB_NSEC_PER_SEC)

/* A sender that was idle, or woken late, may catch up at most this much. */
#define BB_PACE_CREDIT_NS 1000000ULL

/* ---- the mark (docs/metadata.md) ---- */

bb_inline __u32 bb_mark_time(__u32 mark)
{
	return mark & BB_MARK_TIME_MASK;
}

bb_inline __u8 bb_mark_priority(__u32 mark)
{
	return (mark >> BB_MARK_PRIORITY_SHIFT) & 7;
}

bb_inline __u8 bb_mark_treatment(__u32 mark)
{
	return (mark >> BB_MARK_TREATMENT_SHIFT) & 3;
}

bb_inline __u8 bb_mark_adu(__u32 mark)
{
	return (mark >> BB_MARK_ADU_SHIFT) & 7;
}

/*
 * Deadline of a mark seen at now_ns, 0 = none. Relative: now + lifetime.
 * Absolute: the one time congruent to the field modulo 2^19 units that lies
 * nearest to now, from now - 65.536 s to now + 65.53575 s.
 */
bb_inline __u64 bb_mark_deadline(__u32 mark, __u64 now_ns)
{
	__u32 time = bb_mark_time(mark);
	__u64 now_units, deadline;
	__s32 ahead;

	if (!time)
		return 0;
	if (mark & BB_MARK_RELATIVE)
		return now_ns + time * BB_MARK_UNIT_NS;

	now_units = now_ns / BB_MARK_UNIT_NS;
	/* Signed distance on the 19-bit circle: shift the sign bit to bit 31 and back. */
	ahead = (__s32)((time - (__u32)now_units) << 13) >> 13;
	if (ahead < 0 && (__u64) - (__s64)ahead > now_units)
		return 1; /* before the clock's zero: long past, but not "none" */
	deadline = (now_units + ahead) * BB_MARK_UNIT_NS;
	return deadline ? deadline : 1;
}

/* ---- LPD's option (bb_option.bpf.h) ---- */

#define BB_OPTION_LENGTH 8
#define BB_OPTION4_NUMBER 0x1F /* of an IPv4 type: the rest is copied bit and class */

/* The flags, most significant bit first: */
#define BB_OPTION_TOLERATES 0x80 /* a corrupted payload is better than none */
#define BB_OPTION_CORRUPTED 0x40 /* a link knows that the payload is */
#define BB_OPTION_TREATMENT 0x30
#define BB_OPTION_TREATMENT_SHIFT 4 /* 2 bits: 00 forward, 01 discard, 10 truncate */
#define BB_OPTION_SLOW 0x08 /* of a flow that is slow to respond */

/* Lifetimes up to this are relative; above, ms since midnight UT and this. */
#define BB_OPTION_RELATIVE_MS 65535U
#define BB_DAY_MS 86400000U
#define BB_NSEC_PER_MSEC 1000000ULL

/* A treatment of 11, which nothing defines, is BB_TREAT_DEFAULT. */
bb_inline __u8 bb_option_treatment(__u8 flags)
{
	__u8 bits = (flags >> BB_OPTION_TREATMENT_SHIFT) & 3;

	return bits == 3 ? BB_TREAT_DEFAULT : BB_TREAT_FORWARD + bits;
}

/* The bits of a treatment; what says nothing is discarded (docs/metadata.md). */
bb_inline __u8 bb_option_bits(__u8 treatment)
{
	if (treatment == BB_TREAT_DEFAULT)
		treatment = BB_TREAT_DISCARD;
	return (treatment - BB_TREAT_FORWARD) << BB_OPTION_TREATMENT_SHIFT;
}

/* Is it an absolute deadline that a day has? */
bb_inline int bb_option_is_time(__u32 lifetime)
{
	return lifetime > BB_OPTION_RELATIVE_MS && lifetime < BB_OPTION_RELATIVE_MS + BB_DAY_MS;
}

/* ns from now until an absolute deadline, the one nearest to now: half a day away at most. */
bb_inline __s64 bb_option_until(__u32 lifetime, __u64 utc_ns)
{
	__u32 since = utc_ns / BB_NSEC_PER_MSEC % BB_DAY_MS, half = BB_DAY_MS / 2;
	__u32 until = lifetime - BB_OPTION_RELATIVE_MS;
	__s64 ahead = (__s64)until - since;

	if (until >= since + half)
		ahead -= BB_DAY_MS;
	else if (since > until + half)
		ahead += BB_DAY_MS;
	return ahead * (__s64)BB_NSEC_PER_MSEC - (__s64)(utc_ns % BB_NSEC_PER_MSEC);
}

/* The absolute deadline that is this time; midnight, which would be a lifetime, is 1 ms later. */
bb_inline __u32 bb_option_time(__u64 utc_ns)
{
	__u32 since = utc_ns / BB_NSEC_PER_MSEC % BB_DAY_MS;

	return BB_OPTION_RELATIVE_MS + (since ? since : 1);
}

/* The Internet checksum's sum (RFC 1071) in 16 bits, not complemented. */
bb_inline __u16 bb_fold(__u64 sum)
{
	sum = (sum & 0xFFFFFFFF) + (sum >> 32);
	sum = (sum & 0xFFFF) + (sum >> 16);
	sum = (sum & 0xFFFF) + (sum >> 16);
	return (sum & 0xFFFF) + (sum >> 16);
}

/* ---- send buffers ---- */

/* How far a send buffer is raised, as the kernel counts: twice of what SO_SNDBUF asks for. */
bb_inline __u32 bb_buffer_goal(__u64 need, __u32 wmem_max)
{
	__u64 most = 2ULL * wmem_max < BB_BUFFER_MOST ? 2ULL * wmem_max : BB_BUFFER_MOST;

	return need < most ? need : most;
}

/* ---- explicit deadlines of another clock ---- */

#define BB_UNTIMELY_NS BB_NSEC_PER_SEC
#define BB_UNTIMELY_SHIFT 27 /* of time in *since, whose 0 says that there was none */

/*
 * Does an explicit deadline count? An application in a time namespace names a time of
 * another clock. Then all that it sends would be stale for ever, or nothing. So a deadline
 * is none if it is further away than any lifetime, and if all explicit deadlines of its
 * flow have been past by more than BB_UNTIMELY_NS for as long. *since is when the first of
 * those was seen; it wraps after 2.4 hours, and a flow that comes back then may have its
 * first second again.
 */
bb_inline int bb_believe(__u16 *since, __u64 deadline, __u64 now)
{
	__u16 here = now >> BB_UNTIMELY_SHIFT;
	__s64 ahead = deadline - now;

	if (ahead > (__s64)BB_LIFETIME_MAX_NS || ahead < -(__s64)BB_LIFETIME_MAX_NS)
		return 0;
	if (ahead >= -(__s64)BB_UNTIMELY_NS) {
		if (*since)
			*since = 0;
		return 1;
	}
	if (!*since) {
		*since = here ? here : 1;
		return 1;
	}
	/* Both were rounded down. */
	return (__u16)(here - *since) <= (BB_UNTIMELY_NS >> BB_UNTIMELY_SHIFT) + 1;
}

/* ---- staleness ---- */

/* now + owd > deadline, without overflow for any owd. */
bb_inline int bb_stale(__u64 now_ns, __u64 owd_ns, __u64 deadline_ns)
{
	if (!deadline_ns)
		return 0;
	return now_ns > deadline_ns || owd_ns > deadline_ns - now_ns;
}

/* now + owd - deadline: positive = late by that much. */
bb_inline __s64 bb_lateness(__u64 now_ns, __u64 owd_ns, __u64 deadline_ns)
{
	return (__s64)(now_ns + owd_ns - deadline_ns);
}

/* Last moment at which sending is still of use; 0 = no deadline. At least 1. */
bb_inline __u64 bb_latest_departure(__u64 owd_ns, __u64 deadline_ns)
{
	if (!deadline_ns)
		return 0;
	return deadline_ns > owd_ns ? deadline_ns - owd_ns : 1;
}

/* ---- rates ---- */

/* ns that `bytes` occupy a link of `rate` bytes/s (rounded up); 0 for an unknown rate. */
bb_inline __u64 bb_tx_time(__u64 bytes, __u64 rate)
{
	__u64 ns;

	if (!rate)
		return 0;
	/* bytes < 2^34 keeps the product below 2^64; a queue holds less (limit_bytes). */
	if (bytes > (1ULL << 34))
		return BB_PACE_MAX_NS;
	ns = (bytes * BB_NSEC_PER_SEC + rate - 1) / rate;
	return ns < BB_PACE_MAX_NS ? ns : BB_PACE_MAX_NS;
}

/*
 * When the next packet may start after one of `bytes` started at now_ns, given
 * that this one was allowed from next_ns on. Being late by less than the
 * credit is made up for, idle time is not saved.
 */
bb_inline __u64 bb_pace(__u64 next_ns, __u64 now_ns, __u64 bytes, __u64 rate)
{
	__u64 base = next_ns;

	if (base + BB_PACE_CREDIT_NS < now_ns)
		base = now_ns - BB_PACE_CREDIT_NS;
	return base + bb_tx_time(bytes, rate);
}

/*
 * What is left of `held` when `by` leaves. A counter that wrapped below zero would stand
 * above every limit for ever, and refuse the packets of all.
 */
bb_inline __u64 bb_less(__u64 held, __u64 by)
{
	return held > by ? held - by : 0;
}

/* A packet of `len` bytes leaves. The last one takes the bytes along: no error outlives it. */
bb_inline void bb_take_out(__u32 *packets, __u64 *bytes, __u32 len)
{
	*packets = bb_less(*packets, 1);
	*bytes = *packets ? bb_less(*bytes, len) : 0;
}

/* Bytes a packet costs on the link: overhead once per segment of a GSO packet. */
bb_inline __u32 bb_wire_bytes(__u32 len, __u32 segments, __u32 overhead)
{
	return len + overhead * (segments ? segments : 1);
}

/* ---- the control block ---- */

#define BB_CB_DEADLINE_BITS 56

/* The words of struct bb_cb: two of 64 bits, and bb_cb.adu. */
/* The role of a packet's frame (bb_role.h) in the bits that class_ leaves: 3, 6 and 7. */
#define bb_cb_role(role_) (((role_) & 1) << 3 | ((role_) & 6) << 5)
#define bb_cb_role_of(class_) ((class_) >> 3 & 1 | (class_) >> 5 & 6)

#define bb_cb_first(rule_, session_, class_, flags_)                    \
	((__u64)(__u16)(rule_) << 16 | (__u64)(__u16)(session_) << 32 | \
	 (__u64)(__u8)(class_) << 48 | (__u64)(__u8)(flags_) << 56)
#define bb_cb_second(deadline_, rtp_) \
	(((deadline_) & ((1ULL << BB_CB_DEADLINE_BITS) - 1)) | (__u64)(rtp_) << BB_CB_DEADLINE_BITS)

/* What the block of a packet with these words and its twin's have in common. */
#define bb_cb_pair(second_, adu_) ((__u32)(second_) ^ (__u32)(adu_))

/*
 * What the lowest 16 bits of the first word must be. A multiplication lies between any
 * two words, so that what overwrites some of them fits by chance only: one in 65,536.
 */
bb_inline __u16 bb_cb_check(__u64 first, __u64 second, __u32 adu)
{
	const __u64 factor = 0x9E3779B97F4A7C15ULL;
	__u64 x = first >> 16;

	x = x * factor ^ second;
	x = x * factor ^ adu;
	return x * factor >> 48 ^ BB_CB_MAGIC;
}

/* The one time whose lowest 56 bits are the second word's that lies nearest to now: within 416 days. */
bb_inline __u64 bb_cb_deadline(__u64 second, __u64 now_ns)
{
	__s64 ahead = (__s64)((second - now_ns) << (64 - BB_CB_DEADLINE_BITS)) >>
		      (64 - BB_CB_DEADLINE_BITS);

	return now_ns + ahead;
}

/* ---- hashing ---- */

/* For names (ids of ADUs), not for tables: anybody can find two inputs of one output. */
bb_inline __u32 bb_mix(__u32 hash, __u32 word)
{
	hash ^= word;
	hash *= 0x9E3779B1U;
	return hash ^ (hash >> 15);
}

/*
 * The SO_PRIORITY that the kernel gives an IPv4 socket, or a packet that it forwards,
 * for its TOS (rt_tos2priority): bulk, interactive or both, by bits 3 and 4.
 */
bb_inline __u32 bb_dscp_so_priority(__u8 dscp)
{
	return 0x4620 >> (dscp & 6) * 2 & 15;
}

typedef __u64 __attribute__((may_alias)) bb_hash_word;

/* An address of 16 bytes as two words: clang copies it by the byte, as it knows no alignment. */
bb_inline void bb_copy_address(void *to, const void *from)
{
	((bb_hash_word *)to)[0] = ((const bb_hash_word *)from)[0];
	((bb_hash_word *)to)[1] = ((const bb_hash_word *)from)[1];
}

/* Where bb_known tells whether anything may be known of an address. Nothing depends on it but time. */
bb_inline __u32 bb_known_index(const void *addr)
{
	const bb_hash_word *word = addr;

	return (word[0] + word[1]) * 0x9E3779B97F4A7C15ULL >> (64 - BB_KNOWN_BITS);
}

/* In such units, 2^20 ns, a flow remembers a deadline. */
#define BB_DUE_SHIFT 20

/*
 * The deadline of a TCP segment: not before that of an earlier one of its flow. TCP takes a segment
 * that others overtake for a lost one, and retransmission timeouts fall faster than time passes.
 * *due is the latest so far, rounded up. It wraps after 52 days: what is farther ahead than any
 * lifetime reaches is of long ago.
 */
bb_inline __u64 bb_in_order(__u32 *due, __u64 deadline)
{
	__u64 own = (deadline >> BB_DUE_SHIFT) + 1;
	__u32 ahead = *due - (__u32)own;

	if (*due && ahead <= BB_LIFETIME_MAX_NS >> BB_DUE_SHIFT)
		return (own + ahead) << BB_DUE_SHIFT;
	*due = own;
	return deadline;
}

/* From `now` until the latest deadline, for a segment that has none; 0 = that is over. */
bb_inline __u64 bb_behind_all(__u32 due, __u64 now)
{
	__u64 own = now >> BB_DUE_SHIFT;
	__u32 ahead = due - (__u32)own;

	if (!due || !ahead || ahead > BB_LIFETIME_MAX_NS >> BB_DUE_SHIFT)
		return 0;
	/* Less than rounded up, so that bb_in_order makes it the same. */
	return ((own + ahead) << BB_DUE_SHIFT) - 1 - now;
}

/*
 * Hash of a key of whole 64-bit words, for tables whose keys others choose: who
 * does not know the seed (bb_config.seed) cannot choose keys that meet. Each word
 * is multiplied as it is and with its bytes turned round, by two secret odd
 * numbers. A multiplication alone would not do: a difference in the topmost bit
 * stays there, whatever the factor, so that the next word could cancel it.
 */
bb_inline __u64 bb_hash_key(const void *key, __u32 words, __u64 seed)
{
	__u64 a = (seed ^ 0x9E3779B97F4A7C15ULL) | 1;
	__u64 b = ((seed >> 29 | seed << 35) ^ 0xC2B2AE3D27D4EB4FULL) | 1;
	const bb_hash_word *word = key;
	__u64 hash = seed;

#pragma GCC unroll 8
	for (__u32 i = 0; i < words; i++) {
		hash ^= word[i];
		hash = hash * a ^ __builtin_bswap64(hash) * b;
	}
	hash ^= hash >> 32;
	hash *= a;
	return hash ^ hash >> 29;
}

#endif /* BB_CORE_H */
