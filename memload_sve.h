/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream kernels for SVE, whatever the length of its vectors. Assembly,
 * so that compilers of any age build them for a core that may lack SVE.
 *
 * A turn is eight vectors of one array, or four of each of several; what is
 * left at the end goes by single vectors under a predicate.
 */

/* Assembly keeps its own layout. */
/* clang-format off */
#define SVE_BEGIN ".arch_extension sve\n\t"
#define SVE_END "\n\t.arch_extension nosve"

/* Registers that no caller needs kept, by their names before SVE. */
#define SVE_CLOBBERS                                                           \
	"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18",   \
		"v19", "v20", "v21", "v22", "v23", "p0", "p1", "cc", "memory"

#define SVE_ADD(from, to)                                                      \
	"add z" #to ".d, z" #to ".d, z" #from ".d\n\t"

static void load_sum_sve(struct load_work *work)
{
	uint64_t passes = work->passes, words = work->bytes / sizeof(uint64_t);
	uint64_t turn, left, at, sum;
	char *from;

	__asm__ __volatile__(SVE_BEGIN
		"ptrue	p0.d\n\t"
		"cntd	%[turn], all, mul #8\n\t"
		"mov	z16.d, #0\n\t"
		"mov	z17.d, #0\n\t"
		"mov	z18.d, #0\n\t"
		"mov	z19.d, #0\n\t"
		"mov	z20.d, #0\n\t"
		"mov	z21.d, #0\n\t"
		"mov	z22.d, #0\n\t"
		"mov	z23.d, #0\n"
	"1:\n\t"
		"mov	%[from], %[begin]\n\t"
		"mov	%[left], %[words]\n\t"
		"cmp	%[left], %[turn]\n\t"
		"b.lo	3f\n\t"
		".p2align 6\n"
	"2:\n\t"
		"ld1d	{z0.d}, p0/z, [%[from]]\n\t"
		"ld1d	{z1.d}, p0/z, [%[from], #1, mul vl]\n\t"
		"ld1d	{z2.d}, p0/z, [%[from], #2, mul vl]\n\t"
		"ld1d	{z3.d}, p0/z, [%[from], #3, mul vl]\n\t"
		"ld1d	{z4.d}, p0/z, [%[from], #4, mul vl]\n\t"
		"ld1d	{z5.d}, p0/z, [%[from], #5, mul vl]\n\t"
		"ld1d	{z6.d}, p0/z, [%[from], #6, mul vl]\n\t"
		"ld1d	{z7.d}, p0/z, [%[from], #7, mul vl]\n\t"
		"addvl	%[from], %[from], #8\n\t"
		"sub	%[left], %[left], %[turn]\n\t"
		SVE_ADD(0, 16) SVE_ADD(1, 17) SVE_ADD(2, 18) SVE_ADD(3, 19)
		SVE_ADD(4, 20) SVE_ADD(5, 21) SVE_ADD(6, 22) SVE_ADD(7, 23)
		"cmp	%[left], %[turn]\n\t"
		"b.hs	2b\n"
	"3:\n\t"
		"mov	%[at], #0\n\t"
		"whilelo p1.d, %[at], %[left]\n\t"
		"b.pl	5f\n\t"
		".p2align 6\n"
	"4:\n\t"
		/* What the predicate leaves out is loaded as zeros. */
		"ld1d	{z0.d}, p1/z, [%[from], %[at], lsl #3]\n\t"
		SVE_ADD(0, 16)
		"incd	%[at]\n\t"
		"whilelo p1.d, %[at], %[left]\n\t"
		"b.mi	4b\n"
	"5:\n\t"
		"subs	%[passes], %[passes], #1\n\t"
		"b.ne	1b\n\t"
		SVE_ADD(20, 16) SVE_ADD(21, 17) SVE_ADD(22, 18) SVE_ADD(23, 19)
		SVE_ADD(18, 16) SVE_ADD(19, 17)
		SVE_ADD(17, 16)
		"uaddv	d0, p0, z16.d\n\t"
		"fmov	%[sum], d0"
		SVE_END
		: [turn] "=&r"(turn), [left] "=&r"(left), [at] "=&r"(at),
		  [from] "=&r"(from), [sum] "=&r"(sum), [passes] "+r"(passes)
		: [begin] "r"(work->array[0]), [words] "r"(words)
		: SVE_CLOBBERS);
	work->sum += sum;
}

/* Vector z of an array: the part of it that predicate p lets through. */
#define SVE_LOAD(z, array, p, where)                                           \
	"ld1d {z" #z ".d}, " p "/z, [%[" #array "], " where "]\n\t"
#define SVE_STORE(z, p, where)                                                 \
	"st1d {z" #z ".d}, " p ", [%[to], " where "]\n\t"
#define SVE_SKIP(array) "addvl %[" #array "], %[" #array "], #4\n\t"

/* Where the vectors of a turn are, and one at the end. */
#define SVE_VECTOR(number) "#" #number ", mul vl"
#define SVE_LAST "%[at], lsl #3"

#define SVE_STRING_(x) #x
#define SVE_STRING(x) SVE_STRING_(x)

/*
 * One pass that writes array `to`. GET(x, y, z, p, where) makes a vector of it
 * in register x, with y and z to work in and the scalar in z20; SKIP steps over the arrays that are
 * read, which are the operands at the end.
 */
#define SVE_PASS(to_, words, GET, SKIP, ...)                                   \
	do {                                                                   \
		uint64_t turn, left = (words), at;                             \
                                                                               \
		__asm__ __volatile__(                                          \
			SVE_BEGIN                                              \
			"ptrue	p0.d\n\t"                                       \
			"cntd	%[turn], all, mul #4\n\t"                       \
			"fmov	z20.d, #" SVE_STRING(TRIAD_SCALAR) "\n\t"       \
			"cmp	%[left], %[turn]\n\t"                            \
			"b.lo	2f\n\t"                                         \
			".p2align 6\n"                                         \
			"1:\n\t"                                               \
			GET(0, 4, 16, "p0", SVE_VECTOR(0))                     \
			GET(1, 5, 17, "p0", SVE_VECTOR(1))                     \
			GET(2, 6, 18, "p0", SVE_VECTOR(2))                     \
			GET(3, 7, 19, "p0", SVE_VECTOR(3))                     \
			SVE_STORE(0, "p0", SVE_VECTOR(0))                      \
			SVE_STORE(1, "p0", SVE_VECTOR(1))                      \
			SVE_STORE(2, "p0", SVE_VECTOR(2))                      \
			SVE_STORE(3, "p0", SVE_VECTOR(3))                      \
			SVE_SKIP(to)                                           \
			SKIP                                                   \
			"sub	%[left], %[left], %[turn]\n\t"                   \
			"cmp	%[left], %[turn]\n\t"                            \
			"b.hs	1b\n"                                           \
			"2:\n\t"                                               \
			"mov	%[at], #0\n\t"                                   \
			"whilelo p1.d, %[at], %[left]\n\t"                     \
			"b.pl	4f\n\t"                                         \
			".p2align 6\n"                                         \
			"3:\n\t"                                               \
			GET(0, 4, 16, "p1", SVE_LAST)                          \
			SVE_STORE(0, "p1", SVE_LAST)                           \
			"incd	%[at]\n\t"                                      \
			"whilelo p1.d, %[at], %[left]\n\t"                     \
			"b.mi	3b\n"                                           \
			"4:" SVE_END                                           \
			: [turn] "=&r"(turn), [at] "=&r"(at),                  \
			  [left] "+&r"(left), [to] "+&r"(to_), __VA_ARGS__     \
			:                                                      \
			: SVE_CLOBBERS);                                       \
	} while (0)

#define SVE_COPY(x, y, z, p, where) SVE_LOAD(x, b, p, where)

#define SVE_TRIAD(x, y, z, p, where)                                           \
	SVE_LOAD(x, b, p, where)                                               \
	SVE_LOAD(y, c, p, where)                                               \
	"fmla z" #x ".d, " p "/m, z" #y ".d, z20.d\n\t"

#define SVE_ADD3(x, y, z, p, where)                                            \
	SVE_LOAD(x, b, p, where)                                               \
	SVE_LOAD(y, c, p, where)                                               \
	SVE_LOAD(z, d, p, where)                                               \
	"fadd z" #x ".d, z" #x ".d, z" #y ".d\n\t"                             \
	"fadd z" #x ".d, z" #x ".d, z" #z ".d\n\t"
/* clang-format on */

static void load_copy_sve(struct load_work *work)
{
	for (uint64_t pass = work->passes; pass; pass--) {
		char *a = work->array[0], *b = work->array[1];

		SVE_PASS(a, work->bytes / sizeof(double), SVE_COPY,
			 SVE_SKIP(b), [b] "+&r"(b));
		rotate(work, 2);
	}
}

static void load_triad_sve(struct load_work *work)
{
	for (uint64_t pass = work->passes; pass; pass--) {
		char *a = work->array[0], *b = work->array[1];
		char *c = work->array[2];

		SVE_PASS(a, work->bytes / sizeof(double), SVE_TRIAD,
			 SVE_SKIP(b) SVE_SKIP(c), [b] "+&r"(b), [c] "+&r"(c));
		rotate(work, 3);
	}
}

static void load_add3_sve(struct load_work *work)
{
	for (uint64_t pass = work->passes; pass; pass--) {
		char *a = work->array[0], *b = work->array[1];
		char *c = work->array[2], *d = work->array[3];

		SVE_PASS(a, work->bytes / sizeof(double), SVE_ADD3,
			 SVE_SKIP(b) SVE_SKIP(c) SVE_SKIP(d), [b] "+&r"(b),
			 [c] "+&r"(c), [d] "+&r"(d));
		rotate(work, 4);
	}
}
