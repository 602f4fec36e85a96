#!/bin/bash
# Accuracy over the steps between two exchanges: local SGD, SlowMo and DiLoCo, and synchronous SGD.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
set -- main --variants="$here/variants.txt" --tune=optim.lr,strategy.outer_momentum --x=strategy.tau \
  --figures=between_nodes.bytes,final_train_loss
if [ $form = full ]; then
  sweep "$@" --strategy.tau=8,32,128 --optim.lr=0.0025,0.005,0.01,0.02,0.04,0.08 \
    --strategy.outer_momentum=0.2,0.5,0.8,0.9,0.95 --run.seed=1..5
else
  sweep "$@" --train.epochs=5 --strategy.tau=8,128 --optim.lr=0.02,0.08 --strategy.outer_momentum=0.5,0.8 --run.seed=1,2
fi
finish
