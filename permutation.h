/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the pointers of a chase lie and how they are linked.
 *
 * An arena is total / stride elements. tlb_locality bytes of elements are a
 * TLB group, which a chase visits whole before it goes to the next. Each
 * element has slots of object bytes; each chase keeps its pointers in slots
 * that are its own. A longer chase goes over all elements once for each of its
 * rounds, every round a permutation of its own in a slot of its own.
 *
 * Nothing is kept outside the arena but some links of the group that is being
 * drawn: which slot, which group comes next, and at which element a group is
 * entered are computed from the seed. So any thread can link any group without
 * knowing of the others, and the result is the same however the groups are
 * shared out.
 */
#ifndef PERMUTATION_H
#define PERMUTATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows of slots: the low bits of an element's number choose one. */
#define SLOT_ROWS 64

struct layout {
	char *base;          /* of the first element */
	size_t total;        /* bytes, a multiple of tlb_locality */
	size_t stride;       /* bytes of an element */
	size_t tlb_locality; /* bytes of a TLB group, a multiple of stride */
	size_t object;       /* bytes of a slot */
	size_t nr_chases;    /* of all threads; each has slots of its own */
	bool longer;         /* as many rounds as the slots allow */
	bool ordered;        /* in the order of addresses */
	uint64_t seed;

	/* Filled in by layout_init(). */
	size_t slots;            /* of an element */
	size_t rounds;           /* permutations that are one after the other */
	size_t groups;           /* TLB groups */
	size_t group_size;       /* elements of a group */
	size_t slot_step;        /* from one chase's slot to the next one's */
	size_t shift[SLOT_ROWS]; /* what a row adds to the slot, modulo slots */
};

/* What a kind of chase does to each pointer as soon as it is linked. */
typedef void link_hook(char *object, size_t argument);

/* Derives the second half from the first, whose values must fit together. */
void layout_init(struct layout *layout);

/* Links the groups from first up to, not including, end; hook may be NULL. */
void layout_link(const struct layout *layout, size_t first, size_t end,
		 link_hook *hook, size_t argument);

/* Where a chase (0 to nr_chases - 1) begins. */
char *layout_start(const struct layout *layout, size_t chase);

/* Steps of one chase until it is where it began. */
size_t layout_length(const struct layout *layout);

/*
 * Part `index` of `parts` nearly equal parts of `count` things: from the one
 * returned up to, not including, the one returned for index + 1.
 */
size_t share_start(size_t count, size_t index, size_t parts);

size_t common_divisor(size_t a, size_t b);

/*
 * A step with which i * step modulo count takes every value, neighbours far
 * apart: near the golden section of count, and without a divisor in common.
 */
size_t spreading_step(size_t count);

/* A pointer of a chase; elements need not be aligned. */
char *load_link(const char *object);
void store_link(char *object, const char *next);

/*
 * The place of i in a random permutation of 0 to count - 1, which key chooses,
 * and back.
 */
uint64_t permute(uint64_t i, uint64_t count, uint64_t key);
uint64_t unpermute(uint64_t place, uint64_t count, uint64_t key);

/* The next of a stream of random 64-bit numbers; any state is a good one. */
uint64_t random_next(uint64_t *state);

/* A random number below limit, which is not 0. */
uint64_t random_below(uint64_t *state, uint64_t limit);

#endif /* PERMUTATION_H */
