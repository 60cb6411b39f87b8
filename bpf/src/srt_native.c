// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* bb_srt.h for the native property tests. */
#include "bb_srt.h"

__u32 bbn_srt_us(__u64 now_ns)
{
	return bb_srt_us(now_ns);
}

__u32 bbn_srt_first(struct bb_srt *srt, __u32 now_us, __u32 time, __u32 lifetime_us)
{
	return bb_srt_first(srt, now_us, time, lifetime_us);
}

__u32 bbn_srt_again(const struct bb_srt *srt, __u32 now_us, __u32 time)
{
	return bb_srt_again(srt, now_us, time);
}

int bbn_srt_fits(struct bb_srt *srt, const __u32 *words, __u32 now_us)
{
	return bb_srt_fits(srt, words, now_us);
}

int bbn_srt_is_control(__u32 word)
{
	return bb_srt_is_control(word);
}

int bbn_srt_is_handshake(const __u32 *words)
{
	return bb_srt_is_handshake(words);
}

__u16 bbn_srt_granted(const __u32 *words)
{
	return bb_srt_granted(words);
}
