# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Completion of multichase, multiload, pingpong, fairness and run_multiload.sh
# for bash: all that it knows it reads from --help of the program at hand.

_multichase()
{
	local program=${1/#\~\//$HOME/} current=$2 previous=$3
	local help line option='' value='' options=()
	local row='^ +(-(.), )?--([a-z-]+)( ([A-Z][^ ]*))?'

	# --option=value comes as three words.
	if [[ $current == = ]]; then
		current=''
	elif [[ $previous == = ]]; then
		previous=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	help=$("$program" --help 2>/dev/null </dev/null) || return 0
	while IFS= read -r line; do
		[[ $line =~ $row ]] || continue
		options+=("--${BASH_REMATCH[3]}")
		[[ -z ${BASH_REMATCH[2]} ]] || options+=("-${BASH_REMATCH[2]}")
		if [[ $previous == "--${BASH_REMATCH[3]}" ||
			$previous == "-${BASH_REMATCH[2]}" ]]; then
			option=${BASH_REMATCH[3]} value=${BASH_REMATCH[5]}
		fi
	done <<<"$help"

	case $option:$value in
	chase:*) _multichase_reply "$(_multichase_names Chases)" ;;
	load:*) _multichase_reply "$(_multichase_names Memloads)" ;;
	*:FILE) _multichase_paths -f ;;
	*:DIR | *:A) _multichase_paths -d ;;
	*:?*) COMPREPLY=() ;;
	*) _multichase_reply "${options[*]}" ;;
	esac
}

# The words that begin as what is there of the current one. After the colon of
# work:N its number is yet to come.
_multichase_reply()
{
	mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current")
	[[ ${COMPREPLY[*]} != *: ]] || compopt -o nospace 2>/dev/null || true
}

# _multichase_paths -f for files, -d for folders.
_multichase_paths()
{
	mapfile -t COMPREPLY < <(compgen "$1" -- "$current")
	compopt -o filenames 2>/dev/null || true
}

# The names in a list of --help, which ends before an empty line.
_multichase_names()
{
	awk -v list="$1" '
		index($0, list) == 1 { on = 1 }
		on && /^$/ { exit }
		on && /^  / { sub(/:N$/, ":", $1); print $1 }' <<<"$help"
}

complete -F _multichase multichase multiload pingpong fairness run_multiload.sh
