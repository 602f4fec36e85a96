#!/bin/bash
# A checkpoint of any layout loads into any other: after ten steps in one layout a run resumes in another. It starts
# with the same bits, and its result is that of one rank.
set -u
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/layouts_lib.sh"
openblas_only

layouts=(
  "1"
  "2 --parallel.zero=3 --parallel.share=none"
  "2 --parallel.zero=2"
  "4 --parallel.zero=1"
  "4 --parallel.zero=3 --parallel.shard=node"
  "3 --parallel.data=1 --parallel.tensor=3"
  "4 --parallel.data=2 --parallel.tensor=2"
  "4 --parallel.pipeline=4"
  "2 --parallel.pipeline=2 --parallel.schedule=interleaved --parallel.recompute=block"
)
models=gpt2
! all_cases || models="mlp conv gpt2"
for model in $models; do
  for from in "4 --parallel.zero=2" "4 --parallel.pipeline=2 --parallel.tensor=2" "2 --parallel.zero=3 --parallel.share=none"; do
    [[ $from == 4*zero=* ]] && export TRM_NODE_SIZE=3 || unset TRM_NODE_SIZE
    run_of ${from%% *} $model begun --run.overwrite=yes --train.accumulate=3 --train.steps=10 ${from#* }
    for to in "${layouts[@]}"; do
      n=${to%% *} options=${to#"$n"}
      [ "$model" = conv ] && [[ $to == *pipeline=4* ]] && continue
      [[ $to == 4*zero=* ]] && export TRM_NODE_SIZE=3 || unset TRM_NODE_SIZE # nodes of 3 and 1 ranks
      for steps in 10 13; do # 10: the run is complete, its weights are those of the checkpoint
        rm -rf went$steps
        cp -r begun went$steps
        rm went$steps/summary.json # a run with results has finished: it would not be resumed
        run_of "$n" $model went$steps --run.resume=auto --train.accumulate=3 --train.steps=$steps $options
      done
      [ -n "$(sha begun)" ] && [ "$(sha begun)" = "$(sha went10)" ] ||
        fail "$model, $from to $to: read other weights"
      [ "$n" -gt 1 ] || { rm -rf alone; mv went13 alone; went13=alone; }
      [ "$n" -gt 1 ] && went13=went13
      apart=$("$COMPARE" alone/checkpoints/last.h5 $went13/checkpoints/last.h5) ||
        fail "$model, $from to $to: no comparison"
      awk -v d="$apart" 'BEGIN { exit !(d <= 1e-5) }' ||
        fail "$model, $from to $to: $apart from one rank after three steps"
      pass "$model, $from to $to: the same weights; after three steps $apart from one rank"
    done
  done
done
finish
