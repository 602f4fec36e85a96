#!/bin/bash
# Centralized methods end to end: each trains on one node, on several, without shared memory, with a dedicated server
# and with static assignment, and resumes from a checkpoint; ssp with slack 0 equals synchronous training bit for bit;
# options without effect are refused with one message.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 2000 500
cat > config.yaml << 'EOT'
model: mlp 784-32-10 gelu
data: {file: digits.h5}
train: {steps: 300, batch: 40}
optim: {name: sgd, lr: 0.2, schedule: cosine}
parallel: {threads: 1}
run: {seed: 3, checkpoint_every: -1}
log: {quiet: yes}
EOT

# learns NAME LIMIT: the run is complete; LIMIT is five points below the lowest test accuracy of several runs
learns() {
  local accuracy steps
  accuracy=$(json_number test_accuracy "$1/summary.json")
  steps=$(json_number steps "$1/summary.json")
  at_least "$accuracy" "$2" || fail "$1: test accuracy $accuracy, not $2"
  [ "$steps" = 300 ] || fail "$1: $steps steps of 300"
  at_least "$(json_number staleness_max "$1/summary.json")" 0 && grep -q '{"rank":' "$1/staleness.json" ||
    fail "$1: no staleness is recorded"
  pass "$1: test accuracy $accuracy"
}

for method in softsync dcasgd dana ssp essp; do
  name=--strategy.name=$method
  [ $method != dana ] || name="$name --optim.momentum=0.5 --optim.lr=0.1"
  run 3 $method $name
  run 3 $method-static $name --strategy.data=static
  run 3 $method-private $name --parallel.share=none
  run 3 $method-served $name --strategy.servers=1
  TRM_NODE_SIZE=2 run 3 $method-nodes $name
  run 3 $method-pause $name --train.steps=130 --optim.schedule=constant --run.checkpoint_every=0
  run 3 $method-pause $name --run.checkpoint_every=0 --run.resume=auto
  for variant in '' -static -private -served -nodes -pause; do
    [ $method = softsync ] && learns $method$variant 0.71 || learns $method$variant 0.76
  done
done
run 3 splits --strategy.name=softsync --strategy.splits=3 --strategy.rate=staleness
run 3 constant --strategy.name=dcasgd --strategy.compensation=constant --strategy.lambda=1
run 3 delay --strategy.name=softsync --strategy.splits=3 --strategy.rate=delay --run.slow=1:8
learns splits 0.76
learns delay 0.76
learns constant 0.76

# -- slack
run 3 slack --strategy.name=ssp --strategy.slack=2 --run.slow=1:3
learns slack 0.76
[ "$(of slack staleness_max)" = 2 ] || fail "slack 2: a staleness of $(of slack staleness_max)"
pass "the maximum staleness is the slack"
for n in 1 3; do
  for optimizer in momentum adam; do
    rule=(--optim.name=$optimizer --optim.lr=0.01 --train.steps=60)
    run $n sync-$n-$optimizer "${rule[@]}"
    run $n ssp-$n-$optimizer "${rule[@]}" --strategy.name=ssp --strategy.slack=0
    run $n essp-$n-$optimizer "${rule[@]}" --strategy.name=essp --strategy.slack=0 --parallel.share=none
    for method in ssp essp; do
      [ -n "$(sha sync-$n-$optimizer)" ] && [ "$(sha sync-$n-$optimizer)" = "$(sha $method-$n-$optimizer)" ] ||
        fail "$method with slack 0, $n ranks, $optimizer: differs from synchronous training"
      pass "$method with slack 0, $n ranks, $optimizer: equals synchronous training"
    done
  done
done
run 1 nesterov --optim.name=nesterov --optim.lr=0.05 --train.steps=60
run 1 momentum --strategy.name=dana --optim.lr=0.05 --train.steps=60
equal nesterov momentum "dana without optim.momentum"
pass "dana's momentum is that of optim.name=nesterov"
run 1 heavy --optim.momentum=0.5 --train.steps=60
run 1 ordered --strategy.name=ormo --optim.momentum=0.5 --train.steps=60
equal heavy ordered "ormo with one worker"
pass "one worker of ormo has the momentum of serial training"
# fewer rows in a batch than workers: the others still wait for the worker without rows
run 3 tiny --strategy.name=ssp --train.batch=2 --train.steps=20
[ "$(json_number steps tiny/summary.json)" = 20 ] || fail "batches of two rows on three ranks"
pass "batches of two rows on three ranks"

# -- refused options: one error, which names the option
refuses() {
  local expected=$1 status
  shift
  launch 2 "$TRIREME" train config.yaml --run.dir=refused "$@" > refused.log 2>&1
  status=$?
  [ $status = 2 ] || { cat refused.log; fail "$*: status $status"; }
  [ "$(grep -c 'error:' refused.log)" = 1 ] && grep -q "error: $expected" refused.log ||
    { cat refused.log; fail "$*: not one error about $expected"; }
  pass "refused: $*"
}
refuses optim.clip --strategy.name=ssp --optim.clip=1
refuses optim.name --strategy.name=dana --optim.name=adam
refuses optim.name=nesterov --strategy.name=ormo --optim.name=nesterov
refuses strategy.rate --strategy.name=ringleader --strategy.rate=delay
refuses strategy.tau --strategy.name=essp --strategy.tau=4
refuses strategy.rate --strategy.name=dcasgd --strategy.rate=staleness
refuses strategy.rate --strategy.name=ssp --strategy.rate=delay
refuses strategy.servers --strategy.name=softsync --strategy.servers=2
refuses optim.name --strategy.name=ssp --optim.name=lars
finish
