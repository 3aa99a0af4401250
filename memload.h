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
	uint64_t sum;            /* a result, so that loads are not dropped */
};

typedef void load_kernel(struct load_work *work);

struct memload {
	const char *name;
	const char *help;
	unsigned reads, writes; /* lines read and written for each other */
	size_t arrays; /* equal parts of the buffer, all moved in a pass */
	bool whole;    /* a pass is one call, whatever the size */
	bool delayed;  /* -d counts */
	/* The kernel for this CPU, chosen when the program runs. */
	load_kernel *(*select)(void);
};

/* How far a load thread has come, in lines that only it writes. */
struct load_state {
	const struct memload *load;
	char *buffer;
	size_t bytes;
	uint64_t delay;
	const atomic_bool *stop;
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

/* The least buffer that the load can run on, in bytes. */
size_t memload_min_bytes(const struct memload *load);

/* Fills a buffer with what every load can start from. */
void memload_fill(char *buffer, size_t bytes);

/* Runs the load on its buffer until told to stop, stamping as it goes. */
void memload_run(struct load_state *state);

/* The newest stamp; never half of one and half of another. */
struct load_stamp memload_stamp(const struct load_state *state);

/* Prints a line for each memload, for --help. */
void print_memloads(FILE *out);

#endif /* MEMLOAD_H */
