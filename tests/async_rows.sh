#!/bin/bash
# Rows that asynchronous methods compute. The model is w x with hinge loss far from its margin, so every gradient is -1:
# the loss tells how many updates were made, and of features that one row has each, how often the row was used.
# - rows of an update: with the default of strategy.batch the same in every method, otherwise as documented
# - static batches, stopped and resumed on other numbers of ranks: every row is used once
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
cat > config.yaml << 'EOT'
model: linear 1 bias=no init=xavier
train: {epochs: 1, batch: 24, loss: hinge}
optim: {name: sgd, lr: 0.001}
parallel: {threads: 1}
run: {seed: 3, overwrite: yes}
log: {quiet: yes}
EOT
import() {
  "$TRIREME" data import libsvm "$1.svm" "$2.svm" --out="$1.h5" > import.log 2>&1 || { cat import.log; fail "import"; }
}

# -- rows of an update
awk 'BEGIN { for (i = 0; i < 2400; i++) print (i % 2 ? "-1 1:-1" : "+1 1:1") }' > same.svm
head -n 24 same.svm > test.svm
import same test
run 1 still --data.file=same.h5 --optim.lr=0

# updates_of METHOD: of the latest run of 2,400 rows; gradients of a method whose result is the mean of all workers
updates_of() {
  case $1 in
    ea* | fedasync | halos) grep -o '"updates":[0-9]*' run/staleness.json | awk -F: '{ n += $2 } END { print n }' ;; # moves of the shared weights
    *) awk -v from="$(of still test_loss)" -v to="$(of run test_loss)" -v mean="$2" \
      'BEGIN { printf "%.0f", (from - to) / 0.001 * mean }' ;;
  esac
}

# counts METHOD MEANING EXPECTED
counts() {
  local method=$1 meaning=$2 expected=$3 workers=1 more= got
  case $method in
    adpsgd | sgp | fedbuff) workers=4 ;;
    asyncdiloco) workers=4 more="--strategy.outer_rate=1 --strategy.outer_momentum=0" ;;
    a2cid2 | keuper) workers=4 more=--strategy.tau=1000 ;; # without exchanges: they do not keep the sum of the weights
    dcasgd) more=--strategy.lambda=0 ;;
    dana) more=--optim.momentum=1e-9 ;;
    slowmo | bmuf | diloco) more="--strategy.outer_rate=1 --strategy.outer_momentum=0" ;;
    hogwild) more="--strategy.rows=0 --parallel.share=none" ;; # no update is lost
  esac
  # shellcheck disable=SC2086
  run 4 run --data.file=same.h5 --strategy.name="$method" --strategy.batch="$meaning" $more
  got=$(updates_of "$method" $workers)
  [ "$got" = "$expected" ] || fail "$method, strategy.batch=$meaning: $got updates, expected $expected"
  [ "$(of run samples) $(of run steps)" = "2400 100" ] ||
    fail "$method: $(of run samples) samples, $(of run steps) steps"
}
methods=$("$TRIREME" train config.yaml --strategy.name=none-such 2>&1 |
  sed -n 's/.*(known: \(.*\))/\1/p' | tr -d ,)
[ "$(echo "$methods" | wc -w)" -ge 3 ] || fail "no list of methods"
for method in $methods; do
  case $method in ringmaster | rennala | backup | malenia | mindflayer | ringleader | iaasgd) continue ;; esac # no update of some
  counts "$method" update 100
done
pass "an update takes train.batch rows in every method: $methods"
some="asgd easgd"
! all_cases || some="asgd groups dcasgd dana hogwild easgd adpsgd sgp keuper"
for method in $some; do
  counts $method worker 100
  counts $method global 400
done
counts softsync worker 25
counts softsync global 100
counts ssp global 100
pass "strategy.batch=worker and global"
for method in sync ssp essp; do
  try 2 refused --data.file=same.h5 --strategy.name=$method --strategy.batch=worker
  [ $? = 2 ] && grep -q "error: strategy.batch=worker: .*strategy.name=$method" refused.log ||
    { cat refused.log; fail "$method: strategy.batch=worker is not refused"; }
done
pass "strategy.batch=worker is refused where ranks share a batch"

# -- stopped and resumed: how often each of 960 rows was used
awk 'BEGIN { for (i = 1; i <= 960; i++) print (i % 2 ? "-1 " i ":-1" : "+1 " i ":1") }' > one.svm
import one one
sed -i 's/batch: 24/batch: 12/' config.yaml
scores() {
  "$TRIREME" predict "$1/checkpoints/last.h5" --data.file=one.h5 --split=train --out="$1.csv" --log.quiet=yes \
    > predict.log 2>&1 || { cat predict.log; fail "predict $1"; }
}
run 1 none --data.file=one.h5 --optim.lr=0
scores none
# stopped RANKS NAME OPTION...: a static run, three times as slow on its rank 1, that a signal stops
stopped() {
  local ranks=$1 name=$2 before job status
  shift 2
  before=$(cat "$name/metrics.jsonl" 2> /dev/null | wc -l)
  launch_ranks "$ranks" "$TRIREME" train config.yaml --data.file=one.h5 --run.dir="$name" --strategy.name=asgd \
    --strategy.data=static --log.every=1 --device.compute=sleep --device.gflops=0.0004 --run.slow=1:3 "$@" \
    > "$name.log" 2>&1 &
  job=$!
  awaits $((before + 3)) "$name/metrics.jsonl" $job
  # shellcheck disable=SC2046 # numbers
  kill -USR1 $(cat rank.*)
  wait $job
  status=$?
  [ "$status $(json_text status "$name/summary.json")" = "3 stopped" ] ||
    { cat "$name.log"; fail "$name: not stopped by the signal: status $status"; }
}
sizes=("4 2 2")
! all_cases || sizes+=("2 3 3" "3 4 2")
for ranks in "${sizes[@]}"; do
  read -r first second third <<< "$ranks"
  name=from$first
  for meaning in update global; do
    rm -rf "$name"
    stopped "$first" "$name" --strategy.batch=$meaning
    at=$(of "$name" steps)
    if [ $name = from4 ]; then
      for other in --strategy.name=sync --train.batch=24; do
        rm -rf other && cp -r $name other
        try 2 other --data.file=one.h5 --strategy.name=asgd --run.resume=auto $other
        [ $? = 2 ] && grep -q "error: ${other:2:8}.*later batches were done than others" other.log ||
          { cat other.log; fail "$other: resumes a run whose batches are done out of order"; }
      done
    fi
    stopped "$second" "$name" --strategy.batch=$meaning --run.resume=auto
    then=$(of "$name" steps)
    run "$third" "$name" --data.file=one.h5 --strategy.name=asgd --run.resume=auto
    scores "$name"
    # a row moves its weight by the rate over the rows of its gradient
    paste -d , none.csv "$name.csv" | awk -F, -v rate=0.001 '
      NR > 1 { moved = $NF - $(NF / 2); moved = moved < 0 ? -moved : moved; rows = 12 * moved / rate
               if (rows < 0.9) lost++
               if (rows > 1.1 && rows < 1.9 || rows > 6.1) odd++
               n++ }
      END { exit !(n == 960 && !lost && !odd) }' ||
      fail "$first, $second, $third ranks, $meaning: rows are lost or repeated"
    [ "$(of "$name" steps) $(of "$name" samples)" = "80 960" ] || fail "$name: $(of "$name" steps) steps"
    pass "$first ranks, stopped after $at batches, $second ranks, after $then, $third ranks, $meaning"
  done
done
finish
