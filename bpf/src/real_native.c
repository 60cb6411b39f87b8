// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* bb_real.h for the agent and the native property tests. */
#include "bb_real.h"

int bbn_real_valid(const __u8 *option)
{
	return bb_real_valid((const struct bb_real_option *)option);
}

__u8 bbn_real_code(__u64 rate)
{
	return bb_real_code(rate);
}

__u64 bbn_real_rate(__u8 code)
{
	return bb_real_rate(code);
}

__u32 bbn_real_next(__u32 level, __u32 threshold, __u32 before, __u32 rate, __u32 most)
{
	return bb_real_next(level, threshold, before, rate, most);
}

__u8 bbn_real_told(const struct bb_real_rx *rx)
{
	return bb_real_told(rx);
}

__u8 bbn_real_told_rate(const struct bb_real_rx *rx)
{
	return bb_real_told_rate(rx);
}

int bbn_real_arrive(struct bb_real_rx *rx, __u64 now_ns, __u32 seq, __u32 length, __u32 segments,
		    __u8 wave, __u8 wave_level, __u32 most)
{
	struct bb_real_segment segment = { now_ns, seq, length, segments, wave, wave_level };

	return bb_real_arrive(rx, &segment, most);
}

__u8 bbn_real_tag(struct bb_real_tx *tx, __u32 cwnd, __u32 segments, __u32 srtt_us, __u64 now_ns)
{
	return bb_real_tag(tx, cwnd, segments, srtt_us, now_ns);
}

int bbn_real_live(const struct bb_real_conn *conn, __u32 cwnd)
{
	return bb_real_live(conn, cwnd);
}

__u32 bbn_real_window(const struct bb_real_conn *conn, __u32 most)
{
	return bb_real_window(conn, most);
}

int bbn_real_quiet(__u32 rtt_us, __u32 min_rtt_us)
{
	return bb_real_quiet(rtt_us, min_rtt_us);
}

int bbn_real_room(__u32 cwnd, __u32 mss, __u8 rate, __u32 min_rtt_us)
{
	return bb_real_room(cwnd, mss, rate, min_rtt_us);
}

__u32 bbn_real_kept(__u32 cwnd, __u32 half, __u32 most)
{
	return bb_real_kept(cwnd, half, most);
}
