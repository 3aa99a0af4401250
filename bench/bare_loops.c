/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chases as bare loops: nothing is published or looked at while they run,
 * on the same arena as multichase's. Prints the nanoseconds of a dereference,
 * in the best of some windows of 2 ms:
 *	bare_loops CHASE[:N] BYTES STRIDE WINDOWS
 */
#include "branch_chase.h"
#include "expand.h"
#include "permutation.h"
#include "timer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_PARALLEL 10
#define STEPS_PER_TURN 200
#define TURNS 200 /* between two looks at the clock */
#define WINDOW_NS 2000000

#define BARE __attribute__((noinline, aligned(64))) static void

static char *cursor[MAX_PARALLEL];
static size_t argument;
static size_t length; /* of the cycle */

#define FOLLOW(p)                                                              \
	do {                                                                   \
		(p) = *(char **)(p);                                           \
		__asm__ __volatile__("" : "+r"(p));                            \
	} while (0)

#define UNROLLED(step)                                                         \
	do {                                                                   \
		for (unsigned turn = TURNS; turn; turn--) {                    \
			X200(step)                                             \
		}                                                              \
	} while (0)

BARE bare_simple(void)
{
	char *p = cursor[0];

	UNROLLED(FOLLOW(p););
	cursor[0] = p;
}

BARE bare_work(void)
{
	char *p = cursor[0];
	uintptr_t sum = 0;

	UNROLLED(FOLLOW(p); for (uintptr_t i = argument; i; i--) {
		sum += i;
		__asm__ __volatile__("" : "+r"(sum));
	});
	cursor[0] = p;
}

BARE bare_incr(void)
{
	char *p = cursor[0];

	UNROLLED(++((uintptr_t *)p)[1]; FOLLOW(p););
	cursor[0] = p;
}

BARE bare_critword2(void)
{
	char *p = cursor[0], *q = p + argument;

	UNROLLED(FOLLOW(p); FOLLOW(q););
	cursor[0] = p;
}

#if HAVE_BRANCH_CHASE
BARE bare_branch(void)
{
	char *p = cursor[0];

	for (unsigned turn = TURNS; turn; turn--)
		p = ((char *(*)(void))p)();
	cursor[0] = p;
}
#endif

#define OF_2(DO) DO(0) DO(1)
#define OF_4(DO) OF_2(DO) DO(2) DO(3)
#define OF_6(DO) OF_4(DO) DO(4) DO(5)
#define OF_8(DO) OF_6(DO) DO(6) DO(7)
#define OF_10(DO) OF_8(DO) DO(8) DO(9)

#define TAKE_CURSOR(i) char *p##i = cursor[i];
#define FOLLOW_CURSOR(i) FOLLOW(p##i);
#define KEEP_CURSOR(i) cursor[i] = p##i;

#define PARALLEL(n)                                                            \
	BARE bare_parallel##n(void)                                            \
	{                                                                      \
		OF_##n(TAKE_CURSOR) UNROLLED(OF_##n(FOLLOW_CURSOR));           \
		OF_##n(KEEP_CURSOR)                                            \
	}

PARALLEL(2)
PARALLEL(4)
PARALLEL(6)
PARALLEL(8)
PARALLEL(10)

/* The second word of an object, argument bytes on, comes after the first. */
static void link_both(char *object, size_t offset)
{
	store_link(object + offset, load_link(object));
	store_link(object, object + offset);
}

/* The second words have a chase of their own. */
static void link_abreast(char *object, size_t offset)
{
	store_link(object + offset, load_link(object) + offset);
}

static const struct bare {
	const char *name;
	void (*run)(void);
	size_t object, parallel;
	link_hook *link;
} bares[] = {
	{"simple", bare_simple, sizeof(char *), 1, NULL},
	{"work", bare_work, sizeof(char *), 1, NULL},
	{"incr", bare_incr, 2 * sizeof(char *), 1, NULL},
	{"critword", bare_simple, 0, 1, link_both},
	{"critword2", bare_critword2, 0, 1, link_abreast},
#if HAVE_BRANCH_CHASE
	{"branch", bare_branch, BRANCH_OBJECT, 1, NULL},
#endif
	{"parallel2", bare_parallel2, sizeof(char *), 2, NULL},
	{"parallel4", bare_parallel4, sizeof(char *), 4, NULL},
	{"parallel6", bare_parallel6, sizeof(char *), 6, NULL},
	{"parallel8", bare_parallel8, sizeof(char *), 8, NULL},
	{"parallel10", bare_parallel10, sizeof(char *), 10, NULL},
};

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "bare_loops: %s\n", what);
	exit(1);
}

static const struct bare *find(const char *text)
{
	const size_t name = strcspn(text, ":");

	for (size_t i = 0; i < sizeof(bares) / sizeof(*bares); i++)
		if (strlen(bares[i].name) == name &&
		    strncmp(bares[i].name, text, name) == 0)
			return &bares[i];
	fail("no such chase");
}

/* An object that holds two words is whole lines, as in multichase. */
static size_t object_bytes(const struct bare *bare)
{
	if (bare->object)
		return bare->object;
	return (argument + sizeof(char *) + 63) / 64 * 64;
}

static void build(const struct bare *bare, size_t bytes, size_t stride)
{
	struct layout layout = {
		.total = bytes,
		.stride = stride,
		.tlb_locality = bytes,
		.object = object_bytes(bare),
		.nr_chases = bare->parallel,
		.seed = 1,
	};

	if (stride < layout.object * layout.nr_chases || bytes % stride)
		fail("BYTES is a multiple of STRIDE, which holds all objects");
	layout.base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (layout.base == MAP_FAILED)
		fail("no memory");
	layout_init(&layout);
	layout_link(&layout, 0, layout.groups, bare->link, argument);
	for (size_t i = 0; i < bare->parallel; i++)
		cursor[i] = layout_start(&layout, i);
	length = layout_length(&layout);
#if HAVE_BRANCH_CHASE
	struct error error;

	if (bare->run != bare_branch)
		return;
	if (length % JUMPS_PER_CALL)
		fail("branch needs a multiple of 200 elements");
	if (!branch_encode(cursor[0], length, &error))
		fail(error.text);
	__builtin___clear_cache(layout.base, layout.base + bytes);
	if (mprotect(layout.base, bytes, PROT_READ | PROT_EXEC) != 0)
		fail("no memory that can be executed");
#endif
}

/*
 * Nanoseconds of a dereference in the best of many windows, which are short, so
 * that some of them are not interrupted.
 */
static double time_loop(const struct bare *bare, uint64_t windows)
{
	const double steps =
		(double)TURNS * STEPS_PER_TURN * (double)bare->parallel;
	double best = 0;

	for (; windows; windows--) {
		const uint64_t start = now_ns();
		uint64_t loops = 0, elapsed;
		double ns;

		do {
			bare->run();
			loops++;
			elapsed = now_ns() - start;
		} while (elapsed < WINDOW_NS);
		ns = (double)elapsed / ((double)loops * steps);
		if (best == 0 || ns < best)
			best = ns;
	}
	return best;
}

int main(int argc, char **argv)
{
	const struct bare *bare;
	const char *colon;

	if (argc != 5)
		fail("expected CHASE[:N] BYTES STRIDE WINDOWS");
	bare = find(argv[1]);
	colon = strchr(argv[1], ':');
	argument = colon ? strtoul(colon + 1, NULL, 0) : 0;
	build(bare, strtoul(argv[2], NULL, 0), strtoul(argv[3], NULL, 0));
	printf("%.6f\n", time_loop(bare, strtoul(argv[4], NULL, 0)));
	return 0;
}
