/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into a program by ld's --wrap, lets the call number FAIL_AT fail, of
 * those of the functions here from main on, and then makes the file FAILED.
 * What libc allocates for a program is among them, if it is linked statically.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static unsigned long fail_at;
static atomic_ulong calls;

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);
int __wrap_main(int argc, char **argv)
{
	const char *at = getenv("FAIL_AT");

	fail_at = at ? strtoul(at, NULL, 10) : 0;
	return __real_main(argc, argv);
}

static bool fails(int error)
{
	if (!fail_at || atomic_fetch_add(&calls, 1) + 1 != fail_at)
		return false;
	close(creat(getenv("FAILED"), 0600));
	errno = error;
	return true;
}

#define FAILING(type, name, failure, error, parameters, arguments)             \
	type __real_##name parameters;                                         \
	type __wrap_##name parameters;                                         \
	type __wrap_##name parameters                                          \
	{                                                                      \
		return fails(error) ? (failure) : __real_##name arguments;     \
	}

FAILING(void *, malloc, NULL, ENOMEM, (size_t size), (size))
FAILING(void *, calloc, NULL, ENOMEM, (size_t count, size_t size),
	(count, size))
FAILING(void *, realloc, NULL, ENOMEM, (void *block, size_t size),
	(block, size))
FAILING(void *, aligned_alloc, NULL, ENOMEM, (size_t alignment, size_t size),
	(alignment, size))
FAILING(int, mprotect, -1, EACCES, (void *start, size_t size, int protection),
	(start, size, protection))
