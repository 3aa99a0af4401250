#!/usr/bin/env perl
# SPDX-License-Identifier: Apache-2.0
#
# make install, uninstall and dist. With CHECK_ALL=1 the sources of dist are
# also built, and made into a Debian package in which lintian finds no fault.
use strict;
use warnings;
# A build takes its time.
BEGIN { $ENV{TEST_COMMAND_LIMIT} ||= 600 }
use FindBin;
use lib "$FindBin::Bin/lib";
use Command;
use Digest::SHA;
use File::Find qw(find);
use File::Path qw(make_path);
use Test::More;

my @programs = qw(multichase multiload pingpong fairness);
my @commands = (@programs, 'run_multiload.sh');
my @parts = map { s{.*/}{}r } glob "$top/scripts/*";

# The files below a folder, sorted.
sub files
{
	my ($folder) = @_;
	my @files;
	find(sub { push @files, $File::Find::name =~ s{^\Q$folder\E/}{}r if -l || !-d }, $folder);
	return [sort @files];
}

# The programs are there: nothing is built in the tree that is tested.
sub make { return run(['make', '-s', '-C', $top, '-o', 'all', @_]) }

my $root = "$tmp/root";
make_path("$root/usr/share/man/man1");
spew("$root/usr/share/man/man1/other.1", '');
my $run = make('install', "DESTDIR=$root", 'PREFIX=/usr');
is_deeply([@$run{qw(exit err)}], [0, ''], 'install: exit 0, stderr empty');
my @installed = sort((map { ("usr/bin/$_", "usr/share/man/man1/$_.1", "usr/share/bash-completion/completions/$_") } @commands),
	(map { "usr/share/multichase/$_" } @parts), 'usr/share/zsh/site-functions/_multichase');
is_deeply([grep { !/other\.1$/ } @{files($root)}], \@installed, 'install: what there is, where it belongs');
for (@installed) {
	my $executable = m{/bin/} || (m{/share/multichase/} && !/\.sh$/) ? 0755 : 0644;
	is((stat "$root/$_")[2] & 07777, $executable, "install: the mode of $_");
}
like(run(["$root/usr/bin/run_multiload.sh", 0, '--dry-run'])->{out}, qr/\A(?:multiload .*\n)+\z/, 'install: the sweeps find their parts');
is(run(["$root/usr/bin/run_multiload.sh", '--version'])->{out} =~ s/^run_multiload\.sh //r,
	run(["$root/usr/bin/multiload", '--version'])->{out} =~ s/^multiload //r, 'install: and the programs');
$run = make('uninstall', "DESTDIR=$root", 'PREFIX=/usr');
is_deeply([@$run{qw(exit err)}], [0, ''], 'uninstall: exit 0, stderr empty');
is_deeply(files($root), ['usr/share/man/man1/other.1'], 'uninstall: leaves what it has not installed');
ok(!-e "$root/usr/share/multichase", 'uninstall: removes the folder of its own');
is(make('uninstall', "DESTDIR=$root", 'PREFIX=/usr')->{exit}, 0, 'uninstall: once more');

my $sources = "$tmp/sources";
SKIP: {
	skip 'not a git checkout, or no git', 1 if !found('git') || run(['git', '-C', $top, 'rev-parse', 'HEAD'])->{exit};
	my ($version) = slurp("$top/Makefile") =~ /^VERSION = (\S+)$/m;
	my $tarball = "$top/build/multichase-$version.tar.gz";
	my @digests;
	for my $umask (0022, 0077) {
		my $run = run(['make', '-s', '-C', $top, 'dist'], before => sub { umask $umask });
		is_deeply([@$run{qw(exit out err)}], [0, '', ''], 'dist: exit 0, silent');
		push @digests, Digest::SHA->new(256)->addfile($tarball)->hexdigest;
		sleep 1;
	}
	is($digests[0], $digests[1], 'dist: the same bytes a second later, with another umask');
	mkdir $sources;
	is(run(['tar', '-xzf', $tarball, '-C', $sources])->{exit}, 0, 'dist: can be unpacked');
	$sources .= "/multichase-$version";
	is_deeply(files($sources), [sort split /\n/, run(['git', '-C', $top, 'ls-tree', '-r', '--name-only', '--full-tree', 'HEAD'])->{out}],
		'dist: all files of the last commit');

	last SKIP if !$ENV{CHECK_ALL};
	my @tools = grep { !found($_) } qw(dpkg-buildpackage dh lintian);
	skip "@tools: not found", 1 if @tools;
	# The environment of a plain shell: nothing of the run that this is part of.
	delete @ENV{grep { !/^(?:PATH|HOME|TMPDIR|LANG|LC_ALL)$/ } keys %ENV};
	$run = run(['dpkg-buildpackage', '-us', '-uc', '-d'], before => sub { chdir $sources });
	is($run->{exit}, 0, 'package: is built') or diag($run->{err});
	my ($changes) = glob "$tmp/sources/*.changes";
	my $lint = run(['lintian', '--allow-root', $changes]);
	is_deeply([@$lint{qw(exit out)}], [0, ''], 'package: lintian finds no fault');
	my ($package) = grep { !/dbgsym/ } glob "$tmp/sources/*.deb";
	my %content = map { m{ \./(\S+?[^/])(?: -> \S+)?$} ? ($1 => 1) : () } split /\n/, run(['dpkg-deb', '-c', $package])->{out};
	my @missing = grep { !$content{$_} } (map { ("usr/bin/$_", "usr/share/man/man1/$_.1.gz", "usr/share/bash-completion/completions/$_") } @commands),
		(map { "usr/share/multichase/$_" } @parts), 'usr/share/zsh/vendor-completions/_multichase', map { "usr/share/doc/multichase/$_" } 'copyright', 'latency_by_size.svg';
	is_deeply(\@missing, [], 'package: holds what install installs');
	mkdir "$tmp/package";
	run(['dpkg-deb', '-x', $package, "$tmp/package"]);
	is(run(["$tmp/package/usr/bin/multiload", qw(-m 1m -l stream-sum -n 1 --warmup 0 --interval 0.05)])->{exit}, 0, 'package: multiload runs');
}

done_testing();
