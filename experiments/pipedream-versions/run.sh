#!/bin/bash
# Accuracy over the learning rate: pipelines whose passes use different versions of the weights.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
if [ $form = full ]; then
  sweep main --variants="$here/variants.txt" --optim.lr=0.05,0.2,0.4 --run.seed=1..3 --x=optim.lr \
    --figures=test_loss
else
  sweep main --variants="$here/variants.txt" --train.epochs=2 --optim.lr=0.05,0.2 --run.seed=1,2 --x=optim.lr \
    --figures=test_loss
fi
finish
