/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of chases and loads as it was asked for (run_options), and as it will
 * be (plan): rounded, cross-checked, and known to fit the machine.
 */
#ifndef PLAN_H
#define PLAN_H

#include "arena.h"
#include "chase.h"
#include "json.h"
#include "memload.h"
#include "options.h"
#include "permutation.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What multichase and multiload read from their command lines. */
struct run_options {
	const char *chase; /* NULL: not given */
	const char *load;  /* NULL: not given */
	const char *file;
	bool average, thp, longer, use_malloc, timed, ordered, unpinned;
	bool timestamp, dirty_start, dry_run, json;
	unsigned verbose;
	uint64_t flush, memory, samples, offset, stride, threads, delay, seed;
	uint64_t page_size;    /* 0: the native one */
	uint64_t tlb_locality; /* TLB_LOCALITY_PRESET: see there */
	uint64_t weights[MAX_NODES];
	struct cpu_list cpus;    /* none: all that may be used */
	double warmup, interval; /* seconds */
};

/* TLB locality unless -T is given: this many native pages. */
#define TLB_LOCALITY_PRESET UINT64_MAX
#define TLB_LOCALITY_PAGES 64

/* What these do depends on the architecture, as their help says. */
#if HAVE_CLEAN_INVALIDATE_RANGE
#define FLUSH_HELP                                                             \
	"unless 0, write the chase back (DC CIVAC) once it is built; no "      \
	"memory is taken"
#define DIRTY_START_HELP "write nothing back: lines stay dirty"
#else
#define FLUSH_HELP                                                             \
	"unless 0, read a buffer of that size in each chase thread before "    \
	"the start"
#define DIRTY_START_HELP                                                       \
	"no effect on this architecture, on which nothing is written back"
#endif

#define RUN_ROW(letter_, name_, value_, kind_, field, min_, max_, preset_,     \
		help_)                                                         \
	OPTION_ROW(struct run_options, letter_, name_, value_, kind_, field,   \
		   min_, max_, preset_, help_)

#define RUN_FLAG(letter_, name_, field, help_)                                 \
	OPTION_FLAG_ROW(struct run_options, letter_, name_, field, help_)

#define MAX_THREADS 65536
#define MIN_STRIDE 8

/* The rows that both programs have; what they say of -m and -v differs. */
#define RUN_OPTION_ROWS(memory_help, verbose_help)                             \
	RUN_ROW('c', "chase", "NAME[:N]", OPTION_TEXT, chase, 0, 0, NULL,      \
		"which chase, see below"),                                     \
		RUN_ROW('F', "flush", "SIZE", OPTION_SIZE, flush, 0, MAX_SIZE, \
			"64m", FLUSH_HELP),                                    \
		RUN_FLAG('H', "huge", thp,                                     \
			 "transparent huge pages for the memory"),             \
		RUN_FLAG('L', "longer", longer,                                \
			 "longer chase: a new permutation in each slot"),      \
		RUN_ROW('m', "memory", "SIZE", OPTION_SIZE, memory, 1,         \
			MAX_SIZE, "256m", memory_help),                        \
		RUN_FLAG('o', "ordered", ordered,                              \
			 "ordered instead of random"),                         \
		RUN_ROW('O', "offset", "SIZE", OPTION_SIZE, offset, 0,         \
			MAX_SIZE, "0",                                         \
			"start the chase this far into its mapping"),          \
		RUN_ROW('p', "page-size", "SIZE", OPTION_PAGE_SIZE, page_size, \
			1, MAX_SIZE, NULL,                                     \
			"page size; above the native one: hugetlb pages"),     \
		RUN_ROW('s', "stride", "SIZE", OPTION_SIZE, stride,            \
			MIN_STRIDE, MAX_SIZE, "256", "bytes of an element"),   \
		RUN_ROW('t', "threads", "N", OPTION_COUNT, threads, 1,         \
			MAX_THREADS, "1", "threads"),                          \
		RUN_ROW('T', "tlb-locality", "SIZE", OPTION_SIZE,              \
			tlb_locality, 0, MAX_SIZE, NULL,                       \
			"bytes that are visited whole before the next such "   \
			"group "                                               \
			"(default 64 native pages)"),                          \
		{.letter = 'v',                                                \
		 .name = "verbose",                                            \
		 .kind = OPTION_LEVEL,                                         \
		 .offset = offsetof(struct run_options, verbose),              \
		 .help = (verbose_help)},                                      \
		RUN_ROW('W', "weights", "NODE:W,...", OPTION_WEIGHTS, weights, \
			0, 0, NULL,                                            \
			"put pages on NUMA nodes in proportion to W"),         \
		RUN_FLAG('X', "unpinned", unpinned,                            \
			 "do not pin threads to CPUs"),                        \
		RUN_FLAG('y', "timestamp", timestamp,                          \
			 "begin lines of samples and results with the time"),  \
		OPTION_ROWS_JOB(struct run_options),                           \
		RUN_FLAG(0, "dirty-start", dirty_start, DIRTY_START_HELP),     \
		RUN_ROW(0, "seed", "N", OPTION_COUNT, seed, 0, UINT64_MAX,     \
			"1", "of the random numbers that order the chase")

struct plan {
	const struct run_options *options;
	struct chase_choice choice; /* of no meaning without chase threads */
	const struct memload *load; /* of no meaning without load threads */
	size_t chase_threads;       /* threads 0 to chase_threads - 1 */
	size_t load_threads;        /* the threads after those */
	struct layout layout;       /* base still unknown */
	uint64_t memory;            /* bytes of the chase and of each load */
	uint64_t flush;             /* bytes of the flush buffer, or 0 */
	bool write_back_chase;
	struct arena_request arena;  /* of the chase */
	struct arena_request buffer; /* of each load thread */
	struct cpu_list cpus;        /* thread i on CPU i; none: unpinned */
};

/*
 * Rounds and checks. choice, load and both numbers of threads are the
 * caller's; all else is filled in here. Error: what does not fit, and what
 * would.
 */
bool plan_resolve(struct plan *plan, const struct run_options *options,
		  struct error *error);

/* Prints the lines of -v, a name = value each. */
void plan_print(const struct plan *plan, FILE *out);

/* Writes the object "configuration": what was asked for, rounded. */
void plan_json(const struct plan *plan, struct json *json);

#endif /* PLAN_H */
