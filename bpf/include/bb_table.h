/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * bb_table.h - the set-associative table of flows, sessions, users and streams.
 *
 * The problem:
 *
 * 1. Several CPUs look for keys, and add them, at the same time. BPF offers no
 *    lock that may be held across look-ups, and nobody may wait.
 * 2. A way (one place for an entry) serves another key when its own has been
 *    idle. A CPU may just have found the old key there, or be about to.
 * 3. Two CPUs may meet the same new key at once. They must agree on one entry.
 *
 * The protocol:
 *
 * 1. A key has two sets of BB_T_WAYS ways each (seeded hash: nobody can choose
 *    keys that meet in one set). Tag and generation of a way are one 64-bit
 *    word, its owner; every change of hands is a compare-and-swap of that word.
 * 2. A reader finds tag and key, then asks bb_way_hold(). A way used within
 *    BB_TOUCH_NS is nobody's to claim, so that costs no write. An older one is
 *    touched (compare-and-swap of used_ns, a full barrier), then its owner is
 *    read again.
 * 3. A claimer swaps the owner for "claimed" with the next generation (a full
 *    barrier), then looks again whether the way is idle. So either the claimer
 *    sees the reader's touch, or the reader sees the claim. A claimer that sees
 *    the touch leaves the way as an orphan: whoever holds it may finish, nobody
 *    finds it, and it is free when it has been idle.
 * 4. The newcomer's entry is wiped, gets its key, and is tentative: only those
 *    who add the same key see it. The adder looks through both sets once more.
 *    It publishes the entry if it is alone. It gives way to an entry in force,
 *    and to a tentative one at a lower index; for one at a higher index it looks
 *    again, a few times. Two CPUs cannot both publish one key, because each
 *    looks after its own entry can be seen.
 *
 * What is not promised: a CPU that stops for longer than the idle time between
 * its look-up and its use may use a way that has changed hands. Tables without
 * an idle time (BB_T_IDLE_NS 0) hand over the way that was used longest ago,
 * whether in use or not; there, whatever a CPU writes to an entry that it found
 * must carry the generation in the same word, or be compared-and-swapped with
 * the word read at the start, or do no harm in a foreign entry. The loads of
 * bb_way_hold are in order on x86.
 *
 * How to use it: define, include, repeat for the next table.
 *
 *	#define BB_T_NAME bb_thing          prefix of the functions
 *	#define BB_T_ENTRY struct bb_thing  first member: struct bb_way way; also
 *	                                    has a member `key`
 *	#define BB_T_KEY struct bb_thing_key  whole 64-bit words, no padding unset
 *	#define BB_T_SETS 1024              power of two, at most 65536
 *	#define BB_T_WAYS 4                 power of two
 *	#define BB_T_FIRST 0                lower indices are never handed out
 *	#define BB_T_IDLE_NS 0              idle for so long before it is handed on
 *	#define BB_T_BUSY(entry) 0          1: not idle, whatever used_ns says
 *	#define BB_T_LEAVES(key) 0          optional: ways of each set that this key leaves to
 *	                                    others, the first ones
 *	#define BB_T_IDLE_OF(entry, leaves) optional: how long this entry must be idle for a key
 *	                                    that leaves so many ways; at least BB_T_IDLE_NS
 *	#define BB_T_AT(index) ...          the entry, or NULL
 *	#define BB_T_WIPE(entry, hash) ...  all but `way` and `key`; way.gen is new
 *	#include "bb_table.h"
 *
 * gives, with `hash` of bb_hash_key(key, words, bb_config.seed):
 *
 *	int bb_thing_find(const key *, __u64 hash, __u64 now, __u32 *gen)
 *		inline: index of its entry, or -1
 *	int bb_thing_add(const key *, __u64 hash, __u64 now, __u32 *gen)
 *		a global function: the same, and adds it if it is not there; -1 if
 *		no way is free. Look with _find first: it is cheaper.
 *
 * *gen is the generation under which the entry is the key's.
 *
 * A CPU that keeps an index keeps the generation beside it, and asks
 * bb_way_is(entry, gen, now) before it uses the entry again. BB_STEP() marks the
 * places between which others may act; a native test (bpf/tests/table.rs) runs
 * all interleavings.
 */
#ifndef BB_TABLE_H
#define BB_TABLE_H

#include "bb_core.h"

#ifndef BB_STEP
#define BB_STEP() ((void)0)
#endif

/* A way is touched at most so often; it must be less than any table's idle time. */
#define BB_TOUCH_NS 10000000ULL

/* How often an adder begins again when others take the way that it chose. */
#define BB_TABLE_TRIES 4
/* How often an adder looks whether a rival at a higher index has given way. */
#define BB_TABLE_LOOKS 3

/* Values of bb_way.tag beside the tags of keys, which are odd and above 8. */
#define BB_WAY_FREE 0
#define BB_WAY_CLAIMED 2 /* between two owners */
#define BB_WAY_ORPHAN 4 /* claimed while somebody held it: free when idle */

#define bb_tag(hash_) ((__u32)(hash_) | 9)
#define bb_tentative(tag_) ((tag_) & ~1U)

#define bb_owner_tag(owner_) ((__u32)(owner_))
#define bb_owner_gen(owner_) ((__u32)((owner_) >> 32))
#define bb_owner(tag_, gen_) ((__u32)(tag_) | (__u64)(__u32)(gen_) << 32)

/* 64 bits of any type: the compiler takes no offence. */
typedef __u64 __attribute__((may_alias)) bb_word;

_Static_assert(__builtin_offsetof(struct bb_way, tag) == 0 &&
		       __builtin_offsetof(struct bb_way, gen) == 4,
	       "tag and generation are one word");

bb_inline __u64 bb_way_owner(const struct bb_way *way)
{
	BB_STEP();
	return *(const volatile bb_word *)way;
}

bb_inline int bb_way_swap(struct bb_way *way, __u64 from, __u64 to)
{
	BB_STEP();
	return __sync_bool_compare_and_swap((bb_word *)way, from, to);
}

bb_inline __u64 bb_way_used(const struct bb_way *way)
{
	BB_STEP();
	return *(const volatile __u64 *)&way->used_ns;
}

/* Signed: another CPU may have touched it just after `now` was read. */
#define bb_way_younger(used_, now_, age_) ((__s64)((now_) - (used_)) < (__s64)(age_))

/* May a way that had this owner be used now? Then it stays the owner's for the table's idle time. */
bb_inline int bb_way_hold(struct bb_way *way, __u64 owner, __u64 now)
{
	__u64 used = bb_way_used(way);

	if (!bb_way_younger(used, now, BB_TOUCH_NS)) {
		BB_STEP();
		__sync_bool_compare_and_swap(&way->used_ns, used, now);
	}
	return bb_way_owner(way) == owner;
}

/* The same for an index that was kept with its generation. */
bb_inline int bb_way_is(struct bb_way *way, __u32 gen, __u64 now)
{
	__u64 owner = bb_way_owner(way);

	return bb_owner_gen(owner) == gen && bb_way_hold(way, owner, now);
}

bb_inline int bb_same_words(const void *a, const void *b, __u32 words)
{
	const bb_word *x = a, *y = b;
	__u64 other = 0;

#pragma GCC unroll 8
	for (__u32 i = 0; i < words; i++)
		other |= x[i] ^ y[i];
	return !other;
}

#define BB_T_PASTE_(a_, b_) a_##b_
#define BB_T_PASTE(a_, b_) BB_T_PASTE_(a_, b_)

#endif /* BB_TABLE_H */

#ifdef BB_T_NAME

#ifndef BB_T_LEAVES
#define BB_T_ALL_WAYS 1 /* for every key */
#define BB_T_LEAVES(key_) 0
#define BB_T_IDLE_OF(entry_, leaves_) (BB_T_IDLE_NS)
#else
#define BB_T_ALL_WAYS 0
#endif
#define BB_T(what_) BB_T_PASTE(BB_T_NAME, what_)
#define BB_T_SAME(entry_, key_) bb_same_words(&(entry_)->key, (key_), sizeof(BB_T_KEY) / 8)

_Static_assert(sizeof(BB_T_KEY) % 8 == 0, "keys are compared by words");
_Static_assert(__builtin_offsetof(BB_T_ENTRY, way) == 0, "the way comes first");
_Static_assert(!(BB_T_IDLE_NS) || (BB_T_IDLE_NS) > BB_TOUCH_NS, "a way in use is not idle");

/*
 * Index of the key's n-th way: in turn from either set, as ways are filled. The
 * bits are not those of the tag.
 */
static inline __attribute__((always_inline)) __u32 BB_T(_nth)(__u64 hash, __u32 n)
{
	__u32 set = n & 1 ? hash >> 48 : hash >> 32;

	return (set & (BB_T_SETS - 1)) * BB_T_WAYS + n / 2;
}

static inline __attribute__((always_inline, unused)) int
BB_T(_find)(const BB_T_KEY *key, __u64 hash, __u64 now, __u32 *gen)
{
	for (__u32 n = 0; n < 2 * BB_T_WAYS; n++) {
		__u32 index = BB_T(_nth)(hash, n);
		BB_T_ENTRY *entry = BB_T_AT(index);
		__u64 owner;

		if (!entry)
			continue;
		owner = bb_way_owner(&entry->way);
		if (bb_owner_tag(owner) != bb_tag(hash) || !BB_T_SAME(entry, key))
			continue;
		*gen = bb_owner_gen(owner);
		return bb_way_hold(&entry->way, owner, now) ? (int)index : -1;
	}
	return -1;
}

/*
 * Where could the key go? The n of a free way, else of the one that was used
 * longest ago and may go; its owner is left in *owner. ~0 if there is none. The lower half
 * of `hash`, which names no set, is BB_T_LEAVES of the key: one argument less on the stack.
 */
__attribute__((noinline)) __u32 BB_T(_choose)(__u64 hash, __u64 now, __u64 *owner)
{
	__u64 oldest = ~0ULL;
	__u32 best = ~0U;

	/* clang leaves out arguments that it sees unused; the verifier wants all of them. */
	asm volatile("" : "+r"(now));
	if (!owner)
		return ~0U;
	/* Without an idle time nothing needs it: clang would pass none, and 6.1 to 7.x refuse that. */
	asm volatile("" : "+r"(now));
	for (__u32 n = 0; n < 2 * BB_T_WAYS; n++) {
		__u32 index = BB_T(_nth)(hash, n), tag;
		BB_T_ENTRY *entry;
		__u64 at, used = 0;

		/* Index 0 instead of a way left out, without a branch that the verifier would follow. */
		if (!BB_T_ALL_WAYS)
			index &= (__s32)((__u32)hash - 1 - n / 2) >> 31;
		entry = BB_T_AT(index);
		if (!entry || index + 1 <= BB_T_FIRST)
			continue;
		at = bb_way_owner(&entry->way);
		tag = bb_owner_tag(at);
		if (tag != BB_WAY_FREE) {
			if (!(tag & 1) && tag != BB_WAY_ORPHAN)
				continue;
			used = bb_way_used(&entry->way);
			if ((BB_T_IDLE_NS) &&
			    (bb_way_younger(used, now, BB_T_IDLE_OF(entry, (__u32)hash)) ||
			     BB_T_BUSY(entry)))
				continue;
		}
		if (used < oldest) {
			oldest = used;
			best = n;
			*owner = at;
		}
		if (tag == BB_WAY_FREE)
			break;
	}
	return best;
}

/*
 * Who else has the key, or adds it? BB_WAY_FREE: nobody beside the way `mine`
 * (~0: none). Else the tag of the entry that goes first, its index in *index: in
 * force, or tentative.
 */
__attribute__((noinline)) __u32 BB_T(_rival)(const BB_T_KEY *key, __u64 hash, __u32 mine,
					     __u32 *index)
{
	__u32 rival = BB_WAY_FREE;

	if (!key || !index)
		return BB_WAY_FREE;
	for (__u32 n = 0; n < 2 * BB_T_WAYS; n++) {
		__u32 at = BB_T(_nth)(hash, n), tag;
		BB_T_ENTRY *entry = BB_T_AT(at);

		if (!entry || at == mine)
			continue;
		tag = bb_owner_tag(bb_way_owner(&entry->way));
		if ((tag | 1) != bb_tag(hash) || !BB_T_SAME(entry, key))
			continue;
		if (rival != BB_WAY_FREE && tag != bb_tag(hash) && at > *index)
			continue;
		*index = at;
		rival = tag;
		if (tag == bb_tag(hash))
			break;
	}
	return rival;
}

/* The claimed way is the key's, if nobody else has it: 1. Else the way is free again: 0. */
static inline __attribute__((always_inline)) int
BB_T(_settle)(const BB_T_KEY *key, __u64 hash, BB_T_ENTRY *entry, __u32 index, __u32 gen)
{
	__u64 tentative = bb_owner(bb_tentative(bb_tag(hash)), gen);

	bb_way_swap(&entry->way, bb_owner(BB_WAY_CLAIMED, gen), tentative);
	for (__u32 looks = 0; looks < BB_TABLE_LOOKS; looks++) {
		__u32 at = 0, rival = BB_T(_rival)(key, hash, index, &at);

		if (rival == BB_WAY_FREE) {
			bb_way_swap(&entry->way, tentative, bb_owner(bb_tag(hash), gen));
			return 1;
		}
		if (rival == bb_tag(hash) || at < index)
			break;
	}
	bb_way_swap(&entry->way, tentative, bb_owner(BB_WAY_FREE, gen));
	return 0;
}

__attribute__((noinline)) int BB_T(_add)(const BB_T_KEY *key, __u64 hash, __u64 now, __u32 *gen)
{
	if (!key || !gen)
		return -1;
	for (__u32 tries = 0; tries < BB_TABLE_TRIES; tries++) {
		__u32 index = 0, n, rival = BB_T(_rival)(key, hash, ~0U, &index);
		BB_T_ENTRY *entry;
		__u64 owner = 0;

		if (rival == bb_tag(hash)) {
			entry = BB_T_AT(index);
			if (!entry)
				return -1;
			owner = bb_way_owner(&entry->way);
			*gen = bb_owner_gen(owner);
			if (bb_owner_tag(owner) == rival && BB_T_SAME(entry, key) &&
			    bb_way_hold(&entry->way, owner, now))
				return index;
			continue;
		}
		if (rival != BB_WAY_FREE)
			continue;
		n = BB_T(_choose)(BB_T_ALL_WAYS ? hash : (hash & ~0xFFFFFFFFULL) | BB_T_LEAVES(key),
				  now, &owner);
		if (n >= 2 * BB_T_WAYS)
			return -1;
		index = BB_T(_nth)(hash, n);
		entry = BB_T_AT(index);
		if (!entry)
			return -1;
		*gen = bb_owner_gen(owner) + 1;
		if (!bb_way_swap(&entry->way, owner, bb_owner(BB_WAY_CLAIMED, *gen)))
			continue;
		/* Nobody finds it any more. Has somebody, since it was chosen? */
		if ((BB_T_IDLE_NS) && bb_owner_tag(owner) != BB_WAY_FREE &&
		    (bb_way_younger(bb_way_used(&entry->way), now,
				    BB_T_IDLE_OF(entry, BB_T_LEAVES(key))) ||
		     BB_T_BUSY(entry))) {
			bb_way_swap(&entry->way, bb_owner(BB_WAY_CLAIMED, *gen),
				    bb_owner(BB_WAY_ORPHAN, *gen));
			continue;
		}
		BB_T_WIPE(entry, hash);
		BB_STEP();
		__builtin_memcpy(&entry->key, key, sizeof(*key));
		*(volatile __u64 *)&entry->way.used_ns = now;
		if (BB_T(_settle)(key, hash, entry, index, *gen))
			return index;
	}
	return -1;
}

#undef BB_T_NAME
#undef BB_T_ENTRY
#undef BB_T_KEY
#undef BB_T_SETS
#undef BB_T_WAYS
#undef BB_T_FIRST
#undef BB_T_IDLE_NS
#undef BB_T_BUSY
#undef BB_T_LEAVES
#undef BB_T_ALL_WAYS
#undef BB_T_IDLE_OF
#undef BB_T_AT
#undef BB_T_WIPE
#undef BB_T_SAME
#undef BB_T
#endif /* BB_T_NAME */
