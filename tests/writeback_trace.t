#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# The write-back of the real aarch64 programs, seen from outside: every DC
# CIVAC is traced with its address, in one order with the stores that build,
# the barriers, and the kernels' beginning. CHECK_ALL=1 runs every case at
# every line size, ONLY=REGEX those cases whose name matches.
use strict;
use warnings;
no warnings 'portable'; # addresses have 64 bits
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use lib dirname(abs_path(__FILE__));
use Emulation qw(need_plugins need_programs plugin run_plugin temp_dir matrix);
use Test::More;

use constant {
	PAGE => 4096,
	HUGE => 2 << 20,
	FLUSH => 64 << 20,
	MALLOC_HEADER => 16,
};

my %line_bytes = ('neoverse-n1' => 64, max => 32, a64fx => 256);
# Long enough that every one of several threads gets a CPU meanwhile.
sub short_run {
	my ($kernels) = @_;
	return qw(-v --warmup 0 -n 2 --interval), $kernels > 1 ? 0.4 : 0.05;
}

my $file = temp_dir() . '/arena';

# A buffer: its bytes, the kind of its memory, where it starts in there, and
# how many threads share its write-back (one).
sub buffer {
	my ($bytes, %more) = @_;
	return {bytes => $bytes, kind => 'map', offset => 0, sharers => 1, %more};
}

# Cases marked `every` run at each line size, in the short check too.
my @cases = (
	{run => 'multiload -l stream-sum -m 256k', every => 1,
	 buffers => [buffer(256 << 10)]},
	{run => 'multiload -X -l stream-sum -t 2 -m 256k', kernels => 2,
	 buffers => [(buffer(256 << 10)) x 2]},
	{run => 'multiload -l memcpy-libc -s 72 -T 72 -m 200016',
	 buffers => [buffer(200016)]},
	{run => 'multiload -c simple -m 512k',
	 buffers => [buffer(512 << 10)]},
	{run => 'multiload -X -c chaseload -l stream-sum -t 2 -m 256k',
	 kernels => 2, buffers => [(buffer(256 << 10)) x 2]},
	{run => 'multiload -X -c chaseload -l stream-sum -t 2 -m 256k -F 0',
	 kernels => 2, buffers => [buffer(256 << 10)]},
	{run => 'multichase -m 512k -L', every => 1,
	 buffers => [buffer(512 << 10)]},
	{run => 'multichase -X -t 2 -m 512k', kernels => 2,
	 buffers => [buffer(512 << 10, sharers => 2)]},
	{run => 'multichase -X -t 4 -m 512k', every => 1, kernels => 4,
	 buffers => [buffer(512 << 10, sharers => 4)]},
	{run => 'multichase -X -t 3 -s 72 -T 72 -m 200016', kernels => 3,
	 buffers => [buffer(200016, sharers => 3)]},
	{run => 'multichase -O 3 -m 256k', every => 1,
	 buffers => [buffer(256 << 10, offset => 3)]},
	{run => "multichase -f $file -m 256k",
	 buffers => [buffer(256 << 10, kind => 'file')]},
	{run => 'multichase -M -L -m 256k',
	 buffers => [buffer(256 << 10, kind => 'malloc')]},
	{run => 'multichase -H -m 2m', warns => 1,
	 buffers => [buffer(2 << 20, kind => 'huge')]},
	{run => 'multichase -c branch -m 256k', coherent => 1,
	 buffers => [buffer(256 << 10)]},
	{run => 'multichase -X -c branch -t 2 -m 256k', coherent => 1,
	 kernels => 2, buffers => [buffer(256 << 10, sharers => 2)]},
	{run => 'multichase -c critword:64 -m 256k',
	 buffers => [buffer(256 << 10)]},
	{run => 'multichase -c critword2:64 -m 256k',
	 buffers => [buffer(256 << 10)]},
	{run => 'multichase -c parallel10 -m 256k',
	 buffers => [buffer(256 << 10)]},
	{run => 'multichase -F 0 -m 256k', buffers => []},
	{run => 'multiload -c simple -F 0 -m 256k', buffers => []},
	{run => 'multichase --dirty-start -m 256k', buffers => []},
	{run => 'multiload --dirty-start -l stream-sum -m 256k', buffers => []},
	{run => 'multiload --dirty-start -X -c chaseload -l stream-sum -t 2'
	     . ' -m 256k', kernels => 2, buffers => []},
);

# What a run did: mappings with the stores and cleanings in each, and when the
# rest happened. Time is the number of the event.
sub new_trace {
	return {
		line => shift, now => 0, maps => [], outside => 0, cleaned => 0,
		last_clean => 0, first_kernel => 0, kernels => {},
		last_coherent => 0, last_clean_of => {}, barriers => {},
	};
}

sub map_at {
	my ($trace, $addr) = @_;
	for my $map (reverse @{$trace->{maps}}) {
		return $map if $addr >= $map->{addr} && $addr < $map->{end};
	}
	return;
}

sub on_store {
	my ($trace, $vcpu, $addr, $bytes) = @_;
	my $map = map_at($trace, $addr) or return;
	$map->{last_store} = $trace->{now};
	my $last = int(($addr + $bytes - 1) / $trace->{line});
	$map->{stored}{$_} = 1 for int($addr / $trace->{line}) .. $last;
	return;
}

sub on_clean {
	my ($trace, $vcpu, $addr) = @_;
	$trace->{cleaned}++;
	$trace->{last_clean} = $trace->{last_clean_of}{$vcpu} = $trace->{now};
	my $map = map_at($trace, $addr);
	if (!$map) {
		$trace->{outside}++;
		return;
	}
	$map->{first_clean} ||= $trace->{now};
	$map->{cleaned}{int($addr / $trace->{line})}++;
	$map->{sharers}{$vcpu}++;
	return;
}

sub on_kernel {
	my ($trace, $vcpu) = @_;
	$trace->{first_kernel} ||= $trace->{now};
	$trace->{kernels}{$vcpu} = 1;
	return;
}

my %on_event = (
	M => sub {
		my ($trace, $vcpu, $addr, $bytes, $prot, $flags) = @_;
		push @{$trace->{maps}}, {addr => $addr, bytes => $bytes,
			end => $addr + $bytes, shared => hex($flags) & 1};
	},
	S => \&on_store,
	Z => \&on_store,
	C => \&on_clean,
	K => \&on_kernel,
	B => sub { push @{$_[0]{barriers}{$_[1]}}, $_[0]{now} },
	I => sub { $_[0]{last_coherent} = $_[0]{now} },
);

sub take_event {
	my ($trace, $text) = @_;
	my ($event, $vcpu, $addr, @rest) = split ' ', $text;
	$trace->{now}++;
	my $action = $on_event{$event} or return;
	$action->($trace, $vcpu, defined $addr ? hex $addr : undef, @rest);
	return;
}

sub round_up {
	my ($value, $unit) = @_;
	return int(($value + $unit - 1) / $unit) * $unit;
}

# Whether this buffer can be in this mapping, and if so where it starts.
sub buffer_start {
	my ($buffer, $map) = @_;
	my $bytes = $buffer->{bytes} + $buffer->{offset};
	return if $map->{shared} != ($buffer->{kind} eq 'file');
	if ($buffer->{kind} eq 'malloc') {
		return if $map->{bytes} < $bytes + MALLOC_HEADER;
		return round_up($map->{addr} + MALLOC_HEADER, PAGE);
	}
	my $unit = $buffer->{kind} eq 'huge' ? HUGE : PAGE;
	return if $map->{bytes} != round_up($bytes, $unit);
	return $map->{addr} + $buffer->{offset};
}

# The lines of [start, start + bytes) against those cleaned.
sub compare_lines {
	my ($line, $start, $bytes, $cleaned) = @_;
	my %left = %$cleaned;
	my ($missing, $twice) = (0, 0);
	for my $at (int($start / $line) .. int(($start + $bytes - 1) / $line)) {
		my $times = delete $left{$at} || 0;
		$missing++ if !$times;
		$twice++ if $times > 1;
	}
	return sprintf '%d missing, %d twice, %d outside', $missing, $twice,
	    scalar keys %left;
}

sub check_buffer {
	my ($trace, $buffer, $map) = @_;
	my $start = buffer_start($buffer, $map);
	my $name = "$buffer->{bytes} bytes";
	is(compare_lines($trace->{line}, $start, $buffer->{bytes},
		$map->{cleaned}), '0 missing, 0 twice, 0 outside',
		"$name: exactly the buffer's lines, each once");
	my @dirty = grep { !$map->{cleaned}{$_} } keys %{$map->{stored}};
	@dirty = grep { $_ * $trace->{line} >= $start } @dirty;
	is(scalar @dirty, 0, "$name: no line is left dirty");
	ok($map->{last_store}, "$name: the stores that build were seen");
	cmp_ok($map->{last_store}, '<', $map->{first_clean},
		"$name: no store after the first DC CIVAC");
	is(scalar keys %{$map->{sharers}}, $buffer->{sharers},
		"$name: threads that share the write-back");
	return;
}

# Each buffer wants a mapping of its own in which lines were cleaned.
sub check_buffers {
	my ($trace, @buffers) = @_;
	my @maps = grep { $_->{cleaned} } @{$trace->{maps}};
	is(scalar @maps, scalar @buffers, 'buffers that were written back');
	for my $buffer (@buffers) {
		my ($found) = grep { defined buffer_start($buffer, $maps[$_]) }
		    0 .. $#maps;
		ok(defined $found, "a mapping for $buffer->{bytes} bytes")
		    or next;
		check_buffer($trace, $buffer, splice @maps, $found, 1);
	}
	is($trace->{outside}, 0, 'no DC CIVAC outside of all mappings');
	return;
}

# Every thread that cleaned has waited for it before any kernel begins.
sub check_barriers {
	my ($trace) = @_;
	my ($cleaned, $begun) = @$trace{qw(last_clean_of first_kernel)};
	for my $vcpu (sort keys %$cleaned) {
		my @after = grep { $_ > $cleaned->{$vcpu} && $_ < $begun }
		    @{$trace->{barriers}{$vcpu} || []};
		ok(scalar @after, "thread $vcpu: a DSB ISH after its last line");
	}
	return;
}

sub check_order {
	my ($trace, $case) = @_;
	is(scalar keys %{$trace->{kernels}}, $case->{kernels} || 1,
		'threads whose kernel has run');
	return if !@{$case->{buffers}};
	cmp_ok($trace->{last_clean}, '<', $trace->{first_kernel},
		'all DC CIVAC before any kernel begins');
	check_barriers($trace);
	return if !$case->{coherent};
	my ($arena) = grep { $_->{first_clean} } @{$trace->{maps}};
	ok($trace->{last_coherent}, 'IC IVAU was seen');
	cmp_ok($trace->{last_coherent}, '<', $arena ? $arena->{first_clean} : 0,
		'no IC IVAU after the first DC CIVAC');
	return;
}

# What -v says of the write-back is what was done.
sub check_report {
	my ($trace, $case, $stdout) = @_;
	my ($bytes, $lines) = (0, 0);
	while ($stdout =~ /^write_back = (\d+) bytes, (\d+) lines of (\d+)\b/mg) {
		$bytes += $1;
		$lines += $2;
		is($3, $trace->{line}, '-v: the line size');
	}
	my $want = 0;
	$want += $_->{bytes} for @{$case->{buffers}};
	is($bytes, $want, '-v: bytes written back');
	is($lines, $trace->{cleaned}, '-v: lines written back');
	return;
}

sub check_case {
	my ($plugin, $case, $cpu) = @_;
	my $trace = new_trace($line_bytes{$cpu});
	my ($status, $stdout, $stderr) = run_plugin(plugin => $plugin,
		cpu => $cpu, command => [split(' ', $case->{run}),
			short_run($case->{kernels} || 1)],
		on_line => sub { take_event($trace, $_[0]) });
	is($status, 0, 'exit status') or diag($stderr);
	is($stderr, '', 'stderr') if !$case->{warns};
	check_buffers($trace, @{$case->{buffers}});
	check_order($trace, $case);
	check_report($trace, $case, $stdout);
	is(scalar(grep { $_->{bytes} >= FLUSH } @{$trace->{maps}}), 0,
		'no flush buffer is mapped');
	return;
}

need_plugins();
need_programs();
my $plugin = plugin('trace_plugin');
open(my $arena, '>', $file) or die "$file: $!\n";
truncate($arena, 256 << 10) or die "$file: $!\n";
for my $cpu ('neoverse-n1', 'max', 'a64fx') {
	for my $case (@cases) {
		next if $cpu ne 'neoverse-n1' && !$case->{every} && !matrix();
		(my $name = $case->{run}) =~ s{\S+/arena\b}{FILE};
		$name = "$line_bytes{$cpu}-byte lines: $name";
		next if $ENV{ONLY} && $name !~ /$ENV{ONLY}/;
		subtest $name =>
		    sub { check_case($plugin, $case, $cpu) };
	}
}
done_testing();
