#!/bin/bash
# Virtual runs whose times follow from a machine file (simulate.machine): the seconds of a step are those computed by
# hand from the file; what is missing or wrong in a file is refused.
. "$(dirname "$0")/lib.sh"
scratch
digits 640 32
cat > config.yaml << 'YAML'
model: linear 10
data: {file: digits.h5}
train: {steps: 40, batch: 16}
run: {checkpoint_every: -1, overwrite: yes}
log: {quiet: yes}
YAML
# A gradient of 16 rows takes 1 + 2 + 3 + 1 ms, one of fewer rows in proportion. Of the 7850 parameters an update takes
# 1 ms, a copy .5 ms, a sum of two arrays 2 ms. Messages take no time but for the latency, LATENCY ms.
machine() {
  cat << JSON
{"cores":2,"threads":1,"message_s":$1e-3,"message_bytes_per_s":1e18,"network_s":$1e-3,"network_bytes_per_s":1e18,
 "work":[{"name":"batch","bytes":50176,"forward_s":1e-3},
 {"name":"linear first","flop":250880,"bytes":50816,"forward_s":2e-3,"backward_s":3e-3},
 {"name":"loss softmax_cross_entropy","bytes":1280,"forward_s":1e-3},
 {"name":"update","bytes":94200,"forward_s":1e-3},
 {"name":"copy","bytes":62800,"forward_s":0.5e-3},{"name":"sum","bytes":94200,"forward_s":2e-3}]}
JSON
}
machine 1 > machine.json
machine 0.000001 > near.json

# seconds RANKS MS WHAT OPTION...: virtual milliseconds of 40 steps
simulate() {
  timeout -k 10 120 "$TRIREME" train config.yaml --run.dir=run --simulate.workers="$1" --simulate.nodes=1 "${@:2}" \
    > run.log 2>&1
}
takes() {
  simulate "$1" --simulate.machine="$4.json" "${@:5}" || { cat run.log; fail "$3"; }
  awk -v a="$(of run train_s)" -v b="$2" 'BEGIN { d = 1e3 * a - b; exit !(d < 1e-3 * b && d > -1e-3 * b) }' ||
    fail "$3: $(of run train_s) s, not $2 ms"
  pass "$3: $2 ms"
}

# sync: the gradient; sums and updates of two blocks, of 4096 and 3754 elements, at the same time; a barrier, a latency.
# Two ranks have half of a gradient each. Four share two cores: a fourth each, in twice the time; their sum has five
# arrays, not three, and a collective takes two latencies.
takes 1 320 "sync, 1 rank" machine
takes 2 242.614 "sync, 2 ranks" machine
takes 2 242.614 "sync, 2 ranks, times alone" machine --simulate.gradients=no
takes 4 310.442 "sync, 4 ranks on 2 cores" machine
takes 4 240.442 "sync, 4 ranks on 4 cores" machine --simulate.cores=4
takes 2 382.614 "sync, 2 ranks, accumulating" machine --train.accumulate=2 --run.slow=0:2,1:2
# asgd: the gradient, the update, a copy of the weights back; a copy of them at the start. On two cores the gradients of
# two workers are computed at the same time, their updates after one another; one waits for the other once.
takes 1 340.5 "asgd, 1 worker" near --strategy.name=asgd
takes 2 172 "asgd, 2 workers" near --strategy.name=asgd
# easgd: the elastic move, 4 arrays of a copy's cost, 1 ms; the local step and the difference, an update each
takes 1 400.5 "easgd, 1 worker" near --strategy.name=easgd --strategy.tau=1

# An owner's answer takes as long as its arithmetic: on two nodes, a server.
simulate 2 --simulate.machine=near.json --strategy.name=asgd --strategy.servers=1 --simulate.nodes=2 ||
  { cat run.log; fail "a server"; }
[ "$(awk -v s="$(of run train_s)" 'BEGIN { printf "%.1f", 1e3 * s }')" = 340.5 ] || fail "a server: $(of run train_s) s"
pass "a server: 340.5 ms"

# -- files that do not fit
# refused NAME TEXT OPTION...
refused() {
  simulate 2 --simulate.machine="$1" "${@:3}"
  local status=$?
  [ $status = 2 ] && [ "$(grep -c error: run.log)" = 1 ] && grep -q -- "$2" run.log ||
    { cat run.log; fail "$1: status $status, not refused with: $2"; }
  pass "refused: $1: $2"
}
refused machine.json "no figures of \"tanh\"" "--model=mlp 784-4-10 tanh"
sed 's/loss soft/loss hard/' machine.json > no-loss.json
refused no-loss.json "no figures of \"loss softmax_cross_entropy\""
grep -v batch machine.json | sed 's/^ {"name":"linear/ "work":[&/' > no-batch.json
refused no-batch.json "no figures of \"batch\""
sed 's/"cores":2,//' machine.json > no-cores.json
refused no-cores.json "cores is missing or not above 0"
head -c 300 machine.json > half.json
refused half.json "half.json"
refused machine.json "simulate.machine: cannot be combined with parallel.pipeline" --parallel.pipeline=2
"$TRIREME" train config.yaml --run.dir=run --simulate.machine=machine.json > run.log 2>&1
[ $? = 2 ] && grep -q "simulate.machine: cannot be combined with real ranks" run.log ||
  { cat run.log; fail "simulate.machine on real ranks"; }
pass "refused: simulate.machine on real ranks"
finish
