#!/bin/bash
# Read rate of a data set with all checks, compared with cat of the same file, measured alternately.
#
#   [RANKS=1] [ROUNDS=7] tests/bench/io_vs_cat.sh FILE.h5
#
# The result is the median over rounds of our rate / cat's. The file is read once before the first round: both read
# from the page cache if it fits.
. "$(dirname "$0")/lib.sh"
RANKS=${RANKS:-1}
file=${1:?usage: io_vs_cat.sh FILE.h5 (make one: trireme data make digits --out=digits.h5 --train=300000)}
bytes=$(stat -c %s "$file")
cat "$file" > /dev/null

printf '%5s %14s %14s %8s\n' round 'data set GB/s' 'cat GB/s' share
for round in $(seq "$ROUNDS"); do
  a=$(job "$RANKS" bench io "$file" --repeat=3 --json | json_value gb_per_s)
  wanted "trireme bench io" "$a"
  begin=$(date +%s%N)
  cat "$file" > /dev/null
  cat "$file" > /dev/null
  cat "$file" > /dev/null
  end=$(date +%s%N)
  b=$(awk -v n="$bytes" -v t="$((end - begin))" 'BEGIN { printf "%.4f", 3 * n / t }')
  ours+=("$a") theirs+=("$b") ratios+=("$(ratio "$a" "$b")")
  awk -v r="$round" -v a="$a" -v b="$b" 'BEGIN { printf "%5d %14.3f %14.3f %8.3f\n", r, a, b, a / b }'
done
printf '{"compare":"io over cat","ranks":%s,"rounds":%s,"gb_per_s":%s,"cat_gb_per_s":%s,"share":%s}\n' \
  "$RANKS" "$ROUNDS" "$(median "${ours[@]}")" "$(median "${theirs[@]}")" "$(median "${ratios[@]}")"
