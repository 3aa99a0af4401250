/* SPDX-License-Identifier: Apache-2.0 */
#include "crew.h"

#include "report.h"
#include "signals.h"
#include "timer.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* CPUs in a mask that is tried first, and where growing it ends. */
#define FIRST_MASK_CPUS 1024
#define LAST_MASK_CPUS (1 << 20)

/* How often main looks whether the threads are on their way. */
#define LOOK_NS (NS_PER_SECOND / 1000)

/* How long somebody at a terminal waits without a sign of life. */
#define PATIENCE_NS NS_PER_SECOND

struct crew_member {
	struct crew *crew;
	size_t index;
	pthread_t thread;
	pid_t pinned; /* its thread ID once it is pinned, or 0 */
};

/* The mask of a thread, 0 for this one, in a set as large as the kernel wants.
 */
static cpu_set_t *get_mask(pid_t thread, size_t *size)
{
	for (size_t cpus = FIRST_MASK_CPUS; cpus <= LAST_MASK_CPUS; cpus *= 2) {
		cpu_set_t *mask = CPU_ALLOC(cpus);

		if (!mask)
			return NULL;
		*size = CPU_ALLOC_SIZE(cpus);
		CPU_ZERO_S(*size, mask);
		if (sched_getaffinity(thread, *size, mask) == 0)
			return mask;
		CPU_FREE(mask);
		if (errno != EINVAL)
			return NULL;
	}
	return NULL;
}

static bool allowed_cpus(struct cpu_list *cpus, struct error *error)
{
	size_t size, count;
	cpu_set_t *mask = get_mask(0, &size);

	if (!mask)
		return error_set(error,
				 "the CPUs that may be used are not known: "
				 "%s; name them with --cpus",
				 strerror(errno));
	count = (size_t)CPU_COUNT_S(size, mask);
	cpus->count = 0;
	cpus->cpu = calloc(count, sizeof(*cpus->cpu));
	if (cpus->cpu)
		for (size_t cpu = 0; cpus->count < count; cpu++)
			if (CPU_ISSET_S(cpu, size, mask))
				cpus->cpu[cpus->count++] = (int)cpu;
	CPU_FREE(mask);
	return cpus->cpu || error_set(error, "no memory for a list of CPUs");
}

static bool pin_self(int cpu, struct error *error)
{
	size_t size = CPU_ALLOC_SIZE((size_t)cpu + 1);
	cpu_set_t *mask = CPU_ALLOC((size_t)cpu + 1);
	bool pinned;

	if (!mask)
		return error_set(error, "no memory for a mask of CPUs");
	CPU_ZERO_S(size, mask);
	CPU_SET_S((size_t)cpu, size, mask);
	pinned = sched_setaffinity(0, size, mask) == 0;
	CPU_FREE(mask);
	return pinned ||
	       error_set(error,
			 "cannot run a thread on CPU %d: %s; choose others "
			 "with --cpus",
			 cpu, strerror(errno));
}

/* Adds what would be accepted to an error. Returns false. */
static bool name_allowed_cpus(struct error *error)
{
	const size_t used = strlen(error->text);
	struct cpu_list cpus = {0};
	struct error ignored;
	FILE *end =
		fmemopen(error->text + used, sizeof(error->text) - used, "w");

	if (end && allowed_cpus(&cpus, &ignored)) {
		fputs(": this process may use CPUs ", end);
		write_cpus(end, &cpus);
		free(cpus.cpu);
	}
	if (end)
		fclose(end);
	return false;
}

/* Tries each CPU, so that none is found out in the midst of a run. */
static bool try_cpus(const struct cpu_list *cpus, struct error *error)
{
	size_t size;
	cpu_set_t *mask = get_mask(0, &size);
	bool usable = true;

	if (!mask)
		return true; /* main could not be put back: threads will see */
	for (size_t i = 0; i < cpus->count && usable; i++)
		usable = pin_self(cpus->cpu[i], error);
	sched_setaffinity(0, size, mask);
	CPU_FREE(mask);
	return usable || name_allowed_cpus(error);
}

bool choose_cpus(struct cpu_list *cpus, const struct cpu_list *asked,
		 struct error *error)
{
	if (asked->count == 0)
		return allowed_cpus(cpus, error);
	*cpus = *asked;
	return try_cpus(cpus, error);
}

void *aligned_zeros(size_t alignment, size_t bytes)
{
	const size_t blocks = bytes / alignment + 1;
	void *zeros = aligned_alloc(alignment, blocks * alignment);

	if (zeros)
		memset(zeros, 0, blocks * alignment);
	return zeros;
}

/* May a thread run on another CPU than this? Not if the kernel does not tell.
 */
static bool is_elsewhere(pid_t thread, int cpu)
{
	size_t size;
	cpu_set_t *mask = get_mask(thread, &size);
	const bool elsewhere = mask && !(CPU_COUNT_S(size, mask) == 1 &&
					 CPU_ISSET_S((size_t)cpu, size, mask));

	if (mask)
		CPU_FREE(mask);
	return elsewhere;
}

static void *run_member(void *argument)
{
	struct crew_member *member = argument;
	struct crew *crew = member->crew;
	const int cpu = crew->cpus ? crew->cpus->cpu[member->index] : -1;
	struct error error;

	if (crew->cpus && !pin_self(cpu, &error))
		crew_fail(crew, &error);
	else if (crew->cpus && !is_elsewhere(0, cpu))
		member->pinned = (pid_t)syscall(SYS_gettid);
	/* Memory is first touched when its thread is where it will stay. */
	if (crew_meet(crew))
		crew->worker(crew, member->index, crew->argument);
	return NULL;
}

bool crew_start(struct crew *crew, size_t count, const struct cpu_list *cpus,
		crew_worker *worker, void *argument, struct error *error)
{
	int failure;

	memset(crew, 0, sizeof(*crew));
	crew->count = count;
	crew->cpus = cpus;
	crew->worker = worker;
	crew->argument = argument;
	crew->members = calloc(count, sizeof(*crew->members));
	if (!crew->members)
		return error_set(error, "no memory for %zu threads", count);
	pthread_mutex_init(&crew->mutex, NULL);
	failure = pthread_barrier_init(&crew->barrier, NULL, (unsigned)count);
	if (failure)
		return error_set(error, "no start line for %zu threads: %s",
				 count, strerror(failure));
	/* Many take so long that a signal should not wait for them. */
	for (size_t i = 0; i < count && !crew->came; i++) {
		struct crew_member *member = &crew->members[i];

		member->crew = crew;
		member->index = i;
		failure = pthread_create(&member->thread, NULL, run_member,
					 member);
		if (failure)
			return error_set(error,
					 "cannot start thread %zu of %zu: %s; "
					 "ask for fewer, or see ulimit -u -v "
					 "and the cgroup's pids.max",
					 i + 1, count, strerror(failure));
		crew->came = signals_wait(0);
	}
	return true;
}

bool crew_meet(struct crew *crew)
{
	bool all_well;

	pthread_barrier_wait(&crew->barrier);
	all_well = !atomic_load(&crew->failed);
	/* Nobody goes on, and fails, before all have seen the same. */
	pthread_barrier_wait(&crew->barrier);
	return all_well;
}

bool crew_start_line(struct crew *crew)
{
	bool all_well = crew_meet(crew);

	if (all_well)
		atomic_store(&crew->started, true);
	return all_well;
}

/* Shows how far the threads are, to somebody who has waited for a while. */
static bool show_progress(const struct crew *crew, uint64_t waited_ns)
{
	const uint64_t parts = crew->count * PARTS_PER_THREAD;
	const uint64_t ready = atomic_load(&crew->parts_ready);

	return waited_ns > PATIENCE_NS &&
	       report_progress("set-up", (double)ready / (double)parts);
}

bool crew_await_start(struct crew *crew, int *came, struct error *error)
{
	const uint64_t begin = now_ns();
	bool shown = false;

	*came = crew->came;
	while (!atomic_load(&crew->started) && !*came &&
	       !atomic_load(&crew->failed)) {
		*came = signals_wait(now_ns() + LOOK_NS);
		shown |= show_progress(crew, now_ns() - begin);
	}
	if (shown)
		report_progress_end();
	return !crew_failed(crew, error);
}

bool crew_failed(struct crew *crew, struct error *error)
{
	if (!atomic_load(&crew->failed))
		return false;
	pthread_mutex_lock(&crew->mutex);
	*error = crew->error;
	pthread_mutex_unlock(&crew->mutex);
	return true;
}

void crew_parts_ready(struct crew *crew, uint64_t parts)
{
	atomic_fetch_add(&crew->parts_ready, parts);
}

void crew_fail(struct crew *crew, const struct error *error)
{
	pthread_mutex_lock(&crew->mutex);
	if (!atomic_load(&crew->failed))
		crew->error = *error;
	atomic_store(&crew->failed, true);
	pthread_mutex_unlock(&crew->mutex);
}

/* A CPU that a thread has left, or -1. */
static int left_cpu = -1;

void crew_warn_of_moves(const char *program)
{
	struct error warning;

	if (left_cpu < 0)
		return;
	error_set(&warning,
		  "a thread left CPU %d during the run: that went away, or the "
		  "thread was moved; the result holds its time elsewhere",
		  left_cpu);
	report_warning(program, &warning);
}

static void look_for_moves(const struct crew *crew)
{
	for (size_t i = 0; i < crew->count && left_cpu < 0; i++)
		if (crew->members[i].pinned &&
		    is_elsewhere(crew->members[i].pinned, crew->cpus->cpu[i]))
			left_cpu = crew->cpus->cpu[i];
}

void crew_stop(struct crew *crew)
{
	look_for_moves(crew);
	atomic_store(&crew->stop, true);
}

void crew_join(struct crew *crew)
{
	for (size_t i = 0; i < crew->count; i++)
		pthread_join(crew->members[i].thread, NULL);
	pthread_barrier_destroy(&crew->barrier);
	pthread_mutex_destroy(&crew->mutex);
	free(crew->members);
	crew->members = NULL;
}
