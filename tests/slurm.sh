#!/bin/bash
# A Slurm of one node, started for this test: the batch script of the quickstart is submitted as a user would, with
# srun and with mpiexec, signaled so that it requeues and finishes, and as an array; commands that differ between ranks.
# Then a Slurm of two nodes, for a heterogeneous job, and for one that loses a node.
set -u
. "$(dirname "$0")/lib.sh"

. "$(dirname "$0")/slurm_lib.sh"
start_slurm "" "$host"

# A folder as the README leaves it: batch script, configuration, (small) data set.
cp "$top_srcdir/experiments/quickstart/config.yaml" "$top_srcdir/experiments/quickstart/quickstart.sbatch" "$work"
cd "$work" || exit 99
export TRIREME
"$TRIREME" data make digits --out digits.h5 --train=8000 --test=1000 > make.log 2>&1 || fail "data make digits"

for launch in srun mpiexec; do
  job=$(RUN=run-$launch LAUNCH=$launch OPTIONS="--train.epochs=4 --optim.warmup=20" \
    sbatch --parsable quickstart.sbatch) || fail "sbatch"
  wait_for "$job"
  [ "$job_state" = COMPLETED ] || { cat quickstart-"$job".log; fail "$launch: the job ended as $job_state"; }
  grep -q '"ranks":2' run-$launch/summary.json ||
    fail "$launch: not a job of two ranks: $(cat run-$launch/summary.json)"
  grep -q '"status":"done"' run-$launch/summary.json || fail "$launch: $(cat run-$launch/summary.json)"
  accuracy=$(json_number test_accuracy run-$launch/summary.json)
  at_least "$accuracy" 0.85 || fail "$launch: test accuracy $accuracy"
  pass "$launch: two ranks, test accuracy $accuracy"
done
[ "$(json_text weights_sha256 run-srun/summary.json)" = "$(json_text weights_sha256 run-mpiexec/summary.json)" ] ||
  fail "srun and mpiexec gave different weights"
pass "srun and mpiexec gave the same weights"

# requeue LAUNCH: signals a job, which must write a checkpoint, be requeued, and end with the weights of an
# uninterrupted run.
requeue() {
  local run=run-requeued-$1 job
  job=$(RUN=$run LAUNCH=$1 OPTIONS="--train.epochs=4 --optim.warmup=20" sbatch --parsable quickstart.sbatch) || fail "sbatch"
  for _ in $(seq 2000); do
    grep -q '"loss"' $run/metrics.jsonl 2> /dev/null && break
    sleep 0.05
  done
  scancel --batch --signal=USR1 "$job" # like --signal=B:USR1 shortly before the time limit
  for _ in $(seq 300); do # requeued jobs wait for their begin time: set it to now
    scontrol show job "$job" | grep -q 'JobState=PENDING' && scontrol update JobId="$job" StartTime=now 2> /dev/null
    grep -q '"status":"done"' $run/summary.json 2> /dev/null && break
    sleep 0.5
  done
  wait_for "$job"
  grep -q 'resumed from' quickstart-"$job".log ||
    { cat quickstart-"$job".log; fail "$1: the job was not requeued and resumed"; }
  [ "$(json_text weights_sha256 run-srun/summary.json)" = "$(json_text weights_sha256 $run/summary.json)" ] ||
    { cat quickstart-"$job".log; fail "$1: the weights of the requeued run differ from those of an uninterrupted one"; }
  pass "$1: stopped by a signal, requeued, resumed: the same weights"
}
requeue srun
requeue mpiexec

# Commands that differ between the ranks of a job: with the module for GPUs on its mock (tests/cuda), rank 0 computes
# there, rank 1 on the CPU; otherwise both on the CPU.
cp "$top_srcdir/experiments/hybrid/mpmd.sbatch" .
"$TRIREME" data make digits --out small.h5 --train=640 --test=64 > make.log 2>&1 || fail "data make digits"
sed -e 's/^model:.*/model: mlp 784-16-10 relu/' -e 's/digits.h5/small.h5/' -e 's/epochs: 3, batch: 256/steps: 24, batch: 32/' \
  "$top_srcdir/experiments/hybrid/config.yaml" > hybrid.yaml
module=${builddir:-$top_srcdir/build}/tests/cuda/.libs fast=cpu
[ ! -e "$module/trireme_cuda.so" ] || fast=cuda
export TRIREME_MODULES=$module
job=$(RUN=run-mpmd LAUNCH=srun CONFIG=hybrid.yaml FAST="--device.name=$fast" sbatch --parsable mpmd.sbatch) || fail "sbatch"
wait_for "$job"
[ "$job_state" = COMPLETED ] || { cat hybrid-"$job".log; fail "mpmd.sbatch: the job ended as $job_state"; }
[ $fast = cpu ] || grep -q '^device: cuda' hybrid-"$job".log || { cat hybrid-"$job".log; fail "no rank on the GPU"; }
grep -q '^shares: measured' hybrid-"$job".log && grep -q '"ranks":2' run-mpmd/summary.json ||
  { cat hybrid-"$job".log; fail "mpmd.sbatch: not a job of two ranks with measured shares"; }
"$TRIREME" train hybrid.yaml --run.dir=run-alone --parallel.shares=equal > alone.log 2>&1 || { cat alone.log; fail "one rank"; }
has_loss_of_one_rank() {
  awk -v a="$(json_number final_train_loss "$1/summary.json")" \
    -v b="$(json_number final_train_loss run-alone/summary.json)" \
    'BEGIN { exit !(a > 0 && a - b < 1e-4 * b && b - a < 1e-4 * b) }'
}
has_loss_of_one_rank run-mpmd || fail "mpmd.sbatch: not the loss of one rank"
pass "srun --multi-prog: a rank on $fast, one on the CPU, the loss of one rank"

# An array: each task has its own run directory and seed.
job=$(OPTIONS="--train.steps=20" sbatch --parsable --array=1-2 quickstart.sbatch) || fail "sbatch --array"
for task in 1 2; do
  wait_for "${job}_$task"
done
for task in 1 2; do
  grep -q "\"seed\":$task[,}]" runs/quickstart-"$job"-$task/summary.json ||
    { cat quickstart-*.log; fail "array task $task: not a separate run with seed $task"; }
done
pass "an array: two tasks, two run directories, two seeds"

# A sweep as job arrays: the runs that choose, then those of all seeds, then the table, which is that of one process.
sweep() { # sweep DIR OPTION...
  "$TRIREME" sweep hybrid.yaml --parallel.shares=equal --train.steps=8 --data.validation=0.2 --optim.lr=0.02,0.05,0.1 \
    --tune=optim.lr --run.seed=1..2 --dir="$1" "${@:2}" > sweep.log 2>&1 || { cat sweep.log; fail "sweep $*"; }
}
sweep sweep-alone
sweep sweep-arrays --slurm
job=$(bash sweep-arrays/submit.sh | tail -1)
wait_for "$job"
[ "$job_state" = COMPLETED ] || { tail sweep-arrays/*.log; fail "the sweep's last job: $job_state"; }
cmp sweep-alone/table.md sweep-arrays/table.md && cmp sweep-alone/runs.csv sweep-arrays/runs.csv ||
  { tail sweep-arrays/*.log; fail "the sweep by job arrays has another table"; }
[ "$(find sweep-arrays -name 'slurm-*-*.log' | wc -l)" = 5 ] || fail "not five tasks: $(ls sweep-arrays)"
pass "a sweep as two arrays: five runs, and the table of one process"

# A heterogeneous job of the same ranks: the backfill scheduler plans each component on a node of its own
# (not so often above: a requeued job would begin before its former script has ended).
stop_slurm
start_slurm SchedulerParameters=bf_interval=1 one two
cp "$top_srcdir/experiments/hybrid/hetjob.sbatch" .
rm -f hybrid-*.log # numbers of jobs begin anew
job=$(RUN=run-het CONFIG=hybrid.yaml FAST="--device.name=$fast" sbatch --parsable hetjob.sbatch) || fail "sbatch"
wait_for "$job"
[ "$job_state" = $'COMPLETED\nCOMPLETED' ] ||
  { cat hybrid-"$job".log; fail "hetjob.sbatch: the components ended as $job_state"; }
[ $fast = cpu ] || grep -q '^device: cuda' hybrid-"$job".log || { cat hybrid-"$job".log; fail "no rank on the GPU"; }
grep -q '"ranks":2' run-het/summary.json || { cat hybrid-"$job".log; fail "hetjob.sbatch: not a job of two ranks"; }
has_loss_of_one_rank run-het || fail "hetjob.sbatch: not the loss of one rank"
pass "a heterogeneous job: a rank on $fast, one on the CPU, the loss of one rank"

# A node of a job is lost, its slurmd and all that it has started: trireme run goes on with the node that is left, and to
# the weights of an undisturbed run.
cat > lost.yaml << 'EOT'
model: mlp 784-16-10 relu
data: {file: small.h5}
train: {steps: 4000, epochs: 1000, batch: 32}
parallel: {threads: 1}
run: {dir: run-lost, lanes: 2, checkpoint_every: 50, stall_after: 1, stall_abort: 2}
log: {every: 10, quiet: yes}
EOT
cat > lost.sbatch << 'EOT'
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --no-kill --output=lost.log
"$TRIREME" run -- srun --nodelist={hosts} --nodes={nodes} --ntasks={ranks} "$TRIREME" train lost.yaml
echo "ended with status $?"
EOT
"$TRIREME" train lost.yaml --run.dir=run-whole > whole.log 2>&1 || { cat whole.log; fail "one rank"; }
job=$(sbatch --parsable lost.sbatch) || fail "sbatch"
rank=
for _ in $(seq 1500); do
  [ ! -e run-lost/checkpoints/last.h5 ] ||
    rank=$(sed -n 's/^{"rank":1,.*"pid":\([0-9]*\),.*/\1/p' run-lost/ledger/node-*.jsonl 2> /dev/null)
  [ -z "$rank" ] || break
  sleep 0.02
done
[ -n "$rank" ] || { cat lost.log; fail "no checkpoint, or no rank 1 in the ledger"; }
kill -KILL "$(cat "$state/slurmd-two.pid")" "$(awk '{ print $4 }' "/proc/$rank/stat")" "$rank" ||
  { cat lost.log; fail "no second node"; }
for _ in $(seq 700); do # the launcher may have to be ended
  grep -qs '^ended with' lost.log && break
  sleep 0.2
done
slurmd -N two # the job is complete when all its nodes say so
grep -q '^ended with status 0' lost.log && grep -q 'run: restart 1 of 10 in 1 s' lost.log &&
  grep -q 'run: 1 of 2 hosts answer: 1 rank$' lost.log && [ "$(json_number ranks run-lost/summary.json)" = 1 ] ||
  { cat lost.log; fail "a lost node: $(squeue 2>&1)"; }
equal run-whole run-lost "a lost node"
finish
