#!/bin/bash
# Regions for a profiler of the MPI library (run.trace=regions): a preloaded one (tests/support/regions.c) counts them,
# by name and nested, in each layout; without the option there are none.
set -u
. "$(dirname "$0")/lib.sh"
find_preloaded regions
scratch
digits 256 64

# regions NAME RANKS OPTION...: trains 8 steps in 2 epochs with a checkpoint; the regions are in NAME.regions
regions() {
  local name=$1 ranks=$2
  shift 2
  launch "$ranks" env LD_PRELOAD="$PRELOADED" "$TRIREME" train --data.file=digits.h5 --train.batch=64 --train.epochs=2 \
    --log.quiet=yes --run.dir="$name" "$@" > "$name.log" 2>&1 || { cat "$name.log"; fail "$name"; }
  sed -n 's/.*region \([0-9]*\) /\1 /p' "$name.log" | sort > "$name.regions"
  ! grep misnested "$name.regions" || fail "$name: regions overlap"
}
# has NAME RANK REGION TIMES
has() { grep -qx "$2 $3: $4" "$1.regions" || { cat "$1.regions"; fail "$1: rank $2 has not $4 of $3"; }; }

model=("--model=mlp 784-32-32-10 relu")
regions off 2 "${model[@]}"
[ ! -s off.regions ] || { cat off.regions; fail "regions without run.trace"; }
model+=(--run.trace=regions)
regions sync 2 "${model[@]}"
for rank in 0 1; do
  has sync $rank forward 8
  has sync $rank backward 8
  has sync $rank evaluation 1
done
grep -q '^0 checkpoint: ' sync.regions || fail "no checkpoint"
grep -q '^1 .*update: ' sync.regions || fail "no update"
pass "synchronous: $(sed -n 's/^0 //p' sync.regions | paste -sd, | sed 's/,/, /g')"
regions alone 1 "${model[@]}"
has alone 0 update 8
pass "one rank: $(sed -n 's/^0 //p' alone.regions | paste -sd, | sed 's/,/, /g')"
regions pipeline 2 "${model[@]}" --parallel.pipeline=2 --train.accumulate=4
for rank in 0 1; do
  has pipeline $rank forward 32
  has pipeline $rank backward 32
done
pass "pipeline: every micro-batch"
regions asgd 3 "${model[@]}" --strategy.name=asgd
pass "parameter server: regions nest"
finish
