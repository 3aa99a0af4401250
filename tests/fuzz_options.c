/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libFuzzer target for all that reads what a user has typed, or the kernel
 * says in files of text. The first byte chooses the reader, the rest is the
 * text. Built by tests/fuzz_options.t.
 */
#include "arena.h"
#include "chase.h"
#include "environment.h"
#include "machine.h"
#include "memload.h"
#include "options.h"
#include "plan.h"
#include "report.h"

#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* What a failed reader must leave alone. */
#define UNTOUCHED 0x1234567890abcdefull

/* Ends the program, so that the fuzzer keeps the input. */
static void require(bool holds)
{
	if (!holds)
		abort();
}

static void read_count(const char *text)
{
	uint64_t count = UNTOUCHED;

	if (parse_count(text, &count))
		require(count == strtoull(text, NULL, 0) &&
			text[strspn(text, "0123456789abcdefABCDEFxX")] == '\0');
	else
		require(count == UNTOUCHED);
}

static void read_size(const char *text)
{
	uint64_t bytes = UNTOUCHED, number = strtoull(text, NULL, 0), again;
	char typed[32];

	if (parse_size(text, &bytes))
		require(bytes >= number && (!number || bytes % number == 0) &&
			parse_size(typed_size(typed, sizeof(typed), bytes),
				   &again) &&
			again == bytes);
	else
		require(bytes == UNTOUCHED);
}

static void read_seconds(const char *text)
{
	double seconds = -1;

	if (parse_seconds(text, &seconds))
		require(isfinite(seconds) && seconds >= 0);
	else
		require(seconds < 0);
}

static void read_cpu_list(bool (*parse)(const char *, struct cpu_list *),
			  const char *text)
{
	struct cpu_list list = {0};

	if (!parse(text, &list)) {
		require(list.count == 0 && !list.cpu);
		return;
	}
	require(list.count > 0);
	for (size_t i = 0; i < list.count && i < 100; i++) {
		require(list.cpu[i] >= 0 && list.cpu[i] <= 65535);
		for (size_t j = 0; j < i; j++)
			require(list.cpu[i] != list.cpu[j]);
	}
	free(list.cpu);
}

static void read_cpus(const char *text)
{
	read_cpu_list(parse_cpus, text);
}

static void read_mask(const char *text)
{
	read_cpu_list(parse_mask, text);
}

static void read_weights(const char *text)
{
	uint64_t weights[MAX_NODES] = {UNTOUCHED}, sum = 0;
	bool good = parse_weights(text, weights);

	for (size_t node = 0; node < MAX_NODES; node++)
		sum += weights[node];
	require(good ? sum > 0 && sum <= (uint64_t)MAX_NODES * UINT32_MAX
		     : sum == UNTOUCHED);
}

static void read_chase(const char *text)
{
	struct chase_choice choice;
	struct error error = {""};

	if (choose_chase(text, true, &choice, &error))
		require(choice.object >= sizeof(char *) &&
			choice.object % sizeof(char *) == 0 &&
			choice.parallel >= 1 &&
			choice.parallel <= MAX_PARALLEL && choice.alignment);
	else
		require(strncmp(error.text, "-c ", 3) == 0);
}

static void read_memload(const char *text)
{
	struct error error = {""};

	if (!choose_memload(text, &error))
		require(strncmp(error.text, "-l ", 3) == 0);
}

static const struct option_row rows[] = {
	RUN_FLAG('a', "average", average, ""),
	RUN_ROW('n', "samples", "N", OPTION_COUNT, samples, 0, MAX_SAMPLES, "5",
		""),
	RUN_OPTION_ROWS("", ""),
	RUN_ROW(0, "interval", "SECONDS", OPTION_SECONDS, interval,
		MIN_INTERVAL_MS, MAX_INTERVAL_MS, "2", ""),
	OPTION_ROWS_COMMON,
};

static const struct program program = {
	.name = "fuzz",
	.summary = "",
	.rows = rows,
	.nr_rows = LENGTH(rows),
};

#define MAX_WORDS 16

/* Words are between newlines. */
static void read_command_line(const char *text)
{
	struct run_options options = {0};
	struct error error = {""};
	char *copy = strdup(text), *rest = copy;
	char *words[MAX_WORDS + 1] = {(char *)"fuzz"};
	int count = 1;

	require(copy != NULL);
	while (rest && count < MAX_WORDS)
		words[count++] = strsep(&rest, "\n");
	optind = 0; /* getopt begins anew */
	if (parse_options(&program, count, words, &options, &error) ==
	    PARSE_ERROR)
		require(*error.text);
	free(options.cpus.cpu);
	free(copy);
}

/* Files that stand for all under /proc and for all under /sys, meanwhile. */
static int proc_file, sys_file;
static bool replaced;

/* The linker sends open() and fopen(), by their names for large files, here. */
int __real_open64(const char *path, int flags, ...);
FILE *__real_fopen64(const char *path, const char *mode);
int __wrap_open64(const char *path, int flags, ...);
FILE *__wrap_fopen64(const char *path, const char *mode);

/* The programs create no file, so there is no mode. One is open at a time. */
int __wrap_open64(const char *path, int flags, ...)
{
	const bool proc = strncmp(path, "/proc/", 6) == 0;
	int fd;

	if (!replaced || (!proc && strncmp(path, "/sys/", 5) != 0))
		return __real_open64(path, flags);
	fd = dup(proc ? proc_file : sys_file);
	require(fd >= 0 && lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
	return replaced ? fdopen(open(path, O_RDONLY | O_CLOEXEC), "r")
			: __real_fopen64(path, mode);
}

static void fill_file(int *file, const char *text, size_t length)
{
	if (*file == 0)
		*file = memfd_create("text", MFD_CLOEXEC);
	require(*file > 0 && ftruncate(*file, (off_t)length) == 0 &&
		pwrite(*file, text, length, 0) == (ssize_t)length);
}

/* The text of /proc, a form feed, the text of /sys. */
static void read_system(const char *text)
{
	const size_t length = strcspn(text, "\f");
	const char *rest = text + length + (text[length] != '\0');
	struct arena arena = {.base = (char *)4096, .bytes = 1, .mapped = 1};
	struct json json;
	const char *whose = NULL;
	struct huge_bytes huge;
	bool told;

	fill_file(&proc_file, text, length);
	fill_file(&sys_file, rest, strlen(rest));
	require(json_start(&json));
	replaced = true;
	environment_json(&json);
	memory_limit(&whose);
	throttled_periods();
	told = arena_huge_bytes(&arena, &huge);
	replaced = false;
	require(whose);
	require(!told ||
		(huge.thp <= arena.bytes && huge.hugetlb <= arena.bytes));
	require(json_print(&json, stdout));
}

static void (*const readers[])(const char *text) = {
	read_count,   read_size,  read_seconds, read_cpus,         read_mask,
	read_weights, read_chase, read_memload, read_command_line, read_system,
};

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Help is printed often. The fuzzer itself writes to stderr. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct error error;

	(void)argc;
	(void)argv;
	return freopen("/dev/null", "w", stdout) && report_start(&error) ? 0
									 : 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (size == 0)
		return 0;
	text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	readers[data[0] % LENGTH(readers)](text);
	free(text);
	return 0;
}
