/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What main makes of the threads' counters: after a day at ten steps a
 * nanosecond, for threads that stood still, and for a sample without any.
 */
#include "tap.h"
#include "team.h"
#include "timer.h"

#include <stdlib.h>
#include <string.h>

#define THREADS 3

/* Counts of a day at one for each 0.1 ns: 50 bits. */
#define DAY_NS (24 * 3600 * NS_PER_SECOND)
#define DAY_COUNT (10 * DAY_NS)

_Static_assert(sizeof(((struct chase_state *)NULL)->count) == 8, "count");
_Static_assert(sizeof(((struct chase_state *)NULL)->length) == 8, "length");
_Static_assert(sizeof(((struct load_state *)NULL)->moved) == 8, "moved");
_Static_assert(sizeof(((struct load_state *)NULL)->at_ns) == 8, "at_ns");
_Static_assert(sizeof(((struct load_stamp *)NULL)->moved) == 8, "stamp");
_Static_assert(sizeof(*((struct chase_sampler *)NULL)->count) == 8, "seen");
_Static_assert(sizeof(((struct chase_sampler *)NULL)->all_steps) == 8, "steps");

static struct plan plan = {.chase_threads = THREADS, .load_threads = THREADS};
static struct chase_state chasers[THREADS];
static struct load_state loaders[THREADS];
static struct team team = {
	.plan = &plan, .chasers = chasers, .loaders = loaders};

static bool close_to(double value, double expected)
{
	return value > expected * (1 - 1e-9) && value < expected * (1 + 1e-9);
}

static void set_counts(uint64_t first, uint64_t second, uint64_t third)
{
	atomic_store(&chasers[0].count, first);
	atomic_store(&chasers[1].count, second);
	atomic_store(&chasers[2].count, third);
}

static void test_chases(void)
{
	struct chase_sampler sampler = {0};
	struct error error = {""};

	if (!ok(chase_sampler_init(&sampler, &team, &error), "a sampler"))
		return;
	ok(!chase_sample(&sampler, &team), "nothing has moved: no sample");
	set_counts(DAY_COUNT, DAY_COUNT / 2, 0);
	ok(chase_sample(&sampler, &team) &&
		   sampler.all_steps == DAY_COUNT + DAY_COUNT / 2,
	   "the steps of a day");
	sampler.elapsed_ns = DAY_NS;
	ok(close_to(chase_thread_ns(&sampler, 0), 0.1) &&
		   close_to(chase_thread_ns(&sampler, 1), 0.2),
	   "are 0.1 ns and 0.2 ns each");
	ok(chase_thread_ns(&sampler, 2) == 0,
	   "a thread that stood still: 0, no inf");
	ok(close_to(chase_average_ns(&sampler, &team), 0.1 / 1.5 * THREADS),
	   "the average counts its time");
	ok(!chase_sample(&sampler, &team) &&
		   sampler.all_steps == DAY_COUNT + DAY_COUNT / 2,
	   "nothing more has moved: the last sample stays");
	set_counts(DAY_COUNT + 100, DAY_COUNT / 2 + 50, 1);
	ok(chase_sample(&sampler, &team) && sampler.all_steps == 151 &&
		   sampler.steps[0] == 100 && sampler.steps[2] == 1,
	   "after a day each step is seen");
	free(sampler.count);
	free(sampler.steps);
}

static void set_stamp(size_t i, uint64_t moved, uint64_t at_ns)
{
	atomic_store(&loaders[i].moved, moved);
	atomic_store(&loaders[i].at_ns, at_ns);
}

/* A sample goes on for four looks at which a thread is late. */
static bool samples_late(struct load_sampler *sampler)
{
	for (int look = 1; look < 5; look++)
		if (load_sample(sampler, &team))
			return false;
	return load_sample(sampler, &team);
}

static void test_loads(void)
{
	struct load_sampler sampler = {0};
	struct error error = {""};

	if (!ok(load_sampler_init(&sampler, &team, &error), "a sampler"))
		return;
	ok(!load_sample(&sampler, &team), "no stamp yet: no sample");
	for (size_t i = 0; i < THREADS; i++)
		set_stamp(i, 1 << 20, NS_PER_SECOND);
	ok(!load_sample(&sampler, &team), "one stamp: no sample");
	/* 1 MiB/us, 1 TB/s, is more than any core moves. */
	set_stamp(0, ((DAY_NS / 1000) + 1) << 20, NS_PER_SECOND + DAY_NS);
	set_stamp(1, 3 << 20, 2 * NS_PER_SECOND);
	ok(!load_sample(&sampler, &team), "one thread has no bandwidth yet");
	set_stamp(2, 2 << 20, 5 * NS_PER_SECOND);
	ok(load_sample(&sampler, &team) && close_to(sampler.mibs[0], 1e6) &&
		   close_to(sampler.mibs[1], 2) &&
		   close_to(sampler.mibs[2], 0.25) &&
		   close_to(sampler.total, 1e6 + 2.25),
	   "a day, a second, and a thread that was stopped for a while");
	ok(samples_late(&sampler) && close_to(sampler.total, 1e6 + 2.25),
	   "who is in a long call keeps its last bandwidth");
	set_stamp(1, 4 << 20, 2 * NS_PER_SECOND);
	ok(samples_late(&sampler) && close_to(sampler.mibs[1], 2),
	   "a clock that stands still: no division by 0");
	set_stamp(0, ((DAY_NS / 1000) + 3) << 20,
		  NS_PER_SECOND + DAY_NS + 1000);
	ok(!load_sample(&sampler, &team) && close_to(sampler.mibs[0], 1e6),
	   "the sample goes on until all have a new stamp");
	free(sampler.stamp);
	free(sampler.now);
	free(sampler.mibs);
}

int main(void)
{
	test_chases();
	test_loads();
	return tap_end();
}
