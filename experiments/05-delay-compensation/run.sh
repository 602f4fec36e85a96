#!/bin/bash
# Accuracy over the learning rate: asynchronous SGD with and without delay compensation.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
if [ $form = full ]; then
  sweep main --variants="$here/variants.txt" --optim.lr=0.0125,0.025,0.05,0.075,0.1,0.15,0.2 --run.seed=1..5 --x=optim.lr
else
  sweep main --variants="$here/variants.txt" --optim.lr=0.025,0.05,0.1,0.2 --run.seed=1..3 --x=optim.lr
fi
finish
