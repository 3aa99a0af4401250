/* SPDX-License-Identifier: Apache-2.0 */
/* The little of TAP that unit tests need: ok() or skip() for each, tap_end()
 * last. */
#ifndef TAP_H
#define TAP_H

#include <stdarg.h>
#include <stdio.h>

static int tap_count, tap_failed;

/* One test: its outcome and what it tests. Returns the outcome. */
__attribute__((format(printf, 2, 3))) static inline int
ok(int passed, const char *format, ...)
{
	va_list list;

	tap_failed += !passed;
	printf("%s %d - ", passed ? "ok" : "not ok", ++tap_count);
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
	fflush(stdout);
	return passed;
}

/* A test that cannot be run here, and why. */
static inline void skip(const char *what, const char *reason)
{
	printf("ok %d - %s # SKIP %s\n", ++tap_count, what, reason);
	fflush(stdout);
}

/* The plan, and the exit status of main. */
static inline int tap_end(void)
{
	printf("1..%d\n", tap_count);
	return tap_failed > 0;
}

#endif /* TAP_H */
