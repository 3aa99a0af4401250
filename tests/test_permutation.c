/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chases built in memory and walked: for all combinations of stride, object,
 * group size, groups, chases, -L and -o that are below, and for random numbers
 * and permutations by themselves.
 */
#include "permutation.h"

#include "tap.h"

#include <stdlib.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* Bytes around an arena that nobody may touch. */
#define GUARD 64
#define GUARD_BYTE 0xa5

/* No stride or base needs to be a multiple of anything. */
static const size_t strides[] = {8, 12, 64, 200, 256, 1000, 4096};
static const size_t objects[] = {8, 16, 32, 64};
static const size_t group_sizes[] = {1, 2, 3, 64};
static const size_t group_counts[] = {1, 2, 7, 20};

enum property {
	CYCLE,
	ONCE,
	GROUPS,
	SLOTS,
	SPREAD,
	APART,
	ORDER,
	DRAWN,
	STORES,
	SHARES,
	SEED,
	NR_PROPERTIES,
};

static const char *const names[] = {
	[CYCLE] = "a chase is at its start again after layout_length() steps",
	[ONCE] = "every element is visited once a round",
	[GROUPS] = "TLB groups are visited whole, each once a round",
	[SLOTS] = "pointers are in slots, no slot is used twice",
	[SPREAD] = "slots of 64 elements in a row are as distinct as can be",
	[APART] = "the slots of a round and the next are far apart",
	[ORDER] = "ordered is in the order of addresses, random is not",
	[DRAWN] = "groups, rounds and chases are permutations of their own",
	[STORES] = "nothing but the pointers is written",
	[SHARES] = "linked share by share, last first: the same arena",
	[SEED] = "another seed, another order and other slots",
};

/* The first shape that lacks a property. */
static char complaint[NR_PROPERTIES][256];

static void complain(enum property property, const struct layout *l,
		     size_t chase, size_t step)
{
	if (*complaint[property])
		return;
	snprintf(complaint[property], sizeof(*complaint),
		 "stride %zu object %zu group %zu groups %zu chases %zu "
		 "rounds %zu%s: chase %zu step %zu",
		 l->stride, l->object, l->group_size, l->groups, l->nr_chases,
		 l->rounds, l->ordered ? " ordered" : "", chase, step);
}

static void expect(bool holds, enum property property, const struct layout *l,
		   size_t chase, size_t step)
{
	if (!holds)
		complain(property, l, chase, step);
}

/* Where a chase goes: the element and the slot of each step. */
struct walk {
	size_t length;
	size_t *element;
	size_t *slot;
};

static size_t nr_elements(const struct layout *l)
{
	return l->groups * l->group_size;
}

static void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory) {
		printf("Bail out! no memory for %zu times %zu\n", count, size);
		exit(1);
	}
	return memory;
}

/* False: a pointer leads out of the arena, or not back to its start. */
static bool take_walk(struct walk *walk, const struct layout *l, size_t chase)
{
	char *start = layout_start(l, chase), *p = start;

	walk->length = layout_length(l);
	walk->element = allocate(walk->length, sizeof(*walk->element));
	walk->slot = allocate(walk->length, sizeof(*walk->slot));
	for (size_t i = 0; i < walk->length; i++) {
		size_t at = (size_t)(p - l->base);

		if (p < l->base || at + sizeof(p) > l->total) {
			complain(CYCLE, l, chase, i);
			return false;
		}
		walk->element[i] = at / l->stride;
		walk->slot[i] = at % l->stride / l->object;
		expect(at % l->stride % l->object == 0 &&
			       walk->slot[i] < l->slots,
		       SLOTS, l, chase, i);
		p = load_link(p);
	}
	expect(p == start, CYCLE, l, chase, walk->length);
	return p == start;
}

static void end_walk(struct walk *walk)
{
	free(walk->element);
	free(walk->slot);
}

static void check_once(const struct layout *l, const struct walk *walk,
		       size_t chase)
{
	size_t elements = nr_elements(l);
	size_t *visits = allocate(elements, sizeof(*visits));

	for (size_t i = 0; i < walk->length; i++)
		expect(visits[walk->element[i]]++ == i / elements, ONCE, l,
		       chase, i);
	free(visits);
}

static void check_groups(const struct layout *l, const struct walk *walk,
			 size_t chase)
{
	size_t *visits = allocate(l->groups, sizeof(*visits));

	for (size_t i = 0; i < walk->length; i++) {
		size_t group = walk->element[i] / l->group_size;

		if (i % l->group_size == 0)
			expect(visits[group]++ == i / nr_elements(l), GROUPS, l,
			       chase, i);
		else
			expect(group == walk->element[i - 1] / l->group_size,
			       GROUPS, l, chase, i);
	}
	free(visits);
}

/* used: what is known of the slots so far, over all chases. */
static void check_slots(const struct layout *l, const struct walk *walk,
			size_t chase, bool *used)
{
	for (size_t i = 0; i < walk->length; i++) {
		bool *slot = &used[walk->element[i] * l->slots + walk->slot[i]];

		expect(!*slot, SLOTS, l, chase, i);
		*slot = true;
	}
}

/* Each slot comes 64 / slots times, rounded down or up. */
static void check_window(const struct layout *l, const size_t *slot_of,
			 size_t first, size_t chase)
{
	size_t *times = allocate(l->slots, sizeof(*times));

	for (size_t i = 0; i < SLOT_ROWS; i++)
		times[slot_of[first + i]]++;
	for (size_t i = 0; i < l->slots; i++)
		expect(times[i] == SLOT_ROWS / l->slots ||
			       times[i] ==
				       (SLOT_ROWS + l->slots - 1) / l->slots,
		       SPREAD, l, chase, first);
	free(times);
}

/* Not side by side, round the end of the element either. */
static void check_apart(const struct layout *l, const size_t *slot_of,
			const size_t *slot_before, size_t round, size_t chase)
{
	for (size_t i = 0; i < nr_elements(l); i++) {
		size_t distance =
			(slot_of[i] + l->slots - slot_before[i]) % l->slots;

		expect(l->slots < 16 || (distance > l->slots / 8 &&
					 distance < l->slots - l->slots / 8),
		       APART, l, chase, round * nr_elements(l) + i);
	}
}

static void check_spread(const struct layout *l, const struct walk *walk,
			 size_t chase)
{
	size_t elements = nr_elements(l);
	size_t *slot_of = allocate(elements, sizeof(*slot_of));
	size_t *slot_before = allocate(elements, sizeof(*slot_before));

	for (size_t round = 0; round < l->rounds; round++) {
		for (size_t i = 0; i < elements; i++) {
			size_t step = round * elements + i;

			slot_of[walk->element[step]] = walk->slot[step];
		}
		for (size_t i = 0; i + SLOT_ROWS <= elements; i += 37)
			check_window(l, slot_of, i, chase);
		if (round > 0)
			check_apart(l, slot_of, slot_before, round, chase);
		memcpy(slot_before, slot_of, elements * sizeof(*slot_of));
	}
	free(slot_before);
	free(slot_of);
}

/* Are these groups, or the elements of these groups, in rising order? */
static bool is_rising(const struct walk *walk, size_t start, size_t count,
		      size_t unit)
{
	for (size_t i = start + unit; i < start + count; i += unit)
		if (walk->element[i] / unit < walk->element[i - unit] / unit)
			return false;
	return true;
}

/* By chance, 20 groups are in order once in 20! times: never. */
static void check_order(const struct layout *l, const struct walk *walk,
			size_t chase)
{
	size_t elements = nr_elements(l);

	for (size_t at = 0; at < walk->length; at += elements) {
		if (l->ordered)
			expect(walk->element[at] == 0 &&
				       is_rising(walk, at, elements, 1),
			       ORDER, l, chase, at);
		if (!l->ordered && l->groups >= 20)
			expect(!is_rising(walk, at, elements, l->group_size),
			       ORDER, l, chase, at);
		if (!l->ordered && l->group_size >= 20)
			expect(!is_rising(walk, at, l->group_size, 1), ORDER, l,
			       chase, at);
	}
}

/* Is a round of one chase another permutation than a round of another? */
static void check_differ(const struct layout *l, const struct walk *walk,
			 size_t at, const struct walk *other, size_t chase)
{
	size_t elements = nr_elements(l);

	if (!l->ordered && elements >= 20)
		expect(memcmp(walk->element + at, other->element,
			      elements * sizeof(*walk->element)) != 0,
		       DRAWN, l, chase, at);
}

/* Do two groups, each visited in one round, go the same way inside? */
static bool is_alike(const struct layout *l, const struct walk *walk, size_t a,
		     size_t b)
{
	for (size_t i = 0; i < l->group_size; i++)
		if (walk->element[a + i] % l->group_size !=
		    walk->element[b + i] % l->group_size)
			return false;
	return true;
}

/* Each round and group against the one before, each chase against chase 0. */
static void check_drawn(const struct layout *l, const struct walk *walk,
			const struct walk *first, size_t chase)
{
	for (size_t at = nr_elements(l); at < walk->length;
	     at += nr_elements(l))
		check_differ(l, walk, at, walk, chase);
	for (size_t at = l->group_size; at < walk->length; at += l->group_size)
		if (!l->ordered && l->group_size >= 20)
			expect(!is_alike(l, walk, at, at - l->group_size),
			       DRAWN, l, chase, at);
	if (chase > 0)
		check_differ(l, walk, 0, first, chase);
}

static bool all_are(const char *bytes, size_t count, unsigned char value)
{
	for (size_t i = 0; i < count; i++)
		if ((unsigned char)bytes[i] != value)
			return false;
	return true;
}

/* The arena was zero, and all pointers that were found are zero again. */
static void check_stores(const struct layout *l, const bool *used)
{
	for (size_t i = 0; i < nr_elements(l); i++)
		for (size_t slot = 0; slot < l->slots; slot++)
			if (used[i * l->slots + slot])
				store_link(l->base + i * l->stride +
						   slot * l->object,
					   NULL);
	expect(all_are(l->base, l->total, 0), STORES, l, 0, 0);
	expect(all_are(l->base - GUARD, GUARD, GUARD_BYTE) &&
		       all_are(l->base + l->total, GUARD, GUARD_BYTE),
	       STORES, l, 0, 0);
}

static void check_shares(const struct layout *l)
{
	const size_t parts = 3;
	char *whole = allocate(l->total, 1);

	memcpy(whole, l->base, l->total);
	memset(l->base, 0, l->total);
	for (size_t i = parts; i-- > 0;)
		layout_link(l, share_start(l->groups, i, parts),
			    share_start(l->groups, i + 1, parts), NULL, 0);
	expect(memcmp(whole, l->base, l->total) == 0, SHARES, l, 0, 0);
	free(whole);
}

static void check_seed(const struct layout *l)
{
	struct layout other = *l;
	char *before;

	if (nr_elements(l) < 20 || (l->ordered && l->slots < 20))
		return;
	before = allocate(l->total, 1);
	memcpy(before, l->base, l->total);
	other.seed++;
	layout_init(&other);
	memset(l->base, 0, l->total);
	layout_link(&other, 0, other.groups, NULL, 0);
	expect(memcmp(before, l->base, l->total) != 0, SEED, l, 0, 0);
	memcpy(l->base, before, l->total);
	free(before);
}

static void check_walk(const struct layout *l, const struct walk *walk,
		       size_t chase, bool *used)
{
	check_once(l, walk, chase);
	check_groups(l, walk, chase);
	check_slots(l, walk, chase, used);
	check_spread(l, walk, chase);
	check_order(l, walk, chase);
}

/* False: a chase leads out of the arena or not back to its start. */
static bool check_chases(const struct layout *l, bool *used)
{
	struct walk first = {0}, walk;
	bool whole = true;

	for (size_t chase = 0; whole && chase < l->nr_chases; chase++) {
		whole = take_walk(&walk, l, chase);
		if (whole) {
			check_walk(l, &walk, chase, used);
			check_drawn(l, &walk, &first, chase);
		}
		if (chase == 0)
			first = walk;
		else
			end_walk(&walk);
	}
	end_walk(&first);
	return whole;
}

static void check_arena(struct layout *l)
{
	bool *used = allocate(nr_elements(l) * l->slots, sizeof(*used));
	bool whole;

	layout_link(l, 0, l->groups, NULL, 0);
	whole = check_chases(l, used);
	check_shares(l);
	check_seed(l);
	if (whole)
		check_stores(l, used);
	free(used);
}

/* The base is at an odd address. */
static void check_shape(struct layout *l)
{
	char *memory = allocate(l->total + 2 * GUARD + 1, 1);

	memset(memory, GUARD_BYTE, l->total + 2 * GUARD + 1);
	l->base = memory + GUARD + 1;
	memset(l->base, 0, l->total);
	layout_init(l);
	check_arena(l);
	free(memory);
}

/* Shapes of one stride and object: returns how many. */
static size_t check_shapes_of(size_t stride, size_t object, unsigned flags)
{
	const size_t slots = stride / object;
	const size_t chases[] = {1, 3, slots / 2 + 1, slots};
	size_t count = 0;

	for (size_t i = 0; i < LENGTH(group_sizes) * LENGTH(group_counts); i++)
		for (size_t c = 0; c < LENGTH(chases); c++) {
			struct layout l = {
				.stride = stride,
				.object = object,
				.tlb_locality =
					stride *
					group_sizes[i / LENGTH(group_counts)],
				.nr_chases = chases[c],
				.longer = flags & 1,
				.ordered = flags & 2,
				.seed = i + c,
			};

			/* Hundreds of chases need not be so long. */
			if (chases[c] > slots || (c && chases[c] == chases[0]))
				continue;
			l.total = l.tlb_locality *
				  group_counts[i % LENGTH(group_counts)];
			if (l.total / 8 > 100000 && chases[c] > 3)
				continue;
			check_shape(&l);
			count++;
		}
	return count;
}

static void test_stride(size_t stride)
{
	size_t count = 0;

	memset(complaint, 0, sizeof(complaint));
	for (size_t i = 0; i < LENGTH(objects); i++)
		for (unsigned flags = 0; flags < 4; flags++)
			if (objects[i] <= stride)
				count += check_shapes_of(stride, objects[i],
							 flags);
	for (size_t i = 0; i < NR_PROPERTIES; i++)
		if (!ok(count && !*complaint[i], "%zu shapes of stride %zu: %s",
			count, stride, names[i]))
			printf("# %s\n", complaint[i]);
}

/* Rounds and slots as the words of the interface have them. */
static void test_init(void)
{
	static const struct {
		size_t stride, object, chases;
		bool longer;
		size_t slots, rounds;
	} rows[] = {
		{256, 8, 1, false, 32, 1},   {256, 8, 1, true, 32, 32},
		{256, 8, 3, true, 32, 10},   {256, 8, 20, true, 32, 1},
		{12, 8, 1, true, 1, 1},      {200, 16, 5, true, 12, 2},
		{4096, 64, 64, true, 64, 1},
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct layout l = {
			.stride = rows[i].stride,
			.object = rows[i].object,
			.nr_chases = rows[i].chases,
			.longer = rows[i].longer,
			.tlb_locality = 5 * rows[i].stride,
			.total = 15 * rows[i].stride,
		};

		layout_init(&l);
		ok(l.slots == rows[i].slots && l.rounds == rows[i].rounds &&
			   l.groups == 3 && l.group_size == 5 &&
			   layout_length(&l) == 15 * rows[i].rounds,
		   "stride %zu, object %zu, %zu chases%s: %zu slots, %zu "
		   "rounds",
		   rows[i].stride, rows[i].object, rows[i].chases,
		   rows[i].longer ? ", longer" : "", rows[i].slots,
		   rows[i].rounds);
	}
}

static size_t hook_calls, hook_errors;

/* Marks an object by its low bit, to see that it comes once, and linked. */
static void mark(char *object, size_t argument)
{
	uintptr_t link = (uintptr_t)load_link(object);

	hook_calls++;
	hook_errors += argument != 17 || link == 0 || link & 1;
	store_link(object, (char *)(link | 1));
}

static void test_hook(void)
{
	static _Alignas(8) char memory[64 * 21];
	struct layout l = {
		.base = memory,
		.stride = 64,
		.object = 8,
		.tlb_locality = 64 * 3,
		.total = sizeof(memory),
		.nr_chases = 2,
		.longer = true,
	};

	layout_init(&l);
	layout_link(&l, 0, l.groups, mark, 17);
	ok(hook_calls == 2 * layout_length(&l) && hook_errors == 0,
	   "the hook is run once on each object, once it is linked");
}

static void test_shares(void)
{
	static const size_t counts[] = {0, 1, 2, 7, 64, 1000, SIZE_MAX};
	bool covers = true, even = true;

	for (size_t i = 0; i < LENGTH(counts); i++)
		for (size_t parts = 1; parts < 70; parts++) {
			covers &= share_start(counts[i], 0, parts) == 0;
			covers &= share_start(counts[i], parts, parts) ==
				  counts[i];
			for (size_t j = 0; j < parts; j++) {
				size_t share =
					share_start(counts[i], j + 1, parts) -
					share_start(counts[i], j, parts);

				even &= share - counts[i] / parts <= 1;
			}
		}
	ok(covers, "shares begin at 0 and end at the count");
	ok(even, "shares differ by one at most");
}

static bool is_bijection(uint64_t count, uint64_t key)
{
	bool *seen = allocate((size_t)count, sizeof(*seen)), good = true;

	for (uint64_t i = 0; good && i < count; i++) {
		uint64_t place = permute(i, count, key);

		good = place < count && !seen[place] &&
		       unpermute(place, count, key) == i;
		if (good)
			seen[place] = true;
	}
	free(seen);
	return good;
}

static bool inverts(uint64_t count, uint64_t key)
{
	uint64_t state = key;

	for (int i = 0; i < 10000; i++) {
		uint64_t x = random_next(&state) % count;
		uint64_t place = permute(x, count, key);

		if (place >= count || unpermute(place, count, key) != x)
			return false;
	}
	return true;
}

static void test_permute(void)
{
	static const uint64_t large[] = {
		(1ull << 32) - 1, 1ull << 32, (1ull << 32) + 1,
		1000000007,       1ull << 63, UINT64_MAX,
	};
	uint64_t bad = 0;

	for (uint64_t count = 1; count <= 2000 && !bad; count++)
		if (!is_bijection(count, count * 3))
			bad = count;
	ok(!bad, "permute and unpermute are bijections for 1 to 2000");
	for (uint64_t key = 0; key < 3; key++)
		ok(is_bijection(100003, key),
		   "permute is a bijection of 100003, key %d", (int)key);
	for (size_t i = 0; i < LENGTH(large); i++)
		ok(inverts(large[i], i), "unpermute inverts permute below %llu",
		   (unsigned long long)large[i]);
}

/*
 * Chi-square of counts that should all be the same. The limit is some 4.5
 * standard deviations above what is expected: the seeds are fixed, so a sound
 * generator passes for ever.
 */
static int is_uniform(const unsigned *counts, size_t cells, const char *what)
{
	double total = 0, square = 0, freedom = (double)cells - 1, excess;

	for (size_t i = 0; i < cells; i++)
		total += counts[i];
	for (size_t i = 0; i < cells; i++) {
		double distance = counts[i] - total / (double)cells;

		square += distance * distance / (total / (double)cells);
	}
	excess = square - freedom - 8;
	if (ok(excess <= 0 || excess * excess <= 20 * 2 * freedom,
	       "uniform: %s", what))
		return 1;
	printf("# chi-square %.1f of %g degrees of freedom\n", square, freedom);
	return 0;
}

#define TRIALS 200 /* expected in each cell */

static void test_random(void)
{
	unsigned below[10] = {0}, high[10] = {0}, bits[64] = {0};
	const uint64_t limit = 10ull << 40;
	uint64_t state = 0;
	bool fits = true;

	/* The published first numbers of SplitMix64 from state 0. */
	ok(random_next(&state) == 0xe220a8397b1dcdafull &&
		   random_next(&state) == 0x6e789e6aa1b965f4ull &&
		   random_next(&state) == 0x06c45d188009454full,
	   "random_next is SplitMix64");
	for (int i = 0; i < 10 * TRIALS; i++) {
		uint64_t small = random_below(&state, 10);
		uint64_t big = random_below(&state, limit);
		uint64_t word = random_next(&state);

		fits &= small < 10 && big < limit &&
			random_below(&state, 1) == 0;
		below[small % 10]++;
		high[(big >> 40) % 10]++;
		for (int bit = 0; bit < 64; bit++)
			bits[bit] += word >> bit & 1;
	}
	ok(fits, "random_below is below its limit");
	is_uniform(below, 10, "random_below 10");
	is_uniform(high, 10, "random_below 10 * 2^40");
	is_uniform(bits, 64, "the bits of random_next");
}

#define SMALL 4
#define NR_WAYS 24 /* entries times cyclic orders of 4 elements */

/* The number of a permutation among all of its length, by Lehmer's code. */
static size_t rank_of(const size_t *order, size_t count)
{
	size_t rank = 0;

	for (size_t i = 0; i < count; i++) {
		size_t smaller = 0;

		for (size_t j = i + 1; j < count; j++)
			smaller += order[j] < order[i];
		rank = rank * (count - i) + smaller;
	}
	return rank;
}

/* The ways through elements of one group, or through groups of one element. */
static void count_ways(unsigned *ways, unsigned *starts, size_t group_size,
		       size_t round)
{
	static char memory[SMALL * 64];

	for (uint64_t seed = 0; seed < NR_WAYS * TRIALS; seed++) {
		struct layout l = {
			.base = memory,
			.stride = 64,
			.object = 8,
			.tlb_locality = 64 * group_size,
			.total = sizeof(memory),
			.nr_chases = 1,
			.longer = true,
			.seed = seed,
		};
		struct walk walk;

		layout_init(&l);
		layout_link(&l, 0, l.groups, NULL, 0);
		if (take_walk(&walk, &l, 0)) {
			const size_t *order = walk.element + round * SMALL;

			ways[rank_of(order, SMALL)]++;
			starts[order[0]]++;
		}
		end_walk(&walk);
	}
}

static void test_distribution(void)
{
	static const struct {
		const char *what;
		size_t group_size, round;
	} rows[] = {
		{"elements of a group", SMALL, 0},
		{"elements of a group, in the last round", SMALL, 7},
		{"groups", 1, 0},
		{"groups, in the second round", 1, 1},
	};
	char what[128];

	for (size_t i = 0; i < LENGTH(rows); i++) {
		unsigned ways[NR_WAYS] = {0}, starts[SMALL] = {0};

		count_ways(ways, starts, rows[i].group_size, rows[i].round);
		snprintf(what, sizeof(what), "ways through 4 %s", rows[i].what);
		is_uniform(ways, NR_WAYS, what);
		snprintf(what, sizeof(what), "starts of 4 %s", rows[i].what);
		is_uniform(starts, SMALL, what);
	}
}

#define NR_PLACES 30

/* Where permute puts the first, one in the middle and the last. */
static void test_places(void)
{
	static const uint64_t from[] = {0, 11, NR_PLACES - 1};
	char what[64];

	for (size_t i = 0; i < LENGTH(from); i++) {
		unsigned places[NR_PLACES] = {0};

		for (uint64_t key = 0; key < NR_PLACES * TRIALS; key++)
			places[permute(from[i], NR_PLACES, key) % NR_PLACES]++;
		snprintf(what, sizeof(what), "the places of %d among %d",
			 (int)from[i], NR_PLACES);
		is_uniform(places, NR_PLACES, what);
	}
}

int main(void)
{
	for (size_t i = 0; i < LENGTH(strides); i++)
		test_stride(strides[i]);
	test_init();
	test_hook();
	test_shares();
	test_permute();
	test_random();
	test_distribution();
	test_places();
	return tap_end();
}
