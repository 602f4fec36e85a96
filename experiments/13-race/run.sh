#!/bin/bash
# Which asynchronous method is the first: workers of different speeds, one that never ends, times with heavy tails.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
slow() { # sqrt, linear: the i-th worker takes i^0.5, i times as long; stuck: the last one never ends
  case $1 in sqrt) echo "power 0.5" ;; linear) echo "power 1" ;; stuck) echo 63:1000000 ;; esac
}
jitter() { case $1 in tails) echo "lognormal 2" ;; *) echo "lognormal 0.2" ;; esac; }
seconds() { case $1 in stuck) echo 0.75 ;; tails) echo 1.5 ;; *) echo 3 ;; esac; } # the link limits the stuck race
variants() {
  case $form-$1 in short-*) echo short.txt ;; *-stuck | *-tails) echo "$1.txt" ;; *) echo variants.txt ;; esac
}
races="sqrt linear stuck tails"
[ $form = full ] || races="sqrt stuck"
for speeds in $races; do
  rows=$here/$(variants $speeds)
  tune=optim.lr,strategy.max_delay,strategy.collect
  ! grep -q strategy.frame "$rows" || tune=$tune,strategy.frame,strategy.trials
  [ $form = full ] || tune=
  set -- "$speeds" --variants="$rows" --run.slow="$(slow $speeds)" \
    --run.jitter="$(jitter $speeds)" --train.seconds="$(seconds $speeds)" \
    ${tune:+--tune=$tune} --target=0.75 --figures=target.train_s,steps,staleness_mean --baseline=variant=asgd
  if [ $form = full ]; then
    sweep "$@" --optim.lr=0.0015,0.003,0.006,0.0125,0.025,0.05 --run.seed=1..5
    cp "$OUT/$speeds/table.md" "$here/$speeds.md"
    "$TRIREME" report "$OUT/$speeds" --x=time --picture=accuracy --svg="$here/$speeds.svg" --title="$speeds"
  else
    sweep "$@" --run.seed=1,2
  fi
done
finish
