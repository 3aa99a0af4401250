/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kind of memory that an arena can be: what is mapped, what the kernel
 * says of it, and what is said where it cannot be had.
 */
#include "arena.h"
#include "machine.h"
#include "options.h"

#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

#define THP "/sys/kernel/mm/transparent_hugepage/"
#define HUGETLB "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define HUGE_PAGE ((size_t)2 << 20)

static struct arena arena;
static struct error error;

static struct arena_request request_of(size_t bytes)
{
	return (struct arena_request){.option = "-m",
				      .bytes = bytes,
				      .page_size = native_page_size()};
}

static bool maps(const struct arena_request *request)
{
	error.text[0] = '\0';
	return arena_map(&arena, request, &error);
}

/* Gives malloc's memory back, of which a leak checker knows. */
static void release(void)
{
	mprotect(arena.base, arena.mapped, PROT_READ | PROT_WRITE);
	free(arena.base);
}

/* Says what went wrong, if something did. */
static void explain(int passed)
{
	if (!passed)
		printf("# base %p bytes %zu mapped %zu: %s\n",
		       (void *)arena.base, arena.bytes, arena.mapped,
		       error.text);
}

static bool is_zero(void)
{
	for (size_t i = 0; i < arena.mapped; i++)
		if (arena.base[i])
			return false;
	return true;
}

/* A byte of each page, and the last of all, holds what is written there. */
static bool holds(void)
{
	size_t page = native_page_size();

	for (size_t i = 0; i < arena.mapped; i += page)
		arena.base[i] = (char)(i / page + 1);
	arena.base[arena.mapped - 1] = 99;
	for (size_t i = 0; i < arena.mapped; i += page)
		if (arena.base[i] != (char)(i / page + 1))
			return false;
	return arena.base[arena.mapped - 1] == 99;
}

/*
 * What /proc/self/smaps says of the mapping at an address: the rest of the
 * line that begins with field, or, if that is "", what follows the range.
 */
static bool smaps(const void *address, const char *field, char *value,
		  size_t size)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long long start, end;
	bool inside = false, found = false;
	char line[512];
	int used;

	*value = '\0';
	while (file && !found && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%llx-%llx %n", &start, &end, &used) == 2) {
			inside = (uintptr_t)address >= start &&
				 (uintptr_t)address < end;
			found = inside && !*field;
		} else {
			used = (int)strlen(field);
			found = inside && *field &&
				strncmp(line, field, (size_t)used) == 0;
		}
		if (found)
			snprintf(value, size, "%.*s", (int)size - 1,
				 line + used);
	}
	if (file)
		fclose(file);
	return found;
}

/* Is this word among those of the mapping's line? */
static bool smaps_has(const char *field, const char *word)
{
	char value[256];

	return smaps(arena.base, field, value, sizeof(value)) &&
	       strstr(value, word);
}

/* Bytes on transparent huge pages, or SIZE_MAX if the kernel does not tell. */
static size_t on_thp(const struct arena *mapped)
{
	struct huge_bytes huge;

	return arena_huge_bytes(mapped, &huge) ? huge.thp : SIZE_MAX;
}

static void test_native(void)
{
	const size_t page = native_page_size();
	const size_t sizes[] = {1, 256, page, page + 1, 100 * page - 1};
	int passed;

	for (size_t i = 0; i < LENGTH(sizes); i++) {
		struct arena_request request = request_of(sizes[i]);
		bool mapped = maps(&request);

		passed = ok(mapped && arena.bytes == sizes[i] &&
				    arena.mapped == (sizes[i] + page - 1) /
							    page * page &&
				    (uintptr_t)arena.base % page == 0,
			    "native: %zu bytes in whole pages", sizes[i]);
		explain(passed);
		ok(mapped && arena.fresh && is_zero() && holds(),
		   "native: %zu bytes are fresh, zero, and hold values",
		   sizes[i]);
	}
	ok(on_thp(&arena) == 0, "native: nothing is on huge pages");
	if (access(THP, F_OK) == 0)
		ok(smaps_has("VmFlags:", " nh"),
		   "native: huge pages are refused");
	else
		skip("native: huge pages are refused", "no THP in this kernel");
}

static void test_too_much(void)
{
	struct arena_request request = request_of(SIZE_MAX / 16 * 15);

	ok(!maps(&request) && strstr(error.text, "-m: cannot map ") &&
		   strstr(error.text, strerror(ENOMEM)),
	   "native: more than an address space is an error that says so");
	request.thp = true;
	ok(!maps(&request) && strstr(error.text, "-m: cannot map ") &&
		   strstr(error.text, strerror(ENOMEM)),
	   "THP: more than an address space is an error that says so");
	request.thp = false;
	request.use_malloc = true;
	ok(!maps(&request) && strstr(error.text, "-M: malloc has no "),
	   "malloc: more than an address space is an error that says so");
}

/* Bytes of a transparent huge page, or 0 where there are none to be had. */
static size_t thp_bytes(void)
{
	char setting[64], size[32];

	if (!read_file(THP "enabled", setting, sizeof(setting)) ||
	    strstr(setting, "[never]") ||
	    !read_file(THP "hpage_pmd_size", size, sizeof(size)))
		return 0;
	return strtoul(size, NULL, 10);
}

/* Two arenas, so that one might be taken for a part of the other. */
static void test_thp(void)
{
	const size_t huge = thp_bytes();
	struct arena_request request = request_of(huge + huge / 2 + 5);
	struct arena first;
	size_t got;

	if (!huge) {
		skip("THP", "no transparent huge pages, or set to never");
		return;
	}
	request.thp = true;
	ok(thp_enable(&error), "THP: may be had");
	explain(ok(maps(&request) && arena.mapped == 2 * huge &&
			   (uintptr_t)arena.base % huge == 0,
		   "THP: whole huge pages, aligned"));
	ok(smaps_has("VmFlags:", " hg"), "THP: huge pages are asked for");
	ok(on_thp(&arena) == 0, "THP: none before the first touch");
	ok(arena.fresh && is_zero() && holds(), "THP: zero, and holds values");
	got = on_thp(&arena);
	/* Memory may be too broken up for that: the program then warns. */
	if (got == request.bytes)
		ok(1, "THP: all bytes that were asked for are on huge pages");
	else
		skip("THP: all bytes are on huge pages", "memory is scattered");
	first = arena;
	ok(maps(&request) && on_thp(&arena) == 0 && on_thp(&first) == got,
	   "THP: another arena's huge pages are not counted");
}

/* An empty string: no file could be made. */
static void make_file(char *name, size_t size, size_t bytes)
{
	const char *folder = getenv("TMPDIR");
	int fd;

	if (!folder)
		folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	snprintf(name, size, "%s/test_arena.XXXXXX", folder);
	fd = mkstemp(name);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
		*name = '\0';
	if (fd >= 0)
		close(fd);
}

static int nr_open_files(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	while (folder && readdir(folder))
		count++;
	if (folder)
		closedir(folder);
	return count;
}

static bool file_has(const char *name, size_t at, const char *text)
{
	char found[32] = "";
	FILE *file = fopen(name, "r");
	bool has;

	has = file && fseek(file, (long)at, SEEK_SET) == 0 &&
	      fread(found, 1, strlen(text), file) == strlen(text) &&
	      strcmp(found, text) == 0;
	if (file)
		fclose(file);
	return has;
}

static void test_file(void)
{
	struct arena_request request = request_of(100000);
	int open_before = nr_open_files();
	char name[4096];

	make_file(name, sizeof(name), request.bytes);
	request.file = name;
	explain(ok(maps(&request) && arena.bytes == request.bytes &&
			   arena.mapped >= request.bytes &&
			   arena.mapped < request.bytes + native_page_size(),
		   "file: is mapped"));
	ok(!arena.fresh, "file: old content is expected in it");
	ok(nr_open_files() == open_before, "file: is closed again");
	memcpy(arena.base + 50000, "written", 8);
	ok(file_has(name, 50000, "written"), "file: is shared");
	ok(maps(&request) && strcmp(arena.base + 50000, "written") == 0,
	   "file: content is kept when it is mapped");
	ok(on_thp(&arena) != SIZE_MAX, "file: the kernel tells of huge pages");

	request.bytes++;
	ok(!maps(&request) && strstr(error.text, name) &&
		   strstr(error.text, "has 100000 bytes") &&
		   strstr(error.text, "needs 100001 "),
	   "file: one byte too short is an error with both sizes");
	ok(nr_open_files() == open_before, "file: too short, is closed again");
	unlink(name);
	ok(!maps(&request) && strstr(error.text, name) &&
		   strstr(error.text, strerror(ENOENT)),
	   "file: a missing one is an error");
	request.file = "/";
	ok(!maps(&request) && strstr(error.text, "-f /: cannot open it") &&
		   strstr(error.text, strerror(EISDIR)),
	   "file: a folder is an error");
	request.file = "/dev/null";
	ok(!maps(&request) && strstr(error.text, "-f /dev/null: cannot map") &&
		   strstr(error.text, strerror(ENODEV)),
	   "file: a device that cannot be mapped is an error");
	ok(nr_open_files() == open_before, "file: all are closed again");
}

static void test_malloc(void)
{
	const size_t sizes[] = {1, 4096, 10 << 20};

	for (size_t i = 0; i < LENGTH(sizes); i++) {
		struct arena_request request = request_of(sizes[i]);

		request.use_malloc = true;
		explain(ok(maps(&request) && arena.bytes == sizes[i] &&
				   arena.mapped >= sizes[i] &&
				   arena.mapped % native_page_size() == 0 &&
				   (uintptr_t)arena.base % native_page_size() ==
					   0 &&
				   !arena.fresh && holds(),
			   "malloc: %zu bytes in whole pages", sizes[i]));
		release();
	}
}

static void test_malloc_thp(void)
{
	const char *what = "malloc, THP: all bytes are on huge pages";
	const size_t huge = thp_bytes();
	struct arena_request request = request_of(huge + huge / 2);

	if (!huge) {
		skip("malloc, THP",
		     "no transparent huge pages, or set to never");
		return;
	}
	request.use_malloc = request.thp = true;
	explain(ok(maps(&request) && arena.mapped == 2 * huge &&
			   (uintptr_t)arena.base % huge == 0 && holds(),
		   "malloc, THP: whole huge pages, aligned"));
	if (on_thp(&arena) == request.bytes)
		ok(1, "%s", what);
	else
		skip(what, "memory is scattered");
	release();
}

static unsigned long number_in(const char *path)
{
	char text[64];

	return read_file(path, text, sizeof(text)) ? strtoul(text, NULL, 10)
						   : 0;
}

static void reserve(unsigned long pages)
{
	FILE *file = fopen(HUGETLB "nr_hugepages", "w");

	if (file) {
		fprintf(file, "%lu\n", pages);
		fclose(file);
	}
}

static void test_hugetlb(void)
{
	const unsigned long reserved = number_in(HUGETLB "nr_hugepages");
	const char *what = "hugetlb: pages are mapped";
	struct arena_request request = request_of(HUGE_PAGE + 1);
	bool taken = number_in(HUGETLB "free_hugepages") < 2;
	struct huge_bytes huge;
	char known[128];

	if (access(HUGETLB, F_OK) != 0) {
		skip(what, "no hugetlb pages of 2 MiB in this kernel");
		return;
	}
	request.page_size = HUGE_PAGE;
	if (taken)
		reserve(reserved + 2);
	if (number_in(HUGETLB "free_hugepages") < 2) {
		skip(what, "no hugetlb pages are free, and none can be had");
	} else {
		explain(ok(maps(&request) && arena.mapped == 2 * HUGE_PAGE &&
				   (uintptr_t)arena.base % HUGE_PAGE == 0 &&
				   arena.fresh && is_zero() && holds(),
			   "%s", what));
		ok(smaps_has("KernelPageSize:", " 2048 kB"),
		   "hugetlb: the kernel says so");
		ok(arena_huge_bytes(&arena, &huge) &&
			   huge.hugetlb == request.bytes && huge.thp == 0,
		   "hugetlb: all bytes that were asked for are on such pages");
		munmap(arena.base, arena.mapped);
	}
	/* What is free for other sizes is of no use. */
	request.bytes = 1;
	request.page_size = 2 * HUGE_PAGE;
	ok(!maps(&request) && strstr(error.text, "-p 4m: cannot map 1 "),
	   "hugetlb: a size that the CPU lacks is an error");
	list_hugetlb_sizes(known, sizeof(known));
	ok(strstr(known, "2m") && strstr(error.text, known),
	   "hugetlb: which names the sizes that there are");
	if (taken)
		reserve(reserved);
}

static void test_no_hugetlb(void)
{
	unsigned long pages = number_in(HUGETLB "free_hugepages") +
			      number_in(HUGETLB "nr_overcommit_hugepages") +
			      500;
	struct arena_request request = request_of(pages * HUGE_PAGE);
	char message[128];

	request.page_size = HUGE_PAGE;
	snprintf(message, sizeof(message),
		 "-p 2m: cannot map %lu hugetlb pages of 2 MiB: ", pages);
	ok(!maps(&request) && strstr(error.text, message) &&
		   strstr(error.text, HUGETLB "nr_hugepages"),
	   "hugetlb: too many pages are an error that says where to get them");
}

/*
 * Are the pages from this byte on in memory, and none before? Of those before,
 * malloc may have used some.
 */
static bool is_resident_from(size_t start, bool any_before)
{
	const size_t page = native_page_size();
	unsigned char *pages = calloc(arena.mapped / page, 1);
	bool good = pages && mincore(arena.base, arena.mapped, pages) == 0;

	for (size_t i = 0; good && i < arena.mapped / page; i++)
		good = (pages[i] & 1) == (i * page >= start) ||
		       (any_before && i * page < start);
	free(pages);
	return good;
}

/* With or without huge pages, whether the kernel gives them or not. */
static void test_weights_of_kinds(const uint64_t *weights)
{
	const size_t huge = thp_bytes() ? thp_bytes() : HUGE_PAGE;
	const char *const kinds[] = {"anonymous", "malloc", "file"};
	char name[64];
	int fd;

	for (size_t i = 0; i < 2 * LENGTH(kinds); i++) {
		struct arena_request request = request_of(huge / 2);

		request.weights = weights;
		request.thp = i % 2;
		request.use_malloc = i / 2 == 1;
		request.offset = huge + 1;
		fd = memfd_create("arena", 0);
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		if (i / 2 == 2)
			request.file = name;
		explain(ok(fd >= 0 && ftruncate(fd, 2 * (off_t)huge) == 0 &&
				   maps(&request) && arena.misplaced == 0 &&
				   is_resident_from(huge, request.use_malloc),
			   "weights: %s%s: every page from the offset on is "
			   "touched, no other",
			   kinds[i / 2], request.thp ? ", THP" : ""));
		if (request.use_malloc)
			release();
		else
			munmap(arena.base, arena.mapped);
		close(fd);
	}
}

static void test_weights(void)
{
	struct arena_request request = request_of(1000000);
	uint64_t weights[MAX_NODES] = {3};
	int mode = -1;

	request.weights = weights;
	if (syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) != 0) {
		skip("weights", strerror(errno));
		return;
	}
	explain(ok(maps(&request) && is_resident_from(0, false),
		   "weights: every page of an arena on node 0 is touched"));
	ok(is_zero() && holds(), "weights: zero, and holds values");
	ok(syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) == 0 &&
		   mode == 0,
	   "weights: the thread's policy is the default again");
	test_weights_of_kinds(weights);
	weights[63] = 1;
	if (access("/sys/devices/system/node/node63", F_OK) == 0)
		skip("weights: no node 63", "there is one");
	else
		ok(!maps(&request) &&
			   strstr(error.text,
				  "-W 63:1: cannot have memory of node 63: "),
		   "weights: a node that is not there is an error");
}

static void test_executable(void)
{
	struct arena_request request = request_of(100000);
	char permissions[256];

	for (int use_malloc = 1; use_malloc >= 0; use_malloc--) {
		const char *kind = use_malloc ? "malloc" : "native";

		request.use_malloc = use_malloc;
		ok(maps(&request) && holds() &&
			   arena_make_executable(&arena, "branch", &error),
		   "%s: can be made executable", kind);
		ok(smaps(arena.base, "", permissions, sizeof(permissions)) &&
			   strncmp(permissions, "r-x", 3) == 0 &&
			   smaps(arena.base + arena.mapped - 1, "", permissions,
				 sizeof(permissions)) &&
			   strncmp(permissions, "r-x", 3) == 0,
		   "%s: all of it is then read and executed only", kind);
		ok(arena.base[arena.mapped - 1] == 99, "%s: keeps its content",
		   kind);
		if (use_malloc)
			release();
	}
	munmap(arena.base, arena.mapped);
	ok(!arena_make_executable(&arena, "branch", &error) &&
		   strstr(error.text, "runs code in the arena"),
	   "what cannot be made executable is an error");
}

int main(void)
{
	test_native();
	test_too_much();
	test_thp();
	test_file();
	test_weights(); /* while malloc has no touched pages to give */
	test_malloc();
	test_malloc_thp();
	test_hugetlb();
	test_no_hugetlb();
	test_executable();
	return tap_end();
}
