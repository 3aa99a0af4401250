#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# The memloads as multiload offers them: names, ratios, and what is refused.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Test::More;

chdir dirname(abs_path(__FILE__)) . '/..' or die "chdir: $!\n";

my %ratio = (
	'memcpy-libc' => '1:1',
	'memset-libc' => '0:1',
	'memsetz-libc' => '0:1',
	'stream-copy' => '1:1',
	'stream-sum' => '1:0',
	'stream-triad' => '2:1',
	'stream-triad-nontemporal-injection-delay' => '2:1',
	'stream-add3' => '3:1',
	'nontemporal-copy' => '1:1',
	'nontemporal-triad' => '2:1',
	'zero-read' => '0:1',
	'zero-fault' => '0:1',
);
my @short = qw(-n 1 --warmup 0 --interval 0.02);
my $page = `getconf PAGESIZE` + 0;

# Runs a command of the shell: exit status, stdout, stderr.
sub run {
	my ($command) = @_;
	my $out = `$command 2>build/memloads.stderr`;
	my $status = $? >> 8;
	open(my $file, '<', 'build/memloads.stderr') or die "stderr: $!\n";
	local $/;
	return ($status, $out, scalar <$file>);
}

sub refuses {
	my ($command, @words) = @_;
	my ($status, $out, $err) = run($command);
	is("$status $out", '1 ', "$command: exit status 1, no output");
	is(scalar(() = $err =~ /\n/g), 1, "$command: one line on stderr");
	like($err, qr/\Q$_\E/, "$command: it says $_") for @words;
	return;
}

my ($status, $help) = run('./multiload --help');
for my $name (sort keys %ratio) {
	my $arrays = eval { my ($r, $w) = split /:/, $ratio{$name}; $r + $w };
	like($help, qr/^  \Q$name\E +\Q$ratio{$name}\E  $arrays  \S/m,
		"--help: $name is $ratio{$name}");
	my ($code, $out, $err) = run("./multiload -l $name -m 1m @short");
	is("$code $err", '0 ', "-l $name runs");
	my @cells = split /,\s*/, (split /\n/, $out)[1];
	is($cells[11], $name, "-l $name: echoed in the row");
	cmp_ok($cells[8], '>', 0, "-l $name: it has a bandwidth");
}

refuses('./multiload -l zero-fault -m 1k', '-m 1k', "at least $page bytes");
refuses('./multiload -l stream-add3 -m 192 -s 64', 'at least 256 bytes');
refuses('sh -c "ulimit -n 3; exec ./multiload -l zero-read -m 1m"',
	'-l zero-read', '/dev/zero');
refuses('./multiload -l zero', 'ambiguous', 'zero-read', 'zero-fault');

SKIP: {
	my $file = '/sys/kernel/mm/transparent_hugepage/hpage_pmd_size';
	open(my $size, '<', $file) or skip 'no transparent huge pages', 7;
	chomp(my $huge = <$size>);
	refuses('./multiload -l zero-fault -H -m ' . ($huge - 4096),
		"at least $huge bytes");
	my ($code, $out, $err) = run("./multiload -l zero-fault -H -m $huge @short");
	is($code, 0, '-l zero-fault -H runs on a huge page');
	is($err, '', 'and misses none that it has dropped');
}

done_testing();
