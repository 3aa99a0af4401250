/* SPDX-License-Identifier: Apache-2.0 */
/* What every program's main does: from the command line to the exit status. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "error.h"
#include "json.h"
#include "options.h"

#include <stdbool.h>

/* A program's own part in it. */
struct job {
	void *options;              /* what the command line fills */
	const bool *dry_run, *json; /* among them */
	void *context;              /* what the functions are given */
	/* All checks and roundings. */
	bool (*resolve)(void *context, struct error *error);
	void (*print_plan)(const void *context);
	/* The same as the member "configuration" of --json. */
	void (*json_plan)(const void *context, struct json *json);
	/* Measures, and prints the results. */
	bool (*run)(void *context, struct error *error);
};

/* Does it, or says what went wrong. Returns the exit status. */
int program_run(const struct program *program, const struct job *job, int argc,
		char **argv);

#endif /* PROGRAM_H */
