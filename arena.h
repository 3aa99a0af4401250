/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for chases and loads: native, huge, hugetlb, file or malloc. */
#ifndef ARENA_H
#define ARENA_H

#include "error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena_request {
	const char *option; /* that asks for it, in messages */
	size_t offset;      /* bytes at its start that are not used */
	size_t bytes;       /* after them */
	size_t page_size;   /* a power of two; native or above: hugetlb */
	bool thp;           /* transparent huge pages; else refused */
	bool use_malloc;
	const char *file;        /* NULL, or what to map shared, in its pages */
	const uint64_t *weights; /* MAX_NODES of them, or NULL */
};

struct arena {
	char *base;
	size_t bytes;     /* what was asked for, without the offset */
	size_t mapped;    /* the whole pages at base that belong to it */
	bool fresh;       /* reads as zeros */
	size_t misplaced; /* bytes on other nodes than weights say; or
			     SIZE_MAX: the kernel does not tell */
};

/*
 * Maps an arena. It lives until the program ends. Error: one line that says
 * what could not be had, how much of it, and what to do. With weights, every
 * page that is used is touched here, by the calling thread.
 */
bool arena_map(struct arena *arena, const struct arena_request *request,
	       struct error *error);

/* The page size of a file's mappings: the native one, unless on hugetlbfs. */
size_t file_page_bytes(const char *file);

/* Bytes of the pages that the arena is to be on, if there are enough. */
size_t arena_page_bytes(const struct arena_request *request);

/* Takes write permission from the arena and gives execute permission. */
bool arena_make_executable(const struct arena *arena, const char *chase,
			   struct error *error);

/* Would that be allowed? It is done and undone. */
bool arena_try_executable(const struct arena *arena, const char *chase,
			  struct error *error);

/*
 * Whether the arena will be in memory that this process is charged for, not in
 * a device's, nor on hugetlb pages, which mmap() reserves or refuses.
 */
bool arena_takes_memory(const struct arena_request *request);

/* Bytes of memory that are on huge pages of either kind. */
struct huge_bytes {
	size_t thp, hugetlb;
};

/* What of the arena is on them now. False: the kernel does not tell. */
bool arena_huge_bytes(const struct arena *arena, struct huge_bytes *found);

/*
 * Readies the system's setting for -H: where it is "never" it becomes
 * "madvise" until the program ends, by exit or by signal. Call it once, in
 * main. Error: the kernel has no transparent huge pages, or says that they are
 * off and they may not be switched on.
 */
bool thp_enable(struct error *error);

#endif /* ARENA_H */
