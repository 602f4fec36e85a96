#!/bin/bash
# Training on the virtual network: equal bits in every run, on any number of threads, for all methods; the bits of the
# real network where they do not depend on time; resumed runs; times; outages; refusals.
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 800 200
cat > config.yaml << 'YAML'
model: mlp 784-24-10 tanh
data: {file: digits.h5, validation: 0.1}
train: {steps: 48, batch: 16, evaluate_every: 24}
optim: {lr: 0.05}
run: {seed: 3, jitter: lognormal 0.5, checkpoint_every: -1}
log: {quiet: yes}
YAML
methods="sync asgd groups hogwild softsync dcasgd dana ormo ringmaster ringmaster+stops rennala backup malenia ringleader \
  iaasgd mindflayer mindflayer+frame ssp essp easgd eamsgd fedasync fedbuff asyncdiloco halos adpsgd a2cid2 sgp keuper"

# named METHOD: its options
named() {
  echo "--strategy.name=${1%+*}"
  case $1 in *+stops) echo --strategy.stops=yes ;; *+frame) echo "--strategy.frame=2e-4" ;; esac
}
# simulate N NAME OPTION...: trains config.yaml on N virtual ranks
try_simulate() {
  local n=$1 name=$2
  shift 2
  timeout -k 10 120 "$TRIREME" train config.yaml --run.dir="$name" --simulate.workers="$n" "$@" > "$name.log" 2>&1
}
simulate() { try_simulate "$@" || { cat "$2.log"; fail "$2: $1 virtual ranks, ${*:3}"; }; }
# metrics RUN: metrics.jsonl without real times
metrics() { sed 's/"wall_s":[^,}]*,\{0,1\}//' "$1/metrics.jsonl"; }

sizes="1 4" nodes_of_resumed=2
! all_cases || sizes="1 4 32" nodes_of_resumed="1 2 4"
for method in $methods; do
  for n in $sizes; do
    # shellcheck disable=SC2046 # options
    simulate $n "$method-$n" $(named "$method") --simulate.threads=2
    # shellcheck disable=SC2046
    simulate $n "$method-$n-again" $(named "$method") --simulate.threads=1 --run.trace=steps
    equal "$method-$n" "$method-$n-again"
    diff <(metrics "$method-$n") <(metrics "$method-$n-again") || fail "$method, $n ranks: other metrics"
    grep -q '"virtual_s":[0-9]' "$method-$n/summary.json" || fail "$method-$n/summary.json: no virtual_s"
  done
  [[ $method != *+frame ]] || continue # real times are others
  # shellcheck disable=SC2046
  run 1 "$method-real" $(named "$method")
  equal "$method-real" "$method-1"
done

# Traces. They take no virtual time (above, one run of two is traced), and have the same bytes every time. What the ranks
# did adds up to the run's virtual time, and the gradients of sync to its computation.
spans() { # spans RUN: name, seconds of each innermost span
  grep '"ph":"X"' "$1/trace.json" | sed 's/.*"name":"\([^"]*\)".*"dur":\([^,]*\),.*/\1;\2/' |
    awk -F';' '$1 ~ /^(gradient|evaluation|transfer|wait|wait for ranks)$/'
}
for method in sync asgd ssp adpsgd; do
  simulate 4 traced --run.overwrite=yes --strategy.name="$method" --simulate.threads=2 --run.trace=steps
  cmp traced/trace.json "$method-4-again/trace.json" || fail "$method: another trace"
  spans traced | awk -F';' -v whole="$(of traced virtual_s)" '{ s += $2 / 4e6 } END { exit !(s / whole > 0.999 && s / whole < 1.001) }' ||
    fail "$method: the spans of a rank do not add up to $(of traced virtual_s) s"
  "$TRIREME" report traced --picture=gantt --csv=gantt.csv --svg=gantt.svg > report.log 2>&1 || { cat report.log; fail "gantt"; }
  for rank in 0 1 2 3; do
    grep -q "\"computation\",.*,\"rank $rank\"" gantt.csv || fail "$method: rank $rank computes nothing in the chart"
  done
  grep -q '>virtual time' gantt.svg || fail "the chart's time is not said to be virtual"
done
computed=$(grep -o '"compute":{[^}]*' sync-4-again/summary.json | sed 's/.*"mean"://; s/,.*//')
spans sync-4-again | awk -F';' -v compute="$computed" '$1 == "gradient" { s += $2 / 4e6 }
  END { exit !(s / compute > 0.999 && s / compute < 1.001) }' || fail "the gradients of sync do not take $computed s"
pass "traces"

# Synchronous methods and slack 0 do not depend on time.
run 4 real --parallel.threads=1
simulate 4 nodes
equal real nodes
simulate 4 node --simulate.nodes=1
equal real node
simulate 4 ssp0 --strategy.name=ssp --strategy.slack=0
equal real ssp0
run 2 lanes --run.lanes=8
simulate 8 lanes-8 --run.lanes=8
equal lanes lanes-8
for layout in "zero=1" "zero=3" "tensor=2" "pipeline=2" "pipeline=2 --train.accumulate=4 --parallel.schedule=2bw"; do
  simulate 4 layout --run.overwrite=yes --simulate.nodes=1 --parallel.$layout
  run 4 layout-real --run.overwrite=yes --parallel.threads=1 --parallel.$layout
  equal layout-real layout "$layout"
done

# Checkpoints are consistent cuts: a resumed run ends with the bits of the whole one.
for method in $methods; do
  for nodes in $nodes_of_resumed; do
    options="$(named "$method") --simulate.nodes=$nodes --run.checkpoint_every=24"
    simulate 4 whole --run.overwrite=yes $options
    simulate 4 half --run.overwrite=yes --train.steps=24 $options
    simulate 4 half --run.resume=auto $options
    equal whole half "$method resumed on $nodes nodes"
  done
done

# A slower network takes longer and changes no bit of a synchronous run; a straggler holds a synchronous method.
simulate 4 slow-net --simulate.latency=0.01 --simulate.bandwidth=1e7
equal nodes slow-net
at_least "$(of slow-net virtual_s)" 0.5 || fail "latency of 10 ms: $(of slow-net virtual_s) s"
simulate 4 slow-rank --run.slow=1:50
at_least "$(of slow-rank virtual_s)" "$(awk -v t="$(of nodes virtual_s)" 'BEGIN { print 2 * t }')" ||
  fail "a slow rank: $(of slow-rank virtual_s) s, without $(of nodes virtual_s) s"
pass "modeled times"

# essp: servers send weights when a clock is complete. A batch takes 24 ms and a round trip 20 ms. Each batch contains
# that of the stop request, and none of a read or a push: 44 ms. Its weights are fresher than those of ssp.
late() { # late METHOD STEPS
  simulate 4 "late-$1-$2" --strategy.name="$1" --strategy.slack=3 --simulate.latency=0.01 --device.gflops=0.02 \
    --run.jitter= --train.evaluate_every=0 --train.steps="$2"
}
for method in ssp essp; do late $method 20; late $method 40; done
seconds() { awk -v a="$(of "late-$1-20" train_s)" -v b="$(of "late-$1-40" train_s)" 'BEGIN { print (b - a) / 20 }'; }
at_least 0.046 "$(seconds essp)" || fail "essp, latency of 10 ms: $(seconds essp) s a batch"
at_least "$(seconds ssp)" "$(seconds essp)" || fail "ssp: $(seconds ssp) s a batch, essp: $(seconds essp) s"
at_least 1.6 "$(of late-essp-40 staleness_mean)" && at_least "$(of late-ssp-40 staleness_mean)" 1.9 ||
  fail "staleness of essp: $(of late-essp-40 staleness_mean), of ssp: $(of late-ssp-40 staleness_mean)"
pass "essp: $(seconds essp) s a batch, staleness $(of late-essp-40 staleness_mean);" \
  "ssp: $(seconds ssp) s, $(of late-ssp-40 staleness_mean)"

# Times alone: those of the run with gradients, and no scores, weights or checkpoints that look like results.
# staleness RUN: every figure of staleness in it
staleness() {
  cat "$1/staleness.json" 2> /dev/null
  grep -o '"staleness[^,}]*' "$1/metrics.jsonl" "$1/summary.json" | cut -d: -f2-
}
# times RUN: steps and virtual times of its lines
times() { grep -o '"step":[0-9]*\|"virtual_s":[^,}]*' "$1/metrics.jsonl"; }
for method in $methods; do
  # shellcheck disable=SC2046
  simulate 4 times --run.overwrite=yes $(named "$method") --simulate.gradients=no
  diff <(times "$method-4") <(times times) || fail "$method: other times without gradients"
  [ "$(of "$method-4" virtual_s)" = "$(of times virtual_s)" ] || fail "$method: other virtual_s without gradients"
  diff <(staleness "$method-4") <(staleness times) || fail "$method: other staleness without gradients"
  grep -q '"status":"done"' times/summary.json || fail "$method without gradients: not done"
  for key in final_train_loss validation_loss validation_accuracy test_loss test_accuracy weights_sha256; do
    grep -q "\"$key\":null" times/summary.json || { cat times/summary.json; fail "$method without gradients: $key"; }
  done
  ! grep -q '_\{0,1\}\(loss\|accuracy\)":[^n]' times/metrics.jsonl ||
    { cat times/metrics.jsonl; fail "$method without gradients: scores"; }
  [ -z "$(ls times/checkpoints)" ] || fail "$method without gradients: checkpoints"
  pass "$method: the same times and staleness without gradients"
done

# A data set larger than data.memory, in windows that the ranks of a node share: the bits of the real network; a
# straggler of an asynchronous run holds nobody, nor do servers, which need no rows.
"$TRIREME" data make digits --out large.h5 --train=3000 --test=100 --seed=7 > make.log 2>&1 || fail "data make digits"
run 4 windows-real --parallel.threads=1 --data.file=large.h5 --data.memory=1M --train.steps=180
simulate 4 windows --simulate.nodes=1 --data.file=large.h5 --data.memory=1M --train.steps=180
equal windows-real windows
last_s() { sed -n 's/.*"virtual_s":\([^,]*\),"loss".*/\1/p' "$1/metrics.jsonl" | tail -1; }
for data in dynamic static; do
  for memory in 1G 1M; do
    simulate 3 straggler-$memory --run.overwrite=yes --simulate.nodes=1 --data.file=large.h5 --data.memory=$memory \
      --strategy.name=asgd --strategy.data=$data --train.steps=165 --train.evaluate_every=0 --run.slow=1:100 \
      --log.every=1
  done
  awk -v whole="$(last_s straggler-1G)" -v windows="$(last_s straggler-1M)" \
    'BEGIN { exit !(whole > 0 && windows < 1.1 * whole) }' ||
    fail "a straggler, $data: rank 0 ends after $(last_s straggler-1M) s; all rows in memory: $(last_s straggler-1G) s"
done
simulate 4 windows-served --simulate.nodes=1 --data.file=large.h5 --data.memory=1M --train.steps=180 \
  --strategy.name=asgd --strategy.servers=1
pass "windows of the data set"

# Outages. A batch takes 1 s, messages nothing, and 40 batches of 4 workers 10 s. The batch that a worker computes as it
# pauses is completed as much later; the one that it computes as it fails is another's, after all others. Rank 3:
#   option      its batches end at   batches  the others have  in all, s
#   0-5         6, 7, ..             6 or 7   15 by 5 s        12
#   2.5-4.5     1, 2, 5, 6, ..       8 or 9   15 by 5 s        11
#   2.5-        1, 2                 2        37 by 13 s       14
#   0-, 0-100   none                 0        39 by 13 s       14
work_of() { of "$1" train_s | awk '{ printf "%.6f", $1 }'; }
# updates RUN RANK: gradients of the rank
updates() { grep -o "\"rank\":$2,\"updates\":[0-9]*" "$1/staleness.json" | sed 's/.*://' | grep . || echo 0; }
outage() { simulate 4 outage --run.overwrite=yes --data.validation=0 --train.steps=40 --simulate.latency=0 \
             --simulate.bandwidth=1e18 --run.jitter= --simulate.gradients="${gradients:-yes}" "$@"; }
outage --device.gflops=1 --strategy.name=asgd
gflops=$(of outage train_s | awk '{ printf "%.12g", $1 / 10 }')
for case in "none 10.000000 10 10" "3:0-5 12.000000 6 7" "3:2.5-4.5 11.000000 8 9" "3:2.5- 14.000000 2 2" \
            "3:0- 14.000000 0 0" "3:0-100 14.000000 0 0"; do
  read -r outages seconds least most <<< "$case"
  for gradients in yes no; do
    outage --device.gflops="$gflops" --strategy.name=asgd --run.outages="${outages#none}"
    [ "$(work_of outage)" = "$seconds" ] || fail "outages $outages: $(work_of outage) s, expected $seconds"
    [ "$(of outage steps)" = 40 ] || fail "outages $outages: $(of outage steps) steps"
    mine=$(updates outage 3) sum=0
    for rank in 0 1 2 3; do sum=$((sum + $(updates outage $rank))); done
    [ "$mine" -ge "$least" ] && [ "$mine" -le "$most" ] || fail "outages $outages: rank 3 computes $mine batches"
    [ $sum = 40 ] || fail "outages $outages: $sum gradients"
  done
  pass "run.outages=$outages: $seconds s, $mine batches of rank 3"
done
gradients=yes
# Methods that wait for all ranks wait for the end of a pause; a batch is 4 shards of 1/4 s.
for method in sync "ssp --strategy.slack=2"; do
  outage --device.gflops="$gflops" --strategy.name=${method} --run.outages=1:2.6-4.6
  [ "$(work_of outage)" = 12.000000 ] || fail "$method, a pause of 2 s: $(work_of outage) s, expected 12"
done
# The default of strategy.alpha is 0.9 over the workers.
simulate 4 easgd-alpha --strategy.name=easgd --strategy.alpha=0.225
equal easgd-alpha easgd-4
# Every method that takes a failure makes all its updates, with equal bits each time.
for method in asgd "asgd --strategy.tau=3" "asgd --strategy.servers=1" "asgd --strategy.aggregate=node" groups hogwild \
              softsync dcasgd dana ormo ringmaster "ringmaster --strategy.stops=yes" rennala backup iaasgd \
              mindflayer "mindflayer --strategy.frame=2e-4" easgd eamsgd fedasync fedbuff asyncdiloco \
              halos adpsgd a2cid2 sgp keuper; do
  for outages in 2:0.001- "0:0.0005-, 2:0.001-0.003, 1:0-0.002"; do
    simulate 4 fails --run.overwrite=yes --strategy.name=${method} --run.outages="$outages" --simulate.nodes=2
    simulate 4 fails-again --run.overwrite=yes --strategy.name=${method} --run.outages="$outages" --simulate.nodes=2 \
      --simulate.threads=1
    equal fails fails-again "$method, $outages"
    [ "$(of fails steps)" = 48 ] && [ "$(of fails samples)" = "$(of "asgd-4" samples)" ] ||
      fail "$method, $outages: $(of fails steps) steps, $(of fails samples) samples"
  done
done

# Rows on shared weights: w x with hinge loss far from its margin, so every row moves w by the rate. Two workers compute
# at the same time: with `add` all 96 updates count, with `overwrite` those of one worker; one worker loses none. A batch
# conflicts if w has changed since it began: with `add` all 24 but the first that is stored; with `overwrite` all workers
# of a time store one value, which the next batch of the first of them has begun with.
awk 'BEGIN { for (i = 0; i < 96; i++) print (i % 2 ? "-1 1:-1" : "+1 1:1") }' > same.svm
"$TRIREME" data import libsvm same.svm same.svm --out=same.h5 > import.log 2>&1 || { cat import.log; fail "import"; }
rows() { # rows WORKERS CONFLICTS RATE
  simulate "$1" rows --run.overwrite=yes --simulate.nodes=1 --simulate.conflicts="$2" --optim.lr="$3" --run.jitter= \
    --data.file=same.h5 --data.validation=0 --model="linear 1 bias=no" --train.loss=hinge --train.batch=4 \
    --train.steps=24 --strategy.name=hogwild --strategy.rows=1
}
rows 1 add 0
still=$(of rows test_loss)
for case in "1 add 96 0" "1 overwrite 96 0" "2 add 96 23" "2 overwrite 48 12" "4 overwrite 24 18"; do
  read -r n conflicts expected meet <<< "$case"
  rows "$n" "$conflicts" 0.001
  got=$(awk -v from="$still" -v to="$(of rows test_loss)" 'BEGIN { printf "%.0f", (from - to) / 0.001 }')
  [ "$got" = "$expected" ] || fail "hogwild, $n workers, conflicts $conflicts: $got updates of 96 count, not $expected"
  got=$(awk -v share="$(of rows conflicts)" 'BEGIN { print share * 24 }')
  [ "$got" = "$meet" ] || fail "hogwild, $n workers, conflicts $conflicts: $got batches of 24 conflict, not $meet"
done
pass "hogwild: rows that are updated at the same time"

# Random schedules: other orders, the same bits where they must not depend on them.
for schedule in 1 2 3; do
  simulate 4 ssp0-$schedule --strategy.name=ssp --strategy.slack=0 --simulate.schedule=$schedule
  equal real ssp0-$schedule
  simulate 4 asgd-s$schedule --strategy.name=asgd --simulate.schedule=$schedule
  simulate 4 asgd-s$schedule-again --strategy.name=asgd --simulate.schedule=$schedule
  equal asgd-s$schedule asgd-s$schedule-again
done
[ "$(sha asgd-s1)" != "$(sha asgd-s2)" ] || fail "two random schedules of asgd: equal bits"

launch 2 "$TRIREME" train config.yaml --simulate.workers=4 --run.dir=refused > refused.log 2>&1
[ $? = 2 ] && [ "$(grep -c 'error: ' refused.log)" = 1 ] || { cat refused.log; fail "simulate.workers under mpiexec"; }
try_simulate 4 refused --simulate.nodes=3
[ $? = 2 ] && grep -q 'simulate.nodes: 4 workers' refused.log || { cat refused.log; fail "simulate.nodes=3"; }
pass "refusals"
finish
