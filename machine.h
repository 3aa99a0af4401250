/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine says of itself. Where it says nothing, that is no error. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Holds a folder for each size of hugetlb pages, such as hugepages-2048kB. */
#define HUGETLB_FOLDER "/sys/kernel/mm/hugepages/"

/* The kernel's page size in bytes. */
size_t native_page_size(void);

/*
 * Bytes of memory that this process can ever have: the machine's, or the
 * limit of the cgroup (v1 or v2) that it is in, or of one above that.
 * *whose is set to a phrase that ends in "only", for a message. UINT64_MAX if
 * nothing is known.
 */
uint64_t memory_limit(const char **whose);

/*
 * Periods in which a cgroup's CPU quota has stopped this process or others in
 * its cgroups; 0 if there is no quota. It only grows.
 */
uint64_t throttled_periods(void);

/*
 * Writes the sizes of hugetlb pages that the kernel has, ", " between, as they
 * are typed; "none" where it has none or does not tell.
 */
void list_hugetlb_sizes(char *buffer, size_t size);

/*
 * Reads the start of a file, a terminator added and a newline at the end cut
 * off. False: it cannot be read.
 */
bool read_file(const char *path, char *buffer, size_t size);

#endif /* MACHINE_H */
