#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# The kernels of the aarch64 programs under emulation: all of them once, the
# SVE ones at each length of vectors. Emulation tells nothing of their speed.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Test::More;

use constant SVE_KERNELS => 4; # sum, copy, triad, add3

chdir dirname(abs_path(__FILE__)) . '/..' or die "chdir: $!\n";

my $qemu = $ENV{QEMU_AARCH64} || 'qemu-aarch64';
for my $tool ($qemu, 'aarch64-linux-gnu-gcc') {
	plan skip_all => "there is no $tool here"
	    if !grep { -x "$_/$tool" } split /:/, $ENV{PATH};
}

my $program = 'build/aarch64/test_memload';
my $said = `make -s CC=aarch64-linux-gnu-gcc BUILD=build/aarch64 BIN=build/aarch64 $program 2>&1`;
if (!is($?, 0, "make $program")) {
	diag($said);
	done_testing();
	exit 1;
}

# Runs the tests with vectors of so many bytes; looks at what they say.
sub run_tests {
	my ($bytes, @args) = @_;
	my @lines = `$qemu -cpu max,sve-default-vector-length=$bytes $program @args`;
	my $bits = 8 * $bytes;
	is($?, 0, "vectors of $bits bits: exit status");
	is(scalar(grep { $_ eq "# SVE vectors of $bytes bytes\n" } @lines), 1,
		"vectors of $bits bits: they are that long");
	my @failed = grep { /^not ok/ } @lines;
	is("@failed", '', "vectors of $bits bits: no test fails");
	is(scalar(grep { /^ok \d+ - [\w-]+, sve: / } @lines), SVE_KERNELS,
		"vectors of $bits bits: every SVE kernel is tested");
	is(scalar(grep { /the variant that is run, sve, can be/ } @lines),
		SVE_KERNELS, "vectors of $bits bits: and is what runs");
	return;
}

run_tests(64);
run_tests($_, 'sve') for 16, 32, 128, 256;

# A core without SVE runs the rest.
my @lines = `$qemu -cpu cortex-a72 $program`;
is($?, 0, 'without SVE: exit status');
is(scalar(grep { /, sve # SKIP/ } @lines), SVE_KERNELS, 'without SVE: no SVE');
is(scalar(grep { /the variant that is run, base, can be/ } @lines),
	scalar(grep { /the variant that is run/ } @lines),
	'without SVE: the base kernels run');

done_testing();
