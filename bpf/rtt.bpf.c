// SPDX-License-Identifier: GPL-2.0-only
#include "bb_count.bpf.h"

char _license[] SEC("license") = "GPL";
