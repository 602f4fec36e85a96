#!/bin/bash
# Momentum of asynchronous SGD: of the recursion of momentum SGD, the one that is closest to the mean over many runs.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
awk 'BEGIN { for (i = 0; i < 512; i++) print "0,1" }' > rows.csv # features 0: only the bias learns
echo 0,8 > far.csv
for files in "rows far" far; do # the test split is of no use, but a run without a test loss counts as diverged
  "$TRIREME" data import csv ${files/ /.csv }.csv --target=value --out=${files% *}.h5 --overwrite \
    > "$OUT-data.log" 2>&1 ||
    { cat "$OUT-data.log" >&2; exit 1; }
done
use rows.h5 "made by run.sh"

# fit TIMES NAME: adds the fits of the sweep OUT/NAME to OUT/fit/results.csv
fit() {
  for workers in $(sed -n 's/ *|.*--sim.*//p' "$variants"); do
    awk -v times="$1" -v workers="$workers" -v curve="$OUT/fit/$2-$workers.txt" -f "$here/fit.awk" \
      "$OUT/$2/runs/variant=$workers,run.seed="*/metrics.jsonl >> "$OUT/fit/results.csv"
  done
}

variants=$here/variants.txt
if [ $form = full ]; then
  seeds=1..500
else
  seeds=1..60
  variants=$OUT.txt
  grep -E '^(#|4|8|16) ' "$here/variants.txt" > "$variants"
fi
sweep exponential --variants="$variants" --run.jitter=exponential --run.seed=$seeds > /dev/null
sweep constant --variants="$variants" --run.seed=1 > /dev/null
[ $form = short ] || sweep lognormal --variants="$variants" --run.jitter="lognormal 0.5" --run.seed=$seeds > /dev/null

mkdir -p "$OUT/fit"
echo times,workers,runs,predicted,momentum,standard_error,rate_over_predicted,distance > "$OUT/fit/results.csv"
fit exponential exponential
fit constant constant
if [ $form = full ]; then
  fit "lognormal 0.5" lognormal
  awk -F, '{ gsub(/_/, " "); print "| " $1 " | " $2 " | " $3 " | " $4 " | " $5 " | " $6 " | " $7 " | " $8 " |" }
    NR == 1 { print "|---|---|---|---|---|---|---|---|" }' "$OUT/fit/results.csv" > "$here/table.md"
  (cd "$OUT/fit" && awk -f "$here/picture.awk" exponential-{4,8,16}.txt lognormal-16.txt) > "$here/picture.svg"
fi
finish
