// SPDX-License-Identifier: GPL-2.0-only
/*
 * The shared maps and nothing else: loaded first, by libbpf, on every kernel,
 * so that one loader creates them whatever the mode is.
 */
#include "bb_maps.bpf.h"

/* Read by the agent (and by bpftool) before a pinned map is adopted. */
const volatile __u32 bb_abi_version = BB_ABI_VERSION;

/*
 * BTF describes what globals and maps use; this makes it describe every type
 * that crosses a border, so that bpf/tests/layout.rs can compare them all.
 */
const volatile union {
	struct bb_so_peer so_peer;
	struct bb_cb cb;
	struct bb_counters counters;
	struct bb_config config;
	struct bb_rule_key rule_key;
	struct bb_shape shape;
	struct bb_rule_ref rule_ref;
	struct bb_rule rule;
	struct bb_iface iface;
	struct bb_user_key user_key;
	struct bb_rtx rtx;
	struct bb_session_key session_key;
	struct bb_session session;
	struct bb_flow_key flow_key;
	struct bb_flow flow;
	struct bb_way way;
	struct bb_stream_key stream_key;
	struct bb_stream_adu stream_adu;
	struct bb_stream stream;
	struct bb_adu adu;
	struct bb_adu_set adu_set;
	struct bb_user user;
	struct bb_addr addr;
	struct bb_rtt rtt;
	struct bb_asked_key asked_key;
	struct bb_asked asked;
	struct bb_peer peer;
	struct bb_sock_peer_key sock_peer_key;
	struct bb_sock sock;
	struct bb_buffer buffer;
	struct bb_frag_key frag_key;
	struct bb_frag frag;
	struct bb_event event;
	struct bb_told told;
	struct bb_said said;
	struct bb_explained explained;
	struct bb_auto_marker auto_marker;
	struct bb_auto_end auto_end;
	struct bb_auto auto_;
} bb_abi_types = {};

char _license[] SEC("license") = "GPL";
