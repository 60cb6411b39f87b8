/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_tables_abi.h - keys and values of the tables in which the kernel side remembers
 * what it has seen: users, sessions, flows, streams and their ADUs, the paths to
 * receivers, sockets, fragments. The agent reads them, and writes peers and paths.
 * Part of bb_abi.h, whose rules hold here.
 */
#ifndef BB_TABLES_ABI_H
#define BB_TABLES_ABI_H

#include <linux/types.h>
#include "bb_counters.h"

/* ---- tables: the head of each entry (bb_table.h has the protocol) ---- */

struct bb_way {
	__u32 tag; /* of the key's hash; 0 = free */
	__u32 gen; /* incremented when the way changes hands; one 64-bit word with tag */
	__u64 used_ns; /* exact to BB_TOUCH_NS */
};

/* ---- users: who shares what media leave ---- */

struct bb_user_key {
	__u8 addr[16]; /* source of forwarded traffic, IPv6: its /64; 0 for local traffic */
	__u32 ifindex;
	__u32 user; /* 1 + uid of local traffic; 0 = forwarded */
};

#define BB_USER_NONE 0 /* nobody's, and those for whom no way was free */
#define BB_USER_WAYS 8

struct bb_user {
	struct bb_way way;
	struct bb_user_key key;
};

/* ---- sessions: 8-way set associative table ---- */

struct bb_session_key {
	__u8 addr[16]; /* destination, masked to the prefix; 0 for INTERFACE, CONTROL of a user */
	__u32 ifindex;
	__u32 hash; /* FLOW: hash of the 5-tuple; else 0 */
	__u8 kind; /* enum bb_session_kind */
	__u8 prefix;
	__u8 media; /* 1: the operator vouches for it (a rule, a mark), or it is the kernel's own */
	/*
	 * PLAIN in mode qdisc: 1 + one of BB_PLAIN_PARTS, by the flow's hash. CONTROL:
	 * BB_PART_NETWORK for protocols of routers and hosts. Else 0.
	 */
	__u8 part;
	/*
	 * 1 + uid of local traffic that is not media, and of media whose rate or owd is
	 * what its sockets said; else 0. Forwarded traffic that is not media has the
	 * hash of its source in `hash`.
	 */
	__u32 user;
};

#define BB_PART_NETWORK 1 /* their share is bounded before they come: they go first */

#define BB_SESSION_NONE 0 /* never a session's index */
#define BB_SESSION_SHARED 1 /* for what finds no free way, or no classifier */

struct bb_session {
	struct bb_way way;
	struct bb_session_key key;
	__u64 owd_ns; /* subtracted from deadlines at decision time; 0 where cb already has it */
	__u64 rate; /* bytes/s; 0 = not known */
	__u64 next_ns; /* mode qdisc: its next packet may start then; all transmit queues share it */
	__u64 next_rate; /* the rate by which that was reckoned; 0 = none was */
	__u16 sent_by; /* mode qdisc: 1 + the instance that sent its last packet; 0 = none did */
	__u16 turn; /* mode qdisc: 1 + the instance whose turn is next; 0 = none was too late */
	__u16 user; /* index into bb_users; 0 where key.media is set, and for what is nobody's */
	__u16 pad;
	__u64 wait_from_ns; /* when the window of wait_ns[0] began (bb_rtt.h) */
	__u64 wait_ns[2]; /* longest wait of a packet in our queue: this window, the one before */
	struct bb_counters counters;
};

/* ---- flow cache: 4-way set associative, two sets for each flow ---- */

struct bb_flow_key {
	__u8 src[16];
	__u8 dst[16];
	__u32 ifindex;
	__u32 mark; /* & bb_config.flow_mark_mask */
	__u16 sport;
	__u16 dport;
	__u8 family;
	__u8 proto;
	__u8 dscp;
	__u8 pad;
};

/*
 * The answers are one 64-bit word each. The uppermost 16 bits are the way's
 * generation, and a word is compared-and-swapped with what was read: who is slow
 * cannot leave an answer in the entry of another flow (bb_flow.bpf.h).
 */
struct bb_flow {
	struct bb_way way; /* the least recently used one makes room */
	struct bb_flow_key key;
	__u64 rule; /* rule | slot in bb_ifaces << 16 | 24 bits of bb_rule_gen << 24 */
	__u64 session; /* session | its generation << 16; session 0 = none yet */
	__u64 plain; /* the same, for packets of this flow without metadata */
	__u64 owd_ns; /* to this destination; 48 bits */
	__u64 refreshed_ns; /* when session and owd_ns were looked up; 0 = never */
	__u64 plain_refreshed_ns; /* when plain was */
	__u64 plain_until_ns; /* mode tc: the plain leaf may hold packets of it until then */
	__u64 hash; /* of the key: bb_hash_key */
	__u32 stream; /* index of the stream of its last packet: looked at first */
	__u32 media_gen; /* 1 + bb_rule_gen when a stream of it had a rule; 0 = none had */
	__u8 leaf; /* mode tc: HTB leaf in use; 0 = none yet */
	__u8 measured; /* owd_ns is half of a measured RTT: nobody vouches for it */
	__u16 untimely; /* since when its explicit deadlines are far past (bb_believe); 0 = they are not */
	__u32 due; /* TCP: latest deadline of a segment so far (bb_in_order); 0 = none */
	__u32 rtcp_gen; /* as media_gen, when RTCP looked for the rule of its media and found none */
	__u8 srt; /* is it SRT? BB_SRT_* of bb_srt.h */
	__u8 srt_misses; /* packets that were not what SRT's are */
	__u8 pad[2];
};

/* ---- streams: what follows each other in a flow (bb_frame.h, bb_stream.bpf.h) ---- */

/*
 * bb_stream_key.rtp, and bb_cb.rtp of what is not RTP: MPEG-TS. Its receivers put nothing in order, so
 * packets leave as they came.
 */
#define BB_STREAM_TS 2
/* bb_cb.rtp: the agent's echo request, whose name is in bb_cb.adu (bb_auto_abi.h). */
#define BB_STREAM_ECHO 3

#define BB_MAX_STREAMS 65536 /* power of two, at most 65536 */
#define BB_STREAM_WAYS 4

struct bb_stream_key {
	__u64 flow; /* hash of the flow's key, all 64 bits */
	__u32 ssrc; /* host order; SRT: socket id; where there is none, one of the classifier's constants */
	__u32 rtp; /* BB_RTP | payload type; BB_STREAM_SRT; BB_STREAM_TS; 0 = none of these */
};

struct bb_stream_adu {
	__u64 first_ns; /* when its first packet was seen; 0 = none was */
	__u32 source; /* RTP timestamp, the mark's adu bits, fragment id or explicit deadline */
	__u32 bytes; /* so far */
	__u16 number; /* as in bb_stream.head: one with another number is about to begin */
	__u8 flags; /* BB_ADU_* */
	__u8 leaf; /* mode tc: HTB leaf of its last packet */
	__u32 promised; /* mode tc: ns that the model keeps for what is still to come of it */
};

#define BB_ADU_DEAD 0x01 /* mode tc: a packet of it was refused */
#define BB_ADU_KEY 0x02 /* its packets say that it is a key frame ... */
#define BB_ADU_OTHER 0x04 /* ... or that it is none; neither: they say nothing */

#define BB_STREAM_COUNTS 0x01 /* its sequence numbers count up: an old one is a resend */
#define BB_STREAM_ALONE 0x02 /* the current timestamp is no frame's */
#define BB_STREAM_NO_FRAMES 0x04 /* no timestamp is: the rule says so */
#define BB_STREAM_REPAIRS 0x08 /* it repeats others: the rule says so */
#define BB_STREAM_ONE 0x10 /* avg_bytes is of its first ADU */
#define BB_STREAM_ODD 0x20 /* its large ADUs come at irregular intervals */

/*
 * 128 bytes. Several CPUs may write; the worst result is one packet judged by the
 * deadline of the ADU beside its own, or by the size of another.
 */
struct bb_stream {
	struct bb_way way; /* the least recently used one makes room */
	struct bb_stream_key key;
	__u64 last_ns; /* last packet of the current ADU */
	__u64 head; /* bb_head of the current ADU: source, number, which of adu */
	struct bb_stream_adu adu[2]; /* the current one and the one before; SRT: struct bb_srt */
	__u64 verdict; /* rule, if rules compare payload types or SSRCs: bb_verdict */
	__u32 avg_bytes; /* running mean of its ADUs, large ones aside; 0 = not known */
	__u16 seq; /* newest */
	__u16 original; /* the stream that it seems to repeat */
	__u8 pauses; /* in the current ADU: bb_pauses, and bb_forgotten (bb_frame.h) */
	__u8 repairs; /* score: how sure it is that it repeats another stream */
	__u8 flags; /* BB_STREAM_* */
	__u8 leaf; /* mode tc: HTB leaf in use; 0 = none yet */
	__u8 since; /* ADUs since the last large one, at most BB_LARGE_APART (bb_frame.h) */
	__u8 lost; /* its last large ADU was given up; written by whoever gives up and sends */
	__u16 large_every; /* from the one before the last large ADU to that (bb_large.h) */
	__u32 large_ms; /* when its last large ADU began; 0 = none did */
	__u32 large_bytes; /* of that */
};

/* What the payload of a stream is. */
enum bb_codec {
	BB_CODEC_H264,
	BB_CODEC_H265,
	BB_CODEC_VP8,
	BB_CODEC_VP9,
	BB_CODEC_AV1,
	/* Header extensions that say the same, also of what is encrypted (bb_descriptor.h). */
	BB_CODEC_DD,
	BB_CODEC_VFM,
	BB_CODECS,
	/* In MPEG-TS (bb_ts.h): of its one programme the video. */
	BB_CODEC_TS_H264,
	BB_CODEC_TS_H265,
	BB_CODEC_TS_MPEG2,
	/* bb_video.codec is one more than these, or: */
	BB_CODEC_OPAQUE = 255,
};

/* What a frame is for. */
enum bb_role {
	BB_ROLE_NONE, /* not known, or the packet says nothing of it */
	BB_ROLE_KEY, /* needs no other frame */
	BB_ROLE_LINK, /* all later frames need it until the next key frame; of temporal level 0 ... */
	BB_ROLE_LINK1, /* ... or of level 1: those of higher levels need it, until a lower one */
	BB_ROLE_LINK2, /* ... or above */
	BB_ROLE_LEAF, /* no frame needs it */
};

/* Frames in a row that keep to the rules of a codec until it is known. */
#define BB_CODEC_SURE 32

/*
 * What its payload says of a stream's frames (bb_role.h): in bb_videos, under the stream's index. It
 * is the stream's whose way has this generation. Several CPUs may write, at worst a frame more
 * or less is taken for one of the codec.
 */
struct bb_video {
	__u32 gen;
	__u32 latest; /* RTP timestamp that is the latest: one before it is a B picture's */
	__u32 ssrc; /* of what is read: several may share a stream that marks or deadlines name */
	__u32 skipped; /* frames that were not sent because they need a lost one */
	__u8 codec; /* 1 + enum bb_codec, or BB_CODEC_OPAQUE; 0 = not known yet */
	__u8 tried[7]; /* of each codec: frames in a row that kept to its rules */
	__u8 key_at[7]; /* which of those was its last key frame, from 1 on; 0 = none was */
	__u8 open[2]; /* H.264, H.265: 0x80 | type of the unit whose fragments come; 0 = none */
	__u8 going; /* bit c: of codec c a unit goes on with the next packet */
	__u8 wrong; /* bit c: the current frame is not of codec c */
	__u8 strikes; /* of a known codec: frames until a wrong one is forgotten */
	__u8 levels; /* the highest temporal level seen */
	__u8 key; /* BB_VIDEO_* */
	__u8 role; /* of the current frame, as far as its packets told */
	__u8 misses; /* frames that were of no codec */
	__u8 broken; /* 1 + temporal level of the frame that was given up; 0 = none was (bb_chain.h) */
	__u8 dd; /* Dependency Descriptor: id that is tried, or known; 0 = none yet */
	__u16 position; /* frames since the last key frame */
	__u16 group; /* frames from the key frame before to the last one; 0 = not known */
	__u16 broken_at; /* the number of that frame's ADU */
	__u16 skipped_at; /* the number of the last one that was skipped */
	__u16 number; /* of the current frame's ADU */
	/* Of header extensions (bb_descriptor.h): */
	__u16 dd_number; /* of the frame before */
	__u8 dd_seen; /* dd_number is */
	__u8 dd_next; /* id that is tried if this one is not its */
	__u8 vfm; /* id, as dd */
	__u8 vfm_next;
	__u8 first_template;
	__u8 templates; /* of which the levels are known */
	__u8 template_levels; /* the highest of theirs */
	__u8 levels_of[16]; /* of each template the temporal level: two in a byte */
	__u8 pad[3]; /* to whole words, as it is a part of what `explain` is told */
};

#define BB_VIDEO_KEY 0x01 /* the current frame is a key frame */
#define BB_VIDEO_HAD_KEY 0x02
#define BB_VIDEO_HEALED 0x04 /* repairs of its packets were seen */
#define BB_VIDEO_STEADY 0x20 /* the last two groups were about as long as each other */
#define BB_VIDEO_MARKED 0x10 /* the current frame has had RTP's marker, which its last packet has */
#define BB_VIDEO_CRYPTEX 0x40 /* header extensions of it are encrypted (RFC 9335) */
#define BB_VIDEO_BACK 0x08 /* the current frame is shown before one that was sent before it */

/*
 * RTP timestamps of the last second or more, of all streams: what a late packet
 * or a retransmission belongs to. One set per hash of flow and timestamp; the
 * oldest entry makes room.
 */
#define BB_ADU_SETS 32768 /* power of two */
#define BB_ADU_WAYS 4

struct bb_adu {
	__u64 first_ns;
	__u32 id; /* as in struct bb_cb: stream << 16 | number */
	__u32 tag; /* 24 bits of the hash, then BB_RTP | payload type */
};

struct bb_adu_set {
	struct bb_adu way[BB_ADU_WAYS];
};

/* ---- RTT and peers: key = 16-byte address ---- */

struct bb_addr {
	__u8 addr[16];
};

#define BB_KNOWN_BITS 15 /* of the index in bb_known (bb_known_index) */
#define BB_KNOWN (1 << BB_KNOWN_BITS)

#define BB_RTT_WINDOW_SHIFT 32 /* a window is 2^32 ns: two of them and a sample are below 10 s */
/* Of STUN and RTCP, which have a sample each 5 s or so: 17 s. After as long without, another may speak. */
#define BB_RTT_SELDOM_SHIFT 34
/*
 * A wait counts for one to four of these after the packet left, because its
 * acknowledgement comes an RTT later. Counting a wait for too long is harmless: a
 * longer path is followed later.
 */
#define BB_WAIT_WINDOW_NS 1000000000ULL
/* A window of the least round trip: 4.6 minutes, so that a queue which stands is not taken for the path. */
#define BB_RTT_BASE_SHIFT 38

/* Who measured it: of several that do the least counts (bb_rtt.h). */
enum bb_rtt_source {
	BB_RTT_TCP = 0, /* this host's connections */
	BB_RTT_STUN = 1, /* Binding requests and their answers (RFC 8489) */
	BB_RTT_RTCP = 2, /* sender reports and the reports on them (RFC 3550, 6.4.1) */
	BB_RTT_NOBODY = 3,
};

/* The RTT of a path (bb_rtt.h says how it is estimated), and what TCP itself reckons with. */
struct bb_rtt {
	__u64 min_rtt_ns; /* of the path, without our own queue; 0 = not known yet */
	__u64 least_ns
		[2]; /* least of (sample - own wait): this window, the one before; ~0 = none */
	__u64 window; /* number of this window: time >> bb_rtt_shift; 0 = no sample yet */
	/* Of the connection that had the last sample, or that sample; contains our own queue. */
	__u64 srtt_ns;
	__u64 rto_ns; /* of the same; 0 = it has none */
	__u64 updated_ns; /* last sample */
	__u64 base_ns
		[2]; /* least sample: this window of BB_RTT_BASE_SHIFT, the one before; ~0 = none */
	__u32 base_window; /* number of this window: time >> BB_RTT_BASE_SHIFT; 0 = no sample yet */
	__u32 source; /* enum bb_rtt_source */
};

/* What left through us and will be answered at once: no answer that is not here counts. */
struct bb_asked_key {
	__u8 local[16];
	__u8 peer[16];
	/* STUN: the transaction's. RTCP: SSRC, as in the packet, then LSR, host order, then 0. */
	__u32 id[3];
	__u16 local_port; /* host order; 0 with RTCP, whose reports may come from elsewhere */
	__u16 peer_port;
};

struct bb_asked {
	__u64 sent_ns; /* when the classifier saw it: what it waited in our queue comes later */
	__u32 session; /* index into bb_sessions: where it waited */
	__u32 gen;
	__u32 source; /* enum bb_rtt_source */
	__u32 again; /* it was sent more than once: nobody can tell which one is answered */
};

/* sk storage: which session of ours holds the packets of a TCP socket. */
struct bb_tcp_path {
	__u32 session; /* index into bb_sessions */
	__u32 gen;
};

#define BB_PEER_OWD 0x01
#define BB_PEER_RATE 0x02
#define BB_PEER_OPERATOR 0x04 /* set by `bestby session set`: sockets may not contradict it */

struct bb_peer {
	__u64 owd_ns;
	__u64 rate;
	__u64 said_ns; /* when it was */
	__u32 flags;
	__u32 pad;
};

/* What sockets said of a peer (BB_SO_PEER): counts only for packets of the same user. */
struct bb_sock_peer_key {
	__u8 addr[16];
	__u32 uid;
};

/* ---- sockets ---- */

#define BB_SOCK_LIFETIME 0x01
#define BB_SOCK_PRIORITY 0x02
#define BB_SOCK_TREATMENT 0x04

struct bb_sock {
	__u64 lifetime_ns;
	__u64 cookie;
	/* An entry of bb_sock_stats may be pushed out and made anew: it then begins at 0. */
	__u32 made; /* how often it was made */
	__u32 answered_made; /* when BB_SO_STATS was last answered */
	struct bb_counters base; /* what earlier entries were known to have counted */
	struct bb_counters answered; /* base and the entry, as last answered */
	__u8 priority;
	__u8 treatment;
	__u8 flags; /* BB_SOCK_* */
	__u8 pad[5];
};

/* ---- fragments: ports of later fragments ---- */

struct bb_frag_key {
	__u8 src[16];
	__u8 dst[16];
	__u32 id;
	__u32 ifindex;
	__u8 proto;
	__u8 pad[7];
};

struct bb_frag {
	__u16 sport;
	__u16 dport;
	__u32 adu; /* ADU of the first fragment: the others share its fate */
	__u64 deadline; /* 0 = none */
	__u64 seen_ns; /* when the first fragment was */
	__u8 proto; /* of the datagram, after IPv6 extension headers */
	__u8 pad[7];
};

#endif /* BB_TABLES_ABI_H */
