/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that start together, over and over, each of them late by chance:
 * nobody is past a meeting before all were there, failures reach everybody,
 * and all of them end.
 */
#include "crew.h"

#include "permutation.h"
#include "signals.h"
#include "tap.h"
#include "timer.h"

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_THREADS 8
/* Their stacks have to fit into an address space of 32 bits. */
#define MANY_THREADS ((size_t)(sizeof(void *) < 8 ? 128 : 512))
#define NR_MEETINGS 3
#define MAX_DELAY_NS 100000

/* What the threads of a crew do, and what they saw. */
struct trial {
	uint64_t seed;
	size_t threads;
	size_t failing; /* threads from this on fail ... */
	size_t when;    /* ... before this meeting */
	_Atomic size_t arrived[NR_MEETINGS + 1];
	_Atomic size_t early; /* past a meeting where somebody was missing */
	_Atomic size_t begun, ended;
	atomic_bool held; /* nobody goes to the first meeting */
};

/* Most delays are none, some spin, some sleep. */
static void delay(uint64_t *random)
{
	const uint64_t ns = random_below(random, MAX_DELAY_NS);
	const uint64_t kind = random_below(random, 4);
	const uint64_t end = now_ns() + ns;

	if (kind == 0)
		nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
	else if (kind == 1)
		while (now_ns() < end)
			cpu_relax();
}

static bool meet(struct trial *trial, struct crew *crew, size_t meeting)
{
	bool all_well;

	atomic_fetch_add(&trial->arrived[meeting], 1);
	all_well = meeting == NR_MEETINGS ? crew_start_line(crew)
					  : crew_meet(crew);
	if (atomic_load(&trial->arrived[meeting]) != trial->threads)
		atomic_fetch_add(&trial->early, 1);
	return all_well;
}

static void work(struct crew *crew, size_t index, void *argument)
{
	struct trial *trial = argument;
	uint64_t random = trial->seed + index;

	while (atomic_load(&trial->held))
		sched_yield();
	for (size_t i = 0; i <= NR_MEETINGS; i++) {
		struct error error;

		delay(&random);
		if (index >= trial->failing && i == trial->when) {
			error_set(&error, "thread %zu of %zu", index,
				  trial->threads);
			crew_fail(crew, &error);
		}
		if (!meet(trial, crew, i))
			break;
		if (i == NR_MEETINGS)
			atomic_fetch_add(&trial->begun, 1);
	}
	if (!crew_failed(crew, &(struct error){""}))
		while (!atomic_load_explicit(&crew->stop, memory_order_relaxed))
			sched_yield();
	atomic_fetch_add(&trial->ended, 1);
}

/* One start that succeeds. */
static bool starts(uint64_t *random, size_t threads)
{
	static struct crew crew;
	struct trial trial = {.failing = SIZE_MAX, .threads = threads};
	struct error error;
	int came;
	bool good;

	trial.seed = random_next(random);
	if (!crew_start(&crew, threads, NULL, work, &trial, &error))
		return false;
	good = crew_await_start(&crew, &came, &error) && !came &&
	       atomic_load(&trial.arrived[NR_MEETINGS]) == threads;
	delay(random);
	good &= atomic_load(&trial.ended) == 0;
	crew_stop(&crew);
	crew_join(&crew);
	return good && atomic_load(&trial.begun) == threads &&
	       atomic_load(&trial.ended) == threads &&
	       atomic_load(&trial.early) == 0;
}

/* One start where some threads fail: everybody leaves at the next meeting. */
static bool fails(uint64_t *random)
{
	static struct crew crew;
	struct trial trial = {.threads = 1 + random_below(random, MAX_THREADS)};
	struct error error = {""};
	char expected[64];
	bool good = false;
	int came;

	trial.seed = random_next(random);
	trial.when = random_below(random, NR_MEETINGS + 1);
	trial.failing = random_below(random, trial.threads);
	if (!crew_start(&crew, trial.threads, NULL, work, &trial, &error) ||
	    crew_await_start(&crew, &came, &error))
		return false;
	crew_join(&crew);
	for (size_t i = trial.failing; i < trial.threads; i++) {
		snprintf(expected, sizeof(expected), "thread %zu of %zu", i,
			 trial.threads);
		good |= strcmp(error.text, expected) == 0;
	}
	return good && atomic_load(&trial.begun) == 0 &&
	       atomic_load(&trial.ended) == trial.threads;
}

static void test_starts(uint64_t *random, size_t trials)
{
	size_t started = 0, failed = 0;

	for (size_t i = 0; i < trials; i++)
		started += starts(
			random, 1 + (size_t)random_below(random, MAX_THREADS));
	ok(started == trials, "%zu of %zu starts with random delays", started,
	   trials);
	for (size_t i = 0; i < trials / 4; i++)
		failed += fails(random);
	ok(failed == trials / 4, "%zu of %zu starts that fail at random",
	   failed, trials / 4);
}

static void test_signal(uint64_t *random)
{
	static struct crew crew;
	struct trial trial = {.failing = SIZE_MAX, .threads = 2};
	struct error error = {""};
	int came = 0;

	trial.seed = random_next(random);
	atomic_store(&trial.held, true);
	if (!ok(crew_start(&crew, 2, NULL, work, &trial, &error), "2 threads"))
		return;
	kill(getpid(), SIGTERM);
	ok(crew_await_start(&crew, &came, &error) && came == SIGTERM,
	   "a signal before the start line ends the wait");
	atomic_store(&trial.held, false);
	ok(crew_await_start(&crew, &came, &error) && came == SIGTERM,
	   "and is not forgotten");
	crew_stop(&crew);
	crew_join(&crew);
}

/* Where each thread runs, and where it should. */
struct places {
	const struct cpu_list *cpus;
	_Atomic size_t right;
};

static void look_where(struct crew *crew, size_t index, void *argument)
{
	struct places *places = argument;

	if (sched_getcpu() == places->cpus->cpu[index])
		atomic_fetch_add(&places->right, 1);
	crew_start_line(crew);
}

static void test_places(void)
{
	static struct crew crew;
	static int far[] = {0, 1 << 19};
	const struct cpu_list none = {0}, nowhere = {2, far};
	struct cpu_list cpus;
	struct places places = {.cpus = &cpus};
	struct error error = {""};
	int came;

	if (!ok(choose_cpus(&cpus, &none, &error), "CPUs %s", error.text) ||
	    !ok(crew_start(&crew, cpus.count, &cpus, look_where, &places,
			   &error) &&
			crew_await_start(&crew, &came, &error),
		"a thread on each"))
		return;
	crew_join(&crew);
	ok(atomic_load(&places.right) == cpus.count,
	   "%zu of %zu are on their CPU from the start",
	   atomic_load(&places.right), cpus.count);
	far[0] = cpus.cpu[0];
	places.cpus = &nowhere;
	if (!ok(crew_start(&crew, 2, &nowhere, look_where, &places, &error),
		"one goes to a CPU that is not there"))
		return;
	ok(!crew_await_start(&crew, &came, &error) &&
		   strstr(error.text, "cannot run a thread on CPU 524288: "),
	   "which is an error: %s", error.text);
	crew_join(&crew);
	free(cpus.cpu);
}

int main(void)
{
	const bool all = getenv("CHECK_ALL");
	uint64_t random = 1;

	signals_hold();
	test_starts(&random, all ? 10000 : 400);
	ok(starts(&random, MANY_THREADS), "%zu threads", MANY_THREADS);
	test_places();
	test_signal(&random); /* last: no crew starts after a signal */
	return tap_end();
}
