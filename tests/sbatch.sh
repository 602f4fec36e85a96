#!/bin/bash
# trireme sbatch: the scripts that it writes are bash without faults, run by themselves under mpiexec, and in a Slurm of
# two nodes as an array, signaled so that the job is queued again, and as a heterogeneous job. Wrong flags are refused
# before a script is written. A build for Open MPI does all this with its launcher, in Slurm with TRM_TEST_ALL=1 alone:
#   make check TESTS=tests/sbatch.sh TRM_TEST_ALL=1
set -u
. "$(dirname "$0")/lib.sh"
TRIREME=$(realpath "$TRIREME")
tests=$(realpath "$(dirname "$0")")
scratch
digits 320 64
cat > config.yaml << 'EOT'
model: mlp 784-16-10 relu
data: {file: digits.h5}
train: {steps: 8, epochs: 1000, batch: 32}
run: {lanes: 4, dir: runs/one}
log: {quiet: yes}
EOT
base=(config.yaml --nodes=1 --ranks-per-node=2 --time=00:10:00)
# script NAME WORD...: writes NAME.sbatch, without a fault that bash or shellcheck finds
script() {
  "$TRIREME" sbatch "${@:2}" --out="$1.sbatch" > "$1.out" 2>&1 || { cat "$1.out"; fail "sbatch ${*:2}"; }
  bash -n "$1.sbatch" || fail "$1.sbatch is not bash"
  [ "${unread-}" ] || ! command -v shellcheck > /dev/null || shellcheck "$1.sbatch" ||
    { cat "$1.sbatch"; fail "shellcheck of $1.sbatch"; }
}
has() { grep -qF -- "$2" "$1.sbatch" || { cat "$1.sbatch"; fail "$1.sbatch has no $2"; }; }

# refused TEXT WORD...
refused() {
  "$TRIREME" sbatch "${@:2}" --out=refused.sbatch > refused.out 2>&1
  [ $? = 2 ] && [ ! -e refused.sbatch ] && grep -qF -- "$1" refused.out ||
    { cat refused.out; fail "not refused: ${*:2}"; }
}
refused "--nodes: no number" config.yaml --ranks-per-node=2 --time=1:00:00
refused "--nodes=0" config.yaml --nodes=0 --ranks-per-node=2 --time=1:00:00
refused "--time: no time limit" config.yaml --nodes=1 --ranks-per-node=2
refused "--time=90" config.yaml --nodes=1 --ranks-per-node=2 --time=90
refused "--time=00:61:00" config.yaml --nodes=1 --ranks-per-node=2 --time=00:61:00
refused "--notice=600" "${base[@]}" --notice=600
refused "unknown option" "${base[@]}" --optim.rate=1
refused "optim.lr" "${base[@]}" --optim.lr=fast
refused "--partition=a b" "${base[@]}" --partition="a b"
refused "nothing.yaml" nothing.yaml --nodes=1 --ranks-per-node=2 --time=1:00:00
refused "same number of components" config.yaml --nodes=1/1 --ranks-per-node=1/1/1 --time=1:00:00
refused "no arrays of heterogeneous" config.yaml --nodes=1/1 --ranks-per-node=1 --time=1:00:00 --array=1-2 \
  --launcher=srun
refused "only srun" config.yaml --nodes=1/1 --ranks-per-node=1 --time=1:00:00 --launcher=mpich
refused "--stage=all" config.yaml --nodes=2 --ranks-per-node=1 --time=1:00:00 --stage=all
pass "wrong flags, values and options are refused"

# every launcher in its own words
cat > "it's one.yaml" < config.yaml
for launcher in srun mpich openmpi intel; do
  [ $launcher = srun ] || all_cases || unread=yes # a second each for the linter
  script $launcher "it's one.yaml" --nodes=3 --ranks-per-node=2 --threads=4 --time=1-00:00:00 --launcher=$launcher \
    --requeue --stage=yes --model='mlp 784-8-10 relu' --gpus-per-node=a100:2 --partition=fast --account=team
  has $launcher "#SBATCH --time=1-00:00:00"
  has $launcher "#SBATCH --gpus-per-node=a100:2"
  has $launcher "'--model=mlp 784-8-10 relu'"
  has $launcher "config='it'\\''s one.yaml'"
done
unread=
has srun "--nodes=3 --ntasks=6 --ntasks-per-node=2 --cpus-per-task=4 --cpu-bind=cores"
has mpich "mpiexec -n 6 -ppn 2 -bind-to core:4"
has openmpi "mpiexec -n 6 --map-by ppr:2:node:PE=4 --bind-to core"
has intel "mpiexec -n 6 -ppn 2 -genv I_MPI_PIN_CELL=core -genv I_MPI_PIN_DOMAIN=4:compact"
! grep -q 'OMP_PROC_BIND\|OMP_PLACES' ./*.sbatch || fail "OpenMP binds the program's first thread"
pass "four launchers, each with its own binding"

# Open MPI's launcher understands its words, and gives each rank a core of its own
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if ! openmpi=$(command -v mpiexec.openmpi); then
  echo "SKIPPED: the words of Open MPI's launcher (Debian: openmpi-bin)"
elif [ "$(env -u OMP_NUM_THREADS nproc)" -lt 2 ]; then
  echo "SKIPPED: the words of Open MPI's launcher (one core)"
else
  script words "${base[@]}" --launcher=openmpi
  read -ra words < <(sed -n 's/^ *mpiexec \(.*\) \\$/\1/p' words.sbatch)
  # shellcheck disable=SC2016 # that shell expands it
  timeout 60 "$openmpi" "${words[@]}" bash -c 'echo "$OMPI_COMM_WORLD_SIZE $(taskset -cp $$ | sed "s/.*: //")"' \
    > ranks.txt 2> words.err || { cat words.err; fail "mpiexec ${words[*]}"; }
  [ "$(sort -u ranks.txt | grep -c '^2 [0-9]*$')" = 2 ] || { cat ranks.txt; fail "not two ranks on two cores"; }
  pass "Open MPI's launcher starts ranks on cores of their own: ${words[*]}"
fi

# the interface is one that srun lists and the library speaks
case $("$TRIREME" --version) in *MPICH*) mpiexec=mpich ;; *Open\ MPI*) mpiexec=openmpi ;; *) mpiexec=intel ;; esac
in_slurm=srun
if [ $mpiexec = openmpi ]; then # beside MPICH, whose launcher has the plain name; Debian's srun has no PMIx that works
  mkdir openmpi && ln -s "$(command -v "${MPIEXEC%% *}")" openmpi/mpiexec
  export PATH=$PWD/openmpi:$PATH
  in_slurm=openmpi
fi
# the commands of the guide, and a signal before a time limit without Slurm
grep -oE '^ +trireme sbatch .*' "$tests/../docs/clusters.md" > guide.txt
[ "$(wc -l < guide.txt)" -ge 3 ] || fail "docs/clusters.md: only $(wc -l < guide.txt) commands"
while IFS= read -r line; do
  PATH=${TRIREME%/*}:$PATH bash -c "$line" > guide.out 2>&1 || { cat guide.out; fail "docs/clusters.md: $line"; }
done < guide.txt
pass "the commands of the guide write scripts"

mkdir bin
listed() { # listed INTERFACES LAUNCHER TEXT: srun lists these
  printf '#!/bin/sh\nprintf "MPI plugin types are...\\n\\tnone\\n%s" >&2\n' "$1" > bin/srun
  chmod +x bin/srun
  PATH=$PWD/bin:$PATH script listed "${base[@]}" --launcher="$2"
  has listed "$3"
}
if [ $mpiexec = mpich ]; then
  listed 'pmix\npmi2\n' auto "srun --mpi=pmi2 "
  listed 'cray_shasta\npmix\n' srun "srun --mpi=pmix "
  listed 'pmi2x\ncray_shasta\n' auto "mpiexec -n 2"
  PATH=$PWD/bin:$PATH refused "no interface that MPICH" "${base[@]}" --launcher=srun
  pass "the interface of srun is one that the library speaks"
fi
run 1 alone
script plain "${base[@]}" --launcher=$mpiexec --run.dir=runs/plain --stage=all
mkdir tmp
TMPDIR=$PWD/tmp timeout 60 bash plain.sbatch > plain.log 2>&1 || { cat plain.log; fail "bash plain.sbatch"; }
[ "$(of runs/plain ranks)" = 2 ] && [ -z "$(ls tmp)" ] || { cat plain.log; fail "not two ranks, or files are left"; }
equal alone runs/plain "under mpiexec by itself, data and results on another disk"

long=(--train.steps=6000 --log.every=1) # enough to be stopped on the way
run 1 whole "${long[@]}"
script stopped "${base[@]}" "${long[@]}" --launcher=$mpiexec --run.dir=runs/stopped
timeout 60 bash stopped.sbatch > stopped.log 2>&1 &
for _ in $(seq 600); do
  [ ! -e runs/stopped/metrics.jsonl ] || [ "$(wc -l < runs/stopped/metrics.jsonl)" -lt 50 ] || break
  sleep 0.05
done
pkill -USR1 -P $! -f stopped.sbatch # timeout's child
wait $!
status=$?
[ $status = 3 ] || { cat stopped.log; fail "status $status of a script that was told to stop"; }
timeout 60 bash stopped.sbatch > stopped.log 2>&1 || { cat stopped.log; fail "the second time"; }
equal whole runs/stopped "stopped by a signal, started again"

# -- in Slurm
command -v slurmd > /dev/null && command -v munged > /dev/null && [ "$(id -u)" = 0 ] || finish
[ $in_slurm = srun ] || all_cases || finish
here=$work
. "$tests/slurm_lib.sh"
start_slurm SchedulerParameters=bf_interval=1 one two
trap 'finish_slurm; rm -rf "$here"' EXIT
cd "$here" || exit 99
export TMPDIR=$here/tmp
# the launcher that fits, and one that starts each process as a job of its own
case $("$TRIREME" --version) in
*MPICH*)
  timeout 60 srun --mpi=none --ntasks=2 "$TRIREME" doctor > none.log 2>&1
  [ $? = 1 ] && [ "$(grep -c '^problem *launch .*rank 0 of 2 (SLURM_STEP_NUM_TASKS)' none.log)" = 1 ] &&
    [ "$(grep -c '^ok' none.log)" = 0 ] || { cat none.log; fail "trireme doctor: srun --mpi=none is not found"; }
  timeout 60 srun --mpi=pmi2 --ntasks=2 "$TRIREME" doctor > pmi2.log 2>&1
  grep -q '^ok *launch *one job of 2 ranks' pmi2.log || { cat pmi2.log; fail "trireme doctor: srun --mpi=pmi2"; }
  pass "trireme doctor: srun --mpi=none starts two jobs, --mpi=pmi2 one" ;;
esac
submit() { job=$(sbatch --parsable "$@") || fail "sbatch $*"; }
ended() {
  [ "$(sort -u <<< "$job_state")" = COMPLETED ] || { cat ./*-"$1"*.log; fail "$1: the job ended as $job_state"; }
}

script array "${base[@]}" --array=1-3 --launcher=$in_slurm --run.dir=runs/array
[ $in_slurm != srun ] || has array "srun --mpi=pmi2"
submit array.sbatch
for task in 1 2 3; do wait_for "${job}_$task"; ended "$job-$task"; done
for task in 1 2 3; do
  grep -q "\"seed\":$task[,}]" runs/array-$task/summary.json && [ "$(of runs/array-$task ranks)" = 2 ] ||
    { cat config-*.log; fail "array task $task: not a run of two ranks with seed $task"; }
done
equal alone runs/array-1 "an array of three"

nodes=(--nodes=2 --ranks-per-node=1)
[ $in_slurm = srun ] || nodes=(--nodes=1 --ranks-per-node=2) # its launcher asks the network for the nodes' names
script again config.yaml "${nodes[@]}" --time=00:10:00 "${long[@]}" --requeue --stage=yes --launcher=$in_slurm \
  --run.dir=runs/again
submit again.sbatch
for _ in $(seq 1000); do grep -qs '"loss"' runs/again/metrics.jsonl && break; sleep 0.02; done
scancel --batch --signal=USR1 "$job" # as before the time limit
for _ in $(seq 100); do scontrol show job "$job" | grep -q 'JobState=PENDING' && break; sleep 0.1; done
sleep 1                                 # until the former script has ended
scontrol update JobId="$job" StartTime=now # not in two minutes
wait_for "$job"
ended "$job"
scontrol show job "$job" | grep -q 'Restarts=1' && grep -q 'stopped by a signal' config-"$job".log ||
  { cat config-"$job".log; fail "not stopped and queued again"; }
equal whole runs/again "queued again, with the data set on the node's disk"
[ -z "$(ls tmp)" ] || fail "files are left on the node: $(ls tmp)"

[ $in_slurm = srun ] || finish # no other launcher reaches the components of a heterogeneous job
script het config.yaml --nodes=1/1 --ranks-per-node=1/1 --time=00:10:00 --launcher=srun --stage=yes --run.dir=runs/het
submit het.sbatch
wait_for "$job"
ended "$job"
equal alone runs/het "a heterogeneous job"
finish
