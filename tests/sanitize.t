#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# The unit tests and the tests of commands, on programs built with
# AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer. With
# CHECK_ALL=1 also by clang, at -O0 and -O3, with ThreadSanitizer, with
# MemorySanitizer, and under valgrind's memcheck and helgrind. ONLY=REGEX runs
# the builds whose names match. Any report fails; what is suppressed for
# valgrind is named below and in helgrind.supp, with the reason.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use Test::More;

# The long unit tests, 10,000 starts of threads, are for native programs and TSan.
my $all = delete $ENV{CHECK_ALL};
my $only = defined $ENV{ONLY} ? qr/$ENV{ONLY}/ : qr//;
my @units = sort map { m{/(test_\w+)\.c$} } glob "$top/tests/test_*.c";
my @programs = qw(multichase multiload pingpong fairness);
my $cpus = () = allowed_cpus();
my $debug = '-g -fno-omit-frame-pointer -fno-sanitize-recover=all';
my $addresses = "$debug -fsanitize=address,undefined";

sub units_but { my ($left_out) = @_; return [grep { !/$left_out/ } @units] }

# Memory that cannot be had is for the program to report.
$ENV{ASAN_OPTIONS} = $ENV{MSAN_OPTIONS} = 'allocator_may_return_null=1';
# Threads are told to stop and not waited for, as a pass may take long.
$ENV{TSAN_OPTIONS} = 'allocator_may_return_null=1:report_thread_leaks=0';
$ENV{TEST_COMMAND_LIMIT} ||= 120;

# A report ends the program, so that it fails. clang is given -O0: it takes
# minutes over the unrolled chases otherwise. permutation is a single thread's,
# and takes minutes at -O0 with MemorySanitizer.
#
# MemorySanitizer of clang 14 knows fstat() of libc, but not fstat64(), its name
# for large files. Nor does it see what a stream of fmemopen() writes, with which
# the CPUs that may be used are listed: that message is left to the others.
my @builds = (
	{name => 'asan', compiler => 'gcc', flags => "-O1 $addresses", units => \@units, scripts => ['output']},
	{name => 'asan-clang', compiler => 'clang', flags => "-O0 $addresses", units => \@units, all => 1},
	{name => 'asan-O3', compiler => 'gcc', flags => "-O3 $addresses", units => \@units, all => 1},
	{name => 'tsan', compiler => 'gcc', flags => '-O1 -g -fsanitize=thread', units => units_but(qr/permutation/), all => 1},
	{name => 'msan', compiler => 'clang', flags => "-O0 $debug -fsanitize=memory", more => 'CPPFLAGS=-U_FILE_OFFSET_BITS',
	 units => units_but(qr/permutation/), all => 1},
);

# Some threads more than a small machine has CPUs, so that they meet everywhere.
my @commands = map { short_command("$_ -X -t 4 -m 64k -s 512 -F 1m -v") } (
	(map { "multichase -c $_" } 'simple', 'work:3', 'incr', 'branch', 'parallel3', 'critword2:64', 'critword:64 -L'),
	'multichase -M -L', 'multichase -H', 'multichase -W 0:1', 'multichase --dirty-start', 'multichase --json',
	'multiload', 'multiload -c chaseload',
	map { ("multiload -l $_", "multiload -c chaseload -l $_") } names_of('multiload', 'Memloads'),
);
push @commands, map { "$_ --interval 0.05" } 'fairness -n 1', 'fairness --json -n 1', 'pingpong -u', 'pingpong -l', 'pingpong -x --json';

# Not a part of the make that runs this.
sub alone { delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES)} }

# False if the compiler is not there, or lacks what the flags need.
sub can_build
{
	my ($compiler, $flags) = @_;
	return 0 if !found($compiler);
	spew("$tmp/probe.c", "int main(void) { return 0; }\n");
	return run([$compiler, split(' ', $flags), "$tmp/probe.c", '-o', "$tmp/probe"])->{exit} == 0 && run(["$tmp/probe"])->{exit} == 0;
}

sub build
{
	my ($of) = @_;
	my $folder = "build/$of->{name}";
	my $made = run(['make', '-s', "-j$cpus", '-C', $top, "CC=$of->{compiler}", "CFLAGS=$of->{flags}", $of->{more} || (), 'LDFLAGS=',
		"BUILD=$folder", "BIN=$folder", map { "$folder/$_" } @programs, @{$of->{units}}], before => \&alone, limit => 900);
	is($made->{exit}, 0, "$of->{name}: is built") or diag($made->{err});
}

# A unit test, or a script of tests, passes and has nothing to say on stderr.
sub passes
{
	my ($what, $command, @how) = @_;
	my $result = run($command, limit => 900, @how);
	# What is asked for there is more than there can be.
	$result->{err} =~ s/^==\d+==WARNING: \w+ failed to allocate .*\n//mg if $what =~ /arena/;
	ok($result->{exit} == 0 && $result->{err} eq '' && $result->{out} =~ /^1\.\.[1-9]/m, $what)
		or diag(join "\n", grep({ /^not ok/ } split /\n/, $result->{out}), $result->{err});
}

sub is_silent
{
	my ($what, $command) = @_;
	my $result = run($command, limit => 300);
	# On a busy machine a thread may not come to its turn, which is said.
	$result = run($command =~ s/ 0\.05/ 1/r, limit => 300) if $result->{err} =~ /longer$/;
	is(join(' ', $result->{exit}, $result->{err}), '0 ', "$what: exit 0, nothing on stderr");
}

for my $build (grep { ($all || !$_->{all}) && $_->{name} =~ $only } @builds) {
	my $name = $build->{name};
	my $folder = "$top/build/$name";
	SKIP: {
		skip "$name: $build->{compiler} cannot build that here", 1 if !can_build(@$build{qw(compiler flags)});
		build($build);
		passes("$name: $_", ["$folder/$_"], before => sub { $ENV{CHECK_ALL} = 1 if $name eq 'tsan' }) for @{$build->{units}};
		passes("$name: $_.t", ["$top/tests/$_.t"], before => sub { $ENV{TEST_BIN} = $folder }) for @{$build->{scripts} || []};
		next if !$build->{all};
		is_silent("$name: $_", "$folder/$_") for @commands;
	}
}

# What valgrind is run on: a moment of each program, long enough for its pace.
sub slow { return map { short_command("$_ -m 64k -F 1m") =~ s/ 0\.05/ 1/r } @_ }
my @pairs = ('fairness -n 1 --interval 1', 'pingpong -u --interval 1', 'pingpong -x --interval 1');
my @few = slow('multichase', 'multichase -X -t 2', 'multichase -c branch', 'multichase -M -L', 'multichase -H', 'multichase -W 0:1',
	'multichase --json', 'multiload -l stream-sum', 'multiload -l stream-triad -X -t 2', 'multiload -l memcpy-libc',
	'multiload -l zero-read', 'multiload -c chaseload -X -t 2');
push @few, @pairs, 'multichase --help', 'multichase -W abc', 'multichase --cpus 99999';
my @threaded = (slow('multichase -X -t 2 -v', 'multichase -c branch -M -L', 'multichase -H --json', 'multichase -W 0:1',
	'multiload -l stream-triad -X -t 2', 'multiload -c chaseload -X -t 2'), @pairs);

# False: it is not to be run, or not here.
sub has_valgrind
{
	my ($name) = @_;
	return 0 if !$all || $name !~ $only;
	SKIP: {
		return 1 if found('valgrind');
		skip "$name: valgrind was not found", 1;
	}
	return 0;
}

sub under_valgrind
{
	my ($name, $folder, $lines, @options) = @_;
	for my $line (@$lines) {
		my $result = run(['valgrind', '-q', '--fair-sched=try', "--tool=$name", '--error-exitcode=9', @options, split ' ', "$folder/$line"], limit => 300);
		is($result->{exit}, $line =~ /abc|99999/ ? 1 : 0, "$name: $line");
		unlike($result->{err}, qr/^==/m, "$name: $line: has nothing to say");
	}
}

# With a libc that valgrind can look into. What is left to the others: arena,
# since valgrind says EINVAL to a mapping where the kernel says ENOMEM, and crew,
# of more threads than valgrind can have. A leak counts where no pointer is left:
# glibc has one into the midst of what belongs to a thread that still runs.
my $dynamic = {name => 'dynamic', compiler => 'gcc', flags => '-g -O2', units => units_but(qr/arena|crew/)};
if (has_valgrind('memcheck')) {
	my @leaks = ('--leak-check=full', '--show-leak-kinds=definite', '--errors-for-leak-kinds=definite');
	build($dynamic);
	passes("memcheck: $_", [qw(valgrind -q --error-exitcode=9), @leaks, "$top/build/dynamic/$_"]) for @{$dynamic->{units}};
	under_valgrind('memcheck', "$top/build/dynamic", \@few, @leaks);
}
if (has_valgrind('helgrind')) {
	build({%$dynamic, units => []});
	under_valgrind('helgrind', "$top/build/dynamic", \@threaded, "--suppressions=$top/tests/helgrind.supp");
}

done_testing();
