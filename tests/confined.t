#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# Where the system is small: no /sys, no /proc, a read-only /sys, huge pages
# that are off, limits of cgroups (version 1 and 2), a CPU quota, one CPU, a file
# on hugetlbfs, and memory that may not become code (prctl PR_SET_MDWE). Files that the kernel
# would show stand in a folder that is mounted over the real one.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use File::Path qw(make_path);
use POSIX qw(uname);
use Test::More;

my $short = '-n 1 --interval 0.05';
my $chase = "multichase -m 1m -F 0 $short";
my $load = "multiload -m 1m -l stream-sum --warmup 0 $short";
my $number = qr/\A *\d+\.\d+\n\z/;

# A command line with mounts before it that nobody else sees.
my ($unshare) = grep { run("$_ true")->{exit} == 0 } 'unshare -m', 'unshare -rm';

sub confined
{
	my ($mounts, $command) = @_;
	my $line = join ' ', map { "'$_'" } words($command);

	return [split(' ', $unshare), 'sh', '-c', "set -e; $mounts; exec $line"];
}

sub runs
{
	my ($what, $command, $good) = @_;
	my $result = run($command);

	is(join(' ', $result->{exit}, $result->{err}), '0 ', "$what: exit 0, stderr empty");
	like($result->{out}, $good, "$what: a result");
}

sub refuses
{
	my ($what, $command, $words) = @_;
	my $result = run($command);

	is(join(' ', $result->{exit}, $result->{out}), '1 ', "$what: exit 1, stdout empty");
	like($result->{err}, qr/\A\w+: error: [^\n]*$words[^\n]*\n\z/, "$what: one line says it");
}

# Files under a folder, by their paths; its path is returned.
sub folder_of
{
	my ($name, %files) = @_;
	my $folder = "$tmp/$name";

	for (keys %files) {
		my ($parent) = "$folder/$_" =~ m{(.*)/};
		make_path($parent);
		spew("$folder/$_", $files{$_});
	}
	return $folder;
}

sub no_folders
{
	for my $folder ('/sys', '/proc') {
		my $none = "mount -t tmpfs none $folder";

		runs("no $folder: multichase", confined($none, $chase), $number);
		runs("no $folder: multichase --json", confined($none, "$chase --json"), qr/"result":/);
		runs("no $folder: multiload", confined($none, $load), qr/\n1 .*stream-sum\n\z/);
		runs("no $folder: fairness", confined($none, 'fairness -n 1 -t 0.05'), qr/relaxed:/);
	}
	my $result = run(confined('mount -t tmpfs none /sys', "$chase -H"));
	is($result->{exit}, 0, 'no /sys: -H runs') if has_thp();
	like($result->{err}, qr/\A(?:\w+: warning: -H: [\d.]+ of [^\n]*\n)?\z/, 'no /sys: -H warns if it got none') if has_thp();
	$result = run(confined('mount -t tmpfs none /proc', "multichase -H -m 4m -F 0 $short"));
	is($result->{exit}, 0, 'no /proc: -H runs') if has_thp();
	like($result->{err}, qr/\A\w+: warning: -H: the kernel does not tell[^\n]*\n\z/,
		'no /proc: -H says that nobody knows') if has_thp();
}

sub thp_settings
{
	my $path = 'kernel/mm/transparent_hugepage/enabled';
	my $sys = folder_of('thp', $path => "always madvise [never]\n");
	my $mount = "mount --bind $sys /sys";

	refuses('read-only /sys, huge pages off: -H', confined("$mount; mount -o remount,bind,ro /sys", "$chase -H"),
		'-H: transparent huge pages are off; write "madvise" to /sys/');
	runs('read-only /sys: without -H', confined("$mount; mount -o remount,bind,ro /sys", $chase), $number);
	my $job = start(confined($mount, "multichase -H -m 4m -F 0 -n 0 --interval 0.05 -v"));
	ok(wait_for(sub { slurp("$sys/$path") =~ /^madvise/ }), 'huge pages off: -H switches them');
	ok(wait_for(sub { slurp($job->{out}) =~ /avg=/ }), 'huge pages off: -H runs');
	is(finish($job, 'TERM')->{signal}, POSIX::SIGTERM(), 'huge pages off: SIGTERM ends it');
	like(slurp("$sys/$path"), qr/^never/, 'huge pages off: the setting is put back');

	# What may happen while it is switched, or put back.
	SKIP: {
		skip 'strace was not found, or may not trace', 8 if !found('strace') || run('strace -o /dev/null true')->{exit};
		my $with = sub { my ($fault) = @_;
			spew("$sys/$path", "always madvise [never]\n");
			return run(confined($mount, "strace -qq -o $tmp/trace -P /$path -P /sys/$path -e inject=pwrite64:$fault $chase -H")) };
		is($with->('signal=SIGTERM:when=1')->{signal}, POSIX::SIGTERM(), 'a signal right after the switch ends it');
		like(slurp("$sys/$path"), qr/^never/, 'and the setting is put back');
		for (1, 2) {
			my $result = $with->("error=EINTR:when=$_");
			is(join(' ', $result->{exit}, $result->{err}), '0 ', "write $_ of the setting is interrupted: it is done again");
			like(slurp("$sys/$path"), qr/^never/, 'and the setting is put back');
		}
		my $result = $with->('error=EIO:when=2');
		is($result->{exit}, 0, 'the setting cannot be put back: exit 0');
		like($result->{err}, qr/\Awarning: -H: [^\n]* could not be set back to never[^\n]*\n\z/, 'and a warning');
	}
}

# A cgroup as its own process sees it.
my %versions = (
	'version 1' => {
		line => "5:cpu,cpuacct:/a/b\n4:memory:/a/b\n",
		memory => ['memory/a/memory.limit_in_bytes', 'memory/a/b/memory.limit_in_bytes', 'memory/memory.limit_in_bytes'],
		stat => 'cpu/a/cpu.stat',
		none => 9223372036854771712,
	},
	'version 2' => {
		line => "0::/a/b\n",
		memory => ['a/memory.max', 'a/b/memory.max', 'c/memory.max'],
		stat => 'a/b/cpu.stat',
		none => 'max',
	},
);

sub cgroups
{
	my ($name) = @_;
	my $version = $versions{$name};
	my ($above, $own, $other) = @{$version->{memory}};
	my $folder = folder_of($name =~ s/ //r, $above => "33554432\n", $own => "$version->{none}\n",
		$other => "$version->{none}\n", $version->{stat} => "nr_periods 7\nnr_throttled 3\n");

	spew("$folder/line", $version->{line});
	my $mounts = "mount --bind $folder/line /proc/\$\$/cgroup; mount -t tmpfs none /sys; mkdir -p /sys/fs/cgroup; "
		. "mount --bind $folder /sys/fs/cgroup";
	refuses("cgroup $name: more than its memory", confined($mounts, "multichase -m 33m -F 0 $short"),
		"-m 33m: .*this process's cgroup has only 32(?:.0)? MiB");
	refuses("cgroup $name: all of its memory, and the program", confined($mounts, "multichase -m 32m -F 0 $short"),
		"-m 32m: 1 thread.s. need 32.5 MiB of memory in all, this process's cgroup has only 32(?:.0)? MiB");
	unlike(run(confined($mounts, "multichase -p 2m -m 40m -F 0 $short"))->{err}, qr/cgroup/,
		"cgroup $name: hugetlb pages are not charged");
	runs("cgroup $name: less than its memory", confined($mounts, "multichase -m 31m -F 0 $short"), $number);
	runs("cgroup $name: throttled before, not now", confined($mounts, $chase), $number);
	# Each of them once it has printed this.
	my %printed = ('multichase -m 1m -F 0 -n 8 --interval 0.25 -v' => 'avg=', 'fairness -n 4 -t 0.25' => 'unrelaxed:',
		'pingpong -u --warmup 1' => '0:', 'pingpong -u --json --warmup 2' => '');
	for my $command (sort keys %printed) {
		my $what = "cgroup $name: $command, throttled while it ran";
		spew("$folder/$version->{stat}", "nr_periods 7\nnr_throttled 3\n");
		my $job = start(confined($mounts, $command));
		wait_for(sub { index(slurp($job->{out}), $printed{$command}) >= 0 });
		sleep 1 if $printed{$command} eq '';
		spew("$folder/$version->{stat}", "nr_periods 9\nnr_throttled 5\n");
		my $result = finish($job);
		is($result->{exit}, 0, "$what: exit 0");
		like($result->{err}, qr/\A\w+: warning: a CPU quota[^\n]* in 2 periods[^\n]*\n\z/, "$what: a warning");
	}
}

# A file on hugetlbfs: its pages are told, and -H adds nothing to them.
sub hugetlb_file
{
	my $pool = '/sys/kernel/mm/hugepages/hugepages-2048kB';
	my $mount = "mount -t hugetlbfs -o pagesize=2M none $tmp/huge; touch $tmp/huge/file";
	my $command = "multichase -f $tmp/huge/file -m 3m -F 0 -H $short";

	mkdir "$tmp/huge";
	SKIP: {
		skip 'hugetlbfs cannot be mounted here', 1 if run(confined($mount, 'true'))->{exit};
		like(run(confined($mount, "$command --dry-run"))->{out}, qr/^page_size = 2097152 bytes$/m,
			'hugetlbfs: -v tells the size of pages');
		my $reserved = slurp("$pool/nr_hugepages") + 0;
		spew("$pool/nr_hugepages", $reserved + 2) if slurp("$pool/free_hugepages") < 2;
		my $result = run(confined($mount, "$command --json"));
		spew("$pool/nr_hugepages", $reserved);
		skip 'no hugetlb pages can be had', 1 if $result->{err} =~ /too few are free/;
		is(join(' ', $result->{exit}, $result->{err}), '0 ', 'hugetlbfs: -H: exit 0, stderr empty');
		like($result->{out}, qr/"page_size_bytes":2097152,.*"memory":\{"bytes":3145728,"on_transparent_huge_pages_bytes":0,"on_hugetlb_pages_bytes":3145728\}/,
			'hugetlbfs: --json tells that all is on such pages');
	}
}

# As in a container that allows no move_pages().
sub untold_nodes
{
	my @strace = ('strace', '-f', '-qq', '-o', "$tmp/trace", '-e', 'trace=move_pages', '-e', 'inject=move_pages:error=EPERM');

	SKIP: {
		skip 'strace was not found, or may not trace', 1 if !found('strace') || run([@strace, 'true'])->{exit};
		skip 'this kernel has no NUMA nodes', 1 if run("$chase -W 0:1")->{exit};
		for ("$chase -W 0:1", "$load -W 0:1") {
			my $result = run([@strace, words($_)]);
			is($result->{exit}, 0, "nodes that are not told: $_: exit 0");
			like($result->{err}, qr/\A\w+: warning: -W: the kernel does not tell [^\n]*\n\z/, 'and a warning');
		}
	}
}

# As where a cpuset changes under a program.
sub refused_pins
{
	my @strace = ('strace', '-f', '-qq', '-o', "$tmp/trace", '-e', 'trace=sched_setaffinity',
		'-e', 'inject=sched_setaffinity:error=EINVAL');

	SKIP: {
		skip 'strace was not found, or may not trace', 1 if !found('strace') || run([@strace, 'true'])->{exit};
		refuses("a CPU that is refused: $_", [@strace, words($_)], 'cannot run a thread on CPU \d+: ')
			for $chase, $load, 'pingpong -u', 'fairness -n 1';
	}
}

# Memory that is written may not become code.
sub no_new_code
{
	my %prctl = (x86_64 => 157, aarch64 => 167, riscv64 => 167);
	my $number_of = $prctl{(uname())[4]};
	my $mdwe = sub { syscall($number_of, 65, 1, 0, 0, 0) == 0 or POSIX::_exit(77) };

	return fail('the number of prctl is not known here') if !$number_of;
	SKIP: {
		skip 'this kernel has no PR_SET_MDWE', 1
			if run(['true'], before => $mdwe)->{exit};
		my $result = run("$chase -c branch", before => $mdwe);
		is("$result->{exit} $result->{out}", '1 ', 'MDWE: -c branch: exit 1, stdout empty');
		like($result->{err}, qr/\A\w+: error: -c[^\n]* does not allow [^\n]*\n\z/, 'MDWE: -c branch: one line says why');
		$result = run($chase, before => $mdwe);
		is("$result->{exit} $result->{err}", '0 ', 'MDWE: -c simple runs');
		like($result->{out}, $number, 'MDWE: and has a result');
	}
}

SKIP: {
	skip 'mounts of its own are not permitted here', 1 if !$unshare;
	no_folders();
	thp_settings();
	cgroups($_) for sort keys %versions;
	hugetlb_file();
}
untold_nodes();
refused_pins();
no_new_code();
SKIP: {
	skip 'taskset was not found', 1 if !found('taskset');
	my ($one) = allowed_cpus();
	refuses('one CPU: -t 2', "taskset -c $one $chase -t 2", 'more threads than cpus available');
	runs('one CPU: fairness', "taskset -c $one fairness -n 1 -t 0.05", qr/\Aunrelaxed:\n( +\d+\.\d){2} +0\.0/);
}
done_testing();
