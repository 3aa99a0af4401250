# shellcheck shell=sh disable=SC2154 # the caller sets variables
# SPDX-License-Identifier: Apache-2.0
# What a sweep runs: plan KIND prints it, a command a line. Sourced by
# run_multiload.sh, which has set quick, test, samples, sockets, remote, affinity and
# extra; bin, the folder of the programs; and work, with machine.txt in it.

# fact NAME: what describe_machine said of it, or nothing.
fact()
{
	sed -n "s/^$1 = //p" "$work/machine.txt"
}

#
# CPUs and memory, and how the programs are told of them.
#

# Sets cpus (a list), nr_cpus, placement (options) and confine (a command).
place()
{
	list=cpus near='' memory='' confine='' placement=''
	[ "$sockets" = all ] || list=socket.cpus
	if [ "$remote" = 1 ]; then
		node=$(fact far_node)
		[ -n "$node" ] || die 'REMOTE 1: there is no second NUMA node' \
			'with memory; expected 0'
		near=.near memory=" -W $node:1"
	fi
	cpus=$(fact $list$near)
	[ -n "$cpus" ] || die "REMOTE 1: this process may use no CPU outside" \
		"node $node; expected 0"
	nr_cpus=$(echo "$cpus" | tr , '\n' | wc -l)
	if [ "$affinity" = 0 ]; then
		placement=' -X'
		[ "$cpus" = "$(fact cpus)" ] || confine_to "$cpus"
	elif [ "$cpus" != "$(fact cpus)" ]; then
		placement=" --cpus $cpus"
	fi
	# Where huge pages are off, a sweep does not switch them on.
	case $(fact huge_pages) in
	always | madvise) placement=" -H$placement" ;;
	esac
	placement=$placement$memory
}

# Threads that are not pinned may still have to keep to some CPUs.
confine_to()
{
	if command -v taskset >/dev/null; then
		confine="taskset -c $1 "
	elif command -v numactl >/dev/null; then
		confine="numactl --physcpubind=$1 "
	else
		die 'AFFINITY 0: to keep to some CPUs without pinning needs' \
			'taskset or numactl'
	fi
}

#
# Sizes of buffers.
#

# Where the kernel does not tell, as in many a virtual machine.
assumed_caches='L1 32768
L2 1048576
L3 33554432'

# caches THREADS: name and bytes of each level, for each of so many threads.
caches()
{
	levels=$(sed -n 's/^\(L[0-9]\) = .*/\1/p' "$work/machine.txt")
	[ -n "$levels" ] || echo "$assumed_caches"
	for level in $levels; do
		sharers=$(fact "$level.cpus")
		[ "$sharers" -le "$1" ] || sharers=$1
		echo "$level $(($(fact "$level") / sharers))"
	done
}

# exceeds WHAT BYTES CACHE CACHE-BYTES: says so if the buffer does not.
exceeds()
{
	[ "$2" -gt "$4" ] || warn "$1: a buffer of $(($2 / 1024)) KiB does not" \
		"exceed $3, as it is meant to: $(($4 / 1024)) KiB a thread"
}

# beyond WHAT THREADS SHARERS: a buffer for each thread, so much larger than the
# share of so many sharers in the last cache that few accesses hit there; or
# what fits in half of the memory.
beyond()
{
	last=$(caches "$3" | sort -n -k 2 | tail -n 1)
	bytes=4096
	while [ "$bytes" -lt $((${last#* } * 4)) ]; do
		bytes=$((bytes * 2))
	done
	while [ $((bytes * $2)) -gt $(($(fact memory) / 2)) ] ||
		! "$bin/multiload" -X -t "$2" -l memset-libc -m "$bytes" \
			--dry-run >/dev/null 2>&1; do
		[ "$bytes" -gt 4096 ] ||
			die "$1: no memory for $2 buffers of 4 KiB"
		bytes=$((bytes / 2))
	done
	exceeds "$1" "$bytes" "${last% *}" "${last#* }"
	echo "$bytes"
}

# square_root NUMBER: rounded down, by Newton's method.
square_root()
{
	root=$1
	while [ "$root" -gt $(($1 / root)) ]; do
		root=$(((root + $1 / root) / 2))
	done
	echo "$root"
}

# For each level of cache a buffer half-way, on a log scale, from the level
# below; and one for memory.
sizes_by_level()
{
	lower=''
	caches "$2" | while read -r level bytes; do
		below=${lower#* }
		buffer=$(square_root $((${below:-bytes / 4} * bytes)))
		buffer=$((buffer / 4096 * 4096))
		[ -z "$lower" ] || exceeds "$1" "$buffer" "${lower% *}" "$below"
		echo "$buffer"
		lower="$level $bytes"
	done
	beyond "$1" "$2" "$2"
}

# From 4 KiB to beyond the caches; for latency, at which caches show best,
# two steps to each octave, except where the second would be rounded down to a
# whole group, which is the first.
sizes_between()
{
	largest=$(beyond "$1" "$2" "$2")
	bytes=4096
	while [ $bytes -lt "$largest" ]; do
		echo $bytes
		if [ "$1" = latency ]; then
			[ $bytes -eq $group ] || echo $((bytes * 3 / 2))
			bytes=$((bytes * 2))
		else
			bytes=$((bytes * 4))
		fi
	done
	echo "$largest"
}

# sizes WHAT THREADS
sizes()
{
	if [ -n "${SWEEP_SIZES-}" ]; then
		echo "$SWEEP_SIZES"
	elif [ -n "$quick" ]; then
		sizes_between "$@"
	else
		sizes_by_level "$@"
	fi
}

#
# The plan of each kind of test.
#

# Sets the seconds before the first sample and those of a sample; long ones
# are multiload's own.
if [ -n "$quick" ]; then
	warmup=${SWEEP_WARMUP-0.05} interval=${SWEEP_INTERVAL-0.08}
else
	warmup=${SWEEP_WARMUP-4} interval=${SWEEP_INTERVAL-2}
fi

# A longer chase (-L) touches all of its memory; a pointer in each element
# would leave three of its four lines alone. Whole groups of 2 MiB, the size of
# a huge page, keep TLB misses rare.
group=$((2 * 1024 * 1024))
chase="-L -s 256 -T $group"

run_of_multiload()
{
	echo "${confine}multiload -v $* -n $samples --warmup $warmup" \
		"--interval $interval$placement${extra:+ $extra}"
}

plan_latency()
{
	buffers=$(sizes latency 1)
	for bytes in $buffers; do
		run_of_multiload -c simple "$chase" -t 1 -m "$bytes"
	done
}

memloads()
{
	if [ -n "${SWEEP_LOADS-}" ]; then
		echo "$SWEEP_LOADS"
	else
		"$bin/multiload" --help |
			awk '/^Memloads/ { on = 1 } on && /^  / { print $1 }'
	fi
}

# Loads of several arrays or of whole pages leave out what is too small.
plan_bandwidth()
{
	buffers=$(sizes bandwidth "$nr_cpus")
	for load in $(memloads); do
		fits='' refusal=''
		for bytes in $buffers; do
			command=$(run_of_multiload -l "$load" -t "$nr_cpus" \
				-m "$bytes")
			refusal=$($command --dry-run 2>&1 |
				sed -n '/needs at least/s/.*error: //p')
			[ -z "$refusal" ] || continue
			echo "$command"
			fits=1
		done
		[ -n "$fits" ] || warn "bandwidth: no $load: $refusal"
	done
}

# two_cpus WHAT: are there as many as that needs?
two_cpus()
{
	[ "$nr_cpus" = 1 ] || return 0
	why="needs two CPUs, this process may use CPU $cpus only"
	[ -n "$quick" ] || die "TEST $test: $why"
	warn "no $1: $why"
	return 1
}

# Turns of the delay loop, about a cycle each: from as fast as a core can to
# next to nothing.
all_delays='0 8 16 32 64 128 256 512 1024 2048 4096 8192'

# A chase in memory, beside each load at full speed; and beside the load that
# injects delays, at each of its speeds.
plan_loaded()
{
	two_cpus 'loaded latency' || return 0
	bytes=$(beyond 'loaded latency' "$nr_cpus" 1)
	for load in $(memloads); do
		case $load in
		*-delay) delays=${SWEEP_DELAYS-$all_delays} ;;
		*) delays=0 ;;
		esac
		for delay in $delays; do
			run_of_multiload -c chaseload "$chase" -l "$load" -d "$delay" \
				-t "$nr_cpus" -m "$bytes"
		done
	done
}

# The pairs of more CPUs would take too long; the lines of a matrix too large
# to be seen in a picture besides.
most_cpus=32

# Of a list of CPUs as many as that, evenly.
some_cpus()
{
	echo "$1" | tr , '\n' | awk -v all="$nr_cpus" -v most=$most_cpus '
		all <= most || int(NR * most / all) > int((NR - 1) * most / all)' |
		paste -s -d , -
}

plan_cores()
{
	two_cpus 'core-to-core times' || return 0
	echo "pingpong -u --interval ${SWEEP_INTERVAL-0.02} --cpus" \
		"$(some_cpus "$cpus")"
}

plan()
{
	"plan_$1"
}
