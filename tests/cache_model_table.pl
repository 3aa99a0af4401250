#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# The published measurement and the model's figures for the same programs, as
# one table in Markdown; ends with an error if a row of it is not as it should.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use lib dirname(abs_path(__FILE__));
use CacheModel qw(published counter_cases model figures mib);
use Emulation qw(need_plugins need_programs);

use constant TOLERANCE => 0.02;

my $failures = 0;
$| = 1;

# Counts as [hits, allocations] that should be near what is wanted.
sub judge {
	my ($counts, $want) = @_;
	return if !$want;
	my @got = @$counts{qw(hits_per_miss allocs_per_miss)};
	for my $i (0, 1) {
		$failures++ if !defined $got[$i]
		    || abs($got[$i] - $want->[$i]) > TOLERANCE;
	}
	return;
}

sub print_row {
	my ($name, $published, $slc, $before, $after) = @_;
	my ($hits_before, $allocs_before) = figures($before);
	my ($hits_after, $allocs_after) = figures($after);
	my @cells = ($name, @$published, $slc, "$hits_before → $hits_after",
		"$allocs_before → $allocs_after");
	print '| ', join(' | ', @cells), " |\n";
	return;
}

# A row for the whole run, and one for each of several threads.
sub show {
	my ($row, $want, @published) = @_;
	my $before = model(%$row, before => 1);
	my $after = model(%$row);
	my $slc = join ', ', map { mib($after->{model}{$_}) } qw(private slc);
	print_row($row->{name}, \@published, $slc, $before->{total},
		$after->{total});
	judge($before->{total}, $want->[0]);
	judge($after->{total}, $want->[1]);
	return if $row->{threads} < 2 || !@$want;
	for my $i (0 .. $#{$after->{threads}}) {
		my ($was, $is) = map { $_->{threads}[$i] } $before, $after;
		print_row('its ' . ($i ? 'load' : 'chase') . ' thread',
			['', ''], $slc, $was, $is);
		judge($was, $want->[0]);
		judge($is, $want->[1]);
	}
	return;
}

need_plugins();
need_programs();
print <<'EOF';
| before → after | published hits | published allocations | private cache, SLC of the model | hits per private miss | allocations per private miss |
| --- | --- | --- | --- | --- | --- |
EOF
for my $row (published()) {
	show($row, [[1, 1], [2, 0]], map { join ' → ', @{$row->{$_}} }
		qw(hits allocs));
}
show($_, $_->{want} || [], '', '') for counter_cases(1);
exit($failures ? 1 : 0);
