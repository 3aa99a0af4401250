#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# What is printed: the lines of -v and -y to the letter, results that agree with
# the samples above them, lines that appear as they are made, and outputs that
# cannot be written to.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use Test::More;
use Time::HiRes qw(time);

my $cpus = () = allowed_cpus();
my ($cpu) = allowed_cpus();
my $number = qr/\d+\.\d+/;
my $stamp = qr/\d{10,}\.\d{6} /;
# Long enough that each thread gets its turn in each sample.
my $times = '--interval 0.1';
# As many threads as there may be, up to 2.
my $threads = $cpus < 2 ? 1 : 2;

# Do two numbers agree, but for the rounding of what is printed?
sub near
{
	my ($got, $expected, $tolerance, $what) = @_;
	my $passed = abs($got - $expected) <= $tolerance;
	ok($passed, $what) or diag("$got, expected $expected");
}

sub sum { my $sum = 0; $sum += $_ for @_; return $sum }
sub mean { return sum(@_) / @_ }
sub least { return (sort { $a <=> $b } @_)[0] }
sub most { return (sort { $a <=> $b } @_)[-1] }

# The lines of -v that say what runs, and those after them.
sub split_plan
{
	my ($out) = @_;
	my @lines = split /\n/, $out;
	my @plan;
	push @plan, shift @lines while @lines && $lines[0] =~ /^\w+ = /;
	return (\@plan, \@lines);
}

my @chase_plan = (
	qr/^nr_mixer_indices = 16$/, qr/^base_object_size = 16$/, qr/^nr_threads = $threads$/,
	qr/^page_size = \d+ bytes$/, qr/^total_memory = 1048576 \(1\.0 MiB\)$/, qr/^stride = 256$/,
	qr/^tlb_locality = 65536$/, qr/^chase = incr$/, qr/^seed = 17$/,
);
my @common_plan = @chase_plan[3 .. 6];

sub is_plan
{
	my ($plan, $what, @expected) = @_;
	is(scalar @$plan, scalar @expected, "$what: as many lines of name = value");
	like($plan->[$_], $expected[$_], "$what: line $_ of name = value") for 0 .. $#expected;
}

# multichase -v

sub check_multichase
{
	my ($flags, $what, $result_of) = @_;
	my $result = run("multichase -v -c incr -t $threads -n 4 -m 1m -T 64k --seed 17 $times $flags");
	my ($plan, $lines) = split_plan($result->{out});
	my (@averages, @columns);

	is($result->{exit}, 0, "$what: exit 0");
	is($result->{err}, '', "$what: nothing on stderr");
	is_plan($plan, $what, @chase_plan, qr/^write_back = (?:none|\d+ bytes, \d+ lines of \d+ bytes, \d+\.\d{6} s)$/);
	is(scalar @$lines, 5, "$what: 4 samples and the result");
	for (@$lines[0 .. $#$lines - 1]) {
		like($_, qr/^(?: *$number ){$threads} avg= *$number$/, "$what: a column a thread, and avg=");
		my ($columns, $average) = / *(.*) avg= *(.*)/;
		@columns = split ' ', $columns;
		push @averages, $average;
		# Elapsed time over all dereferences, times the threads. A thread
		# that was not let run shows 0.
		near($average, @columns / sum(map { $_ > 0 ? 1 / $_ : 0 } @columns), $average / 1000 + 0.11, "$what: avg= is of the threads");
	}
	like($lines->[-1], qr/^ *$number$/, "$what: the result stands alone");
	near($lines->[-1], $result_of->(@averages), 0.11, "$what: the result is of the samples");
}

check_multichase('', 'multichase -v', \&least);
check_multichase('-a', 'multichase -v -a', \&mean);
check_multichase('-v', 'multichase -v -v', \&least);

{
	my ($plan) = split_plan(run("multichase --dry-run -c incr -t $threads -m 1m -T 64k --seed 17")->{out});
	is_plan($plan, 'multichase --dry-run', @chase_plan);
}

# The object is what the argument makes of it; -H says so.
{
	my ($plan) = split_plan(run('multichase --dry-run -H -c critword:64 -s 1024 -m 2m -T 1')->{out});
	is_plan($plan, 'multichase --dry-run -H -c critword:64', qr/= 8$/, qr/= 128$/, qr/= 1$/, qr/^page_size = \d+ bytes \(THP\)$/,
		qr/= 2097152 \(2\.0 MiB\)$/, qr/= 1024$/, qr/^tlb_locality = 1024$/, qr/^chase = critword:64$/, qr/^seed = 1$/);
}

# The rounding of -s, -T and -m.
for (
	['-s 100 -T 1000 -m 10000', 10000, 100, 1000],
	['-s 100 -T 1099 -m 10999', 10000, 100, 1000],
	['-s 100 -T 50 -m 10050', 10000, 100, 100],
	['-s 100 -T 0 -m 99', 100, 100, 100],
	['-s 100 -T 1m -m 250', 200, 100, 200],
	['-s 12 -T 64k -m 1m', 1048512, 12, 65532],
	['-s 4k -T 16g -m 5000', 4096, 4096, 4096],
) {
	my ($options, $memory, $stride, $locality) = @$_;
	my $out = run("multichase --dry-run $options")->{out};
	like($out, qr/^total_memory = $memory \(.*\nstride = $stride\ntlb_locality = $locality\n/ms, "multichase $options: is rounded");
}

# -y and -N

sub is_stamped
{
	my ($lines, $from, $what) = @_;
	my $last = $from;
	for (@$lines) {
		like($_, qr/^$stamp/, "$what: a timestamp before: " . s/^[\d.]+ //r);
		my ($at) = /^([\d.]+) /;
		cmp_ok($at, '>=', $last - 0.000001, "$what: it is not before the last");
		$last = $at;
	}
	cmp_ok($last, '<=', time + 0.001, "$what: none is in the future");
}

{
	my $begin = time;
	my $result = run("multichase -y -v -N -t $threads -n 4 -m 1m $times");
	my (undef, $lines) = split_plan($result->{out});
	my ($samples, $stalls, $rate) = $result->{out} =~
		/^${stamp}timed out: (\d+) samples, (\d+) stalls, (\d+) iterations per msec\n$stamp *$number\n\z/m;
	is($result->{exit}, 0, 'multichase -N -y: exit 0');
	is($result->{err}, '', 'multichase -N -y: nothing on stderr');
	is_stamped($lines, $begin, 'multichase -N -y');
	is($samples, @$lines - 2, 'multichase -N -y: as many samples as it says');
	cmp_ok($samples + $stalls, '<=', 4, 'multichase -N -y: no more than the time of 4 samples');
	cmp_ok($rate, '>', 0, 'multichase -N -y: and iterations');
}
for my $flags ('', '-a') {
	my $result = run("multichase -N -n 1 -m 64k $flags --interval 0.2");
	my ($samples, $rate, $ns) = $result->{out} =~
		/\Atimed out: (\d+) samples, \d+ stalls, (\d+) iterations per msec\n *($number)\n\z/;
	is($samples, 1, "multichase -N -n 1 $flags: a sole sample is kept");
	near($ns * $rate / 1e6, 1, 0.01, "multichase -N -n 1 $flags: iterations and latency agree");
}

# multiload -v

sub check_multiload
{
	my ($arguments, $type, $chases, $loads, $load) = @_;
	my $what = "multiload $arguments";
	my $begin = time;
	my $result = run("multiload -v -n 4 -m 1m -T 64k --seed 17 --warmup 0 $times $arguments");
	my ($plan, $lines) = split_plan($result->{out} =~ s/^memload_variant = \w+\n//mr);
	my %row = table_of($result->{out});
	my $y = $arguments =~ /-y/ ? $stamp : '';
	my (@latencies, @totals, %of);

	is($result->{exit}, 0, "$what: exit 0");
	is($result->{err}, '', "$what: nothing on stderr");
	is_plan($plan, $what, $chases ? (qr/= 32$/, qr/^base_object_size = 8$/) : (),
		qr/^nr_threads = @{[$chases + $loads]}$/, @common_plan,
		$chases ? (qr/^chase = \S+$/, qr/^seed = 17$/) : (), $load ? qr/^memload = $load$/ : (),
		qr/^run_test_type = $type$/, qr/^write_back = /);
	ok(%row, "$what: a table") or return;
	unlike($lines->[-2], qr/^$stamp/, "$what: no timestamp before the header");
	is_stamped([@$lines[0 .. $#$lines - 2], $lines->[-1]], $begin, $what) if $y;

	for (@$lines[0 .. 3]) {
		if ($chases) {
			like($_, qr/^$y.* avg= *$number \(ns\)/, "$what: avg= and (ns)");
			push @latencies, / avg= *($number)/;
		}
		if ($loads) {
			like($_, qr/Total\(MiB\/s\)=$number PerThread=(?: $number){$loads}$/, "$what: Total and PerThread");
			my ($total, $each) = /Total\(MiB\/s\)=($number) PerThread=(.*)/;
			near($total, sum(split ' ', $each), 0.2, "$what: the total is that of the threads");
			push @totals, $total;
		}
	}
	for (@$lines[4 .. $#$lines - 2]) {
		like($_, qr/^$y(?:\w+=\d[\d.]*, )+\w+=\d[\d.]*$/, "$what: statistics");
		%of = (%of, /(\w+)=([\d.]+)/g);
	}
	is(scalar @$lines, 6 + ($chases > 0) + ($loads > 0), "$what: 4 samples, statistics and the table");

	is($row{Samples}, 4, "$what: Samples");
	is($row{'Byte/thd'}, 1 << 20, "$what: Byte/thd");
	is($row{ChaseThds}, $chases, "$what: ChaseThds");
	is($row{LoadThds}, $loads, "$what: LoadThds");
	if ($chases) {
		my $ns = $arguments =~ /-a/ ? $of{ChasGEO} : $of{ChasBEST};
		my $deviation = ($of{ChasWORST} - $of{ChasBEST}) / $of{ChasAVG};
		near($of{ChasBEST}, least(@latencies), 0.051, "$what: ChasBEST=");
		near($of{ChasWORST}, most(@latencies), 0.051, "$what: ChasWORST=");
		near($of{ChasAVG}, mean(@latencies), 0.051, "$what: ChasAVG=");
		near($of{ChasGEO}, exp(mean(map { log } @latencies)), 0.051, "$what: ChasGEO=");
		near($of{ChasDEV}, $deviation, 0.002, "$what: ChasDEV=");
		is($row{ChaseNS}, $ns, "$what: ChaseNS");
		near($row{ChaseMibs}, 8 * $chases * 1e9 / $ns / (1 << 20), 1 + $row{ChaseMibs} / $ns / 1000, "$what: ChaseMibs");
		is($row{ChDeviate}, $of{ChasDEV}, "$what: ChDeviate");
	} else {
		is(join(' ', @row{qw(ChaseNS ChaseMibs ChDeviate ChaseArg)}), '0.000 0 0.000 --------', "$what: no chase");
	}
	if ($loads) {
		near($of{LdMaxMibs}, most(@totals), 0.6, "$what: LdMaxMibs=");
		near($of{LdMinMibs}, least(@totals), 0.6, "$what: LdMinMibs=");
		near($of{LdAvgMibs}, mean(@totals), 0.6, "$what: LdAvgMibs=");
		near($of{LdDevMibs}, (most(@totals) - least(@totals)) / mean(@totals), 0.002, "$what: LdDevMibs=");
		is($row{$_}, $of{$_}, "$what: $_") for qw(LdMaxMibs LdAvgMibs);
		is($row{LdDeviate}, $of{LdDevMibs}, "$what: LdDeviate");
	} else {
		is(join(' ', @row{qw(LdMaxMibs LdAvgMibs LdDeviate)}), '0 0 0.000', "$what: no load");
	}
	is($row{MemLdArg}, $load || '--------', "$what: MemLdArg");
}

check_multiload('', 'RUN_CHASE', 1, 0);
check_multiload("-a -c t0 -t $threads -y", 'RUN_CHASE', $threads, 0);
check_multiload("-l stream-sum -t $threads -y", 'RUN_BANDWIDTH', 0, $threads, 'stream-sum');
# One thread chases alone.
check_multiload('-c chaseload', 'RUN_CHASE_LOADED', 1, 0, 'memcpy-libc');
SKIP: {
	skip 'loaded latency needs 2 CPUs', 1 if $cpus < 2;
	check_multiload('-a -c chaseload -t 2 -l memset-libc -y', 'RUN_CHASE_LOADED', 1, 1, 'memset-libc');
}

# What was typed is echoed.
for (['-c sim', 'ChaseArg', 'sim'], ['-c critword:0x40', 'ChaseArg', 'critword:0x40'], ['-l stream-su', 'MemLdArg', 'stream-su'],
	['-c chasel', 'MemLdArg', 'memcpy-libc']) {
	my ($arguments, $column, $typed) = @$_;
	my %row = table_of(run("multiload $arguments -m 64k -n 1 --warmup 0 $times")->{out});
	is($row{$column}, $typed, "multiload $arguments: $column is $typed");
}

# Lines appear as they are made, in a file and in a pipe.

for (['multichase -v -n 0', qr/ avg=/], ['multiload -v -n 0 -l stream-sum --warmup 0', qr/Total\(MiB\/s\)=/]) {
	my ($line, $sample) = @$_;
	my $job = start("$line -m 1m $times");
	my $seen = sub { return scalar grep { /$sample/ } split /^/, slurp($job->{out}) };
	ok(wait_for(sub { $seen->() > 0 }), "$line: a sample is in the file while it runs");
	my $before = $seen->();
	ok(wait_for(sub { $seen->() > $before }), "$line: and so is the next");
	like(slurp($job->{out}), qr/\n\z/, "$line: by whole lines");
	finish($job, 'KILL');

	pipe my $read, my $write or die "pipe: $!\n";
	$job = start("$line -m 1m $times", before => sub { open STDOUT, '>&', $write });
	close $write;
	my @lines;
	while (@lines < 2 && defined($_ = <$read>)) {
		push @lines, $_ if /$sample/;
	}
	is(scalar @lines, 2, "$line: samples come through a pipe while it runs");
	close $read;
	my $result = finish($job);
	is($result->{signal}, 13, "$line: a closed pipe ends it as usual (SIGPIPE)");
	is($result->{err}, '', "$line: without a word");
}

# Outputs that fail.

my $short = "-m 64k -n 1 $times";
for my $line ("multichase $short", "multichase -v $short", 'multichase --help', 'multichase --version',
	'multichase --dry-run', "multiload --warmup 0 $short", 'multiload --help', "multichase -v -m 64k -n 0 $times",
	"multiload -v -l stream-sum -m 64k -n 0 $times") {
	SKIP: {
		skip "$line: no /dev/full", 1 if !-c '/dev/full';
		my $full = run($line, stdout => '/dev/full');
		is($full->{exit}, 1, "$line > /dev/full: exit 1");
		like($full->{err}, qr/\A\w+: error: standard output: cannot write [^\n]*: No space left on device\n\z/, "$line > /dev/full: one line says why");
	}
	my $closed = run($line, before => sub { close STDOUT });
	is($closed->{exit}, 1, "$line >&-: exit 1");
	like($closed->{err}, qr/\A\w+: error: standard output: cannot write [^\n]*: Bad file descriptor\n\z/, "$line >&-: one line says why");
}

# A limit on the size of files is a failure to write, and no signal.
for my $line ("multichase $short", 'multichase --help', 'fairness --json -n 1 -t 0.01') {
	pipe my $read, my $write or die "pipe: $!\n";
	my $limited = run(['sh', '-c', 'ulimit -f 0; exec "$@"', 'sh', words($line)], before => sub { open STDERR, '>&', $write });
	close $write;
	is($limited->{exit}, 1, "$line, ulimit -f 0: exit 1");
	like(join('', <$read>), qr/\A\w+: error: standard output: cannot write [^\n]*: File too large\n\z/, "$line, ulimit -f 0: one line says why");
}

# A list of CPUs takes little of a small stack.
for my $line ("multichase --cpus $cpu $short", "fairness -n 1 -t 0.01 -d " . (1 << $cpu)) {
	is(run(['sh', '-c', 'ulimit -s 64; exec "$@"', 'sh', words($line)])->{exit}, 0, "$line, ulimit -s 64: exit 0");
}

# A file that is opened must not become the output that is closed.
{
	spew("$tmp/file", "\0" x 65536);
	my $result = run("multichase -f $tmp/file $short", before => sub { close STDOUT });
	is($result->{exit}, 1, 'multichase -f FILE >&-: exit 1');
	unlike(slurp("$tmp/file"), qr/\d\.\d{3}\n/, 'multichase -f FILE >&-: the result is not in the file');
}

done_testing();
