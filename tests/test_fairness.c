/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fairness from inside: its lines for CPU numbers that no machine at hand has
 * and for threads that did nothing, and whether each addition is counted.
 */
#include "tap.h"

int fairness_main(int argc, char **argv);
#define main fairness_main
#include "fairness.c"
#undef main

#include <math.h>

static struct contest contest;
static int cpus[] = {0, 1023, 1024};
static int late_cpus[] = {1024, 0};

static void test_print(const char *expected, const char *what)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	print_heading(out, &contest);
	print_sample(out, &contest);
	fclose(out);
	if (!ok(strcmp(text, expected) == 0, "%s", what))
		printf("# got:\n%s# expected:\n%s", text, expected);
	free(text);
}

static void test_lines(void)
{
	double ns[] = {10, 0, 14};

	contest.cpus = (struct cpu_list){3, cpus};
	contest.ns = ns;
	contest.options.sweeps = 1;
	test_print("unrelaxed:\n"
		   "    10.0     0.0    14.0    12.0     2.0    10.0    14.0\n",
		   "a thread that did nothing is 0.0 and does not count");
	contest.relaxed = true;
	ns[0] = 1234567890;
	test_print("relaxed:\n"
		   " 1234567890.0     0.0    14.0 617283952.0 617283938.0    "
		   "14.0 1234567890.0\n",
		   "columns stay apart, however wide they are");
	ns[0] = ns[2] = 0;
	test_print("relaxed:\n"
		   "     0.0     0.0     0.0     0.0     0.0     0.0     0.0\n",
		   "nobody did anything: no inf, no nan");
	contest.options.sweeps = 2;
	contest.relaxed = false;
	test_print("line 0:\nunrelaxed:\n"
		   "     0.0     0.0     0.0     0.0     0.0     0.0     0.0\n",
		   "with more lines than one each is announced");
	contest.options.csv = true;
	ns[1] = 7.25;
	test_print("relaxed,sweep,cpu-0,cpu-1023,cpu-1024,avg,stdev,min,max\n"
		   "0,0,0.000,7.250,0.000,7.250,0.000,7.250,7.250\n",
		   "CSV begins with its header");
	contest.sweep = 1;
	contest.relaxed = true;
	test_print("1,1,0.000,7.250,0.000,7.250,0.000,7.250,7.250\n",
		   "and has it once");
}

static void test_late(void)
{
	struct error error = {""};

	contest.options.late = (struct cpu_list){2, late_cpus};
	ok(choose_late(&contest, &error) && contest.late[0] &&
		   !contest.late[1] && contest.late[2],
	   "the threads of -d are found by their CPUs");
	free(contest.late);
	late_cpus[0] = 1;
	ok(!choose_late(&contest, &error) &&
		   strstr(error.text, "-d: no thread runs on CPU 1;"),
	   "-d with a CPU that runs no thread is rejected: %s", error.text);
	free(contest.late);
}

/* Threads with no CPU of their own; any machine can. */
static void test_additions(bool relaxed)
{
	struct error error = {""};
	uint64_t made = 0;
	bool late[3] = {false};
	int came;

	contest.options = (struct options){.sweeps = 3};
	contest.relaxed = relaxed;
	contest.late = late;
	if (!ok(take_memory(&contest, &error), "memory %s", error.text))
		return;
	ok((uintptr_t)contest.lines % native_page_size() == 0,
	   "the lines begin with a page");
	contest.counter = (void *)(contest.lines + 2 * CACHE_LINE_BYTES);
	if (!ok(crew_start(&contest.crew, 3, NULL, add, &contest, &error) &&
			crew_await_start(&contest.crew, &came, &error),
		"three threads start %s", error.text))
		return;
	signals_wait(now_ns() + NS_PER_SECOND / 50);
	crew_stop(&contest.crew);
	crew_join(&contest.crew);
	look(&contest, 1000000);
	for (size_t i = 0; i < 3; i++) {
		made += contest.seen[i];
		if (contest.seen[i])
			/* An i387 holds more digits than a double. */
			ok(fabs(contest.ns[i] * (double)contest.seen[i] - 1e6) <
				   1e-6,
			   "thread %zu: the time over its additions", i);
		else
			ok(contest.ns[i] == 0, "thread %zu: 0", i);
	}
	ok(made > 0 && made == atomic_load(contest.counter),
	   "%srelaxed: each of %llu additions is in the counter",
	   relaxed ? "" : "un", (unsigned long long)made);
	look(&contest, 1000000);
	ok(contest.ns[0] == 0 && contest.ns[1] == 0 && contest.ns[2] == 0,
	   "nothing more is seen at the next look");
}

static void give_memory_back(void)
{
	free(contest.adders);
	free(contest.seen);
	free(contest.ns);
	free(contest.lines);
}

/* An addition each 0.1 ns, for a day. */
static void test_day(void)
{
	const uint64_t day_ns = UINT64_C(24) * 3600 * NS_PER_SECOND;
	const uint64_t seen = contest.seen[0];

	_Static_assert(sizeof(contest.adders->made) == 8, "made");
	_Static_assert(sizeof(*contest.counter) == 8, "counter");
	atomic_store(&contest.adders[0].made, seen + 10 * day_ns);
	look(&contest, day_ns);
	ok(contest.ns[0] > 0.0999 && contest.ns[0] < 0.1001,
	   "the additions of a day: %g ns each", contest.ns[0]);
	atomic_fetch_add(&contest.adders[0].made, 1);
	look(&contest, 7);
	ok(contest.ns[0] == 7, "and then each is seen");
}

int main(void)
{
	test_lines();
	test_late();
	test_additions(false);
	give_memory_back();
	test_additions(true);
	test_day();
	give_memory_back();
	return tap_end();
}
