// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* bb_ts.h for the native property tests. */
#include "bb_ts.h"

struct bbn_ts_seen {
	__u32 place; /* enum bb_ts_place */
	__u32 role;
	__u32 source;
	__u32 ends;
	__u32 unit;
};

/* Tests run side by side. */
static _Thread_local struct bb_ts_datagram datagram;

/* As bb_place_ts does: 0 if it is no MPEG-TS. `n` bytes, whole packets. */
int bbn_ts_read(struct bb_video *video, const __u8 *bytes, __u32 n, struct bbn_ts_seen *seen)
{
	struct bb_ts_datagram *d = &datagram;

	__builtin_memcpy(d->bytes, bytes, n);
	if (!bb_ts_is(d, n / BB_TS_BYTES))
		return 0;
	if (video->codec == BB_CODEC_OPAQUE)
		return 1;
	seen->place = bb_ts_read(video, d, n / BB_TS_BYTES);
	seen->role = d->role;
	seen->source = d->source;
	seen->ends = bb_ts_ends(video, d);
	seen->unit = d->unit;
	return 1;
}
