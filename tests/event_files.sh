#!/bin/bash
# Runs for other programs: TensorBoard's event files, while a run trains and of a finished one, and MLflow's file store.
# The files are read by TensorBoard and MLflow if Python (PYTHON) has them.
set -u
. "$top_srcdir/tests/lib.sh"
scratch
openblas_only
python=${PYTHON:-python3}
digits 400 100
train=("--model=mlp 784-16-10 relu" --data.file=digits.h5 --data.validation=0.1 --train.batch=20 --log.every=5
  --parallel.threads=1 --log.quiet=yes)

# events FOLDER...: each with one event file
events() {
  local folder
  for folder in "$@"; do
    [ "$(find "$folder" -maxdepth 1 -name 'events.out.tfevents.*' -size +0 | wc -l)" -eq "${files:-1}" ] ||
      fail "$folder: not ${files:-1} event file(s): $(ls "$folder")"
  done
}

"$TRIREME" train "${train[@]}" --train.epochs=2 --run.dir=first > log 2>&1 || { cat log; fail "training"; }
if ! "$TRIREME" report first --tensorboard=tb > log 2>&1; then
  grep -q 'no protobuf-c' log || { cat log; fail "report --tensorboard"; }
  bad=$("$TRIREME" train "${train[@]}" --run.dir=refused --log.tensorboard=yes 2>&1) &&
    fail "log.tensorboard is accepted by a build that cannot write event files"
  [[ $bad == *"no protobuf-c"* ]] || fail "log.tensorboard: $bad"
  pass "a build without protobuf-c says so"
else
  events tb/first
  "$TRIREME" report first --tensorboard=tb > log 2>&1 || { cat log; fail "report a second time"; }
  events tb/first
  pass "a finished run, exported twice, has one event file"
  mkdir -p here/deep other
  cp -r first here/same && cp -r first other/same
  (cd here && "$TRIREME" report ../here/same ../other/same --tensorboard=deep/tb && cd same &&
    "$TRIREME" report . --tensorboard=../tb1) > log 2>&1 || { cat log; fail "report of two runs of one name"; }
  events here/deep/tb/here/same here/deep/tb/other/same here/tb1/same
  pass "event files stay below the folder that was given"
  "$TRIREME" train "${train[@]}" --train.epochs=2 --run.dir=runs/live --log.tensorboard=yes > log 2>&1 ||
    { cat log; fail "training with log.tensorboard"; }
  cmp -s <(sed 's/,"wall_s.*"loss"/"loss"/; s/,"wall_s.*_loss"/_loss"/' first/metrics.jsonl) \
    <(sed 's/,"wall_s.*"loss"/"loss"/; s/,"wall_s.*_loss"/_loss"/' runs/live/metrics.jsonl) ||
    fail "log.tensorboard changes metrics.jsonl"
  events runs/live
  "$TRIREME" train "${train[@]}" --train.epochs=3 --run.dir=runs/live --log.tensorboard=yes --run.overwrite=yes \
    > log 2>&1 || { cat log; fail "training anew"; }
  events runs/live
  pass "a run that is replaced leaves no event file"
  "$TRIREME" train "${train[@]}" --run.dir=runs/part --run.checkpoint_every=10 --run.keep=9 --train.steps=30 \
    --log.tensorboard=tb > log 2>&1 || { cat log; fail "a first part"; }
  events tb/part
  "$TRIREME" train "${train[@]}" --train.steps=45 --log.tensorboard=tb --run.dir=runs/part \
    --run.resume="$(echo runs/part/checkpoints/step-*20.h5)" > log 2>&1 || { cat log; fail "resuming"; }
  files=2 events tb/part
  pass "a run in parts, in a folder of runs"
  "$TRIREME" train "${train[@]}" --train.epochs=2 --run.dir=runs/async --strategy.name=asgd --simulate.workers=4 \
    --log.tensorboard=yes > log 2>&1 || { cat log; fail "an asynchronous run"; }
  events runs/async
  launch 2 "$TRIREME" train "${train[@]}" --train.epochs=1 --run.dir=runs/sharded --parallel.zero=3 \
    --log.tensorboard=yes > log 2>&1 || { cat log; fail "a run with sharded weights"; }
  events runs/sharded
  if "$python" -c 'import h5py, tensorboard.backend.event_processing.event_accumulator' 2> /dev/null; then
    "$python" "$top_srcdir/tests/reference/check_events.py" first:tb/first runs/live:runs/live runs/part:tb/part \
      runs/async:runs/async runs/sharded:runs/sharded || fail "TensorBoard reads other values"
    pass "TensorBoard reads the values of metrics.jsonl and staleness.json, and histograms of the weights"
  else
    echo "SKIPPED: reading the event files ($python has no tensorboard, or no h5py)"
  fi
fi

"$TRIREME" report first --mlflow=mlruns > log 2>&1 || { cat log; fail "report --mlflow"; }
"$TRIREME" report first --mlflow=mlruns > log 2>&1 || { cat log; fail "report --mlflow again"; }
run=$(echo mlruns/*/*/meta.yaml)
[ -f "$run" ] || fail "not one run in the store: $run"
run=${run%/meta.yaml}
[ "$(cat "$run/params/optim.lr")" = 0.1 ] && [ "$(cat "$run/params/train.epochs")" = 2 ] || fail "parameters of the run"
[ "$(cat "$run/tags/mlflow.runName")" = first ] && [ "$(cat "$run/tags/trireme.status")" = done ] ||
  fail "tags of the run"
grep -q '^status: 3$' "$run/meta.yaml" || fail "a finished run is not FINISHED"
awk -v want="$(sed -n 's/.*"loss":\([^,]*\),.*/\1/p' first/metrics.jsonl | tr '\n' ' ')" '
  NF != 3 || $1 !~ /^[0-9]+$/ { exit 1 } { all = all $2 " " } END { exit all != want }' "$run/metrics/loss" ||
  fail "the losses are not those of metrics.jsonl"
[ "$(awk '{ print $2 }' "$run/metrics/test_accuracy")" = "$(json_number test_accuracy first/summary.json)" ] ||
  fail "the test accuracy is not that of summary.json"
pass "MLflow's files have the run's options, values and results"
if "$python" -c 'import mlflow' 2> /dev/null; then
  MLFLOW_ALLOW_FILE_STORE=true "$python" "$top_srcdir/tests/reference/check_mlflow.py" mlruns first ||
    fail "MLflow reads other values"
  pass "MLflow reads the run"
else
  echo "SKIPPED: reading the store ($python has no mlflow)"
fi
finish
