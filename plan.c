/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include "crew.h"
#include "machine.h"

#include <string.h>

static bool choose_pages(struct plan *plan, struct error *error)
{
	const struct run_options *options = plan->options;
	const size_t native = native_page_size();
	const uint64_t size = options->page_size ? options->page_size : native;
	char asked[32];

	if (size > native && (options->thp || options->use_malloc))
		return error_set(error,
				 "-p %s: hugetlb pages and %s exclude each "
				 "other",
				 typed_size(asked, sizeof(asked), size),
				 options->thp ? "-H" : "-M");
	if (options->file && (options->use_malloc || size > native))
		return error_set(error,
				 "-f %.200s: the file's pages and %s exclude "
				 "each other",
				 shown_value(options->file),
				 options->use_malloc ? "-M" : "-p");
	plan->arena.page_size = (size_t)size;
	plan->arena.option = "-m";
	plan->arena.thp = options->thp;
	return true;
}

/* The rounding of -s, -T and -m, on which other programs rely. */
static void round_sizes(struct plan *plan)
{
	const struct run_options *options = plan->options;
	const uint64_t stride = options->stride;
	uint64_t locality = options->tlb_locality;
	uint64_t memory = options->memory;

	if (locality == TLB_LOCALITY_PRESET)
		locality = TLB_LOCALITY_PAGES * (uint64_t)native_page_size();
	if (locality < stride)
		locality = stride;
	locality -= locality % stride;
	if (memory < locality) {
		memory -= memory % stride;
		if (memory == 0)
			memory = stride;
		locality = memory;
	} else {
		memory -= memory % locality;
	}
	plan->memory = memory;
	plan->layout.total = (size_t)memory;
	plan->layout.stride = (size_t)stride;
	plan->layout.tlb_locality = (size_t)locality;
}

static bool check_chase(struct plan *plan, struct error *error)
{
	const struct run_options *options = plan->options;
	const struct chase_choice *choice = &plan->choice;
	struct layout *layout = &plan->layout;
	char asked[32];
	uint64_t need;

	layout->object = choice->object;
	layout->nr_chases = plan->chase_threads * choice->parallel;
	layout->longer = options->longer;
	layout->ordered = options->ordered;
	layout->seed = options->seed;
	need = (uint64_t)layout->nr_chases * layout->object;
	if (need > layout->stride)
		return error_set(
			error,
			"-s %s: expected a stride of at least %llu: "
			"%zu thread(s) of %s need %zu slots of %zu "
			"bytes",
			typed_size(asked, sizeof(asked), layout->stride),
			(unsigned long long)need, plan->chase_threads,
			choice->chase->name, layout->nr_chases, layout->object);
	if (layout->stride % choice->alignment)
		return error_set(
			error,
			"-s %s: %s needs a stride that is a multiple "
			"of %zu",
			typed_size(asked, sizeof(asked), layout->stride),
			choice->chase->name, choice->alignment);
	if (options->offset % choice->alignment)
		return error_set(
			error,
			"-O %s: %s needs an offset that is a "
			"multiple of %zu (%zu-byte alignment)",
			typed_size(asked, sizeof(asked), options->offset),
			choice->chase->name, choice->alignment,
			choice->alignment);
	layout_init(layout);
	return true;
}

static bool check_buffer(const struct plan *plan, struct error *error)
{
	const size_t least =
		memload_min_bytes(plan->load, arena_page_bytes(&plan->arena));
	char asked[32];

	return plan->memory >= least ||
	       error_set(
		       error,
		       "-m %s: %s needs at least %zu bytes in each "
		       "thread, and this is rounded to %llu",
		       typed_size(asked, sizeof(asked), plan->options->memory),
		       plan->load->name, least,
		       (unsigned long long)plan->memory);
}

/* The CPUs for the threads, in turn. */
static bool place_threads(struct plan *plan, struct error *error)
{
	const struct run_options *options = plan->options;
	const size_t threads = plan->chase_threads + plan->load_threads;

	if (options->unpinned) {
		if (options->cpus.count)
			return error_set(error, "-X: not together with --cpus");
		return true;
	}
	if (!choose_cpus(&plan->cpus, &options->cpus, error))
		return false;
	if (threads > plan->cpus.count)
		return error_set(error,
				 "more threads than cpus available: -t %zu, "
				 "expected 1 to %zu (-X runs more, unpinned)",
				 threads, plan->cpus.count);
	return true;
}

/* a * b + c, or the largest number if that is too small. */
static uint64_t multiply_add(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t product, sum;

	if (__builtin_mul_overflow(a, b, &product) ||
	    __builtin_add_overflow(product, c, &sum))
		return UINT64_MAX;
	return sum;
}

/* Does what is needed in all stay in a limit? */
static bool fits(const struct plan *plan, uint64_t need, uint64_t limit,
		 const char *whose, const char *what, struct error *error)
{
	const struct run_options *options = plan->options;
	const char *option = "-m";
	uint64_t value = options->memory;
	char asked[32], needs[64], has[32];

	format_size(has, sizeof(has), limit);
	format_size(needs, sizeof(needs), need);
	if (strcmp(needs, has) == 0) /* to a tenth */
		snprintf(needs, sizeof(needs), "a little more than %s", has);
	if (plan->flush > limit)
		return error_set(error, "-F %s: %s %s of %s",
				 typed_size(asked, sizeof(asked), plan->flush),
				 whose, has, what);
	if (need <= limit)
		return true;
	if (options->offset > plan->memory) {
		option = "-O";
		value = options->offset;
	} else if (plan->memory > options->memory) {
		option = "-s"; /* to one of which -m is rounded up */
		value = options->stride;
	}
	return error_set(error,
			 "%s %s: %zu thread(s) need %s of %s in all, %s %s",
			 option, typed_size(asked, sizeof(asked), value),
			 plan->chase_threads + plan->load_threads, needs, what,
			 whose, has);
}

/*
 * What a cgroup is charged for beside arena and buffers: the program, and of
 * each thread its stack and what the kernel keeps of it.
 */
#define PROGRAM_BYTES ((uint64_t)512 << 10)
#define THREAD_BYTES ((uint64_t)32 << 10)

/* A machine may have more memory than an address space of 32 bits. */
static bool check_memory(const struct plan *plan, struct error *error)
{
	const uint64_t chase =
		plan->chase_threads ? plan->memory + plan->options->offset : 0;
	const uint64_t loads =
		multiply_add(plan->memory, plan->load_threads, 0);
	const uint64_t threads = plan->chase_threads + plan->load_threads;
	uint64_t charged = PROGRAM_BYTES + threads * THREAD_BYTES + plan->flush;
	const char *whose;
	const uint64_t limit = memory_limit(&whose);

	if (arena_takes_memory(&plan->arena))
		charged = multiply_add(1, chase, charged);
	if (arena_takes_memory(&plan->buffer))
		charged = multiply_add(1, loads, charged);
	return fits(plan, multiply_add(1, loads, chase + plan->flush),
		    UINTPTR_MAX / 2, "a process has less than", "address space",
		    error) &&
	       fits(plan, charged, limit, whose, "memory", error);
}

/* A chase in a file is on the file's pages, which -H cannot change if huge. */
static void take_file(struct plan *plan)
{
	plan->arena.file = plan->options->file;
	plan->arena.page_size = file_page_bytes(plan->arena.file);
	if (plan->arena.page_size > native_page_size())
		plan->arena.thp = false;
}

bool plan_resolve(struct plan *plan, const struct run_options *options,
		  struct error *error)
{
	const bool chases = plan->chase_threads > 0;
	bool weighted = false;

	plan->options = options;
	if (!choose_pages(plan, error))
		return false;
	round_sizes(plan);
	if (chases && !check_chase(plan, error))
		return false;
	if (plan->load_threads && !check_buffer(plan, error))
		return false;
	if (!place_threads(plan, error))
		return false;
	for (size_t node = 0; node < MAX_NODES; node++)
		weighted |= options->weights[node] > 0;
	plan->arena.weights = weighted ? options->weights : NULL;
	plan->arena.bytes = (size_t)plan->memory;
	plan->buffer = plan->arena;
	plan->arena.offset = (size_t)options->offset;
	plan->arena.use_malloc = options->use_malloc;
	if (options->file)
		take_file(plan);
	plan->write_back_chase = HAVE_CLEAN_INVALIDATE_RANGE && chases &&
				 options->flush && !options->dirty_start;
	if (!HAVE_CLEAN_INVALIDATE_RANGE && chases)
		plan->flush = options->flush;
	return check_memory(plan, error);
}

void plan_print(const struct plan *plan, FILE *out)
{
	const struct run_options *options = plan->options;

	if (plan->chase_threads) {
		fprintf(out, "nr_mixer_indices = %zu\n", plan->layout.slots);
		fprintf(out, "base_object_size = %zu\n", plan->layout.object);
	}
	fprintf(out, "nr_threads = %zu\n",
		plan->chase_threads + plan->load_threads);
	fprintf(out, "page_size = %zu bytes%s\n", plan->arena.page_size,
		plan->arena.thp ? " (THP)" : "");
	fprintf(out, "total_memory = %llu (%.1f MiB)\n",
		(unsigned long long)plan->memory,
		(double)plan->memory / (1 << 20));
	fprintf(out, "stride = %zu\n", plan->layout.stride);
	fprintf(out, "tlb_locality = %zu\n", plan->layout.tlb_locality);
	if (plan->chase_threads) {
		fprintf(out, "chase = %s\n", plan->choice.text);
		fprintf(out, "seed = %llu\n",
			(unsigned long long)options->seed);
	}
}

static void json_chase(const struct plan *plan, struct json *json)
{
	const struct run_options *options = plan->options;

	json_text(json, "chase", plan->choice.text);
	json_count(json, "stride_bytes", plan->layout.stride);
	json_count(json, "tlb_locality_bytes", plan->layout.tlb_locality);
	json_count(json, "object_bytes", plan->layout.object);
	json_count(json, "slots", plan->layout.slots);
	json_count(json, "rounds", plan->layout.rounds);
	json_flag(json, "ordered", options->ordered);
	json_flag(json, "longer", options->longer);
	json_count(json, "offset_bytes", options->offset);
	json_count(json, "flush_bytes", options->flush);
	json_text(json, "file", options->file);
	json_flag(json, "malloc", options->use_malloc);
	json_count(json, "seed", options->seed);
}

static void json_weights(const struct plan *plan, struct json *json)
{
	char node[16];

	json_object(json, "weights");
	for (size_t i = 0; i < MAX_NODES; i++) {
		if (plan->options->weights[i] == 0)
			continue;
		snprintf(node, sizeof(node), "%zu", i);
		json_count(json, node, plan->options->weights[i]);
	}
	json_end_object(json);
}

void plan_json(const struct plan *plan, struct json *json)
{
	const struct run_options *options = plan->options;
	const size_t threads = plan->chase_threads + plan->load_threads;
	const struct cpu_list used = {
		.count = plan->cpus.count ? threads : 0,
		.cpu = plan->cpus.cpu,
	};

	json_object(json, "configuration");
	json_count(json, "memory_bytes", plan->memory);
	json_count(json, "chase_threads", plan->chase_threads);
	json_count(json, "load_threads", plan->load_threads);
	json_cpus(json, "cpus", &used);
	json_count(json, "page_size_bytes", plan->arena.page_size);
	json_flag(json, "thp", options->thp);
	json_weights(plan, json);
	json_flag(json, "dirty_start", options->dirty_start);
	if (plan->chase_threads)
		json_chase(plan, json);
	if (plan->load) {
		json_text(json, "memload", plan->load->name);
		json_text(json, "memload_variant",
			  memload_variant(plan->load, plan->memory)->name);
		json_count(json, "delay", options->delay);
	}
	json_count(json, "samples", options->samples);
	json_flag(json, "timed", options->timed);
	json_flag(json, "average", options->average);
	json_number(json, "warmup_s", options->warmup);
	json_number(json, "interval_s", options->interval);
	json_end_object(json);
}
