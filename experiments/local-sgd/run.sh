#!/bin/bash
# Accuracy over the steps between two exchanges: local SGD, SlowMo and DiLoCo, each at its best learning rate for that
# number of steps, and synchronous SGD. Makes runs.csv and table.md.
#
# TRIREME: the program; SEEDS: number of seeds (3); PERIODS: steps between exchanges (1 8 32 128); RATES: those to
# choose among, for all methods (default: those of methods.txt); TO: folder of the results (this one); JOBS: runs at a
# time (one for each core). In a few seconds: SEEDS=1 PERIODS=8 RATES=0.2 TO=/tmp run.sh
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${TRIREME:=trireme}" "${SEEDS:=3}" "${PERIODS:=1 8 32 128}" "${RATES:=}" "${TO:=$here}" "${JOBS:=$(nproc)}"
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
export OMP_NUM_THREADS=1 TRIREME here runs
"$TRIREME" data make digits --out "$runs/digits.h5" --train=6000 --test=2000 --seed=1 > /dev/null || exit 1

# one NAME PERIOD RATE SEED OPTIONS: trains; prints name;period;rate;seed;status;accuracies;bytes between nodes a step
one() {
  local dir
  dir=$(mktemp -d -p "$runs")
  # shellcheck disable=SC2086
  timeout -k 10 900 "$TRIREME" train "$here/config.yaml" --data.file="$runs/digits.h5" --simulate.threads=1 \
    --strategy.tau="$2" --optim.lr="$3" --run.seed="$4" --run.dir="$dir/run" $5 > "$dir/log" 2>&1
  figure() { # figure KEY
    sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$dir/run/summary.json" 2> /dev/null
  }
  bytes=$(sed -n 's/.*"between_nodes":{"bytes":\([0-9.]*\).*/\1/p' "$dir/run/summary.json" 2> /dev/null)
  echo "$1;$2;$3;$4;$(figure status);$(figure validation_accuracy);$(figure test_accuracy);$bytes"
  rm -rf "$dir"
}
export -f one
many() { # many: one with the fields of each line NAME|PERIOD|RATE|SEED|OPTIONS of standard input
  # shellcheck disable=SC2016
  tr '\n' '\0' | xargs -0 -r -P "$JOBS" -n 1 bash -c 'IFS="|" read -ra words <<< "$1"; one "${words[@]}"' _
}

# cells SEEDS: the lines for `many` of all methods, periods and rates
cells() {
  local name rates options period rate seed
  { echo "sync | 0.05 0.1 0.2 0.4 0.8 | --strategy.name=sync --optim.name=sgd"; cat "$here/methods.txt"; } |
    sed -e '/^#/d' -e 's/ *| */|/g' | while IFS='|' read -r name rates options; do
    for period in $([ "$name" = sync ] && echo 1 || echo "$PERIODS"); do
      for rate in ${RATES:-$rates}; do
        for seed in $1; do
          echo "$name|$period|$rate|$seed|$options"
        done
      done
    done
  done
}

cells 101 | many > "$runs/tune.csv" # a seed that the table does not use
# name|period|rate: of the highest validation accuracy; that of a run that fails is 0
awk -F';' '{ cell = $1 "|" $2; a = $5 == "done" ? $6 : 0; if (!(cell in top) || a > top[cell]) { top[cell] = a
             rate[cell] = $3 } } END { for (cell in rate) print cell "|" rate[cell] }' "$runs/tune.csv" > "$runs/rates"
cells "$(seq -s ' ' "$SEEDS")" |
  awk -F'|' 'NR == FNR { rate[$1 "|" $2] = $3; next } rate[$1 "|" $2] == $3' "$runs/rates" - | many | sort > "$TO/runs.csv"

# In the order of methods.txt. Accuracies are those of the runs that did not fail.
{
  echo "| method | steps between exchanges | rate | test accuracy, %: mean (standard deviation) | failed | KB between nodes, a step |"
  echo "|---|---|---|---|---|---|"
  { cells 0; cat "$TO/runs.csv"; } | awk -F'[|;]' -v OFS=' | ' '
    $4 == 0 { if (!(($1, $2) in seen)) order[++count] = $1 " | " $2; seen[$1, $2] = 1; next }
    { cell = $1 " | " $2; rate[cell] = $3; n[cell]++ }
    $5 != "done" { failed[cell]++; next }
    { a = 100 * $7; sum[cell] += a; squares[cell] += a * a; bytes[cell] = $8 }
    END { for (i = 1; i <= count; i++) { cell = order[i]; m = n[cell] - failed[cell]
            mean = m ? sum[cell] / m : 0; variance = m > 1 ? (squares[cell] - m * mean * mean) / (m - 1) : 0
            print "| " cell, rate[cell], m ? sprintf("%.2f (%.2f)", mean, sqrt(variance > 0 ? variance : 0)) : "-",
                  failed[cell] + 0 " of " n[cell], sprintf("%.1f |", bytes[cell] / 1000) } }'
} | tee "$TO/table.md"
