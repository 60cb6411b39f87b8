/* SPDX-License-Identifier: GPL-2.0-only */
/* What libbpf's headers do not declare: kfuncs and the bounded-loop primitive. */
#ifndef BB_COMPAT_BPF_H
#define BB_COMPAT_BPF_H

#include "vmlinux.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Debian 12's linux/bpf.h (6.1) knows neither this struct (v6.4) nor BPF_F_BEFORE (v6.6). */
#ifndef BPF_F_BEFORE
struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));
#endif

/* v6.16, net/sched/bpf_qdisc.c. bpf_qdisc_skb_drop: enqueue only; bpf_kfree_skb: everywhere. */
extern void bpf_kfree_skb(struct sk_buff *skb) __ksym;
extern void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) __ksym;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, __u64 expire, __u64 delta_ns) __ksym;
extern void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) __ksym;

/*
 * True, unless the loop went round too often (the kernel's own bound, at least
 * 65,535 times): lets the verifier accept a loop whose bound is data. A
 * may_goto instruction (v6.9), four machine instructions each time round;
 * bpf_for costs a call. Written as bytes because the mnemonic needs -mcpu=v4.
 */
#ifdef __bpf__
#define bb_can_loop                                                                   \
	({                                                                            \
		__label__ out, on;                                                    \
		_Bool more = 1;                                                       \
		asm volatile goto("1: .byte 0xe5; .byte 0;"                           \
				  ".long ((%l[out] - 1b - 8) / 8) & 0xffff; .short 0" \
				  :                                                   \
				  :                                                   \
				  :                                                   \
				  : out);                                             \
		goto on;                                                              \
out:                                                                                  \
		more = 0;                                                             \
on:;                                                                                  \
		more;                                                                 \
	})

/* value_ &= mask_, for the verifier, where clang knows better. */
#define bb_mask(value_, mask_) asm volatile("%[v] &= %[m]" : [v] "+r"(value_) : [m] "i"(mask_))
#else /* natively, for the tests */
#define bb_can_loop 1
#define bb_mask(value_, mask_) ((void)((value_) &= (mask_)))
#endif

/*
 * 0, but the verifier does not know it: a loop that counts from here converges
 * after a few rounds instead of being followed for every value of its counter.
 */
__u32 bb_zero SEC(".bss");

#endif /* BB_COMPAT_BPF_H */
