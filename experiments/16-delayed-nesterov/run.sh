#!/bin/bash
# Outer optimizers of asynchronous DiLoCo, with workers of different speeds: the loss over the outer rate.
# WIDTH: of the hidden layer (128).
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
width=${WIDTH:-128}
clusters() { # clusters FILE [OPTION...]: makes the data
  local file=$1
  shift
  [ -e "$file" ] || "$TRIREME" data make clusters --out="$file" "$@" > /dev/null 2>&1
  use "$file" "trireme data make clusters"
}
best_rates() { # name,rate of each row's least validation loss, of full runs
  awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $1 !~ /equal time/ && $at["validation_loss"] != "" && !($1 in least && least[$1] <= $at["validation_loss"]) {
      least[$1] = $at["validation_loss"]
      rate[$1] = $2
    }
    END { for (name in rate) print name "," rate[name] }' "$OUT/main/results.csv" | sort
}
# The modeled time of a batch does not depend on the width.
set -- main --model="mlp 512-$width-4 relu" --device.gflops="$(awk -v n="$width" 'BEGIN { print 0.02187 * n / 128 }')" \
  --figures=validation_loss,test_loss,train_s,samples,staleness_mean --x=strategy.outer_rate --y=test_loss
if [ $form = full ]; then
  clusters clusters.h5
  sweep "$@" --variants="$here/variants.txt" --strategy.outer_rate=0.025,0.05,0.1,0.2,0.4,0.8,1.6 --run.seed=1..5
  # the accuracy over time, each with the rate of the least validation loss
  runs=()
  while IFS=, read -r name rate; do
    runs+=("$OUT/main/runs/variant=${name// /_},strategy.outer_rate=$rate,"*/)
  done < <(best_rates)
  "$TRIREME" report "${runs[@]}" --x=time --picture=accuracy --svg="$here/time.svg" \
    --title="Accuracy over time" 2> /dev/null
else
  clusters clusters-short.h5 --train=16000 --test=2000
  sweep "$@" --variants="$here/short.txt" --strategy.outer_rate=0.05,0.4 --run.seed=1,2 --train.steps=2000 \
    --train.evaluate_every=1000
fi
finish
