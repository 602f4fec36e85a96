#!/bin/bash
# Accuracy over the momentum, for one to eight asynchronous workers.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
if [ $form = full ]; then
  sweep main --simulate.workers=1,2,4,8 --optim.momentum=0,0.3,0.5,0.7,0.9 --run.seed=1..5 --tune=optim.lr \
    --optim.lr=0.0015,0.003,0.006,0.0125,0.025,0.05,0.1,0.2,0.4 --x=optim.momentum
else
  sweep main --simulate.workers=1,8 --optim.momentum=0,0.9 --run.seed=1,2 --tune=optim.lr \
    --optim.lr=0.0015,0.006,0.025,0.1 --x=optim.momentum
fi
finish
