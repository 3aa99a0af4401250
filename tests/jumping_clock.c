/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library to preload that makes a clock jump, once a program has run for
 * JUMP_AFTER seconds: the date by JUMP_DATE seconds, as when it is set, or
 * CLOCK_MONOTONIC by JUMP_MONOTONIC, as in a virtual machine that was away.
 */
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static double start;

static double seconds_of(const struct timespec *time)
{
	return (double)time->tv_sec + (double)time->tv_nsec / 1e9;
}

static void read_clock(clockid_t clock, struct timespec *time)
{
	syscall(SYS_clock_gettime, clock, time);
}

static double setting(const char *name)
{
	const char *text = getenv(name);

	return text ? strtod(text, NULL) : 0;
}

__attribute__((constructor)) static void begin(void)
{
	struct timespec now;

	read_clock(CLOCK_MONOTONIC, &now);
	start = seconds_of(&now);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	struct timespec now;

	read_clock(CLOCK_MONOTONIC, &now);
	read_clock(clock, time);
	if (seconds_of(&now) > start + setting("JUMP_AFTER"))
		time->tv_sec += (time_t)setting(clock == CLOCK_MONOTONIC
							? "JUMP_MONOTONIC"
							: "JUMP_DATE");
	return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
	struct timespec now;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	*time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
	return 0;
}
