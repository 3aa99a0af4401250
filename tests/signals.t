#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# Signals in each phase of a run: what there is of a result is printed, the
# program ends by the signal, and one that was ignored stays ignored.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep);

my $cpus = () = allowed_cpus();
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

# While memory is built: some hundred milliseconds at the least.
for my $line ('multichase -n 0 -m 256m -s 8 -T 256m -F 0 -v', 'multichase -n 0 -m 128m -s 16 -T 128m -c branch -F 0 -v') {
	for my $signal (qw(INT TERM HUP)) {
		my $job = start($line);
		wait_for(sub { slurp("/proc/$job->{pid}/status") =~ /^Threads:\s*2$/m });
		my $result = finish($job, $signal);
		died_by($result, $signal, "$line, SIG$signal while building");
		is($result->{out}, '', "$line, SIG$signal while building: no result");
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
