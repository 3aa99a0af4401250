#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Shows that the write-back does what it claims, on any Linux that has the
# emulators: traces it, boots a kernel with it, and prints what a model of a
# cache counts with it and without it, beside what was measured on hardware.
set -eu

tests=$(cd "$(dirname "$0")" && pwd)

prove "$tests/writeback_trace.t" "$tests/kernel_boot.t" \
	"$tests/x86_unchanged.t"
echo
perl "$tests/cache_model_table.pl"
