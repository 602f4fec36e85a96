# shellcheck shell=bash
# Shared by the tests of layouts: small data sets, models, runs. Sourced after lib.sh; changes to a new folder.
: "${COMPARE:=$(dirname "$TRIREME")/tests/support/compare_weights}"
COMPARE=$(realpath "$COMPARE") TRIREME=$(realpath "$TRIREME")
[ -x "$COMPARE" ] || fail "$COMPARE is not built (make check builds it)"
scratch

digits 600 60
letters

# write NAME MODEL DATA: writes a configuration
write() {
  cat > "$1.yaml" << EOF
model: $2
data: {file: $3, context: 16, validation: 0.1}
train: {steps: 20, batch: 24, evaluate_every: 10}
optim: {name: momentum, lr: 0.1, momentum: 0.9, clip: 0.7, schedule: cosine, warmup: 4, l2: 0.001}
parallel: {threads: 1, bucket: 4K}
run: {seed: 3}
log: {every: 1, quiet: yes}
EOF
}
write mlp "linear 40 | gelu | dropout 0.1 | linear 36 | gelu | linear 32 | gelu | dropout 0.1 | linear 36 | gelu |
  linear 40 | gelu | linear 24 | gelu | linear 24 | gelu | linear 10" digits.h5
write conv "conv2d 8 5 pad=2 stride=2 | gelu | max_pool 2 | conv2d 12 3 pad=1 | gelu | avg_pool 2 | flatten |
  dropout 0.1 | linear 32 | gelu | linear 10" digits.h5
write norms "conv2d 8 5 pad=2 stride=2 init=he bias=no | batch_norm sync=yes | gelu | mark a |
  conv2d 8 3 pad=1 bias=no | batch_norm sync=yes | add a | gelu | avg_pool 2 | conv2d 12 3 pad=1 bias=no | tanh |
  global_avg_pool | linear 10" digits.h5
write gpt2 "gpt layers=2 heads=4 dim=16 context=16 dropout=0.1" text.h5
write gpt4 "gpt layers=4 heads=4 dim=16 context=16 dropout=0.1" text.h5
models="mlp conv norms gpt2 gpt4"
pieces_of() { case $1 in mlp) echo 8 ;; conv) echo 4 ;; norms) echo 4 ;; *) echo 8 ;; esac; }

losses() { grep -o '"\(test_\|validation_\)\?loss":[^,}]*' "$1/metrics.jsonl"; }

# same REFERENCE NAME: losses and final weights of both runs are equal within 1e-4
same() {
  local loss weights
  loss=$(paste <(losses "$1") <(losses "$2") |
    awk -F '[:\t]' '{ d = ($4 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; n += NF == 4 }
                    END { if (n > 20) printf "%.3g", worst }')
  [ -n "$loss" ] || fail "$2: losses are missing"
  weights=$("$COMPARE" "$1/checkpoints/last.h5" "$2/checkpoints/last.h5") || fail "$2: weights cannot be compared"
  awk -v l="$loss" -v w="$weights" 'BEGIN { exit !(l <= 1e-4 && w <= 1e-4) }' ||
    fail "$2: losses differ from one rank's by $loss, weights by $weights"
  pass "$2: losses $loss, weights $weights"
}
