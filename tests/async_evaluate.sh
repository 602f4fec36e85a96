#!/bin/bash
# Evaluations of asynchronous runs do not stop the workers: snapshots of the weights are evaluated at the next quiesce
# point. They are the weights of their step: one worker, and ssp with slack 0, give the scores of synchronous training.
# The time and the staleness of a run do not depend on train.evaluate_every.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 1200 100
cat > config.yaml << 'EOT'
model: mlp 784-16-10 gelu
data: {file: digits.h5, validation: 0.1}
train: {epochs: 2, batch: 30, evaluate_every: 5}
optim: {name: sgd, lr: 0.05, schedule: cosine}
strategy: {slack: 2}
parallel: {threads: 1}
run: {seed: 3}
log: {every: 1, quiet: yes}
EOT

# Lines of evaluations: step, samples and scores.
scores() {
  local number='\([0-9]*\)' value='\([^,}]*\)'
  local scores="\"validation_loss\":$value,\"validation_accuracy\":$value"
  sed -n "s/^{\"step\":$number,.*\"samples\":$number,.*$scores.*/\1 \2 \3 \4/p" "$1/metrics.jsonl"
}
same_scores() {
  [ "$(scores "$1" | wc -l)" -ge 10 ] && diff <(scores "$1") <(scores "$2") > /dev/null ||
    { diff <(scores "$1") <(scores "$2"); fail "$2: other evaluations than $1"; }
}
# simulate N NAME OPTION...: trains config.yaml on N virtual ranks
simulate() {
  launch 1 "$TRIREME" train config.yaml --run.dir="$2" --simulate.workers="$1" --run.jitter="lognormal 0.5" "${@:3}" \
    > "$2.log" 2>&1 || { cat "$2.log"; fail "$2: $1 virtual ranks, ${*:3}"; }
}
methods=$("$TRIREME" train config.yaml --strategy.name=none-such 2>&1 |
  sed -n 's/.*(known: sync, .* adasum, \(.*\))/\1/p' | tr -d ,)
[ "$(echo "$methods" | wc -w)" -ge 2 ] || fail "no list of methods"

# -- the weights of their step
run 1 serial
run 1 average --optim.ema=0.9
for method in $methods; do
  case $method in
    easgd | eamsgd | dana | fedbuff | asyncdiloco | halos) continue ;; # centers that lag; momentum; rounding
  esac
  run 1 "$method-one" --strategy.name="$method" --strategy.alpha=1
  same_scores serial "$method-one"
done
run 1 asgd-average --strategy.name=asgd --optim.ema=0.9
same_scores average asgd-average
run 1 every --strategy.name=asgd --train.evaluate_every=1
[ "$(scores every | cut -d ' ' -f 1 | tr '\n' ' ')" = "$(seq -s ' ' 72) " ] ||
  fail "evaluations of every step, more than snapshots are kept: their steps"
diff <(scores serial) <(scores every | awk '$1 % 5 == 0 || $1 == 72') > /dev/null ||
  fail "evaluations of every step, more than snapshots are kept: their scores"
pass "one worker of each method has the scores of serial training: $methods"
run 3 sync3 --optim.name=adam --optim.lr=0.002
for share in node none; do
  run 3 "ssp3-$share" --optim.name=adam --optim.lr=0.002 --strategy.name=ssp --strategy.slack=0 --parallel.share=$share
  same_scores sync3 "ssp3-$share"
done
pass "ssp with slack 0 has the scores of synchronous training"

# -- every method, on one node, on several, without shared memory, with servers, and with longer periods
# complete NAME [real]: the steps of the evaluations are complete and in order, times ascend, and the last snapshot is
# near the final weights
complete() {
  [ "$(scores "$1" | cut -d ' ' -f 1 | tr '\n' ' ')" = "5 10 15 20 25 30 35 40 45 50 55 60 65 70 72 " ] ||
    fail "$1: evaluations of steps $(scores "$1" | cut -d ' ' -f 1 | tr '\n' ' ')"
  scores "$1" | awk '$2 != $1 * 30 { exit 1 } { before = last; last = $3 } $1 == 5 { first = $3 }
    END { d = before - last; exit !(first > 2.2 && d * d < 0.0025 && last < first + 0.05) }' ||
    { scores "$1"; fail "$1: samples or losses of its evaluations"; }
  sed -n 's/.*"wall_s":\([^,]*\),"train_s":\([^,]*\),.*"validation_loss".*/\1 \2/p' "$1/metrics.jsonl" |
    awk -v real="${2:-}" '$1 < wall || $2 < train || (real && $2 > $1) { bad = 1 } { wall = $1; train = $2 }
      END { exit bad || NR != 15 }' ||
    { grep -o '"step":.*validation_loss' "$1/metrics.jsonl"; fail "$1: times of its evaluations"; }
}
for method in $methods; do
  case $method in eamsgd | dana | asyncdiloco | halos) rate=0.005 ;; *) rate=0.05 ;; esac # their momentum is 0.99, 0.9
  simulate 4 "$method-node" --simulate.nodes=1 --strategy.name="$method" --optim.lr=$rate
  complete "$method-node"
  simulate 4 "$method-nodes" --simulate.nodes=2 --strategy.name="$method" --strategy.data=static --optim.lr=$rate
  complete "$method-nodes"
  case $method in
    asgd | hogwild | easgd | eamsgd | adpsgd | a2cid2 | sgp | keuper)
      run 3 "$method-tau" --strategy.name="$method" --strategy.tau=4 --parallel.share=none --optim.lr=$rate
      complete "$method-tau" real
      ;;
    groups) ;;
    *)
      run 3 "$method-served" --strategy.name="$method" --strategy.servers=1
      complete "$method-served" real
      ;;
  esac
done
pass "all evaluations, in order: $methods"

# -- checkpoints between, and a resumed run
run 3 more --strategy.name=asgd --run.checkpoint_every=12 --train.steps=36
run 3 more --strategy.name=asgd --run.checkpoint_every=12 --run.resume=auto
scores more | awk '{ if ($1 <= last) exit 1; last = $1; n++ } END { exit !(n >= 15 && last == 72) }' ||
  { scores more; fail "evaluations of a resumed run"; }
pass "evaluations of a resumed run"

# -- best.h5 has the weights of the best evaluation, a snapshot's, too
for workers in 1 3; do
  run $workers best$workers --strategy.name=asgd --optim.lr=1 --optim.schedule=constant
  "$TRIREME" eval best$workers --split=validation --json --log.quiet=yes > eval.json ||
    fail "best.h5 cannot be evaluated"
  awk -v a="$(json_number loss eval.json)" -v b="$(of best$workers best_validation_loss)" \
    'BEGIN { d = a - b; exit !(a > 0 && d * d < 1e-8) }' || { cat eval.json; fail "best.h5 has other weights"; }
  pass "best.h5 has the weights of step $(of best$workers best_step)"
done
[ $(($(of best1 best_step) % 36)) != 0 ] || fail "the best evaluation is not of a snapshot"
try 1 resumed --strategy.name=asgd --run.resume=best1/checkpoints/best.h5
[ $? = 2 ] && grep -q 'only the weights of an evaluation' resumed.log ||
  { cat resumed.log; fail "resumed from the weights of an evaluation"; }
"$TRIREME" export best1/checkpoints/best.h5 --format=safetensors --out=best.safetensors > export.log 2>&1 &&
  run 1 begun --strategy.name=asgd --model.init=best.safetensors ||
  { cat export.log; fail "no new run with the weights of best.h5"; }
pass "best.h5 of a snapshot is refused by run.resume"

# -- early stopping
run 3 early --strategy.name=asgd --optim.lr=0 --train.stop_patience=3
[ "$(json_text status early/summary.json) $(scores early | wc -l)" = "early-stop 4" ] ||
  fail "patience of 3: $(json_text status early/summary.json) after $(scores early | wc -l) evaluations"
pass "early stopping"

# -- the rate is that of each batch, also between evaluations
rates() { sed -n 's/^{"step":\([0-9]*\),.*"lr":\(.*\)}$/\1 \2/p' "$1/metrics.jsonl"; }
rates serial > serial.rates
rates asgd-nodes | awk 'FILENAME == "serial.rates" { rate[$1] = $2; next }
  { n++; if ($2 != rate[$1]) bad = 1 } END { exit bad || n < 10 }' serial.rates - || fail "rates of the batches"
[ "$(cut -d ' ' -f 2 serial.rates | sort -u | wc -l)" -ge 60 ] || fail "the rate does not change in every batch"
pass "the rate is that of each batch"

# -- evaluations change neither the time of training nor the staleness; virtual, so that the figures are equal each
# time. hogwild: copies of the weights travel between nodes, and the order of what follows is another.
for method in $methods; do
  tolerance=$([ "$method" = hogwild ] && echo 0.05 || echo 0.02)
  for every in 0 8; do
    simulate 8 "$method-$every" --simulate.nodes=2 --run.checkpoint_every=-1 --strategy.name="$method" \
      --optim.lr=0.005 --train.evaluate_every=$every
  done
  figures="$(of "$method-8" train_s) $(of "$method-0" train_s) $(of "$method-8" staleness_mean)"
  figures="$figures $(of "$method-0" staleness_mean)"
  echo "$figures" |
    awk -v most=$tolerance '{ time = $1 / $2 - 1; more = ($3 - $4) / 5
                              exit !(time * time < most * most && more * more < most * most) }' ||
    fail "$method: seconds with and without evaluations, staleness with and without: $figures"
  echo "$method: seconds with and without evaluations, staleness with and without: $figures"
done
at_least "$(of asgd-8 wait_s)" 0.0001 || fail "no waiting at quiesce points: $(of asgd-8 wait_s) s"
pass "evaluations change neither the time nor the staleness"
finish
