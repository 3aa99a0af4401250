/* SPDX-License-Identifier: Apache-2.0 */
#include "permutation.h"

#include <string.h>

/*
 * SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
 * Generators, OOPSLA 2014): a counter that steps by the golden ratio, and a
 * mixer of its bits. The counter may start anywhere, so that each group of
 * each round has a stream of its own for one multiplication.
 */
#define GOLDEN_RATIO 0x9e3779b97f4a7c15ull

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

uint64_t random_next(uint64_t *state)
{
	*state += GOLDEN_RATIO;
	return mix(*state);
}

/*
 * The upper half of a product (Lemire: Fast Random Integer Generation in an
 * Interval, 2019), its bias below limit / 2^32 of one part left in: no count
 * of runs would show it. A remainder serves for limits of more than 32 bits.
 */
uint64_t random_below(uint64_t *state, uint64_t limit)
{
	if (limit <= UINT32_MAX)
		return (random_next(state) >> 32) * limit >> 32;
	return random_next(state) % limit;
}

/*
 * A Feistel network on the bits that count needs, its halves unequal where
 * they are odd; a place beyond count is permuted again until it falls inside.
 */
#define FEISTEL_ROUNDS 6

struct feistel {
	uint64_t key;
	unsigned low_bits;
	uint64_t low_mask, high_mask;
};

static struct feistel feistel_init(uint64_t count, uint64_t key)
{
	unsigned bits = 2;

	while (bits < 64 && (count - 1) >> bits)
		bits++;
	return (struct feistel){
		.key = key,
		.low_bits = bits / 2,
		.low_mask = (1ull << bits / 2) - 1,
		.high_mask = (1ull << (bits - bits / 2)) - 1,
	};
}

static uint64_t feistel_round(const struct feistel *f, uint64_t x, int round)
{
	uint64_t low = x & f->low_mask, high = x >> f->low_bits;
	uint64_t key = f->key + (uint64_t)round * GOLDEN_RATIO;

	if (round % 2)
		low ^= mix(high ^ key) & f->low_mask;
	else
		high ^= mix(low ^ key) & f->high_mask;
	return high << f->low_bits | low;
}

uint64_t permute(uint64_t i, uint64_t count, uint64_t key)
{
	const struct feistel f = feistel_init(count, key);

	do {
		for (int round = 0; round < FEISTEL_ROUNDS; round++)
			i = feistel_round(&f, i, round);
	} while (i >= count);
	return i;
}

uint64_t unpermute(uint64_t place, uint64_t count, uint64_t key)
{
	const struct feistel f = feistel_init(count, key);

	do {
		for (int round = FEISTEL_ROUNDS - 1; round >= 0; round--)
			place = feistel_round(&f, place, round);
	} while (place >= count);
	return place;
}

size_t share_start(size_t count, size_t index, size_t parts)
{
	size_t rest = count % parts;

	return count / parts * index + (index < rest ? index : rest);
}

char *load_link(const char *object)
{
	char *next;

	memcpy(&next, object, sizeof(next));
	return next;
}

void store_link(char *object, const char *next)
{
	memcpy(object, &next, sizeof(next));
}

size_t common_divisor(size_t a, size_t b)
{
	while (b != 0) {
		size_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

size_t spreading_step(size_t count)
{
	size_t step = count / 8 * 5 + 1;

	while (common_divisor(step, count) != 1)
		step++;
	return step;
}

/*
 * The slot of chase slot index k in row r is (k * slot_step + shift[r]) modulo
 * slots. The step has no divisor in common with slots, so that no two indexes
 * meet; near the golden ratio of them, it keeps neighbours far apart. The
 * shifts of a row are all different while there are slots enough, else every
 * slot comes equally often: no chase favours an offset, a bank or a set.
 */
static void choose_slots(struct layout *layout)
{
	uint64_t key = layout->seed;
	size_t turn = 0;

	layout->slot_step = spreading_step(layout->slots);
	random_next(&key);
	for (size_t row = 0; row < SLOT_ROWS; row++) {
		if (turn == layout->slots) {
			random_next(&key);
			turn = 0;
		}
		layout->shift[row] = permute(turn++, layout->slots, key);
	}
}

void layout_init(struct layout *layout)
{
	layout->slots = layout->stride / layout->object;
	layout->rounds = 1;
	if (layout->longer && layout->slots > layout->nr_chases)
		layout->rounds = layout->slots / layout->nr_chases;
	layout->group_size = layout->tlb_locality / layout->stride;
	layout->groups = layout->total / layout->tlb_locality;
	choose_slots(layout);
}

size_t layout_length(const struct layout *layout)
{
	return layout->groups * layout->group_size * layout->rounds;
}

/* One round of one chase. */
struct round {
	const struct layout *layout;
	size_t slot; /* its index, before a row has shifted it */
	uint64_t key;
};

static struct round get_round(const struct layout *layout, size_t chase,
			      size_t number)
{
	size_t index = chase * layout->rounds + number;
	size_t slots = layout->slots;
	uint64_t key = mix(layout->seed + GOLDEN_RATIO) + index * GOLDEN_RATIO;

	return (struct round){
		.layout = layout,
		/* The product may be larger than a size_t holds. */
		.slot = (size_t)((unsigned long long)index * layout->slot_step %
				 slots),
		.key = mix(key),
	};
}

static inline char *object_at(const struct round *round, size_t element)
{
	const struct layout *layout = round->layout;
	size_t slot = round->slot + layout->shift[element % SLOT_ROWS];

	if (slot >= layout->slots)
		slot -= layout->slots;
	return layout->base + element * layout->stride + slot * layout->object;
}

static size_t group_at(const struct round *round, size_t place)
{
	const struct layout *layout = round->layout;

	if (layout->ordered)
		return place;
	return (size_t)permute(place, layout->groups, round->key);
}

static size_t place_of(const struct round *round, size_t group)
{
	const struct layout *layout = round->layout;

	if (layout->ordered)
		return group;
	return (size_t)unpermute(group, layout->groups, round->key);
}

/* The stream of random numbers of one group in one round. */
static uint64_t group_stream(const struct round *round, size_t group)
{
	return mix(round->key + (group + 1) * GOLDEN_RATIO);
}

/* The element, counted inside its group, at which the group is entered. */
static size_t entry_of(const struct round *round, size_t group)
{
	uint64_t stream = group_stream(round, group);

	if (round->layout->ordered)
		return 0;
	return (size_t)random_below(&stream, round->layout->group_size);
}

static char *entry_at(const struct round *round, size_t place)
{
	size_t group = group_at(round, place);

	return object_at(round, group * round->layout->group_size +
					entry_of(round, group));
}

/* Where the chase goes after the last element of the group. */
static char *exit_of(const struct round *round, const struct round *next_round,
		     size_t group)
{
	size_t place = place_of(round, group) + 1;

	if (place < round->layout->groups)
		return entry_at(round, place);
	return entry_at(next_round, 0);
}

/*
 * Links a group in place: a path of one element, the entry, grows by one
 * element after the other, each put behind one that is drawn from those that
 * are there. Every path from the entry is equally likely (Sattolo's algorithm,
 * told by insertion), and the end of the path always holds the exit.
 */
static void link_group(const struct round *round, size_t group, char *exit)
{
	const size_t size = round->layout->group_size;
	const size_t first = group * size;
	const bool ordered = round->layout->ordered;
	uint64_t stream = group_stream(round, group);
	/* The same draw as in entry_of(). */
	const size_t entry = ordered ? 0 : (size_t)random_below(&stream, size);
	size_t element = entry;

	store_link(object_at(round, first + entry), exit);
	for (size_t i = 1; i < size; i++) {
		size_t behind =
			entry +
			(ordered ? i - 1 : (size_t)random_below(&stream, i));
		char *object, *before;

		if (behind >= size)
			behind -= size;
		if (++element == size)
			element = 0;
		object = object_at(round, first + element);
		before = object_at(round, first + behind);
		store_link(object, load_link(before));
		store_link(before, object);
	}
}

static void run_hook(const struct round *round, size_t group, link_hook *hook,
		     size_t argument)
{
	const size_t size = round->layout->group_size;

	for (size_t i = 0; i < size; i++)
		hook(object_at(round, group * size + i), argument);
}

/* Group by group, so that all rounds of one find it in the caches. */
void layout_link(const struct layout *layout, size_t first, size_t end,
		 link_hook *hook, size_t argument)
{
	for (size_t group = first; group < end; group++) {
		for (size_t chase = 0; chase < layout->nr_chases; chase++) {
			struct round round = get_round(layout, chase, 0);

			for (size_t i = 1; i <= layout->rounds; i++) {
				struct round next = get_round(
					layout, chase, i % layout->rounds);

				link_group(&round, group,
					   exit_of(&round, &next, group));
				if (hook)
					run_hook(&round, group, hook, argument);
				round = next;
			}
		}
	}
}

char *layout_start(const struct layout *layout, size_t chase)
{
	struct round round = get_round(layout, chase, 0);

	return entry_at(&round, 0);
}
