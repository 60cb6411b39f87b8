// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test classifier: a hop that drops what the test wants, of the packets that a probe
 * sends. ARP and neighbour discovery pass.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETHERNET 14
#define RELATIVE_MS 65535

volatile const __u8 drop_options; /* all packets with an IPv4 option or a hop-by-hop header */
volatile const __u8 drop_lifetimes; /* LPD's option with a lifetime of 0 */
volatile const __u8 drop_deadlines; /* LPD's option with a deadline: a probe's have passed */
volatile const __u32 loss_percent;

/* The same losses each time, so that a test has the same result each time. */
__u32 state = 1;

SEC("classifier")
int hop(struct __sk_buff *skb)
{
	__u32 option, lifetime;
	__u8 ip[40] = {};
	int has_option = 0;

	if (bpf_skb_load_bytes(skb, ETHERNET, ip, 20))
		return -1;
	if (ip[0] >> 4 == 4) {
		has_option = ip[0] != 0x45;
		option = ETHERNET + 20;
	} else if (ip[0] >> 4 == 6) {
		if (ip[6] == 58) /* ICMPv6: echo requests only */
			bpf_skb_load_bytes(skb, ETHERNET + 40, ip + 20, 1);
		if (ip[6] == 58 && ip[20] != 128)
			return -1;
		has_option = ip[6] == 0;
		option = ETHERNET + 40 + 4;
	} else {
		return -1;
	}
	state = state * 1664525 + 1013904223;
	if ((state >> 16) % 100 < loss_percent)
		return 2; /* TC_ACT_SHOT */
	if (!has_option)
		return -1;
	if (drop_options)
		return 2;
	if (bpf_skb_load_bytes(skb, option + 4, &lifetime, sizeof(lifetime)))
		return -1;
	lifetime = bpf_ntohl(lifetime);
	if (drop_lifetimes && !lifetime)
		return 2;
	if (drop_deadlines && lifetime > RELATIVE_MS)
		return 2;
	return -1;
}

char _license[] SEC("license") = "GPL";
