#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# The aarch64 programs on the model of a cache: per private miss, a dirty
# buffer costs a hit and an allocation for ever, one that was written back two
# hits and nothing else. And the cases where the write-back cannot help.
# ONLY=REGEX runs those cases whose name matches.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use lib dirname(abs_path(__FILE__));
use CacheModel qw(published counter_cases model figures mib);
use Emulation qw(need_plugins need_programs);
use Test::More;

use constant TOLERANCE => 0.02;

sub wanted {
	my ($row) = @_;
	return !$ENV{ONLY} || $row->{name} =~ /$ENV{ONLY}/;
}

# Compares one set of counts with the figures wanted.
sub near {
	my ($counts, $hits, $allocs, $name) = @_;
	my $near = defined $counts->{hits_per_miss}
	    && abs($counts->{hits_per_miss} - $hits) <= TOLERANCE
	    && abs($counts->{allocs_per_miss} - $allocs) <= TOLERANCE;
	my ($got_hits, $got_allocs) = figures($counts);
	ok($near, "$name: hits $got_hits, allocs $got_allocs per private miss")
	    or diag("wanted: hits $hits, allocs $allocs");
	return;
}

# One run: all threads together, and each of several.
sub check {
	my ($hits, $allocs, %run) = @_;
	my $result = model(%run);
	my $name = sprintf '%s, private %s, SLC %s%s', $result->{command},
	    mib($result->{model}{private}), mib($result->{model}{slc}),
	    $run{keep_dirty} ? ' that keeps dirty lines' : '';
	$name =~ s/ --warmup 0 --interval 1000//;
	near($result->{total}, $hits, $allocs, $name);
	my @threads = @{$result->{threads}};
	is(scalar @threads, $run{threads}, 'threads counted');
	return $result if @threads < 2;
	near($_, $hits, $allocs, "thread $_->{thread}") for @threads;
	return $result;
}

sub check_published {
	for my $row (grep { wanted($_) } published()) {
		check(1, 1, %$row, before => 1);
		check(2, 0, %$row);
	}
	return;
}

sub check_counter_case {
	my (%row) = @_;
	if ($row{want}) {
		check(@{$row{want}[0]}, %row, before => 1);
		check(@{$row{want}[1]}, %row);
		return;
	}
	my @after = figures(model(%row)->{total});
	if ($row{threads} > 1) {
		cmp_ok($after[1], '>', 0.1, "$row{name}: still allocates");
	} else {
		is($after[1], 'no misses', $row{name});
	}
	return;
}

need_plugins();
need_programs();
check_published();
check_counter_case(%$_) for grep { wanted($_) } counter_cases(4);
done_testing();
