#!/bin/bash
# Accuracy over the batches between two exchanges: Downpour, EASGD and EAMSGD.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
if [ $form = full ]; then
  sweep main --variants="$here/variants.txt" --strategy.tau=1,4,16,64 --run.seed=1..5 --tune=optim.lr \
    --optim.lr=0.0002,0.0004,0.0008,0.0015,0.003,0.006,0.0125,0.025,0.05,0.1,0.2,0.4,0.8 --x=strategy.tau
else
  sweep main --variants="$here/variants.txt" --strategy.tau=1,64 --train.batch=8 --run.seed=1,2 --tune=optim.lr \
    --optim.lr=0.003,0.0125,0.05,0.2 --x=strategy.tau
fi
finish
