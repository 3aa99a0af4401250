#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# The unit tests, and the tests of commands, on programs built with
# AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer. With
# SANITIZE_ALL=1 also by clang, at -O0 and -O3, with ThreadSanitizer, and under
# valgrind. Any report fails; none is suppressed.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use Test::More;

my $all = $ENV{SANITIZE_ALL};
my @units = sort map { m{/(test_\w+)\.c$} } glob "$top/tests/test_*.c";
my @programs = qw(multichase multiload pingpong fairness);
my $addresses = '-g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all';

# Memory that cannot be had is for the program to report.
$ENV{ASAN_OPTIONS} = $ENV{MSAN_OPTIONS} = 'allocator_may_return_null=1';
# Threads are told to stop and not waited for, as a pass may take long.
$ENV{TSAN_OPTIONS} = 'allocator_may_return_null=1:report_thread_leaks=0';
$ENV{TEST_COMMAND_LIMIT} ||= 120;

# Each row: the folder in build/, compiler, flags, which unit tests, and which
# tests of commands run on it.
my @builds = (
	['asan', 'gcc', "-O1 $addresses", \@units, ['output']],
);
push @builds, (
	['asan-clang', 'clang', "-O0 $addresses", \@units, []],
	['asan-O3', 'gcc', "-O3 $addresses", \@units, []],
	['tsan', 'gcc', '-O1 -g -fsanitize=thread', [grep { /pingpong|fairness/ } @units], []],
) if $all;

# Some threads more than a small machine has CPUs, so that they meet everywhere.
my @threaded = map { short_command("$_ -X -t 4 -m 64k -s 512 -v") } (
	(map { "multichase -c $_" } 'simple', 'incr', 'branch', 'parallel3', 'critword2:64', 'critword:64 -L'),
	'multichase -M -L', 'multichase -F 1m --dirty-start', 'multiload', 'multiload -c chaseload',
	map { ("multiload -l $_", "multiload -c chaseload -l $_") } names_of('multiload', 'Memloads'),
);

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
	my ($folder, $compiler, $flags, @targets) = @_;
	my $made = run(['make', '-s', '-C', $top, "CC=$compiler", "CFLAGS=$flags", 'LDFLAGS=', "BUILD=$folder", "BIN=$folder",
		map { "$folder/$_" } @targets], before => \&alone, limit => 900);
	ok(defined $made->{exit} && $made->{exit} == 0, "$folder: is built") or diag($made->{err});
}

# A unit test, or a script of tests, passes and has nothing to say on stderr.
sub passes
{
	my ($what, $command, @how) = @_;
	my $result = run($command, limit => 900, @how);
	# What is asked for there is more than there can be.
	$result->{err} =~ s/^==\d+==WARNING: \w+ failed to allocate .*\n//mg if $what =~ /arena/;
	ok(defined $result->{exit} && $result->{exit} == 0 && $result->{err} eq '' && $result->{out} =~ /^1\.\.[1-9]/m, $what)
		or diag(join "\n", grep({ /^not ok/ } split /\n/, $result->{out}), $result->{err});
}

sub is_silent
{
	my ($what, $command, @how) = @_;
	my $result = run($command, limit => 300, @how);
	is($result->{exit}, 0, "$what: exit 0");
	is($result->{err}, '', "$what: nothing on stderr");
}

for (@builds) {
	my ($name, $compiler, $flags, $unit_tests, $scripts) = @$_;
	my $folder = "$top/build/$name";
	SKIP: {
		skip "$name: $compiler cannot build that here", 1 if !can_build($compiler, $flags);
		build("build/$name", $compiler, $flags, @programs, @$unit_tests);
		passes("$name: $_", ["$folder/$_"]) for @$unit_tests;
		passes("$name: $_.t", ["$top/tests/$_.t"], before => sub { $ENV{TEST_BIN} = $folder }) for @$scripts;
		next if $name !~ /tsan/;
		is_silent("$name: $_", "$folder/$_") for @threaded;
	}
}

SKIP: {
	last SKIP if !$all;
	skip 'valgrind was not found', 1 if !found('valgrind');
	# With a libc that valgrind can look into.
	my $folder = "$top/build/dynamic";
	my @few = grep { /options|report|clean|fairness|pingpong/ } @units;
	build('build/dynamic', 'gcc', '-g -O2', @programs, @few);
	my @valgrind = qw(valgrind -q --error-exitcode=9 --leak-check=full);
	passes("valgrind: $_", [@valgrind, "$folder/$_"]) for @few;
	for my $line ('multichase -m 64k -X -t 2', 'multichase -m 64k -c branch', 'multichase -m 64k -M -L', 'multiload -m 64k -l stream-sum',
		'multiload -m 64k -l stream-triad -X -t 2', 'multiload -m 64k -c chaseload -X -t 2', 'multichase --help', 'multichase -W abc') {
		my $result = run([@valgrind, split ' ', "$folder/" . short_command($line) =~ s/ 0\.05/ 1/r], limit => 300);
		is($result->{exit}, $line =~ /abc/ ? 1 : 0, "valgrind: $line");
		unlike($result->{err}, qr/^==/m, "valgrind: $line: has nothing to say");
	}
}

done_testing();
