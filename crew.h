/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that start together: each pins itself, prepares its part between
 * common points, and then works until told to stop.
 */
#ifndef CREW_H
#define CREW_H

#include "cpu_util.h"
#include "error.h"
#include "options.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct crew;

/* What thread `index` does. */
typedef void crew_worker(struct crew *crew, size_t index, void *argument);

/* What a thread has to prepare, in parts that are counted for who waits. */
#define PARTS_PER_THREAD 64

struct crew {
	size_t count;
	/* Thread i goes to CPU i; NULL: they are not pinned. */
	const struct cpu_list *cpus;
	crew_worker *worker;
	void *argument;
	struct crew_member *members;
	int came; /* the signal that came before all were started, or 0 */
	pthread_barrier_t barrier;
	pthread_mutex_t mutex; /* over error */
	struct error error;    /* of the first thread that failed */
	atomic_bool failed;
	atomic_bool started;          /* all are past the start line */
	_Atomic uint64_t parts_ready; /* of PARTS_PER_THREAD for each thread */
	/* Read by every kernel's loop, so nothing that changes is near it. */
	_Alignas(FALSE_SHARING_DISTANCE) atomic_bool stop;
	char padding[FALSE_SHARING_DISTANCE - sizeof(atomic_bool)];
};

/*
 * Starts count threads, which run worker, or some of them if a signal comes.
 * Error: memory, a thread that cannot be had; the program can only end then.
 */
bool crew_start(struct crew *crew, size_t count, const struct cpu_list *cpus,
		crew_worker *worker, void *argument, struct error *error);

/*
 * Called by a worker: waits until all threads are here. Returns false, to all
 * of them, if one has failed; the worker then returns.
 */
bool crew_meet(struct crew *crew);

/* The last meeting, after which main knows that the work has begun. */
bool crew_start_line(struct crew *crew);

/*
 * Called by main: waits until all are past the start line, or until a signal
 * comes, which *came then names; else it is 0. Shows how far they are, if that
 * takes long. Error: that of a thread.
 */
bool crew_await_start(struct crew *crew, int *came, struct error *error);

/* Called by a worker that cannot go on; it still goes to the next meeting. */
void crew_fail(struct crew *crew, const struct error *error);

/* Called by main: whether a worker could not go on, and why. */
bool crew_failed(struct crew *crew, struct error *error);

/* Called by a worker: so many more of its parts are ready. */
void crew_parts_ready(struct crew *crew, uint64_t parts);

/*
 * Called by main: tells the workers to stop, and waits for them; not if a
 * signal came before the start line, which nobody then passes.
 */
void crew_stop(struct crew *crew);
void crew_join(struct crew *crew);

/*
 * Called by main at the end: warns if a thread of any crew had left its CPU by
 * the time that it was told to stop, because that went away or somebody moved
 * the thread.
 */
void crew_warn_of_moves(const char *program);

/*
 * The CPUs that were asked for or, if there are none, all that this process
 * may use. Error: a thread cannot be pinned to one, or the system does not
 * tell.
 */
bool choose_cpus(struct cpu_list *cpus, const struct cpu_list *asked,
		 struct error *error);

/* Zeroed memory, in whole blocks of that alignment; NULL: there is none. */
void *aligned_zeros(size_t alignment, size_t bytes);

#endif /* CREW_H */
