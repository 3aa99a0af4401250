#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# run_multiload.sh --plot and --compare: the pictures of made-up results and
# what is written in them; what a comparison calls a change, and what noise.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use Test::More;

my $header = 'Samples,Byte/thd,ChaseThds,ChaseNS,ChaseMibs,ChDeviate,LoadThds,LdMaxMibs,LdAvgMibs,'
	. 'LdDeviate,ChaseArg,MemLdArg';
my $script = "$top/run_multiload.sh";

# Rows of multiload's table. A value for each repeated run.
sub latency { my ($bytes, @ns) = @_; return map { "3,$bytes,1,$_,1,0.0,0,0,0,0.0,simple,--------" } @ns }
sub bandwidth { my ($load, $bytes, @mibs) = @_; return map { "3,$bytes,0,0.000,0,0.0,2,$_,$_,0.0,--------,$load" } @mibs }
sub loaded { my ($load, $delay, $ns, $mibs) = @_; return map { "3,8192,1,$_,1,0.0,1,$mibs,$mibs,0.0,chaseload,$load,$delay" } @$ns }

sub folder
{
	my ($name, %tables) = @_;
	mkdir "$tmp/$name";
	spew("$tmp/$name/machine.txt", "cpu = CPU of $name\nkernel = Linux 1\nL1 = 32768\nL1.cpus = 1\nL2 = 1572864\nL2.cpus = 2\ndate = then\n");
	my %header = (loaded => "$header,Delay", cores => 'CpuA,CpuB,HandOverNS');
	spew("$tmp/$name/$_.csv", join("\n", $header{$_} || $header, @{$tables{$_}}) . "\n") for keys %tables;
	return "$tmp/$name";
}

my %tables = (
	latency => [map { latency($_, 1, 1.1, 1.2) } 4096, 65536, 4 << 20],
	bandwidth => [map { my $load = $_; map { bandwidth($load, $_, 20480, 20580) } 4096, 65536, 4 << 20 } qw(first second)],
	loaded => [loaded('first', 0, [100, 110], 9000), map { loaded('second-delay', $_, [100 + 900 / (1 + $_), 110], 9000 / (1 + $_)) } 0, 2, 8],
	cores => ['0,1,50.0', '0,2,150.0', '1,2,152.0'],
);
my $before = folder('before_x', %tables);

# Pictures.
SKIP: {
	skip 'gnuplot was not found', 1 if !found('gnuplot');
	my %text = (
		latency => ['L1', '32 KiB', 'L2', '1.5 MiB', '4 KiB', 'Latency'],
		bandwidth => ['L1', 'L2 / 2', '768 KiB', 'first', 'second', 'GiB/s', '2 threads'],
		loaded => ['first', 'second-delay', '1 thread beside 1', '>8<'],
		cores => ['>50<', '>150<', '>152<', '>CPU<'],
	);
	for ('the results that are there', 'two folders in one') {
		my $two = /two/;
		my @arguments = $two ? ('--compare', $before, folder('after_x', %tables), '--output', "$tmp/both") : ('--output', $before);
		my $run = run([$script, '--plot', @arguments]);
		is_deeply([$run->{exit}, $run->{err}], [0, ''], "$_: exit 0, stderr empty");
		for my $kind (sort keys %text) {
			my $file = $two ? "$tmp/both/$kind" : "$before/$kind";
			my $png = slurp("$file.png");
			is(substr($png, 0, 8), "\x89PNG\r\n\x1a\n", "$_: $kind.png is a PNG");
			is_deeply([unpack 'NN', substr $png, 16, 8], [1200, 750], "$_: $kind.png has its size");
			my $svg = slurp("$file.svg");
			like($svg, qr/\A<\?xml .*<svg .*<\/svg>\s*\z/s, "$_: $kind.svg is an SVG");
			for my $text (@{$text{$kind}}, 'CPU of before_x', $two ? ('before_x', 'after_x') : ()) {
				# gnuplot may break a text into spans.
				like($svg, qr/\Q$text\E/, "$_: $kind.svg says $text");
			}
		}
	}
	my $part = folder('part', bandwidth => [map { s/,0\.0,2,/,0.0,1,/r } @{$tables{bandwidth}}]);
	is(run([$script, '--plot', '--output', $part])->{exit}, 0, 'bandwidth of one thread: exit 0');
	like(slurp("$part/bandwidth.svg"), qr/1 thread:/, 'bandwidth.svg says so');
	unlink glob("$part/bandwidth.*");
	$part = folder('part', latency => $tables{latency});
	is(run([$script, '--plot', '--output', $part])->{exit}, 0, 'a part of the tables: exit 0');
	is(join(' ', map { s{.*/}{}r } sort glob "$part/*.png"), 'latency.png', 'and its picture only');
}
{
	my $run = run([$script, '--plot', '--output', "$tmp/none"]);
	is_deeply([$run->{exit}, $run->{out}], [1, ''], 'no results: exit 1');
	like($run->{err}, qr/^run_multiload.sh: error: (?:\Q$tmp\E\/none: there are no results[^\n]*; run a sweep first|--plot: gnuplot[^\n]*)\n\z/, 'and one line that says so');
	my @tools = map { my $tool = $_; grep { -x } map { "$_/$tool" } split /:/, $ENV{PATH} } qw(sh dirname readlink);
	mkdir "$tmp/tools";
	symlink $_, "$tmp/tools/" . s{.*/}{}r for @tools;
	local $ENV{PATH} = "$tmp/tools";
	$run = run([$script, '--quick', '--plot']);
	is_deeply([$run->{exit}, $run->{out}, $run->{err}], [1, '', "run_multiload.sh: error: --plot: gnuplot is not installed\n"],
		'without gnuplot that is said at once');
}

# What is drawn: the median, which one run that was disturbed does not move.
for ([3, 3, 9, 2], [2.5, 2, 9, 3, 1]) {
	my ($median, @runs) = @$_;
	my @point = split /\t/, run(["$top/scripts/points", folder('runs', latency => [latency(4096, @runs)])])->{out} =~ s/\n//r;
	is_deeply([@point[9 .. 11]], [(sort { $a <=> $b } @runs)[0, -1], $median], "least, greatest and middle of @runs");
}

# A comparison.
my @same = (10, 10.1, 10.2, 9.9);
my $old = folder('old', latency => [latency(4096, @same), latency(8192, @same), latency(16384, @same), latency(32768, 5),
	latency(65536, 1.001, 1.001, 1.001), latency(1 << 20, 7)],
	bandwidth => [bandwidth('one', 4096, 1000, 1010, 1005)], cores => ['0,1,50.0', '0,1,50.2', '0,1,50.1']);
my $new = folder('new', latency => [latency(4096, map { $_ * 1.001 } @same), latency(8192, map { $_ * 0.9 } @same),
	latency(16384, map { $_ * 1.2 } @same), latency(32768, 6), latency(65536, 1.002, 1.002, 1.002)],
	bandwidth => [bandwidth('one', 4096, 1200, 1210, 1205), bandwidth('two', 4096, 1)], cores => ['0,1,50.1', '0,1,50.2', '0,1,50.3']);
my $run = run([$script, '--compare', $old, $new]);
is_deeply([$run->{exit}, $run->{err}], [0, ''], 'compare: exit 0, stderr empty');
my %row = map { /^  (\S.*?)  +(\d+\/\d+) +(\S+) +(\S+) +([-+]\S+) +(?:(\S+) to (\S+) +)?(faster|slower|noise|one run)$/
	? ($1 => [$2, $3, $4, $5, $8, $6, $7]) : () } split /\n/, $run->{out};
my %expected = (
	'simple, 4 KiB' => ['4/4', '10.050', '10.060', '+0.1', 'noise'],
	'simple, 8 KiB' => ['4/4', '10.050', '9.045', '-10.0', 'faster'],
	'simple, 16 KiB' => ['4/4', '10.050', '12.060', '+20.0', 'slower'],
	'simple, 32 KiB' => ['1/1', '5.000', '6.000', '+20.0', 'one run'],
	# One unit of the last place may be rounding.
	'simple, 64 KiB' => ['3/3', '1.001', '1.002', '+0.1', 'noise'],
	'one, 4 KiB' => ['3/3', '1005', '1205', '+19.9', 'faster'],
	'CPU 0 and CPU 1' => ['3/3', '50.100', '50.200', '+0.2', 'noise'],
);
is_deeply([sort keys %row], [sort keys %expected], 'compare: a row for each point that both have') or diag($run->{out});
is_deeply([@{$row{$_}}[0 .. 4]], $expected{$_}, "compare: $_") for sort keys %expected;
# By hand: both means have a relative standard error of 0.129099 / 2 / 10.05, so
# that of the ratio is 0.0090834; six degrees of freedom, whose quantile is
# 3.707; 120 % x 0.0090834 x 3.707 = 4.04 %.
is_deeply([@{$row{'simple, 16 KiB'}}[5, 6]], ['+16.0', '+24.0'], 'compare: the interval');
like($run->{out}, qr/^7 points: 2 faster, 1 slower, 3 noise, 1 of one run$/m, 'compare: the sum');
like($run->{out}, qr/^Not compared: 1 points only before, 1 only after\.$/m, 'compare: what one side lacks');
like($run->{out}, qr/^before: \Q$old\E \(CPU of old; Linux 1; then\)\nafter: \Q$new\E \(CPU of new;/, 'compare: what is compared');
for ([$old, "$tmp/none"], ["$tmp/none", $new]) {
	my $run = run([$script, '--compare', @$_]);
	is_deeply([$run->{exit}, $run->{out}], [1, ''], "compare with a folder without results: exit 1, stdout empty");
	like($run->{err}, qr/^run_multiload.sh: error: \Q$tmp\E\/none: there are no results[^\n]*; run a sweep first\n\z/, 'and one line that says so');
}

done_testing();
