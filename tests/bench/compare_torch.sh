#!/bin/bash
# Whole training steps of Trireme and PyTorch, measured alternately.
#
#   [WORK=mlp] [DTYPE=f32] [RANKS=1] [THREADS=all] [STEPS=20] [WARMUP=5] [ROUNDS=7] [PYTHON=python3]
#   [COMPILE=no] [PARTS=no] [PEER=torch_peer.py] tests/bench/compare_torch.sh [OPTION...]
#
# WORK is one of
#   mlp        the perceptron 784-2048-2048-10, 256 samples per rank, SGD with momentum
#   lenet5     LeNet-5, 64 images of 28 x 28 per rank, likewise
#   resnet20   ResNet-20, 128 images of 32 x 32 per rank, likewise
#   resnet18   ResNet-18, 16 images of 224 x 224 per rank, likewise
#   vgg11      VGG-11, 8 images of 224 x 224 per rank, likewise
#   gptchar    a GPT of 6 layers, 6 heads, 384 wide, 16 rows of 256 characters per rank, AdamW
#   gpt2-124m  GPT-2, 2 rows of 256 tokens per rank, AdamW
#   sequence   MODEL="conv2d 32 3 pad=1 | relu | ..." INPUT=3x32x32 BATCH=128, SGD with momentum
# DTYPE=bf16: products and activations in bfloat16 on both sides (device.matmul and train.activations; autocast).
# THREADS: per rank. COMPILE=yes: the faster of PyTorch's eager and compiled model. The result is the median over rounds
# of PyTorch's seconds / ours (above 1: ours is faster); the machine's load affects both. OPTION: of ours, as
# --device.blas=onednn. Memory: peak of the first rank, PyTorch's eager. PARTS=yes: the parts of a step, too, of an eager
# one of PyTorch as its profiler has them.
. "$(dirname "$0")/lib.sh"
WORK=${WORK:-mlp}
DTYPE=${DTYPE:-f32}
RANKS=${RANKS:-1}
THREADS=${THREADS:-$(($(nproc) / RANKS > 0 ? $(nproc) / RANKS : 1))}
STEPS=${STEPS:-20}
WARMUP=${WARMUP:-5}
PYTHON=${PYTHON:-python3}
PEER=${PEER:-$here/torch_peer.py}
PARTS=${PARTS:-no}
[ "${COMPILE:-no}" = no ] || extra+=(--compile)
[ "$PARTS" = no ] || extra+=(--parts)

case $WORK in
  mlp) model=("--model=mlp 784-2048-2048-10 relu" --batch=256) ;;
  lenet5) model=(--model=lenet5 --batch=64) ;;
  resnet20) model=(--model=resnet20 --batch=128) ;;
  resnet18) model=(--model=resnet18 --batch=16) ;;
  vgg11) model=(--model=vgg11 --batch=8) ;;
  gpt2-124m) model=("--model=gpt2-124m context=256" --input=256 --batch=2 --optim.name=adamw --optim.lr=3e-4) ;;
  sequence)
    model=("--model=$MODEL" --input="$INPUT" --batch="$BATCH")
    same=(--model "$MODEL" --input "$INPUT" --batch "$BATCH") ;;
  gptchar) model=("--model=gpt layers=6 heads=6 dim=384 context=256" --batch=16 --optim.name=adamw --optim.lr=3e-4) ;;
  *) echo "WORK=$WORK is none of the above" >&2; exit 2 ;;
esac

printf '%5s %14s %14s %8s\n' round 'trireme ms' 'PyTorch ms' ratio
for round in $(seq "$ROUNDS"); do
  one=$(job "$RANKS" bench step "${model[@]}" --train.activations="$DTYPE" --device.matmul="$DTYPE" --bound=no --json \
    --steps="$STEPS" --warmup="$WARMUP" --threads="$THREADS" "$@")
  a=$(echo "$one" | json_value step_s)
  wanted "trireme bench step" "$a"
  two=$("$PYTHON" "$PEER" "$WORK" ${same[@]+"${same[@]}"} ${extra[@]+"${extra[@]}"} --dtype "$DTYPE" \
    --ranks "$RANKS" --threads "$THREADS" --steps "$STEPS" --warmup "$WARMUP")
  b=$(echo "$two" | json_value step_s)
  wanted "$PEER" "$b"
  lines+=("$one" "$two")
  ours+=("$a") theirs+=("$b") ratios+=("$(ratio "$b" "$a")")
  our_bytes+=("$(echo "$one" | json_value max_resident_bytes)")
  their_bytes+=("$(echo "$two" | json_value max_resident_bytes)")
  awk -v r="$round" -v a="$a" -v b="$b" 'BEGIN { printf "%5d %14.2f %14.2f %8.3f\n", r, 1e3 * a, 1e3 * b, b / a }'
done
table='
import json, statistics, sys
rounds = [json.loads(line)["parts"] for line in sys.stdin if line.startswith("{")]
print("%-16s %12s %12s %8s" % ("part", "trireme ms", "PyTorch ms", "ratio"))
for part in (part for part in rounds[0] if part in rounds[1]):
    ours, theirs = ([r[part]["part_s"] for r in rounds[side::2]] for side in (0, 1))
    ratio = statistics.median(b / a for a, b in zip(ours, theirs))
    print("%-16s %12.2f %12.2f %8.3f" % (part, 1e3 * statistics.median(ours), 1e3 * statistics.median(theirs), ratio))'
[ "$PARTS" = no ] || printf '%s\n' "${lines[@]}" | "$PYTHON" -c "$table"
printf '{"compare":"step, pytorch over trireme","work":"%s","dtype":"%s","ranks":%s,"threads":%s,"rounds":%s,' \
  "$WORK" "$DTYPE" "$RANKS" "$THREADS" "$ROUNDS"
printf '"trireme_s":%s,"pytorch_s":%s,"ratio":%s,"ratios":[%s],' "$(median "${ours[@]}")" "$(median "${theirs[@]}")" \
  "$(median "${ratios[@]}")" "$(IFS=,; echo "${ratios[*]}")"
printf '"trireme_bytes":%.0f,"pytorch_bytes":%.0f}\n' "$(median "${our_bytes[@]}")" "$(median "${their_bytes[@]}")"
