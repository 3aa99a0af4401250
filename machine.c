/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include "options.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

size_t native_page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

bool read_file(const char *path, char *buffer, size_t size)
{
	size_t used = 0;
	ssize_t got = 1;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	/* Files under /proc and /sys may come in several short pieces. */
	while (used + 1 < size && got != 0) {
		got = read(fd, buffer + used, size - 1 - used);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			break;
		used += (size_t)got;
	}
	close(fd);
	if (got < 0)
		return false;
	buffer[used] = '\0';
	if (used > 0 && buffer[used - 1] == '\n')
		buffer[used - 1] = '\0';
	return true;
}

void list_hugetlb_sizes(char *buffer, size_t size)
{
	DIR *folder = opendir(HUGETLB_FOLDER);
	const struct dirent *entry;
	unsigned long long kib;
	char typed[32];
	size_t used = 0;

	snprintf(buffer, size, "none");
	while (folder && (entry = readdir(folder)) && used < size)
		if (sscanf(entry->d_name, "hugepages-%llukB", &kib) == 1)
			used += (size_t)snprintf(
				buffer + used, size - used, "%s%s",
				used ? ", " : "",
				typed_size(typed, sizeof(typed), kib << 10));
	if (folder)
		closedir(folder);
}

/* Called with the path of one file of a cgroup, or of one above it. */
typedef void cgroup_visitor(const char *path, uint64_t *result);

/* What is asked of a cgroup: a controller's file, in version 1 and version 2.
 */
struct cgroup_question {
	const char *controller, *file_v1, *file_v2;
	cgroup_visitor *visit;
};

static void visit_upwards(const struct cgroup_question *question,
			  const char *mount, char *group, const char *file,
			  uint64_t *result)
{
	char path[4096];
	char *slash;

	for (;;) {
		snprintf(path, sizeof(path), "%s%s/%s", mount, group, file);
		question->visit(path, result);
		slash = strrchr(group, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

/* One line of /proc/self/cgroup is ID:CONTROLLERS:PATH. */
static void visit_line(const struct cgroup_question *question, char *line,
		       uint64_t *result)
{
	char *controllers = strchr(line, ':');
	char *group = controllers ? strchr(controllers + 1, ':') : NULL;
	char mount[64], *rest;

	if (!group)
		return;
	*controllers++ = '\0';
	*group++ = '\0';
	if (*controllers == '\0') { /* version 2 has one line with none */
		visit_upwards(question, "/sys/fs/cgroup", group,
			      question->file_v2, result);
		return;
	}
	snprintf(mount, sizeof(mount), "/sys/fs/cgroup/%s",
		 question->controller);
	for (char *name = strtok_r(controllers, ",", &rest); name;
	     name = strtok_r(NULL, ",", &rest))
		if (strcmp(name, question->controller) == 0)
			visit_upwards(question, mount, group, question->file_v1,
				      result);
}

static void visit_cgroups(const struct cgroup_question *question,
			  uint64_t *result)
{
	char text[8192], *rest;

	if (!read_file("/proc/self/cgroup", text, sizeof(text)))
		return;
	for (char *line = strtok_r(text, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest))
		visit_line(question, line, result);
}

/* Lowers the result to a limit in bytes; "max" is none. */
static void take_limit(const char *path, uint64_t *result)
{
	char text[64];
	uint64_t bytes;

	if (read_file(path, text, sizeof(text)) && parse_count(text, &bytes) &&
	    bytes < *result)
		*result = bytes;
}

uint64_t memory_limit(const char **whose)
{
	static const struct cgroup_question question = {
		.controller = "memory",
		.file_v1 = "memory.limit_in_bytes",
		.file_v2 = "memory.max",
		.visit = take_limit,
	};
	uint64_t machine = UINT64_MAX, limit;
	struct sysinfo info; /* sysconf() does not look whether it is filled */

	if (sysinfo(&info) == 0)
		machine = (uint64_t)info.totalram * info.mem_unit;
	limit = machine;
	visit_cgroups(&question, &limit);
	*whose = limit < machine ? "this process's cgroup has only"
				 : "this machine has only";
	return limit;
}

static void add_throttled(const char *path, uint64_t *result)
{
	static const char key[] = "nr_throttled ";
	char text[1024];
	const char *found;

	if (!read_file(path, text, sizeof(text)))
		return;
	found = strstr(text, key);
	if (found)
		*result += strtoull(found + strlen(key), NULL, 10);
}

uint64_t throttled_periods(void)
{
	static const struct cgroup_question question = {
		.controller = "cpu",
		.file_v1 = "cpu.stat",
		.file_v2 = "cpu.stat",
		.visit = add_throttled,
	};
	uint64_t periods = 0;

	visit_cgroups(&question, &periods);
	return periods;
}
