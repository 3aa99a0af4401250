/* SPDX-License-Identifier: Apache-2.0 */
/* From samples to what is printed. Only this prints results. */
#ifndef REPORT_H
#define REPORT_H

#include "error.h"
#include "json.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Samples, as they come; nothing is kept for each. */
struct statistics {
	uint64_t count;
	double min, max, sum, sum_of_logarithms;
	double sum_of_squares; /* of the distances from the mean */
};

/* value is finite and above 0. */
void statistics_add(struct statistics *statistics, double value);

/* All are 0 without samples. */
double statistics_mean(const struct statistics *statistics);
double statistics_geometric_mean(const struct statistics *statistics);
double statistics_sdev(const struct statistics *statistics);

/* (max - min) / mean. */
double statistics_deviation(const struct statistics *statistics);

/* Where results are printed: stdout, by report_flush() or when there is much.
 */
extern FILE *report_out;

/* Call it first. Error: memory. */
bool report_start(struct error *error);

/*
 * Makes what was just printed appear, in a file and a pipe as on a terminal.
 * False: it could not be written; nothing will be from then on. A signal that
 * is held ends the program if nobody has read for a second since, a second
 * one at once.
 */
bool report_flush(void);

/* Does that, then ends the program by a signal that has come. */
_Noreturn void report_die(int signal_number);

/* Begins a line, with the time of day if asked for. */
void report_line(bool timestamp);

/* A latency in nanoseconds, as wide as 6 columns if it can be. */
void report_latency(double ns);

/* One line on stderr; the exit status of a program that fails. */
int report_error(const char *program, const struct error *error);
void report_warning(const char *program, const struct error *warning);

/*
 * Warns if a CPU quota has stopped threads since throttled_periods() was that
 * many: while they were timed.
 */
void report_throttling(const char *program, uint64_t periods_before);

/*
 * Shows a part, 0 to 1, of something under way, if stderr is a terminal: only
 * then does it return true, and report_progress_end() has to take it away.
 */
bool report_progress(const char *what, double part);
void report_progress_end(void);

/* Exit status: an error is reported if not all could be written to stdout. */
int report_end(const char *program);

/*
 * Begin the object of --json, with the members program, version and
 * environment, and end and print it. Error: memory.
 */
bool report_json_start(struct json *json, const char *program,
		       struct error *error);
bool report_json_end(struct json *json, struct error *error);

/* Writes an object with count, min, max, mean, geometric_mean and sdev. */
void json_statistics(struct json *json, const char *name,
		     const struct statistics *statistics);

#endif /* REPORT_H */
