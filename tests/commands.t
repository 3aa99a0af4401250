#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# Command lines: those that scripts run, each output read as they read it
# (commands.tsv); those that must be refused or survived (bad_input.tsv); every
# chase and memload; every option by its letter and its long name.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use Test::More;

my $cpus = () = allowed_cpus();
my $decimal = qr/\d+(?:\.\d+)?/;

my %files = (FILE => 4 << 20, USEDFILE => 1 << 20, SHORTFILE => 1000);
spew("$tmp/$_", "\xa5" x $files{$_}) for keys %files;

# Why a command line cannot be run on this machine, or undef.
sub lacks
{
	my ($line) = @_;
	my ($threads) = $line =~ / -t ?(\d+)/;
	my ($tool) = $line =~ /^(\S+)/;

	return "needs $threads CPUs" if ($threads || 1) > $cpus && $line !~ / -X/;
	return 'no transparent huge pages' if $line =~ / -H/ && !has_thp();
	return 'numactl was not found' if $tool eq 'numactl' && !found('numactl');
	return 'no NUMA in this kernel' if $tool eq 'numactl' && run('numactl --show')->{exit};
	return undef;
}

# With -H, memory that is too broken up for huge pages is a warning.
sub is_quiet
{
	my ($result, $line) = @_;
	$result->{err} =~ s/^\w+: warning: -H: .* on huge pages, the rest is not\n// if $line =~ / -H/;
	is($result->{exit}, 0, "$line: exit 0");
	is($result->{err}, '', "$line: nothing on stderr");
}

# What a shell makes of a pipeline or an expression with the command in it.
sub shell
{
	my ($text) = @_;
	my $result = run(['sh', '-c', $text]);
	is($result->{err}, '', "$text: nothing on stderr");
	return $result->{out};
}

sub shell_words { return join ' ', map { "'$_'" } words($_[0]) }

# Each reader is given the command line and what it printed.
my %readers = (
	'last word' => sub {
		my ($line, $out) = @_;
		my $word = (split ' ', $out)[-1];
		like($word, qr/^\d+\.\d+$/, "$line: the last word is a number");
		cmp_ok($word, '>', 0, "$line: it is above 0");
	},
	'last word, timestamp before it' => sub {
		my ($line, $out) = @_;
		like($out, qr/(?:^|\n)\d{10,}\.\d{6} +\d+\.\d+\n\z/, "$line: timestamp and number end it");
	},
	'one number' => sub {
		my ($line) = @_;
		my $out = shell(shell_words($line) . ' 2>&1');
		like($out, qr/\A\s*[0-9.]+\s*\n\z/, "$line: both streams merged are a bare number");
	},
	'number for printf %.3f' => sub {
		my ($line) = @_;
		like(shell("printf '%.3f' \$(" . shell_words($line) . ')'), qr/\A\d+\.\d{3}\z/, "$line: suits printf");
	},
	'number for printf %7.1f' => sub {
		my ($line) = @_;
		like(shell("printf '%7.1f' \$(" . shell_words($line) . ')'), qr/\A *\d+\.\d\z/, "$line: suits printf");
	},
	'last line' => sub {
		my ($line) = @_;
		like(shell(shell_words($line) . ' | tail -n 1'), qr/\A *\d+\.\d+\n\z/, "$line: tail -n 1 is a number");
	},
	'last line into a calculator' => sub {
		my ($line) = @_;
		my $out = shell('awk "BEGIN { print $(' . shell_words($line) . ' | tail -1) * 1000 }"');
		like($out, qr/\A$decimal\n\z/, "$line: tail -1 can be reckoned with");
	},
	'last line of a file' => sub {
		my ($line) = @_;
		my $out = shell(shell_words($line) . " > $tmp/last && tail -n 1 $tmp/last");
		like($out, qr/\A *\d+\.\d+\n\z/, "$line: exit 0, and the file ends in a number");
	},
	'timed out' => sub {
		my ($line, $out) = @_;
		like($out, qr/^timed out: \d+ samples, \d+ stalls, \d+ iterations per msec$/m, "$line: the line is there");
	},
	'table split at commas' => sub {
		my ($line, $out) = @_;
		my @lines = split /\n/, $out;
		my @names = map { s/\s+$//r } split /,\s*/, $lines[0];
		my @cells = map { s/\s+$//r } split /,\s*/, $lines[1];
		my %row;
		@row{@names} = @cells;
		is(scalar @cells, scalar @names, "$line: a cell for each name");
		like($row{$_}, qr/^[1-9]\d*$/, "$line: $_ is a whole number above 0") for qw(LdAvgMibs LdMaxMibs);
	},
	'table split at blanks' => sub {
		my ($line, $out) = @_;
		my @lines = split /\n/, $out;
		is(scalar @lines, 2, "$line: two lines");
		my @cells = grep { $_ ne ',' } split ' ', $lines[1];
		is(scalar @cells, 12, "$line: 12 words");
		like($cells[$_], qr/^\d+$/, "$line: column $_ is whole") for 0, 1, 2, 6;
		like($cells[$_], qr/^$decimal$/, "$line: column $_ is a number") for 3, 4, 5, 7, 8, 9;
	},
	'lines without ample' => sub {
		my ($line, $out) = @_;
		my ($header, @rest) = split /\n/, $out;
		my @rows = map { s/\s//gr } grep { !/ample/ } @rest;
		like($header, qr/^Samples\b/, "$line: the first line is the header");
		is(scalar @rows, 1, "$line: one row is left");
		like($rows[0], qr/^\d+,\d+,\d+,$decimal,\d+,$decimal,\d+,\d+,\d+,$decimal,\S+,\S+$/, "$line: its cells");
	},
	'first decimal number' => sub {
		my ($line, $out) = @_;
		my ($number) = (split /\n/, $out)[1] =~ /(\d+\.\d+)/;
		my %row = table_of($out);
		is($number, $row{ChaseNS}, "$line: the first decimal number is the latency");
		cmp_ok($number, '>', 0, "$line: it is above 0");
	},
	'ChasBEST' => sub {
		my ($line, $out) = @_;
		my ($best) = $out =~ /ChasBEST=($decimal),/;
		my %row = table_of($out);
		is($best, $row{ChaseNS}, "$line: ChasBEST= is the latency of the row");
	},
);

symlink((words('multichase'))[0], "$tmp/multichase-of-the-path");
$ENV{PATH} = "$tmp:$ENV{PATH}";

for my $row (read_table("$FindBin::Bin/commands.tsv")) {
	my ($line, $reader) = @$row{qw(command reader)};
	$line = short_command($line);
	SKIP: {
		my $lack = lacks($line);
		skip "$line: $lack", 1 if defined $lack;
		fail("no reader '$reader'"), next if !$readers{$reader};
		my $real = $line =~ s{ FILE}{ $tmp/FILE}r =~ s/^PROGRAM-IN-PATH/multichase-of-the-path/r;
		my $result = run($real);
		is_quiet($result, $line);
		$readers{$reader}->($real, $result->{out});
	}
}

# One line on stderr that says what, nothing on stdout, exit 1.
sub is_refused
{
	my ($result, $line, $what) = @_;
	is($result->{exit}, 1, "$line: exit 1");
	is($result->{out}, '', "$line: nothing on stdout");
	like($result->{err}, qr/\A\w+: error: [^\n]*$what[^\n]*\n\z/, "$line: one line says why");
}

# A result that can be read, and nothing else that matters here.
sub is_result
{
	my ($result, $line) = @_;
	is_quiet($result, $line);
	if ($line =~ /^multiload/) {
		my %row = table_of($result->{out});
		ok(%row, "$line: a table") or diag($result->{out});
	} else {
		like($result->{out}, qr/^ *\d+\.\d+\n\z/m, "$line: a number");
	}
}

for my $row (read_table("$FindBin::Bin/bad_input.tsv")) {
	my $line = $row->{exit} ? $row->{command} : short_command($row->{command});
	SKIP: {
		my $lack = $row->{exit} ? undef : lacks($line);
		skip "$line: $lack", 1 if defined $lack;
		my $result = run($line =~ s{ (SHORTFILE|USEDFILE)}{ $tmp/$1}r);
		$row->{exit} ? is_refused($result, $line, $row->{stderr}) : is_result($result, $line);
	}
}

# Whatever is typed, it is shown on one line; letters beyond ASCII are kept.
for my $value ("a\nb", "a\r\tb\x7f", "\e[2J", "\n", "gr\xc3\xb6\xc3\x9fe", 'x' x 5000) {
	my $shown = $value =~ s/[\x00-\x1f\x7f]/?/gr =~ s/^(.{200}).*/$1/r;
	for my $option ('-c', '-m', '-f', '--cpus', '-W', '--interval') {
		my $result = run([words('multichase -m 64k'), $option, $value]);
		is_refused($result, "multichase $option " . unpack('H*', substr $value, 0, 9), quotemeta "$option $shown");
	}
	my $result = run([words('multichase -m 64k'), $value]);
	is_refused($result, 'multichase ' . unpack('H*', substr $value, 0, 9), quotemeta $shown);
}

# -F is the size of a buffer, or only says whether the chase is written back.
{
	my $line = short_command('multichase -m 64k -F 99999g');
	my $result = run($line);
	if (run('multichase --help')->{out} =~ /--flush SIZE .*write the chase back/) {
		is_result($result, $line);
	} else {
		is_refused($result, $line, '-F 99999g: .* only \d+.* of memory');
	}
}

# A file system may not allow code in its files.
{
	my $line = short_command("multichase -c branch -m 1m -f $tmp/FILE");
	my $result = run($line);
	$result->{exit} ? is_refused($result, $line, 'runs code in the arena') : is_result($result, $line);
}

# Every chase and memload. 64 is the N of those that take one.
for my $program ('multichase', 'multiload') {
	my @chases = names_of($program, 'Chases');
	cmp_ok(scalar @chases, '>=', 10, "$program --help lists chases");
	for my $chase (grep { $_ ne 'chaseload' } @chases) {
		my $name = $chase =~ s/:N$/:64/r;
		my $line = short_command("$program -c $name -m 64k -s 256");
		is_result(run($line), $line);
	}
}
my @loads = names_of('multiload', 'Memloads');
for my $name (qw(memcpy-libc memset-libc memsetz-libc stream-copy stream-sum stream-triad
	stream-triad-nontemporal-injection-delay)) {
	is(scalar grep({ $_ eq $name } @loads), 1, "multiload --help lists $name");
}
for my $load (@loads) {
	my $line = short_command("multiload -l $load -m 64k");
	my $result = run($line);
	is_result($result, $line);
	my %row = table_of($result->{out});
	is($row{MemLdArg}, $load, "$line: names its load");
	is($row{ChaseArg}, '--------', "$line: and no chase");
	SKIP: {
		$line = short_command("multiload -c chaseload -l $load -t 2 -m 64k");
		my $lack = lacks($line);
		skip "$line: $lack", 1 if defined $lack;
		$result = run($line);
		is_result($result, $line);
		%row = table_of($result->{out});
		is("$row{ChaseArg} $row{MemLdArg}", "chaseload $load", "$line: names both");
	}
}

# The options that must be there, and a value for each that takes one.
my %letters = (
	multichase => 'F H L M N O T W X a c f h m n o p s t v y',
	multiload => 'F H L O T W X a c d h l m n o p s t v y',
);
my %values = (
	chase => 'work:3', cpus => (allowed_cpus())[0], delay => 7, file => "$tmp/FILE", flush => '1m', interval => '0.25',
	load => 'stream-sum', memory => '3m', offset => '32', 'page-size' => '4k', samples => 3, seed => 17, stride => 512,
	threads => 1, 'tlb-locality' => '1m', warmup => '0.25', weights => '0:1',
);
for my $program ('multichase', 'multiload') {
	my @options = options_of($program);
	is(join(' ', sort grep { defined } map { $_->{letter} } @options), $letters{$program}, "$program has its letters");
	for my $option (@options) {
		my ($letter, $name) = @$option{qw(letter name)};
		my $value = $values{$name};
		my $more = $name =~ /^(help|version)$/ ? '' : ' --dry-run';
		$value = "$value" if defined $value;
		is(defined $value, defined $option->{value}, "$program --$name: takes a value or not") or next;
		my $long = run("$program$more --$name" . (defined $value ? " $value" : ''));
		is($long->{exit}, 0, "$program --$name: exit 0");
		is($long->{err}, '', "$program --$name: nothing on stderr");
		isnt($long->{out}, '', "$program --$name: prints something");
		next if !defined $letter;
		my $short = run("$program$more -$letter" . (defined $value ? " $value" : ''));
		is($short->{out}, $long->{out}, "$program -$letter is --$name");
		if (defined $value) {
			my $glued = run("$program$more -$letter$value");
			is($glued->{out}, $long->{out}, "$program -$letter$value is --$name $value");
		}
	}
}

done_testing();
