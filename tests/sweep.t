#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# run_multiload.sh: its operands, the shape of what it writes, that it goes on
# where it was interrupted, that it can be sourced, and how it takes to machines
# of other kinds. Most runs are of a stand-in for multiload, which takes no
# time; --dry-run and the last part call the real one.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use File::Copy qw(copy);
use File::Path qw(make_path);
use Test::More;

my $header = 'Samples,Byte/thd,ChaseThds,ChaseNS,ChaseMibs,ChDeviate,LoadThds,LdMaxMibs,LdAvgMibs,'
	. 'LdDeviate,ChaseArg,MemLdArg';
my $cpus = () = allowed_cpus();

# Nobody's settings, and nothing left behind.
delete @ENV{grep { /^SWEEP_/ } keys %ENV};
mkdir "$tmp/scratch";
$ENV{TMPDIR} = "$tmp/scratch";

# A folder like the project's, with a stand-in for multiload, which logs its
# arguments, fails while the file "fail" is there, and waits while "wait" is.
my $tree = "$tmp/tree";
make_path("$tree/scripts");
for ('run_multiload.sh', glob("$top/scripts/*")) {
	my $name = s{^\Q$top\E/}{}r;
	copy("$top/$name", "$tree/$name") or die "$name: $!\n";
	chmod 0755, "$tree/$name";
}
spew("$tree/multiload", "#!/bin/sh\n" . <<'END');
here=$(dirname "$0") size=0
case "$*" in
*--version*) echo multiload 1.0; exit ;;
*--help*) printf 'Memloads (-l), with this and that:\n  one 1:1 2 first\n  two-delay 1:1 2 second\n'; exit ;;
*--bogus*) echo 'multiload: error: --bogus: unknown' >&2; exit 1 ;;
*--dry-run*) exit ;;
esac
echo "$*" >>"$here/calls"
[ ! -e "$here/fail" ] || { echo 'multiload: error: no luck' >&2; exit 1; }
[ ! -e "$here/warn" ] || echo 'multiload: warning: not what was asked for' >&2
while [ -e "$here/wait" ] && [ "$(wc -l <"$here/calls")" -gt 2 ]; do sleep 0.05; done
while [ $# -gt 0 ]; do
	[ "$1" != -m ] || size=$2
	shift
done
echo 'name = value'
printf 'Samples\t, Byte/thd\t, ChaseThds\t, ChaseNS\t, ChaseMibs\t, ChDeviate\t, LoadThds\t, LdMaxMibs\t, LdAvgMibs\t, LdDeviate\t, ChaseArg\t, MemLdArg\n'
printf '3     \t, %s       \t, 1       \t, 1.000   \t, 7       \t, 0.000   \t, 0       \t, 0       \t, 0       \t, 0.000   \t, simple\t, --------\n' "$size"
END
spew("$tree/pingpong", "#!/bin/sh\nprintf '          0       1       4\\n 0:             1.5     2.5\\n 1:                     3.5\\n'\n");
chmod 0755, "$tree/multiload", "$tree/pingpong";

sub script { return ("$tree/run_multiload.sh", @_) }
sub lines { return split /\n/, slurp($_[0]) }

# The sizes in a table, in order.
sub sizes
{
	my ($first, @rows) = lines($_[0]);
	return join ' ', map { (split /,/)[1] } @rows;
}

# Is this exactly one line of error, and nothing on stdout?
sub is_refused
{
	my ($run, $like, $name) = @_;
	is_deeply([$run->{exit}, $run->{out}], [1, ''], "$name: exit 1, stdout empty");
	like($run->{err}, qr/^[^\n]*error: [^\n]*$like[^\n]*\n\z/, "$name: one line that says so");
}

# A whole sweep.
{
	local $ENV{SWEEP_SIZES} = '4k 64k';
	my $run = run([script(qw(0 2 3 --output), "$tmp/a")]);
	is_deeply([$run->{exit}, $run->{err}], [0, ''], 'latency: exit 0, stderr empty') or diag($run->{err});
	is((lines("$tmp/a/latency.csv"))[0], $header, 'one header, without blanks');
	is(sizes("$tmp/a/latency.csv"), '4k 64k 4k 64k', 'every size, twice, in turn');
	unlike(slurp("$tmp/a/latency.csv"), qr/[ \t]/, 'no blanks in the table');
	is(join(' ', map { /^# run (\d+):/ ? $1 : () } lines("$tmp/a/latency.txt")), '1 2 3 4', 'the log numbers its runs');
	is(scalar(grep { /^name = value$/ } lines("$tmp/a/latency.txt")), 4, 'the log has all of the output');
	is(scalar(grep { !/ -n 3 / } lines("$tree/calls")), 0, 'SAMPLES is -n');
	is(scalar(grep { !/ --warmup 4 --interval 2\b/ } lines("$tree/calls")), 0, 'times are those of multiload');
	like(slurp("$tmp/a/machine.txt"), qr/^kernel = .*^cpus = \d.*^date = \d{4}-/ms, 'the machine is described');
	is(join(' ', map { s{.*/}{}r } sort glob "$tmp/a/*"), 'latency.csv latency.txt machine.txt', 'and nothing else is there');
	like($run->{out}, qr/\b2 points\b/, 'stdout says what there is');

	# The same once more, longer, and another.
	my $log = slurp("$tmp/a/latency.txt");
	run([script(qw(0 3 3 --output), "$tmp/a")]);
	is(sizes("$tmp/a/latency.csv"), '4k 64k 4k 64k 4k 64k', 'more ITERATIONS: those that are missing are added');
	is(substr(slurp("$tmp/a/latency.txt"), 0, length $log), $log, 'and the others kept');
	$log = slurp("$tmp/a/latency.txt");
	unlink "$tree/calls";
	spew("$tmp/a/latency.$_", "picture\n") for qw(png svg);
	run([script(qw(0 3 3 --output), "$tmp/a")]);
	is(scalar(lines("$tree/calls")), 6, 'a finished sweep starts anew');
	is(slurp("$tmp/a/latency.txt.old"), $log, 'and its log is kept');
	is(sizes("$tmp/a/latency.csv.old"), '4k 64k 4k 64k 4k 64k', 'and its table');
	is_deeply([map { -e "$tmp/a/latency.$_" ? 'left' : slurp("$tmp/a/latency.$_.old") } qw(png svg)], ["picture\n", "picture\n"],
		'and its pictures');
	$ENV{SWEEP_SIZES} = '8k';
	run([script(qw(0 1 3 --output), "$tmp/a")]);
	is(sizes("$tmp/a/latency.csv"), '8k', 'another sweep is not mixed with the one before');
	is(scalar(lines("$tmp/a/latency.csv.old")), 7, 'which is kept');

	# What a program warned of comes last, once.
	spew("$tree/warn", '');
	$run = run([script(qw(0 2 3 --output), "$tmp/b")]);
	is($run->{err}, "multiload: warning: not what was asked for (in 2 runs)\n", 'warnings are passed on, each once');
	unlink "$tree/warn";

	# A program that fails.
	spew("$tree/fail", '');
	$run = run([script(qw(0 1 3 --output), "$tmp/f")]);
	is($run->{exit}, 1, 'a run that fails ends the sweep');
	like($run->{err}, qr/-m 8k .*: multiload: error: no luck\n\z/, 'and is named');
	unlink "$tree/fail";
	run([script(qw(0 1 3 --output), "$tmp/f")]);
	is(sizes("$tmp/f/latency.csv"), '8k', 'it can go on');
}

# Interrupted, in three ways, and gone on with.
for my $signal (qw(INT TERM HUP)) {
	local $ENV{SWEEP_SIZES} = '4k 8k 16k 32k';
	my $out = "$tmp/interrupted.$signal";

	unlink "$tree/calls";
	spew("$tree/wait", '');
	my $job = start([script(qw(0 2 1 --output), $out)]);
	ok(wait_for(sub { -e "$tree/calls" && lines("$tree/calls") > 2 }), "SIG$signal: the third run is on");
	my $run = finish($job, $signal);
	unlink "$tree/wait";
	my %number = (INT => 2, TERM => 15, HUP => 1);
	is($run->{signal}, $number{$signal}, "SIG$signal: ends the sweep");
	like($run->{err}, qr/^[^\n]*interrupted[^\n]*\n\z/, "SIG$signal: says so in one line");
	is(sizes("$out/latency.csv"), '4k 8k', "SIG$signal: what was done is kept");
	is_deeply([glob "$ENV{TMPDIR}/*"], [], "SIG$signal: leaves nothing behind");
	my $log = slurp("$out/latency.txt");
	unlink "$tree/calls";
	$run = run([script(qw(0 2 1 --output), $out)]);
	is($run->{exit}, 0, "SIG$signal: the same command goes on");
	is(scalar(lines("$tree/calls")), 6, "SIG$signal: with what is missing");
	is(sizes("$out/latency.csv"), '4k 8k 16k 32k 4k 8k 16k 32k', "SIG$signal: all is there in order");
	is(substr(slurp("$out/latency.txt"), 0, length $log), $log, "SIG$signal: the first part is as it was");
}

# As after a loss of power: the last block has no end.
{
	local $ENV{SWEEP_SIZES} = '4k 8k 16k';
	run([script(qw(0 1 1 --output), "$tmp/cut")]);
	my $log = slurp("$tmp/cut/latency.txt");
	spew("$tmp/cut/latency.txt", substr($log, 0, rindex($log, '# done') - 40));
	run([script(qw(0 1 1 --output), "$tmp/cut")]);
	is(sizes("$tmp/cut/latency.csv"), '4k 8k 16k', 'a block that was cut short is made anew');
}

# Tables of the other kinds.
SKIP: {
	skip 'needs two CPUs', 5 if $cpus < 2;
	local @ENV{qw(SWEEP_SIZES SWEEP_DELAYS)} = ('4k', '0 64');
	my $run = run([script(qw(--quick --output), "$tmp/quick")]);
	is($run->{exit}, 0, '--quick: exit 0') or diag($run->{err});
	is(join(' ', map { s{.*/}{}r } sort glob "$tmp/quick/*.csv"), 'bandwidth.csv cores.csv latency.csv loaded.csv',
		'--quick: four tables');
	my ($first, @rows) = lines("$tmp/quick/loaded.csv");
	is($first, "$header,Delay", 'loaded: the delay is one more column');
	is(join(' ', map { (split /,/)[12] } @rows), join(' ', (qw(0 0 64)) x 3), 'loaded: every delay of the load that has them');
	is(join(' ', (lines("$tmp/quick/cores.csv"))[0 .. 3]), 'CpuA,CpuB,HandOverNS 0,1,1.5 0,4,2.5 1,4,3.5',
		'cores: a row for each pair');
}

# What is refused, before anything is run.
unlink "$tree/calls";
for (
	[[], 'expected a TEST', 'nothing'], [['3'], 'TEST 3: expected one of 0, 1, 2', 'TEST'],
	[[qw(0 0)], 'ITERATIONS 0: expected a whole number', 'ITERATIONS'],
	[[qw(0 1 x)], 'SAMPLES x: expected', 'SAMPLES'], [[qw(0 1 1 2)], 'SOCKETS 2: expected one of 1, all', 'SOCKETS'],
	[[qw(0 1 1 all yes)], 'REMOTE yes: expected one of 0, 1', 'REMOTE'],
	[[qw(0 1 1 all 0 2)], 'AFFINITY 2: expected one of 0, 1', 'AFFINITY'],
	[[qw(0 1 1 all 0 1 7)], '7: unexpected operand', 'a seventh operand'], [['--quack'], '--quack: unknown', 'an option'],
	[[qw(--quick 1)], '--quick.*expected one of them', 'two at once'], [[qw(--compare x)], '--compare: expected two', 'one folder'],
	[[qw(0 -- --bogus)], '--bogus: unknown', "an option of multiload's"],
	[[qw(0 --output /proc/x)], '--output /proc/x: cannot', 'a folder that cannot be made'],
	[['0', '--output', "$tree/multiload"], 'cannot make that folder', 'a file where the folder is to be'],
) {
	my ($arguments, $like, $name) = @$_;
	is_refused(run([script(@$arguments)]), $like, $name);
}
is_refused(run([script('0')], before => sub { chdir '/proc' }), '--output results: cannot', 'a current folder that is read-only');
ok(!-e "$tree/calls", 'nothing was run');

symlink "$tree/run_multiload.sh", "$tmp/sweep";
like(run(["$tmp/sweep", '0', '--dry-run'])->{out}, qr/^multiload /, 'a link of another name');

# Sourced from its folder.
for my $shell (qw(dash bash zsh)) {
	SKIP: {
		skip "$shell was not found", 4 if !found($shell);
		my $source = $shell eq 'dash' ? 'set -- 0 --dry-run; . ./run_multiload.sh' : '. ./run_multiload.sh 0 --dry-run';
		my $run = run([$shell, '-c', "test=mine; cd $tree && $source; " . 'echo "status $? $test $-"; set -- 9; '
			. ($shell eq 'dash' ? '. ./run_multiload.sh' : '. ./run_multiload.sh 9') . '; echo "status $?"; pwd']);
		like($run->{out}, qr/^multiload /, "$shell: sourced, it does its work");
		my $flags = run([$shell, '-c', 'echo $-'])->{out} =~ s/\n//r;
		like($run->{out}, qr/^status 0 mine \Q$flags\E$/m, "$shell: variables and options are the caller's");
		like($run->{out}, qr/^status 1\n\Q$tree\E\n\z/m, "$shell: an error does not end the caller");
		like($run->{err}, qr/^[^\n]*error: TEST 9[^\n]*\n\z/, "$shell: and is said");
	}
}

# Other machines, of which /proc and /sys are all that is asked.
sub machine
{
	my ($name, %files) = @_;
	my $root = "$tmp/machine.$name";
	%files = ('proc/self/status' => "Cpus_allowed_list:\t0-1\n", 'proc/meminfo' => "MemTotal: 8388608 kB\n",
		'proc/cpuinfo' => "model name : $name\n", %files);
	for (keys %files) {
		make_path("$root/$_" =~ s{/[^/]*$}{}r);
		spew("$root/$_", $files{$_});
	}
	return $root;
}

sub caches
{
	my ($cpu, $shared, %size) = @_;
	return map {
		my $index = "sys/devices/system/cpu/cpu$cpu/cache/index$_";
		("$index/level" => "$_\n", "$index/type" => ($_ == 1 ? "Data\n" : "Unified\n"), "$index/size" => "$size{$_}K\n",
			"$index/shared_cpu_list" => ($_ == 3 ? "$shared\n" : "$cpu\n"));
	} keys %size;
}

my %two_sockets = (
	(map { ("sys/devices/system/cpu/cpu$_/topology/physical_package_id" => "$_\n", caches($_, $_, 1 => 64, 2 => 1024, 3 => 16384)) } 0, 1),
	'sys/devices/system/node/online' => "0-1\n", 'sys/devices/system/node/has_memory' => "0-1\n",
	'sys/devices/system/node/node0/cpulist' => "0\n", 'sys/devices/system/node/node1/cpulist' => "1\n",
	'sys/devices/system/node/node0/distance' => "10 20\n", 'sys/devices/system/node/node1/distance' => "20 10\n",
	'sys/kernel/mm/transparent_hugepage/enabled' => "always madvise [never]\n",
);
{
	local $ENV{SWEEP_ROOT} = machine('two', %two_sockets);
	my $plan = run([script(qw(0 1 1 --dry-run))]);
	is(join(' ', $plan->{out} =~ / -m (\d+)/g), join(' ', 32 << 10, 256 << 10, 4 << 20, 64 << 20),
		'sizes: in the middle of each level, and four times the last') or diag($plan->{err});
	unlike($plan->{out}, qr/ -H| --cpus| -X| -W/, 'no huge pages where they are off, and nothing else that was not asked for');
	like(run([script(qw(1 1 1 all 0 1 --dry-run))])->{out}, qr/ -t 2 /, 'all sockets: both CPUs');
	like(run([script(qw(1 1 1 1 0 1 --dry-run))])->{out}, qr/ -t 1 .* --cpus 0$/m, 'one socket: its CPU');
	like(run([script(qw(1 1 1 all 1 1 --dry-run))])->{out}, qr/ -t 1 .* --cpus 0 -W 1:1$/m, 'remote memory: of the other node');
	like(run([script(qw(1 1 1 all 0 0 --dry-run))])->{out}, qr/^multiload .* -X$/m, 'no affinity: -X');

	# Without pinning, CPUs are kept to by what there is for it.
	my $tools = "$tmp/tools";
	mkdir $tools;
	for my $tool (qw(sh awk sed grep dirname readlink mktemp rm cat tr cut wc head tail sort uniq mkdir date mv uname getconf cksum paste)) {
		my ($path) = grep { -x } map { "$_/$tool" } split /:/, $ENV{PATH};
		symlink $path, "$tools/$tool";
	}
	local $ENV{PATH} = $tools;
	like(run([script(qw(0 1 1 --dry-run))])->{out}, qr/^multiload /, 'works without numactl and taskset');
	is_refused(run([script(qw(1 1 1 1 0 0 --dry-run))]), 'AFFINITY 0: .*taskset or numactl', 'no affinity, a part of the CPUs, no tool');
	for my $tool ('numactl', 'taskset') {
		spew("$tools/$tool", "#!/bin/sh\nshift\ncase \$1 in multiload) exec \"\$\@\" ;; *) shift; exec \"\$\@\" ;; esac\n");
		chmod 0755, "$tools/$tool";
		my $prefix = $tool eq 'numactl' ? 'numactl --physcpubind=0' : 'taskset -c 0';
		like(run([script(qw(1 1 1 1 0 0 --dry-run))])->{out}, qr/^\Q$prefix\E multiload .* -X$/m, "no affinity, a part of the CPUs: $tool");
	}
}
{
	local $ENV{SWEEP_ROOT} = machine('unknown');
	my $plan = run([script(qw(0 1 1 --dry-run))]);
	is_deeply([$plan->{err}, scalar(() = $plan->{out} =~ /^multiload/mg)], ['', 4], 'caches that are not told: sizes of common ones');
	is_refused(run([script(qw(0 1 1 all 1 --dry-run))]), 'REMOTE 1: there is no second NUMA node', 'remote memory without a second node');
	$ENV{SWEEP_ROOT} = machine('small', caches(0, '0-1', 1 => 32, 2 => 1024, 3 => 262144), 'proc/meminfo' => "MemTotal: 131072 kB\n");
	for ([0, 'latency', 64], [2, 'loaded latency', 32]) {
		my ($test, $what, $mib) = @$_;
		my $run = run([script($test, qw(1 1 --dry-run))]);
		is($run->{exit}, 0, "$what in too little memory goes on");
		is($run->{err}, "run_multiload.sh: warning: $what: a buffer of " . ($mib << 10)
			. " KiB does not exceed L3, as it is meant to: 262144 KiB a thread\n", 'and says that it is too small');
	}
	$ENV{SWEEP_ROOT} = machine('flat', caches(0, '0-1', 1 => 32, 2 => 1024, 3 => 1536));
	like(run([script(qw(1 1 1 --dry-run))])->{err}, qr/^[^\n]*warning: bandwidth: [^\n]*exceed L2, as[^\n]*\n\z/,
		"a share of L3 that is smaller than L2 is said");
	$ENV{SWEEP_ROOT} = machine('one', 'proc/self/status' => "Cpus_allowed_list:\t1\n");
	is_refused(run([script(qw(2 1 1 --dry-run))]), 'TEST 2: needs two CPUs', 'loaded latency on one CPU');
	my $run = run([script(qw(--quick --dry-run))]);
	is_deeply([$run->{exit}, scalar(() = $run->{err} =~ /warning: no (?:loaded latency|core-to-core times): needs two CPUs/g)], [0, 2], '--quick on one CPU: without two tests');
	unlike($run->{out}, qr/chaseload|pingpong/, 'and none of their commands');
}

# In an initramfs there may be a busybox and nothing else.
SKIP: {
	skip 'busybox was not found', 2 if !found('busybox');
	mkdir "$tmp/busybox";
	run([qw(busybox --install -s), "$tmp/busybox"]);
	local @ENV{qw(PATH SWEEP_SIZES)} = ("$tmp/busybox", '4k 8k');
	my $run = run(["$tmp/busybox/sh", script(qw(0 2 1 --output), "$tmp/in_busybox")]);
	is_deeply([$run->{exit}, $run->{err}], [0, ''], 'in a busybox: exit 0, stderr empty');
	is(sizes("$tmp/in_busybox/latency.csv"), '4k 8k 4k 8k', 'in a busybox: every size, twice');
}

# On a terminal, and only there, how far it is and how long it will take.
SKIP: {
	skip 'script was not found', 2 if !found('script');
	local $ENV{SWEEP_SIZES} = '4k 8k';
	my $run = run(['script', '-qec', "$tree/run_multiload.sh 0 2 1 --output $tmp/terminal", '/dev/null']);
	like($run->{out}, qr/\rlatency: run 1 of 4|\r\e\[Klatency: run 1 of 4/, 'on a terminal: progress');
	like($run->{out}, qr/run 4 of 4, \d+:\d\d left/, 'and the time that is left');
}

# The real programs.
{
	local @ENV{qw(SWEEP_SIZES SWEEP_LOADS SWEEP_DELAYS SWEEP_INTERVAL SWEEP_WARMUP)} =
		('16k 64k', 'stream-sum', '0', '0.2', '0');
	my $run = run([words("$top/run_multiload.sh --quick --output $tmp/real -- -F 0")],
		before => sub { $ENV{SWEEP_ITERATIONS} = $ENV{SWEEP_SAMPLES} = 1 });
	is($run->{exit}, 0, 'the real programs: exit 0') or diag($run->{err});
	for my $kind ('latency', 'bandwidth', $cpus > 1 ? 'loaded' : ()) {
		my ($first, @rows) = lines("$tmp/real/$kind.csv");
		like($first, qr/^\Q$header\E(?:,Delay)?$/, "$kind: the header");
		my @cells = map { [split /,/] } @rows;
		is(scalar(@cells), $kind eq 'loaded' ? 1 : 2, "$kind: a row each");
		is(scalar(grep { ($kind eq 'bandwidth' ? $_->[8] : $_->[3]) > 0 } @cells), scalar @cells, "$kind: numbers above 0");
	}
	SKIP: {
		skip 'needs two CPUs', 1 if $cpus < 2;
		is((lines("$tmp/real/cores.csv"))[0], 'CpuA,CpuB,HandOverNS', 'cores: the header');
	}
	my @real = names_of('multiload', 'Memloads');
	local $ENV{SWEEP_LOADS} = 'stream-sum zero-fault';
	$run = run([words("$top/run_multiload.sh 1 --dry-run")]);
	unlike($run->{out}, qr/zero-fault/, 'bandwidth: a load that needs more than any of the sizes is left out');
	like($run->{err}, qr/^[^\n]*warning: bandwidth: no zero-fault: -m 6[^:]*: [^\n]*needs at least[^\n]*\n\z/, 'and that is said');
	$ENV{SWEEP_LOADS} = 'zero-fault';
	like(run([words("$top/run_multiload.sh 1 --dry-run")])->{err}, qr/error: there is nothing to run\n\z/, 'bandwidth: of nothing');
	delete @ENV{qw(SWEEP_LOADS SWEEP_SIZES)};
	$run = run([words("$top/run_multiload.sh 1 --dry-run")]);
	my %planned = map { $_ => 1 } $run->{out} =~ / -l (\S+)/g;
	is_deeply([sort keys %planned], [sort @real], 'bandwidth: every memload of --help');
	my %rounded;
	$rounded{(run("$_ --dry-run")->{out} =~ /^total_memory = (\d+)/m)[0]}++
		for grep { / -c simple / } split /\n/, run([words("$top/run_multiload.sh --quick --dry-run")])->{out};
	cmp_ok(scalar keys %rounded, '>', 10, '--quick: many sizes of a chase');
	is_deeply([grep { $rounded{$_} > 1 } keys %rounded], [], '--quick: no two of which are rounded to the same');
}
is_deeply([glob "$ENV{TMPDIR}/*"], [], 'nothing is left behind');

done_testing();
