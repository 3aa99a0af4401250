/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream kernels for one width of vector. memload.c includes this once for
 * each, with VECTOR(name) giving the kernels their names, VECTOR_BYTES the
 * width, VECTOR_TARGET the instruction set, OPAQUE(v) hiding a value from the
 * compiler, and STREAM_LINE(to, VALUE) storing a line past the caches, VALUE(i)
 * being its vector i.
 */

/* Vectors in a turn of a loop: enough to hide the latency of what is done. */
#define TURN 8
#define FOR_TURN(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

typedef uint64_t VECTOR(words)
	__attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef double VECTOR(doubles)
	__attribute__((vector_size(VECTOR_BYTES), may_alias));

#define WORDS VECTOR(words)
#define DOUBLES VECTOR(doubles)
#define VECTORS(bytes) ((bytes) / VECTOR_BYTES)
#define LINE_VECTORS ((size_t)CACHE_LINE_BYTES / VECTOR_BYTES)
#define TWO_LINES (2 * LINE_VECTORS)

/* Eight sums, so that the chain of no sum is what takes the time. */
VECTOR_TARGET static void VECTOR(load_sum)(struct load_work *work)
{
	const WORDS *const begin = (const WORDS *)work->array[0];
	const WORDS *const end = begin + VECTORS(work->bytes);
#define CLEAR(i) WORDS sum##i = {0};
	FOR_TURN(CLEAR)
#undef CLEAR

	for (uint64_t pass = work->passes; pass; pass--) {
		const WORDS *from = begin;

		for (; from + TURN <= end; from += TURN) {
#define ADD(i) sum##i += from[i];
			FOR_TURN(ADD)
#undef ADD
		}
		for (; from < end; from++)
			sum0 += *from;
		/* A pass may not be taken for the one before. */
		__asm__ __volatile__("" : : : "memory");
	}
	sum0 += sum1 + sum2 + sum3 + sum4 + sum5 + sum6 + sum7;
	for (size_t i = 0; i < VECTOR_BYTES / sizeof(uint64_t); i++)
		work->sum += sum0[i];
}

/* The values pass unseen, or a compiler would call memcpy here. */
VECTOR_TARGET static void VECTOR(load_copy)(struct load_work *work)
{
	for (uint64_t pass = work->passes; pass; pass--) {
		DOUBLES *to = (DOUBLES *)work->array[0];
		const DOUBLES *from = (const DOUBLES *)work->array[1];
		const DOUBLES *const end = from + VECTORS(work->bytes);

		for (; from + TURN <= end; from += TURN, to += TURN) {
			DOUBLES value[TURN];

#define GET(i) value[i] = from[i];
#define PUT(i)                                                                 \
	OPAQUE(value[i]);                                                      \
	to[i] = value[i];
			FOR_TURN(GET)
			FOR_TURN(PUT)
#undef GET
#undef PUT
		}
		for (; from < end; from++, to++) {
			DOUBLES value = *from;

			OPAQUE(value);
			*to = value;
		}
		rotate(work, 2);
	}
}

VECTOR_TARGET static void VECTOR(load_triad)(struct load_work *work)
{
	for (uint64_t pass = work->passes; pass; pass--) {
		DOUBLES *a = (DOUBLES *)work->array[0];
		const DOUBLES *b = (const DOUBLES *)work->array[1];
		const DOUBLES *c = (const DOUBLES *)work->array[2];
		const DOUBLES *const end = b + VECTORS(work->bytes);

		for (; b + TURN <= end; a += TURN, b += TURN, c += TURN) {
#define TRIAD(i) a[i] = b[i] + TRIAD_SCALAR * c[i];
			FOR_TURN(TRIAD)
#undef TRIAD
		}
		for (; b < end; a++, b++, c++)
			*a = *b + TRIAD_SCALAR * *c;
		rotate(work, 3);
	}
}

VECTOR_TARGET static void VECTOR(load_add3)(struct load_work *work)
{
	for (uint64_t pass = work->passes; pass; pass--) {
		DOUBLES *a = (DOUBLES *)work->array[0];
		const DOUBLES *b = (const DOUBLES *)work->array[1];
		const DOUBLES *c = (const DOUBLES *)work->array[2];
		const DOUBLES *d = (const DOUBLES *)work->array[3];
		const DOUBLES *const end = b + VECTORS(work->bytes);

		for (; b + TURN <= end;
		     a += TURN, b += TURN, c += TURN, d += TURN) {
#define ADD(i) a[i] = b[i] + c[i] + d[i];
			FOR_TURN(ADD)
#undef ADD
		}
		for (; b < end; a++, b++, c++, d++)
			*a = *b + *c + *d;
		rotate(work, 4);
	}
}

/* Two lines a turn, as the delay is before every two. */
VECTOR_TARGET static void VECTOR(load_nontemporal_copy)(struct load_work *work)
{
	for (uint64_t pass = work->passes; pass; pass--) {
		DOUBLES *to = (DOUBLES *)work->array[0];
		const DOUBLES *from = (const DOUBLES *)work->array[1];
		const DOUBLES *const end = from + VECTORS(work->bytes);

#define FIRST(i) from[i]
#define SECOND(i) from[LINE_VECTORS + (i)]
		for (; from + TWO_LINES <= end;
		     from += TWO_LINES, to += TWO_LINES) {
			STREAM_LINE(to, FIRST);
			STREAM_LINE(to + LINE_VECTORS, SECOND);
		}
		if (from < end)
			STREAM_LINE(to, FIRST);
#undef FIRST
#undef SECOND
		rotate(work, 2);
	}
	STREAM_FENCE();
}

VECTOR_TARGET static void VECTOR(load_nontemporal_triad)(struct load_work *work)
{
	const uint64_t delay = work->delay;

	for (uint64_t pass = work->passes; pass; pass--) {
		DOUBLES *a = (DOUBLES *)work->array[0];
		const DOUBLES *b = (const DOUBLES *)work->array[1];
		const DOUBLES *c = (const DOUBLES *)work->array[2];
		const DOUBLES *const end = b + VECTORS(work->bytes);

#define TRIAD(i) (b[i] + TRIAD_SCALAR * c[i])
#define FIRST(i) TRIAD(i)
#define SECOND(i) TRIAD(LINE_VECTORS + (i))
		for (; b + TWO_LINES <= end;
		     a += TWO_LINES, b += TWO_LINES, c += TWO_LINES) {
			wait_turns(delay);
			STREAM_LINE(a, FIRST);
			STREAM_LINE(a + LINE_VECTORS, SECOND);
		}
		if (b < end) {
			wait_turns(delay);
			STREAM_LINE(a, FIRST);
		}
#undef TRIAD
#undef FIRST
#undef SECOND
		rotate(work, 3);
	}
	STREAM_FENCE();
}

#undef WORDS
#undef DOUBLES
#undef VECTORS
#undef LINE_VECTORS
#undef TWO_LINES
#undef TURN
#undef FOR_TURN
#undef VECTOR
#undef VECTOR_BYTES
#undef VECTOR_TARGET
#undef STREAM_LINE
