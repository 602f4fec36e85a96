#!/bin/bash
# Compressed gradients between nodes (strategy.compress): on four nodes the accuracy of training without compression, at
# the bytes that the guide states; a resumed run is the undisturbed one, bit for bit.
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 4000 1000
cat > config.yaml << 'END'
model: mlp 784-64-10 relu
data: {file: digits.h5}
train: {batch: 64, epochs: 10}
optim: {lr: 0.3}
parallel: {threads: 1}
run: {checkpoint_every: -1}
END

# -- accuracy on four virtual nodes. The rates are equal; dgc has momentum 0.9, so a tenth of the rate.
run 1 none --simulate.workers=4
accuracy=$(json_number test_accuracy none/summary.json)
at_least "$accuracy" 0.82 || fail "without compression the accuracy is $accuracy"
while read -r name options; do
  # shellcheck disable=SC2086 # several options
  run 1 "$name" --simulate.workers=4 --strategy.compress="$name" $options < /dev/null
  compressed=$(json_number test_accuracy "$name/summary.json")
  at_least "$compressed" "$(awk -v a="$accuracy" 'BEGIN { print a - 0.02 }')" ||
    fail "$name: accuracy $compressed, without compression $accuracy"
  pass "$name: accuracy $compressed, without compression $accuracy"
done << 'END'
bf16
fp16
topk --strategy.compress_ratio=0.01
dgc --strategy.compress_ratio=0.01 --optim.momentum=0.9 --optim.lr=0.03 --optim.warmup=40
sign
qsgd
powersgd --strategy.compress_rank=2
END

# -- a resumed run, on two nodes
while read -r name options; do
  # shellcheck disable=SC2086 # several options
  for from in '' auto; do
    TRM_NODE_SIZE=1 run 2 "$name.run" --strategy.compress="$name" $options --train.steps=$((${#from} ? 60 : 40)) \
      --run.checkpoint_every=20 --run.overwrite=$([ "$from" ] && echo no || echo yes) ${from:+--run.resume=$from} < /dev/null
  done
  # shellcheck disable=SC2086
  TRM_NODE_SIZE=1 run 2 "$name.whole" --strategy.compress="$name" $options --train.steps=60 < /dev/null
  resumed=$(json_text weights_sha256 "$name.run/summary.json")
  [ "$resumed" ] && [ "$resumed" = "$(json_text weights_sha256 "$name.whole/summary.json")" ] ||
    fail "$name: a resumed run has other weights"
  pass "$name: a resumed run has the same weights"
done << 'END'
topk --strategy.compress_ratio=0.01 --optim.momentum=0.9 --optim.lr=0.03
dgc --strategy.compress_ratio=0.01 --optim.momentum=0.9 --optim.lr=0.03 --optim.warmup=50 --optim.clip=0.5
qsgd --optim.name=adam --optim.lr=0.001
powersgd
END

# -- one node
run 2 one --strategy.compress=topk --train.steps=5
grep -q 'all ranks are on one node' one.log || fail "one node: nothing is said"
try 2 dgc.one --strategy.compress=dgc --train.steps=5 && fail "dgc on one node is not refused"
grep -q 'error: strategy.compress=dgc: needs several nodes' dgc.one.log || { cat dgc.one.log; fail "dgc on one node"; }
pass "one node"
finish
