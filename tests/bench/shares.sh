#!/bin/bash
# Samples per second of two ranks, the second one SLOW (2) times slower, with parallel.shares=measured compared with
# equal shares, alternately. Times of passes are modeled (device.compute=sleep), so that two cores are enough.
#
#   [SLOW=2] [STEPS=300] [ROUNDS=7] tests/bench/shares.sh
#
# The ideal is (1 + SLOW) / 2, less the first eight steps.
. "$(dirname "$0")/lib.sh"
SLOW=${SLOW:-2}
STEPS=${STEPS:-300}
work=$(mktemp -d "${TMPDIR:-/tmp}/shares.XXXXXX")
trap 'rm -rf "$work"' EXIT
TRIREME=$(realpath "$TRIREME")
cd "$work"
"$TRIREME" data make digits --out d.h5 --train=1920 --test=100 --seed=7 > /dev/null 2>&1
cat > c.yaml << YAML
model: mlp 784-32-10 relu
data: {file: d.h5}
train: {batch: 192, steps: $STEPS, evaluate_every: 0}
device: {compute: sleep, gflops: 1}
parallel: {threads: 1}
run: {dir: run, overwrite: yes, checkpoint_every: -1, slow: "1:$SLOW"}
log: {quiet: yes, every: 1000}
YAML
# rate SHARES: samples per second of a run
rate() {
  job 2 train c.yaml --parallel.shares="$1" > log 2>&1 || { cat log >&2; exit 1; }
  json_value samples_per_s < run/summary.json
}
printf '%5s %16s %16s %7s\n' round 'equal, 1/s' 'measured, 1/s' ratio
for ((round = 1; round <= ROUNDS; round++)); do
  a=$(rate equal) b=$(rate measured)
  wanted "equal shares" "$a"
  wanted "measured shares" "$b"
  ratios+=("$(ratio "$b" "$a")")
  printf '%5d %16.0f %16.0f %7.3f\n' "$round" "$a" "$b" "${ratios[-1]}"
done
printf '{"compare":"shares","slow":%s,"steps":%s,"rounds":%s,"ratio":%s}\n' "$SLOW" "$STEPS" "$ROUNDS" "$(median "${ratios[@]}")"
