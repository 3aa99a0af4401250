/* SPDX-License-Identifier: Apache-2.0 */
#include "signals.h"

#include "timer.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static sigset_t held;
static int first;      /* signal that came, or 0 */
static unsigned count; /* of signals that came */
static void (*at_end)(void);

void signals_hold(void)
{
	static const int awaited[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction now;

	sigemptyset(&held);
	for (size_t i = 0; i < sizeof(awaited) / sizeof(*awaited); i++)
		if (sigaction(awaited[i], NULL, &now) == 0 &&
		    now.sa_handler != SIG_IGN)
			sigaddset(&held, awaited[i]);
	pthread_sigmask(SIG_BLOCK, &held, NULL);
}

/* Takes one of the signals, if it comes within this time. */
static void take(const struct timespec *time)
{
	const int came = sigtimedwait(&held, NULL, time);

	if (came > 0 && count++ == 0)
		first = came;
}

unsigned signals_look(void)
{
	static const struct timespec none;

	take(&none);
	return count;
}

int signals_wait(uint64_t until_ns)
{
	/* Any other signal, or being stopped and continued, ends a wait. */
	do {
		const uint64_t now = now_ns();
		const uint64_t left = now < until_ns ? until_ns - now : 0;
		const struct timespec time = {
			.tv_sec = (time_t)(left / NS_PER_SECOND),
			.tv_nsec = (long)(left % NS_PER_SECOND),
		};

		if (!first)
			take(&time);
	} while (!first && now_ns() < until_ns);
	return first;
}

void signals_at_end(void (*put_back)(void))
{
	at_end = put_back;
}

void signals_die(int signal_number)
{
	sigset_t set;

	if (at_end)
		at_end();
	signal(signal_number, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, signal_number);
	raise(signal_number);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	_exit(128 + signal_number); /* not reached */
}

static char bus_message[512];

static void explain_bus_error(int signal_number)
{
	ssize_t written =
		write(STDERR_FILENO, bus_message, strlen(bus_message));

	(void)signal_number;
	(void)written;
	if (at_end)
		at_end();
	_exit(1);
}

void signals_explain_bus_error(const char *program, const char *what)
{
	struct sigaction action = {.sa_handler = explain_bus_error};

	snprintf(bus_message, sizeof(bus_message),
		 "%s: error: %.200s: memory that was mapped could not be "
		 "had when it was first touched: ask for less with -m, or free "
		 "hugetlb pages or space on the file system\n",
		 program, what);
	sigaction(SIGBUS, &action, NULL);
}
