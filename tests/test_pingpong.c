/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pingpong from inside: its table for CPU numbers that no machine at hand has,
 * and whether the token is ever held by two.
 */
#include "tap.h"

#include <unistd.h>

int pingpong_main(int argc, char **argv);
#define main pingpong_main
#include "pingpong.c"
#undef main

#define NR_OF(array) (sizeof(array) / sizeof(*(array)))

static int sparse[] = {0, 7, 99, 1023, 1024, 131071};
static const struct cpu_list sparse_cpus = {NR_OF(sparse), sparse};
static int few[] = {0, 1, 12};
static const struct cpu_list few_cpus = {NR_OF(few), few};

/* Prints the header, then each row with 12.5 in its cells. */
static char *print_table(const struct cpu_list *cpus)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	print_header(out, cpus);
	for (size_t row = 0; row + 1 < cpus->count; row++) {
		print_row_start(out, cpus, row);
		for (size_t column = row + 1; column < cpus->count; column++)
			print_cell(out, 12.5);
		putc('\n', out);
	}
	fclose(out);
	return text;
}

static void test_table(const struct cpu_list *cpus, const char *expected,
		       const char *what)
{
	char *text = print_table(cpus);

	if (!ok(strcmp(text, expected) == 0, "the table of %s", what))
		printf("# got:\n%s# expected:\n%s", text, expected);
	free(text);
}

static void test_wide_cell(void)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	print_cell(out, 123456789.25);
	print_cell(out, 1);
	fclose(out);
	ok(strcmp(text, " 123456789.2     1.0") == 0,
	   "cells stay apart, however wide they are");
	free(text);
}

/* Plays for a while with no CPU of its own for either; any machine can. */
static void test_game(const struct exchange *exchange, size_t nr_elements)
{
	static struct game game;
	struct statistics ns = {0};
	const struct options options = {.warmup = 0, .interval = 0.02};
	struct error error = {""};
	uint64_t elements[1024] = {0}, handed[2], all;
	int came = 0;
	size_t wrong = 0;

	memset(&game, 0, sizeof(game));
	game.exchange = exchange;
	game.elements = elements;
	game.nr_elements = nr_elements;
	game.relax = 1;
	if (!ok(crew_start(&game.crew, 2, NULL, play, &game, &error) &&
			crew_await_start(&game.crew, &came, &error),
		"%s: two players start %s", exchange->name, error.text))
		return;
	ok(sample(&options, &game, &ns) == 0, "%s: no signal", exchange->name);
	crew_stop(&game.crew);
	crew_join(&game.crew);

	all = count_handed(&game);
	for (size_t i = 0; i < 2; i++)
		handed[i] = atomic_load(&game.players[i].handed);
	ok(all > 0 && handed[0] - handed[1] <= 1,
	   "%s: the players take turns (%llu and %llu)", exchange->name,
	   (unsigned long long)handed[0], (unsigned long long)handed[1]);
	for (size_t i = 0; i < NR_OF(elements); i++)
		wrong += elements[i] != (i < nr_elements ? all : 0);
	ok(wrong == 0,
	   "%s: %zu elements are each written once a hand-over, no others",
	   exchange->name, nr_elements);
	ok(ns.count <= NR_SAMPLES && ns.min >= 0 && ns.max < 1e12,
	   "%s: samples are numbers", exchange->name);
}

/* A hand-over each 0.1 ns, for a day. */
static void test_day(void)
{
	static struct game game;
	const uint64_t day = UINT64_C(10) * 24 * 3600 * NS_PER_SECOND;

	_Static_assert(sizeof(game.players[0].handed) == 8, "handed");
	atomic_store(&game.players[0].handed, day);
	atomic_store(&game.players[1].handed, day + 1);
	ok(count_handed(&game) == 2 * day + 1, "the hand-overs of a day");
}

int main(void)
{
	alarm(60); /* for players that do not stop */
	test_table(&few_cpus,
		   "          0       1      12\n"
		   " 0:            12.5    12.5\n"
		   " 1:                    12.5\n",
		   "CPUs 0, 1 and 12");
	test_table(&sparse_cpus,
		   "              0       7      99    1023    1024  131071\n"
		   " 0:                12.5    12.5    12.5    12.5    12.5\n"
		   " 7:                        12.5    12.5    12.5    12.5\n"
		   "99:                                12.5    12.5    12.5\n"
		   "1023:                                      12.5    12.5\n"
		   "1024:                                              12.5\n",
		   "CPUs up to 131071");
	test_wide_cell();
	test_day();
	for (size_t i = 0; i < NR_EXCHANGES; i++) {
		test_game(&exchanges[i], 0);
		test_game(&exchanges[i], 1000);
	}
	return tap_end();
}
