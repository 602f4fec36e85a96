#!/bin/bash
# Export and import of models: exported weights predict what the checkpoint predicts, initialize runs on any number of
# ranks, and predict needs no writable folder. PyTorch and onnxruntime check the files if Python has them.
set -u
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
export OMP_NUM_THREADS=1

"$TRIREME" data make digits --out digits.h5 --train=600 --test=200 > /dev/null 2>&1 || fail "data make digits"
seq 1 2000 > numbers.txt
"$TRIREME" data import text numbers.txt --out text.h5 > /dev/null 2>&1 || fail "data import text"

# run NAME RANKS OPTION...: trains; sets the hash of the weights
run() {
  local name=$1 ranks=$2
  shift 2
  launch "$ranks" "$TRIREME" train --run.dir="$name" --log.quiet=yes --train.batch=50 "$@" > log 2>&1 ||
    { cat log; fail "training run $name: $*"; }
}
sha() { json_text weights_sha256 "$1/summary.json"; }
loss() { "$TRIREME" eval "$@" --json 2> /dev/null | sed 's/.*"loss"/"loss"/'; }

# there_and_back NAME DATA MODEL
there_and_back() {
  local name=$1 data=$2 model=$3 given begun
  run "$name" 1 --data.file="$data" --model="$model" --train.steps=4
  "$TRIREME" export "$name/checkpoints/last.h5" --format=safetensors --out="$name.safetensors" > /dev/null 2>&1 ||
    fail "$name: export"
  given=$(loss "$name/checkpoints/last.h5" --data.file="$data")
  [ -n "$given" ] && [ "$given" = "$(loss "$name.safetensors" --model="$model" --data.file="$data")" ] ||
    fail "$name: the loss of the exported weights differs from that of $given"
  "$TRIREME" export "$name.safetensors" --model="$model" --data.file="$data" --format=safetensors \
    --out=again.safetensors > /dev/null 2>&1
  cmp -s "$name.safetensors" again.safetensors || fail "$name: a second export differs"
  for ranks in 1 2 3; do
    run "$name-$ranks" $ranks --data.file="$data" --model="$model" --model.init="$name.safetensors" --train.epochs=0
    begun=$(sha "$name-$ranks")
    [ -n "$begun" ] && [ "$begun" = "$(sha "$name")" ] || fail "$name: $ranks ranks started with other weights"
  done
  pass "$name: export, import, and initial weights of runs on 1 to 3 ranks"
}
there_and_back mlp digits.h5 "mlp 784-20-10 relu"
there_and_back lenet5 digits.h5 lenet5
there_and_back resnet20 digits.h5 resnet20
there_and_back gpt text.h5 "gpt layers=2 heads=2 dim=8 context=16"

# -- a resumed run reads its own checkpoint, not model.init
printf 'model: {text: mlp 784-20-10 relu, init: mlp.safetensors}\ndata.file: digits.h5\n' > config.yaml
run on 1 config.yaml --train.steps=2
grep -q '^model.init: mlp.safetensors$' on/config.yaml || fail "config.yaml does not name model.init"
mv mlp.safetensors gone.safetensors
run on 1 config.yaml --train.steps=4 --run.resume=auto
mv gone.safetensors mlp.safetensors
run whole 1 config.yaml --train.steps=4
[ "$(sha on)" = "$(sha whole)" ] || fail "a resumed run has other weights"
pass "a run that started from model.init resumes without it"

# -- predictions without a launcher and without a writable folder
predict() { (cd /proc && "$TRIREME" predict "$@" --data.file="$work/digits.h5" > "$work/log" 2>&1); }
chmod a-w lenet5/checkpoints/*.h5 lenet5.safetensors digits.h5
predict "$work/lenet5/checkpoints/last.h5" --out="$work/a.h5" || { cat log; fail "predict"; }
predict "$work/lenet5.safetensors" --model=lenet5 --out="$work/b.h5" || { cat log; fail "predict of exported weights"; }
if command -v h5dump > /dev/null; then
  h5dump -d /scores a.h5 | tail -n +2 > a.txt
  h5dump -d /scores b.h5 | tail -n +2 | cmp -s - a.txt && [ "$(wc -l < a.txt)" -gt 200 ] ||
    fail "exported weights predict something else"
fi
pass "predict: the same from a checkpoint and from exported weights, on one core, without writing files"

# -- a model of chosen weights: score 0 is x, score 1 is y, score 2 is -x-y
printf 'x,y,label\n2,0,a\n2,1,a\n0,2,a\n0,3,b\n1,4,b\n-2,-2,"c,d"\n3,0,"c,d"\n0,1,"c,d"\n' > points.csv
"$TRIREME" data import csv points.csv --out=points.h5 > log 2>&1 || { cat log; fail "import of points"; }
head='{"layer0.weight":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},'
head+='"layer0.bias":{"dtype":"F32","shape":[3],"data_offsets":[24,36]}}'
{ printf "\\x$(printf %x ${#head})\\0\\0\\0\\0\\0\\0\\0%s" "$head"
  printf '\0\0\200\077\0\0\0\0\0\0\0\0\0\0\200\077\0\0\200\277\0\0\200\277'
  printf '\0%.0s' $(seq 12); } > points.safetensors
points=(points.safetensors "--model=linear 3" --data.file=points.h5 --split=train --log.quiet=yes)
for ranks in 1 3; do
  launch $ranks "$TRIREME" eval "${points[@]}" --json > figures.json || fail "eval of chosen weights"
  for figure in '"confusion":[[2,1,0],[0,2,0],[1,1,1]]' '"accuracy":0.625' \
    '{"name":"a","precision":0.6666666666666666,"recall":0.6666666666666666,"f1":0.6666666666666666,"support":3}' \
    '{"name":"b","precision":0.5,"recall":1,"f1":0.6666666666666666,"support":2}' \
    '{"name":"c,d","precision":1,"recall":0.3333333333333333,"f1":0.5,"support":3}'; do
    grep -qF "$figure" figures.json || { cat figures.json; fail "eval on $ranks ranks does not say $figure"; }
  done
done
"$TRIREME" eval "${points[@]}" > figures.txt || fail "eval of chosen weights"
grep -qE '^c,d +100.00% +33.33% +50.00% +3$' figures.txt || { cat figures.txt; fail "no row of a class"; }
grep -qE '^c,d +1 +1 +1$' figures.txt || { cat figures.txt; fail "no row of the confusion matrix"; }
pass "confusion matrix, precision, recall and F1"
"$TRIREME" predict "${points[@]}" --out=points.out.csv || fail "predict as CSV"
[ "$(wc -l < points.out.csv)" -eq 9 ] && [ "$(head -n 1 points.out.csv)" = 'index,prediction,a,b,"c,d"' ] ||
  { cat points.out.csv; fail "not a header and 8 rows"; }
grep -qE '^0,a,0.8668[0-9]*,0.1173[0-9]*,0.01587[0-9]*$' points.out.csv || { cat points.out.csv; fail "row 0"; }
grep -qE '^5,"c,d",' points.out.csv || { cat points.out.csv; fail "row 5"; }
pass "predict as CSV"
"$TRIREME" eval lenet5 > log 2>&1 && grep -q 'lenet5: the checkpoint is checkpoints/' log && grep -q 'digits.h5: ' log ||
  { cat log; fail "eval of a run directory"; }
pass "eval of a run directory"

# -- ONNX
if "$TRIREME" export lenet5/checkpoints/last.h5 --format=onnx --out=lenet5.onnx > log 2>&1; then
  [ -s lenet5.onnx ] && [ ! -e lenet5.onnx.new ] || fail "no ONNX file"
  "$TRIREME" export lenet5.safetensors --model=lenet5 --data.file=digits.h5 --format=onnx --out=again.onnx > log 2>&1
  cmp -s lenet5.onnx again.onnx || fail "exported weights give another ONNX file"
  pass "the same ONNX file from a checkpoint and from exported weights"
else
  grep -q 'this build cannot write ONNX' log || { cat log; fail "export as ONNX"; }
  pass "without protobuf-c, export reports it"
fi

# -- the files in other programs
python=${PYTHON:-python3}
if "$python" -c 'import numpy, onnx, onnxruntime' 2> /dev/null && [ -s lenet5.onnx ]; then
  mkdir answers
  top_srcdir=$top_srcdir TRM_ONNX_OUT=answers "$top_builddir/tests/unit/test_onnx" > log 2>&1 ||
    { cat log; fail "test_onnx"; }
  "$python" "$here/reference/check_onnx.py" answers || fail "onnxruntime"
  pass "onnxruntime agrees"
else
  echo "SKIPPED: comparison with onnxruntime: $python has no onnxruntime (set PYTHON)"
fi
"$python" "$here/reference/check_safetensors.py" > log 2>&1
case $? in
  0) cat log; pass "PyTorch agrees" ;;
  77) cat log ;;
  *) cat log; fail "PyTorch" ;;
esac
finish
