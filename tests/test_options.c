/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The readers of values at their edges, names, sizes for people, and
 * parse_options() on a table of its own.
 */
#include "options.h"
#include "report.h"

#include "tap.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* What a failed reader must leave alone. */
#define UNTOUCHED 12345

#define K 1024ull

/* The text with what a line of TAP cannot hold replaced; lives until the next.
 */
static const char *visible(const char *text)
{
	static char shown[64];
	size_t i;

	for (i = 0; text[i] && i + 1 < sizeof(shown); i++)
		shown[i] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
	shown[i] = '\0';
	return shown;
}

struct number_case {
	const char *text;
	bool good;
	uint64_t value;
};

static const struct number_case counts[] = {
	{"0", true, 0},
	{"1", true, 1},
	{"007", true, 7},
	{"010", true, 8},
	{"0x10", true, 16},
	{"0XfF", true, 255},
	{"18446744073709551615", true, UINT64_MAX},
	{"0xffffffffffffffff", true, UINT64_MAX},
	{"01777777777777777777777", true, UINT64_MAX},
	{"18446744073709551616", false, 0},
	{"0x10000000000000000", false, 0},
	{"02000000000000000000000", false, 0},
	{"99999999999999999999999999999999", false, 0},
	{"", false, 0},
	{" ", false, 0},
	{" 1", false, 0},
	{"\t1", false, 0},
	{"\n1", false, 0},
	{"1 ", false, 0},
	{"+1", false, 0},
	{"-1", false, 0},
	{"-0", false, 0},
	{"--1", false, 0},
	{"08", false, 0},
	{"019", false, 0},
	{"0x", false, 0},
	{"0xg", false, 0},
	{"0b1", false, 0},
	{"x10", false, 0},
	{"ff", false, 0},
	{"1k", false, 0},
	{"1.0", false, 0},
	{"1e3", false, 0},
	{"1,000", false, 0},
	{"1_000", false, 0},
	{"one", false, 0},
	{"\xc2\xb2", false, 0},
};

static const struct number_case sizes[] = {
	{"0", true, 0},
	{"4096", true, 4096},
	{"0x1000", true, 4096},
	{"010", true, 8},
	{"1k", true, K},
	{"1K", true, K},
	{"1m", true, K *K},
	{"1M", true, K *K},
	{"1g", true, K *K *K},
	{"1G", true, K *K *K},
	{"1t", true, K *K *K *K},
	{"1T", true, K *K *K *K},
	{"0t", true, 0},
	{"0x10k", true, 16 * K},
	{"010k", true, 8 * K},
	{"18446744073709551615", true, UINT64_MAX},
	{"18014398509481983k", true, UINT64_MAX - K + 1},
	{"16777215t", true, UINT64_MAX - K *K *K *K + 1},
	{"18014398509481984k", false, 0},
	{"17592186044416m", false, 0},
	{"17179869184g", false, 0},
	{"16777216t", false, 0},
	{"18446744073709551616", false, 0},
	{"18446744073709551616k", false, 0},
	{"99999999999999999999999999999999g", false, 0},
	{"", false, 0},
	{"k", false, 0},
	{"1kb", false, 0},
	{"1kk", false, 0},
	{"1k ", false, 0},
	{"1 k", false, 0},
	{" 1k", false, 0},
	{"1b", false, 0},
	{"1p", false, 0},
	{"1KiB", false, 0},
	{"1.5g", false, 0},
	{"-1", false, 0},
	{"-1k", false, 0},
	{"+1k", false, 0},
	{"0xk", false, 0},
	{"08k", false, 0},
	{"1\xeb", false, 0},
	{"1\v", false, 0},
};

/* Runs one reader over its table. */
static void test_numbers(bool (*parse)(const char *, uint64_t *),
			 const char *name, const struct number_case *rows,
			 size_t nr_rows)
{
	for (size_t i = 0; i < nr_rows; i++) {
		uint64_t value = UNTOUCHED;
		bool good = parse(rows[i].text, &value);

		ok(good == rows[i].good &&
			   value == (good ? rows[i].value : UNTOUCHED),
		   "%s '%s' %s", name, visible(rows[i].text),
		   rows[i].good ? "is read" : "is refused");
	}
}

static void test_seconds(void)
{
	static const struct {
		const char *text;
		bool good;
		double value;
	} rows[] = {
		{"0", true, 0},        {"1", true, 1},     {"0.5", true, 0.5},
		{".5", true, 0.5},     {"5.", true, 5},    {"1e3", true, 1000},
		{"1E-3", true, 0.001}, {"010", true, 10},  {"", false, 0},
		{".", false, 0},       {"e3", false, 0},   {"1e400", false, 0},
		{"nan", false, 0},     {"inf", false, 0},  {"-1", false, 0},
		{"-0", false, 0},      {"+1", false, 0},   {" 1", false, 0},
		{"1 ", false, 0},      {"1s", false, 0},   {"0x10", false, 0},
		{"0x1p3", false, 0},   {"1,5", false, 0},  {"1.2.3", false, 0},
		{"1e", false, 0},      {".nan", false, 0},
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		double value = UNTOUCHED;
		bool good = parse_seconds(rows[i].text, &value);
		double wanted = rows[i].good ? rows[i].value : UNTOUCHED;

		ok(good == rows[i].good && fabs(value - wanted) < 1e-12,
		   "seconds '%s' %s", rows[i].text,
		   rows[i].good ? "are read" : "are refused");
	}
}

struct list_case {
	const char *text;
	const char *cpus; /* in their order; NULL: refused */
};

static const struct list_case cpu_lists[] = {
	{"0", "0"},
	{"2,4-7", "2,4,5,6,7"},
	{"7,3,5", "7,3,5"},
	{"3-3", "3"},
	{"0x10,010", "16,8"},
	{"1023-1025", "1023,1024,1025"},
	{"65535", "65535"},
	{"", NULL},
	{",", NULL},
	{"1,", NULL},
	{",1", NULL},
	{"1,,2", NULL},
	{"1-", NULL},
	{"-1", NULL},
	{"-", NULL},
	{"1-2-3", NULL},
	{"2-1", NULL},
	{"1,1", NULL},
	{"1-3,2", NULL},
	{"65536", NULL},
	{"65535-65536", NULL},
	{"0-18446744073709551615", NULL},
	{"18446744073709551616", NULL},
	{"4294967296", NULL},
	{"a", NULL},
	{"1a", NULL},
	{"1;2", NULL},
	{"1 ,2", NULL},
	{"1, 2", NULL},
	{"1-3:2", NULL},
	{"all", NULL},
};

static const struct list_case masks[] = {
	{"1", "0"},
	{"5", "0,2"},
	{"0x5", "0,2"},
	{"0X5", "0,2"},
	{"010", "3"},
	{"0xfF", "0,1,2,3,4,5,6,7"},
	{"0x00000000000000000000000000000000001", "0"},
	{"0x80000000", "31"},
	{"0x100000000", "32"},
	{"0x10000000000000000", "64"},
	{"0x8000000000000000000000000000000000000001", "0,159"},
	{"9223372036854775808", "63"},
	{"", NULL},
	{"0", NULL},
	{"0x0", NULL},
	{"0x", NULL},
	{"0x5g", NULL},
	{"0x 5", NULL},
	{"0x5 ", NULL},
	{"0x-5", NULL},
	{"-1", NULL},
	{"+1", NULL},
	{"ff", NULL},
	{"1k", NULL},
	{"08", NULL},
	{"18446744073709551616", NULL},
	{"0x0x1", NULL},
};

static void print_cpus(char *text, size_t size, const struct cpu_list *cpus)
{
	size_t used = 0;

	*text = '\0';
	for (size_t i = 0; i < cpus->count && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%d",
					 i ? "," : "", cpus->cpu[i]);
}

static void test_lists(bool (*parse)(const char *, struct cpu_list *),
		       const char *name, const struct list_case *rows,
		       size_t nr_rows)
{
	for (size_t i = 0; i < nr_rows; i++) {
		int before = UNTOUCHED;
		struct cpu_list cpus = {.count = 1, .cpu = malloc(sizeof(int))};
		bool wanted = rows[i].cpus != NULL;
		char text[256];

		if (!cpus.cpu)
			exit(1);
		*cpus.cpu = before;
		if (parse(rows[i].text, &cpus) != wanted)
			snprintf(text, sizeof(text), "the wrong outcome");
		else
			print_cpus(text, sizeof(text), &cpus);
		if (!ok(strcmp(text, wanted ? rows[i].cpus : "12345") == 0,
			"%s '%s' %s", name, rows[i].text,
			wanted ? "is read" : "is refused"))
			printf("# %s\n", text);
		free(cpus.cpu);
	}
}

/* A mask of as many hex digits as the largest CPU number has, and one more. */
static void test_long_mask(void)
{
	static char text[65536 / 4 + 4];
	struct cpu_list cpus = {0};

	memset(text, '0', sizeof(text) - 1);
	text[1] = 'x';
	text[2] = '1';
	text[65536 / 4 + 1] = '\0'; /* 16383 digits */
	ok(parse_mask(text, &cpus) && cpus.count == 1 &&
		   cpus.cpu[0] == 65536 - 8,
	   "mask of CPU 65528 is read");
	text[65536 / 4 + 1] = '0';
	text[65536 / 4 + 2] = '0';
	ok(!parse_mask(text, &cpus) && cpus.count == 1,
	   "mask of more digits than there are CPUs is refused");
	free(cpus.cpu);
}

static void test_weights(void)
{
	static const struct {
		const char *text;
		bool good;
		unsigned node;
		uint64_t weight, sum;
	} rows[] = {
		{"0:1", true, 0, 1, 1},
		{"0:3,1:1", true, 0, 3, 4},
		{"1:2,0:0", true, 1, 2, 2},
		{"63:7", true, 63, 7, 7},
		{"0x3f:0x10", true, 63, 16, 16},
		{"0:65535", true, 0, 65535, 65535},
		{"0:65536", false, 0, 0, 0},
		{"0:18446744073709551616", false, 0, 0, 0},
		{"64:1", false, 0, 0, 0},
		{"64:1,0:1", false, 0, 0, 0},
		{"18446744073709551616:1", false, 0, 0, 0},
		{"0:0", false, 0, 0, 0},
		{"0:0,1:0", false, 0, 0, 0},
		{"", false, 0, 0, 0},
		{"abc", false, 0, 0, 0},
		{"0", false, 0, 0, 0},
		{"0:", false, 0, 0, 0},
		{":1", false, 0, 0, 0},
		{"0:1,", false, 0, 0, 0},
		{",0:1", false, 0, 0, 0},
		{"0:1,,1:1", false, 0, 0, 0},
		{"0:1;1:1", false, 0, 0, 0},
		{"0:1:2", false, 0, 0, 0},
		{"0:-1", false, 0, 0, 0},
		{"-1:1", false, 0, 0, 0},
		{"0:1 ", false, 0, 0, 0},
		{"0: 1", false, 0, 0, 0},
		{"0:1k", false, 0, 0, 0},
		{"0:0.5", false, 0, 0, 0},
		{"0=1", false, 0, 0, 0},
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		uint64_t weights[MAX_NODES] = {UNTOUCHED}, sum = 0;
		bool good = parse_weights(rows[i].text, weights);

		for (size_t node = 0; node < MAX_NODES; node++)
			sum += weights[node];
		ok(good == rows[i].good &&
			   sum == (good ? rows[i].sum : UNTOUCHED) &&
			   (!good || weights[rows[i].node] == rows[i].weight),
		   "weights '%s' are %s", rows[i].text,
		   rows[i].good ? "read" : "refused");
	}
}

static void test_names(void)
{
	static const struct {
		const char *name;
		int other;
	} things[] = {{"work", 1},      {"critword2", 2}, {"critword", 3},
		      {"parallel2", 4}, {"parallel", 5},  {"t0", 6}};
	static const struct {
		const char *text;
		int found;
		const char *list;
	} rows[] = {
		{"work", 0, "work"},
		{"w", 0, "work"},
		{"workshop", NAME_UNKNOWN, ""},
		{"critword", 2, "critword2, critword"},
		{"critword2", 1, "critword2"},
		{"crit", NAME_AMBIGUOUS, "critword2, critword"},
		{"parallel", 4, "parallel2, parallel"},
		{"p", NAME_AMBIGUOUS, "parallel2, parallel"},
		{"t", 5, "t0"},
		{"T0", NAME_UNKNOWN, ""},
		{"x", NAME_UNKNOWN, ""},
		{" work", NAME_UNKNOWN, ""},
		{"", NAME_UNKNOWN,
		 "work, critword2, critword, parallel2, parallel, t0"},
	};
	char list[256], guarded[16] = "";

	for (size_t i = 0; i < LENGTH(rows); i++) {
		size_t length = strlen(rows[i].text);
		int found = find_name(things, LENGTH(things), sizeof(*things),
				      rows[i].text, length);

		snprintf(list, sizeof(list), "> ");
		list_names(list, sizeof(list), things, LENGTH(things),
			   sizeof(*things), rows[i].text, length);
		ok(found == rows[i].found, "name '%s' is row %d", rows[i].text,
		   rows[i].found);
		ok(strcmp(list + 2, rows[i].list) == 0, "names of '%s': %s",
		   rows[i].text, rows[i].list);
	}
	ok(find_name(things, LENGTH(things), sizeof(*things), "work:3", 4) == 0,
	   "a name ends where its length says");
	ok(find_name(things, 0, sizeof(*things), "work", 4) == NAME_UNKNOWN,
	   "no rows, no name");
	memset(guarded + 8, '#', 8);
	list_names(guarded, 8, things, LENGTH(things), sizeof(*things), "", 0);
	ok(strcmp(guarded, "work, c") == 0 &&
		   memcmp(guarded + 8, "########", 8) == 0,
	   "a list of names ends with its buffer");
}

static void test_format_size(void)
{
	static const struct {
		uint64_t bytes;
		const char *text, *typed;
	} rows[] = {
		{0, "0 bytes", "0"},
		{1, "1 byte", "1"},
		{1000, "1000 bytes", "1000"},
		{1024, "1 KiB", "1k"},
		{1536, "1.5 KiB", "1536"},
		{12 * K, "12 KiB", "12k"},
		{K * K, "1 MiB", "1m"},
		{K * K + K, "1.0 MiB", "1025k"},
		{10 * K * K - 1, "10.0 MiB", "10485759"},
		{10 * K * K + 1, "10.0 MiB", "10485761"},
		{256 * K * K, "256 MiB", "256m"},
		{3 * K * K * K, "3 GiB", "3g"},
		{99999 * K * K * K, "97.7 TiB", "99999g"},
		{K * K * K * K, "1 TiB", "1t"},
		{4096 * K * K * K * K, "4096 TiB", "4096t"},
		{UINT64_MAX, "16777216.0 TiB", "18446744073709551615"},
	};
	char buffer[32];

	for (size_t i = 0; i < LENGTH(rows); i++)
		ok(strcmp(format_size(buffer, sizeof(buffer), rows[i].bytes),
			  rows[i].text) == 0,
		   "%llu is %s", (unsigned long long)rows[i].bytes,
		   rows[i].text);
	for (size_t i = 0; i < LENGTH(rows); i++)
		ok(strcmp(typed_size(buffer, sizeof(buffer), rows[i].bytes),
			  rows[i].typed) == 0,
		   "%llu is typed as %s", (unsigned long long)rows[i].bytes,
		   rows[i].typed);
}

static void test_reject(void)
{
	struct error error;
	char value[4000];

	ok(!reject(&error, "-s", "4", "expected more") &&
		   strcmp(error.text, "-s 4: expected more") == 0,
	   "a rejection names option, value and what is accepted");
	ok(!reject(&error, "-s", "", "expected more") &&
		   strcmp(error.text, "-s '': expected more") == 0,
	   "an empty value is seen");
	memset(value, 'x', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	ok(!reject(&error, "-s", value, "expected more") &&
		   strstr(error.text, "expected more"),
	   "a long value leaves room for what is accepted");
}

/* parse_options() */

struct options {
	bool flag, loud;
	unsigned level;
	uint64_t size, page, count;
	double seconds;
	const char *text;
	struct cpu_list cpus, mask;
	uint64_t weights[MAX_NODES];
};

#define ROW(letter_, name_, value_, kind_, field, min_, max_, preset_)         \
	{                                                                      \
		.letter = (letter_), .name = (name_), .value = (value_),       \
		.kind = (kind_), .offset = offsetof(struct options, field),    \
		.min = (min_), .max = (max_), .preset = (preset_),             \
		.help = "what it is"                                           \
	}

static const struct option_row table[] = {
	ROW('f', "flag", NULL, OPTION_FLAG, flag, 0, 0, NULL),
	ROW(0, "loud", NULL, OPTION_FLAG, loud, 0, 0, NULL),
	ROW('v', "level", NULL, OPTION_LEVEL, level, 0, 0, NULL),
	ROW('s', "size", "SIZE", OPTION_SIZE, size, 4, 64 << 10, "4k"),
	ROW('p', "page", "SIZE", OPTION_PAGE_SIZE, page, 1, 1 << 30, NULL),
	ROW('n', "count", "N", OPTION_COUNT, count, 1, 10, "5"),
	ROW(0, "seconds", "SECONDS", OPTION_SECONDS, seconds, 1, 10000, "0.5"),
	ROW('t', "text", "TEXT", OPTION_TEXT, text, 0, 0, NULL),
	ROW(0, "cpus", "LIST", OPTION_CPUS, cpus, 0, 0, NULL),
	ROW('d', "mask", "MASK", OPTION_MASK, mask, 0, 0, NULL),
	ROW('W', "weights", "WEIGHTS", OPTION_WEIGHTS, weights, 0, 0, NULL),
	OPTION_ROWS_COMMON,
};

static void more_help(FILE *out)
{
	fprintf(out, "more of it\n");
}

static const struct program program = {
	.name = "prog",
	.summary = "Does it.",
	.rows = table,
	.nr_rows = LENGTH(table),
	.more_help = more_help,
};

/* Fields that are not as they were preset. */
static void describe(char *text, size_t size, const struct options *o)
{
	char cpus[64], mask[64];
	size_t used = 0;

	print_cpus(cpus, sizeof(cpus), &o->cpus);
	print_cpus(mask, sizeof(mask), &o->mask);
	*text = '\0';
#define ADD(condition, ...)                                                    \
	if (condition)                                                         \
		used += (size_t)snprintf(text + used, size - used, __VA_ARGS__);
	ADD(o->flag, " flag")
	ADD(o->loud, " loud")
	ADD(o->level, " level=%u", o->level)
	ADD(o->size != 4096, " size=%llu", (unsigned long long)o->size)
	ADD(o->page, " page=%llu", (unsigned long long)o->page)
	ADD(o->count != 5, " count=%llu", (unsigned long long)o->count)
	ADD(o->seconds < 0.5 || o->seconds > 0.5, " seconds=%g", o->seconds)
	ADD(o->text, " text=%s", o->text)
	ADD(o->cpus.count, " cpus=%s", cpus)
	ADD(o->mask.count, " mask=%s", mask)
	ADD(o->weights[0], " weight0=%llu", (unsigned long long)o->weights[0])
#undef ADD
}

#define MAX_ARGUMENTS 16

/* Words between blanks; '' is an empty one. Returns how many. */
static int split(char *line, char **argv)
{
	int argc = 1;

	argv[0] = (char *)"prog";
	for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
		argv[argc++] = strcmp(word, "''") == 0 ? word + 2 : word;
	argv[argc] = NULL;
	return argc;
}

static const struct {
	const char *line;
	const char *options; /* as described; NULL: an error */
	const char *message; /* a part of the error's */
} command_lines[] = {
	{"", "", NULL},
	{"-f", " flag", NULL},
	{"--flag", " flag", NULL},
	{"--fl", " flag", NULL},
	{"--loud", " loud", NULL},
	{"--lo", " loud", NULL},
	{"-v", " level=1", NULL},
	{"-vvv", " level=3", NULL},
	{"-v --level -v", " level=3", NULL},
	{"-fv -s8", " flag level=1 size=8", NULL},
	{"-fs8k", " flag size=8192", NULL},
	{"-s 8k", " size=8192", NULL},
	{"--size 8k", " size=8192", NULL},
	{"--size=8k", " size=8192", NULL},
	{"--si=8k", " size=8192", NULL},
	{"-s8 -s16", " size=16", NULL},
	{"-s 4", " size=4", NULL},
	{"-s 64k", " size=65536", NULL},
	{"-p 1m", " page=1048576", NULL},
	{"--page=1g", " page=1073741824", NULL},
	{"-n1", " count=1", NULL},
	{"-n 10", " count=10", NULL},
	{"--seconds .001", " seconds=0.001", NULL},
	{"--seconds=10", " seconds=10", NULL},
	{"-t -v", " text=-v", NULL},
	{"-t ''", " text=", NULL},
	{"--text= -f", " flag text=", NULL},
	{"--cpus 3,1", " cpus=3,1", NULL},
	{"--cpus 3 --cpus 2", " cpus=2", NULL},
	{"-d 0x5", " mask=0,2", NULL},
	{"-W 0:3,1:1", " weight0=3", NULL},
	{"-f --", " flag", NULL},
	{"-s", NULL, "-s: needs a value: expected a size from 4 bytes to 64 "},
	{"--size", NULL, "-s: needs a value: expected a size from 4 bytes"},
	{"--cpus", NULL, "--cpus: needs a value: expected CPU numbers"},
	{"--seconds", NULL, "--seconds: needs a value: expected seconds"},
	{"-f -t", NULL, "-t: needs a value"},
	{"-s 3", NULL, "-s 3: expected a size from 4 bytes to 64 KiB"},
	{"-s 65537", NULL, "-s 65537: expected a size from 4 bytes to 64 KiB"},
	{"-s -8", NULL, "-s -8: expected a size"},
	{"-s ''", NULL, "-s '': expected a size"},
	{"--size=", NULL, "-s '': expected a size"},
	{"-s8 -s3", NULL, "-s 3: expected a size"},
	{"-p", NULL, "-p: needs a value: expected a power of two from the "},
	{"-p 0", NULL, "-p 0: expected a power of two from the native page "},
	{"-p 2k", NULL, "-p 2k: expected a power of two"},
	{"-p 3m", NULL, "-p 3m: expected a power of two"},
	{"-p 2g", NULL, "-p 2g: expected a power of two"},
	{"-p big", NULL, "-p big: expected a power of two"},
	{"-n 0", NULL, "-n 0: expected a whole number from 1 to 10"},
	{"-n 11", NULL, "-n 11: expected a whole number from 1 to 10"},
	{"-n 1k", NULL, "-n 1k: expected a whole number from 1 to 10"},
	{"--seconds 0", NULL, "--seconds 0: expected seconds from 0.001 to 10"},
	{"--seconds 10.1", NULL, "--seconds 10.1: expected seconds from"},
	{"--seconds 1m", NULL, "--seconds 1m: expected seconds from"},
	{"--cpus 1,1", NULL, "--cpus 1,1: expected CPU numbers, each once"},
	{"-d 0", NULL, "-d 0: expected a mask of CPUs that is not 0"},
	{"-W 0:0", NULL, "-W 0:0: expected node:weight,... with nodes from 0 "},
	{"-z", NULL, "-z: unknown option"},
	{"-fz", NULL, "-z: unknown option"},
	{"-?", NULL, "-?: unknown option"},
	{"-:", NULL, "-:: unknown option"},
	{"--zzz", NULL, "--zzz: unknown or ambiguous option"},
	{"--zzz=1", NULL, "--zzz=1: unknown or ambiguous option"},
	{"--s", NULL, "--s: unknown or ambiguous option"},
	{"--l", NULL, "--l: unknown or ambiguous option"},
	{"--flag=1", NULL, "--flag=1: takes no value"},
	{"--loud=", NULL, "--loud=: takes no value"},
	{"operand", NULL, "operand: unexpected operand"},
	{"''", NULL, "'': unexpected operand"},
	{"-", NULL, "-: unexpected operand"},
	{"-f operand -v", NULL, "operand: unexpected operand"},
	{"-- -f", NULL, "-f: unexpected operand"},
	{"-s3 operand", NULL, "-s 3: expected a size"},
};

static void test_command_line(size_t i)
{
	struct options options = {0};
	struct error error = {""};
	char line[128], text[sizeof(error.text)];
	char *argv[MAX_ARGUMENTS];
	const char *wanted = command_lines[i].options;
	int argc;

	snprintf(line, sizeof(line), "%s", command_lines[i].line);
	argc = split(line, argv);
	optind = 0; /* getopt begins anew */
	if (parse_options(&program, argc, argv, &options, &error) == PARSE_RUN)
		describe(text, sizeof(text), &options);
	else
		snprintf(text, sizeof(text), "%s", error.text);
	if (!ok(wanted ? strcmp(text, wanted) == 0
		       : strncmp(text, command_lines[i].message,
				 strlen(command_lines[i].message)) == 0,
		"prog %s: %s", command_lines[i].line,
		wanted ? wanted : command_lines[i].message))
		printf("# '%s'\n", text);
	free(options.cpus.cpu);
	free(options.mask.cpu);
}

static char output[4096];

/* What a command line prints on stdout, kept from the tests' own. */
static enum parse_result parse_and_catch(const char *argument)
{
	struct options options = {0};
	char *argv[] = {(char *)"prog", strdup(argument), NULL};
	FILE *file = tmpfile();
	enum parse_result result;
	struct error error;
	int real = dup(STDOUT_FILENO);
	size_t got;

	if (!file || real < 0 || !argv[1])
		return PARSE_ERROR;
	fflush(stdout);
	dup2(fileno(file), STDOUT_FILENO);
	optind = 0;
	result = parse_options(&program, 2, argv, &options, &error);
	report_flush();
	dup2(real, STDOUT_FILENO);
	close(real);
	rewind(file);
	got = fread(output, 1, sizeof(output) - 1, file);
	output[got] = '\0';
	fclose(file);
	free(argv[1]);
	return result;
}

static void test_help(void)
{
	static const char *const parts[] = {
		"usage: prog ",
		"\nDoes it.\n",
		"\n  -f, --flag  ",
		"\n      --loud  ",
		"\n  -s, --size SIZE  ",
		" what it is (default 4k)\n",
		"\n      --seconds SECONDS  ",
		"\n  -h, --help  ",
		"\n      --version  ",
		"\nmore of it\n",
	};
	char version[64];

	ok(parse_and_catch("--help") == PARSE_EXIT, "--help ends the program");
	for (size_t i = 0; i < LENGTH(parts); i++)
		ok(strstr(output, parts[i]) != NULL, "the help has part %d",
		   (int)i);
	ok(parse_and_catch("-fh") == PARSE_EXIT && strstr(output, "usage:"),
	   "-h is found behind a flag");
	snprintf(version, sizeof(version), "prog %s\n", VERSION);
	ok(parse_and_catch("--version") == PARSE_EXIT &&
		   strcmp(output, version) == 0,
	   "--version prints the name and the version");
}

int main(void)
{
	struct error error;

	if (!report_start(&error)) {
		printf("Bail out! %s\n", error.text);
		return 1;
	}
	test_numbers(parse_count, "count", counts, LENGTH(counts));
	test_numbers(parse_size, "size", sizes, LENGTH(sizes));
	test_seconds();
	test_lists(parse_cpus, "CPUs", cpu_lists, LENGTH(cpu_lists));
	test_lists(parse_mask, "mask", masks, LENGTH(masks));
	test_long_mask();
	test_weights();
	test_names();
	test_format_size();
	test_reject();
	for (size_t i = 0; i < LENGTH(command_lines); i++)
		test_command_line(i);
	test_help();
	return tap_end();
}
