#!/bin/bash
# Completion: the bash script is sourced and completes as at a prompt; those of zsh and fish are parsed by their shells.
set -u
. "$top_srcdir/tests/lib.sh"
TRIREME=$(realpath "$TRIREME")
scratch
for shell in bash zsh fish; do
  "$TRIREME" options --completion=$shell > $shell.txt 2> log || { cat log; fail "options --completion=$shell"; }
done
: > data.yaml
# shellcheck disable=SC1091
. ./bash.txt
compopt() { :; } # outside of a prompt it is refused

# completes WANT WORD...: the completions of the last word, sorted
completes() {
  local want=$1 got
  shift
  COMP_WORDS=(trireme "$@") COMP_CWORD=$#
  COMPREPLY=()
  _trireme
  got=$(printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ')
  [ "$got" = "$want " ] || fail "trireme $*: \"$got\", not \"$want\""
}
completes 'repeat report' rep
completes 'make' data m
completes 'digits' data make dig
completes '--optim.schedule=' train --optim.sch
completes '--picture=' report --pict
completes 'sgp slowmo softsync ssp sync' train --strategy.name = s # as bash divides words
completes '--optim.schedule=constant --optim.schedule=cosine' train --optim.schedule=co # without "=" in COMP_WORDBREAKS
completes 'no yes' train --data.flip = ''
completes 'target' report --picture = t
completes 'data.yaml' train dat
completes '--exit-code' status --ex
pass "bash completes commands, flags, options, choices and files"
listed=$("$TRIREME" options | awk '/^ *[a-z]+\.[a-z]/ { print $1 }' | wc -l)
[ "$listed" -gt 100 ] || fail "trireme options lists $listed options"
for shell in bash fish; do
  "$TRIREME" options | awk '/^ *[a-z]+\.[a-z]/ { print $1 }' | while read -r option; do
    grep -qF -- "--$option=" $shell.txt || { echo "$option" > missing; break; }
  done
  [ ! -e missing ] || fail "$shell: no option $(cat missing)"
done
pass "every option is in the scripts"
for shell in zsh fish; do
  if command -v $shell > /dev/null; then
    $shell -n $shell.txt > log 2>&1 || { cat log; fail "$shell does not parse its script"; }
    pass "$shell parses its script"
  else
    echo "SKIPPED: syntax of the script of $shell (no $shell)"
  fi
done
finish
