#!/bin/bash
# Error over run time, from synchronous to asynchronous SGD: one learning rate for all at a time.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
set -- main --variants="$here/variants.txt" --figures=target.train_s,steps,staleness_mean,final_train_loss
if [ $form = full ]; then
  sweep "$@" --optim.lr=0.0125,0.025,0.05,0.1 --run.seed=1..5 --train.evaluate_every=400 --target=0.75 --x=optim.lr
else
  sweep "$@" --optim.lr=0.025,0.1 --run.seed=1,2 --train.seconds=1.5 --train.evaluate_every=100 --target=0.6 --x=optim.lr
fi
finish
