// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * send.c - a frame of three packets per 40 ms, with a deadline each, from C.
 *
 *	cc -I client/include -o send client/examples/send.c
 *	./send 127.0.0.1 5004 50
 *
 * Uses the mark form where that is permitted, else the SO_TXTIME form where
 * bestby is active, else it sends as ever.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include "bestby.h"

#define LIFETIME_NS (200 * 1000000ULL)

enum form {
	FORM_MARK,
	FORM_TXTIME,
	FORM_PLAIN
};
static const char *const form_names[] = { "mark", "SO_TXTIME", "plain" };

static enum form choose_form(int fd)
{
	struct bestby_counters counters;
	int mark = 0;

	/* Setting the mark it has already tells whether it may be set. */
	if (!setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)))
		return FORM_MARK;
	/* Where bestby is not active, fq would hold packets with a txtime. */
	if (!bestby_get_stats(fd, &counters) && !bestby_txtime_enable(fd, 0))
		return FORM_TXTIME;
	return FORM_PLAIN;
}

static ssize_t send_packet(int fd, enum form form, const void *data, size_t len,
			   const struct bestby_metadata *metadata)
{
	switch (form) {
	case FORM_MARK:
		return bestby_send_mark(fd, data, len, 0, NULL, 0, BESTBY_MAGIC, metadata);
	case FORM_TXTIME:
		return bestby_send_txtime(fd, data, len, 0, NULL, 0, metadata);
	default:
		return send(fd, data, len, 0);
	}
}

int main(int argc, char **argv)
{
	const struct timespec pause = { 0, 40 * 1000000L };
	struct bestby_metadata frame = BESTBY_METADATA_INIT;
	struct sockaddr_in to = { 0 };
	char packet[1200] = { 0 };
	enum form form;
	long frames;
	int fd;

	if (argc != 4 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
		fprintf(stderr, "usage: %s IPV4-ADDRESS PORT FRAMES\n", argv[0]);
		return 2;
	}
	to.sin_family = AF_INET;
	to.sin_port = htons((uint16_t)atoi(argv[2]));
	frames = atol(argv[3]);

	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		perror("connecting a UDP socket");
		return 1;
	}
	form = choose_form(fd);
	printf("form: %s\n", form_names[form]);

	for (long n = 0; n < frames; n++) {
		frame.deadline_ns = bestby_now_ns() + LIFETIME_NS;
		frame.adu = bestby_adu_next(frame.adu);
		/* Every 10th frame is one that the others refer to. */
		frame.priority = n % 10 ? 4 : 1;
		for (int part = 0; part < 3; part++) {
			if (send_packet(fd, form, packet, sizeof(packet), &frame) < 0) {
				perror("sending");
				return 1;
			}
		}
		nanosleep(&pause, NULL);
	}
	printf("packets: %ld\n", 3 * frames);
	close(fd);
	return 0;
}
