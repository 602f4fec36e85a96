#!/bin/bash
# The module for GPUs without one: its kernels run by the emulator, its host code on a mock of CUDA's runtime whose
# streams work only when they are waited for (tests/cuda). The operator suite, whole runs against the CPU's, and the
# messages for what may be missing.
. "$(dirname "$0")/lib.sh"
[ "${TRM_TEST_LATER-}" != cuda ] || skip "another stage runs it, under the sanitizers"
module=${builddir:-$top_srcdir/build}/tests/cuda/.libs
[ -e "$module/trireme_cuda.so" ] || skip "the C++ compiler of this build does not make the module ($module)"
suite=${builddir:-$top_srcdir/build}/tests/unit/test_kernels
scratch
export TRIREME_MODULES=$module

# refused TEXT VARIABLE=VALUE...: train --device.name=cuda ends with status 1 and one line with TEXT
model="mlp 784-64-10 relu"
refused() {
  local text=$1 status=0
  shift
  env "$@" "$TRIREME" train --model="$model" --data.file=digits.h5 --train.steps=1 --device.name=cuda \
    --run.dir=refused > refused.log 2>&1 || status=$?
  grep -q "error: .*$text" refused.log || { cat refused.log; fail "the message should have: $text"; }
  [ $status = 1 ] || fail "status $status for: $text"
  [ "$(grep -c error refused.log)" = 1 ] || { cat refused.log; fail "more than one message for: $text"; }
  pass "refused: $text"
}

digits 640 64
refused "there is no module /nonexistent/trireme_cuda.so" TRIREME_MODULES=/nonexistent
mkdir damaged other && echo "no module" > damaged/trireme_cuda.so
refused "damaged/trireme_cuda.so cannot be loaded" TRIREME_MODULES="$PWD/damaged"
sed 's/libstdc++\.so/libabsent.so/g' "$module/trireme_cuda.so" > other/trireme_cuda.so # a library that is not there
refused "libabsent.so.6: cannot open" TRIREME_MODULES="$PWD/other"
refused "no NVIDIA driver" TRM_MOCK_GPUS=none
refused "too old: it supports CUDA 11.2, and this build needs 12.4" TRM_MOCK_GPUS=old
refused "no GPU" TRM_MOCK_GPUS=0
refused "GPU 0 has no room for .*GiB are needed, .*are free" TRM_MOCK_BYTES=300000
model="mlp 784-10-100000-10 relu" refused "no room for activations.*planned for passes of .* rows: activations 0.19 GiB in all" \
  TRM_MOCK_BYTES=30000000

# same NAME RANKS TOLERANCE ARGUMENTS...: the run on the module has the CPU's training loss
same() {
  local name=$1 ranks=$2 tolerance=$3 device
  shift 3
  for device in cpu cuda; do
    launch "$ranks" "$TRIREME" train "$@" --device.name=$device --run.dir="$name.$device" --log.quiet=true \
      > "$name.log" 2>&1 || { cat "$name.log"; fail "$name on $device"; }
  done
  awk -v a="$(json_number final_train_loss "$name.cpu/summary.json")" -v t="$tolerance" \
    -v b="$(json_number final_train_loss "$name.cuda/summary.json")" \
    'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d < t * a && -d < t * a) }' ||
    { grep -H final_train_loss "$name".*/summary.json; fail "$name: the loss is not the CPU's"; }
  pass "$name: the CPU's loss to $tolerance"
}

same mlp 1 1e-5 --model="mlp 784-32-10 relu" --data.file=digits.h5 --train.steps=10 --train.batch=32 --optim.lr=0.1
same adam 2 1e-5 --model="mlp 784-32-10 gelu" --data.file=digits.h5 --train.steps=5 --train.batch=32 --optim.name=adamw \
  --optim.lr=0.01 --train.class_weights=balanced --train.label_smoothing=0.1
same images 1 1e-4 --model=lenet5 --data.file=digits.h5 --train.steps=2 --train.batch=4 --optim.lr=0.1
same rounded 2 1e-2 --model="mlp 784-32-10 relu" --data.file=digits.h5 --train.steps=5 --train.batch=32 --optim.lr=0.1 \
  --train.activations=bf16
letters
same letters 1 1e-4 --model="gpt layers=2 heads=2 dim=16 context=16" --data.file=text.h5 --train.steps=3 --train.batch=2 \
  --optim.name=adamw --optim.lr=0.01
"$TRIREME" train --model="mlp 784-32-10 relu" --data.file=digits.h5 --train.steps=10 --train.batch=32 --optim.lr=0.1 \
  --device.name=cuda --device.matmul=tf32 --run.dir=mlp.tf32 > tf32.log 2>&1 || { cat tf32.log; fail "TF32"; }
awk -v a="$(json_number final_train_loss mlp.cuda/summary.json)" \
  -v b="$(json_number final_train_loss mlp.tf32/summary.json)" \
  'BEGIN { d = (a - b) / a; exit !(d != 0 && d < 1e-2 && -d < 1e-2) }' || fail "TF32: the loss"
pass "TF32: near the loss of float32 products, and not the same"
TRM_MOCK_LOCKS=no TRM_MOCK_EPILOGUES=no same refused-by-cuda 2 1e-5 --model="mlp 784-32-10 relu" --data.file=digits.h5 --train.steps=2 \
  --train.batch=32 --optim.lr=0.1

# recorded NAME GRAPHS ARGUMENTS...: with CUDA graphs the weights have the bits of single calls, and the run has launched
# at least so many
recorded() {
  local name=$1 graphs=$2 choice
  shift 2
  for choice in yes no; do
    TRM_MOCK_CALLS=$PWD/$name.$choice "$TRIREME" train "$@" --device.name=cuda --device.graphs=$choice \
      --run.dir="$name.g$choice" --log.quiet=true > "$name.log" 2>&1 || { cat "$name.log"; fail "$name, graphs=$choice"; }
  done
  [ "$(json_text weights_sha256 "$name.gyes/summary.json")" = "$(json_text weights_sha256 "$name.gno/summary.json")" ] ||
    fail "$name: other weights with graphs"
  awk -v least="$graphs" '{ n[NR] = $1; g[NR] = $2 } END { exit !((least ? n[1] < n[2] : n[1] == n[2]) && g[1] >= least && g[2] == 0) }' \
    "$name.yes" "$name.no" || { head "$name.yes" "$name.no"; fail "$name: calls, graphs; yes and no"; }
  pass "$name: the same weights with graphs, $(cut -d' ' -f1 "$name.yes") calls in place of $(cut -d' ' -f1 "$name.no")"
}
recorded g-mlp 40 --model="mlp 784-16-10 relu" --data.file=digits.h5 --train.steps=30 --train.batch=100 --optim.lr=0.1 \
  --optim.name=momentum --train.evaluate_every=7
recorded g-images 12 --model="conv2d 3 5 stride=2 | batch_norm | relu | max_pool 2 | dropout 0.2 | linear 10" \
  --data.file=digits.h5 --train.steps=9 --train.batch=6 --optim.lr=0.1 --optim.clip=0.5
recorded g-gpt 18 --model="gpt layers=1 heads=2 dim=16 context=16 dropout=0.1" --data.file=text.h5 --train.steps=9 \
  --train.batch=4 --train.accumulate=2 --optim.name=adamw --optim.lr=0.01 --optim.clip=1 --optim.ema=0.9 \
  --train.activations=bf16
TRM_MOCK_GRAPHS=no recorded g-refused 0 --model="mlp 784-16-10 relu" --data.file=digits.h5 --train.steps=4

# calls NAME GRAPHS: of ten steps of a GPT, which begin when all is recorded
calls() {
  local steps
  for steps in 10 20; do
    TRM_MOCK_CALLS=$PWD/$1.$steps "$TRIREME" train --model="gpt layers=1 heads=2 dim=16 context=16" --data.file=text.h5 \
      --train.batch=2 --optim.name=adamw --optim.lr=0.01 --train.steps=$steps --train.evaluate_every=1000 \
      --run.checkpoint_every=-1 --device.name=cuda --device.graphs="$2" --run.dir="$1.$steps.run" --log.quiet=true \
      > calls.log 2>&1 || { cat calls.log; fail "calls of steps"; }
  done
  paste "$1.10" "$1.20" | awk '{ print $3 - $1, $4 - $2 }'
}
with=$(calls with yes) without=$(calls without no)
[ "$with $without" = "100 20 560 0" ] || fail "calls and graphs of ten steps: $with, without graphs $without"
pass "ten steps are 100 calls, of which 20 are graphs, in place of 560, besides copies of the host's memory"
"$TRIREME" train --model="mlp 784-32-10 relu" --data.file=digits.h5 --train.steps=2 --device.name=auto --run.dir=auto \
  > auto.log 2>&1 && grep -q "^device: cuda" auto.log || { cat auto.log; fail "device.name=auto with a GPU"; }
TRM_MOCK_GPUS=none "$TRIREME" train --model="mlp 784-32-10 relu" --data.file=digits.h5 --train.steps=2 \
  --device.name=auto --run.dir=auto2 > auto.log 2>&1 && ! grep -q "^device:" auto.log ||
  { cat auto.log; fail "device.name=auto without a GPU"; }
# a rank on a GPU beside one on the CPU, and two ranks on one GPU each: one job
mixed=(--model="mlp 784-32-10 relu" --data.file=digits.h5 --train.steps=5 --train.batch=32 --optim.lr=0.1)
launch 1 "$TRIREME" train "${mixed[@]}" --run.dir=mixed --device.name=cuda : -n 1 "$TRIREME" train "${mixed[@]}" \
  --run.dir=mixed --device.name=cpu : -n 1 "$TRIREME" train "${mixed[@]}" --run.dir=mixed --device.name=cuda \
  > mixed.log 2>&1 || { cat mixed.log; fail "two ranks on GPUs and one on the CPU"; }
"$TRIREME" train "${mixed[@]}" --run.dir=alone > alone.log 2>&1 || { cat alone.log; fail "one rank on the CPU"; }
awk -v a="$(json_number final_train_loss mixed/summary.json)" -v b="$(json_number final_train_loss alone/summary.json)" \
  'BEGIN { exit !(a > 0 && a - b < 1e-5 && b - a < 1e-5) }' || fail "the loss of two GPUs and a CPU is not one CPU's"
pass "two ranks on GPUs and one on the CPU: one CPU's loss"
pass "device.name=auto takes the GPU where there is one"

mkdir driver && ln -s "$(realpath "${module%/cuda/.libs}/support/.libs/nvml.so")" driver/libnvidia-ml.so.1
for fails in '' yes; do
  LD_LIBRARY_PATH=$PWD/driver NVML_FAILS=$fails launch 2 "$TRIREME" train "${mixed[@]}" --run.dir="energy$fails" \
    --device.name=cuda > energy.log 2>&1 || { cat energy.log; fail "energy of GPUs"; }
done
[ "$(json_number gpu_joules energy/summary.json)" = 0.375 ] || { cat energy/summary.json; fail "energy of two GPUs"; }
! grep -q gpu_joules energyyes/summary.json alone/summary.json || fail "energy of a GPU that does not count, or on a CPU"
pass "the energy of a node's GPUs, once for two ranks"

timeout -k 10 100 "${module%/.libs}/test_emulator" > planted.log 2>&1 || { cat planted.log; fail "planted bugs"; }
pass "the emulator finds planted bugs"
TRM_TEST_DEVICE=cuda timeout -k 10 1000 "$suite" > suite.log 2>&1 || { cat suite.log; fail "the operator suite"; }
pass "the operator suite"
finish
