#!/bin/bash
# What the virtual network costs, in processor seconds (summary.json, "simulation").
#
#   tests/bench/virtual.sh           events beside gradients: 256 workers, the perceptron 784-64-10, batches of 32
#   tests/bench/virtual.sh large     1,024 workers x 100,000 parameters x 200 updates; 4,096 workers of a small model
#   tests/bench/virtual.sh ranks     100,000 ranks that compute nothing (8 GB)
#
# The costs of a step are the difference of a short and a long run, so without setting up and evaluating. ROUNDS of the
# first table: the rows are medians. THREADS that compute: the first table has one, the others all cores.
. "$(dirname "$0")/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=1
METHOD=${METHOD:-asgd}
"$TRIREME" data make digits --out d.h5 --train=60000 --test=1000 --seed=7 > /dev/null 2>&1
cat > c.yaml << 'YAML'
model: mlp 784-64-10 relu
data: {file: d.h5}
train: {batch: 32, evaluate_every: 0}
optim: {lr: 0.01}
run: {seed: 3, jitter: lognormal 0.5, checkpoint_every: -1, overwrite: yes}
log: {quiet: yes}
YAML

# simulate WORKERS STEPS OPTION...: one run; sets wall (s) and peak (MB)
simulate() {
  local time
  time=$({ TIMEFORMAT=%R; time "$TRIREME" train c.yaml --run.dir=run --strategy.name="$METHOD" --simulate.workers="$1" \
    --train.steps="$2" "${@:3}" > log 2>&1; } 2>&1) || { cat log >&2; exit 1; }
  wall=$time peak=$(awk -v b="$(figure max_resident_bytes)" 'BEGIN { printf "%.0f", b / 1e6 }')
}
figure() { json_value "$1" < run/summary.json; }
row() { printf '%-34s %9s %9s %10s %8s %9s %8s\n' "$@"; }

share() {
  local workers=256 per_worker=80 short=256 long keys='cpu_s gradients_cpu_s owners_cpu_s events switches' key
  long=$((workers * per_worker))
  for ((round = 0; round < ROUNDS; round++)); do
    simulate $workers $short --simulate.threads="${THREADS:-1}"
    for key in $keys; do echo "$(figure $key)"; done > short
    simulate $workers $long --simulate.threads="${THREADS:-1}"
    for key in $keys; do echo "$(figure $key)"; done | paste - short |
      awk -v n=$((long - short)) '{ v[NR] = ($1 - $2) / n } END { us = 1e6
        print v[1] * us, v[2] * us, v[3] * us, (v[1] - v[2] - v[3]) * us, (v[1] - v[2] - v[3]) / v[2], v[4], v[5] }'
  done > rounds
  echo "$METHOD, $workers workers, 784-64-10, batch 32: microseconds of a processor a step"
  for i in 1:total 2:gradient "3:owners' arithmetic" 4:events "5:events / gradient" "6:number of events" \
    "7:switches of fibers"; do
    printf '  %-22s %.3f\n' "${i#*:}" "$(median $(cut -d' ' -f${i%%:*} rounds))"
  done
}

# large_row NAME WORKERS STEPS OPTION...
large_row() {
  simulate "$2" "$3" "${@:4}"
  row "$1" "$2" "$3" "$wall" "$(printf %.1f "$(figure cpu_s)")" "$(printf %.1f "$(figure gradients_cpu_s)")" "$peak"
}

case ${1-} in
  '') share ;;
  large | ranks)
    row run workers steps 'wall, s' 'cpu, s' 'gradients' 'peak, MB'
    if [ "$1" = large ]; then
      large_row '784-126-10: 100,180 parameters' 1024 204800 --model='mlp 784-126-10 relu' --simulate.threads="${THREADS:-0}"
      large_row '784-8-10: 6,370 parameters' 4096 204800 --model='mlp 784-8-10 relu' --train.batch=8 --simulate.threads="${THREADS:-0}"
    else
      large_row '784-2-10, no gradients' 100000 200000 --model='mlp 784-2-10 relu' --train.batch=1 \
        --simulate.gradients=no
    fi ;;
  *) echo "usage: $0 [large | ranks]" >&2; exit 2 ;;
esac
