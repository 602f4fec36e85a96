#!/bin/bash
# Accuracy over the steps between two exchanges: local SGD, SlowMo and DiLoCo, each at the learning rate and the outer
# momentum that are best for that number of steps, and synchronous SGD. Makes tune.csv, runs.csv, table.md and
# curves.svg.
#
#   run.sh            all methods
#   run.sh PATTERN    those whose name begins with PATTERN; the table to standard output
#
# Run it in a folder with fashion.h5 (trireme data import mnist). TRIREME: the program; SEEDS: number of seeds (3);
# PERIODS, RATES: steps between exchanges, learning rates, for all methods (default: those of methods.txt); OPTIONS: to
# every run; JOBS: runs at a time (one for each core).
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${TRIREME:=trireme}" "${SEEDS:=3}" "${PERIODS:=}" "${RATES:=}" "${OPTIONS:=}" "${JOBS:=$(nproc)}"
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
export OMP_NUM_THREADS=1 TRIREME OPTIONS here runs

# one NAME PERIOD RATE MOMENTUM SEED OPTIONS: trains; prints
# name;period;rate;momentum;seed;status;accuracies;steps;bytes between nodes a step;loss of the last batches
one() {
  local dir outer=
  dir=$(mktemp -d -p "$runs")
  [ "$4" = - ] || outer=--strategy.outer_momentum=$4
  # shellcheck disable=SC2086
  timeout -k 10 900 "$TRIREME" train "$here/config.yaml" --simulate.threads=1 --strategy.tau="$2" --optim.lr="$3" \
    $outer --run.seed="$5" --run.dir="$dir/run" $6 $OPTIONS > "$dir/log" 2>&1
  figure() { # figure KEY
    sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$dir/run/summary.json" 2> /dev/null
  }
  bytes=$(sed -n 's/.*"between_nodes":{"bytes":\([0-9.]*\).*/\1/p' "$dir/run/summary.json" 2> /dev/null)
  echo "$1;$2;$3;$4;$5;$(figure status);$(figure validation_accuracy);$(figure test_accuracy);$(figure steps);$bytes;$(figure final_train_loss)"
  rm -rf "$dir"
}
export -f one
many() { # many: one with the fields of each line NAME|PERIOD|RATE|MOMENTUM|SEED|OPTIONS of standard input
  # shellcheck disable=SC2016
  tr '\n' '\0' | xargs -0 -r -P "$JOBS" -n 1 bash -c 'IFS="|" read -ra words <<< "$1"; one "${words[@]}"' _
}

# cells SEEDS: the lines for `many` of all methods, periods, rates and outer momenta
cells() {
  local name periods rates momenta options period rate momentum seed
  sed -e '/^#/d' -e 's/ *| */|/g' "$here/methods.txt" | grep "^$pattern" |
    while IFS='|' read -r name periods rates momenta options; do
      [ "$periods" = 1 ] || periods=${PERIODS:-$periods}
      for period in $periods; do
        for rate in ${RATES:-$rates}; do
          for momentum in $momenta; do
            for seed in $1; do
              echo "$name|$period|$rate|$momentum|$seed|$options"
            done
          done
        done
      done
    done
}

pattern=${1:-}
to=$here
[ -z "$pattern" ] || to=$runs
cells 101 | many > "$to/tune.csv" # a seed that the table does not use
# name|period|rate|momentum: of the highest validation accuracy; that of a run that fails is 0
awk -F';' '{ cell = $1 "|" $2; a = $6 == "done" ? $7 : 0; if (!(cell in top) || a > top[cell]) { top[cell] = a
             best[cell] = $3 "|" $4 } } END { for (cell in best) print cell "|" best[cell] }' "$to/tune.csv" > "$runs/best"
cells "$(seq -s ' ' "$SEEDS")" |
  awk -F'|' 'NR == FNR { best[$1 "|" $2] = $3 "|" $4; next } best[$1 "|" $2] == $3 "|" $4' "$runs/best" - |
  many | sort > "$to/runs.csv"

# In the order of methods.txt. Accuracies are those of the runs that did not fail.
{
  echo "| method | steps between exchanges | exchanges in the run | rate | outer momentum | test accuracy, %: mean (standard deviation) | to sync, points | loss of the last training batches | failed | KB between nodes, a step |"
  echo "|---|---|---|---|---|---|---|---|---|---|"
  { cells 0; cat "$to/runs.csv"; } | awk -F'[|;]' -v OFS=' | ' '
    $5 == 0 { if (!(($1, $2) in seen)) order[++count] = $1 " | " $2; seen[$1, $2] = 1; next }
    { cell = $1 " | " $2; period[cell] = $2; best[cell] = $3 " | " $4; n[cell]++ }
    $6 != "done" { failed[cell]++; next }
    { a = 100 * $8; sum[cell] += a; squares[cell] += a * a; steps[cell] = $9; bytes[cell] = $10; loss[cell] += $11 }
    END { reference = n["sync | 1"] - failed["sync | 1"] ? sum["sync | 1"] / (n["sync | 1"] - failed["sync | 1"]) : 0
          for (i = 1; i <= count; i++) { cell = order[i]; m = n[cell] - failed[cell]
            mean = m ? sum[cell] / m : 0; variance = m > 1 ? (squares[cell] - m * mean * mean) / (m - 1) : 0
            print "| " cell, m ? int((steps[cell] + period[cell] - 1) / period[cell]) : "-", best[cell],
                  m ? sprintf("%.2f (%.2f)", mean, sqrt(variance > 0 ? variance : 0)) : "-",
                  m && reference ? sprintf("%+.2f", mean - reference) : "-", m ? sprintf("%.3f", loss[cell] / m) : "-",
                  failed[cell] + 0 " of " n[cell], sprintf("%.1f |", bytes[cell] / 1000) } }'
} | tee "$to/table.md"
[ -z "$pattern" ] || exit 0

# The picture: one seed, validation accuracy after each epoch
all=()
while IFS='|' read -r name period rate momentum seed options; do
  case $name\ $period in sync\ 1 | local\ 8 | *o\ 128 | local\ 128) ;; *) continue ;; esac
  outer=
  [ "$momentum" = - ] || outer=--strategy.outer_momentum=$momentum
  run="$runs/$name, H = $period"
  # shellcheck disable=SC2086
  "$TRIREME" train "$here/config.yaml" --strategy.tau="$period" --optim.lr="$rate" $outer --run.seed="$seed" \
    --run.dir="$run" $options $OPTIONS > "$runs/log" 2>&1 < /dev/null || cat "$runs/log" >&2
  all+=("$run")
done < <(cells 1 | awk -F'|' 'NR == FNR { best[$1 "|" $2] = $3 "|" $4; next } best[$1 "|" $2] == $3 "|" $4' "$runs/best" -)
"$TRIREME" report "${all[@]}" --svg="$here/curves.svg"
