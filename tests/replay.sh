#!/bin/bash
# A recorded order of events: a run on the virtual network that follows it repeats the real run to the bit, for all
# methods with a parameter server, with and without shared memory. Another order, and a damaged record, are noticed.
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 400 100
cat > config.yaml << 'YAML'
model: mlp 784-12-10 tanh
data: {file: digits.h5, validation: 0.1}
train: {steps: 32, batch: 12, evaluate_every: 16}
optim: {lr: 0.05}
parallel: {share: none, threads: 1}
run: {seed: 3, checkpoint_every: -1, overwrite: yes}
log: {quiet: yes}
YAML

# record NAME OPTION...: a real run of 4 ranks, recorded in order-NAME
record() { run 4 "real-$1" --run.record="order-$1" "${@:2}"; }
# try_replay FOLDER NAME OPTION...: a virtual run that follows it
try_replay() {
  timeout -k 10 60 "$TRIREME" train config.yaml --run.dir="$2" --simulate.workers=4 --simulate.replay="$1" "${@:3}" \
    > "$2.log" 2>&1
}
replay() { try_replay "$@" || { cat "$2.log"; fail "$2: follows $1"; }; }
# metrics RUN: metrics.jsonl without times
metrics() { sed 's/"[a-z_]*_s":[^,}]*,\{0,1\}//g' "$1/metrics.jsonl"; }

# repeats NAME OPTION...: a real run, and the virtual run that repeats it
repeats() {
  local name=$1
  record "$@"
  replay "order-$name" "virtual-$name" "${@:2}"
  equal "real-$name" "virtual-$name" "$name"
  diff <(metrics "real-$name") <(metrics "virtual-$name") || fail "$name: other metrics"
  [ ! -e "real-$name/staleness.json" ] || cmp "real-$name/staleness.json" "virtual-$name/staleness.json" ||
    fail "$name: other staleness"
}
for method in asgd groups softsync dcasgd dana ormo ringmaster rennala backup malenia ringleader iaasgd mindflayer ssp essp easgd eamsgd \
  fedasync fedbuff asyncdiloco halos adpsgd a2cid2 sgp keuper; do
  repeats $method --strategy.name=$method
done
[ -s real-asgd/staleness.json ] && [ -s real-ssp/staleness.json ] && [ -s real-easgd/staleness.json ] ||
  fail "staleness.json is missing"
for method in asgd ssp easgd adpsgd; do
  repeats $method-node --strategy.name=$method --parallel.share=node
done
repeats essp-chunks --strategy.name=essp --strategy.slack=2 --optim.name=adam --optim.lr=0.002 --run.slow=1:3 \
  --model="mlp 784-256-10 relu"
repeats servers --strategy.name=asgd --strategy.servers=1
repeats static --strategy.name=asgd --strategy.data=static --strategy.tau=2 --optim.name=adam
repeats chunks --strategy.name=asgd --model="mlp 784-512-10 relu" --train.steps=16

# On other virtual networks, even on one in random order; and an order recorded there.
replay order-asgd one-node --strategy.name=asgd --simulate.nodes=1
equal real-asgd one-node
replay order-asgd random --strategy.name=asgd --simulate.schedule=5
equal real-asgd random
for seed in 1 2; do
  timeout 60 "$TRIREME" train config.yaml --run.dir=random-$seed --simulate.workers=4 --simulate.schedule=$seed \
    --strategy.name=asgd --run.record=order-random-$seed > random.log 2>&1 || { cat random.log; fail "random schedule"; }
done
[ "$(sha random-1)" != "$(sha random-2)" ] || fail "two random schedules: equal bits"
replay order-random-1 random-again --strategy.name=asgd --simulate.schedule=2
equal random-1 random-again

# perturbed NAME: a copy of order-random-1
perturbed() { rm -rf "$1" && cp -r order-random-1 "$1"; }
# refused NAME TEXT OPTION...: the run that follows it ends with one error, which contains TEXT
refused() {
  try_replay "$1" "run-$1" --strategy.name=asgd "${@:3}"
  local status=$?
  [ $status = 1 ] || [ $status = 2 ] || { cat "run-$1.log"; fail "$1: status $status"; }
  [ "$(grep -c 'error: ' "run-$1.log")" = 1 ] && grep 'error: ' "run-$1.log" | grep -q -- "$2" ||
    { cat "run-$1.log"; fail "$1: another message than \"$2\""; }
  pass "$1: $2"
}
# Two calls of different workers in the other order: other bits, or a departure.
perturbed swapped
awk '$1 == "c" && $3 == 0 && $4 > 8 && !done { if (last != "" && last != $5) { print $4, last, $5; done = 1 } last = $5 }' \
  swapped/rank-*.txt > pair
read -r number first second < pair
sed -i -e "s/^c 0 0 $((number - 1)) $first /c 0 0 $((number - 1)) $second /;t" \
  -e "s/^c 0 0 $number $second /c 0 0 $number $first /" swapped/rank-*.txt
cmp -s swapped/rank-3.txt order-random-1/rank-3.txt && fail "nothing was swapped"
if try_replay swapped swapped-run --strategy.name=asgd; then
  [ "$(sha swapped-run)" != "$(sha random-1)" ] || fail "two calls in the other order: the same bits"
else
  grep -q 'error: ' swapped-run.log || fail "two calls in the other order: no message"
fi
pass "two calls in the other order are noticed"

perturbed caller # calls that never come
sed -i 's/^\(c 0 0 [0-9][0-9]\) .*/\1 3 1/' caller/rank-*.txt
refused caller 'deadlock\|departed'
perturbed missing-call
sed -i '/^c 0 0 7 /d' missing-call/rank-*.txt
refused missing-call 'call 7 on chunk 0'
# Of essp also: what had arrived; and the nodes, since calls on chunks of the own node are others.
timeout 60 "$TRIREME" train config.yaml --run.dir=late --simulate.workers=4 --device.gflops=0.1 --strategy.name=essp \
  --run.jitter="lognormal 0.5" --run.record=arrivals > late.log 2>&1 || { cat late.log; fail "essp, recorded"; }
grep -q '^a 0' arrivals/rank-1.txt && grep -q '^a 1' arrivals/rank-1.txt || fail "essp: no record of arrivals"
replay arrivals late-again --strategy.name=essp
equal late late-again
sed -i 's/^a 0/a 1/' arrivals/rank-1.txt
! try_replay arrivals run-arrivals --strategy.name=essp && grep -q 'error: .*\(deadlock\|departed\)' run-arrivals.log ||
  { cat run-arrivals.log; fail "essp: other arrivals"; }
pass "essp: other arrivals are noticed"
! try_replay order-essp run-one-node --strategy.name=essp --parallel.share=node --simulate.nodes=1 &&
  grep -q 'error: .*record of another run' run-one-node.log || { cat run-one-node.log; fail "essp on other nodes"; }
pass "essp: other nodes are refused"
perturbed garbage
sed -i '5s/.*/c 0 0 x/' garbage/rank-3.txt
refused garbage 'line 5 is damaged'
perturbed cut
head -c -6 order-random-1/rank-3.txt > cut/rank-3.txt
refused cut 'not whole\|is damaged'
perturbed absent
rm absent/rank-2.txt
refused absent 'rank-2.txt: cannot read'
perturbed stopped
sed -i 's/^end$/halt/' stopped/rank-1.txt
refused stopped 'was stopped'
perturbed seed
refused seed 'record of another run' --run.seed=4
perturbed steps
refused steps 'deadlock\|departed' --train.steps=48
finish
