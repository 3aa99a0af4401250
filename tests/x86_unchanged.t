#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# x86-64 has no write-back: there, chases read a flush buffer as ever,
# bandwidth-only runs have none, and no kernel has a new instruction.
use strict;
use warnings;
no warnings 'portable'; # addresses have 64 bits
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use lib dirname(abs_path(__FILE__));
use Emulation qw(need_tools need_plugins need_programs_here here
    skip_all_tests plugin run_plugin_here slurp top_dir temp_dir);
use POSIX qw(uname);
use Test::More;

use constant {
	LINE => 64,
	FLUSH => 64 << 20, # what -F is without -F
};

my @short = qw(--warmup 0 --interval 0.05 -n 2);

# Whether a run maps memory of this size, by its system calls.
sub maps {
	my ($bytes, @command) = @_;
	my $log = temp_dir() . '/strace';
	my ($name, @args) = @command;
	my $status = system("strace -f -qq -e trace=mmap -o '$log' "
		. here($name) . " @args @short >/dev/null");
	is($status, 0, "@command: exit status");
	return scalar grep {
		/\bmmap\(\w+, (\d+), .*PROT_WRITE/ && $1 >= $bytes
		    && $1 < $bytes + LINE * LINE
	} split /^/, slurp($log);
}

sub check_mappings {
	is(maps(FLUSH, qw(multichase -m 1m)), 1, 'multichase maps it');
	is(maps(FLUSH, qw(multiload -c simple -m 1m)), 1,
		'multiload -c simple maps it');
	is(maps(3 << 20, qw(multichase -F 3m -m 1m)), 1, '-F gives its size');
	is(maps(FLUSH, qw(multichase -F 0 -m 1m)), 0, '-F 0: none');
	is(maps(FLUSH, qw(multiload -l stream-sum -m 1m)), 0,
		'bandwidth only: none');
	is(maps(3 << 20, qw(multiload -F 3m -l memcpy-libc -m 1m)), 0,
		'bandwidth only with -F: none');
	return;
}

# The lines of the flush buffer that each thread loads before its kernel
# begins, per thread; the flush buffer is the mapping of just that size.
sub lines_read {
	my ($bytes, @command) = @_;
	my ($from, $to, %lines) = (0, 0);
	my ($status, $stdout, $stderr) = run_plugin_here(
		qemu => 'qemu-x86_64', plugin => plugin('trace_plugin'),
		args => [qw(mmap=9 munmap=11 reads=1)],
		command => [@command, @short],
		on_line => sub {
			my ($event, $vcpu, $addr, $size) = split ' ', $_[0];
			$addr = hex($addr // 0);
			($from, $to) = ($addr, $addr + $bytes)
			    if $event eq 'M' && $size == $bytes;
			$lines{$vcpu}{int($addr / LINE)} = 1
			    if $event eq 'R' && $addr >= $from && $addr < $to;
		});
	is($status, 0, "@command: exit status") or diag($stderr);
	return sort { $a <=> $b } map { scalar keys %$_ } values %lines;
}

sub check_reads {
	my $bytes = 3 << 20;
	my $all = $bytes / LINE;
	is_deeply([lines_read($bytes, qw(multichase -F 3m -m 1m))], [$all],
		'a chase thread reads all lines of the flush buffer');
	is_deeply([lines_read($bytes, qw(multichase -X -t 2 -F 3m -m 1m))],
		[$all, $all], 'and so does each of two');
	is_deeply([lines_read($bytes, qw(multiload -X -c chaseload
		-l stream-sum -t 2 -F 3m -m 1m))], [$all],
		'a thread that loads does not');
	return;
}

# Cache maintenance, and fences, in the program's own functions. Stores past
# the caches end in sfence, as ever.
sub check_instructions {
	for my $name (qw(multichase multiload)) {
		my $path = here($name);
		my ($function, $kernels, @found) = ('', 0);
		open(my $code, '-|', 'objdump', '-d', '--no-show-raw-insn',
			$path) or die "objdump: $!\n";
		while (<$code>) {
			if (/^\w+ <(\w+)/) {
				$function = $1;
				$kernels += $function =~ /^(chase|load)_/;
			}
			push @found, "$function: $1"
			    if $function =~ /^(chase|load|team|work|clean)_?/
			    && /\s(clflush\w*|clwb|cldemote|wbinvd|mfence)\b/;
		}
		cmp_ok($kernels, '>', 5, "$name: kernels were seen");
		is_deeply(\@found, [], "$name: no cache maintenance");
	}
	return;
}

# cpu_util.h's function compiles to nothing.
sub check_empty {
	my $base = temp_dir() . '/empty';
	open(my $source, '>', "$base.c") or die "$base.c: $!\n";
	print $source qq{#include "cpu_util.h"\n#include <stddef.h>\n},
	    "#if HAVE_CLEAN_INVALIDATE_RANGE\n#error it has\n#endif\n",
	    "void with(void *b, size_t n) { clean_invalidate_range(b, n); }\n",
	    "void without(void *b, size_t n) { (void)b; (void)n; }\n";
	close $source;
	my $said = `gcc -O2 -I '@{[top_dir()]}' -S -o '$base.s' '$base.c' 2>&1`;
	is($said, '', 'HAVE_CLEAN_INVALIDATE_RANGE is 0');
	my %body = slurp("$base.s") =~ /^(with|without):\n(.*?)\.cfi_endproc/msg;
	s/^\.L\w+:\n//mg for values %body;
	is($body{with}, $body{without}, 'clean_invalidate_range() is empty');
	return;
}

sub check_report {
	my $said = `@{[here('multichase')]} -v -m 1m @short`;
	unlike($said, qr/^write_back = \d/m, '-v has no write-back to tell of');
	return;
}

skip_all_tests('this machine is no x86-64') if (uname())[4] ne 'x86_64';
need_tools(qw(gcc strace objdump));
need_plugins('qemu-x86_64');
need_programs_here();
check_empty();
check_instructions();
check_mappings();
check_reads();
check_report();
done_testing();
