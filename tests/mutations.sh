#!/bin/bash
# Mutations: each changes one rule in the source, and a suite must notice. Not part of make check, since all of them
# take an hour; `make mutation` runs them.
#
#   tests/mutations.sh [PATTERN]    only mutations whose name or file matches (grep -E); make mutation MUTATIONS=PATTERN
#
# The tables are in tests/mutations/. Works on a copy of the tree, configured like ./build. Prints a table. Fails if a
# mutation survives that is not known to, does not apply or does not build, or if a suite fails without any.
set -u
. "$(dirname "$0")/lib.sh"
pattern=${1-.}
from=$(cd "$top_srcdir" && pwd)
scratch
tree=$work/tree
names=() files=() changes=() suites=() ranks=() reasons=()

# mutation NAME FILE CHANGE SUITE [RANKS [REASON]]: CHANGE is a sed -E expression on FILE; SUITE a script of tests/, or a
# program of tests/unit/, which runs on RANKS ranks; PROGRAM:TESTS runs those of its tests whose names have one of the
# texts ("softmax|dropout"). REASON: why no test can notice it; it must survive.
mutation() {
  echo "$1 $2" | grep -qE -- "$pattern" || return 0
  names+=("$1") files+=("$2") changes+=("$3") suites+=("$4") ranks+=("${5-}") reasons+=("${6-}")
}
for table in "$from"/tests/mutations/*.sh; do
  # shellcheck source=/dev/null # tables
  . "$table"
done

# suite NAME [RANKS]: runs it in the copy; its output goes to suite.log.
suite() (
  cd "$tree/build" || exit 99
  export TRM_TEST_LIMIT=60 TRM_TEST_RANKS=${2-} OMP_WAIT_POLICY=passive MPIEXEC
  export top_srcdir=$tree top_builddir=$tree/build TRIREME=$tree/build/trireme
  case $1 in
    *.sh) bash "$tree/tests/$1" ;;
    *:*) TRM_TEST_ONLY=${1#*:} bash "$tree/tests/run_matrix.sh" "tests/unit/${1%%:*}" ;;
    *) bash "$tree/tests/run_matrix.sh" "tests/unit/$1" ;;
  esac > "$work/suite.log" 2>&1
)
# What scripts need besides trireme: programs, and libraries that they preload.
support=$(printf 'tests/support/%s ' compare_weights mismatch faults.la bitflip.la wire.la)
# build SUITE...: builds the programs of these suites
build() {
  local programs
  programs=$(printf '%s\n' "$@" | sed -n 's,^\(test_[a-z_0-9]*\).*,tests/unit/\1,p; s,.*\.sh$,trireme,p' | sort -u)
  [[ $programs != *trireme* ]] || programs="$programs $support"
  # shellcheck disable=SC2086 # several
  make -s -j2 -C "$tree/build" $programs > build.log 2>&1
}

# -- the copy, and its suites without a mutation
[ ${#names[@]} -gt 0 ] || fail "no mutation matches $pattern"
mkdir -p "$tree/build" && tar -C "$from" --exclude=./.git --exclude='./build' -cf - . | tar -C "$tree" -xf -
[ -x "$tree/configure" ] || (cd "$tree" && ./bootstrap > bootstrap.log 2>&1) || fail "bootstrap"
options=$([ -x "$from/build/config.status" ] && "$from/build/config.status" --config)
(cd "$tree/build" && eval "../configure -q $options" > configure.log 2>&1) || fail "configure"
build "${suites[@]}" || { tail -20 build.log; fail "the tree does not build"; }
while IFS=';' read -r name on; do
  suite "$name" "$on" || { tail -20 suite.log; fail "$name $on fails without a mutation"; }
done < <(for i in "${!suites[@]}"; do echo "${suites[i]};${ranks[i]}"; done | sort -u)

# -- the table
begin=$SECONDS caught=0 wrong=0
for i in "${!names[@]}"; do
  file=${files[i]} name=${suites[i]} on=${ranks[i]}
  sed -E "${changes[i]}" "$from/$file" > "$tree/$file"
  if cmp -s "$from/$file" "$tree/$file"; then
    result='NOT APPLIED'
  elif ! build "$name"; then
    result='NOT BUILT'
  elif suite "$name" "$on"; then
    result=${reasons[i]:+survives} result=${result:-NOT CAUGHT}
  else
    result=${reasons[i]:+NOT EXPECTED} result=${result:-caught}
  fi
  cp "$from/$file" "$tree/$file"
  case $result in
    caught) caught=$((caught + 1)) ;;
    survives) ;;
    *) wrong=$((wrong + 1)) ;;
  esac
  printf '%-12s  %-56s  %s\n' "$result" "${names[i]}" "${reasons[i]:-$name${on:+ on $on ranks}}"
done
echo "$caught of ${#names[@]} mutations are caught, in $((SECONDS - begin)) s"
[ $wrong = 0 ] || fail "$wrong mutations"
pass "the others cannot be"
finish
