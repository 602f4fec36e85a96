#!/bin/bash
# What a delay of one update costs AdamW and Muon, and what update error feedback wins back.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
if [ $form = full ]; then
  data=shakespeare.h5
  [ -e $data ] || { echo "$data is missing: trireme data import text input.txt --out=$data" >&2; exit 2; }
  sweep main --variants="$here/variants.txt" --tune=optim.lr,optim.adamw_lr --run.seed=1..3 \
    --optim.lr=0.00125,0.0025,0.005,0.01,0.02,0.04 --figures=test_loss,final_train_loss --baseline="variant=adamw sync"
  rows=()
  for row in adamw\ {sync,2bw,corrected} muon\ {sync,2bw,corrected}; do
    rm -f "$OUT/$row"
    ln -s "$(realpath "$OUT")/main/runs/variant=${row// /_}",*run.seed=1-*/ "$OUT/$row"
    rows+=("$OUT/$row")
  done
  "$TRIREME" report "${rows[@]}" --picture=loss --title="Loss, one seed" --svg="$here/picture.svg" 2> /dev/null
else # characters that follow a rule
  data=letters.h5
  awk 'BEGIN { for (i = 0; i < 60000; i++) printf "%s%s", substr("abcdefghij klmnop", (i * i + int(i / 7)) % 17 + 1, 1),
               i % 40 == 39 ? "\n" : "" }' > letters.txt
  [ -e $data ] || "$TRIREME" data import text letters.txt --out=$data > /dev/null
  sweep main --variants="$here/short.txt" --train.steps=120 --data.stride=16 --run.seed=1,2 --figures=test_loss
fi
finish
