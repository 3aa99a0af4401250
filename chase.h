/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of chases and their kernels, shared by multichase and multiload,
 * so that both time the same machine code.
 */
#ifndef CHASE_H
#define CHASE_H

#include "cpu_util.h"
#include "error.h"
#include "permutation.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_PARALLEL 10

/* Dereferences, of each cursor, between two tests of a kernel's loop. */
#define STEPS_PER_BATCH UINT64_C(200)

/* What a kernel reads and, in a line that only it writes, what it has done. */
struct chase_state {
	_Alignas(FALSE_SHARING_DISTANCE) char *cursor[MAX_PARALLEL];
	uint64_t argument; /* N of NAME:N */
	uint64_t length;   /* steps of the whole cycle */
	const atomic_bool *stop;
	_Alignas(FALSE_SHARING_DISTANCE) _Atomic uint64_t count;
};

enum chase_argument { ARGUMENT_NONE, ARGUMENT_WORK, ARGUMENT_OFFSET };

struct chase {
	const char *name;
	const char *help;
	enum chase_argument argument;
	size_t object;    /* bytes that a pointer takes up */
	size_t alignment; /* that base and stride must have; 0: none */
	size_t parallel;  /* independent cursors of a thread; 0: one */
	link_hook *link;  /* run on each object once it is linked, or NULL */
	/*
	 * Run on the whole cycle of a cursor once all is linked, or NULL. It
	 * turns pointers into code: the arena is made executable then.
	 */
	bool (*encode)(char *start, size_t length, struct error *error);
	bool loaded; /* thread 0 alone chases, the others run a memload */
	bool (*available)(void); /* NULL: on every CPU of the architecture */
	/* Dereferences, counting them, until told to stop. */
	void (*kernel)(struct chase_state *state);
};

/* A chase as it was asked for. */
struct chase_choice {
	const struct chase *chase;
	const char *text; /* as typed */
	uint64_t argument;
	size_t object;    /* bytes, the argument counted in */
	size_t alignment; /* at least 1 */
	size_t parallel;  /* at least 1 */
};

/*
 * Finds the chase that NAME or NAME:N asks for. with_loaded: chases that need
 * a memload beside them may be chosen.
 */
bool choose_chase(const char *text, bool with_loaded,
		  struct chase_choice *choice, struct error *error);

/* Prints a line for each chase, for --help. */
void print_chases(FILE *out, bool with_loaded);

#endif /* CHASE_H */
