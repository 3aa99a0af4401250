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
use JSON::PP qw(decode_json);
use List::Util qw(max min);
use POSIX qw(strftime);
use Time::HiRes qw(time);

our @EXPORT_OK = qw(top_dir slurp have first_line median quartiles take_turns
    ratios show_ratio show_heading machine cache_bytes size_text output_of
    run_json cpus seconds_to_first_line chase_ns load_mibs best_load_mibs last_result);

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

# A table, of numbers of which more are better, or less.
my $best_of;

sub show_heading {
	my ($title, $ours, $theirs, $better) = @_;
	$best_of = $better eq 'more' ? \&max : \&min;
	printf "\n%s\n%-46s %9s %9s  %6s  %-15s %6s  %s\n", $title, '', $ours,
	    $theirs, 'ratio', 'quartiles', 'best', 'bound, or remark';
	return;
}

# One line: medians, the median ratio with its spread, the ratio of the best of
# both, and whether the bound ('>= 0.95', '0.99 - 1.01' or none) is met.
sub show_ratio {
	my ($what, $ours, $theirs, $bound) = @_;
	my @ratios = ratios($ours, $theirs);
	my $ratio = median(@ratios);
	my $met = $bound =~ /^>= (\S+)$/ ? $ratio >= $1
	    : $bound =~ /^<= (\S+)$/ ? $ratio <= $1
	    : $bound =~ /^(\S+) - (\S+)$/ ? $ratio >= $1 && $ratio <= $2 : 1;
	printf "%-46s %9.4g %9.4g  %6.3f  %6.3f - %6.3f %6.3f  %s\n", $what,
	    median(@$ours), median(@$theirs), $ratio, quartiles(@ratios),
	    $best_of->(@$ours) / $best_of->(@$theirs),
	    $bound . ($met ? '' : ' NOT MET');
	return;
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

# What a command prints; it ends well, or nothing goes on.
sub output_of {
	my ($command) = @_;
	my $text = `$command`;
	die "$command: status $?\n" if $? != 0;
	return $text;
}

# What a program of ours says under --json.
sub run_json {
	my ($folder, $command) = @_;
	return decode_json(output_of("$folder/$command --json"));
}

# The CPUs that may be used.
sub cpus {
	my ($list) = slurp('/proc/self/status') =~ /^Cpus_allowed_list:\s*(\S+)/m;
	return map { /^(\d+)-(\d+)$/ ? ($1 .. $2) : $_ } split /,/, $list;
}

# Nanoseconds of a dereference of the first thread, in the best of many short
# samples: some of them nothing interrupts. The main thread, which wakes up for
# each of them, is kept off that thread's CPU.
sub chase_ns {
	my ($folder, $arguments) = @_;
	my ($first, @others) = cpus();
	my $main = join ',', @others ? @others : $first;
	my $found = run_json("taskset -c $main $folder", "multichase $arguments "
		. '-n 50 --interval 0.002 --cpus ' . join(',', $first, @others));
	return min(grep { $_ > 0 } map { $_->{thread_ns}[0] }
	    @{$found->{samples}});
}

# Seconds until a command has said its first line, which ends its set-up.
sub seconds_to_first_line {
	my ($command) = @_;
	my $begin = time;
	open(my $pipe, '-|', $command) or die "$command: $!\n";
	my $line = <$pipe>;
	my $seconds = time - $begin;
	die "$command: it says nothing\n" if !defined $line;
	{ local $/; <$pipe> } # to its end, so that its memory is free again
	close $pipe;
	return $seconds;
}

# MiB/s of a memload, over as many seconds.
sub load_mibs {
	my ($folder, $seconds, $arguments) = @_;
	my $found = run_json($folder,
		"multiload $arguments -n 1 --warmup 0.02 --interval $seconds");
	return $found->{result}{mib_per_s};
}

# MiB/s of a memload in the best of many short samples.
sub best_load_mibs {
	my ($folder, $arguments) = @_;
	my $found = run_json($folder,
		"multiload $arguments -n 50 --warmup 0.02 --interval 0.002");
	return $found->{result}{mib_per_s_statistics}{max};
}

# What a program says in words that every build of it has: MiB/s of all loads
# of multiload where nothing chases, else nanoseconds.
sub last_result {
	my ($folder, $command) = @_;
	my @lines = split /\n/, output_of("$folder/$command");
	return (split ' ', $lines[-1])[-1] if $command !~ /^multiload/;
	my @cells = split /,\s*/, $lines[-1];
	return $cells[2] > 0 ? $cells[3] : $cells[8];
}

# What a table of results is worth nothing without.
sub machine {
	my ($folder) = @_;
	my $of = run_json($folder, 'multichase -m 64k -n 1 --interval 0.001')
	    ->{environment};
	my %cache = map { $_->{level} => size_text($_->{size_bytes}) }
	    grep { $_->{type} ne 'Instruction' } @{$of->{caches}};
	return join '', map { "$_\n" } (
		'date      ' . strftime('%Y-%m-%d', gmtime),
		"CPU       $of->{cpu}, CPUs $of->{cpus_online} online",
		'caches    ' . join(', ', map { "L$_ $cache{$_}" } sort keys %cache),
		'memory    ' . sprintf('%.1f GiB', $of->{memory_bytes} / (1 << 30)),
		"kernel    $of->{kernel} $of->{architecture}",
		"huge      $of->{thp}",
		'compiler  ' . first_line(($ENV{CC} || 'cc') . ' --version'),
		'libc      ' . first_line('getconf GNU_LIBC_VERSION'),
		'revision  ' . first_line("git -C '$folder' describe --always --dirty"),
		'load      ' . first_line('cat /proc/loadavg'),
	);
}

1;
