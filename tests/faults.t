#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# Faults of the system, one at a time: each system call of a run, injected by
# strace; each allocation, by a function linked before libc's; limits, control
# groups, and memory that is not there when it is first touched. A run goes on
# where it can, warns where it did not get what was asked for, and otherwise
# says in one line what failed, with exit 1 and an empty stdout.
#
# CHECK_ALL=1 has every call in turn, of more command lines.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use JSON::PP ();
use Test::More;

my $all = $ENV{CHECK_ALL};
my $number = qr/\d+(?:\.\d+)?/;
my ($first_cpu, $second_cpu) = allowed_cpus();
my ($runs, $faults) = (0, 0);
my $file = "$tmp/FILE";
spew($file, "\0" x (1 << 20));

sub is_object { my $of = eval { JSON::PP->new->decode($_[0]) }; return ref $of eq 'HASH' && $_[0] =~ /\}\n\z/ }
sub is_table { my %row = table_of($_[0]); return %row > 0 }
my %printed = (
	multichase => sub { return $_[0] =~ /\A *$number\n\z/ },
	multiload => \&is_table,
	pingpong => sub { return $_[0] =~ /\A +\d+ +\d+\n *\d+: +$number\n\z/ },
	fairness => sub { return $_[0] =~ /\Aunrelaxed:\n(?: +$number)+\nrelaxed:\n(?: +$number)+\n\z/ },
);

# What is wrong with how a run ended, or nothing. refusal: what the one line may
# say, if the run may be refused; it must go on if that is not given; must: it
# has to be. partial: results that were out before may be on stdout. warning:
# what it may warn of.
sub wrong
{
	my ($line, $result, %may) = @_;
	my ($program) = $line =~ /\b(multichase|multiload|pingpong|fairness)\b/;
	my ($out, $err) = @$result{qw(out err)};

	return 'did not end in time' if $result->{timed_out};
	return "ended by signal $result->{signal}" if $result->{signal};
	return "has inf or nan: $out" if $out =~ /\b(?:inf|nan)\b/i;
	# A pair of CPUs may not come to its turn on a busy machine.
	my $warning = $may{warning} // qr/pair\(s\) of CPUs handed nothing over/;
	$err =~ s/^$program: warning: [^\n]*$warning[^\n]*\n//mg;
	if ($result->{exit} == 0) {
		return 'was not refused' if $may{must};
		return "stderr has more than it may: $err" if $err ne '';
		return if $line =~ / --json/ ? is_object($out) : $printed{$program}->($out);
		return "the result is malformed: $out";
	}
	return "exit $result->{exit}: $err" if $result->{exit} != 1;
	return "was refused: $err" if !$may{refusal};
	return "stdout is not empty: $out" if $out ne '' && !$may{partial};
	return if $err =~ /\A$program: error: [^\n]*(?:$may{refusal})[^\n]*\n\z/;
	return "stderr is not the line: $err";
}

# A run, and again with a longer sample if a busy machine had no turn for it.
sub attempt
{
	my ($command, @how) = @_;
	my $result = run($command, @how);
	return $result if $result->{err} !~ /make it longer$/;
	return run([map { $_ eq '0.005' || $_ eq '0.02' ? 1 : $_ } ref $command ? @$command : words($command)], @how);
}

# The same for many runs, as one test.
my @wrong;
sub note_run
{
	my ($what, $line, $result, %may) = @_;
	my $wrong = wrong($line, $result, %may);

	$runs++;
	push @wrong, "$what: $line: $wrong" if $wrong;
	return $wrong;
}

sub all_right
{
	my ($what, $count) = @_;
	ok(!@wrong && $count, "$what: $count") or diag(join "\n", @wrong[0 .. ($#wrong > 9 ? 9 : $#wrong)]);
	@wrong = ();
}

sub runs
{
	my ($what, $command, $line) = @_;
	my $result = attempt($command);

	note_run($what, $line // $command, $result);
	all_right("$what: goes on", 1);
}

sub warns
{
	my ($what, $command, $words, $line) = @_;
	my $result = attempt($command);

	note_run($what, $line // $command, $result, warning => $words);
	push @wrong, "$what: no warning" if $result->{err} eq '';
	all_right("$what: goes on, and warns", 1);
}

sub refuses
{
	my ($what, $command, $words, $line) = @_;
	note_run($what, $line // $command, attempt($command), must => 1, refusal => $words);
	all_right("$what: is refused", 1);
}

# System calls.

my $thread = qr/cannot start thread \d+ of \d+: [^\n]*ask for fewer/;
# Errors, and what the line may then say; none: the run must go on. A retval is
# a read that is cut short: nothing, or one letter that makes no sense.
my $short_read = 'retval=1:poke_exit=@arg2=78';
my %call = (
	brk => {errors => ['ENOMEM']}, # malloc then maps memory
	clone => {errors => ['EAGAIN'], refusal => $thread},
	clone3 => {errors => ['EAGAIN', 'ENOSYS'], refusal => $thread, partial => 1},
	madvise => {errors => ['EINVAL', 'EPERM'], refusal => qr/-l zero-fault: madvise|-H: this kernel has no transparent/},
	mmap => {errors => ['ENOMEM'], refusal => qr/-[mFf][^\n]*: cannot map [^\n]*|$thread/, partial => 1},
	mprotect => {errors => ['EACCES'], refusal => qr/-c branch: [^\n]*|$thread/, partial => 1},
	openat => {errors => ['ENOENT', 'EACCES', 'EMFILE'], refusal => qr/-f \S+: cannot open|-l zero-read: [^\n]*another load/},
	move_pages => {errors => ['EPERM'], warning => qr/-W: the kernel does not tell/},
	pread64 => {errors => ['EIO', 'EINTR', 'retval=1'], refusal => qr/-l zero-read: [^\n]*Input\/output error/},
	read => {errors => ['EIO', 'EINTR', 'retval=0', $short_read]},
	set_mempolicy => {errors => ['EPERM', 'EINVAL', 'ENOSYS'], refusal => qr/-W 0:1: cannot have memory of node 0: /},
	sched_getaffinity => {errors => ['EINVAL', 'EPERM'], refusal => qr/CPUs [^\n]* not known: [^\n]*not permitted; [^\n]*--cpus/},
	sched_setaffinity => {errors => ['EINVAL', 'EPERM'], refusal => qr/cannot run a thread on CPU \d+: [^\n]*--cpus/, partial => 1},
	newfstatat => {errors => ['EIO'], refusal => qr/-f \S+: cannot tell its size/},
	write => {errors => ['ENOSPC', 'EIO', 'EINTR'], must => 1, partial => 1,
		refusal => qr/standard output: [^\n]*: (?:No space left|Input\/output|Interrupted)/},
);
# What libc and the kernel have agreed on cannot fail, nor be lived without.
my $agreed = qr/^(?:execve|exit|exit_group|futex|rt_sigreturn|arch_prctl|set_tid_address|set_robust_list|rseq)$/;
my @strace = qw(strace -f -qq);

# How often each call is made, at the most by a thread.
sub calls_of
{
	my ($line) = @_;
	my (%calls, %most);
	my $result = run([@strace, '-o', "$tmp/trace", words($line)]);

	for (split /\n/, slurp("$tmp/trace")) {
		# But not the warnings, which come last.
		$calls{$2}{$1}++ if /^(\d+) +(\w+)\((?!2, )/;
	}
	for my $call (keys %calls) {
		($most{$call}) = sort { $b <=> $a } values %{$calls{$call}};
	}
	return ($result, %most);
}

# The calls in turn; of very many the first ones and the last.
sub turns
{
	my ($from, $last) = @_;
	return () if $from > $last;
	return $from == $last ? $from : ($from, $last) if !$all;
	return grep { $_ < $from + 9 || $_ == $last || $_ % 11 == 0 && $_ < $from + 100 } $from .. $last;
}

# All errors of a call have had their turn in a program that makes it as often.
my %had;

# The same call of each thread fails: strace counts the calls of each.
sub each_call
{
	my ($line) = @_;
	my ($program) = $line =~ /^(\w+)/;
	my (undef, %of_libc) = calls_of("$program --version");
	my ($result, %calls) = calls_of($line);
	my $before = $faults;

	# Where memory is too scattered for huge pages, there is always a warning.
	my $huge = $result->{err} eq '' ? qr/-H: the kernel does not tell/ : qr/-H: /;
	note_run('traced', $line, $result, warning => qr/-H: |handed nothing over/);
	for my $call (grep { !/$agreed/ } sort keys %calls) {
		my %may = (errors => ['EPERM'], $line =~ / -H/ ? (warning => $call eq 'madvise' ? qr/-H: 0\.0 of/ : $huge) : (),
			%{$call{$call} || {}});
		my @errors = @{$may{errors}};
		@errors = $errors[0] if !$all || $calls{$call} <= ($had{"$program $call"} // 0);
		$had{"$program $call"} = $calls{$call};
		# What comes before main is libc's.
		my $from = $call eq 'write' ? 1 : ($of_libc{$call} || 0) + 1;
		for my $error (@errors) {
			my $fault = $error =~ /^retval/ ? $error : "error=$error";
			for my $turn (turns($from, $calls{$call})) {
				my $result = attempt([@strace, '--seccomp-bpf', '-o', '/dev/null', '-e', "trace=$call",
					'-e', "inject=$call:$fault:when=$turn", words($line)], limit => 20);
				note_run("$call $turn $error", $line, $result, %may);
				$faults++;
			}
		}
	}
	all_right("$line: system calls that fail", $faults - $before);
}

my $chase = 'multichase -m 1m -F 64k -n 1 --interval 0.005';
my $load = 'multiload -m 1m -n 1 --warmup 0 --interval 0.02';
my @lines = ($chase, "$load -l stream-sum", 'pingpong -u -c 1 --interval 0.02', 'fairness -n 1 -t 0.005');
push @lines, "$chase -H -m 4m" if has_thp();
push @lines, (
	"$chase -W 0:1", "$chase -M", "$chase -c branch", "$chase -f $file", "$chase -X -t 2 --json",
	"$load -l stream-sum -W 0:1", "$load -l zero-read", "$load -l zero-fault",
	"$load -c chaseload -l stream-sum -X -t 2 -s 256 --json",
	"pingpong -x -c 1 --interval 0.02 --json", 'fairness -n 1 -t 0.005 --json',
) if $all;

sub can_trace { return found('strace') && !run([@strace, '-o', '/dev/null', '-e', 'inject=mmap:error=ENOMEM:when=999', 'true'])->{exit} }

SKIP: {
	skip 'strace was not found, or may not trace here: no system call fails', 1 if !can_trace();
	for my $line (@lines) {
		next if $line =~ /^pingpong/ && !defined $second_cpu;
		each_call($line);
	}
}

# What was out before a pair of CPUs could not play stays a table.
if (can_trace()) {
	my $line = 'pingpong -u --cpus 0,5,9 --interval 0.005';
	my $result = run([@strace, '-o', '/dev/null', '-e', 'inject=sched_setaffinity:retval=0', '-e', 'inject=clone3:error=EAGAIN:when=3',
		words($line)]);
	note_run('no thread for the second pair', $line, $result, must => 1, partial => 1, refusal => $thread);
	all_right('no thread for the second pair: is refused', 1);
	like($result->{out}, qr/\A +0 +5 +9\n 0: +$number\n\z/, 'no thread for the second pair: what was printed ends in a line');
}

# Allocations: the programs are linked again, with functions that fail.

sub link_failing
{
	my ($program) = @_;
	my @others = grep { $_ ne $program } keys %printed;
	my @objects = grep { my $path = $_; !grep { $path =~ m{/$_\.o$} } @others } glob "$top/build/native/*.o";
	my @wrap = map { "-Wl,--wrap=$_" } qw(main malloc calloc realloc aligned_alloc mprotect);
	my @link = ('cc', '-D_GNU_SOURCE', '-pthread', '-o', "$tmp/$program", @objects, "$top/tests/fail_call.c", @wrap, '-lm');

	# Where libc is static, its own allocations are among those that fail.
	return run([@link, '-static'])->{exit} == 0 || run(\@link)->{exit} == 0;
}

my %linked;
sub each_allocation
{
	my ($line) = @_;
	my ($program) = $line =~ /^(\w+)/;
	my $before = $faults;

	$linked{$program} //= link_failing($program);
	return fail("$program: is linked with allocations that fail") if !$linked{$program};
	for (my $turn = 1; ; $turn++) {
		unlink "$tmp/failed";
		my $result = attempt([split ' ', "$tmp/$line"], limit => 20,
			before => sub { @ENV{qw(FAIL_AT FAILED)} = ($turn, "$tmp/failed") });
		note_run("allocation $turn", $line, $result, partial => 1, refusal => qr/no memory|Cannot allocate memory; |$thread|-M: malloc has no|-c branch: /,
			$line =~ / -H/ ? (warning => qr/-H: /) : ());
		last if !-e "$tmp/failed" || $turn > 500;
		$faults++;
	}
	all_right("$line: allocations that fail", $faults - $before);
}

each_allocation($_) for grep { defined $second_cpu || !/^pingpong/ } @lines;

# What is not a call that fails: limits, and memory that is not there.

# A command line for sh after what prepares it.
sub in_shell { my ($first, $line) = @_; return ['sh', '-c', "set -e; $first; exec " . join ' ', map { "'$_'" } words($line)] }

refuses('a limit of memory', in_shell('ulimit -v 100000', "$chase -m 256m"), qr/-m: cannot map 256 MiB[^\n]*ask for less/, $chase);
refuses('a limit of memory, -M', in_shell('ulimit -v 100000', "$chase -M -m 256m"), qr/-M: malloc has no 256[^\n]*ask for less/, $chase);
refuses('a limit of memory, a load', in_shell('ulimit -v 100000', "$load -l stream-sum -m 256m"), qr/-m: cannot map 256 MiB/, $load);
refuses('a limit of memory, the flush buffer', in_shell('ulimit -v 100000', "$chase -F 256m"), qr/-F: cannot map 256 MiB/, $chase)
	if run('multichase --help')->{out} !~ /--flush SIZE .*write the chase back/;
refuses('stacks larger than all memory', in_shell('ulimit -s 99999999; ulimit -v 9999999', $chase), $thread, $chase);
runs('no file can be opened', in_shell('ulimit -n 3', $_), $_) for $chase, "$load -l stream-sum", 'fairness -n 1 -t 0.005';
warns('no file can be opened, -H', in_shell('ulimit -n 3', "$chase -H -m 4m"), qr/-H: the kernel does not tell/, $chase) if has_thp();
refuses('no file can be opened, -H, and no sample', in_shell('ulimit -n 3', 'multichase -H -m 4m -F 0 -N -n 1 -c work:1000000 --interval 0.001'),
	qr/--interval 0\.001: no thread came/, $chase) if has_thp();
refuses('the kernel has no huge pages', [@strace, '-o', '/dev/null', '-e', 'inject=madvise:error=EINVAL', words("$chase -H")],
	qr/-H: this kernel has no transparent huge pages/, $chase) if can_trace();
runs('standard output does not wait, and is full for a while', [@strace, '-o', '/dev/null', '-e', 'inject=write:error=EAGAIN:when=1', words($chase)],
	$chase) if can_trace();

# A file on a file system that is full, with huge pages switched on for it.
my ($unshare) = grep { run("$_ true")->{exit} == 0 } 'unshare -m', 'unshare -rm';
SKIP: {
	skip 'mounts of its own are not permitted here', 1 if !$unshare;
	my $full = "mount -t tmpfs -o size=256k none /mnt; truncate -s 1m /mnt/file";
	my $line = "$chase -f /mnt/file";
	my $gone = qr{-f /mnt/file: memory [^\n]* could not be had when it was first touched: [^\n]*space};

	refuses('no space for the file', [split(' ', $unshare), @{in_shell($full, $line)}], $gone, $line);
	skip 'no transparent huge pages', 1 if !-d '/sys/kernel/mm/transparent_hugepage';
	spew("$tmp/setting", "always madvise [never]\n");
	my $off = "mount --bind $tmp/setting /sys/kernel/mm/transparent_hugepage/enabled";
	refuses('no space for the file, -H', [split(' ', $unshare), @{in_shell("$full; $off", "$line -H")}], $gone, $line);
	like(slurp("$tmp/setting"), qr/^never/, 'no space for the file, -H: the setting of huge pages is put back');
	# A fault at any time after it was changed.
	for my $fault ('mmap:error=ENOMEM:when=3', 'clone3:error=EAGAIN', 'sched_setaffinity:error=EINVAL', 'write:error=ENOSPC:when=1', 'pwrite64:error=EIO:when=1') {
		next if !can_trace();
		spew("$tmp/setting", "always madvise [never]\n");
		my $trace = join ' ', @strace, '-o', '/dev/null', '-e', "inject=$fault";
		refuses("$fault with -H", [split(' ', $unshare), 'sh', '-c', "$off; exec $trace " . join ' ', words("$chase -H")], qr/./, $chase);
		# If it could not be changed, nothing is written to it.
		like(slurp("$tmp/setting"), $fault =~ /^pwrite64/ ? qr/^always madvise \[never\]$/ : qr/^never/,
			"$fault with -H: the setting of huge pages is as it was");
	}
}

# Control groups, where new ones may be made. Where not, confined.t and the
# calls above stand for them.

my @groups;

# A new group, its files written; nothing if it cannot be had.
sub group
{
	my ($controller, %files) = @_;
	my $path = "/sys/fs/cgroup/$controller/faults.$$";

	return if !-d $path && !mkdir $path;
	push @groups, $path;
	for (sort keys %files) {
		open my $out, '>', "$path/$_" or return;
		syswrite($out, "$files{$_}\n") or return;
	}
	return $path;
}
sub in_group { my ($path, $line) = @_; return in_shell("echo \$\$ > $path/cgroup.procs", $line) }

my $made = 0;
if (my $path = group('pids', 'pids.max' => 1)) {
	refuses('a group with no thread left', in_group($path, $chase), $thread, $chase);
	$made++;
}
if (my $path = group('memory', 'memory.limit_in_bytes' => 32 << 20)) {
	refuses('a group with less memory', in_group($path, "$chase -m 64m"), qr/-m \S+[^\n]*: [^\n]*cgroup has only 32/, $chase);
	runs('a group with enough memory', in_group($path, "$chase -m 8m"), $chase);
	$made++;
}
if (my $path = group('cpuset', 'cpuset.cpus' => $first_cpu, 'cpuset.mems' => 0)) {
	refuses('a group of one CPU', in_group($path, "$chase -t 2"), qr/more threads than cpus available: -t 2/, $chase);
	refuses('a group without the CPU', in_group($path, "$chase --cpus $second_cpu"),
		qr/cannot run a thread on CPU $second_cpu: [^\n]*--cpus: this process may use CPUs $first_cpu/, $chase) if defined $second_cpu;
	runs('a group of one CPU', in_group($path, $chase), $chase);
	$made++;
}
if (my $path = group('cpu', 'cpu.cfs_period_us' => 5000, 'cpu.cfs_quota_us' => 1000)) {
	warns('a group with a fifth of a CPU', in_group($path, "$chase --interval 0.2"), qr/a CPU quota of the cgroup stopped threads in \d+ periods/, $chase);
	$made++;
}

# Hugetlb pages that are there when they are mapped, and not when touched. What
# is changed for that is put back at the end, whatever comes.
my %settings = map { $_ => slurp($_) =~ s{\n}{}r } '/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages',
	'/sys/fs/cgroup/unified/cgroup.subtree_control';
sub set
{
	my ($path, $value) = @_;
	open my $out, '>', $path or return 0;
	return syswrite($out, "$value\n");
}
sub put_back
{
	my ($pages, $subtree) = sort { $b cmp $a } keys %settings;
	set($pages, $settings{$pages}) if slurp($pages) ne "$settings{$pages}\n";
	rmdir $_ for @groups;
	set($subtree, '-hugetlb') if slurp($subtree) ne "$settings{$subtree}\n";
}
END { put_back() }

my ($pages, $subtree) = sort { $b cmp $a } keys %settings;
if ($settings{$subtree} !~ /hugetlb/ && set($subtree, '+hugetlb') && (my $path = group('unified', 'hugetlb.2MB.max' => 0))) {
	set($pages, $settings{$pages} + 4);
	refuses('hugetlb pages that are gone', in_group($path, 'multichase -p 2m -m 4m'),
		qr/-p 2m: memory [^\n]* could not be had when it was first touched: [^\n]*hugetlb/, $chase)
		if slurp($pages) >= $settings{$pages} + 4;
	$made++;
}
put_back();
is(slurp($_) =~ s{\n}{}r, $settings{$_}, "$_ is as it was") for sort keys %settings;
diag("$faults faults in $runs runs, in $made control groups");
done_testing();
