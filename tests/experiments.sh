#!/bin/bash
# The short forms of all experiments that have expected results: their relations hold, and a run of each repeats to the
# bit. Not a test of make check, since together they take minutes.
set -u
. "$(dirname "$0")/lib.sh"
TRIREME=$(realpath "$TRIREME")
export TRIREME
from=$(cd "$top_srcdir/experiments" && pwd)
scratch
openblas_only
# short FOLDER: an experiment's short form, and a run of it repeated; what it says is in its log
short() {
  local name=${1##*/} run
  timeout -k 10 300 bash "$1/run.sh" --short > "$name.log" 2>&1 || return
  run=$(find "runs/$name-short" -name record.json | sort | head -1)
  [ -z "$run" ] || timeout -k 10 120 "$TRIREME" repeat "${run%/*}" --dir="$name-repeated" >> "$name.log" 2>&1 || return
  echo "$(grep -c '^holds' "$name.log") relations${run:+, a run repeated}" > "$name.done"
}
# two at a time, since many of their runs have one thread
folders=()
for folder in "$from"/*/; do
  folder=${folder%/}
  [ ! -e "$folder/expected.json" ] || folders+=("$folder")
done
for folder in "${folders[@]}"; do
  short "$folder" &
  [ "$(jobs -pr | wc -l)" -lt 2 ] || wait -n
done
wait
for folder in "${folders[@]}"; do
  name=${folder##*/}
  [ -e "$name.done" ] || { cat "$name.log"; fail "$name"; }
  pass "$name: $(cat "$name.done")"
done
# A relation that does not hold, a row that is not there, and a metric that is not there are failures.
mkdir -p wrong/main
printf 'variant,test_accuracy\na,0.5\n' > wrong/main/results.csv
for line in '"row": "variant=a", "metric": "test_accuracy", "relation": ">", "value": 0.6' \
  '"row": "variant=b", "metric": "test_accuracy", "relation": ">", "value": 0.1' \
  '"row": "variant=a", "metric": "test_loss", "relation": ">", "value": 0.1'; do
  echo "[{\"says\": \"x\", $line}]" > wrong.json
  ! bash "$from/check.sh" wrong.json wrong > log || { cat log; fail "check.sh passes $line"; }
done
echo '[{"says": "x", "row": "variant=a", "metric": "test_accuracy", "relation": "=", "value": 0.51, "tolerance": 0.02}]' > right.json
bash "$from/check.sh" right.json wrong > log || { cat log; fail "check.sh"; }
pass "check.sh finds what differs"
finish
