/* SPDX-License-Identifier: Apache-2.0 */
/* pingpong: how long two CPUs take to hand a cache line to each other. */
#include "crew.h"
#include "machine.h"
#include "program.h"
#include "report.h"
#include "signals.h"
#include "timer.h"

#include <stdlib.h>
#include <string.h>

/* Of each pair; the best is shown. */
#define NR_SAMPLES 5

/* Each bounds how long a thread takes to see that it is to stop. */
#define MAX_RELAX 1000000
#define MAX_ELEMENTS (1 << 20)

enum { LOCKED, PLAIN, EXCHANGE_ADD, NR_EXCHANGES };

struct options {
	bool wanted[NR_EXCHANGES];
	bool dry_run, json;
	uint64_t relax, elements;
	uint64_t rows; /* 0: all */
	double warmup, interval;
	struct cpu_list cpus;
};

#define ROW(...) OPTION_ROW(struct options, __VA_ARGS__)
#define FLAG(...) OPTION_FLAG_ROW(struct options, __VA_ARGS__)

static const struct option_row rows[] = {
	FLAG('l', "locked", wanted[LOCKED],
	     "take the token with a locked compare-and-swap"),
	FLAG('u', "unlocked", wanted[PLAIN],
	     "take it with a plain load, hand it over with a plain store"),
	FLAG('x', "exchange-add", wanted[EXCHANGE_ADD],
	     "take it and hand it over with an exchange-add"),
	ROW('r', "relax", "N", OPTION_COUNT, relax, 0, MAX_RELAX, "10",
	    "relax hints between two tries to take it"),
	ROW('s', "elements", "N", OPTION_COUNT, elements, 0, MAX_ELEMENTS, "0",
	    "8-byte elements of an array to write to before handing it over"),
	ROW('c', "rows", "N", OPTION_COUNT, rows, 1, UINT32_MAX, NULL,
	    "print the first N rows only"),
	ROW(0, "interval", "SECONDS", OPTION_SECONDS, interval, MIN_INTERVAL_MS,
	    MAX_INTERVAL_MS, "0.25", "time of a sample; each pair has 5"),
	ROW(0, "warmup", "SECONDS", OPTION_SECONDS, warmup, 0, MAX_INTERVAL_MS,
	    "0.01", "time before the first sample of each pair"),
	OPTION_ROWS_JOB(struct options),
	OPTION_ROWS_COMMON,
};

static void more_help(FILE *out)
{
	fputs("\nOne of -l, -u and -x is needed. For each pair of CPUs the "
	      "best sample is\nprinted, in nanoseconds per hand-over one way; "
	      "0.0 if there was none.\n",
	      out);
}

static const struct program program = {
	.name = "pingpong",
	.summary = "Measures how long two CPUs take to hand a cache line to "
		   "each other.",
	.rows = rows,
	.nr_rows = sizeof(rows) / sizeof(*rows),
	.more_help = more_help,
};

/* How often a thread has handed the token over: lines that only it writes. */
struct player {
	_Alignas(FALSE_SHARING_DISTANCE) _Atomic uint64_t handed;
};

struct game {
	/* The token: whose turn it is. Nothing else is on its line. */
	_Alignas(FALSE_SHARING_DISTANCE) atomic_uintptr_t turn;
	struct player players[2];
	_Alignas(FALSE_SHARING_DISTANCE) const struct exchange *exchange;
	uint64_t *elements; /* of the player whose turn it is */
	size_t nr_elements;
	uint64_t relax;
	struct crew crew;
};

struct exchange {
	const char *name;
	/* Plays as player 0 or 1 until told to stop. */
	void (*kernel)(struct game *game, uintptr_t me);
};

static inline bool take_by_load(atomic_uintptr_t *turn, uintptr_t me)
{
	return atomic_load_explicit(turn, memory_order_acquire) == me;
}

static inline void give_by_store(atomic_uintptr_t *turn, uintptr_t me)
{
	atomic_store_explicit(turn, !me, memory_order_release);
}

/* Nobody's turn: a player has the token, as one holds a lock. */
#define TAKEN 2

static inline bool take_by_compare(atomic_uintptr_t *turn, uintptr_t me)
{
	return atomic_compare_exchange_strong_explicit(
		turn, &me, TAKEN, memory_order_acquire, memory_order_relaxed);
}

/*
 * The turn is the lowest bit of how often the token was handed over. Adding
 * nothing takes the line as adding something does; a compiler that knew of the
 * zero would make it a load.
 */
static inline bool take_by_add(atomic_uintptr_t *turn, uintptr_t me)
{
	uintptr_t zero = 0;

	__asm__("" : "+r"(zero));
	return (atomic_fetch_add_explicit(turn, zero, memory_order_acquire) &
		1) == me;
}

static inline void give_by_add(atomic_uintptr_t *turn, uintptr_t me)
{
	(void)me;
	atomic_fetch_add_explicit(turn, 1, memory_order_release);
}

/*
 * The order to stop is looked for at each try, so that no player waits for one
 * that has stopped. A hand-over is counted behind it, out of its way. (On
 * aarch64 compilers call a helper for locked operations, which chooses between
 * LSE and exclusives when the program runs.)
 */
#define EXCHANGE_KERNEL(name, take, give)                                      \
	static void name(struct game *game, uintptr_t me)                      \
	{                                                                      \
		const uint64_t relax = game->relax;                            \
		const size_t nr_elements = game->nr_elements;                  \
		const atomic_bool *stop = &game->crew.stop;                    \
		uint64_t *elements = game->elements, handed = 0;               \
                                                                               \
		while (!atomic_load_explicit(stop, memory_order_relaxed)) {    \
			if (!take(&game->turn, me)) {                          \
				for (uint64_t i = relax; i; i--)               \
					cpu_relax();                           \
				continue;                                      \
			}                                                      \
			for (size_t i = 0; i < nr_elements; i++)               \
				elements[i]++;                                 \
			give(&game->turn, me);                                 \
			atomic_store_explicit(&game->players[me].handed,       \
					      ++handed, memory_order_relaxed); \
		}                                                              \
	}

EXCHANGE_KERNEL(play_locked, take_by_compare, give_by_store)
EXCHANGE_KERNEL(play_plain, take_by_load, give_by_store)
EXCHANGE_KERNEL(play_add, take_by_add, give_by_add)

static const struct exchange exchanges[NR_EXCHANGES] = {
	[LOCKED] = {"locked compare-and-swap", play_locked},
	[PLAIN] = {"plain load and store", play_plain},
	[EXCHANGE_ADD] = {"exchange-add", play_add},
};

static void play(struct crew *crew, size_t index, void *argument)
{
	struct game *game = argument;

	if (crew_start_line(crew))
		game->exchange->kernel(game, index);
}

/* Hand-overs by both players. */
static uint64_t count_handed(const struct game *game)
{
	uint64_t count = 0;

	for (size_t i = 0; i < 2; i++)
		count += atomic_load_explicit(&game->players[i].handed,
					      memory_order_relaxed);
	return count;
}

/* Samples a game that is on. Returns the signal that cut it short, or 0. */
static int sample(const struct options *options, const struct game *game,
		  struct statistics *ns)
{
	const uint64_t interval = seconds_to_ns(options->interval);
	int came = signals_wait(now_ns() + seconds_to_ns(options->warmup));
	uint64_t at = now_ns(), handed = count_handed(game);

	for (int i = 0; i < NR_SAMPLES && !came; i++) {
		const uint64_t last_at = at, last_handed = handed;

		came = signals_wait(at + interval);
		if (came)
			break;
		at = now_ns();
		handed = count_handed(game);
		if (handed > last_handed)
			statistics_add(ns,
				       (double)(at - last_at) /
					       (double)(handed - last_handed));
	}
	return came;
}

/* The table of results: a label, and a column for each CPU. */
#define COLUMN_WIDTH 8

static int label_width(int cpu)
{
	return snprintf(NULL, 0, "%2zu:", (size_t)cpu);
}

static int widest_label(const struct cpu_list *cpus)
{
	int widest = 0;

	for (size_t i = 0; i < cpus->count; i++)
		if (label_width(cpus->cpu[i]) > widest)
			widest = label_width(cpus->cpu[i]);
	return widest;
}

static void print_header(FILE *out, const struct cpu_list *cpus)
{
	fprintf(out, "%*s", widest_label(cpus), "");
	for (size_t i = 0; i < cpus->count; i++)
		fprintf(out, "%*d", COLUMN_WIDTH, cpus->cpu[i]);
	putc('\n', out);
}

/* The label, and nothing in the columns up to that of the row's own CPU. */
static void print_row_start(FILE *out, const struct cpu_list *cpus, size_t row)
{
	const int cpu = cpus->cpu[row];

	fprintf(out, "%2zu:%*s", (size_t)cpu,
		widest_label(cpus) - label_width(cpu) +
			COLUMN_WIDTH * ((int)row + 1),
		"");
}

/* Whatever its width, there is a blank before it. */
static void print_cell(FILE *out, double ns)
{
	fprintf(out, " %*.1f", COLUMN_WIDTH - 1, ns);
}

/* What is to be played, and how it goes. */
struct tournament {
	struct options options;
	struct cpu_list cpus;
	size_t nr_rows;
	size_t nr_stalled; /* pairs that handed nothing over */
	struct game game;
	struct json json; /* under --json */
};

/* Prints what stands before a pair's cell, and then the cell. */
static void print_pair_start(const struct cpu_list *cpus, size_t row,
			     size_t column)
{
	if (row == 0 && column == 1)
		print_header(report_out, cpus);
	if (column == row + 1)
		print_row_start(report_out, cpus, row);
	report_flush();
}

static void print_pair(const struct cpu_list *cpus, size_t column,
		       const struct statistics *ns, int came)
{
	if (ns->count || !came)
		print_cell(report_out, ns->min);
	if (came || column + 1 == cpus->count)
		putc('\n', report_out);
	report_flush();
}

static void json_pair(struct json *json, const int *pair,
		      const struct statistics *ns)
{
	json_object(json, NULL);
	json_array(json, "cpus");
	json_count(json, NULL, (uint64_t)pair[0]);
	json_count(json, NULL, (uint64_t)pair[1]);
	json_end_array(json);
	json_number(json, "ns", ns->min);
	json_statistics(json, "ns_statistics", ns);
	json_end_object(json);
}

/*
 * Lets a pair of CPUs play and prints how it went: if a signal comes, which
 * *came then names, by the samples so far.
 */
static bool play_pair(struct tournament *tournament, size_t row, size_t column,
		      int *came, struct error *error)
{
	const struct cpu_list *cpus = &tournament->cpus;
	struct game *game = &tournament->game;
	int pair[] = {cpus->cpu[row], cpus->cpu[column]};
	const struct cpu_list places = {2, pair};
	struct statistics ns = {0};

	atomic_store(&game->turn, 0);
	memset(game->players, 0, sizeof(game->players));
	if (!crew_start(&game->crew, 2, &places, play, game, error) ||
	    !crew_await_start(&game->crew, came, error))
		return false;
	if (!tournament->options.json)
		print_pair_start(cpus, row, column);
	if (!*came)
		*came = sample(&tournament->options, game, &ns);
	if (!*came) {
		crew_stop(&game->crew);
		crew_join(&game->crew);
	}
	tournament->nr_stalled += ns.count == 0;
	if (tournament->options.json)
		json_pair(&tournament->json, pair, &ns);
	else
		print_pair(cpus, column, &ns, *came);
	return true;
}

static void warn_of_stalls(const struct tournament *tournament)
{
	struct error warning;

	if (!tournament->nr_stalled)
		return;
	error_set(&warning,
		  "%zu pair(s) of CPUs handed nothing over in any sample, "
		  "where 0 is shown; make --interval longer",
		  tournament->nr_stalled);
	report_warning(program.name, &warning);
}

/* A row is a line, even if the pair of this column could not play. */
static void end_row(const struct tournament *tournament, size_t row,
		    size_t column)
{
	if (!tournament->options.json && column > row + 1)
		putc('\n', report_out);
}

/* Until a signal comes, or nobody can read what would follow. */
static bool play_pairs(struct tournament *tournament, int *came,
		       struct error *error)
{
	*came = 0;
	for (size_t row = 0; row < tournament->nr_rows; row++)
		for (size_t column = row + 1; column < tournament->cpus.count;
		     column++) {
			if (!play_pair(tournament, row, column, came, error)) {
				end_row(tournament, row, column);
				return false;
			}
			if (*came || !report_flush())
				return true;
		}
	return true;
}

static void json_plan(const void *context, struct json *json)
{
	const struct tournament *tournament = context;
	const struct options *options = &tournament->options;

	json_object(json, "configuration");
	json_text(json, "exchange", tournament->game.exchange->name);
	json_count(json, "relax", options->relax);
	json_count(json, "elements", options->elements);
	json_cpus(json, "cpus", &tournament->cpus);
	json_count(json, "rows", tournament->nr_rows);
	json_number(json, "warmup_s", options->warmup);
	json_number(json, "interval_s", options->interval);
	json_end_object(json);
}

static bool play_for_json(struct tournament *tournament, int *came,
			  struct error *error)
{
	struct json *json = &tournament->json;

	if (!report_json_start(json, program.name, error))
		return false;
	json_plan(tournament, json);
	json_array(json, "pairs");
	if (!play_pairs(tournament, came, error))
		return false;
	json_end_array(json);
	json_count(json, "signal", (uint64_t)*came);
	return report_json_end(json, error);
}

static bool run(void *context, struct error *error)
{
	struct tournament *tournament = context;
	const struct options *options = &tournament->options;
	struct game *game = &tournament->game;
	uint64_t throttled;
	int came = 0;

	game->relax = options->relax;
	game->nr_elements = (size_t)options->elements;
	game->elements =
		aligned_zeros(FALSE_SHARING_DISTANCE,
			      game->nr_elements * sizeof(*game->elements));
	if (!game->elements)
		return error_set(error, "-s %zu: no memory for the elements",
				 game->nr_elements);
	signals_hold();
	throttled = throttled_periods();
	if (!options->json && tournament->cpus.count == 1)
		print_header(report_out, &tournament->cpus);
	if (!(options->json ? play_for_json : play_pairs)(tournament, &came,
							  error))
		return false;
	crew_warn_of_moves(program.name);
	report_throttling(program.name, throttled);
	if (came)
		report_die(came);
	warn_of_stalls(tournament);
	return true;
}

static void print_plan(const void *context)
{
	const struct tournament *tournament = context;
	const struct options *options = &tournament->options;
	const size_t nr_rows = tournament->nr_rows;
	const size_t nr_pairs =
		nr_rows * tournament->cpus.count - nr_rows * (nr_rows + 1) / 2;

	fprintf(report_out, "exchange = %s\n", tournament->game.exchange->name);
	fprintf(report_out, "relax = %llu\n",
		(unsigned long long)options->relax);
	fprintf(report_out, "elements = %llu\n",
		(unsigned long long)options->elements);
	fprintf(report_out, "cpus = ");
	write_cpus(report_out, &tournament->cpus);
	fprintf(report_out, "\nrows = %zu\n", nr_rows);
	fprintf(report_out, "pairs = %zu\n", nr_pairs);
	fprintf(report_out, "seconds = %.1f\n",
		(double)nr_pairs *
			(options->warmup + NR_SAMPLES * options->interval));
}

static bool resolve(void *context, struct error *error)
{
	struct tournament *tournament = context;
	const struct options *options = &tournament->options;
	size_t nr_wanted = 0;

	for (size_t i = 0; i < NR_EXCHANGES; i++)
		if (options->wanted[i]) {
			tournament->game.exchange = &exchanges[i];
			nr_wanted++;
		}
	if (nr_wanted != 1)
		return error_set(error,
				 "-l, -u, -x: %zu of them given, expected "
				 "exactly one",
				 nr_wanted);
	if (!choose_cpus(&tournament->cpus, &options->cpus, error))
		return false;
	tournament->nr_rows = tournament->cpus.count - 1;
	if (options->rows && options->rows < tournament->nr_rows)
		tournament->nr_rows = (size_t)options->rows;
	return true;
}

int main(int argc, char **argv)
{
	static struct tournament tournament;
	const struct job job = {
		.options = &tournament.options,
		.dry_run = &tournament.options.dry_run,
		.json = &tournament.options.json,
		.context = &tournament,
		.resolve = resolve,
		.print_plan = print_plan,
		.json_plan = json_plan,
		.run = run,
	};

	return program_run(&program, &job, argc, argv);
}
