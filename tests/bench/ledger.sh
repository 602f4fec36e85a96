#!/bin/bash
# What the ledger and the watchdog cost a small step: the perceptron 784-32-10, batches of 8 rows a rank.
#
#   tests/bench/ledger.sh           instructions of a step with and without (1 rank); those of the ledger alone (2 ranks);
#                                   needs valgrind
#   RANKS=2 tests/bench/ledger.sh time      time of a step with / without, median of ROUNDS
#
# The figures of a step are the difference of a long and a short run, so without setting up.
. "$(dirname "$0")/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=1
RANKS=${RANKS:-2}
"$TRIREME" data make digits --out d.h5 --train=4000 --test=100 --seed=7 > /dev/null 2>&1
cat > c.yaml << 'YAML'
model: mlp 784-32-10 relu
data: {file: d.h5}
run: {dir: run, seed: 3, checkpoint_every: -1, overwrite: yes}
log: {quiet: yes}
YAML
with="--run.stall_after=60 --run.stall_abort=600" without="--run.stall_after=0 --run.stall_abort=0"

# instructions RANKS STEPS OPTION...: those of rank 0
instructions() {
  local ranks=$1 steps=$2
  shift 2
  rm -f callgrind.*
  # shellcheck disable=SC2086 # words
  $MPIEXEC -n "$ranks" valgrind --tool=callgrind --callgrind-out-file=callgrind.%p ${collect:-} "$TRIREME" train c.yaml \
    --train.batch=$((8 * ranks)) --train.steps="$steps" "$@" > log 2>&1 || { cat log >&2; exit 1; }
  sed -n 's/.*Collected : \([0-9]*\).*/\1/p' log | sort -g | tail -n 1
}
# of_step RANKS OPTION...: instructions of a step
of_step() {
  local short long
  short=$(instructions "$1" 100 "${@:2}") long=$(instructions "$1" 500 "${@:2}")
  awk -v a="$short" -v b="$long" 'BEGIN { printf "%.0f\n", (b - a) / 400 }'
}
# seconds OPTION...: of the steps of one run
seconds() {
  job "$RANKS" train c.yaml --train.batch=$((8 * RANKS)) --train.steps=8000 --train.epochs=1000 "$@" > log 2>&1 ||
    { cat log >&2; exit 1; }
  json_value train_s < run/summary.json
}

if [ "${1:-}" = time ]; then
  for ((round = 0; round < ROUNDS; round++)); do
    # shellcheck disable=SC2086 # words
    ratios[round]=$(ratio "$(seconds $with)" "$(seconds $without)")
  done
  echo "time of a step, with / without the ledger, $RANKS ranks: $(median "${ratios[@]}") (${ratios[*]})"
  exit
fi
# shellcheck disable=SC2086 # words
on=$(of_step 1 $with) off=$(of_step 1 $without)
echo "instructions of a step, 1 rank: $on with, $off without: $(awk -v a="$on" -v b="$off" 'BEGIN {
  printf "%.2f %% more", 100 * (a - b) / b }')"
collect="--toggle-collect=trm_ledger_*"
# shellcheck disable=SC2086 # words
echo "instructions of the ledger in a step, 2 ranks: $(of_step 2 $with)"
