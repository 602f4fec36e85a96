#!/bin/bash
# The table of whole training steps, PyTorch beside Trireme: every model, float32 and bfloat16, one rank with two threads
# and two ranks with one, then ten sequences of random layers. Rows of Markdown on stdout; two rounds take half an hour.
#
#   [WORKS="mlp lenet5 ..."] [DTYPES="f32 bf16"] [LAYOUTS="1x2 2x1"] [DRAWN=10] [SEED=1] [ROUNDS=5] [COMPILE=yes]
#   [PYTHON=python3] tests/bench/compare_all.sh
#
# A ratio is PyTorch's seconds / ours, the median and the range over the rounds; above 1: ours is faster.
. "$(dirname "$0")/lib.sh"
WORKS=${WORKS-mlp lenet5 resnet20 resnet18 vgg11 gptchar gpt2-124m}
DTYPES=${DTYPES:-f32 bf16}
LAYOUTS=${LAYOUTS:-1x2 2x1}
DRAWN=${DRAWN:-10}
export COMPILE=${COMPILE:-yes} ROUNDS=${ROUNDS:-5}
RANDOM=${SEED:-1}

# row NAME DTYPE RANKSxTHREADS STEPS: prints the row of the WORK in the environment
row() {
  local line ratios
  line=$(DTYPE=$2 RANKS=${3%x*} THREADS=${3#*x} STEPS=$4 WARMUP=$(($4 > 10 ? 5 : 2)) "$here/compare_torch.sh" | tail -n 1)
  ratios=$(sed -n 's/.*"ratios":\[\([^]]*\)\].*/\1/p' <<< "$line" | tr ',' '\n' | sort -g)
  wanted "$1" "$(json_value ratio <<< "$line")"
  printf '| %s | %s | %s | %.2f | %.2f to %.2f |\n' "$1" "$2" "$3" "$(json_value ratio <<< "$line")" \
    "$(head -n 1 <<< "$ratios")" "$(tail -n 1 <<< "$ratios")"
}

# one_of NAME WORD...: sets the variable to one of the words
one_of() { printf -v "$1" %s "${@:2 + RANDOM % ($# - 1):1}"; }

# draw: sets MODEL, INPUT and BATCH to a perceptron, or to convolutions on images of odd sizes
draw() {
  local layers=$((1 + RANDOM % 3)) side=$((9 + RANDOM % 40)) i channels kernel norm
  one_of BATCH 1 7 32 100 256 500
  MODEL=
  if [ $((RANDOM % 2)) = 0 ]; then
    INPUT=$((10 + RANDOM % 2000))
    for ((i = 0; i < layers; i++)); do MODEL+="linear $((10 + RANDOM % 2000)) | relu | "; done
  else
    one_of channels 1 3 16
    INPUT=${channels}x${side}x$((side + RANDOM % 5))
    BATCH=$((BATCH > 100 ? 100 : BATCH))
    for ((i = 0; i < layers; i++)); do
      one_of kernel 1 3 5
      one_of norm 'batch_norm | ' ''
      MODEL+="conv2d $((3 + RANDOM % 100)) $kernel pad=2 | ${norm}relu | "
      [ $i != 1 ] || MODEL+="max_pool 2 | "
    done
    MODEL+="flatten | "
  fi
  MODEL+="linear 10"
  export MODEL INPUT BATCH
}

echo '| model | type | ranks x threads | PyTorch / ours | range |'
echo '|---|---|---|---|---|'
for work in $WORKS; do
  case $work in resnet18 | vgg11) steps=4 ;; gpt*) steps=5 ;; resnet20) steps=8 ;; *) steps=50 ;; esac
  for dtype in $DTYPES; do
    for layout in $LAYOUTS; do WORK=$work row "$work" "$dtype" "$layout" $steps; done
  done
done
for ((k = 0; k < DRAWN; k++)); do
  draw
  # shellcheck disable=SC2086 # lists of words
  { one_of dtype $DTYPES; one_of layout $LAYOUTS; }
  WORK=sequence row "$INPUT, batch $BATCH: ${MODEL// |/,}" "$dtype" "$layout" 20
done
