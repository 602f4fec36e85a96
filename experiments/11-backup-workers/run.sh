#!/bin/bash
# The time to a target over N, the gradients of 16 workers that an update takes, as predicted and as measured.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
numbers="3 4 5 6 7 8 9 10 11 12 13 14 16" seeds=1..5 spreads="0.25 0.5 1" rates=0.025,0.05,0.1,0.2,0.4 target=0.72
[ $form = full ] || { numbers="4 10 16" seeds=1,2 spreads="0.25 1" rates=0.1,0.4 target=0.6; }
updates() { echo $((110 + 1240 / $1)); } # with N gradients each: about half as many again as the target takes
of_row() { # of_row SWEEP N COLUMN: of the row of N in results.csv
  awk -F, -v n="$2" -v column="$3" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } $1 == n { print $at[column] }' \
    "$OUT/$1/results.csv"
}
update_s() { # update_s N OPTION...: seconds of an update, of times alone
  local n=$1 run=$OUT/run
  shift
  "$TRIREME" train "$here/config.yaml" --data.file="$data" --data.limit=0 --run.dir="$run" --run.overwrite=yes \
    --strategy.name=backup --strategy.collect="$n" --train.steps=$steps --simulate.gradients=no "$@" >&2
  grep -o '"histogram":\[[0-9]*' "$run/staleness.json" | awk -F'[' -v n="$n" \
    -v s="$(sed -n 's/.*"train_s": *\([0-9.]*\).*/\1/p' "$run/summary.json")" \
    '{ taken += $2 } END { print s / (taken / n) }'
}
steps=20000 # of times alone

# steps: N workers with equal times: the rate, and the updates to the target
for n in $numbers; do
  echo "$n | --simulate.workers=$n --train.batch=$((2 * n)) --train.steps=$(updates "$n")" \
    "--train.evaluate_every=$(($(updates "$n") / 24))"
done > "$OUT-steps.txt"
sweep steps --variants="$OUT-steps.txt" --strategy.name=sync --strategy.batch=update --optim.lr=$rates --tune=optim.lr \
  --tune-seeds=101,102 --run.seed=$seeds --target=$target --figures=target.step,train_s

# main: 16 workers with lognormal times, and these rates
for n in $numbers; do
  echo "$n | --strategy.collect=$n --optim.lr=$(of_row steps "$n" optim.lr)" \
    "--train.steps=$((16 * $(updates "$n"))) --train.evaluate_every=$((16 * $(updates "$n") / 24))"
done > "$OUT-main.txt"
sweep main --variants="$OUT-main.txt" --strategy.name=backup --run.seed=$seeds --target=$target \
  --run.jitter="$(printf 'lognormal %s; ' $spreads | sed 's/; $//')" --figures=target.train_s,train_s

# A line for each spread and N, for compare.awk
equal_s=$(update_s 16)
for spread in $spreads; do
  awk -v spread="$spread" -f "$here/predict.awk" > "$OUT-predict.txt"
  for n in $numbers; do
    echo "$spread $n $(of_row steps "$n" optim.lr) $(update_s "$n" --run.jitter="lognormal $spread") $equal_s" \
      "$(awk -v n="$n" '$1 == n { print $2, $3 }' "$OUT-predict.txt")"
  done
done > "$OUT-lines.txt"
mkdir -p "$OUT/updates" "$OUT/best"
awk -v out="$OUT" -f "$here/compare.awk" "$OUT/steps/runs.csv" "$OUT/main/runs.csv" "$OUT-lines.txt"
cat "$OUT/table.md"
if [ $form = full ]; then
  cp "$OUT/table.md" "$here/table.md"
  cp "$OUT/picture.svg" "$here/picture.svg"
fi
rm -f "$OUT/main/table.md"
finish
