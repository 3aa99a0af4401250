# SPDX-License-Identifier: Apache-2.0
#
# Runs the aarch64 programs on the model of a cache (cache_model.c).
package CacheModel;

use strict;
use warnings;
use Emulation qw(plugin run_plugin);
use Exporter qw(import);

our @EXPORT_OK = qw(published counter_cases model figures mib);

use constant {
	MIB => 1 << 20,
	LINE => 64,
	CPU => 'neoverse-n1',
};

my $plugin;

# The published measurement, hits and allocations of the SLC before and after,
# and the command that each row stands for. The chases' -L visits each pointer
# slot, 8 bytes, of the arena once in a cycle.
sub published {
	my $chase = '-L -H -T 2m -m 20m';
	return (
		{name => 'multiload stream-sum', slc => 32 * MIB, threads => 1,
		 run => 'multiload -l stream-sum -m 20m',
		 pass => 20 * MIB / LINE, warm => 2, count => 3,
		 hits => ['1353M', '2697M'], allocs => ['1345M', '1M']},
		{name => 'multiload chase', slc => 32 * MIB, threads => 1,
		 run => "multiload -c simple $chase",
		 pass => 20 * MIB / 8, warm => 1, count => 0.25,
		 hits => ['110M', '215M'], allocs => ['106M', '1M']},
		{name => 'multiload chaseload (two threads)',
		 slc => 64 * MIB, threads => 2,
		 run => "multiload -X -c chaseload -l stream-sum -t 2 $chase",
		 pass => 20 * MIB / 8, warm => 1, count => 0.25,
		 hits => ['1683M', '2920M'], allocs => ['1236M', '4M']},
		{name => 'multichase chase', slc => 32 * MIB, threads => 1,
		 run => "multichase $chase",
		 pass => 20 * MIB / 8, warm => 1, count => 0.25,
		 hits => ['111M', '217M'], allocs => ['104M', '1M']},
	);
}

# Where the write-back cannot help. Sizes are divided by the scale: what counts
# is which is larger. want: hits and allocations, before and after, if exact.
sub counter_cases {
	my ($scale) = @_;
	my $unit = MIB / $scale;
	my $sum = sub {
		my ($buffer, %more) = @_;
		return (run => 'multiload -l stream-sum -m ' . $buffer * $unit,
			pass => $buffer * $unit / LINE, warm => 2, count => 2,
			threads => 1, private => $unit, slc => 32 * $unit,
			%more);
	};
	my $in = sub { mib($_[0] * $unit) };
	return (
		{$sum->(0.5), name => $in->(0.5) . ', fits the private cache',
		 warm => 8, count => 32},
		{$sum->(48), name => $in->(48) . ', larger than the SLC',
		 want => [[0, 1], [0, 1]]},
		{$sum->(20), name => $in->(20) . ', an SLC that keeps dirty lines'
		     . ' on a read hit', keep_dirty => 1,
		 want => [[2, 0], [2, 0]]},
		{$sum->(20), name => $in->(20) . ', multichase incr',
		 run => 'multichase -c incr -s 64 -m ' . 20 * $unit,
		 want => [[1, 1], [1, 1]]},
		{$sum->(20), name => 'two buffers of ' . $in->(20)
		     . ', chaseload', threads => 2, run => 'multiload -X -c'
		     . ' chaseload -l stream-sum -t 2 -s 64 -m ' . 20 * $unit},
	);
}

# Hits and allocations per private miss, as text.
sub figures {
	my ($counts) = @_;
	return map { defined $_ ? sprintf('%.2f', $_) : 'no misses' }
	    @$counts{qw(hits_per_miss allocs_per_miss)};
}

sub mib {
	my ($bytes) = @_;
	return sprintf '%g MiB', $bytes / MIB;
}

# Per private miss; undef where there was none to speak of.
sub per_miss {
	my ($counts) = @_;
	my $enough = $counts->{misses} > $counts->{visits} / 1000;
	$counts->{"${_}_per_miss"} = $enough
	    ? $counts->{$_} / $counts->{misses} : undef for qw(hits allocs);
	$counts->{misses_per_visit} = $counts->{visits}
	    ? $counts->{misses} / $counts->{visits} : 0;
	return $counts;
}

# Runs a command. Its sampling would go on for ever, the model ends it.
#	run => command line, pass => visits of a pass, warm and count => passes,
#	slc, private => bytes, threads, keep_dirty, before => 1 for --dirty-start
# Returns a hash: model => parameters, threads => [counts ...], total => counts.
sub model {
	my (%run) = @_;
	$plugin ||= plugin('cache_model');
	my %args = (line => LINE, slc => $run{slc} || 32 * MIB,
		private => $run{private} || MIB, threads => $run{threads} || 1,
		keep_dirty => $run{keep_dirty} || 0,
		warm => int($run{pass} * $run{warm}),
		count => int($run{pass} * $run{count}));
	my @command = (split(' ', $run{run}), qw(--warmup 0 --interval 1000),
		$run{before} ? '--dirty-start' : ());
	my %result = (threads => [], command => "@command");
	my ($status, $stdout, $stderr) = run_plugin(plugin => $plugin,
		args => [map { "$_=$args{$_}" } sort keys %args], cpu => CPU,
		command => \@command, timeout => 300,
		on_line => sub { take_line(\%result, $_[0]) });
	die "@command: status $status: $stderr\n"
	    if $status || !$result{model}{complete};
	return \%result;
}

sub take_line {
	my ($result, $line) = @_;
	my %field = $line =~ /(\w+)=(\w+)/g;
	if ($line =~ /^model /) {
		$result->{model} = \%field;
	} elsif ($line =~ /^thread=/) {
		push @{$result->{threads}}, per_miss(\%field);
	} elsif ($line =~ /^total /) {
		$result->{total} = per_miss(\%field);
	}
	return;
}

1;
