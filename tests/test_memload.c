/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kernel of every memload, in all variants that this CPU can run,
 * against a plain loop: results, bytes, and nothing written beside them. With
 * an argument, only variants of that name.
 */
#include "memload.h"

#include "machine.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE CACHE_LINE_BYTES
#define FILL 0x40 /* what memset-libc writes */
#define GUARD_LINES 3
#define GUARD_BYTE 0xa5
#define MAX_UNITS 41 /* past two turns of the widest vectors */
#define MAX_PASSES 5 /* past a full turn of the roles of four arrays */
#define NR_OFFSETS 3

static size_t page;

/* What a load does to the same bytes of its arrays, told plainly. */
typedef void plain_pass(char *const *array, size_t bytes, uint64_t *sum);

static double *doubles(char *array)
{
	return (double *)array;
}

static void plain_copy(char *const *array, size_t bytes, uint64_t *sum)
{
	(void)sum;
	for (size_t i = 0; i < bytes; i++)
		array[0][i] = array[1][i];
}

static void plain_fill(char *const *array, size_t bytes, uint64_t *sum)
{
	(void)sum;
	for (size_t i = 0; i < bytes; i++)
		array[0][i] = FILL;
}

static void plain_zero(char *const *array, size_t bytes, uint64_t *sum)
{
	(void)sum;
	for (size_t i = 0; i < bytes; i++)
		array[0][i] = 0;
}

static void plain_sum(char *const *array, size_t bytes, uint64_t *sum)
{
	for (size_t i = 0; i < bytes; i += sizeof(*sum)) {
		uint64_t word;

		memcpy(&word, array[0] + i, sizeof(word));
		*sum += word;
	}
}

static void plain_triad(char *const *array, size_t bytes, uint64_t *sum)
{
	(void)sum;
	for (size_t i = 0; i < bytes / sizeof(double); i++)
		doubles(array[0])[i] =
			doubles(array[1])[i] + 3 * doubles(array[2])[i];
}

static void plain_add3(char *const *array, size_t bytes, uint64_t *sum)
{
	(void)sum;
	for (size_t i = 0; i < bytes / sizeof(double); i++)
		doubles(array[0])[i] = doubles(array[1])[i] +
				       doubles(array[2])[i] +
				       doubles(array[3])[i];
}

static const struct {
	const char *name;
	plain_pass *pass;
} plain[] = {
	{"memcpy-libc", plain_copy},
	{"memset-libc", plain_fill},
	{"memsetz-libc", plain_zero},
	{"stream-copy", plain_copy},
	{"stream-sum", plain_sum},
	{"stream-triad", plain_triad},
	{"stream-triad-nontemporal-injection-delay", plain_triad},
	{"stream-add3", plain_add3},
	{"nontemporal-copy", plain_copy},
	{"nontemporal-triad", plain_triad},
	{"zero-read", plain_zero},
	{"zero-fault", plain_zero},
	{"zero-dczva", plain_zero},
	{"zero-stp", plain_zero},
	{"zero-stnp", plain_zero},
};

static plain_pass *plain_of(const struct memload *load)
{
	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
		if (strcmp(plain[i].name, load->name) == 0)
			return plain[i].pass;
	return NULL;
}

/* Two buffers with the same bytes: one for the kernel, one for the loop. */
static char *real, *model;
static size_t buffer_bytes;

static void map_buffers(size_t bytes)
{
	char *both = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (both == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	real = both;
	model = both + bytes;
	buffer_bytes = bytes;
}

static void unmap_buffers(void)
{
	munmap(real, 2 * buffer_bytes);
}

/*
 * Small whole numbers, of which some dozen passes make no more than what a
 * double holds exactly, whether or not products are rounded before additions.
 */
static void write_numbers(char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes / sizeof(double); i++)
		doubles(at)[i] = (double)(i * 7 % 101 + 1);
}

/* Passes over arrays side by side; the written array is read last next. */
static uint64_t run_plain(const struct memload *load, char *start,
			  size_t array_bytes, uint64_t passes, size_t rest)
{
	char *array[MAX_ARRAYS];
	uint64_t sum = 0;

	for (size_t i = 0; i < load->arrays; i++)
		array[i] = start + i * array_bytes;
	for (; passes; passes--) {
		char *written = array[0];

		plain_of(load)(array, array_bytes, &sum);
		for (size_t i = 1; i < load->arrays; i++)
			array[i - 1] = array[i];
		array[load->arrays - 1] = written;
	}
	plain_of(load)(array, rest, &sum); /* of a pass that is cut short */
	return sum;
}

/* One call, on arrays of so many units, that far into a page. */
static bool call_matches(const struct memload *load,
			 const struct load_variant *variant, size_t unit,
			 size_t units, size_t offset, uint64_t passes)
{
	const size_t bytes = units * unit;
	char *const start = real + page + offset;
	struct load_work work = {
		.bytes = bytes, .passes = passes, .delay = 2, .page = page};
	uint64_t sum;

	memset(real, GUARD_BYTE, buffer_bytes);
	write_numbers(start, load->arrays * bytes);
	memcpy(model, real, buffer_bytes);
	for (size_t i = 0; i < load->arrays; i++)
		work.array[i] = start + i * bytes;
	if (load->open && !load->open(&work))
		return false;
	variant->kernel(&work);
	if (load->open)
		close(work.zeros);
	sum = run_plain(load, model + page + offset, bytes, passes, 0);
	return !work.failure && work.sum == sum &&
	       memcmp(real, model, buffer_bytes) == 0;
}

/* Every size, place in a page and number of passes. */
static void test_variant(const struct memload *load,
			 const struct load_variant *variant)
{
	const size_t unit = memload_min_bytes(load, page) / load->arrays;
	const size_t offsets[NR_OFFSETS] = {0, unit, 7 * unit};
	bool good = true;

	if ((load->available && !load->available()) ||
	    (variant->available && !variant->available())) {
		ok(1, "%s, %s # SKIP this CPU lacks it", load->name,
		   variant->name);
		return;
	}
	map_buffers(2 * page + (7 + MAX_ARRAYS * MAX_UNITS) * unit);
	for (size_t units = 1; good && units <= MAX_UNITS; units++)
		for (size_t i = 0; good && i < NR_OFFSETS; i++)
			for (uint64_t passes = 1; good && passes <= MAX_PASSES;
			     passes++) {
				good = call_matches(load, variant, unit, units,
						    offsets[i], passes);
				if (!good)
					printf("# %zu units of %zu at %zu, "
					       "%llu passes\n",
					       units, unit, offsets[i],
					       (unsigned long long)passes);
			}
	unmap_buffers();
	ok(good, "%s, %s: results of every size and place", load->name,
	   variant->name);
}

/* Whatever the size, what is run can be. */
static void test_choice(const struct memload *load)
{
	const struct load_variant *variant = NULL;
	bool good = true;

	for (size_t bytes = LINE; bytes <= (size_t)1 << 30; bytes *= 2) {
		variant = memload_variant(load, bytes);
		good &= !variant->available || variant->available();
	}
	ok(good, "%s: the variant that is run, %s, can be", load->name,
	   variant->name);
}

static void test_variants(const struct memload *load, const char *only)
{
	const struct load_variant *variant = load->variants;
	bool last;

	do {
		last = !variant->available;
		if (!only || strcmp(variant->name, only) == 0)
			test_variant(load, variant);
		variant++;
	} while (!last);
	test_choice(load);
}

/* Stands between memload_run() and a kernel, and ends the run. */
static struct {
	load_kernel *kernel;
	uint64_t calls, bytes; /* left to come; of an array, moved */
	atomic_bool stop;
} relay;

static void relay_call(struct load_work *work)
{
	relay.kernel(work);
	relay.bytes += work->bytes * work->passes;
	if (--relay.calls == 0)
		atomic_store(&relay.stop, true);
}

/* Runs the load as a thread does, for so many calls of its kernel. */
static bool run_matches(const struct memload *load, size_t bytes,
			uint64_t calls)
{
	struct load_state state = {
		.load = load,
		.bytes = bytes,
		.page = page,
		.delay = 1,
		.stop = &relay.stop,
	};
	struct load_stamp stamp;
	struct error error;
	size_t array, rest;
	uint64_t sum, passes;
	bool good;

	map_buffers((bytes + page - 1) / page * page);
	state.buffer = real;
	good = memload_prepare(&state, &error);
	array = state.work.bytes;
	write_numbers(real, bytes);
	memcpy(model, real, bytes);
	relay.kernel = state.kernel;
	relay.calls = calls;
	relay.bytes = 0;
	atomic_store(&relay.stop, false);
	state.kernel = relay_call;
	good = good && memload_run(&state, &error);
	passes = relay.bytes / array;
	rest = (size_t)(relay.bytes % array);
	sum = run_plain(load, model, array, passes, rest);
	good = good && state.work.sum == sum &&
	       memcmp(real, model, bytes) == 0 &&
	       memload_stamp(&state, &stamp) &&
	       stamp.moved == relay.bytes * load->arrays && stamp.at_ns != 0;
	if (!good)
		printf("# %llu passes and %zu of %zu bytes\n",
		       (unsigned long long)passes, rest, array);
	if (load->open)
		close(state.work.zeros);
	unmap_buffers();
	return good;
}

static void test_runs(const struct memload *load)
{
	const size_t odd = 3 * LINE;

	ok(run_matches(load, (768 << 10) + odd, 2),
	   "%s: batches of passes move what they count", load->name);
	ok(run_matches(load, (9 << 20) + odd, 1) &&
		   run_matches(load, (9 << 20) + odd, 8),
	   "%s: slices do as whole passes do, and count so", load->name);
}

/* Subnormal numbers and nan take some CPUs a hundred times as long. */
static void test_values(const struct memload *load)
{
	struct load_state state = {
		.load = load, .page = page, .stop = &relay.stop};
	struct error error;
	bool good;

	map_buffers(MAX_ARRAYS * page);
	state.buffer = real;
	state.bytes = load->arrays * page;
	good = memload_prepare(&state, &error);
	state.work.passes = 1;
	for (unsigned pass = 0; good && pass < 2000; pass++) {
		state.kernel(&state.work);
		for (size_t i = 0; i < state.bytes / sizeof(double); i++) {
			int kind = fpclassify(doubles(real)[i]);

			good &= kind != FP_NAN && kind != FP_SUBNORMAL;
		}
	}
	if (load->open)
		close(state.work.zeros);
	unmap_buffers();
	ok(good, "%s: no value is nan or subnormal", load->name);
}

static bool chooses(const char *text, const char *name)
{
	struct error error;
	const struct memload *load = choose_memload(text, &error);

	return name ? load && strcmp(load->name, name) == 0 : !load;
}

/* What was typed before there were more loads means what it meant. */
static void test_names(void)
{
	static const char *const typed[][2] = {
		{"memc", "memcpy-libc"},
		{"memset-", "memset-libc"},
		{"memsetz", "memsetz-libc"},
		{"stream-c", "stream-copy"},
		{"stream-s", "stream-sum"},
		{"stream-triad", "stream-triad"},
		{"stream-triad-", "stream-triad-nontemporal-injection-delay"},
		{"stream-t", NULL},
		{"stream", NULL},
		{"mem", NULL},
	};
	const struct memload *one, *other;

	for (size_t i = 0; i < sizeof(typed) / sizeof(*typed); i++)
		ok(chooses(typed[i][0], typed[i][1]), "-l %s: %s", typed[i][0],
		   typed[i][1] ? typed[i][1] : "ambiguous");
	for (size_t i = 0; (one = memload_row(i)); i++)
		for (size_t j = 0; (other = memload_row(j)); j++)
			if (i != j && strcmp(one->name, "stream-triad") &&
			    strncmp(one->name, other->name,
				    strlen(one->name)) == 0)
				ok(0, "%s begins as %s does", other->name,
				   one->name);
}

static void prepare_fails(const char *name, const char *word)
{
	struct error error = {""};
	struct load_state state = {.load = choose_memload(name, &error),
				   .buffer = real,
				   .bytes = page,
				   .page = page};
	bool prepared = memload_prepare(&state, &error);

	ok(!prepared && strstr(error.text, name) && strstr(error.text, word),
	   "%s cannot start: %s", name, prepared ? "it can" : error.text);
}

/* What the system refuses is said before the start, and in the midst. */
static void test_refusals(void)
{
	struct rlimit files, none;
	struct error error = {""};
	struct load_state state = {
		.load = choose_memload("zero-read", &error),
		.bytes = page,
		.page = page,
		.stop = &relay.stop,
	};
	bool good;

	map_buffers(page);
	state.buffer = real;
	good = memload_prepare(&state, &error);
	close(state.work.zeros);
	atomic_store(&relay.stop, false);
	ok(good && !memload_run(&state, &error) &&
		   strstr(error.text, "/dev/zero"),
	   "zero-read ends when it cannot read: %s", error.text);
	getrlimit(RLIMIT_NOFILE, &files);
	none = files;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &none);
	prepare_fails("zero-read", "/dev/zero");
	setrlimit(RLIMIT_NOFILE, &files);
	/* Not by libc's mlock(), of which AddressSanitizer makes nothing. */
	if (syscall(SYS_mlock, real, page) == 0)
		prepare_fails("zero-fault", "MADV_DONTNEED");
	else
		ok(1, "zero-fault cannot start # SKIP no memory can be locked");
	unmap_buffers();
}

/* A thread that has lost its CPU in the midst of it is not waited for. */
static void test_stamp(void)
{
	static struct load_state state;
	struct load_stamp stamp = {.moved = 1, .at_ns = 2};

	atomic_store(&state.moved, 3);
	atomic_store(&state.at_ns, 4);
	atomic_store(&state.version, 1);
	ok(!memload_stamp(&state, &stamp) && stamp.moved == 1 &&
		   stamp.at_ns == 2,
	   "a stamp that is being made is none");
	atomic_store(&state.version, 2);
	ok(memload_stamp(&state, &stamp) && stamp.moved == 3 &&
		   stamp.at_ns == 4,
	   "a stamp that has been made is read");
}

/* Pages that come anew are faults that the kernel counts. */
static void test_faults(void)
{
	enum { PAGES = 64, PASSES = 5 };
	struct error error;
	const struct memload *load = choose_memload("zero-fault", &error);
	struct load_work work = {.passes = PASSES, .page = page};
	struct rusage before, after;

	map_buffers(PAGES * page);
	work.array[0] = real;
	work.bytes = PAGES * page;
	memset(real, FILL, PAGES * page);
	getrusage(RUSAGE_SELF, &before);
	memload_variant(load, work.bytes)->kernel(&work);
	getrusage(RUSAGE_SELF, &after);
	ok(after.ru_minflt - before.ru_minflt >= PAGES * PASSES,
	   "zero-fault: %ld faults for %d pages in %d passes",
	   after.ru_minflt - before.ru_minflt, PAGES, PASSES);
	unmap_buffers();
}

static void test_load(const struct memload *load, const char *only)
{
	if (!ok(plain_of(load) && load->reads + load->writes == load->arrays,
		"%s: its arrays are read and written as it says", load->name))
		return;
	test_variants(load, only);
	if (only || (load->available && !load->available()))
		return;
	test_runs(load);
	test_values(load);
}

int main(int argc, char **argv)
{
	const struct memload *load;

	page = native_page_size();
#if defined(__aarch64__)
	printf("# SVE vectors of %d bytes\n",
	       prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK);
#endif
	for (size_t i = 0; (load = memload_row(i)); i++)
		test_load(load, argc > 1 ? argv[1] : NULL);
	if (argc == 1) {
		test_names();
		test_refusals();
		test_stamp();
		test_faults();
	}
	return tap_end();
}
