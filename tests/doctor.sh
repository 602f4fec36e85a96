#!/bin/bash
# trireme doctor on this machine: nothing found where nothing is wrong, and planted faults, each found by its check
# alone, with its remedy: a launcher of another MPI, ranks of two builds, threads that share a core, old kernels of
# OpenBLAS, a BLAS that cannot be divided among threads or is slow, folders that are absent, read-only, full or small,
# and an fsync that fails, does not end, or has no effect.
set -u
. "$(dirname "$0")/lib.sh"
TRIREME=$(realpath "$TRIREME")
[ "$(stat -f -c %T "${TMPDIR:-/tmp}")" != tmpfs ] || export TMPDIR=$PWD # in memory: a finding by itself
scratch
export HWLOC_HIDE_ERRORS=1

# doctor STATUS COMMAND...: runs it; its lines are in lines. STATUS failed: any but 0.
doctor() {
  timeout 60 "${@:2}" > lines 2> errors
  local status=$?
  if [ "$1" = failed ]; then [ $status != 0 ]; else [ $status = "$1" ]; fi ||
    { cat lines errors; fail "status $status of ${*:2}"; }
}
# finds CHECK TEXT [REMEDY]: a problem of this check, with this text, remedy and host, and no other
finds() {
  grep -q "^problem *$1 .*$2.*${3-: .*}\[$(hostname)\]$" lines && [ "$(grep -vc '^ok ' lines)" = 1 ] ||
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
if command -v mpiexec.openmpi > /dev/null && [[ $("$TRIREME" --version) == *MPICH* ]]; then
  doctor 1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpiexec.openmpi --oversubscribe -n 2 \
    "$TRIREME" doctor
  finds launch "rank 0 of 2 (OMPI_COMM_WORLD_SIZE), but MPI sees a job of one rank" "the launcher and .*"
else
  echo "SKIPPED: the launcher of another MPI (Debian: openmpi-bin)"
fi

# a rank that never comes: nothing waits longer than its time
began=$SECONDS
# shellcheck disable=SC2086 # MPIEXEC is a list of words
doctor failed $MPIEXEC -n 1 "$TRIREME" doctor --limit=1 : -n 1 sleep 30 # Hydra's status may be that of the other
finds network "MPI does not start within the time limit: rank 0 waits for others"
at_least 15 $((SECONDS - began)) || fail "$((SECONDS - began)) s for a limit of 1 s"

cp "$TRIREME" other && echo >> other
if [ "$cores" -ge 2 ]; then
  # shellcheck disable=SC2086 # the same
  doctor 1 $MPIEXEC -n 1 "$TRIREME" doctor : -n 1 ./other doctor
  finds versions "program: trireme .*, and rank 0 on $(hostname) has trireme"
  doctor 1 env OMP_NUM_THREADS=$cores "${two[@]}" "$TRIREME" doctor
  finds binding "2 ranks with $((2 * cores)) threads in all on $cores cores"
  # OpenMP's library binds the first thread to one core, and threads inherit its cores: not those of the program
  doctor 0 env OMP_NUM_THREADS=2 OMP_PROC_BIND=close OMP_PLACES=cores "$TRIREME" doctor
  grep -q '^ok *binding .*threads in all: 2,' lines && pass "OMP_PROC_BIND takes no cores away"
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

find_preloaded uneven_blas
if [ "$cores" -ge 2 ]; then
  doctor 0 env OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1 "$TRIREME" doctor # the program divides products
  grep -q '^ok *blas .*, 2 threads, ' lines || { cat lines; fail "not two threads"; }
  doctor 1 env OMP_NUM_THREADS=2 LD_PRELOAD="$PRELOADED" "$TRIREME" doctor
  finds blas "1 of 2 threads compute a large product" "use OpenBLAS, .*"
fi
reference=$(find /usr/lib/*/blas /usr/lib64 -maxdepth 1 -name 'libblas.so.3' 2> /dev/null | head -1)
if [ -n "$reference" ] && nm -D "$reference" | grep -q ' T cblas_sgemm$' && grep -qw avx2 /proc/cpuinfo; then
  doctor 1 env LD_PRELOAD="$reference" "$TRIREME" doctor
  finds blas "Gflop a second of a core, as with the reference BLAS" "let the loader find OpenBLAS .*"
else
  echo "SKIPPED: the reference BLAS (Debian: libblas3)"
fi

doctor 1 "$TRIREME" doctor --dir=absent
finds folder "absent: write: No such file or directory" "name a folder that this user may write to "
find_preloaded no_fsync
doctor 1 env LD_PRELOAD="$PRELOADED" "$TRIREME" doctor --dir=folder
finds folder "fsync: .*: a preloaded library ignores it" "take it out of LD_PRELOAD "
find_faults
doctor 1 env LD_PRELOAD="$FAULTS" FAULT_FOLDER=folder FAULT_AT=3 FAULT=EIO "$TRIREME" doctor --dir=folder
finds folder "fsync: Input/output error" "name another one for run.dir "
began=$SECONDS
doctor 1 env LD_PRELOAD="$FAULTS" FAULT_FOLDER=folder FAULT_DELAY=20 "$TRIREME" doctor --dir=folder --limit=1
finds folder "fsync: no answer within 1 s"
at_least 8 $((SECONDS - began)) || fail "$((SECONDS - began)) s for a limit of 1 s"

[ "$(id -u)" = 0 ] && mkdir disk && mount -t tmpfs -o size=8M tmpfs disk 2> /dev/null || finish
trap 'umount -q merged; umount disk; rm -rf "$work"' EXIT
doctor 1 "$TRIREME" doctor --dir=disk
finds folder "disk: [78] MiB free: checkpoints may not fit" "free some space "
head -c 16M /dev/zero > disk/full 2> /dev/null
doctor 1 "$TRIREME" doctor --dir=disk
finds folder "disk: write: No space left on device" "free some space, or raise the quota "
rm disk/full
mount -o remount,ro disk
doctor 1 "$TRIREME" doctor --dir=disk
finds folder "disk: write: Read-only file system" "name a folder on another file system "
mount -o remount,rw,size=2G disk # takes no memory
doctor 1 "$TRIREME" doctor --dir=disk
finds folder "disk: fsync has no effect (it is the host's memory)" "name a folder on a disk .*"
mkdir lower upper overlay merged
if mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=overlay,volatile overlay merged 2> /dev/null; then
  doctor 1 "$TRIREME" doctor --dir=merged
  finds folder "merged: fsync has no effect (an overlay that is mounted volatile)" "name a folder on a disk .*"
else
  echo "SKIPPED: no volatile overlay here"
fi
finish
