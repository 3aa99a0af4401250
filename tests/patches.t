#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# Tests the series for the original tree: its form, apply.sh, and what the
# inserted lines do. The original is not at hand, so apply.sh is given trees of
# blank or numbered lines with the original's line counts, and the inserted
# code is built and run in frames: programs of the same line counts, written
# for this test, with something of the same kind on each line that matters.
use strict;
use warnings;
use File::Basename qw(basename);
use File::Copy qw(copy);
use File::Path qw(remove_tree);
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use Test::More;

my $patches = "$top/patches";
my @files = qw(cpu_util.h multichase.c multiload.c README);
my %length = ('cpu_util.h' => 50, 'multichase.c' => 951, 'multiload.c' => 1481, README => 72);
my %blob = (
	'cpu_util.h' => 'ded2a6dae0d6c549d0944a8071fed18fb1d2bbaa',
	'multichase.c' => '095d3555de81f82fda21d71ac6bbfb0194775eb5',
	'multiload.c' => 'fd06ac9799d32683536d2a9b1a44b162b8e7bf5d',
	README => '2b64260f32c971a6abe5ff8c4b96425f894903bb',
);
# After which lines of the original something is inserted.
my %places = (
	'cpu_util.h' => [49],
	'multichase.c' => [497, 508, 512, 771, 851, 856],
	'multiload.c' => [803, 814, 824, 831, 1124, 1237, 1242],
	README => [38, 65],
);
my @names = qw(0001-cpu_util-clean_invalidate_range.patch 0002-multiload-load-buffers.patch
	0003-write-chases-back.patch 0004-usage-and-README.patch);

plan skip_all => 'git was not found' if !found('git');

# Nobody's settings decide a result here. Tests of apply.sh set their own.
delete @ENV{grep { /^GIT_/ } keys %ENV};
delete $ENV{APPLY_TEST_WITHOUT_BLOB_CHECK};
mkdir "$tmp/home";
$ENV{HOME} = $ENV{XDG_CONFIG_HOME} = "$tmp/home";
$ENV{GIT_CONFIG_NOSYSTEM} = 1;
$ENV{LC_ALL} = 'C';
# What apply.sh makes there it must remove.
mkdir "$tmp/scratch";
$ENV{TMPDIR} = "$tmp/scratch";

# All that a command says: how it ends, stdout, stderr.
sub said
{
	my ($result) = @_;
	return "$result->{exit}\n$result->{out}$result->{err}";
}

sub succeeds { return run([@_])->{exit} == 0 }

# The form of the patches, and their hunks as [file, LINE, START, [lines]].

my %hunks;
is_deeply([map { basename($_) } sort glob "'$patches'/*.patch"], \@names, 'the series has four steps')
	or BAIL_OUT('no series to test');

my %seen_file;
for my $number (1 .. @names) {
	my $name = $names[$number - 1];
	my $text = slurp("$patches/$name");
	my ($header, $rest) = split /\n\n/, $text, 2;
	my ($message, $diff) = split /^---\n/m, $rest, 2;
	my ($stat, $body) = split /\n\n/, $diff, 2;
	my @header = split /\n/, $header;

	is(scalar @header, 4, "$name: four header lines");
	like($header[0], qr/^From [0-9a-f]{40} Mon Sep 17 00:00:00 2001$/, "$name: mail separator");
	like($header[1], qr/^From: \S.* <[^<>@\s]+@[^<>@\s]+>$/, "$name: author");
	like($header[2], qr/^Date: \w{3}, \d{1,2} \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}$/, "$name: date");
	my $count = @names;
	like($header[3], qr/^Subject: \[PATCH $number\/$count\] \S+.*: \S/, "$name: subject");
	cmp_ok(length $message, '>', 200, "$name: the message gives a reason");
	ok(!grep({ length > 79 } split /\n/, $message), "$name: the message fits in 79 columns");
	like($body, qr/\n-- \n\d[\d.]*\n\n\z/, "$name: trailer");
	unlike($text, qr/[^\n\x20-\x7e\t]/, "$name: plain ASCII");
	$body =~ s/\n-- \n\d[\d.]*\n\n\z/\n/;

	my (%added, $file, $shift, $open, @wrong);
	my @lines = split /\n/, $body;
	while (@lines) {
		my $line = shift @lines;
		if ($line =~ m{^diff --git a/(\S+) b/\1$}) {
			$file = $1;
			$shift = 0;
			push @wrong, "$line: file unknown or twice" if !$length{$file} || exists $added{$file};
			$added{$file} = 0;
			# The id of a later state cannot be known without the original.
			if (!$seen_file{$file}++) {
				my $index = shift @lines;
				push @wrong, $index if $index ne "index $blob{$file}.. 100644";
			}
			my ($old, $new) = (shift @lines, shift @lines);
			push @wrong, "$old $new" if $old ne "--- a/$file" || $new ne "+++ b/$file";
		} elsif ($line =~ /^\@\@ -(\d+),0 \+(\d+),(\d+) \@\@$/) {
			my ($at, $start, $n) = ($1, $2, $3);
			my @plus;
			push @plus, shift @lines while @lines && $lines[0] =~ /^\+/;
			push @wrong, "$line: starts at $start" if $start != $at + 1 + $shift;
			push @wrong, "$line: has " . @plus . ' lines' if $n != @plus || $n == 0;
			push @wrong, grep { /[ \t]$/ || / \t/ } @plus;
			$shift += @plus;
			$added{$file} += @plus;
			push @{$hunks{$name}}, [$file, $at, $start, [map { substr $_, 1 } @plus]];
		} else {
			push @wrong, "not an addition: $line";
		}
	}
	is("@wrong", '', "$name: additions only, without context, counted right");

	my $total = 0;
	my %stat;
	for (split /\n/, $stat) {
		$stat{$1} = $2 if /^ (\S+) +\| +(\d+) \++$/;
		$total = $1 if /^ \d+ files? changed, (\d+) insertions?\(\+\)$/;
	}
	is_deeply(\%stat, \%added, "$name: diffstat");
	my $sum = 0;
	$sum += $_ for values %added;
	is($total, $sum, "$name: diffstat's total");
}

# Applies the hunks of the first $steps patches to lists of [original's line
# number or undef, text].
sub patched
{
	my ($steps, %tree) = @_;
	my %lines;
	for my $file (@files) {
		my $n = 0;
		$lines{$file} = [map { [++$n, $_] } @{$tree{$file}}];
	}
	for my $name (@names[0 .. $steps - 1]) {
		for my $hunk (@{$hunks{$name}}) {
			my ($file, undef, $start, $text) = @$hunk;
			splice @{$lines{$file}}, $start - 1, 0, map { [undef, $_] } @$text;
		}
	}
	return %lines;
}

sub as_text { my ($lines) = @_; return join '', map { "$_->[1]\n" } @$lines }

my %blank = map { $_ => [('') x $length{$_}] } @files;
my %numbered = map { my $file = $_; $file => [map { "$file, line $_" } 1 .. $length{$file}] } @files;
{
	my %lines = patched(scalar @names, %numbered);
	for my $file (@files) {
		my (@at, $last);
		for (@{$lines{$file}}) {
			if (defined $_->[0]) {
				$last = $_->[0];
			} elsif (!@at || $at[-1] != $last) {
				push @at, $last;
			}
		}
		is_deeply(\@at, $places{$file}, "$file: every insertion follows the line it belongs to");
	}
}

# The lines of 0001 are ours, and stay in step with ours.
{
	my $ours = slurp("$top/cpu_util.h");
	my $block_count = 0;
	for my $hunk (@{$hunks{$names[0]}}) {
		my $block = join "\n", @{$hunk->[3]};
		$block =~ s/\A\n+//;
		$block =~ s/\n+\z//;
		ok(index("\n$ours", "\n$block\n") >= 0, 'what 0001 adds stands word for word in cpu_util.h');
		$block_count++;
	}
	is($block_count, 1, '0001 adds one block');
}

# apply.sh

sub make_tree
{
	my ($dir, %tree) = @_;
	system('mkdir', '-p', '--', $dir) == 0 or die "mkdir $dir\n";
	spew("$dir/$_", join '', map { "$_\n" } @{$tree{$_}}) for @files;
}

# All that is in a folder, but for a repository's own files.
sub snapshot
{
	my ($dir) = @_;
	my %all;
	opendir my $list, $dir or return undef;
	for (grep { !/^(\.|\.\.|\.git)$/ } readdir $list) {
		my $path = "$dir/$_";
		my $mode = sprintf '%o', (lstat $path)[2];
		$all{$_} = [$mode, -l $path ? readlink $path : -d $path ? snapshot($path) : slurp($path)];
	}
	return \%all;
}

sub is_tidy
{
	my ($what) = @_;
	is_deeply(snapshot("$tmp/scratch"), {}, "$what: nothing left behind");
}

sub refuses
{
	my ($what, $dir, $message, @command) = @_;
	my $before = snapshot($dir);
	my $result = run(\@command);
	is($result->{exit}, 1, "$what: exit 1");
	is($result->{out}, '', "$what: nothing on stdout");
	like($result->{err}, qr/\Aapply\.sh: [^\n]*$message[^\n]*\n\z/, "$what: one line says why");
	is_deeply(snapshot($dir), $before, "$what: nothing changed");
	is_tidy($what);
}

sub applies
{
	my ($what, $dir, $tree, @command) = @_;
	my $result = run(\@command);
	is($result->{exit}, 0, "$what: exit 0") or diag($result->{err});
	is($result->{err}, '', "$what: nothing on stderr");
	my %lines = patched(scalar @names, %$tree);
	for my $file (@files) {
		ok(slurp("$dir/$file") eq as_text($lines{$file}), "$what: $file has each line at its place");
	}
	is_deeply([sort keys %{snapshot($dir)}], [sort @files], "$what: no other file");
	is_tidy($what);
}

my $apply = "$patches/apply.sh";
my $dir = "$tmp/a tree";
ok(-x $apply, 'apply.sh is executable');

make_tree($dir, %blank);
refuses('no argument', $dir, 'one argument', $apply);
refuses('two arguments', $dir, 'one argument', $apply, $dir, $dir);
refuses('empty argument', $dir, 'one argument', $apply, '');
refuses('not there', $dir, 'not a directory', $apply, "$dir/none");
refuses('not a directory', $dir, 'not a directory', $apply, "$dir/README");
refuses('not the original', $dir, 'cpu_util\.h.* is not that of commit a1ffd89', $apply, $dir);

{
	local $ENV{APPLY_TEST_WITHOUT_BLOB_CHECK} = 1;
	for my $file (@files) {
		unlink "$dir/$file";
		refuses("without $file", $dir, "no file $file", $apply, $dir);
		make_tree($dir, %blank);
	}
	rename "$dir/README", "$tmp/README";
	symlink "$tmp/README", "$dir/README";
	refuses('README is a link', $dir, 'symbolic link', $apply, $dir);
	unlink "$dir/README";
	make_tree($dir, %blank);

	applies('blank lines', $dir, \%blank, $apply, $dir);
	refuses('second time', $dir, 'already applied', $apply, $dir);

	make_tree($dir, %numbered);
	chmod 0775, "$dir/multiload.c";
	chmod 0640, "$dir/README";
	applies('numbered lines', $dir, \%numbered, $apply, $dir);
	is(sprintf('%o', (stat "$dir/multiload.c")[2] & 0777), '775', 'a mode is kept');
	is(sprintf('%o', (stat "$dir/README")[2] & 0777), '640', 'another mode is kept');
	refuses('second time, numbered', $dir, 'already applied', $apply, $dir);
	chmod 0644, map { "$dir/$_" } @files;

	make_tree("$tmp/-x", %numbered);
	applies('relative name that begins with a dash', "$tmp/-x", \%numbered,
		'sh', '-c', 'cd "$1" && exec "$2" -x', 'sh', $tmp, $apply);

	# git apply in such a place skips files without a word.
	my $repo = "$tmp/a repository";
	make_tree("$repo/sub/tree", %numbered);
	for (['init', '-q'], ['add', '-A'],
		['-c', 'user.name=x', '-c', 'user.email=x@example.org', 'commit', '-q', '-m', 'x']) {
		is(system('git', '-C', $repo, @$_), 0, "git @$_[-1]");
	}
	{
		local $ENV{TMPDIR} = "$repo/sub";
		applies('subfolder of a repository', "$repo/sub/tree", \%numbered,
			'sh', '-c', 'cd "$1" && exec "$2" tree', 'sh', "$repo/sub", $apply);
		is_deeply([sort keys %{snapshot("$repo/sub")}], ['tree'], 'its temporary folder is gone');
	}
	is(system('git', '-C', $repo, 'checkout', '-q', '--', '.'), 0, 'git checkout');
	{
		local $ENV{GIT_DIR} = "$repo/.git";
		local $ENV{GIT_WORK_TREE} = $repo;
		applies('with GIT_DIR set', "$repo/sub/tree", \%numbered, $apply, "$repo/sub/tree");
	}
	make_tree($repo, %blank);
	refuses('other files at the top', $repo, 'already applied', $apply, "$repo/sub/tree");
	remove_tree("$repo/sub");
	applies('top of a repository', $repo, \%blank, $apply, $repo);

	make_tree($dir, %numbered);
	spew("$tmp/home/.gitconfig", "[core]\n\tautocrlf = true\n[apply]\n\twhitespace = error-all\n");
	applies('with a user\'s settings', $dir, \%numbered, $apply, $dir);
	unlink "$tmp/home/.gitconfig";
	{
		local $ENV{GIT_CONFIG_COUNT} = 1;
		local $ENV{GIT_CONFIG_KEY_0} = 'core.autocrlf';
		local $ENV{GIT_CONFIG_VALUE_0} = 'true';
		make_tree($dir, %numbered);
		applies('with a setting from the environment', $dir, \%numbered, $apply, $dir);
	}
}

# A copy of the script that takes the stand-in for the original, so that the
# check of the blobs is seen to pass, too.
{
	my $copy = "$tmp/copy of patches";
	mkdir $copy;
	copy("$patches/$_", "$copy/$_") or die "$_: $!\n" for @names;
	make_tree($dir, %numbered);
	my $script = slurp($apply);
	for my $file (@files) {
		chomp(my $id = run(['git', 'hash-object', '--no-filters', "$dir/$file"])->{out});
		is(($script =~ s/$blob{$file}/$id/g), 1, "apply.sh knows the blob of $file once");
	}
	spew("$copy/apply.sh", $script);
	my @copied = ('sh', "$copy/apply.sh", $dir);
	for my $file (@files) {
		my $text = slurp("$dir/$file");
		spew("$dir/$file", "$text\n");
		refuses("one blank line more in $file", $dir, "$file' is not that of commit", @copied);
		spew("$dir/$file", $text);
	}
	applies('blobs as expected', $dir, \%numbered, @copied);
	refuses('blobs as expected, second time', $dir, 'already applied', @copied);
	my $text = slurp("$dir/multiload.c");
	spew("$dir/multiload.c", "$text/* edited */\n");
	refuses('edited since', $dir, 'is not that of commit', @copied);

	# The last step fails after three that apply.
	make_tree($dir, %numbered);
	my $last = slurp("$copy/$names[-1]");
	spew("$copy/$names[-1]", $last =~ s/^\@\@ -38,0 \+39,/\@\@ -38,1 +39,/mr);
	refuses('a step that does not apply', $dir, "$names[-1] does not apply", @copied);
	unlink map { "$copy/$_" } @names;
	refuses('no patches', $dir, 'finds no patches', @copied);
}

# The frames. Each says on stdout what its threads do, which arrive at the
# start one after the other in the order given.

# Puts text, from given lines on, into $count lines.
sub frame
{
	my ($count, %at) = @_;
	my @lines = ('') x $count;
	my $next = 1;
	for my $start (sort { $a <=> $b } keys %at) {
		my @text = split /\n/, $at{$start};
		die "frame: lines before $start run over it\n" if $start < $next;
		$next = $start + @text;
		die "frame: lines from $start on run over the end\n" if $next > $count + 1;
		splice @lines, $start - 1, scalar @text, @text;
	}
	return \@lines;
}

my $recorder = <<'END';
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the frame's buffers are, and which thread is speaking. */
static char *recorded_arena;
static char *recorded_load[9];
static char room[10][8192] __attribute__((aligned(64)));
static size_t recorded_size;
static int speaker = -1;

static void say(const char *what)
{
	if (speaker < 0)
		printf("main %s\n", what);
	else
		printf("%d %s\n", speaker, what);
}

#ifdef FRAME_RECORDS
#define HAVE_CLEAN_INVALIDATE_RANGE 1
static uintptr_t first_line, next_line;
static unsigned long line_count;

static inline size_t clean_invalidate_line_size(void)
{
	return 64;
}

static inline void clean_invalidate_line(uintptr_t address)
{
	if (line_count++ == 0)
		first_line = address;
	else if (address != next_line)
		say("cleans out of order");
	next_line = address + 64;
}

static inline void clean_invalidate_wait(void)
{
	char text[100];
	int i;

	strcpy(text, "cleans an unknown buffer");
	if (first_line == ((uintptr_t)recorded_arena & ~(uintptr_t)63))
		sprintf(text, "cleans the arena, %lu lines", line_count);
	for (i = 0; i < 9; i++)
		if (recorded_load[i] != NULL && first_line == (uintptr_t)recorded_load[i])
			sprintf(text, "cleans load buffer %d, %lu lines", i, line_count);
	say(text);
	line_count = 0;
}
#endif

#include "cpu_util.h"

enum { RUN_CHASE, RUN_BANDWIDTH, RUN_CHASE_LOADED };

struct plan { char *arena; size_t total_memory; };
struct kind { const char *name; };
struct worker {
	struct {
		size_t cache_flush_size, load_total_memory;
		char *flush_arena, *load_arena;
		const struct plan *genchase_args;
		const struct kind *chase;
		int run_test_type, nr_threads;
	} x;
};

static int nr_to_startup;
static size_t total;
END

my $read = <<'END';
	if (args->x.cache_flush_size > 0) {
		size_t i;

		for (i = 0; i < args->x.cache_flush_size; i++)
			total += (size_t)args->x.flush_arena[i];

		say("reads the flush buffer");



	}
END

my $allocate = <<'END';
	char *flush_arena = 0; /* of -F */
	if (cache_flush_size > 0) {
		say("allocates the flush buffer");
		flush_arena = calloc(cache_flush_size, 1);
		if (!flush_arena) return 3;
	}
END

my $usage = <<'END';
		fprintf(stderr,
			"usage of %s:\n"
			"-F"
			" SIZE"
			"\n"
			"",
			argv[0]);
END

# The order of arrival is a string of digits, so that threads are few.
my $start = <<'END';
int main(int argc, char **argv)
{
	static struct plan plan;
	static struct kind kind;
	const char *order;
	size_t cache_flush_size, offset;
	int i, run_test_type;
END

my $options = <<'END';
		return 2;
	}
	run_test_type = atoi(argv[1]);
	kind.name = argv[2];
	cache_flush_size = (size_t)atol(argv[3]);
	offset = (size_t)atol(argv[4]);
	recorded_size = (size_t)atol(argv[5]);
	order = argv[6];
	recorded_arena = room[9] + offset;
	plan.total_memory = recorded_size;
	plan.arena = recorded_arena;
	/* No arena then: whoever touches this is caught. */
	if (run_test_type == RUN_BANDWIDTH)
		plan.arena = (char *)(uintptr_t)1;
	nr_to_startup = (int)strlen(order);
END

my $threads = <<'END';
	for (i = 0; order[i] != '\0'; i++) {
		static struct worker worker;

		speaker = order[i] - '0';
		recorded_load[speaker] = room[speaker];
		worker.x.cache_flush_size = cache_flush_size;
		worker.x.flush_arena = flush_arena;
		worker.x.genchase_args = &plan;
		worker.x.chase = &kind;
		worker.x.nr_threads = nr_to_startup;
		worker.x.load_arena = recorded_load[speaker];
		worker.x.load_total_memory = recorded_size;
		worker.x.run_test_type = run_test_type;
		if (run_test_type == RUN_CHASE_LOADED)
			worker.x.run_test_type = speaker == 0 ? RUN_CHASE : RUN_BANDWIDTH;
		arrive(&worker);
	}
	return total == 1;
}
END

my %frames = (
	README => $numbered{README},
	'cpu_util.h' => frame(50, 14 => "#ifndef FRAME_H\n#define FRAME_H\n", 50 => "#endif\n"),
	'multichase.c' => frame(951, 1 => $recorder,
		490 => "static void arrive(struct worker *args)\n{\n\tsay(\"builds\");\n",
		497 => "\t/* -F */\n$read",
		511 => "\tsay(\"locks\");\n\tif (1 == nr_to_startup) {\n",
		515 => "\t\tsay(\"makes the arena executable\");\n",
		518 => "\t}\n\tnr_to_startup -= 1;\n\tsay(\"unlocks\");\n}\n",
		750 => "$start\n\tif (argc != 7) {\n",
		765 => $usage, 775 => $options, 851 => $allocate, 870 => $threads),
	'multiload.c' => frame(1481, 1 => $recorder,
		790 => "static void arrive(struct worker *args)\n{\n"
			. "\tif (RUN_CHASE == args->x.run_test_type) {\n\t\tsay(\"builds\");\n",
		803 => "\t/* -F */\n$read\t} else {\n",
		818 => "\t\tsay(\"fills\");\n\t\tmemset(\n\t\t\targs->x.load_arena,\n"
			. "\t\t\t'x',\n\n\n\t\t\targs->x.load_total_memory);\n\t}\n",
		831 => "\tsay(\"locks\");\n\tnr_to_startup -= 1;\n\tsay(\"unlocks\");\n}\n",
		1100 => "$start\n\tif (argc != 7) {\n",
		1118 => $usage, 1130 => $options, 1237 => $allocate, 1260 => $threads),
);
# The original's own.
my @flags = qw(-std=gnu99 -Wall -W -Wshadow -Wstrict-prototypes -Wmissing-prototypes
	-Wmissing-declarations -Wpointer-arith -Werror);

# What the frame of multichase says for the threads of $order. $how is 'buffer'
# for the original's way, 'clean' for the write-back, 'silent' for a write-back
# that no recorder sees.
sub chase_events
{
	my ($how, $flush, $order, $lines, $exec) = @_;
	my @order = split //, $order;
	my @events;
	push @events, 'main allocates the flush buffer' if $how eq 'buffer' && $flush;
	for my $i (0 .. $#order) {
		my $last = $i == $#order;
		push @events, 'builds';
		push @events, 'reads the flush buffer' if $how eq 'buffer' && $flush;
		push @events, 'locks';
		push @events, "cleans the arena, $lines lines" if $how eq 'clean' && $flush && $last;
		push @events, 'makes the arena executable' if $last && $exec;
		push @events, 'unlocks';
		s/^(?!main|\d)/$order[$i] / for @events;
	}
	return join '', map { "$_\n" } @events;
}

# The same for multiload's runs with load threads; thread 0 chases if $loaded.
sub load_events
{
	my ($how, $flush, $order, $lines, $loaded) = @_;
	my @events;
	push @events, 'main allocates the flush buffer' if $how eq 'buffer' && $flush && $loaded;
	for my $thread (split //, $order) {
		if ($loaded && $thread == 0) {
			push @events, 'builds';
			push @events, 'reads the flush buffer' if $how eq 'buffer' && $flush;
			push @events, 'locks';
			push @events, "cleans the arena, $lines lines" if $how eq 'clean' && $flush;
		} else {
			push @events, 'fills';
			push @events, "cleans load buffer $thread, $lines lines" if $how eq 'clean';
			push @events, 'locks';
		}
		push @events, 'unlocks';
		s/^(?!main|\d)/$thread / for @events;
	}
	return join '', map { "$_\n" } @events;
}

sub build
{
	my ($what, $from, $program, $to, @compiler) = @_;
	my $result = run([@compiler, @flags, '-O2', "$from/$program.c", '-o', $to]);
	return is(said($result), "0\n", "$what: compiles without a warning");
}

my ($chase, $bandwidth, $loaded) = (0, 1, 2);

# Runs a built frame in all the ways that differ.
sub check_runs
{
	my ($what, $program, $how, @command) = @_;
	my $exec = $program eq 'multichase';
	for (['0', 4096, 0, 4096, 64], ['012', 4096, 0, 4096, 64], ['201', 1, 0, 64, 1],
		['10', 4096, 24, 1000, 16], ['012', 0, 0, 4096, 64]) {
		my ($order, $flush, $offset, $size, $lines) = @$_;
		my $result = run([@command, $chase, 'simple', $flush, $offset, $size, $order]);
		is(said($result), "0\n" . chase_events($how, $flush, $order, $lines, $exec),
			"$what: chase, -F $flush, arrival $order, $size bytes at $offset");
	}
	if ($program eq 'multiload') {
		for (['0', 4096], ['01', 4096], ['10', 0]) {
			my ($order, $flush) = @$_;
			my $result = run([@command, $bandwidth, 'simple', $flush, 0, 8192, $order]);
			is(said($result), "0\n" . load_events($how, $flush, $order, 128, 0),
				"$what: bandwidth, -F $flush, arrival $order");
		}
		for (['0', 4096], ['012', 4096], ['102', 4096], ['120', 4096], ['012', 0]) {
			my ($order, $flush) = @$_;
			my $result = run([@command, $loaded, 'chaseload', $flush, 0, 8192, $order]);
			is(said($result), "0\n" . load_events($how, $flush, $order, 128, 1),
				"$what: loaded latency, -F $flush, arrival $order");
		}
	}
	my $result = run(\@command);
	is_deeply([@$result{qw(exit out)}], [2, ''], "$what: usage on stderr");
	is($result->{err} =~ tr/\n//, 2 + ($how eq 'buffer' ? 0 : $program eq 'multiload' ? 3 : 2),
		"$what: the usage of -F tells of the write-back if there is one");
}

my $tree = "$tmp/frames";
make_tree($tree, %frames);
SKIP: {
	# Each step leaves a tree that compiles, with either value of the macro.
	skip 'gcc was not found', 1 if !found('gcc');
	mkdir "$tmp/steps";
	for my $step (0 .. @names - 1) {
		my %lines = patched($step, %frames);
		spew("$tmp/steps/$_", as_text($lines{$_})) for @files;
		for my $program ('multichase', 'multiload') {
			for my $macro ($step == 0 ? () : ('-DHAVE_CLEAN_INVALIDATE_RANGE=0', '-DFRAME_RECORDS')) {
				build("$program, $step steps, $macro", "$tmp/steps", $program, "$tmp/program", 'gcc', $macro);
			}
			next if $step != 0;
			build("$program as it was", "$tmp/steps", $program, "$tmp/program", 'gcc',
				'-DHAVE_CLEAN_INVALIDATE_RANGE=0');
		}
	}
}
{
	local $ENV{APPLY_TEST_WITHOUT_BLOB_CHECK} = 1;
	applies('frames', $tree, \%frames, $apply, $tree);
}

# Compiler, how its programs run, and why not, if they do not.
spew("$tmp/probe.c", "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { return puts(\"runs\") < 0; }\n");
for my $compiler (['gcc'], ['clang'], ['aarch64-linux-gnu-gcc'], ['clang', '--target=aarch64-linux-gnu']) {
	my $name = "@$compiler";
	SKIP: {
		skip "$compiler->[0] was not found", 1 if !found($compiler->[0]);
		my $macros = run([@$compiler, '-dM', '-E', '-x', 'c', '/dev/null']);
		skip "$name has no such target", 1 if $macros->{exit};
		my $arm = $macros->{out} =~ /^#define __aarch64__ /m;
		my @cross = $name =~ /aarch64/ ? ('qemu-aarch64') : ();
		# Static, for an emulator that knows no folder of libraries.
		my @static = @cross ? ('-static') : ();
		# Old cross compilers know only their own folder of headers.
		my $run = 1;
		if (!succeeds(@$compiler, @static, "$tmp/probe.c", '-o', "$tmp/probe")) {
			skip "$name finds no C library's headers", 1 if !succeeds(@$compiler, '-fsyntax-only', "$tmp/probe.c");
			$run = 0;
		} elsif (@cross && !found($cross[0])) {
			$run = 0;
		}
		my @only = $run ? () : ('-S');

		for my $program ('multichase', 'multiload') {
			for (['-DHAVE_CLEAN_INVALIDATE_RANGE=0', 'buffer'], ['-DFRAME_RECORDS', 'clean'],
				['-DFRAME_AS_IT_IS', $arm ? 'silent' : 'buffer']) {
				my ($macro, $how) = @$_;
				my $what = "$name $program $macro";
				my $built = build($what, $tree, $program, "$tmp/program", @$compiler, @static, @only, $macro);
				SKIP: {
					skip "$what: not built", 1 if !$built;
					skip "$what: cannot be run, no $cross[0] or no static C library", 1 if !$run;
					check_runs($what, $program, $how, @cross, "$tmp/program");
				}
			}
			next if !$arm;
			my $what = "$name $program";
			build("$what to assembly", $tree, $program, "$tmp/program.s", @$compiler, '-S');
			my $code_text = slurp("$tmp/program.s");
			like($code_text, qr/\bdc\s+civac\b/, "$what: has DC CIVAC");
			like($code_text, qr/\bdsb\s+ish\b/, "$what: has DSB ISH");
			unlike($code_text, qr/flush buffer/, "$what: has no flush buffer");
		}
	}
}

done_testing();
