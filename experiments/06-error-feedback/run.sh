#!/bin/bash
# Accuracy and bytes of compressed gradients with and without error feedback.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
if [ $form = full ]; then
  sweep main --variants="$here/variants.txt" --tune=optim.lr \
    --optim.lr=0.0015625,0.003125,0.00625,0.0125,0.025,0.05,0.1,0.2,0.4,0.8 --run.seed=1..5 \
    --figures=between_nodes.bytes,final_train_loss --baseline=variant=none
  "$TRIREME" report $(ls -d "$OUT"/main/runs/*run.seed=1-*/) --svg="$here/picture.svg" 2> /dev/null
else
  sweep main --variants="$here/variants.txt" --optim.lr=0.05,0.1,0.2 --tune=optim.lr --run.seed=1,2 \
    --figures=between_nodes.bytes,final_train_loss --baseline=variant=none
fi
finish
