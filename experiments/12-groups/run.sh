#!/bin/bash
# Time to a target over the number of groups, from one (synchronous) to one for each worker (asynchronous).
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
if [ $form = full ]; then
  sweep main --strategy.groups=1,2,4,8,16 --optim.lr=0.0125,0.025,0.05,0.1,0.2,0.4 --tune=optim.lr --run.seed=1..5 \
    --target=0.8 --figures=target.train_s,target.step,train_s,staleness_mean --x=strategy.groups --y=target.train_s
else
  sweep main --strategy.groups=1,4,16 --optim.lr=0.025,0.1,0.4 --tune=optim.lr --run.seed=1,2 --train.epochs=6 \
    --target=0.7 --figures=target.train_s,target.step,train_s,staleness_mean --x=strategy.groups --y=target.train_s
fi
finish
