// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * bb_table.h and bb_answer.h under all interleavings of two or three CPUs, for
 * bpf/tests/table.rs.
 *
 * Each simulated CPU is a coroutine that gives way at every BB_STEP(). From each
 * state every CPU is let on by one step; a state is the table and the stacks in
 * use, so states that were seen are not followed again and the search ends. The
 * steps are sequentially consistent: what a weaker memory may do is for the
 * barriers to forbid, not for this test to find.
 *
 * build.rs compiles this file once as it is and once for each mutant, a copy of
 * the headers with one step of the protocol taken out (BBN names the copy).
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

static void bbn_step(void);
#define BB_STEP() bbn_step()
#include "bb_table.h"
#include "bb_answer.h"

#ifndef BBN
#define BBN(name_) name_
#endif

#define CPUS 3
#define WAYS 2 /* one in each of two sets */
#define STACK 4096
#define NOW (100 * BB_NSEC_PER_SEC)
#define IDLE BB_NSEC_PER_SEC

struct toy_key {
	__u64 name;
};

struct toy {
	struct bb_way way;
	struct toy_key key;
	__u64 queued;
	__u64 rule; /* an answer: the key's name */
};

/* All that a state consists of. */
static struct {
	struct toy session[WAYS];
	struct toy flow[WAYS];
	__u8 done[CPUS];
	ucontext_t cpu[CPUS];
	char stack[CPUS][STACK] __attribute__((aligned(16)));
} world;

static int running = -1;
static ucontext_t explorer;
static const char *fault;

static void bbn_step(void)
{
	if (running >= 0)
		swapcontext(&world.cpu[running], &explorer);
}

#define BB_T_NAME BBN(toy_session)
#define BB_T_ENTRY struct toy
#define BB_T_KEY struct toy_key
#define BB_T_SETS 2
#define BB_T_WAYS 1
#define BB_T_FIRST 0
#define BB_T_IDLE_NS IDLE
#define BB_T_BUSY(entry_) (*(volatile __u64 *)&(entry_)->queued)
#define BB_T_AT(index_) (&world.session[index_])
#define BB_T_WIPE(entry_, hash_) ((entry_)->queued = 0)
#include "bb_table.h"

#define BB_T_NAME BBN(toy_flow)
#define BB_T_ENTRY struct toy
#define BB_T_KEY struct toy_key
#define BB_T_SETS 2
#define BB_T_WAYS 1
#define BB_T_FIRST 0
#define BB_T_IDLE_NS 0
#define BB_T_BUSY(entry_) 0
#define BB_T_AT(index_) (&world.flow[index_])
#define BB_T_WIPE(entry_, hash_) ((entry_)->rule = bb_answer_of((entry_)->way.gen, 0))
#include "bb_table.h"

#define PASTE_(a_, b_) a_##b_
#define PASTE(a_, b_) PASTE_(a_, b_)
#define SESSION(what_) PASTE(BBN(toy_session), what_)
#define FLOW(what_) PASTE(BBN(toy_flow), what_)

/* Both sets are each key's, in this order. */
static __u64 hash_of(__u64 name)
{
	return name << 8 | 1ULL << 48;
}

/* ---- what a CPU does ---- */

struct job {
	enum {
		NOTHING,
		SEND, /* finds or adds the session of `name`, and queues a packet there */
		KEPT, /* the same by an index and a generation that it has kept */
		JUDGE, /* finds or adds the flow of `name`, and the answer to it */
	} what;
	__u64 name;
};

static struct job jobs[CPUS];

static void queue_one(__u32 index, __u64 name)
{
	struct toy *s = &world.session[index];

	for (int out = 0; out < 2; out++) {
		BB_STEP();
		if (s->key.name != name)
			fault = "a packet is in the session of another";
		if (out && !s->queued)
			fault = "more packets leave a session than came";
		s->queued += out ? -1ULL : 1;
	}
}

static void run(int cpu)
{
	struct toy_key key = { jobs[cpu].name };
	__u64 hash = hash_of(key.name), before;
	__u32 gen = 0;
	int index = -1;

	switch (jobs[cpu].what) {
	case NOTHING:
		break;
	case KEPT: /* way 0, which was this key's when the run began */
		if (bb_way_is(&world.session[0].way, 1, NOW)) {
			queue_one(0, key.name);
			break;
		}
		/* fall through */
	case SEND:
		index = SESSION(_find)(&key, hash, NOW, &gen);
		if (index < 0)
			index = SESSION(_add)(&key, hash, NOW, &gen);
		if (index >= 0)
			queue_one(index, key.name);
		break;
	case JUDGE:
		index = FLOW(_find)(&key, hash, NOW, &gen);
		if (index < 0)
			index = FLOW(_add)(&key, hash, NOW, &gen);
		if (index < 0)
			break;
		before = bb_answer(&world.flow[index].rule);
		if (!bb_answer_is(before, gen) || !(before & BB_ANSWER_MASK))
			bb_keep_answer(&world.flow[index].rule, before, gen, key.name);
		else if ((before & BB_ANSWER_MASK) != key.name)
			fault = "a packet is judged by another's answer";
		break;
	}
	world.done[cpu] = 1;
	swapcontext(&world.cpu[cpu], &explorer);
}

/* ---- what must hold ---- */

static void check_table(const struct toy *table, int finished)
{
	for (int i = 0; i < WAYS; i++) {
		__u32 tag = table[i].way.tag;

		if (finished && tag && !(tag & 1) && tag != BB_WAY_ORPHAN)
			fault = "a way is lost for ever";
		if (finished && (__s64)table[i].queued < 0)
			fault = "a session counts less than nothing";
		if (tag & 1 && tag != bb_tag(hash_of(table[i].key.name)))
			fault = "an entry is in force under another's tag";
		for (int j = 0; j < i; j++)
			if (tag & 1 && tag == table[j].way.tag &&
			    table[i].key.name == table[j].key.name)
				fault = "one key has two entries";
	}
}

static void check(int finished)
{
	check_table(world.session, finished);
	check_table(world.flow, finished);
	for (int i = 0; i < WAYS; i++) {
		const struct toy *f = &world.flow[i];

		if (f->way.tag & 1 && bb_answer_is(f->rule, f->way.gen) &&
		    f->rule & BB_ANSWER_MASK && (f->rule & BB_ANSWER_MASK) != f->key.name)
			fault = "a flow has the answer of another";
	}
}

/* ---- the search ---- */

#define SEEN (1U << 22)
static __u64 *seen;
static __u32 states;

static __u64 add_bytes(__u64 hash, const void *from, size_t size)
{
	const __u64 *word = from;

	for (size_t i = 0; i < size / 8; i++) {
		hash = (hash ^ word[i]) * 0x9E3779B97F4A7C15ULL;
		hash ^= hash >> 29;
	}
	return hash;
}

static __u64 state(void)
{
	__u64 hash = add_bytes(1, world.session, sizeof(world.session));

	hash = add_bytes(hash, world.flow, sizeof(world.flow));
	for (int cpu = 0; cpu < CPUS; cpu++) {
		const greg_t *regs = world.cpu[cpu].uc_mcontext.gregs;
		char *sp = (char *)regs[REG_RSP], *top = world.stack[cpu] + STACK;

		hash = add_bytes(hash, &cpu, 0) + world.done[cpu];
		if (world.done[cpu])
			continue;
		/* What a call must keep; the rest is no part of the state. */
		hash = add_bytes(hash, &regs[REG_RBX], 8);
		hash = add_bytes(hash, &regs[REG_RBP], 8);
		for (int r = REG_R12; r <= REG_R15; r++)
			hash = add_bytes(hash, &regs[r], 8);
		hash = add_bytes(hash, &regs[REG_RIP], 8);
		sp = (char *)((unsigned long)sp & ~7UL);
		hash = add_bytes(hash, sp, top - sp);
	}
	return hash ?: 1;
}

static int is_new(__u64 hash)
{
	__u32 i = hash & (SEEN - 1);

	for (; seen[i]; i = (i + 1) & (SEEN - 1))
		if (seen[i] == hash)
			return 0;
	seen[i] = hash;
	if (++states > SEEN / 2)
		fault = "the search does not end";
	return 1;
}

/*
 * `last` ran last; `left` is how often a CPU that could go on may still be
 * interrupted, ALL where there is no bound.
 */
#define ALL (~0U)
static void explore(int last, __u32 left)
{
	void *here = malloc(sizeof(world));
	int finished = 1;

	memcpy(here, &world, sizeof(world));
	for (int cpu = 0; cpu < CPUS && !fault; cpu++) {
		__u32 then = left;

		if (world.done[cpu])
			continue;
		finished = 0;
		if (left != ALL && cpu != last && last >= 0 && !world.done[last] && !then--)
			continue;
		running = cpu;
		swapcontext(&explorer, &world.cpu[cpu]);
		running = -1;
		check(0);
		if (!fault && is_new(left == ALL ? state() : state() + 4 * then + cpu))
			explore(cpu, then);
		memcpy(&world, here, sizeof(world));
	}
	if (finished)
		check(1);
	free(here);
}

static void put(struct toy *entry, __u64 name, __u64 age, __u64 queued)
{
	entry->way.tag = bb_tag(hash_of(name));
	entry->way.gen = 1;
	entry->way.used_ns = NOW - age;
	entry->key.name = name;
	entry->queued = queued;
	entry->rule = bb_answer_of(1, 0);
}

#define A 1
#define B 2
#define C 3
#define D 4

/* Sets the scene; 0 if there is none of this number. */
static int set_scene(int number)
{
	static const struct job scenes[][CPUS] = {
		/* A was idle for long: it is used again while B, then C, want its place. */
		{ { SEND, A }, { SEND, B } },
		{ { KEPT, A }, { SEND, B } },
		{ { SEND, A }, { SEND, B }, { SEND, C } },
		{ { KEPT, A }, { SEND, A }, { SEND, B } },
		/* Several CPUs meet A new, where ways are free. */
		{ { SEND, A }, { SEND, A } },
		{ { SEND, A }, { SEND, A }, { SEND, A } },
		{ { SEND, A }, { SEND, A }, { SEND, B } },
		/* ... or both ways are idle. */
		{ { SEND, A }, { SEND, A }, { SEND, C } },
		{ { KEPT, C }, { SEND, A }, { SEND, A } },
		/* Flows: nothing is idle, the oldest goes. */
		{ { JUDGE, A }, { JUDGE, B } },
		{ { JUDGE, A }, { JUDGE, B }, { JUDGE, C } },
		{ { JUDGE, A }, { JUDGE, A }, { JUDGE, B } },
		/* A finds its place claimed, and another that is idle. */
		{ { SEND, A }, { SEND, B } },
		{ { KEPT, A }, { SEND, A }, { SEND, B } },
	};

	if (number < 0 || number >= (int)(sizeof(scenes) / sizeof(*scenes)))
		return 0;
	memset(&world, 0, sizeof(world));
	memcpy(jobs, scenes[number], sizeof(jobs));
	if (number < 4) {
		put(&world.session[0], A, 2 * IDLE, 0);
		put(&world.session[1], D, 0, 1);
	} else if (number == 7 || number == 8) {
		put(&world.session[0], C, 2 * IDLE, 0);
		put(&world.session[1], D, 3 * IDLE, 0);
	} else if (number >= 12) {
		put(&world.session[0], A, 3 * IDLE, 0);
		put(&world.session[1], C, 2 * IDLE, 0);
	} else if (number >= 9) {
		put(&world.flow[0], A, IDLE, 0);
		put(&world.flow[1], D, IDLE / 2, 0);
	}
	for (int cpu = 0; cpu < CPUS; cpu++) {
		getcontext(&world.cpu[cpu]);
		world.cpu[cpu].uc_stack.ss_sp = world.stack[cpu];
		world.cpu[cpu].uc_stack.ss_size = STACK;
		world.done[cpu] = jobs[cpu].what == NOTHING;
		makecontext(&world.cpu[cpu], (void (*)(void))run, 1, cpu);
	}
	return 1;
}

/* Three CPUs that add one key have too many states for all of them. */
static const __u32 bounds[] = { ALL, ALL, ALL, ALL, ALL, 3, 3, 3, 3, ALL, ALL, 3, ALL, 3 };

/*
 * Runs all interleavings of a scene (within its bound). NULL: there is no such scene. Else what was
 * found wrong first, or ""; how many states there are in *count.
 */
const char *BBN(bbn_explore)(int scene, __u32 *count)
{
	if (!set_scene(scene))
		return 0;
	seen = calloc(SEEN, sizeof(*seen));
	states = 0;
	fault = 0;
	explore(-1, bounds[scene]);
	free(seen);
	*count = states;
	return fault ?: "";
}
