#!/bin/bash
# Two hosts on one machine (network namespaces on a bridge, each with its own name and shared memory) lose the network
# between them in the middle of a run: the watchdog says what the ranks wait for and ends the job, `trireme run`
# goes on with the host that answers, and the weights are those of an undisturbed run.
set -u
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/hosts_lib.sh"
isolate "$@"
scratch
openblas_only
start_hosts 2
digits 4000 100
cat > config.yaml << 'EOT'
model: mlp 784-8-10
data: {file: digits.h5}
train: {steps: 1000, epochs: 1000, batch: 16}
parallel: {threads: 1}
run: {seed: 3, lanes: 2, stall_after: 1, stall_abort: 2, checkpoint_every: 50}
log: {every: 10, quiet: yes}
EOT
run 1 whole
timeout -k 5 110 "$TRIREME" run --hosts=10.77.0.1,10.77.0.2 -- \
  $mpiexec_hosts -hosts {hosts} -n {ranks} \
  "$TRIREME" train config.yaml --run.dir=lost > lost.log 2>&1 &
job=$!
awaits 5 lost/metrics.jsonl $job
ip link set port2 down
began=$SECONDS
until grep -q 'error: stalled' lost.log || [ $((SECONDS - began)) -gt 8 ]; do sleep 0.1; done
took=$((SECONDS - began)) # 2 s until the job is ended, 1 s between two looks at the clock, and 5 s
# the same operation, or two if the last message of one has arrived at one rank only
line='all ranks wait: (2 ranks wait|rank 0 \(host host1, .*, rank 1 \(host host2, .*waits) in allreduce #[0-9]+ of '
at_least 8 $took && grep -Eq "warning: stalled: $line" lost.log && grep -Eq "error: stalled: .*$line" lost.log ||
  { cat lost.log; fail "not named within $took s"; }
pass "what the ranks wait for over a lost network is named"
wait $job
status=$?
[ $status = 0 ] && grep -q 'run: restart 1 of 10 in 1 s: the run has stalled' lost.log &&
  grep -q 'run: 1 of 2 hosts answer: 1 rank$' lost.log && [ "$(of lost ranks)" = 1 ] ||
  { cat lost.log; fail "status $status, $(of lost ranks) ranks"; }
equal whole lost
finish
