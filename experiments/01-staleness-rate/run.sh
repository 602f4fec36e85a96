#!/bin/bash
# Accuracy over the number of workers: one rate, the rate divided by the staleness, a rate tuned for each number.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
if [ $form = full ]; then
  sweep main --variants="$here/variants.txt" --simulate.workers=1,2,4,8,16,30,64 --tune=optim.lr --run.seed=1..5 \
    --figures=staleness_mean --x=simulate.workers
else
  sweep main --variants="$here/short.txt" --simulate.workers=1,30 --tune=optim.lr --run.seed=1,2 \
    --figures=staleness_mean --x=simulate.workers
fi
finish
