#!/bin/bash
# Accuracy and consensus distance of workers on a ring: AD-PSGD and A2CiD2.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
if [ $form = full ]; then
  sweep main --variants="$here/variants.txt" --simulate.workers=16,32 --tune=optim.lr --optim.lr=0.05,0.1,0.2,0.4,0.8 \
    --run.seed=1..5 --figures=consensus_distance --baseline="variant=ring adpsgd"
else
  sweep main --variants="$here/variants.txt" --simulate.workers=16 --optim.lr=0.2 --train.epochs=3 --run.seed=1,2 \
    --figures=consensus_distance
fi
finish
