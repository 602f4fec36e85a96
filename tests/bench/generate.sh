#!/bin/bash
# Tokens a second of `trireme generate` beside onnxruntime with the same weights, greedy continuations of one prompt
# within the context: with a key-value cache, and the graph that `trireme export` writes, which computes all positions
# for each token.
#
#   [ROUNDS=7] [THREADS=2] [TOKENS=200] [PYTHON=python3] tests/bench/generate.sh [MODEL]     (a GPT; a character GPT)
#
# Without startup on both sides. The tokens must agree.
. "$(dirname "$0")/lib.sh"
model=${1:-gpt layers=6 heads=6 dim=384 context=256}
THREADS=${THREADS:-2}
TOKENS=${TOKENS:-200}
PYTHON=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk 'BEGIN { srand(1); for (i = 0; i < 60000; i++) printf "%c", 32 + rand() * 95 }' > "$work/t.txt"
"$TRIREME" data import text "$work/t.txt" --out="$work/t.h5" > /dev/null 2>&1
"$TRIREME" train --model="$model" --data.file="$work/t.h5" --train.steps=1 --train.batch=1 --data.limit_test=1 \
  --run.dir="$work/run" --log.quiet=yes
"$TRIREME" export "$work/run" --format=onnx --out="$work/m.onnx" 2> /dev/null
prompt='the first words, of 33 characters' # of which each is a token, its number in the order of characters
numbers=$(printf '%s' "$prompt" | od -An -v -tu1 | awk '{ for (i = 1; i <= NF; i++) printf "%d ", $i - 32 }')

ours() {
  "$TRIREME" generate "$work/run" --prompt="$prompt" --tokens="$TOKENS" --temperature=0 --parallel.threads="$THREADS" \
    > "$work/ours.txt" 2> "$work/log"
  sed -n 's/.* tokens after .*, \([0-9.]*\) a second/\1/p' "$work/log"
}
# theirs KIND TOKENS
theirs() {
  "$PYTHON" "$here/onnx_generate.py" "$work/m.onnx" "$1" "$THREADS" "$2" $numbers > "$work/theirs.txt"
  awk '{ for (i = 2; i <= NF; i++) printf "%c", $i + 32 }' "$work/theirs.txt" > "$work/text.txt"
  tail -c +$((${#prompt} + 1)) "$work/ours.txt" | cmp -s -n "$2" "$work/text.txt" - ||
    { echo "other tokens in onnxruntime, $1" >&2; exit 1; }
  awk '{ printf "%.3f", 1 / $1 }' "$work/theirs.txt"
}

printf '%5s %12s %12s %12s %8s %8s\n' round 'ours /s' 'cache /s' 'whole /s' ratio ratio
for round in $(seq "$ROUNDS"); do
  a=$(ours)
  b=$(theirs CACHE "$TOKENS")
  c=$(theirs WHOLE 5)
  wanted onnxruntime "$c"
  speeds+=("$a") ratios+=("$(ratio "$a" "$b")") wholes+=("$(ratio "$a" "$c")")
  awk -v r="$round" -v a="$a" -v b="$b" -v c="$c" \
    'BEGIN { printf "%5d %12.1f %12.1f %12.1f %8.3f %8.1f\n", r, a, b, c, a / b, a / c }'
done
printf '{"compare":"generate beside onnxruntime","model":"%s","threads":%s,"rounds":%s,"tokens_per_s":%s,"ratio":%s,"ratio_without_cache":%s}\n' \
  "$model" "$THREADS" "$ROUNDS" "$(median "${speeds[@]}")" "$(median "${ratios[@]}")" "$(median "${wholes[@]}")"
