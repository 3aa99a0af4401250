/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan carried out: its memory, and its threads from first touch over the
 * start line to their kernels. Then main samples them.
 */
#ifndef TEAM_H
#define TEAM_H

#include "arena.h"
#include "chase.h"
#include "crew.h"
#include "json.h"
#include "memload.h"
#include "plan.h"

/* What was written back before the start line. */
struct write_back {
	uint64_t bytes, lines;
	size_t line_size;
	uint64_t ns; /* of the thread that took longest */
};

struct team {
	const struct plan *plan;
	struct crew crew;
	struct layout layout; /* the plan's, in the arena */
	struct arena arena;   /* of the chase */
	struct arena flush;   /* what chase threads read before the start */
	struct chase_state *chasers;
	struct load_state *loaders;
	struct arena *buffers;      /* of the load threads */
	struct write_back *written; /* by each thread */
	/*
	 * The chase and all buffers, and what of them is on huge pages at the
	 * start line; under -H and --json.
	 */
	size_t arena_bytes;
	struct huge_bytes huge;
	bool huge_known; /* the kernel tells */
};

/*
 * Maps the arena and starts the threads, with signals held. Returns once all
 * kernels run. Error: memory or threads that cannot be had. A signal
 * that comes before that ends the program.
 */
bool team_start(struct team *team, const struct plan *plan,
		struct error *error);

/* Tells the threads to stop. They may take a pass to do so: nobody waits. */
void team_stop(struct team *team);

/* What all threads have written back. */
struct write_back team_write_back(const struct team *team);

/* How far each thread was when it was looked at last, and since. */
struct chase_sampler {
	uint64_t at_ns;
	uint64_t *count;     /* of each thread, in all */
	uint64_t *steps;     /* of each thread, in the sample */
	uint64_t elapsed_ns; /* of the sample */
	uint64_t all_steps;  /* of all threads, in the sample */
};

struct load_sampler {
	struct load_stamp *stamp; /* of each thread, when the sample began */
	struct load_stamp *now;   /* of each thread, when it was looked at */
	unsigned late;            /* looks at which some thread had none */
	double *mibs;             /* of each thread, MiB/s */
	double total;             /* of all threads, MiB/s */
};

/* Begin to look. Error: memory. */
bool chase_sampler_init(struct chase_sampler *sampler, const struct team *team,
			struct error *error);
bool load_sampler_init(struct load_sampler *sampler, const struct team *team,
		       struct error *error);

/* Looks again. False: no thread has moved since; the sample goes on. */
bool chase_sample(struct chase_sampler *sampler, const struct team *team);

/*
 * Looks again. A thread's bandwidth is what it moved between its stamps at the
 * start and at the end of the sample. False: some thread has no new stamp, so
 * the sample goes on, but not for ever: one that is in the midst of a long call
 * then keeps its last bandwidth.
 */
bool load_sample(struct load_sampler *sampler, const struct team *team);

/* Nanoseconds of a step of thread i, or of the average thread; 0: none made. */
double chase_thread_ns(const struct chase_sampler *sampler, size_t i);
double chase_average_ns(const struct chase_sampler *sampler,
			const struct team *team);

/* Write the members of a sample: of each thread, and of all. */
void json_chase_sample(struct json *json, const struct chase_sampler *sampler,
		       const struct team *team);
void json_load_sample(struct json *json, const struct load_sampler *sampler,
		      const struct team *team);

#endif /* TEAM_H */
