# shellcheck shell=bash
# What the test scripts share. Sourced. The build sets these; run by hand, a script tests ./build.
: "${top_srcdir:=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}"
: "${TRIREME:=$top_srcdir/build/trireme}"
: "${MPIEXEC:=mpiexec}"
checks=0

pass() { checks=$((checks + 1)); echo "ok: $*"; }
fail() { echo "FAILED: $*"; exit 1; }
skip() { echo "SKIPPED: $*"; exit 77; }

# Ends a script: a script that checked nothing has failed.
finish() {
  [ $checks -gt 0 ] || fail "nothing was checked"
  echo "$checks checks passed"
  exit 0
}

# json_number KEY FILE, json_text KEY FILE: a value of a one-line JSON object
json_number() { sed -n "s/.*\"$1\":\([-+0-9.eE]*\|null\).*/\1/p" "$2"; }
json_text() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$2"; }

at_least() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a != "null" && a + 0 >= b + 0) }'; }

# launch N PROGRAM...: a job of N ranks, ended if it hangs
launch() {
  local n=$1
  shift
  timeout -k 10 "${LAUNCH_LIMIT:-120}" $MPIEXEC -n "$n" "$@"
}
