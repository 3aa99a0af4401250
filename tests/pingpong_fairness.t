#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# pingpong and fairness as their users meet them: what they print, refuse and
# survive. Speeds are never judged. Machines of other shapes are made with
# taskset, and with strace, which tells the programs of CPUs that are not there.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use Test::More;
use Time::HiRes qw(sleep);

my ($pingpong, $fairness) = words('pingpong fairness');

# Does stdout come to match?
sub prints
{
	my ($job, $pattern) = @_;
	return wait_for(sub { slurp($job->{out}) =~ $pattern });
}

# As -d takes it.
sub mask_of { my ($cpu) = @_; return '0x' . (1 << $cpu % 4) . '0' x int($cpu / 4) }

# Is this pingpong's table of these CPUs, in that many rows (all by default)?
sub is_table
{
	my ($text, $cpus, $name, $rows) = @_;
	my @lines = split /\n/, $text, -1;
	my $last = @$cpus - 1;
	$rows = $last if !defined $rows;
	my $label = (sort { $b <=> $a } map { length sprintf '%2d:', $_ } @$cpus)[0];
	my @wrong;
	push @wrong, 'header' if shift(@lines) ne ' ' x $label . join '', map { sprintf '%8d', $_ } @$cpus;
	push @wrong, 'last newline' if pop(@lines) ne '';
	push @wrong, 'number of rows' if @lines != $rows;
	for my $row (0 .. $#lines) {
		my $start = sprintf('%-*s', $label, sprintf '%2d:', $cpus->[$row]) . ' ' x (8 * ($row + 1));
		my $cells = $last - $row;
		push @wrong, "row $row" if $lines[$row] !~ /^\Q$start\E(?: {1,6}\d+\.\d| \d{6,}\.\d){$cells}$/;
	}
	return ok(!@wrong, $name) || diag("wrong: @wrong\n$text");
}

sub near { my ($a, $b, $unit) = @_; return abs($a - $b) <= $unit }

# Do the last four of these numbers follow from those before them?
sub consistent
{
	my ($unit, @numbers) = @_;
	my ($mean, $sdev, $min, $max) = splice @numbers, -4;
	my @ns = grep { $_ > 0 } @numbers;
	return !grep { $_ != 0 } $mean, $sdev, $min, $max if !@ns;
	my ($sum, $squares, $lowest, $highest) = (0, 0, $ns[0], $ns[0]);
	for (@ns) {
		$sum += $_;
		$lowest = $_ if $_ < $lowest;
		$highest = $_ if $_ > $highest;
	}
	$squares += ($_ - $sum / @ns) ** 2 for @ns;
	return near($mean, $sum / @ns, $unit) && near($sdev, sqrt($squares / @ns), $unit)
		&& $min == $lowest && $max == $highest;
}

# Is this fairness's text: for each line of memory both headings, and samples?
sub is_text
{
	my ($text, $cpus, $samples, $sweeps, $name) = @_;
	my @lines = split /\n/, $text, -1;
	my @wrong;
	for my $sweep (0 .. $sweeps - 1) {
		push @wrong, "line $sweep" if $sweeps > 1 && shift(@lines) ne "line $sweep:";
		for my $heading (qw(unrelaxed: relaxed:)) {
			push @wrong, $heading if (shift(@lines) // '') ne $heading;
			for (1 .. $samples) {
				my $line = shift(@lines) // '';
				(my $table = $line) =~ s/ +(?=\d)/,/g;
				my (undef, @numbers) = split /,/, $table, -1;
				push @wrong, $line if $table !~ /^(?:,\d+\.\d)+$/ || @numbers != @$cpus + 4
					|| !consistent(0.11, @numbers);
			}
		}
	}
	push @wrong, 'the end' if "@lines" ne '';
	return ok(!@wrong, $name) || diag("wrong: @wrong\n$text");
}

sub is_csv
{
	my ($text, $cpus, $samples, $sweeps, $name) = @_;
	my @lines = split /\n/, $text;
	my @wrong;
	push @wrong, 'header' if shift(@lines) ne join ',', 'relaxed,sweep', map({ "cpu-$_" } @$cpus),
		'avg,stdev,min,max';
	for my $sweep (0 .. $sweeps - 1) {
		for my $relaxed (0, 1) {
			for (1 .. $samples) {
				my $line = shift(@lines) // '';
				my (undef, undef, @numbers) = split /,/, $line, -1;
				push @wrong, $line if $line !~ /^$relaxed,$sweep(?:,\d+\.\d{3})+$/
					|| @numbers != @$cpus + 4 || !consistent(0.0011, @numbers);
			}
		}
	}
	push @wrong, 'the end' if @lines;
	return ok(!@wrong, $name) || diag("wrong: @wrong\n$text");
}

# A warning that on a crowded machine a pair got nowhere is no failure.
sub quiet { my ($stderr) = @_; return $stderr =~ /^(?:pingpong: warning: \d+ pair.*\n)?$/ }

sub runs_well
{
	my ($name, @command) = @_;
	my $result = run(\@command);
	is($result->{exit}, 0, "$name: exit status");
	ok(quiet($result->{err}), "$name: stderr is empty") or diag($result->{err});
	return $result->{out};
}

sub refuses
{
	my ($pattern, $program, @arguments) = @_;
	my $name = join ' ', $program =~ m{([^/]+)$}, @arguments;
	my $result = run([$program, @arguments]);
	is($result->{exit}, 1, "$name: exit status");
	is($result->{out}, '', "$name: stdout is empty");
	like($result->{err}, qr/^[^\n]*$pattern[^\n]*\n\z/, "$name: one line says what is accepted");
}

my @cpus = allowed_cpus();
plan skip_all => 'the CPUs of this process are not known' if !@cpus;
my $many = @cpus > 1;
my @pair = @cpus[0 .. ($many ? 1 : 0)];
my $pair = join ',', @pair;
my @short = ('--interval', '0.02');

# pingpong's table.

for my $exchange (qw(-l -u -x --locked --unlocked --exchange-add)) {
	my $out = runs_well("pingpong $exchange", $pingpong, $exchange, @short, '--cpus', $pair);
	is_table($out, \@pair, "pingpong $exchange: the table");
}
for my $options (['-r0', '-s0'], ['-r', '1000', '-s', '1'], ['--relax', '3', '--elements', '1000']) {
	my $out = runs_well("pingpong @$options", $pingpong, '-l', @$options, @short, '--cpus', $pair);
	is_table($out, \@pair, "pingpong @$options: the table");
}
my $out = runs_well('pingpong -c 1', $pingpong, '-u', '-c', 1, '--interval', '0.01');
is_table($out, \@cpus, 'pingpong -c 1: all columns, one row', $many ? 1 : 0);

SKIP: {
	skip 'one CPU', 3 if !$many;
	my @back = reverse @pair;
	$out = runs_well('pingpong --cpus backwards', $pingpong, '-u', @short, '--cpus', join ',', @back);
	is_table($out, \@back, 'pingpong --cpus: in the order of the list');
}

# The plan.

$out = runs_well('pingpong --dry-run', $pingpong, '-x', '-s', 8, '-c', 1, '--cpus', $pair, '--dry-run');
is($out, "exchange = exchange-add\nrelax = 10\nelements = 8\ncpus = "
	. ($many && $pair[1] == $pair[0] + 1 ? "$pair[0]-$pair[1]" : $pair)
	. ($many ? "\nrows = 1\npairs = 1\nseconds = 1.3\n" : "\nrows = 0\npairs = 0\nseconds = 0.0\n"),
	'pingpong --dry-run: the plan');
$out = runs_well('fairness --dry-run', $fairness, '--dry-run', '--cpus', $cpus[0], '-d',
	mask_of($cpus[0]));
is($out, "cpus = $cpus[0]\nlate_cpus = $cpus[0]\nsweeps = 1\nsamples = 6\nseconds = 7.0\n",
	'fairness --dry-run: the plan, seven seconds by default');

# fairness's lines.

$out = runs_well('fairness', $fairness, '-t', '0.02');
is_text($out, \@cpus, 6, 1, 'fairness: six lines a heading');
$out = runs_well('fairness -s 2', $fairness, '-t', '0.01', '-n', 2, '-s', 2);
is_text($out, \@cpus, 2, 2, 'fairness -s 2: twice');
$out = runs_well('fairness -S -s 3', $fairness, '-t', '0.01', '-n', 2, '-S', '-s', 3);
is_csv($out, \@cpus, 2, 3, 'fairness -S -s 3: CSV');
$out = runs_well('fairness -d', $fairness, '-t', '0.02', '-n', 1, '-d', mask_of($cpus[0]));
is_text($out, \@cpus, 1, 1, 'fairness -d: the same lines');
is(runs_well("$_ --version", words($_), '--version'), "$_ 1.0\n", "$_ --version") for qw(pingpong fairness);
for my $program (qw(pingpong fairness)) {
	my $help = runs_well("$program --help", words($program), '-h');
	my @letters = $program eq 'pingpong' ? qw(l u x r s c h) : qw(d n s S t h);
	like($help, qr/^  -$_, --\w/m, "$program --help: -$_ has a long name") for @letters;
	like($help, qr/^      --$_\b/m, "$program --help: --$_") for qw(warmup cpus dry-run version);
}

# One CPU.

SKIP: {
	skip 'taskset was not found', 8 if !found('taskset');
	my @one = ('taskset', '-c', $cpus[-1]);
	$out = runs_well('pingpong on one CPU', @one, $pingpong, '-u');
	is_table($out, [$cpus[-1]], 'pingpong on one CPU: the header alone');
	$out = runs_well('fairness on one CPU', @one, $fairness, '-t', '0.03', '-n', 2);
	is_text($out, [$cpus[-1]], 2, 1, 'fairness on one CPU: the deviation is 0');
	is(scalar(() = $out =~ /^ +(\d+\.\d) +\1 +0\.0 +\1 +\1$/mg), 4,
		'fairness on one CPU: mean, minimum and maximum are its own') or diag($out);
	$out = runs_well('fairness -S on one CPU', @one, $fairness, '-S', '-t', '0.03', '-n', 2);
	is_csv($out, [$cpus[-1]], 2, 1, 'fairness -S on one CPU: named by its number');
}

# Bad input.

refuses(qr/-l, -u, -x.*exactly one/, $pingpong, @$_) for [], ['-u', '-x'], ['-l', '-u', '-x'], ['-r', 3];
refuses(qr/-r -1: .*0 to 1000000/, $pingpong, '-u', '-r', -1);
refuses(qr/-r 1000001: .*0 to 1000000/, $pingpong, '-u', '-r', 1000001);
refuses(qr/-s 1x: /, $pingpong, '-u', '-s', '1x');
refuses(qr/-s 99999999999: .*0 to 1048576/, $pingpong, '-u', '-s', '99999999999');
refuses(qr/-c 0: .*from 1 /, $pingpong, '-u', '-c', 0);
refuses(qr/-c: needs a value/, $pingpong, '-u', '-c');
refuses(qr/--interval 0: .*0\.001/, $pingpong, '-u', '--interval', 0);
refuses(qr/--warmup nan: /, $pingpong, '-u', '--warmup', 'nan');
refuses(qr/operand.*--help/, $pingpong, '-u', 'all');
refuses(qr/-q: unknown option/, $pingpong, '-q');
refuses(qr/-s 5000: .*1 to 1024/, $fairness, '-s', 5000);
refuses(qr/-s 0: .*1 to 1024/, $fairness, '-s', 0);
refuses(qr/-n 0: .*from 1 /, $fairness, '-n', 0);
refuses(qr/-n '': /, $fairness, '-n', '');
refuses(qr/-t 0: .*0\.001/, $fairness, '-t', 0);
refuses(qr/-t inf: /, $fairness, '-t', 'inf');
refuses(qr/-d 0: .*mask/, $fairness, '-d', 0);
refuses(qr/-d 0x: .*mask/, $fairness, '-d', '0x');
refuses(qr/-d: no thread runs on CPU 9999;/, $fairness, '-d', mask_of(9999));
for my $program ([$pingpong, '-u'], [$fairness]) {
	refuses(qr/--cpus $cpus[0],$cpus[0]: .*once/, @$program, '--cpus', "$cpus[0],$cpus[0]");
	refuses(qr/CPU 65535: .*--cpus/, @$program, '--cpus', "$cpus[0],65535");
	refuses(qr/CPU 65535: .*--cpus/, @$program, '--dry-run', '--cpus', 65535);
}

# A write that fails, and signals.

SKIP: {
	skip 'there is no /dev/full', 4 if !-c '/dev/full';
	for my $command ('pingpong -u --interval 0.01', 'fairness -n 1 -t 0.01') {
		my $result = run($command, stdout => '/dev/full');
		is($result->{exit}, 1, "into /dev/full: exit status of $command");
		like($result->{err}, qr/^\w+: error: standard output: [^\n]+\n\z/, 'and the reason');
	}
}

sub stopped
{
	my ($signal, $shown, $later, @command) = @_;
	my $job = start(\@command);
	ok(prints($job, $shown), "$signal: the output has begun") or diag(slurp($job->{out}));
	sleep $later;
	my $result = finish($job, $signal);
	my %number = (HUP => 1, INT => 2, TERM => 15);
	is($result->{signal}, $number{$signal}, "$signal ends the program by that signal");
	ok(quiet($result->{err}), "$signal: stderr is empty") or diag($result->{err});
	return $result->{out};
}

SKIP: {
	skip 'one CPU', 9 if !$many;
	my @play = ($pingpong, '-u', '--cpus', $pair);
	# Of five samples of a second one is over by then, but not all.
	$out = stopped('TERM', qr/\n/, 1.5, @play, '--interval', 1);
	is_table($out, \@pair, 'pingpong, stopped: the best so far');
	$out = stopped('INT', qr/\n/, 0, @play, '--warmup', 3600);
	my $label = sprintf '%2d:', $pair[0];
	like($out, qr/^ +$pair[0] +$pair[1]\n$label +\n\z/, 'pingpong, stopped before a sample: no cell');

	my $job = start([@play, '--interval', '0.1'], before => sub { $SIG{HUP} = 'IGNORE' });
	ok(prints($job, qr/\n/), 'HUP is ignored: the output has begun');
	my $result = finish($job, 'HUP');
	is($result->{exit}, 0, 'a HUP that was ignored at the start stays ignored');
	is_table($result->{out}, \@pair, 'and the run goes on to its end');
}

$out = stopped('HUP', qr/^ .*\n/m, 0, $fairness, '-n', 1000000, '-t', '0.05');
like($out, qr/^unrelaxed:\n(?: +\d+\.\d){@{[@cpus + 4]}}\n/, 'fairness, stopped: the lines so far');
like($out, qr/\.\d\n\z/, 'and the last of them is whole');
$out = stopped('TERM', qr/\n/, 0, $fairness, '-S', '-t', 3600);
like($out, qr/^relaxed,sweep,cpu-\S+max\n\z/, 'fairness -S, stopped before a sample: the header');

# CPUs that are not there, and more than a cpu_set_t holds, made up by strace.

my @strace = ('strace', '-f', '-qq', '-o', "$tmp/trace", '-e', 'trace=sched_getaffinity,sched_setaffinity');
# Threads are left where they are.
my @pinless = (@strace, '-e', 'inject=sched_setaffinity:retval=0');

# These are the CPUs that the kernel tells of, in a mask for 1024.
sub with_mask
{
	my @mask = (0) x 128;
	$mask[$_ >> 3] |= 1 << ($_ & 7) for @_;
	my $hex = join '', map { sprintf '%02x', $_ } @mask;
	return (@pinless, '-e', "inject=sched_getaffinity:retval=128:poke_exit=\@arg3=$hex");
}

sub can_trace
{
	return found('strace') && run([with_mask(0), 'true'])->{exit} == 0;
}

SKIP: {
	skip 'strace was not found, or may not change what calls return', 27 if !can_trace();

	my @refused = (@strace, '-e', 'inject=sched_getaffinity:error=EINVAL:when=1');
	$out = runs_well('the kernel has more CPUs than the first mask', @refused, $pingpong, '-u', '-c', 1, @short);
	is_table($out, \@cpus, 'a larger mask is tried, and is right', $many ? 1 : 0);
	like(slurp("$tmp/trace"), qr/\(0, 128, .* = -1 EINVAL.*\(0, 256, /s, 'which doubles the first');

	my $result = run([@strace, '-e', 'inject=sched_getaffinity:error=EINVAL', $pingpong, '-u']);
	is($result->{exit}, 1, 'no mask is large enough: exit status');
	is($result->{out}, '', 'stdout is empty');
	like($result->{err}, qr/^pingpong: error: the CPUs that may be used are not known: .*\n\z/, 'and the reason');

	my @numbers = (3, 64, 1023);
	$out = runs_well('pingpong on CPUs of a mask', with_mask(@numbers), $pingpong, '-u', '--interval', '0.002');
	is_table($out, \@numbers, 'pingpong on CPUs of a mask: all columns line up');
	my %pinned = map { $_ => 1 } slurp("$tmp/trace") =~ /sched_setaffinity\(0, \d+, \[(\d+)\]/g;
	is_deeply([sort { $a <=> $b } keys %pinned], \@numbers, 'threads are pinned to each of them');

	@numbers = (0, 5, 1023, 1024, 1500);
	my @list = ('--cpus', join ',', @numbers);
	$out = runs_well('pingpong on CPUs up to 1500', @pinless, $pingpong, '-u', @list, '--interval', '0.002');
	is_table($out, \@numbers, 'pingpong on CPUs up to 1500: all columns line up');
	$out = runs_well('pingpong -c 2', @pinless, $pingpong, '-u', '-c', 2, @list, '--interval', '0.002');
	is_table($out, \@numbers, 'pingpong -c 2 on five CPUs: two rows', 2);
	$out = runs_well('the plan of pingpong -c 2', @pinless, $pingpong, '-u', '-c', 2, @list, '--dry-run');
	like($out, qr/^cpus = 0,5,1023-1024,1500\nrows = 2\npairs = 7\n/m, 'pingpong -c 2: its plan');
	$out = runs_well('fairness on CPUs up to 1500', @pinless, $fairness, '-S', '-n', 1, '-t', '0.02', @list,
		'-d', mask_of(1500));
	is_csv($out, \@numbers, 1, 1, 'fairness on CPUs up to 1500, with a mask for the last');

	my @sleeps = ('strace', '-f', '-qq', '-o', "$tmp/trace", '-e', 'trace=clock_nanosleep');
	$out = runs_well('fairness -d under strace', @sleeps, $fairness, '-n', 1, '-t', '0.01', '-d', mask_of($cpus[0]));
	is(scalar(() = slurp("$tmp/trace") =~ /clock_nanosleep\(CLOCK_MONOTONIC, TIMER_ABSTIME, \{/g), 2,
		'fairness -d: one thread sleeps first, in both measurements');
}

# The same programs for aarch64, emulated.

SKIP: {
	my $arm = "$top/build/aarch64";
	skip 'qemu-aarch64 was not found', 12 if !found('qemu-aarch64');
	skip 'there are no aarch64 programs: make aarch64', 12 if !-x "$arm/pingpong" || !-x "$arm/fairness";
	my @emulated = ('qemu-aarch64', '-L', '/usr/aarch64-linux-gnu');
	for my $exchange (qw(-l -u -x)) {
		$out = runs_well("aarch64: pingpong $exchange", @emulated, "$arm/pingpong", $exchange,
			'-s', 3, @short, '--cpus', $pair);
		is_table($out, \@pair, "aarch64: pingpong $exchange");
	}
	$out = runs_well('aarch64: fairness', @emulated, "$arm/fairness", '-S', '-n', 1, '-t', '0.02');
	is_csv($out, \@cpus, 1, 1, 'aarch64: fairness');
}

done_testing();
