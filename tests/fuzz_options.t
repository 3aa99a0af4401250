#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# libFuzzer looks for a text on which a reader of values, of command lines or of
# the kernel's files (fuzz_options.c) breaks its promises, or a sanitizer's rules.
# A text that was found is kept in build/fuzzer/.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use Test::More;

plan skip_all => 'clang was not found' if !found('clang');
spew("$tmp/probe.c", "#include <stddef.h>\nint LLVMFuzzerTestOneInput(const char *d, size_t n) { return !d && n; }\n");
plan skip_all => 'clang has no libFuzzer here'
	if run(['clang', '-fsanitize=fuzzer,address', "$tmp/probe.c", '-o', "$tmp/probe"])->{exit};

# A short look in any case: that the target can be built and runs.
my $runs = $ENV{CHECK_ALL} ? 500000 : 50000;
my $folder = 'build/fuzzer';
# Without optimisation, or clang takes minutes over the unrolled chases.
my $made = run(['make', '-s', '-C', $top, 'CC=clang', 'CFLAGS=-g -O0 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all',
	'LDFLAGS=-fsanitize=fuzzer -Wl,--wrap=open64,--wrap=fopen64', "BUILD=$folder", "BIN=$folder", "$folder/fuzz_options"],
	before => sub { delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES)} }, limit => 600);
is($made->{exit}, 0, 'the fuzzer is built') or diag($made->{err});

# Words that a blind search would take long to come upon.
spew("$tmp/words", join '', map { "\"$_\"\n" } qw(0x k m g t : - 0-3 0:1 simple work: critword2:64 parallel chaseload memset-libc stream-
	18446744073709551616 -m -s --cpus --seed= --help --dry-run 0::/
	memory cpuacct nr_throttled\\x20 AnonHugePages: model\\x20name \\x0a \\x0c max));
# A right text for each reader, to begin with.
my @seeds = ('0x10', '16777215t', '1.5e3', '2,4-7', '0x5', '0:3,63:1', 'critword2:64', 'stream-sum', "-m\n1m\n-s8\n--cpus=0-3\n-vv",
	"3:memory:/a/b\n2:cpu,cpuacct:/\n0::/user\nmodel name\t: x\n1000-3000 r\nAnonHugePages: 4 kB\f32K\nnr_throttled 7\n");
mkdir "$tmp/corpus";
spew("$tmp/corpus/$_", chr($_) . $seeds[$_]) for 0 .. $#seeds;
my $found = run(["$top/$folder/fuzz_options", "-runs=$runs", '-seed=1', '-max_len=80', "-dict=$tmp/words", "-artifact_prefix=$top/$folder/",
	'-timeout=20', "$tmp/corpus"], limit => 800);
is($found->{exit}, 0, "seed 1: $runs texts, nothing found") or diag(substr $found->{err}, -4000);
like($found->{err}, qr/^Done $runs runs/m, 'all were tried');

done_testing();
