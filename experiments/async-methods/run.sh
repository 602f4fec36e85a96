#!/bin/bash
# Runs every method on the same samples, and prints the table of results.
#
#   run.sh            all rows of methods.txt, 4 and 8 ranks, 3 seeds: table.md (a quarter of an hour)
#   run.sh tune       (an hour) tries the learning rates for methods.txt on one seed
#   run.sh PATTERN    rows whose name matches, to standard output
#
# Run it in a folder with fashion.h5 (trireme data import mnist) and a9a.h5 (trireme data import libsvm). TRIREME,
# MPIEXEC: programs; ROUNDS: seeds (3); RATES, DATA: what to tune.
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${TRIREME:=trireme}" "${MPIEXEC:=mpiexec}" "${ROUNDS:=3}"
rates=${RATES:-0.05 0.1 0.2 0.4 0.8 1.6}
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
export OMP_NUM_THREADS=1

rows() { sed -e '/^#/d' -e 's/ *| */|/g' "$here/methods.txt"; }

# train RANKS DATA RATE SEED OPTION...: runs in $runs/run
train() {
  local ranks=$1 data=$2 rate=$3 seed=$4
  shift 4
  timeout -k 10 600 $MPIEXEC -n "$ranks" "$TRIREME" train "$here/$data.yaml" --optim.lr="$rate" --run.seed="$seed" \
    --run.dir="$runs/run" "$@" > "$runs/log" 2>&1 || { cat "$runs/log" >&2; return 1; }
}
figure() { # figure KEY FILE: the last value
  grep -o "\"$1\":[^,}]*" "$runs/run/$2" | tail -n 1 | cut -d : -f 2
}

# One line: accuracies' mean, minimum and maximum, seconds, mean and 95th percentile of staleness; - where a method has
# none.
measure() { # measure RANKS DATA RATE OPTION...
  local ranks=$1 data=$2 rate=$3 seed
  shift 3
  for seed in $(seq "$ROUNDS"); do
    train "$ranks" "$data" "$rate" "$seed" "$@" || continue
    echo "$(figure test_accuracy summary.json) $(figure wall_s summary.json)" \
      "$(figure staleness_mean summary.json) $(figure staleness_p95 summary.json)"
  done | awk '{ n++; a += $1; t += $2; m += $3; if ($4 > p) p = $4
                if (n == 1 || $1 < low) low = $1; if ($1 > high) high = $1
                stale = NF > 2 && $3 != "null" }
              END { if (!n) print "failed"
                    else printf "%.2f (%.2f to %.2f) | %.1f | %s", 100 * a / n, 100 * low, 100 * high, t / n,
                                stale ? sprintf("%.1f | %d", m / n, p) : "- | -" }'
}

table() { # table PATTERN
  echo "| method | data | ranks | rate | test accuracy, % (lowest to highest) | seconds | staleness: mean | 95th percentile |"
  echo "|---|---|---|---|---|---|---|---|"
  local name chosen options data ranks column
  rows | grep -e "^[^|]*$1" | while IFS='|' read -r name chosen options; do
    column=0
    for data in fashion a9a; do
      for ranks in 4 8; do
        column=$((column + 1))
        rate=$(echo "$chosen" | cut -d ' ' -f $column)
        [ "$rate" = - ] && continue
        # shellcheck disable=SC2086
        echo "| $name | $data | $ranks | $rate | $(measure $ranks $data "$rate" $options < /dev/null) |"
      done
    done
  done
}

tune() {
  local name chosen options data ranks rate
  rows | while IFS='|' read -r name chosen options; do
    chosen=
    for data in ${DATA:-fashion a9a}; do
      for ranks in 4 8; do
        # shellcheck disable=SC2086
        best=$(for rate in $rates; do
          train "$(case $name in sync) echo 1 ;; *) echo $ranks ;; esac)" $data "$rate" 1 $options < /dev/null 2> /dev/null &&
            echo "$(figure validation_accuracy summary.json) $rate"
        done | sort -g | tail -n 1 | cut -d ' ' -f 2)
        chosen="$chosen ${best:--}"
      done
    done
    echo "$name |$chosen | $options"
  done
}

case ${1:-} in
  tune) tune ;;
  '') table '' | tee "$here/table.md" ;;
  *) table "$1" ;;
esac
