// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Answers each line "DEADLINE LIFETIME PRIORITY TREATMENT ADU NOW MAGIC READ_AT"
 * with "MARK DEADLINE-READ NEXT-ADU", or with the errno of the encoder; before
 * them, one line of sizes and one of the SO_PRIORITY values.
 * Compiled as C99 and as C++11 by header.rs, which compares with the crate.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>

#include "bestby.h"

int main(void)
{
	uint64_t deadline, lifetime, now, read_at;
	uint32_t magic, mark;
	unsigned int priority, treatment, adu;

	printf("%zu %zu\n", sizeof(struct bestby_peer), sizeof(struct bestby_counters));
	for (priority = 0; priority < 8; priority++)
		printf("%" PRIu32 "%c", bestby_so_priority((uint8_t)priority),
		       priority < 7 ? ' ' : '\n');
	while (scanf("%" SCNu64 " %" SCNu64 " %u %u %u %" SCNu64 " %" SCNu32 " %" SCNu64, &deadline,
		     &lifetime, &priority, &treatment, &adu, &now, &magic, &read_at) == 8) {
		struct bestby_metadata metadata = BESTBY_METADATA_INIT;

		metadata.deadline_ns = deadline;
		metadata.lifetime_ns = lifetime;
		metadata.priority = (uint8_t)priority;
		metadata.treatment = (uint8_t)treatment;
		metadata.adu = (uint8_t)adu;
		if (bestby_mark_encode(&metadata, now, magic, &mark))
			printf("%s\n", errno == ERANGE ? "ERANGE" : "EINVAL");
		else
			printf("%" PRIu32 " %" PRIu64 " %" PRIu8 "\n", mark,
			       bestby_mark_deadline(mark, read_at), bestby_adu_next(metadata.adu));
	}
	return 0;
}
