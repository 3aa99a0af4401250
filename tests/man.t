#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# The manual pages are in step with --help: the same options, values and
# defaults, every chase and memload; and mandoc finds no fault in them.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use Test::More;

my @programs = qw(multichase multiload pingpong fairness run_multiload.sh);
chomp(my $machine = `uname -m`);

sub help
{
	my ($program) = @_;
	return run($program =~ /\.sh$/ ? ["$top/$program", '--help'] : "$program --help")->{out};
}

# The options of a text as hashes of label and default: a label stands behind
# some blanks, what it means behind two or more, or on lines that are set in
# deeper.
sub options
{
	my ($text) = @_;
	my (%default, $label);
	for (split /\n/, $text) {
		$label = undef if /^\S/;
		if (/^ {2,}((?:-\w, )?--[a-z-]+(?: [A-Z]\S*)*)(?:  +(.*))?$/) {
			$label = $1;
			$default{$label} = '';
			$_ = $2 // '';
		}
		$default{$label} = $1 if defined $label && /\bdefault (?:is )?((?:\d+ native pages|\S+?))(?:[.;,)]*)(?: |$)/;
	}
	return %default;
}

# A page without its formatting, its lines never broken.
sub rendered
{
	my ($page) = @_;
	my $text = run(['mandoc', '-T', 'ascii', '-O', 'width=999', $page])->{out};
	$text =~ s/.\x08//g;
	return $text;
}

# The names that a page's section marks as such: ".It Cm a , b : Ns Ar N".
sub marked
{
	my ($page, $section) = @_;
	my ($text) = slurp($page) =~ /^\.Sh \Q$section\E\n(.*?)^\.Sh /ms;
	my %names;
	for (split /\n/, $text // '') {
		next if !s/^\.(?:It )?Cm //;
		s/ Ns Ar / /g;
		$names{s/ //gr} = 1 for split / [,;.]/;
	}
	return sort keys %names;
}

for my $program (@programs) {
	my $page = "$top/man/$program.1";
	ok(-s $page, "$program has a page");
	like(slurp($page), qr/^\.Dd (?:January|February|March|April|May|June|July|August|September|October|November|December) \d+, \d{4}$/m,
		"$program: the page has a date");
	SKIP: {
		skip 'mandoc was not found', 3 if !found('mandoc');
		my $lint = run(['mandoc', '-T', 'lint', $page]);
		is_deeply([@$lint{qw(exit out err)}], [0, '', ''], "$program: mandoc finds no fault");
		my %help = options(help($program));
		my %page = options(rendered($page) =~ s/^SYNOPSIS.*?^(?=DESCRIPTION)//msr);
		cmp_ok(scalar keys %help, '>=', 5, "$program: --help lists options");
		is_deeply([sort keys %page], [sort keys %help], "$program: the same options");
		is($page{$_}, $help{$_}, "$program: the default of $_") for grep { $help{$_} ne '' } sort keys %help;

		# What another architecture's program says of its options.
		my $other = "$top/build/aarch64/$program";
		next if $program =~ /\.sh$/;
		skip "$program for aarch64 was not built, or no qemu-aarch64", 1 if !-x $other || !found('qemu-aarch64');
		my %other = options(run(['qemu-aarch64', $other, '--help'])->{out});
		is_deeply([sort keys %other], [sort keys %page], "$program: the same options on aarch64");
	}
}
for (['multichase', 'Chases'], ['multiload', 'Chases'], ['multiload', 'Memloads']) {
	my ($program, $list) = @$_;
	my %has = map { $_ => 1 } names_of($program, $list);
	my %page = map { $_ => 1 } marked("$top/man/$program.1", uc $list);
	is_deeply([grep { !$page{$_} } sort keys %has], [], "$program: the page has all of --help's \l$list");
	SKIP: {
		skip "$machine has not every chase", 1 if $machine ne 'x86_64';
		is_deeply([grep { !$has{$_} } sort keys %page], [], "$program: --help has all of the page's \l$list");
	}
}

# What the pages have to say.
for ('multichase', 'multiload') {
	my $text = slurp("$top/man/$_.1") =~ s/\s+/ /gr;
	like($text, qr/DC CIVAC reaches the point of coherency; a memory-side cache beyond that is not touched/, "$_: how far the write-back reaches");
	like($text, qr/\.Fl Fl dirty-start leaves/, "$_: how to leave it out");
	like($text, qr/SIGKILL cannot put/, "$_: what SIGKILL leaves behind");
}

done_testing();
