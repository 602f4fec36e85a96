#!/bin/bash
# Updates to a target over the batch size, and what a warm-up changes.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
if [ $form = full ]; then
  sweep main --variants="$here/variants.txt" --train.batch=16,64,256,1024,4096,16384 --run.seed=1..3 --tune=optim.lr \
    --optim.lr=0.0125,0.025,0.05,0.1,0.2,0.4,0.8,1.6,3.2 --target=0.83 --figures=target.step,target.samples --x=train.batch \
    --y=target.step
else
  sweep main --variants="$here/variants.txt" --train.batch=16,128,1024 --run.seed=1,2 --tune=optim.lr \
    --optim.lr=0.1,0.4,1.6 --train.epochs=6 --target=0.6 --figures=target.step,target.samples --x=train.batch \
    --y=target.step
fi
finish
