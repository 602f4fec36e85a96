#!/bin/bash
# Which asynchronous method is the first, with workers of different speeds and one that never ends.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
slow() { # sqrt, linear: the i-th worker takes i^0.5, i times as long; stuck: the last one never ends
  case $1 in sqrt) echo "power 0.5" ;; linear) echo "power 1" ;; stuck) echo 63:1000000 ;; esac
}
seconds() { case $1 in stuck) echo 0.75 ;; *) echo 3 ;; esac; } # the link limits it
variants=variants.txt
[ $form = full ] || variants=short.txt
for speeds in sqrt linear stuck; do
  set -- "$speeds" --variants="$here/$variants" --run.slow="$(slow $speeds)" --train.seconds="$(seconds $speeds)" \
    --tune=optim.lr,strategy.max_delay,strategy.collect \
    --target=0.75 --figures=target.train_s,steps,staleness_mean --baseline=variant=asgd
  if [ $form = full ]; then
    sweep "$@" --optim.lr=0.003,0.006,0.0125,0.025,0.05 --run.seed=1..5
    cp "$OUT/$speeds/table.md" "$here/$speeds.md"
    "$TRIREME" report "$OUT/$speeds" --x=time --picture=accuracy --svg="$here/$speeds.svg" --title="$speeds"
  else
    sweep "$@" --optim.lr=0.025,0.1 --run.seed=1,2
  fi
done
finish
