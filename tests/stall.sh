#!/bin/bash
# The watchdog: a frozen rank is named and ends the job with status 4, whichever rank it is and whichever node acts;
# collectives that do not match are named; ranks that wait or sleep by right are not.
set -u
. "$(dirname "$0")/lib.sh"
: "${MISMATCH:=$(dirname "$TRIREME")/tests/support/mismatch}"
scratch
openblas_only
digits 4000 100
cat > config.yaml << 'EOT'
model: mlp 784-8-10
data: {file: digits.h5}
train: {steps: 1000000, epochs: 1000000, batch: 16}
parallel: {threads: 1}
run: {stall_after: 0.5, stall_abort: 1, checkpoint_every: 100}
log: {every: 1, quiet: yes}
EOT

# ends_when_frozen NAME RANK TEXT OPTION...: three ranks, one of them is stopped
ends_when_frozen() {
  local name=$1 rank=$2 text=$3 job since status
  shift 3
  launch_ranks 3 "$TRIREME" train config.yaml --run.dir="$name" "$@" > "$name.log" 2>&1 &
  job=$!
  awaits 1 "$name/metrics.jsonl" $job
  until grep -qs "^{\"rank\":$rank,.*\"phase\":\"step\"" "$name"/ledger/*.jsonl || ! kill -0 $job; do sleep 0.02; done
  pid=$(cat "rank.$rank")
  grep /dev/shm "/proc/$pid/maps" | grep -v '(deleted)' && fail "$name: shared memory that a kill would leave"
  kill -STOP "$pid" || { cat "$name.log"; fail "$name: no rank $rank"; }
  since=$SECONDS
  wait $job
  status=$?
  [ $status = 4 ] || { cat "$name.log"; fail "$name: exit status $status, not 4"; }
  at_least 9 $((SECONDS - since)) || fail "$name: ended $((SECONDS - since)) s after rank $rank was stopped"
  grep -q "warning: stalled: rank $rank (host [^ ]*, pid $pid) $text" "$name.log" ||
    { cat "$name.log"; fail "$name: rank $rank is not named"; }
  grep -q "error: stalled: no rank has made progress for [1-9] s.* rank $rank " "$name.log" ||
    { cat "$name.log"; fail "$name: no error"; }
  [ "$(json_text status "$name/summary.json")" = stalled ] || fail "$name: $(cat "$name/summary.json")"
  "$TRIREME" status "$name" --exit-code > status.log 2>&1
  status=$?
  [ $status = 4 ] && grep -q "^  rank $rank (host [^ ]*, pid $pid) " status.log ||
    { cat status.log; fail "$name: trireme status ended with $status"; }
  grep -q "^{\"rank\":$rank,.*\"pid\":$pid," "$name"/ledger/node-*.jsonl || fail "$name: no ledger of rank $rank"
  for _ in $(seq 100); do
    grep -qs ') [^Z]' "/proc/$pid/stat" || break
    sleep 0.02
  done
  ! grep -qs ') [^Z]' "/proc/$pid/stat" || fail "$name: rank $rank is left: $(cat "/proc/$pid/stat")"
  pass "$name: rank $rank is named, and the job ends with status 4"
}
stopped="is stopped by a signal, for [0-9] s (it "
ends_when_frozen one-node 0 "$stopped"
TRM_NODE_SIZE=1 ends_when_frozen other-node 1 "is not heard of, for [0-9] s (it "
ends_when_frozen server 2 "$stopped" --strategy.name=asgd --strategy.servers=1

launch 3 "$MISMATCH" mismatch > mismatch.log 2>&1
status=$?
[ $status = 4 ] || { cat mismatch.log; fail "mismatch: exit status $status, not 4"; }
line="collectives do not match: rank 2 (host [^ ]*, pid [0-9]*) is in barrier #2 of the node, 2 ranks wait in allreduce"
grep -q "warning: stalled: $line #2 of the node (4 bytes)" mismatch.log ||
  { cat mismatch.log; fail "mismatch: not named"; }
pass "collectives that do not match are named"

# is_healthy NAME SECONDS OPTION...: a run that waits for longer than run.stall_after
is_healthy() {
  local name=$1 seconds=$2
  shift 2
  run 3 "$name" --run.stall_after=1 --run.stall_abort=20 "$@"
  ! grep stalled "$name.log" || fail "$name: a false alarm"
  at_least "$(of "$name" wall_s)" "$seconds" || fail "$name: took $(of "$name" wall_s) s, which shows nothing"
  [ ! -e "$name/ledger" ] || fail "$name: the ledger is left"
  pass "$name: no false alarm"
}
# worker 0 waits for worker 1, which sleeps; the server waits for both
is_healthy early 2 --train.steps=32 --strategy.name=asgd --strategy.servers=1 --strategy.data=static \
  --device.compute=sleep --device.gflops=0.05 --run.slow=1:15
# all wait while rank 1 sleeps
is_healthy outage 2 --train.steps=20 --run.outages=1:0-2.5 --strategy.name=easgd --strategy.data=static
finish
