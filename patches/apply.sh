#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# apply.sh DIR: applies the series beside this script to DIR, a tree of
# google/multichase at commit a1ffd89b20d033f28fa44d6ee92d7a378b1b1dca.
#
# The patches have no context, so that nothing in them can tell a wrong tree
# from the right one. This script does: by the blob ids of the four files. It
# works on a copy, and DIR gets the result when all of it is there. Anything
# else is refused: one line on stderr, exit 1, DIR as it was.
set -u
unset CDPATH

commit=a1ffd89b20d033f28fa44d6ee92d7a378b1b1dca
files='cpu_util.h multichase.c multiload.c README'
work=
stage=

refuse() {
	printf 'apply.sh: %s\n' "$*" >&2
	exit 1
}

tidy() {
	[ -z "$stage" ] || rm -rf "$stage"
	[ -z "$work" ] || rm -rf "$work"
}

expected_blob() {
	case $1 in
	cpu_util.h) echo ded2a6dae0d6c549d0944a8071fed18fb1d2bbaa ;;
	multichase.c) echo 095d3555de81f82fda21d71ac6bbfb0194775eb5 ;;
	multiload.c) echo fd06ac9799d32683536d2a9b1a44b162b8e7bf5d ;;
	README) echo 2b64260f32c971a6abe5ff8c4b96425f894903bb ;;
	esac
}

# Prints the first file in directory $1 that is not the original's. Fails if
# there is none. The variable is for the test of this script, which has no
# copy of the original: without the check, lines land anywhere.
first_foreign_file() {
	[ -z "${APPLY_TEST_WITHOUT_BLOB_CHECK-}" ] || return 1
	for file in $files; do
		blob=$(git hash-object --no-filters -- "$1/$file") || blob=
		if [ "$blob" != "$(expected_blob "$file")" ]; then
			echo "$file"
			return 0
		fi
	done
	return 1
}

# Applies patch $2 to the copy in directory $1; $3 may be --reverse.
apply_patch() {
	(cd "$1" && git apply --unidiff-zero --whitespace=nowarn \
		${3:+"$3"} -- "$2") >"$work/log" 2>&1
}

copy_files() {
	mkdir "$2" || return 1
	for file in $files; do
		cp "$1/$file" "$2/$file" || return 1
	done
}

# Is directory $1 what the series makes of the original?
is_applied() {
	copy_files "$1" "$work/reversed" 2>/dev/null || return 1
	reverse=
	for patch in "$here"/[0-9][0-9][0-9][0-9]-*.patch; do
		reverse="${patch##*/} $reverse"
	done
	for patch in $reverse; do
		apply_patch "$work/reversed" "$here/$patch" --reverse || return 1
	done
	for file in $files; do
		! cmp -s "$1/$file" "$work/reversed/$file" || return 1
	done
	! first_foreign_file "$work/reversed" >/dev/null
}

if [ $# -ne 1 ] || [ -z "$1" ]; then
	refuse 'needs one argument, the folder of the original tree'
fi
case $1 in
/*) dir=$1 ;;
*) dir=./$1 ;; # a name may begin with a dash
esac
[ -d "$dir" ] || refuse "'$1' is not a directory"
dir=$(cd "$dir" && pwd) || refuse "cannot enter '$1'"
here=$(cd "$(dirname "$0")" && pwd) || refuse 'cannot find its own folder'
command -v git >/dev/null 2>&1 || refuse 'needs git, which was not found'
for patch in "$here"/[0-9][0-9][0-9][0-9]-*.patch; do
	[ -f "$patch" ] || refuse "finds no patches beside itself, in '$here'"
done
for file in $files; do
	[ -f "$dir/$file" ] || refuse "'$1' has no file $file"
	[ ! -h "$dir/$file" ] || refuse "'$1/$file' is a symbolic link"
	[ -r "$dir/$file" ] || refuse "'$1/$file' cannot be read"
done

trap tidy EXIT
trap 'exit 1' HUP INT TERM
work=$(mktemp -d 2>/dev/null) || refuse 'cannot make a temporary folder'

# In a subfolder of a repository git apply skips, without a word, files that
# the repository has elsewhere. So it must see no repository, and none of the
# settings that could make it convert line ends or mend blanks.
# shellcheck disable=SC2046 # a list of names
unset $(git rev-parse --local-env-vars)
export GIT_DIR="$work/none" GIT_DEFAULT_HASH=sha1
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1
export HOME="$work" XDG_CONFIG_HOME="$work"

copy_files "$dir" "$work/tree" 2>/dev/null || refuse "cannot copy the files of '$1'"
! is_applied "$work/tree" || refuse "the series is already applied to '$1'"
! file=$(first_foreign_file "$work/tree") ||
	refuse "'$1/$file' is not that of commit $commit (blob $(expected_blob "$file"))"

for patch in "$here"/[0-9][0-9][0-9][0-9]-*.patch; do
	apply_patch "$work/tree" "$patch" ||
		refuse "${patch##*/} does not apply: $(head -n 1 "$work/log")"
done
for file in $files; do
	! cmp -s "$dir/$file" "$work/tree/$file" ||
		refuse "git apply left $file as it was"
done

# The results are laid down beside the files, with their modes, so that a full
# disk shows before anything is changed. What is left then is four renames.
stage=$(mktemp -d "$dir/.apply.XXXXXX" 2>/dev/null) || refuse "cannot write in '$1'"
for file in $files; do
	{ cp -p "$dir/$file" "$stage/$file" &&
		cat "$work/tree/$file" >"$stage/$file"; } 2>/dev/null ||
		refuse "cannot write in '$1'"
done
trap '' HUP INT TERM
for file in $files; do
	mv -f "$stage/$file" "$dir/$file" 2>/dev/null ||
		refuse "cannot replace '$1/$file': put the files back from version control"
done
echo "applied to $1: cpu_util.h, multichase.c, multiload.c, README"
