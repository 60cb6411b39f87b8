/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How long packets of a session waited here. rtt.bpf.c takes it off what TCP
 * measured: a queue of our own is not the path (bb_rtt.h).
 */
#ifndef BBQ_SOJOURN_BPF_H
#define BBQ_SOJOURN_BPF_H

#include "bb_rtt.h"
#include "bbq_state.bpf.h"

/* Packet p leaves its session. */
bb_inline void bbq_note_sojourn(struct bb_session *ses, const struct bbq_packet *p, __u64 now)
{
	bb_wait_add(ses, now - p->arrived_ns, now);
}

#endif /* BBQ_SOJOURN_BPF_H */
