/* SPDX-License-Identifier: Apache-2.0 */
#include "permutation.h"

#include <stdlib.h>
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

/* The slot of an index in a row, which shifts it. */
static inline size_t shifted(size_t slot, size_t shift, size_t slots)
{
	slot += shift;
	return slot < slots ? slot : slot - slots;
}

static inline size_t slot_in(const struct round *round, size_t row)
{
	const struct layout *layout = round->layout;

	return shifted(round->slot, layout->shift[row], layout->slots);
}

static inline char *object_at(const struct round *round, size_t element)
{
	const struct layout *layout = round->layout;

	return layout->base + element * layout->stride +
	       slot_in(round, element % SLOT_ROWS) * layout->object;
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
 * A path of one element, the entry, that grows by one element after the other,
 * in the order of addresses, each put behind one that is drawn from those that
 * are there. Every path from the entry is equally likely (Sattolo's algorithm,
 * told by insertion).
 */
struct path {
	size_t size;            /* elements of the group */
	size_t entry, length;   /* the first of the path, and how many it has */
	size_t element, behind; /* the newest, and the one before it */
};

static inline struct path start_path(const struct round *round, size_t group)
{
	const size_t entry = entry_of(round, group);

	return (struct path){
		.size = round->layout->group_size,
		.entry = entry,
		.length = 1,
		.element = entry,
	};
}

/* The next element comes behind the one that was the place-th to come. */
static inline void grow_path(struct path *path, size_t place)
{
	path->behind = path->entry + place;
	if (path->behind >= path->size)
		path->behind -= path->size;
	if (++path->element == path->size)
		path->element = 0;
	path->length++;
}

/* A draw by half a random number, the upper one first. */
static inline size_t draw_place(uint32_t random, size_t length)
{
	return (size_t)((uint64_t)random * length >> 32);
}

/* An even length has the half that the odd one before it has left over. */
static size_t next_place(const struct layout *layout, size_t length,
			 uint64_t *stream)
{
	uint64_t number;

	if (layout->ordered)
		return length - 1;
	if (length > UINT32_MAX)
		return (size_t)random_below(stream, length);
	if (length % 2 == 0)
		return draw_place((uint32_t)mix(*stream), length);
	number = random_next(stream);
	return draw_place((uint32_t)(number >> 32), length);
}

/* Links a group in place; the end of the path always holds the exit. */
static void link_in_place(const struct round *round, size_t group, char *exit)
{
	const size_t first = group * round->layout->group_size;
	struct path path = start_path(round, group);
	uint64_t stream = group_stream(round, group);

	store_link(object_at(round, first + path.entry), exit);
	while (path.length < path.size) {
		char *object, *before;

		grow_path(&path,
			  next_place(round->layout, path.length, &stream));
		object = object_at(round, first + path.element);
		before = object_at(round, first + path.behind);
		store_link(object, load_link(before));
		store_link(before, object);
	}
}

/*
 * Where a cache can hold the links of some rounds of a group, they are drawn
 * there, and then stored element by element: else each draw is an access to
 * another line, and each line is fetched once for each round.
 */
#define BATCH_LINKS ((size_t)1 << 16)
#define BATCH_ROUNDS 128
#define TO_EXIT UINT32_MAX

struct batch {
	const struct layout *layout;
	size_t group;
	size_t capacity;           /* rounds that there is room for */
	size_t count;              /* rounds that are there */
	size_t slot[BATCH_ROUNDS]; /* before a row has shifted it */
	char *exit[BATCH_ROUNDS];
	/*
	 * Of each round, for each element of the group: where its link leads,
	 * in bytes from the start of the group. A round begins on a line that
	 * is not in the set of the one before.
	 */
	size_t pitch;
	uint32_t *links;
};

/*
 * Without the memory, or where it serves no purpose, all is done in place:
 * small groups, and ordered ones, which draw nothing. What all threads take
 * together is a small part of the arena.
 */
#define LEAST_BYTES_PER_BATCH_BYTE 64

static void start_batch(struct batch *batch, const struct layout *layout,
			size_t groups)
{
	const size_t line = 64 / sizeof(*batch->links);
	const size_t size = layout->group_size;
	size_t room = groups * layout->tlb_locality /
		      LEAST_BYTES_PER_BATCH_BYTE / sizeof(*batch->links);

	*batch = (struct batch){.layout = layout, .pitch = size + line};
	if (room > BATCH_LINKS + batch->pitch)
		room = BATCH_LINKS + batch->pitch;
	/* One round more, where it is drawn. */
	if (layout->ordered || size < SLOT_ROWS || room < 2 * batch->pitch ||
	    layout->tlb_locality >= TO_EXIT)
		return;
	batch->links = malloc(room * sizeof(*batch->links));
	if (!batch->links)
		return;
	batch->capacity = room / batch->pitch - 1;
	if (batch->capacity > BATCH_ROUNDS)
		batch->capacity = BATCH_ROUNDS;
}

/*
 * Where the next element's object is, in bytes from the start of the group, in
 * the order in which a path takes them in: from the entry to the end of the
 * group, and on from its start.
 */
struct walk {
	size_t row;
	uint32_t element, stride, end;
	uint32_t slot_at[SLOT_ROWS]; /* from the start of the element */
};

static struct walk start_walk(const struct round *round, size_t group,
			      size_t element)
{
	const struct layout *layout = round->layout;
	struct walk walk = {
		.row = group * layout->group_size + element,
		.element = (uint32_t)(element * layout->stride),
		.stride = (uint32_t)layout->stride,
		.end = (uint32_t)(layout->group_size * layout->stride),
	};

	for (size_t row = 0; row < SLOT_ROWS; row++)
		walk.slot_at[row] =
			(uint32_t)(slot_in(round, row) * layout->object);
	return walk;
}

static inline uint32_t walk_on(struct walk *walk)
{
	walk->row++;
	walk->element += walk->stride;
	if (walk->element == walk->end) {
		walk->element = 0;
		walk->row -= walk->end / walk->stride;
	}
	return walk->element + walk->slot_at[walk->row % SLOT_ROWS];
}

/* The path grows by an object, behind the place-th that has come. */
static inline void draw_link(uint32_t *links, size_t length, uint32_t random,
			     uint32_t object)
{
	const size_t place = draw_place(random, length);

	links[length] = links[place];
	links[place] = object;
}

/* Drawn by order of arrival, which is then turned to that of addresses. */
static void draw_round(struct batch *batch, const struct round *round,
		       char *exit)
{
	const size_t size = batch->layout->group_size;
	const size_t entry = entry_of(round, batch->group);
	uint32_t *drawn = batch->links + batch->capacity * batch->pitch;
	uint32_t *links = batch->links + batch->count * batch->pitch;
	uint64_t stream = group_stream(round, batch->group), random;
	struct walk walk = start_walk(round, batch->group, entry);
	size_t length = 1;

	drawn[0] = TO_EXIT;
	while (length < size) {
		random = random_next(&stream);
		draw_link(drawn, length++, (uint32_t)(random >> 32),
			  walk_on(&walk));
		if (length < size)
			draw_link(drawn, length++, (uint32_t)random,
				  walk_on(&walk));
	}
	memcpy(links + entry, drawn, (size - entry) * sizeof(*links));
	memcpy(links, drawn + size - entry, entry * sizeof(*links));
	batch->slot[batch->count] = round->slot;
	batch->exit[batch->count++] = exit;
}

/* What is read here is not changed by the stores, but no compiler knows that.
 */
static void store_batch(struct batch *batch)
{
	const struct layout *layout = batch->layout;
	const size_t size = layout->group_size, stride = layout->stride;
	const size_t slots = layout->slots, object = layout->object;
	const size_t count = batch->count, pitch = batch->pitch;
	const size_t first = batch->group * size;
	char *const start = layout->base + first * stride;
	const uint32_t *links = batch->links;

	for (size_t i = 0; i < size; i++) {
		const size_t shift = layout->shift[(first + i) % SLOT_ROWS];
		char *const element = start + i * stride;
		const uint32_t *link = links + i;

		for (size_t j = 0; j < count; j++) {
			const size_t slot =
				shifted(batch->slot[j], shift, slots);

			store_link(element + slot * object,
				   *link == TO_EXIT ? batch->exit[j]
						    : start + *link);
			link += pitch;
		}
	}
	batch->count = 0;
}

/* Links a round of the group, at once or with those that come next. */
static void link_round(struct batch *batch, const struct round *round,
		       char *exit)
{
	if (batch->capacity == 0) {
		link_in_place(round, batch->group, exit);
		return;
	}
	draw_round(batch, round, exit);
	if (batch->count == batch->capacity)
		store_batch(batch);
}

static void run_hook(const struct round *round, size_t group, link_hook *hook,
		     size_t argument)
{
	const size_t size = round->layout->group_size;

	for (size_t i = 0; i < size; i++)
		hook(object_at(round, group * size + i), argument);
}

/*
 * What to add to the index of a slot, modulo slots, for the index of the slot
 * beside it: the inverse of slot_step, by Euclid's extended algorithm.
 */
static size_t step_to_neighbour(const struct layout *layout)
{
	const long long slots = (long long)layout->slots;
	long long rest = slots, next_rest = (long long)layout->slot_step;
	long long inverse = 0, next_inverse = 1;

	while (next_rest) {
		const long long quotient = rest / next_rest;
		long long last = rest - quotient * next_rest;

		rest = next_rest;
		next_rest = last;
		last = inverse - quotient * next_inverse;
		inverse = next_inverse;
		next_inverse = last;
	}
	return (size_t)(inverse < 0 ? inverse + slots : inverse);
}

/* All rounds of all chases: indexes from 0 up to there, in steps. */
static void link_group(struct batch *batch, size_t step, size_t indexes)
{
	const struct layout *layout = batch->layout;
	const size_t rounds = layout->rounds;
	size_t index = 0;

	for (size_t i = 0; i < indexes; i++) {
		const size_t chase = index / rounds;

		if (chase < layout->nr_chases) {
			const struct round round =
				get_round(layout, chase, index % rounds);
			const struct round next =
				get_round(layout, chase, (index + 1) % rounds);

			link_round(batch, &round,
				   exit_of(&round, &next, batch->group));
		}
		index += step;
		if (index >= indexes)
			index -= indexes;
	}
	if (batch->count)
		store_batch(batch);
}

/*
 * Group by group, so that all rounds of one find it in the caches; in each, in
 * the order of slots if most are used.
 */
void layout_link(const struct layout *layout, size_t first, size_t end,
		 link_hook *hook, size_t argument)
{
	const size_t used = layout->nr_chases * layout->rounds;
	const bool most = used > layout->slots / 2;
	const size_t step = most ? step_to_neighbour(layout) : 1;
	struct batch batch;

	start_batch(&batch, layout, end - first);
	for (batch.group = first; batch.group < end; batch.group++) {
		link_group(&batch, step, most ? layout->slots : used);
		for (size_t i = 0; hook && i < used; i++) {
			const struct round round = get_round(
				layout, i / layout->rounds, i % layout->rounds);

			run_hook(&round, batch.group, hook, argument);
		}
	}
	free(batch.links);
}

char *layout_start(const struct layout *layout, size_t chase)
{
	struct round round = get_round(layout, chase, 0);

	return entry_at(&round, 0);
}
