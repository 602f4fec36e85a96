#!/bin/bash
# Samples per second of several ranks compared with one, one thread and 256 samples per rank, measured alternately.
#
#   [RANKS=2] [STEPS=20] [ROUNDS=7] tests/bench/scaling.sh
#
# The result is the median over rounds of the efficiency, rate of RANKS ranks / (RANKS x rate of one).
. "$(dirname "$0")/lib.sh"
RANKS=${RANKS:-2}
STEPS=${STEPS:-20}

printf '%5s %16s %16s %11s\n' round '1 rank, 1/s' "$RANKS ranks, 1/s" efficiency
for round in $(seq "$ROUNDS"); do
  a=$(job 1 bench step --bound=no --json --steps="$STEPS" --threads=1 | json_value items_per_s)
  wanted "one rank" "$a"
  b=$(job "$RANKS" bench step --bound=no --json --steps="$STEPS" --threads=1 | json_value items_per_s)
  wanted "$RANKS ranks" "$b"
  ones+=("$a") many+=("$b") ratios+=("$(awk -v a="$a" -v b="$b" -v n="$RANKS" 'BEGIN { printf "%.4f", b / a / n }')")
  awk -v r="$round" -v a="$a" -v b="$b" -v n="$RANKS" \
    'BEGIN { printf "%5d %16.0f %16.0f %11.3f\n", r, a, b, b / a / n }'
done
printf '{"compare":"scaling","ranks":%s,"threads":1,"rounds":%s,"one_items_per_s":%s,' "$RANKS" "$ROUNDS" \
  "$(median "${ones[@]}")"
printf '"items_per_s":%s,"efficiency":%s}\n' "$(median "${many[@]}")" "$(median "${ratios[@]}")"
