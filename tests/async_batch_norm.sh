#!/bin/bash
# Running statistics of batch norm under asynchronous methods: many workers' moments average, they do not add up;
# without slack ssp equals synchronous training bit for bit. Batches take a modeled time, so that workers take turns;
# 24 workers are virtual. The rate decays to 0, so that the last moments are of weights that hardly move.
set -u
. "$(dirname "$0")/lib.sh"
scratch
digits 4000 500
cat > config.yaml << 'EOF'
model: linear 32 | batch_norm sync=no | gelu | linear 10
data: {file: digits.h5}
train: {epochs: 2, batch: 50}
optim: {name: sgd, lr: 0.05, schedule: cosine}
parallel: {threads: 1}
run: {seed: 3}
log: {quiet: yes}
EOF

# evaluates RUN LOSS: the test loss is at most LOSS. In training it is 1.0 to 1.2; old statistics add half of that.
evaluates() {
  at_least "$2" "$(of "$1" test_loss)" || fail "$1: test loss $(of "$1" test_loss), accuracy $(of "$1" test_accuracy)"
  pass "$1: test loss $(of "$1" test_loss), accuracy $(of "$1" test_accuracy)"
}
turns="--device.compute=sleep --device.gflops=0.2"
for method in asgd hogwild "hogwild --parallel.share=none" "asgd --strategy.tau=2" dcasgd; do
  # shellcheck disable=SC2086
  run 8 "8-${method//[ .=]/-}" --strategy.name=$method $turns
  evaluates "8-${method//[ .=]/-}" 1.25
done
for method in asgd hogwild "hogwild --parallel.share=none"; do
  name=24-${method//[ .=]/-}
  # shellcheck disable=SC2086
  run 1 "$name" --simulate.workers=24 --simulate.nodes=1 --strategy.name=$method $turns
  evaluates "$name" 1.25
  at_least "$(of "$name" test_accuracy)" 0.68 || fail "$name: test accuracy $(of "$name" test_accuracy)"
done

for n in 1 2 4; do
  run $n "sync-$n" --optim.name=momentum
  for method in ssp essp; do
    run $n "$method-$n" --optim.name=momentum --strategy.name=$method --strategy.slack=0
    equal "sync-$n" "$method-$n"
  done
done
finish
