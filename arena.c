/* SPDX-License-Identifier: Apache-2.0 */
#include "arena.h"

#include "machine.h"
#include "options.h"
#include "permutation.h"
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Older libc headers lack these; the values are the kernel's interface. */
#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif
#ifndef MPOL_DEFAULT
#define MPOL_DEFAULT 0
#define MPOL_BIND 2
#define MPOL_INTERLEAVE 3
#endif

#ifndef TMPFS_MAGIC
#define TMPFS_MAGIC 0x01021994ul
#endif
#ifndef RAMFS_MAGIC
#define RAMFS_MAGIC 0x858458f6ul
#endif
#ifndef HUGETLBFS_MAGIC
#define HUGETLBFS_MAGIC 0x958458f6ul
#endif

#define THP_FOLDER "/sys/kernel/mm/transparent_hugepage/"
#define THP_SETTING THP_FOLDER "enabled"

static size_t round_up(size_t value, size_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static unsigned log2_of(size_t power_of_two)
{
	unsigned log2 = 0;

	while (power_of_two >>= 1)
		log2++;
	return log2;
}

/* Bytes of a transparent huge page; 2 MiB where the kernel does not say. */
static size_t thp_size(void)
{
	char text[32];
	uint64_t bytes;

	if (read_file(THP_FOLDER "hpage_pmd_size", text, sizeof(text)) &&
	    parse_count(text, &bytes) && bytes >= native_page_size())
		return (size_t)bytes;
	return (size_t)2 << 20;
}

size_t arena_page_bytes(const struct arena_request *request)
{
	return request->thp ? thp_size() : request->page_size;
}

/* Bytes of the pages that hold what is asked for. */
static size_t whole_pages(const struct arena_request *request, size_t page)
{
	return round_up(request->offset + request->bytes, page);
}

/*
 * The whole huge pages that the arena needs, between pages that may not be
 * touched: the kernel then neither joins it to a neighbour, whose pages would
 * be counted as the arena's, nor leaves its ends on native pages.
 */
static void *map_aligned(size_t bytes, size_t alignment)
{
	size_t guard = native_page_size();
	char *reserved, *base;

	reserved = mmap(NULL, bytes + alignment + 2 * guard, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (reserved == MAP_FAILED)
		return MAP_FAILED;
	base = (char *)round_up((uintptr_t)reserved + guard, alignment);
	return mmap(base, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static bool map_anonymous(struct arena *arena,
			  const struct arena_request *request,
			  struct error *error)
{
	const size_t page = arena_page_bytes(request);
	char size[32];
	void *base;

	arena->mapped = whole_pages(request, page);
	if (request->thp)
		base = map_aligned(arena->mapped, page);
	else
		base = mmap(NULL, arena->mapped, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return error_set(
			error, "%s: cannot map %s of memory: %s; ask for less",
			request->option,
			format_size(size, sizeof(size), arena->mapped),
			strerror(errno));
	arena->base = base;
	return true;
}

static bool map_hugetlb(struct arena *arena,
			const struct arena_request *request,
			struct error *error)
{
	size_t page = request->page_size;
	char typed[32], size[32], known[256], what_to_do[320];
	int failure;

	arena->mapped = whole_pages(request, page);
	arena->base = mmap(NULL, arena->mapped, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB |
				   (int)(log2_of(page) << MAP_HUGE_SHIFT),
			   -1, 0);
	if (arena->base != MAP_FAILED)
		return true;
	failure = errno;
	if (failure == EINVAL) {
		list_hugetlb_sizes(known, sizeof(known));
		snprintf(what_to_do, sizeof(what_to_do),
			 "sizes that this kernel has: %s", known);
	} else {
		snprintf(what_to_do, sizeof(what_to_do),
			 "reserve them in " HUGETLB_FOLDER
			 "hugepages-%zukB/nr_hugepages",
			 page >> 10);
	}
	return error_set(
		error, "-p %s: cannot map %zu hugetlb pages of %s: %s; %s",
		typed_size(typed, sizeof(typed), page), arena->mapped / page,
		format_size(size, sizeof(size), page), strerror(failure),
		what_to_do);
}

size_t file_page_bytes(const char *file)
{
	struct statfs where;

	if (statfs(file, &where) == 0 &&
	    (unsigned long)where.f_type == HUGETLBFS_MAGIC)
		return (size_t)where.f_bsize;
	return native_page_size();
}

static bool long_enough(int fd, const struct arena_request *request,
			struct error *error)
{
	const size_t bytes = request->offset + request->bytes;
	struct stat status;
	char need[32];

	if (fstat(fd, &status) != 0)
		return error_set(error, "-f %.200s: cannot tell its size: %s",
				 request->file, strerror(errno));
	if (!S_ISREG(status.st_mode) || (uint64_t)status.st_size >= bytes)
		return true;
	return error_set(error,
			 "-f %.200s: the file has %llu bytes, the arena needs "
			 "%zu (%s)",
			 request->file, (unsigned long long)status.st_size,
			 bytes, format_size(need, sizeof(need), bytes));
}

static bool map_file(struct arena *arena, const struct arena_request *request,
		     struct error *error)
{
	const size_t page = request->page_size;
	const bool native = page == native_page_size();
	char size[32];
	int fd = open(request->file, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return error_set(error,
				 "-f %.200s: cannot open it to read and "
				 "write: %s",
				 shown_value(request->file), strerror(errno));
	/* One on hugetlbfs grows when it is mapped. */
	if (native && !long_enough(fd, request, error)) {
		close(fd);
		return false;
	}
	arena->mapped = whole_pages(request, page);
	arena->base = mmap(NULL, arena->mapped, PROT_READ | PROT_WRITE,
			   MAP_SHARED, fd, 0);
	arena->fresh = false;
	if (arena->base == MAP_FAILED)
		error_set(error,
			  "-f %.200s: cannot map %zu bytes of it, in pages of "
			  "%s: %s",
			  request->file, arena->mapped,
			  format_size(size, sizeof(size), page),
			  errno == ENOMEM && !native
				  ? "too few are free in /sys/kernel/mm/"
				    "hugepages"
				  : strerror(errno));
	close(fd); /* the mapping keeps the file */
	return arena->base != MAP_FAILED;
}

/* Whole pages inside the block, so that they can change their protection. */
static bool take_malloc(struct arena *arena,
			const struct arena_request *request,
			struct error *error)
{
	const size_t page = arena_page_bytes(request);
	char size[32];

	arena->mapped = whole_pages(request, page);
	arena->base = aligned_alloc(page, arena->mapped);
	if (!arena->base)
		return error_set(
			error, "-M: malloc has no %s; ask for less with -m",
			format_size(size, sizeof(size), arena->mapped));
	arena->fresh = false;
	return true;
}

/* A memory policy, with room for all nodes that Linux can be built for. */
#define POLICY_NODES 1024
#define BITS_PER_WORD (8 * sizeof(unsigned long))

struct policy {
	int mode;
	unsigned long nodes[POLICY_NODES / BITS_PER_WORD];
};

static bool set_policy(const struct policy *policy)
{
	return syscall(SYS_set_mempolicy, policy->mode, policy->nodes,
		       POLICY_NODES) == 0;
}

static struct policy get_policy(void)
{
	struct policy policy = {.mode = MPOL_DEFAULT};

	/* Where it cannot be had, there is none but the default. */
	syscall(SYS_get_mempolicy, &policy.mode, policy.nodes, POLICY_NODES,
		NULL, 0);
	return policy;
}

static void add_node(struct policy *policy, size_t node)
{
	policy->nodes[node / BITS_PER_WORD] |= 1ul << node % BITS_PER_WORD;
}

/* How pages are shared out to nodes. */
struct shares {
	const uint64_t *asked;     /* the weights as they were given */
	size_t weights[MAX_NODES]; /* with no divisor in common */
	size_t period;             /* pages after which it begins again */
	size_t step;               /* spreads each node's pages over them */
};

static struct shares get_shares(const uint64_t *weights)
{
	struct shares shares = {.asked = weights};
	size_t divisor = 0;

	for (size_t node = 0; node < MAX_NODES; node++)
		divisor = common_divisor(divisor, (size_t)weights[node]);
	for (size_t node = 0; node < MAX_NODES; node++) {
		shares.weights[node] = (size_t)weights[node] / divisor;
		shares.period += shares.weights[node];
	}
	shares.step = spreading_step(shares.period);
	return shares;
}

static size_t node_of_page(const struct shares *shares, size_t number)
{
	size_t turn = (size_t)((uint64_t)(number % shares->period) *
			       shares->step % shares->period);
	size_t node = 0;

	while (turn >= shares->weights[node])
		turn -= shares->weights[node++];
	return node;
}

static bool choose_node(const struct shares *shares, size_t node,
			struct error *error)
{
	struct policy policy = {.mode = MPOL_BIND};

	add_node(&policy, node);
	return set_policy(&policy) ||
	       error_set(error,
			 "-W %zu:%llu: cannot have memory of node %zu: %s; %s",
			 node, (unsigned long long)shares->asked[node], node,
			 strerror(errno),
			 errno == EINVAL
				 ? "see /sys/devices/system/node/has_memory"
				 : "leave -W out, or permit set_mempolicy");
}

/* Where a request's pages are, and how many of their bytes are placed as one.
 */
struct placement {
	char *base;
	size_t start, end; /* of the pages that are used, in bytes from base */
	size_t page;       /* which the kernel gives at the least */
	size_t unit;       /* such a page, or a huge page that may be given */
	bool keep;         /* what the pages hold */
	struct shares shares;
};

static struct placement get_placement(const struct arena *arena,
				      const struct arena_request *request)
{
	const size_t page = request->page_size;

	return (struct placement){
		.base = arena->base,
		.start = request->offset / page * page,
		.end = arena->mapped,
		.page = page,
		.unit = arena_page_bytes(request),
		.keep = request->file,
		.shares = get_shares(request->weights),
	};
}

static size_t node_at(const struct placement *place, size_t at)
{
	return node_of_page(&place->shares, at / place->unit);
}

/*
 * Touches each page while the thread's policy is the page's node. Unlike a
 * policy for each range, that makes no mapping of its own for each page, of
 * which the kernel allows only some 65,000.
 */
static bool touch_pages(const struct placement *place, struct error *error)
{
	const struct shares *shares = &place->shares;
	size_t chosen = MAX_NODES, node;
	volatile char *byte;

	/* A node that is not there is found out before a page is written. */
	for (node = 0; node < MAX_NODES; node++)
		if (shares->weights[node] && !choose_node(shares, node, error))
			return false;
	for (size_t at = place->start; at < place->end; at += place->page) {
		node = node_at(place, at);
		if (node != chosen && !choose_node(shares, node, error))
			return false;
		chosen = node;
		byte = place->base + at;
		if (place->keep)
			/* cppcheck-suppress selfAssignment; for its effect */
			*byte = *byte;
		else
			*byte = 0; /* a read could give the page of zeros */
	}
	return true;
}

/* Pages that the kernel is asked about at once. */
#define PAGES_PER_LOOK 512

/*
 * Bytes that are on another node all the same, such as pages of a file that
 * were there before. SIZE_MAX where the kernel does not tell.
 */
static size_t misplaced_bytes(const struct placement *place)
{
	char *pages[PAGES_PER_LOOK];
	int nodes[PAGES_PER_LOOK] = {0}; /* negative: unknown */
	size_t misplaced = 0, at = place->start;
	unsigned long count;

	while (at < place->end) {
		for (count = 0; count < PAGES_PER_LOOK && at < place->end;
		     count++, at += place->page)
			pages[count] = place->base + at;
		if (syscall(SYS_move_pages, 0, count, pages, NULL, nodes, 0))
			return SIZE_MAX;
		while (count--)
			if (nodes[count] >= 0 &&
			    (size_t)nodes[count] !=
				    node_at(place, (size_t)(pages[count] -
							    place->base)))
				misplaced += place->page;
	}
	return misplaced;
}

static bool place_pages(struct arena *arena,
			const struct arena_request *request,
			struct error *error)
{
	const struct placement place = get_placement(arena, request);
	const struct policy before = get_policy();
	struct policy all = {.mode = MPOL_INTERLEAVE};

	if (!touch_pages(&place, error))
		return false;
	set_policy(&before);
	arena->misplaced = misplaced_bytes(&place);
	/* A policy of its own keeps automatic NUMA balancing away. */
	for (size_t node = 0; node < MAX_NODES; node++)
		if (request->weights[node])
			add_node(&all, node);
	syscall(SYS_mbind, arena->base, arena->mapped, all.mode, all.nodes,
		POLICY_NODES, 0);
	return true;
}

bool arena_takes_memory(const struct arena_request *request)
{
	struct statfs where;
	struct stat what = {0};

	if (!request->file)
		return request->page_size == native_page_size();
	if (stat(request->file, &what) == 0 && S_ISCHR(what.st_mode) &&
	    what.st_rdev == makedev(1, 5)) /* /dev/zero */
		return true;
	return statfs(request->file, &where) == 0 && S_ISREG(what.st_mode) &&
	       ((unsigned long)where.f_type == TMPFS_MAGIC ||
		(unsigned long)where.f_type == RAMFS_MAGIC);
}

bool arena_map(struct arena *arena, const struct arena_request *request,
	       struct error *error)
{
	bool native = request->page_size == native_page_size();
	bool mapped;

	*arena = (struct arena){.bytes = request->bytes, .fresh = true};
	if (request->file)
		mapped = map_file(arena, request, error);
	else if (request->use_malloc)
		mapped = take_malloc(arena, request, error);
	else if (native)
		mapped = map_anonymous(arena, request, error);
	else
		mapped = map_hugetlb(arena, request, error);
	if (!mapped)
		return false;
	/* Fails only where there are no huge pages to choose. */
	if (native)
		madvise(arena->base, arena->mapped,
			request->thp ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	return !request->weights || place_pages(arena, request, error);
}

bool arena_make_executable(const struct arena *arena, const char *chase,
			   struct error *error)
{
	if (mprotect(arena->base, arena->mapped, PROT_READ | PROT_EXEC) == 0)
		return true;
	return error_set(error,
			 "-c %.200s: this chase runs code in the arena, and "
			 "the system does not allow that there: %s",
			 chase, strerror(errno));
}

bool arena_try_executable(const struct arena *arena, const char *chase,
			  struct error *error)
{
	return arena_make_executable(arena, chase, error) &&
	       (mprotect(arena->base, arena->mapped, PROT_READ | PROT_WRITE) ==
			0 ||
		error_set(error, "-c %.200s: cannot write to the arena: %s",
			  chase, strerror(errno)));
}

/* A line of /proc/self/smaps that tells of huge pages: how many bytes. */
static bool read_huge_line(const char *line, struct huge_bytes *found)
{
	static const struct {
		const char *name;
		bool hugetlb;
	} fields[] = {
		{"AnonHugePages:", false},  {"ShmemPmdMapped:", false},
		{"FilePmdMapped:", false},  {"Shared_Hugetlb:", true},
		{"Private_Hugetlb:", true},
	};
	unsigned long long kib;
	size_t length;

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		length = strlen(fields[i].name);
		if (strncmp(line, fields[i].name, length) != 0 ||
		    sscanf(line + length, "%llu", &kib) != 1)
			continue;
		*(fields[i].hugetlb ? &found->hugetlb : &found->thp) +=
			(size_t)kib << 10;
		return true;
	}
	return false;
}

static size_t at_most(size_t bytes, size_t limit)
{
	return bytes < limit ? bytes : limit;
}

bool arena_huge_bytes(const struct arena *arena, struct huge_bytes *found)
{
	const uintptr_t base = (uintptr_t)arena->base;
	FILE *smaps = fopen("/proc/self/smaps", "re");
	unsigned long long start, end;
	bool told = false, ours = false;
	char line[512];

	*found = (struct huge_bytes){0};
	if (!smaps)
		return false;
	/* What ends before the arena, or in an error, tells nothing of it. */
	while (fgets(line, sizeof(line), smaps))
		if (sscanf(line, "%llx-%llx ", &start, &end) == 2)
			ours = start < base + arena->mapped && end > base;
		else if (ours)
			told |= read_huge_line(line, found);
	told = told && !ferror(smaps);
	fclose(smaps);
	found->thp = at_most(found->thp, arena->bytes);
	found->hugetlb = at_most(found->hugetlb, arena->bytes);
	return told;
}

/* The setting, open from before it is changed until it has been put back. */
static volatile sig_atomic_t thp_fd = -1;

static bool write_thp_setting(const char *word)
{
	const ssize_t length = (ssize_t)strlen(word);
	ssize_t written;

	do
		written = pwrite(thp_fd, word, (size_t)length, 0);
	while (written < 0 && errno == EINTR);
	return written == length;
}

/* Puts back what thp_enable() changed; safe in a signal handler. */
static void thp_restore(void)
{
	static const char warning[] =
		"warning: -H: " THP_SETTING
		" could not be set back to never, it is madvise\n";
	const int saved_errno = errno;

	if (thp_fd >= 0 && !write_thp_setting("never") &&
	    write(STDERR_FILENO, warning, sizeof(warning) - 1) < 0)
		errno = 0; /* there is nowhere to say it */
	thp_fd = -1;
	errno = saved_errno;
}

static void restore_and_die(int signal_number)
{
	thp_restore();
	raise(signal_number); /* SA_RESETHAND has made it deadly again */
}

/*
 * All signals that end a program, if nothing was decided about them: not those
 * that stop or continue it or are ignored, nor SIGBUS, which is explained.
 */
static void restore_on_signals(void)
{
	static const int harmless[] = {SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN,
				       SIGTTOU, SIGCONT, SIGCHLD, SIGURG,
				       SIGBUS,  SIGWINCH};
	struct sigaction action = {.sa_handler = restore_and_die,
				   .sa_flags = SA_RESETHAND};
	struct sigaction old;
	bool deadly;

	for (int i = 1; i <= SIGRTMAX; i++) {
		deadly = sigaction(i, NULL, &old) == 0 &&
			 old.sa_handler == SIG_DFL;
		for (size_t j = 0; j < sizeof(harmless) / sizeof(*harmless);
		     j++)
			deadly = deadly && harmless[j] != i;
		if (deadly)
			sigaction(i, &action, NULL);
	}
}

/* A kernel without transparent huge pages does not know the advice. */
static bool kernel_has_thp(void)
{
	const size_t bytes = native_page_size();
	void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool known;

	if (page == MAP_FAILED)
		return true; /* which the arena's own mapping will say */
	known = madvise(page, bytes, MADV_HUGEPAGE) == 0 || errno != EINVAL;
	munmap(page, bytes);
	return known;
}

bool thp_enable(struct error *error)
{
	char setting[128];

	if (!kernel_has_thp())
		return error_set(error,
				 "-H: this kernel has no transparent huge "
				 "pages; use -p");
	/* Unknown where there is no /sys: what is given is counted later. */
	if (!read_file(THP_SETTING, setting, sizeof(setting)) ||
	    !strstr(setting, "[never]"))
		return true;
	restore_on_signals();
	atexit(thp_restore);
	signals_at_end(thp_restore);
	/* A signal may come right after the write. */
	thp_fd = open(THP_SETTING, O_WRONLY | O_CLOEXEC);
	if (thp_fd >= 0 && write_thp_setting("madvise"))
		return true;
	if (thp_fd >= 0)
		close(thp_fd);
	thp_fd = -1;
	return error_set(error,
			 "-H: transparent huge pages are off; write "
			 "\"madvise\" to %s, or use -p",
			 THP_SETTING);
}
