#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# What the kernel says of a running program: its peak memory, what its arena is
# made of, its threads and the CPUs that they may use; and that --dry-run takes
# neither memory nor threads.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use Test::More;

my @cpus = allowed_cpus();
# As many threads as there may be, up to 2.
my $threads = @cpus < 2 ? 1 : 2;
my $writes_back = run('multichase --help')->{out} =~ /--flush SIZE .*write the chase back/;

# Runs a command until it is past its start line, hands its folder in /proc to a
# function, and ends it.
sub look
{
	my ($line, $look) = @_;
	my $job = start("$line -v -n 0 --interval 0.05");
	my $ready = wait_for(sub { slurp($job->{out}) =~ /^write_back = /m || !-e "/proc/$job->{pid}/exe" });
	my @found = $look->("/proc/$job->{pid}");
	my $result = finish($job, 'KILL');

	ok($ready && $result->{signal} == 9, "$line: runs") or diag($result->{err});
	return @found;
}

# Peak memory in KiB: 2 % of the arena and 8 MiB are allowed beside it.

sub peak_of { return slurp("$_[0]/status") =~ /^VmHWM:\s*(\d+) kB$/m ? $1 : 0 }

sub check_peak
{
	my ($line, $kib, $extra) = @_;
	my ($peak) = look($line, \&peak_of);

	cmp_ok($peak, '>=', $kib + $extra, "$line: all of its memory is touched");
	cmp_ok($peak, '<=', $kib * 1.02 + 8192 + $extra, "$line: and hardly any other");
}

check_peak('multichase -F 0 -m 64m', 65536, 0);
# Two pages are touched, but for -L.
check_peak('multichase -F 0 -s 16m -m 32m', 8, 0);
check_peak("multichase -F 0 -s 16m -m 32m -L -t $threads", 32768, 0);
check_peak('multichase -F 0 -m 256m -s 1024 -T 8m -L', 262144, 0);
check_peak("multichase -F 0 -m 256m -s 1024 -T 256m -L -t $threads", 262144, 0);
check_peak("multichase -F 0 -m 64m -s 64 -T 64m -t $threads", 65536, 0);
check_peak("multichase -F 0 -m 64m -s 4096 -T 4k -c parallel3 -t $threads", 65536, 0);
check_peak('multichase -F 0 -m 64m -c branch -L', 65536, 0);
check_peak('multichase -F 0 -m 64m -o -M', 65536, 0);
check_peak('multichase -F 24m -m 64m', 65536, $writes_back ? 0 : 24576);
check_peak('multichase -F 24m -m 64m --dirty-start', 65536, $writes_back ? 0 : 24576);
check_peak("multiload -l stream-sum -m 16m -t $threads --warmup 0", 16384 * $threads, 0);
check_peak('multiload -F 0 -c chaseload -m 16m --warmup 0', 16384, 0);
SKIP: {
	skip 'loaded latency needs 2 CPUs', 1 if @cpus < 2;
	check_peak('multiload -F 0 -c chaseload -m 16m -t 2 --warmup 0', 32768, 0);
}

# What is before -O's offset is not touched.
my $nodes = run('multichase -F 0 -m 64k -n 1 --interval 0.05 -W 0:1')->{exit} == 0;
spew("$tmp/sparse", '');
truncate "$tmp/sparse", 65 << 20 or die "sparse: $!\n";
for my $more ('', ' -W 0:1', " -f $tmp/sparse -W 0:1", ' -M -W 0:1') {
	SKIP: {
		skip "-O 64m$more: this kernel has no NUMA nodes", 1 if $more =~ /-W/ && !$nodes;
		check_peak("multichase -F 0 -m 1m -O 64m$more", 1024, 0);
	}
}
SKIP: {
	skip '-W: this kernel has no NUMA nodes', 1 if !$nodes;
	cmp_ok((stat "$tmp/sparse")[12] * 512, '<', 8 << 20, '-O 64m -f FILE -W 0:1: the file stays sparse');
}
like(run('multichase -F 0 -m 4m -O 64m -H --json -n 1 --interval 0.05')->{out}, qr/"memory":\{"bytes":4194304\b/,
	'-O 64m -H: of the 4 MiB after the offset, some are on huge pages') if has_thp();

# What the arena is made of: the mapping of which most is in memory.

sub arena_of
{
	my ($folder) = @_;
	my %arena = (Rss => 0);
	my %mapping;

	for (split /\n/, slurp("$folder/smaps"), -1) {
		if (/^([0-9a-f]+)-[0-9a-f]+ (\S{4}) \S+ \S+ \S+ *(.*)$/ || $_ eq '') {
			%arena = %mapping if ($mapping{Rss} || 0) > $arena{Rss};
			%mapping = (permissions => $2, file => $3);
		} elsif (/^(\w+): +(.*?)(?: kB)?$/) {
			$mapping{$1} = $2;
		}
	}
	return \%arena;
}

spew("$tmp/FILE", 'x' x (16 << 20));
for (
	['multichase -m 16m', 'rw-p', qr/^$/, qr/\bnh\b/],
	['multichase -m 16m -H', 'rw-p', qr/^$/, qr/\bhg\b/],
	['multichase -m 16m -M', 'rw-p', qr/^$/, qr/\bnh\b/],
	["multichase -m 16m -f $tmp/FILE", 'rw-s', qr{^\Q$tmp\E/FILE$}, qr//],
	['multichase -m 16m -c branch', 'r-xp', qr/^$/, qr/\bnh\b/],
	['multiload -m 16m -l stream-sum -H --warmup 0', 'rw-p', qr/^$/, qr/\bhg\b/],
	['multiload -m 16m -l stream-sum --warmup 0', 'rw-p', qr/^$/, qr/\bnh\b/],
) {
	my ($line, $permissions, $file, $flags) = @$_;
	my ($arena) = look("$line -F 0", \&arena_of);
	cmp_ok($arena->{Rss}, '>=', 16384, "$line: all of it is in memory");
	is($arena->{permissions}, $permissions, "$line: permissions $permissions");
	like($arena->{file}, $file, "$line: the file it is mapped from, or none");
	SKIP: {
		skip "$line: no transparent huge pages in this kernel", 1 if !-d '/sys/kernel/mm/transparent_hugepage';
		like($arena->{VmFlags}, $flags, "$line: huge pages are refused or asked for");
	}
	next if $line =~ /-f/;
	SKIP: {
		skip "$line: memory is scattered", 1 if $line =~ /-H/ && $arena->{AnonHugePages} == 0;
		cmp_ok($arena->{AnonHugePages}, $line =~ /-H/ ? '>' : '==', 0, "$line: huge pages in it or not");
	}
}

# Each thread on a CPU of its own, in turn, or all where they were.

sub list_of { return join ',', sort { $a <=> $b } map { /(\d+)-(\d+)/ ? ($1 .. $2) : $_ } split /,/, $_[0] }

# The CPUs that the main thread may use, and those of the others in the order
# in which they were started.
sub affinity_of
{
	my ($folder) = @_;
	my @tasks = sort { $a <=> $b } map { m{/(\d+)$} } glob "$folder/task/*";
	return map { list_of(slurp("$folder/task/$_/status") =~ /^Cpus_allowed_list:\s*(\S+)/m ? $1 : '') } @tasks;
}

my $all = list_of(join ',', @cpus);
my ($first, $second) = @cpus;
for (
	['multichase -m 64k', $first],
	['multichase -m 64k -X', $all],
	['multichase -m 64k -X -t 5', ($all) x 5],
	["multichase -m 64k --cpus $first", $first],
	['multiload -m 64k --warmup 0', $first],
	['multiload -m 64k -l stream-sum --warmup 0', $first],
	['multiload -m 64k -l stream-sum -X -t 3 --warmup 0', ($all) x 3],
	['multichase -m 64k -t 2', $first, $second],
	["multichase -m 64k --cpus $#cpus", $cpus[-1]],
	["multichase -m 64k -t 2 --cpus 1,0", 1, 0],
	['multiload -m 64k -t 2 -c chaseload --warmup 0', $first, $second],
	['multiload -m 64k -t 2 -l stream-sum --warmup 0', $first, $second],
	['taskset -c 1 multichase -m 64k', 1],
) {
	my ($line, @expected) = @$_;
	SKIP: {
		skip "$line: needs CPUs 0 and 1", 1 if $line =~ /-t 2|,|-c 1/ && "@cpus" !~ /^0 1\b/;
		skip "$line: the CPUs that may be used are not all", 1 if $line =~ /--cpus $#cpus$/ && $cpus[-1] != $#cpus;
		skip 'taskset was not found', 1 if $line =~ /^taskset/ && !found('taskset');
		my ($main, @others) = look($line, \&affinity_of);
		is(scalar @others, scalar @expected, "$line: as many threads as asked for, and main");
		is("@others", "@expected", "$line: each on its CPUs");
		is($main, $line =~ /^taskset/ ? 1 : $all, "$line: main where it was");
	}
}

# A page that could not be had is laid to the option that asked for it.
for my $option ('-m 1m', "-f $tmp/FILE") {
	my $line = $option =~ /-f/ ? "-m 1m $option" : $option;
	my $job = start("multichase -F 0 -n 0 --interval 0.05 -v $line");
	wait_for(sub { slurp($job->{out}) =~ /avg=/ });
	my $result = finish($job, 'BUS');
	is($result->{exit}, 1, "$line, SIGBUS: exit 1");
	like($result->{err}, qr/\A\w+: error: \Q$option\E: memory that was mapped [^\n]*\n\z/, "$line, SIGBUS: one line names $option");
}

# --dry-run maps nothing as large as the arena, or the flush buffer, or a stack.
SKIP: {
	skip 'strace was not found', 1 if !found('strace');
	skip 'strace may not trace here', 1 if run('strace true')->{exit};
	for my $line ('multichase --dry-run -m 1g -t 1', 'multichase --dry-run -m 1g -H', 'multichase --dry-run -m 1g -M',
		"multichase --dry-run -m 16m -f $tmp/FILE", 'multichase --dry-run -m 1g -p 2m', 'multiload --dry-run -m 1g -l stream-sum',
		'multiload --dry-run -m 1g -c chaseload') {
		my $result = run("strace -f -o $tmp/trace -e trace=%memory,clone,clone3,fork,vfork,open,openat $line");
		is($result->{exit}, 0, "$line: exit 0");
		is($result->{err}, '', "$line: nothing on stderr");
		my $trace = slurp("$tmp/trace");
		my @mapped = $trace =~ /\bmmap2?\([^,]*, (\d+)/g;
		like($trace, qr/\b(?:brk|mmap2?)\(/, "$line: was traced");
		is(scalar grep({ $_ > 4 << 20 } @mapped), 0, "$line: no large mapping");
		unlike($trace, qr/\b(?:clone3?|v?fork)\(/, "$line: no thread");
		unlike($trace, qr/FILE|O_WRONLY|O_RDWR/, "$line: opens nothing to write");
	}
}

done_testing();
