/* SPDX-License-Identifier: Apache-2.0 */
/* fairness: how evenly CPUs get at one counter that all of them add to. */
#include "crew.h"
#include "machine.h"
#include "program.h"
#include "report.h"
#include "signals.h"
#include "timer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Lines that -s can go through: a range of 64 KiB for lines of 64 bytes. */
#define MAX_SWEEPS 1024

struct options {
	bool csv, dry_run, json;
	uint64_t samples, sweeps;
	double warmup, interval;
	struct cpu_list late, cpus;
};

#define ROW(...) OPTION_ROW(struct options, __VA_ARGS__)
#define FLAG(...) OPTION_FLAG_ROW(struct options, __VA_ARGS__)

static const struct option_row rows[] = {
	ROW('d', "late", "MASK", OPTION_MASK, late, 0, 0, NULL,
	    "CPUs, as a bit mask, whose threads start late: when the sample "
	    "that is dropped ends"),
	ROW('n', "samples", "N", OPTION_COUNT, samples, 1, MAX_SAMPLES, "6",
	    "samples, after one that is dropped"),
	ROW('s', "sweep", "N", OPTION_COUNT, sweeps, 1, MAX_SWEEPS, "1",
	    "measure with the counter in each of N cache lines in turn"),
	ROW('S', "csv", NULL, OPTION_FLAG, csv, 0, 0, NULL,
	    "print comma-separated values with a header"),
	ROW('t', "interval", "SECONDS", OPTION_SECONDS, interval,
	    MIN_INTERVAL_MS, MAX_INTERVAL_MS, "0.5", "time of a sample"),
	ROW(0, "warmup", "SECONDS", OPTION_SECONDS, warmup, 0, MAX_INTERVAL_MS,
	    "0", "time before the first sample"),
	OPTION_ROWS_JOB(struct options),
	OPTION_ROWS_COMMON,
};

static void more_help(FILE *out)
{
	fputs("\nThe threads add as fast as they can (unrelaxed), then with a "
	      "relax hint after\neach addition (relaxed). A line is a sample: "
	      "for each CPU nanoseconds per\naddition of its thread, 0.0 if "
	      "there was none, then the mean, the standard\ndeviation, the "
	      "smallest and the largest of those that are not 0.\n",
	      out);
}

static const struct program program = {
	.name = "fairness",
	.summary = "Measures how evenly CPUs get at one counter that all of "
		   "them add to.",
	.rows = rows,
	.nr_rows = sizeof(rows) / sizeof(*rows),
	.more_help = more_help,
};

/* How many additions a thread has made: lines that only it writes. */
struct adder {
	_Alignas(FALSE_SHARING_DISTANCE) _Atomic uint64_t made;
};

/* What is to be measured, and how far it has come. */
struct contest {
	struct options options;
	struct cpu_list cpus; /* thread i on CPU i */
	bool *late;           /* of each thread */
	struct adder *adders;
	uint64_t *seen; /* of each thread: what it had made at the last look */
	double *ns;     /* of each thread: an addition; 0: it made none */
	char *lines;    /* the counter is in one of these */

	/* Of the measurement that is on: */
	bool relaxed;
	size_t sweep;
	_Atomic uint64_t *counter;
	struct crew crew;

	struct json json; /* under --json */
};

/*
 * The sum is used, so that the addition is one that waits for it; Arm cores
 * may send others out to be made far from them.
 */
#define ADDING_KERNEL(name, hint)                                              \
	static void name(_Atomic uint64_t *counter, struct adder *adder,       \
			 const atomic_bool *stop)                              \
	{                                                                      \
		uint64_t made = 0;                                             \
                                                                               \
		while (!atomic_load_explicit(stop, memory_order_relaxed)) {    \
			uint64_t sum = atomic_fetch_add_explicit(              \
				counter, 1, memory_order_relaxed);             \
                                                                               \
			__asm__ __volatile__("" : : "r"(sum));                 \
			hint;                                                  \
			atomic_store_explicit(&adder->made, ++made,            \
					      memory_order_relaxed);           \
		}                                                              \
	}

ADDING_KERNEL(add_unrelaxed, )
ADDING_KERNEL(add_relaxed, cpu_relax())

/* Not for main, whose sleep takes signals. */
static void sleep_until(uint64_t until_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(until_ns / NS_PER_SECOND),
		.tv_nsec = (long)(until_ns % NS_PER_SECOND),
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) ==
	       EINTR)
		;
}

static void add(struct crew *crew, size_t index, void *argument)
{
	struct contest *contest = argument;
	const struct options *options = &contest->options;

	if (!crew_start_line(crew))
		return;
	if (contest->late[index])
		sleep_until(now_ns() +
			    seconds_to_ns(options->warmup + options->interval));
	(contest->relaxed ? add_relaxed : add_unrelaxed)(
		contest->counter, &contest->adders[index], &crew->stop);
}

/* Sees what each thread has done in this time since the last look. */
static void look(struct contest *contest, uint64_t elapsed_ns)
{
	for (size_t i = 0; i < contest->cpus.count; i++) {
		const uint64_t made = atomic_load_explicit(
			&contest->adders[i].made, memory_order_relaxed);
		const uint64_t more = made - contest->seen[i];

		contest->ns[i] = more ? (double)elapsed_ns / (double)more : 0;
		contest->seen[i] = made;
	}
}

static void print_number(FILE *out, bool csv, double number)
{
	/* Whatever the width, there is a blank before it. */
	fprintf(out, csv ? ",%.3f" : " %7.1f", number);
}

static void print_csv_header(FILE *out, const struct cpu_list *cpus)
{
	fputs("relaxed,sweep", out);
	for (size_t i = 0; i < cpus->count; i++)
		fprintf(out, ",cpu-%d", cpus->cpu[i]);
	fputs(",avg,stdev,min,max\n", out);
}

/* What stands before the samples of a measurement. */
static void print_heading(FILE *out, const struct contest *contest)
{
	if (contest->options.csv) {
		if (contest->sweep == 0 && !contest->relaxed)
			print_csv_header(out, &contest->cpus);
		return;
	}
	if (contest->options.sweeps > 1 && !contest->relaxed)
		fprintf(out, "line %zu:\n", contest->sweep);
	fputs(contest->relaxed ? "relaxed:\n" : "unrelaxed:\n", out);
}

/* Of the threads that made an addition. */
static struct statistics sample_statistics(const struct contest *contest)
{
	struct statistics ns = {0};

	for (size_t i = 0; i < contest->cpus.count; i++)
		if (contest->ns[i] > 0)
			statistics_add(&ns, contest->ns[i]);
	return ns;
}

static void print_sample(FILE *out, const struct contest *contest)
{
	const bool csv = contest->options.csv;
	const struct statistics ns = sample_statistics(contest);

	if (csv)
		fprintf(out, "%d,%zu", contest->relaxed, contest->sweep);
	for (size_t i = 0; i < contest->cpus.count; i++)
		print_number(out, csv, contest->ns[i]);
	print_number(out, csv, statistics_mean(&ns));
	print_number(out, csv, statistics_sdev(&ns));
	print_number(out, csv, ns.min);
	print_number(out, csv, ns.max);
	putc('\n', out);
}

static void json_sample(struct json *json, const struct contest *contest)
{
	const struct statistics ns = sample_statistics(contest);

	json_object(json, NULL);
	json_flag(json, "relaxed", contest->relaxed);
	json_count(json, "line", contest->sweep);
	json_array(json, "cpu_ns");
	for (size_t i = 0; i < contest->cpus.count; i++)
		json_number(json, NULL, contest->ns[i]);
	json_end_array(json);
	json_statistics(json, "ns_statistics", &ns);
	json_end_object(json);
}

/* Returns the signal that cut it short, or 0. */
static int take_samples(struct contest *contest)
{
	const struct options *options = &contest->options;
	const uint64_t interval = seconds_to_ns(options->interval);
	int came = signals_wait(now_ns() + seconds_to_ns(options->warmup));
	uint64_t at = now_ns(), last;

	look(contest, 0);
	for (uint64_t i = 0; i <= options->samples && !came; i++) {
		came = signals_wait(at + interval);
		if (came)
			break;
		last = at;
		at = now_ns();
		look(contest, at - last);
		if (i == 0) /* is dropped */
			continue;
		if (options->json)
			json_sample(&contest->json, contest);
		else
			print_sample(report_out, contest);
		if (!report_flush())
			break;
	}
	return came;
}

/*
 * One measurement: a sweep, relaxed or not, until a signal comes, which *came
 * then names.
 */
static bool measure(struct contest *contest, int *came, struct error *error)
{
	const size_t threads = contest->cpus.count;

	contest->counter =
		(void *)(contest->lines + contest->sweep * CACHE_LINE_BYTES);
	memset(contest->adders, 0, threads * sizeof(*contest->adders));
	memset(contest->seen, 0, threads * sizeof(*contest->seen));
	if (!crew_start(&contest->crew, threads, &contest->cpus, add, contest,
			error) ||
	    !crew_await_start(&contest->crew, came, error))
		return false;
	if (!contest->options.json)
		print_heading(report_out, contest);
	report_flush();
	if (!*came)
		*came = take_samples(contest);
	/* A thread that starts late would not hear of it at once. */
	if (*came)
		return true;
	crew_stop(&contest->crew);
	crew_join(&contest->crew);
	return true;
}

static bool take_memory(struct contest *contest, struct error *error)
{
	const size_t threads = contest->cpus.count;

	contest->adders = aligned_zeros(FALSE_SHARING_DISTANCE,
					threads * sizeof(*contest->adders));
	contest->seen = calloc(threads, sizeof(*contest->seen));
	contest->ns = calloc(threads, sizeof(*contest->ns));
	contest->lines = aligned_zeros(native_page_size(),
				       (size_t)contest->options.sweeps *
					       CACHE_LINE_BYTES);
	if (!contest->adders || !contest->seen || !contest->ns ||
	    !contest->lines)
		return error_set(error, "no memory for %zu threads", threads);
	return true;
}

/* Until a signal comes, or nobody can read what would follow. */
static bool measure_all(struct contest *contest, int *came, struct error *error)
{
	*came = 0;
	for (; contest->sweep < contest->options.sweeps; contest->sweep++)
		for (int relaxed = 0; relaxed <= 1; relaxed++) {
			contest->relaxed = relaxed;
			if (!measure(contest, came, error))
				return false;
			if (*came || !report_flush())
				return true;
		}
	return true;
}

static void json_plan(const void *context, struct json *json)
{
	const struct contest *contest = context;
	const struct options *options = &contest->options;

	json_object(json, "configuration");
	json_cpus(json, "cpus", &contest->cpus);
	json_cpus(json, "late_cpus", &options->late);
	json_count(json, "sweeps", options->sweeps);
	json_count(json, "samples", options->samples);
	json_number(json, "warmup_s", options->warmup);
	json_number(json, "interval_s", options->interval);
	json_end_object(json);
}

static bool begin_json(struct contest *contest, struct error *error)
{
	struct json *json = &contest->json;

	if (!report_json_start(json, program.name, error))
		return false;
	json_plan(contest, json);
	json_array(json, "samples");
	return true;
}

static bool end_json(struct contest *contest, int came, struct error *error)
{
	json_end_array(&contest->json);
	json_count(&contest->json, "signal", (uint64_t)came);
	return report_json_end(&contest->json, error);
}

static bool run(void *context, struct error *error)
{
	struct contest *contest = context;
	const bool json = contest->options.json;
	uint64_t throttled;
	int came;

	if (!take_memory(contest, error))
		return false;
	signals_hold();
	throttled = throttled_periods();
	if ((json && !begin_json(contest, error)) ||
	    !measure_all(contest, &came, error) ||
	    (json && !end_json(contest, came, error)))
		return false;
	crew_warn_of_moves(program.name);
	report_throttling(program.name, throttled);
	if (came)
		report_die(came);
	return true;
}

static void print_plan(const void *context)
{
	const struct contest *contest = context;
	const struct options *options = &contest->options;

	fprintf(report_out, "cpus = ");
	write_cpus(report_out, &contest->cpus);
	fprintf(report_out, "\nlate_cpus = ");
	if (options->late.count)
		write_cpus(report_out, &options->late);
	else
		fprintf(report_out, "none");
	fprintf(report_out, "\nsweeps = %llu\n",
		(unsigned long long)options->sweeps);
	fprintf(report_out, "samples = %llu\n",
		(unsigned long long)options->samples);
	fprintf(report_out, "seconds = %.1f\n",
		2 * (double)options->sweeps *
			(options->warmup +
			 (double)(options->samples + 1) * options->interval));
}

/* Finds the threads of the CPUs that start late. */
static bool choose_late(struct contest *contest, struct error *error)
{
	const struct cpu_list *cpus = &contest->cpus;
	const struct cpu_list *late = &contest->options.late;
	size_t thread;

	contest->late = calloc(cpus->count, sizeof(*contest->late));
	if (!contest->late)
		return error_set(error, "no memory for %zu threads",
				 cpus->count);
	for (size_t i = 0; i < late->count; i++) {
		for (thread = 0; thread < cpus->count; thread++)
			if (cpus->cpu[thread] == late->cpu[i])
				break;
		if (thread == cpus->count)
			return error_set(error,
					 "-d: no thread runs on CPU %d; "
					 "expected CPUs that may be used, or "
					 "those of --cpus",
					 late->cpu[i]);
		contest->late[thread] = true;
	}
	return true;
}

static bool resolve(void *context, struct error *error)
{
	struct contest *contest = context;

	if (contest->options.csv && contest->options.json)
		return error_set(error, "-S: not together with --json");
	return choose_cpus(&contest->cpus, &contest->options.cpus, error) &&
	       choose_late(contest, error);
}

int main(int argc, char **argv)
{
	static struct contest contest;
	const struct job job = {
		.options = &contest.options,
		.dry_run = &contest.options.dry_run,
		.json = &contest.options.json,
		.context = &contest,
		.resolve = resolve,
		.print_plan = print_plan,
		.json_plan = json_plan,
		.run = run,
	};

	return program_run(&program, &job, argc, argv);
}
