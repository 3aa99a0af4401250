/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code that the branch chase makes of pointers, called: each piece must
 * jump to where its pointer led, legs must end where they are counted to, and
 * addresses must come back with all of their bits.
 */
#include "branch_chase.h"

#include "cpu_util.h"
#include "permutation.h"
#include "tap.h"

#if HAVE_BRANCH_CHASE

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* Elements of the longest cycle: three legs, the last one short. */
#define MAX_LENGTH ((size_t)2 * JUMPS_PER_CALL + 50)
/* Odd, so that objects lie at every alignment that is allowed. */
#define STRIDE (BRANCH_OBJECT + 5 * BRANCH_ALIGNMENT)
#define BYTES (MAX_LENGTH * STRIDE)

static char *arena;

static bool allow(int protection)
{
	return mprotect(arena, BYTES, protection) == 0;
}

static void write_code(void)
{
	allow(PROT_READ | PROT_WRITE);
}

static void run_code(void)
{
	__builtin___clear_cache(arena, arena + BYTES);
	allow(PROT_READ | PROT_EXEC);
	cpu_refetch();
}

static char *call(const char *code)
{
	return ((char *(*)(void))code)();
}

/* A cycle of so many elements; their order is in `order`. */
static void link_cycle(char **order, size_t length)
{
	write_code();
	for (size_t i = 0; i < length; i++)
		order[i] = arena + permute(i, length, length) * STRIDE;
	for (size_t i = 0; i < length; i++)
		store_link(order[i], order[(i + 1) % length]);
}

/* As the kernel calls it: from leg to leg, and once around again. */
static void test_legs(size_t length)
{
	char *order[MAX_LENGTH];
	struct error error = {""};
	size_t at = 0, calls = 0, wrong = 0;

	link_cycle(order, length);
	if (!ok(branch_encode(order[0], length, &error), "%zu pointers %s",
		length, error.text))
		return;
	run_code();
	do {
		at += JUMPS_PER_CALL;
		if (at > length)
			at = length;
		wrong += call(order[calls * JUMPS_PER_CALL]) !=
			 order[at % length];
		calls++;
	} while (at < length && !wrong);
	ok(!wrong, "%zu pointers: %zu calls go around", length, calls);
}

/*
 * Each piece in turn, its successor being replaced by code that returns a
 * marker: only a jump from the one right to the other comes back with it.
 */
static void test_jumps(void)
{
	char *order[JUMPS_PER_CALL], saved[BRANCH_OBJECT];
	struct error error = {""};
	size_t right = 0;

	link_cycle(order, JUMPS_PER_CALL);
	branch_encode(order[0], JUMPS_PER_CALL, &error);
	for (size_t i = 0; i + 1 < JUMPS_PER_CALL; i++) {
		char *next = order[i + 1], *marker = arena + i;

		write_code();
		memcpy(saved, next, sizeof(saved));
		store_link(next, marker);
		branch_encode(next, 1, &error);
		run_code();
		right += call(order[i]) == marker;
		write_code();
		memcpy(next, saved, sizeof(saved));
	}
	ok(right == JUMPS_PER_CALL - 1, "%zu of %d pieces jump to the next one",
	   right, JUMPS_PER_CALL - 1);
}

/* Whether code holds this address; it is returned, not jumped to. */
static bool encode_address(uint64_t address, struct error *error)
{
	write_code();
	store_link(arena, (char *)(uintptr_t)address);
	return branch_encode(arena, 1, error);
}

static void test_address(uint64_t address)
{
	struct error error = {""};
	uint64_t back = 0;

	if (encode_address(address, &error)) {
		run_code();
		back = (uint64_t)(uintptr_t)call(arena);
	}
	ok(back == address, "address %#llx comes back as %#llx %s",
	   (unsigned long long)address, (unsigned long long)back, error.text);
}

/* Each 16 bits different, the highest and the lowest of each set. */
static const uint64_t addresses[] = {
	0x8001,         0x9234abcd,     0x800000000000, 0x7fffffffffff,
	0xfedcba987654, 0xffffffffffff, 0x000080008000, 0x100000000,
};

#if defined(__aarch64__)
/* Where an arena of 52-bit addresses may be: refused, and named. */
static void test_wide_addresses(void)
{
	static const uint64_t wide[] = {0x1000000000000, 0xf123456789abc,
					0xffff000000000000};

	for (size_t i = 0; i < sizeof(wide) / sizeof(*wide); i++) {
		struct error error = {""};
		char text[32];

		snprintf(text, sizeof(text), "%p", (void *)wide[i]);
		ok(!encode_address(wide[i], &error) &&
			   strstr(error.text, "-c branch: ") &&
			   strstr(error.text, " 48 bits") &&
			   strstr(error.text, text),
		   "address %s is refused: %s", text, error.text);
	}
}
#else
static void test_wide_addresses(void)
{
	test_address(0x1000000000000);
	test_address(0xf123456789abc);
	test_address(0xfedcba9876543210);
	test_address(UINT64_MAX);
}
#endif

int main(void)
{
	static const size_t lengths[] = {
		1,
		2,
		JUMPS_PER_CALL - 1,
		JUMPS_PER_CALL,
		JUMPS_PER_CALL + 1,
		2 * JUMPS_PER_CALL,
		MAX_LENGTH,
	};

	arena = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!ok(arena != MAP_FAILED && allow(PROT_READ | PROT_EXEC),
		"memory that may be run"))
		return tap_end();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		test_legs(lengths[i]);
	test_jumps();
	for (size_t i = 0; i < sizeof(addresses) / sizeof(*addresses); i++)
		test_address(addresses[i]);
	test_wide_addresses();
	return tap_end();
}

#else

int main(void)
{
	skip("the branch chase", "this architecture has none");
	return tap_end();
}

#endif
