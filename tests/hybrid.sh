#!/bin/bash
# Jobs of unlike ranks: any shares of the batch have the loss curve of one rank, in every layout; shares by measured
# speed; what slow ranks gain; resumed runs; commands that differ between the ranks of a job.
set -u
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/layouts_lib.sh"
openblas_only

# cell MODEL RANKS NAME OPTION...: batches of 50 rows, the last one of an epoch has 40 (digits) or fewer
cell() {
  [ -d "$1-one" ] || run_of 1 "$1" "$1-one" --train.batch=50
  run_of "$2" "$1" "$1-$3" --train.batch=50 "${@:4}"
  same "$1-one" "$1-$3"
}
cell mlp 3 shares --parallel.shares=5,2,0
cell mlp 3 accumulate --parallel.shares=5,2,0 --train.accumulate=3
cell mlp 3 private --parallel.shares=0,1,40 --parallel.share=none
cell mlp 3 zero-2 --parallel.shares=5,2,0 --parallel.zero=2
cell norms 3 shares --parallel.shares=5,2,0
cell gpt2 3 zero-3 --parallel.shares=2,0,1 --parallel.zero=3 --train.accumulate=2
cell gpt2 4 tensor --parallel.shares=3,1 --parallel.tensor=2
cell mlp 4 pipeline --parallel.shares=1,3 --parallel.pipeline=2 --train.accumulate=4
[ "$(json_text shares mlp-shares/summary.json)" = 5,2,0 ] || fail "summary.json: shares"

run_of 2 mlp half --parallel.shares=1,1
run_of 2 mlp equal --parallel.shares=equal
equal equal half "shares 1,1"

# simulate RANKS NAME OPTION...
simulate() {
  timeout -k 10 60 "$TRIREME" train mlp.yaml --log.quiet=no --train.steps=40 --train.evaluate_every=0 --train.batch=100 --optim.schedule=constant \
    --simulate.workers="$1" --run.dir="$2" "${@:3}" > "$2.log" 2>&1 || { cat "$2.log"; fail "$2"; }
}
# The virtual clock: rank 1 takes three times the time.
slow="--run.slow=1:3 --device.gflops=0.1 --simulate.bandwidth=1e12 --simulate.latency=1e-9"
simulate 2 slow $slow
simulate 2 given $slow --parallel.shares=3,1
simulate 2 measured $slow --parallel.shares=measured
[ "$(json_text shares measured/summary.json)" = 1000,333 ] || { cat measured.log; fail "shares of a rank in 3 times the time"; }
grep -q 'shares: "1000,333"' measured/config.yaml || fail "measured/config.yaml has no list"
awk -v slow="$(of slow train_s)" -v given="$(of given train_s)" 'BEGIN { exit !(given < 0.51 * slow && given > 0.49 * slow) }' ||
  fail "shares 3,1: $(of given train_s) s of $(of slow train_s) s"
pass "shares 3,1: $(of given train_s) s of $(of slow train_s) s"
simulate 2 again $slow --parallel.shares=measured --simulate.threads=2
equal measured again
# ms PREFIX LOG: milliseconds of steps with the shares and without the slow ranks
ms() { sed -n "s/^shares: $1: \([0-9.]*\) ms a step, without the slow data ranks [0-9,]* \([0-9.]*\) ms.*/\1 \2/p" "$2"; }
paste -d' ' <(ms predicted measured.log) <(ms measured measured.log) | awk '
  function near(a, b) { return a > 0.97 * b && a < 1.03 * b }
  { ok = NF == 4 && near($1, $3) && near($2, $4) && near($2, $1 * 4 / 3) }
  END { exit !ok }' || { cat measured.log; fail "the prediction is not what was measured"; }
[ "$(grep -c 'they pay' measured.log)" = 2 ] || fail "a rank that gains a quarter of the time does not pay"
simulate 3 dear --run.slow=1:30,2:30 --device.gflops=1 --simulate.latency=0.01 --parallel.shares=measured
[ "$(grep -c 'without the slow data ranks 1,2 .* do not pay' dear.log)" = 2 ] || { cat dear.log; fail "ranks that cost more than they gain pay"; }
pass "what slow ranks gain, predicted and measured"

# Shares that gain less than 5 % in passes stay equal: 52 and 48 rows for a rank in 1.08 times the time gain 3.8 %, 53 and
# 47 for 1.12 times 5.7 %.
simulate 2 equal-speeds --run.slow=1:1.08
simulate 2 nearly --run.slow=1:1.08 --parallel.shares=measured
[ "$(json_text shares nearly/summary.json)" = 1000,1000 ] && grep -q 'shares: equal, .* would gain 3.8 %' nearly.log &&
  ! grep -q 'slow data ranks' nearly.log || { cat nearly.log; fail "shares of nearly equal ranks"; }
equal equal-speeds nearly
simulate 2 beyond --run.slow=1:1.12 --parallel.shares=measured
[ "$(json_text shares beyond/summary.json)" = 1000,893 ] || { cat beyond.log; fail "shares of a rank in 1.12 times the time"; }
pass "equal below a gain of 5 %"

# One of two ranks in twice the time: the ideal is 1.5 times the samples per second; 8 of 200 steps are measured before.
simulate 2 twice-equal $slow --run.slow=1:2 --train.steps=200
simulate 2 twice $slow --run.slow=1:2 --train.steps=200 --parallel.shares=measured
awk -v e="$(of twice-equal train_s)" -v b="$(of twice train_s)" 'BEGIN { x = e / b; exit !(x > 1.43 && x < 1.5) }' ||
  { cat twice.log; fail "a rank in twice the time: $(of twice-equal train_s) s, $(of twice train_s) s with balanced shares"; }
pass "a rank in twice the time: $(of twice-equal train_s) s, $(of twice train_s) s with balanced shares"

# A rank that becomes slow in the course of a run is found after a hundred whole batches (five of six here), once.
simulate 2 later --parallel.shares=measured --train.steps=30
simulate 2 later --parallel.shares=measured --train.steps=300 --run.slow=1:3 --run.resume=auto
[ "$(grep -c 'shares: .* from step' later.log)" = 1 ] &&
  grep -q 'shares: 1000,333 from step 150 on: passes take 50.0 % less time' later.log &&
  [ "$(json_text shares later/summary.json)" = 1000,333 ] && grep -q 'shares: "1000,333"' later/config.yaml ||
  { cat later.log; fail "a rank that becomes slow"; }
pass "a rank that becomes slow"
# ... and one that is slow no more.
simulate 2 later --parallel.shares=measured --train.steps=500 --run.resume=auto
[ "$(json_text shares later/summary.json)" = 1000,1000 ] || { cat later.log; fail "a rank that is slow no more"; }
pass "a rank that is slow no more"

# Ranks of a node that are alike have equal shares, whatever their times vary; ranks of several nodes do not.
jitter=(--run.slow=2:2,3:2 --run.jitter="lognormal 0.03" --parallel.shares=measured)
simulate 4 node-shares "${jitter[@]}" --simulate.nodes=2
simulate 4 rank-shares "${jitter[@]}" --simulate.nodes=4
simulate 4 unlike-shares --run.slow=1:2 --parallel.shares=measured --simulate.nodes=2
json_text shares node-shares/summary.json | awk -F, '{ exit !($1 == 1000 && $2 == 1000 && $3 == $4 && $3 > 450 && $3 < 550) }' ||
  { cat node-shares.log; fail "shares of two nodes: $(json_text shares node-shares/summary.json)"; }
json_text shares rank-shares/summary.json | awk -F, '{ exit !(($1 != $2 || $3 != $4) && $3 > 400 && $3 < 600) }' ||
  { cat rank-shares.log; fail "shares of four nodes: $(json_text shares rank-shares/summary.json)"; }
[ "$(json_text shares unlike-shares/summary.json)" = 1000,500,1000,1000 ] || { cat unlike-shares.log; fail "a slow rank in a node"; }
pass "nodes: $(json_text shares node-shares/summary.json), one rank a node: $(json_text shares rank-shares/summary.json)"

# Resumed, a run keeps the shares that it measured, unless the ranks are others.
simulate 2 kept $slow --parallel.shares=measured --train.steps=30
simulate 2 kept $slow --parallel.shares=measured --run.resume=auto
grep -q 'shares: 1000,333, of the checkpoint' kept.log || { cat kept.log; fail "a resumed run measures again"; }
equal measured kept resumed
simulate 3 kept $slow --parallel.shares=measured --run.resume=auto --train.steps=80
[ "$(json_text shares kept/summary.json)" = 1000,333,1000 ] || { cat kept.log; fail "three ranks with the shares of two"; }
pass "resumed"

# Real ranks, in modeled time that no load of the machine changes much; a few steps must be near the ideal.
run_of 2 mlp real --log.quiet=no --log.every=100 --train.steps=30 --train.evaluate_every=0 --train.batch=96 \
  --data.drop_last=yes --parallel.shares=measured --device.compute=sleep --device.gflops=0.2 --run.slow=1:3
json_text shares real/summary.json | awk -F, '{ exit !($1 == 1000 && $2 > 250 && $2 < 400) }' ||
  { cat real.log; fail "shares of real ranks: $(json_text shares real/summary.json)"; }
# equal shares take 48 * 3 times a row's time, the ideal ones 72
equal_ms=$(sed -n 's/.*by the speeds of 5 steps of \([0-9.]*\) ms.*/\1/p' real.log)
ms measured real.log | awk -v equal="$equal_ms" '{ ok = equal > 0 && $1 < 0.75 * equal && $2 > $1 } END { exit !ok }' ||
  { cat real.log; fail "real ranks: the shares gain too little"; }
pass "real ranks: $equal_ms ms with equal shares, $(ms measured real.log) with these and without the slow rank"

# Several commands: options of devices and threads may differ, no others. Ranks of unequal numbers of threads train.
mixed() { # mixed NAME OPTION... : OPTION...
  local first=() all=(--run.dir="$1")
  shift
  while [ "$1" != : ]; do first+=("$1"); shift; done
  shift
  timeout -k 10 120 $MPIEXEC -n 1 "$TRIREME" train mlp.yaml "${all[@]}" "${first[@]}" : \
    -n 2 "$TRIREME" train mlp.yaml "${all[@]}" "$@" > mixed.log 2>&1
}
mixed unlike --parallel.threads=2 --device.gflops=7 --parallel.shares=5,2,0 --train.batch=50 : --parallel.threads=1 \
  --device.matmul=f32 --parallel.shares=5,2,0 --train.batch=50 || { cat mixed.log; fail "commands that differ in threads"; }
same mlp-one unlike
mixed refused --optim.lr=0.1 : --optim.lr=0.2
[ $? = 2 ] || { cat mixed.log; fail "ranks with two learning rates: another status"; }
grep -q 'error: optim.lr: 0.2 on rank 1, and rank 0 has optim.lr: 0.1: only device' mixed.log || { cat mixed.log; fail "ranks with two learning rates"; }
[ "$(grep -c error: mixed.log)" = 1 ] || { cat mixed.log; fail "more than one line"; }
[ ! -e refused ] || fail "a refused run left a folder"
pass "commands that differ"

# A rank on a GPU, here the module on the emulator (tests/cuda), beside CPU ranks: the loss curve of one CPU rank, in
# every family of synchronous strategies. Refused in one line where there is no GPU. The planner measures the device.
module=$(dirname "$TRIREME")/tests/cuda/.libs
if [ -e "$module/trireme_cuda.so" ]; then
  export TRIREME_MODULES=$module
  beside() { # beside MODEL RANKS NAME OPTION...
    local all=(train "$1.yaml" --run.dir="$1-gpu-$3" --train.batch=50 "${@:4}")
    timeout -k 10 240 $MPIEXEC -n 1 "$TRIREME" "${all[@]}" --device.name=cuda : \
      -n $(($2 - 1)) "$TRIREME" "${all[@]}" --device.name=cpu > gpu.log 2>&1 || { cat gpu.log; fail "$3 beside a GPU"; }
    same "$1-one" "$1-gpu-$3"
  }
  beside mlp 3 shares --parallel.shares=5,2,0
  beside mlp 3 zero-3 --parallel.shares=1,0,3 --parallel.zero=3
  if all_cases; then
    beside mlp 3 zero-2 --parallel.shares=5,2,0 --parallel.zero=2 --train.accumulate=2
    beside mlp 4 tensor --parallel.shares=3,1 --parallel.tensor=2
    beside mlp 4 pipeline --parallel.shares=1,3 --parallel.pipeline=2 --train.accumulate=4
    beside norms 2 shares --parallel.shares=1,4
  fi
  status=0
  TRM_MOCK_GPUS=none mixed no-gpu --device.name=cuda : --device.name=cpu || status=$?
  [ $status = 1 ] && [ "$(grep -c error: mixed.log)" = 1 ] && grep -q 'error: device.name=cuda: .*driver' mixed.log ||
    { cat mixed.log; fail "a job that lacks a GPU: status $status"; }
  pass "a job that lacks a GPU is refused in one line"
  # 4 GiB, less the 32 MiB that cuBLAS works in
  small=(--model="linear 10" --data.file=digits.h5 --train.batch=20 --ranks=2)
  "$TRIREME" plan "${small[@]}" --device.name=cuda --calibrate=gpu.json > plan.log 2> plan.err &&
    grep -q '^device: cuda, 4064 MB of its own' plan.log && grep -q '"device":"cuda","device_bytes":4' gpu.json ||
    { cat plan.log plan.err; fail "a plan on a device"; }
  unset TRIREME_MODULES
  "$TRIREME" plan "${small[@]}" --machine=gpu.json > plan.log 2>&1 && grep -q '^device: cuda' plan.log ||
    { cat plan.log; fail "a plan for a device, without one"; }
  pass "plans with a device measured and with its file"
else
  echo "not tested: ranks on GPUs: this build has no $module"
fi

# refused TEXT OPTION...: two ranks, status 2
refused() {
  try_of 2 mlp refused "${@:2}"
  [ $? = 2 ] || { cat refused.log; fail "${*:2}: another status"; }
  grep 'error:' refused.log | grep -qF -- "$1" || { cat refused.log; fail "${*:2}: another message"; }
  pass "refused: ${*:2}"
}
try_of() { config=$2.yaml try "$1" "${@:3}"; }
refused "has 3 numbers; the job has 2 data ranks" --parallel.shares=1,2,3
refused "neither equal nor measured nor a list" --parallel.shares=fast
refused "leaves all rows to nobody" --parallel.shares=0,0
refused "not each of 2 data ranks gets one" --parallel.shares=measured --train.batch=1
finish
