/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "machine.h"
#include "program.h"
#include "report.h"
#include "signals.h"
#include "timer.h"

#include <stdio.h>
#include <stdlib.h>

/* A run under way. */
struct run {
	const struct measurement *measurement;
	const struct plan *plan;
	struct team team;
	struct json json;   /* under --json */
	uint64_t seen;      /* samples, the one that is dropped among them */
	uint64_t throttled; /* periods, when it began */
	int came;           /* the signal that ended it, or 0 */
	bool gave_up;       /* nothing moved for too long */
	bool unread;        /* what is printed can no longer be written */
};

/*
 * The caches may still be warm with a part of the chase in the first sample:
 * it counts only if it stays the only one, and is not shown. False: nothing has
 * moved, so there is no sample.
 */
static bool take_sample(struct run *run)
{
	const struct measurement *measurement = run->measurement;
	void *results = measurement->results;

	if (!measurement->look(results, &run->team))
		return false;
	measurement->count(results, &run->team, ++run->seen == 2);
	if (run->seen == 1)
		return true;
	if (run->plan->options->json)
		measurement->json_sample(results, &run->team, &run->json);
	else if (run->plan->options->verbose)
		measurement->print_sample(results, &run->team);
	run->unread = !report_flush();
	return true;
}

/*
 * How long nothing may move until a run gives up, and in how many looks: time
 * in which the program was stopped does not count.
 */
#define MAX_IDLE_NS (10 * NS_PER_SECOND)
#define MIN_IDLE_LOOKS 2

/* Shorter runs show no progress. */
#define PATIENCE_NS (2 * NS_PER_SECOND)

/* Shows how much of the time has passed; -v shows the samples instead. */
static bool show_progress(const struct run_options *options, uint64_t begin)
{
	const double all = (double)seconds_to_ns(options->warmup) +
			   (double)seconds_to_ns(options->interval) *
				   (double)(options->samples + !options->timed);

	return !options->verbose && options->samples && all > PATIENCE_NS &&
	       report_progress("sampling", (double)(now_ns() - begin) / all);
}

/* Samples until there are enough or, if timed, until their time has passed. */
static bool take_samples(struct run *run, struct error *error)
{
	const struct run_options *options = run->plan->options;
	const uint64_t interval = seconds_to_ns(options->interval);
	const uint64_t wanted = options->samples + 1; /* one is dropped */
	uint64_t begin = now_ns(), idle_looks = 0, end;
	const bool shown = show_progress(options, begin);
	bool good;

	run->came = signals_wait(begin + seconds_to_ns(options->warmup));
	good = run->measurement->begin(run->measurement->results, &run->team,
				       error);
	end = now_ns();
	if (options->samples > (UINT64_MAX - end) / interval)
		end = UINT64_MAX;
	else
		end += interval * options->samples;
	while (good && !run->came && !run->unread) {
		show_progress(options, begin);
		run->came = signals_wait(now_ns() + interval);
		if (run->came)
			break;
		idle_looks = take_sample(run) ? 0 : idle_looks + 1;
		run->gave_up = idle_looks >= MIN_IDLE_LOOKS &&
			       idle_looks * interval > MAX_IDLE_NS;
		if (run->gave_up)
			break;
		good = !crew_failed(&run->team.crew, error);
		if (options->timed ? now_ns() >= end
				   : options->samples && run->seen == wanted)
			break;
	}
	if (shown)
		report_progress_end();
	return good;
}

static void print_write_back(const struct write_back *all)
{
	if (all->lines)
		fprintf(report_out,
			"write_back = %llu bytes, %llu lines of %zu bytes, "
			"%.6f s\n",
			(unsigned long long)all->bytes,
			(unsigned long long)all->lines, all->line_size,
			(double)all->ns / NS_PER_SECOND);
	else
		fprintf(report_out, "write_back = none\n");
}

static void json_write_back(const struct write_back *all, struct json *json)
{
	json_object(json, "write_back");
	json_count(json, "bytes", all->bytes);
	json_count(json, "lines", all->lines);
	json_count(json, "line_bytes", all->line_size);
	json_number(json, "seconds", (double)all->ns / NS_PER_SECOND);
	json_end_object(json);
}

/* Memory as it was given, which may differ from what was asked for. */
static void json_memory(const struct team *team, struct json *json)
{
	json_object(json, "memory");
	if (team->huge_known) {
		json_count(json, "bytes", team->arena_bytes);
		json_count(json, "on_transparent_huge_pages_bytes",
			   team->huge.thp);
		json_count(json, "on_hugetlb_pages_bytes", team->huge.hugetlb);
	}
	json_end_object(json);
}

static bool begin_json(struct run *run, struct error *error)
{
	const struct write_back written = team_write_back(&run->team);
	struct json *json = &run->json;

	if (!report_json_start(json, run->measurement->program->name, error))
		return false;
	plan_json(run->plan, json);
	json_memory(&run->team, json);
	json_write_back(&written, json);
	json_array(json, "samples");
	return true;
}

/* What is known before the first sample. */
static bool report_beginning(struct run *run, struct error *error)
{
	const struct write_back written = team_write_back(&run->team);

	if (run->plan->options->json)
		return begin_json(run, error);
	if (run->plan->options->verbose) {
		run->measurement->print_plan(run->plan);
		print_write_back(&written);
		run->unread = !report_flush();
	}
	return true;
}

static bool report_result(struct run *run, struct error *error)
{
	const struct measurement *measurement = run->measurement;
	struct json *json = &run->json;

	if (run->unread)
		return true; /* which report_end() will say */
	if (!measurement->finish(measurement->results, run->plan, error)) {
		/* A signal before the first sample is no failure. */
		if (!run->came)
			return false;
		if (!run->plan->options->json)
			return true;
	}
	if (!run->plan->options->json) {
		measurement->print_result(measurement->results, run->plan);
		return true;
	}
	if (run->seen == 1) /* the only one was not dropped */
		measurement->json_sample(measurement->results, &run->team,
					 json);
	json_end_array(json);
	json_count(json, "signal", (uint64_t)run->came);
	json_object(json, "result");
	measurement->json_result(measurement->results, run->plan, json);
	json_end_object(json);
	return report_json_end(json, error);
}

/* A run that gave up, with samples in hand. */
static void warn_of_missing_samples(const struct run *run)
{
	const uint64_t dropped = run->seen > 1;
	struct error warning;

	if (!run->gave_up)
		return;
	error_set(&warning,
		  "no sample came in more than %llu s: the result is of %llu, "
		  "with -n %llu",
		  MAX_IDLE_NS / NS_PER_SECOND,
		  (unsigned long long)(run->seen - dropped),
		  (unsigned long long)run->plan->options->samples);
	report_warning(run->measurement->program->name, &warning);
}

/* Huge pages that were asked for and not given. */
static void warn_of_small_pages(const char *program, const struct team *team)
{
	struct error warning;

	if (!team->plan->arena.thp)
		return;
	if (!team->huge_known)
		error_set(&warning, "-H: the kernel does not tell how much of "
				    "the memory is on huge pages");
	else if (team->huge.thp < team->arena_bytes)
		error_set(&warning,
			  "-H: %.1f of %.1f MiB are on huge pages, the rest "
			  "is not",
			  (double)team->huge.thp / (1 << 20),
			  (double)team->arena_bytes / (1 << 20));
	else
		return;
	report_warning(program, &warning);
}

/* Pages on other nodes than those that were asked for. */
static void warn_of_misplaced_pages(const char *program,
				    const struct team *team)
{
	struct error warning;
	size_t misplaced = 0;
	bool known = true;

	for (size_t i = 0; i <= team->plan->load_threads; i++) {
		const struct arena *arena =
			i ? &team->buffers[i - 1] : &team->arena;

		known &= arena->misplaced != SIZE_MAX;
		misplaced += arena->misplaced;
	}
	if (!known)
		error_set(&warning, "-W: the kernel does not tell which nodes "
				    "the memory is on");
	else if (misplaced)
		error_set(&warning,
			  "-W: %.1f MiB are on other nodes than the weights "
			  "say",
			  (double)misplaced / (1 << 20));
	else
		return;
	report_warning(program, &warning);
}

/* What is to be known of a result; without one, the error says enough. */
static void warn_of_all(const struct run *run)
{
	const char *program = run->measurement->program->name;

	warn_of_small_pages(program, &run->team);
	warn_of_misplaced_pages(program, &run->team);
	warn_of_missing_samples(run);
	crew_warn_of_moves(program);
	report_throttling(program, run->throttled);
}

/* Names what of the options may not be there when it is touched. */
static void explain_bus_error(const char *program,
			      const struct run_options *options)
{
	char what[256], size[32];

	if (options->file)
		snprintf(what, sizeof(what), "-f %.200s", options->file);
	else if (options->page_size > native_page_size())
		snprintf(what, sizeof(what), "-p %s",
			 typed_size(size, sizeof(size), options->page_size));
	else
		snprintf(what, sizeof(what), "-m %s",
			 typed_size(size, sizeof(size), options->memory));
	signals_explain_bus_error(program, what);
}

static bool run_plan(const struct measurement *measurement,
		     const struct plan *plan, struct error *error)
{
	static struct run run;
	bool reported;

	run.measurement = measurement;
	run.plan = plan;
	explain_bus_error(measurement->program->name, plan->options);
	if (plan->arena.thp && !thp_enable(error))
		return false;
	if (!team_start(&run.team, plan, error) ||
	    !report_beginning(&run, error))
		return false;
	run.throttled = throttled_periods();
	if (!take_samples(&run, error))
		return false;
	team_stop(&run.team);
	reported = report_result(&run, error);
	if (reported)
		warn_of_all(&run);
	if (run.came)
		report_die(run.came);
	return reported;
}

/* What is to be measured, as it was asked for, and as it will be. */
struct request {
	const struct measurement *measurement;
	struct run_options options;
	struct plan plan;
};

static bool resolve(void *context, struct error *error)
{
	struct request *request = context;

	return request->measurement->resolve(&request->plan, &request->options,
					     error);
}

static void print_plan(const void *context)
{
	const struct request *request = context;

	request->measurement->print_plan(&request->plan);
}

static void json_plan(const void *context, struct json *json)
{
	const struct request *request = context;

	plan_json(&request->plan, json);
}

static bool carry_out(void *context, struct error *error)
{
	const struct request *request = context;

	return run_plan(request->measurement, &request->plan, error);
}

int run_measurement(const struct measurement *measurement, int argc,
		    char **argv)
{
	/* What it points to lives until the program ends. */
	static struct request request = {
		.options = {.tlb_locality = TLB_LOCALITY_PRESET},
	};
	const struct job job = {
		.options = &request.options,
		.dry_run = &request.options.dry_run,
		.json = &request.options.json,
		.context = &request,
		.resolve = resolve,
		.print_plan = print_plan,
		.json_plan = json_plan,
		.run = carry_out,
	};

	request.measurement = measurement;
	return program_run(measurement->program, &job, argc, argv);
}
