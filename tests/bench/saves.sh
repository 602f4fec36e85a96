#!/bin/bash
# How long training waits for a checkpoint, in the background and in the foreground: a perceptron of 20 million weights
# with Adam, 240 MB of state. Prints for each layout medians of ROUNDS (3) runs: seconds that rank 0 waits for the save,
# or for the copy, and seconds of the ten steps before the save and of those after it, during which the file is written.
#
#   tests/bench/saves.sh [LAYOUT...]     LAYOUT: ranks and options in one word, such as "2 --parallel.zero=2"
. "$(dirname "$0")/lib.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/saves.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=1
ROUNDS=${ROUNDS:-3}
EVERY=${EVERY:-60}
"$TRIREME" data make digits --out d.h5 --train=4000 --test=100 --seed=7 > /dev/null 2>&1
cat > c.yaml << YAML
model: mlp 784-4096-4096-10 relu
data: {file: d.h5}
optim: {name: adam, lr: 0.001}
train: {batch: 16, steps: $((EVERY + 20))}
parallel: {threads: 1}
run: {dir: run, seed: 3, checkpoint_every: $EVERY, overwrite: yes, keep: 1, trace: steps, stall_after: 0}
log: {quiet: yes, every: 1}
YAML

# measured RANKS OPTION...: of one run: appends to `pause`, `before` and `after`
measured() {
  job "$1" train c.yaml "${@:2}" > log 2>&1 || { cat log >&2; exit 1; }
  # the first save, and until the next one what steps wait for its copy
  pause+=("$(sed -n 's/.*"name":"\(checkpoint\|wait for the copy\)".*"tid":0,"dur":\([0-9.]*\).*/\1;\2/p' \
    run/trace.json | awk -F';' '$1 == "checkpoint" { saves++ } saves == 1 { s += $2 } END { print s / 1e6 }')")
  [ "${pause[-1]}" != 0 ] || { echo "trace.json names no save" >&2; exit 1; }
  read -r one two < <(sed -n 's/.*"step":\([0-9]*\),.*"train_s":\([0-9.]*\).*,"loss".*/\1 \2/p' run/metrics.jsonl |
    awk -v every="$EVERY" '{ t[$1] = $2 / 10 } END { print t[every] - t[every - 10], t[every + 10] - t[every] }')
  before+=("$one") after+=("$two")
}

[ $# -gt 0 ] || set -- 1 2 "2 --parallel.zero=2" "2 --parallel.tensor=2" "2 --parallel.pipeline=2"
for layout; do
  read -ra words <<< "$layout"
  for background in no yes; do
    pause=() before=() after=()
    for ((round = 0; round < ROUNDS; round++)); do
      measured "${words[@]}" --run.background=$background
    done
    declare "wait_$background=$(median "${pause[@]}")"
    steps="$(median "${before[@]}") s before, $(median "${after[@]}") s after the save"
  done
  echo "$layout: foreground $wait_no s, background $wait_yes s: $(awk -v a="$wait_yes" -v b="$wait_no" 'BEGIN {
    printf "%.2f %%", 100 * a / b }'); a step: $steps"
done
