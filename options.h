/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines: each program describes its options in one table, from which
 * they are parsed, range-checked, rejected in one wording, and explained.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "error.h"
#include "json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The largest size that is read: more than any address space holds. */
#if SIZE_MAX > UINT32_MAX
#define MAX_SIZE ((uint64_t)1 << 52)
#else
#define MAX_SIZE ((uint64_t)1 << 31)
#endif

/* Nodes that -W can name. */
#define MAX_NODES 64

enum option_kind {
	OPTION_FLAG,      /* bool */
	OPTION_LEVEL,     /* unsigned, counts its repetitions */
	OPTION_SIZE,      /* uint64_t bytes, suffixes k m g t */
	OPTION_PAGE_SIZE, /* likewise, of the sizes that pages can have */
	OPTION_COUNT,     /* uint64_t */
	OPTION_SECONDS,   /* double, fractions allowed */
	OPTION_TEXT,      /* const char *, checked by the program */
	OPTION_CPUS,      /* struct cpu_list */
	OPTION_MASK,      /* struct cpu_list, from a bit mask */
	OPTION_WEIGHTS,   /* uint64_t [MAX_NODES] */
	OPTION_HELP,
	OPTION_VERSION,
};

/* CPU numbers in the order in which they were given. */
struct cpu_list {
	size_t count;
	int *cpu;
};

struct option_row {
	int letter;        /* 0: there is only the long name */
	const char *name;  /* the long name */
	const char *value; /* what the value is called in --help, or NULL */
	enum option_kind kind;
	size_t offset;     /* of the field in the program's options struct */
	uint64_t min, max; /* of a size or count; of seconds, in milliseconds */
	const char *preset; /* the default, as it would be typed, or NULL */
	const char *help;
};

/* A row for a field of a program's options struct, which is of this type. */
#define OPTION_ROW(type, letter_, name_, value_, kind_, field, min_, max_,     \
		   preset_, help_)                                             \
	{                                                                      \
		.letter = (letter_), .name = (name_), .value = (value_),       \
		.kind = (kind_), .offset = offsetof(type, field),              \
		.min = (min_), .max = (max_), .preset = (preset_),             \
		.help = (help_)                                                \
	}

#define OPTION_FLAG_ROW(type, letter_, name_, field, help_)                    \
	OPTION_ROW(type, letter_, name_, NULL, OPTION_FLAG, field, 0, 0, NULL, \
		   help_)

/* Bounds of what more than one program takes, in the units of their kinds. */
#define MAX_SAMPLES ((uint64_t)INT32_MAX)
#define MIN_INTERVAL_MS 1
#define MAX_INTERVAL_MS (UINT64_C(24) * 3600 * 1000) /* a day */

/* Rows of every program; its options struct has the fields cpus and dry_run. */
#define OPTION_ROWS_JOB(type)                                                  \
	OPTION_ROW(type, 0, "cpus", "LIST", OPTION_CPUS, cpus, 0, 0, NULL,     \
		   "pin threads to these CPUs, in this order"),                \
		OPTION_FLAG_ROW(type, 0, "dry-run", dry_run,                   \
				"check and round all options, print the "      \
				"plan, and exit"),                             \
		OPTION_FLAG_ROW(type, 0, "json", json,                         \
				"print one JSON object instead")

/* The end of every program's table. */
#define OPTION_ROWS_COMMON                                                     \
	{.letter = 'h',                                                        \
	 .name = "help",                                                       \
	 .kind = OPTION_HELP,                                                  \
	 .help = "print this and exit"},                                       \
	{                                                                      \
		.name = "version", .kind = OPTION_VERSION,                     \
		.help = "print the version and exit"                           \
	}

struct program {
	const char *name;
	const char *summary;
	const struct option_row *rows;
	size_t nr_rows;
	void (*more_help)(FILE *out); /* what follows the options, or NULL */
};

enum parse_result { PARSE_RUN, PARSE_EXIT, PARSE_ERROR };

/*
 * Fills options (the struct that the rows' offsets are in) from the presets
 * and the command line. PARSE_EXIT: --help or --version has been printed.
 */
enum parse_result parse_options(const struct program *program, int argc,
				char **argv, void *options,
				struct error *error);

/*
 * How a value that cannot be used is rejected, the same everywhere. option is
 * as the user knows it ("-s"). Returns false.
 */
bool reject(struct error *error, const char *option, const char *value,
	    const char *accepted);

/* A value as it is shown in messages: '' if it is empty. */
const char *shown_value(const char *value);

/* The readers; text must be wholly used up. False: nothing was stored. */
bool parse_count(const char *text, uint64_t *count);
bool parse_size(const char *text, uint64_t *bytes);
bool parse_seconds(const char *text, double *seconds);
bool parse_cpus(const char *text, struct cpu_list *cpus);
bool parse_mask(const char *text, struct cpu_list *cpus);
bool parse_weights(const char *text, uint64_t weights[MAX_NODES]);

/* Prints a list as parse_cpus() reads it. */
void write_cpus(FILE *out, const struct cpu_list *cpus);

/* Writes a list as an array. */
void json_cpus(struct json *json, const char *name,
	       const struct cpu_list *cpus);

/* Writes bytes as somebody would type them: "256m", "99999g", "1000". */
const char *typed_size(char *buffer, size_t length, uint64_t bytes);

/* Writes bytes as a person would: "256 MiB", "23.5 GiB", "1000 bytes". */
const char *format_size(char *buffer, size_t length, uint64_t bytes);

/*
 * A row of a table of things with names, found by an exact name or else by an
 * unambiguous prefix. The name is each row's first member.
 */
enum { NAME_UNKNOWN = -1, NAME_AMBIGUOUS = -2 };
int find_name(const void *rows, size_t nr_rows, size_t row_size,
	      const char *text, size_t length);

/* Appends the names that begin with the text (all, for length 0), ", " between.
 */
void list_names(char *buffer, size_t size, const void *rows, size_t nr_rows,
		size_t row_size, const char *text, size_t length);

#endif /* OPTIONS_H */
