/* SPDX-License-Identifier: Apache-2.0 */
/* multiload: latency, bandwidth, and latency under a load of bandwidth. */
#include "report.h"
#include "run.h"
#include "timer.h"

#include <math.h>
#include <stdio.h>

#define DEFAULT_CHASE "simple"
#define DEFAULT_LOAD "memcpy-libc"
#define NO_NAME "--------" /* in the row, of a part that did not run */
#define BYTES_PER_STEP 8

static const struct option_row rows[] = {
	RUN_FLAG('a', "average", average,
		 "report the geometric mean of the chase's samples, not the "
		 "best"),
	RUN_ROW('d', "delay", "N", OPTION_COUNT, delay, 0, UINT32_MAX, "1",
		"turns of a one-nop loop before every two lines of output, "
		"for the load that injects delays"),
	RUN_ROW('l', "load", "NAME", OPTION_TEXT, load, 0, 0, NULL,
		"which memload, see below; with -c chaseload: beside the "
		"chase"),
	RUN_ROW('n', "samples", "N", OPTION_COUNT, samples, 0, MAX_SAMPLES, "5",
		"samples, after one that is dropped; 0: until stopped"),
	RUN_OPTION_ROWS("memory of the chase, and of each thread that runs a "
			"memload",
			"print the configuration, each sample and statistics; "
			"twice: also which variant of the memload runs"),
	RUN_ROW(0, "interval", "SECONDS", OPTION_SECONDS, interval,
		MIN_INTERVAL_MS, MAX_INTERVAL_MS, "2", "time of a sample"),
	RUN_ROW(0, "warmup", "SECONDS", OPTION_SECONDS, warmup, 0,
		MAX_INTERVAL_MS, "4", "time before the first sample"),
	OPTION_ROWS_COMMON,
};

static void more_help(FILE *out)
{
	print_chases(out, true);
	print_memloads(out);
}

static const struct program program = {
	.name = "multiload",
	.summary = "Measures latency (-c), bandwidth (-l), or latency under "
		   "load (-c chaseload -l LOAD).",
	.rows = rows,
	.nr_rows = sizeof(rows) / sizeof(*rows),
	.more_help = more_help,
};

/* What comes of the samples. */
struct results {
	struct chase_sampler chase_sampler;
	struct load_sampler load_sampler;
	struct statistics chases; /* ns a step */
	struct statistics loads;  /* MiB/s of all load threads */
};

static void print_chase_sample(const struct chase_sampler *sampler,
			       const struct team *team)
{
	fprintf(report_out, "Chase");
	for (size_t i = 0; i < team->plan->chase_threads; i++) {
		putc(' ', report_out);
		report_latency(chase_thread_ns(sampler, i));
	}
	fprintf(report_out, "  avg=");
	report_latency(chase_average_ns(sampler, team));
	fprintf(report_out, " (ns)%s", team->plan->load_threads ? ", " : "");
}

static void print_load_sample(const struct load_sampler *sampler,
			      const struct team *team)
{
	fprintf(report_out, "Total(MiB/s)=%.1f PerThread=", sampler->total);
	for (size_t i = 0; i < team->plan->load_threads; i++)
		fprintf(report_out, " %.1f", sampler->mibs[i]);
}

static bool begin(void *all_results, const struct team *team,
		  struct error *error)
{
	struct results *results = all_results;

	return chase_sampler_init(&results->chase_sampler, team, error) &&
	       load_sampler_init(&results->load_sampler, team, error);
}

/* A sample has something of all that runs, or it is none. */
static bool look(void *all_results, const struct team *team)
{
	struct results *results = all_results;
	const struct plan *plan = team->plan;

	/* Loads first: while their sample goes on, that of the chase does. */
	if (plan->load_threads && !load_sample(&results->load_sampler, team))
		return false;
	return !plan->chase_threads ||
	       chase_sample(&results->chase_sampler, team);
}

static void count(void *all_results, const struct team *team, bool afresh)
{
	struct results *results = all_results;

	if (afresh) {
		results->chases = (struct statistics){0};
		results->loads = (struct statistics){0};
	}
	if (team->plan->chase_threads)
		statistics_add(&results->chases,
			       chase_average_ns(&results->chase_sampler, team));
	if (team->plan->load_threads)
		statistics_add(&results->loads, results->load_sampler.total);
}

static void print_sample(const void *all_results, const struct team *team)
{
	const struct results *results = all_results;

	report_line(team->plan->options->timestamp);
	if (team->plan->chase_threads)
		print_chase_sample(&results->chase_sampler, team);
	if (team->plan->load_threads)
		print_load_sample(&results->load_sampler, team);
	putc('\n', report_out);
}

static void json_sample(const void *all_results, const struct team *team,
			struct json *json)
{
	const struct results *results = all_results;

	json_object(json, NULL);
	if (team->plan->chase_threads)
		json_chase_sample(json, &results->chase_sampler, team);
	if (team->plan->load_threads)
		json_load_sample(json, &results->load_sampler, team);
	json_end_object(json);
}

/* What -v adds before the table. */
static void print_statistics(const struct results *results,
			     const struct plan *plan)
{
	const bool timestamp = plan->options->timestamp;
	const struct statistics *chases = &results->chases;
	const struct statistics *loads = &results->loads;

	if (plan->chase_threads) {
		report_line(timestamp);
		fprintf(report_out,
			"ChasAVG=%.3f, ChasGEO=%.3f, ChasBEST=%.3f, "
			"ChasWORST=%.3f, ChasDEV=%.3f\n",
			statistics_mean(chases),
			statistics_geometric_mean(chases), chases->min,
			chases->max, statistics_deviation(chases));
	}
	if (plan->load_threads) {
		report_line(timestamp);
		fprintf(report_out,
			"LdAvgMibs=%.0f, LdMaxMibs=%.0f, LdMinMibs=%.0f, "
			"LdDevMibs=%.3f\n",
			statistics_mean(loads), loads->max, loads->min,
			statistics_deviation(loads));
	}
}

static double final_ns(const struct results *results,
		       const struct run_options *options)
{
	return options->average ? statistics_geometric_mean(&results->chases)
				: results->chases.min;
}

static double chase_mibs(const struct results *results, const struct plan *plan)
{
	const double ns = final_ns(results, plan->options);

	if (ns == 0)
		return 0;
	return BYTES_PER_STEP * (double)plan->chase_threads * NS_PER_SECOND /
	       ns / (1 << 20);
}

/* The two lines that scripts read: names and widths are an interface. */
static void print_table(const struct results *results, const struct plan *plan)
{
	const struct run_options *options = plan->options;
	const struct statistics *chases = &results->chases;
	const struct statistics *loads = &results->loads;

	fprintf(report_out,
		"Samples\t, Byte/thd\t, ChaseThds\t, ChaseNS\t, ChaseMibs\t, "
		"ChDeviate\t, LoadThds\t, LdMaxMibs\t, LdAvgMibs\t, "
		"LdDeviate\t, ChaseArg\t, MemLdArg\n");
	report_line(options->timestamp);
	fprintf(report_out,
		"%-6ld\t, %-11ld\t, %-8ld\t, %-8.3f\t, %-8.f\t, %-8.3f\t, "
		"%-8.f\t, %-8.f\t, %-8.f\t, %-8.3f\t, %s\t, %s\n",
		(long)(plan->chase_threads ? chases->count : loads->count),
		(long)plan->memory, (long)plan->chase_threads,
		final_ns(results, options), chase_mibs(results, plan),
		statistics_deviation(chases), (double)plan->load_threads,
		loads->max, statistics_mean(loads), statistics_deviation(loads),
		plan->chase_threads ? plan->choice.text : NO_NAME,
		plan->load ? options->load ? options->load : DEFAULT_LOAD
			   : NO_NAME);
}

/* Which threads do what: -c chases, -l loads, -c chaseload does both. */
static bool resolve(struct plan *plan, const struct run_options *options,
		    struct error *error)
{
	const char *chase = options->chase ? options->chase : DEFAULT_CHASE;
	const char *load = options->load ? options->load : DEFAULT_LOAD;
	const bool bandwidth = options->load && !options->chase;
	bool loaded = false;

	if (!bandwidth) {
		if (!choose_chase(chase, true, &plan->choice, error))
			return false;
		loaded = plan->choice.chase->loaded;
		if (options->load && !loaded)
			return error_set(error,
					 "-c %.200s: not together with -l "
					 "%.200s; expected -c chaseload, or "
					 "one of the two",
					 chase, load);
	}
	if (bandwidth || loaded) {
		plan->load = choose_memload(load, error);
		if (!plan->load)
			return false;
	}
	plan->chase_threads = bandwidth ? 0
			      : loaded  ? 1
					: (size_t)options->threads;
	plan->load_threads = (size_t)options->threads - plan->chase_threads;
	return plan_resolve(plan, options, error);
}

static void print_plan(const struct plan *plan)
{
	plan_print(plan, report_out);
	if (plan->load)
		fprintf(report_out, "memload = %s\n", plan->load->name);
	if (plan->load && plan->options->verbose > 1)
		fprintf(report_out, "memload_variant = %s\n",
			memload_variant(plan->load, plan->memory)->name);
	fprintf(report_out, "run_test_type = %s\n",
		!plan->load           ? "RUN_CHASE"
		: plan->chase_threads ? "RUN_CHASE_LOADED"
				      : "RUN_BANDWIDTH");
}

static bool finish(const void *all_results, const struct plan *plan,
		   struct error *error)
{
	const struct results *results = all_results;

	if (results->chases.count || results->loads.count)
		return true;
	return error_set(error,
			 "--interval %.9g: a thread has come to no end of a "
			 "batch of steps or a pass in the time, make it longer",
			 plan->options->interval);
}

static void print_result(const void *results, const struct plan *plan)
{
	if (plan->options->verbose)
		print_statistics(results, plan);
	print_table(results, plan);
}

static void json_result(const void *all_results, const struct plan *plan,
			struct json *json)
{
	const struct results *results = all_results;

	if (plan->chase_threads) {
		json_number(json, "ns",
			    results->chases.count
				    ? final_ns(results, plan->options)
				    : NAN);
		json_number(json, "chase_mib_per_s",
			    results->chases.count ? chase_mibs(results, plan)
						  : NAN);
		json_statistics(json, "ns_statistics", &results->chases);
	}
	if (plan->load_threads) {
		json_number(json, "mib_per_s",
			    results->loads.count
				    ? statistics_mean(&results->loads)
				    : NAN);
		json_statistics(json, "mib_per_s_statistics", &results->loads);
	}
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
