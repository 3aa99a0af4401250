/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What multichase and multiload do alike: from the command line over the
 * samples to the exit status.
 */
#ifndef RUN_H
#define RUN_H

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
	/* Looks again, a sample later; prints it under -v. */
	void (*sample)(void *results, const struct team *team);
	/* Prints what there is. Error: there is nothing. */
	bool (*finish)(const void *results, const struct plan *plan,
		       struct error *error);
};

/* Returns the exit status, or ends by the signal that ended the sampling. */
int run_measurement(const struct measurement *measurement, int argc,
		    char **argv);

#endif /* RUN_H */
