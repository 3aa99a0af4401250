#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# README.md: the programs take every command that it shows, and every file and
# heading that it points to is there.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use Test::More;

my $text = slurp("$top/README.md");

# What the shell finds in the variables of the recipes.
delete @ENV{grep { /^SWEEP_/ } keys %ENV};
mkdir "$tmp/node0";
spew("$tmp/node0/cpulist", (allowed_cpus())[0] . "\n");
@ENV{qw(start delay cpus memory)} = ('--dirty-start', 1, "$tmp/node0", "$tmp/node0");

# A command in a table ends with its span, in a block with a comment, a pipe or
# its line.
my @commands = map { s/ (?:[#|] .*|&)?$//r =~ s/\s+$//r }
	$text =~ m{(?:^[ ]{4}[ \$]*|`)((?:\w+=\S+ )*\./(?:multichase|multiload|pingpong|fairness|run_multiload\.sh) [^`\n]+)}mg;
cmp_ok(scalar @commands, '>=', 25, 'it shows commands');
for my $command (@commands) {
	next if $command =~ /run_multiload.sh 2/ && allowed_cpus() < 2;
	my $line = $command =~ s/\bSIZE\b/16k/r =~ s/-t N\b/-t 1/r =~ s/-m 1g\b/-m 4m/r;
	$line =~ s/ --plot\b// if !found('gnuplot');
	$line .= ' -X' if $line =~ / -t 2/ && allowed_cpus() < 2;
	my $run = run(['sh', '-c', "$line --dry-run"], before => sub { chdir $top });
	is($run->{exit}, 0, $command) or diag($run->{err});
}

my %heading = map { lc(s/[^\w -]//gr =~ s/ /-/gr) => 1 } $text =~ /^#+ (.*)/mg;
for ($text =~ /\]\(([^)]+)\)/g) {
	if (s/^#//) {
		ok($heading{$_}, "the heading $_ is there");
	} else {
		ok(-s "$top/$_", "the file $_ is there");
	}
}

done_testing();
