#!/bin/bash
# Runs every row of methods.txt at every rate, and prints the table of results.
#
#   run.sh            all rows, 3 seeds: table.md and curves.svg (nine minutes on two cores)
#   run.sh PATTERN    rows whose name matches, to standard output
#   run.sh curves     only the picture
#
# TRIREME, MPIEXEC: programs; ROUNDS: seeds (3); RATES: learning rates. Makes digits.h5 if it is missing; OPTIONS go to
# every run, such as "--optim.momentum=0.9 --optim.name=momentum".
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${TRIREME:=trireme}" "${MPIEXEC:=mpiexec}" "${ROUNDS:=3}" "${OPTIONS:=}"
rates=${RATES:-0.002 0.01 0.05 0.2 0.5}
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
export OMP_NUM_THREADS=1
[ -e digits.h5 ] || "$TRIREME" data make digits --out=digits.h5 --train=12000 --test=2000 || exit 1

rows() { sed -e '/^#/d' -e 's/ *| */|/g' "$here/methods.txt"; }

# train RANKS RATE SEED RUN OPTION...: a run; fails if its loss was not finite
train() {
  local ranks=$1 rate=$2 seed=$3 run=$4
  shift 4
  # shellcheck disable=SC2086
  timeout -k 10 600 $MPIEXEC -n "$ranks" "$TRIREME" train "$here/config.yaml" --optim.lr="$rate" --run.seed="$seed" \
    --run.dir="$run" "$@" $OPTIONS > "$runs/log" 2>&1 && return
  grep -q "the loss is\|loss of worker" "$runs/log" || cat "$runs/log" >&2
  return 1
}
figure() { # figure KEY: of the summary
  sed -n "s/.*\"$1\":\([-+0-9.e]*\).*/\1/p" "$runs/run/summary.json"
}

# Test loss and accuracy: mean, minimum and maximum over completed runs.
measure() { # measure RANKS RATE OPTION...
  local ranks=$1 rate=$2 seed
  shift 2
  for seed in $(seq "$ROUNDS"); do
    if train "$ranks" "$rate" "$seed" "$runs/run" "$@"; then echo "$(figure test_loss) $(figure test_accuracy)"; else echo; fi
  done | awk -v rounds="$ROUNDS" '
    NF == 2 { n++; l += $1; a += $2
              if (n == 1 || $1 < l0) l0 = $1; if ($1 > l1) l1 = $1
              if (n == 1 || $2 < a0) a0 = $2; if ($2 > a1) a1 = $2 }
    END { if (n) printf "%.3f (%.3f to %.3f) | %.1f (%.1f to %.1f) | ", l / n, l0, l1, 100 * a / n, 100 * a0, 100 * a1
          else printf "- | - | "
          print rounds - n }'
}

table() { # table PATTERN
  echo "| schedule | staleness in forward, stages 0, 1, ... | in backward | rate | test loss (lowest to highest) |" \
    "test accuracy, % (lowest to highest) | diverged |"
  echo "|---|---|---|---|---|---|---|"
  local name ranks forward backward options rate
  rows | grep -e "^[^|]*$1" | while IFS='|' read -r name ranks forward backward options; do
    for rate in $rates; do
      # shellcheck disable=SC2086
      echo "| $name | $forward | $backward | $rate | $(measure "$ranks" "$rate" $options < /dev/null) |"
    done
  done
}

curves() { # at rate 0.2, of one seed, without asgd and four stages
  local name ranks forward backward options all=()
  while IFS='|' read -r name ranks forward backward options; do
    case $name in asgd* | *4\ stages) continue ;; esac
    # shellcheck disable=SC2086
    train "$ranks" 0.2 1 "$runs/$name" $options < /dev/null
    all+=("$runs/$name")
  done < <(rows)
  "$TRIREME" report "${all[@]}" --svg="$here/curves.svg"
}

case ${1:-} in
  curves) curves ;;
  '') table '' | tee "$here/table.md" && curves ;;
  *) table "$1" ;;
esac
