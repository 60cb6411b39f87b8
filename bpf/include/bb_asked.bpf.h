/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What leaves and is answered at once: STUN's Binding requests (RFC 8489; full ICE sends
 * them, ICE lite does not) and RTCP's sender reports in clear (RFC 3550, 6.4.1). The time
 * is kept in bb_asked until the answer comes in (answer.bpf.c).
 *
 * Only of what the operator vouches for: else any user could push out what the others
 * wait for. What is sent once more under the same id is no measure any more (Karn).
 */
#ifndef BB_ASKED_BPF_H
#define BB_ASKED_BPF_H

#include "bb_session.bpf.h"
#include "bb_stun.h"
#include "bb_work.bpf.h"

/* What of the datagram is read: STUN's header, and more than is needed of a sender report. */
#define BB_ASKED_BYTES 20

__noinline int bb_note_asked(struct __sk_buff *skb, struct bb_work *w)
{
	struct bb_asked_key key __attribute__((aligned(8))) = {};
	struct bb_asked fresh = {}, *asked;
	struct bb_session *session;
	__u32 words[BB_ASKED_BYTES / 4];

	if (!w || bpf_skb_load_bytes(skb, w->packet.payload, words, sizeof(words)))
		return 0;
	if (bb_stun_type(words) == BB_STUN_REQUEST) {
		fresh.source = BB_RTT_STUN;
		key.local_port = w->packet.key.sport;
		key.peer_port = w->packet.key.dport;
		key.id[0] = words[2];
		key.id[1] = words[3];
		key.id[2] = words[4];
	} else if (bb_rtcp_type(words) == BB_RTCP_SR) {
		fresh.source = BB_RTT_RTCP;
		key.id[0] = words[1];
		key.id[1] = bb_rtcp_lsr(words);
		if (!key.id[1])
			return 0; /* in a report it says that none came */
	} else {
		return 0;
	}
	bb_copy_address(key.local, w->packet.key.src);
	bb_copy_address(key.peer, w->packet.key.dst);
	asked = bpf_map_lookup_elem(&bb_asked, &key);
	if (asked) {
		asked->again = 1;
		return 0;
	}
	session = bb_session_at(w->session);
	if (!session)
		return 0;
	fresh.sent_ns = w->now;
	fresh.session = w->session;
	fresh.gen = session->way.gen;
	bpf_map_update_elem(&bb_asked, &key, &fresh, BPF_NOEXIST);
	return 0;
}

#endif /* BB_ASKED_BPF_H */
