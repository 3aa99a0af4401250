/* SPDX-License-Identifier: Apache-2.0 */
#include "environment.h"

#include "machine.h"
#include "options.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define CPU_FOLDER "/sys/devices/system/cpu/"
#define MAX_CACHES 16 /* more than any core has */

/* A file of one line; null if it cannot be read. */
static void json_file(struct json *json, const char *name, const char *path)
{
	char text[256];

	json_text(json, name,
		  read_file(path, text, sizeof(text)) ? text : NULL);
}

/* The value of the first line that begins with key, in /proc/cpuinfo's form. */
static bool find_value(char *text, const char *key, char *value, size_t size)
{
	for (char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		line = strchr(line, ':');
		if (!line)
			return false;
		line += 1 + strspn(line + 1, " \t");
		snprintf(value, size, "%.*s", (int)strcspn(line, "\n"), line);
		return true;
	}
	return false;
}

/* A name on x86, POWER and RISC-V; on Arm the numbers of MIDR_EL1. */
static bool find_cpu(char *name, size_t size)
{
	char text[4096], part[64];
	size_t used;

	if (!read_file("/proc/cpuinfo", text, sizeof(text)))
		return false;
	if (find_value(text, "model name", name, size) ||
	    find_value(text, "cpu\t", name, size) ||
	    find_value(text, "uarch", name, size))
		return true;
	if (!find_value(text, "CPU implementer", name, size) ||
	    !find_value(text, "CPU part", part, sizeof(part)))
		return false;
	used = strlen(name);
	snprintf(name + used, size - used, " part %s", part);
	return true;
}

static bool read_cache(unsigned index, const char *file, char *text,
		       size_t size)
{
	char path[128];

	snprintf(path, sizeof(path), CPU_FOLDER "cpu0/cache/index%u/%s", index,
		 file);
	return read_file(path, text, size);
}

static void json_caches(struct json *json)
{
	char level[16], type[32], size[32], line[16], shared[256];
	uint64_t bytes;

	json_array(json, "caches");
	for (unsigned i = 0; i < MAX_CACHES; i++) {
		if (!read_cache(i, "level", level, sizeof(level)) ||
		    !read_cache(i, "type", type, sizeof(type)) ||
		    !read_cache(i, "size", size, sizeof(size)) ||
		    !parse_size(size, &bytes))
			continue;
		json_object(json, NULL);
		json_count(json, "level", strtoull(level, NULL, 10));
		json_text(json, "type", type);
		json_count(json, "size_bytes", bytes);
		if (read_cache(i, "coherency_line_size", line, sizeof(line)))
			json_count(json, "line_bytes",
				   strtoull(line, NULL, 10));
		if (read_cache(i, "shared_cpu_list", shared, sizeof(shared)))
			json_text(json, "cpus", shared);
		json_end_object(json);
	}
	json_end_array(json);
}

void environment_json(struct json *json)
{
	struct utsname names;
	const char *whose;
	char cpu[128];

	json_object(json, "environment");
	json_text(json, "cpu", find_cpu(cpu, sizeof(cpu)) ? cpu : NULL);
	if (uname(&names) == 0) {
		json_text(json, "architecture", names.machine);
		json_text(json, "kernel", names.release);
	}
	json_file(json, "cpus_online", CPU_FOLDER "online");
	json_file(json, "numa_nodes", "/sys/devices/system/node/online");
	json_file(json, "governor", CPU_FOLDER "cpu0/cpufreq/scaling_governor");
	json_file(json, "thp", "/sys/kernel/mm/transparent_hugepage/enabled");
	json_count(json, "memory_bytes", memory_limit(&whose));
	json_caches(json);
	json_end_object(json);
}
