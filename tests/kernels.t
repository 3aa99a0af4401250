#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# The machine code of the chases, of each compiler and architecture: a turn of
# a kernel's loop is followed instruction by instruction, and must make exactly
# as many loads, each from what the one before has found, as it counts steps;
# and it must do nothing else, but for what its kind asks for.
use strict;
use warnings;
no warnings 'portable'; # addresses have 64 bits
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use POSIX qw(uname);
use Test::More;

use constant BATCH => 200; # steps of a cursor in a turn of the loop
use constant LINE => 64;

# Each kernel's cursors, and what comes with each of their steps.
my %kernels = (
	simple => [1], critword2 => [2],
	work => [1, inner_loop => 1], incr => [1, store => 1],
	(map { $_ => [1, "prefetch_$_" => 1] } qw(t0 t1 t2 nta)),
	movdqa => [1, vector_load => 4], movntdqa => [1, vector_load => 4],
	(map { ("parallel$_" => [$_]) } 2 .. 10),
);
# Steps of a turn, where they are not one of each cursor.
my %steps = (critword2 => BATCH);

# What instructions do, by architecture: each function is given mnemonic and
# operands and returns an empty list if this instruction is none of that kind.
my %x86_64 = (
	# The address that is jumped to, and whether always.
	jump => sub { return $_[0] =~ /^j/ && $_[1] =~ /^([0-9a-f]+) </ ? (hex $1, $_[0] eq 'jmp') : () },
	leave => qr/^ret/,
	call => sub { return $_[0] =~ /^call/ ? ($_[1] =~ /^\*%/ ? 'indirect' : 'direct') : () },
	forbidden => sub { return $_[0] =~ /^(?:lock|xchg|cmpxchg|xadd|[lms]fence|push|pop)/ && $_[1] !~ /^%\w+,%\w+$/ || $_[1] =~ /%[re]?sp\b/ },
	# From the word at a register into a register.
	load => sub { return $_[0] eq 'mov' && $_[1] =~ /^(?:0x0)?\((%r\w+)\),(%r\w+)$/ ? ($1, $2) : () },
	copy => sub { return $_[0] eq 'mov' && $_[1] =~ /^(%r\w+),(%r\w+)$/ ? ($1, $2) : () },
	# The register that is added to, and by how much.
	add => sub { return $_[0] =~ /^add/ && $_[1] =~ /^\$0x([0-9a-f]+),(%r\w+)$/ ? ($2, hex $1) : () },
	# The register at which memory is changed, and which register goes there, or
	# +N if N is added.
	store => sub {
		return $1 if $_[0] =~ /^(?:add|inc)/ && $_[1] =~ /^(?:\$0x1,)?0x8\((%r\w+)\)$/;
		return ($2, '+' . hex $1) if $_[0] =~ /^add/ && $_[1] =~ /^\$0x([0-9a-f]+),0x[0-9a-f]+\((%r\w+)\)$/;
		return $_[0] =~ /^(?:mov|add)$/ && $_[1] =~ /^(%r\w+),(?:0x[0-9a-f]+)?\((%r\w+)\)$/ ? ($2, $1) : ();
	},
	# The register at which it is, and the kind.
	prefetch => sub { return "@_" =~ /^prefetch(\w+) \((%r\w+)\)$/ ? ($2, $1) : () },
	# A vector that is read: offset, register, and where it goes.
	vector_load => sub {
		return $_[0] =~ /^v?(?:movdqa|movntdqa|paddq)$/ && $_[1] =~ /^(0x[0-9a-f]+)?\((%r\w+)\),(?:%xmm\d+,)?(%xmm\d+)$/
			? (hex($1 || 0), $2, $3) : ();
	},
	vector_add => sub { return $_[0] eq 'paddq' && $_[1] =~ /^(%xmm\d+),(%xmm\d+)$/ ? ($1, $2) : () },
	vector_move => sub { return $_[0] eq 'movdqa' && $_[1] =~ /^(%xmm\d+),(%xmm\d+)$/ ? ($1, $2) : () },
	vector_to_register => sub { return $_[0] eq 'movq' && $_[1] =~ /^(%xmm\d+),(%r\w+)$/ ? ($1, $2) : () },
	written => sub { return $_[0] !~ /^(?:cmp|test|prefetch|nop|j)/ && $_[1] =~ /(%\w+)$/ ? whole($1) : () },
);

# %eax and %al are parts of %rax, %r8d of %r8.
sub whole
{
	my ($register) = @_;
	return "%r$1x" if $register =~ /^%e?([a-d])[lx]$/;
	return "%r$1" if $register =~ /^%e?([sd]i|bp)l?$/;
	return $register =~ s/^(%r\d+)[dwb]$/$1/r;
}

my %aarch64 = (
	jump => sub { return $_[0] =~ /^(?:b(?:\.\w+)?|cbn?z|tbn?z)$/ && $_[1] =~ /([0-9a-f]+) </ ? (hex $1, $_[0] eq 'b') : () },
	leave => qr/^ret/,
	call => sub { return $_[0] =~ /^bl(r?)$/ ? ($1 ? 'indirect' : 'direct') : () },
	forbidden => sub {
		return $_[0] =~ /^(?:ld[axl]|st[xl]|cas|swp|d[ms]b|isb)/ || $_[1] =~ /\bw?sp\b|\bx29\b.*\]/;
	},
	load => sub { return $_[0] =~ /^ldp?r?$/ && $_[1] =~ /^(x\d+), (?:x\d+, )?\[(x\d+)\]$/ ? ($2, $1) : () },
	copy => sub { return $_[0] eq 'mov' && $_[1] =~ /^(x\d+), (x\d+)$/ ? ($2, $1) : () },
	add => sub { return $_[0] eq 'add' && $_[1] =~ /^(x\d+), \1, #0x([0-9a-f]+)$/ ? ($1, hex $2) : () },
	store => sub { return $_[0] eq 'str' && $_[1] =~ /^(x\d+), \[(x\d+)(?:, #\d+)?\]$/ ? ($2, $1) : () },
	prefetch => sub {
		my %kind = (pldl1keep => 't0', pldl2keep => 't1', pldl3keep => 't2', pldl1strm => 'nta');
		return $_[0] eq 'prfm' && $_[1] =~ /^(\w+), \[(x\d+)\]$/ ? ($2, $kind{$1}) : ();
	},
	(map { $_ => sub { return } } qw(vector_load vector_add vector_move vector_to_register)),
	written => sub {
		return if $_[0] =~ /^(?:st|cmp|tst|prfm|nop|b|cb|tb)/;
		return $_[1] =~ /^[xw](\d+)/ ? "x$1" : ();
	},
);

# Functions of a program: name => list of [address, mnemonic, operands].
sub functions_of
{
	my ($objdump, $program) = @_;
	my (%code, $name);

	for (split /\n/, run([$objdump, '-d', '--no-show-raw-insn', $program])->{out}) {
		if (/^[0-9a-f]+ <([^>]+)>:$/) {
			$name = $1;
		} elsif (/^ *([0-9a-f]+):\t(?:(?:rep|data16|cs) )*(lock )?(\S+)\s*(.*?)(?:\s+(?:\/\/|# ).*)?$/) {
			push @{$code{$name}}, [hex $1, $2 ? 'lock' : $3, $4];
		}
	}
	return %code;
}

# The instructions of one turn of a function's loop, if each jump that depends
# on something is not taken but the last that leads back; and the list of the
# other jumps that lead back.
sub turn_of
{
	my ($isa, @code) = @_;
	my %index_of = map { $code[$_][0] => $_ } 0 .. $#code;
	my (@path, %seen, @back);

	for (my $i = 0; defined $i && $i < @code; ) {
		my ($address, @what) = @{$code[$i]};
		last if $what[0] =~ $isa->{leave};
		if (exists $seen{$address}) { # the whole loop has been gone through
			push @back, [$#path, $seen{$address}];
			last;
		}
		$seen{$address} = @path;
		push @path, $code[$i];
		my ($to, $always) = $isa->{jump}->(@what);
		push @back, [$#path, $seen{$to}] if defined $to && !$always && exists $seen{$to};
		$i = $always ? $index_of{$to} : $i + 1;
	}
	return if !@back;
	my $closing = pop @back;
	my @turn = @path[$closing->[1] .. $closing->[0]];
	return (\@turn, [grep { $_->[1] > $closing->[1] } @back]);
}

# Follows what registers hold through a turn: where a cursor is, told by the
# register in which it came and how many loads have been made since.
sub follow
{
	my ($isa, $turn) = @_;
	my (%holds, %vectors, %did, @stores, @adds);
	my $cursor = sub { return $holds{$_[0]} ||= [$_[0], 0] };

	for (@$turn) {
		my (undef, @what) = @$_;
		my @found;
		if (@found = $isa->{load}->(@what)) {
			my ($chase, $depth) = @{$cursor->($found[0])};
			$holds{$found[1]} = [$chase, $depth + 1];
			$did{$chase eq 'other' ? 'other_load' : "load $chase $depth"}++;
		} elsif (@found = $isa->{copy}->(@what)) {
			$holds{$found[1]} = $cursor->($found[0]);
		} elsif (@found = $isa->{vector_load}->(@what)) {
			my ($offset, $base, $to) = @found;
			my ($chase, $depth) = @{$cursor->($base)};
			my $place = "$chase $depth $offset";
			$vectors{$to} = $what[0] =~ /add/ ? {%{$vectors{$to} || {}}, $place => 1} : {$place => 1};
			$did{"vector_load $chase $depth"}++;
			$did{$what[0]}++;
		} elsif (@found = $isa->{vector_add}->(@what)) {
			$vectors{$found[1]} = {map { %{$vectors{$_} || {}} } @found};
		} elsif (@found = $isa->{vector_move}->(@what)) {
			$vectors{$found[1]} = $vectors{$found[0]};
		} elsif (@found = $isa->{vector_to_register}->(@what)) {
			my @places = sort keys %{$vectors{$found[0]} || {}};
			my ($chase, $depth) = @places ? split ' ', $places[0] : ('none', 0);
			my $line = join ';', sort map { "$chase $depth $_" } 0, 16, 32, 48;
			delete $holds{$found[1]};
			$holds{$found[1]} = [$chase, $depth + 1] if join(';', @places) eq $line;
			$did{"load $chase $depth"}++;
		} elsif (@found = $isa->{prefetch}->(@what)) {
			my ($chase, $depth) = @{$cursor->($found[0])};
			$did{"prefetch_$found[1] $chase $depth"}++;
		} elsif (@found = $isa->{store}->(@what)) {
			push @stores, [@found[0, 1], $cursor->($found[0])];
		} else {
			push @adds, [@found] if @found = $isa->{add}->(@what);
			$holds{$_} = ['other', 0] for $isa->{written}->(@what);
		}
	}
	return {holds => \%holds, did => \%did, stores => \@stores, adds => \@adds};
}

sub check_kernel
{
	my ($build, $isa, $name, $code) = @_;
	my ($cursors, %with) = @{$kernels{$name}};
	my $what = "$build: chase_$name";
	my ($turn, $inner) = turn_of($isa, @$code);

	ok($turn, "$what has a loop") or return;
	is($turn->[0][0] % LINE, 0, "$what: the loop starts at a line of the instruction cache");
	my @bad = grep { $isa->{forbidden}->(@$_[1, 2]) || $isa->{call}->(@$_[1, 2]) } @$turn;
	ok(!@bad, "$what: no call, no locked instruction, no stack access") or diag("@{$bad[0]}[1, 2]");

	my $state = follow($isa, $turn);
	my $did = $state->{did};
	# A cursor is again where it was, as many steps further.
	my @cursors = sort grep { $state->{holds}{$_}[0] eq $_ && $state->{holds}{$_}[1] } keys %{$state->{holds}};
	is(scalar @cursors, $cursors, "$what: has its cursors, each in its register again");
	is($state->{holds}{$_}[1], BATCH, "$what: $_ makes its dependent loads") for @cursors;
	is(scalar grep({ /^load / } keys %$did), $cursors * BATCH, "$what: and there are no others");
	is(scalar grep({ $did->{$_} != 1 } grep { /^load / } keys %$did), 0, "$what: each is made once");
	cmp_ok($did->{other_load} || 0, '<=', 1, "$what: but that of its count");

	# The count goes up by what was done, and is stored once.
	my @at_cursor = grep { my $chase = $_->[2][0]; grep { $_ eq $chase } @cursors } @{$state->{stores}};
	my @elsewhere = grep { my $store = $_; !grep { $_ == $store } @at_cursor } @{$state->{stores}};
	is(scalar @elsewhere, 1, "$what: stores its count once in a turn");
	my $count = @elsewhere && defined $elsewhere[0][1] ? $elsewhere[0][1] : '';
	my @steps = $count =~ /^\+(\d+)/ ? $1 : map { $_->[1] } grep { $_->[0] eq $count } @{$state->{adds}};
	is("@steps", $steps{$name} || $cursors * BATCH, "$what: counts what it has done");

	# What comes with each step.
	is(scalar @$inner, ($with{inner_loop} || 0) * BATCH, "$what: loops inside the loop");
	my %depths = map { $_->[2][1] => 1 } @at_cursor;
	is(scalar @at_cursor, ($with{store} || 0) * BATCH, "$what: stores at the cursor");
	is(scalar keys %depths, scalar @at_cursor, "$what: one in each step");
	for my $kind ('prefetch_t0', 'prefetch_t1', 'prefetch_t2', 'prefetch_nta', 'vector_load') {
		my @steps_with = grep { /^$kind / } keys %$did;
		my $each = $with{$kind} || 0;
		is(scalar @steps_with, $each ? BATCH : 0, "$what: steps with $kind");
		is(scalar grep({ $did->{$_} != $each } @steps_with), 0, "$what: $each in each");
	}
	if ($name =~ /^mov/) {
		is($did->{movntdqa} || 0, $name eq 'movntdqa' ? 4 * BATCH : 0, "$what: non-temporal loads");
	}
}

# The loads of the branch chase are jumps, in the arena.
sub check_branch
{
	my ($build, $isa, $code) = @_;
	my $what = "$build: chase_branch";
	my ($turn) = turn_of($isa, @$code);

	ok($turn, "$what has a loop") or return;
	my @calls = map { $isa->{call}->(@$_[1, 2]) } @$turn;
	is("@calls", 'indirect', "$what: one call, through its cursor");
	my @bad = grep { $isa->{forbidden}->(@$_[1, 2]) } @$turn;
	ok(!@bad, "$what: no locked instruction, no stack access") or diag("@{$bad[0]}[1, 2]");
	ok(scalar grep({ $_->[2] =~ /\$?#?0xc8\b/ } @$code), "$what: counts 200 jumps a call");
	my @stores = map { [$isa->{store}->(@$_[1, 2])] } @$turn;
	is(scalar grep({ @$_ } @stores), 1, "$what: stores its count once in a turn");
}

sub check_program
{
	my ($build, $objdump, $isa, $program, @expected) = @_;
	my %code = functions_of($objdump, $program);

	for my $name (@expected) {
		my ($function) = grep { /^chase_$name(?:\.|$)/ } sort keys %code;
		ok(defined $function, "$build: there is chase_$name") or next;
		check_kernel($build, $isa, $name, $code{$function});
	}
	my ($branch) = grep { /^chase_branch(?:\.|$)/ } sort keys %code;
	ok(defined $branch, "$build: there is chase_branch") or return;
	check_branch($build, $isa, $code{$branch});
}

my @everywhere = sort grep { !/^mov/ } keys %kernels;
# These run the kernel of another.
my %others = map { $_ => 1 } qw(critword chaseload branch);

SKIP: {
	skip 'this machine is no x86-64', 1 if (uname())[4] ne 'x86_64';
	my @names = map { s/:N$//r } names_of('multiload', 'Chases');
	is(join(' ', grep { !$kernels{$_} && !$others{$_} } @names), '', 'every chase of --help is known here');
	skip 'objdump was not found', 1 if !found('objdump');
	check_program('native', 'objdump', \%x86_64, $_, sort keys %kernels) for words('multichase multiload');
	skip 'clang was not found', 1 if !found('clang');
	my $made = run("make -s -C $top CC=clang BUILD=build/clang BIN=build/clang build/clang/multichase",
		before => sub { delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)} });
	is($made->{exit}, 0, 'clang builds it') or diag($made->{err});
	check_program('clang', 'objdump', \%x86_64, "$top/build/clang/multichase", sort keys %kernels);
}

SKIP: {
	skip 'aarch64-linux-gnu-objdump was not found', 1 if !found('aarch64-linux-gnu-objdump');
	skip 'build/aarch64 has not been made', 1 if !-x "$top/build/aarch64/multichase";
	check_program('aarch64', 'aarch64-linux-gnu-objdump', \%aarch64, "$top/build/aarch64/multichase", @everywhere);
}

done_testing();
