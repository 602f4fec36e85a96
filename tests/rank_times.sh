#!/bin/bash
# The times of a run over its ranks: minimum, mean and maximum of computing, waiting and communication in summary.json,
# and the slowest rank with what it cost, which the end of the run, summary.json and the report name.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 960 96
cat > config.yaml << 'EOT'
model: mlp 784-16-16-10 relu
data: {file: digits.h5}
train: {steps: 20, batch: 96}
device: {gflops: 0.1}
parallel: {threads: 1}
simulate: {bandwidth: 1e12, latency: 1e-9}
log: {every: 10}
EOT
# figure RUN WHAT OF: compute, wait or comm; min, mean, max or max_rank
figure() { grep -o "\"$2\":{[^}]*}" "$1/summary.json" | sed -n "s/.*\"$3\":\([^,}]*\).*/\1/p"; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(b > 0 && a > 0.99 * b && a < 1.01 * b) }'; }

simulate() { run 1 "$2" --simulate.workers="$1" --simulate.nodes=1 "${@:3}"; }
simulate 4 slow --run.slow=2:1.5
# 24 rows of each of 4 ranks, 20 steps; 6 operations for each weight, and few besides these products
awk -v all="$(awk 'BEGIN { print 20 * 24 * 6 * (784 * 16 + 16 * 16 + 16 * 10) / 0.1e9 }')" \
  -v l="$(figure slow compute min)" -v m="$(figure slow compute mean)" -v h="$(figure slow compute max)" '
  function near(x, y) { return x > 0.97 * y && x < 1.03 * y }
  BEGIN { exit !(near(l, all) && near(h, 1.5 * all) && near(m, 4.5 / 4 * all)) }' ||
  { cat slow/summary.json; fail "seconds computing are not what was modeled"; }
[ "$(figure slow compute max_rank)" = 2 ] || fail "another rank than 2 computed longest"
near "$(figure slow compute max)" "$(of slow train_s)" || fail "the slowest rank does not compute all the time"
[ "$(figure slow wait mean)" = "$(of slow wait_s)" ] && [ "$(figure slow comm mean)" = "$(of slow comm_s)" ] ||
  fail "means are not wait_s and comm_s"
near "$(awk -v a="$(figure slow compute mean)" -v b="$(of slow wait_s)" -v c="$(of slow comm_s)" 'BEGIN { print a + b + c }')" \
  "$(of slow train_s)" || fail "the parts are not the whole"
pass "minimum, mean and maximum over four ranks"

cost=$(json_number cost_s slow/summary.json)
near "$cost" "$(awk -v h="$(figure slow compute max)" -v l="$(figure slow compute min)" 'BEGIN { print h - l }')" &&
  grep -q '"slowest":{"rank":2,"host":"'"$(uname -n)"'",' slow/summary.json || { cat slow/summary.json; fail "not named"; }
line=$(grep 'slowest: rank 2 (host .*) computed .* s, the others .* s in the mean: it cost .* s of .* s$' slow.log) ||
  { cat slow.log; fail "the end of the run does not name rank 2"; }
near "$(echo "$line" | sed 's/.*it cost \(.*\) s of.*/\1/')" "$cost" || fail "$line: it cost $cost s"
"$TRIREME" report slow --out=report.html > report.log 2>&1 || { cat report.log; fail "no report"; }
near "$(grep -o 'slowest: rank 2 (host .*), which cost .* s' report.html | sed 's/.*which cost \([^ ]*\) s.*/\1/')" "$cost" ||
  fail "the report does not name rank 2, or another cost than $cost s"
pass "$line"

# named RUN RANK: RANK is named; -: none
named() {
  if [ "$2" = - ]; then
    ! grep -q slowest "$1.log" "$1/summary.json" || { cat "$1.log"; fail "$1: a rank is named"; }
  else
    grep -q "slowest: rank $2 " "$1.log" || { cat "$1.log"; fail "$1: rank $2 is not named"; }
  fi
  pass "$1: $2"
}
simulate 4 noise --run.slow=2:1.04
named noise -
simulate 4 nodes --run.slow=3:2 --simulate.nodes=2
named nodes 3
simulate 4 balanced --run.slow=2:2 --parallel.shares=2,2,1,2
named balanced -
simulate 3 asynchronous --run.slow=1:3 --strategy.name=asgd
named asynchronous -
at_least "$(figure asynchronous compute min)" 1e-9 || fail "asgd: no seconds computing"
# Stages of unequal work are compared with their own ranks.
pipeline=(--parallel.pipeline=2 --parallel.cut=2 --train.accumulate=4)
simulate 4 stages "${pipeline[@]}"
named stages -
simulate 4 slow-stage "${pipeline[@]}" --run.slow=1:2
named slow-stage 1
run 1 one
named one -
# Real ranks, in modeled time.
run 2 real --device.compute=sleep --run.slow=1:2
named real 1
finish
