# SPDX-License-Identifier: Apache-2.0
#
# What the measurements share: runs that take turns, so that what else the
# machine does meets all contenders alike; medians of their ratios, with the
# spread; and the description of the machine.
package Bench;

use strict;
use warnings;
use Cwd qw(abs_path);
use Exporter qw(import);
use File::Basename qw(dirname);
use POSIX qw(strftime uname);

our @EXPORT_OK = qw(top_dir slurp have first_line median quartiles take_turns
    ratios show_ratio show_heading machine cache_bytes size_text multiload
    multichase);

my $top = abs_path(dirname(abs_path(__FILE__)) . '/..');

sub top_dir { return $top }

sub slurp {
	my ($path) = @_;
	open(my $file, '<', $path) or return '';
	local $/;
	my $text = <$file> // '';
	$text =~ s/\s+\z//;
	return $text;
}

sub have {
	my ($tool) = @_;
	return scalar grep { -x "$_/$tool" } split /:/, $ENV{PATH};
}

sub first_line {
	my ($command) = @_;
	my ($line) = `$command 2>/dev/null`;
	chomp($line //= 'unknown');
	return $line;
}

# The value below which a part of the values lies.
sub quantile {
	my ($part, @values) = @_;
	@values = sort { $a <=> $b } @values;
	my $at = $part * $#values;
	my $low = int $at;
	my $high = $low < $#values ? $low + 1 : $low;
	return $values[$low] + ($at - $low) * ($values[$high] - $values[$low]);
}

sub median { return quantile(0.5, @_) }
sub quartiles { return (quantile(0.25, @_), quantile(0.75, @_)) }

# Runs all contenders in turn, so many rounds, every other one backwards.
# Each is a sub that returns a number; returns their lists of numbers.
sub take_turns {
	my ($rounds, @contenders) = @_;
	my @numbers = map { [] } @contenders;
	for my $round (1 .. $rounds) {
		my @order = 0 .. $#contenders;
		@order = reverse @order if $round % 2 == 0;
		push @{$numbers[$_]}, $contenders[$_]->() for @order;
	}
	return @numbers;
}

# Of two lists of numbers, round by round.
sub ratios {
	my ($ours, $theirs) = @_;
	return map { $ours->[$_] / $theirs->[$_] } 0 .. $#$ours;
}

sub show_heading {
	my ($title) = @_;
	printf "\n%s\n%-46s %10s %10s  %6s  %-15s %s\n", $title, '', 'ours',
	    'theirs', 'ratio', 'quartiles', 'bound';
	return;
}

# One line: medians, the median ratio with its spread, and whether the bound
# ('>= 0.95', or '' for none) is met.
sub show_ratio {
	my ($what, $ours, $theirs, $bound) = @_;
	my @ratios = ratios($ours, $theirs);
	my $ratio = median(@ratios);
	my $verdict = '';
	if ($bound =~ /^([<>]=) ([0-9.]+)$/) {
		my $met = $1 eq '>=' ? $ratio >= $2 : $ratio <= $2;
		$verdict = "$bound " . ($met ? 'met' : 'NOT MET');
	}
	printf "%-46s %10.5g %10.5g  %6.3f  %6.3f - %6.3f %s\n", $what,
	    median(@$ours), median(@$theirs), $ratio, quartiles(@ratios),
	    $verdict;
	return $ratio;
}

sub size_text {
	my ($bytes) = @_;
	my @units = qw(bytes KiB MiB GiB);
	while (@units > 1 && $bytes % 1024 == 0) {
		$bytes /= 1024;
		shift @units;
	}
	return "$bytes $units[0]";
}

# Bytes of a data or unified cache of a level; 0: not known.
sub cache_bytes {
	my ($level) = @_;
	for (`lscpu -B -C=LEVEL,TYPE,ONE-SIZE 2>/dev/null`) {
		my ($found, $type, $bytes) = split ' ';
		return $bytes if $found eq $level && $type ne 'Instruction';
	}
	return 0;
}

sub cpu_name {
	my ($name) = slurp('/proc/cpuinfo') =~ /^model name\s*:\s*(.+)$/m;
	return $name if $name;
	return join ' ', slurp('/proc/cpuinfo') =~ /^(CPU \w+\s*: .+)$/mg;
}

# The machine and the tools that a table of results is worth nothing without.
sub machine {
	my ($system, undef, $release, undef, $architecture) = uname();
	my $compiler = first_line(($ENV{CC} || 'cc') . ' --version');
	my $thp = slurp('/sys/kernel/mm/transparent_hugepage/enabled');
	my ($memory) = slurp('/proc/meminfo') =~ /^MemTotal:\s*(\d+) kB/m;
	return join '', map { "$_\n" } (
		'date      ' . strftime('%Y-%m-%d', gmtime),
		'CPU       ' . cpu_name() . ', ' . first_line('nproc')
		    . ' usable',
		'caches    ' . join(', ', map {
			"L$_ " . (cache_bytes($_)
				? size_text(cache_bytes($_)) : 'unknown')
		} 1 .. 3),
		sprintf('memory    %.1f GiB', ($memory // 0) / (1 << 20)),
		"kernel    $system $release $architecture, huge pages: $thp",
		"compiler  $compiler",
		'libc      ' . first_line('getconf GNU_LIBC_VERSION'),
		'revision  ' . first_line("git -C '$top' describe --always --dirty"),
	);
}

# What a program prints; it ends well, or nothing goes on.
sub output_of {
	my (@command) = @_;
	my $text = `@command`;
	die "@command: status $?\n" if $? != 0;
	return $text;
}

# MiB/s of a memload.
sub multiload {
	my ($folder, @args) = @_;
	my ($row) = (split /\n/, output_of("$folder/multiload", @args))[-1];
	return (split /,\s*/, $row)[8];
}

# Nanoseconds of a chase, or whatever word is last on its output.
sub multichase {
	my ($folder, @args) = @_;
	return (split ' ', output_of("$folder/multichase", @args))[-1];
}

1;
