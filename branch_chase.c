/* SPDX-License-Identifier: Apache-2.0 */
#include "branch_chase.h"

#if HAVE_BRANCH_CHASE

#include "permutation.h"

#include <stdint.h>
#include <string.h>

/*
 * One emitter for each architecture: writes at `code` the instructions that
 * put the next address where a function returns its value, and then jump
 * there, or return.
 */
#if defined(__x86_64__)
#define ADDRESS_BITS 64

static void emit(char *code, uint64_t next, bool leave)
{
	static const unsigned char move[] = {0x48, 0xb8}; /* mov $next, %rax */
	static const unsigned char jump[] = {0xff, 0xe0}; /* jmp *%rax */
	static const unsigned char back[] = {0xc3, 0xcc}; /* ret */

	memcpy(code, move, sizeof(move));
	memcpy(code + 2, &next, sizeof(next));
	memcpy(code + 10, leave ? back : jump, 2);
}

#elif defined(__aarch64__)
/* Three 16-bit moves; 52-bit addresses are only given to those who ask. */
#define ADDRESS_BITS 48

static void emit(char *code, uint64_t next, bool leave)
{
	const uint32_t instructions[] = {
		0xd2800000u | (uint32_t)(next & 0xffff) << 5, /* movz x0 */
		0xf2a00000u | (uint32_t)(next >> 16 & 0xffff) << 5, /* movk */
		0xf2c00000u | (uint32_t)(next >> 32 & 0xffff) << 5, /* movk */
		leave ? 0xd65f03c0u : 0xd61f0000u, /* ret, or br x0 */
	};

	memcpy(code, instructions, sizeof(instructions));
}

#elif defined(__riscv)
#define ADDRESS_BITS 64

/* The address stands behind the code, from which it is loaded. */
static void emit(char *code, uint64_t next, bool leave)
{
	const uint32_t instructions[] = {
		0x00000517u,                       /* auipc a0, 0 */
		0x01053503u,                       /* ld a0, 16(a0) */
		leave ? 0x00008067u : 0x00050067u, /* ret, or jr a0 */
		0x00000013u, /* nop, so that the address is aligned */
	};

	memcpy(code, instructions, sizeof(instructions));
	memcpy(code + sizeof(instructions), &next, sizeof(next));
}
#endif

bool branch_encode(char *start, size_t length, struct error *error)
{
	char *code = start;

	for (size_t i = 1; i <= length; i++) {
		char *next = load_link(code);

		if (ADDRESS_BITS < 64 &&
		    (uint64_t)next >> (ADDRESS_BITS - 1) >> 1)
			return error_set(error,
					 "-c branch: its code holds addresses "
					 "of %d bits, the arena is at %p",
					 ADDRESS_BITS, (void *)next);
		emit(code, (uint64_t)next,
		     i % JUMPS_PER_CALL == 0 || i == length);
		code = next;
	}
	return true;
}

#endif
