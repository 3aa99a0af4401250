/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include "environment.h"
#include "machine.h"
#include "signals.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

void statistics_add(struct statistics *statistics, double value)
{
	double mean_before;

	if (statistics->count == 0 || value < statistics->min)
		statistics->min = value;
	if (statistics->count == 0 || value > statistics->max)
		statistics->max = value;
	/* Welford's update: squares are summed about the mean so far. */
	mean_before = statistics->count ? statistics_mean(statistics) : value;
	statistics->count++;
	statistics->sum += value;
	statistics->sum_of_squares +=
		(value - mean_before) * (value - statistics_mean(statistics));
	statistics->sum_of_logarithms += log(value);
}

double statistics_mean(const struct statistics *statistics)
{
	if (statistics->count == 0)
		return 0;
	return statistics->sum / (double)statistics->count;
}

double statistics_geometric_mean(const struct statistics *statistics)
{
	if (statistics->count == 0)
		return 0;
	return exp(statistics->sum_of_logarithms / (double)statistics->count);
}

double statistics_deviation(const struct statistics *statistics)
{
	if (statistics->count == 0)
		return 0;
	return (statistics->max - statistics->min) /
	       statistics_mean(statistics);
}

double statistics_sdev(const struct statistics *statistics)
{
	if (statistics->count == 0)
		return 0;
	return sqrt(statistics->sum_of_squares / (double)statistics->count);
}

FILE *report_out;

/* Why the first write that failed did so. */
static int write_failure;

/* Nobody reads, and a signal is to end the program. */
static bool given_up;

/* Standard output, or a terminal that it is, opened once more. */
static int out_fd = STDOUT_FILENO;

/* How long a wait goes on until it looks for signals. */
#define LOOK_MS 20

/* Looks after a signal without a byte that went out: about a second. */
#define MAX_IDLE_LOOKS 50

/*
 * Writes what can be without waiting, in which no signal that is held would
 * come: a pipe that is ready takes PIPE_BUF bytes, a terminal says EAGAIN.
 * Returns how many bytes.
 */
static size_t write_some(const char *text, size_t length)
{
	struct pollfd out = {.fd = out_fd, .events = POLLOUT};
	ssize_t written;

	if (poll(&out, 1, LOOK_MS) == 0)
		return 0;
	written = write(out_fd, text, length < PIPE_BUF ? length : PIPE_BUF);
	if (written >= 0)
		return (size_t)written;
	if (errno == EAGAIN)
		poll(NULL, 0, LOOK_MS); /* it has room, but not for a newline */
	else
		write_failure = errno;
	return 0;
}

/* Of report_out. Nothing comes behind a gap. */
static ssize_t write_out(void *unused, const char *text, size_t length)
{
	size_t done = 0, written;
	unsigned signals, idle_looks = 0;

	(void)unused;
	while (done < length && !write_failure && !given_up) {
		written = write_some(text + done, length - done);
		done += written;
		signals = written ? 0 : signals_look();
		idle_looks = signals ? idle_looks + 1 : 0;
		given_up = signals > 1 || idle_looks > MAX_IDLE_LOOKS;
	}
	return (ssize_t)length;
}

/*
 * What others have open must go on waiting, and how much room a terminal has
 * cannot be known, so this is a description of its own.
 */
static void open_terminal(void)
{
	int fd;

	if (!isatty(STDOUT_FILENO))
		return;
	fd = open("/proc/self/fd/1",
		  O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		out_fd = fd;
}

bool report_start(struct error *error)
{
	/* What is printed together mostly fits, so that no part of it is lost.
	 */
	static char buffer[1 << 16];
	const cookie_io_functions_t functions = {.write = write_out};

	open_terminal();
	report_out = fopencookie(NULL, "w", functions);
	if (!report_out)
		return error_set(error, "standard output: no memory");
	setvbuf(report_out, buffer, _IOFBF, sizeof(buffer));
	return true;
}

bool report_flush(void)
{
	fflush(report_out);
	if (given_up)
		signals_die(signals_wait(0));
	return !write_failure;
}

void report_die(int signal_number)
{
	report_flush();
	signals_die(signal_number);
}

void report_line(bool timestamp)
{
	struct timeval now;

	if (!timestamp)
		return;
	gettimeofday(&now, NULL);
	fprintf(report_out, "%lld.%06ld ", (long long)now.tv_sec,
		(long)now.tv_usec);
}

void report_latency(double ns)
{
	fprintf(report_out, ns < 100 ? "%6.3f" : "%6.1f", ns);
}

/* One line, whatever was typed: a name may hold newlines and escapes. */
static void say(const char *program, const char *kind,
		const struct error *error)
{
	char text[sizeof(error->text)];
	size_t i;

	for (i = 0; error->text[i]; i++)
		text[i] = iscntrl((unsigned char)error->text[i])
				  ? '?'
				  : error->text[i];
	text[i] = '\0';
	fprintf(stderr, "%s: %s: %s\n", program, kind, text);
}

int report_error(const char *program, const struct error *error)
{
	say(program, "error", error);
	return EXIT_FAILURE;
}

void report_warning(const char *program, const struct error *warning)
{
	say(program, "warning", warning);
}

void report_throttling(const char *program, uint64_t periods_before)
{
	const uint64_t periods = throttled_periods() - periods_before;
	struct error warning;

	if (periods == 0)
		return;
	error_set(&warning,
		  "a CPU quota of the cgroup stopped threads in %llu periods: "
		  "the result holds that time too",
		  (unsigned long long)periods);
	report_warning(program, &warning);
}

bool report_progress(const char *what, double part)
{
	static int percent_shown = -1;
	const int percent = (int)(part * 100);

	if (!isatty(STDERR_FILENO))
		return false;
	if (percent != percent_shown)
		fprintf(stderr, "\r%s: %d %%", what, percent);
	percent_shown = percent;
	return true;
}

void report_progress_end(void)
{
	fputs("\r\033[K", stderr); /* erases the line (ECMA-48, EL) */
}

int report_end(const char *program)
{
	struct error error;
	int came;

	if (report_flush()) {
		/* One that was held may have come while all was written. */
		came = signals_wait(0);
		if (came)
			signals_die(came);
		return EXIT_SUCCESS;
	}
	error_set(&error, "standard output: cannot write the result: %s",
		  strerror(write_failure));
	return report_error(program, &error);
}

static bool no_memory_for_json(struct error *error)
{
	return error_set(error, "--json: no memory for the object");
}

bool report_json_start(struct json *json, const char *program,
		       struct error *error)
{
	if (!json_start(json))
		return no_memory_for_json(error);
	json_text(json, "program", program);
	json_text(json, "version", VERSION);
	environment_json(json);
	return true;
}

bool report_json_end(struct json *json, struct error *error)
{
	return json_print(json, report_out) || no_memory_for_json(error);
}

void json_statistics(struct json *json, const char *name,
		     const struct statistics *statistics)
{
	json_object(json, name);
	json_count(json, "count", statistics->count);
	json_number(json, "min", statistics->min);
	json_number(json, "max", statistics->max);
	json_number(json, "mean", statistics_mean(statistics));
	json_number(json, "geometric_mean",
		    statistics_geometric_mean(statistics));
	json_number(json, "sdev", statistics_sdev(statistics));
	json_end_object(json);
}
