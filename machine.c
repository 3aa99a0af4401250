/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* A cgroup's limit in bytes; UINT64_MAX where there is none ("max"). */
static uint64_t limit_in(const char *path)
{
	char text[64];
	char *end;
	unsigned long long bytes;

	if (!read_file(path, text, sizeof(text)))
		return UINT64_MAX;
	errno = 0;
	bytes = strtoull(text, &end, 10);
	return end == text || errno ? UINT64_MAX : bytes;
}

/* The least limit of a cgroup and of all that it is in. */
static uint64_t cgroup_limit(const char *mount, char *group, const char *file)
{
	uint64_t least = UINT64_MAX, limit;
	char path[4096];
	char *slash;

	for (;;) {
		snprintf(path, sizeof(path), "%s%s/%s", mount, group, file);
		limit = limit_in(path);
		if (limit < least)
			least = limit;
		slash = strrchr(group, '/');
		if (!slash)
			return least;
		*slash = '\0';
	}
}

/* One line of /proc/self/cgroup is ID:CONTROLLERS:PATH. */
static uint64_t limit_of_line(char *line)
{
	char *controllers = strchr(line, ':');
	char *group = controllers ? strchr(controllers + 1, ':') : NULL;

	if (!group)
		return UINT64_MAX;
	*controllers++ = '\0';
	*group++ = '\0';
	if (*controllers == '\0') /* version 2 has one line with none */
		return cgroup_limit("/sys/fs/cgroup", group, "memory.max");
	for (char *name = strtok(controllers, ","); name;
	     name = strtok(NULL, ","))
		if (strcmp(name, "memory") == 0)
			return cgroup_limit("/sys/fs/cgroup/memory", group,
					    "memory.limit_in_bytes");
	return UINT64_MAX;
}

uint64_t memory_limit(const char **whose)
{
	long pages = sysconf(_SC_PHYS_PAGES);
	uint64_t least = UINT64_MAX, limit;
	char text[8192];
	char *line, *next;

	*whose = "this machine has";
	if (pages > 0)
		least = (uint64_t)pages * native_page_size();
	if (!read_file("/proc/self/cgroup", text, sizeof(text)))
		return least;
	for (line = text; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		limit = limit_of_line(line);
		if (limit < least) {
			least = limit;
			*whose = "this process's cgroup has";
		}
	}
	return least;
}
