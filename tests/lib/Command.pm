# SPDX-License-Identifier: Apache-2.0
#
# What the tests of commands share: running a program with a time limit, in the
# foreground or the background, and reading tables of test rows.
package Command;
use strict;
use warnings;
use Cwd qw(abs_path);
use Exporter qw(import);
use File::Basename qw(dirname);
use File::Temp qw(tempdir);
use POSIX ();
use Text::ParseWords qw(shellwords);
use Time::HiRes qw(sleep time);

our @EXPORT = qw($top $tmp words run start finish wait_for read_table found slurp spew
	allowed_cpus has_thp options_of names_of table_of short_command);

our $top = abs_path(dirname(abs_path(__FILE__)) . '/../..');

# Programs may be tested that were built elsewhere.
my $bin = defined $ENV{TEST_BIN} ? abs_path($ENV{TEST_BIN}) : $top;
my %programs = map { $_ => "$bin/$_" } qw(multichase multiload pingpong fairness);

# No command below takes longer, in seconds; a sanitizer or a busy machine may.
my $limit = $ENV{TEST_COMMAND_LIMIT} || 60;

our $tmp = tempdir('command.XXXXXX', TMPDIR => 1, CLEANUP => 1);
$SIG{$_} = sub { exit 1 } for qw(HUP INT TERM);

sub slurp
{
	my ($path) = @_;
	open my $in, '<', $path or return '';
	local $/;
	my $text = <$in>;
	return defined $text ? $text : '';
}

sub spew
{
	my ($path, $text) = @_;
	open my $out, '>', $path or die "$path: $!\n";
	print $out $text;
	close $out or die "$path: $!\n";
}

# Is this tool in PATH?
sub found { my ($tool) = @_; return scalar grep { -x "$_/$tool" } split /:/, $ENV{PATH} }

# The words of a command line, quotes as in the shell; programs by their paths.
sub words
{
	my ($line) = @_;
	return map { exists $programs{$_} ? $programs{$_} : $_ } shellwords($line);
}

my $runs = 0;

# Starts a command in the background: a line or a list of words. A hash may
# follow: stdout, where it writes; before, what is to be done in its process
# first; limit, the seconds that it may take.
sub start
{
	my ($command, %how) = @_;
	my @words = ref $command ? @$command : words($command);
	my $name = "$tmp/" . ++$runs;
	my $job = {out => $how{stdout} || "$name.out", err => "$name.err", limit => $how{limit} || $limit};

	$job->{pid} = fork;
	die "fork: $!\n" if !defined $job->{pid};
	if ($job->{pid} == 0) {
		open STDIN, '<', '/dev/null';
		open STDOUT, '>', $job->{out};
		open STDERR, '>', $job->{err};
		$SIG{$_} = 'DEFAULT' for qw(HUP INT TERM PIPE);
		$how{before}->() if $how{before};
		exec { $words[0] } @words or POSIX::_exit(127);
	}
	return $job;
}

# Waits for a job, after a signal to it if one is given. Returns a hash: exit
# (-N after signal N), signal (N or 0), out and err.
sub finish
{
	my ($job, $signal) = @_;
	my $timed_out = 0;

	kill $signal, $job->{pid} if $signal;
	local $SIG{ALRM} = sub { $timed_out = 1; kill 'KILL', $job->{pid} };
	alarm $job->{limit};
	1 while waitpid($job->{pid}, 0) < 0 && $!{EINTR};
	my $status = $?;
	alarm 0;
	return {
		exit => $status & 127 ? -($status & 127) : $status >> 8,
		signal => $status & 127,
		timed_out => $timed_out,
		out => -f $job->{out} ? slurp($job->{out}) : '',
		err => slurp($job->{err}),
	};
}

# Runs a command to its end. On a machine so busy that a thread did not come to
# its turn in a short sample, it is run again with longer ones.
sub run
{
	my ($command, @how) = @_;
	my $result = finish(start($command, @how));

	return $result if $result->{err} !~ /make it longer$/;
	my $longer = ref $command ? [@$command] : [words($command)];
	return $result if !grep { s/--interval 0\.05\b/--interval 1/ || ($_ eq '0.05' && ($_ = 1)) } @$longer;
	return finish(start($longer, @how));
}

# Waits until a condition holds; false if it does not in time.
sub wait_for
{
	my ($condition) = @_;
	my $end = time + $limit;

	until ($condition->()) {
		return 0 if time > $end;
		sleep 0.01;
	}
	return 1;
}

# A table of tabs: its first line names the columns, # begins a comment.
# Returns a list of hashes.
sub read_table
{
	my ($path) = @_;
	my ($names, @rows);

	for my $line (split /\n/, slurp($path)) {
		next if $line =~ /^(#|$)/;
		my @cells = split /\t/, $line, -1;
		if (!$names) {
			$names = \@cells;
			next;
		}
		die "$path: " . @cells . " columns: $line\n" if @cells != @$names;
		push @rows, {map { $names->[$_] => $cells[$_] } 0 .. $#cells};
	}
	die "$path: no rows\n" if !@rows;
	return @rows;
}

# The numbers of the CPUs that this process may use.
sub allowed_cpus
{
	my ($list) = slurp('/proc/self/status') =~ /^Cpus_allowed_list:\s*(\S+)/m;
	return map { /(\d+)-(\d+)/ ? ($1 .. $2) : $_ } split /,/, $list;
}

# The options of a program as its --help has them: hashes with letter, name,
# value and preset (undef where there is none).
sub options_of
{
	my ($program) = @_;
	my @options;

	for (split /\n/, run("$program --help")->{out}) {
		last if /^Chases/;
		next if !/^  (?:-(\w), |    )--([\w-]+)(?: ([A-Z]\S*))?\s/;
		my %option = (letter => $1, name => $2, value => $3);
		($option{preset}) = /\(default (\S+)\)$/;
		push @options, \%option;
	}
	return @options;
}

# The names in a list of --help: "Chases" or "Memloads".
sub names_of
{
	my ($program, $list) = @_;
	my ($part) = run("$program --help")->{out} =~ /^$list \((?:.*\n)*?((?:  .*\n)+)/m;
	die "no $list in the help of $program\n" if !$part;
	return map { /^  (\S+)/ } split /\n/, $part;
}

# May -H be had?
sub has_thp
{
	my $setting = '/sys/kernel/mm/transparent_hugepage/enabled';
	return -r $setting && (slurp($setting) !~ /\[never\]/ || -w $setting);
}

# A command line made short: samples of 0.05 s, one of them, and no warm-up, as
# far as it does not say otherwise.
sub short_command
{
	my ($line) = @_;
	my ($program) = $line =~ /(\S+)/;
	$line =~ s/( --|)$/ --interval 0.05$1/ if $line !~ / --interval/;
	$line =~ s/( --|)$/ --warmup 0$1/ if $line !~ / --warmup/ && $line =~ /\bmultiload /;
	$line =~ s/( --|)$/ -n 1$1/ if $line !~ / -n/;
	return $line;
}

# The row of multiload's table by the names of its columns; empty if it is not
# as it must be.
sub table_of
{
	my ($out) = @_;
	my @names = qw(Samples Byte/thd ChaseThds ChaseNS ChaseMibs ChDeviate
		LoadThds LdMaxMibs LdAvgMibs LdDeviate ChaseArg MemLdArg);
	my @formats = (qr/\d+ */) x 3;
	push @formats, qr/\d+\.\d{3} */, qr/\d+ */, qr/\d+\.\d{3} */, (qr/\d+ */) x 3, qr/\d+\.\d{3} */, qr/\S+/, qr/\S+/;
	my @widths = (6, 11, 8, 8, 8, 8, 8, 8, 8, 8, 0, 0);
	my ($header, $row) = (split /^/, $out)[-2, -1];

	return if !defined $row || $header ne join("\t, ", @names) . "\n" || chomp $row != 1;
	$row =~ s/^\d+\.\d{6} //;
	my @cells = split /\t, /, $row, -1;
	return if @cells != @names;
	for (0 .. $#cells) {
		return if $cells[$_] !~ /^$formats[$_]$/ || length $cells[$_] < $widths[$_];
		return if $cells[$_] =~ / $/ && length $cells[$_] > $widths[$_];
	}
	return map { $names[$_] => $cells[$_] =~ s/ +$//r } 0 .. $#names;
}

1;
