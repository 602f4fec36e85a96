# shellcheck shell=bash
# Shared by the test scripts. Sourced. The build sets these variables; run by hand, a script tests ./build.
: "${top_srcdir:=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}"
: "${TRIREME:=$top_srcdir/build/trireme}"
: "${MPIEXEC:=mpiexec}"
checks=0

# all_cases: true where TRM_TEST_ALL is 1 or names this test: every case, otherwise a part of those that are alike
all_cases() {
  local name=${0##*/}
  case " ${TRM_TEST_ALL:-} " in *" 1 "* | *" ${name%.sh} "*) ;; *) return 1 ;; esac
}

pass() { checks=$((checks + 1)); echo "ok: $*"; }
fail() { echo "FAILED: $*"; exit 1; }
skip() { echo "SKIPPED: $*"; exit 77; }

# Ends a script; a script without checks fails.
finish() {
  [ $checks -gt 0 ] || fail "nothing was checked"
  echo "$checks checks passed"
  exit 0
}

# json_number KEY FILE, json_text KEY FILE: a value of a one-line JSON object
json_number() { sed -n "s/.*\"$1\":\([-+0-9.eE]*\|null\).*/\1/p" "$2"; }
json_text() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$2"; }

at_least() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a != "null" && a + 0 >= b + 0) }'; }

# launch N PROGRAM...: runs a job of N ranks under a timeout
launch() {
  local n=$1
  shift
  timeout -k 10 "${LAUNCH_LIMIT:-120}" $MPIEXEC -n "$n" "$@"
}

# launch_ranks N PROGRAM...: the same; the process ID of each rank is in rank.NUMBER
launch_ranks() {
  rm -f rank.*
  # shellcheck disable=SC2016 # that shell expands it
  launch "$1" bash -c 'echo $$ > "rank.${PMI_RANK:-$OMPI_COMM_WORLD_RANK}"; exec "$@"' rank "${@:2}"
}

# awaits LINES FILE JOB: returns when FILE has so many lines, or the background job has ended
awaits() {
  until [ "$(cat "$2" 2> /dev/null | wc -l)" -ge "$1" ] || ! kill -0 "$3" 2> /dev/null; do sleep 0.02; done
}

# find_preloaded NAME: sets PRELOADED to the library of tests/support/NAME.c. find_faults: sets FAULTS to that of faults.c
find_preloaded() {
  TRIREME=$(realpath "$TRIREME")
  PRELOADED=$(realpath "$(dirname "$TRIREME")/tests/support/.libs/$1.so") && [ -e "$PRELOADED" ] ||
    fail "tests/support/$1.la is not built (make check builds it)"
  ! nm -D "$TRIREME" 2> /dev/null | grep -q __asan_init || skip "a preloaded library would come before the sanitizer's"
}
find_faults() { find_preloaded faults && FAULTS=$PRELOADED; }
# scratch: changes to a new folder, removed at the end. One thread per rank.
scratch() {
  work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT && cd "$work" || exit 99
  export OMP_NUM_THREADS=1
}
# openblas_only: for scripts of many short runs that are not about products. oneDNN generates its kernels for AVX-512 in
# each process, which takes as long as such a run; without them OpenBLAS computes all products in float32.
openblas_only() { export DNNL_MAX_CPU_ISA=AVX2; }
# digits TRAIN TEST: writes rendered digits to digits.h5
digits() {
  "$TRIREME" data make digits --out digits.h5 --train="$1" --test="$2" --seed=7 > make.log 2>&1 ||
    { cat make.log; fail "data make digits"; }
}
# letters: writes 4,000 characters that follow a rule, as tokens, to text.h5
letters() {
  awk 'BEGIN { for (i = 0; i < 4000; i++) printf "%s%s", substr("abcdefghij klmnop", (i * i + int(i / 7)) % 17 + 1, 1),
               i % 40 == 39 ? "\n" : "" }' > text.txt
  "$TRIREME" data import text text.txt --out=text.h5 > import.log 2>&1 || { cat import.log; fail "data import text"; }
}

# numpy_bytes FILE SHAPE BYTES: an array of NumPy of unsigned bytes, with escapes of printf
numpy_bytes() {
  { printf '\x93NUMPY\x01\x00v\x00'; printf "%-117s\n" "{'descr': '|u1', 'fortran_order': False, 'shape': $2, }"
    printf '%b' "$3"; } > "$1"
}
# commands FILE: the lines that are indented by four spaces, in a page; a trailing \ continues the line
commands() { sed -n 's/^    //p' "$1" | sed -e ':a' -e '/\\$/N; s/ *\\\n */ /; ta'; }

# try N NAME OPTION...: trains config.yaml on N ranks in run directory NAME; returns the status. run: must succeed.
try() {
  local n=$1 name=$2
  shift 2
  launch "$n" "$TRIREME" train "${config:-config.yaml}" --run.dir="$name" "$@" > "$name.log" 2>&1
}
run() { try "$@" || { cat "$2.log"; fail "$2: $1 ranks, ${config:-config.yaml} ${*:3}"; }; }
# run_of N MODEL NAME OPTION...: the same with MODEL.yaml
run_of() {
  local config=$2.yaml
  run "$1" "${@:3}"
}

# Values of a run: hash of its weights; a number of its summary. equal A B: both end with the same bits.
sha() { json_text weights_sha256 "$1/summary.json"; }
of() { json_number "$2" "$1/summary.json"; }
equal() {
  [ -n "$(sha "$1")" ] && [ "$(sha "$1")" = "$(sha "$2")" ] || fail "${3:+$3: }$2 and $1 end with different weights"
  pass "${3:+$3: }$2 and $1 end with the same bits"
}
