#!/bin/bash
# A rank on one of two hosts is killed at any moment, from its start to the end of the run: the launcher says which, and
# trireme run what follows, in one line; no rank that is well says anything. Nothing hangs, and the job goes on to the
# weights and metrics of an undisturbed run. Nothing is left in the run directory.
#   tests/kills_hosts.sh [KILLS]    make check: 3. KILLS_SEED: of the times; 1
set -u
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/hosts_lib.sh"
isolate "$@"
kills=${1-3}
scratch
openblas_only
start_hosts 2
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
place 2 2
option=(--parallel.zero=0 --parallel.zero=3)
record() { sha "$1" && sed 's/"\(wall\|train\)_s":[^,]*,//g' "$1/metrics.jsonl"; }
for i in 0 1; do
  began=$(date +%s%N)
  run 4 whole$i "${option[i]}"
  life[i]=$((($(date +%s%N) - began) / 1000000))
  record whole$i > whole$i.record
done

# kill_one ROUND SHAPE: starts the job under trireme run and kills a rank up to life milliseconds after all ranks have
# started; false if the run has ended before
kill_one() {
  local job victim=$((RANDOM % 4)) dir=run$1 status lines logged i
  rm -f rank.*
  # shellcheck disable=SC2016 # that shell expands it
  timeout -k 5 60 "$TRIREME" run --restarts=1 -- $MPIEXEC -n 4 bash -c 'echo $$ > "rank.$PMI_RANK"; exec "$@"' rank \
    "$TRIREME" train config.yaml "${option[$2]}" --run.dir="$dir" > "$dir.log" 2>&1 &
  job=$!
  for i in 0 1 2 3; do
    until [ -s rank.$i ] || ! kill -0 $job; do sleep 0.002; done
  done
  sleep "$(awk -v n=$RANDOM -v most="${life[$2]}" 'BEGIN { printf "%.3f", n / 32768 * most / 1000 }')"
  logged=$(wc -l 2> /dev/null < "$dir/metrics.jsonl")
  if ! kill -KILL "$(cat rank.$victim)" 2> /dev/null; then
    wait $job
    return 1
  fi
  wait $job
  status=$?
  [ $status = 0 ] || { cat "$dir.log"; fail "rank $victim killed: status $status"; }
  if ! grep -q -e 'EXIT CODE' -e 'run: restart' "$dir.log"; then # the rank had ended, and the launcher not yet seen it
    return 1
  fi
  # Of a run whose results are written nothing is left to do, and the launcher alone speaks. In a job's start the
  # launcher may write to a host's proxy that has just ended: SIGPIPE, status 141, ends it without a word.
  lines=$(grep '^trireme' "$dir.log" | grep -v 'warning: parallel.threads: ') # more ranks than a host's cores
  [[ $lines =~ ^('trireme: warning: run: restart 1 of 1 in 1 s: the job was cut off in '[^$'\n']*)?$ ]] &&
    { [ "$(grep -c 'EXIT CODE: 9' "$dir.log")" = 1 ] || grep -q 'status 141 of ' "$dir.log"; } ||
    { cat "$dir.log"; fail "rank $victim killed: other messages"; }
  cmp -s <(record "$dir") whole$2.record || { cat "$dir.log"; fail "rank $victim killed: another result"; }
  [ -z "$(find "$dir" -name '*.new' -o -name 'lease*' -o -name 'node-*')" ] || fail "files are left in the run directory"
  pass "rank $victim killed when metrics.jsonl had ${logged:-no} lines"
}
RANDOM=${KILLS_SEED:-1} killed=0
for ((i = 0; killed < kills && i < 5 * kills; i++)); do
  ! kill_one $i $((i % 2)) || killed=$((killed + 1))
done
[ $killed = "$kills" ] || fail "$killed kills of $kills"
finish
