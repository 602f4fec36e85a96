#!/bin/bash
# Every layer but relu in every kind of parallelism: a few models that contain them match the losses of one rank on
# several ranks, with accumulation, and on nodes without shared memory; give the same bits with lanes; and resume with
# the same bits.
set -u
. "$(dirname "$0")/lib.sh"
scratch

digits 600 100
letters

# write NAME MODEL DATA: writes a configuration
write() {
  cat > "$1.yaml" << EOF
model: $2
data: {file: $3, context: 20}
train: {steps: 12, batch: 24, evaluate_every: 1000}
optim: {name: momentum, lr: 0.05, momentum: 0.9}
parallel: {threads: 1}
run: {seed: 3, checkpoint_every: 7}
log: {every: 1, quiet: yes}
EOF
}
# Smooth activations: near a kink the order of additions can change a gradient (see train.sh).
write images "conv2d 8 5 pad=2 stride=2 init=he | batch_norm sync=yes | gelu | mark a | conv2d 8 3 pad=1 groups=2 |
  batch_norm sync=yes | add a | tanh | avg_pool 2 | conv2d 12 3 pad=1 bias=no init=xavier | sigmoid | global_avg_pool |
  dropout 0.2 | linear 10" digits.h5
write pooling "conv2d 6 5 pad=2 | gelu | max_pool 2 | conv2d 12 5 | gelu tanh | max_pool 2 | flatten | linear 32 |
  gelu | dropout 0.3 | linear 10" digits.h5
write gpt "gpt layers=2 heads=2 dim=16 context=20 dropout=0.1" text.h5
write rotary "embedding 16 | mark a | rms_norm | linear 48 | rotary heads=2 | attention heads=2 | linear 16 | add a |
  mark b | rms_norm | linear 64 | swiglu | linear 16 | add b | layer_norm | head" text.h5

# follows A B: the losses of all 12 steps agree
follows() {
  local worst
  worst=$(paste <(grep -o '"loss":[^,}]*' "$1/metrics.jsonl") <(grep -o '"loss":[^,}]*' "$2/metrics.jsonl") |
    awk -F '[:\t]' '{ d = ($4 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; n += NF == 4 }
                    END { if (n == 12) printf "%.3g", worst }')
  [ -n "$worst" ] || fail "$2: expected 12 losses"
  awk -v d="$worst" 'BEGIN { exit !(d <= 1e-6) }' || fail "$2: losses differ from $1's by $worst"
  pass "$2 matches $1 (largest relative difference $worst)"
}
run_of 1 images images-log --train.steps=1 --log.quiet=no
for layer in 0 4; do
  grep -q "^layer $layer (conv2d): bias left out: the batch_norm after it removes any constant" images-log.log ||
    fail "no message about the omitted bias of layer $layer"
done
for model in images pooling gpt rotary; do
  run_of 1 $model $model-1
  for n in 2 3; do
    run_of $n $model $model-$n
    follows $model-1 $model-$n
  done
  TRM_NODE_SIZE=1 run_of 2 $model $model-nodes
  follows $model-1 $model-nodes
  # with accumulation, batch statistics are those of a micro-batch
  if [ $model != images ]; then
    run_of 1 $model $model-pieces --train.accumulate=3
    follows $model-1 $model-pieces
  fi
  if [ $model = gpt ]; then # its head and loss for some positions at a time
    run_of 4 $model $model-chunks --train.accumulate=3 --train.loss_chunk=50 --parallel.tensor=2 --parallel.pipeline=2 \
      --parallel.schedule=gpipe
    follows $model-1 $model-chunks
    run_of 2 $model $model-chunks --run.overwrite=yes --train.loss_chunk=50 --parallel.zero=3
    follows $model-1 $model-chunks
  fi
  for n in 1 2 4; do
    run_of $n $model $model-lanes$n --run.lanes=4
    [ $n = 1 ] || equal $model-lanes1 $model-lanes$n
  done
  follows $model-1 $model-lanes1 # batch norm, too: statistics of all lanes
  for n in 1 2; do # nodes, whose sums begin while the last lane computes
    TRM_NODE_SIZE=$n run_of $((2 * n)) $model $model-lanes-nodes$n --run.lanes=4 --parallel.bucket=16K
    equal $model-lanes1 $model-lanes-nodes$n
  done
  run_of 2 $model $model-pause --run.lanes=4 --train.steps=7
  run_of 1 $model $model-pause --run.lanes=4 --run.resume=auto
  equal $model-lanes1 $model-pause
  [ $model = images ] || continue
  # lanes side by side in segments that are recomputed, on ranks that shard layers, in bfloat16
  for options in --parallel.recompute=2 --train.activations=bf16 "--train.batch=23 --data.flip=yes --optim.clip=1"; do
    # shellcheck disable=SC2086
    run_of 1 $model "side-1$options" --run.lanes=8 --train.steps=6 $options
    # shellcheck disable=SC2086
    TRM_NODE_SIZE=2 run_of 4 $model "side-4$options" --run.lanes=8 --train.steps=6 $options
    equal "side-1$options" "side-4$options"
  done
  run_of 1 $model $model-blocks --run.lanes=4 --parallel.recompute=1
  equal $model-lanes1 $model-blocks
  run_of 4 $model $model-tensor --run.lanes=4 --parallel.tensor=2
  follows $model-1 $model-tensor
done
finish
