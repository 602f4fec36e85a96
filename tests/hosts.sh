#!/bin/bash
# Training on two and four virtual hosts, each with a link of 1 Gbit/s: synchronous methods in every layout have the
# result of one rank, within 1e-4 as in layouts.sh, or bit for bit with lanes and where only the pipeline differs;
# asynchronous ones use every sample and learn; the links carry the bytes that the method needs.
set -u
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/hosts_lib.sh"
isolate "$@"
. "$(dirname "$0")/layouts_lib.sh"
openblas_only
start_hosts 4
limit_hosts 1gbit

# on NAME MODEL RANKS... -- OPTION...: trains MODEL.yaml with so many ranks on each host; sets sent1 and sent2 to the
# bytes that the first two have sent
on() {
  local name=$1 model=$2 ranks=() count=0 before
  shift 2
  while [ "$1" != -- ]; do ranks+=("$1") count=$((count + $1)); shift; done
  before=($(sent_by 1) $(sent_by 2))
  place "${ranks[@]}"
  run_of "$count" "$model" "$name" "${@:2}"
  place
  sent1=$(($(sent_by 1) - before[0])) sent2=$(($(sent_by 2) - before[1]))
}
# cell NAME MODEL RANKS... -- OPTION...: equals one rank
cell() { on "$@" && same "$2-one" "$1"; }
# bytes NAME SENT ARRAYS: the link has carried so many arrays of all parameters, and at most a quarter more
bytes() {
  local least=$((4 * $(of "$1" parameters) * $3))
  at_least "$2" $least && at_least $((least * 5 / 4)) "$2" || fail "$1: $2 bytes sent, $3 arrays are $least"
  pass "$1: $2 bytes sent, $3 arrays are $least"
}

for model in mlp norms gpt2; do run_of 1 $model $model-one; done

cell sync-1-1 mlp 1 1 --
bytes sync-1-1 "$sent1" 20
cell sync-2-2 mlp 2 2 --
bytes sync-2-2 "$sent1" 20
cell sync-3-1 mlp 3 1 --
cell norms-2-2 norms 2 2 --
cell gpt-2-2 gpt2 2 2 --
cell sync-1-1-1-1 mlp 1 1 1 1 --

run_of 1 mlp lanes --run.lanes=4
on lanes-2-2 mlp 2 2 -- --run.lanes=4
equal lanes lanes-2-2
on lanes-3-1 mlp 3 1 -- --run.lanes=4
equal lanes lanes-3-1

for zero in 1 2 3; do
  for shard in all node; do
    cell zero-$zero-$shard gpt2 2 2 -- --parallel.zero=$zero --parallel.shard=$shard
  done
done
cell zero-3-1-1-1-1 gpt2 1 1 1 1 -- --parallel.zero=3
cell tensor-1-1 gpt2 1 1 -- --parallel.tensor=2
cell tensor-1-1-1-1 gpt2 1 1 1 1 -- --parallel.tensor=2
run_of 1 mlp micro --train.accumulate=3
on pipeline-1-1 mlp 1 1 -- --parallel.pipeline=2 --train.accumulate=3
equal micro pipeline-1-1
on pipeline-1-1-1-1 mlp 1 1 1 1 -- --parallel.pipeline=4 --train.accumulate=3
equal micro pipeline-1-1-1-1

cat > async.yaml << 'EOT'
model: mlp 784-32-10 gelu
data: {file: digits.h5}
train: {epochs: 10, batch: 20}
optim: {name: sgd, lr: 0.05}
parallel: {threads: 1}
run: {seed: 3}
log: {every: 1, quiet: yes}
EOT
# learns NAME RANKS... -- OPTION...
learns() {
  on "$1" async "${@:2}"
  [ "$(of "$1" steps) $(of "$1" samples)" = "300 6000" ] ||
    fail "$1: $(of "$1" steps) steps, $(of "$1" samples) samples"
  at_least 1.8 "$(of "$1" test_loss)" || fail "$1: test loss $(of "$1" test_loss)"
  pass "$1: test loss $(of "$1" test_loss)"
}
# asgd: each gradient to the server, each version of the weights back; sgp: each worker's weights after its 150 steps
learns asgd-1-1 1 1 -- --strategy.name=asgd --strategy.servers=1
bytes asgd-1-1 "$sent1" 300
bytes asgd-1-1 "$sent2" 300
learns asgd-2-2 2 2 -- --strategy.name=asgd --strategy.servers=2
bytes asgd-2-2 "$sent1" 300
bytes asgd-2-2 "$sent2" 300
learns asgd-1-1-1-1 1 1 1 1 -- --strategy.name=asgd
learns sgp-1-1 1 1 -- --strategy.name=sgp --strategy.data=static --optim.lr=0.2
bytes sgp-1-1 "$sent1" 150
learns adpsgd-1-1-1-1 1 1 1 1 -- --strategy.name=adpsgd --optim.lr=0.2
finish
