/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGINT, SIGTERM and SIGHUP, taken by main where it sleeps, so that no code
 * runs in a handler and no thread is interrupted.
 */
#ifndef SIGNALS_H
#define SIGNALS_H

#include <stdint.h>

/*
 * Holds these signals back from now on, in threads started later as well; one
 * that is ignored stays ignored.
 */
void signals_hold(void);

/*
 * Sleeps until then (now_ns() time), or only looks if that is over. Returns the
 * first signal that has come, or 0; once one has, it does not sleep.
 */
int signals_wait(uint64_t until_ns);

/* Looks, in the middle of something else; returns how many have come by now. */
unsigned signals_look(void);

/*
 * What is to be put back before a signal ends the program: at most one
 * function, which a signal handler may call.
 */
void signals_at_end(void (*put_back)(void));

/* Ends the program by this signal, as if it had never been held. */
_Noreturn void signals_die(int signal_number);

/*
 * Lets the program end with one line on stderr if memory that was promised
 * cannot be had when it is first touched (SIGBUS): a hugetlb page, a block of
 * a file. what: the option that asks for it.
 */
void signals_explain_bus_error(const char *program, const char *what);

#endif /* SIGNALS_H */
