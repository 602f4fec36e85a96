#!/bin/bash
# Schedules without flush end to end: evaluations change no bits of 2bw, and none of pipedream at equal steps;
# evaluations and checkpoints happen at the same steps as with other schedules; a stopped run resumes; a failure is one
# message; a rank that dies ends the job.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 1334 100
# 1201 training rows, 133 for validation: 26 steps per epoch; the last batch has one row, so micro-batches are empty
cat > config.yaml << 'EOF'
model: linear 48 | gelu | linear 40 | gelu | dropout 0.1 | linear 32 | gelu | linear 24 | gelu | linear 10
data: {file: digits.h5, validation: 0.1}
train: {steps: 60, batch: 48, accumulate: 3}
optim: {name: momentum, lr: 0.05}
parallel: {threads: 1}
run: {seed: 3, checkpoint_every: -1, overwrite: yes}
log: {every: 1, quiet: yes}
EOF
two="--parallel.schedule=2bw"
dream="--parallel.schedule=pipedream --train.accumulate=1"
resume="--run.overwrite=no --run.resume=auto"
# stages N NAME OPTION...: a run of N stages; one word may contain several options
# shellcheck disable=SC2048,SC2086
stages() { run "$1" "$2" --parallel.pipeline="$1" ${*:3}; }

# -- the same bits
stages 4 two4 "$two"
stages 2 two2 "$two"
equal two4 two2 "2bw, 3 micro-batches"
counts=4 signals=("USR1 all $two" "TERM 0 $dream")
! all_cases || counts="2 4" signals+=("TERM 2 $two" "USR1 3 $dream --parallel.stash=no")
for n in $counts; do
  stages $n looked$n "$two" --run.checkpoint_every=7 --train.evaluate_every=11
  equal two$n looked$n "2bw, evaluations and checkpoints on the way"
  stages $n resumed$n "$two" --run.checkpoint_every=7 --train.steps=35 # not at the end of an epoch
  stages $n resumed$n "$two" "$resume"
  equal two$n resumed$n "2bw"
  stages $n dream$n "$dream" --run.checkpoint_every=7
  stages $n part$n "$dream" --run.checkpoint_every=7 --train.steps=35
  stages $n part$n "$dream" --run.checkpoint_every=7 "$resume"
  equal dream$n part$n "pipedream, resumed where it was drained"
done
[ "$(sha dream4)" != "$(sha two4)" ] || fail "pipedream is as stale as 2bw"
wide="--parallel.pipeline=2 --parallel.data=2 $two --run.checkpoint_every=7"
# shellcheck disable=SC2086
{
  run 4 wide $wide
  run 4 private $wide --parallel.share=none
  run 4 widely $wide --train.steps=35
  run 4 widely $wide $resume
}
equal private wide "2bw, data 2 x pipeline 2, weights that two ranks share"
equal wide widely "2bw, data 2 x pipeline 2, resumed"

# -- update error feedback: as many bits as without, of any optimizer; its state is whole, and loads into any layout
ef="$two --parallel.error_feedback=yes --run.checkpoint_every=7"
rules=("adamw --optim.lr=0.003 --optim.ema=0.9" "muon --optim.lr=0.01" "adagrad --optim.lr=0.01")
! all_cases || rules+=(momentum "nadamw --optim.lr=0.003")
for rule in "${rules[@]}"; do
  name=${rule%% *}
  options="$ef --optim.name=$rule"
  stages 4 ef4 "$options"
  stages 2 ef2 "$options"
  equal ef4 ef2 "$name: error feedback on 4 and 2 stages"
  stages 2 part "$options" --train.steps=35
  rm -rf fewer && cp -r part fewer
  stages 2 part "$options" "$resume"
  equal ef2 part "$name: error feedback, resumed"
  rm -rf more && cp -r fewer more
  stages 3 fewer "$options" "$resume"
  stages 4 more "$options" "$resume"
  equal fewer more "$name: error feedback of 2 stages, resumed on 3 and on 4"
done
stages 4 ef4 "$ef"
[ "$(sha ef4)" != "$(sha two4)" ] || fail "error feedback changes nothing"
# shellcheck disable=SC2086
{
  run 4 efwide $wide --parallel.error_feedback=yes
  run 4 efprivate $wide --parallel.error_feedback=yes --parallel.share=none
}
equal efprivate efwide "error feedback, data 2 x pipeline 2, weights and states that two ranks share"
# without the state a run does not go on; without error feedback the state is left out
stages 2 part "$two" --run.checkpoint_every=7 --train.steps=35
# shellcheck disable=SC2086
try 2 part --parallel.pipeline=2 $ef $resume
[ $? = 2 ] && grep -q 'no state "last_step", which parallel.error_feedback needs' part.log ||
  { cat part.log; fail "resumed without the last step"; }
pass "error feedback: refused without its state"
stages 2 single "$two" --train.accumulate=1
stages 2 singly "$two" --train.accumulate=1 --run.checkpoint_every=7
equal single singly "2bw, one micro-batch on 2 stages"

# -- metrics have the steps and samples of a schedule with flush
marks() { # marks RUN: of each line of metrics.jsonl
  sed -e 's/"\(wall_s\|train_s\)":[^,]*,//g' -e 's/"\(test_loss\|validation_loss\|loss\)":.*/\1/' "$1/metrics.jsonl"
}
saved() { (cd "$1/checkpoints" && echo step-*.h5); }
for schedule in 1f1b 2bw pipedream; do
  [ $schedule = pipedream ] && micros=1 || micros=3
  stages 4 $schedule --parallel.schedule=$schedule --train.accumulate=$micros --train.evaluate_every=11 \
    --run.checkpoint_every=7 --run.keep=20
  marks $schedule > $schedule.marks
done
[ "$(grep -c validation_loss 1f1b.marks) $(grep -c test_loss 1f1b.marks) $(grep -c ,loss 1f1b.marks) $(saved 1f1b | wc -w)" = "6 1 60 9" ] ||
  { cat 1f1b.marks; saved 1f1b; fail "60 steps, 6 evaluations, one test and 9 checkpoints were expected"; }
for schedule in 2bw pipedream; do
  diff 1f1b.marks $schedule.marks || fail "$schedule: other steps or samples recorded"
  [ "$(saved 1f1b)" = "$(saved $schedule)" ] || fail "$schedule: other checkpoints: $(saved $schedule)"
  launch 2 "$TRIREME" eval $schedule/checkpoints/last.h5 --data.file=digits.h5 --json --log.quiet=yes > eval.json ||
    fail "eval of $schedule"
  [ "$(json_number accuracy eval.json)" = "$(of $schedule test_accuracy)" ] ||
    fail "$schedule: eval reports $(json_number accuracy eval.json), the run $(of $schedule test_accuracy)"
  pass "$schedule: steps, samples and checkpoints as with 1f1b"
done

# -- stopped by a signal to one rank, or to all
# begin RUN OPTION...: starts a run of 4 stages that takes minutes, and waits until its first epoch has started
begin() {
  # shellcheck disable=SC2048,SC2086
  launch_ranks 4 "$TRIREME" train config.yaml --run.dir="$1" --parallel.pipeline=4 --train.steps=0 --train.epochs=1000 \
    --device.compute=sleep --device.gflops=0.03 ${*:2} > "$1.log" 2>&1 &
  job=$!
  awaits 3 "$1/metrics.jsonl" $job
}
# ended RUN: waits until the job ends; its status
ended() {
  local since=$SECONDS
  wait $job
  status=$?
  at_least 20 $((SECONDS - since)) || { cat "$1.log"; fail "$1: ended only after $((SECONDS - since)) s"; }
}
i=0
for how in "${signals[@]}"; do
  i=$((i + 1))
  read -r signal who options <<< "$how"
  begin stopped$i "$options"
  chosen=$(cat rank.$([ "$who" = all ] && echo '?' || echo "$who"))
  # shellcheck disable=SC2086
  kill -$signal $chosen || fail "no rank $who"
  ended stopped$i
  [ $status = 3 ] || { cat stopped$i.log; fail "stopped$i: exit status $status, not 3"; }
  step=$(of stopped$i steps)
  at_least 25 "$step" || fail "stopped$i: stopped only after $step steps, at the end of the epoch"
  stages 4 stopped$i "$options" "$resume" --train.steps=$((step + 30))
  [ "$(of stopped$i steps)" = $((step + 30)) ] || fail "stopped$i: $(of stopped$i steps) steps, not $((step + 30))"
  if [[ $options == *2bw* ]]; then
    stages 4 unbroken$i "$options" --train.steps=$((step + 30))
    equal unbroken$i stopped$i "2bw, SIG$signal at step $step, rank: $who"
  else
    pass "$options: SIG$signal at step $step, rank: $who; resumed"
  fi
done

# -- a loss that is not finite
for options in "$two" "$dream" "$dream --parallel.stash=no"; do
  # shellcheck disable=SC2086
  LAUNCH_LIMIT=30 try 4 diverged --parallel.pipeline=4 $options --optim.lr=1e30
  status=$?
  [ $status = 1 ] || { cat diverged.log; fail "$options: exit status $status of a diverged run, expected 1"; }
  grep error: diverged.log > message.txt
  [ "$(wc -l < message.txt)" = 1 ] && grep -q 'step [0-9]' message.txt && grep -qE 'nan|inf' message.txt ||
    { cat diverged.log; fail "$options: expected one message with step and loss"; }
  [ "$(json_text status diverged/summary.json)" = failed ] || fail "$options: the failed run is not recorded"
  pass "$options: $(cat message.txt)"
done

# -- a rank that dies
for options in "$two" "$dream"; do
  rm -rf dies
  begin dies "$options"
  kill -KILL "$(cat rank.1)" || fail "no rank to kill"
  ended dies
  [ $status != 0 ] && [ $status != 124 ] && [ $status != 137 ] ||
    { cat dies.log; fail "$options: a rank died, and the job ended with $status"; }
  pass "$options: a rank died, the job ended with status $status"
done

# -- refused options
refused() { # refused WORDS N OPTION...
  # shellcheck disable=SC2048,SC2086
  try "$2" refused ${*:3}
  [ $? = 2 ] && grep -q "error:.*$1" refused.log && [ "$(grep -c error: refused.log)" = 1 ] ||
    { cat refused.log; fail "${*:3}: expected one message with \"$1\""; }
  pass "refused: ${*:3}"
}
refused "train.accumulate is at least 3" 4 --parallel.pipeline=4 "$two" --train.accumulate=2
refused "parallel.error_feedback" 4 --parallel.pipeline=4 --parallel.schedule=1f1b --parallel.error_feedback=yes
refused "parallel.error_feedback" 1 "$two" --parallel.error_feedback=yes
refused "train.accumulate above 1" 4 --parallel.pipeline=4 "$dream" --train.accumulate=3
refused "parallel.zero" 4 --parallel.pipeline=2 --parallel.data=2 "$two" --parallel.zero=2 --parallel.share=none
finish
