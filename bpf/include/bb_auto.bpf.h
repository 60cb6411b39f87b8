/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The path of an interface whose rate is found (bb_auto.h): for programs that see its packets leave, or its answers
 * come. A program takes the path for itself while it changes it. Another one goes without: the next marker says the
 * same.
 */
#ifndef BB_AUTO_BPF_H
#define BB_AUTO_BPF_H

#include "bb_auto.h"
#include "bb_count.bpf.h"

/* A large packet that GSO has not cut yet leaves the path as packets of this size. */
#define BB_AUTO_LARGEST 1600

/* NULL: there is none, or another processor changes it just now. */
bb_inline struct bb_auto *bb_auto_take(struct bb_auto *a)
{
	return a && !__sync_val_compare_and_swap(&a->busy, 0, 1) ? a : 0;
}

bb_inline void bb_auto_give(struct bb_auto *a, struct bb_iface *iface)
{
	iface->rate = a->rate;
	__sync_lock_test_and_set(&a->busy, 0);
}

/* What leaves an interface. */
struct bb_auto_leaving {
	__u64 now;
	__u64 gave_up_ns; /* when an ADU of media was given up here, last */
	__u64 waits; /* bytes that wait behind it */
	__u32 bytes;
	__u32 name; /* of a marker */
	int marks; /* it is one */
};

/* It leaves. */
bb_inline void bb_auto_sends(struct bb_auto *a, struct bb_iface *iface,
			     const struct bb_auto_leaving *x)
{
	__u32 large = x->bytes < BB_AUTO_LARGEST ? x->bytes : BB_AUTO_LARGEST;

	bb_add(a->sent, x->bytes);
	if (a->largest < large)
		a->largest = large;
	if ((!x->marks && x->now < a->due_ns) || !bb_auto_take(a))
		return;
	a->gave_up_ns = bb_auto_most(a->gave_up_ns, x->gave_up_ns);
	if (x->now >= a->due_ns)
		bb_auto_overdue(a, x->now);
	if (x->marks) {
		if (x->waits > 2 * a->largest)
			a->waited_ns = x->now;
		bb_auto_leaves(a, x->name, x->now);
	}
	bb_auto_give(a, iface);
}

#endif /* BB_AUTO_BPF_H */
