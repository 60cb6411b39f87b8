// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* The arithmetic of the programs for the agent and the native tests: inline functions under linkable names. */
#include "bb_core.h"
#include "bb_rtt.h"
#include "bb_tc_frame.h"

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

__s64 bbn_option_until(__u32 lifetime, __u64 utc_ns)
{
	return bb_option_until(lifetime, utc_ns);
}

__u32 bbn_option_time(__u64 utc_ns)
{
	return bb_option_time(utc_ns);
}

int bbn_option_is_time(__u32 lifetime)
{
	return bb_option_is_time(lifetime);
}

__u8 bbn_option_treatment(__u8 flags)
{
	return bb_option_treatment(flags);
}

__u8 bbn_option_bits(__u8 treatment)
{
	return bb_option_bits(treatment);
}

__u32 bbn_dscp_so_priority(__u8 dscp)
{
	return bb_dscp_so_priority(dscp);
}

int bbn_believe(__u16 *since, __u64 deadline_ns, __u64 now_ns)
{
	return bb_believe(since, deadline_ns, now_ns);
}

int bbn_stale(__u64 now_ns, __u64 owd_ns, __u64 deadline_ns)
{
	return bb_stale(now_ns, owd_ns, deadline_ns);
}

__u64 bbn_latest_departure(__u64 owd_ns, __u64 deadline_ns)
{
	return bb_latest_departure(owd_ns, deadline_ns);
}

__u64 bbn_in_order(__u32 *due, __u64 deadline_ns)
{
	return bb_in_order(due, deadline_ns);
}

__u64 bbn_behind_all(__u32 due, __u64 now_ns)
{
	return bb_behind_all(due, now_ns);
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

__u16 bbn_cb_check(__u64 first, __u64 second, __u32 adu)
{
	return bb_cb_check(first, second, adu);
}

__u32 bbn_known_index(const struct bb_addr *addr)
{
	return bb_known_index(addr);
}

__u64 bbn_cb_deadline(__u64 second, __u64 now_ns)
{
	return bb_cb_deadline(second, now_ns);
}

void bbn_rtt_init(struct bb_rtt *rtt)
{
	bb_rtt_init(rtt);
}

void bbn_rtt_add(struct bb_rtt *rtt, __u64 sample_ns, __u64 wait_ns, __u64 now_ns)
{
	bb_rtt_add(rtt, sample_ns, wait_ns, now_ns);
}

int bbn_rtt_takes(struct bb_rtt *rtt, __u32 source, __u64 now_ns)
{
	return bb_rtt_takes(rtt, source, now_ns);
}

__u64 bbn_rtt_of_answer(__u64 age_ns, __u64 held_ns)
{
	return bb_rtt_of_answer(age_ns, held_ns);
}

__u64 bbn_dlsr_ns(__u32 dlsr)
{
	return bb_dlsr_ns(dlsr);
}

void bbn_wait_add(struct bb_session *session, __u64 wait_ns, __u64 now_ns)
{
	bb_wait_add(session, wait_ns, now_ns);
}

__u64 bbn_wait_lately(const struct bb_session *session, __u64 now_ns)
{
	return bb_wait_lately(session, now_ns);
}

__u64 bbn_measured_owd(__u64 owd_ns, __u64 from_ns, __u64 deadline_ns)
{
	return bb_measured_owd(owd_ns, from_ns, deadline_ns);
}

__u64 bbn_tc_leaf_bytes(__u32 leaf, __u64 rate, __u64 limit_bytes)
{
	return bb_tc_leaf_bytes(leaf, rate, limit_bytes);
}

/* For bpf/tests/tc_model.rs, to which the model is a block of memory. */

__u64 bbn_tc_model_size(void)
{
	return sizeof(struct bb_tc_model);
}

__u64 bbn_tc_request_size(void)
{
	return sizeof(struct bb_tc_request);
}

__u64 bbn_tc_queue(const struct bb_tc_model *model, __u32 leaf)
{
	return model->queue[leaf & 15];
}

__u64 bbn_tc_leaf_bound(__u32 leaf)
{
	return bb_leaf_bound(leaf);
}

__u8 bbn_tc_leaf(__u64 lifetime, __u32 priority, __u8 leaf)
{
	return bb_tc_leaf(lifetime, priority, leaf);
}

void bbn_tc_frame(struct bb_tc_request *r, const struct bb_stream *s, __u32 which, __u32 before,
		  int last)
{
	bb_tc_frame(r, s, &s->adu[which & 1], s->adu[(which ^ 1) & 1].first_ns, before, last);
}

int bbn_tc_ask(struct bb_tc_model *model, struct bb_tc_request *r)
{
	return bb_tc_ask(model, r);
}

__u64 bbn_hash_key(const __u64 *words, __u32 count, __u64 seed)
{
	return bb_hash_key(words, count, seed);
}
