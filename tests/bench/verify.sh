#!/bin/bash
# What run.verify_every=1 costs: time of a step with / without, median of ROUNDS, 2 ranks, 784-256-256-10, 4 lanes.
#
#   ROUNDS=5 tests/bench/verify.sh
. "$(dirname "$0")/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=1
"$TRIREME" data make digits --out d.h5 --train=4000 --test=100 --seed=7 > /dev/null 2>&1
cat > c.yaml << 'YAML'
model: mlp 784-256-256-10 relu
data: {file: d.h5}
train: {batch: 256, steps: 300, epochs: 100}
run: {dir: run, seed: 3, lanes: 4, checkpoint_every: -1, overwrite: yes}
log: {quiet: yes}
YAML
# seconds N: of the steps of one run with run.verify_every=N
seconds() {
  job 2 train c.yaml --run.verify_every="$1" > log 2>&1 || { cat log >&2; exit 1; }
  json_value train_s < run/summary.json
}
for ((round = 0; round < ROUNDS; round++)); do
  ratios[round]=$(ratio "$(seconds 1)" "$(seconds 0)")
done
echo "time of a step, run.verify_every=1 / 0: $(median "${ratios[@]}") (${ratios[*]})"
