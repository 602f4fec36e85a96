#!/bin/bash
# trireme repeat: record.json, and a run that is made again from it: equal bits of synchronous runs, on a virtual
# network, and of recorded asynchronous ones; what is not the run's is named.
. "$(dirname "$0")/lib.sh"
scratch
digits 400 100
cat > config.yaml << 'YAML'
model: mlp 784-12-10 tanh
data: {file: digits.h5, validation: 0.1}
train: {steps: 24, batch: 12, evaluate_every: 12}
optim: {lr: 0.05}
parallel: {threads: 1}
run: {seed: 3, checkpoint_every: 12}
log: {quiet: yes}
YAML

# repeats STATUS TEXT ARGUMENT...: trireme repeat ends with a status and a text
repeats() {
  local status=$1 text=$2
  shift 2
  timeout -k 10 120 "$TRIREME" repeat "$@" > repeat.log 2>&1
  local is=$?
  [ $is -eq "$status" ] || { cat repeat.log; fail "repeat $*: status $is, not $status"; }
  grep -q -- "$text" repeat.log || { cat repeat.log; fail "repeat $*: does not say: $text"; }
  pass "repeat $*: $text"
}
record() { json_text "$1" "$2/record.json"; }

run 1 sync
for key in version revision config_sha256 folder digest processor blas_library mpi hdf5 compiler flags; do
  [ -n "$(record $key sync)" ] || { cat sync/record.json; fail "record.json has no $key"; }
done
sha256sum sync/config.yaml | grep -q "^$(record config_sha256 sync) " || fail "config_sha256"
[ "$(record folder sync)" = "$(pwd -P)" ] || fail "folder: $(record folder sync)"
"$TRIREME" data info digits.h5 --json > info.json || fail "data info"
grep -q "\"train\":{\"file\":\"digits.h5\",\"digest\":\"$(json_text digest info.json)\"}" sync/record.json ||
  { cat info.json sync/record.json; fail "digest of the data"; }
case "$(record blas_library sync)" in *"core $(record blas_core sync)"*) ;; *) fail "blas_core" ;; esac
grep -q '"seed":3,"ranks":1,"nodes":1,"threads":1,"resumed_at":0,' sync/record.json || fail "seed, ranks, threads"
grep -q "\"hosts\":\[{\"host\":\"$(uname -n | cut -c1-63)\",\"cores\":\[\"[0-9]" sync/record.json || fail "hosts"
grep -q '"command":\["[^"]*trireme","train",' sync/record.json || fail "command"
! grep -q '"slurm"' sync/record.json || [ -n "${SLURM_JOB_ID-}" ] || fail "a Slurm job without Slurm"
pass "record.json"
# the same text is in the checkpoint, for whoever has that file alone
"$TRIREME" data info sync/checkpoints/last.h5 > info.txt || fail "data info of a checkpoint"
for value in "revision             $(record revision sync)" "software.mpi         $(record mpi sync)" \
  "data.train.digest    $(json_text digest info.json)" "hosts.host           $(uname -n | cut -c1-63)" \
  "software.blas_library $(record blas_library sync)"; do
  grep -qF "  $value" info.txt || { cat info.txt; fail "not in the checkpoint: $value"; }
done
grep -q '^  command  *.*trireme train ' info.txt || { cat info.txt; fail "no command in the checkpoint"; }
if command -v h5dump > /dev/null; then
  h5dump -d record -b -o record.bin sync/checkpoints/last.h5 > dump.log 2>&1 && cmp record.bin sync/record.json ||
    { cat dump.log; fail "h5dump reads another record"; }
  pass "the record is in the checkpoint, where h5dump finds it, too"
else
  echo "SKIPPED: no h5dump here (Debian: hdf5-tools)"
fi

repeats 0 'same bits' sync
equal sync sync.repeat
repeats 2 'holds a run already' sync
(cd / && timeout -k 10 120 "$TRIREME" repeat "$work/sync" --overwrite) > out.log 2>&1 ||
  { cat out.log; fail "from another folder"; }
[ "$(record folder sync.repeat)" = "$(pwd -P)" ] || fail "paths are relative to another folder than the run's"
pass "repeated from another folder"

# Synchronous runs of several ranks, by lanes; a resumed run is repeated whole.
run 2 lanes --run.lanes=4
grep -q '"ranks":2,"nodes":1,' lanes/record.json || fail "ranks of lanes"
grep -q '"cores":\["[-0-9,]*","[-0-9,]*"\]' lanes/record.json || fail "cores of two ranks"
repeats 0 'same bits' lanes --launch="env RANKS={ranks} $MPIEXEC -n {ranks}"
repeats 2 'has not ended' lanes --launch=false --overwrite
repeats 2 'no-such-launcher' lanes --launch="no-such-launcher -n {ranks}" --overwrite
run 1 half
rm half/summary.json half/checkpoints/step-00000024.h5
run 1 half --run.resume=auto
grep -q '"resumed_at":12,' half/record.json || fail "resumed_at"
repeats 0 'same bits' half
equal half sync

# A virtual network: asynchronous, with its virtual times.
run 1 virtual --strategy.name=asgd --simulate.workers=4 --run.jitter="lognormal 0.5"
grep -q '"ranks":4,"nodes":4,' virtual/record.json || fail "virtual ranks"
repeats 0 'same bits' virtual --dir=again
equal virtual again
run 1 shares --simulate.workers=2 --parallel.shares=measured --run.slow=1:3
! grep -q 'shares: measured' shares/config.yaml || fail "no shares were chosen"
grep -q '"resumed_at":0,"shares":"measured"' shares/record.json || fail "shares"
repeats 0 'same bits' shares
repeats 2 'no run named'

# Real asynchronous ranks: their order of events must have been recorded.
run 3 unrecorded --strategy.name=asgd
repeats 2 'not recorded (run.record' unrecorded
run 2 measured --parallel.shares=measured
repeats 2 'parallel.shares=measured, and real speeds' measured
run 3 recorded --strategy.name=asgd --run.record=order
repeats 0 'same bits' recorded
grep -q 'workers: 3' recorded.repeat/config.yaml || fail "not on a virtual network"

# What is not the run's. copy NAME: of the synchronous run
copy() { rm -rf "$1" "$1.repeat" && cp -r sync "$1"; }
copy config && sed -i 's/lr: 0.05/lr: 0.06/' config/config.yaml
repeats 2 'config.yaml: changed since' config
copy version && sed -i 's/"version":"[^"]*"/"version":"0.0.1"/' version/record.json
repeats 2 'made by version 0.0.1' version
copy revision && sed -i 's/"revision":"[^"]*"/"revision":"another"/' revision/record.json
repeats 0 'revision: "another" in the run' revision
copy weights && sed -i 's/"weights_sha256":"./"weights_sha256":"x/' weights/summary.json
repeats 1 'weights_sha256 is x' weights
if [ -n "$(record blas_core sync)" ]; then
  copy kernels && sed -i 's/"weights_sha256":"./"weights_sha256":"x/' kernels/summary.json &&
    sed -i 's/"blas_core":"[^"]*"/"blas_core":"Nowhere"/' kernels/record.json
  repeats 2 "cannot be repeated: its products were computed by OpenBLAS' kernels \"Nowhere\"" kernels
fi
copy metrics && sed -i '1s/"loss":[^,}]*/"loss":1.5/' metrics/metrics.jsonl
repeats 1 'metrics.jsonl, line 1 (step [0-9]*): loss is 1.5 in the run' metrics
copy longer && tail -n 1 sync/metrics.jsonl >> longer/metrics.jsonl
repeats 1 'the repetition ends after line' longer
copy unmeasured && rm unmeasured/metrics.jsonl
repeats 2 'unmeasured/metrics.jsonl: No such file' unmeasured
copy unfinished && rm unfinished/summary.json
repeats 2 'unfinished/summary.json' unfinished
copy old && rm old/record.json
repeats 2 'old/record.json: No such file' old
copy cut && head -c 300 sync/record.json > cut/record.json
repeats 2 'record.json: damaged' cut
copy lacking && sed -i 's/"ranks":1,//' lacking/record.json
repeats 2 'damaged: no number under "ranks"' lacking
copy wrong && sed -i 's/"ranks":1,/"ranks":"many",/' wrong/record.json
repeats 2 'damaged: no number under "ranks"' wrong
copy empty && : > empty/record.json
repeats 2 'damaged: no text under "version"' empty
repeats 2 'there is no run' nothing

# Other files that options name: initial weights, the machine of a virtual network.
"$TRIREME" export sync --format=safetensors --out=w.safetensors > export.log 2>&1 || { cat export.log; fail "export"; }
run 1 begun --model.init=w.safetensors
sha256sum w.safetensors | grep -q "^$(record sha256 begun) " || fail "SHA-256 of model.init"
repeats 0 'same bits' begun
printf ' ' >> w.safetensors
repeats 2 'model.init: w.safetensors: changed since' begun --dir=other
"$TRIREME" plan config.yaml --ranks=2 --calibrate=machine.json > plan.log 2>&1 || { cat plan.log; fail "plan"; }
run 1 modeled --simulate.workers=2 --simulate.nodes=1 --simulate.machine=machine.json
grep -q '"ranks":2,"nodes":1,' modeled/record.json || fail "nodes of a virtual network"
repeats 0 'same bits' modeled
for name in d a-folder a-folder-with-a-name-of-another-length; do # names are sent before training begins
  repeats 0 'same bits' modeled --dir=$name
done
echo >> machine.json
repeats 2 'simulate.machine: machine.json: changed since' modeled --dir=other

# OpenBLAS' kernels are the run's, if this processor has them: otherwise its environment would choose.
if [ -n "$(record blas_core sync)" ] && grep -q DYNAMIC_ARCH sync/record.json && grep -qw avx /proc/cpuinfo; then
  OPENBLAS_CORETYPE=Sandybridge run 1 older
  [ "$(record blas_core older)" = Sandybridge ] || fail "OPENBLAS_CORETYPE is not followed: $(record blas_core older)"
  repeats 0 'same bits' older
  [ "$(record blas_core older.repeat)" = Sandybridge ] || fail "the kernels were not the run's"
  pass "OpenBLAS' kernels are pinned"
  if grep -qw avx2 /proc/cpuinfo; then
    OPENBLAS_CORETYPE=Nehalem "$TRIREME" bench gemm --shapes=16x16x16 2>&1 | grep -q 'OPENBLAS_CORETYPE=.* names faster' ||
      fail "no word about kernels that are older than the processor"
    "$TRIREME" bench gemm --shapes=16x16x16 2>&1 | grep -q 'names faster' && fail "words about kernels that are not old"
    pass "OpenBLAS' old kernels are named"
  fi
fi

mv digits.h5 kept.h5
repeats 2 'the train split cannot be read' sync --dir=lost
"$TRIREME" data make digits --out digits.h5 --train=400 --test=100 --seed=8 > make.log 2>&1 || fail "data make"
repeats 2 'digits.h5: not the data of the run (train split)' sync --dir=changed
[ ! -e changed ] || fail "a run was begun on other data"
mv kept.h5 digits.h5
finish
