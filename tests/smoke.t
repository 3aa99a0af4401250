#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The programs run and print what their readers expect, in a second or two.
cd "$(dirname "$0")/.." || exit 1

count=0

# ok DESCRIPTION COMMAND...: passes if the command succeeds.
ok()
{
	description=$1
	shift
	count=$((count + 1))
	if "$@"; then
		echo "ok $count - $description"
	else
		echo "not ok $count - $description"
	fi
}

# Each test has its row in a table.
all_are_explained()
{
	for test in tests/*.t tests/test_*.c tests/mutants; do
		grep -q "^| $(basename "$test") |" tests/README.md || {
			echo "# $test"
			return 1
		}
	done
}

one_number()
{
	echo "$1" | grep -qx ' *[0-9][0-9.]*'
}

out=$(./multichase -m 1m -n 1 --interval 0.02 2>&1)
ok 'multichase prints one number' one_number "$out"

out=$(./multiload -m 1m -l stream-sum -n 1 --warmup 0 --interval 0.02 2>&1)
ok 'multiload prints two lines' test "$(echo "$out" | wc -l)" = 2
ok 'the bandwidth is above 0' \
	test "$(echo "$out" | sed 1d | tr -d ' \t' | cut -d, -f9)" -gt 0

ok 'tests/README.md has every test' all_are_explained

echo "1..$count"
