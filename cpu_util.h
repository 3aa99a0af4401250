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

#endif /* CPU_UTIL_H */
