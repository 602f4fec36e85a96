#!/bin/bash
# Checkpoints in the background, on a disk that takes 0.4 s for an fsync: training goes on meanwhile, and the files are
# those of training that waits. A failure ends the run with its message, a signal waits for the save.
set -u
. "$(dirname "$0")/lib.sh"
find_faults
scratch
openblas_only
digits 200 20
cat > config.yaml << 'EOT'
model: mlp 784-8-10
data: {file: digits.h5, validation: 0.1}
train: {steps: 12, batch: 10, evaluate_every: 10}
optim: {name: adam, lr: 0.01}
parallel: {threads: 1}
run: {seed: 3, checkpoint_every: 10}
log: {every: 1, quiet: yes}
EOT

# slow N NAME OPTION...: as try, on a slow disk
slow() { FAULT_DELAY=0.4 FAULT_FOLDER=/checkpoints LD_PRELOAD=$FAULTS try "$@"; }
# waits NAME: seconds between the lines of steps 10 and 11, where best.h5 and step-00000010.h5 are written
waits() {
  sed -n 's/.*"step":1\([01]\),.*"wall_s":\([0-9.]*\).*,"loss".*/\2/p' "$1/metrics.jsonl" |
    awk '{ t[NR] = $1 } END { print t[2] - t[1] }'
}
# whole FILE...: checkpoints without damage, and no others
whole() {
  [ "$(find "$(dirname "$1")" -name '*.new')" = "" ] || fail "$(dirname "$1"): an unfinished file is left"
  for file; do
    "$TRIREME" data info --check "$file" > info.log 2>&1 || { cat info.log; fail "$file is damaged"; }
  done
}

# same FILE FILE: two checkpoints with the same arrays. Between the run's name and the option the text of the configuration
# is shifted by one character, which changes hundreds of bytes; an update changes a hundred thousand.
same() {
  whole "$1" "$2"
  [ "$(stat -c %s "$1")" = "$(stat -c %s "$2")" ] || fail "$1 and $2 have different sizes"
  local bytes
  bytes=$(cmp -l "$1" "$2" | wc -l)
  [ "$bytes" -lt 800 ] || fail "$1 and $2 differ in $bytes bytes"
}

# Names of equal length with the option: the files have equal sizes, and differ in these, the times and checksums alone.
for ranks in 1 2; do
  slow $ranks ab$ranks --run.background=yes || { cat ab$ranks.log; fail "$ranks ranks, in the background"; }
  slow $ranks abc$ranks --run.background=no || { cat abc$ranks.log; fail "$ranks ranks, in the foreground"; }
  back=$(waits ab$ranks) fore=$(waits abc$ranks)
  at_least "$fore" 1.6 || fail "$ranks ranks: the slow disk made training wait for $fore s only"
  at_least 0.4 "$back" || fail "$ranks ranks: training waited for $back s"
  pass "$ranks ranks: training waits for $back s in the background, $fore s in the foreground"
  equal abc$ranks ab$ranks "$ranks ranks"
  for name in step-00000010 step-00000012 best; do
    same ab$ranks/checkpoints/$name.h5 abc$ranks/checkpoints/$name.h5
  done
  pass "$ranks ranks: the files are those of a save in the foreground"
done

# In every layout each rank copies what it owns, while the next pass computes: a pass of one row takes less time than
# the copy.
for layout in "1" "2" "3 --parallel.zero=1" "2 --parallel.zero=2" "3 --parallel.zero=3" "2 --parallel.tensor=2" \
  "2 --parallel.pipeline=2" "4 --parallel.pipeline=2 --parallel.zero=1"; do
  read -ra words <<< "$layout"
  for name in de def; do
    rm -rf $name
    try "${words[0]}" $name --run.background=$([ $name = de ] && echo yes || echo no) "${words[@]:1}" --optim.ema=0.9 \
      --model="mlp 784-601-333-10" --train.batch=4 --data.validation=0 --train.evaluate_every=0 ||
      { cat $name.log; fail "$layout: $name"; }
  done
  same de/checkpoints/step-00000010.h5 def/checkpoints/step-00000010.h5
  pass "$layout: the file is that of a save in the foreground"
done

# A full disk: the run ends when the save fails, before the next one.
for ranks in 1 2; do
  FAULT=ENOSPC FAULT_AT=2 FAULT_FOLDER=/full$ranks/checkpoints/step-00000400 LD_PRELOAD=$FAULTS \
    try $ranks full$ranks --train.steps=40000 --run.checkpoint_every=200 --train.evaluate_every=0 --data.validation=0 \
    --log.every=1000
  status=$?
  [ $status = 1 ] && grep -q "error: full$ranks/checkpoints/step-00000400.h5.*No space left" full$ranks.log ||
    { cat full$ranks.log; fail "a full disk: status $status, or no message"; }
  [ "$(json_text status full$ranks/summary.json)" = failed ] || fail "a full disk: the run has not failed"
  at_least 600 "$(of full$ranks steps)" || fail "a full disk: the run went on after the next save"
  whole full$ranks/checkpoints/step-00000200.h5
  pass "a full disk, $ranks ranks: the run ends at step $(of full$ranks steps), the earlier checkpoint is whole"
done

# A signal while a file is written.
FAULT_DELAY=0.4 FAULT_FOLDER=/checkpoints LD_PRELOAD=$FAULTS "$TRIREME" train config.yaml --run.dir=signal \
  --train.steps=100000000 --run.checkpoint_every=100 --data.validation=0 --train.evaluate_every=0 > signal.log 2>&1 &
job=$!
until [ -e signal/checkpoints/step-00000100.h5.new ] || ! kill -0 $job 2> /dev/null; do sleep 0.01; done
kill -TERM $job
wait $job
status=$?
[ $status = 3 ] || { cat signal.log; fail "a signal: status $status"; }
whole signal/checkpoints/step-00000100.h5 signal/checkpoints/last.h5
[ "$(readlink signal/checkpoints/last.h5)" = "$(printf step-%08d.h5 "$(of signal steps)")" ] ||
  fail "a signal: last.h5 is not of the last step"
pass "a signal waits for the file that is written, and step $(of signal steps) is saved after it"
finish
