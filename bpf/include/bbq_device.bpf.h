/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The rate of a device that pushes back, and the time that it needs for its own packets.
 *
 * A modem, a serial line, a NIC that is full stop their transmit queues. Nobody has to tell a
 * rate then, and none that is told holds if the device is slower.
 *
 *  1. The device is in the way of a packet that finds the transmit queue stopped. It was in the way
 *     all the time between two departures if it was in the way of both packets, and this queue held
 *     neither back (bbq_device_free). A wait alone says nothing: another processor may be sending.
 *  2. The bytes that leave the *device* in that time count. Drivers with byte queue limits (BQL)
 *     count them. Any other device holds as many packets as it takes at once while it is empty.
 *  3. Plans use that rate (bbq_rate). Nothing is paced by it: a faster device shows its rate only
 *     if it is given more.
 *  4. A packet is out of the device after all that the device holds (bbq_out). The path's owd
 *     begins then.
 */
#ifndef BBQ_DEVICE_BPF_H
#define BBQ_DEVICE_BPF_H

#include "bbq_state.bpf.h"

/* __QUEUE_STATE_DRV_XOFF, by the driver, and __QUEUE_STATE_STACK_XOFF, by BQL. */
#define BBQ_QUEUE_STOPPED 3
/* The sums are halved beyond this. */
#define BBQ_DEVICE_NS (1ULL << 27)
/* So many times in a row it must be seen to hold the same number of packets, if that are fewer, or more. */
#define BBQ_DEVICE_FEWER 4
#define BBQ_DEVICE_MORE 2
/* One packet is on the line, and one behind it. */
#define BBQ_DEVICE_USUAL 2
/* A measurement counts half after each 134 ms without the device in the way. */
#define BBQ_DEVICE_AGE_SHIFT 27
/* As many packets say a rate, at first. Later so many bytes do, or so much time. */
#define BBQ_DEVICE_SURE 8
#define BBQ_DEVICE_SURE_BYTES 3000
#define BBQ_DEVICE_SURE_NS (BBQ_DEVICE_NS / 2)
/* A rate that is this old is tried out, by an eighth each time, after an ADU was given up not longer ago. */
#define BBQ_DEVICE_TRY_NS (500 * 1000000ULL)
/* A rate that was seen longer ago is forgotten. */
#define BBQ_DEVICE_OLD_NS (10 * BB_NSEC_PER_SEC)

/* ns per byte as a fixed-point number; a rate below 1000 bytes/s is planned as that. */
#define BBQ_INV_SHIFT 10

bb_inline __u64 bbq_inverse(__u64 rate)
{
	return (BB_NSEC_PER_SEC << BBQ_INV_SHIFT) / (rate > 1000 ? rate : 1000);
}

/* When the device has sent all that it holds: now, unless it has pushed back. */
bb_inline __u64 bbq_free_at(const struct bbq_instance *in, __u64 now)
{
	return in->device.busy_ns > now ? in->device.busy_ns : now;
}

/*
 * When packet p, if it leaves now, is out of the device. An idle one takes it, whatever rate it showed: a rate
 * that is too low must not keep everything from it.
 */
bb_inline __u64 bbq_out(const struct bbq_instance *in, const struct bbq_packet *p, __u64 now)
{
	if (in->device.busy_ns <= now)
		return now;
	return in->device.busy_ns + (p->len * in->device.inv >> BBQ_INV_SHIFT);
}

/* The device has not been in the way for long: it may be another one now. */
bb_inline void bbq_forget_device(struct bbq_device *d)
{
	d->rate = 0;
	d->inv = 0;
	d->busy_ns = 0;
	d->ns = 0;
	d->bytes = 0;
	d->packets = 0;
	d->at_ns = 0;
	d->stopped_ns = 0;
}

/* A packet comes at `now`: does it find the device in the way? */
bb_inline void bbq_meet_device(struct bbq_instance *in, struct Qdisc *sch, __u64 now)
{
	struct bbq_device *d = &in->device;

	if (sch->dev_queue->state & BBQ_QUEUE_STOPPED)
		d->stopped_ns = now;
	else if (d->rate && now - d->seen_ns > BBQ_DEVICE_OLD_NS)
		bbq_forget_device(d);
}

/* An ADU of this session was given up. Media's alone: anybody may say a deadline that cannot be kept. */
bb_inline void bbq_device_gave_up(struct bbq_instance *in, const struct bbq_queue *q, __u64 now)
{
	if (q->user == BBQ_MEDIA)
		in->device.gave_up_ns = now;
}

/* The queue sends nothing although the device would take it. */
bb_inline void bbq_device_free(struct bbq_instance *in)
{
	in->device.free = 1;
}

/* Bytes of the packet that is the last one but n. */
bb_inline __u32 bbq_departed(const struct bbq_device *d, __u32 n)
{
	return d->before[(d->departed - n) & (BBQ_DEVICE_HOLDS - 1)];
}

/*
 * Packet p leaves. The device does not count its bytes: how many packets does it hold? As many as leave
 * until the first one that found it empty is out. A tun device takes a packet when its program reads the
 * one before, so a short wait does not show that it is full.
 */
bb_inline void bbq_device_holds(struct bbq_device *d, const struct bbq_packet *p, __u64 now,
				int waited, int refused)
{
	__u64 time = p->len * d->inv >> BBQ_INV_SHIFT;

	if (now < d->run_ns && !refused) {
		d->run++;
		return;
	}
	if (waited) {
		if (d->run_ns && p->arrived_ns < d->run_ns) {
			__u32 run = d->run < BBQ_DEVICE_HOLDS ? d->run : BBQ_DEVICE_HOLDS;

			/*
			 * A rate that has risen makes it seem to hold more. A rate that has fallen makes it
			 * seem empty too early, and so to hold fewer.
			 */
			d->alike = run == d->found ? d->alike + 1 : 1;
			d->found = run;
			if (!d->holds ||
			    d->alike >= (run < d->holds ? BBQ_DEVICE_FEWER : BBQ_DEVICE_MORE))
				d->holds = run;
		}
		d->run_ns = 0;
		return;
	}
	/* A run begins where it is empty by a margin, and ends early: the rate may have changed. */
	d->run_ns = d->inv && d->busy_ns + time <= now ? now + (time >> 1) : 0;
	d->run = 1;
}

/* A packet that had waited departs at `now`. `out` bytes have left the device since the last departure. */
bb_inline void bbq_device_took(struct bbq_device *d, __u64 now, __u32 out)
{
	if (!d->at_ns) {
		__u64 age = (now - d->seen_ns) >> BBQ_DEVICE_AGE_SHIFT;

		age = age < 32 ? age : 32;
		d->ns >>= age;
		d->bytes >>= age;
	} else {
		d->ns += now - d->at_ns;
		d->bytes += out;
		if (d->packets < BBQ_DEVICE_SURE) {
			d->packets++;
		} else if (d->bytes && d->ns &&
			   (d->bytes >= BBQ_DEVICE_SURE_BYTES || d->ns >= BBQ_DEVICE_SURE_NS)) {
			d->rate = d->bytes * BB_NSEC_PER_SEC / d->ns;
			d->last = d->rate;
			d->inv = bbq_inverse(d->rate);
		}
		d->seen_ns = now;
		if (d->ns > BBQ_DEVICE_NS) {
			d->ns >>= 1;
			d->bytes >>= 1;
		}
	}
	d->at_ns = now;
}

/*
 * The device takes a packet that it was not in the way of. Is its rate an old measurement, and was an ADU given up
 * shortly before? A plan with too low a rate never meets the device, and would not learn that it is faster.
 */
bb_inline void bbq_device_try(struct bbq_device *d, __u64 now)
{
	if (now - d->gave_up_ns > BBQ_DEVICE_TRY_NS || now - d->seen_ns < BBQ_DEVICE_TRY_NS)
		return;
	d->rate += d->rate >> 3;
	d->inv = bbq_inverse(d->rate);
}

/*
 * Packet idx leaves the queue at `now`, and the device was in the way of one before it. Its driver has counted so
 * many bytes, modulo 2^32, that it got, and that left it; both 0: it counts none.
 */
__noinline int bbq_note_device(__u32 inst, __u32 idx, __u64 now, __u32 queued, __u32 done)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_packet *p = bbq_packet_at(idx);
	struct bbq_device *d;
	__u32 held = 0, out;
	__u64 from = now;
	int waited, refused;

	if (!in || !p)
		return 0;
	d = &in->device;
	refused = d->free;
	d->free = 0;
	waited = !refused && p->arrived_ns <= d->stopped_ns;
	if (queued | done) {
		held = queued - done;
		out = done - d->done;
		d->done = done;
	} else {
		__u32 holds;

		bbq_device_holds(d, p, now, waited, refused);
		holds = d->holds ?: BBQ_DEVICE_USUAL;
		out = bbq_departed(d, holds - 1);
		for (__u32 n = 0; waited && n + 1 < BBQ_DEVICE_HOLDS; n++)
			held += n + 1 < holds ? bbq_departed(d, n) : 0;
		if (!waited)
			from = bbq_free_at(in, now);
	}
	if (waited) {
		bbq_device_took(d, now, out);
	} else {
		d->at_ns = 0;
		if (d->rate)
			bbq_device_try(d, now);
	}
	if (d->inv)
		d->busy_ns = from + ((held + p->len) * d->inv >> BBQ_INV_SHIFT);
	d->departed++;
	d->before[d->departed & (BBQ_DEVICE_HOLDS - 1)] = p->len;
	return 0;
}

/* Packet idx leaves the queue at `now`. The usual case is to cost little: the device was never in the way. */
bb_inline void bbq_tell_device(__u32 inst, const struct bbq_instance *in, struct Qdisc *sch,
			       __u32 idx, __u64 now)
{
	__u32 queued = 0, done = 0;

	if (!in->device.stopped_ns)
		return;
	if (bpf_core_field_exists(sch->dev_queue->dql)) {
		queued = sch->dev_queue->dql.num_queued;
		done = sch->dev_queue->dql.num_completed;
	}
	bbq_note_device(inst, idx, now, queued, done);
}

#endif /* BBQ_DEVICE_BPF_H */
