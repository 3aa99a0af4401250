#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# Numbers under stress: programs and single threads that are stopped for a while
# in the midst of sampling, or moved to another CPU, clocks that jump, more threads
# than CPUs, 512 threads, and counts beyond 32 bits. Whatever is printed stays
# well-formed and finite.
# With CHECK_ALL=1 a stop takes five seconds, and clocks jump.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use JSON::PP;
use POSIX qw(uname);
use Test::More;
use Time::HiRes qw(sleep);

# Shorter than what is left of a run: a thread that is stopped does not end.
my $stop_seconds = $ENV{CHECK_ALL} ? 5 : 1.5;
my $samples = $ENV{CHECK_ALL} ? 26 : 12; # of 0.25 s
my $many = 512;
my $number = qr/\d+\.\d+/;
my $cpus = () = allowed_cpus();

# ptrace(2), for which Perl has no function, stops one thread of a program.
my %ptrace_numbers = (x86_64 => 101, aarch64 => 117, riscv64 => 117);
my $ptrace = $ptrace_numbers{(uname())[4]};
use constant {PTRACE_DETACH => 17, PTRACE_SEIZE => 0x4206, PTRACE_INTERRUPT => 0x4207};
use constant WALL => 0x40000000;

# The numbers that JSON holds, wherever they are.
sub numbers
{
	my ($of) = @_;

	return map { numbers($_) } values %$of if ref $of eq 'HASH';
	return map { numbers($_) } @$of if ref $of eq 'ARRAY';
	return ref $of || !defined $of || $of !~ /^-?[\d.]/ ? () : $of;
}

sub is_finite { my ($text) = @_; return $text !~ /\b(?:inf|nan)/i }

# Success, quiet, and each line of stdout as one of the patterns.
sub well_formed
{
	my ($what, $result, @patterns) = @_;
	my @odd = grep { my $line = $_; !grep { $line =~ /^(?:$_)$/ } @patterns } split /\n/, $result->{out};

	is(join(' ', $result->{exit}, $result->{err}), '0 ', "$what: exit 0, stderr empty");
	is("@odd", '', "$what: each line is as it should be");
	ok(is_finite($result->{out}), "$what: no inf, no nan");
}

# Waits for a number of lines that match, then does it, then waits for the end.
sub interrupted
{
	my ($command, $pattern, $do) = @_;
	my $job = start($command);

	wait_for(sub { slurp($job->{out}) =~ /^$pattern/m }) or diag("$command: no $pattern");
	$do->($job);
	return finish($job);
}

sub stop_all
{
	my ($job) = @_;

	kill 'STOP', $job->{pid};
	sleep $stop_seconds;
	kill 'CONT', $job->{pid};
}

# Stops the thread that was started last. False: that is not permitted.
sub stop_thread
{
	my ($job, $seconds) = @_;
	my ($thread) = sort { $b <=> $a } map { m{/(\d+)$} } glob "/proc/$job->{pid}/task/*";

	return 0 if !$ptrace || syscall($ptrace, PTRACE_SEIZE, $thread, 0, 0) != 0;
	syscall($ptrace, PTRACE_INTERRUPT, $thread, 0, 0);
	waitpid($thread, WALL);
	sleep $seconds;
	return 1 if syscall($ptrace, PTRACE_DETACH, $thread, 0, 0) == 0;
	waitpid($thread, WALL); # it has ended meanwhile
	return 1;
}

my $value = qr/\w+ = .*/;
my $ns_line = qr/(?: *$number )+ avg= *$number/;
my $chase = "multichase -v -m 1m -n $samples -X --interval 0.25";
my $load = "multiload -v -m 1m -n $samples -X --warmup 0 --interval 0.25 -l stream-sum";
my $total = qr/.*Total\(MiB\/s\)=.*PerThread=.*/;
my @load_lines = ($value, $total, qr/Chas.*|LdAvg.*/, qr/Samples.*/, qr/\d+ *\t.*/);

# A program that is stopped as a whole.
well_formed('multichase stopped', interrupted("$chase -t 2", $ns_line, \&stop_all), $value, $ns_line, qr/ *$number/);
my $stopped = interrupted("$load -t 2", $total, \&stop_all);
well_formed('multiload stopped', $stopped, @load_lines);
my %row = table_of($stopped->{out});
cmp_ok($row{LdAvgMibs} // 0, '>', 0, 'multiload stopped: a bandwidth');
$stopped = interrupted('fairness -t 0.25 -n 4', qr/ +$number/, \&stop_all);
well_formed('fairness stopped', $stopped, qr/(?:un)?relaxed:/, qr/(?: +$number)+/);
SKIP: {
	skip 'pingpong needs two CPUs', 3 if $cpus < 2;
	my ($one, $two) = allowed_cpus();
	$stopped = interrupted("pingpong -u --cpus $one,$two", qr/ +\d+ +\d+/, \&stop_all);
	well_formed('pingpong stopped', $stopped, qr/ +\d+ +\d+/, qr/ *\d+: +$number/);
}

# One thread that is stopped: its column says 0, and the others go on.
SKIP: {
	my $permitted;
	my $one = sub { my ($command, $pattern) = @_;
		return interrupted($command, $pattern, sub { $permitted = stop_thread($_[0], $stop_seconds) }) };
	$stopped = $one->("$chase -t 2", $ns_line);
	skip 'ptrace is not permitted here', 1 if !$permitted;
	well_formed('one thread stopped', $stopped, $value, $ns_line, qr/ *$number/);
	like($stopped->{out}, qr/^(?: *$number +0\.000| *0\.000 +$number) +avg= *$number$/m,
		'one thread stopped: 0 in its column while it was');
	$stopped = $one->("$chase -t 1", $ns_line);
	well_formed('the only thread stopped', $stopped, $value, $ns_line, qr/ *$number/);
	unlike($stopped->{out}, qr/^ *0\.000 /m, 'the only thread stopped: no sample of nothing');
	is(scalar(() = $stopped->{out} =~ /avg=/g), $samples, 'the only thread stopped: all samples are taken');
	my $timed = $chase =~ s/-n \d+/-N -n @{[$samples \/ 2 + 2]}/r =~ s/ --interval \S+//r;
	$stopped = $one->("$timed -t 1", $ns_line);
	like($stopped->{out}, qr/^timed out: \d+ samples, [1-9]\d* stalls, \d+ iterations per msec$/m,
		'the only thread stopped, -N: it counts stalls');
	well_formed('a load thread stopped', $one->("$load -t 2", $total), @load_lines);
	well_formed('loaded latency, a load thread stopped',
		$one->("$load -c chaseload -t 2 -s 256", $total), @load_lines);
	last if !$ENV{CHECK_ALL};
	# A look with what went before, then four of three seconds without a step.
	my $given_up = interrupted('multichase -v -m 1m -n 20 --interval 3', $ns_line, sub { stop_thread($_[0], 17) });
	my $taken = () = $given_up->{out} =~ /avg=/g;
	cmp_ok($taken, '<', 20, 'stopped for too long: the run gave up');
	is($given_up->{err}, "multichase: warning: no sample came in more than 10 s: the result is of $taken, with -n 20\n",
		'stopped for too long: a warning says so');
	$given_up->{err} = '';
	well_formed('stopped for too long', $given_up, $value, $ns_line, qr/ *$number/);
}

# Threads that are moved, as the kernel does when their CPU goes away.
SKIP: {
	skip 'there is one CPU, so no other to move to', 1 if $cpus < 2;
	skip 'taskset was not found', 1 if !found('taskset');
	my ($from, $to) = allowed_cpus();
	for (["multichase -v -m 64k -n 4 --interval 0.25 --cpus $from", $ns_line],
		["multiload -v -l stream-sum -m 64k -n 4 --warmup 0 --interval 0.25 --cpus $from", $total],
		["pingpong -u --cpus $to,$from", qr/ +\d+ +\d+/],
		["fairness -n 4 --interval 0.25 --cpus $from", qr/ +$number/]) {
		my ($command, $pattern) = @$_;
		my ($program) = $command =~ /(\w+)/;
		my $moved = interrupted($command, $pattern, sub { run("taskset -a -c -p $to $_[0]{pid}") });

		is($moved->{exit}, 0, "$program moved: exit 0");
		like($moved->{err}, qr/\A$program: warning: a thread left CPU $from during the run: .*\n\z/,
			"$program moved: one warning names the CPU");
	}
}

# Clocks that jump. The date must not matter; a jump of CLOCK_MONOTONIC, which
# can only be one ahead, makes one sample of its time, and the others are right.
sub averages { my ($out) = @_; return $out =~ /avg= *($number)$/mg }

sub check_jump
{
	my ($jump, $seconds) = @_;
	my $with = sub { return run("$top/build/dynamic/$_[0]", before => sub { @ENV{'LD_PRELOAD', 'JUMP_AFTER', $jump} = ("$tmp/jumping_clock.so", 0.8, $seconds) }) };
	my $what = "$jump of $seconds s";
	my $said = $with->('multichase -v -y -m 64k -n 6 --interval 0.25');
	my ($best, @others) = sort { $a <=> $b } averages($said->{out});
	my $stamp = qr/\d+\.\d{6} /;

	well_formed("multichase, $what", $said, $value, qr/$stamp$ns_line/, qr/$stamp *$number/);
	is(scalar @others, 5, "multichase, $what: all samples are taken");
	is(scalar(grep { $_ > 1000 * $best } @others), $jump eq 'JUMP_DATE' ? 0 : 1, "multichase, $what: which samples it is in");
	my ($first, $last) = $said->{out} =~ /^(\d+)\.\d{6} .*^(\d+)\.\d{6} /ms;
	cmp_ok(abs($last - $first - ($jump eq 'JUMP_DATE' ? $seconds : 0)), '<', 60, "multichase, $what: -y follows the date");
	well_formed("multiload, $what", $with->('multiload -v -l stream-sum -m 64k -n 6 --warmup 0 --interval 0.25'), @load_lines);
	well_formed("fairness, $what", $with->('fairness -n 4 --interval 0.25'), qr/(?:un)?relaxed:/, qr/(?: +$number)+/);
	well_formed("pingpong, $what", $with->('pingpong -u -c 1 --interval 0.25'), qr/(?: +\d+)+/, qr/ *\d+:(?: +$number)*/);
}

if ($ENV{CHECK_ALL}) {
	my $folder = 'build/dynamic';
	my $made = run(['make', '-s', '-C', $top, 'CFLAGS=-g -O2', 'LDFLAGS=', "BUILD=$folder", "BIN=$folder", 'all'],
		before => sub { delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES)} }, limit => 600);
	is($made->{exit}, 0, 'dynamic programs are built') or diag($made->{err});
	$made = run(['cc', '-D_GNU_SOURCE', '-shared', '-fPIC', '-o', "$tmp/jumping_clock.so", "$top/tests/jumping_clock.c"]);
	is($made->{exit}, 0, 'a library of clocks that jump is built') or diag($made->{err});
	check_jump(@$_) for ['JUMP_DATE', 86400], ['JUMP_DATE', -86400], ['JUMP_MONOTONIC', 3600];
}

# More threads than CPUs, and many of them.
sub many_threads
{
	my ($what, $command, $good) = @_;
	my $result = run($command);
	my $said = join ' ', $result->{exit}, $result->{err};

	# On a busy machine a thread may not come to its turn, which is said.
	$said = '0 ' if $said =~ /^1 \w+: error: --interval .* make it longer\n\z/ && $result->{out} eq '';
	is($said, '0 ', "$what: $command");
	ok($result->{exit} || $good->($result->{out}), "$what: its result") or diag($result->{out});
}
my $is_number = sub { $_[0] =~ /\A *$number\n\z/ && $_[0] > 0 };
my $has_load = sub { my %of = table_of($_[0]); %of && $of{LdAvgMibs} > 0 };

for my $threads (2 * $cpus + 1, $many) {
	my $stride = 8 * $many;
	# Each thread should come to its turn in a sample of multiload.
	my $seconds = $threads == $many ? 2 : 0.5;

	many_threads("$threads threads", "multichase -X -t $threads -s $stride -m 4m -n 1 --interval 0.25", $is_number);
	many_threads("$threads threads", "multiload -X -t $threads -l stream-sum -m 64k -n 1 --warmup 1 --interval $seconds",
		$has_load);
	many_threads("$threads threads",
		"multiload -X -t $threads -c chaseload -l stream-copy -m 64k -n 1 --warmup 1 --interval $seconds", $has_load);
}
my $job = start("multiload -X -t $many -l stream-sum -m 64k -n 0 --warmup 0 --interval 2 -v");
ok(wait_for(sub { slurp($job->{out}) =~ /nr_threads = $many/ }), "$many threads are started");
is(finish($job, 'TERM')->{signal}, POSIX::SIGTERM(), "$many threads: SIGTERM ends them");

# Counts that need more than 32 bits, in as long as that takes at 0.5 ns a step.
if ($ENV{CHECK_ALL}) {
	my $result = run('multichase -c parallel10 -s 128 -m 8k -n 3 --interval 2 --json');
	my $of = eval { JSON::PP->new->decode($result->{out}) } || {};
	my ($best, $worst) = @{$of->{result}{ns_statistics} || {}}{qw(min max)};

	cmp_ok($best // 0, '>', 0.01, 'counts beyond 32 bits: no step is faster than any CPU');
	cmp_ok($worst // 1e9, '<', 1e3, 'counts beyond 32 bits: nor slower');
	diag(sprintf 'the count had %.1f bits', log($of->{result}{steps_per_ms} * 8000) / log 2) if $best;
	is(scalar(grep { !/^-?\d/ } numbers($of)), 0, 'counts beyond 32 bits: numbers are numbers');
}

done_testing();
