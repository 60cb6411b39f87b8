/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * bestby.h - per-packet deadlines and priorities for UDP sockets, in C99 and
 * C++11; the same encoding as the Rust crate `bestby`. No library to link.
 *
 *	struct bestby_metadata frame = BESTBY_METADATA_INIT;
 *
 *	frame.deadline_ns = bestby_now_ns() + 200 * 1000000ULL;
 *	frame.priority = 4;
 *	frame.adu = adu = bestby_adu_next(adu);
 *	bestby_send_mark(fd, data, len, 0, NULL, 0, BESTBY_MAGIC, &frame);
 *
 * Times are ns of CLOCK_MONOTONIC. Functions return -1 and set errno on
 * failure. On a host without bestby packets are sent as usual (see the note
 * at bestby_txtime_enable()).
 *
 * The encoding needs nothing of the system; the socket part is left out where
 * <time.h> has no CLOCK_MONOTONIC (cc -std=c99 without _POSIX_C_SOURCE).
 */
#ifndef BESTBY_H
#define BESTBY_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what an application says about a packet ---- */

#define BESTBY_PRIORITY_FIRST 0 /* sent first, given up last */
#define BESTBY_PRIORITY_DEFAULT 3
#define BESTBY_PRIORITY_LAST 7
#define BESTBY_PRIORITY_UNSET 255

/* What happens to a stale packet. */
#define BESTBY_TREAT_UNSET 0 /* the socket or the operator decides; else it is discarded */
#define BESTBY_TREAT_FORWARD 1
#define BESTBY_TREAT_DISCARD 2
#define BESTBY_TREAT_TRUNCATE 3 /* only its headers go */

struct bestby_metadata {
	uint64_t deadline_ns; /* of no use at the receiver after it; 0 = none */
	uint64_t lifetime_ns; /* instead of a deadline: counted from sending; 0 = none */
	uint8_t priority; /* 0 .. 7, or BESTBY_PRIORITY_UNSET */
	uint8_t treatment; /* BESTBY_TREAT_* */
	uint8_t adu; /* 1 .. 7: packets of one ADU share their fate; 0 = none */
};

/* Nothing said. An all-zero struct would say priority 0. */
#define BESTBY_METADATA_INIT                                        \
	{                                                           \
		0, 0, BESTBY_PRIORITY_UNSET, BESTBY_TREAT_UNSET, 0, \
	}

/* The ADU id after `id`: 1 .. 7, then 1 again. Start with 0. */
static inline uint8_t bestby_adu_next(uint8_t id)
{
	return (uint8_t)(id % 7 + 1);
}

/* ---- the mark: 32 bits for SO_MARK, least significant first ---- */

#define BESTBY_MARK_TIME_BITS 19 /* units of BESTBY_MARK_UNIT_NS; 0 = no deadline */
#define BESTBY_MARK_TIME_MASK 0x7ffffU
#define BESTBY_MARK_UNIT_NS 250000ULL
#define BESTBY_MARK_RELATIVE (1U << 19) /* time is a lifetime; else a deadline mod 2^19 units */
#define BESTBY_MARK_PRIORITY_SHIFT 20
#define BESTBY_MARK_TREATMENT_SHIFT 23
#define BESTBY_MARK_ADU_SHIFT 25

/* The agent's defaults: `mark & BESTBY_MAGIC_MASK == BESTBY_MAGIC`. */
#define BESTBY_MAGIC 0xB0000000U
#define BESTBY_MAGIC_MASK 0xF0000000U

#define BESTBY_LIFETIME_MAX_NS 131000000000ULL
#define BESTBY_AHEAD_MAX_NS 65000000000ULL /* of a deadline, in a mark */
#define BESTBY_PAST_MAX_NS 30000000000ULL /* an older deadline is encoded as this old */

/*
 * The mark for a packet sent at now_ns. A deadline is rounded down; so is a
 * lifetime, but never to 0. magic: BESTBY_MAGIC, or the agent's setting in the
 * bits 28 .. 31. Without a priority it says 3: a mark always has one.
 *
 * EINVAL: priority, treatment, adu or magic out of range, or both a deadline
 * and a lifetime. ERANGE: deadline more than 65 s ahead, lifetime above 131 s.
 */
static inline int bestby_mark_encode(const struct bestby_metadata *metadata, uint64_t now_ns,
				     uint32_t magic, uint32_t *mark)
{
	uint32_t priority = metadata->priority;
	uint32_t time = 0;

	if (priority == BESTBY_PRIORITY_UNSET)
		priority = BESTBY_PRIORITY_DEFAULT;
	if (priority > 7 || metadata->treatment > BESTBY_TREAT_TRUNCATE || metadata->adu > 7 ||
	    (magic & ~BESTBY_MAGIC_MASK) || (metadata->deadline_ns && metadata->lifetime_ns)) {
		errno = EINVAL;
		return -1;
	}

	if (metadata->lifetime_ns) {
		if (metadata->lifetime_ns > BESTBY_LIFETIME_MAX_NS) {
			errno = ERANGE;
			return -1;
		}
		/* At most 524,000 units. */
		time = (uint32_t)(metadata->lifetime_ns / BESTBY_MARK_UNIT_NS);
		time = (time ? time : 1) | BESTBY_MARK_RELATIVE;
	} else if (metadata->deadline_ns) {
		uint64_t deadline_ns = metadata->deadline_ns;

		if (deadline_ns > now_ns && deadline_ns - now_ns > BESTBY_AHEAD_MAX_NS) {
			errno = ERANGE;
			return -1;
		}
		/* Stale either way, and it cannot wrap into the future. */
		if (now_ns > BESTBY_PAST_MAX_NS && deadline_ns < now_ns - BESTBY_PAST_MAX_NS)
			deadline_ns = now_ns - BESTBY_PAST_MAX_NS;
		time = (uint32_t)(deadline_ns / BESTBY_MARK_UNIT_NS) & BESTBY_MARK_TIME_MASK;
		/* 0 means "none": one unit earlier. */
		if (!time)
			time = BESTBY_MARK_TIME_MASK;
	}

	*mark = magic | time | priority << BESTBY_MARK_PRIORITY_SHIFT |
		(uint32_t)metadata->treatment << BESTBY_MARK_TREATMENT_SHIFT |
		(uint32_t)metadata->adu << BESTBY_MARK_ADU_SHIFT;
	return 0;
}

/*
 * Deadline that the data path reads from a mark at now_ns; 0 = none. Does not
 * look at the magic. An absolute one is the nearest to now_ns (-65.536 s to
 * +65.53575 s); before the clock's zero it is 1.
 */
static inline uint64_t bestby_mark_deadline(uint32_t mark, uint64_t now_ns)
{
	const uint64_t circle = 1ULL << BESTBY_MARK_TIME_BITS;
	uint64_t time = mark & BESTBY_MARK_TIME_MASK;
	uint64_t now_units = now_ns / BESTBY_MARK_UNIT_NS;
	uint64_t ahead;

	if (!time)
		return 0;
	if (mark & BESTBY_MARK_RELATIVE)
		return now_ns + time * BESTBY_MARK_UNIT_NS;

	ahead = (time - now_units) & (circle - 1);
	if (ahead < circle / 2)
		return (now_units + ahead) * BESTBY_MARK_UNIT_NS;
	if (circle - ahead >= now_units)
		return 1;
	return (now_units - (circle - ahead)) * BESTBY_MARK_UNIT_NS;
}

/* ---- socket options, level BESTBY_SOL; no privilege ---- */

#define BESTBY_SOL 0x4242
#define BESTBY_SO_LIFETIME 1 /* uint64_t ns; 0 clears */
#define BESTBY_SO_PRIORITY 2 /* uint32_t 0 .. 7 */
#define BESTBY_SO_TREATMENT 3 /* uint32_t BESTBY_TREAT_FORWARD, _DISCARD or _TRUNCATE */
#define BESTBY_SO_PEER 4 /* struct bestby_peer */
#define BESTBY_SO_STATS 5 /* getsockopt only: struct bestby_counters */

/* What is known of the way to one destination. */
struct bestby_peer {
	uint8_t addr[16]; /* network order; IPv4 as ::ffff:a.b.c.d */
	uint64_t owd_ns; /* one-way delay; 0: half of the measured RTT */
	uint64_t rate; /* bytes per second; 0: not known */
};

/* Indices of dropped[] and would_drop[]. */
#define BESTBY_DROP_STALE 0
#define BESTBY_DROP_ADU 1
#define BESTBY_DROP_OVERFLOW 2
#define BESTBY_DROP_EVICTED 3
#define BESTBY_DROP_PREDICTED 4
#define BESTBY_DROP_CODEL 5
#define BESTBY_DROP_REASONS 6

/* packets_in = packets_sent + all of dropped[] + chain + queued. */
struct bestby_counters {
	uint64_t packets_in;
	uint64_t bytes_in;
	uint64_t packets_sent;
	uint64_t bytes_sent;
	uint64_t queued;
	uint64_t dropped[BESTBY_DROP_REASONS];
	uint64_t sent_stale;
	uint64_t would_drop[BESTBY_DROP_REASONS]; /* observe mode */
	uint64_t truncated; /* of packets_sent: only their headers were */
	/* Of frames that need another one that was given up; ... observe mode. 0 from an earlier bestby. */
	uint64_t chain;
	uint64_t would_chain;
};

/*
 * All of them: ENOPROTOOPT (EOPNOTSUPP from a unix socket) where bestby is not
 * active: go on without. EINVAL: out of range.
 */
static inline int bestby_set_lifetime(int fd, uint64_t lifetime_ns)
{
	return setsockopt(fd, BESTBY_SOL, BESTBY_SO_LIFETIME, &lifetime_ns, sizeof(lifetime_ns));
}

static inline int bestby_set_priority(int fd, uint32_t priority)
{
	return setsockopt(fd, BESTBY_SOL, BESTBY_SO_PRIORITY, &priority, sizeof(priority));
}

static inline int bestby_set_treatment(int fd, uint32_t treatment)
{
	return setsockopt(fd, BESTBY_SOL, BESTBY_SO_TREATMENT, &treatment, sizeof(treatment));
}

static inline int bestby_set_peer(int fd, const struct bestby_peer *peer)
{
	return setsockopt(fd, BESTBY_SOL, BESTBY_SO_PEER, peer, sizeof(*peer));
}

static inline int bestby_get_stats(int fd, struct bestby_counters *counters)
{
	socklen_t len = sizeof(*counters);

	/* An earlier bestby has fewer of them. */
	memset(counters, 0, sizeof(*counters));
	return getsockopt(fd, BESTBY_SOL, BESTBY_SO_STATS, counters, &len);
}

#if defined(CLOCK_MONOTONIC) && defined(CMSG_SPACE)

/* ---- sending ---- */

/* Values of all architectures that use asm-generic; the others' headers define them. */
#ifndef SO_MARK
#define SO_MARK 36
#endif
#ifndef SO_PRIORITY
#define SO_PRIORITY 12
#endif
#ifndef SO_TXTIME
#define SO_TXTIME 61
#endif

static inline uint64_t bestby_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

/* Room for the control messages of one packet; a union for the alignment. */
union bestby_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(uint64_t)) + CMSG_SPACE(sizeof(uint32_t))];
};

/*
 * Writes one SOL_SOCKET control message at offset `at`; returns the offset
 * after it, for msg_controllen. For programs with their own sendmmsg().
 */
static inline size_t bestby_control_put(union bestby_control *control, size_t at, int type,
					const void *value, size_t size)
{
	struct cmsghdr header;

	memset(&header, 0, sizeof(header));
	header.cmsg_len = CMSG_LEN(size);
	header.cmsg_level = SOL_SOCKET;
	header.cmsg_type = type;
	memset(control->bytes + at, 0, CMSG_SPACE(size));
	memcpy(control->bytes + at, &header, sizeof(header));
	memcpy(control->bytes + at + CMSG_LEN(0), value, size);
	return at + CMSG_SPACE(size);
}

static inline ssize_t bestby_sendmsg(int fd, const void *data, size_t len, int flags,
				     const struct sockaddr *to, socklen_t to_len,
				     union bestby_control *control, size_t control_len)
{
	struct iovec iov;
	struct msghdr msg;

	/* sendmsg() only reads data and address; its structs just do not say so. */
	memset(&msg, 0, sizeof(msg));
	memcpy(&iov.iov_base, &data, sizeof(data));
	iov.iov_len = len;
	memcpy(&msg.msg_name, &to, sizeof(to));
	msg.msg_namelen = to ? to_len : 0;
	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	msg.msg_control = control_len ? control->bytes : NULL;
	msg.msg_controllen = control_len;
	return sendmsg(fd, &msg, flags);
}

/*
 * Sends one datagram in the mark form. to: NULL for a connected socket.
 * magic: BESTBY_MAGIC, or the agent's setting. Metadata that says nothing
 * sends no mark. EPERM: neither CAP_NET_RAW nor CAP_NET_ADMIN (the latter
 * before Linux 5.17), or a firewall; else as bestby_mark_encode() and sendmsg().
 */
static inline ssize_t bestby_send_mark(int fd, const void *data, size_t len, int flags,
				       const struct sockaddr *to, socklen_t to_len, uint32_t magic,
				       const struct bestby_metadata *metadata)
{
	union bestby_control control;
	size_t control_len = 0;
	uint32_t mark;

	if (metadata->deadline_ns || metadata->lifetime_ns || metadata->treatment ||
	    metadata->adu || metadata->priority != BESTBY_PRIORITY_UNSET) {
		if (bestby_mark_encode(metadata, bestby_now_ns(), magic, &mark))
			return -1;
		control_len = bestby_control_put(&control, 0, SO_MARK, &mark, sizeof(mark));
	}
	return bestby_sendmsg(fd, data, len, flags, to, to_len, &control, control_len);
}

/*
 * Turns the SO_TXTIME form on: deadlines in ns, no privilege. Only for
 * interfaces that bestby is attached to: elsewhere a plain fq qdisc *holds*
 * such packets until their deadline. report_errors: nonzero asks for
 * SO_EE_ORIGIN_TXTIME entries in the error queue (only etf makes them).
 */
static inline int bestby_txtime_enable(int fd, int report_errors)
{
	/* struct sock_txtime of linux/net_tstamp.h */
	struct {
		int32_t clockid;
		uint32_t flags;
	} value;

	value.clockid = (int32_t)CLOCK_MONOTONIC;
	value.flags = report_errors ? 3U : 1U; /* deadline mode, report errors */
	return setsockopt(fd, SOL_SOCKET, SO_TXTIME, &value, sizeof(value));
}

/*
 * SO_PRIORITY for a priority 0 .. 7, by the agent's default table, within the
 * 1 .. 6 that need no capability (0 goes as 1, 6 as 7).
 */
static inline uint32_t bestby_so_priority(uint8_t priority)
{
	static const uint32_t values[8] = { 6, 6, 5, 3, 4, 2, 1, 1 };

	return values[priority & 7];
}

/*
 * Sends one datagram in the SO_TXTIME form, after bestby_txtime_enable(). The
 * treatment and the ADU id are not sent: packets with exactly the same
 * deadline are one ADU. Per packet the priority needs Linux 6.14; before, it is
 * left out (at the price of a refused system call): set it on the socket.
 * EINVAL, ERANGE: as bestby_mark_encode(); else as sendmsg().
 */
static inline ssize_t bestby_send_txtime(int fd, const void *data, size_t len, int flags,
					 const struct sockaddr *to, socklen_t to_len,
					 const struct bestby_metadata *metadata)
{
	union bestby_control control;
	size_t control_len = 0, with_priority;
	uint64_t deadline_ns = metadata->deadline_ns;
	uint32_t priority;
	ssize_t sent;

	if ((metadata->priority > 7 && metadata->priority != BESTBY_PRIORITY_UNSET) ||
	    (deadline_ns && metadata->lifetime_ns)) {
		errno = EINVAL;
		return -1;
	}
	if (metadata->lifetime_ns > BESTBY_LIFETIME_MAX_NS) {
		errno = ERANGE;
		return -1;
	}
	if (metadata->lifetime_ns)
		deadline_ns = bestby_now_ns() + metadata->lifetime_ns;
	if (deadline_ns > (uint64_t)INT64_MAX)
		deadline_ns = (uint64_t)INT64_MAX; /* the kernel's clock is signed */
	if (deadline_ns)
		control_len = bestby_control_put(&control, 0, SO_TXTIME, &deadline_ns,
						 sizeof(deadline_ns));
	if (metadata->priority != BESTBY_PRIORITY_UNSET) {
		priority = bestby_so_priority(metadata->priority);
		with_priority = bestby_control_put(&control, control_len, SO_PRIORITY, &priority,
						   sizeof(priority));
		sent = bestby_sendmsg(fd, data, len, flags, to, to_len, &control, with_priority);
		if (sent >= 0 || errno != EINVAL)
			return sent;
	}
	return bestby_sendmsg(fd, data, len, flags, to, to_len, &control, control_len);
}

#endif /* CLOCK_MONOTONIC && CMSG_SPACE */

#ifdef __cplusplus
}
#endif

#endif /* BESTBY_H */
