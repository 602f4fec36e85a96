#!/bin/bash
# Read rate of an encrypted data set, compared with that of the same data set plain, measured alternately.
#
#   [RANKS=1] [ROUNDS=7] [COLD=yes] [COMPRESS=0] tests/bench/encrypted_io.sh
#
# The result is the median over rounds of the rates' ratio. COLD=yes: from the disk, else from the page cache.
. "$(dirname "$0")/lib.sh"
RANKS=${RANKS:-1} COMPRESS=${COMPRESS:-0} COLD=${COLD:-no}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
key=--security.key=file:$work/key
"$TRIREME" key make "$work/key" 2> /dev/null
"$TRIREME" data make digits --out="$work/plain.h5" --train=150000 --test=100 --compress="$COMPRESS" > /dev/null 2>&1
"$TRIREME" key encrypt "$work/plain.h5" --out="$work/encrypted.h5" "$key"

rate() { job "$RANKS" bench io "$work/$1.h5" --repeat=3 --json --cold="$COLD" "${@:2}" | json_value gb_per_s; }
printf '%5s %12s %16s %8s\n' round 'plain GB/s' 'encrypted GB/s' ratio
for round in $(seq "$ROUNDS"); do
  a=$(rate plain) b=$(rate encrypted "$key")
  wanted "trireme bench io" "$a"
  wanted "trireme bench io" "$b"
  plain+=("$a") encrypted+=("$b") ratios+=("$(ratio "$b" "$a")")
  awk -v r="$round" -v a="$a" -v b="$b" 'BEGIN { printf "%5d %12.3f %16.3f %8.3f\n", r, a, b, b / a }'
done
printf '{"compare":"encrypted over plain","ranks":%s,"cold":"%s","compress":%s,"rounds":%s,"plain":%s,"encrypted":%s,"ratio":%s}\n' \
  "$RANKS" "$COLD" "$COMPRESS" "$ROUNDS" "$(median "${plain[@]}")" "$(median "${encrypted[@]}")" \
  "$(median "${ratios[@]}")"
