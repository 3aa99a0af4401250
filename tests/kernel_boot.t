#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# The write-back under a real arm64 Linux, in an emulated machine of four
# CPUs: DC CIVAC from EL0, on native, transparent-huge and hugetlb pages, on
# memory that lost its write permission (branch), and on two NUMA nodes.
# ONLY='one node' or ONLY='two nodes' is one boot, CHECK_ALL=1 one more.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use lib dirname(abs_path(__FILE__));
use Emulation qw(need_programs program skip_all_tests temp_dir top_dir
    matrix);
use Test::More;

use constant LINE => 64;

my $short = '-v --warmup 0 --interval 0.1 -n 2';
my $boot = top_dir() . '/tests/boot_kernel.sh';

# What each prints with -v: bytes written back, and of the page size.
my @commands = (
	{run => 'multiload -l stream-sum -m 4m', bytes => 4 << 20},
	{run => 'multiload -l stream-sum -t 4 -m 4m', bytes => 16 << 20},
	{run => 'multiload -c simple -m 4m', bytes => 4 << 20},
	{run => 'multiload -c chaseload -l stream-sum -t 4 -m 4m',
	 bytes => 16 << 20},
	{run => 'multichase -m 4m', bytes => 4 << 20, page => '4096 bytes'},
	{run => 'multichase -t 4 -m 4m', bytes => 4 << 20},
	{run => 'multichase -L -O 3 -m 4m', bytes => 4 << 20},
	{run => 'multichase -M -m 4m', bytes => 4 << 20},
	{run => 'multichase -f /dev/shm/arena -m 4m', bytes => 4 << 20},
	{run => 'multichase -H -m 8m', bytes => 8 << 20, page => '.*\(THP\)'},
	{run => 'multichase -H -t 4 -m 8m', bytes => 8 << 20},
	{run => 'multichase -p 2m -t 4 -m 8m', bytes => 8 << 20,
	 page => '2097152 bytes'},
	{run => 'multichase -c branch -m 4m', bytes => 4 << 20},
	{run => 'multichase -c branch -H -t 4 -m 8m', bytes => 8 << 20},
	{run => 'multichase -c branch -p 2m -m 8m', bytes => 8 << 20},
	{run => 'multichase --dirty-start -m 4m', bytes => 0},
);

# A shell script that runs them all, with marks around what each printed.
sub write_script {
	my ($path, @lines) = @_;
	open(my $script, '>', $path) or die "$path: $!\n";
	print $script "uname -srm\n", "dd if=/dev/zero of=/dev/shm/arena bs=1M count=4",
	    " 2>/dev/null\n", @lines, "echo '\@\@ done'\n";
	close $script or die "$path: $!\n";
	return;
}

sub run_lines {
	my ($number) = @_;
	return "./$commands[$number]{run} $short >/tmp/out 2>/tmp/err\n"
	    . "echo \"\@\@ $number \$?\"; cat /tmp/out; echo '\@\@ err'\n"
	    . "cat /tmp/err\n";
}

# Pages of the arena on each node, while the program runs: once its first
# sample is out, it has built all of it.
sub numa_lines {
	my ($weights, $more) = @_;
	return ": >/tmp/numa\n" # which the one before has written to
	    . "./multichase -W $weights -m 32m $more -v --interval 0.1 -n 0"
	    . " >/tmp/numa 2>/tmp/err &\n"
	    . "until grep -q avg= /tmp/numa || ! kill -0 \$!; do sleep 1; done\n"
	    . "echo '\@\@ numa $weights $more'\n"
	    . "grep -E 'N[01]=[0-9]{2,}' /proc/\$!/numa_maps\n"
	    . "kill \$!; wait \$!; echo '\@\@ err'; cat /tmp/err\n";
}

# Boots; returns what was printed, without the console's carriage returns.
sub boot {
	my ($cpu, $lines, @options) = @_;
	my $script = temp_dir() . '/script';
	write_script($script, @$lines);
	my $bin = dirname(program('multichase'));
	open(my $console, '-|', $boot, 'boot', $cpu, $script, $bin, @options)
	    or die "$boot: $!\n";
	local $/;
	my $text = <$console>;
	close $console;
	$text =~ s/\r//g;
	note($1) if $text =~ /^(Linux .*)/m;
	ok($text =~ /^\@\@ done$/m, "$cpu: the machine booted and ended")
	    or diag($text);
	return $text;
}

sub check_command {
	my ($text, $number) = @_;
	my $command = $commands[$number];
	my ($status, $out, $err) =
	    $text =~ /^\@\@ $number (\d+)\n(.*?)^\@\@ err\n(.*?)^\@\@/ms;
	return fail('it ran') if !defined $status;
	is($status, 0, 'exit status');
	is($err, '', 'stderr');
	my ($bytes, $lines) = (0, 0);
	while ($out =~ /^write_back = (\d+) bytes, (\d+) lines of (\d+)/mg) {
		$bytes += $1;
		$lines += $2;
		is($3, LINE, 'line size');
	}
	is($bytes, $command->{bytes}, 'bytes written back');
	cmp_ok($lines * LINE - $bytes, '<=', LINE, 'lines written back');
	cmp_ok($lines * LINE, '>=', $bytes, 'all of them');
	like($out, qr/^page_size = $command->{page}/m, 'page size')
	    if $command->{page};
	return;
}

sub check_numa {
	my ($text, $want, $warning) = @_;
	my ($node0, $node1) = (0, 0);
	my ($maps, $err) = $text =~ /(.*)^\@\@ err\n(.*)/ms;
	like($err // 'none', $warning // qr/^$/, 'stderr');
	for my $line (split /\n/, $maps // '') {
		my ($n0) = $line =~ /\bN0=(\d+)/;
		my ($n1) = $line =~ /\bN1=(\d+)/;
		my ($kib) = $line =~ /kernelpagesize_kB=(\d+)/;
		($n0, $n1) = ($n0 || 0, $n1 || 0);
		next if ($n0 + $n1) * ($kib || 0) < 32 << 10;
		($node0, $node1) = ($n0, $n1);
	}
	cmp_ok($node0 + $node1, '>', 0, 'the arena is in numa_maps');
	is($node0 * $want->[1], $node1 * $want->[0],
		"pages on the nodes: $node0 and $node1")
	    or diag($text);
	return;
}

sub boot_one_node {
	my ($cpu) = @_;
	my $text = boot($cpu, [map { run_lines($_) } 0 .. $#commands]);
	for my $number (0 .. $#commands) {
		subtest "$cpu: $commands[$number]{run}" =>
		    sub { check_command($text, $number) };
	}
	return;
}

sub boot_two_nodes {
	my ($cpu) = @_;
	my @numa = (['0:1,1:3', '', [1, 3]], ['0:1,1:1', '-H', [1, 1]],
		['1:1', '-p 2m', [0, 1]], ['0:1,1:1', '-M -H', [1, 1]],
		['0:1,1:3', '-H -f /dev/shm/sparse', [1, 3],
		 qr/^multichase: warning: -H: 0\.0 of [^\n]*\n\z/],
		# The file's pages stay where they are now.
		['1:1', '-f /dev/shm/sparse', [1, 3],
		 qr/^multichase: warning: -W: 8\.0 MiB are on other nodes/]);
	my $text = boot($cpu, [
		"dd if=/dev/zero of=/dev/shm/sparse bs=1M seek=32 count=0\n",
		map { numa_lines($_->[0], $_->[1]) } @numa],
		map { ('-object', "memory-backend-ram,id=m$_,size=512M",
			'-numa', 'node,nodeid=' . $_ . ',cpus=' . 2 * $_ . '-'
			. (2 * $_ + 1) . ",memdev=m$_") } 0, 1);
	for my $numa (@numa) {
		my ($weights, $more, $want, $warning) = @$numa;
		my ($said) = $text
		    =~ /^\@\@ numa \Q$weights $more\E\n(.*?)^\@\@ (?!err)/ms;
		subtest "$cpu: -W $weights $more" =>
		    sub { check_numa($said // '', $want, $warning) };
	}
	return;
}

my $missing = `$boot missing`;
chomp $missing;
skip_all_tests($missing) if $missing;
need_programs();
my $only = $ENV{ONLY} || '';
boot_one_node('cortex-a57') if 'one node' =~ /$only/;
boot_two_nodes('neoverse-n1') if 'two nodes' =~ /$only/;
boot_one_node('neoverse-n1') if matrix();
done_testing();
