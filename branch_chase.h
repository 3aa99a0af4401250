/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The branch chase: each pointer is replaced by code that jumps to the next
 * one, so that instruction fetch, not a load, is what waits for memory.
 */
#ifndef BRANCH_CHASE_H
#define BRANCH_CHASE_H

#include "error.h"

#include <stdbool.h>
#include <stddef.h>

/* What each architecture's code needs. */
#if defined(__x86_64__)
#define HAVE_BRANCH_CHASE 1
#define BRANCH_OBJECT 16
#define BRANCH_ALIGNMENT 1
#elif defined(__aarch64__)
#define HAVE_BRANCH_CHASE 1
#define BRANCH_OBJECT 16
#define BRANCH_ALIGNMENT 4
#elif defined(__riscv) && __riscv_xlen == 64
#define HAVE_BRANCH_CHASE 1
#define BRANCH_OBJECT 32
#define BRANCH_ALIGNMENT 4
#else
#define HAVE_BRANCH_CHASE 0
#endif

#if HAVE_BRANCH_CHASE
/* Jumps from one return to the next; the last leg of a cycle may be shorter. */
#define JUMPS_PER_CALL 200

/*
 * Turns a cycle of `length` pointers into code. Called at the start of each
 * leg, it jumps to the end of the leg, and returns the start of the next. The
 * caller makes instruction fetch see it. Error: an address that the code cannot
 * hold.
 */
bool branch_encode(char *start, size_t length, struct error *error);
#endif

#endif /* BRANCH_CHASE_H */
