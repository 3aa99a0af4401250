/* SPDX-License-Identifier: Apache-2.0 */
#include "chase.h"

#include "branch_chase.h"
#include "expand.h"
#include "options.h"

#include <string.h>

/*
 * Pointers may lie at any address: they are dereferenced as they are, which
 * every CPU here does in hardware or in its kernel.
 */
#define KERNEL __attribute__((noinline, no_sanitize("alignment"))) static void

/*
 * Uses a cursor without code, so that the load before it is made, and in its
 * turn: a compiler that mixes ten chases runs out of registers.
 */
#define USE(p) __asm__ __volatile__("" : "+r"(p))

/* Dereferences a cursor. */
#define FOLLOW(p)                                                              \
	do {                                                                   \
		(p) = *(char **)(p);                                           \
		USE(p);                                                        \
	} while (0)

/*
 * A batch is done: its steps are published. True until told to stop. Where the
 * state is must not be known from the batch before, or a compiler keeps the
 * address of each of its parts in a register throughout the loop. The count
 * stays in memory: a Zen 4 waits 50 cycles for the next load of incr when the
 * store here comes from a register.
 */
static inline bool end_batch(struct chase_state **state, uint64_t steps)
{
	uint64_t count;

	__asm__ __volatile__("" : "+r"(*state));
	count = atomic_load_explicit(&(*state)->count, memory_order_relaxed);
	atomic_store_explicit(&(*state)->count, count + steps,
			      memory_order_relaxed);
	return !atomic_load_explicit((*state)->stop, memory_order_relaxed);
}

KERNEL chase_simple(struct chase_state *state)
{
	char *p = state->cursor[0];

	do {
		X200(FOLLOW(p);)
	} while (end_batch(&state, STEPS_PER_BATCH));
}

/* The additions form a chain of their own, beside that of the loads. */
KERNEL chase_work(struct chase_state *state)
{
	char *p = state->cursor[0];
	const uint64_t work = state->argument;
	uintptr_t sum = 0;

	do {
		X200(FOLLOW(p); for (uintptr_t i = (uintptr_t)work; i; i--) {
			sum += i;
			__asm__ __volatile__("" : "+r"(sum));
		})
	} while (end_batch(&state, STEPS_PER_BATCH));
}

KERNEL chase_incr(struct chase_state *state)
{
	char *p = state->cursor[0];

	do {
		X200(++*(uintptr_t *)(p + sizeof(p)); FOLLOW(p);)
	} while (end_batch(&state, STEPS_PER_BATCH));
}

#if HAVE_BRANCH_CHASE
/* The last leg of a cycle is shorter by what `excess` says. */
KERNEL chase_branch(struct chase_state *state)
{
	const uint64_t rest = state->length % JUMPS_PER_CALL;
	const uint64_t excess = rest ? JUMPS_PER_CALL - rest : 0;
	const uint64_t legs =
		rest ? state->length / JUMPS_PER_CALL + 1 : UINT64_MAX;
	char *p = state->cursor[0];
	uint64_t leg = legs, steps;

	do {
		p = ((char *(*)(void))p)();
		steps = JUMPS_PER_CALL;
		if (__builtin_expect(--leg == 0, 0)) {
			leg = legs;
			steps -= excess;
		}
	} while (end_batch(&state, steps));
}
#endif

/*
 * A prefetch of each kind right before the load, so that the kind decides
 * where the line goes.
 */
#define PREFETCH_KERNEL(name, prefetch)                                        \
	KERNEL name(struct chase_state *state)                                 \
	{                                                                      \
		char *p = state->cursor[0];                                    \
                                                                               \
		do {                                                           \
			X200(prefetch(p); FOLLOW(p);)                          \
		} while (end_batch(&state, STEPS_PER_BATCH));                  \
	}

#if defined(__x86_64__) || defined(__i386__)
#define HAVE_PREFETCH_CHASES 1
#define PREFETCH_AS(hint, p) __asm__ __volatile__(hint " (%0)" : : "r"(p))
#define PREFETCH_T0(p) PREFETCH_AS("prefetcht0", p)
#define PREFETCH_T1(p) PREFETCH_AS("prefetcht1", p)
#define PREFETCH_T2(p) PREFETCH_AS("prefetcht2", p)
#define PREFETCH_NTA(p) PREFETCH_AS("prefetchnta", p)
#elif defined(__aarch64__)
#define HAVE_PREFETCH_CHASES 1
#define PREFETCH_AS(hint, p)                                                   \
	__asm__ __volatile__("prfm " hint ", [%0]" : : "r"(p))
#define PREFETCH_T0(p) PREFETCH_AS("pldl1keep", p)
#define PREFETCH_T1(p) PREFETCH_AS("pldl2keep", p)
#define PREFETCH_T2(p) PREFETCH_AS("pldl3keep", p)
#define PREFETCH_NTA(p) PREFETCH_AS("pldl1strm", p)
#else
#define HAVE_PREFETCH_CHASES 0
#endif

#if HAVE_PREFETCH_CHASES
PREFETCH_KERNEL(chase_t0, PREFETCH_T0)
PREFETCH_KERNEL(chase_t1, PREFETCH_T1)
PREFETCH_KERNEL(chase_t2, PREFETCH_T2)
PREFETCH_KERNEL(chase_nta, PREFETCH_NTA)
#endif

#if defined(__x86_64__)
/*
 * A line in four 16-byte loads. All of it but the pointer is zero, so that the
 * sum is the pointer, and the next step has to wait for all four.
 */
#define LINE_KERNEL(name, load)                                                \
	KERNEL name(struct chase_state *state)                                 \
	{                                                                      \
		char *p = state->cursor[0];                                    \
                                                                               \
		do {                                                           \
			X200(__asm__ __volatile__(load                         \
						  " (%0), %%xmm0\n\t" load     \
						  " 16(%0), %%xmm1\n\t" load   \
						  " 32(%0), %%xmm2\n\t" load   \
						  " 48(%0), %%xmm3\n\t"        \
						  "paddq %%xmm1, %%xmm0\n\t"   \
						  "paddq %%xmm3, %%xmm2\n\t"   \
						  "paddq %%xmm2, %%xmm0\n\t"   \
						  "movq %%xmm0, %0"            \
						  : "+r"(p)                    \
						  :                            \
						  : "xmm0", "xmm1", "xmm2",    \
						    "xmm3", "memory");)        \
		} while (end_batch(&state, STEPS_PER_BATCH));                  \
	}

LINE_KERNEL(chase_movdqa, "movdqa")
LINE_KERNEL(chase_movntdqa, "movntdqa")

static bool have_sse41(void)
{
	return __builtin_cpu_supports("sse4.1");
}

static void clear_line(char *object, size_t argument)
{
	(void)argument;
	/* cppcheck-suppress pointerSize; the object begins with a pointer */
	memset(object + sizeof(char *), 0, 64 - sizeof(char *));
}
#endif

/* Lists of 2 to 10 cursors, each made from the one before. */
#define CURSORS_2(DO) DO(0) DO(1)
#define CURSORS_3(DO) CURSORS_2(DO) DO(2)
#define CURSORS_4(DO) CURSORS_3(DO) DO(3)
#define CURSORS_5(DO) CURSORS_4(DO) DO(4)
#define CURSORS_6(DO) CURSORS_5(DO) DO(5)
#define CURSORS_7(DO) CURSORS_6(DO) DO(6)
#define CURSORS_8(DO) CURSORS_7(DO) DO(7)
#define CURSORS_9(DO) CURSORS_8(DO) DO(8)
#define CURSORS_10(DO) CURSORS_9(DO) DO(9)

#define TAKE_CURSOR(i) char *p##i = state->cursor[i];
#define FOLLOW_CURSOR(i) FOLLOW(p##i);

#define PARALLEL_KERNEL(n)                                                     \
	KERNEL chase_parallel##n(struct chase_state *state)                    \
	{                                                                      \
		CURSORS_##n(TAKE_CURSOR);                                      \
                                                                               \
		do {                                                           \
			X200(CURSORS_##n(FOLLOW_CURSOR))                       \
		} while (end_batch(&state, n * STEPS_PER_BATCH));              \
	}

PARALLEL_KERNEL(2)
PARALLEL_KERNEL(3)
PARALLEL_KERNEL(4)
PARALLEL_KERNEL(5)
PARALLEL_KERNEL(6)
/* The registers of an i386 would not hold more cursors; nor these. */
#if !defined(__i386__)
PARALLEL_KERNEL(7)
PARALLEL_KERNEL(8)
PARALLEL_KERNEL(9)
PARALLEL_KERNEL(10)
#endif

/* Both words of an object in one step, by two cursors that keep abreast. */
KERNEL chase_critword2(struct chase_state *state)
{
	char *p = state->cursor[0];
	char *q = p + state->argument;

	do {
		X200(FOLLOW(p); FOLLOW(q);)
	} while (end_batch(&state, STEPS_PER_BATCH));
}

/* The second cursor of critword2 goes where the first goes, offset further. */
static void link_abreast(char *object, size_t offset)
{
	store_link(object + offset, load_link(object) + offset);
}

/* critword goes to the second word of an object, and from there onwards. */
static void link_both_words(char *object, size_t offset)
{
	store_link(object + offset, load_link(object));
	store_link(object, object + offset);
}

#define PARALLEL_ROW(n)                                                        \
	{                                                                      \
		.name = "parallel" #n,                                         \
		.help = #n " independent chases in turn in each thread",       \
		.object = sizeof(char *), .parallel = n,                       \
		.kernel = chase_parallel##n                                    \
	}

#define PREFETCH_ROW(kind, where)                                              \
	{                                                                      \
		.name = #kind,                                                 \
		.help = "a prefetch " where " right before each load",         \
		.object = sizeof(char *), .kernel = chase_##kind               \
	}

static const struct chase chases[] = {
	{.name = "simple",
	 .help = "load the next pointer",
	 .object = sizeof(char *),
	 .kernel = chase_simple},
	{.name = "work",
	 .help = "N additions that overlap each load",
	 .argument = ARGUMENT_WORK,
	 .object = sizeof(char *),
	 .kernel = chase_work},
	{.name = "incr",
	 .help = "add one to the word beside each pointer, then follow it",
	 .object = 2 * sizeof(char *),
	 .kernel = chase_incr},
#if HAVE_BRANCH_CHASE
	{.name = "branch",
	 .help = "each pointer is code that jumps to the next",
	 .object = BRANCH_OBJECT,
	 .alignment = BRANCH_ALIGNMENT,
	 .encode = branch_encode,
	 .kernel = chase_branch},
#endif
#if HAVE_PREFETCH_CHASES
	PREFETCH_ROW(t0, "to the first level"),
	PREFETCH_ROW(t1, "to the second level"),
	PREFETCH_ROW(t2, "to the third level"),
	PREFETCH_ROW(nta, "of data that is used once"),
#endif
#if defined(__x86_64__)
	{.name = "movdqa",
	 .help = "read the whole line with four 16-byte loads",
	 .object = 64,
	 .alignment = 16,
	 .link = clear_line,
	 .kernel = chase_movdqa},
	{.name = "movntdqa",
	 .help = "the same with four non-temporal loads",
	 .object = 64,
	 .alignment = 16,
	 .link = clear_line,
	 .available = have_sse41,
	 .kernel = chase_movntdqa},
#endif
	PARALLEL_ROW(2),
	PARALLEL_ROW(3),
	PARALLEL_ROW(4),
	PARALLEL_ROW(5),
	PARALLEL_ROW(6),
#if !defined(__i386__)
	PARALLEL_ROW(7),
	PARALLEL_ROW(8),
	PARALLEL_ROW(9),
	PARALLEL_ROW(10),
#endif
	{.name = "critword2",
	 .help = "two chases side by side, at X and at X+N; a step is both",
	 .argument = ARGUMENT_OFFSET,
	 .link = link_abreast,
	 .kernel = chase_critword2},
	{.name = "critword",
	 .help = "one chase that goes X, X+N, next X, ...",
	 .argument = ARGUMENT_OFFSET,
	 .link = link_both_words,
	 .kernel = chase_simple},
	/* Last, so that it can be left out of the programs without loads. */
	{.name = "chaseload",
	 .help = "simple in thread 0, a memload in all others",
	 .object = sizeof(char *),
	 .loaded = true,
	 .kernel = chase_simple},
};

static size_t nr_chases(bool with_loaded)
{
	return sizeof(chases) / sizeof(*chases) - !with_loaded;
}

/* Work that would take longer than a sample would be no chase. */
#define MAX_WORK 1000000
#define MIN_OFFSET sizeof(char *)
#define MAX_OFFSET ((uint64_t)1 << 30)

/* The two words of a critword object must not overlap. */
#define CRITWORD_UNIT 64

static bool choose_argument(const char *text, struct chase_choice *choice,
			    struct error *error)
{
	const char *colon = strchr(text, ':');
	bool work = choice->chase->argument == ARGUMENT_WORK;
	uint64_t min = work ? 0 : MIN_OFFSET;
	uint64_t max = work ? MAX_WORK : MAX_OFFSET;
	bool good = false;

	choice->argument = 0;
	choice->object = choice->chase->object;
	if (choice->chase->argument == ARGUMENT_NONE)
		return !colon || error_set(error, "-c %.200s: %s takes no :N",
					   text, choice->chase->name);
	if (colon)
		good = work ? parse_count(colon + 1, &choice->argument)
			    : parse_size(colon + 1, &choice->argument);
	if (!good || choice->argument < min || choice->argument > max)
		return error_set(error,
				 "-c %.200s: expected %s:N with N, %s, from "
				 "%llu to %llu",
				 text, choice->chase->name,
				 work ? "the additions between two loads"
				      : "the bytes between the two words",
				 (unsigned long long)min,
				 (unsigned long long)max);
	if (!work)
		choice->object = ((size_t)choice->argument + sizeof(char *) +
				  CRITWORD_UNIT - 1) /
				 CRITWORD_UNIT * CRITWORD_UNIT;
	return true;
}

bool choose_chase(const char *text, bool with_loaded,
		  struct chase_choice *choice, struct error *error)
{
	size_t count = nr_chases(with_loaded), length = strcspn(text, ":");
	int found = find_name(chases, count, sizeof(*chases), text, length);
	char names[512] = "";

	if (found < 0) {
		if (found == NAME_UNKNOWN)
			length = 0; /* lists them all */
		list_names(names, sizeof(names), chases, count, sizeof(*chases),
			   text, length);
		return error_set(error, "-c %.200s: %s %s", *text ? text : "''",
				 found == NAME_UNKNOWN
					 ? "unknown chase, expected one of"
					 : "ambiguous, it could be",
				 names);
	}
	choice->chase = &chases[found];
	choice->text = text;
	choice->alignment =
		chases[found].alignment ? chases[found].alignment : 1;
	choice->parallel = chases[found].parallel ? chases[found].parallel : 1;
	if (choice->chase->available && !choice->chase->available())
		return error_set(error,
				 "-c %.200s: this CPU lacks the instruction "
				 "for it",
				 text);
	return choose_argument(text, choice, error);
}

void print_chases(FILE *out, bool with_loaded)
{
	static const char *const arguments[] = {"", ":N", ":N"};
	char name[32];

	fprintf(out, "\nChases (-c):\n");
	for (size_t i = 0; i < nr_chases(with_loaded); i++) {
		snprintf(name, sizeof(name), "%s%s", chases[i].name,
			 arguments[chases[i].argument]);
		fprintf(out, "  %-12s %s\n", name, chases[i].help);
	}
}
