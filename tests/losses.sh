#!/bin/bash
# Losses of values and labels, weights of classes, samples drawn by class, rates that fall on a plateau: the same in
# every layout and after a stop; values that make no sense are refused.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
awk 'BEGIN { srand(5); print "a,b,c,kind"
  for (i = 0; i < 400; i++) { k = int(rand() ^ 3 * 4); print (rand() + k / 3) "," (rand() - k / 4) "," rand() ",k" k } }' > kinds.csv
"$TRIREME" data import csv kinds.csv --test-part=0.25 --out=kinds.h5 > log 2>&1 || { cat log; fail "data import csv"; }
# y of two dimensions, float32, little-endian: 200 rows of 3 numbers or labels
array() { # FILE COLUMNS EXPRESSION
  local header="{'descr': '<i1', 'fortran_order': False, 'shape': (200, $2), }"
  { printf '\223NUMPY\001\000\166\000%-117s\n' "$header"
    awk -v n="$2" 'BEGIN { srand(7); for (i = 0; i < 200; i++) { s = int(rand() * 8)
      for (k = 0; k < n; k++) printf "\\0%o", '"$3"' } }' | xargs -0 printf '%b'
  } > "$1"
}
array x.npy 4 '(int(s / 2 ^ (k % 3)) + int(rand() * 2)) % 4'
array y.npy 3 'int(s / 2 ^ k) % 2'
array z.npy 3 'int(s / 2 ^ k) % 2 * 2'
for y in y z; do
  "$TRIREME" data import npy x.npy $y.npy --target=value --test-part=0.25 --out=$y.h5 > log 2>&1 ||
    { cat log; fail "data import npy"; }
done
cat > config.yaml << 'END'
model: mlp 3-16-4 tanh
data: {file: kinds.h5, validation: 0.1}
train: {batch: 32, epochs: 4}
optim: {lr: 0.3}
run: {seed: 1}
log: {quiet: yes}
END
sed 's/mlp 3-16-4/mlp 4-16-3/; s/kinds.h5/y.h5/' config.yaml > values.yaml

# layouts MODEL NAME OPTION...: the same bits with lanes on 1, 2 and 4 ranks, the same loss in other layouts
layouts() {
  local model=$1 name=$2 n
  shift 2
  for n in 1 2 4; do run_of $n "$model" "$name-lanes$n" --run.lanes=4 "$@"; done
  equal "$name-lanes1" "$name-lanes2" && equal "$name-lanes1" "$name-lanes4"
  run_of 1 "$model" "$name" "$@"
  run_of 3 "$model" "$name-data" "$@"
  run_of 1 "$model" "$name-accumulate" --train.accumulate=3 "$@"
  run_of 2 "$model" "$name-pipeline" --parallel.pipeline=2 --train.accumulate=2 "$@"
  run_of 2 "$model" "$name-zero" --parallel.zero=3 "$@"
  run_of 2 "$model" "$name-tensor" --parallel.tensor=2 "$@"
  for n in data accumulate pipeline zero tensor; do
    awk -v a="$(of "$name" test_loss)" -v b="$(of "$name-$n" test_loss)" \
      'BEGIN { exit !(a > 0 && b > 0 && (a - b) ^ 2 < (1e-5 * a) ^ 2) }' ||
      fail "$name-$n: test loss $(of "$name-$n" test_loss), not $(of "$name" test_loss)"
  done
  pass "$name: the same loss on 1, 2 and 3 ranks, accumulated, in a pipeline, sharded"
}
# continues MODEL NAME OPTION...: a run of two epochs and two more ends with the bits of one of four
continues() {
  local model=$1 name=$2
  shift 2
  run_of 1 "$model" "$name-part" --train.epochs=2 "$@"
  run_of 1 "$model" "$name-part" --run.resume=auto "$@"
  equal "$name" "$name-part" "resumed"
}
# three linear layers: with parallel.tensor=2 each rank has two of the scores
weights=(--train.class_weights=balanced --train.label_smoothing=0.1 --model='mlp 3-16-8-4 tanh')
layouts config weights "${weights[@]}"
layouts config drawn --data.balance=yes
layouts config plateau --optim.schedule=plateau --optim.patience=0 --optim.threshold=0.9 --optim.gamma=0.5 --log.every=1
layouts values huber --train.loss=huber --train.huber_delta=0.5
layouts values labels --train.loss=binary_cross_entropy
continues config weights "${weights[@]}"
continues config drawn --data.balance=yes
continues config plateau --optim.schedule=plateau --optim.patience=0 --optim.threshold=0.9 --optim.gamma=0.5 --log.every=1
[ "$(grep -o '"lr":[0-9.e-]*' plateau/metrics.jsonl | sort -u | wc -l)" -gt 1 ] || fail "the plateau lowered no rate"

# -- what weights and draws are
run 1 plain
run 1 same --train.class_weights=2,2,2,2
equal plain same "equal weights"
run 1 ones --train.batch=1 --train.epochs=1
run 1 one --train.batch=1 --train.epochs=1 --train.class_weights=1,2,4,1
equal ones one "weights in batches of one sample"
run 1 listed --train.class_weights=1,2,4,1
run 1 smoothed --train.class_weights=1,2,4,1 --train.label_smoothing=0.1
[ "$(sha listed)" != "$(sha smoothed)" ] || fail "label smoothing changes nothing"
for name in listed drawn; do [ "$(sha plain)" != "$(sha $name)" ] || fail "$name changes nothing"; done

# -- labels: measures, evaluation, predictions; huber: its delta
[ -n "$(of labels test_f1_macro)" ] && [ -n "$(of labels test_accuracy)" ] && [ -z "$(of labels test_mae)" ] ||
  fail "measures of labels: $(cat labels/summary.json)"
for name in labels huber; do
  "$TRIREME" eval $name/checkpoints/last.h5 --data.file=y.h5 --json --log.quiet=yes > eval.json 2> log || { cat log; fail "eval"; }
  awk -v a="$(json_number loss eval.json)" -v b="$(of $name test_loss)" 'BEGIN { exit !((a - b) ^ 2 < 1e-12) }' ||
    fail "eval $name: $(cat eval.json), not $(of $name test_loss)"
done
"$TRIREME" predict labels --out=labels.csv > log 2>&1 && "$TRIREME" predict labels --out=labels.jsonl >> log 2>&1 ||
  { cat log; fail "predict"; }
head -1 labels.csv | grep -qx 'index,prediction_0,prediction_1,prediction_2,probability_0,probability_1,probability_2' ||
  fail "labels.csv: $(head -1 labels.csv)"
awk -F, 'NR > 1 { for (k = 2; k < 5; k++) if ($k != ($(k + 3) > 0.5)) exit 1 } END { exit NR != 51 }' labels.csv ||
  fail "labels.csv: $(head -5 labels.csv)"
[ "$(grep -c '^{"index":[0-9]*,"prediction":\[[01],[01],[01]\],"probabilities":\[.*\]}$' labels.jsonl)" = 50 ] ||
  fail "labels.jsonl: $(head -2 labels.jsonl)"
pass "labels: F1, subset accuracy, eval, predictions as CSV and JSON lines"

# -- refused
# refuse WORDS OPTION...: exit status 2 and one error with these words
refuse() {
  local words=$1
  shift
  try 1 refused "$@"
  [ $? = 2 ] && [ "$(grep -c 'error:' refused.log)" = 1 ] && grep -q "$words" refused.log ||
    { cat refused.log; fail "$*: no error with '$words'"; }
}
refuse 'train.class_weights: 2 numbers' --train.class_weights=1,2
refuse 'train.class_weights is' --train.class_weights=1,2,3,-1
refuse 'train.huber_delta' --train.huber_delta=0
refuse 'optim.gamma is 1' --optim.schedule=plateau --optim.gamma=1
refuse 'optim.schedule=plateau: needs a validation split' --optim.schedule=plateau --data.validation=0
refuse 'data.balance: draws the samples' --data.balance=yes --data.shuffle=no
refuse 'loss huber is for value targets' --train.loss=huber
config=values.yaml
refuse 'z.h5: train row .* must be 0 or 1' --data.file=z.h5 --train.loss=binary_cross_entropy
refuse 'data.balance: is for samples of one class' --data.balance=yes
refuse 'train.class_weights: ' --train.class_weights=balanced
pass "values that make no sense are refused"
