#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# Signals in each phase of a run: what there is of a result is printed, the
# program ends by the signal, and one that was ignored stays ignored. How long
# that takes is told, and not judged: SIGNAL_RUNS=20 has that many of each phase.
use strict;
use warnings;
use Fcntl;
use FindBin;
use IO::Handle;
use JSON::PP ();
use lib "$FindBin::Bin/lib";
use Command;
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep time);

my $cpus = () = allowed_cpus();
# ioctl_tty(2): requests that make a pseudoterminal ready.
use constant {TIOCGPTN => 0x80045430, TIOCSPTLCK => 0x40045431};
my %number = (HUP => 1, INT => 2, TERM => 15, USR1 => 10);
# How each program is run until it is stopped, a line of its samples, and how
# its output ends when there is a result.
my @programs = (
	['multichase -n 0 -v -m 64k', qr/ avg=/, qr/^ *\d+\.\d+\n\z/m],
	['multichase -n 0 -v -m 64k -c branch', qr/ avg=/, qr/^ *\d+\.\d+\n\z/m],
	['multiload -n 0 -v -m 64k -l memcpy-libc --warmup 0', qr/Total\(MiB\/s\)=/, qr/^Samples.*\n\d.*\n\z/m],
	['multiload -n 0 -v -m 64k --warmup 0', qr/ avg=/, qr/^Samples.*\n\d.*\n\z/m],
);

sub samples { my ($job, $sample) = @_; return scalar grep { /$sample/ } split /^/, slurp($job->{out}) }

# Is it past its start line? The last line of -v's plan says so.
sub is_running { my ($job) = @_; return slurp($job->{out}) =~ /^write_back = /m }

sub died_by
{
	my ($result, $signal, $what) = @_;
	is($result->{signal}, $number{$signal}, "$what: ends by SIG$signal");
	is($result->{err}, '', "$what: nothing on stderr");
	unlike($result->{out}, qr/\b(?:inf|nan)\b/i, "$what: no inf, no nan");
}

for my $row (@programs) {
	my ($line, $sample, $end) = @$row;
	for my $signal (qw(INT TERM HUP)) {
		my $what = "$line, SIG$signal";
		my $job = start("$line --interval 0.05");
		ok(wait_for(sub { samples($job, $sample) >= 2 }), "$what: two samples come");
		my $result = finish($job, $signal);
		died_by($result, $signal, "$what while sampling");
		like($result->{out}, $end, "$what while sampling: the result so far is printed");
	}

	# Another signal ends it at once, without a result.
	my $job = start("$line --interval 0.05");
	wait_for(sub { samples($job, $sample) >= 2 });
	my $result = finish($job, 'USR1');
	died_by($result, 'USR1', "$line, SIGUSR1");

	# What is ignored from the start, as by nohup, stays ignored.
	$job = start("$line --interval 0.05", before => sub { $SIG{HUP} = $SIG{INT} = 'IGNORE' });
	wait_for(sub { samples($job, $sample) >= 1 });
	kill $_, $job->{pid} for qw(HUP INT);
	my $seen = samples($job, $sample);
	ok(wait_for(sub { samples($job, $sample) >= $seen + 2 }), "$line: goes on when signals are ignored");
	died_by(finish($job, 'TERM'), 'TERM', "$line, then SIGTERM");

	# No sample has ended yet: in the first one, and in the warm-up.
	for my $times ('--interval 100', '--interval 0.05 --warmup 100') {
		my $long = $line =~ s/ --warmup 0//r;
		$job = start("$long $times" . ($times !~ /warmup/ && $line =~ /warmup/ ? ' --warmup 0' : ''));
		ok(wait_for(sub { is_running($job) }), "$line $times: runs");
		sleep 0.05;
		$result = finish($job, 'TERM');
		died_by($result, 'TERM', "$line $times");
		unlike($result->{out}, qr/$sample|$end/, "$line $times: no result");
	}

	# Stopped and continued.
	$job = start("$line --interval 0.05");
	wait_for(sub { samples($job, $sample) >= 1 });
	kill 'STOP', $job->{pid};
	sleep 0.5;
	kill 'CONT', $job->{pid};
	$seen = samples($job, $sample);
	ok(wait_for(sub { samples($job, $sample) >= $seen + 2 }), "$line: goes on after SIGSTOP and SIGCONT");
	$result = finish($job, 'INT');
	died_by($result, 'INT', "$line, stopped and continued");
	like($result->{out}, $end, "$line, stopped and continued: a result");
}

# Each phase, from the first memory that is touched to the last sample: how it is
# reached, and how its output ends; without that there is none.

my $repeats = $ENV{SIGNAL_RUNS} || 1;
my %delays;

sub status_of { my ($job, $key) = @_; return slurp("/proc/$job->{pid}/status") =~ /^$key:\s*(\d+)/m ? $1 : 0 }
sub has_touched { my ($job, $mib) = @_; return status_of($job, 'VmRSS') > $mib << 10 }
sub has_threads { my ($job, $count) = @_; return status_of($job, 'Threads') >= $count }
sub has_printed { my ($job, $pattern) = @_; return slurp($job->{out}) =~ $pattern }
sub alone { my ($job) = @_; return !has_threads($job, 2) }
my $table = qr/^Samples.*\n\d.*\n\z/m;
my $fresh = sub { my ($job) = @_; return has_threads($job, 2) && has_touched($job, 16) && !is_running($job) };

my $arm = "qemu-aarch64 $top/build/aarch64";
my @phases = (
	# Far more than this script has, whose copy the process is until exec.
	['set-up: flush buffer', 'multichase -n 0 -m 64k -F 1g -v', sub { alone(@_) && has_touched($_[0], 128) }],
	['set-up: many threads', 'multichase -n 0 -X -t 4000 -s 32k -m 32m -F 0 -v', sub { has_threads($_[0], 100) && !is_running(@_) }],
	['set-up: first touch of a load', 'multiload -n 0 -l stream-sum -m 512m -v', $fresh],
	['building', 'multichase -n 0 -m 256m -s 8 -T 256m -F 0 -v', $fresh],
	['building code', 'multichase -n 0 -m 128m -s 16 -T 128m -c branch -F 0 -v', $fresh],
	['write-back (qemu)', "$arm/multichase -n 0 -m 512m -s 4096 -T 512m -v", sub { has_touched($_[0], 505) && !is_running(@_) }],
	['warm-up', 'multichase -n 0 -m 1m -v --warmup 100', \&is_running, qr/^write_back = .*\n\z/m],
	['warm-up of a load', 'multiload -n 0 -l stream-sum -m 1m -v --warmup 100', \&is_running, qr/^write_back = .*\n\z/m],
	['sampling', 'multichase -n 0 -m 64m -v --interval 0.05', sub { samples($_[0], ' avg=') >= 2 }, qr/^ *\d+\.\d+\n\z/m],
	['sampling of a load', 'multiload -n 0 -l stream-sum -m 64m -v --warmup 0 --interval 0.05',
		sub { samples($_[0], 'Total') >= 2 }, $table],
	['sampling of both', 'multiload -n 0 -c chaseload -l stream-sum -X -t 2 -m 1m -v --warmup 0 --interval 0.05 --json',
		sub { has_threads($_[0], 3) && sleep 0.5 }, qr/\A\{.*"signal":[1-9].*\}\n\z/],
	['pingpong: warm-up', 'pingpong -u -c 1 --warmup 100', sub { has_printed($_[0], qr/^ *\d+: +/m) }, qr/\A +\d+ .*\n *\d+: *\n\z/],
	['pingpong: sampling', 'pingpong -u -c 1 --interval 1', sub { has_printed($_[0], qr/^ *\d+: +/m) && sleep 1.2 },
		qr/\A +\d+ .*\n *\d+: +\d+\.\d\n\z/],
	['fairness: warm-up', 'fairness --warmup 100', sub { has_printed($_[0], qr/unrelaxed/) }, qr/\Aunrelaxed:\n\z/],
	['fairness: sampling', 'fairness -n 1000000 -t 0.05', sub { has_printed($_[0], qr/^ +\d/m) }, qr/\Aunrelaxed:\n(?: +[\d.]+)+\n/],
);

# Why a phase is not to be had here.
sub lacks
{
	my ($phase, $line) = @_;
	return 'no flush buffer is read here' if $phase =~ /flush/ && run('multichase --help')->{out} =~ /--flush SIZE .*write the chase back/;
	return 'needs 2 CPUs' if $phase =~ /pingpong|of both/ && $cpus < 2;
	return 'qemu-aarch64 was not found' if $line =~ /^qemu/ && !found('qemu-aarch64');
	return 'there are no aarch64 programs: make aarch64' if $line =~ /^qemu/ && !-x "$top/build/aarch64/multichase";
	return undef;
}

# Starts a command, and again if it is past the phase before that was seen;
# early: the phase is before the start line.
my $before_start = qr/^(?:set-up|building|write-back)/;
sub caught
{
	my ($line, $reached, $early) = @_;

	for (1 .. 5) {
		my $job = start($line);
		my $in_it = 0;
		wait_for(sub { ($in_it = $reached->($job)) || $early && is_running($job) || !-e "/proc/$job->{pid}/exe" });
		return $job if $in_it;
		finish($job, 'KILL');
	}
	return undef;
}

sub check_phase
{
	my ($phase, $line, $reached, $end) = @_;

	for my $signal (qw(INT TERM HUP)) {
		my $what = "$phase, SIG$signal";
		for (1 .. $repeats) {
			my $job = caught($line, $reached, $phase =~ $before_start);
			ok(defined $job, "$what: the phase is reached") or next;
			my $began = time;
			my $result = finish($job, $signal);
			push @{$delays{$phase}}, 1000 * (time - $began);
			died_by($result, $signal, $what);
			ok(!kill(0, $job->{pid}), "$what: nothing is left of it");
			like($result->{out}, $end || qr/\A\z/, "$what: the result so far, if there is one");
		}
	}
}

for my $row (@phases) {
	my $lacks = lacks(@$row);
	SKIP: {
		skip "$row->[0]: $lacks", 1 if $lacks;
		check_phase(@$row);
	}
}

# Into a pipe that is full, and that nobody reads.
for my $line ('multichase -n 0 -m 64k -v', 'multiload -n 1 -m 64k --warmup 0 --interval 0.01', 'multichase -n 1 -m 64k --interval 0.01 --json',
	'fairness -n 1000000 -t 0.01', 'pingpong -u -c 1 --interval 0.01') {
	pipe my $read, my $write or die "pipe: $!\n";
	$write->blocking(0);
	1 while syswrite $write, 'x' x 4096;
	$write->blocking(1);
	for my $signal (qw(INT TERM HUP)) {
		my $job = start($line, before => sub { open STDOUT, '>&', $write });
		sleep 0.3;
		my $began = time;
		died_by(finish($job, $signal), $signal, "$line, nobody reads, SIG$signal");
		push @{$delays{'writing, and nobody reads'}}, 1000 * (time - $began);
	}
}

# A terminal whose window does not read, with room for so many bytes. Returns
# what keeps it open, and its path.
sub full_terminal
{
	my ($room) = @_;
	my ($unlock, $number) = (pack('i', 0), pack('I', 0));

	sysopen my $window, '/dev/ptmx', O_RDWR | O_NOCTTY or die "/dev/ptmx: $!\n";
	ioctl $window, TIOCSPTLCK, $unlock or die "TIOCSPTLCK: $!\n";
	ioctl $window, TIOCGPTN, $number or die "TIOCGPTN: $!\n";
	my $path = '/dev/pts/' . unpack 'I', $number;
	sysopen my $terminal, $path, O_RDWR | O_NOCTTY | O_NONBLOCK or die "$path: $!\n";
	1 while syswrite $terminal, 'x' x 64;
	sysread $window, my $text, $room if $room;
	return ([$window, $terminal], $path);
}

for (['multichase -n 0 -m 64k --interval 0.01 -v', 1000], ['multichase -n 0 -m 64k --interval 0.001 --json', 1], ['fairness -n 1000000 -t 0.001', 0]) {
	my ($line, $room) = @$_;
	my ($open, $path) = full_terminal($room);
	my $job = start($line, stdout => $path);
	$job->{limit} = 20;
	sleep 2;
	my $result = finish($job, 'TERM');
	is($result->{signal}, 15, "$line, a terminal with room for $room bytes: SIGTERM ends it");
}

# Stopped for longer than a run waits for a thread that moves; and the time of
# all samples of -N is more than 64 bits of nanoseconds.
{
	my $stopped = start('multichase -c work:1000000 -m 1m -F 0 --interval 0.05 -n 30 --json -X');
	my $endless = start('multichase -m 64k -F 0 -X -N -n 2147483647 --interval 8.589934597 -v');
	sleep 1.5;
	kill 'STOP', $stopped->{pid};
	sleep 10.6;
	kill 'CONT', $stopped->{pid};
	my $result = finish($stopped);
	my $object = eval { JSON::PP->new->decode($result->{out}) } || {};
	is(scalar @{$object->{samples} || []}, 30, 'stopped for 10.6 s: all samples are taken');
	is($result->{err}, '', 'stopped for 10.6 s: nothing on stderr');
	$result = finish($endless, 'TERM');
	died_by($result, 'TERM', '-N with the longest times');
	unlike($result->{out}, qr/nan|^timed out: 0/m, '-N with the longest times: has a sample');
}

# The same with results that are larger than the pipe, or than what is left of
# it: free of the 64 KiB of a pipe is what has not been filled.
sub into_pipe
{
	my ($line, $filled) = @_;
	pipe my $read, my $write or die "pipe: $!\n";
	syswrite $write, 'x' x $filled if $filled;
	return (start($line, before => sub { open STDOUT, '>&', $write; close $read }), $read);
}

my $large = 'multichase --json -m 1m -t 8 -s 1k -n 0 --interval 0.001 -F 0 -X';
for (["$large", 0, 3], ["fairness --json -n 1000000 -t 0.001", 0, 4], ["fairness --json -n 1000000 -t 0.001", 65536, 1],
	['multichase -v -m 8m -s 8k -t 800 -X -n 0 --interval 0.05 -F 0', 55000, 2]) {
	my ($line, $filled, $seconds) = @$_;
	my $what = "$line, $filled bytes before, nobody reads";
	my ($job, $read) = into_pipe($line, $filled);
	$job->{limit} = 20;
	sleep $seconds;
	died_by(finish($job, 'TERM'), 'TERM', $what);
	$read->blocking(0);
	my $got = 0;
	while (my $more = sysread $read, my $text, 1 << 20) { $got += $more }
	cmp_ok($got, '>', 60000, "$what: there was more than the pipe took") if $filled < 65536;
	is($got, $filled, "$what: nothing of an object that does not fit") if $filled == 65536;
}

# Ends the program by SIGTERM, and only then reads all that it has to say.
sub read_late
{
	my ($job, $read) = @_;
	my $text = '';

	kill 'TERM', $job->{pid};
	sleep 0.3;
	1 while sysread $read, $text, 1 << 20, length $text;
	return $text;
}

# One that comes while the result is written ends the program all the same.
for my $line ('multichase -m 64k -F 0 -n 1 --interval 0.01', 'multichase -m 64k -F 0 -n 1 --interval 0.01 --json',
	'multiload -l stream-sum -m 64k -n 1 --warmup 0 --interval 0.05', 'fairness --json -n 1 -t 0.01', 'pingpong -u --json --interval 0.01') {
	my ($job, $read) = into_pipe($line, 65536);
	sleep 1;
	my $text = read_late($job, $read);
	died_by(finish($job), 'TERM', "$line, a late reader");
	cmp_ok(length $text, '>', 65536, "$line, a late reader: it has the result");
}

# A second signal does not wait for a reader; a reader that is late has it all.
{
	my ($job, $read) = into_pipe($large, 0);
	sleep 3;
	kill 'TERM', $job->{pid};
	sleep 0.3;
	my $began = time;
	$job->{limit} = 20;
	died_by(finish($job, 'INT'), 'TERM', "$large, nobody reads, a second signal");
}
{
	my ($job, $read) = into_pipe($large, 0);
	sleep 3;
	my $text = read_late($job, $read);
	cmp_ok(length $text, '>', 1 << 16, "$large, a late reader: more than a pipe holds");
	my $object = eval { JSON::PP->new->decode($text) } || {};
	is($object->{signal}, 15, "$large, a late reader: the object is whole");
	died_by(finish($job), 'TERM', "$large, a late reader");
}

for ((map { $_->[0] } @phases), 'writing, and nobody reads') {
	my @ms = sort { $a <=> $b } @{$delays{$_} || next};
	diag(sprintf '%-30s %3d signals: median %4.0f ms, largest %4.0f ms', $_, scalar @ms, $ms[$#ms / 2], $ms[-1]);
}

# The setting of huge pages, as the kernel would show it, is put back.
my ($unshare) = grep { run("$_ true")->{exit} == 0 } 'unshare -m', 'unshare -rm';
SKIP: {
	skip 'mounts of its own are not permitted here', 1 if !$unshare;
	skip 'no transparent huge pages', 1 if !-d '/sys/kernel/mm/transparent_hugepage';
	my $setting = "$tmp/setting";
	for my $row (grep { $_->[1] =~ /^multi/ && $_->[0] !~ /code|both/ } @phases) {
		my ($phase, $line, $reached) = @$row;
		next if lacks(@$row);
		for my $signal (qw(INT TERM HUP)) {
			spew($setting, "always madvise [never]\n");
			my $job = caught([split(' ', $unshare), 'sh', '-c', "mount --bind $setting "
				. '/sys/kernel/mm/transparent_hugepage/enabled; exec ' . join ' ', words("$line -H")], $reached, $phase =~ $before_start);
			my $what = "$phase, -H, SIG$signal";
			ok(defined $job, "$what: the phase is reached") or next;
			like(slurp($setting), qr/^madvise/, "$what: huge pages were switched on");
			is(finish($job, $signal)->{signal}, $number{$signal}, "$what: ends by SIG$signal");
			like(slurp($setting), qr/^never/, "$what: the setting is put back");
		}
	}
}

# As a harness does it: a load in the background, its file polled, a chase beside
# it, then SIGTERM and a wait.
SKIP: {
	skip 'a chase beside a load needs 2 CPUs', 1 if $cpus < 2;
	skip 'no transparent huge pages', 1 if !has_thp();
	my ($multiload, $multichase) = map { words($_) } qw(multiload multichase);
	spew("$tmp/harness", <<~"END");
		file=$tmp/load.out
		$multiload -l stream-triad-nontemporal-injection-delay -t 2 -n 0 -m 1M -H -v -d 64 --warmup 0 --interval 0.05 > \$file 2>&1 &
		load=\$!
		until [ "\$(grep -c 'Total(MiB/s)=' \$file)" -ge 2 ]; do sleep 0.1; done
		$multichase -m 2m -n 2 -t 1 -T 8m -a -H -L -s 1024 -c simple --interval 0.1
		kill -TERM \$load
		wait \$load
		echo "status \$?"
		END
	my $result = run(['sh', "$tmp/harness"]);
	like($result->{out}, qr/\A *\d+\.\d+\nstatus 143\n\z/, 'harness: a latency, and the load has ended by SIGTERM');
	my @totals = slurp("$tmp/load.out") =~ /Total\(MiB\/s\)=\s*([0-9.]+)/g;
	cmp_ok(scalar @totals, '>=', 2, 'harness: totals can be read from the file');
	is(scalar grep({ $_ <= 0 } @totals), 0, 'harness: all are above 0');
}

done_testing();
