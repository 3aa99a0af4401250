#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# The machine code of the x86-64 kernels in linked programs: the loop that does
# the work is all there, starts at a line of the instruction cache, and has no
# call, no locked instruction and no stack access; with each compiler, under
# -flto, and with all code moved by part of a line.
use strict;
use warnings;
no warnings 'portable'; # addresses have 64 bits
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Path qw(make_path);
use POSIX qw(uname);
use Test::More;

use constant LINE => 64;
use constant TURN => 8; # vectors of each array in a turn

chdir dirname(abs_path(__FILE__)) . '/..' or die "chdir: $!\n";
plan skip_all => 'this machine is no x86-64' if (uname())[4] ne 'x86_64';

my %arrays = (sum => 1, copy => 2, triad => 3, add3 => 4);

sub have {
	my ($tool) = @_;
	return scalar grep { -x "$_/$tool" } split /:/, $ENV{PATH};
}

# Functions of a program: name => list of [address, mnemonic, operands].
sub disassemble {
	my ($program) = @_;
	my (%code, $name);
	for (`objdump -d --no-show-raw-insn $program`) {
		if (/^[0-9a-f]+ <([^>]+)>:$/) {
			$name = $1;
		} elsif (/^ *([0-9a-f]+):\t(?:lock |rep |data16 |cs )*(\S+) *(.*)$/) {
			push @{$code{$name}}, [hex $1, $2, $3];
			$code{$name}[-1][1] = 'lock' if /\tlock /;
		}
	}
	return %code;
}

# The loop without a loop inside that has the most accesses to memory by
# vectors (or, in a chase, through pointers).
sub main_loop {
	my ($access, @code) = @_;
	my @loops;
	for my $jump (grep { $_->[1] =~ /^j/ && $_->[2] =~ /^[0-9a-f]+ </ } @code) {
		my ($to) = $jump->[2] =~ /^([0-9a-f]+)/;
		push @loops, [hex $to, $jump->[0]] if hex $to <= $jump->[0];
	}
	my @inner = grep {
		my $outer = $_;
		!grep { $_ != $outer && $_->[0] >= $outer->[0]
			    && $_->[1] <= $outer->[1] } @loops
	} @loops;
	my ($best, $most) = (undef, -1);
	for my $loop (@inner) {
		my @body = grep { $_->[0] >= $loop->[0] && $_->[0] <= $loop->[1] }
		    @code;
		my $count = grep { $_->[2] =~ $access } @body;
		($best, $most) = ([@body], $count) if $count > $most;
	}
	return ($most, @{$best // []});
}

sub check_loop {
	my ($what, $count, $most, @body) = @_;
	return fail("$what: it has a loop") if !@body;
	my $good = $count ? $most > 0 && $most % $count == 0 : $most > 0;
	my @bad = grep { $_->[1] =~ /^(?:call|lock|xchg)/
		    || $_->[2] =~ /%rsp/ } @body;
	ok($good && !@bad && $body[0][0] % LINE == 0, $what)
	    or diag(sprintf '%s: %d accesses, loop at %x, %s', $what, $most,
		$body[0][0], @bad ? "@{$bad[0]}[1, 2]" : 'all allowed');
	return;
}

sub check_program {
	my ($build, $program) = @_;
	my %code = disassemble($program);
	for my $name (sort keys %arrays) {
		for my $variant (qw(base avx2 avx512)) {
			my ($function) = grep {
				/^load_${name}_$variant(?:\.|$)/
			} keys %code;
			check_loop("$build: load_${name}_$variant",
				TURN * $arrays{$name},
				main_loop(qr/\(%r.*%[xyz]mm|%[xyz]mm.*\(%r/,
					@{$code{$function // ''} // []}));
		}
	}
	my @chases = grep { /^chase_(?!work|branch)[a-z0-9]+(?:\.|$)/ } keys %code;
	cmp_ok(scalar @chases, '>=', 10, "$build: there are chases");
	for my $function (sort grep { !/_sample/ } @chases) {
		check_loop("$build: $function", 0,
			main_loop(qr/^[0-9x]*\(%r/, @{$code{$function}}));
	}
	return;
}

# Builds in a folder, links into another, and looks at the program.
sub build {
	my ($name, $objects, @settings) = @_;
	my $folder = "build/code_$name";
	make_path($folder);
	my $said = `make -s BUILD=build/$objects BIN=$folder @settings $folder/multiload 2>&1`;
	is($?, 0, "$name: it builds") or diag($said);
	check_program($name, "$folder/multiload") if $? == 0;
	return;
}

# Code before all other code, so that the rest moves if it can.
sub pad_object {
	my ($bytes) = @_;
	my $object = "build/pad$bytes.o";
	make_path('build');
	open(my $cc, '|-', "cc -c -x assembler -o $object -") or die "cc: $!\n";
	print {$cc} ".text\n.skip $bytes, 0x90\n.section .note.GNU-stack\n";
	close $cc or die "cc: status $?\n";
	return $object;
}

SKIP: {
	skip 'there is no objdump', 1 if !have('objdump');
	build('cc', 'native');
	build("moved_$_", 'native',
		'LDFLAGS=' . pad_object($_)) for 16, 32, 48;
	skip 'there is no gcc', 1 if !have('gcc');
	build('lto', 'lto', 'CC=gcc', q{CFLAGS='-g -O2 -flto'});
	skip 'there is no clang', 1 if !have('clang');
	build('clang', 'clang', 'CC=clang');
}

done_testing();
