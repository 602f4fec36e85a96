#!/bin/bash
# Training end to end: the same losses for any number of ranks, the same bits with lanes, the same bits after a kill
# and resume, an error if the loss is not finite, a job that ends when a rank dies.
set -u
. "$(dirname "$0")/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
ranks=${TRM_TEST_RANKS:-1 2 3 4 8}

"$TRIREME" data make digits --out digits.h5 --train=6000 --test=1000 --seed=7 > make.log 2>&1 || fail "data make digits"
# gelu is smooth: near relu's kink, rounding decides the gradient, and two runs with different orders of addition
# diverge (seen at an effective step of 1, after 192 steps).
cat > config.yaml << 'EOF'
model: mlp 784-64-32-10 gelu
data: {file: digits.h5}
train: {steps: 200, batch: 96}
optim: {name: sgd, lr: 0.1, momentum: 0.9}
parallel: {threads: 1}
run: {seed: 3}
log: {every: 1, quiet: yes}
EOF

# run N NAME OPTION...: trains on N ranks in run directory NAME
run() {
  local n=$1 name=$2
  shift 2
  launch "$n" "$TRIREME" train config.yaml --run.dir="$name" "$@" > "$name.log" 2>&1 ||
    { cat "$name.log"; fail "$name ($n ranks $*)"; }
}
try() {
  local n=$1 name=$2
  shift 2
  launch "$n" "$TRIREME" train config.yaml --run.dir="$name" "$@" > "$name.log" 2>&1
}
of() { json_number "$2" "$1/summary.json"; }
sha() { json_text weights_sha256 "$1/summary.json"; }

# largest_difference A B: the largest relative difference between the step losses of two runs
largest_difference() {
  awk '
    function value(line, key) {
      if (!match(line, "\"" key "\":[^,}]*")) return ""
      return substr(line, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
    }
    value($0, "loss") == "" { next }
    FNR == NR { a[value($0, "step")] = value($0, "loss"); next }
    { s = value($0, "step"); if (!(s in a)) { print "missing"; exit }
      n++; d = (value($0, "loss") - a[s]) / a[s]; if (d < 0) d = -d; if (d > worst) worst = d }
    END { if (n == 0) print "none"; else printf "%d %.3g\n", n, worst }' "$1/metrics.jsonl" "$2/metrics.jsonl"
}

# -- the same losses for any number of ranks, in every sharing mode
compare() {
  local out
  out=$(largest_difference "$1" "$2")
  set -- "$1" "$2" $out
  [ "$3" = 200 ] || fail "$2: $out: expected 200 steps"
  awk -v d="$4" 'BEGIN { exit !(d <= 1e-4) }' || fail "$2: losses differ from $1's by $4"
  pass "$2 matches $1 over $3 steps (largest relative difference $4)"
}
run 1 one
for n in $ranks; do
  [ "$n" = 1 ] || { run "$n" ranks$n; compare one ranks$n; }
done
run 4 private --parallel.share=none
compare one private
TRM_NODE_SIZE=2 run 4 nodes --parallel.bucket=64K --log.quiet=no
compare one nodes
# each rank adds half of the gradient to the other node's; what is not hidden is exposed
awk -v n="$(of nodes parameters)" -v bytes="$(of nodes bytes)" -v wire="$(of nodes wire_s)" \
  -v hidden="$(of nodes hidden_s)" -v exposed="$(of nodes exposed_s)" \
  'BEGIN { sum = (hidden + exposed) / wire
           exit !(bytes >= 2 * n && bytes < 2.04 * n && exposed > 0 && sum > 0.999 && sum < 1.001) }' ||
  fail "nodes: summary.json has wrong figures of messages between nodes"
grep -q '^between nodes: .* MB a step from each rank, wire .* s hidden, .* s exposed$' nodes.log ||
  fail "nodes: no line about messages between nodes"
pass "two nodes: messages between them, hidden and exposed"
run 2 accumulate --train.accumulate=3
compare one accumulate
TRM_NODE_SIZE=2 run 3 uneven
compare one uneven
# norms of whole tensors, sharded over the ranks; weight decay; averaged weights
for n in 1 2 3 4; do
  run "$n" lamb$n --optim.name=lamb --optim.momentum=0 --optim.lr=0.005 --optim.decay=0.01 \
  --optim.ema=0.98
  run "$n" lars$n --optim.name=lars --optim.lr=0.5 --optim.l2=0.001 --optim.trust=0.02 --optim.clip=1
  [ "$n" = 1 ] || { compare lamb1 lamb$n; compare lars1 lars$n; }
done
TRM_NODE_SIZE=2 run 4 lambnodes --optim.name=lamb --optim.momentum=0 --optim.lr=0.005 --optim.decay=0.01 \
  --optim.ema=0.98
compare lamb1 lambnodes
"$TRIREME" eval lamb4/checkpoints/last.h5 --data.file=digits.h5 --json --log.quiet=yes > average.json || fail "eval"
[ "$(json_number accuracy average.json)" = "$(json_number test_accuracy lamb4/summary.json)" ] ||
  fail "eval of the average reports $(cat average.json), the run $(json_number test_accuracy lamb4/summary.json)"
pass "eval uses the average of the weights, as the run did"

# -- the same bits with lanes, augmentation, dropout, clipping and Adam
cat > lanes.yaml << 'EOF'
model: linear 64 | gelu | dropout 0.3 | linear 10
data: {file: digits.h5, pad: 2, flip: yes}
train: {epochs: 2, batch: 250}
optim: {name: adamw, lr: 0.002, decay: 0.01, clip: 1, schedule: cosine, warmup: 10}
parallel: {threads: 1}
run: {seed: 5, lanes: 8}
log: {quiet: yes}
EOF
cp config.yaml plain.yaml
cp lanes.yaml config.yaml
run 1 lanes1
for n in $ranks; do
  case $n in 2 | 4 | 8) run "$n" lanes$n ;; *) continue ;; esac
  [ "$(sha lanes1)" = "$(sha lanes$n)" ] || fail "lanes: $n ranks and one rank end with different weights"
  pass "lanes: $n ranks and one rank end with the same bits"
done
run 1 lanes-lamb1 --optim.name=lamb --optim.ema=0.9
TRM_NODE_SIZE=2 run 4 lanes-lamb4 --optim.name=lamb --optim.ema=0.9
[ "$(sha lanes-lamb1)" = "$(sha lanes-lamb4)" ] ||
  fail "lanes, lamb: two nodes of two ranks and one rank end with different weights"
pass "lanes, lamb: two nodes of two ranks and one rank end with the same bits"
run 4 lanes-private --parallel.share=none
TRM_NODE_SIZE=2 run 4 lanes-nodes
for other in lanes-private lanes-nodes; do
  [ "$(sha lanes1)" = "$(sha $other)" ] || fail "$other and one rank end with different weights"
  pass "$other and one rank end with the same bits"
done

# -- killed in the middle of an epoch, resumed on another number of ranks: the same bits
sed -i 's/schedule: cosine/schedule: constant/' config.yaml # constant: independent of the length of the run
"$TRIREME" train config.yaml --run.dir=killed --run.checkpoint_every=7 --log.every=1 --train.epochs=40000 \
  > killed.log 2>&1 &
pid=$!
until [ -e killed/checkpoints/step-00000021.h5 ] || ! kill -0 $pid 2> /dev/null; do sleep 0.02; done
kill -KILL $pid 2> /dev/null || fail "the run ended before it was killed"
wait $pid 2> /dev/null
[ -e killed/summary.json ] && fail "the killed run had ended already"
newest=$(ls killed/checkpoints/step-*.h5 | tail -n 1)
step=$((10#$(echo "$newest" | sed 's/.*step-\([0-9]*\)\.h5/\1/')))
steps=$((step + 40))
run 1 straight --train.steps=$steps --train.epochs=40000
run 2 killed --run.resume=auto --train.steps=$steps --train.epochs=40000
[ $((step % 24)) -ne 0 ] || echo "note: the kill fell on an epoch's end"
[ "$(sha straight)" = "$(sha killed)" ] || { cat killed.log; fail "killed at step $step and resumed: other weights"; }
pass "killed at step $step, resumed on 2 ranks: the weights of an uninterrupted run"
[ "$(ls killed/checkpoints/step-*.h5 | wc -l)" -le 3 ] || fail "run.keep=3 left $(ls killed/checkpoints)"
pass "the last three checkpoints are kept"
[ "$(readlink killed/checkpoints/last.h5)" = "$(basename "$(ls killed/checkpoints/step-*.h5 | tail -n 1)")" ] ||
  fail "last.h5 does not point to the newest checkpoint"
pass "last.h5 points to the newest checkpoint"
cp plain.yaml config.yaml

# -- runs with and without shared memory read each other's checkpoints; eval and predict agree with the run
accuracy=$(json_number test_accuracy one/summary.json)
launch 3 "$TRIREME" eval one/checkpoints/last.h5 --data.file=digits.h5 --json --log.quiet=yes > eval.json || fail "eval"
[ "$(json_number accuracy eval.json)" = "$accuracy" ] || fail "eval reports $(cat eval.json), the run $accuracy"
pass "eval on 3 ranks gives the run's accuracy"
"$TRIREME" predict one/checkpoints/last.h5 --data.file=digits.h5 --out=pred.h5 --log.quiet=yes || fail "predict"
if command -v h5dump > /dev/null; then
  right=$(paste <(h5dump -y -w 1 -d /class pred.h5 | grep -E '^ *[0-9]+,?$' | tr -d ' ,') \
    <(h5dump -y -w 1 -d /test/y digits.h5 | grep -E '^ *[0-9]+,?$' | tr -d ' ,') | awk '$1 == $2' | wc -l)
  awk -v r="$right" -v a="$accuracy" 'BEGIN { exit !(r == int(a * 1000 + 0.5)) }' ||
    fail "predict: $right of 1000 correct, the run's accuracy was $accuracy"
  pass "predict gives the run's accuracy"
fi

# -- a loss that is not finite: the run ends, reports the step, keeps the last good checkpoint
launch 2 "$TRIREME" train config.yaml --run.dir=diverged --optim.lr=1e18 --run.checkpoint_every=1 > diverged.log 2>&1
[ $? = 1 ] || { cat diverged.log; fail "a diverged run: exit status is not 1"; }
[ "$(grep -c 'error:' diverged.log)" = 1 ] || { cat diverged.log; fail "one error message was expected"; }
grep -qE 'error:.*step [0-9]+.*(nan|inf)|error:.*(nan|inf).*step [0-9]+' diverged.log ||
  { cat diverged.log; fail "the message names neither step nor loss"; }
"$TRIREME" data info "$(ls diverged/checkpoints/step-*.h5 | tail -n 1)" > /dev/null ||
  fail "the last good checkpoint is missing"
[ "$(json_text status diverged/summary.json)" = failed ] || fail "summary.json does not say that the run failed"
pass "a loss that is not finite ends the run with its step and a good checkpoint: $(grep error: diverged.log)"

# -- a rank that dies: the others end within seconds, with a nonzero status
launch_ranks 4 "$TRIREME" train config.yaml --run.dir=dies --train.epochs=100000 --train.steps=0 \
  > dies.log 2>&1 &
pid=$!
awaits 1 dies/metrics.jsonl $pid
kill -KILL "$(cat rank.3)" || fail "no rank to kill"
wait $pid
status=$?
[ $status != 0 ] && [ $status != 124 ] && [ $status != 137 ] ||
  { cat dies.log; fail "a rank died, and the job ended with $status"; }
pass "a rank died, the job ended with status $status"

# -- early stopping on the validation split; the test split is evaluated once, at the end
run 2 early --data.validation=0.1 --train.epochs=60 --train.steps=0 --train.stop_patience=2 --optim.lr=0.3
[ "$(json_text status early/summary.json)" = early-stop ] ||
  fail "no early stop in 60 epochs: $(cat early/summary.json)"
[ -e early/checkpoints/best.h5 ] || fail "no best.h5"
[ "$(grep -c test_loss early/metrics.jsonl)" = 1 ] || fail "the test split was evaluated more than once"
for figure in final_train_loss validation_accuracy best_validation_accuracy test_accuracy; do
  at_least "$(of early $figure)" 0.01 || fail "after an early stop $figure is $(of early $figure)"
done
grep -i nan early.log && fail "nan in the log of an early stop"
"$TRIREME" eval early/checkpoints/best.h5 --data.file=digits.h5 --split=validation --json --log.quiet=yes > eval.json &&
  [ "$(json_number accuracy eval.json) $(json_number samples eval.json)" = "$(of early best_validation_accuracy) 600" ] ||
  fail "eval on the validation rows reports $(cat eval.json), the run $(of early best_validation_accuracy)"
pass "training stops when evaluations no longer improve"
try 1 refused --train.stop_patience=2
[ $? = 2 ] && grep -q 'train.stop_patience: .*data.validation=0.1' refused.log ||
  { cat refused.log; fail "early stopping without a validation split"; }
pass "refused: $(grep error: refused.log)"

# -- validation rows are the same on any number of ranks, in every reading mode, after a resume
cp lanes.yaml config.yaml
cut="--data.validation=0.15 --train.evaluate_every=9 --log.every=1000 --optim.schedule=constant"
for more in "" --data.memory=2M --data.shuffle=no; do
  # shellcheck disable=SC2086
  {
    run 1 cut1$more $cut $more
    run 2 cut2$more $cut $more
    run 4 part$more $cut $more --run.checkpoint_every=5 --train.steps=18
    run 2 part$more $cut $more --run.resume=auto
  }
  for n in cut2 part; do
    [ "$(sha cut1$more)" = "$(sha $n$more)" ] || fail "$n $more: weights differ from one rank's"
    paste <(grep -o '"validation_loss":[^,]*' "cut1$more/metrics.jsonl") \
      <(grep -o '"validation_loss":[^,]*' "$n$more/metrics.jsonl") |
      awk -F '[:\t]' 'NF != 4 || ($4 - $2) ^ 2 > 1e-12 * $2 ^ 2 { bad = 1 } END { exit bad || NR < 5 }' ||
      fail "$n $more: other validation losses than one rank's"
  done
  pass "validation rows $more: weights and validation losses of several ranks, and after a resume, equal those of one"
done
[ "$(of cut1 validation_loss)" != "$(of cut1--data.shuffle=no validation_loss)" ] || fail "the order has no effect"
try 1 part --data.validation=0.2 --run.resume=auto
[ $? = 2 ] && grep -q 'data.validation: .*other validation rows' part.log || { cat part.log; fail "other validation rows accepted"; }
pass "refused: $(grep error: part.log)"
# a finished run that is resumed: the same files; without its results, which a kill prevented: the same results
cp -r part before
: > part/lease.host.1.new > part/checkpoints/step-00000001.h5.new # of a killed process
run 1 part $cut --run.resume=auto
diff -r before part || fail "a finished run, resumed: other files"
rm part/summary.json
run 1 part $cut --run.resume=auto
for figure in epochs final_train_loss validation_loss best_validation_accuracy best_step test_accuracy; do
  [ "$(json_number $figure before/summary.json | cut -c 1-8)" = "$(of part $figure | cut -c 1-8)" ] ||
    fail "a finished run, resumed: $figure is $(of part $figure), was $(json_number $figure before/summary.json)"
done
[ "$(grep -c . part/metrics.jsonl)" = "$(grep -c . before/metrics.jsonl)" ] || fail "resuming a finished run added lines"
grep -iE 'nan|epoch 3' part.log && fail "a finished run, resumed: meaningless output"
pass "a finished run, resumed: the same files, the same results"
cp plain.yaml config.yaml

# -- a first SIGTERM: checkpoint and status 3; the resumed run has the bits of an uninterrupted one
"$TRIREME" train config.yaml --run.dir=stopped --train.steps=1000000 > stopped.log 2>&1 &
pid=$!
awaits 1 stopped/metrics.jsonl $pid
kill -TERM $pid
wait $pid
status=$?
[ $status = 3 ] || { cat stopped.log; fail "a stopped run must end with status 3, not $status"; }
steps=$(($(of stopped steps) + 40))
run 1 stopped --run.resume=auto --train.steps=$steps
run 1 unstopped --train.steps=$steps
[ "$(sha stopped)" = "$(sha unstopped)" ] || fail "stopped and resumed: different weights"
pass "stopped by SIGTERM, resumed: the weights of an uninterrupted run"

# -- products in bfloat16, where supported: the same bits for any number of threads, losses close to float32
if "$TRIREME" bench gemm --device.matmul=bf16 --shapes=8x8x8 --repeat=1 > /dev/null 2>&1; then
  for threads in 1 2 3; do
    run 1 bf16-$threads "--model=mlp 784-512-256-10 gelu" --device.matmul=bf16 --parallel.threads=$threads \
      --train.steps=60
    [ "$(sha bf16-$threads)" = "$(sha bf16-1)" ] || fail "bfloat16: $threads threads and one differ"
  done
  pass "bfloat16: the same bits with 1, 2 and 3 threads"
  run 1 f32 "--model=mlp 784-512-256-10 gelu" --train.steps=60
  awk -v a="$(json_number final_train_loss bf16-1/summary.json)" \
    -v b="$(json_number final_train_loss f32/summary.json)" \
    'BEGIN { exit !(a > 0.97 * b && a < 1.03 * b && a != b) }' || fail "bfloat16: another loss than float32"
  pass "bfloat16: the loss of float32 within 3 %, not the same"
fi

# -- data larger than memory: each sample once per epoch, and the same ones on any number of ranks
run 1 windows1 --data.memory=1M
run 3 windows3 --data.memory=1M
compare windows1 windows3

# -- twice as many ranks as cores: each core has two of them
cores=$(nproc)
if [ "$cores" -gt 1 ] && [ "$cores" -le 4 ]; then
  launch_ranks $((2 * cores)) "$TRIREME" train config.yaml --run.dir=shared_cores --train.steps=4000 --log.every=1000 \
    > shared_cores.log 2>&1 &
  job=$!
  while kill -0 $job 2> /dev/null; do
    for rank in rank.*; do
      own=$(awk '/^Cpus_allowed_list/ { print $2 }' "/proc/$(cat "$rank" 2> /dev/null)/status" 2> /dev/null)
      [ -z "$own" ] || echo "$own" > "cores.${rank#rank.}"
    done
    sleep 0.02
  done
  wait $job || { cat shared_cores.log; fail "twice as many ranks as cores"; }
  bound=$(cat cores.* | sort | uniq -c | awk '$1 == 2 && $2 ~ /^[0-9]+$/ { n++ } END { print n + 0 }')
  [ "$bound" = "$cores" ] || { head cores.*; fail "$bound of $cores cores have two ranks"; }
  pass "twice as many ranks as cores: two ranks for each core"
else
  echo "skipped: twice as many ranks as cores (there are $cores)"
fi

# -- a full disk: the writing rank reports it, all ranks end
if mkdir full && mount -t tmpfs -o size=64k tmpfs full 2> /dev/null; then
  launch 2 "$TRIREME" train config.yaml --data.validation=0.1 --train.steps=3 --run.dir=full/run > full.log 2>&1
  status=$?
  umount full
  [ $status = 1 ] || { cat full.log; fail "a full disk: exit status $status, not 1"; }
  grep -q "best.h5.*No space left" full.log || { cat full.log; fail "a full disk: no message names the file"; }
  pass "a full disk"
else
  echo "skipped: a full disk (this user may not mount a small one)"
fi

finish
