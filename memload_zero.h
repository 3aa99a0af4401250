/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zeroing as a kernel does it: by the kernel itself, whose clear_user and
 * clear_page decide what a first touch costs, and on aarch64 by the loops that
 * it could do it with. Part of memload.c.
 */

/* A piece that is in no multiple of pages, so that the ends count as well. */
#define ZERO_READ_BYTES ((size_t)100 << 10)

static void load_zero_read(struct load_work *work)
{
	for (uint64_t pass = work->passes; pass; pass--) {
		size_t at = 0;

		while (at < work->bytes) {
			size_t left = work->bytes - at;
			ssize_t got = pread(
				work->zeros, work->array[0] + at,
				left < ZERO_READ_BYTES ? left : ZERO_READ_BYTES,
				0);

			if (got > 0) {
				at += (size_t)got;
			} else if (got == 0 || errno != EINTR) {
				work->failure = got ? errno : ENODATA;
				return;
			}
		}
	}
}

/* The file stays open until the program ends. */
static bool open_zeros(struct load_work *work)
{
	work->zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	work->failure = work->zeros < 0 ? errno : 0;
	return work->zeros >= 0;
}

/*
 * Written, not read: the zero page serves for all pages that are only read.
 * Native pages are touched, for a huge one may not be had when it is its turn.
 */
static void load_zero_fault(struct load_work *work)
{
	for (uint64_t pass = work->passes; pass; pass--) {
		if (madvise(work->array[0], work->bytes, MADV_DONTNEED) != 0) {
			work->failure = errno;
			return;
		}
		for (size_t at = 0; at < work->bytes; at += work->page)
			*(volatile char *)(work->array[0] + at) = 0;
	}
}

static size_t whole_pages(size_t page)
{
	return page;
}

#if defined(__aarch64__)
/*
 * What DC ZVA zeroes at once: DCZID_EL0 has log2 of its 4-byte words in bits 3
 * to 0, and bit 4 says that it is prohibited. (Arm ARM, DDI 0487.)
 */
#define DCZID_BLOCK 15
#define DCZID_PROHIBITED 16

static uint64_t read_dczid(void)
{
	uint64_t dczid;

	__asm__ __volatile__("mrs %0, dczid_el0" : "=r"(dczid));
	return dczid;
}

static bool have_dczva(void)
{
	return !(read_dczid() & DCZID_PROHIBITED);
}

static size_t dczva_bytes(void)
{
	return (size_t)4 << (read_dczid() & DCZID_BLOCK);
}

static size_t whole_blocks(size_t page)
{
	(void)page;
	return dczva_bytes();
}

static void load_zero_dczva(struct load_work *work)
{
	const size_t block = dczva_bytes();

	for (uint64_t pass = work->passes; pass; pass--) {
		char *const end = work->array[0] + work->bytes;

		for (char *at = work->array[0]; at < end; at += block)
			__asm__ __volatile__("dc zva, %0"
					     :
					     : "r"(at)
					     : "memory");
	}
}

/* A line in each turn, as in the kernel's clear_page. */
#define ZERO_PAIRS_KERNEL(name, store)                                         \
	static void name(struct load_work *work)                               \
	{                                                                      \
		for (uint64_t pass = work->passes; pass; pass--) {             \
			char *const end = work->array[0] + work->bytes;        \
                                                                               \
			for (char *at = work->array[0]; at < end; at += 64)    \
				__asm__ __volatile__(                          \
					store " xzr, xzr, [%0]\n\t" store      \
					      " xzr, xzr, [%0, #16]\n\t" store \
					      " xzr, xzr, [%0, #32]\n\t" store \
					      " xzr, xzr, [%0, #48]"           \
					:                                      \
					: "r"(at)                              \
					: "memory");                           \
		}                                                              \
	}

ZERO_PAIRS_KERNEL(load_zero_stp, "stp")
ZERO_PAIRS_KERNEL(load_zero_stnp, "stnp")
#endif
