/* SPDX-License-Identifier: GPL-2.0-only */
/* Maps of TCP-Real, pinned in a directory of their own: real.bpf.c creates them. */
#ifndef BB_REAL_BPF_H
#define BB_REAL_BPF_H

#include "vmlinux.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "bb_real.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct bb_real_config);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bb_real_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, BB_REAL_COUNTS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bb_real_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct bb_real_conn);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bb_real_conns SEC(".maps");

static __always_inline void bb_real_count(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&bb_real_counts, &which);

	if (counter)
		__sync_fetch_and_add(counter, 1);
}

static __always_inline void bb_real_count_wave(int became)
{
	if (became & BB_REAL_MEASURED)
		bb_real_count(BB_REAL_C_MEASURED);
	if (became & BB_REAL_UNMEASURED)
		bb_real_count(BB_REAL_C_UNMEASURED);
	if (became & BB_REAL_TIMER)
		bb_real_count(BB_REAL_C_TIMERS);
}

/* BB_REAL_OFF where nothing was configured. */
static __always_inline __u32 bb_real_mode(void)
{
	__u32 zero = 0;
	struct bb_real_config *config = bpf_map_lookup_elem(&bb_real_config, &zero);

	return config ? config->mode : BB_REAL_OFF;
}

/* The greatest level, 1 to BB_REAL_MAX_LEVEL. */
static __always_inline __u32 bb_real_most(void)
{
	__u32 zero = 0;
	struct bb_real_config *config = bpf_map_lookup_elem(&bb_real_config, &zero);
	__u32 most = config ? config->max_level : 0;

	return most >= 1 && most <= BB_REAL_MAX_LEVEL ? most : BB_REAL_DEFAULT_LEVEL;
}

#endif /* BB_REAL_BPF_H */
