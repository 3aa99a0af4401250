#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# What the completions for bash and zsh offer is what --help has: every option
# of every program, the chases and memloads, files and folders.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use Test::More;

my %path = map { $_ => (words($_))[0] } qw(multichase multiload pingpong fairness);
$path{'run_multiload.sh'} = "$top/run_multiload.sh";

# The options of --help, by their long names: letter and value.
sub options
{
	my %options;
	for (split /\n/, run([$path{$_[0]}, '--help'])->{out}) {
		$options{$3} = [$2 // '', $4 // ''] if /^ +(-(\w), )?--([a-z-]+)(?: ([A-Z]\S*))?/;
	}
	return %options;
}

# All ways to write them.
sub spelled { my %options = @_; return sort map { ("--$_", $options{$_}[0] ? "-$options{$_}[0]" : ()) } keys %options }

# What bash would offer for the last of these words.
sub bash
{
	my ($program, @words) = @_;
	my @line = ($path{$program}, @words);
	my $run = run(['bash', '--norc', '-c', '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
		. '_multichase "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; printf "%s\n" "status $?" "${COMPREPLY[@]}"',
		'bash', "$top/completions/multichase.bash", @line], before => sub { chdir "$tmp/folder" });
	my ($status, @reply) = split /\n/, $run->{out};
	is_deeply([$status, $run->{err}], ['status 0', ''], "bash: $program @words: no error");
	return [sort grep { $_ ne '' } @reply];
}

mkdir "$tmp/folder";
mkdir "$tmp/folder/below";
spew("$tmp/folder/being", '');
my @chases = map { s/:N$/:/r } names_of('multichase', 'Chases');
my @loads = names_of('multiload', 'Memloads');

SKIP: {
	skip 'bash was not found', 1 if !found('bash');
	for my $program (sort keys %path) {
		my %options = options($program);
		is_deeply(bash($program, '-'), [spelled(%options)], "bash: $program: all options");
		is_deeply(bash($program, '--he'), ['--help'], "bash: $program: the beginning of one");
		for (grep { $options{$_}[1] =~ /^(?:N|SIZE|SECONDS|LIST|MASK)$/ } sort keys %options) {
			is_deeply(bash($program, "--$_", ''), [], "bash: $program: nothing for the number of --$_");
		}
		like(run(['bash', '--norc', '-c', '. "$0"; complete -p "$1"', "$top/completions/multichase.bash", $program])->{out},
			qr/-F _multichase \Q$program\E$/m, "bash: $program: is known");
	}
	for ('-c', '--chase') {
		is_deeply(bash('multichase', $_, ''), [sort @chases], "bash: multichase $_: the chases");
		is_deeply(bash('multiload', $_, 'chasel'), ['chaseload'], "bash: multiload $_: chaseload too");
	}
	is_deeply(bash('multiload', $_, ''), [sort @loads], "bash: multiload $_: the memloads") for '-l', '--load';
	is_deeply(bash('multiload', '--load', '=', 'zero-'), [sort grep { /^zero-/ } @loads], 'bash: --load=zero-');
	is_deeply(bash('multiload', '--load', '='), [sort @loads], 'bash: --load=');
	is_deeply(bash('pingpong', '-l', '--js'), ['--json'], "bash: pingpong's -l has no value");
	is_deeply(bash('pingpong', '-c', ''), [], "bash: pingpong's -c has a number");
	is_deeply(bash('multichase', '-f', 'be'), ['being', 'below'], 'bash: files');
	is_deeply(bash('run_multiload.sh', '--output', 'be'), ['below'], 'bash: folders');
	$path{absent} = "$tmp/absent";
	is_deeply(bash('absent', '-'), [], 'bash: nothing from a program that is not there');
}
delete $path{absent};

# For zsh, what is handed to its _arguments.
SKIP: {
	skip 'zsh was not found', 1 if !found('zsh');
	like(slurp("$top/completions/_multichase"), qr/\A#compdef @{[join ' ', qw(multichase multiload pingpong fairness run_multiload.sh)]}\n/,
		'zsh: the programs are known');
	for my $program (sort keys %path) {
		my $run = run(['zsh', '-f', '-c', 'setopt extendedglob; _arguments() { print -rl -- "$@" }; _call_program() { shift; "$@" }; '
			. 'words=("$1"); source "$0"', "$top/completions/_multichase", $path{$program}]);
		is($run->{err}, '', "zsh: $program: no error");
		my ($first, @specs) = split /\n(?=-)/, $run->{out} =~ s/^-s\n-S\n//r;
		my %offered = map { /^(--?[\w-]+)([=+]?)\[/ ? ($1 => $_) : () } split /\n/, $run->{out};
		my %options = options($program);
		is_deeply([sort keys %offered], [spelled(%options)], "zsh: $program: all options");
		for (sort keys %options) {
			my ($letter, $value) = @{$options{$_}};
			my $like = $value eq '' ? qr/^--\Q$_\E\[.*[^\\]\]$/ : $value eq 'A' ? qr/^--\Q$_\E\[.*\]:before:_files -\/:after:_files -\/$/
				: qr/^--\Q$_\E=\[.*[^\\]\]:[^:]+:/;
			like($offered{"--$_"}, $like, "zsh: $program: --$_ and its value");
		}
		my %list = (chase => ['multichase multiload', \@chases], load => ['multiload', \@loads]);
		for my $option (grep { $list{$_}[0] =~ /\b\Q$program\E\b/ } sort keys %list) {
			my ($names) = $offered{"--$option"} =~ /:\((.*)\)$/;
			my %has = map { s/\\:/:/r => 1 } split / /, $names // '';
			is_deeply([grep { !$has{$_} } @{$list{$option}[1]}], [], "zsh: $program: --$option has all names");
		}
	}
}

done_testing();
