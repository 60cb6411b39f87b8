// SPDX-License-Identifier: GPL-2.0-only
/* bb_core.h for the native property tests: each inline function under a linkable name. */
#include "bb_core.h"

__u64 bbn_mark_deadline(__u32 mark, __u64 now_ns)
{
	return bb_mark_deadline(mark, now_ns);
}

__u8 bbn_mark_priority(__u32 mark)
{
	return bb_mark_priority(mark);
}

__u8 bbn_mark_treatment(__u32 mark)
{
	return bb_mark_treatment(mark);
}

__u8 bbn_mark_adu(__u32 mark)
{
	return bb_mark_adu(mark);
}

int bbn_stale(__u64 now_ns, __u64 owd_ns, __u64 deadline_ns)
{
	return bb_stale(now_ns, owd_ns, deadline_ns);
}

__u64 bbn_latest_departure(__u64 owd_ns, __u64 deadline_ns)
{
	return bb_latest_departure(owd_ns, deadline_ns);
}

__u64 bbn_tx_time(__u64 bytes, __u64 rate)
{
	return bb_tx_time(bytes, rate);
}

__u64 bbn_pace(__u64 next_ns, __u64 now_ns, __u64 bytes, __u64 rate)
{
	return bb_pace(next_ns, now_ns, bytes, rate);
}

__u32 bbn_wire_bytes(__u32 len, __u32 segments, __u32 overhead)
{
	return bb_wire_bytes(len, segments, overhead);
}

__u16 bbn_cb_check(const __u32 *words)
{
	return bb_cb_check(words);
}

__u64 bbn_cb_deadline(__u32 lo, __u32 hi24, __u64 now_ns)
{
	return bb_cb_deadline(lo, hi24, now_ns);
}

__u64 bbn_hash_key(const __u64 *words, __u32 count, __u64 seed)
{
	return bb_hash_key(words, count, seed);
}
