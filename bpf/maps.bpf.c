// SPDX-License-Identifier: GPL-2.0-only
/*
 * The shared maps and nothing else: loaded first, by libbpf, on every kernel,
 * so that one loader creates them whatever the mode is.
 */
#include "bb_maps.bpf.h"

/* Read by the agent (and by bpftool) before a pinned map is adopted. */
const volatile __u32 bb_abi_version = BB_ABI_VERSION;

char _license[] SEC("license") = "GPL";
