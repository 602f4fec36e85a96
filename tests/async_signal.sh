#!/bin/bash
# A signal to one rank, worker or dedicated server, stops an asynchronous run before the epoch ends; it resumes, and no
# batch is lost.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 40000 100
cat > config.yaml << 'EOT'
model: mlp 784-8-10
data: {file: digits.h5}
train: {steps: 4000, batch: 10}
optim: {name: sgd, lr: 0.05}
parallel: {threads: 1}
run: {seed: 3}
log: {every: 1, quiet: yes}
EOT

# stops RANKS RANK NAME OPTION...: the run ends soon after a signal to one rank, and then goes on
stops() {
  local ranks=$1 rank=$2 name=$3 job since status step
  shift 3
  launch_ranks "$ranks" "$TRIREME" train config.yaml --run.dir="$name" --device.compute=sleep --device.gflops=0.05 \
    "$@" > "$name.log" 2>&1 &
  job=$!
  awaits 5 "$name/metrics.jsonl" $job
  kill -USR1 "$(cat "rank.$rank")" || { cat "$name.log"; fail "$name: no rank $rank"; }
  since=$SECONDS
  wait $job
  status=$?
  [ $status = 3 ] || { cat "$name.log"; fail "$name: exit status $status after a signal to rank $rank, not 3"; }
  at_least 10 $((SECONDS - since)) || fail "$name: ended $((SECONDS - since)) s after the signal"
  step=$(of "$name" steps)
  at_least 2000 "$step" || fail "$name: stopped after $step of 4000 steps"
  run "$ranks" "$name" "$@" --run.resume=auto --train.steps=$((step + 50))
  [ "$(of "$name" steps) $(of "$name" samples)" = "$((step + 50)) $((10 * step + 500))" ] ||
    fail "$name: $(of "$name" steps) steps, $(of "$name" samples) samples, resumed at step $step for 50 more"
  pass "$name: a signal to rank $rank of $ranks stopped it after $step steps"
}
server="--strategy.servers=1"
stops 3 2 asgd-server --strategy.name=asgd $server
stops 3 0 asgd-worker --strategy.name=asgd $server
stops 3 2 static-server --strategy.name=asgd --strategy.data=static $server
stops 3 2 ssp-server --strategy.name=ssp --strategy.slack=2 --run.jitter="lognormal 0.5" $server
stops 4 3 ssp-second-server --strategy.name=ssp --strategy.slack=2 --strategy.servers=2
TRM_NODE_SIZE=2 stops 4 3 essp-nodes --strategy.name=essp --strategy.slack=1 $server
stops 2 1 ssp-worker --strategy.name=ssp --strategy.slack=3
finish
