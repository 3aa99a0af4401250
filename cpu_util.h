/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the CPU gives that C does not. This header needs nothing but libc's
 * headers, so that it can be lifted into another tree as it is.
 */
#ifndef CPU_UTIL_H
#define CPU_UTIL_H

/*
 * Bytes between two variables that different threads write, so that neither
 * thread ever takes the other's line. 64-byte lines are fetched in aligned
 * pairs by the spatial prefetchers of x86 and of several Arm cores, POWER has
 * lines of 128 bytes, z/Architecture and A64FX of 256.
 */
#if defined(__s390x__) || defined(__aarch64__)
#define FALSE_SHARING_DISTANCE 256
#else
#define FALSE_SHARING_DISTANCE 128
#endif

/* The line that data is moved in; what the plans of buffers round to. */
#if defined(__s390x__)
#define CACHE_LINE_BYTES 256
#elif defined(__powerpc64__)
#define CACHE_LINE_BYTES 128
#else
#define CACHE_LINE_BYTES 64
#endif

/* Tells the core that this is a spin loop: PAUSE, YIELD and their like. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__asm__ __volatile__("pause" : : : "memory");
#elif defined(__aarch64__) || (defined(__arm__) && __ARM_ARCH >= 7)
	__asm__ __volatile__("yield" : : : "memory");
#elif defined(__riscv)
	/* PAUSE of Zihintpause, a fence with no effect on older cores. */
	__asm__ __volatile__(".4byte 0x0100000f" : : : "memory");
#elif defined(__powerpc64__)
	/* Lowers this thread's priority and raises it again. */
	__asm__ __volatile__("or 1,1,1; or 2,2,2" : : : "memory");
#else
	__asm__ __volatile__("" : : : "memory");
#endif
}

/*
 * Makes this thread fetch instructions anew, once another thread has made
 * those that it wrote coherent.
 */
static inline void cpu_refetch(void)
{
#if defined(__aarch64__)
	__asm__ __volatile__("isb" : : : "memory");
#elif defined(__riscv)
	__asm__ __volatile__("fence.i" : : : "memory");
#endif
}

#include <stddef.h>
#include <stdint.h>

/*
 * Write-back of a buffer: each of its lines is cleaned to the point of
 * coherency and leaves every cache on the way there, so that a test finds the
 * buffer clean and cold instead of dirty from being initialised.
 *
 * A port, or a test, that brings its own clean_invalidate_line_size(),
 * clean_invalidate_line() and clean_invalidate_wait() defines
 * HAVE_CLEAN_INVALIDATE_RANGE before it includes this header.
 */
#ifndef HAVE_CLEAN_INVALIDATE_RANGE
#if defined(__aarch64__)
#define HAVE_CLEAN_INVALIDATE_RANGE 1

/*
 * Bytes in the smallest data cache line of all caches that this core can
 * reach: CTR_EL0.DminLine, bits 19 to 16, is log2 of its 4-byte words. Linux
 * lets user space read it, and gives every core the system-wide minimum.
 * (Arm ARM, DDI 0487, CTR_EL0.)
 */
static inline size_t clean_invalidate_line_size(void)
{
	uint64_t ctr;

	__asm__ __volatile__("mrs %0, ctr_el0" : "=r"(ctr));
	return (size_t)4 << ((ctr >> 16) & 15);
}

/* DC CIVAC: clean and invalidate by address to the point of coherency. */
static inline void clean_invalidate_line(uintptr_t address)
{
	__asm__ __volatile__("dc civac, %0" : : "r"(address) : "memory");
}

/* Waits until the write-backs of this thread are done, for all observers. */
static inline void clean_invalidate_wait(void)
{
	__asm__ __volatile__("dsb ish" : : : "memory");
}
#else
#define HAVE_CLEAN_INVALIDATE_RANGE 0
#endif
#endif

/*
 * Writes back and drops every line that the len bytes at buf touch, each line
 * once, in rising order, then waits for it. Needs read permission there. Does
 * nothing for len 0, whatever buf is, and nothing where
 * HAVE_CLEAN_INVALIDATE_RANGE is 0. Caches beyond the point of coherency, such
 * as those on the memory side, are not touched.
 */
static inline void clean_invalidate_range(const void *buf, size_t len)
{
#if HAVE_CLEAN_INVALIDATE_RANGE
	if (len != 0) {
		const size_t line = clean_invalidate_line_size();
		const uintptr_t mask = ~(uintptr_t)(line - 1);
		const uintptr_t last = ((uintptr_t)buf + (len - 1)) & mask;
		uintptr_t address = ((uintptr_t)buf & mask) - line;

		/* An end is met, not passed: the last line may end at 2^64. */
		do {
			address += line;
			clean_invalidate_line(address);
		} while (address != last);
		clean_invalidate_wait();
	}
#else
	(void)buf;
	(void)len;
#endif
}

#endif /* CPU_UTIL_H */
