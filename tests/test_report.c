/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics at their edges, and what is printed of them. */
#include "report.h"

#include "tap.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))
#define MAX_VALUES 8

struct expected {
	double mean, geometric, sdev, deviation;
};

static const struct row {
	const char *what;
	size_t count;
	double values[MAX_VALUES];
	struct expected expected;
} rows[] = {
	{"no value", 0, {0}, {0, 0, 0, 0}},
	{"one value", 1, {7.5}, {7.5, 7.5, 0, 0}},
	{"equal values", 4, {0.1, 0.1, 0.1, 0.1}, {0.1, 0.1, 0, 0}},
	{"1 and 4", 2, {1, 4}, {2.5, 2, 1.5, 1.2}},
	{"4 and 1", 2, {4, 1}, {2.5, 2, 1.5, 1.2}},
	{"1, 2, 4", 3, {1, 2, 4}, {7 / 3., 2, 1.2472191289246, 9 / 7.}},
	{"a textbook's",
	 8,
	 {2, 4, 4, 4, 5, 5, 7, 9},
	 {5, 4.603215596046737, 2, 1.4}},
	{"tiny values", 2, {1e-300, 4e-300}, {2.5e-300, 2e-300, 0, 1.2}},
	{"huge values",
	 3,
	 {1e150, 2e150, 4e150},
	 {7e150 / 3, 2e150, -1, 9 / 7.}},
	{"huge, but close together",
	 3,
	 {1e9 + 1, 1e9 + 2, 1e9 + 3},
	 {1e9 + 2, 1e9 + 2, 0.816496580928, 2 / (1e9 + 2)}},
};

static bool is_near(double value, double expected)
{
	double scale = fabs(expected) > 1e-200 ? fabs(expected) : 1;

	return isfinite(value) && fabs(value - expected) < 1e-9 * scale;
}

static int check(double value, double expected, const char *name,
		 const char *what)
{
	int passed = ok(is_near(value, expected), "%s of %s", name, what);

	if (!passed)
		printf("# %.17g, expected %.17g\n", value, expected);
	return passed;
}

static void test_row(const struct row *row)
{
	struct statistics s = {0};
	double min = 0, max = 0;

	for (size_t i = 0; i < row->count; i++) {
		statistics_add(&s, row->values[i]);
		if (i == 0 || row->values[i] < min)
			min = row->values[i];
		if (i == 0 || row->values[i] > max)
			max = row->values[i];
	}
	ok(s.count == row->count, "count of %s", row->what);
	check(s.min, min, "least", row->what);
	check(s.max, max, "greatest", row->what);
	check(statistics_mean(&s), row->expected.mean, "mean", row->what);
	check(statistics_geometric_mean(&s), row->expected.geometric,
	      "geometric mean", row->what);
	check(statistics_deviation(&s), row->expected.deviation, "deviation",
	      row->what);
	if (row->expected.sdev >= 0)
		check(statistics_sdev(&s), row->expected.sdev,
		      "standard deviation", row->what);
}

/* A day's samples: sums of many values stay exact enough. */
static void test_many(void)
{
	struct statistics s = {0};

	for (int i = 0; i < 1000000; i++)
		statistics_add(&s, i % 2 ? 99.9 : 100.1);
	check(statistics_mean(&s), 100, "mean", "a million values");
	check(statistics_sdev(&s), 0.1, "standard deviation",
	      "a million values");
	check(statistics_geometric_mean(&s), sqrt(99.9 * 100.1),
	      "geometric mean", "a million values");
}

static char output[256];
static int real_stdout;

/* stdout goes to a file from here to caught(). */
static FILE *catch (void)
{
	FILE *file = tmpfile();

	fflush(stdout);
	real_stdout = dup(STDOUT_FILENO);
	if (!file || real_stdout < 0) {
		printf("Bail out! no temporary file\n");
		exit(1);
	}
	dup2(fileno(file), STDOUT_FILENO);
	return file;
}

static const char *caught(FILE *file)
{
	size_t got;

	report_flush();
	dup2(real_stdout, STDOUT_FILENO);
	close(real_stdout);
	rewind(file);
	got = fread(output, 1, sizeof(output) - 1, file);
	output[got] = '\0';
	fclose(file);
	return output;
}

static void test_latency(void)
{
	static const struct {
		double ns;
		const char *text;
	} latencies[] = {
		{0, " 0.000"},          {0.0004, " 0.000"},
		{1.2345, " 1.234"},     {12.3456, "12.346"},
		{99.994, "99.994"},     {100, " 100.0"},
		{123.44, " 123.4"},     {1234.56, "1234.6"},
		{123456.7, "123456.7"}, {99.9996, "100.000"},
	};

	for (size_t i = 0; i < LENGTH(latencies); i++) {
		FILE *file = catch ();

		report_latency(latencies[i].ns);
		if (!ok(strcmp(caught(file), latencies[i].text) == 0,
			"%.4f ns are printed as '%s'", latencies[i].ns,
			latencies[i].text))
			printf("# '%s'\n", output);
	}
}

/* Seconds, six decimals and a space, of now. */
static void test_timestamp(void)
{
	FILE *file = catch ();
	const char *text;
	char *end;
	double seconds;

	report_line(false);
	ok(*caught(file) == '\0', "no timestamp unless asked for");
	file = catch ();
	report_line(true);
	text = caught(file);
	seconds = strtod(text, &end);
	ok(fabs(seconds - (double)time(NULL)) < 60, "the timestamp is now");
	ok(strcmp(end, " ") == 0 && end - text > 8 && end[-7] == '.' &&
		   isdigit((unsigned char)end[-1]),
	   "the timestamp has six decimals and a space");
}

int main(void)
{
	struct error error;

	if (!report_start(&error)) {
		printf("Bail out! %s\n", error.text);
		return 1;
	}
	for (size_t i = 0; i < LENGTH(rows); i++)
		test_row(&rows[i]);
	test_many();
	test_latency();
	test_timestamp();
	return tap_end();
}
