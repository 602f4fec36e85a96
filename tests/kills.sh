#!/bin/bash
# The kill campaign: runs under `trireme run` are killed again and again and end nevertheless: nothing is lost, nothing
# hangs, no file is left in the run directory nor in shared memory, weights and metrics are those of an undisturbed run
# (of an asynchronous method the number of steps). Of eight kills two come at any time, one at any system call that
# changes the run directory, two in start-up, one in a save, two in teardown. A table counts them by the phase, as the
# run directory shows it after the kill.
#   tests/kills.sh [KILLS [JOBS]]    make check: 24 kills, one job at a time. KILLS_SEED: of the times; 1
set -u
. "$(dirname "$0")/lib.sh"
kills=${1-24} jobs=${2-1}
find_faults
if [ -z "${OWN_SHM-}" ]; then # shared memory of its own, in which no other test leaves anything
  export OWN_SHM=no
  ! unshare --mount mount -t tmpfs tmpfs /dev/shm 2> /dev/null || OWN_SHM=yes
  # shellcheck disable=SC2016 # that shell expands it
  [ $OWN_SHM = no ] || exec unshare --mount bash -c 'mount -t tmpfs tmpfs /dev/shm && exec bash "$@"' - "$0" "$@"
fi
script=$(realpath "${0%.sh}_job.sh")
scratch
openblas_only
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
ranks=(1 2 2 2)
option=(--parallel.zero=0 --parallel.zero=0 --parallel.zero=2 --strategy.name=asgd)

# record RUN: what kills must not change
record() {
  [ -e "$1/staleness.json" ] && of "$1" steps && return
  sha "$1"
  sed 's/"\(wall\|train\)_s":[^,]*,//g' "$1/metrics.jsonl"
}
for i in "${!ranks[@]}"; do
  began=$(date +%s%N)
  run "${ranks[i]}" "whole$i" "${option[i]}"
  life[i]=$((($(date +%s%N) - began) / 1000000))
  record "whole$i" > "whole$i.record"
done

# problem KIND: of this run, which counts for the phase of its latest kill
problem() {
  echo "$(grep kill table | tail -1 | cut -d' ' -f1) $1" >> table
  find "$RUN" >> "$RUN.log"
  cp -r "$RUN" "$RUN.log" ../failed
}

# job NUMBER: its part of the kills
job() {
  local i=0 shape
  mkdir "job$1" && cd "job$1" && ln -s ../digits.h5 ../config.yaml . && : > table || exit 99
  RANDOM=$((${KILLS_SEED:-1} * 100 + $1))
  export RUN PLANNED SEED LIFE FAULTS TRIREME TABLE=$PWD/table
  while [ "$(grep -c kill table)" -lt $(((kills + jobs - 1) / jobs)) ]; do
    shape=$((i % ${#ranks[@]})) SEED=$RANDOM
    RUN=$PWD/run$1-$i PLANNED=$((RANDOM % 12 + 1)) LIFE=${life[shape]}
    timeout -k 5 300 "$TRIREME" run --restarts=1 -- "$script" $MPIEXEC -n "${ranks[shape]}" "$TRIREME" train config.yaml \
      "${option[shape]}" --run.dir="$RUN" > "$RUN.log" 2>&1
    case $? in
      0) ;;
      124) problem hang ;;
      *) problem failed ;;
    esac
    cmp -s <(record "$RUN") "../whole$shape.record" || problem unequal
    [ -z "$(find "$RUN" -name '*.new' -o -name 'lease*' -o -name 'node-*')" ] || problem leftover
    rm -r "$RUN"*
    i=$((i + 1))
  done
}
mkdir failed
for ((i = 0; i < jobs; i++)); do job $i & done
wait
cat job*/table > table
[ $OWN_SHM = no ] || find /dev/shm -type f -printf 'shared-memory leftover\n' >> table

row() { printf '%-14s%7s%7s%7s%7s%10s%8s\n' "$@"; }
row phase kills failed lost hangs leftovers unequal
for phase in start-up training save teardown shared-memory; do
  # shellcheck disable=SC2046 # one word each
  row $phase $(for kind in kill failed lost hang leftover unequal; do grep -c "^$phase $kind" table; done)
done
problems=$(grep -vc kill table)
[ "$problems" = 0 ] || { cat failed/*.log 2> /dev/null | head -50; fail "$problems problems after $(grep -c kill table) kills"; }
pass "$(grep -c kill table) kills: all runs went on to equal weights and metrics"
finish
