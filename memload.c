/* SPDX-License-Identifier: Apache-2.0 */
#include "memload.h"

#include "options.h"
#include "timer.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* a = b + 3 c, as in McCalpin's STREAM. */
#define TRIAD_SCALAR 3.0

/*
 * Doubles of 32.5, words that are not 0: sums and triads of them grow, to
 * infinity at last, and are never subnormal, which would cost time, nor nan.
 */
#define FILL_BYTE 0x40

/*
 * What a call moves, so that calls and stamps cost nothing (some 40 ns of at
 * least 20 microseconds), and how many turns of the delay it may take, so that
 * it is over in some milliseconds.
 */
#define BYTES_PER_CALL ((size_t)4 << 20)
#define DELAY_TURNS_PER_CALL ((uint64_t)1 << 20)
#define LINES_PER_DELAY ((size_t)2)

/* The array that was written is read last in the pass after. */
static inline void rotate(struct load_work *work, size_t arrays)
{
	char *written = work->array[0];

	for (size_t i = 1; i < arrays; i++)
		work->array[i - 1] = work->array[i];
	work->array[arrays - 1] = written;
}

static inline void wait_turns(uint64_t turns)
{
	for (; turns; turns--)
		__asm__ __volatile__("nop");
}

static void load_memcpy(struct load_work *work)
{
	for (uint64_t pass = work->passes; pass; pass--) {
		memcpy(work->array[0], work->array[1], work->bytes);
		__asm__ __volatile__("" : : : "memory");
		rotate(work, 2);
	}
}

static void fill_passes(struct load_work *work, int byte)
{
	for (uint64_t pass = work->passes; pass; pass--) {
		memset(work->array[0], byte, work->bytes);
		__asm__ __volatile__("" : : : "memory");
	}
}

static void load_memset(struct load_work *work)
{
	fill_passes(work, FILL_BYTE);
}

static void load_memsetz(struct load_work *work)
{
	fill_passes(work, 0);
}

#if defined(__x86_64__)
#define OPAQUE(v) __asm__("" : "+x"(v))
#define STREAM_FENCE() _mm_sfence()
#elif defined(__aarch64__)
#define OPAQUE(v) __asm__("" : "+w"(v))
#define STREAM_FENCE() ((void)0)
#else
#define OPAQUE(v) __asm__("" : "+m"(v))
#define STREAM_FENCE() ((void)0)
#endif

/* What every CPU of the architecture has. */
#define VECTOR(name) name##_base
#define VECTOR_BYTES 16
#define VECTOR_TARGET
#if defined(__x86_64__)
#define STREAM(p, v) _mm_stream_pd((double *)(p), (v))
#elif defined(__aarch64__)
#define STREAM(p, v)                                                           \
	__asm__ __volatile__("stnp %d1, %d2, [%0]"                             \
			     :                                                 \
			     : "r"(p), "w"((v)[0]), "w"((v)[1])                \
			     : "memory")
#else
#define STREAM(p, v) (*(p) = (v))
#endif
#include "memload_vector.h"

#if defined(__x86_64__)
#define VECTOR(name) name##_avx2
#define VECTOR_BYTES 32
#define VECTOR_TARGET __attribute__((target("avx2,fma")))
#define STREAM(p, v) _mm256_stream_pd((double *)(p), (v))
#include "memload_vector.h"

#define VECTOR(name) name##_avx512
#define VECTOR_BYTES 64
#define VECTOR_TARGET __attribute__((target("avx512f")))
#define STREAM(p, v) _mm512_stream_pd((double *)(p), (v))
#include "memload_vector.h"

#define SELECT(name)                                                           \
	static load_kernel *select_##name(void)                                \
	{                                                                      \
		if (__builtin_cpu_supports("avx512f"))                         \
			return load_##name##_avx512;                           \
		if (__builtin_cpu_supports("avx2") &&                          \
		    __builtin_cpu_supports("fma"))                             \
			return load_##name##_avx2;                             \
		return load_##name##_base;                                     \
	}
#else
#define SELECT(name)                                                           \
	static load_kernel *select_##name(void)                                \
	{                                                                      \
		return load_##name##_base;                                     \
	}
#endif

#define SELECT_LIBC(name)                                                      \
	static load_kernel *select_##name(void)                                \
	{                                                                      \
		return load_##name;                                            \
	}

SELECT(sum)
SELECT(copy)
SELECT(triad)
SELECT(triad_delay)
SELECT_LIBC(memcpy)
SELECT_LIBC(memset)
SELECT_LIBC(memsetz)

static const struct memload memloads[] = {
	{.name = "memcpy-libc",
	 .help = "libc's memcpy of one half onto the other, swapping",
	 .reads = 1,
	 .writes = 1,
	 .arrays = 2,
	 .whole = true,
	 .select = select_memcpy},
	{.name = "memset-libc",
	 .help = "libc's memset to a byte that is not zero",
	 .writes = 1,
	 .arrays = 1,
	 .whole = true,
	 .select = select_memset},
	{.name = "memsetz-libc",
	 .help = "libc's memset to zero",
	 .writes = 1,
	 .arrays = 1,
	 .whole = true,
	 .select = select_memsetz},
	{.name = "stream-copy",
	 .help = "doubles, one half to the other, swapping",
	 .reads = 1,
	 .writes = 1,
	 .arrays = 2,
	 .select = select_copy},
	{.name = "stream-sum",
	 .help = "the sum of 64-bit words",
	 .reads = 1,
	 .arrays = 1,
	 .select = select_sum},
	{.name = "stream-triad",
	 .help = "a = b + 3 c on doubles, roles rotating",
	 .reads = 2,
	 .writes = 1,
	 .arrays = 3,
	 .select = select_triad},
	{.name = "stream-triad-nontemporal-injection-delay",
	 .help = "the same with non-temporal stores and -d",
	 .reads = 2,
	 .writes = 1,
	 .arrays = 3,
	 .delayed = true,
	 .select = select_triad_delay},
};

#define NR_MEMLOADS (sizeof(memloads) / sizeof(*memloads))

const struct memload *choose_memload(const char *text, struct error *error)
{
	size_t length = strlen(text);
	int found = find_name(memloads, NR_MEMLOADS, sizeof(*memloads), text,
			      length);
	char names[512] = "";

	if (found >= 0)
		return &memloads[found];
	if (found == NAME_UNKNOWN)
		length = 0; /* lists them all */
	list_names(names, sizeof(names), memloads, NR_MEMLOADS,
		   sizeof(*memloads), text, length);
	error_set(error, "-l %.200s: %s %s", *text ? text : "''",
		  found == NAME_UNKNOWN ? "unknown memload, expected one of"
					: "ambiguous, it could be",
		  names);
	return NULL;
}

size_t memload_min_bytes(const struct memload *load)
{
	return load->arrays * CACHE_LINE_BYTES;
}

void memload_fill(char *buffer, size_t bytes)
{
	memset(buffer, FILL_BYTE, bytes);
}

void print_memloads(FILE *out)
{
	fprintf(out, "\nMemloads (-l), with lines read:written and arrays:\n");
	for (size_t i = 0; i < NR_MEMLOADS; i++)
		fprintf(out, "  %-42s %u:%u  %zu  %s\n", memloads[i].name,
			memloads[i].reads, memloads[i].writes,
			memloads[i].arrays, memloads[i].help);
}

/* Bytes of each array that a call may move. */
static size_t bytes_per_call(const struct load_state *state)
{
	const size_t unit = LINES_PER_DELAY * CACHE_LINE_BYTES;
	size_t bytes = BYTES_PER_CALL / state->load->arrays;
	uint64_t delays;

	if (state->load->delayed && state->delay) {
		delays = DELAY_TURNS_PER_CALL / state->delay + 1;
		if (delays < bytes / unit)
			bytes = (size_t)delays * unit;
	}
	return bytes / unit * unit;
}

/* A version that is odd, or has changed meanwhile, says: read it again. */
static void stamp(struct load_state *state, uint64_t moved)
{
	uint32_t version =
		atomic_load_explicit(&state->version, memory_order_relaxed);

	atomic_store_explicit(&state->version, version + 1,
			      memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&state->moved, moved, memory_order_relaxed);
	atomic_store_explicit(&state->at_ns, now_ns(), memory_order_relaxed);
	atomic_store_explicit(&state->version, version + 2,
			      memory_order_release);
}

struct load_stamp memload_stamp(const struct load_state *state)
{
	struct load_stamp found;
	uint32_t before, after;

	do {
		before = atomic_load_explicit(&state->version,
					      memory_order_acquire);
		found.moved = atomic_load_explicit(&state->moved,
						   memory_order_relaxed);
		found.at_ns = atomic_load_explicit(&state->at_ns,
						   memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		after = atomic_load_explicit(&state->version,
					     memory_order_relaxed);
	} while (before % 2 || before != after);
	return found;
}

/* Passes of small arrays, and of all that must be moved in one go. */
static void run_passes(struct load_state *state, struct load_work *work,
		       load_kernel *kernel, size_t array, size_t most)
{
	uint64_t moved = 0;

	work->bytes = array;
	work->passes = array < most ? most / array : 1;
	do {
		kernel(work);
		moved += work->passes * array * state->load->arrays;
		stamp(state, moved);
	} while (!atomic_load_explicit(state->stop, memory_order_relaxed));
}

/* Slices of passes that would take long, so that stamps come often enough. */
static void run_slices(struct load_state *state, struct load_work *work,
		       load_kernel *kernel, size_t array, size_t most)
{
	const size_t arrays = state->load->arrays;
	uint64_t moved = 0;
	size_t at = 0;

	do {
		struct load_work slice = *work;

		slice.passes = 1;
		slice.bytes = array - at < most ? array - at : most;
		for (size_t i = 0; i < arrays; i++)
			slice.array[i] += at;
		kernel(&slice);
		work->sum = slice.sum;
		moved += slice.bytes * arrays;
		at += slice.bytes;
		if (at == array) {
			at = 0;
			rotate(work, arrays);
		}
		stamp(state, moved);
	} while (!atomic_load_explicit(state->stop, memory_order_relaxed));
}

void memload_run(struct load_state *state)
{
	const struct memload *load = state->load;
	const size_t array = state->bytes / load->arrays / CACHE_LINE_BYTES *
			     CACHE_LINE_BYTES;
	const size_t most = bytes_per_call(state);
	struct load_work work = {.delay = state->delay};

	for (size_t i = 0; i < load->arrays; i++)
		work.array[i] = state->buffer + i * array;
	stamp(state, 0);
	if (load->whole || array <= most)
		run_passes(state, &work, load->select(), array, most);
	else
		run_slices(state, &work, load->select(), array, most);
	/* The result is used, so the loads are made. */
	__asm__ __volatile__("" : : "r"(&work) : "memory");
}
