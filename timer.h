/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time. */
#ifndef TIMER_H
#define TIMER_H

#include <stdint.h>
#include <time.h>

#define NS_PER_SECOND 1000000000ull

/* Nanoseconds since some fixed point; never steps back, whatever the date. */
static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

static inline uint64_t seconds_to_ns(double seconds)
{
	return (uint64_t)(seconds * NS_PER_SECOND);
}

#endif /* TIMER_H */
