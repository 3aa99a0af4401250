#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# What --json prints is JSON, and has the fields that JSON.md lists, each of its
# type, and no others.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use JSON::PP;
use Test::More;

my $top = dirname(dirname(abs_path(__FILE__)));
my %letter = (c => 'multichase', l => 'multiload', p => 'pingpong', f => 'fairness');

# program => {field => type}
my %schema;
open my $doc, '<', "$top/JSON.md" or die "JSON.md: $!";
while (<$doc>) {
	my ($field, $type, $in) = /^\| (\S+) \| ([a-z ]+\??) \| ([clpf]+) \| / or next;
	$schema{$letter{$_}}{$field} = $type for split //, $in;
}
close $doc;

my $statistics = join ' ', sort qw(count min max mean geometric_mean sdev);

sub is_number {
	my ($value) = @_;
	return defined $value && !ref $value && $value =~ /^-?[0-9.]+(?:e[-+]?[0-9]+)?$/;
}

my %check = (
	text => sub { defined $_[0] && !ref $_[0] },
	count => sub { defined $_[0] && !ref $_[0] && $_[0] =~ /^[0-9]+$/ },
	number => \&is_number,
	flag => sub { JSON::PP::is_bool($_[0]) },
	object => sub { ref $_[0] eq 'HASH' },
	statistics => sub {
		my ($value) = @_;
		return ref $value eq 'HASH' && join(' ', sort keys %$value) eq $statistics
		    && !grep { !is_number($_) } values %$value;
	},
);

sub fits {
	my ($type, $value) = @_;
	return 1 if $type =~ s/\?$// && !defined $value;
	if ($type =~ s/^list //) {
		return ref $value eq 'ARRAY' && !grep { !fits($type, $_) } @$value;
	}
	return $check{$type}->($value);
}

# Every field of the object, as [path, value]; what the schema names is whole.
sub fields {
	my ($types, $value, $path) = @_;
	return [$path, $value] if $types->{$path};
	if (ref $value eq 'HASH') {
		return map { fields($types, $value->{$_}, $path eq '' ? $_ : "$path.$_") }
		    sort keys %$value;
	}
	return map { fields($types, $_, "$path\[]") } @$value if ref $value eq 'ARRAY';
	return [$path, $value];
}

sub conforms {
	my ($command, $partial, $seconds) = @_;
	my ($program) = $command =~ /^(\w+)/;
	my $types = $schema{$program};
	my $limit = $seconds ? "timeout $seconds " : '';
	my $text = `cd '$top' && $limit./$command --json 2>&1`;
	is($? >> 8, $seconds ? 124 : 0, "$command: exit status");
	is(($text =~ tr/\n//), 1, "$command: one line");
	my $object = eval { JSON::PP->new->utf8->decode($text) };
	ok($object, "$command: is JSON") or return;
	my (%seen, @wrong);
	for my $field (fields($types, $object, '')) {
		my ($path, $value) = @$field;
		$seen{$path} = 1;
		push @wrong, $path if !$types->{$path} || !fits($types->{$path}, $value);
	}
	is_deeply(\@wrong, [], "$command: every field is listed, and of its type");
	return $object if $partial;
	my @missing = grep { !$seen{$_} && $types->{$_} !~ /\?$/ } sort keys %$types;
	@missing = grep { !/_mib_per_s$/ } @missing if $command !~ /-l /;
	@missing = grep { !/thread_ns$/ } @missing if $command =~ /-l / && $command !~ /chaseload/;
	is_deeply(\@missing, [], "$command: no field is missing");
	return $object;
}

my $quick = '-n 2 --interval 0.05 --warmup 0 -m 1m';
my $chase = conforms("multichase $quick");
is(scalar @{$chase->{samples}}, 2, 'as many samples as were asked for');
is($chase->{configuration}{memory_bytes}, 1 << 20, 'memory_bytes');
conforms("multichase $quick -N -c work:3 -L -t 2 -X -s 512");
conforms("multichase $quick -W 0:1 -f /dev/zero");
my $load = conforms("multiload $quick -l stream-sum");
cmp_ok($load->{result}{mib_per_s}, '>', 0, 'a bandwidth');
conforms("multiload $quick -c simple");
conforms("multiload $quick -X -t 2 -c chaseload -l stream-copy");
conforms('pingpong -u --interval 0.02');
conforms('fairness -n 1 -t 0.05');
conforms("$_ --dry-run", 1) for "multichase $quick", "multiload $quick", 'pingpong -u',
    'fairness';

# Seconds are as they were typed, to the millisecond.
my $long = '--interval 12345.678 --warmup 86399.999';
is(join(' ', @{conforms("$_ $long --dry-run", 1)->{configuration}}{qw(interval_s warmup_s)}), '12345.678 86399.999', "$_: times")
    for 'multichase', 'multiload', 'pingpong -u', 'fairness';

# A name that is no UTF-8, with all that must be escaped.
my $name = "/tmp/json.$$.\"\\\x01\xff\xc3\xa9";
open my $file, '>', $name or die "$name: $!";
truncate $file, 1 << 20;
close $file;
my $quoted = "'$name'";
my $object = conforms("multichase $quick -f $quoted");
is($object->{configuration}{file}, "/tmp/json.$$.\"\\\x01\x{fffd}\x{e9}", 'a name with odd bytes');
unlink $name;

# Cut short by a signal, it is whole all the same.
my $text = `cd '$top' && timeout -s TERM 0.7 ./multichase -n 0 -m 64k --interval 0.05 --json`;
my $cut = eval { JSON::PP->new->utf8->decode($text) };
ok($cut, 'whole after a signal');
is($cut->{signal}, 15, 'the signal is named');
cmp_ok(scalar @{$cut->{samples}}, '>', 1, 'with the samples so far');

# So it is before the first sample.
for my $early ('multichase --interval 100', 'multichase --warmup 100', 'multiload --warmup 100',
	'multiload --warmup 0 --interval 100 -l stream-sum', 'multichase -N --interval 100') {
	my $object = conforms("$early -m 64k", 1, 0.5) || {};
	is($object->{signal}, 15, "$early, stopped: the signal is named");
	is_deeply($object->{samples}, [], "$early, stopped: no sample");
	my $result = $object->{result} || {};
	is_deeply([grep { defined $result->{$_} && !ref $result->{$_} && $result->{$_} } sort keys %$result], [],
		"$early, stopped: null and 0");
	is($_->{count}, 0, "$early, stopped: statistics of none") for grep { ref } values %$result;
}

done_testing();
