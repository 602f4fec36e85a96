#!/bin/bash
# Runs of one and two ranks are killed again and again, at random times from their start to their end, every second time
# at a system call that changes the run directory, and resume each time: nothing is lost, nothing hangs, no file is left
# in the run directory, weights and metrics are those of an undisturbed run. (The MPI library may leave shared memory of
# a process that is killed while MPI starts.)
#   tests/kills.sh [KILLS]    make check: 24
set -u
. "$(dirname "$0")/lib.sh"
kills=${1-24}
find_faults
scratch
digits 300 30
cat > config.yaml << 'EOT'
model: mlp 784-8-10
data: {file: digits.h5, validation: 0.1}
train: {epochs: 4, batch: 10}
optim: {name: adam, lr: 0.01}
parallel: {threads: 1}
run: {seed: 3, resume: auto, checkpoint_every: 9}
log: {every: 4, quiet: yes}
EOT
RANDOM=${KILLS_SEED:-1}
record() { sed 's/"\(wall\|train\)_s":[^,]*,//g' "$1/metrics.jsonl"; }

for ranks in 1 2; do
  run $ranks "whole$ranks"
  began=$(date +%s%N)
  run $ranks timed
  rm -r timed
  declare "milliseconds$ranks=$((($(date +%s%N) - began) / 1000000))"
done

# killed RANKS RUN: starts the run and kills it; true if it has ended before. One of the job's processes is killed, and
# the launcher ends the others; or all at once.
killed() {
  local ranks=$1 name=$2 life=milliseconds$1 status pid
  if [ $((done_kills % 2)) = 0 ]; then
    FAULT_AT=$((RANDOM % 110 + 1)) FAULT=kill FAULT_FOLDER=$work/$name/ LD_PRELOAD=$FAULTS \
      timeout -k 5 60 $MPIEXEC -n "$ranks" "$TRIREME" train config.yaml --run.dir="$work/$name" > "$name.log" 2>&1
    status=$?
  else
    rm -f rank.*
    launch_ranks "$ranks" "$TRIREME" train config.yaml --run.dir="$work/$name" > "$name.log" 2>&1 &
    job=$!
    sleep "$(awk -v n=$RANDOM -v life="${!life}" 'BEGIN { printf "%.3f", n / 32768 * life / 1000 }')"
    for pid in $(cat rank.* 2> /dev/null); do
      kill -KILL "$pid" 2> /dev/null
      [ $((RANDOM % 2)) = 0 ] || break
    done
    wait $job
    status=$?
  fi
  [ $status != 124 ] || { cat "$name.log"; fail "$name: hangs after a kill"; }
  [ $status != 0 ]
}

done_kills=0 runs=0
while [ $done_kills -lt "$kills" ]; do
  ranks=$((runs % 2 + 1)) name=run$runs
  for ((tries = 0; tries < 8; tries++)); do
    killed $ranks "$name" 2> /dev/null || break
    done_kills=$((done_kills + 1))
  done
  run $ranks "$work/$name"
  [ "$(sha "$name")" = "$(sha whole$ranks)" ] || fail "$name: other weights after $tries kills"
  cmp -s <(record whole$ranks) <(record "$name") ||
    { diff <(record whole$ranks) <(record "$name"); fail "$name: other metrics after $tries kills"; }
  left=$(find "$name" \( -name '*.new' -o -name 'lease*' -o -name 'node-*' \))
  [ -z "$left" ] || fail "$name: $left is left"
  rm -r "$name"
  runs=$((runs + 1))
done
pass "$done_kills kills in $runs runs: all resumed to equal weights and metrics"
finish
