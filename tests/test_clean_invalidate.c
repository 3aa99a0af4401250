/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line walk of clean_invalidate_range(), with a recorder in place of the
 * instructions: on any machine, at every line size that Arm cores have.
 */
#include "tap.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* More lines than any range below has. */
#define MAX_LINES 64

static size_t line_size;
static uintptr_t lines[MAX_LINES];
static size_t nr_lines;
static size_t nr_waits;
static size_t lines_at_wait;

static size_t clean_invalidate_line_size(void)
{
	return line_size;
}

static void clean_invalidate_line(uintptr_t address)
{
	if (nr_lines < MAX_LINES)
		lines[nr_lines] = address;
	nr_lines++;
}

static void clean_invalidate_wait(void)
{
	lines_at_wait = nr_lines;
	nr_waits++;
}

#define HAVE_CLEAN_INVALIDATE_RANGE 1
#include "cpu_util.h"

/* Cleans a range; were its lines met, each once and in order, then a wait? */
static int walks(uintptr_t start, size_t length)
{
	uintptr_t first = start / line_size * line_size;
	size_t expected =
		(start + (length - 1)) / line_size - start / line_size + 1;

	nr_lines = nr_waits = lines_at_wait = 0;
	clean_invalidate_range((void *)start, length);
	if (nr_lines != expected || nr_waits != 1 || lines_at_wait != expected)
		return 0;
	for (size_t i = 0; i < expected; i++)
		if (lines[i] != first + i * line_size)
			return 0;
	return 1;
}

static int walks_all_ends(void)
{
	const uintptr_t base = UINTPTR_MAX / 2 / 4096 * 4096;

	for (size_t start = 0; start < 2 * line_size; start++)
		for (size_t length = 1; length < 4 * line_size; length++)
			if (!walks(base + start, length))
				return 0;
	return 1;
}

static int ignores_no_bytes(uintptr_t start)
{
	nr_lines = nr_waits = 0;
	clean_invalidate_range((void *)start, 0);
	return nr_lines == 0 && nr_waits == 0;
}

int main(void)
{
	static const size_t sizes[] = {16, 32, 64, 128, 256, 2048};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		line_size = sizes[i];
		/* Every start and end would take long at the largest size. */
		if (line_size <= 256)
			ok(walks_all_ends(),
			   "every start and length at lines of %zu bytes",
			   line_size);
		ok(walks(line_size - 1, 2),
		   "two bytes on two lines of %zu bytes", line_size);
		ok(walks(UINTPTR_MAX - line_size, line_size + 1),
		   "up to the end of the address space, lines of %zu bytes",
		   line_size);
		ok(walks(UINTPTR_MAX, 1), "the last byte, lines of %zu bytes",
		   line_size);
		ok(ignores_no_bytes(0) && ignores_no_bytes(line_size) &&
			   ignores_no_bytes(line_size + 1) &&
			   ignores_no_bytes(UINTPTR_MAX),
		   "nothing for length 0, lines of %zu bytes", line_size);
	}
	return tap_end();
}
