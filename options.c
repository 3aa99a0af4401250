/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "machine.h"
#include "report.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 64
#define FIRST_LONG_ONLY 256 /* what getopt returns for rows with no letter */
#define MS_PER_SECOND 1000

/* Enough for any proportion that a count of pages can show. */
#define MAX_WEIGHT 65535

/* More CPUs than Linux can be built for; bounds what a list may name. */
#define MAX_CPU_NUMBER 65535

static const char *option_label(const struct option_row *row, char *buffer,
				size_t size)
{
	if (row->letter)
		snprintf(buffer, size, "-%c", row->letter);
	else
		snprintf(buffer, size, "--%s", row->name);
	return buffer;
}

const char *shown_value(const char *value)
{
	return *value ? value : "''";
}

bool reject(struct error *error, const char *option, const char *value,
	    const char *accepted)
{
	return error_set(error, "%s %.200s: %s", option, shown_value(value),
			 accepted);
}

/*
 * Reads a whole number (decimal, 0x hex, 0 octal) and says where it ends. No
 * sign and no blank, which strtoull would let pass.
 */
static bool read_number(const char *text, uint64_t *number, char **end)
{
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*number = strtoull(text, end, 0);
	return errno == 0;
}

bool parse_count(const char *text, uint64_t *count)
{
	uint64_t number;
	char *end;

	if (!read_number(text, &number, &end) || *end)
		return false;
	*count = number;
	return true;
}

static const char size_suffixes[] = "kmgt";

bool parse_size(const char *text, uint64_t *bytes)
{
	const char *suffix;
	uint64_t number;
	unsigned shift = 0;
	char *end;

	if (!read_number(text, &number, &end))
		return false;
	if (*end) {
		suffix = strchr(size_suffixes, *end | ('a' ^ 'A'));
		if (!suffix || end[1])
			return false;
		shift = 10 * (unsigned)(suffix - size_suffixes + 1);
	}
	if (number > UINT64_MAX >> shift)
		return false;
	*bytes = number << shift;
	return true;
}

bool parse_seconds(const char *text, double *seconds)
{
	double number;
	char *end;

	if ((*text < '0' || *text > '9') && *text != '.')
		return false;
	if (strpbrk(text, "xX"))
		return false;
	number = strtod(text, &end);
	if (end == text || *end || !isfinite(number))
		return false;
	*seconds = number;
	return true;
}

/* A list in the making. */
struct growing_list {
	struct cpu_list cpus;
	size_t room;
	unsigned char named[MAX_CPU_NUMBER / CHAR_BIT + 1]; /* bits */
};

static bool append_cpu(struct growing_list *list, uint64_t cpu)
{
	struct cpu_list *cpus = &list->cpus;
	unsigned char *named = &list->named[cpu / CHAR_BIT];
	const unsigned char bit = (unsigned char)(1 << cpu % CHAR_BIT);

	if (*named & bit)
		return false;
	*named |= bit;
	if (cpus->count == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		int *grown = realloc(cpus->cpu, room * sizeof(*grown));

		if (!grown)
			return false;
		cpus->cpu = grown;
		list->room = room;
	}
	cpus->cpu[cpus->count++] = (int)cpu;
	return true;
}

/* Hands over a finished list, or frees a failed one. */
static bool keep_cpus(bool complete, const struct growing_list *list,
		      struct cpu_list *cpus)
{
	if (complete && list->cpus.count > 0) {
		free(cpus->cpu);
		*cpus = list->cpus;
		return true;
	}
	free(list->cpus.cpu);
	return false;
}

static bool read_cpus(const char *text, struct growing_list *list)
{
	uint64_t first, last;
	char *end;

	for (;; text = end + 1) {
		if (!read_number(text, &first, &end))
			return false;
		last = first;
		if (*end == '-' && !read_number(end + 1, &last, &end))
			return false;
		if (first > last || last > MAX_CPU_NUMBER)
			return false;
		for (uint64_t cpu = first; cpu <= last; cpu++)
			if (!append_cpu(list, cpu))
				return false;
		if (*end != ',')
			return *end == '\0';
	}
}

bool parse_cpus(const char *text, struct cpu_list *cpus)
{
	struct growing_list list = {0};

	return keep_cpus(read_cpus(text, &list), &list, cpus);
}

void write_cpus(FILE *out, const struct cpu_list *cpus)
{
	const int *cpu = cpus->cpu;

	for (size_t first = 0, end; first < cpus->count; first = end) {
		for (end = first + 1; end < cpus->count; end++)
			if (cpu[end] != cpu[end - 1] + 1)
				break;
		fprintf(out, "%s%d", first ? "," : "", cpu[first]);
		if (end > first + 1)
			fprintf(out, "-%d", cpu[end - 1]);
	}
}

void json_cpus(struct json *json, const char *name, const struct cpu_list *cpus)
{
	json_array(json, name);
	for (size_t i = 0; i < cpus->count; i++)
		json_count(json, NULL, (uint64_t)cpus->cpu[i]);
	json_end_array(json);
}

/* Hex digits of any number; CPU 0 is the lowest bit of the last. */
static bool read_hex_mask(const char *digits, struct growing_list *list)
{
	size_t length = strlen(digits);

	if (length == 0 || length > MAX_CPU_NUMBER / 4 ||
	    digits[strspn(digits, "0123456789abcdefABCDEF")])
		return false;
	for (size_t i = 0; i < length; i++) {
		const char digit[] = {digits[length - 1 - i], 0};
		unsigned long bits = strtoul(digit, NULL, 16);

		for (unsigned bit = 0; bit < 4; bit++)
			if ((bits >> bit & 1) && !append_cpu(list, 4 * i + bit))
				return false;
	}
	return true;
}

bool parse_mask(const char *text, struct cpu_list *cpus)
{
	struct growing_list list = {0};
	char hex[sizeof("ffffffffffffffff")];
	uint64_t mask;

	if (text[0] == '0' && (text[1] | 0x20) == 'x')
		return keep_cpus(read_hex_mask(text + 2, &list), &list, cpus);
	if (!parse_count(text, &mask))
		return false;
	snprintf(hex, sizeof(hex), "%llx", (unsigned long long)mask);
	return keep_cpus(read_hex_mask(hex, &list), &list, cpus);
}

bool parse_weights(const char *text, uint64_t weights[MAX_NODES])
{
	uint64_t parsed[MAX_NODES] = {0};
	uint64_t node, weight, sum = 0;
	char *end;

	for (;; text = end + 1) {
		if (!read_number(text, &node, &end) || node >= MAX_NODES ||
		    *end != ':' || !read_number(end + 1, &weight, &end) ||
		    weight > MAX_WEIGHT)
			return false;
		parsed[node] = weight;
		if (*end != ',')
			break;
	}
	if (*end)
		return false;
	for (node = 0; node < MAX_NODES; node++)
		sum += parsed[node];
	if (sum == 0)
		return false;
	memcpy(weights, parsed, sizeof(parsed));
	return true;
}

const char *typed_size(char *buffer, size_t length, uint64_t bytes)
{
	const char *suffix = size_suffixes, *used = "";

	for (; *suffix && bytes && bytes % 1024 == 0; bytes /= 1024)
		used = suffix++;
	snprintf(buffer, length, "%llu%.1s", (unsigned long long)bytes, used);
	return buffer;
}

const char *format_size(char *buffer, size_t length, uint64_t bytes)
{
	static const char *const units[] = {"byte", "KiB", "MiB", "GiB", "TiB"};
	const size_t last = sizeof(units) / sizeof(*units) - 1;
	size_t unit = 0;

	while (unit < last && bytes >> (10 * (unit + 1)))
		unit++;
	if (bytes % (1ull << (10 * unit)) != 0)
		snprintf(buffer, length, "%.1f %s",
			 (double)bytes / (double)(1ull << (10 * unit)),
			 units[unit]);
	else
		snprintf(buffer, length, "%llu %s%s",
			 (unsigned long long)(bytes >> (10 * unit)),
			 units[unit], unit == 0 && bytes != 1 ? "s" : "");
	return buffer;
}

static const char *name_of(const void *rows, size_t row_size, size_t i)
{
	return *(const char *const *)((const char *)rows + i * row_size);
}

int find_name(const void *rows, size_t nr_rows, size_t row_size,
	      const char *text, size_t length)
{
	int found = NAME_UNKNOWN;

	for (size_t i = 0; i < nr_rows; i++) {
		const char *name = name_of(rows, row_size, i);

		if (strncmp(name, text, length) != 0)
			continue;
		if (name[length] == '\0')
			return (int)i;
		found = found == NAME_UNKNOWN ? (int)i : NAME_AMBIGUOUS;
	}
	return length ? found : NAME_UNKNOWN;
}

void list_names(char *buffer, size_t size, const void *rows, size_t nr_rows,
		size_t row_size, const char *text, size_t length)
{
	size_t used = strlen(buffer);
	const char *between = "";

	for (size_t i = 0; i < nr_rows && used < size; i++) {
		const char *name = name_of(rows, row_size, i);

		if (strncmp(name, text, length) != 0)
			continue;
		used += (size_t)snprintf(buffer + used, size - used, "%s%s",
					 between, name);
		between = ", ";
	}
}

/* What a row's option accepts, for a rejection. */
static void accepted_values(const struct option_row *row, char *buffer,
			    size_t size)
{
	char min[32], max[32];

	switch (row->kind) {
	case OPTION_SIZE:
		snprintf(buffer, size,
			 "expected a size from %s to %s, such as 4096, 64k, "
			 "20m, 1g",
			 format_size(min, sizeof(min), row->min),
			 format_size(max, sizeof(max), row->max));
		break;
	case OPTION_PAGE_SIZE:
		snprintf(buffer, size,
			 "expected a power of two from the native page size, "
			 "%zu, upwards",
			 native_page_size());
		break;
	case OPTION_COUNT:
		snprintf(buffer, size,
			 "expected a whole number from %llu to %llu",
			 (unsigned long long)row->min,
			 (unsigned long long)row->max);
		break;
	case OPTION_SECONDS:
		snprintf(buffer, size, "expected seconds from %g to %g",
			 (double)row->min / MS_PER_SECOND,
			 (double)row->max / MS_PER_SECOND);
		break;
	case OPTION_CPUS:
		snprintf(buffer, size,
			 "expected CPU numbers, each once, such as 2,4-7");
		break;
	case OPTION_MASK:
		snprintf(buffer, size,
			 "expected a mask of CPUs that is not 0, such as 0x5 "
			 "for CPUs 0 and 2");
		break;
	case OPTION_WEIGHTS:
		snprintf(buffer, size,
			 "expected node:weight,... with nodes from 0 to %d and "
			 "weights to %d that are not all 0, such as 0:3,1:1",
			 MAX_NODES - 1, MAX_WEIGHT);
		break;
	default:
		snprintf(buffer, size, "expected a value");
	}
}

/* Which of them the machine has is found out when they are mapped. */
static bool is_page_size(uint64_t bytes)
{
	return bytes >= native_page_size() && (bytes & (bytes - 1)) == 0;
}

static bool store_value(const struct option_row *row, const char *text,
			char *field)
{
	uint64_t number;
	double seconds;

	switch (row->kind) {
	case OPTION_FLAG:
		*(bool *)field = true;
		return true;
	case OPTION_LEVEL:
		++*(unsigned *)field;
		return true;
	case OPTION_TEXT:
		*(const char **)field = text;
		return true;
	case OPTION_SIZE:
	case OPTION_PAGE_SIZE:
	case OPTION_COUNT:
		if (!(row->kind == OPTION_COUNT ? parse_count
						: parse_size)(text, &number) ||
		    number < row->min || number > row->max)
			return false;
		if (row->kind == OPTION_PAGE_SIZE && !is_page_size(number))
			return false;
		*(uint64_t *)field = number;
		return true;
	case OPTION_SECONDS:
		if (!parse_seconds(text, &seconds) ||
		    seconds * MS_PER_SECOND < (double)row->min ||
		    seconds * MS_PER_SECOND > (double)row->max)
			return false;
		*(double *)field = seconds;
		return true;
	case OPTION_CPUS:
		return parse_cpus(text, (struct cpu_list *)field);
	case OPTION_MASK:
		return parse_mask(text, (struct cpu_list *)field);
	case OPTION_WEIGHTS:
		return parse_weights(text, (uint64_t *)field);
	default:
		return true;
	}
}

static bool set_option(const struct option_row *row, const char *text,
		       void *options, struct error *error)
{
	char label[32], accepted[256];

	if (store_value(row, text, (char *)options + row->offset))
		return true;
	accepted_values(row, accepted, sizeof(accepted));
	return reject(error, option_label(row, label, sizeof(label)), text,
		      accepted);
}

static void print_help(const struct program *program)
{
	char label[64];

	fprintf(report_out, "usage: %s [OPTION]...\n%s\n\n", program->name,
		program->summary);
	for (size_t i = 0; i < program->nr_rows; i++) {
		const struct option_row *row = &program->rows[i];
		int width;

		if (row->letter)
			width = snprintf(label, sizeof(label), "-%c, --%s",
					 row->letter, row->name);
		else
			width = snprintf(label, sizeof(label), "    --%s",
					 row->name);
		if (row->value)
			snprintf(label + width, sizeof(label) - (size_t)width,
				 " %s", row->value);
		fprintf(report_out, "  %-26s %s", label, row->help);
		if (row->preset)
			fprintf(report_out, " (default %s)", row->preset);
		putc('\n', report_out);
	}
	if (program->more_help)
		program->more_help(report_out);
}

/* Turns the rows into what getopt_long reads. */
static void getopt_tables(const struct program *program, char *letters,
			  struct option *longs)
{
	*letters++ = ':'; /* tells a missing value from an unknown option */
	for (size_t i = 0; i < program->nr_rows; i++) {
		const struct option_row *row = &program->rows[i];

		if (row->letter) {
			*letters++ = (char)row->letter;
			if (row->value)
				*letters++ = ':';
		}
		longs[i] = (struct option){
			.name = row->name,
			.has_arg = row->value ? required_argument : no_argument,
			.val = row->letter ? row->letter
					   : FIRST_LONG_ONLY + (int)i};
	}
	*letters = '\0';
	longs[program->nr_rows] = (struct option){0};
}

static const struct option_row *row_of(const struct program *program, int code)
{
	if (code >= FIRST_LONG_ONLY)
		return &program->rows[code - FIRST_LONG_ONLY];
	for (size_t i = 0; i < program->nr_rows; i++)
		if (program->rows[i].letter == code)
			return &program->rows[i];
	return NULL;
}

/* Says what getopt_long has stumbled over. */
static void explain_refusal(const struct program *program, int code,
			    char **argv, struct error *error)
{
	const struct option_row *row = optopt ? row_of(program, optopt) : NULL;
	char label[32], accepted[256];

	if (code == ':' && row) {
		accepted_values(row, accepted, sizeof(accepted));
		error_set(error, "%s: needs a value: %s",
			  option_label(row, label, sizeof(label)), accepted);
	} else if (row) {
		error_set(error, "%.100s: takes no value", argv[optind - 1]);
	} else if (optopt) {
		error_set(error, "-%c: unknown option, see --help", optopt);
	} else {
		error_set(error,
			  "%.100s: unknown or ambiguous option, see --help",
			  argv[optind - 1]);
	}
}

enum parse_result parse_options(const struct program *program, int argc,
				char **argv, void *options, struct error *error)
{
	char letters[2 * MAX_ROWS + 2];
	struct option longs[MAX_ROWS + 1];
	int code;

	for (size_t i = 0; i < program->nr_rows; i++)
		if (program->rows[i].preset &&
		    !set_option(&program->rows[i], program->rows[i].preset,
				options, error))
			return PARSE_ERROR;
	getopt_tables(program, letters, longs);
	opterr = 0;
	while ((code = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		const struct option_row *row = row_of(program, code);

		if (!row) { /* ':' or '?' */
			explain_refusal(program, code, argv, error);
			return PARSE_ERROR;
		}
		if (row->kind == OPTION_HELP) {
			print_help(program);
			return PARSE_EXIT;
		}
		if (row->kind == OPTION_VERSION) {
			fprintf(report_out, "%s %s\n", program->name, VERSION);
			return PARSE_EXIT;
		}
		if (!set_option(row, optarg, options, error))
			return PARSE_ERROR;
	}
	if (optind < argc) {
		error_set(error, "%.200s: unexpected operand, see --help",
			  shown_value(argv[optind]));
		return PARSE_ERROR;
	}
	return PARSE_RUN;
}
