#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# Every platform that a user may have: compilers, language standards, static
# and dynamic programs, architectures under qemu-user, sizes of pages, old CPUs.
# On each all chases and memloads run for a moment; it tells nothing of speed.
# A plain check builds for this machine alone; CHECK_ALL=1 does all of them, and
# ONLY=REGEX those whose names match.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use JSON::PP;
use Test::More;

chdir $top or die "chdir: $!\n";

my @samples = qw(--interval 0.05 -n 1);
my $number = qr/\d+\.\d+/;
my @everywhere = qw(simple work incr parallel2 parallel3 parallel4 parallel5
	parallel6 critword2 critword);
my @wide = map { "parallel$_" } 7 .. 10;
my @prefetches = qw(t0 t1 t2 nta);
my @small_units = qw(options report pingpong fairness crew branch_chase);
my @memloads = qw(memcpy-libc memset-libc memsetz-libc stream-copy stream-sum
	stream-triad stream-triad-nontemporal-injection-delay stream-add3
	nontemporal-copy nontemporal-triad zero-read zero-fault);
my @zeroing = qw(zero-dczva zero-stp zero-stnp);

# What differs by architecture. readelf: what readelf -h says; chases, loads:
# what --help must list; root: where the dynamic loader is.
my %architectures = (
	'x86-64' => {
		readelf => ['X86-64', 'little'],
		pointer => 8,
		qemu => 'qemu-x86_64',
		chases => [@everywhere, @wide, @prefetches, qw(branch movdqa movntdqa)],
	},
	i386 => {
		readelf => ['80386', 'little'],
		pointer => 4,
		qemu => 'qemu-i386',
		root => '/usr/i686-linux-gnu',
		target => 'i686-linux-gnu',
		chases => [@everywhere, @prefetches],
	},
	aarch64 => {
		readelf => ['AArch64', 'little'],
		pointer => 8,
		qemu => 'qemu-aarch64',
		root => '/usr/aarch64-linux-gnu',
		target => 'aarch64-linux-gnu',
		chases => [@everywhere, @wide, @prefetches, 'branch'],
		loads => \@zeroing,
		write_back => 1,
	},
	armhf => {
		readelf => ['ARM', 'little'],
		pointer => 4,
		qemu => 'qemu-arm',
		root => '/usr/arm-linux-gnueabihf',
		target => 'arm-linux-gnueabihf',
		chases => [@everywhere, @wide],
	},
	riscv64 => {
		readelf => ['RISC-V', 'little'],
		pointer => 8,
		qemu => 'qemu-riscv64',
		root => '/usr/riscv64-linux-gnu',
		target => 'riscv64-linux-gnu',
		chases => [@everywhere, @wide, 'branch'],
	},
	ppc64el => {
		readelf => ['PowerPC64', 'little'],
		pointer => 8,
		qemu => 'qemu-ppc64le',
		root => '/usr/powerpc64le-linux-gnu',
		target => 'powerpc64le-linux-gnu',
		chases => [@everywhere, @wide],
	},
	s390x => {
		readelf => ['S/390', 'big'],
		pointer => 8,
		qemu => 'qemu-s390x',
		root => '/usr/s390x-linux-gnu',
		target => 's390x-linux-gnu',
		chases => [@everywhere, @wide],
	},
);

# The builds: compiler gcc unless it is given, gnu11, static unless dynamic.
# runs: ways to run it, by the emulator's arguments or a dynamic loader; undef is
# natively. quick: not every chase and load. units: unit tests to be run too.
my @builds = (
	{name => 'gcc, C11', arch => 'x86-64', cc => 'gcc', standard => 'c11', quick => 1, plain => 1},
	{name => 'clang, gnu17', arch => 'x86-64', cc => 'clang', standard => 'gnu17', quick => 1, plain => 1},
	{name => 'gcc, dynamic', arch => 'x86-64', cc => 'gcc', objects => 'gcc, C11', standard => 'c11',
	 dynamic => 1, quick => 1, plain => 1},
	{name => 'oldest x86-64', arch => 'x86-64', cc => 'gcc', units => ['memload', @small_units],
	 runs => [{args => '-cpu qemu64', lacks => 'movntdqa', variant => 'base'}]},
	{name => 'musl', arch => 'x86-64', cc => 'musl-gcc', units => \@small_units},
	{name => 'musl, dynamic, C11', arch => 'x86-64', cc => 'musl-gcc', standard => 'c11', dynamic => 1, quick => 1},
	{name => 'i386', arch => 'i386', units => [qw(memload permutation clean_invalidate), @small_units],
	 runs => [undef, {args => '-cpu pentium3', quick => 1}]},
	# Under qemu-i386 7.2 no dynamic program with threads comes to its end.
	{name => 'i386, dynamic', arch => 'i386', objects => 'i386', dynamic => 1, quick => 1,
	 runs => [{loader => 'ld-linux.so.2'}]},
	{name => 'i386, clang, C11', arch => 'i386', cc => 'clang', standard => 'c11', quick => 1},
	{name => 'aarch64', arch => 'aarch64', units => ['clean_invalidate', @small_units], runs => [
		{args => '-cpu cortex-a53', variant => 'base', pages => 4096},
		{args => '-cpu max', variant => 'sve', quick => 1},
		{args => '-cpu cortex-a72 -p 16384', pages => 16384},
		{args => '-cpu cortex-a72 -p 65536', pages => 65536}]},
	{name => 'aarch64, dynamic', arch => 'aarch64', objects => 'aarch64', dynamic => 1, quick => 1, runs => [{}]},
	{name => 'aarch64, clang, C11', arch => 'aarch64', cc => 'clang', standard => 'c11', runs => [{}]},
	{name => 'armhf', arch => 'armhf', units => ['memload', @small_units], runs => [{}]},
	{name => 'armhf, dynamic', arch => 'armhf', objects => 'armhf', dynamic => 1, quick => 1, runs => [{}]},
	{name => 'armhf, clang', arch => 'armhf', cc => 'clang', quick => 1, runs => [{}]},
	{name => 'riscv64', arch => 'riscv64', units => \@small_units, runs => [{}]},
	{name => 'riscv64, dynamic', arch => 'riscv64', objects => 'riscv64', dynamic => 1, quick => 1, runs => [{}]},
	{name => 'riscv64, clang, gnu17', arch => 'riscv64', cc => 'clang', standard => 'gnu17', quick => 1,
	 units => ['branch_chase'], runs => [{}]},
	{name => 'ppc64el', arch => 'ppc64el', units => \@small_units, runs => [{args => '-p 65536', pages => 65536}]},
	{name => 'ppc64el, dynamic', arch => 'ppc64el', objects => 'ppc64el', dynamic => 1, quick => 1, runs => [{}]},
	{name => 'ppc64el, clang', arch => 'ppc64el', cc => 'clang', quick => 1, runs => [{}]},
	{name => 's390x', arch => 's390x', units => [qw(memload permutation), @small_units], runs => [{}]},
	{name => 's390x, dynamic', arch => 's390x', objects => 's390x', dynamic => 1, quick => 1, runs => [{}]},
	{name => 's390x, clang', arch => 's390x', cc => 'clang', quick => 1, runs => [{}]},
);

sub folder { my ($name) = @_; return 'build/platforms/' . $name =~ s/\W+/-/gr }

# The compiler's command for make, and what of it may be missing.
sub compiler
{
	my ($build) = @_;
	my $target = $architectures{$build->{arch}}{target};
	my $cc = $build->{cc} || 'gcc';

	return ($cc, $cc) if !$target;
	return ("$cc --target=$target", $cc, "$target-gcc") if $cc eq 'clang';
	return ("$target-$cc", "$target-$cc");
}

# Why it cannot be built or run here, or undef.
sub lacks
{
	my ($build) = @_;
	my (undef, @tools) = compiler($build);

	push @tools, 'readelf';
	push @tools, $architectures{$build->{arch}}{qemu} if grep { $_ && !$_->{loader} } @{$build->{runs} || []};
	my ($missing) = grep { !found($_) } @tools;
	return defined $missing ? "$missing was not found" : undef;
}

# Makes the programs and the unit tests of one build; true if all is well.
sub make
{
	my ($build) = @_;
	my ($cc) = compiler($build);
	my $objects = folder($build->{objects} || $build->{name});
	my @settings = ("CC=$cc", "BUILD=$objects", 'BIN=' . folder($build->{name}),
		'STANDARD=' . ($build->{standard} || 'gnu11'), 'WERROR=1');

	push @settings, 'LDFLAGS=' if $build->{dynamic};
	my $said = run(['make', '-s', @settings, 'all', map { "$objects/test_$_" } @{$build->{units} || []}]);
	return is("$said->{exit} $said->{err}", '0 ', "$build->{name}: it builds, without a warning");
}

# Is it what was asked for?
sub check_kind
{
	my ($build) = @_;
	my ($machine, $order) = @{$architectures{$build->{arch}}{readelf}};
	my $elf = run(['readelf', '-hlW', folder($build->{name}) . '/multichase'])->{out};

	like($elf, qr/Data: .*\Q$order\E endian\n(?s:.*)Machine: .*\Q$machine\E\n/, "$build->{name}: the architecture");
	is($elf =~ /^ +INTERP /m ? 'dynamic' : 'static', $build->{dynamic} ? 'dynamic' : 'static',
		"$build->{name}: how it is linked");
}

# One of its programs, with what is to run it before it, as in a shell.
sub command
{
	my ($build, $how, $program) = @_;
	my $architecture = $architectures{$build->{arch}};
	my $root = $architecture->{root};
	my @words;

	if ($how && $how->{loader}) {
		@words = ("$root/lib/$how->{loader}", '--library-path', "$root/lib");
	} elsif ($how) {
		@words = ($architecture->{qemu}, $how->{args} || ());
		push @words, '-L', $root if $build->{dynamic} && $root;
	}
	return join ' ', @words, folder($build->{name}) . "/$program";
}

# Success, with nothing on stderr and something on stdout that is as it must be.
sub runs
{
	my ($what, $command, $good) = @_;
	my $result = run("$command @samples");
	my $said = "exit $result->{exit}";

	ok($said eq 'exit 0' && $result->{err} eq '' && $good->($result->{out}), $what)
		or diag("$command: $said\n$result->{out}$result->{err}");
	return $result->{out};
}

sub is_number { my ($out) = @_; return $out =~ /\A *$number\n\z/ && $out > 0 }

sub is_table
{
	my ($out) = @_;
	my %row = table_of($out);
	return %row && $row{LdAvgMibs} > 0 && ($row{ChaseArg} eq '--------' || $row{ChaseNS} > 0);
}

# The result of a run with --json, or an empty hash.
sub json_of { my ($out) = @_; return eval { JSON::PP->new->decode($out) } || {} }

sub check_refusal
{
	my ($what, $command, $words) = @_;
	my $result = run($command);

	is("$result->{exit} $result->{out}", '1 ', "$what: exit 1, stdout empty");
	like($result->{err}, qr/\A[^\n]*$words[^\n]*\n\z/, "$what: one line says it");
}

sub check_chases
{
	my ($what, $how, $architecture, $multichase, $quick) = @_;
	my @names = names_of($multichase, 'Chases');
	my $lacks = $how && $how->{lacks} || '';
	my @wanted = $quick ? qw(simple branch critword parallel6) : @{$architecture->{chases}};

	is(join(' ', sort map { s/:N$//r } @names), join(' ', sort @{$architecture->{chases}}), "$what: its chases");
	for my $name (@names) {
		my $bare = $name =~ s/:N$//r;
		my $choice = $name =~ s/:N$/$bare eq 'work' ? ':3' : ':64'/er;
		next if !grep { $bare eq $_ } @wanted;
		if ($bare eq $lacks) {
			check_refusal("$what: $bare", "$multichase -c $bare", "-c $bare: this CPU lacks");
			next;
		}
		runs("$what: -c $choice", "$multichase -c $choice -m 256k -F 1m", \&is_number);
	}
	for (qw(branch critword:8)) {
		next if /branch/ && !grep { $_ eq 'branch' } @names;
		runs("$what: -c $_ in two threads, longer", "$multichase -c $_ -L -s 1k -t 2 -X -m 256k -F 1m", \&is_number);
	}
}

sub check_memloads
{
	my ($what, $architecture, $multiload, $quick) = @_;
	my @names = names_of($multiload, 'Memloads');

	is("@names", join(' ', @memloads, @{$architecture->{loads} || []}), "$what: its memloads");
	@names = qw(memcpy-libc stream-triad) if $quick;
	runs("$what: -l $_", "$multiload -l $_ -m 512k --warmup 0", \&is_table) for @names;
	runs("$what: loaded latency", "$multiload -c chaseload -l stream-add3 -t 2 -X -m 512k -F 1m --warmup 0", \&is_table);
}

# What the programs say of themselves and of what they did.
sub check_words
{
	my ($what, $how, $architecture, $multichase, $multiload) = @_;
	my $of = json_of(runs("$what: --json, longer, 2 threads, -O 4", "$multichase -L -t 2 -X -O 4 -m 256k -F 1m --json",
		sub { my $of = json_of($_[0]); $of->{result} && $of->{result}{ns} > 0 }));
	my $pages = $how && $how->{pages} || $of->{configuration}{page_size_bytes};

	is($of->{configuration}{object_bytes}, $architecture->{pointer}, "$what: bytes of a pointer");
	is($of->{configuration}{page_size_bytes}, $pages, "$what: bytes of a page");
	cmp_ok($of->{write_back}{lines}, $architecture->{write_back} ? '>' : '==', 0, "$what: lines written back");
	my $variant = $how && $how->{variant} or return;
	$of = json_of(run("$multiload -l stream-sum -m 64k --warmup 0 --json @samples")->{out});
	is($of->{configuration}{memload_variant}, $variant, "$what: the variant for this CPU");
}

sub check_pairs
{
	my ($what, $pingpong, $fairness) = @_;
	my $cpus = () = allowed_cpus();

	for (qw(-u -l -x)) {
		my $said = run("$pingpong $_ --interval 0.05 -c 1");
		# On a busy machine a player may not come to its turn, which is said.
		$said = run("$pingpong $_ --interval 1 -c 1") if $said->{err} =~ /make --interval longer\n\z/;
		is("$said->{exit} $said->{err}", '0 ', "$what: pingpong $_");
		like($said->{out}, qr/\A +\d+( +\d+)*\n *\d+:( +$number){@{[$cpus - 1]}}\n\z/, "$what: pingpong $_: a row")
			if $cpus > 1;
	}
	runs("$what: fairness", $fairness,
		sub { $_[0] =~ /\Aunrelaxed:\n( +$number){@{[$cpus + 4]}}\nrelaxed:\n( +$number){@{[$cpus + 4]}}\n\z/ });
}

sub check_refusals
{
	my ($what, $architecture, $multichase) = @_;

	check_refusal("$what: -s 4", "$multichase -s 4", '-s 4: expected');
	check_refusal("$what: -c nosuch", "$multichase -c nosuch", '-c nosuch: unknown.*simple');
	return if $architecture->{pointer} == 8;
	# What would wrap around in 32 bits.
	check_refusal("$what: $_ 4294967552", "$multichase $_ 4294967552", "$_ 4294967552: expected .* 2 GiB")
		for qw(-m -s -O -T -F);
	open(my $sparse, '>', "$tmp/large") or die "large: $!\n";
	truncate($sparse, 3 << 30) or die "large: $!\n";
	runs("$what: a file of 3 GiB", "$multichase -f $tmp/large -m 64k -F 0", \&is_number);
	my $too_much = '1 thread\(s\) need [24] GiB of address space in all, a process has less than 2\.0 GiB';
	check_refusal("$what: $_", "$multichase $_", $too_much)
		for '-F 0 -m 1g -O 1g', "-F 0 -f $tmp/large -m 2g -O 2g", "-F 0 -f $tmp/large -m 2g";
}

sub check_units
{
	my ($what, $build, $how) = @_;
	delete local $ENV{CHECK_ALL}; # the long ones are for the native tests

	for (@{$build->{units} || []}) {
		my @words = split / /, command($build, $how, "test_$_");
		my $said = run(\@words);
		my @failed = grep { /^not ok/ } split /^/, $said->{out};
		is("$said->{exit} @failed", '0 ', "$what: test_$_");
	}
}

sub check
{
	my ($build) = @_;
	my $architecture = $architectures{$build->{arch}};

	return if !make($build);
	check_kind($build);
	for my $how (@{$build->{runs} || [undef]}) {
		my $what = $build->{name} . ($how && $how->{args} ? " $how->{args}" : '');
		my ($multichase, $multiload, $pingpong, $fairness) =
			map { command($build, $how, $_) } qw(multichase multiload pingpong fairness);
		my $quick = $build->{quick} || $how && $how->{quick};

		check_chases($what, $how, $architecture, $multichase, $quick);
		check_memloads($what, $architecture, $multiload, $quick);
		check_words($what, $how, $architecture, $multichase, $multiload);
		next if !$ENV{CHECK_ALL};
		check_pairs($what, $pingpong, $fairness);
		check_refusals($what, $architecture, $multichase);
		check_units($what, $build, $how) if $how ? !$how->{pages} || $how->{pages} != 16384 : 1;
	}
}

my $only = defined $ENV{ONLY} ? qr/$ENV{ONLY}/ : qr//;
for my $build (grep { ($ENV{CHECK_ALL} || $_->{plain}) && $_->{name} =~ $only } @builds) {
	SKIP: {
		my $reason = lacks($build);
		skip "$build->{name}: $reason", 1 if $reason;
		check($build);
	}
}
done_testing();
