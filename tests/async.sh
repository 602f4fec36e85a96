#!/bin/bash
# Asynchronous training with asgd: one worker equals serial training bit for bit, one group synchronous training; every
# sample is used once, a straggler delays no other rank, a stopped run resumes, a failure ends all ranks.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 4000 500
cat > config.yaml << 'EOF'
model: mlp 784-32-10 gelu
data: {file: digits.h5}
train: {epochs: 2, batch: 50}
optim: {name: sgd, lr: 0.1}
parallel: {threads: 1}
run: {seed: 3}
log: {every: 1, quiet: yes}
EOF

# The last test losses of two runs agree within a relative tolerance.
near() {
  awk -v a="$(of "$1" test_loss)" -v b="$(of "$2" test_loss)" -v part="$3" \
    'BEGIN { d = (a - b) / a; if (d < 0) d = -d; exit !(a > 0 && b > 0 && d <= part) }' ||
    fail "$2: test loss $(of "$2" test_loss), $1: $(of "$1" test_loss)"
  pass "$2: test loss $(of "$2" test_loss), $1: $(of "$1" test_loss)"
}
# whole RUN BATCHES: every batch was used once, with 50 samples
whole() {
  [ "$(of "$1" steps) $(of "$1" samples)" = "$2 $(($2 * 50))" ] ||
    fail "$1: $(of "$1" steps) steps, $(of "$1" samples) samples"
}

# -- runs that must be equal
for optimizer in sgd "nesterov --optim.l2=1e-3 --optim.schedule=cosine" "adam --optim.lr=0.003 --optim.clip=1" \
  "adamw --optim.lr=0.003 --optim.ema=0.9" "adagrad --optim.lr=0.05"; do
  name=${optimizer%% *}
  # shellcheck disable=SC2086
  run 1 "serial-$name" --optim.name=$optimizer
  # shellcheck disable=SC2086
  run 1 "asgd-$name" --optim.name=$optimizer --strategy.name=asgd
  equal "serial-$name" "asgd-$name"
  near "serial-$name" "asgd-$name" 0
done
run 3 group --strategy.name=groups --strategy.groups=1
near serial-sgd group 1e-6

# -- all ways to share server weights. The rate decays to 0: with a constant one the result would depend on the
# staleness of the last updates. A limit is five points below the lowest test accuracy of several
# runs.
fades="--train.epochs=4 --optim.lr=0.05 --optim.schedule=cosine"
# way LIMIT RANKS RUN OPTION...
way() {
  # shellcheck disable=SC2086
  run "$2" "$3" --strategy.name=asgd $fades "${@:4}"
  whole "$3" 320
  at_least "$(of "$3" test_accuracy)" "$1" || fail "$3: test accuracy $(of "$3" test_accuracy), not $1"
  pass "$3: test accuracy $(of "$3" test_accuracy)"
}
way 0.68 2 two
way 0.68 4 static --strategy.data=static
way 0.68 4 private --parallel.share=none
way 0.68 3 server --strategy.servers=1
way 0.68 4 servers --strategy.servers=2
way 0.67 4 aggregated --strategy.aggregate=node
way 0.68 4 groups --strategy.name=groups --strategy.groups=2
way 0.73 5 by-staleness --strategy.rate=staleness --optim.lr=0.1
way 0.68 5 by-delay --strategy.rate=delay
way 0.66 3 three-batches --strategy.tau=3
way 0.68 3 windows --data.memory=1M
way 0.74 6 momentum --optim.momentum=0.5
TRM_NODE_SIZE=2 way 0.68 5 nodes

# -- every batch has the schedule's rate of its own number
rates() { sed -n 's/.*"step":\([0-9]*\),.*"lr":\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl" | sort -u; }
# shellcheck disable=SC2086
run 1 serial-fades $fades
rates serial-fades > schedule
rates two > rates
[ "$(wc -l < schedule)" = 320 ] && [ "$(wc -l < rates)" -gt 10 ] && ! grep -vxFf schedule rates ||
  fail "a batch has another rate than the schedule's"
pass "rates follow the schedule"

# The workers of a node send their gradients together: fewer messages, the same rows. Two nodes of four workers and a
# server behind links on which a gradient takes longer than to compute it.
slow_links="--simulate.workers=9 --simulate.nodes=3 --simulate.bandwidth=2e7 --device.gflops=20 --strategy.servers=1"
for aggregate in none node; do
  # shellcheck disable=SC2086
  run 1 aggregate-$aggregate --strategy.name=asgd $fades $slow_links --strategy.aggregate=$aggregate
  whole aggregate-$aggregate 320
  at_least "$(of aggregate-$aggregate test_accuracy)" 0.65 ||
    fail "strategy.aggregate=$aggregate: test accuracy $(of aggregate-$aggregate test_accuracy)"
done
pushes=$(grep -o '"updates":[0-9]*' aggregate-node/staleness.json | awk -F: '{ n += $2 } END { print n }')
at_least 240 "${pushes:-999}" && at_least "$(of aggregate-none virtual_s)" "$(of aggregate-node virtual_s)" ||
  fail "strategy.aggregate=node: $pushes messages, $(of aggregate-node virtual_s) s ($(of aggregate-none virtual_s) s)"
pass "strategy.aggregate=node: $pushes messages for 320 gradients"
# A message has at most one gradient of each worker, however slow the link: 120 of a node's three workers, 40 messages.
# shellcheck disable=SC2086
run 1 aggregate-static --strategy.name=asgd $fades $slow_links --strategy.aggregate=node --strategy.data=static
pushes=$(grep -o '"rank":[0-2],"updates":[0-9]*' aggregate-static/staleness.json | awk -F: '{ n += $3 } END { print n }')
at_least "${pushes:-0}" 40 && at_least 80 "$pushes" || fail "strategy.aggregate=node: 120 gradients in $pushes messages"
pass "strategy.aggregate=node: 120 gradients of three workers in $pushes messages"
# shellcheck disable=SC2086
TRM_NODE_SIZE=2 run 4 aggregate-real --strategy.name=asgd $fades --strategy.aggregate=node
whole aggregate-real 320
at_least "$(of aggregate-real test_accuracy)" 0.65 || fail "aggregate: test accuracy $(of aggregate-real test_accuracy)"

# -- validation rows: cut from the training rows that workers divide, or of a file of their own
run 1 serial-cut --data.validation=0.2
run 1 asgd-cut --data.validation=0.2 --strategy.name=asgd --strategy.data=static
equal serial-cut asgd-cut
"$TRIREME" data make digits --out held.h5 --train=20 --test=400 --seed=9 > make.log 2>&1 || { cat make.log; fail "held.h5"; }
for validation in 0.2 held.h5; do
  for data in static dynamic; do
    name=cut-$validation-$data
    # shellcheck disable=SC2086
    run 3 "$name" --strategy.name=asgd --strategy.data=$data --data.validation=$validation $fades
    [ $validation = held.h5 ] && rows=400 || rows=800
    whole "$name" $((rows == 400 ? 320 : 256))
    [ $validation = held.h5 ] && limit=0.65 || limit=0.53
    "$TRIREME" eval "$name" --split=validation --json --log.quiet=yes > eval.json ||
      fail "$name: its validation rows cannot be evaluated"
    [ "$(json_number samples eval.json)" = $rows ] || fail "$name: other validation rows: $(cat eval.json)"
    at_least "$(of "$name" validation_accuracy)" $limit || fail "$name: $(of "$name" validation_accuracy)"
    pass "$name: validation accuracy $(of "$name" validation_accuracy) on $rows rows"
  done
done

# -- staleness: every update is counted, over a resume, too; the summary has the figures alone
updates() { grep -o '"updates":[0-9]*' "$1/staleness.json" | awk -F: '{ n += $2 } END { print n }'; }
[ "$(updates two)" = 320 ] || fail "staleness of $(updates two) updates recorded, expected 320"
grep -q '"staleness_mean":' two/metrics.jsonl || fail "metrics.jsonl has no staleness"
figures=$(grep -o '"staleness[^,}]*' two/summary.json | cut -d : -f 1 | tr -d '"' | tr '\n' ' ')
[ "$figures" = "staleness_mean staleness_p50 staleness_p95 staleness_max " ] || fail "figures in the summary: $figures"
pass "the staleness of every update is recorded"

# -- a straggler: the others take over its work and do not wait for it
begin=$SECONDS
run 3 slow --strategy.name=asgd --optim.lr=0.05 --device.compute=sleep --device.gflops=1 --run.slow=1:500 \
  --train.epochs=1
slow=$(grep -o '"rank":[0-9]*,"updates":[0-9]*' slow/staleness.json | sed -n 's/"rank":1,"updates"://p')
at_least 3 "${slow:-99}" || fail "the slow rank made $slow updates of 80"
pass "a rank 500 times as slow made $slow updates of 80, the run took $((SECONDS - begin)) s"

# -- outages: the others do the batches of a rank that fails, and all wait for a pause in a synchronous run
run 3 fails --strategy.name=asgd --optim.lr=0.05 --device.compute=sleep --device.gflops=0.4 --train.epochs=1 \
  --run.outages="1:0.1-, 2:0.05-0.15"
whole fails 80
failed=$(grep -o '"rank":[0-9]*,"updates":[0-9]*' fails/staleness.json | sed -n 's/"rank":1,"updates"://p')
at_least 12 "${failed:-0}" || fail "a rank that failed after 0.1 s made $failed updates of 80"
[ "$(updates fails)" = 80 ] || fail "a rank failed: $(updates fails) updates, expected 80"
run 2 pause --train.steps=10 --run.outages=1:0-0.5
at_least "$(of pause train_s)" 0.49 || fail "a pause of 0.5 s: the run took $(of pause train_s) s"
pass "a rank that failed after 0.1 s made ${failed:-0} updates of 80; a pause of 0.5 s took $(of pause train_s) s"

# -- stop and resume
run 1 whole-run --strategy.name=asgd --optim.name=momentum --run.checkpoint_every=37
run 1 part --strategy.name=asgd --optim.name=momentum --run.checkpoint_every=37 --train.steps=111
run 1 part --strategy.name=asgd --optim.name=momentum --run.checkpoint_every=37 --run.resume=auto
equal whole-run part
run 3 more --strategy.name=asgd --optim.lr=0.05 --strategy.data=static --train.steps=90
run 3 more --strategy.name=asgd --optim.lr=0.05 --strategy.data=static --run.resume=auto
whole more 160
[ "$(updates more)" = 160 ] || fail "staleness of $(updates more) updates recorded after a resume, expected 160"
run 3 other --strategy.name=asgd --optim.lr=0.05 --train.steps=90
run 2 other --strategy.name=asgd --optim.lr=0.05 --run.resume=auto
whole other 160
[ "$(updates other)" = 70 ] || fail "staleness of $(updates other) updates after a resume with other ranks, expected 70"
pass "resumes with the same number of ranks, and with others"
for data in dynamic static; do
  launch_ranks 3 "$TRIREME" train config.yaml --run.dir=signal-$data --strategy.name=asgd --optim.lr=0.05 \
    --strategy.data=$data --device.compute=sleep --device.gflops=0.3 > signal.log 2>&1 &
  job=$!
  awaits 10 signal-$data/metrics.jsonl $job
  # shellcheck disable=SC2046 # numbers
  kill -USR1 $(cat rank.*)
  wait $job
  status=$?
  [ $status = 3 ] || { cat signal.log; fail "$data: exit status $status after a signal, not 3"; }
  [ "$(json_text status signal-$data/summary.json)" = stopped ] && ! grep -q 'error:' signal.log ||
    { cat signal.log; fail "$data: a requested stop is an error, or is not recorded"; }
  done_before=$(of signal-$data steps)
  run 3 signal-$data --strategy.name=asgd --optim.lr=0.05 --strategy.data=$data --run.resume=auto
  whole signal-$data 160
  pass "$data: stopped by a signal after $done_before steps, and resumed"
done

# -- a failure on all ranks: one message and a record
try 3 burst --strategy.name=asgd --optim.lr=1e30 && fail "a loss that is not finite: exit status 0"
grep -q "loss of worker" burst.log || { cat burst.log; fail "the message names no worker"; }
[ "$(json_text status burst/summary.json)" = failed ] || fail "the failed run is not recorded"
pass "a loss that is not finite ends the run"

# refused NAME TEXT OPTION...
refused() {
  local name=$1 words=$2
  shift 2
  try 3 "$name" "$@"
  [ $? = 2 ] || { cat "$name.log"; fail "$*: exit status is not 2"; }
  grep -q "$words" "$name.log" || { cat "$name.log"; fail "$*: the message does not say \"$words\""; }
  pass "refused: $*"
}
refused no-worker "leave no worker" --strategy.name=asgd --strategy.servers=3
refused no-group "strategy.groups" --strategy.name=groups --strategy.groups=4
refused lanes "run.lanes" --strategy.name=asgd --run.lanes=3
refused ratios "optim.name=lars or lamb.*strategy.name=asgd" --strategy.name=asgd --optim.name=lamb
refused unknown "did you mean \"asgd\"" --strategy.name=asgdd
finish
