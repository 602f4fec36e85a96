#!/bin/bash
# Methods with local steps, from the command line: on one node those without an outer update are sync, bit for bit; on
# several the run ends well below the loss of uniform predictions; evaluations and checkpoints in the middle of a round
# change nothing, and a run that resumes there ends with the same bits; other ranks begin a round from the mean; tensor
# and pipeline axes inside a replica; the virtual network repeats every run.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 1200 200
cat > config.yaml << 'EOC'
model: mlp 784-16-10 gelu
data: {file: digits.h5, validation: 0.1}
train: {epochs: 2, batch: 30}
optim: {name: momentum, lr: 0.05, warmup: 10, schedule: step, milestones: "0.5"}
strategy: {tau: 8}
parallel: {threads: 1}
run: {seed: 3}
log: {every: 1, quiet: yes}
EOC

methods=$("$TRIREME" train config.yaml --strategy.name=none-such 2>&1 |
  sed -n 's/.*(known: sync, \(.*adasum\), .*)/\1/p' | tr -d ,)
[ "$(echo "$methods" | wc -w)" = 6 ] || fail "no list of methods"

run 2 sync
for method in $methods; do
  options="--strategy.name=$method"
  # shellcheck disable=SC2086
  {
    case $method in
      local | postlocal | adasum)
        run 2 "$method-one" $options
        equal sync "$method-one" "one replica of $method"
        ;;
    esac
    export TRM_NODE_SIZE=2
    run 3 "$method" $options
    [ "$(of "$method" steps) $(of "$method" samples)" = "72 2160" ] ||
      fail "$method: $(of "$method" steps) steps, $(of "$method" samples) samples"
    at_least 2 "$(of "$method" test_loss)" || fail "$method: test loss $(of "$method" test_loss)"
    run 3 "$method-often" $options --train.evaluate_every=9 --run.checkpoint_every=13 --run.keep=9
    equal "$method" "$method-often" "$method, evaluated and saved in the middle of rounds"
    middle=$(ls "$method-often"/checkpoints/step-*39.h5) || fail "$method: no checkpoint of step 39"
    run 3 "$method-back" $options --run.resume="$middle"
    equal "$method" "$method-back" "$method, resumed in the middle of a round"
    run 2 "$method-other" $options --run.resume="$middle"
    [ "$(of "$method-other" steps)" = 72 ] || fail "$method, resumed on other ranks: $(of "$method-other" steps) steps"
    unset TRM_NODE_SIZE
    # more replicas than rows
    run 4 "$method-rows" $options --data.limit=6 --data.validation=0 --train.batch=2 --train.epochs=3 \
      --strategy.replica=rank
    [ "$(of "$method-rows" samples)" = 18 ] || fail "$method, batches of 2 for 4 ranks: $(of "$method-rows" samples)"
    for n in 1 2; do
      run 1 "$method-virtual-$n" $options --simulate.workers=6 --simulate.nodes=3 --run.jitter="lognormal 0.5"
    done
    equal "$method-virtual-1" "$method-virtual-2" "$method on 3 virtual nodes, twice"
  }
  pass "$method: one replica, several, resumed; test loss $(of "$method" test_loss)"
done

# Compressed exchanges: less is sent, evaluations in the middle of a round change nothing, and a run that resumes there
# ends with the same bits.
between_nodes() { sed -n 's/.*"between_nodes":{"bytes":\([0-9.]*\).*/\1/p' "$1/summary.json"; }
export TRM_NODE_SIZE=2
for options in "local --strategy.compress=topk --strategy.compress_ratio=0.1" \
  "diloco --strategy.compress=powersgd --strategy.fragments=2"; do
  name=${options%% *}
  # shellcheck disable=SC2086
  {
    run 3 "$name-compressed" --strategy.name=$options
    at_least 2 "$(of "$name-compressed" test_loss)" || fail "$options: test loss $(of "$name-compressed" test_loss)"
    run 3 "$name-compressed-often" --strategy.name=$options --train.evaluate_every=9 --run.checkpoint_every=13 \
      --run.keep=9
    equal "$name-compressed" "$name-compressed-often" "$options, evaluated and saved in the middle of rounds"
    run 3 "$name-compressed-back" --strategy.name=$options \
      --run.resume="$(ls "$name-compressed-often"/checkpoints/step-*39.h5)"
    equal "$name-compressed" "$name-compressed-back" "$options, resumed in the middle of a round"
  }
  awk -v a="$(between_nodes "$name")" -v b="$(between_nodes "$name-compressed")" \
    'BEGIN { exit !(b > 0 && b < 0.6 * a) }' ||
    fail "$options: $(between_nodes "$name-compressed") bytes between nodes a step, without $(between_nodes "$name")"
  pass "$options: $(between_nodes "$name-compressed") bytes between nodes a step, without $(between_nodes "$name")"
done
unset TRM_NODE_SIZE

# One step a round with plain SGD is sync up to rounding, also where replicas have different numbers of ranks.
export TRM_NODE_SIZE=2
for n in 3 4; do
  run $n plain-$n --optim.name=sgd --train.batch=36
  run $n plain-local-$n --optim.name=sgd --train.batch=36 --strategy.name=local --strategy.tau=1 \
    --parallel.shares="$([ $n = 3 ] && echo 1,1,2 || echo equal)"
  awk -v a="$(of plain-$n test_loss)" -v b="$(of plain-local-$n test_loss)" \
    'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-10) }' ||
    fail "local with H = 1 on $n ranks: loss $(of plain-local-$n test_loss), sync $(of plain-$n test_loss)"
  pass "local with H = 1 on $n ranks has the loss of sync"
done

# Bytes between nodes, a step: an exchange after every eighth step, in fragments too, has an eighth of those of sync.
run 4 bytes-sync --data.validation=0
for options in local diloco "diloco --strategy.fragments=4" adasum; do
  # shellcheck disable=SC2086
  run 4 bytes --data.validation=0 --train.epochs=1 --run.overwrite=yes --strategy.name=$options
  awk -v a="$(between_nodes bytes-sync)" -v b="$(between_nodes bytes)" -v f="${options##*=}" \
    'BEGIN { exit !(a > 0 && (a == 8 * b || (f == 4 && 6 * a == 40 * b))) }' ||
    fail "bytes of a step: sync $(between_nodes bytes-sync), $options $(between_nodes bytes)"
  pass "$options: $(between_nodes bytes) bytes between nodes a step, sync $(between_nodes bytes-sync)"
done

# Two replicas of two stages, or of two tensor ranks, on two nodes and on one.
for method in slowmo diloco; do
  options="--strategy.name=$method"
  # shellcheck disable=SC2086
  {
    run 2 "$method-whole" $options --strategy.replica=rank
    run 4 "$method-stages" $options --strategy.replica=rank --parallel.pipeline=2
    equal "$method-whole" "$method-stages" "$method, two stages"
    run 4 "$method-tensor" $options --strategy.replica=rank --parallel.tensor=2
    run 4 "$method-nodes" $options --parallel.tensor=2
    equal "$method-tensor" "$method-nodes" "$method, a node and a rank of each tensor slice"
    awk -v a="$(of "$method-whole" test_loss)" -v b="$(of "$method-tensor" test_loss)" \
      'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-8) }' ||
      fail "$method on two tensor ranks: loss $(of "$method-tensor" test_loss), not $(of "$method-whole" test_loss)"
  }
done
unset TRM_NODE_SIZE
finish
