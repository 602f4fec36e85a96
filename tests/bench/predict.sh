#!/bin/bash
# Seconds per sample of `trireme predict` on one core, single samples, compared with onnxruntime and the same model.
#
#   [ROUNDS=7] [SAMPLES=1000] [PYTHON=python3] tests/bench/predict.sh [MODEL]     (lenet5; it takes digits)
#
# Ours is the time of a run over all samples minus that of a run over one, i.e. without startup, which is printed too,
# but with reading samples and writing predictions. onnxruntime gets one sample in memory.
. "$(dirname "$0")/lib.sh"
model=${1:-lenet5}
SAMPLES=${SAMPLES:-1000}
PYTHON=${PYTHON:-python3}
export OMP_NUM_THREADS=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$TRIREME" data make digits --out="$work/d.h5" --train=64 --test="$SAMPLES" > /dev/null 2>&1
"$TRIREME" train --data.file="$work/d.h5" --model="$model" --train.steps=1 --train.batch=64 --data.limit_test=8 \
  --run.dir="$work/run" --log.quiet=yes
"$TRIREME" export "$work/run/checkpoints/last.h5" --format=onnx --out="$work/m.onnx" 2> /dev/null

# seconds N: time to predict N samples one by one
seconds() {
  local begin=$(date +%s%N)
  "$TRIREME" predict "$work/run/checkpoints/last.h5" --data.file="$work/d.h5" --out="$work/o.h5" --train.batch=1 \
    --data.limit_test="$1" 2> /dev/null
  awk -v t=$(($(date +%s%N) - begin)) 'BEGIN { printf "%.6f", t / 1e9 }'
}
peer='
import sys, time, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
x = numpy.zeros([1] + session.get_inputs()[0].shape[1:], "f4")
session.run(None, {"samples": x})
begin = time.perf_counter()
for _ in range(int(sys.argv[2])):
    session.run(None, {"samples": x})
print((time.perf_counter() - begin) / int(sys.argv[2]))'

printf '%5s %10s %12s %12s %8s\n' round 'start s' 'ours s' 'onnx s' ratio
for round in $(seq "$ROUNDS"); do
  one=$(seconds 1)
  all=$(seconds "$SAMPLES")
  a=$(awk -v a="$all" -v b="$one" -v n="$SAMPLES" 'BEGIN { printf "%.9f", (a - b) / (n - 1) }')
  b=$("$PYTHON" -c "$peer" "$work/m.onnx" "$SAMPLES")
  wanted onnxruntime "$b"
  starts+=("$one") ours+=("$a") theirs+=("$b") ratios+=("$(ratio "$b" "$a")")
  awk -v r="$round" -v o="$one" -v a="$a" -v b="$b" 'BEGIN { printf "%5d %10.4f %12.7f %12.7f %8.3f\n", r, o, a, b, b / a }'
done
printf '{"compare":"predict beside onnxruntime","model":"%s","rounds":%s,"start_s":%s,"sample_s":%s,"peer_s":%s,"ratio":%s}\n' \
  "$model" "$ROUNDS" "$(median "${starts[@]}")" "$(median "${ours[@]}")" "$(median "${theirs[@]}")" "$(median "${ratios[@]}")"
