/* SPDX-License-Identifier: Apache-2.0 */
/* multichase: the latency of memory, by chasing pointers. */
#include "report.h"
#include "run.h"

#include <math.h>
#include <stdio.h>

#define DEFAULT_CHASE "simple"
#define NS_PER_MS 1000000

static const struct option_row rows[] = {
	RUN_FLAG('a', "average", average,
		 "report the mean of the samples, not the best"),
	RUN_ROW('f', "file", "FILE", OPTION_TEXT, file, 0, 0, NULL,
		"map FILE as the memory; its content is overwritten"),
	RUN_FLAG('M', "malloc", use_malloc, "take the memory from malloc"),
	RUN_ROW('n', "samples", "N", OPTION_COUNT, samples, 0, MAX_SAMPLES, "5",
		"samples, after one that is dropped; 0: until stopped"),
	RUN_FLAG('N', "timed", timed,
		 "stop once the time of -n samples, with the dropped one "
		 "among them, has passed"),
	RUN_OPTION_ROWS("memory of the chase",
			"print the configuration and each sample"),
	RUN_ROW(0, "interval", "SECONDS", OPTION_SECONDS, interval,
		MIN_INTERVAL_MS, MAX_INTERVAL_MS, "0.5", "time of a sample"),
	RUN_ROW(0, "warmup", "SECONDS", OPTION_SECONDS, warmup, 0,
		MAX_INTERVAL_MS, "0", "time before the first sample"),
	OPTION_ROWS_COMMON,
};

static void more_help(FILE *out)
{
	print_chases(out, false);
}

static const struct program program = {
	.name = "multichase",
	.summary = "Measures the latency of memory: nanoseconds for each "
		   "dereference of a pointer chase.",
	.rows = rows,
	.nr_rows = sizeof(rows) / sizeof(*rows),
	.more_help = more_help,
};

/* What comes of the samples. */
struct results {
	struct chase_sampler sampler;
	uint64_t stalls;              /* times that no thread had moved */
	struct statistics statistics; /* ns a step, of the samples that count */
	uint64_t steps, elapsed_ns;   /* of the same */
};

static bool resolve(struct plan *plan, const struct run_options *options,
		    struct error *error)
{
	if (options->timed && options->samples == 0)
		return error_set(error, "-n 0: expected at least one sample "
					"for a timed run (-N)");
	plan->chase_threads = (size_t)options->threads;
	return choose_chase(options->chase ? options->chase : DEFAULT_CHASE,
			    false, &plan->choice, error) &&
	       plan_resolve(plan, options, error);
}

static void print_plan(const struct plan *plan)
{
	plan_print(plan, report_out);
}

static bool begin(void *all_results, const struct team *team,
		  struct error *error)
{
	struct results *results = all_results;

	return chase_sampler_init(&results->sampler, team, error);
}

static bool look(void *all_results, const struct team *team)
{
	struct results *results = all_results;
	const bool moved = chase_sample(&results->sampler, team);

	results->stalls += !moved;
	return moved;
}

static void count(void *all_results, const struct team *team, bool afresh)
{
	struct results *results = all_results;
	const struct chase_sampler *sampler = &results->sampler;

	if (afresh) {
		results->statistics = (struct statistics){0};
		results->steps = results->elapsed_ns = 0;
	}
	statistics_add(&results->statistics, chase_average_ns(sampler, team));
	results->steps += sampler->all_steps;
	results->elapsed_ns += sampler->elapsed_ns;
}

static void print_sample(const void *all_results, const struct team *team)
{
	const struct results *results = all_results;

	report_line(team->plan->options->timestamp);
	for (size_t i = 0; i < team->plan->chase_threads; i++) {
		report_latency(chase_thread_ns(&results->sampler, i));
		putc(' ', report_out);
	}
	fprintf(report_out, " avg=");
	report_latency(chase_average_ns(&results->sampler, team));
	putc('\n', report_out);
}

static void json_sample(const void *all_results, const struct team *team,
			struct json *json)
{
	const struct results *results = all_results;

	json_object(json, NULL);
	json_chase_sample(json, &results->sampler, team);
	json_end_object(json);
}

static bool finish(const void *all_results, const struct plan *plan,
		   struct error *error)
{
	const struct results *results = all_results;

	if (results->statistics.count)
		return true;
	return error_set(
		error,
		"--interval %.9g: no thread came to its first %llu steps "
		"in the time, make it longer",
		plan->options->interval, (unsigned long long)STEPS_PER_BATCH);
}

static double final_ns(const struct results *results,
		       const struct run_options *options)
{
	return options->average ? statistics_mean(&results->statistics)
				: results->statistics.min;
}

static uint64_t steps_per_ms(const struct results *results)
{
	if (results->elapsed_ns == 0)
		return 0;
	return (uint64_t)((double)results->steps * NS_PER_MS /
			  (double)results->elapsed_ns);
}

static void print_result(const void *all_results, const struct plan *plan)
{
	const struct run_options *options = plan->options;
	const struct results *results = all_results;

	if (options->timed) {
		report_line(options->timestamp);
		fprintf(report_out,
			"timed out: %llu samples, %llu stalls, "
			"%llu iterations per msec\n",
			(unsigned long long)results->statistics.count,
			(unsigned long long)results->stalls,
			(unsigned long long)steps_per_ms(results));
	}
	report_line(options->timestamp);
	report_latency(final_ns(results, options));
	putc('\n', report_out);
}

static void json_result(const void *all_results, const struct plan *plan,
			struct json *json)
{
	const struct results *results = all_results;

	json_number(json, "ns",
		    results->statistics.count ? final_ns(results, plan->options)
					      : NAN);
	json_statistics(json, "ns_statistics", &results->statistics);
	json_count(json, "stalls", results->stalls);
	json_count(json, "steps_per_ms", steps_per_ms(results));
}

int main(int argc, char **argv)
{
	static struct results results;
	const struct measurement measurement = {
		.program = &program,
		.results = &results,
		.resolve = resolve,
		.print_plan = print_plan,
		.begin = begin,
		.look = look,
		.count = count,
		.print_sample = print_sample,
		.json_sample = json_sample,
		.finish = finish,
		.print_result = print_result,
		.json_result = json_result,
	};

	return run_measurement(&measurement, argc, argv);
}
