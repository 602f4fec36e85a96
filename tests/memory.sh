#!/bin/bash
# The memory that a run plans before its first step is what it then allocates.
set -u
. "$(dirname "$0")/lib.sh"
grep -q '^TRM_SANITIZE = .' "${top_builddir:-$top_srcdir/build}/Makefile" &&
  skip "sanitizers allocate additional memory"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99

for i in $(seq 4000); do echo "all work and no play makes line $i a dull line"; done > text.txt
"$TRIREME" data import text text.txt --out=text.h5 > /dev/null 2>&1 || fail "data import"
"$TRIREME" data make digits --out=digits.h5 --train=2000 --test=200 > /dev/null 2>&1 || fail "data make digits"

# planned RANKS OPTION...: a short run; the plan is within a tenth of rank 0's peak memory
planned() {
  local ranks=$1 plan most
  shift
  launch "$ranks" "$TRIREME" train --train.steps=2 --log.quiet=yes --run.overwrite=yes --run.dir=run "$@" 2> log ||
    { cat log; fail "train $*"; }
  plan=$(json_number planned_bytes run/summary.json) most=$(json_number max_resident_bytes run/summary.json)
  awk -v plan="$plan" -v most="$most" 'BEGIN { exit !(most > 1e7 && plan > 0.9 * most && plan < 1.1 * most) }' ||
    fail "$ranks ranks, $*: planned $plan bytes, peak $most"
  pass "$ranks ranks, $*: planned $plan bytes, peak $most"
}
gpt="--model=gpt layers=2 heads=4 dim=256 context=128"
for ranks in 1 2; do
  planned $ranks --data.file=text.h5 "$gpt" --optim.name=adamw --optim.lr=1e-3 --train.batch=24 --parallel.threads=1
  planned $ranks --data.file=digits.h5 "--model=mlp 784-2048-1024-10 relu" --optim.momentum=0.9 --parallel.threads=1
done
# A copy of the state, from which a checkpoint is written in the background.
planned 1 --data.file=digits.h5 "--model=mlp 784-2048-1024-10 relu" --optim.momentum=0.9 --parallel.threads=1 \
  --run.checkpoint_every=1
copied=$(of run max_resident_bytes)
planned 1 --data.file=digits.h5 "--model=mlp 784-2048-1024-10 relu" --optim.momentum=0.9 --parallel.threads=1 \
  --run.checkpoint_every=1 --run.background=no
at_least "$((copied - $(of run max_resident_bytes)))" 28000000 || fail "a copy of 30 MB is not there: $copied bytes"
# A checkpoint gathers the largest tensor from its parameter servers, here nearly all weights, or a peer's local states.
for method in asgd adpsgd; do
  planned 2 --data.file=digits.h5 "--model=mlp 784-4096-10 relu" --optim.momentum=0.9 --parallel.threads=1 \
    --strategy.name=$method
done
planned 2 --data.file=digits.h5 "--model=mlp 784-4096-10 relu" --parallel.threads=1 --parallel.tensor=2
# Scores of many classes, and a chunk of them at a time.
awk 'BEGIN { for (i = 0; i < 4000; i++) print i % 7 "," i % 11 "," i }' > wide.csv
"$TRIREME" data import csv wide.csv --out=wide.h5 > /dev/null 2>&1 || fail "data import csv"
wide="--model=linear 64 | tanh | linear 4000 bias=no"
planned 1 --data.file=wide.h5 "$wide" --train.batch=2000 --parallel.threads=1
whole=$(json_number max_resident_bytes run/summary.json)
planned 1 --data.file=wide.h5 "$wide" --train.batch=2000 --parallel.threads=1 --train.loss_chunk=100
chunk=$(json_number max_resident_bytes run/summary.json)
awk -v whole="$whole" -v chunk="$chunk" 'BEGIN { exit !(whole - chunk > 0.8 * 1900 * 4032 * 4) }' ||
  fail "scores in chunks take $chunk bytes, all at once $whole"
pass "scores in chunks take $chunk bytes, all at once $whole"
planned 1 --data.file=digits.h5 --train.batch=128 --parallel.threads=2 \
  "--model=conv2d 16 3 pad=1 | batch_norm | relu | conv2d 32 3 pad=1 | batch_norm | relu | avg_pool 7 | linear 10"

# 64 ranks on four emulated nodes: no rank has more than was planned, and the job no more than the arrays of its nodes,
# once each (weights, momentum, 16 gradients), and what was planned of 64 ranks besides.
if all_cases; then
  export TRM_NODE_SIZE=16
  # shellcheck disable=SC2016 # that shell expands it
  launch 64 bash -c 'echo > "pid.$$"; exec "$@"' rank "$TRIREME" train --train.steps=2 --train.batch=128 --log.quiet=yes \
    --data.file=digits.h5 "--model=mlp 784-2048-10 relu" --optim.momentum=0.9 --parallel.threads=1 \
    --run.checkpoint_every=-1 --run.overwrite=yes --run.dir=run 2> log &
  job=$! most=0 sum=0
  while kill -0 $job 2> /dev/null; do
    # VmHWM of each rank; the sum of their Pss, which counts shared pages once
    read -r now all < <(for rank in pid.*; do
      cat "/proc/${rank#pid.}/status" "/proc/${rank#pid.}/smaps_rollup" 2> /dev/null
    done | awk '$1 == "VmHWM:" && $2 > m { m = $2 } $1 == "Pss:" { p += $2 } END { print m + 0, p + 0 }')
    [ "$now" -le $most ] || most=$now
    [ "$all" -le $sum ] || sum=$all
    sleep 0.2
  done
  wait $job || { cat log; fail "64 ranks"; }
  awk -v plan="$(of run planned_bytes)" -v n="$(of run parameters)" -v most=$((1024 * most)) -v sum=$((1024 * sum)) 'BEGIN {
    node = 18 * 4 * n; bound = 4 * node + 64 * (plan - node)
    printf "64 ranks on 4 nodes: a rank %.0f MB of %.0f planned, all %.0f MB, arrays %.0f, bound %.0f\n", most / 1e6, plan / 1e6,
           sum / 1e6, 4 * node / 1e6, bound / 1e6
    exit !(plan > node && most > 4 * n && most <= plan && sum > 0.9 * 4 * node && sum <= bound) }' > figures ||
    fail "$(cat figures)"
  pass "$(cat figures)"
fi
finish
