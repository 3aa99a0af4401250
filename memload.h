/* SPDX-License-Identifier: Apache-2.0 */
/* The table of memloads, which use bandwidth, and their kernels. */
#ifndef MEMLOAD_H
#define MEMLOAD_H

#include "cpu_util.h"
#include "error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MAX_ARRAYS 4

/* What one call of a kernel does: some passes over its arrays. */
struct load_work {
	char *array[MAX_ARRAYS]; /* the first is written, if any is */
	size_t bytes;            /* of each array: whole cache lines */
	uint64_t passes;         /* after each, the arrays change their roles */
	uint64_t delay;          /* nops before every two lines of output */
	size_t page;             /* bytes of a native one */
	int zeros;               /* a file that reads as zeros */
	int failure;             /* errno of a system call that failed, or 0 */
	uint64_t sum;            /* a result, so that loads are not dropped */
};

typedef void load_kernel(struct load_work *work);

/* A kernel, as it is for some CPUs of the architecture, or for all. */
struct load_variant {
	const char *name;
	bool (*available)(void); /* NULL: on every one, and the last variant */
	/* Whether none after it is faster on such a buffer; NULL: always. */
	bool (*suits)(size_t buffer_bytes);
	load_kernel *kernel;
};

struct memload {
	const char *name;
	const char *help;
	unsigned reads, writes; /* lines read and written for each other */
	size_t arrays; /* equal parts of the buffer, all moved in a pass */
	/* Arrays are multiples of this, given a page; NULL: of a line. */
	size_t (*unit)(size_t page);
	size_t piece; /* bytes that are moved in one go; 0: two lines */
	bool whole;   /* a pass is one call, whatever the size */
	bool delayed; /* -d counts */
	bool (*available)(void); /* NULL: on every CPU of the architecture */
	/* What the kernel asks of the system; it is tried before the start. */
	const char *system_call;
	/* Opens what the kernel needs; false: failure says why not. */
	bool (*open)(struct load_work *work);
	const struct load_variant
		*variants; /* the first that can and suits is run */
};

/* How far a load thread has come, in lines that only it writes. */
struct load_state {
	const struct memload *load;
	char *buffer;
	size_t bytes;
	size_t page; /* bytes of a page of the buffer */
	uint64_t delay;
	const atomic_bool *stop;
	/* Filled in by memload_prepare(). */
	load_kernel *kernel;
	struct load_work work;
	_Alignas(FALSE_SHARING_DISTANCE) _Atomic uint32_t version;
	_Atomic uint64_t moved; /* bytes, all of them by ... */
	_Atomic uint64_t at_ns; /* ... this moment of this thread */
};

/* Bytes moved until a moment, both stamped by the load thread. */
struct load_stamp {
	uint64_t moved, at_ns;
};

/* Finds a memload by its name. */
const struct memload *choose_memload(const char *text, struct error *error);

/* Row i of the table; NULL: there are not so many. */
const struct memload *memload_row(size_t i);

/* The variant of its kernel that this CPU runs on such a buffer. */
const struct load_variant *memload_variant(const struct memload *load,
					   size_t buffer_bytes);

/* The least buffer that the load can run on, in bytes, given its pages. */
size_t memload_min_bytes(const struct memload *load, size_t page);

/*
 * Fills the buffer with what every load can start from, and readies the load
 * that runs on it. Error: the system refuses what the load is made of.
 */
bool memload_prepare(struct load_state *state, struct error *error);

/*
 * Runs the load on its buffer until told to stop, stamping as it goes. Error:
 * the system refuses all at once what it did not before.
 */
bool memload_run(struct load_state *state, struct error *error);

/*
 * Reads the newest stamp; never half of one and half of another. False: one is
 * being made just now, and *found is as it was.
 */
bool memload_stamp(const struct load_state *state, struct load_stamp *found);

/* Prints a line for each memload, for --help. */
void print_memloads(FILE *out);

#endif /* MEMLOAD_H */
