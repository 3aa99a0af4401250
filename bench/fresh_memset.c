/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One memset of fresh memory by one thread, the least that any set-up costs:
 *	fresh_memset BYTES native|huge
 * says so on its standard output once it is done.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

int main(int argc, char **argv)
{
	size_t bytes;
	char *memory;

	if (argc != 3) {
		fprintf(stderr, "usage: fresh_memset BYTES native|huge\n");
		return 1;
	}
	bytes = strtoull(argv[1], NULL, 0);
	memory = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		perror("fresh_memset: mmap");
		return 1;
	}
	memory += HUGE_PAGE - (size_t)memory % HUGE_PAGE;
	madvise(memory, bytes,
		strcmp(argv[2], "huge") == 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	memset(memory, 1, bytes);
	puts("done");
	return 0;
}
