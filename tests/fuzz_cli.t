#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# Command lines made up from the options of --help: any combination, with values
# at and beyond their edges, spelt in every way. With --dry-run, and in short
# real runs. Each must end with exit 0 and a well-formed result, or exit 1, an
# empty stdout and one line on stderr that says what is wrong and what would be
# right; never by a signal, never in time without end, never with inf or nan.
#
# tests/fuzz_cli.t SEED RUNS tries other ones; the seeds are printed, and a
# command line that fails is printed as a shell reads it. TEST_BIN=build/asan
# tries programs that were built there.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use JSON::PP ();
use Test::More;

my ($seed, $runs) = @ARGV;
$seed = 1 if !defined $seed;
$runs = $ENV{CHECK_ALL} ? 8000 : 1000 if !defined $runs;
# Of as many command lines one is really run.
my $real_share = 25;

spew("$tmp/FILE", 'x' x (1 << 20));
my %names = (
	multichase => [names_of('multichase', 'Chases')],
	multiload => [names_of('multiload', 'Chases')],
	loads => [names_of('multiload', 'Memloads')],
);

sub pick { return $_[rand @_] }
sub maybe { return rand() < $_[0] }

# Values that are no number of any kind.
my @junk = ('', ' ', '-1', '+1', ' 1', '1 ', 'x', '0x', '08', '1x', '1kk', 'k', '1.5g', 'nan', 'inf', '-', '--', '1e3', "1\n", "\xff",
	'18446744073709551616', '99999999999999999999999999', '%s%n', 'a' x 300, '0b1', '1,000', "\e[0m", '٣');
my @numbers = (0 .. 3, 7 .. 10, 12, 16, 17, 63 .. 65, 100, 255 .. 257, 1000, 4095 .. 4097, 65535 .. 65537, 1 << 20, 2147483647, 2147483648,
	4294967295, 4294967296, '9223372036854775807', '9223372036854775808', '18446744073709551615', '0x10', '010', '0xffffffffffffffff');

# A value for what --help calls it.
my %value_of = (
	SIZE => sub { return pick(@numbers) . (maybe(0.6) ? '' : pick(qw(k K m M g G t T))) },
	N => sub { return pick(@numbers) },
	SECONDS => sub { return pick(@numbers, '.5', '0.001', '0.0009', '0.5', '1e-3', '86400', '86400.5', '1e400', '0x1', '1s', '1,5', '.') },
	LIST => sub {
		return pick('0', '1', '0,1', '1,0', '0-1', '65535', '65536', '0,0', '0-', ',', '0,', 'a', '1-0', '0-0', '0x0', '0-18446744073709551615',
			'99999999999', '0;1', '0-1-2', '0-3');
	},
	MASK => sub { return pick('0', '1', '2', '3', '0x3', '0x0', '0xg', 'f', '0x' . 'f' x 20, '0x' . '0' x 40 . '1', '0x1' . '0' x 17000, @numbers) },
	'NODE:W,...' => sub {
		return join pick(',', ',', ',', ';', ',,', ''), map { pick('0', '0', '1', '63', '64', 'a', '') . pick(':', ':', ':', '=', '') . pick(@numbers, 'x') }
			1 .. 1 + rand 3;
	},
	FILE => sub { return pick("$tmp/FILE", "$tmp/FILE", '/nosuch', '/', '', '/dev/null', '/dev/zero', '/proc/self/mem', "a\nb", 'x' x 5000) },
);
sub chase
{
	my ($program) = @_;
	my $name = pick(@{$names{$program}});
	$name =~ s/:N$/pick(':8', ':64', ':0', ':1', ':', '', ':' . pick(@numbers), ':x', ':64:64', ':8k')/e;
	$name = substr $name, 0, 1 + rand length $name if maybe(0.1);
	$name .= pick(':', ':1', 'x', ' ') if maybe(0.1);
	return maybe(0.05) ? uc $name : $name;
}

sub load
{
	my $name = pick(@{$names{loads}});
	$name = substr $name, 0, 1 + rand length $name if maybe(0.3);
	return maybe(0.05) ? $name . pick('x', ':1', ' ') : $name;
}

sub value_for
{
	my ($program, $option) = @_;
	my $kind = $option->{value};

	return pick(@junk) if maybe(0.1);
	return chase($program) if $kind eq 'NAME[:N]';
	return load() if $kind eq 'NAME';
	# What is right most often, so that other options get their turn.
	return $option->{preset} if defined $option->{preset} && maybe(0.3);
	return $value_of{$kind}->();
}

# The words that spell an option.
sub spell
{
	my ($option, $value) = @_;
	my ($letter, $name) = @$option{qw(letter name)};

	$letter = undef if maybe(0.3);
	$name = substr $name, 0, 1 + rand length $name if maybe(0.1);
	if (!defined $value) {
		return defined $letter ? "-$letter" : "--$name" . (maybe(0.02) ? '=1' : '');
	} elsif (defined $letter) {
		return maybe(0.5) ? "-$letter$value" : ("-$letter", $value);
	}
	return maybe(0.5) ? "--$name=$value" : ("--$name", $value);
}

sub arguments
{
	my ($program, @options) = @_;
	my @words;

	for (1 .. rand 7) {
		my $option = pick(@options);
		my $value = defined $option->{value} ? value_for($program, $option) : undef;
		push @words, spell($option, $value);
	}
	push @words, pick(@junk, 'operand', '--', '-v', '--nosuch', '-Q') if maybe(0.03);
	pop @words if @words && maybe(0.02); # perhaps a value is missing then
	return @words;
}

# Values with which a run is over soon, most of them right.
my %tame = (
	SIZE => sub { return pick(0, 1, 8, 12, 16, 17, 48, 64, 100, 128, 256, 320, 1000, 1024, 2048, '4k', '5000', '16k', '64k', '100k', '256k') },
	N => sub { return pick(1 .. 4) },
	LIST => sub { return pick('0', '1', '0,1', '1,0') },
	MASK => sub { return pick(1, 2) },
	'NODE:W,...' => sub { return pick('0:1', '0:3,0:1') },
	FILE => sub { return "$tmp/FILE" },
	SECONDS => sub { return pick('0.001', '0.003') },
	'NAME[:N]' => sub { return pick(@{$names{$_[0]}}) =~ s/:N$/pick(':8', ':24', ':64', ':100')/er },
	NAME => sub { return pick(@{$names{loads}}) },
);
my %seconds = (multichase => 0.002, multiload => 0.01, pingpong => 0.001, fairness => 0.005);

sub tame_arguments
{
	my ($program, @options) = @_;
	my @words;

	for (1 .. 1 + rand 6) {
		my $option = pick(grep { $_->{name} !~ /^(?:page-size|help|version|dry-run|samples|interval|warmup|rows|sweep)$/ } @options);
		push @words, spell($option, defined $option->{value} ? $tame{$option->{value}}->($program) : undef);
	}
	push @words, '-m', $tame{SIZE}->() if $program =~ /^multi/ && !grep { /^-m|^--m/ } @words;
	push @words, '--interval', $seconds{$program}, '--warmup', 0;
	push @words, '-n', 1 if $program ne 'pingpong';
	push @words, pick('-u', '-l', '-x') if $program eq 'pingpong' && !grep { /^-[ulx]$|^--/ } @words;
	return @words;
}

sub is_json
{
	my ($text) = @_;
	my $object = eval { JSON::PP->new->decode($text) };
	return ref $object eq 'HASH' && $text =~ /\n\z/;
}

# What each program prints when it has run.
my %printed = (
	multichase => sub { return $_[0] =~ /^(?:[\d.]+ )? *\d+\.\d+\n\z/m },
	multiload => sub { my %row = table_of($_[0]); return %row > 0 },
	pingpong => sub { return $_[0] =~ /\A[ \d\n.:]+\n\z/ },
	fairness => sub { return $_[0] =~ /\d\n\z/ },
);

# What is wrong with how a command line ended, or nothing.
sub wrong
{
	my ($program, $result, $real) = @_;
	my ($out, $err) = @$result{qw(out err)};

	return 'did not end in time' if $result->{timed_out};
	return "ended by signal $result->{signal}" if $result->{signal};
	return 'has inf or nan' if $out =~ /(?<![\w-])(?:inf|nan)(?![\w-])/i;
	if ($result->{exit} == 1) {
		# What -v prints comes before a sample too short for a thread's turn.
		return 'failed, but stdout is not empty' if $out ne '' && !($real && $err =~ /make it longer$/);
		return 'stderr is not one line' if $err !~ /\A$program: error: [^\n]+\n\z/;
		return 'stderr has control characters' if $err =~ /[\x00-\x09\x0b-\x1f\x7f]/;
		return 'the line names no option or resource' if $err !~ /(?:^| )-{1,2}[A-Za-z?=:;,.\x80-\xff-]|operand|CPU|cpus|memory/;
		return;
	}
	return "exit $result->{exit}" if $result->{exit};
	$err =~ s/^$program: warning: [^\n]+\n//mg if $real;
	return 'stderr is not empty' if $err ne '';
	return if $out =~ /\Ausage: $program .*\n\z/s || $out =~ /\A$program \d\S*\n\z/;
	if (!$real) {
		return if $out =~ /\A\{/ && eval { JSON::PP->new->utf8->decode($out)->{configuration} };
		return $out =~ /\A(?:\w+ = [^\n]+\n)+\z/ ? undef : 'the plan is malformed';
	}
	return if $out =~ /\A\{/ && is_json($out);
	return $printed{$program}->($out) ? undef : 'the result is malformed';
}

sub shown { return join ' ', map { /^[\w.,:=\/-]+$/ ? $_ : "'" . s/'/'\\''/gr . "'" } @_ }

for my $program (qw(multichase multiload pingpong fairness)) {
	my @options = options_of($program);
	my ($path) = words($program);
	cmp_ok(scalar @options, '>=', 10, "$program --help lists options");
	for my $real (0, 1) {
		my $count = int($real ? $runs / $real_share : $runs);
		my (%outcomes, @wrong);
		srand($seed);
		for (1 .. $count) {
			my @words = $real ? tame_arguments($program, @options) : ('--dry-run', arguments($program, @options));
			my $result = run([$path, @words], limit => 30);
			my $wrong = wrong($program, $result, $real);
			push @wrong, "$program " . shown(@words) . ": $wrong\n$result->{err}" if $wrong;
			$outcomes{"exit $result->{exit}"}++;
		}
		my $how = $real ? 'really run' : 'with --dry-run';
		ok(!@wrong, "$program, seed $seed: $count command lines $how: " . join ', ', map { "$outcomes{$_} $_" } sort keys %outcomes)
			or diag(join '', @wrong[0 .. ($#wrong > 9 ? 9 : $#wrong)]);
		cmp_ok($outcomes{'exit 0'} || 0, '>', $count / 10, "$program: enough of them are right");
	}
}

done_testing();
