#!/bin/bash
# Which method is the first at a target: the spread of the compute times, and one slow worker.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
rows=54000 # of the training split
[ $form = full ] || rows=5400
every() { # an evaluation for each 1/$1 of an epoch, whatever an update's rows are
  sed "s/train.batch=512/train.batch=512 --train.evaluate_every=$((rows / 512 / $1))/; t
    s/--strategy/--train.evaluate_every=$((rows / 32 / $1)) --strategy/" "$here/variants.txt"
}
if [ $form = full ]; then
  every 4 > "$OUT.txt"
  set -- --variants="$OUT.txt" --run.seed=1..5 --target=0.8
  spreads="lognormal 0.1; lognormal 0.5; lognormal 1"
else
  every 2 > "$OUT.txt"
  set -- --variants="$OUT.txt" --run.seed=1,2 --target=0.65 --train.epochs=6
  spreads="lognormal 0.1; lognormal 1"
fi
set -- "$@" --tune=optim.lr --figures=target.train_s,train_s,target.samples
sweep main "$@" --run.jitter="$spreads"
sweep slow "$@" --run.jitter="lognormal 0.1" --run.slow=15:10
[ $form = short ] || cp "$OUT/slow/table.md" "$here/slow.md"
finish
