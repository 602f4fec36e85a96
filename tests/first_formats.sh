#!/bin/bash
# What the first program that trained wrote is still read: data sets, a run, its checkpoints (tests/reference/first;
# make_first.sh there has the options of the run). The Python reader's part is python/tests/test_reader.py.
. "$(dirname "$0")/lib.sh"
top=$(realpath "$top_srcdir")
TRIREME=$(realpath "$TRIREME")
scratch
cp -r "$top/tests/reference/first" . && chmod -R u+w first || exit 99
run() { "$TRIREME" "$@" > log 2>&1 || { cat log; fail "trireme $*"; }; }

for kind in vector csr tokens image; do
  run data info first/$kind.h5 --check
  grep -q 'every block and the digest are as they were written' log || { cat log; fail "$kind.h5"; }
  pass "data set: $kind"
done

# near KEY FILE VALUE: to rounding, which depends on the processor
near() {
  json_number "$1" "$2" | awk -v want="$3" '{ d = $1 - want; ok = d * d <= (1e-6 * want)^2 } END { exit !ok }' ||
    fail "$1 in $2: $(json_number "$1" "$2"), not $3"
}
loss=$(json_number test_loss first/run/summary.json)
run eval first/run --data.file=first/vector.h5 --json
cp log eval.json
near loss eval.json "$loss"
pass "the weights of its run evaluate to its loss"

run train first/run/config.yaml --data.file=first/vector.h5 --run.dir=again
near test_loss again/summary.json "$loss"
run train first/run/config.yaml --data.file=first/vector.h5 --run.dir=on \
  --run.resume=first/run/checkpoints/step-00000004.h5
near test_loss on/summary.json "$loss"
[ "$(json_number steps on/summary.json)" = 12 ] && ! grep -q '"step":4,' on/metrics.jsonl ||
  fail "the run does not go on from step 4"
pass "its configuration, and its checkpoint with momentum, lead to its loss"

run status first/run
grep -q '^state  *finished' log || { cat log; fail "status"; }
run report first/run --csv=run.csv
grep -q '1.281318359904819' run.csv || { cat run.csv; fail "report"; }
run train first/run/config.yaml --data.file=first/vector.h5 --model.init=first/run --train.steps=1 --run.dir=begun
run export first/run/checkpoints/step-00000012.h5 --format=safetensors --out=weights.safetensors
pass "status, report, model.init and export read it"
finish
