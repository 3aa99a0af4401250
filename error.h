/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a failure travels: the function that meets it writes one line that says
 * what failed, for what, and what is accepted or to be done, and returns
 * false. Only main prints it and exits.
 */
#ifndef ERROR_H
#define ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

struct error {
	char text[1024];
};

/* Writes the line; returns false, so that a caller can return it. */
__attribute__((format(printf, 2, 3))) static inline bool
error_set(struct error *error, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(error->text, sizeof(error->text), format, list);
	va_end(list);
	return false;
}

#endif /* ERROR_H */
