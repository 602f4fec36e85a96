#!/bin/bash
# Accuracy over the number of workers: a constant learning rate, that rate divided by the staleness, and a constant rate
# that is tuned for each number of workers. Makes runs.csv, table.md and curves.svg (four minutes on two cores).
#
# Run it in a folder with fashion.h5 (trireme data import mnist). TRIREME: the program; SEEDS: number of seeds (3);
# WORKERS: their numbers; RATES: those to tune among; JOBS: runs at a time (one for each core).
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${TRIREME:=trireme}" "${SEEDS:=3}" "${WORKERS:=1 2 4 8 16 32 64}" "${JOBS:=$(nproc)}"
: "${RATES:=0.0015 0.003 0.006 0.0125 0.025 0.05 0.1 0.2 0.4}"
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
export OMP_NUM_THREADS=1 TRIREME here runs

# one CURVE WORKERS RATE SEED OPTION: trains; prints curve,workers,rate,seed,status,accuracies,staleness
one() {
  local dir
  dir=$(mktemp -d -p "$runs")
  # shellcheck disable=SC2086
  timeout -k 10 900 "$TRIREME" train "$here/config.yaml" --simulate.workers="$2" --simulate.threads=1 --optim.lr="$3" \
    --run.seed="$4" --run.dir="$dir/run" ${5:-} > "$dir/log" 2>&1
  figure() { # figure KEY
    sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$dir/run/summary.json" 2> /dev/null
  }
  echo "$1,$2,$3,$4,$(figure status),$(figure validation_accuracy),$(figure test_accuracy),$(figure staleness_mean)"
  rm -rf "$dir"
}
export -f one
many() { # many: one with the words of each line of standard input
  # shellcheck disable=SC2016
  xargs -r -P "$JOBS" -L 1 bash -c 'one "$@"' _
}

# best WORKERS...: "WORKERS RATE" of the highest validation accuracy in tune.csv
best() {
  for workers in "$@"; do
    awk -F, -v workers="$workers" '$2 == workers && $5 == "done" && $6 > top { top = $6; rate = $3 }
                                   END { print workers, rate }' "$runs/tune.csv"
  done
}

for workers in $WORKERS; do
  for rate in $RATES; do
    echo "tune $workers $rate 101"
  done
done | many > "$runs/tune.csv"
# shellcheck disable=SC2086
best $WORKERS > "$runs/best"
serial=$(awk '$1 == 1 { print $2 }' "$runs/best")
while read -r workers rate; do
  for seed in $(seq "$SEEDS"); do
    echo "constant $workers $serial $seed"
    echo "divided $workers $serial $seed --strategy.rate=staleness"
    echo "tuned $workers $rate $seed"
  done
done < "$runs/best" | many | sort -t , -k 1,1 -k 2,2n -k 4,4n > "$here/runs.csv"

# curve,workers,rate,mean,lowest,highest,failed,staleness; a run that failed counts with the accuracy of guessing, 0.1
awk -F, '{ key = $1 "," $2 "," $3; if (!(key in n)) order[++keys] = key
           a = 100 * ($5 == "done" ? $7 : 0.1); failed[key] += $5 != "done"; stale[key] += $8
           if (!n[key] || a < low[key]) low[key] = a; if (!n[key] || a > high[key]) high[key] = a
           n[key]++; sum[key] += a }
         END { for (k = 1; k <= keys; k++) { key = order[k]
                 printf "%s,%.2f,%.2f,%.2f,%d,%.1f\n", key, sum[key] / n[key], low[key], high[key], failed[key],
                        stale[key] / n[key] } }' "$here/runs.csv" > "$runs/points.csv"
{
  echo "| learning rate | workers | rate | test accuracy, %: mean (lowest to highest) | failed | mean staleness |"
  echo "|---|---|---|---|---|---|"
  awk -F, '{ printf "| %s | %d | %s | %.2f (%.2f to %.2f) | %d of '"$SEEDS"' | %.1f |\n", $1, $2, $3, $4, $5, $6, $7, $8 }' \
    "$runs/points.csv"
} | tee "$here/table.md"
for curve in constant divided tuned; do
  grep "^$curve," "$runs/points.csv" > "$runs/$curve.csv"
done
command -v gnuplot > /dev/null || { echo "gnuplot: not found; no curves.svg"; exit 0; }
gnuplot > "$here/curves.svg" << EOF
set terminal svg size 640,400 background "white" font "sans-serif,13"
set datafile separator ","
set logscale x 2
set xlabel "workers"
set ylabel "test accuracy, %"
set key at graph 0.98, 0.55
set grid
plot "$runs/constant.csv" using 2:4:5:6 with yerrorlines linewidth 2 dashtype 1 pointtype 4 title "constant rate", \
     "$runs/divided.csv" using 2:4:5:6 with yerrorlines linewidth 2 dashtype 2 pointtype 6 title "rate / staleness", \
     "$runs/tuned.csv" using 2:4:5:6 with yerrorlines linewidth 2 dashtype 3 pointtype 8 title "constant rate, tuned for each"
EOF
