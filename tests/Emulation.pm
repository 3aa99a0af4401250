# SPDX-License-Identifier: Apache-2.0
#
# What the tests share that run the aarch64 programs under qemu-user: which
# tools are there, the plugins, and the programs' addresses of interest.
package Emulation;

use strict;
use warnings;
no warnings 'portable'; # addresses have 64 bits
use Cwd qw(abs_path);
use Exporter qw(import);
use Fcntl qw(:flock F_SETFD O_RDWR);
use File::Basename qw(dirname);
use File::Temp qw(tempdir);
use POSIX qw(mkfifo);
use Test::More;

our @EXPORT_OK = qw(need_tools need_plugins need_programs need_programs_here
    program here skip_all_tests plugin run_plugin run_plugin_here slurp top_dir
    temp_dir matrix);

my $top = abs_path(dirname(abs_path(__FILE__)) . '/..');
my $temp = tempdir('writeback.XXXXXX', TMPDIR => 1, CLEANUP => 1);
# What DC ZVA zeroes on each CPU model that is used.
my %zva_bytes = ('neoverse-n1' => 64, a64fx => 256, max => 512);
# Keeps libc from memset and memcpy by SVE, whose stores no plugin sees.
my $plain_libc = 'GLIBC_TUNABLES=glibc.cpu.name=generic';
my $qemu = $ENV{QEMU_AARCH64} || 'qemu-aarch64';

sub top_dir { return $top }
sub temp_dir { return $temp }

# Whether the whole matrix is asked for, not just the short check.
sub matrix { return $ENV{CHECK_ALL} ? 1 : 0 }

# Leaves the test with the reason; under NO_SKIP=1 that is a failure.
sub skip_all_tests {
	my ($reason) = @_;
	plan(skip_all => $reason) if !$ENV{NO_SKIP};
	plan(tests => 1);
	fail("not skipped under NO_SKIP, yet $reason");
	exit 1;
}

sub have {
	my ($tool) = @_;
	return -x $tool if $tool =~ m{/};
	return scalar grep { -x "$_/$tool" } split /:/, $ENV{PATH};
}

sub need_tools {
	for my $tool (@_) {
		skip_all_tests("there is no $tool here") if !have($tool);
	}
	return;
}

# An emulator of programs, with all that building and running plugins needs.
sub need_plugins {
	my $emulator = shift || $qemu;
	need_tools($emulator, qw(gcc nm));
	my ($major) = `$emulator --version` =~ /version (\d+)/;
	skip_all_tests("$emulator has no plugins")
	    if !grep { /^-plugin\s/ } `$emulator --help`;
	skip_all_tests("$emulator $major has another plugin interface")
	    if $major > 8;
	return;
}

# Makes the programs; one test at a time.
sub make_target {
	my (@target) = @_;
	open(my $lock, '<', "$top/Makefile") or die "$top/Makefile: $!\n";
	flock($lock, LOCK_EX);
	my $said = `make -s -C '$top' @target 2>&1`;
	return if $? == 0;
	plan(tests => 1);
	fail("make @target");
	diag($said);
	exit 1;
}

# The aarch64 programs, in AARCH64_BIN or else made in the tree.
sub need_programs {
	return if $ENV{AARCH64_BIN};
	skip_all_tests('there is no aarch64-linux-gnu-gcc here')
	    if !have('aarch64-linux-gnu-gcc');
	make_target('aarch64');
	return;
}

sub program {
	my ($name) = @_;
	return ($ENV{AARCH64_BIN} || "$top/build/aarch64") . "/$name";
}

# The programs for this machine.
sub need_programs_here {
	make_target();
	return;
}

sub here {
	my ($name) = @_;
	return "$top/$name";
}

# Builds tests/NAME.c as a plugin; returns its path.
sub plugin {
	my ($name) = @_;
	my $so = "$temp/$name.so";
	my $cc = $ENV{HOSTCC} || 'gcc';
	my @command = ($cc, qw(-std=gnu11 -O2 -Wall -Wextra -shared -fPIC
		-fvisibility=hidden -o), $so, "$top/tests/$name.c");
	system(@command) == 0 or BAIL_OUT("cannot build tests/$name.c");
	return $so;
}

# The kernels' code, as the plugins take it: FROM-TO+FROM-TO. They are static
# functions; global ones of such names are no kernels.
sub kernel_ranges {
	my ($path) = @_;
	my @ranges;
	for (`nm -S '$path'`) {
		my ($at, $bytes) = /^(\w+) (\w+) t (?:chase|load)_/ or next;
		push @ranges, sprintf('%x-%x', hex $at, hex($at) + hex $bytes);
	}
	die "$path has no symbols of kernels\n" if !@ranges;
	return join '+', @ranges;
}

# Addresses of all DC CIVAC and DC ZVA in the code, as -dfilter takes them.
sub dc_filter {
	my ($path) = @_;
	my @filter;
	open(my $file, '<:raw', $path) or die "$path: $!\n";
	my $elf = do { local $/; <$file> };
	my ($offset, $size, $count) = unpack 'x32 Q< x14 S< S<', $elf;
	for my $i (0 .. $count - 1) {
		my ($type, $flags, $from, $to, $bytes) = unpack
		    'L< L< Q< Q< x8 Q<', substr($elf, $offset + $i * $size);
		next if $type != 1 || !($flags & 1);
		my @code = unpack 'L<*', substr($elf, $from, $bytes & ~3);
		for my $at (grep {
			my $insn = $code[$_] & ~0x1f;
			$insn == 0xd50b7e20 || $insn == 0xd50b7420
		    } 0 .. $#code) {
			push @filter, sprintf('0x%x+4', $to + 4 * $at);
		}
	}
	return join ',', @filter;
}

# Two ends of a pipe that outlive an exec.
sub open_pipe {
	pipe(my $read, my $write) or die "pipe: $!\n";
	fcntl($_, F_SETFD, 0) for $read, $write;
	return ($read, $write);
}

sub slurp {
	my ($path) = @_;
	open(my $file, '<', $path) or die "$path: $!\n";
	local $/;
	return scalar <$file>;
}

# Runs an aarch64 program with a plugin. Each line the plugin writes goes to
# on_line. Returns exit status, stdout and stderr of the program.
#	plugin, args => [name=value ...], cpu, command => [name, argument ...],
#	on_line => sub, timeout => seconds
sub run_plugin {
	my (%run) = @_;
	my ($name, @argv) = @{$run{command}};
	my $path = program($name);
	my $log = tempdir(DIR => $temp) . '/log';
	my @command = ($qemu, '-cpu', $run{cpu}, '-E', $plain_libc, '-singlestep',
		'-d', 'exec,cpu,nochain,tid', '-dfilter', dc_filter($path),
		'-D', "$log.%d");
	my @args = ("log=$log", "zva=$zva_bytes{$run{cpu}}",
		@{$run{args} || []});
	return follow(\%run, $log, \@command, $path, \@argv, @args);
}

# Runs a program of this machine's own architecture with a plugin.
sub run_plugin_here {
	my (%run) = @_;
	my ($name, @argv) = @{$run{command}};
	my $path = here($name);
	return follow(\%run, undef, [$run{qemu}], $path, \@argv,
		@{$run{args} || []});
}

sub follow {
	my ($run, $log, $qemu, $path, $argv, @args) = @_;
	my ($read, $write) = open_pipe();
	push @args, 'out=/dev/fd/' . fileno $write,
	    'kernels=' . kernel_ranges($path);
	my $pid = start($log, "$temp/stdout", "$temp/stderr", @$qemu,
		'-plugin', join(',', $run->{plugin}, @args), $path, @$argv);
	close $write;
	local $SIG{ALRM} = sub { kill KILL => $pid };
	alarm($run->{timeout} || 120);
	while (my $line = <$read>) {
		$run->{on_line}->($line);
	}
	waitpid($pid, 0);
	alarm 0;
	return ($?, slurp("$temp/stdout"), slurp("$temp/stderr"));
}

# The first thread's log is opened before the plugin is there to read it: a
# FIFO that is open for reading and writing does not block.
sub start {
	my ($log, $stdout, $stderr, @command) = @_;
	my $pid = fork;
	die "fork: $!\n" if !defined $pid;
	return $pid if $pid;
	$^F = 255;
	my $fifo;
	if ($log) {
		mkfifo("$log.$$", 0600) or POSIX::_exit(98);
		sysopen($fifo, "$log.$$", O_RDWR) or POSIX::_exit(98);
	}
	open(STDIN, '<', '/dev/null') or POSIX::_exit(98);
	open(STDOUT, '>', $stdout) or POSIX::_exit(98);
	open(STDERR, '>', $stderr) or POSIX::_exit(98);
	exec {$command[0]} @command or POSIX::_exit(98);
}

1;
