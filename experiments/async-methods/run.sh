#!/bin/bash
# Trains every method of methods.txt on the same rows on the virtual network, each at its best learning rate. Makes
# tune.csv, runs.csv and table.md, of 1,088 runs.
#
#   run.sh            all methods
#   run.sh PATTERN    those whose name begins with PATTERN; the table to standard output
#
# Run it in a folder with fashion.h5 (trireme data import mnist) and a9a.h5 (trireme data import libsvm). TRIREME: the
# program; SEEDS: number of seeds (5); DATA, WORKERS, RATES: data sets, numbers of workers, rates to tune among; JOBS:
# runs at a time (one for each core).
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${TRIREME:=trireme}" "${SEEDS:=5}" "${DATA:=fashion a9a}" "${WORKERS:=4 8}" "${JOBS:=$(nproc)}"
: "${RATES:=0.003125 0.00625 0.0125 0.025 0.05 0.1 0.2 0.4 0.8 1.6 3.2}"
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
export OMP_NUM_THREADS=1 TRIREME here runs

# one NAME DATA WORKERS RATE SEED OPTIONS: trains; prints name,data,workers,rate,seed,status,accuracies,time,staleness
one() {
  local dir
  dir=$(mktemp -d -p "$runs")
  # shellcheck disable=SC2086
  timeout -k 10 900 "$TRIREME" train "$here/$2.yaml" --simulate.workers="$3" --simulate.threads=1 --optim.lr="$4" \
    --run.seed="$5" --run.dir="$dir/run" $6 > "$dir/log" 2>&1
  figure() { # figure KEY
    sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$dir/run/summary.json" 2> /dev/null
  }
  echo "$1,$2,$3,$4,$5,$(figure status),$(figure validation_accuracy),$(figure test_accuracy),$(figure train_s)," \
    "$(figure staleness_mean),$(figure staleness_p95)" | sed "s/, /,/; s/null//g"
  rm -rf "$dir"
}
export -f one
many() { # many: one with the fields of each line NAME|DATA|WORKERS|RATE|SEED|OPTIONS of standard input
  # shellcheck disable=SC2016
  tr '\n' '\0' | xargs -0 -r -P "$JOBS" -n 1 bash -c 'IFS="|" read -ra words <<< "$1"; one "${words[@]}"' _
}

# cells RATES SEEDS: the lines for `many` of every method, data set and number of workers
cells() {
  local name options data workers rate seed
  sed -e '/^#/d' -e 's/ *| */|/g' "$here/methods.txt" | grep "^$pattern" | while IFS='|' read -r name options; do
    for data in $DATA; do
      for workers in $WORKERS; do
        for rate in $1; do
          for seed in $2; do
            echo "$name|$data|$workers|$rate|$seed|$options"
          done
        done
      done
    done
  done
}

pattern=${1:-}
to=$here
[ -z "$pattern" ] || to=$runs
cells "$RATES" 101 | many > "$to/tune.csv" # a seed that the table does not use
# name|data|workers|rate: of the highest validation accuracy; that of a run that fails is 0
awk -F, '{ cell = $1 "|" $2 "|" $3; sum[cell, $4] += $6 == "done" ? $7 : 0
           if (sum[cell, $4] > top[cell]) { top[cell] = sum[cell, $4]; rate[cell] = $4 } }
         END { for (cell in rate) print cell "|" rate[cell] }' "$to/tune.csv" > "$runs/rates"
cells RATE "$(seq "$SEEDS")" |
  awk -F'|' -v OFS='|' 'NR == FNR { rate[$1 "|" $2 "|" $3] = $4; next } { $4 = rate[$1 "|" $2 "|" $3]; print }' \
    "$runs/rates" - | many | sort > "$to/runs.csv"

# In the order of methods.txt. Accuracies are those of the runs that did not fail.
{
  echo "| method | data | workers | rate | test accuracy, %: mean (standard deviation) | failed | virtual seconds | staleness: mean | 95th percentile |"
  echo "|---|---|---|---|---|---|---|---|---|"
  { cells 0 0; cat "$to/runs.csv"; } | awk -F'[|,]' -v OFS=' | ' '
    /\|0\|0\|/ { order[++cells] = $1 " | " $2 " | " $3; next }
    { cell = $1 " | " $2 " | " $3; rate[cell] = $4; n[cell]++ }
    $6 != "done" { failed[cell]++; next }
    { a = 100 * $8; sum[cell] += a; squares[cell] += a * a; seconds[cell] += $9
      if ($10 != "") { stale[cell] += $10; if ($11 > late[cell]) late[cell] = $11 } }
    END { for (i = 1; i <= cells; i++) { cell = order[i]; m = n[cell] - failed[cell]
            mean = m ? sum[cell] / m : 0; variance = m > 1 ? (squares[cell] - m * mean * mean) / (m - 1) : 0
            print "| " cell, rate[cell], m ? sprintf("%.2f (%.2f)", mean, sqrt(variance > 0 ? variance : 0)) : "-",
                  failed[cell] + 0 " of " n[cell], m ? sprintf("%.2f", seconds[cell] / m) : "-",
                  cell in stale ? sprintf("%.1f | %d |", stale[cell] / m, late[cell]) : "- | - |" } }'
} | tee "$to/table.md"
