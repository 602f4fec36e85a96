#!/bin/bash
# Stopping and resuming whole runs: any number of signals, damaged checkpoints, directories that cannot be read, the
# state that `trireme status` gives to batch scripts. tests/unit/test_resume.c stops a run after each of its steps.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 600 60
cat > config.yaml << 'EOT'
model: linear 16 | tanh | dropout 0.2 | linear 10
data: {file: digits.h5, validation: 0.1}
train: {steps: 14, batch: 60}
optim: {name: momentum, lr: 0.1, momentum: 0.9}
parallel: {threads: 1}
run: {seed: 3, checkpoint_every: 4}
log: {every: 3, quiet: yes}
EOT
record() { sed 's/"\(wall\|train\)_s":[^,]*,//g' "$1/metrics.jsonl"; }
# is STATE RUN: the exit status of `trireme status`
is() {
  "$TRIREME" status "$2" --exit-code > status.log 2>&1
  local code=$?
  [ $code = "$1" ] || { cat status.log; fail "status of $2: $code, not $1"; }
}
# refused RUN PATTERN OPTION...: fails with one error, and the record is unchanged
refused() {
  local name=$1 pattern=$2
  cp "$name/metrics.jsonl" before
  try 1 "$name" "${@:3}"
  [ $? = 1 ] && grep -q "error: .*$pattern" "$name.log" || { cat "$name.log"; fail "$name ${*:3}: not refused"; }
  cmp -s before "$name/metrics.jsonl" || fail "$name ${*:3}: refused, and the record was changed"
  pass "refused: $(grep error: "$name.log")"
}
# cut FILE: cuts it short. change FILE: changes bytes of the large array in its first half, the weights
cut() { truncate -s 3000 "$1"; }
change() { printf '\377%.0s' {1..256} | dd of="$1" bs=1 seek=$(($(stat -c %s "$1") / 4)) conv=notrunc 2> /dev/null; }

# -- a directory that cannot be listed is no empty one
run 1 whole
is 0 whole
grep -q '^test .*step 14, epoch 2: loss' status.log || { cat status.log; fail "status without the latest scores"; }
cp -r whole unlisted
rm -r unlisted/checkpoints unlisted/summary.json
: > unlisted/checkpoints
refused unlisted 'unlisted/checkpoints: cannot be listed: ' --run.resume=auto
refused unlisted 'unlisted/checkpoints: cannot be listed: ' --run.overwrite=yes
is 5 unlisted
is 2 nothing

# -- a file that never answers: a signal ends the set-up, in which there is nothing to save
mkfifo pipe.safetensors
timeout -k 1 60 "$TRIREME" train config.yaml --run.dir=waits --model.init=pipe.safetensors > waits.log 2>&1 &
job=$!
until pid=$(pgrep -P $job) && grep -q '^SigCgt:.*[4567cdef]...$' "/proc/$pid/status"; do sleep 0.05; done
sleep 0.2
kill -TERM "$pid"
wait $job
status=$?
[ $status = 3 ] || { cat waits.log; fail "a signal to a process that waits for a file: status $status, not 3"; }
pass "a signal ends a process that waits for a file"

# -- the newest checkpoint is damaged: the run goes on from the one before, and ends as it would have
cp -r whole damaged
rm damaged/summary.json
change damaged/checkpoints/step-00000014.h5
cp -r damaged explicit
cp -r damaged none
run 1 damaged --run.resume=auto
grep -q 'warning: .*step-00000014.h5: .* is damaged.*step-00000012.h5' damaged.log ||
  { cat damaged.log; fail "no warning"; }
equal whole damaged "step 14 damaged"
cmp -s <(record whole) <(record damaged) || { diff <(record whole) <(record damaged); fail "another record"; }
is 0 damaged
refused explicit 'checkpoints/last.h5: ' --run.resume=explicit/checkpoints/last.h5
for file in none/checkpoints/step-*; do cut "$file"; done
refused none 'no checkpoint of none can be read' --run.resume=auto

# -- it stays, and is not counted among those that are kept, until its step is made again
cp -r whole kept
rm kept/summary.json
cut kept/checkpoints/step-00000014.h5
run 1 kept --run.resume=auto --train.steps=30 --run.keep=2 --run.checkpoint_every=15
names=$(cd kept/checkpoints && echo step-*)
[ "$names" = "step-00000014.h5 step-00000015.h5 step-00000030.h5" ] || fail "kept: $names"
[ "$(stat -c %s kept/checkpoints/step-00000014.h5)" = 3000 ] || fail "the damaged file was changed"
pass "a damaged checkpoint stays beside the newest two"

# -- failures of linking and removing are reported
run 1 unlinked --train.steps=4
rm unlinked/checkpoints/last.h5
mkdir -p unlinked/checkpoints/step-00000002.h5 unlinked/checkpoints/last.h5/folder
run 1 unlinked --run.resume=auto --run.keep=1
for file in last.h5 step-00000002.h5; do
  grep -q "warning: .*$file: cannot be" unlinked.log || { cat unlinked.log; fail "no warning of $file"; }
done
pass "warnings: $(grep -c 'cannot be' unlinked.log)"

# -- a position beyond the data set
run 1 beyond --train.steps=6 --data.validation=0
try 1 beyond --run.resume=auto --data.validation=0 --data.limit=200
[ $? = 2 ] && grep -q 'beyond.*: is 360 samples into an epoch.* 200 training samples' beyond.log ||
  { cat beyond.log; fail "a position beyond the samples"; }
pass "refused: $(grep error: beyond.log)"

# -- several signals: one checkpoint, status 3, and the record of the run that was not stopped, on 1 and 2 ranks
stops() { # RANKS NAME SIGNAL...
  local n=$1 name=$2 signal job status
  launch_ranks "$n" "$TRIREME" train config.yaml --run.dir="$name" --run.checkpoint_every=0 --train.steps=1000000 \
    --device.compute=sleep --device.gflops=0.05 > "$name.log" 2>&1 &
  job=$!
  awaits 2 "$name/metrics.jsonl" $job
  is 5 "$name"
  for signal in "${@:3}"; do
    kill "-$signal" "$(cat "rank.$((n - 1))")" || { cat "$name.log"; fail "$name: the run has ended"; }
  done
  wait $job
  status=$?
  [ $status = 3 ] || { cat "$name.log"; fail "$name: status $status after ${*:3}"; }
  is 3 "$name"
  local steps=$(($(of "$name" steps) + 5))
  run "$n" "$name" --run.resume=auto --run.checkpoint_every=0 --train.steps=$steps
  is 0 "$name"
  run "$n" "$name-whole" --run.checkpoint_every=0 --train.steps=$steps
  equal "$name-whole" "$name" "${*:3}"
  cmp -s <(record "$name-whole") <(record "$name") ||
    { diff <(record "$name-whole") <(record "$name"); fail "$name: another record after a stop"; }
  pass "$n ranks, ${*:3}: stopped, resumed after step $((steps - 5)): the same record"
}
stops 1 alone USR1 TERM TERM INT INT INT USR1
stops 2 pair TERM USR1 TERM

# -- a failed run, and one that is resumed after it: results of an earlier process are not its own
try 1 failed --optim.lr=1e38
[ $? = 1 ] || { cat failed.log; fail "a run without finite loss"; }
is 1 failed
"$TRIREME" train config.yaml --run.dir=failed --run.resume=auto --train.steps=1000000 > again.log 2>&1 &
job=$!
awaits 5 failed/metrics.jsonl $job
kill -KILL $job
wait $job 2> /dev/null
is 5 failed
pass "a resumed run has no results of an earlier process"
finish
