#!/bin/bash
# strategy.stragglers=drop: a worker that never ends a gradient delays no end of an epoch, every sample is used once,
# equal bits each time; where nobody is late, the bits of strategy.stragglers=wait. On real ranks, too. train.seconds:
# runs end when their time is up, on all ranks, with the time before a resumption.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
export OMP_NUM_THREADS=1

"$TRIREME" data make digits --out d.h5 --train 320 --test 64 >/dev/null || exit 1
cat >config.yaml <<'YAML'
model: mlp 784-16-10 relu
data: {file: d.h5}
train: {epochs: 2, batch: 10}
optim: {lr: 0.05}
run: {seed: 3, checkpoint_every: -1, overwrite: yes}
log: {quiet: yes}
YAML
number() {
  json_number "$1" "$2/summary.json"
}
hash_of() {
  json_text weights_sha256 "$1/summary.json"
}
# simulate N NAME OPTION...
simulate() {
  local ranks=$1 name=$2
  shift 2
  timeout 60 "$TRIREME" train config.yaml --run.dir="$name" --simulate.workers="$ranks" "$@" >"$name.out" 2>&1 ||
    { cat "$name.out"; fail "$name on $ranks virtual ranks"; }
}
complete() {
  [ "$(number samples "$1")" = 640 ] && [ "$(number steps "$1")" = 64 ] ||
    fail "$1: $(number samples "$1") samples, $(number steps "$1") steps"
}
below() {
  awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }' || fail "$3: $1 is not below $2"
}

simulate 4 quick --strategy.name=asgd
limit=$(awk -v s="$(number virtual_s quick)" 'BEGIN { print 20 * s }')
some="asgd softsync hogwild easgd adpsgd"
! all_cases || some="asgd softsync dcasgd dana hogwild easgd eamsgd adpsgd a2cid2 keuper fedasync fedbuff asyncdiloco"
for method in $some; do
  for slow in 3:1e6 0:1e6,2:1e6; do
    for nodes in 1 2; do
      set -- --strategy.name="$method" --strategy.stragglers=drop --run.slow=$slow --simulate.nodes=$nodes \
        --optim.lr=0.01
      simulate 4 once "$@"
      complete once
      below "$(number virtual_s once)" "$limit" "$method, run.slow=$slow, $nodes nodes: virtual seconds"
      simulate 4 twice "$@" --simulate.threads=1
      [ "$(hash_of once)" = "$(hash_of twice)" ] || fail "$method, run.slow=$slow: other bits in the second run"
    done
  done
  pass "$method: workers that never end delay no epoch"
done
for more in "--strategy.tau=3" "--strategy.aggregate=node" "--strategy.servers=1" "--run.outages=1:0.0001-1e6"; do
  simulate 4 more --strategy.name=asgd --strategy.stragglers=drop --run.slow=2:1e6 --simulate.nodes=2 $more
  complete more
  below "$(number virtual_s more)" "$limit" "asgd $more: virtual seconds"
done
pass "asgd drops stragglers with tau, servers, aggregation and long pauses"
# A worker of ringmaster that never ends abandons one gradient after the other.
for more in "" --strategy.servers=1; do
  for nodes in 1 2 4; do
    set -- --strategy.name=ringmaster --strategy.max_delay=3 --strategy.stops=yes --strategy.stragglers=drop \
      --run.slow=2:1e6 --simulate.nodes=$nodes --optim.lr=0.02 $more
    simulate 4 once "$@"
    complete once
    below "$(number virtual_s once)" "$limit" "ringmaster with stops, $nodes nodes: virtual seconds"
    abandoned=$(grep -o '"rank":2,"updates":[0-9]*' once/staleness.json | sed 's/.*://')
    below 10 "${abandoned:-0}" "ringmaster with stops, $nodes nodes: gradients that the worker abandons"
    simulate 4 twice "$@" --simulate.threads=1
    [ "$(hash_of once)" = "$(hash_of twice)" ] || fail "ringmaster with stops, $nodes nodes: other bits in the second run"
  done
done
pass "ringmaster with stops: a worker that never ends begins anew"
# A trial of mindflayer ends at its frame, of a worker that never ends, too.
for nodes in 1 4; do
  set -- --strategy.name=mindflayer --strategy.stragglers=drop --run.slow=2:1e6 --simulate.nodes=$nodes --optim.lr=0.05
  frame=$(awk -v s="$(number virtual_s quick)" 'BEGIN { print s / 16 }')
  simulate 4 once "$@" --strategy.frame="$frame"
  complete once
  below "$(number virtual_s once)" "$limit" "mindflayer, $nodes nodes: virtual seconds"
  simulate 4 twice "$@" --strategy.frame="$frame" --simulate.threads=1
  [ "$(hash_of once)" = "$(hash_of twice)" ] || fail "mindflayer, $nodes nodes: other bits in the second run"
done
pass "mindflayer: a worker that never ends holds no round for longer than its frame"
for failure in 1e-4 4e-4 8e-4 12e-4 16e-4 20e-4 24e-4; do
  simulate 2 more --strategy.name=asgd --strategy.stragglers=drop --run.slow=1:1e3 --run.outages=0:$failure-
  complete more
done
pass "a straggler goes on where all others have failed"
for jitter in "" "lognormal 0.3"; do
  simulate 3 wait --strategy.name=asgd --run.jitter="$jitter"
  simulate 3 drop --strategy.name=asgd --run.jitter="$jitter" --strategy.stragglers=drop
  [ "$(hash_of wait)" = "$(hash_of drop)" ] || fail "stragglers=drop without stragglers, jitter \"$jitter\": other bits"
done
pass "without stragglers nothing is dropped"
for slow in 0 2; do
  timeout 120 $MPIEXEC -n 3 "$TRIREME" train config.yaml --run.dir=real --train.epochs=1 --strategy.name=asgd \
    --strategy.stragglers=drop --device.compute=sleep --device.gflops=0.1 --run.slow=$slow:1e5 >real.out 2>&1 ||
    { cat real.out; fail "a straggler among real ranks"; }
  [ "$(number samples real)" = 320 ] || fail "real ranks: $(number samples real) samples"
done
timeout 120 $MPIEXEC -n 2 "$TRIREME" train config.yaml --run.dir=real --train.epochs=1 --strategy.name=asgd \
  --strategy.stragglers=drop --parallel.share=none --device.compute=sleep --device.gflops=0.1 --run.slow=1:1e5 \
    >real.out 2>&1 ||
  { cat real.out; fail "a straggler among real ranks without shared memory"; }
[ "$(number samples real)" = 320 ] || fail "real ranks without shared memory: $(number samples real) samples"
pass "real ranks drop a straggler"
for share in node none; do
  timeout 120 $MPIEXEC -n 3 "$TRIREME" train config.yaml --run.dir=real --train.epochs=1 --strategy.name=ringmaster \
    --strategy.max_delay=3 --strategy.stops=yes --strategy.stragglers=drop --parallel.share=$share \
    --device.compute=sleep --device.gflops=0.1 --run.slow=2:1e5 >real.out 2>&1 ||
    { cat real.out; fail "real ranks with stops, share $share"; }
  [ "$(number samples real)" = 320 ] || fail "real ranks with stops, share $share: $(number samples real) samples"
  at_least "$(number staleness_max real)" 3 || fail "real ranks with stops, share $share: no worker stops"
done
pass "real ranks stop"
timeout 120 $MPIEXEC -n 3 "$TRIREME" train config.yaml --run.dir=real --train.epochs=1 --strategy.name=mindflayer \
  --strategy.frame=0.05 --device.compute=sleep --device.gflops=0.1 --run.slow=2:1e5 >real.out 2>&1 ||
  { cat real.out; fail "real ranks with frames"; }
[ "$(number samples real)" = 320 ] || fail "real ranks with frames: $(number samples real) samples"
below "$(number train_s real)" 60 "real ranks with frames: seconds"
pass "real ranks abandon what takes longer than its frame"

# -- train.seconds
reason() {
  grep -q '"reason": *"train.seconds"' "$1/summary.json" && grep -q '"status": *"done"' "$1/summary.json" ||
    { head -c 400 "$1/summary.json"; fail "$1: the reason of the end"; }
}
for method in sync local ssp asgd; do
  simulate 4 all --strategy.name=$method --train.epochs=4
  seconds=$(awk -v s="$(number train_s all)" 'BEGIN { print s / 3 }')
  simulate 4 part --strategy.name=$method --train.epochs=4 --train.seconds="$seconds"
  reason part
  below "$(number steps part)" 64 "$method: steps in a third of the time"
  below 24 "$(number steps part)" "$method: steps in a third of the time"
  below "$seconds" "$(awk -v s="$(number train_s part)" 'BEGIN { print s * 1.0001 }')" "$method: seconds"
  ! grep -q '"reason"' all/summary.json || fail "$method: a reason without train.seconds"
done
pass "train.seconds ends runs at their time"
simulate 4 part --strategy.name=asgd --train.epochs=4 --train.seconds="$seconds" --run.checkpoint_every=0
before=$(number steps part)
simulate 4 part --strategy.name=asgd --train.epochs=4 --train.seconds="$seconds" --run.checkpoint_every=0 \
  --run.resume=auto \
  --run.overwrite=no
[ "$(number steps part)" = "$before" ] || fail "a run whose time was up went on"
simulate 4 part --strategy.name=asgd --train.epochs=4 --train.seconds="$(awk -v s="$seconds" 'BEGIN { print 2 * s }')" \
  --run.checkpoint_every=0 --run.resume=auto --run.overwrite=no
reason part
below "$(number steps part)" "$((3 * before))" "resumed with twice the time: steps"
below "$before" "$(number steps part)" "resumed with twice the time: steps"
pass "time before a resumption counts"
for method in sync asgd; do
  timeout 120 $MPIEXEC -n 2 "$TRIREME" train config.yaml --run.dir=real --train.epochs=100000 --strategy.name=$method \
    --train.seconds=0.3 >real.out 2>&1 || { cat real.out; fail "train.seconds on real ranks"; }
  reason real
  below 0.2 "$(number train_s real)" "$method: seconds" # rank 0's; some rank has reached 0.3
done
pass "train.seconds on real ranks"
# The rank that finds that the time is up need not be the one that writes the checkpoint.
for _ in 1 2 3 4; do
  launch 2 "$TRIREME" train config.yaml --run.dir=up --train.epochs=100000 --train.seconds=0.2 --run.checkpoint_every=20 \
    --train.evaluate_every=0 >up.out 2>&1 || { cat up.out; fail "train.seconds on two ranks"; }
  steps=$(number steps up)
  launch 2 "$TRIREME" train config.yaml --run.dir=up --train.epochs=100000 --train.seconds=0.2 --run.checkpoint_every=20 \
    --train.evaluate_every=0 --run.resume=auto --run.overwrite=no >up.out 2>&1 || { cat up.out; fail "a run whose time was up"; }
  [ "$(number steps up)" = "$steps" ] || fail "a run whose time was up at step $steps went on to $(number steps up)"
done
pass "a run whose time is up has finished"

# A checkpoint with more gradients collected than an update now takes.
simulate 4 collects --strategy.name=rennala --strategy.collect=1000 --train.epochs=1 --run.checkpoint_every=0
begun=$(hash_of collects)
simulate 4 collects --strategy.name=rennala --strategy.collect=3 --run.checkpoint_every=0 --run.resume=auto --run.overwrite=no
[ "$(hash_of collects)" != "$begun" ] || fail "rennala makes no update after a resumption with fewer gradients"
pass "rennala goes on with another strategy.collect"
finish
