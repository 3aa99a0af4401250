/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include "report.h"

#include <signal.h>

static bool show_plan(const struct program *program, const struct job *job,
		      struct error *error)
{
	struct json json;

	if (!*job->json) {
		job->print_plan(job->context);
		return true;
	}
	if (!report_json_start(&json, program->name, error))
		return false;
	job->json_plan(job->context, &json);
	return report_json_end(&json, error);
}

int program_run(const struct program *program, const struct job *job, int argc,
		char **argv)
{
	struct error error;

	/* A limit on the size of files is then a write that fails. */
	signal(SIGXFSZ, SIG_IGN);
	if (!report_start(&error))
		return report_error(program->name, &error);
	switch (parse_options(program, argc, argv, job->options, &error)) {
	case PARSE_EXIT:
		return report_end(program->name);
	case PARSE_ERROR:
		return report_error(program->name, &error);
	case PARSE_RUN:
		break;
	}
	if (!job->resolve(job->context, &error))
		return report_error(program->name, &error);
	if (!(*job->dry_run ? show_plan(program, job, &error)
			    : job->run(job->context, &error)))
		return report_error(program->name, &error);
	return report_end(program->name);
}
