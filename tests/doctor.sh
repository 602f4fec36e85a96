#!/bin/bash
# trireme doctor on this machine: nothing found where nothing is wrong, and planted faults, each found by its check
# alone: a launcher of another MPI, ranks of two builds, threads that share a core, old kernels of OpenBLAS, folders
# that are absent, read-only, full or small, and an fsync that fails or does not end.
set -u
. "$(dirname "$0")/lib.sh"
TRIREME=$(realpath "$TRIREME")
scratch
export HWLOC_HIDE_ERRORS=1

# doctor STATUS COMMAND...: runs it; its lines are in lines
doctor() {
  timeout 60 "${@:2}" > lines 2> errors
  local status=$?
  [ $status = "$1" ] || { cat lines errors; fail "status $status of ${*:2}"; }
}
# finds CHECK TEXT: a problem of this check, with this text and this host, and no other
finds() {
  grep -q "^problem *$1 .*$2.*\[$(hostname)\]$" lines && [ "$(grep -vc '^ok ' lines)" = 1 ] ||
    { cat lines errors; fail "not found: $1: $2"; }
  pass "$1: $2"
}
# An OpenBLAS older than this processor, or settings of this machine, would be findings by themselves.
timeout 60 "$TRIREME" doctor > lines 2>&1 || { cat lines; skip "this machine has problems"; }

# shellcheck disable=SC2206 # MPIEXEC is a list of words
two=($MPIEXEC -n 2)
cores=$(env -u OMP_NUM_THREADS nproc)
mkdir folder
if [ "$cores" -ge 2 ]; then
  doctor 0 "${two[@]}" "$TRIREME" doctor --dir=folder
  [ "$(grep -c '^ok ' lines)" = 11 ] && [ "$(wc -l < lines)" = 11 ] &&
    grep -q '^ok  *launch  *one job of 2 ranks$' lines ||
    { cat lines; fail "not eleven checks that are well"; }
  [ -z "$(ls -A folder)" ] || fail "files are left: $(ls -A folder)"
  pass "eleven checks, no problem, no file left"
fi

# what another launcher sets: this process is one of four to it, and alone to MPI
doctor 1 env PMI_SIZE=4 PMI_RANK=0 "$TRIREME" doctor
finds launch "rank 0 of 4 (PMI_SIZE), but MPI sees a job of one rank"
doctor 1 env PMI_SIZE=4 PMI_RANK=1 "$TRIREME" doctor
[ ! -s lines ] || { cat lines; fail "rank 1 of a broken launch prints, too"; }

# a rank that never comes: nothing waits longer than its time
began=$SECONDS
# shellcheck disable=SC2086 # MPIEXEC is a list of words
doctor 1 $MPIEXEC -n 1 "$TRIREME" doctor --limit=1 : -n 1 sleep 30
finds network "MPI does not start within the time limit: rank 0 waits for others"
at_least 15 $((SECONDS - began)) || fail "$((SECONDS - began)) s for a limit of 1 s"

cp "$TRIREME" other && echo >> other
if [ "$cores" -ge 2 ]; then
  # shellcheck disable=SC2086 # the same
  doctor 1 $MPIEXEC -n 1 "$TRIREME" doctor : -n 1 ./other doctor
  finds versions "program: trireme .*, and rank 0 on $(hostname) has trireme"
  doctor 1 env OMP_NUM_THREADS=$cores "${two[@]}" "$TRIREME" doctor
  finds binding "2 ranks with $((2 * cores)) threads in all on $cores cores"
fi
core=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
doctor 1 taskset -c "$core" "${two[@]}" "$TRIREME" doctor
finds binding "2 ranks with 2 threads in all on 1 core"
doctor 1 env OMP_NUM_THREADS=2 taskset -c "$core" "$TRIREME" doctor --json
line='{"check":"binding","status":"problem","text":"1 rank with 2 threads in all on 1 core:.*","hosts":"'$(hostname)'"}'
grep -q "^$line$" lines || { cat lines; fail "no JSON line of the finding"; }
pass "--json: a rank with two threads on one core"
if grep -qw avx2 /proc/cpuinfo && "$TRIREME" doctor | grep -q 'openblas.*kernels for\|kernels for'; then
  doctor 1 env OPENBLAS_CORETYPE=Nehalem "$TRIREME" doctor
  finds blas "kernels for Nehalem on a processor with AVX"
fi

doctor 1 "$TRIREME" doctor --dir=absent
finds folder "absent: write: No such file or directory"
find_faults
doctor 1 env LD_PRELOAD="$FAULTS" FAULT_FOLDER=folder FAULT_AT=3 FAULT=EIO "$TRIREME" doctor --dir=folder
finds folder "fsync: Input/output error"
began=$SECONDS
doctor 1 env LD_PRELOAD="$FAULTS" FAULT_FOLDER=folder FAULT_DELAY=20 "$TRIREME" doctor --dir=folder --limit=1
finds folder "fsync: no answer within 1 s"
at_least 8 $((SECONDS - began)) || fail "$((SECONDS - began)) s for a limit of 1 s"

[ "$(id -u)" = 0 ] && mkdir disk && mount -t tmpfs -o size=8M tmpfs disk 2> /dev/null || finish
trap 'umount disk; rm -rf "$work"' EXIT
doctor 1 "$TRIREME" doctor --dir=disk
finds folder "disk: [78] MiB free: checkpoints may not fit"
head -c 16M /dev/zero > disk/full 2> /dev/null
doctor 1 "$TRIREME" doctor --dir=disk
finds folder "disk: write: No space left on device: free some space"
rm disk/full
mount -o remount,ro disk
doctor 1 "$TRIREME" doctor --dir=disk
finds folder "disk: write: Read-only file system"
finish
