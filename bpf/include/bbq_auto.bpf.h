/* SPDX-License-Identifier: GPL-2.0-only */
/* Where the rate of the path behind the interface is found (bb_auto.h): what leaves counts, and markers are noted. */
#ifndef BBQ_AUTO_BPF_H
#define BBQ_AUTO_BPF_H

#include "bb_auto.bpf.h"
#include "bbq_state.bpf.h"

/* Packet idx leaves at `now`. */
__noinline int bbq_note_path(__u32 inst, __u32 idx, __u64 now)
{
	struct bbq_instance *in = bbq_instance(inst);
	struct bbq_packet *p = bbq_packet_at(idx);
	struct bb_iface *iface = bbq_iface();
	struct bb_auto_leaving leaving;
	__u32 slot = bbq_slot;
	struct bb_auto *a = bpf_map_lookup_elem(&bb_autos, &slot);

	if (!in || !p || !iface || !a)
		return 0;
	leaving.now = now;
	leaving.gave_up_ns = in->device.gave_up_ns;
	leaving.waits = in->bytes;
	leaving.bytes = p->len;
	leaving.marks = p->rtp == BB_STREAM_ECHO;
	leaving.name = p->cookie;
	bb_auto_sends(a, iface, &leaving);
	return 0;
}

#endif /* BBQ_AUTO_BPF_H */
