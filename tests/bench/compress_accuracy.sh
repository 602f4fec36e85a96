#!/bin/bash
# Accuracy with compressed gradients: the perceptron of hosts.sh on two emulated nodes of one rank, momentum 0.9, a
# cosine schedule, EPOCHS (3) epochs of a data set such as Fashion-MNIST. For each method the learning rate with the
# best accuracy on a tenth of the training split (one seed), then the test accuracy of other seeds at that rate.
#
#   [METHODS="none topk sign powersgd"] [RATES="0.05 0.1 0.2 0.4"] [SEEDS="1 2 3"] [EPOCHS=3] tests/bench/compress_accuracy.sh FILE
. "$(dirname "$0")/lib.sh"
[ $# = 1 ] || { echo "usage: compress_accuracy.sh FILE (trireme data import mnist FOLDER --out=FILE)" >&2; exit 2; }
data=$(realpath "$1")
METHODS=${METHODS:-none topk sign powersgd}
RATES=${RATES:-0.05 0.1 0.2 0.4}
SEEDS=${SEEDS:-1 2 3}
work=$(mktemp -d "${TMPDIR:-/tmp}/compress.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=1 TRM_NODE_SIZE=1

# accuracy SPLIT METHOD RATE SEED OPTION...: of the last epoch's evaluation on that split; 0: the run diverged
accuracy() {
  job 2 train "--model=mlp 784-2048-2048-10 relu" --data.file="$data" --train.batch=256 --train.epochs="${EPOCHS:-3}" \
    --optim.name=momentum --optim.schedule=cosine --strategy.compress="$2" --optim.lr="$3" --run.seed="$4" \
    --run.dir=run --run.overwrite=yes --run.checkpoint_every=-1 --parallel.threads=1 --log.quiet=yes "${@:5}" \
    > log 2>&1 || { grep -q 'the loss' log && echo 0 && return; cat log >&2; exit 1; }
  json_value "$1_accuracy" < run/summary.json
}

for method in $METHODS; do
  best=0 chosen=
  for rate in $RATES; do
    on_validation=$(accuracy validation "$method" "$rate" 100 --data.validation=0.1)
    wanted "the validation split" "$on_validation"
    echo "$method, rate $rate: validation accuracy $on_validation"
    if awk -v a="$on_validation" -v b="$best" 'BEGIN { exit !(a > b) }'; then best=$on_validation chosen=$rate; fi
  done
  accuracies=()
  for seed in $SEEDS; do
    accuracies+=("$(accuracy test "$method" "$chosen" "$seed" --data.validation=0.1)")
    wanted "the test split" "${accuracies[-1]}"
  done
  printf '%s\n' "${accuracies[@]}" | awk -v method="$method" -v rate="$chosen" '
    { sum += $1; squares += $1 * $1 }
    END { mean = sum / NR; v = NR > 1 ? (squares - NR * mean * mean) / (NR - 1) : 0
          printf "{\"compare\":\"accuracy with compression\",\"compress\":\"%s\",\"rate\":%s,\"seeds\":%d,", method, rate, NR
          printf "\"test_accuracy\":%.4f,\"deviation\":%.4f}\n", mean, sqrt(v > 0 ? v : 0) }'
done
