/* SPDX-License-Identifier: Apache-2.0 */
#include "team.h"

#include "machine.h"
#include "signals.h"
#include "timer.h"

#include <stdlib.h>
#include <string.h>

/* A byte that is not zero, so that no page is the shared zero page. */
#define FLUSH_BYTE 1

/*
 * Each chase thread links a share of the TLB groups, which lie side by side,
 * so that it is the first to touch that part of the arena.
 */
static void build_share(struct team *team, size_t index)
{
	const struct layout *layout = &team->layout;
	const size_t threads = team->plan->chase_threads;
	const size_t first = share_start(layout->groups, index, threads);
	const size_t end = share_start(layout->groups, index + 1, threads);

	for (size_t i = 0; i < PARTS_PER_THREAD; i++) {
		const size_t from =
			first + share_start(end - first, i, PARTS_PER_THREAD);
		const size_t to = first + share_start(end - first, i + 1,
						      PARTS_PER_THREAD);

		if (!team->arena.fresh)
			memset(layout->base + from * layout->tlb_locality, 0,
			       (to - from) * layout->tlb_locality);
		layout_link(layout, from, to, team->plan->choice.chase->link,
			    (size_t)team->plan->choice.argument);
		crew_parts_ready(&team->crew, 1);
	}
}

/* The cycles of this thread, whoever linked them. */
static void take_cycles(struct team *team, size_t index)
{
	const struct chase_choice *choice = &team->plan->choice;
	struct chase_state *state = &team->chasers[index];
	struct error error;

	state->argument = choice->argument;
	state->length = layout_length(&team->layout);
	state->stop = &team->crew.stop;
	for (size_t i = 0; i < choice->parallel; i++) {
		state->cursor[i] = layout_start(&team->layout,
						index * choice->parallel + i);
		if (choice->chase->encode &&
		    !choice->chase->encode(state->cursor[i], state->length,
					   &error))
			crew_fail(&team->crew, &error);
	}
}

/* The start of a thread's share of the chase, in bytes from its base. */
static size_t share_offset(const struct team *team, size_t index)
{
	return share_start(team->layout.total, index,
			   team->plan->chase_threads);
}

/* Code was written as data: makes instruction fetch see it. */
static void make_coherent(struct team *team, size_t index)
{
	char *base = team->layout.base;

	if (team->plan->choice.chase->encode)
		__builtin___clear_cache(base + share_offset(team, index),
					base + share_offset(team, index + 1));
}

/* What is written back as one: a line, or nothing in particular. */
static size_t write_back_unit(void)
{
#if HAVE_CLEAN_INVALIDATE_RANGE
	return clean_invalidate_line_size();
#else
	return 1;
#endif
}

/* Writes back what lies between, and keeps count of it. */
static void write_back(struct team *team, size_t thread, const char *start,
		       const char *end)
{
	struct write_back *written = &team->written[thread];
	const size_t line = write_back_unit();
	const uint64_t begin = now_ns();

	clean_invalidate_range(start, (size_t)(end - start));
	written->ns = now_ns() - begin;
	written->bytes = (uint64_t)(end - start);
	written->line_size = line;
	if (end > start)
		written->lines = ((uintptr_t)end - 1) / line -
				 (uintptr_t)start / line + 1;
}

/*
 * Where a thread's share of the lines begins: cut at a line boundary of the
 * addresses, so that no line is in two shares.
 */
static const char *line_share(const struct team *team, size_t index)
{
	const char *base = team->layout.base;
	const char *cut = base + share_offset(team, index);

	if (index < team->plan->chase_threads)
		cut -= (uintptr_t)cut % write_back_unit();
	return cut < base ? base : cut;
}

/*
 * The last thing done to the chase: after the last store of the last thread,
 * and while the arena can still be read. Where lines cannot be written back,
 * the caches are filled with something else instead.
 */
static void empty_caches(struct team *team, size_t index)
{
	const volatile char *flush = team->flush.base;

	if (team->plan->write_back_chase)
		write_back(team, index, line_share(team, index),
			   line_share(team, index + 1));
	for (size_t i = 0; i < team->flush.bytes; i += CACHE_LINE_BYTES)
		(void)flush[i];
}

static void make_executable(struct team *team, size_t index)
{
	struct error error;

	if (!team->plan->choice.chase->encode)
		return;
	if (index == 0 &&
	    !arena_make_executable(&team->arena, team->plan->choice.text,
				   &error))
		crew_fail(&team->crew, &error);
	cpu_refetch();
}

/*
 * What a chase thread does before the start line. No thread begins one of
 * these before all have done the one before.
 */
static void (*const chase_phases[])(struct team *team, size_t index) = {
	build_share, take_cycles, make_coherent, empty_caches, make_executable,
};

#define NR_PHASES (sizeof(chase_phases) / sizeof(*chase_phases))

static void prepare_buffer(struct team *team, size_t index)
{
	const struct plan *plan = team->plan;
	struct load_state *state = &team->loaders[index];
	struct arena *buffer = &team->buffers[index];
	struct error error;

	if (!arena_map(buffer, &plan->buffer, &error)) {
		crew_fail(&team->crew, &error);
		return;
	}
	state->load = plan->load;
	state->buffer = buffer->base;
	state->bytes = buffer->bytes;
	state->page = arena_page_bytes(&plan->buffer);
	state->delay = plan->options->delay;
	state->stop = &team->crew.stop;
	if (!memload_prepare(state, &error)) {
		crew_fail(&team->crew, &error);
		return;
	}
	crew_parts_ready(&team->crew, PARTS_PER_THREAD);
	if (HAVE_CLEAN_INVALIDATE_RANGE && !plan->options->dirty_start)
		write_back(team, plan->chase_threads + index, buffer->base,
			   buffer->base + buffer->bytes);
}

static void run_load(struct team *team, size_t index)
{
	struct error error;

	if (!memload_run(&team->loaders[index], &error))
		crew_fail(&team->crew, &error);
}

/* While all memory is there: a load may drop its pages later. */
static void count_huge_bytes(struct team *team)
{
	const size_t arenas = team->plan->load_threads + 1;

	team->huge_known = true;
	for (size_t i = 0; i < arenas; i++) {
		const struct arena *arena =
			i ? &team->buffers[i - 1] : &team->arena;
		struct huge_bytes huge;

		if (!arena->base)
			continue;
		if (!arena_huge_bytes(arena, &huge)) {
			team->huge_known = false;
			return;
		}
		team->arena_bytes += arena->bytes;
		team->huge.thp += huge.thp;
		team->huge.hugetlb += huge.hugetlb;
	}
}

static void work(struct crew *crew, size_t index, void *argument)
{
	struct team *team = argument;
	const struct plan *plan = team->plan;
	const bool chases = index < plan->chase_threads;

	for (size_t phase = 0; phase < NR_PHASES; phase++) {
		if (chases)
			chase_phases[phase](team, index);
		else if (phase == 0)
			prepare_buffer(team, index - plan->chase_threads);
		if (!crew_meet(crew))
			return;
	}
	if (index == 0 && (plan->arena.thp || plan->options->json))
		count_huge_bytes(team);
	if (!crew_start_line(crew))
		return;
	if (chases)
		plan->choice.chase->kernel(&team->chasers[index]);
	else
		run_load(team, index - plan->chase_threads);
}

/* Zeroed memory for the states of count threads, each on lines of its own. */
static void *thread_states(size_t count, size_t size)
{
	return aligned_zeros(FALSE_SHARING_DISTANCE, count * size);
}

static bool take_memory(struct team *team, struct error *error)
{
	const struct plan *plan = team->plan;
	const struct arena_request flush = {
		.option = "-F",
		.bytes = (size_t)plan->flush,
		.page_size = native_page_size(),
	};

	team->chasers =
		thread_states(plan->chase_threads, sizeof(*team->chasers));
	team->loaders =
		thread_states(plan->load_threads, sizeof(*team->loaders));
	team->buffers = calloc(plan->load_threads + 1, sizeof(*team->buffers));
	team->written = calloc(plan->chase_threads + plan->load_threads,
			       sizeof(*team->written));
	if (!team->chasers || !team->loaders || !team->buffers ||
	    !team->written)
		return error_set(error, "no memory for the state of threads");
	if (!plan->chase_threads)
		return true;
	if (!arena_map(&team->arena, &plan->arena, error) ||
	    (plan->choice.chase->encode &&
	     !arena_try_executable(&team->arena, plan->choice.text, error)))
		return false;
	team->layout = plan->layout;
	team->layout.base = team->arena.base + plan->arena.offset;
	if (!plan->flush)
		return true;
	if (!arena_map(&team->flush, &flush, error))
		return false;
	memset(team->flush.base, FLUSH_BYTE, team->flush.bytes);
	return true;
}

bool team_start(struct team *team, const struct plan *plan, struct error *error)
{
	int came;

	memset(team, 0, sizeof(*team));
	team->plan = plan;
	if (!take_memory(team, error))
		return false;
	/* Until here there is nothing that a signal would have to wait for. */
	signals_hold();
	if (!crew_start(&team->crew, plan->chase_threads + plan->load_threads,
			plan->cpus.count ? &plan->cpus : NULL, work, team,
			error) ||
	    !crew_await_start(&team->crew, &came, error))
		return false;
	if (came)
		signals_die(came);
	return true;
}

void team_stop(struct team *team)
{
	crew_stop(&team->crew);
}

struct write_back team_write_back(const struct team *team)
{
	const struct plan *plan = team->plan;
	struct write_back all = {0};

	for (size_t i = 0; i < plan->chase_threads + plan->load_threads; i++) {
		const struct write_back *one = &team->written[i];

		all.bytes += one->bytes;
		all.lines += one->lines;
		if (one->line_size)
			all.line_size = one->line_size;
		if (one->ns > all.ns)
			all.ns = one->ns;
	}
	return all;
}

bool chase_sampler_init(struct chase_sampler *sampler, const struct team *team,
			struct error *error)
{
	const size_t threads = team->plan->chase_threads;

	sampler->count = calloc(threads + 1, sizeof(*sampler->count));
	sampler->steps = calloc(threads + 1, sizeof(*sampler->steps));
	if (!sampler->count || !sampler->steps)
		return error_set(error, "no memory for samples");
	chase_sample(sampler, team);
	return true;
}

bool chase_sample(struct chase_sampler *sampler, const struct team *team)
{
	const size_t threads = team->plan->chase_threads;
	const uint64_t now = now_ns();
	uint64_t all = 0;

	for (size_t i = 0; i < threads; i++) {
		uint64_t count = atomic_load_explicit(&team->chasers[i].count,
						      memory_order_relaxed);

		sampler->steps[i] = count - sampler->count[i];
		all += sampler->steps[i];
	}
	if (all == 0 && sampler->at_ns)
		return false;
	for (size_t i = 0; i < threads; i++)
		sampler->count[i] += sampler->steps[i];
	sampler->all_steps = all;
	sampler->elapsed_ns = now - sampler->at_ns;
	sampler->at_ns = now;
	return true;
}

double chase_thread_ns(const struct chase_sampler *sampler, size_t i)
{
	if (sampler->steps[i] == 0)
		return 0;
	return (double)sampler->elapsed_ns / (double)sampler->steps[i];
}

double chase_average_ns(const struct chase_sampler *sampler,
			const struct team *team)
{
	if (sampler->all_steps == 0)
		return 0;
	return (double)sampler->elapsed_ns / (double)sampler->all_steps *
	       (double)team->plan->chase_threads;
}

bool load_sampler_init(struct load_sampler *sampler, const struct team *team,
		       struct error *error)
{
	const size_t threads = team->plan->load_threads;

	sampler->stamp = calloc(threads + 1, sizeof(*sampler->stamp));
	sampler->now = calloc(threads + 1, sizeof(*sampler->now));
	sampler->mibs = calloc(threads + 1, sizeof(*sampler->mibs));
	if (!sampler->stamp || !sampler->now || !sampler->mibs)
		return error_set(error, "no memory for samples");
	for (size_t i = 0; i < threads; i++)
		memload_stamp(&team->loaders[i], &sampler->stamp[i]);
	return true;
}

/*
 * Looks at which some thread may be without a new stamp, so that the sample
 * goes on; then it is taken to be in the midst of a long call.
 */
#define MAX_LATE 5

static double mib_per_second(const struct load_stamp *from,
			     const struct load_stamp *to)
{
	return (double)(to->moved - from->moved) / (1 << 20) /
	       ((double)(to->at_ns - from->at_ns) / NS_PER_SECOND);
}

bool load_sample(struct load_sampler *sampler, const struct team *team)
{
	const size_t threads = team->plan->load_threads;
	bool all_new = true, all_known = true;

	for (size_t i = 0; i < threads; i++) {
		memload_stamp(&team->loaders[i], &sampler->now[i]);
		all_new &= sampler->now[i].moved > sampler->stamp[i].moved;
	}
	if (!all_new && ++sampler->late < MAX_LATE)
		return false;
	sampler->late = 0;
	sampler->total = 0;
	for (size_t i = 0; i < threads; i++) {
		const struct load_stamp *now = &sampler->now[i];
		struct load_stamp *last = &sampler->stamp[i];

		if (now->moved > last->moved && now->at_ns > last->at_ns) {
			/* A thread may start after main begins to look. */
			if (last->at_ns)
				sampler->mibs[i] = mib_per_second(last, now);
			*last = *now;
		}
		all_known &= sampler->mibs[i] > 0;
		sampler->total += sampler->mibs[i];
	}
	return all_known;
}

void json_chase_sample(struct json *json, const struct chase_sampler *sampler,
		       const struct team *team)
{
	json_array(json, "thread_ns");
	for (size_t i = 0; i < team->plan->chase_threads; i++)
		json_number(json, NULL, chase_thread_ns(sampler, i));
	json_end_array(json);
	json_number(json, "ns", chase_average_ns(sampler, team));
}

void json_load_sample(struct json *json, const struct load_sampler *sampler,
		      const struct team *team)
{
	json_array(json, "thread_mib_per_s");
	for (size_t i = 0; i < team->plan->load_threads; i++)
		json_number(json, NULL, sampler->mibs[i]);
	json_end_array(json);
	json_number(json, "mib_per_s", sampler->total);
}
