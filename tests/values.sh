#!/bin/bash
# train.activations=bf16: activations, their gradients and the weights that products read are bfloat16.
set -u
. "$(dirname "$0")/lib.sh"
scratch
digits 2000 200
letters
common=$(cat << 'END'
train: {batch: 24, steps: 60, accumulate: 2}
optim: {name: momentum, lr: 0.05, clip: 1}
run: {seed: 3, checkpoint_every: 0}
log: {quiet: yes}
parallel: {threads: 1}
END
)
echo "$common" > mlp.yaml
cat >> mlp.yaml << 'END'
model: mlp 784-64-32-10 gelu
data: {file: digits.h5}
END
echo "$common" > gpt.yaml
cat >> gpt.yaml << 'END'
model: gpt layers=2 heads=4 dim=32 context=16 dropout=0.1
data: {file: text.h5, context: 16}
END
echo "$common" > conv.yaml
cat >> conv.yaml << 'END'
model: conv2d 8 5 pad=2 stride=2 | batch_norm | relu | mark a | conv2d 8 3 pad=1 groups=2 | add a | tanh | max_pool 2 | linear 10
data: {file: digits.h5}
END

# near RATIO A B KEY: the key of runs A and B differs by at most this ratio of B's; prints the difference
near() {
  local d
  d=$(awk -v a="$(of "$2" "$4")" -v b="$(of "$3" "$4")" 'BEGIN { d = (a - b) / b; printf "%.2g", d < 0 ? -d : d }')
  awk -v d="$d" -v r="$1" 'BEGIN { exit !(d <= r) }' || fail "$2: $4 differs by $d from that of $3, may by $1"
  echo "$4 of $2 and $3 differ by $d"
}

# -- the losses of float32, but not its bits
for model in mlp gpt conv; do
  run_of 1 $model $model-f32
  run_of 1 $model $model --train.activations=bf16
  near 0.01 $model $model-f32 final_train_loss
  [ $model = conv ] || near 0.01 $model $model-f32 test_loss # the convolutions' varies with every rounding
  [ "$(sha $model)" != "$(sha $model-f32)" ] || fail "$model: bfloat16 gives the bits of float32"
  pass "$model: the losses of float32 within 1 %, not the same"
done

# -- layouts
for model in mlp gpt conv; do
  tolerance=0.001
  [ $model != conv ] || tolerance=0.02
  for layout in "2 --parallel.data=2" "2 --parallel.data=2 --parallel.share=none" "2 --parallel.zero=3" \
    "2 --parallel.tensor=2" "2 --parallel.tensor=2 --parallel.share=none" "4 --parallel.tensor=2 --parallel.zero=2"; do
    # shellcheck disable=SC2086 # several options
    run_of "${layout%% *}" $model layout ${layout#* } --train.activations=bf16 --run.overwrite=yes
    near $tolerance layout $model final_train_loss
    pass "$model, ${layout#* }: the loss of one rank within $tolerance"
  done
done
for model in mlp gpt; do
  run_of 2 $model $model-pipeline --parallel.pipeline=2 --train.activations=bf16
  equal $model $model-pipeline
  run_of 1 $model $model-recompute --parallel.recompute=block --train.activations=bf16
  equal $model $model-recompute
done
run_of 2 gpt interleaved --model="gpt layers=4 heads=4 dim=32 context=16" --parallel.pipeline=2 \
  --parallel.schedule=interleaved --train.activations=bf16
run_of 1 gpt whole --model="gpt layers=4 heads=4 dim=32 context=16" --train.activations=bf16
equal whole interleaved
for schedule in pipedream 2bw; do
  accumulate=2
  [ $schedule = 2bw ] || accumulate=1
  run_of 2 gpt $schedule --parallel.pipeline=2 --parallel.schedule=$schedule --train.accumulate=$accumulate \
    --train.activations=bf16
  run_of 2 gpt $schedule-f32 --parallel.pipeline=2 --parallel.schedule=$schedule --train.accumulate=$accumulate
  near 0.01 $schedule $schedule-f32 final_train_loss
  pass "$schedule: the loss of float32 within 1 %"
done

# -- resumed: the bits of an undisturbed run
run_of 1 gpt half --train.steps=30 --train.activations=bf16
run_of 1 gpt half --train.steps=60 --run.resume=auto --train.activations=bf16
equal gpt half

# -- evaluation and prediction read the scores of either type
launch 1 "$TRIREME" eval gpt/checkpoints/last.h5 --data.file=text.h5 --train.activations=bf16 > eval.log 2>&1 ||
  { cat eval.log; fail "eval in bfloat16"; }
# -- oneDNN computes all three passes of a convolution, whatever types its arrays have
if ldd "$TRIREME" | grep -q libdnnl; then
  for types in device.matmul=f32 device.matmul=bf16 train.activations=bf16; do
    case $types in *f32) needs=avx512f ;; *) needs=avx512_bf16 ;; esac
    grep -qw $needs /proc/cpuinfo || continue
    ONEDNN_VERBOSE=1 "$TRIREME" bench step --model="conv2d 32 3 pad=1 | relu | conv2d 32 3 pad=1 | flatten | linear 10" \
      --input=16x12x12 --batch=4 --steps=1 --warmup=1 --bound=no --$types > convolutions.log 2>&1 ||
      { tail -n 3 convolutions.log; fail "bench step --$types"; }
    for pass in forward_training backward_data backward_weights; do
      grep -q "exec,cpu,convolution,.*,$pass," convolutions.log || fail "--$types: oneDNN does not compute $pass"
    done
    pass "oneDNN's convolutions: $types"
  done
fi
finish
