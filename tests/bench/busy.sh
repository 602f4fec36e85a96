#!/bin/bash
# A training step with all cores beside a process that keeps one of them busy, over the same step alone.
#
#   [MODEL="mlp 784-128-10 relu"] [BATCH=64] [THREADS=all] [STEPS=4000] [ROUNDS=7] tests/bench/busy.sh
#
# Both are means over the steps of a run, start included. Above 1: slower beside the other process.
. "$(dirname "$0")/lib.sh"
MODEL=${MODEL:-mlp 784-128-10 relu}
BATCH=${BATCH:-64}
THREADS=${THREADS:-$(nproc)}
STEPS=${STEPS:-4000}
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT

# seconds: of STEPS steps
seconds() {
  local begin
  begin=$(date +%s%N)
  "$TRIREME" bench step --model="$MODEL" --batch="$BATCH" --threads="$THREADS" --bound=no --steps="$STEPS" > /dev/null
  awk -v t=$(($(date +%s%N) - begin)) 'BEGIN { printf "%.6f", t / 1e9 }'
}

printf '%5s %10s %10s %8s\n' round 'alone s' 'beside s' ratio
for round in $(seq "$ROUNDS"); do
  a=$(seconds)
  (while :; do :; done) & competitor=$!
  b=$(seconds)
  kill $competitor
  wait $competitor 2> /dev/null || true
  ratios+=("$(ratio "$b" "$a")")
  printf '%5d %10.3f %10.3f %8.3f\n' "$round" "$a" "$b" "${ratios[-1]}"
done
printf '{"compare":"step beside a busy process over alone","model":"%s","threads":%s,"rounds":%s,"ratio":%s}\n' \
  "$MODEL" "$THREADS" "$ROUNDS" "$(median "${ratios[@]}")"
