#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sweeps of multiload and pingpong over sizes, loads, delays and CPUs.
#
# Each run of a program is a block in results/KIND.txt, from which
# results/KIND.csv is made. The blocks tell where an interrupted sweep goes on.

# Sourced, all is done in a shell of its own: the caller's stays as it is.
case ${ZSH_VERSION+zsh}$(readlink -f -- "$0") in
/*/run_multiload.sh) ;;
*)
	sh ./run_multiload.sh "$@"
	return
	;;
esac

set -eu

usage()
{
	cat <<'END'
usage: run_multiload.sh [OPTION]... [TEST [ITERATIONS [SAMPLES [SOCKETS [REMOTE [AFFINITY]]]]]] [-- MULTILOAD-OPTION...]
Sweeps of multiload and pingpong; the results go to results/*.txt and results/*.csv.

      --quick                a whole picture of the machine in minutes: latency and bandwidth by size, loaded latency, core-to-core
      --plot                 make pictures, PNG and SVG, of the results; alone: of those that are there
      --compare A B          compare the results in folder B with those in folder A; with --plot: in pictures too
      --output DIR           where results and pictures go (default results; of --compare: comparison)
      --dry-run              print the commands of the sweep, if there is one, and exit
  -h, --help                 print this and exit
      --version              print the version and exit

Operands:
  TEST         0 latency, 1 bandwidth, 2 loaded latency
  ITERATIONS   how often the whole sweep is repeated (default 3)
  SAMPLES      samples of each run (default 5; of --quick: 3)
  SOCKETS      1: the CPUs of one socket; all: every CPU that may be used (default all)
  REMOTE       1: memory of the NUMA node that is farthest from the CPUs (default 0)
  AFFINITY     0: threads are not pinned to CPUs (default 1)

Environment:
  SWEEP_ITERATIONS, SWEEP_SAMPLES   as the operands
  SWEEP_SIZES      sizes of buffers, such as "16k 1m 256m"
  SWEEP_LOADS      memloads
  SWEEP_DELAYS     delays of the load that injects them
  SWEEP_WARMUP     seconds before the first sample of a run of multiload
  SWEEP_INTERVAL   seconds of a sample

A sweep that was interrupted goes on where it stopped when it is started again.
One that was finished starts anew, and its files are kept as *.old, in place of
any older ones; but with more ITERATIONS than it had, only those that are
missing are run.
END
}

# How messages begin.
me=run_multiload.sh

die()
{
	echo "$me: error: $*" >&2
	exit 1
}

warn()
{
	echo "$me: warning: $*" >&2
}

#
# The command line.
#

# expect NAME VALUE WORD...: the value is one of the words.
expect()
{
	what="$1 ${2:-''}" value=$2
	shift 2
	for word in "$@"; do
		[ "$value" != "$word" ] || return 0
	done
	die "$what: expected one of $(echo "$*" | sed 's/ /, /g')"
}

# expect_count NAME VALUE
expect_count()
{
	case $2 in
	'' | 0* | *[!0-9]* | ??????????*)
		die "$1 ${2:-''}: expected a whole number from 1 to 999999999"
		;;
	esac
}

# operand NUMBER VALUE
operand()
{
	case $1 in
	1) test=$2 ;;
	2) iterations=$2 ;;
	3) samples=$2 ;;
	4) sockets=$2 ;;
	5) remote=$2 ;;
	6) affinity=$2 ;;
	*) die "$2: unexpected operand, see --help" ;;
	esac
}

parse_options()
{
	operands=0
	while [ $# -gt 0 ]; do
		case $1 in
		--quick) quick=1 ;;
		--plot) plot=1 ;;
		--dry-run) dry_run=1 ;;
		--compare)
			[ $# -ge 3 ] || die '--compare: expected two folders'
			before=$2 after=$3
			shift 2
			;;
		--output)
			[ $# -ge 2 ] || die '--output: expected a folder'
			output=$2
			shift
			;;
		--output=*) output=${1#*=} ;;
		-h | --help)
			usage
			exit
			;;
		--version)
			"$bin/multiload" --version | sed "s/^multiload/$me/"
			exit
			;;
		--)
			shift
			extra=$*
			return
			;;
		-*) die "$1: unknown option, see --help" ;;
		*)
			operands=$((operands + 1))
			operand $operands "$1"
			;;
		esac
		shift
	done
}

parse()
{
	quick='' plot='' dry_run='' before='' after='' extra='' test=''
	iterations=${SWEEP_ITERATIONS-3} sockets=all remote=0 affinity=1
	unset samples output
	parse_options "$@"
	: "${samples=${SWEEP_SAMPLES-$((quick ? 3 : 5))}}"
	[ -z "$before" ] || : "${output=comparison}"
	: "${output=results}"

	[ -z "$test" ] || expect TEST "$test" 0 1 2
	expect_count ITERATIONS "$iterations"
	expect_count SAMPLES "$samples"
	expect SOCKETS "$sockets" 1 all
	expect REMOTE "$remote" 0 1
	expect AFFINITY "$affinity" 0 1
	case "${quick:+q}${test:+t}${before:+c}" in
	'') [ -n "$plot" ] || die 'expected a TEST (0, 1 or 2), --quick,' \
		'--plot or --compare; see --help' ;;
	??*) die '--quick, --compare and a TEST: expected one of them' ;;
	esac
	[ -z "$plot" ] || command -v gnuplot >/dev/null ||
		die '--plot: gnuplot is not installed'
	case $test in
	0) kinds=latency ;;
	1) kinds=bandwidth ;;
	2) kinds=loaded ;;
	*) kinds=${quick:+latency bandwidth loaded cores} ;;
	esac
}

#
# The plan.
#

# Makes plan.KIND in the work folder, and leaves out the kinds without any.
make_plans()
{
	planned=
	for kind in $kinds; do
		plan "$kind" >"$work/plan.$kind"
		[ ! -s "$work/plan.$kind" ] || planned="$planned $kind"
	done
	[ -n "$planned" ] || die 'there is nothing to run'
	kinds=$planned
}

# Every command has to be one that can be run, before the first is.
check_plans()
{
	for kind in $kinds; do
		while read -r command; do
			# shellcheck disable=SC2086 # a command and its words
			try $command --dry-run ||
				die "$command: $(cat "$work/stderr")"
		done <"$work/plan.$kind"
	done
}

# try WORD...: runs a command; its output goes to the work folder.
try()
{
	"$@" >"$work/stdout" 2>"$work/stderr" </dev/null &
	child=$!
	status=0
	wait $child || status=$?
	child=
	return $status
}

# run_command WORD...: a line of a plan. On a machine that has other things to
# do, the short samples of --quick may pass without a single step.
run_command()
{
	try "$@" || try "$@" || try "$@" || die "$* ended with status $status:" \
		"$(cat "$work/stderr")"
}

#
# Results.
#

# A small busybox has one of them.
checksum='cksum'
command -v cksum >/dev/null || checksum=md5sum

# What tells one sweep from another: its commands, and the machine.
identity()
{
	{
		cat "$work/plan.$1"
		fact cpu
		fact kernel
	} | $checksum
}

# blocks KIND: how many runs are recorded.
blocks()
{
	grep -c '^# done$' "$output/$1.txt" || true
}

# Goes on with what is there, or puts that aside and starts anew.
open_log()
{
	log=$output/$1.txt
	first="# sweep $(identity "$1")"
	runs=$((iterations * $(wc -l <"$work/plan.$1")))
	if [ -s "$log" ]; then
		done=$(blocks "$1")
		if [ "$(head -n 1 "$log")" = "$first" ] &&
			[ "$done" -lt $runs ]; then
			[ "$done" = 0 ] ||
				echo "$log: goes on after run $done of $runs"
			return
		fi
		mv "$log" "$log.old"
		# What was made of it is not of the new one.
		for type in csv png svg; do
			[ ! -e "$output/$1.$type" ] ||
				mv "$output/$1.$type" "$output/$1.$type.old"
		done
		echo "$log: kept as $log.old"
	fi
	echo "$first" >"$log" || die_unwritten
}

die_unwritten()
{
	die "--output ${output:-''}: cannot make that folder or write there"
}

open_results()
{
	# The folder may be there and yet be read-only, even to root.
	mkdir -p "$output" 2>/dev/null || true
	if ! [ -d "$output" ] || ! [ -w "$output" ]; then
		die_unwritten
	fi
	{
		cat "$work/machine.txt"
		date -u '+date = %Y-%m-%dT%H:%M:%SZ'
		"$bin/multiload" --version | sed 's/^multiload/version =/'
	} >"$output/machine.txt" || die_unwritten
	for kind in $kinds; do
		open_log "$kind"
	done
}

# Adds what run_command has left as block number $2 of a log.
record()
{
	{
		echo "# run $2: $3"
		sed 's/^/# stderr: /' "$work/stderr"
		cat "$work/stdout"
		echo '# done'
	} >"$work/block"
	cat "$work/block" >>"$output/$1.txt" || die_unwritten
	make_csv "$1" || die_unwritten
	cat "$work/stderr" >>"$work/warnings"
}

make_csv()
{
	awk -f "$parts/log_to_csv" "$output/$1.txt" >"$output/$1.csv.new" &&
		mv "$output/$1.csv.new" "$output/$1.csv"
}

#
# The sweep.
#

# progress KIND: on a terminal, how far all is and how long it will yet take.
progress()
{
	[ -t 2 ] || return 0
	printf '\r\033[K%s: run %d of %d' "$1" $((recorded + 1)) $all >&2
	ran=$((recorded - recorded_before))
	[ $ran -gt 0 ] || return 0
	left=$((($(date +%s) - started) * (all - recorded) / ran))
	printf ', %d:%02d left' $((left / 60)) $((left % 60)) >&2
}

end_progress()
{
	[ ! -t 2 ] || printf '\r\033[K' >&2
}

# Runs what is not yet recorded of one pass over a plan.
run_plan()
{
	block=$((($2 - 1) * $(wc -l <"$work/plan.$1")))
	done=$(blocks "$1")
	while read -r command; do
		block=$((block + 1))
		[ $block -gt "$done" ] || continue
		progress "$1"
		# shellcheck disable=SC2086 # a command and its words
		run_command $command
		record "$1" $block "$command"
		recorded=$((recorded + 1))
	done <"$work/plan.$1"
}

# The kinds take turns, so that what changes with time does so for all.
run_sweep()
{
	all=0 recorded=0
	for kind in $kinds; do
		all=$((all + iterations * $(wc -l <"$work/plan.$kind")))
		recorded=$((recorded + $(blocks "$kind")))
	done
	recorded_before=$recorded started=$(date +%s)
	iteration=0
	while [ $iteration -lt "$iterations" ]; do
		iteration=$((iteration + 1))
		for kind in $kinds; do
			run_plan "$kind" $iteration
		done
	done
	end_progress
	for kind in $kinds; do
		echo "$output/$kind.csv: $(wc -l <"$work/plan.$kind") points," \
			"runs of each: $iterations"
	done
}

# What the programs have warned of, each line once.
repeat_warnings()
{
	sort "$work/warnings" | uniq -c | while read -r count line; do
		[ "$count" = 1 ] || line="$line (in $count runs)"
		echo "$line" >&2
	done
}

# Ends by the signal, as a caller expects.
stop()
{
	trap '' INT TERM HUP
	[ -z "$child" ] || kill "$child" 2>/dev/null || true
	wait
	end_progress
	repeat_warnings
	echo "$me: interrupted; the same command goes on from here" >&2
	clean_up
	trap - EXIT "$1"
	kill -s "$1" $$
}

clean_up()
{
	rm -rf "$work"
}

sweep()
{
	work=$(mktemp -d) child=''
	trap clean_up EXIT
	for signal in INT TERM HUP; do
		# shellcheck disable=SC2064 # this signal
		trap "stop $signal" $signal
	done
	: >"$work/warnings"
	# Another /proc and /sys are for tests.
	"$parts/describe_machine" ${SWEEP_ROOT+"$SWEEP_ROOT"} \
		>"$work/machine.txt"
	# shellcheck source=scripts/plan.sh
	. "$parts/plan.sh"
	place
	make_plans
	check_plans
	if [ -n "$dry_run" ]; then
		for kind in $kinds; do
			cat "$work/plan.$kind"
		done
		return
	fi
	open_results
	run_sweep
	repeat_warnings
}

bin=$(dirname "$(readlink -f "$0")")
PATH=$bin:$PATH
parts=$bin/scripts
[ -d "$parts" ] || parts=$bin/../share/multichase

parse "$@"
[ -x "$bin/multiload" ] ||
	die "$bin/multiload: there is no such program; build it with make"
[ -z "$kinds" ] || sweep
[ -z "$dry_run" ] || exit 0
if [ -n "$before" ]; then
	"$parts/compare_results" "$before" "$after"
	[ -z "$plot" ] ||
		"$parts/plot_results" "$output" "$before" "$after"
	exit
fi
[ -z "$plot" ] || "$parts/plot_results" "$output" "$output"
