/* SPDX-License-Identifier: Apache-2.0 */
#include "memload.h"

#include "machine.h"
#include "options.h"
#include "timer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
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

/*
 * OPAQUE(v) hides a vector's value. STREAM_LINE(to, VALUE) stores a line of
 * vectors, VALUE(i) each, past the caches; STREAM_FENCE() waits for such lines.
 */
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
#define STREAM(to, i, VALUE) _mm_stream_pd((double *)((to) + (i)), VALUE(i))
#define STREAM_LINE(to, VALUE)                                                 \
	(STREAM(to, 0, VALUE), STREAM(to, 1, VALUE), STREAM(to, 2, VALUE),     \
	 STREAM(to, 3, VALUE))
#elif defined(__aarch64__)
#define STREAM_LINE(to, VALUE)                                                 \
	__asm__ __volatile__("stnp %q1, %q2, [%0]\n\t"                         \
			     "stnp %q3, %q4, [%0, #32]"                        \
			     :                                                 \
			     : "r"(to), "w"(VALUE(0)), "w"(VALUE(1)),          \
			       "w"(VALUE(2)), "w"(VALUE(3))                    \
			     : "memory")
#else
#define STREAM_LINE(to, VALUE)                                                 \
	do {                                                                   \
		for (size_t i = 0; i < LINE_VECTORS; i++)                      \
			(to)[i] = VALUE(i);                                    \
	} while (0)
#endif
#include "memload_vector.h"

#if defined(__x86_64__)
#undef STREAM
#define STREAM(to, i, VALUE) _mm256_stream_pd((double *)((to) + (i)), VALUE(i))
#define VECTOR(name) name##_avx2
#define VECTOR_BYTES 32
#define VECTOR_TARGET __attribute__((target("avx2,fma")))
#define STREAM_LINE(to, VALUE) (STREAM(to, 0, VALUE), STREAM(to, 1, VALUE))
#include "memload_vector.h"

#define VECTOR(name) name##_avx512
#define VECTOR_BYTES 64
#define VECTOR_TARGET __attribute__((target("avx512f")))
#define STREAM_LINE(to, VALUE) _mm512_stream_pd((double *)(to), VALUE(0))
#include "memload_vector.h"

static bool have_avx512(void)
{
	return __builtin_cpu_supports("avx512f");
}

static bool have_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/*
 * Zen 4, family 19h with AVX-512, makes two halves of 512 bits: 32-byte vectors
 * were never slower there, and up to 19 % faster. In memory, on native pages,
 * 16-byte ones were 5 to 20 % faster still, stores past the caches excepted:
 * so beyond the third-level cache of a core complex.
 */
#define ZEN4_FAMILY 0x19
#define ZEN4_THIRD_LEVEL_BYTES ((size_t)32 << 20)

static bool is_zen4(void)
{
	unsigned eax, ebx, ecx, edx;

	return __builtin_cpu_is("amd") && have_avx512() &&
	       __get_cpuid(1, &eax, &ebx, &ecx, &edx) &&
	       (eax >> 8 & 15) + (eax >> 20 & 255) == ZEN4_FAMILY;
}

static bool suits_avx512(size_t buffer_bytes)
{
	(void)buffer_bytes;
	return !is_zen4();
}

static bool suits_avx2(size_t buffer_bytes)
{
	return buffer_bytes <= ZEN4_THIRD_LEVEL_BYTES || !is_zen4();
}

#define WIDER(load)                                                            \
	{"avx512", have_avx512, suits_avx512, load_##load##_avx512},           \
		{"avx2", have_avx2, suits_avx2, load_##load##_avx2},
#define WIDER_NONTEMPORAL(load)                                                \
	{"avx512", have_avx512, suits_avx512, load_##load##_avx512},           \
		{"avx2", have_avx2, NULL, load_##load##_avx2},
#elif defined(__aarch64__)
#include "memload_sve.h"

static bool have_sve(void)
{
	return getauxval(AT_HWCAP) & HWCAP_SVE;
}

/* STNP of two q registers, 32 bytes, has no equal among SVE's stores. */
#define WIDER(load) {"sve", have_sve, NULL, load_##load##_sve},
#define WIDER_NONTEMPORAL(load)
#else
#define WIDER(load)
#define WIDER_NONTEMPORAL(load)
#endif

#include "memload_zero.h"

#define VARIANTS(load)                                                         \
	static const struct load_variant load##_variants[] = {                 \
		WIDER(load){"base", NULL, NULL, load_##load##_base}}
#define VARIANTS_NONTEMPORAL(load)                                             \
	static const struct load_variant load##_variants[] = {                 \
		WIDER_NONTEMPORAL(load){"base", NULL, NULL,                    \
					load_##load##_base}}
#define NO_VARIANTS(load)                                                      \
	static const struct load_variant load##_variants[] = {                 \
		{"base", NULL, NULL, load_##load}}

VARIANTS(sum);
VARIANTS(copy);
VARIANTS(triad);
VARIANTS(add3);
VARIANTS_NONTEMPORAL(nontemporal_copy);
VARIANTS_NONTEMPORAL(nontemporal_triad);
NO_VARIANTS(memcpy);
NO_VARIANTS(memset);
NO_VARIANTS(memsetz);
NO_VARIANTS(zero_read);
NO_VARIANTS(zero_fault);
#if defined(__aarch64__)
NO_VARIANTS(zero_dczva);
NO_VARIANTS(zero_stp);
NO_VARIANTS(zero_stnp);
#endif

static const struct memload memloads[] = {
	{.name = "memcpy-libc",
	 .help = "libc's memcpy of one half onto the other, swapping",
	 .reads = 1,
	 .writes = 1,
	 .arrays = 2,
	 .whole = true,
	 .variants = memcpy_variants},
	{.name = "memset-libc",
	 .help = "libc's memset to a byte that is not zero",
	 .writes = 1,
	 .arrays = 1,
	 .whole = true,
	 .variants = memset_variants},
	{.name = "memsetz-libc",
	 .help = "libc's memset to zero",
	 .writes = 1,
	 .arrays = 1,
	 .whole = true,
	 .variants = memsetz_variants},
	{.name = "stream-copy",
	 .help = "doubles, one half to the other, swapping",
	 .reads = 1,
	 .writes = 1,
	 .arrays = 2,
	 .variants = copy_variants},
	{.name = "stream-sum",
	 .help = "the sum of 64-bit words",
	 .reads = 1,
	 .arrays = 1,
	 .variants = sum_variants},
	{.name = "stream-triad",
	 .help = "a = b + 3 c on doubles, roles rotating",
	 .reads = 2,
	 .writes = 1,
	 .arrays = 3,
	 .variants = triad_variants},
	{.name = "stream-triad-nontemporal-injection-delay",
	 .help = "the same with non-temporal stores and -d",
	 .reads = 2,
	 .writes = 1,
	 .arrays = 3,
	 .delayed = true,
	 .variants = nontemporal_triad_variants},
	{.name = "stream-add3",
	 .help = "a = b + c + d on doubles, roles rotating",
	 .reads = 3,
	 .writes = 1,
	 .arrays = 4,
	 .variants = add3_variants},
	{.name = "nontemporal-copy",
	 .help = "stream-copy with non-temporal stores",
	 .reads = 1,
	 .writes = 1,
	 .arrays = 2,
	 .variants = nontemporal_copy_variants},
	{.name = "nontemporal-triad",
	 .help = "stream-triad with non-temporal stores",
	 .reads = 2,
	 .writes = 1,
	 .arrays = 3,
	 .variants = nontemporal_triad_variants},
	{.name = "zero-read",
	 .help = "the kernel zeroes: pread of /dev/zero, 100 KiB a call",
	 .writes = 1,
	 .arrays = 1,
	 .piece = ZERO_READ_BYTES,
	 .system_call = "pread of /dev/zero",
	 .open = open_zeros,
	 .variants = zero_read_variants},
	{.name = "zero-fault",
	 .help = "the kernel zeroes: pages dropped, then touched anew",
	 .writes = 1,
	 .arrays = 1,
	 .unit = whole_pages,
	 .system_call = "madvise(MADV_DONTNEED)",
	 .variants = zero_fault_variants},
#if defined(__aarch64__)
	{.name = "zero-dczva",
	 .help = "zeroed by DC ZVA",
	 .writes = 1,
	 .arrays = 1,
	 .unit = whole_blocks,
	 .available = have_dczva,
	 .variants = zero_dczva_variants},
	{.name = "zero-stp",
	 .help = "zeroed by pairs of stores",
	 .writes = 1,
	 .arrays = 1,
	 .variants = zero_stp_variants},
	{.name = "zero-stnp",
	 .help = "zeroed by pairs of non-temporal stores",
	 .writes = 1,
	 .arrays = 1,
	 .variants = zero_stnp_variants},
#endif
};

#define NR_MEMLOADS (sizeof(memloads) / sizeof(*memloads))

const struct memload *choose_memload(const char *text, struct error *error)
{
	size_t length = strlen(text);
	int found = find_name(memloads, NR_MEMLOADS, sizeof(*memloads), text,
			      length);
	char names[512] = "";

	if (found >= 0) {
		if (!memloads[found].available || memloads[found].available())
			return &memloads[found];
		error_set(error, "-l %.200s: this CPU does not allow it", text);
		return NULL;
	}
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

const struct memload *memload_row(size_t i)
{
	return i < NR_MEMLOADS ? &memloads[i] : NULL;
}

const struct load_variant *memload_variant(const struct memload *load,
					   size_t buffer_bytes)
{
	const struct load_variant *variant = load->variants;

	while (variant->available &&
	       !(variant->available() &&
		 (!variant->suits || variant->suits(buffer_bytes))))
		variant++;
	return variant;
}

/* What each array is a multiple of. */
static size_t array_unit(const struct memload *load, size_t page)
{
	size_t unit = load->unit ? load->unit(page) : CACHE_LINE_BYTES;

	return unit < CACHE_LINE_BYTES ? CACHE_LINE_BYTES : unit;
}

size_t memload_min_bytes(const struct memload *load, size_t page)
{
	return load->arrays * array_unit(load, page);
}

void print_memloads(FILE *out)
{
	fprintf(out,
		"\nMemloads (-l), with lines read:written, and the arrays that "
		"the buffer is cut into,\nall bytes of which are moved, and "
		"counted, in each pass:\n");
	for (size_t i = 0; i < NR_MEMLOADS; i++)
		fprintf(out, "  %-42s %u:%u  %zu  %s\n", memloads[i].name,
			memloads[i].reads, memloads[i].writes,
			memloads[i].arrays, memloads[i].help);
	fprintf(out, "Where the kernel zeroes, what it clears is counted; the "
		     "touch of a page is in that.\n");
}

/* What a call moves of each array, or a multiple of it. */
static size_t piece_bytes(const struct load_state *state)
{
	const struct memload *load = state->load;
	const size_t unit = array_unit(load, state->page);
	size_t piece =
		load->piece ? load->piece : LINES_PER_DELAY * CACHE_LINE_BYTES;

	return piece < unit ? unit : piece;
}

/* Bytes of each array that a call may move. */
static size_t bytes_per_call(const struct load_state *state)
{
	const size_t piece = piece_bytes(state);
	size_t bytes = BYTES_PER_CALL / state->load->arrays;
	uint64_t delays;

	if (state->work.delay) {
		delays = DELAY_TURNS_PER_CALL / state->work.delay + 1;
		if (delays < bytes / piece)
			bytes = (size_t)delays * piece;
	}
	return bytes < piece ? piece : bytes / piece * piece;
}

/* Whether a call went well. */
static bool check_call(const struct load_state *state,
		       const struct load_work *work, struct error *error)
{
	return !work->failure ||
	       error_set(error, "-l %s: %s: %s; choose another load",
			 state->load->name, state->load->system_call,
			 strerror(work->failure));
}

/* What the system refuses, it refuses for the first piece. */
static bool try_piece(const struct load_state *state, struct error *error)
{
	const size_t piece = piece_bytes(state);
	struct load_work work = state->work;

	work.passes = 1;
	if (work.bytes > piece)
		work.bytes = piece;
	state->kernel(&work);
	return check_call(state, &work, error);
}

bool memload_prepare(struct load_state *state, struct error *error)
{
	const struct memload *load = state->load;
	const size_t unit = array_unit(load, state->page);
	struct load_work *work = &state->work;

	memset(state->buffer, FILL_BYTE, state->bytes);
	state->kernel = memload_variant(load, state->bytes)->kernel;
	*work = (struct load_work){
		.bytes = state->bytes / load->arrays / unit * unit,
		.delay = load->delayed ? state->delay : 0,
		.page = native_page_size(),
	};
	for (size_t i = 0; i < load->arrays; i++)
		work->array[i] = state->buffer + i * work->bytes;
	if (load->open && !load->open(work))
		return check_call(state, work, error);
	return !load->system_call || try_piece(state, error);
}

/* A version that is odd, or has changed meanwhile, says: read it again. */
static void stamp(struct load_state *state, uint64_t moved)
{
	const uint64_t now = now_ns();
	uint32_t version =
		atomic_load_explicit(&state->version, memory_order_relaxed);

	atomic_store_explicit(&state->version, version + 1,
			      memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&state->moved, moved, memory_order_relaxed);
	atomic_store_explicit(&state->at_ns, now, memory_order_relaxed);
	atomic_store_explicit(&state->version, version + 2,
			      memory_order_release);
}

/* A thread that lost its CPU while it stamps would be waited for. */
#define MAX_TRIES 1000

bool memload_stamp(const struct load_state *state, struct load_stamp *found)
{
	for (unsigned tries = 0; tries < MAX_TRIES; tries++) {
		const uint32_t before = atomic_load_explicit(
			&state->version, memory_order_acquire);
		const struct load_stamp stamp = {
			.moved = atomic_load_explicit(&state->moved,
						      memory_order_relaxed),
			.at_ns = atomic_load_explicit(&state->at_ns,
						      memory_order_relaxed),
		};
		atomic_thread_fence(memory_order_acquire);
		if (before % 2 == 0 &&
		    before == atomic_load_explicit(&state->version,
						   memory_order_relaxed)) {
			*found = stamp;
			return true;
		}
	}
	return false;
}

/* Passes of small arrays, and of all that must be moved in one go. */
static void run_passes(struct load_state *state, size_t most)
{
	struct load_work *work = &state->work;
	uint64_t moved = 0;

	work->passes = work->bytes < most ? most / work->bytes : 1;
	do {
		state->kernel(work);
		moved += work->passes * work->bytes * state->load->arrays;
		stamp(state, moved);
	} while (!work->failure &&
		 !atomic_load_explicit(state->stop, memory_order_relaxed));
}

/* Slices of passes that would take long, so that stamps come often enough. */
static void run_slices(struct load_state *state, size_t most)
{
	const size_t arrays = state->load->arrays;
	struct load_work *work = &state->work;
	uint64_t moved = 0;
	size_t at = 0;

	do {
		struct load_work slice = *work;

		slice.passes = 1;
		slice.bytes = work->bytes - at < most ? work->bytes - at : most;
		for (size_t i = 0; i < arrays; i++)
			slice.array[i] += at;
		state->kernel(&slice);
		work->sum = slice.sum;
		work->failure = slice.failure;
		moved += slice.bytes * arrays;
		at += slice.bytes;
		if (at == work->bytes) {
			at = 0;
			rotate(work, arrays);
		}
		stamp(state, moved);
	} while (!work->failure &&
		 !atomic_load_explicit(state->stop, memory_order_relaxed));
}

bool memload_run(struct load_state *state, struct error *error)
{
	const size_t most = bytes_per_call(state);

	stamp(state, 0);
	if (state->load->whole || state->work.bytes <= most)
		run_passes(state, most);
	else
		run_slices(state, most);
	/* The result is used, so the loads are made. */
	__asm__ __volatile__("" : : "r"(&state->work) : "memory");
	return check_call(state, &state->work, error);
}
