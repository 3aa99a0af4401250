/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What multichase and multiload do alike: from the command line over the
 * samples to the exit status.
 */
#ifndef RUN_H
#define RUN_H

#include "json.h"
#include "options.h"
#include "plan.h"
#include "team.h"

/* What each of them does in its own way; results is its own. */
struct measurement {
	const struct program *program;
	void *results;
	/* Fills in the plan's choices and calls plan_resolve(). */
	bool (*resolve)(struct plan *plan, const struct run_options *options,
			struct error *error);
	void (*print_plan)(const struct plan *plan);
	/* Begins to look at the threads, which are running. */
	bool (*begin)(void *results, const struct team *team,
		      struct error *error);
	/* Looks again, a sample later. False: nothing has moved. */
	bool (*look)(void *results, const struct team *team);
	/* Counts what was seen; afresh: what was counted before is dropped. */
	void (*count)(void *results, const struct team *team, bool afresh);
	void (*print_sample)(const void *results, const struct team *team);
	void (*json_sample)(const void *results, const struct team *team,
			    struct json *json);
	/* Is there a result? Error: why there is none. */
	bool (*finish)(const void *results, const struct plan *plan,
		       struct error *error);
	void (*print_result)(const void *results, const struct plan *plan);
	void (*json_result)(const void *results, const struct plan *plan,
			    struct json *json);
};

/* Returns the exit status, or ends by the signal that ended the sampling. */
int run_measurement(const struct measurement *measurement, int argc,
		    char **argv);

#endif /* RUN_H */
