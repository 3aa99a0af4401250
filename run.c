/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "report.h"
#include "signals.h"
#include "timer.h"

#include <stdlib.h>

static uint64_t in_ns(double seconds)
{
	return (uint64_t)(seconds * NS_PER_SECOND);
}

/* Samples until there are enough or, if timed, until their time has passed. */
static bool take_samples(const struct measurement *measurement,
			 const struct team *team, int *came,
			 struct error *error)
{
	const struct run_options *options = team->plan->options;
	const uint64_t interval = in_ns(options->interval);
	uint64_t left = options->samples + 1; /* one is dropped */
	uint64_t end;

	*came = signals_wait(now_ns() + in_ns(options->warmup));
	if (!measurement->begin(measurement->results, team, error))
		return false;
	end = now_ns() + interval * options->samples;
	while (!*came) {
		*came = signals_wait(now_ns() + interval);
		if (*came)
			break;
		measurement->sample(measurement->results, team);
		if (options->timed ? now_ns() >= end
				   : options->samples && --left == 0)
			break;
	}
	return true;
}

/* Huge pages that were asked for and not given: said, and only then. */
static void warn_of_small_pages(const char *program, const struct team *team)
{
	struct error warning;
	size_t wanted, huge;

	if (!team->plan->options->thp)
		return;
	if (!team_huge_bytes(team, &wanted, &huge))
		error_set(&warning, "-H: the kernel does not tell how much of "
				    "the memory is on huge pages");
	else if (huge < wanted)
		error_set(&warning,
			  "-H: %.1f of %.1f MiB are on huge pages, the rest "
			  "is not",
			  (double)huge / (1 << 20), (double)wanted / (1 << 20));
	else
		return;
	report_warning(program, &warning);
}

static void print_write_back(const struct team *team)
{
	const struct write_back all = team_write_back(team);

	if (all.lines)
		printf("write_back = %llu bytes, %llu lines of %zu bytes, "
		       "%.6f s\n",
		       (unsigned long long)all.bytes,
		       (unsigned long long)all.lines, all.line_size,
		       (double)all.ns / NS_PER_SECOND);
	else
		printf("write_back = none\n");
}

static bool run_plan(const struct measurement *measurement,
		     const struct plan *plan, struct error *error)
{
	static struct team team;
	bool finished;
	int came;

	signals_hold();
	signals_explain_bus_error(measurement->program->name);
	if (plan->options->thp && !thp_enable(error))
		return false;
	if (!team_start(&team, plan, error))
		return false;
	if (plan->options->verbose) {
		measurement->print_plan(plan);
		print_write_back(&team);
	}
	warn_of_small_pages(measurement->program->name, &team);
	if (!take_samples(measurement, &team, &came, error))
		return false;
	team_stop(&team);
	finished = measurement->finish(measurement->results, plan, error);
	if (came)
		signals_die(came);
	return finished;
}

int run_measurement(const struct measurement *measurement, int argc,
		    char **argv)
{
	const struct program *program = measurement->program;
	struct run_options options = {.tlb_locality = TLB_LOCALITY_PRESET};
	struct plan plan = {0};
	struct error error;

	report_start();
	switch (parse_options(program, argc, argv, &options, &error)) {
	case PARSE_EXIT:
		return report_end(program->name);
	case PARSE_ERROR:
		return report_error(program->name, &error);
	case PARSE_RUN:
		break;
	}
	if (!measurement->resolve(&plan, &options, &error))
		return report_error(program->name, &error);
	if (options.dry_run)
		measurement->print_plan(&plan);
	else if (!run_plan(measurement, &plan, &error))
		return report_error(program->name, &error);
	return report_end(program->name);
}
