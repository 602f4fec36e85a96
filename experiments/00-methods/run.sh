#!/bin/bash
# All methods at 1, 8 and 64 workers on Fashion-MNIST and a9a, each at its best learning rate: one table, one picture.
# The full form needs a9a.h5, too (trireme data import libsvm TRAIN TEST --out=a9a.h5).
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
rates=0.00078125,0.0015625,0.003125,0.00625,0.0125,0.025,0.05,0.1,0.2,0.4,0.8,1.6

# methods NAME WORKERS OPTION...: the sweep NAME of all methods
methods() {
  local name=$1 workers=$2 eighth=$((($2 + 7) / 8))
  shift 2
  mkdir -p "$OUT"
  sed "s/GROUPS/$eighth/; s/FIRST/$((workers > 1 ? workers - eighth : 1))/" "$here/methods.txt" > "$OUT/methods-$workers.txt"
  sweep "$name" --variants="$OUT/methods-$workers.txt" --simulate.workers="$workers" --tune=optim.lr \
    --figures=train_s,staleness_mean --baseline=variant=sync "$@"
}
if [ $form = short ]; then
  methods fashion-8 8 --optim.lr=0.025,0.1,0.4 --run.seed=1
else
  for workers in 1 8 64; do
    methods fashion-$workers $workers --optim.lr=$rates --run.seed=1..5
  done
  use a9a.h5 "trireme data import libsvm TRAIN TEST --out=a9a.h5"
  config=a9a.yaml
  for workers in 1 8 64; do
    methods a9a-$workers $workers --optim.lr=$rates,3.2,6.4,12.8,25.6,51.2,102.4 --run.seed=1..5
  done
  awk -f "$here/table.awk" "$OUT"/{fashion,a9a}-{1,8,64}/results.csv > "$here/table.md"
  "$TRIREME" report "$OUT/fashion-64" --x=time --picture=accuracy --svg="$here/picture.svg" --title="64 workers"
fi
finish
